"""Functions in a small part of Python's syntax, translated to machine code: they give what Python gives."""

import ctypes

import pytest

from flambeau._core.kernels.llvm import compile as compiler
from flambeau._core.kernels.llvm.translate import translate

_count = 0


def made(text, name="flambeau_f", kinds="q", result="q", **constants):
    """A function of a text, called by ctypes. kinds: a letter for each argument, q an i64, d a double, p a pointer, o an object."""
    global _count
    _count += 1
    code = translate(text, constants)
    address = compiler.functions(("test translate", code, str(_count)), (name,), lambda: code)[name]
    types = {"q": ctypes.c_int64, "d": ctypes.c_double, "p": ctypes.c_void_p, "o": ctypes.py_object, "b": ctypes.c_bool, "v": None, "i": ctypes.c_int32}
    return ctypes.PYFUNCTYPE(types[result], *[types[k] for k in kinds])(address)


BOTH = """
def flambeau_f(a: i64, b: i64) -> i64:
    found = 0
    if a > 2 and b > 2 and (both := a + b) > 8:
        found = both
    elif a < 0 or b < 0 or a == b:
        found = -1
    else:
        found = a * 10 + b if not (a == 1 or b == 1) else 7
    return found
"""
LOOPS = """
def flambeau_f(a: i64, b: i64) -> i64:
    total = 0
    for k in range(a):
        if k == 3:
            continue
        for j in range(1, b):
            if j == k:
                break
            total += j * k
    n = a
    while n > 0 and total < 1000:
        total += n
        n -= 2
    while True:
        n += 5
        if n > b:
            break
    return total * 100 + n
"""


def in_python(text, **names):
    space = dict(names)
    exec("def" + text.split("def", 1)[1].replace(": i64", "").replace("-> i64", ""), space)
    return space["flambeau_f"]


@pytest.mark.parametrize("text", [BOTH, LOOPS], ids=["conditions", "loops"])
def test_what_python_gives(text):
    ours, theirs = made(text, kinds="qq"), in_python(text)
    for a in range(-3, 8):
        for b in range(-3, 8):
            assert ours(a, b) == theirs(a, b), (a, b)


def test_whole_numbers_of_all_widths_and_memory():
    f = made("""
def flambeau_f(p: ptr) -> i64:
    i8[p] = i8(-2)
    i16[p + 2] = i16(300)
    i32[p + 4] = i32(-5)
    double[p + 8] = 7.5
    float[p + 16] = float(double[p + 8])
    i64[p + 24] = bits(double(float[p + 16]))
    i64[p + 24] += 1
    return i64(i8[p]) + unsigned(i8[p]) + i64(i16[p + 2]) + i64(i32[p + 4]) + (unsigned(i32[p + 4]) >> 28) + i64(i8[p] != 0) + (SIX << 2 | 1)
""", kinds="p", SIX=6)
    memory = (ctypes.c_char * 32)()
    assert f(ctypes.addressof(memory)) == -2 + 254 + 300 - 5 + 15 + 1 + 25
    doubles = ctypes.cast(memory, ctypes.POINTER(ctypes.c_double))
    assert doubles[1] == 7.5
    assert ctypes.cast(memory, ctypes.POINTER(ctypes.c_int64))[3] == int.from_bytes(ctypes.c_double(7.5), "little") + 1


def test_objects_texts_and_variables_of_the_module():
    f = made("""
last: ptr = None
calls: i64 = 0

def same(a: ptr, b: ptr) -> i1:
    last = a
    calls = 0
    return last == b

def flambeau_f(o: ptr) -> ptr:
    global last, calls
    calls += 1
    seen = last is not None and same(last, o)
    last = o
    if seen or calls > 4:
        return PyErr_Format(ptr[PyExc_ValueError], "call %zd", calls)
    Py_IncRef(_Py_NoneStruct if ptr[o + 8] == PyLong_Type else o)
    return _Py_NoneStruct if ptr[o + 8] == PyLong_Type else o
""", kinds="o", result="o")
    assert f(1 << 70) is None and f("x") == "x"
    with pytest.raises(ValueError, match="call 3"):
        f("x")
    assert f("z") == "z"
    with pytest.raises(ValueError, match="call 5"):
        f("y")


def test_functions_by_pointer_and_memory_of_the_stack():
    f = made("""
def flambeau_g(a: i64, into: ptr) -> void:
    i64[into + 8 * a] = a * a

def flambeau_f(n: i64, g: ptr) -> i64:
    room = stack(i64, n)
    total = 0
    for k in range(n):
        call(void, g, k, room)
    for k in range(n):
        total += i64[room + 8 * k]
    return total
""", kinds="qp")
    address = compiler.functions(("test translate g",), ("flambeau_g",), lambda: translate("""
def flambeau_g(a: i64, into: ptr) -> void:
    i64[into + 8 * a] = a * a
"""))["flambeau_g"]
    assert f(5, address) == 0 + 1 + 4 + 9 + 16


@pytest.mark.parametrize(("text", "why"), [
    ("def f(a: i64) -> i64:\n    return b\n", "unknown name"),
    ("def f(a: i64) -> i64:\n    return g(a)\n", "unknown function"),
    ("def f(a: i64) -> ptr:\n    return a\n", "i64 where ptr is wanted"),
    ("def f(a: ptr) -> i64:\n    return a * 2\n", "a number where ptr is wanted"),
    ("def f(a: int) -> i64:\n    return a\n", "not a type: int"),
    ("def f(a: i64) -> i64:\n    return a\n    return 1\n", "nothing comes here"),
    ("def f(a: i64) -> i64:\n    with a:\n        return 1\n", "a With"),
    ("def f(a: i64) -> i64:\n    if a and (a := 3):\n        return 1\n    return a\n", "named before"),
    ("def f(a: i64) -> i64:\n    if a:\n        b = 1\n    return b\n", "unknown name"),
    ("def f(a: i64) -> ptr:\n    return PyList_New()\n", "1 arguments are wanted"),
])
def test_what_is_not_of_the_language_is_refused(text, why):
    with pytest.raises(SyntaxError, match=why):
        translate(text)

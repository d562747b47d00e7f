"""Machine code that carries out planned calls of sizes which are told with the call: the words of `flambeau_call` are filled in first.

`flambeau_sized(sizes, *arguments)` has as its `self` a bytes object of 64-bit words:

  word 0   how many arguments it takes, the sizes among them
  word 1   how many sizes
  word 2   how many constants
  word 3   how many registers: the sizes, the constants, and what instructions give
  word 4   how many instructions
  word 5   how many metas
  word 6   how many words of the call are in it
  word 7   how many of them are filled in
  the constants, bits of whole or floating-point numbers
  instructions, four words each: what is done (below), the register that is written, or whether a condition must hold, two registers
  metas    how many axes, the registers of the number of elements and of bytes, whether it is contiguous (True or False), the type, then the registers of
           sizes and strides
  what is filled in, three words each: the number of a word of the call, a kind (below), and the number of a register, of a meta or of a word
  the words of the call, as `calls.py` has them

Whole numbers stay within 2**61, and within 2**53 where they become floating-point ones, which are then what Python's are.  It gives NotImplemented where
they do not, where a condition does not hold, and where the call asks for more than machine code does: then nothing has been launched but checks.

`flambeau_sized_knows`, no method, tells it of the dictionary of metas, how many it has at most, what empties it, the classes of metas and shapes, what
makes one of a tuple, the device that is the CPU, the size classes of memory, and where
the function lies that runs launches whose work is shared.
"""

from __future__ import annotations

from .. import sized

NAMES = ("flambeau_sized", "flambeau_sized_knows")
CONSTANTS = {**{name: number for number, name in enumerate(sized.OPERATIONS)}, **{f"FILL_{name}": number for number, name in enumerate(sized.FILLED)}}

TEXT = """
metas: ptr = None
most_metas: ptr = None
start_over: ptr = None
meta_class: ptr = None
shape_class: ptr = None
new_tuple: ptr = None
cpu: ptr = None
by_64: ptr = None
size_class: ptr = None

def flambeau_sized_knows(metas_: ptr, most_metas_: ptr, start_over_: ptr, meta_: ptr, shape_: ptr, new_tuple_: ptr, cpu_: ptr, by_64_: ptr,
                         size_class_: ptr, runner_: ptr) -> void:
    global metas, most_metas, start_over, meta_class, shape_class, new_tuple, cpu, by_64, size_class, runner
    metas = metas_
    most_metas = most_metas_
    start_over = start_over_
    meta_class = meta_
    shape_class = shape_
    new_tuple = new_tuple_
    cpu = cpu_
    by_64 = by_64_
    size_class = size_class_
    runner = runner_

def within(r: i64) -> i1:
    return r >= -2305843009213693952 and r <= 2305843009213693952

def whole_numbers(tuple: ptr, count: i64, into: ptr) -> i1:
    "The sizes of a call; 0 where they are not that many whole numbers within bounds."
    if ptr[tuple + 8] != PyTuple_Type or i64[tuple + 16] != count:
        return False
    for k in range(count):
        o = ptr[tuple + ITEMS + 8 * k]
        if ptr[o + 8] != PyLong_Type:
            return False
        value = PyLong_AsLongLong(o)
        if value == -1 and PyErr_Occurred() is not None:
            PyErr_Clear()
            return False
        if not within(value):
            return False
        i64[into + 8 * k] = value
    return True

def worked_out(code: ptr, count: i64, registers: ptr) -> i1:
    "Carries out the instructions; 0 where a condition does not hold, or where numbers are too large."
    for k in range(count):
        at = code + 32 * k
        what = i64[at]
        to = i64[at + 8]
        x = registers + 8 * i64[at + 16]
        y = registers + 8 * i64[at + 24]
        a = i64[x]
        b = i64[y]
        if what < WHOLE:
            r = 0
            if what == ADD:
                r = a + b
            elif what == SUBTRACT:
                r = a - b
            elif what == MULTIPLY:
                about = double(a) * double(b)
                if about > 2305843009213693952.0 or about < -2305843009213693952.0:
                    return False
                r = a * b
            elif what == QUOTIENT or what == REST:
                if b == 0:
                    return False
                r = a // b
                rest = a - r * b
                if rest != 0 and (rest < 0) != (b < 0):
                    r = r - 1
                    rest = rest + b
                if what == REST:
                    r = rest
            elif what == SHIFT:
                if b < 0 or b > 62:
                    return False
                r = a // (1 << b)
                if a - r * (1 << b) < 0:
                    r = r - 1
            elif what == AND:
                r = a & b
            elif what == TRUNCATED:
                if not (double[x] <= 9007199254740992.0 and double[x] >= -9007199254740992.0):
                    return False
                r = i64(double[x])
            if not within(r):
                return False
            i64[registers + 8 * to] = r
        elif what < FLOATING:
            f = 0.0
            if what == FLOAT:
                if a > 9007199254740992 or a < -9007199254740992:
                    return False
                f = double(a)
            elif what == FLOAT_ADD:
                f = double[x] + double[y]
            elif what == FLOAT_SUBTRACT:
                f = double[x] - double[y]
            elif what == FLOAT_MULTIPLY:
                f = double[x] * double[y]
            else:
                if double[y] == 0.0:
                    return False
                f = double[x] / double[y]
            double[registers + 8 * to] = f
        else:
            holds = False
            if what == EQUAL:
                holds = a == b
            elif what == LESS:
                holds = a < b
            elif what == AT_MOST:
                holds = a <= b
            elif what == FLOAT_EQUAL:
                holds = double[x] == double[y]
            elif what == FLOAT_LESS:
                holds = double[x] < double[y]
            else:
                holds = double[x] <= double[y]
            if holds != (to != 0):
                return False
    return True

def numbers(registers: ptr, which: ptr, count: i64) -> ptr:
    "A tuple of the whole numbers in registers; null with an error."
    made = PyTuple_New(count)
    if made is None:
        return None
    for k in range(count):
        o = PyLong_FromLongLong(i64[registers + 8 * i64[which + 8 * k]])
        if o is None:
            Py_DecRef(made)
            return None
        PyTuple_SetItem(made, k, o)
    return made

def class_of(nbytes: i64) -> ptr:
    "The size class for so many bytes, or None; null with an error."
    if nbytes <= 8192:
        found = PyList_GetItem(by_64, (nbytes + 63) >> 6)
        Py_IncRef(found)
        return found
    if nbytes > MIDDLE:
        Py_IncRef(_Py_NoneStruct)
        return _Py_NoneStruct
    number = PyLong_FromLongLong(nbytes)
    if number is None:
        return None
    found = PyObject_CallOneArg(size_class, number)
    Py_DecRef(number)
    return found

def new_meta(shape: ptr, strides: ptr, type: ptr, dense: ptr, count: i64, length: i64) -> ptr:
    "A meta on the CPU; null with an error."
    m = PyType_GenericAlloc(meta_class, 0)
    numel = PyLong_FromLongLong(count)
    nbytes = PyLong_FromLongLong(length)
    sizes = class_of(length)
    sized = PyObject_CallFunctionObjArgs(new_tuple, shape_class, shape, None)
    if m is None or numel is None or nbytes is None or sizes is None or sized is None:  # there is no memory
        return None
    ptr[m + SHAPE] = sized
    put(m, STRIDES, strides)
    put(m, DTYPE, type)
    put(m, DEVICE, cpu)
    ptr[m + NUMEL] = numel
    put(m, CONTIGUOUS, dense)
    ptr[m + NBYTES] = nbytes
    ptr[m + SIZES] = sizes
    put(m, PLAIN, _Py_TrueStruct)
    return m

def meta_of(at: ptr, registers: ptr) -> ptr:
    "The meta that these words say; null with an error."
    rank = i64[at]
    type = ptr[at + 32]
    shape = numbers(registers, at + 40, rank)
    if shape is None:
        return None
    strides = numbers(registers, at + 40 + 8 * rank, rank)
    key = PyTuple_New(4)
    if strides is None or key is None:
        Py_DecRef(shape)
        if strides is not None:
            Py_DecRef(strides)
        return None
    PyTuple_SetItem(key, 0, shape)
    PyTuple_SetItem(key, 1, strides)
    Py_IncRef(type)
    PyTuple_SetItem(key, 2, type)
    Py_IncRef(cpu)
    PyTuple_SetItem(key, 3, cpu)
    found = PyDict_GetItemWithError(metas, key)
    if found is not None:
        Py_IncRef(found)
    elif PyErr_Occurred() is None:
        found = new_meta(shape, strides, type, ptr[at + 24], i64[registers + 8 * i64[at + 8]], i64[registers + 8 * i64[at + 16]])
        if found is not None and PyDict_SetItem(metas, key, found) != 0:
            Py_DecRef(found)
            found = None
        if found is not None and PyDict_Size(metas) > PyLong_AsLongLong(PyList_GetItem(most_metas, 0)):
            said = PyObject_CallNoArgs(start_over)
            if said is None:
                PyErr_Clear()
            else:
                Py_DecRef(said)
    Py_DecRef(key)
    return found

def fill_in(patches: ptr, count: i64, words: ptr, registers: ptr, found: ptr) -> i1:
    "Fills in words; 0 where memory is of no class that has a list."
    for k in range(count):
        at = patches + 24 * k
        kind = i64[at + 8]
        which = i64[at + 16]
        into = words + 8 * i64[at]
        if kind == FILL_REGISTER:
            i64[into] = i64[registers + 8 * which]
        elif kind == FILL_WORD:
            ptr[into] = words + 8 * which
        else:
            m = ptr[found + 8 * which]
            if kind == FILL_META:
                ptr[into] = m
            else:
                sizes = ptr[m + SIZES]
                if sizes is None or sizes == _Py_NoneStruct:
                    return False
                ptr[into] = ptr[sizes + FREE_LIST] if kind == FILL_FREE else sizes
    return True

def flambeau_sized(self: ptr, given: ptr, n: i64) -> ptr:
    head = self + DATA
    sizes = i64[head + 8]
    constants = i64[head + 16]
    instructions = i64[head + 32]
    count = i64[head + 40]
    length = i64[head + 48]
    patches = i64[head + 56]
    code = head + 64 + 8 * constants
    layouts = code + 32 * instructions
    registers = stack(i64, i64[head + 24])
    found = stack(ptr, count)
    words = stack(i64, length)
    made = None
    if n == i64[head] and whole_numbers(ptr[given], sizes, registers):
        memcpy(registers + 8 * sizes, head + 64, 8 * constants)
        if worked_out(code, instructions, registers):
            done = 0
            while done < count and (m := meta_of(layouts, registers)) is not None:
                ptr[found + 8 * done] = m
                done += 1
                layouts = layouts + 40 + 16 * i64[layouts]
            if done == count:
                memcpy(words, layouts + 24 * patches, 8 * length)
                if fill_in(layouts, patches, words, registers, found):
                    made = carried_out(words, given + 8, n - 1)
            for k in range(done):
                Py_DecRef(ptr[found + 8 * k])
    if made is None and PyErr_Occurred() is None:
        Py_IncRef(_Py_NotImplementedStruct)
        return _Py_NotImplementedStruct
    return made
"""

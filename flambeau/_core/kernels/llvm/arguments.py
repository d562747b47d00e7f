"""How a builtin in machine code reads what Python gives it: each argument as a slot of 64 bits.

An int or bool from -2**63 to 2**64 - 1 is stored modulo 2**64, a float as its bits; whatever has ``__index__`` (``__float__``) serves
too.  OverflowError for larger integers.

Addresses are ints of two digits, and reading those of a plain int where they lie takes a nanosecond where a call of CPython's takes
ten; likewise a plain float.  Where CPython's layout is another than the one known here, calls are all there is.
"""

from __future__ import annotations

import ctypes
import sys

# what stands for "two digits, positive" between an int's type and its digits
TWO = 2 << 3 if sys.version_info >= (3, 12) else 2


def _seen() -> bool:
    """Whether objects lie in memory as the machine code reads them, by looking at some."""
    if not (sys.implementation.name == "cpython" and sys.byteorder == "little" and object.__basicsize__ == 16 and sys.int_info.bits_per_digit == 30
            and sys.int_info.sizeof_digit == 4):
        return False  # a free-threaded build counts references elsewhere, behind longer heads

    def words(o: object, at: int, count: int = 1) -> list[int]:
        return (ctypes.c_int64 * count).from_address(id(o) + at)[:]
    whole, number, cut, pair = 5 | 7 << 30, 2.5, slice(number_of := 10 ** 6, None, 3), (None, number_of)
    items = [None, number_of, None]
    items.pop()
    return (words(whole, 8, 3) == [id(int), TWO, 5 | 7 << 32] and words(-whole, 16) != [TWO] and words(number, 8, 2) == [id(float), 0x4004000000000000]
            and words(cut, 16, 3) == [id(number_of), id(None), id(cut.step)]
            and words(pair, 16) == [2] and words(pair, tuple.__basicsize__, 2) == [id(None), id(number_of)]
            and words(items, 16) == [2] and (ctypes.c_int64 * 2).from_address(words(items, 24)[0])[:] == [id(None), id(number_of)]
            and ctypes.string_at(id(b"head") + DATA, 5) == b"head\0")


DATA = bytes.__basicsize__ - 1  # where a bytes object's bytes begin, which a builtin's header is
KNOWN = sys.version_info < (3, 15) and _seen()  # later ones may change what may be done to a list where it lies
# by the names that `translate` is told; None became immortal in Python 3.12, before, each reference is counted
LAYOUT = {"DATA": DATA, "TWO": TWO, "KNOWN": int(KNOWN), "COUNTED": int(sys.version_info < (3, 12))}

NONE = """
def none() -> ptr:
    if COUNTED:
        i64[_Py_NoneStruct] += 1
    return _Py_NoneStruct
"""

# the 64 bits of an address; of another int, its value modulo 2**64
WORD = """
def word(o: ptr) -> i64:
    if i64[o + 16] != TWO:
        return PyLong_AsUnsignedLongLongMask(o)
    digits = i64[o + 24]
    return digits & 4294967295 | digits >> 32 << 30
"""

# reads n arguments into an array; 0 with an error. floats: which of the first 64 are floating-point numbers
READ = """
def read_words(given: ptr, n: i64, floats: i64, into: ptr) -> i1:
    for k in range(n):
        o = ptr[given + 8 * k]
        type = ptr[o + 8]
        value = 0
        if floats & 1:
            if KNOWN and type == PyFloat_Type:
                value = i64[o + 16]
            else:
                number = PyFloat_AsDouble(o)
                value = bits(number)
                if number == -1.0 and PyErr_Occurred() is not None:
                    return False
        elif KNOWN and type == PyLong_Type and i64[o + 16] == TWO:
            digits = i64[o + 24]
            value = digits & 4294967295 | digits >> 32 << 30
        else:
            value = PyLong_AsLongLong(o)
            if value == -1 and PyErr_Occurred() is not None:
                if PyErr_ExceptionMatches(ptr[PyExc_OverflowError]) == 0:
                    return False
                PyErr_Clear()
                value = PyLong_AsUnsignedLongLong(o)
                if value == -1 and PyErr_Occurred() is not None:
                    return False
        i64[into + 8 * k] = value
        floats = floats >> 1
    return True
"""

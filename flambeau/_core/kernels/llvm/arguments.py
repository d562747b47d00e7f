"""How a builtin in machine code reads what Python gives it: each argument as a slot of 64 bits.

An int or bool from -2**63 to 2**64 - 1 is stored modulo 2**64, a float as its bits; whatever has ``__index__`` (``__float__``) serves
too.  OverflowError for larger integers.

Addresses are ints of two digits, and reading those of a plain int where they lie takes a nanosecond where a call of CPython's takes
ten; likewise a plain float.  Where CPython's layout is another than the one known here, calls are all there is.
"""

from __future__ import annotations

import sys

KNOWN = (sys.implementation.name == "cpython" and sys.version_info < (3, 15) and object.__basicsize__ == 16 and int.__basicsize__ == 24
          and float.__basicsize__ == 24 and sys.int_info.bits_per_digit == 30 and sys.int_info.sizeof_digit == 4 and sys.byteorder == "little")
# what stands for "two digits, positive" between an int's type and its digits
TWO = 2 << 3 if sys.version_info >= (3, 12) else 2

DATA = bytes.__basicsize__ - 1  # where a bytes object's bytes begin, which a builtin's header is
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

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
# before None is returned: it became immortal in Python 3.12; before, a new reference must be counted
COUNT_NONE = "" if sys.version_info >= (3, 12) else """
  %rc = load i64, ptr @_Py_NoneStruct
  %rc1 = add i64 %rc, 1
  store i64 %rc1, ptr @_Py_NoneStruct"""

DECLARED = """
@_Py_NoneStruct = external global i64
@PyLong_Type = external global i64
@PyFloat_Type = external global i64
@PyExc_OverflowError = external global ptr
declare i64 @PyLong_AsLongLong(ptr)
declare i64 @PyLong_AsUnsignedLongLong(ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyErr_Occurred()
declare i32 @PyErr_ExceptionMatches(ptr)
declare void @PyErr_Clear()
"""

_PLAIN = f"""as_int:
  %type.at = getelementptr i8, ptr %o, i64 8
  %type.of = load ptr, ptr %type.at
  %whole = icmp eq ptr %type.of, @PyLong_Type
  br i1 %whole, label %sized, label %call_int
sized:
  %size.at = getelementptr i8, ptr %o, i64 16
  %size = load i64, ptr %size.at
  %two = icmp eq i64 %size, {TWO}
  br i1 %two, label %digits, label %call_int
digits:
  %digits.at = getelementptr i8, ptr %o, i64 24
  %both = load i64, ptr %digits.at
  %d0 = and i64 %both, 4294967295
  %d1 = lshr i64 %both, 32
  %d2 = shl i64 %d1, 30
  %plain = or i64 %d0, %d2
  br label %keep
as_float:
  %ftype.at = getelementptr i8, ptr %o, i64 8
  %ftype = load ptr, ptr %ftype.at
  %double = icmp eq ptr %ftype, @PyFloat_Type
  br i1 %double, label %inside, label %call_float
inside:
  %value.at = getelementptr i8, ptr %o, i64 16
  %value = load i64, ptr %value.at
  br label %keep
"""
_NONE = """as_int:
  br label %call_int
as_float:
  br label %call_float
"""


def reading(come_from: str, floats: str, into: str) -> str:
    """IR that reads ``i64 %n`` arguments from the array ``ptr %given`` into `into`, from label ``each`` on, reached from `come_from`, and
    goes on at ``ready``; it returns null with the error set.  floats: the word that says which of the first 64 are floats."""
    plain = "[ %plain, %digits ], [ %value, %inside ], " if KNOWN else ""
    return f"""each:
  %k = phi i64 [ 0, %{come_from} ], [ %k.next, %keep ]
  %bits = phi i64 [ {floats}, %{come_from} ], [ %bits.next, %keep ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %one, label %ready
one:
  %o.at = getelementptr ptr, ptr %given, i64 %k
  %o = load ptr, ptr %o.at
  %low = and i64 %bits, 1
  %bits.next = lshr i64 %bits, 1
  %is_float = icmp ne i64 %low, 0
  br i1 %is_float, label %as_float, label %as_int
{_PLAIN if KNOWN else _NONE}call_int:
  %i = call i64 @PyLong_AsLongLong(ptr %o)
  %i.odd = icmp eq i64 %i, -1
  br i1 %i.odd, label %int_doubt, label %keep
int_doubt:
  %i.error = call ptr @PyErr_Occurred()
  %i.wrong = icmp ne ptr %i.error, null
  br i1 %i.wrong, label %beyond, label %keep
beyond:
  %overflow = load ptr, ptr @PyExc_OverflowError
  %large = call i32 @PyErr_ExceptionMatches(ptr %overflow)
  %is_large = icmp ne i32 %large, 0
  br i1 %is_large, label %unsigned, label %raise
unsigned:
  call void @PyErr_Clear()
  %u = call i64 @PyLong_AsUnsignedLongLong(ptr %o)
  %u.odd = icmp eq i64 %u, -1
  br i1 %u.odd, label %doubt, label %keep
call_float:
  %f = call double @PyFloat_AsDouble(ptr %o)
  %f.bits = bitcast double %f to i64
  %f.odd = fcmp oeq double %f, -1.0
  br i1 %f.odd, label %doubt, label %keep
doubt:
  %v0 = phi i64 [ %u, %unsigned ], [ %f.bits, %call_float ]
  %error = call ptr @PyErr_Occurred()
  %failed = icmp ne ptr %error, null
  br i1 %failed, label %raise, label %keep
raise:
  ret ptr null
keep:
  %v = phi i64 {plain}[ %i, %call_int ], [ %i, %int_doubt ], [ %u, %unsigned ], [ %f.bits, %call_float ], [ %v0, %doubt ]
  %slot = getelementptr i64, ptr {into}, i64 %k
  store i64 %v, ptr %slot
  %k.next = add i64 %k, 1
  br label %each
"""

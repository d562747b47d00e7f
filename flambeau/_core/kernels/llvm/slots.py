"""Machine code that reads the slots of objects: attributes, and what a storage does when it is freed.

`flambeau_attribute(object)` gives what lies at the end of a path of slots, and what a kind makes of it. Its `self` is a bytes object of 64-bit
words: the kind (`kernels/slots.py`); the address of the function that is asked instead where a slot is empty or holds an object of another class;
the address of a constant (what `CONSTANT` gives, `EQUAL` compares with, or the name that `GRADIENT` asks for); how many slots; then for each the
address of the class that the object must be of, and the slot's place in it; for `PRESENT` those of one more slot
of the first object, or 0 and 0 where there is none.

`flambeau_give_back` is a method without arguments: it appends what one slot holds to what another holds. The places of both are in its text.
`flambeau_ignore(address)`, no method, tells it of the object that keeps nothing.
"""

from __future__ import annotations

from . import arguments

NAMES = ("flambeau_attribute", "flambeau_give_back", "flambeau_ignore")
KNOWN = arguments.KNOWN  # whether an object's type is where these builtins look for it


def text(taker: int, given: int) -> str:
    """The IR. taker, given: the places of the slots of `flambeau_give_back`."""
    return _TEXT.replace("$DATA", str(arguments.DATA)).replace("$TAKER", str(taker)).replace("$GIVEN", str(given))


_TEXT = """
@_Py_NoneStruct = external global i64
declare void @Py_IncRef(ptr)
declare i32 @PyType_IsSubtype(ptr, ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare i64 @PyObject_Size(ptr)
declare i32 @PyObject_IsTrue(ptr)
declare ptr @PyLong_FromSsize_t(i64)
declare ptr @PyBool_FromLong(i64)
declare ptr @PyList_GetItem(ptr, i64)
declare void @PyErr_Clear()
declare i32 @PyList_Append(ptr, ptr)
declare ptr @PyUnicode_InternFromString(ptr)
declare ptr @PyObject_CallMethodObjArgs(ptr, ptr, ...)
declare void @Py_DecRef(ptr)
@PyList_Type = external global i64
@append = internal constant [7 x i8] c"append\\00"
@append_name = internal global ptr null
@ignored = internal global ptr null

define ptr @flambeau_attribute(ptr %self, ptr %given) #0 {
entry:
  %words = getelementptr i8, ptr %self, i64 $DATA
  %kind = load i64, ptr %words
  %other.at = getelementptr i64, ptr %words, i64 1
  %other = load ptr, ptr %other.at
  %constant.at = getelementptr i64, ptr %words, i64 2
  %constant = load ptr, ptr %constant.at
  %count.at = getelementptr i64, ptr %words, i64 3
  %count = load i64, ptr %count.at
  %first = getelementptr i64, ptr %words, i64 4
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %slot ]
  %o = phi ptr [ %given, %entry ], [ %p, %slot ]
  %at = phi ptr [ %first, %entry ], [ %at.next, %slot ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %found
one:
  %class = load ptr, ptr %at
  %type.at = getelementptr i8, ptr %o, i64 8
  %type = load ptr, ptr %type.at
  %same = icmp eq ptr %type, %class
  br i1 %same, label %load, label %below
below:
  %is = call i32 @PyType_IsSubtype(ptr %type, ptr %class)
  %is.not = icmp eq i32 %is, 0
  br i1 %is.not, label %otherwise, label %load
load:
  %place.at = getelementptr i64, ptr %at, i64 1
  %place = load i64, ptr %place.at
  %p.at = getelementptr i8, ptr %o, i64 %place
  %p = load ptr, ptr %p.at
  %empty = icmp eq ptr %p, null
  br i1 %empty, label %otherwise, label %slot
slot:
  %i.next = add i64 %i, 1
  %at.next = getelementptr i64, ptr %at, i64 2
  br label %each
otherwise:
  %asked = call ptr @PyObject_CallOneArg(ptr %other, ptr %given)
  ret ptr %asked
found:
  switch i64 %kind, label %otherwise [ i64 0, label %object i64 1, label %present i64 2, label %equal i64 3, label %length i64 4, label %fixed
                                       i64 5, label %leaf i64 6, label %gradient ]
object:
  call void @Py_IncRef(ptr %o)
  ret ptr %o
present:
  %there = icmp ne ptr %o, @_Py_NoneStruct
  br i1 %there, label %truth, label %beside
beside:
  %beside.at = getelementptr i64, ptr %at, i64 1
  %beside.place = load i64, ptr %beside.at
  %no_beside = icmp eq i64 %beside.place, 0
  br i1 %no_beside, label %truth, label %beside.read
beside.read:
  %beside.slot = getelementptr i8, ptr %given, i64 %beside.place
  %b = load ptr, ptr %beside.slot
  %b.none = icmp eq ptr %b, @_Py_NoneStruct
  br i1 %b.none, label %truth, label %otherwise
equal:
  %alike = call i32 @PyObject_RichCompareBool(ptr %o, ptr %constant, i32 2)
  %alike.is = icmp eq i32 %alike, 1
  %alike.error = icmp slt i32 %alike, 0
  br i1 %alike.error, label %raise, label %truth
truth:
  %t = phi i1 [ true, %present ], [ false, %beside ], [ false, %beside.read ], [ %alike.is, %equal ], [ true, %leaf ], [ %first.zero, %leaf.known ]
  %t.long = zext i1 %t to i64
  %t.made = call ptr @PyBool_FromLong(i64 %t.long)
  ret ptr %t.made
length:
  %n = call i64 @PyObject_Size(ptr %o)
  %n.error = icmp slt i64 %n, 0
  br i1 %n.error, label %raise, label %counted
counted:
  %n.made = call ptr @PyLong_FromSsize_t(i64 %n)
  ret ptr %n.made
raise:
  ret ptr null
fixed:
  call void @Py_IncRef(ptr %constant)
  ret ptr %constant
leaf:
  %no_node = icmp eq ptr %o, @_Py_NoneStruct
  br i1 %no_node, label %truth, label %leaf.node
leaf.node:
  %first.of = call ptr @PyList_GetItem(ptr %o, i64 0)
  %no_first = icmp eq ptr %first.of, null
  br i1 %no_first, label %wrong, label %leaf.known
leaf.known:
  %first.true = call i32 @PyObject_IsTrue(ptr %first.of)
  %first.zero = icmp eq i32 %first.true, 0
  br label %truth
gradient:
  %plain = icmp eq ptr %o, @_Py_NoneStruct
  br i1 %plain, label %kept, label %grad.node
kept:
  %named = call ptr @PyObject_GetAttr(ptr %given, ptr %constant)
  ret ptr %named
grad.node:
  %number = call ptr @PyList_GetItem(ptr %o, i64 0)
  %no_number = icmp eq ptr %number, null
  br i1 %no_number, label %wrong, label %grad.known
grad.known:
  %computed = call i32 @PyObject_IsTrue(ptr %number)
  %is_leaf = icmp eq i32 %computed, 0
  br i1 %is_leaf, label %grad, label %otherwise
grad:
  %g = call ptr @PyList_GetItem(ptr %o, i64 1)
  %no_g = icmp eq ptr %g, null
  br i1 %no_g, label %wrong, label %grad.have
grad.have:
  call void @Py_IncRef(ptr %g)
  ret ptr %g
wrong:
  call void @PyErr_Clear()
  br label %otherwise
}

define ptr @flambeau_give_back(ptr %self, ptr %nothing) #0 {
entry:
  %taker.at = getelementptr i8, ptr %self, i64 $TAKER
  %taker = load ptr, ptr %taker.at
  %given.at = getelementptr i8, ptr %self, i64 $GIVEN
  %given = load ptr, ptr %given.at
  %no_taker = icmp eq ptr %taker, null
  %no_given = icmp eq ptr %given, null
  %neither = or i1 %no_taker, %no_given
  br i1 %neither, label %done, label %both
both:
  %type.at = getelementptr i8, ptr %taker, i64 8
  %type = load ptr, ptr %type.at
  %is_list = icmp eq ptr %type, @PyList_Type
  br i1 %is_list, label %list, label %other
list:
  %failed = call i32 @PyList_Append(ptr %taker, ptr %given)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %done, label %raise
other:
  %nobody = load ptr, ptr @ignored
  %is_nobody = icmp eq ptr %taker, %nobody
  br i1 %is_nobody, label %done, label %append
append:
  %known = load ptr, ptr @append_name
  %unknown = icmp eq ptr %known, null
  br i1 %unknown, label %learn, label %call
learn:
  %made = call ptr @PyUnicode_InternFromString(ptr @append)
  store ptr %made, ptr @append_name
  %no_name = icmp eq ptr %made, null
  br i1 %no_name, label %raise, label %call
call:
  %name = phi ptr [ %known, %append ], [ %made, %learn ]
  %result = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(ptr %taker, ptr %name, ptr %given, ptr null)
  %no_result = icmp eq ptr %result, null
  br i1 %no_result, label %raise, label %drop
drop:
  call void @Py_DecRef(ptr %result)
  br label %done
raise:
  ret ptr null
done:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}

define void @flambeau_ignore(ptr %object) #0 {
  store ptr %object, ptr @ignored
  ret void
}
"""

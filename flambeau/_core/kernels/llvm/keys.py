"""Machine code that gives an argument's part in the key of a plan (`engine/fronts.py: constant, exact`), for the arguments of most calls.

`flambeau_key(argument)` has as its `self` a bytes object of 64-bit words:

  word 0   the function that gives the same in Python, which is asked for any other argument, or part of one
  word 1   1: the parts of a list come behind `list`, those of a slice behind `slice`, truths behind `bool`, and a tensor's part is its meta; 0: a list is
           as a tuple, and the others are other arguments
  word 2   the most parts that a list or tuple may have
  word 3   how many classes of plain arguments, which are their own part; then the classes

It gives: an int as it is; a float that is neither 0 nor a nan behind its class; what is of a plain class as it is; lists, tuples, and those of the
subclass of tuple that `flambeau_key_knows` was told of, as the tuple of their parts.
"""

from __future__ import annotations

from . import arguments

NAMES = ("flambeau_key", "flambeau_key_knows")


def text(meta: int) -> str:
    """The IR. meta: where a tensor's meta lies in it."""
    # a tuple's items begin where its head ends, which Python 3.14 made longer
    return _TEXT.replace("$DATA", str(arguments.DATA)).replace("$META$", str(meta)).replace("$ITEMS$", str(tuple.__basicsize__))


_TEXT = """
@PyLong_Type = external global i64
@PyFloat_Type = external global i64
@PyBool_Type = external global i64
@PyTuple_Type = external global i64
@PyList_Type = external global i64
@PySlice_Type = external global i64
@tensor = internal global ptr null
@sizes = internal global ptr null
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)

define void @flambeau_key_knows(ptr %tensor, ptr %sizes) #0 {
  store ptr %tensor, ptr @tensor
  store ptr %sizes, ptr @sizes
  ret void
}

; what lies so many bytes behind the start of an object
define internal ptr @at(ptr %o, i64 %place) #0 {
  %p = getelementptr i8, ptr %o, i64 %place
  %held = load ptr, ptr %p
  ret ptr %held
}

; a tuple of a class and what is behind it: `count` objects from `items` on; null with an error
define internal ptr @behind(ptr %class, ptr %items, i64 %count, ptr %words, i64 %depth) #0 {
entry:
  %deeper = add i64 %depth, 1
  %with = icmp ne ptr %class, null
  %one = zext i1 %with to i64
  %all = add i64 %count, %one
  %made = call ptr @PyTuple_New(i64 %all)
  %none = icmp eq ptr %made, null
  br i1 %none, label %raise, label %first
first:
  br i1 %with, label %put_class, label %each.first
put_class:
  call void @Py_IncRef(ptr %class)
  %ignored = call i32 @PyTuple_SetItem(ptr %made, i64 0, ptr %class)
  br label %each.first
each.first:
  br label %each
each:
  %i = phi i64 [ 0, %each.first ], [ %i.next, %put ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %get, label %done
get:
  %item.at = getelementptr ptr, ptr %items, i64 %i
  %item = load ptr, ptr %item.at
  call void @Py_IncRef(ptr %item)
  %part = call ptr @part(ptr %item, ptr %words, i64 %deeper)
  call void @Py_DecRef(ptr %item)
  %no_part = icmp eq ptr %part, null
  br i1 %no_part, label %drop, label %put
put:
  %place = add i64 %i, %one
  %ignored2 = call i32 @PyTuple_SetItem(ptr %made, i64 %place, ptr %part)
  %i.next = add i64 %i, 1
  br label %each
done:
  ret ptr %made
drop:
  call void @Py_DecRef(ptr %made)
  br label %raise
raise:
  ret ptr null
}

define internal ptr @part(ptr %v, ptr %words, i64 %depth) #0 {
entry:
  %deep = icmp sgt i64 %depth, 8  ; a list may hold itself
  br i1 %deep, label %ask, label %shallow
shallow:
  %type = call ptr @at(ptr %v, i64 8)
  %is_int = icmp eq ptr %type, @PyLong_Type
  br i1 %is_int, label %itself, label %class
class:
  %told.at = getelementptr i64, ptr %words, i64 1
  %told = load i64, ptr %told.at
  %tells = icmp ne i64 %told, 0
  %count.at = getelementptr i64, ptr %words, i64 3
  %count = load i64, ptr %count.at
  %classes = getelementptr i64, ptr %words, i64 4
  br label %each
each:
  %i = phi i64 [ 0, %class ], [ %i.next, %one ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %other
one:
  %plain.at = getelementptr ptr, ptr %classes, i64 %i
  %plain = load ptr, ptr %plain.at
  %i.next = add i64 %i, 1
  %is_plain = icmp eq ptr %type, %plain
  br i1 %is_plain, label %itself, label %each
other:
  %tensor = load ptr, ptr @tensor
  %sizes = load ptr, ptr @sizes
  %is_tuple = icmp eq ptr %type, @PyTuple_Type
  %is_sizes = icmp eq ptr %type, %sizes
  %is_items = or i1 %is_tuple, %is_sizes
  br i1 %is_items, label %tuple, label %not_tuple
not_tuple:
  %is_list = icmp eq ptr %type, @PyList_Type
  br i1 %is_list, label %list, label %not_list
not_list:
  %is_float = icmp eq ptr %type, @PyFloat_Type
  br i1 %is_float, label %float, label %not_float
not_float:
  br i1 %tells, label %rest, label %ask
rest:
  %is_tensor = icmp eq ptr %type, %tensor
  br i1 %is_tensor, label %meta, label %not_tensor
not_tensor:
  %is_slice = icmp eq ptr %type, @PySlice_Type
  br i1 %is_slice, label %slice, label %not_slice
not_slice:
  %is_bool = icmp eq ptr %type, @PyBool_Type
  br i1 %is_bool, label %bool, label %ask

itself:
  call void @Py_IncRef(ptr %v)
  ret ptr %v
meta:
  %m = call ptr @at(ptr %v, i64 $META$)
  %no_meta = icmp eq ptr %m, null
  br i1 %no_meta, label %ask, label %meta.is
meta.is:
  call void @Py_IncRef(ptr %m)
  ret ptr %m
float:
  %value.at = getelementptr i8, ptr %v, i64 16
  %value = load double, ptr %value.at
  %usual = fcmp one double %value, 0.0
  br i1 %usual, label %number, label %ask
number:
  br label %pair
bool:
  br label %pair
pair:
  %pair.made = call ptr @PyTuple_New(i64 2)
  %no_pair = icmp eq ptr %pair.made, null
  br i1 %no_pair, label %raise, label %pair.put
pair.put:
  call void @Py_IncRef(ptr %type)
  call void @Py_IncRef(ptr %v)
  %ignored = call i32 @PyTuple_SetItem(ptr %pair.made, i64 0, ptr %type)
  %ignored2 = call i32 @PyTuple_SetItem(ptr %pair.made, i64 1, ptr %v)
  ret ptr %pair.made
slice:
  %bounds = getelementptr i8, ptr %v, i64 16
  %slice.made = call ptr @behind(ptr @PySlice_Type, ptr %bounds, i64 3, ptr %words, i64 %depth)
  ret ptr %slice.made
tuple:
  %n.at = getelementptr i8, ptr %v, i64 16
  %n = load i64, ptr %n.at
  %items = getelementptr i8, ptr %v, i64 $ITEMS$
  br label %sized
list:
  %l.n.at = getelementptr i8, ptr %v, i64 16
  %l.n = load i64, ptr %l.n.at
  %l.items = call ptr @at(ptr %v, i64 24)
  br label %sized
sized:
  %length = phi i64 [ %n, %tuple ], [ %l.n, %list ]
  %from = phi ptr [ %items, %tuple ], [ %l.items, %list ]
  %listed = phi i1 [ 0, %tuple ], [ 1, %list ]
  %most.at = getelementptr i64, ptr %words, i64 2
  %most = load i64, ptr %most.at
  %few = icmp sle i64 %length, %most
  br i1 %few, label %whole, label %ask
whole:
  %k = phi i64 [ 0, %sized ], [ %k.next, %whole.is ]
  %k.more = icmp slt i64 %k, %length
  br i1 %k.more, label %whole.one, label %integers
whole.one:
  %k.at = getelementptr ptr, ptr %from, i64 %k
  %k.o = load ptr, ptr %k.at
  %k.type = call ptr @at(ptr %k.o, i64 8)
  %k.int = icmp eq ptr %k.type, @PyLong_Type
  %k.next = add i64 %k, 1
  br i1 %k.int, label %whole.is, label %parts
whole.is:
  br label %whole
integers:
  br i1 %is_tuple, label %itself, label %parts
parts:
  %tells_list = and i1 %tells, %listed
  %prefix = select i1 %tells_list, ptr @PyList_Type, ptr null
  %held = call ptr @copied(ptr %v, i1 %listed)
  %no_held = icmp eq ptr %held, null
  br i1 %no_held, label %raise, label %parts.make
parts.make:
  %held.items = getelementptr i8, ptr %held, i64 $ITEMS$
  %parts.made = call ptr @behind(ptr %prefix, ptr %held.items, i64 %length, ptr %words, i64 %depth)
  call void @Py_DecRef(ptr %held)
  ret ptr %parts.made
ask:
  %asker = load ptr, ptr %words
  %asked = call ptr @PyObject_CallOneArg(ptr %asker, ptr %v)
  ret ptr %asked
raise:
  ret ptr null
}

; a list as a tuple, which nobody changes meanwhile
define internal ptr @copied(ptr %v, i1 %is_list) #0 {
entry:
  br i1 %is_list, label %copy, label %same
copy:
  %made = call ptr @PyList_AsTuple(ptr %v)
  ret ptr %made
same:
  call void @Py_IncRef(ptr %v)
  ret ptr %v
}
declare ptr @PyList_AsTuple(ptr)

define ptr @flambeau_key(ptr %self, ptr %v) #0 {
  %words = getelementptr i8, ptr %self, i64 $DATA
  %made = call ptr @part(ptr %v, ptr %words, i64 0)
  ret ptr %made
}
"""

"""Builtins between memory and Python's objects: numbers and nested lists of a tensor's elements, and elements of nested lists.

Each builtin's `self` is a bytes object of 64-bit words:

  read(address)           kind, how many axes, then for each axis its size and its stride in bytes: the number there, or lists of them
  write(address, nested)  the same: True where the nested lists and tuples are of these sizes and hold what the type may be given, which is
                          then written; False where not, and anything may have been written
  show(address, owner)    the addresses of NumPy's `PyArray_NewFromDescr`, `PyArray_SetBaseObject`, array class and type, how many axes, their sizes,
                          their strides in bytes: an array on memory that the owner keeps
  key(array)              the address of NumPy's array class: what an array is but its memory, as bytes: its type's address, whether it may be written,
                          sizes and strides.  None for another class's object
  place(array)            the same: where an array's elements begin
"""

from __future__ import annotations

from . import arguments

NAMES = ("flambeau_read", "flambeau_write", "flambeau_show", "flambeau_key", "flambeau_place")
ALONE = frozenset(("flambeau_read", "flambeau_key", "flambeau_place"))  # those that take one argument
KNOWN = arguments.KNOWN  # whether an object's type is where these builtins look for it

# by a kind's number: its storage in IR, what makes it what CPython takes, and CPython's function that gives a number of that
_F, _I, _U = "call ptr @PyFloat_FromDouble(double %x.{k})", "call ptr @PyLong_FromLongLong(i64 %x.{k})", "call ptr @PyLong_FromUnsignedLongLong(i64 %x.{k})"
_READ = {
    0: ("float", "%x.{k} = fpext float %m.{k} to double", _F), 1: ("double", "%x.{k} = fadd double %m.{k}, -0.0", _F),
    2: ("i64", "%x.{k} = add i64 %m.{k}, 0", _I), 3: ("i32", "%x.{k} = sext i32 %m.{k} to i64", _I), 4: ("i16", "%x.{k} = sext i16 %m.{k} to i64", _I),
    5: ("i8", "%x.{k} = sext i8 %m.{k} to i64", _I), 6: ("i8", "%x.{k} = zext i8 %m.{k} to i64", _I), 7: ("i16", "%x.{k} = zext i16 %m.{k} to i64", _I),
    8: ("i32", "%x.{k} = zext i32 %m.{k} to i64", _I), 9: ("i64", "%x.{k} = add i64 %m.{k}, 0", _U),
    10: ("i8", "%t.{k} = icmp ne i8 %m.{k}, 0\n  %x.{k} = zext i1 %t.{k} to i64", "call ptr @PyBool_FromLong(i64 %x.{k})"),
    11: ("<2 x float>", "%x.{k} = extractelement <2 x float> %m.{k}, i32 0\n  %y.{k} = extractelement <2 x float> %m.{k}, i32 1\n"
         "  %re.{k} = fpext float %x.{k} to double\n  %im.{k} = fpext float %y.{k} to double",
         "call ptr @PyComplex_FromDoubles(double %re.{k}, double %im.{k})"),
    12: ("<2 x double>", "%x.{k} = extractelement <2 x double> %m.{k}, i32 0\n  %y.{k} = extractelement <2 x double> %m.{k}, i32 1",
         "call ptr @PyComplex_FromDoubles(double %x.{k}, double %y.{k})"),
    13: ("i16", "%w.{k} = zext i16 %m.{k} to i32\n  %s.{k} = shl i32 %w.{k}, 16\n  %f.{k} = bitcast i32 %s.{k} to float\n"
         "  %x.{k} = fpext float %f.{k} to double", _F),
}
# a dtype's kind of number and bytes; bfloat16 is the last
KINDS = {("f", 4): 0, ("f", 8): 1, ("i", 8): 2, ("i", 4): 3, ("i", 2): 4, ("i", 1): 5, ("u", 1): 6, ("u", 2): 7, ("u", 4): 8, ("u", 8): 9, ("b", 1): 10,
         ("c", 8): 11, ("c", 16): 12}
BFLOAT16 = 13
WRITTEN = frozenset((0, 1, 2, 10))  # the kinds that `write` knows


def text() -> str:
    """The IR of all."""
    cases = " ".join(f"i64 {k}, label %k{k}" for k in _READ)
    reads = "".join(f"k{k}:\n  %m.{k} = load {kind}, ptr %p, align 1\n  {widen.format(k=k)}\n  %o.{k} = {make.format(k=k)}\n  ret ptr %o.{k}\n"
                    for k, (kind, widen, make) in _READ.items())
    return _TEXT.replace("$DATA", str(arguments.DATA)).replace("$CASES", cases).replace("$READS", reads)


_TEXT = """
@PyList_Type = external global i64
@PyTuple_Type = external global i64
@PyLong_Type = external global i64
@PyFloat_Type = external global i64
@_Py_TrueStruct = external global i64
@_Py_FalseStruct = external global i64
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare double @PyLong_AsDouble(ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyFloat_FromDouble(double)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyLong_FromUnsignedLongLong(i64)
declare ptr @PyComplex_FromDoubles(double, double)
declare ptr @PyBool_FromLong(i64)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare void @Py_DecRef(ptr)
declare void @Py_IncRef(ptr)
declare void @PyErr_SetString(ptr, ptr)
declare ptr @PyBytes_FromStringAndSize(ptr, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
@PyExc_TypeError = external global ptr
@_Py_NoneStruct = external global i64
@two_arguments = internal constant [43 x i8] c"show takes an address, which is not 0, ...\\00"

define internal ptr @show(ptr %p, ptr %axes, i64 %count, i64 %kind) #0 {
entry:
  %leaf = icmp eq i64 %count, 0
  br i1 %leaf, label %number, label %many
many:
  %n = load i64, ptr %axes
  %step.at = getelementptr i64, ptr %axes, i64 1
  %step = load i64, ptr %step.at
  %below = getelementptr i64, ptr %axes, i64 2
  %fewer = sub i64 %count, 1
  %list = call ptr @PyList_New(i64 %n)
  %no_list = icmp eq ptr %list, null
  br i1 %no_list, label %raise, label %each
each:
  %i = phi i64 [ 0, %many ], [ %i.next, %put ]
  %q = phi ptr [ %p, %many ], [ %q.next, %put ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %done
one:
  %item = call ptr @show(ptr %q, ptr %below, i64 %fewer, i64 %kind)
  %no_item = icmp eq ptr %item, null
  br i1 %no_item, label %drop, label %put
put:
  %ignored = call i32 @PyList_SetItem(ptr %list, i64 %i, ptr %item)
  %i.next = add i64 %i, 1
  %q.next = getelementptr i8, ptr %q, i64 %step
  br label %each
drop:
  call void @Py_DecRef(ptr %list)
  br label %raise
raise:
  ret ptr null
done:
  ret ptr %list
number:
  switch i64 %kind, label %raise [ $CASES ]
$READS}

define ptr @flambeau_read(ptr %self, ptr %given) #0 {
entry:
  %address = call i64 @PyLong_AsUnsignedLongLongMask(ptr %given)
  %odd = icmp eq i64 %address, -1
  br i1 %odd, label %doubt, label %go
doubt:
  %error = call ptr @PyErr_Occurred()
  %wrong = icmp ne ptr %error, null
  br i1 %wrong, label %raise, label %go
raise:
  ret ptr null
go:
  %words = getelementptr i8, ptr %self, i64 $DATA
  %kind = load i64, ptr %words
  %count.at = getelementptr i64, ptr %words, i64 1
  %count = load i64, ptr %count.at
  %axes = getelementptr i64, ptr %words, i64 2
  %p = inttoptr i64 %address to ptr
  %made = call ptr @show(ptr %p, ptr %axes, i64 %count, i64 %kind)
  ret ptr %made
}

define internal i1 @fill(ptr %o, ptr %p, ptr %axes, i64 %count, i64 %kind) #0 {
entry:
  %type.at = getelementptr i8, ptr %o, i64 8
  %type = load ptr, ptr %type.at
  %leaf = icmp eq i64 %count, 0
  br i1 %leaf, label %number, label %many
many:
  %n = load i64, ptr %axes
  %step.at = getelementptr i64, ptr %axes, i64 1
  %step = load i64, ptr %step.at
  %below = getelementptr i64, ptr %axes, i64 2
  %fewer = sub i64 %count, 1
  %is_list = icmp eq ptr %type, @PyList_Type
  br i1 %is_list, label %list, label %other
other:
  %is_tuple = icmp eq ptr %type, @PyTuple_Type
  br i1 %is_tuple, label %tuple, label %no
list:
  %list.n = call i64 @PyList_Size(ptr %o)
  br label %sized
tuple:
  %tuple.n = call i64 @PyTuple_Size(ptr %o)
  br label %sized
sized:
  %has = phi i64 [ %list.n, %list ], [ %tuple.n, %tuple ]
  %fits = icmp eq i64 %has, %n
  br i1 %fits, label %each, label %no
each:
  %i = phi i64 [ 0, %sized ], [ %i.next, %next ]
  %q = phi ptr [ %p, %sized ], [ %q.next, %next ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %get, label %yes
get:
  br i1 %is_list, label %from_list, label %from_tuple
from_list:
  %list.o = call ptr @PyList_GetItem(ptr %o, i64 %i)
  br label %one
from_tuple:
  %tuple.o = call ptr @PyTuple_GetItem(ptr %o, i64 %i)
  br label %one
one:
  %item = phi ptr [ %list.o, %from_list ], [ %tuple.o, %from_tuple ]
  %good = call i1 @fill(ptr %item, ptr %q, ptr %below, i64 %fewer, i64 %kind)
  br i1 %good, label %next, label %no
next:
  %i.next = add i64 %i, 1
  %q.next = getelementptr i8, ptr %q, i64 %step
  br label %each
number:
  switch i64 %kind, label %no [ i64 0, label %real i64 1, label %real i64 2, label %whole i64 10, label %truth ]
real:
  %is_float = icmp eq ptr %type, @PyFloat_Type
  br i1 %is_float, label %a_float, label %perhaps
perhaps:
  %is_int = icmp eq ptr %type, @PyLong_Type
  br i1 %is_int, label %an_int, label %no
a_float:
  %f = call double @PyFloat_AsDouble(ptr %o)
  br label %have
an_int:
  %fi = call double @PyLong_AsDouble(ptr %o)
  %fi.odd = fcmp oeq double %fi, -1.0
  br i1 %fi.odd, label %doubt, label %have
have:
  %v = phi double [ %f, %a_float ], [ %fi, %an_int ], [ %fi, %doubt ]
  %wide = icmp eq i64 %kind, 1
  br i1 %wide, label %double, label %single
doubt:
  %fi.error = call ptr @PyErr_Occurred()
  %fi.wrong = icmp ne ptr %fi.error, null
  br i1 %fi.wrong, label %clear, label %have
double:
  store double %v, ptr %p, align 1
  br label %yes
single:
  %narrow = fptrunc double %v to float
  store float %narrow, ptr %p, align 1
  br label %yes
whole:
  %plain = icmp eq ptr %type, @PyLong_Type
  br i1 %plain, label %integer, label %no
integer:
  %w = call i64 @PyLong_AsLongLong(ptr %o)
  %w.odd = icmp eq i64 %w, -1
  br i1 %w.odd, label %w.doubt, label %w.have
w.doubt:
  %w.error = call ptr @PyErr_Occurred()
  %w.wrong = icmp ne ptr %w.error, null
  br i1 %w.wrong, label %clear, label %w.have
w.have:
  store i64 %w, ptr %p, align 1
  br label %yes
truth:
  %true = icmp eq ptr %o, @_Py_TrueStruct
  %false = icmp eq ptr %o, @_Py_FalseStruct
  %either = or i1 %true, %false
  %byte = zext i1 %true to i8
  br i1 %either, label %t.have, label %no
t.have:
  store i8 %byte, ptr %p
  br label %yes
clear:
  call void @PyErr_Clear()
  br label %no
no:
  ret i1 0
yes:
  ret i1 1
}

define ptr @flambeau_write(ptr %self, ptr %given, i64 %n) #0 {
entry:
  %two = icmp eq i64 %n, 2
  br i1 %two, label %go, label %no
go:
  %o0 = load ptr, ptr %given
  %address = call i64 @PyLong_AsUnsignedLongLongMask(ptr %o0)
  %p1 = getelementptr ptr, ptr %given, i64 1
  %nested = load ptr, ptr %p1
  %words = getelementptr i8, ptr %self, i64 $DATA
  %kind = load i64, ptr %words
  %count.at = getelementptr i64, ptr %words, i64 1
  %count = load i64, ptr %count.at
  %axes = getelementptr i64, ptr %words, i64 2
  %p = inttoptr i64 %address to ptr
  %good = call i1 @fill(ptr %nested, ptr %p, ptr %axes, i64 %count, i64 %kind)
  br i1 %good, label %yes, label %no
no:
  %false = call ptr @PyBool_FromLong(i64 0)
  ret ptr %false
yes:
  %true = call ptr @PyBool_FromLong(i64 1)
  ret ptr %true
}

; PyArrayObject_fields: after the head come data, nd (32 bits), dimensions, strides, base, descr, flags (32 bits)
define ptr @flambeau_show(ptr %self, ptr %given, i64 %n) #0 {
entry:
  %words = getelementptr i8, ptr %self, i64 $DATA
  %two = icmp eq i64 %n, 2
  br i1 %two, label %go, label %wrong
wrong:
  %type.error = load ptr, ptr @PyExc_TypeError
  call void @PyErr_SetString(ptr %type.error, ptr @two_arguments)
  ret ptr null
go:
  %o = load ptr, ptr %given
  %owner.at = getelementptr ptr, ptr %given, i64 1
  %owner = load ptr, ptr %owner.at
  %address = call i64 @PyLong_AsUnsignedLongLongMask(ptr %o)
  %new = load ptr, ptr %words
  %set.at = getelementptr i64, ptr %words, i64 1
  %set = load ptr, ptr %set.at
  %class.at = getelementptr i64, ptr %words, i64 2
  %class = load ptr, ptr %class.at
  %type.at = getelementptr i64, ptr %words, i64 3
  %type = load ptr, ptr %type.at
  %count.at = getelementptr i64, ptr %words, i64 4
  %count = load i64, ptr %count.at
  %dims = getelementptr i64, ptr %words, i64 5
  %steps = getelementptr i64, ptr %dims, i64 %count
  %nd = trunc i64 %count to i32
  %data = inttoptr i64 %address to ptr
  %nothing = icmp eq i64 %address, 0
  br i1 %nothing, label %wrong, label %make
make:
  call void @Py_IncRef(ptr %type)
  %array = call ptr %new(ptr %class, ptr %type, i32 %nd, ptr %dims, ptr %steps, ptr %data, i32 1024, ptr null)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %raise, label %keep
keep:
  call void @Py_IncRef(ptr %owner)
  %kept = call i32 %set(ptr %array, ptr %owner)
  %lost = icmp slt i32 %kept, 0
  br i1 %lost, label %drop, label %done
drop:
  call void @Py_DecRef(ptr %array)
  br label %raise
raise:
  ret ptr null
done:
  ret ptr %array
}

define internal i1 @is_array(ptr %self, ptr %o) #0 {
entry:
  %words = getelementptr i8, ptr %self, i64 $DATA
  %class = load ptr, ptr %words
  %type.at = getelementptr i8, ptr %o, i64 8
  %type = load ptr, ptr %type.at
  %same = icmp eq ptr %type, %class
  ret i1 %same
}

define ptr @flambeau_place(ptr %self, ptr %o) #0 {
entry:
  %is = call i1 @is_array(ptr %self, ptr %o)
  br i1 %is, label %go, label %none
go:
  %data.at = getelementptr i8, ptr %o, i64 16
  %data = load i64, ptr %data.at
  %made = call ptr @PyLong_FromUnsignedLongLong(i64 %data)
  ret ptr %made
none:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}

define ptr @flambeau_key(ptr %self, ptr %o) #0 {
entry:
  %is = call i1 @is_array(ptr %self, ptr %o)
  br i1 %is, label %go, label %none
go:
  %nd.at = getelementptr i8, ptr %o, i64 24
  %nd32 = load i32, ptr %nd.at
  %nd = sext i32 %nd32 to i64
  %dims.at = getelementptr i8, ptr %o, i64 32
  %dims = load ptr, ptr %dims.at
  %steps.at = getelementptr i8, ptr %o, i64 40
  %steps = load ptr, ptr %steps.at
  %descr.at = getelementptr i8, ptr %o, i64 56
  %descr = load i64, ptr %descr.at
  %flags.at = getelementptr i8, ptr %o, i64 64
  %flags = load i32, ptr %flags.at
  %writable = and i32 %flags, 1024
  %writable64 = zext i32 %writable to i64
  %axes.bytes = mul i64 %nd, 8
  %both.bytes = mul i64 %nd, 16
  %bytes = add i64 %both.bytes, 16
  %made = call ptr @PyBytes_FromStringAndSize(ptr null, i64 %bytes)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %raise, label %fill
raise:
  ret ptr null
fill:
  %to = getelementptr i8, ptr %made, i64 $DATA
  store i64 %descr, ptr %to
  %to.flags = getelementptr i8, ptr %to, i64 8
  store i64 %writable64, ptr %to.flags
  %to.dims = getelementptr i8, ptr %to, i64 16
  call void @llvm.memcpy.p0.p0.i64(ptr %to.dims, ptr %dims, i64 %axes.bytes, i1 false)
  %to.steps = getelementptr i8, ptr %to.dims, i64 %axes.bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %to.steps, ptr %steps, i64 %axes.bytes, i1 false)
  ret ptr %made
none:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}
"""

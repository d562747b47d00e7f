"""Machine code that carries out a planned call: it allocates, launches and makes the tensors, without Python between.

`flambeau_call(*arguments)` has as its `self` a bytes object of 64-bit words; the objects they point to live as long as the builtin does:

  word 0   how many arguments
  word 1   the function that is called with the same arguments instead, where one of them, or the tape, asks for more than is done here
  word 2   which arguments are tensors (a bit each)
  word 3   which of the others are numbers that launches take as floating-point ones
  word 4   which are neither, and are not looked at
  word 5   1: where a tensor among them requires grad and operations are recorded, the other function is called
  word 6   how many blocks of memory
  word 7   how many bytes the steps have
  word 8   how many results
  word 9   how they are given: 0 the one, 1 a tuple of them, 2 a list, otherwise the function that is called with the tuple
  word 10  how many arguments are written
  blocks   three words each: the list that addresses are taken from, the function that gives one where it is empty, the meta of the storage (0:
           memory of which no result is made, which goes back to the list)
  written  two words each: the number of an argument that the steps write, an int by which its version rises
  steps    those of `sequence`, whose numbered addresses are the arguments' and then the blocks'; bytes that are others ask for the other function
  results  five words each: what it is (below), a meta or an object, the number of an argument or a block, bytes that are added, and what a
           view's `_made` is, or 0

A result is (0) a tensor on a block, (1) a view of an argument, which may be a view itself, (2) a tensor on an argument's memory that is no view of it,
(3) the argument, (4) the object, (5) a tensor of the argument's layout on its memory, with a storage and so a version of its own.

While operations are recorded, a base has a list of its views in its `__dict__`, as a recorded write changes their histories (`autograd/inplace.py`).
A view whose base has a history already is left to the other function; so is a call that writes an argument where another lies in the same storage.

`flambeau_call_knows`, no method, tells it of the classes and objects below.
"""

from __future__ import annotations

from . import arguments, sequence

NAMES = ("flambeau_call", "flambeau_call_knows")
# what `flambeau_call_knows` is told, in order: the classes of tensors and storages, the variable that says whether operations are recorded, the function
# that puts a view on its base's list, the kinds of types that have gradients, the names of two entries of a `__dict__`, 0, and what memory is given back
# to that is somebody's
KNOWS = ("tensor", "storage", "recording", "note", "real", "complex", "made", "views", "zero", "nobody")


def text(places: dict[str, int]) -> str:
    """The IR. places: where slots lie: of a tensor `meta store ptr node base`, of a storage `version free kept address owner` (its meta, ptr and keep), of a
    meta `dtype`, of a dtype `kind`."""
    made = _TEXT.replace("$DATA", str(arguments.DATA)).replace("$TWO", str(arguments.TWO))
    for name, place in places.items():
        made = made.replace(f"${name.upper()}$", str(place))
    known = "".join(f"@{name} = internal global ptr null\n" for name in KNOWS)
    told = ("define void @flambeau_call_knows(" + ", ".join(f"ptr %{name}" for name in KNOWS) + ") #0 {\n"
            + "".join(f"  store ptr %{name}, ptr @{name}\n" for name in KNOWS) + "  ret void\n}\n")
    return arguments.DECLARED + sequence.steps() + known + told + made


_TEXT = """
@PyBool_Type = external global i64
@_Py_TrueStruct = external global i64
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i32 @PyType_IsSubtype(ptr, ptr)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare double @PyLong_AsDouble(ptr)
declare ptr @PyLong_FromUnsignedLongLong(i64)
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyNumber_Add(ptr, ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare ptr @PyObject_GenericGetDict(ptr, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare ptr @PyWeakref_NewRef(ptr, ptr)
declare i32 @PyList_Append(ptr, ptr)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)

; the 64 bits of an address
define internal i64 @word(ptr %o) #0 {
entry:
  %size.at = getelementptr i8, ptr %o, i64 16
  %size = load i64, ptr %size.at
  %two = icmp eq i64 %size, $TWO
  br i1 %two, label %digits, label %call
digits:
  %digits.at = getelementptr i8, ptr %o, i64 24
  %both = load i64, ptr %digits.at
  %d0 = and i64 %both, 4294967295
  %d1 = lshr i64 %both, 32
  %d2 = shl i64 %d1, 30
  %plain = or i64 %d0, %d2
  ret i64 %plain
call:
  %mask = call i64 @PyLong_AsUnsignedLongLongMask(ptr %o)
  ret i64 %mask
}

; an object that a slot holds (null: it is empty)
define internal ptr @slot(ptr %o, i64 %place) #0 {
  %at = getelementptr i8, ptr %o, i64 %place
  %held = load ptr, ptr %at
  ret ptr %held
}

; puts an object into an empty slot
define internal void @put(ptr %o, i64 %place, ptr %value) #0 {
  call void @Py_IncRef(ptr %value)
  %at = getelementptr i8, ptr %o, i64 %place
  store ptr %value, ptr %at
  ret void
}

define internal i1 @is_tensor(ptr %o) #0 {
entry:
  %type = call ptr @slot(ptr %o, i64 8)
  %class = load ptr, ptr @tensor
  %same = icmp eq ptr %type, %class
  br i1 %same, label %yes, label %below
below:
  %is = call i32 @PyType_IsSubtype(ptr %type, ptr %class)
  %is.not = icmp eq i32 %is, 0
  br i1 %is.not, label %no, label %yes
no:
  ret i1 0
yes:
  ret i1 1
}

; whether operations are recorded; an error counts as yes, and is told by the other function
define internal i1 @records() #0 {
entry:
  %value = alloca ptr
  %variable = load ptr, ptr @recording
  %failed = call i32 @PyContextVar_Get(ptr %variable, ptr null, ptr %value)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %known, label %error
error:
  call void @PyErr_Clear()
  ret i1 1
known:
  %v = load ptr, ptr %value
  %is = icmp eq ptr %v, @_Py_TrueStruct
  call void @Py_DecRef(ptr %v)
  ret i1 %is
}

; an address that is taken from a list, or made by a function; null with an error
define internal ptr @take(ptr %list, ptr %grow) #0 {
entry:
  %size.at = getelementptr i8, ptr %list, i64 16
  %size = load i64, ptr %size.at
  %empty = icmp eq i64 %size, 0
  br i1 %empty, label %make, label %last
make:
  %made = call ptr @PyObject_CallNoArgs(ptr %grow)
  ret ptr %made
last:
  %items.at = getelementptr i8, ptr %list, i64 24
  %items = load ptr, ptr %items.at
  %fewer = sub i64 %size, 1
  %item.at = getelementptr ptr, ptr %items, i64 %fewer
  %item = load ptr, ptr %item.at
  store i64 %fewer, ptr %size.at
  ret ptr %item
}

; gives back what `take` gave
define internal void @give(ptr %list, ptr %address) #0 {
entry:
  %failed = call i32 @PyList_Append(ptr %list, ptr %address)
  call void @Py_DecRef(ptr %address)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %done, label %lost
lost:
  call void @PyErr_Clear()
  br label %done
done:
  ret void
}

; a tensor of this meta on a storage, at an address: `same` where nothing is added to that, else `sum`
define internal ptr @shown(ptr %m, ptr %store, i64 %added, ptr %same, i64 %sum, ptr %base) #0 {
entry:
  %class = load ptr, ptr @tensor
  %t = call ptr @PyType_GenericAlloc(ptr %class, i64 0)
  %none = icmp eq ptr %t, null
  br i1 %none, label %raise, label %have
have:
  call void @put(ptr %t, i64 $META$, ptr %m)
  call void @put(ptr %t, i64 $STORE$, ptr %store)
  call void @put(ptr %t, i64 $NODE$, ptr @_Py_NoneStruct)
  call void @put(ptr %t, i64 $BASE$, ptr %base)
  %begin = icmp eq i64 %added, 0
  br i1 %begin, label %at_begin, label %behind
at_begin:
  call void @put(ptr %t, i64 $PTR$, ptr %same)
  ret ptr %t
behind:
  %number = call ptr @PyLong_FromUnsignedLongLong(i64 %sum)
  %no_number = icmp eq ptr %number, null
  br i1 %no_number, label %drop, label %number.put
number.put:
  %ptr.at = getelementptr i8, ptr %t, i64 $PTR$
  store ptr %number, ptr %ptr.at
  ret ptr %t
drop:
  call void @Py_DecRef(ptr %t)
  br label %raise
raise:
  ret ptr null
}

; puts a view on its base's list; 0 with an error
define internal i1 @noted(ptr %base, ptr %view) #0 {
entry:
  %dict = call ptr @PyObject_GenericGetDict(ptr %base, ptr null)
  %no_dict = icmp eq ptr %dict, null
  br i1 %no_dict, label %raise, label %look
look:
  %name = load ptr, ptr @views
  %list = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %name)
  %absent = icmp eq ptr %list, null
  br i1 %absent, label %other, label %counted
counted:
  %n = call i64 @PyList_Size(ptr %list)
  %below = sub i64 %n, 1
  %bits = and i64 %n, %below
  %power = icmp eq i64 %bits, 0
  br i1 %power, label %other, label %append
append:
  %ref = call ptr @PyWeakref_NewRef(ptr %view, ptr null)
  %no_ref = icmp eq ptr %ref, null
  br i1 %no_ref, label %drop, label %put_ref
put_ref:
  %failed = call i32 @PyList_Append(ptr %list, ptr %ref)
  call void @Py_DecRef(ptr %ref)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %done, label %drop
other:
  %note = load ptr, ptr @note
  %said = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %note, ptr %base, ptr %view, ptr null)
  %no_note = icmp eq ptr %said, null
  br i1 %no_note, label %drop, label %told
told:
  call void @Py_DecRef(ptr %said)
  br label %done
done:
  call void @Py_DecRef(ptr %dict)
  ret i1 1
drop:
  call void @Py_DecRef(ptr %dict)
  br label %raise
raise:
  ret i1 0
}

; what is said of a view: the entry `_made` of the view it is of, or else `kind`, unless that is 0; 0 with an error
define internal i1 @marked(ptr %of, i1 %look, ptr %kind, ptr %view) #0 {
entry:
  %name = load ptr, ptr @made
  br i1 %look, label %from, label %own
from:
  %dict = call ptr @PyObject_GenericGetDict(ptr %of, ptr null)
  %no_dict = icmp eq ptr %dict, null
  br i1 %no_dict, label %raise, label %ask
ask:
  %found = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %name)
  call void @Py_DecRef(ptr %dict)
  %absent = icmp eq ptr %found, null
  br i1 %absent, label %own, label %set
own:
  %nothing = icmp eq ptr %kind, null
  br i1 %nothing, label %done, label %set
set:
  %value = phi ptr [ %found, %ask ], [ %kind, %own ]
  %into = call ptr @PyObject_GenericGetDict(ptr %view, ptr null)
  %no_into = icmp eq ptr %into, null
  br i1 %no_into, label %raise, label %write
write:
  %failed = call i32 @PyDict_SetItem(ptr %into, ptr %name, ptr %value)
  call void @Py_DecRef(ptr %into)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %done, label %raise
done:
  ret i1 1
raise:
  ret i1 0
}

; a view of a tensor; null without an error where the other function is asked
define internal ptr @viewed(ptr %o, ptr %m, i64 %added, i64 %sum, ptr %kind) #0 {
entry:
  %of = call ptr @slot(ptr %o, i64 $BASE$)
  %no_slot = icmp eq ptr %of, null
  br i1 %no_slot, label %ask, label %base.known
base.known:
  %first = icmp eq ptr %of, @_Py_NoneStruct
  %base = select i1 %first, ptr %o, ptr %of
  %history = call ptr @slot(ptr %base, i64 $NODE$)
  %plain = icmp eq ptr %history, @_Py_NoneStruct
  br i1 %plain, label %modes, label %ask
modes:
  %node = call ptr @slot(ptr %o, i64 $NODE$)
  %no_node = icmp eq ptr %node, @_Py_NoneStruct
  br i1 %no_node, label %make, label %ask
make:
  %store = call ptr @slot(ptr %o, i64 $STORE$)
  %no_store = icmp eq ptr %store, null
  br i1 %no_store, label %ask, label %stored
stored:
  %p = call ptr @slot(ptr %o, i64 $PTR$)
  %t = call ptr @shown(ptr %m, ptr %store, i64 %added, ptr %p, i64 %sum, ptr %base)
  %none = icmp eq ptr %t, null
  br i1 %none, label %raise, label %say
say:
  %known = icmp ne ptr %kind, null
  %later = xor i1 %first, true
  %any = or i1 %known, %later
  br i1 %any, label %mark, label %tape
mark:
  %well = call i1 @marked(ptr %o, i1 %later, ptr %kind, ptr %t)
  br i1 %well, label %tape, label %drop
tape:
  %base.meta = call ptr @slot(ptr %base, i64 $META$)
  %dtype = call ptr @slot(ptr %base.meta, i64 $DTYPE$)
  %letter = call ptr @slot(ptr %dtype, i64 $KIND$)
  %f = load ptr, ptr @real
  %c = load ptr, ptr @complex
  %is_f = icmp eq ptr %letter, %f
  %is_c = icmp eq ptr %letter, %c
  %differs = or i1 %is_f, %is_c
  br i1 %differs, label %recorded, label %done
recorded:
  %now = call i1 @records()
  br i1 %now, label %note.it, label %done
note.it:
  %good = call i1 @noted(ptr %base, ptr %t)
  br i1 %good, label %done, label %drop
done:
  ret ptr %t
drop:
  call void @Py_DecRef(ptr %t)
  br label %raise
ask:
  br label %raise
raise:
  ret ptr null
}

; a tensor on the memory of another, with a storage of its own; null without an error where the other function is asked
define internal ptr @parted(ptr %o) #0 {
entry:
  %m = call ptr @slot(ptr %o, i64 $META$)
  %of = call ptr @slot(ptr %o, i64 $STORE$)
  %no_m = icmp eq ptr %m, null
  %no_of = icmp eq ptr %of, null
  %neither = or i1 %no_m, %no_of
  br i1 %neither, label %none, label %look
look:
  %of.m = call ptr @slot(ptr %of, i64 $KEPT$)
  %of.address = call ptr @slot(ptr %of, i64 $ADDRESS$)
  %no_of.m = icmp eq ptr %of.m, null
  %no_address = icmp eq ptr %of.address, null
  %lacks = or i1 %no_of.m, %no_address
  br i1 %lacks, label %none, label %make
make:
  %class = load ptr, ptr @storage
  %s = call ptr @PyType_GenericAlloc(ptr %class, i64 0)
  %no_s = icmp eq ptr %s, null
  br i1 %no_s, label %none, label %fill
fill:
  %zero.o = load ptr, ptr @zero
  %nobody.o = load ptr, ptr @nobody
  call void @put(ptr %s, i64 $VERSION$, ptr %zero.o)
  call void @put(ptr %s, i64 $FREE$, ptr %nobody.o)
  call void @put(ptr %s, i64 $KEPT$, ptr %of.m)
  call void @put(ptr %s, i64 $ADDRESS$, ptr %of.address)
  call void @put(ptr %s, i64 $OWNER$, ptr %of)
  %p = call ptr @slot(ptr %o, i64 $PTR$)
  %t = call ptr @shown(ptr %m, ptr %s, i64 0, ptr %p, i64 0, ptr @_Py_NoneStruct)
  call void @Py_DecRef(ptr %s)
  ret ptr %t
none:
  ret ptr null
}

; whether a tensor may be written by a call that nobody records: it has a storage of its own among the arguments, and is no view of what has a history
define internal i1 @writable(ptr %given, i64 %n, i64 %tensors, i64 %which) #0 {
entry:
  %o.at = getelementptr ptr, ptr %given, i64 %which
  %o = load ptr, ptr %o.at
  %store = call ptr @slot(ptr %o, i64 $STORE$)
  %base = call ptr @slot(ptr %o, i64 $BASE$)
  %no_store = icmp eq ptr %store, null
  %no_base = icmp eq ptr %base, null
  %neither = or i1 %no_store, %no_base
  br i1 %neither, label %no, label %each
each:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %bits = phi i64 [ %tensors, %entry ], [ %bits.next, %next ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %one, label %alone
one:
  %bit = trunc i64 %bits to i1
  %itself = icmp eq i64 %k, %which
  %other = xor i1 %itself, true
  %look = and i1 %bit, %other
  br i1 %look, label %compare, label %next
compare:
  %x.at = getelementptr ptr, ptr %given, i64 %k
  %x = load ptr, ptr %x.at
  %x.store = call ptr @slot(ptr %x, i64 $STORE$)
  %shared = icmp eq ptr %x.store, %store
  br i1 %shared, label %no, label %next
next:
  %k.next = add i64 %k, 1
  %bits.next = lshr i64 %bits, 1
  br label %each
alone:
  %first = icmp eq ptr %base, @_Py_NoneStruct
  br i1 %first, label %yes, label %below
below:
  %history = call ptr @slot(ptr %base, i64 $NODE$)
  %plain = icmp eq ptr %history, @_Py_NoneStruct
  br i1 %plain, label %yes, label %mode
mode:
  %recorded = call i1 @records()
  br i1 %recorded, label %no, label %yes
no:
  ret i1 0
yes:
  ret i1 1
}

; raises the version of a tensor's storage; 0 with an error
define internal i1 @raised(ptr %o, ptr %rise) #0 {
entry:
  %store = call ptr @slot(ptr %o, i64 $STORE$)
  %before = call ptr @slot(ptr %store, i64 $VERSION$)
  %after = call ptr @PyNumber_Add(ptr %before, ptr %rise)
  %none = icmp eq ptr %after, null
  br i1 %none, label %no, label %set
set:
  %at = getelementptr i8, ptr %store, i64 $VERSION$
  store ptr %after, ptr %at
  call void @Py_DecRef(ptr %before)
  ret i1 1
no:
  ret i1 0
}

define ptr @flambeau_call(ptr %self, ptr %given, i64 %n) #0 {
entry:
  %words = getelementptr i8, ptr %self, i64 $DATA
  %needs = load i64, ptr %words
  %other.at = getelementptr i64, ptr %words, i64 1
  %other = load ptr, ptr %other.at
  %tensors.at = getelementptr i64, ptr %words, i64 2
  %tensors = load i64, ptr %tensors.at
  %floats.at = getelementptr i64, ptr %words, i64 3
  %floats = load i64, ptr %floats.at
  %absent.at = getelementptr i64, ptr %words, i64 4
  %absent = load i64, ptr %absent.at
  %watch.at = getelementptr i64, ptr %words, i64 5
  %watch = load i64, ptr %watch.at
  %blocks.at = getelementptr i64, ptr %words, i64 6
  %blocks = load i64, ptr %blocks.at
  %length.at = getelementptr i64, ptr %words, i64 7
  %length = load i64, ptr %length.at
  %count.at = getelementptr i64, ptr %words, i64 8
  %count = load i64, ptr %count.at
  %gather.at = getelementptr i64, ptr %words, i64 9
  %gather = load i64, ptr %gather.at
  %written.at = getelementptr i64, ptr %words, i64 10
  %written = load i64, ptr %written.at
  %first.block = getelementptr i64, ptr %words, i64 11
  %blocks.words = mul i64 %blocks, 3
  %first.written = getelementptr i64, ptr %first.block, i64 %blocks.words
  %written.words = mul i64 %written, 2
  %begin = getelementptr i64, ptr %first.written, i64 %written.words
  %end = getelementptr i8, ptr %begin, i64 %length
  %all = add i64 %needs, %blocks
  %bases = alloca i64, i64 %all, align 16
  %held = alloca ptr, i64 %blocks, align 16
  %made = alloca ptr, i64 %count, align 16
  %right = icmp eq i64 %n, %needs
  br i1 %right, label %each, label %ask

each:
  %k = phi i64 [ 0, %entry ], [ %k.next, %keep ]
  %tm = phi i64 [ %tensors, %entry ], [ %tm.next, %keep ]
  %fm = phi i64 [ %floats, %entry ], [ %fm.next, %keep ]
  %am = phi i64 [ %absent, %entry ], [ %am.next, %keep ]
  %needed = phi i1 [ 0, %entry ], [ %needed.next, %keep ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %one, label %read
one:
  %o.at = getelementptr ptr, ptr %given, i64 %k
  %o = load ptr, ptr %o.at
  %t.bit = trunc i64 %tm to i1
  %f.bit = trunc i64 %fm to i1
  %a.bit = trunc i64 %am to i1
  %tm.next = lshr i64 %tm, 1
  %fm.next = lshr i64 %fm, 1
  %am.next = lshr i64 %am, 1
  br i1 %t.bit, label %tensor.look, label %number
tensor.look:
  %is = call i1 @is_tensor(ptr %o)
  br i1 %is, label %tensor.is, label %ask
tensor.is:
  %p = call ptr @slot(ptr %o, i64 $PTR$)
  %node = call ptr @slot(ptr %o, i64 $NODE$)
  %no_p = icmp eq ptr %p, null
  %no_node = icmp eq ptr %node, null
  %neither = or i1 %no_p, %no_node
  br i1 %neither, label %ask, label %tensor.known
tensor.known:
  %p.word = call i64 @word(ptr %p)
  %requires = icmp ne ptr %node, @_Py_NoneStruct
  br label %keep
number:
  br i1 %a.bit, label %keep, label %number.is
number.is:
  %type = call ptr @slot(ptr %o, i64 8)
  %is_int = icmp eq ptr %type, @PyLong_Type
  br i1 %f.bit, label %as_float, label %as_int
as_float:
  %is_float = icmp eq ptr %type, @PyFloat_Type
  br i1 %is_float, label %float, label %float.int
float:
  %bits.at = getelementptr i8, ptr %o, i64 16
  %bits = load i64, ptr %bits.at
  br label %keep
float.int:
  br i1 %is_int, label %float.make, label %ask
float.make:
  %double = call double @PyLong_AsDouble(ptr %o)
  %double.bits = bitcast double %double to i64
  %double.odd = fcmp oeq double %double, -1.0
  br i1 %double.odd, label %doubt, label %keep
as_int:
  %is_bool = icmp eq ptr %type, @PyBool_Type
  %is_whole = or i1 %is_int, %is_bool
  br i1 %is_whole, label %int, label %ask
int:
  %integer = call i64 @PyLong_AsLongLong(ptr %o)
  %integer.odd = icmp eq i64 %integer, -1
  br i1 %integer.odd, label %doubt, label %keep
doubt:
  %doubtful = phi i64 [ %double.bits, %float.make ], [ %integer, %int ]
  %error = call ptr @PyErr_Occurred()
  %wrong = icmp ne ptr %error, null
  br i1 %wrong, label %clear, label %keep
clear:
  call void @PyErr_Clear()
  br label %ask
keep:
  %value = phi i64 [ %p.word, %tensor.known ], [ 0, %number ], [ %bits, %float ], [ %double.bits, %float.make ], [ %integer, %int ], [ %doubtful, %doubt ]
  %requires.this = phi i1 [ %requires, %tensor.known ], [ 0, %number ], [ 0, %float ], [ 0, %float.make ], [ 0, %int ], [ 0, %doubt ]
  %needed.next = or i1 %needed, %requires.this
  %value.at = getelementptr i64, ptr %bases, i64 %k
  store i64 %value, ptr %value.at
  %k.next = add i64 %k, 1
  br label %each
read:
  %watched = icmp ne i64 %watch, 0
  %perhaps = and i1 %needed, %watched
  br i1 %perhaps, label %mode, label %write
mode:
  %recorded = call i1 @records()
  br i1 %recorded, label %ask, label %write
write:
  %v = phi i64 [ 0, %read ], [ 0, %mode ], [ %v.next, %write.next ]
  %vw = phi ptr [ %first.written, %read ], [ %first.written, %mode ], [ %vw.next, %write.next ]
  %v.some = icmp slt i64 %v, %written
  br i1 %v.some, label %write.one, label %block
write.one:
  %v.which = load i64, ptr %vw
  %v.may = call i1 @writable(ptr %given, i64 %n, i64 %tensors, i64 %v.which)
  br i1 %v.may, label %write.next, label %ask
write.next:
  %v.next = add i64 %v, 1
  %vw.next = getelementptr i64, ptr %vw, i64 2
  br label %write

block:
  %b = phi i64 [ 0, %write ], [ %b.next, %block.kept ]
  %bw = phi ptr [ %first.block, %write ], [ %bw.next, %block.kept ]
  %some = icmp slt i64 %b, %blocks
  br i1 %some, label %block.take, label %run
block.take:
  %list = load ptr, ptr %bw
  %grow.at = getelementptr i64, ptr %bw, i64 1
  %grow = load ptr, ptr %grow.at
  %kept.at = getelementptr i64, ptr %bw, i64 2
  %kept = load ptr, ptr %kept.at
  %address = call ptr @take(ptr %list, ptr %grow)
  %no_address = icmp eq ptr %address, null
  br i1 %no_address, label %drop.raise, label %block.is
block.is:
  %address.word = call i64 @word(ptr %address)
  %number.of = add i64 %b, %needs
  %base.at = getelementptr i64, ptr %bases, i64 %number.of
  store i64 %address.word, ptr %base.at
  %scratch = icmp eq ptr %kept, null
  br i1 %scratch, label %block.kept, label %storage.new
storage.new:
  %class = load ptr, ptr @storage
  %s = call ptr @PyType_GenericAlloc(ptr %class, i64 0)
  %no_s = icmp eq ptr %s, null
  br i1 %no_s, label %storage.none, label %storage.fill
storage.none:
  call void @give(ptr %list, ptr %address)
  br label %drop.raise
storage.fill:
  %zero.o = load ptr, ptr @zero
  call void @put(ptr %s, i64 $VERSION$, ptr %zero.o)
  call void @put(ptr %s, i64 $FREE$, ptr %list)
  call void @put(ptr %s, i64 $KEPT$, ptr %kept)
  %address.at = getelementptr i8, ptr %s, i64 $ADDRESS$
  store ptr %address, ptr %address.at
  br label %block.kept
block.kept:
  %block.o = phi ptr [ %address, %block.is ], [ %s, %storage.fill ]
  %held.at = getelementptr ptr, ptr %held, i64 %b
  store ptr %block.o, ptr %held.at
  %b.next = add i64 %b, 1
  %bw.next = getelementptr i64, ptr %bw, i64 3
  br label %block

run:
  %nothing = icmp eq i64 %length, 0
  br i1 %nothing, label %version, label %steps
steps:
  %fits = call i1 @steps(ptr %begin, ptr %end, ptr %bases)
  br i1 %fits, label %version, label %drop.ask
version:
  %c = phi i64 [ 0, %run ], [ 0, %steps ], [ %c.next, %version.one ]
  %cw = phi ptr [ %first.written, %run ], [ %first.written, %steps ], [ %cw.next, %version.one ]
  %c.some = icmp slt i64 %c, %written
  br i1 %c.some, label %version.one, label %result
version.one:
  %c.which = load i64, ptr %cw
  %c.o.at = getelementptr ptr, ptr %given, i64 %c.which
  %c.o = load ptr, ptr %c.o.at
  %c.rise.at = getelementptr i64, ptr %cw, i64 1
  %c.rise = load ptr, ptr %c.rise.at
  %c.next = add i64 %c, 1
  %cw.next = getelementptr i64, ptr %cw, i64 2
  %c.done = call i1 @raised(ptr %c.o, ptr %c.rise)
  br i1 %c.done, label %version, label %undone.all

undone.all:
  br label %drop.raise

result:
  %r = phi i64 [ 0, %version ], [ %r.next, %result.put ]
  %rw = phi ptr [ %end, %version ], [ %rw.next, %result.put ]
  %another = icmp slt i64 %r, %count
  br i1 %another, label %result.which, label %drop.done
result.which:
  %what = load i64, ptr %rw
  %m.at = getelementptr i64, ptr %rw, i64 1
  %m = load ptr, ptr %m.at
  %from.at = getelementptr i64, ptr %rw, i64 2
  %from = load i64, ptr %from.at
  %added.at = getelementptr i64, ptr %rw, i64 3
  %added = load i64, ptr %added.at
  %kind.at = getelementptr i64, ptr %rw, i64 4
  %kind = load ptr, ptr %kind.at
  %given.at = getelementptr ptr, ptr %given, i64 %from
  switch i64 %what, label %object [ i64 0, label %fresh i64 1, label %view i64 2, label %detached i64 3, label %same i64 5, label %apart ]
fresh:
  %from.held = getelementptr ptr, ptr %held, i64 %from
  %fresh.s = load ptr, ptr %from.held
  %fresh.p = call ptr @slot(ptr %fresh.s, i64 $ADDRESS$)
  %fresh.number = add i64 %from, %needs
  %fresh.at = getelementptr i64, ptr %bases, i64 %fresh.number
  %fresh.base = load i64, ptr %fresh.at
  %fresh.sum = add i64 %fresh.base, %added
  %fresh.t = call ptr @shown(ptr %m, ptr %fresh.s, i64 %added, ptr %fresh.p, i64 %fresh.sum, ptr @_Py_NoneStruct)
  br label %result.made
view:
  %view.o = load ptr, ptr %given.at
  %view.at = getelementptr i64, ptr %bases, i64 %from
  %view.base = load i64, ptr %view.at
  %view.sum = add i64 %view.base, %added
  %view.t = call ptr @viewed(ptr %view.o, ptr %m, i64 %added, i64 %view.sum, ptr %kind)
  br label %result.made
detached:
  %detached.o = load ptr, ptr %given.at
  %detached.s = call ptr @slot(ptr %detached.o, i64 $STORE$)
  %no_detached = icmp eq ptr %detached.s, null
  br i1 %no_detached, label %result.none, label %detached.known
detached.known:
  %detached.p = call ptr @slot(ptr %detached.o, i64 $PTR$)
  %detached.at = getelementptr i64, ptr %bases, i64 %from
  %detached.base = load i64, ptr %detached.at
  %detached.sum = add i64 %detached.base, %added
  %detached.t = call ptr @shown(ptr %m, ptr %detached.s, i64 %added, ptr %detached.p, i64 %detached.sum, ptr @_Py_NoneStruct)
  br label %result.made
apart:
  %apart.o = load ptr, ptr %given.at
  %apart.t = call ptr @parted(ptr %apart.o)
  br label %result.made
same:
  %same.o = load ptr, ptr %given.at
  call void @Py_IncRef(ptr %same.o)
  br label %result.made
object:
  call void @Py_IncRef(ptr %m)
  br label %result.made
result.made:
  %t = phi ptr [ %fresh.t, %fresh ], [ %view.t, %view ], [ %detached.t, %detached.known ], [ %apart.t, %apart ], [ %same.o, %same ], [ %m, %object ]
  %no_t = icmp eq ptr %t, null
  br i1 %no_t, label %result.none, label %result.put
result.put:
  %made.at = getelementptr ptr, ptr %made, i64 %r
  store ptr %t, ptr %made.at
  %r.next = add i64 %r, 1
  %rw.next = getelementptr i64, ptr %rw, i64 5
  br label %result
result.none:
  br label %undo
undo:
  %u = phi i64 [ %r, %result.none ], [ %u.less, %undo.one ]
  %u.some = icmp sgt i64 %u, 0
  br i1 %u.some, label %undo.one, label %undone
undo.one:
  %u.less = sub i64 %u, 1
  %u.at = getelementptr ptr, ptr %made, i64 %u.less
  %u.o = load ptr, ptr %u.at
  call void @Py_DecRef(ptr %u.o)
  br label %undo
undone:
  %u.error = call ptr @PyErr_Occurred()
  %u.wrong = icmp ne ptr %u.error, null
  br i1 %u.wrong, label %drop.raise, label %drop.ask

; the blocks are let go of, as many as there are: then the results are given, the other function is asked, or the error is raised
drop.done:
  br label %drop
drop.ask:
  br label %drop
drop.raise:
  %so.far = phi i64 [ %b, %block.take ], [ %b, %storage.none ], [ %blocks, %undone ], [ %blocks, %undone.all ]
  br label %drop
drop:
  %then = phi i64 [ 0, %drop.done ], [ 1, %drop.ask ], [ 2, %drop.raise ]
  %most = phi i64 [ %blocks, %drop.done ], [ %blocks, %drop.ask ], [ %so.far, %drop.raise ]
  br label %drop.each
drop.each:
  %d = phi i64 [ 0, %drop ], [ %d.next, %drop.next ]
  %dw = phi ptr [ %first.block, %drop ], [ %dw.next, %drop.next ]
  %d.some = icmp slt i64 %d, %most
  br i1 %d.some, label %drop.one, label %dropped
drop.one:
  %d.list = load ptr, ptr %dw
  %d.meta.at = getelementptr i64, ptr %dw, i64 2
  %d.meta = load ptr, ptr %d.meta.at
  %d.at = getelementptr ptr, ptr %held, i64 %d
  %d.o = load ptr, ptr %d.at
  %d.scratch = icmp eq ptr %d.meta, null
  br i1 %d.scratch, label %drop.give, label %drop.storage
drop.give:
  call void @give(ptr %d.list, ptr %d.o)
  br label %drop.next
drop.storage:
  call void @Py_DecRef(ptr %d.o)
  br label %drop.next
drop.next:
  %d.next = add i64 %d, 1
  %dw.next = getelementptr i64, ptr %dw, i64 3
  br label %drop.each
dropped:
  switch i64 %then, label %raise [ i64 0, label %given.back i64 1, label %ask ]
raise:
  ret ptr null
ask:
  %asked = call ptr @PyObject_Vectorcall(ptr %other, ptr %given, i64 %n, ptr null)
  ret ptr %asked

given.back:
  %alone = icmp eq i64 %gather, 0
  br i1 %alone, label %give.one, label %several
give.one:
  %only = load ptr, ptr %made
  ret ptr %only
several:
  %as_list = icmp eq i64 %gather, 2
  br i1 %as_list, label %list.new, label %tuple.new
list.new:
  %new.list = call ptr @PyList_New(i64 %count)
  br label %filled
tuple.new:
  %new.tuple = call ptr @PyTuple_New(i64 %count)
  br label %filled
filled:
  %whole = phi ptr [ %new.list, %list.new ], [ %new.tuple, %tuple.new ]
  %no_whole = icmp eq ptr %whole, null
  br i1 %no_whole, label %lost, label %fill
fill:
  %i = phi i64 [ 0, %filled ], [ %i.next, %fill.next ]
  %i.some = icmp slt i64 %i, %count
  br i1 %i.some, label %fill.one, label %full
fill.one:
  %i.at = getelementptr ptr, ptr %made, i64 %i
  %i.o = load ptr, ptr %i.at
  br i1 %as_list, label %fill.list, label %fill.tuple
fill.list:
  %l.ignored = call i32 @PyList_SetItem(ptr %whole, i64 %i, ptr %i.o)
  br label %fill.next
fill.tuple:
  %t.ignored = call i32 @PyTuple_SetItem(ptr %whole, i64 %i, ptr %i.o)
  br label %fill.next
fill.next:
  %i.next = add i64 %i, 1
  br label %fill
full:
  %as_called = icmp ugt i64 %gather, 2
  br i1 %as_called, label %called, label %give.whole
give.whole:
  ret ptr %whole
called:
  %maker = inttoptr i64 %gather to ptr
  %answer = call ptr @PyObject_CallOneArg(ptr %maker, ptr %whole)
  call void @Py_DecRef(ptr %whole)
  ret ptr %answer
lost:
  %x = phi i64 [ 0, %filled ], [ %x.next, %lost.one ]
  %x.some = icmp slt i64 %x, %count
  br i1 %x.some, label %lost.one, label %raise
lost.one:
  %x.at = getelementptr ptr, ptr %made, i64 %x
  %x.o = load ptr, ptr %x.at
  call void @Py_DecRef(ptr %x.o)
  %x.next = add i64 %x, 1
  br label %lost
}
"""

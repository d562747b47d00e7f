"""Machine code that tells the kind of a call from the key of its plan, and carries the call out by the plan for that kind (`engine/general.py`).

A kind is a tuple of bytes and of those parts of the key that are no layouts and no sizes.  The bytes are 64-bit words, for each part:

  1, the type, how many axes, each size (0, 1, or which of the call's sizes), 0 where elements lie one behind the other, otherwise 1 and for each axis,
     from the least stride on, its number and its stride: that of what lies within it (NEXT), 0, 1, or which of the sizes
  2, which of the sizes: a number that is a size
  3, a number that is none
  4, how many: a tuple of numbers, which follow as above
  5, how many: a tuple of parts, which follow
  6: one of the others

Which of the sizes is ~0 for the first of them, ~1 for the second.  `flambeau_kind(key, least)` gives the kind and the sizes, or None where there is no kind:
layouts elsewhere than on the CPU or of classes of their own, no sizes, or many.  least: from which number on integers are sizes, one for all parts of the
key and of its tuples; or a tuple of numbers, one for each part (0: none are), whose tuples are sizes where they are integers and nothing else.

`flambeau_unseen(key, least, kinds, fresh, *arguments)` looks the kind up in a dictionary and calls its functions with the sizes and the arguments, of
lists and tuples that hold tensors those one by one; in `fresh` is counted how often.  It gives NotImplemented where that was often, or the key stands there
with None, and where there is no function for it.
"""

from __future__ import annotations

from . import arguments
from .translate import translate

NAMES = ("flambeau_kind", "flambeau_unseen", "flambeau_kinds_know")
KNOWS = ("meta_class", "size_class", "device_class", "cpu", "tensor")


def text(places: dict[str, int], most: dict[str, int]) -> str:
    """The IR.  places: where slots lie: of a meta `shape strides dtype device contiguous`, of a kind `native recorded`.  most: `sizes`, keys that are `fresh`,
    `times` that one is."""
    known = "".join(f"{name}: ptr = None\n" for name in KNOWS)
    told = f"def flambeau_kinds_know({', '.join(f'{name}_: ptr' for name in KNOWS)}) -> void:\n    global {', '.join(KNOWS)}\n"
    told += "".join(f"    {name} = {name}_\n" for name in KNOWS)
    constants = {"ITEMS": tuple.__basicsize__, "ROOM": 240, "AXES": 16, "NEXT": -1 << 40, **{f"MOST_{name.upper()}": n for name, n in most.items()}}
    return translate(known + told + _TEXT, {**arguments.LAYOUT, **constants, **{name.upper(): at for name, at in places.items()}})


# state: how many words there are, sizes, others; the words; the sizes; the others
_TEXT = """
def put(state: ptr, word: i64) -> void:
    "Writes a word; beyond the room there is the count is all that goes on."
    n = i64[state]
    if n < ROOM:
        i64[state + 24 + 8 * n] = word
    i64[state] = n + 1

def size(state: ptr, value: i64) -> i64:
    "Which of the sizes a number is."
    sizes = state + 24 + 8 * ROOM
    n = i64[state + 8]
    for k in range(n):
        if i64[sizes + 8 * k] == value:
            return -1 - k
    if n < MOST_SIZES:
        i64[sizes + 8 * n] = value
    i64[state + 8] = n + 1
    return -1 - n

def other(state: ptr, o: ptr) -> void:
    n = i64[state + 16]
    if n < 32:
        ptr[state + 24 + 8 * ROOM + 8 * MOST_SIZES + 8 * n] = o
    i64[state + 16] = n + 1

def read(o: ptr, into: ptr) -> i1:
    "A whole number of 64 bits; 0 where it is none."
    if ptr[o + 8] != PyLong_Type:
        return False
    value = PyLong_AsLongLong(o)
    if value == -1 and PyErr_Occurred() is not None:
        PyErr_Clear()
        return False
    i64[into] = value
    return True

def lies(state: ptr, m: ptr) -> i1:
    "Writes a layout; 0 where it is of no kind."
    if ptr[m + 8] != meta_class or ptr[m + DEVICE] != cpu:
        return False
    shape = ptr[m + SHAPE]
    strides = ptr[m + STRIDES]
    rank = i64[shape + 16]
    if rank > AXES or i64[strides + 16] != rank:
        return False
    sizes = stack(i64, AXES)
    steps = stack(i64, AXES)
    order = stack(i64, AXES)
    put(state, 1)
    put(state, i64(ptr[m + DTYPE]))
    put(state, rank)
    for k in range(rank):
        if not read(ptr[shape + ITEMS + 8 * k], sizes + 8 * k) or not read(ptr[strides + ITEMS + 8 * k], steps + 8 * k):
            return False
        d = i64[sizes + 8 * k]
        put(state, d if d < 2 else size(state, d))
    due = 1
    dense = ptr[m + CONTIGUOUS] == _Py_TrueStruct
    k = rank
    while k > 0:
        k = k - 1
        if i64[steps + 8 * k] != due:
            dense = False
        d = i64[sizes + 8 * k]
        if d > 1:
            due = due * d
    if dense:
        put(state, 0)
        return True
    put(state, 1)
    for k in range(rank):  # by strides, those that are equal in their order
        at = k
        while at > 0 and i64[steps + 8 * i64[order + 8 * (at - 1)]] > i64[steps + 8 * k]:
            i64[order + 8 * at] = i64[order + 8 * (at - 1)]
            at = at - 1
        i64[order + 8 * at] = k
    due = 1
    for k in range(rank):
        axis = i64[order + 8 * k]
        step = i64[steps + 8 * axis]
        put(state, axis)
        put(state, NEXT if step == due else step if step < 2 else size(state, step))
        due = step * i64[sizes + 8 * axis]
    return True

def whole(items: ptr, count: i64) -> i1:
    number = stack(i64, 1)
    for k in range(count):
        if not read(ptr[items + 8 * k], number):
            return False
    return True

def number_of(state: ptr, value: i64, least: i64) -> void:
    counts = least > 0 and value >= least
    put(state, 2 if counts else 3)
    put(state, size(state, value) if counts else value)

def part(state: ptr, o: ptr, least: i64, deep: i1, depth: i64) -> i1:
    "Writes a part of a key; 0 where it is of no kind."
    type = ptr[o + 8]
    number = stack(i64, 1)
    if type == PyLong_Type:
        if not read(o, number):
            other(state, o)
            put(state, 6)
            return True
        number_of(state, i64[number], least)
        return True
    if type == PyTuple_Type or type == size_class:
        count = i64[o + 16]
        items = o + ITEMS
        if deep:
            if depth > 8 or count > ROOM:
                return False
            put(state, 5)
            put(state, count)
            for k in range(count):
                if not part(state, ptr[items + 8 * k], least, True, depth + 1):
                    return False
            return True
        if least > 0 and count < ROOM and whole(items, count):
            put(state, 4)
            put(state, count)
            for k in range(count):
                read(ptr[items + 8 * k], number)
                number_of(state, i64[number], least)
            return True
        for k in range(count):
            inner = ptr[ptr[items + 8 * k] + 8]
            if inner == PyTuple_Type or PyType_IsSubtype(inner, meta_class) != 0:
                return False
    elif type == meta_class or PyType_IsSubtype(type, meta_class) != 0:
        return lies(state, o)
    elif type == device_class and o != cpu or PyType_IsSubtype(type, tensor) != 0:
        return False
    put(state, 6)
    other(state, o)
    return True

def parts(state: ptr, key: ptr, least: ptr) -> i1:
    "Writes a key; 0 where it is of no kind."
    if ptr[key + 8] != PyTuple_Type:
        return False
    i64[state] = 0
    i64[state + 8] = 0
    i64[state + 16] = 0
    count = i64[key + 16]
    number = stack(i64, 1)
    deep = read(least, number)
    if not deep and i64[least + 16] != count:
        return False
    for k in range(count):
        if not deep:
            read(ptr[least + ITEMS + 8 * k], number)
        if not part(state, ptr[key + ITEMS + 8 * k], i64[number], deep, 0):
            return False
    return i64[state] <= ROOM and i64[state + 8] > 0 and i64[state + 8] <= MOST_SIZES and i64[state + 16] <= 32

def kind_of(state: ptr) -> ptr:
    "The kind; null with an error."
    others = i64[state + 16]
    made = PyTuple_New(1 + others)
    written = PyBytes_FromStringAndSize(state + 24, 8 * i64[state])
    if made is None or written is None:
        if made is not None:
            Py_DecRef(made)
        return None
    PyTuple_SetItem(made, 0, written)
    for k in range(others):
        o = ptr[state + 24 + 8 * ROOM + 8 * MOST_SIZES + 8 * k]
        Py_IncRef(o)
        PyTuple_SetItem(made, 1 + k, o)
    return made

def sizes_of(state: ptr) -> ptr:
    "The sizes as a tuple; null with an error."
    count = i64[state + 8]
    made = PyTuple_New(count)
    if made is None:
        return None
    for k in range(count):
        o = PyLong_FromLongLong(i64[state + 24 + 8 * ROOM + 8 * k])
        if o is None:
            Py_DecRef(made)
            return None
        PyTuple_SetItem(made, k, o)
    return made

def nothing(o: ptr) -> ptr:
    Py_IncRef(o)
    return o

def flambeau_kind(self: ptr, given: ptr, n: i64) -> ptr:
    state = stack(i64, 3 + ROOM + MOST_SIZES + 32)
    if n != 2 or not parts(state, ptr[given], ptr[given + 8]):
        return nothing(_Py_NoneStruct)
    made = PyTuple_New(2)
    kind = kind_of(state)
    sizes = sizes_of(state)
    if made is None or kind is None or sizes is None:
        return None
    PyTuple_SetItem(made, 0, kind)
    PyTuple_SetItem(made, 1, sizes)
    return made

def listed(o: ptr) -> i64:
    "How many tensors a list or tuple holds; 0 for any other object."
    type = ptr[o + 8]
    if type != PyList_Type and type != PyTuple_Type:
        return 0
    found = 0
    items = ptr[o + 24] if type == PyList_Type else o + ITEMS
    for k in range(i64[o + 16]):
        if PyType_IsSubtype(ptr[ptr[items + 8 * k] + 8], tensor) != 0:
            found += 1
    return found

def answered(functions: ptr, passed: ptr, count: i64) -> ptr:
    "What the first function gives that has an answer; NotImplemented where none has one, null with an error."
    made = nothing(_Py_NotImplementedStruct)
    k = 0
    while made == _Py_NotImplementedStruct and k < PyList_Size(functions):
        Py_DecRef(made)
        made = PyObject_Vectorcall(PyList_GetItem(functions, k), passed, count, None)
        k += 1
    return made

def flambeau_unseen(self: ptr, given: ptr, n: i64) -> ptr:
    state = stack(i64, 3 + ROOM + MOST_SIZES + 32)
    key = ptr[given]
    kinds = ptr[given + 16]
    fresh = ptr[given + 24]
    if PyDict_Size(kinds) == 0:
        return nothing(_Py_NotImplementedStruct)
    times = 0
    counted = PyDict_GetItemWithError(fresh, key)
    if counted is not None:
        times = MOST_TIMES if counted == _Py_NoneStruct else PyLong_AsLongLong(counted)
    if times >= MOST_TIMES or not parts(state, key, ptr[given + 8]):
        PyErr_Clear()
        return nothing(_Py_NotImplementedStruct)
    kind = kind_of(state)
    if kind is None:
        return None
    found = PyDict_GetItemWithError(kinds, kind)
    Py_DecRef(kind)
    if found is None or PyList_Size(ptr[found + NATIVE]) + PyList_Size(ptr[found + RECORDED]) == 0:
        PyErr_Clear()
        return nothing(_Py_NotImplementedStruct)
    count = 1
    for k in range(4, n):
        apart = listed(ptr[given + 8 * k])
        count += apart if apart > 0 else 1
    if count > 64:
        return nothing(_Py_NotImplementedStruct)
    passed = stack(ptr, count)
    sizes = sizes_of(state)
    if sizes is None:
        return None
    ptr[passed] = sizes
    at = 1
    for k in range(4, n):
        o = ptr[given + 8 * k]
        apart = listed(o)
        if apart == 0:
            ptr[passed + 8 * at] = o
            at += 1
        else:
            items = ptr[o + 24] if ptr[o + 8] == PyList_Type else o + ITEMS
            for i in range(i64[o + 16]):
                if PyType_IsSubtype(ptr[ptr[items + 8 * i] + 8], tensor) != 0:
                    ptr[passed + 8 * at] = ptr[items + 8 * i]
                    at += 1
    functions = ptr[found + NATIVE]
    others = ptr[found + RECORDED]
    Py_IncRef(functions)
    Py_IncRef(others)
    made = answered(functions, passed, count)
    if made == _Py_NotImplementedStruct:
        Py_DecRef(made)
        made = answered(others, passed, count)
    Py_DecRef(functions)
    Py_DecRef(others)
    Py_DecRef(sizes)
    if made is not None and made != _Py_NotImplementedStruct:
        if PyDict_Size(fresh) >= MOST_FRESH:
            PyDict_Clear(fresh)
        number = PyLong_FromLongLong(times + 1)
        if number is not None:
            PyDict_SetItem(fresh, key, number)
            Py_DecRef(number)
        PyErr_Clear()
    return made
"""

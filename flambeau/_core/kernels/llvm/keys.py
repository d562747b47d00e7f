"""Machine code that gives an argument's part in the key of a plan (`engine/fronts.py: constant, exact`), for the arguments of most calls.

`flambeau_key(argument)` has as its `self` a bytes object of 64-bit words:

  word 0   the function that gives the same in Python, which is asked for any other argument, or part of one
  word 1   1: the parts of a list come behind `list`, those of a slice behind `slice`, truths behind `bool`, and a tensor's part is its meta; 0: a list is
           as a tuple, and the others are other arguments
  word 2   the most parts that a list or tuple may have
  word 3   how many classes of plain arguments, which are their own part; then the classes

It gives: an int as it is, and a float that is no whole number; a whole one with an imaginary part, which tells it from ints, and zeros by their sign;
what is of a plain class as it is; lists, tuples, and those of the subclass of tuple that `flambeau_key_knows` was told of, as the tuple of their parts.
"""

from __future__ import annotations

from . import arguments
from .translate import translate

NAMES = ("flambeau_key", "flambeau_key_knows")


def text(meta: int) -> str:
    """The IR. meta: where a tensor's meta lies in it."""
    # a tuple's items begin where its head ends, which Python 3.14 made longer
    return translate(_TEXT, {**arguments.LAYOUT, "META": meta, "ITEMS": tuple.__basicsize__})


_TEXT = """
tensor: ptr = None
sizes: ptr = None

def flambeau_key_knows(tensor_: ptr, sizes_: ptr) -> void:
    global tensor, sizes
    tensor = tensor_
    sizes = sizes_

def behind(prefix: ptr, items: ptr, count: i64, words: ptr, depth: i64) -> ptr:
    "A tuple of a class, if there is one, and the parts of so many objects; null with an error."
    first = 0 if prefix is None else 1
    made = PyTuple_New(count + first)
    if made is None:
        return None
    if prefix is not None:
        Py_IncRef(prefix)
        PyTuple_SetItem(made, 0, prefix)
    for i in range(count):
        item = ptr[items + 8 * i]
        Py_IncRef(item)
        new = part(item, words, depth + 1)
        Py_DecRef(item)
        if new is None:
            Py_DecRef(made)
            return None
        PyTuple_SetItem(made, i + first, new)
    return made

def pair(type: ptr, v: ptr) -> ptr:
    made = PyTuple_New(2)
    if made is not None:
        Py_IncRef(type)
        Py_IncRef(v)
        PyTuple_SetItem(made, 0, type)
        PyTuple_SetItem(made, 1, v)
    return made

def same(v: ptr) -> ptr:
    Py_IncRef(v)
    return v

def several(v: ptr, listed: i1, from_: ptr, count: i64, words: ptr, depth: i64) -> ptr:
    "The parts of a list or a tuple."
    if not listed and ptr[v + 8] == PyTuple_Type:
        k = 0
        while k < count and ptr[ptr[from_ + 8 * k] + 8] == PyLong_Type:
            k += 1
        if k == count:
            return same(v)
    held = PyList_AsTuple(v) if listed else same(v)  # which nobody changes meanwhile
    if held is None:
        return None
    made = behind(PyList_Type if listed and i64[words + 8] else None, held + ITEMS, count, words, depth)
    Py_DecRef(held)
    return made

def part(v: ptr, words: ptr, depth: i64) -> ptr:
    type = ptr[v + 8]
    tells = i64[words + 8] != 0
    if depth > 8:  # a list may hold itself
        return PyObject_CallOneArg(ptr[words], v)
    if type == PyLong_Type:
        return same(v)
    for i in range(i64[words + 24]):
        if type == ptr[words + 32 + 8 * i]:
            return same(v)
    listed = type == PyList_Type
    if listed or type == PyTuple_Type or type == sizes:
        count = i64[v + 16]
        if count <= i64[words + 16]:
            return several(v, listed, ptr[v + 24] if listed else v + ITEMS, count, words, depth)
    elif type == PyFloat_Type:
        number = double[v + 16]
        if number == number:
            # below 2 to the 51st, what this is added to and taken from is rounded; above, all are whole
            if number > -2251799813685248.0 and number < 2251799813685248.0 and number + 6755399441055744.0 - 6755399441055744.0 != number:
                return same(v)
            return PyComplex_FromDoubles(number, 1.0 if number != 0.0 else -1.5 if bits(number) < 0 else 1.5)
    elif tells and type == tensor:
        if (m := ptr[v + META]) is not None:
            return same(m)
    elif tells and type == PySlice_Type:
        return behind(type, v + 16, 3, words, depth)
    elif tells and type == PyBool_Type:
        return pair(type, v)
    return PyObject_CallOneArg(ptr[words], v)

def flambeau_key(self: ptr, v: ptr) -> ptr:
    return part(v, self + DATA, 0)
"""

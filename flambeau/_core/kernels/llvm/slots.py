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

from .. import slots as kinds
from . import arguments
from .translate import translate

NAMES = ("flambeau_attribute", "flambeau_give_back", "flambeau_ignore")
KNOWN = arguments.KNOWN  # whether an object's type is where these builtins look for it


def text(taker: int, given: int) -> str:
    """The IR. taker, given: the places of the slots of `flambeau_give_back`."""
    return translate(arguments.NONE + _TEXT, {**arguments.LAYOUT, **_KINDS, "TAKER": taker, "GIVEN": given})


_KINDS = {name: getattr(kinds, name) for name in ("OBJECT", "PRESENT", "EQUAL", "LENGTH", "CONSTANT", "LEAF", "GRADIENT", "NUMBER")}
_TEXT = """
ignored: ptr = None
append: ptr = None

def flambeau_attribute(self: ptr, given: ptr) -> ptr:
    words = self + DATA
    kind = i64[words]
    other = ptr[words + 8]
    constant = ptr[words + 16]
    at = words + 32
    o = given
    for i in range(i64[words + 24]):
        type = ptr[o + 8]
        if type != ptr[at] and PyType_IsSubtype(type, ptr[at]) == 0:
            return PyObject_CallOneArg(other, given)
        o = ptr[o + i64[at + 8]]
        if o is None:
            return PyObject_CallOneArg(other, given)
        at = at + 16
    empty = o == _Py_NoneStruct
    if kind == NUMBER and ptr[o + 8] != PyLong_Type:
        return PyObject_CallOneArg(other, given)
    if kind == OBJECT or kind == NUMBER:
        Py_IncRef(o)
        return o
    if kind == CONSTANT:
        Py_IncRef(constant)
        return constant
    if kind == PRESENT:
        beside = i64[at + 8]
        if empty and beside and ptr[given + beside] != _Py_NoneStruct:
            return PyObject_CallOneArg(other, given)
        return PyBool_FromLong(i64(not empty))
    if kind == EQUAL:
        alike = PyObject_RichCompareBool(o, constant, 2)
        return None if alike < 0 else PyBool_FromLong(i64(alike))
    if kind == LENGTH:
        n = PyObject_Size(o)
        return None if n < 0 else PyLong_FromSsize_t(n)
    if empty:
        return PyObject_GetAttr(given, constant) if kind == GRADIENT else PyBool_FromLong(1)
    number = PyList_GetItem(o, 0)
    if number is not None:
        leaf = PyObject_IsTrue(number) == 0
        if kind == LEAF:
            return PyBool_FromLong(i64(leaf))
        if not leaf:
            return PyObject_CallOneArg(other, given)
        g = PyList_GetItem(o, 1)
        if g is not None:
            Py_IncRef(g)
            return g
    PyErr_Clear()
    return PyObject_CallOneArg(other, given)

def flambeau_give_back(self: ptr, nothing: ptr) -> ptr:
    global append
    taker = ptr[self + TAKER]
    given = ptr[self + GIVEN]
    if taker is not None and given is not None:
        if ptr[taker + 8] == PyList_Type:
            if PyList_Append(taker, given) != 0:
                return None
        elif taker != ignored:
            if append is None:
                append = PyUnicode_InternFromString("append")
                if append is None:
                    return None
            result = PyObject_CallMethodObjArgs(taker, append, given, None)
            if result is None:
                return None
            Py_DecRef(result)
    return none()

def flambeau_ignore(object: ptr) -> void:
    global ignored
    ignored = object
"""

"""Builtins between memory and Python's objects: numbers and nested lists of a tensor's elements, and elements of nested lists.

Each builtin's `self` is a bytes object of 64-bit words:

  read(address)           kind, how many axes, then for each axis its size and its stride in bytes: the number there, or lists of them
  element(tensor)         five words, then those of `read`: the function that is asked instead for another object and while a dictionary has anything in it,
                          that dictionary, the class of tensors, where their addresses lie, the class that the number becomes (0: as it is)
  write(address, nested)  those of `read`: True where the nested lists and tuples are of these sizes and hold what the type may be given, which is
                          then written; False where not, and anything may have been written
  show(address, owner)    the addresses of NumPy's `PyArray_NewFromDescr`, `PyArray_SetBaseObject`, array class and type, how many axes, their sizes,
                          their strides in bytes: an array on memory that the owner keeps
"""

from __future__ import annotations

from . import arguments
from .translate import translate

NAMES = ("flambeau_read", "flambeau_element", "flambeau_write", "flambeau_show")
ALONE = frozenset(("flambeau_read", "flambeau_element"))  # those that take one argument
KNOWN = arguments.KNOWN  # whether an object's type is where these builtins look for it

# a dtype's kind of number and bytes; bfloat16 is the last
KINDS = {("f", 4): 0, ("f", 8): 1, ("i", 8): 2, ("i", 4): 3, ("i", 2): 4, ("i", 1): 5, ("u", 1): 6, ("u", 2): 7, ("u", 4): 8, ("u", 8): 9, ("b", 1): 10,
         ("c", 8): 11, ("c", 16): 12}
BFLOAT16 = 13
WRITTEN = frozenset((0, 1, 2, 10))  # the kinds that `write` knows


def text() -> str:
    """The IR of all."""
    return translate(arguments.WORD + _READ + FILL + _WRITE + _ARRAYS, arguments.LAYOUT)


_READ = """
def number(p: ptr, kind: i64) -> ptr:
    if kind == 0:
        return PyFloat_FromDouble(double(float[p]))
    if kind == 1:
        return PyFloat_FromDouble(double[p])
    if kind == 2:
        return PyLong_FromLongLong(i64[p])
    if kind == 3:
        return PyLong_FromLongLong(i64(i32[p]))
    if kind == 4:
        return PyLong_FromLongLong(i64(i16[p]))
    if kind == 5:
        return PyLong_FromLongLong(i64(i8[p]))
    if kind == 6:
        return PyLong_FromLongLong(unsigned(i8[p]))
    if kind == 7:
        return PyLong_FromLongLong(unsigned(i16[p]))
    if kind == 8:
        return PyLong_FromLongLong(unsigned(i32[p]))
    if kind == 9:
        return PyLong_FromUnsignedLongLong(i64[p])
    if kind == 10:
        return PyBool_FromLong(i64(i8[p] != 0))
    if kind == 11:
        return PyComplex_FromDoubles(double(float[p]), double(float[p + 4]))
    if kind == 12:
        return PyComplex_FromDoubles(double[p], double[p + 8])
    whole = stack(i32, 1)
    i32[whole] = i32(unsigned(i16[p]) << 16)
    return PyFloat_FromDouble(double(float[whole]))

def nested(p: ptr, axes: ptr, count: i64, kind: i64) -> ptr:
    if count == 0:
        return number(p, kind)
    n = i64[axes]
    made = PyList_New(n)
    if made is None:
        return None
    for i in range(n):
        item = nested(p, axes + 16, count - 1, kind)
        if item is None:
            Py_DecRef(made)
            return None
        PyList_SetItem(made, i, item)
        p = p + i64[axes + 8]
    return made

def flambeau_read(self: ptr, given: ptr) -> ptr:
    address = PyLong_AsUnsignedLongLongMask(given)
    if address == -1 and PyErr_Occurred() is not None:
        return None
    words = self + DATA
    return nested(ptr(address), words + 16, i64[words + 8], i64[words])

def flambeau_element(self: ptr, o: ptr) -> ptr:
    words = self + DATA
    type = ptr[o + 8]
    tensor = ptr[words + 16]
    if PyDict_Size(ptr[words + 8]) != 0 or type != tensor and PyType_IsSubtype(type, tensor) == 0:
        return PyObject_CallOneArg(ptr[words], o)
    address = ptr[o + i64[words + 24]]
    if address is None:
        return PyObject_CallOneArg(ptr[words], o)
    made = nested(ptr(word(address)), words + 56, i64[words + 48], i64[words + 40])
    class_ = ptr[words + 32]
    if made is None or class_ is None:
        return made
    converted = PyNumber_Long(made) if class_ == PyLong_Type else PyNumber_Float(made) if class_ == PyFloat_Type else PyObject_CallOneArg(class_, made)
    Py_DecRef(made)
    return converted
"""

# writes the numbers in nested lists; False where they are not of these sizes, or not what the type may be given
FILL = """
def fill(o: ptr, p: ptr, axes: ptr, count: i64, kind: i64) -> i1:
    type = ptr[o + 8]
    if count == 0:
        return put_number(o, type, p, kind)
    n = i64[axes]
    listed = type == PyList_Type
    if not listed and type != PyTuple_Type:
        return False
    if n != (PyList_Size(o) if listed else PyTuple_Size(o)):
        return False
    for i in range(n):
        if not fill(PyList_GetItem(o, i) if listed else PyTuple_GetItem(o, i), p, axes + 16, count - 1, kind):
            return False
        p = p + i64[axes + 8]
    return True

def refused() -> i1:
    "Whether a number could not be had."
    if PyErr_Occurred() is None:
        return False
    PyErr_Clear()
    return True

def put_number(o: ptr, type: ptr, p: ptr, kind: i64) -> i1:
    if kind == 0 or kind == 1:
        if type != PyFloat_Type and type != PyLong_Type:
            return False
        value = PyFloat_AsDouble(o) if type == PyFloat_Type else PyLong_AsDouble(o)
        if type == PyLong_Type and value == -1.0 and refused():
            return False
        if kind == 1:
            double[p] = value
        else:
            float[p] = float(value)
        return True
    if kind == 2:
        if type != PyLong_Type:
            return False
        whole = PyLong_AsLongLong(o)
        if whole == -1 and refused():
            return False
        i64[p] = whole
        return True
    if kind != 10 or o != _Py_TrueStruct and o != _Py_FalseStruct:
        return False
    i8[p] = i8(unsigned(o == _Py_TrueStruct))
    return True
"""

_WRITE = """
def flambeau_write(self: ptr, given: ptr, n: i64) -> ptr:
    words = self + DATA
    return PyBool_FromLong(i64(n == 2 and fill(ptr[given + 8], ptr(PyLong_AsUnsignedLongLongMask(ptr[given])), words + 16, i64[words + 8], i64[words])))
"""

_ARRAYS = """
def flambeau_show(self: ptr, given: ptr, n: i64) -> ptr:
    words = self + DATA
    address = ptr(0)
    if n == 2:
        address = ptr(PyLong_AsUnsignedLongLongMask(ptr[given]))
    if address is None:
        PyErr_SetString(ptr[PyExc_TypeError], "show takes an address, which is not 0, and an owner")
        return None
    owner = ptr[given + 8]
    count = i64[words + 32]
    Py_IncRef(ptr[words + 24])
    array = call(ptr, ptr[words], ptr[words + 16], ptr[words + 24], i32(count), words + 40, words + 40 + 8 * count, address, i32(1024), ptr(0))
    if array is None:
        return None
    Py_IncRef(owner)
    if call(i32, ptr[words + 8], array, owner) < 0:
        Py_DecRef(array)
        return None
    return array
"""

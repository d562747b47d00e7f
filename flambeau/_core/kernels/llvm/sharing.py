"""Machine code that shares memory with other libraries: tensors on the memory of arrays and buffers, and DLPack's capsules of tensors.

  from_array(array, layouts)        a tensor on a NumPy array's memory, whose layout a dictionary has by the array's key (`objects.py`), behind its dtype;
                                    None where it has none. `self`: the address of NumPy's array class
  from_buffer(buffer, found, count, offset)  a tensor on a buffer's memory, where `found` is its layout, the bytes before it and the buffer's size; None for
                                    a buffer of another size or that may not be written, and for a count and an offset that are no ints
  capsule(tensor)                   a DLPack capsule. `self`: the function that is asked for other tensors; 1 for a versioned capsule; its flags; the device's
                                    type and number, 32 bits each; how many axes; code, bits and lanes of the type; sizes; strides

They are part of the text of `calls.py`, which makes the tensors.  A capsule's memory is DLManagedTensor, or DLManagedTensorVersioned, and
behind it sizes and strides; its deleter may be called by any thread, and does nothing once Python has ended.
"""

from __future__ import annotations

from . import arguments, objects

NAMES = ("flambeau_from_array", "flambeau_from_buffer", "flambeau_capsule")


def text() -> str:
    """The text for `translate`, behind that of `calls.py`."""
    return arguments.NONE + objects.ARRAY_KEY + _INWARDS + _OUTWARDS


_INWARDS = """
def wrapped(address: i64, m: ptr, keep: ptr) -> ptr:
    "A tensor on memory that an object owns."
    number = PyLong_FromUnsignedLongLong(address)
    if number is None:
        return None
    s = PyType_GenericAlloc(storage, 0)
    if s is None:
        Py_DecRef(number)
        return None
    put(s, VERSION, zero)
    put(s, FREE, nobody)
    put(s, KEPT, m)
    put(s, OWNER, keep)
    ptr[s + ADDRESS] = number
    t = shown(m, s, number, address, 0, _Py_NoneStruct)
    Py_DecRef(s)
    return t

def flambeau_from_array(self: ptr, given: ptr, n: i64) -> ptr:
    o = ptr[given]
    if n != 2 or ptr[o + 8] != ptr[self + DATA]:
        return none()
    key = array_key(o)
    if key is None:
        return None
    found = PyDict_GetItemWithError(ptr[given + 8], key)
    Py_DecRef(key)
    if found is None:
        return None if PyErr_Occurred() is not None else none()
    return wrapped(i64[o + 16], PyTuple_GetItem(found, 1), o)

def flambeau_from_buffer(self: ptr, given: ptr, n: i64) -> ptr:
    buffer = stack(i64, 10)
    found = ptr[given + 8]
    if n != 4 or ptr[found + 8] != PyTuple_Type or ptr[ptr[given + 16] + 8] != PyLong_Type or ptr[ptr[given + 24] + 8] != PyLong_Type:
        return none()
    view = PyMemoryView_FromObject(ptr[given])
    if view is None or PyObject_GetBuffer(view, buffer, 1) != 0:
        Py_DecRef(view)
        PyErr_Clear()
        return none()
    address = i64[buffer]
    size = i64[buffer + 16]
    PyBuffer_Release(buffer)
    right = size == PyLong_AsLongLong(PyTuple_GetItem(found, 2))
    made = wrapped(address + PyLong_AsLongLong(PyTuple_GetItem(found, 1)), PyTuple_GetItem(found, 0), view) if right else none()
    Py_DecRef(view)
    return made
"""

_OUTWARDS = """
def drop(managed: ptr, owner: ptr) -> void:
    if Py_IsInitialized():
        state = PyGILState_Ensure()
        Py_DecRef(owner)
        PyGILState_Release(state)
        PyMem_RawFree(managed)

def returned(managed: ptr) -> void:
    drop(managed, ptr[managed + 48])

def returned_versioned(managed: ptr) -> void:
    drop(managed, ptr[managed + 8])

def freed(capsule: ptr) -> void:
    "Gives back what nobody has taken from a capsule."
    if PyCapsule_IsValid(capsule, "dltensor"):
        returned(PyCapsule_GetPointer(capsule, "dltensor"))
    elif PyCapsule_IsValid(capsule, "dltensor_versioned"):
        returned_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"))

def flambeau_capsule(self: ptr, o: ptr) -> ptr:
    words = self + DATA
    if not is_tensor(o) or ptr[o + PTR] is None or ptr[o + STORE] is None or ptr[o + NODE] != _Py_NoneStruct:
        return PyObject_CallOneArg(ptr[words], o)
    versioned = i64[words + 8]
    axes = i64[words + 32]
    size = 80 if versioned else 64
    managed = PyMem_RawMalloc(size + 16 * axes)
    if managed is None:
        return PyErr_NoMemory()
    owner = ptr[o + STORE]
    described = managed
    name = "dltensor"
    if versioned:
        i32[managed] = i32(1)
        i32[managed + 4] = i32(1)
        ptr[managed + 8] = owner
        ptr[managed + 16] = returned_versioned
        i64[managed + 24] = i64[words + 16]
        described = managed + 32
        name = "dltensor_versioned"
    else:
        ptr[managed + 48] = owner
        ptr[managed + 56] = returned
    i64[described] = word(ptr[o + PTR])
    i64[described + 8] = i64[words + 24]
    i32[described + 16] = i32(axes)
    i32[described + 20] = i32(i64[words + 40])
    ptr[described + 24] = managed + size
    ptr[described + 32] = managed + size + 8 * axes
    i64[described + 40] = 0
    memcpy(managed + size, words + 48, 16 * axes)
    capsule = PyCapsule_New(managed, name, freed)
    if capsule is None:
        PyMem_RawFree(managed)
    else:
        Py_IncRef(owner)
    return capsule
"""

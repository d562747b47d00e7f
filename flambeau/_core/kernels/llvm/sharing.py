"""Machine code that shares memory with other libraries: tensors on the memory of arrays and buffers, and DLPack's capsules of tensors.

  layout(data)                      what data is but its values, for the keys of plans: of numbers in lists and tuples, the class of the first number and the
                                    sizes, as a tuple; of a NumPy array, its type's address, whether it may be written, sizes and strides, as bytes; of a
                                    tensor, its meta. `self`: the function that is asked for other objects, NumPy's array class or 0, the most axes
  size(buffer)                      the bytes of a buffer that may be written. `self`: the function that is asked for other objects
  capsule(tensor)                   a DLPack capsule. `self`: the function that is asked for other tensors; 1 for a versioned capsule; its flags; the device's
                                    type and number, 32 bits each; how many axes; code, bits and lanes of the type; sizes; strides

They are part of the text of `calls.py`, which makes the tensors.  A capsule's memory is DLManagedTensor, or DLManagedTensorVersioned, and
behind it sizes and strides; its deleter may be called by any thread, and does nothing once Python has ended.
"""

from __future__ import annotations

NAMES = ("flambeau_layout", "flambeau_size", "flambeau_capsule")


def text() -> str:
    """The text for `translate`, behind that of `calls.py`, in which `INWARDS` is."""
    return _LAYOUTS + _OUTWARDS


INWARDS = """
def wrapped(address: i64, m: ptr, keep: ptr) -> ptr:
    "A tensor on memory that an object owns."
    number = PyLong_FromUnsignedLongLong(address)
    if number is None:
        return None
    s = PyType_GenericAlloc(storage, 0)
    if s is None:
        Py_DecRef(number)
        return None
    put(s, VERSION, first_version())
    put(s, FREE, nobody)
    put(s, KEPT, m)
    put(s, OWNER, keep)
    ptr[s + ADDRESS] = number
    t = shown(m, s, number, address, 0, _Py_NoneStruct)
    Py_DecRef(s)
    return t

def on_buffer(o: ptr, m: ptr, added: i64) -> ptr:
    "A tensor on a buffer's memory; null where it may not be written."
    buffer = stack(i64, 10)
    view = PyMemoryView_FromObject(o)
    if view is None or PyObject_GetBuffer(view, buffer, 1) != 0:
        Py_DecRef(view)
        PyErr_Clear()
        return None
    address = i64[buffer]
    PyBuffer_Release(buffer)
    made = wrapped(address + added, m, view)
    Py_DecRef(view)
    return made
"""

# PyArrayObject_fields: after the head come data, nd (32 bits), dimensions, strides, base, descr, flags (32 bits)
_LAYOUTS = """
def array_key(o: ptr) -> ptr:
    axes = 8 * i64(i32[o + 24])
    made = PyBytes_FromStringAndSize(None, 2 * axes + 16)
    if made is not None:
        to = made + DATA
        i64[to] = i64[o + 56]
        i64[to + 8] = unsigned(i32[o + 64] & 1024)
        memcpy(to + 16, ptr[o + 32], axes)
        memcpy(to + 16 + axes, ptr[o + 40], axes)
    return made

def flambeau_layout(self: ptr, o: ptr) -> ptr:
    words = self + DATA
    type = ptr[o + 8]
    if type == tensor and ptr[o + META] is not None:
        Py_IncRef(ptr[o + META])
        return ptr[o + META]
    if type == ptr[words + 8]:
        return array_key(o)
    sizes = stack(i64, 64)
    count = 0
    x = o
    n = 1
    while n > 0 and count < 64 and (type == PyList_Type or type == PyTuple_Type):
        n = PyList_Size(x) if type == PyList_Type else PyTuple_Size(x)
        i64[sizes + 8 * count] = n
        count += 1
        if n > 0:
            x = PyList_GetItem(x, 0) if type == PyList_Type else PyTuple_GetItem(x, 0)
            type = ptr[x + 8]
    if type != PyFloat_Type and type != PyLong_Type and type != PyBool_Type:
        return PyObject_CallOneArg(ptr[words], o)
    made = PyTuple_New(count + 1)
    if made is None:
        return None
    Py_IncRef(type)
    PyTuple_SetItem(made, 0, type)
    for k in range(count):
        size = PyLong_FromLongLong(i64[sizes + 8 * k])
        if size is None:
            Py_DecRef(made)
            return None
        PyTuple_SetItem(made, k + 1, size)
    return made

def flambeau_size(self: ptr, o: ptr) -> ptr:
    buffer = stack(i64, 10)
    if PyObject_GetBuffer(o, buffer, 1) != 0:
        PyErr_Clear()
        return PyObject_CallOneArg(ptr[self + DATA], o)
    size = i64[buffer + 16]
    PyBuffer_Release(buffer)
    return PyLong_FromLongLong(size)
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

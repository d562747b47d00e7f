"""DLPack 1.1, both ways (the structures are those of dmlc/dlpack's `dlpack.h`).

Outwards machine code of ours makes the capsule (`kernels/llvm/sharing.py`): its deleter needs no Python function, so that a
consumer may let go of the memory from any thread and at any time.  Where there is no machine code NumPy makes it, and what NumPy has no word for
(bfloat16, a GPU's memory) is written into the structure afterwards.  Inwards the structure is read here, and what came is kept until the last tensor on
it is gone.
"""

from __future__ import annotations

import ctypes
import operator
import os
import sys
from typing import TYPE_CHECKING, Any

from .._core import dtypes
from .._core.engine.plans import CALLS, under
from .._core.errors import warn
from .._core.kernels.interpret import memory
from .._core.kernels.lasting import keep
from .._core.runtime import caches
from .._core.runtime.asking import unasked
from .._core.runtime.device import device as device_class
from .._core.runtime.device import resolve
from .._core.tensor import Meta, Tensor, alias, meta, wrap

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core.dtypes import dtype

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
VERSION = (1, 1)
READ_ONLY, IS_COPIED = 1, 2
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_CODES = {"i": _INT, "u": _UINT, "f": _FLOAT, "c": _COMPLEX, "b": _BOOL}
_TYPES: dict[tuple[int, int], dtype] = {
    (_BFLOAT if d is dtypes.bfloat16 else _CODES[d.kind], d.itemsize * 8): d for d in dtypes.ALL}
_DEVICES = {CPU: "cpu", CUDA: "cuda", CUDA_HOST: "cpu", CUDA_MANAGED: "cuda"}
_UNVERSIONED, _VERSIONED = b"dltensor", b"dltensor_versioned"


class _Description(ctypes.Structure):
    """DLTensor."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    """DLManagedTensor."""
    _fields_ = [("tensor", _Description), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    """DLManagedTensorVersioned."""
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _Description)]


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes, _rename.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_USED = {_UNVERSIONED: b"used_dltensor", _VERSIONED: b"used_dltensor_versioned"}
for _name in (*_USED, *_USED.values()):
    keep(_name)  # a capsule holds no copy of its name, and may be freed after this module
_delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


# ----------------------------------------------------------------------------------------------------------------- outwards
def device_of(t: Tensor) -> tuple[int, int]:
    """(device type, index), as DLPack numbers them: (1, 0) is the CPU, (2, i) GPU i.  Raises BufferError for the meta device."""
    return _place_of(t.meta)


def _place_of(m: Meta) -> tuple[int, int]:
    if m.device.type == "meta":
        raise BufferError("Cannot pack tensors on meta: they have no memory")
    return (CPU, 0) if m.device.type == "cpu" else (CUDA, m.device.index or 0)


def export(self: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None) -> Any:
    """A capsule through which another library sees the tensor's memory, which lives as long as that library needs it.

    Args:
        stream: for a GPU, the consumer's stream, which is made to wait for what the current one has queued: None or 1 is the
            default stream, -1 asks for no waiting.  None or -1 on the CPU.
        max_version: the newest DLPack version the consumer knows; from (1, 0) on it gets a versioned capsule.
        dl_device: where the consumer wants it (`__dlpack_device__`'s form); another device than the tensor's takes a copy.
        copy: True for memory of its own; False forbids a copy; None copies where it must.

    Raises BufferError for a tensor that requires grad, or when what is asked for needs a copy that `copy` forbids.
    """
    _check_no_grad(self)
    if stream is not None and type(stream) is not int:
        raise TypeError(f"stream must be int or None, got {type(stream).__name__}")
    t = _placed(self, dl_device, copy)
    copied = t is not self
    if t.meta.device.type == "cpu":
        if stream not in (None, -1) and self.meta.device.type == "cpu":
            raise AssertionError("stream should be None on cpu.")
        return _capsule(t, max_version, copied)
    _order(t, stream)
    return _capsule(t, max_version, copied)


def _check_no_grad(t: Tensor) -> None:
    if t.node is not None:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")


def _placed(t: Tensor, dl_device: Any, copy: bool | None) -> Tensor:
    """The tensor where it is wanted: itself or a copy."""
    here = device_of(t)
    where = here if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if where == here or (where[0] == CUDA_HOST and here[0] == CPU):
        return t.clone() if copy else t
    if where[0] not in _DEVICES:
        raise BufferError(f"__dlpack__: dl_device={where} is no device that Flambeau knows: (1, 0) is the CPU, (2, i) GPU i")
    if copy is False:
        raise BufferError(f"__dlpack__: the tensor is on {t.meta.device}; dl_device={where} needs a copy, which copy=False forbids")
    try:
        target = resolve("cpu" if _DEVICES[where[0]] == "cpu" else device_class("cuda", where[1]))
        moved: Tensor = unasked(t.to)(target)
    except (RuntimeError, AssertionError) as error:
        raise BufferError(f"__dlpack__: dl_device={where} cannot be had: {error}") from None
    return moved


def _order(t: Tensor, stream: int | None) -> None:
    """Lets the consumer's stream wait for what is queued on ours."""
    from .._core.runtime import gpus
    if stream == -1:
        return
    g, current = gpus.device_and_stream(t.meta.device)
    if stream in (None, 0, 1, 2):
        consumer: Any = g.default_handle
    else:
        known = [handle for those in g._streams.values() for handle, _ in those]
        consumer = next((h for h in known if id(h) == stream), None)
    if consumer is None:
        current.synchronize()  # a stream of somebody else's: the work is done before they hear of it
    elif consumer is not current._handle:
        event = g.driver.event_create()
        g.driver.event_record(event, current._handle)
        g.driver.stream_wait_event(consumer, event)


def _capsule(t: Tensor, max_version: Any, copied: bool) -> Any:
    if t.is_conj() or t.is_neg():
        raise BufferError(f"Can't export a tensor whose {'conjugate' if t.is_conj() else 'negative'} bit is set: resolve it first")
    versioned = max_version is not None and int(max_version[0]) >= 1
    key = under(t.meta), versioned, copied
    make = _makers.get(key)
    if make is None:
        since, make = caches.epoch, _maker(*key)
        caches.keep_since(since, _makers, key, make)
        if not versioned and not copied and t.meta is key[0] and t.meta.device.type == "cpu":
            caches.keep_since(since, _older, t.meta, make)
    return make(t)


def _maker(m: Meta, versioned: bool, copied: bool) -> Callable[[Tensor], Any]:
    """What makes capsules of tensors of a layout."""
    def by_numpy(t: Tensor) -> Any:
        _check_no_grad(t)
        return _by_numpy(t, versioned, copied)
    kind, index = _place_of(m)
    d = m.dtype
    code = _BFLOAT if d is dtypes.bfloat16 else _CODES[d.kind]
    strides = [s if n > 1 else 1 for n, s in zip(m.shape, m.strides, strict=True)]  # as PyTorch has them
    words = [id(by_numpy), int(versioned), IS_COPIED * copied, kind | index << 32, len(m.shape), code | d.itemsize << 11 | 1 << 16, *m.shape, *strides]
    return CALLS.shares("flambeau_capsule", words, by_numpy, alone=True) or by_numpy


# what makes capsules, by the layout, whether they are versioned and of a copy; and for older ones of CPU tensors themselves by the layout alone
_makers: dict[tuple[Meta, bool, bool], Callable[[Tensor], Any]] = caches.cache(globals(), "_makers")
_older: dict[Meta, Callable[[Tensor], Any]] = caches.cache(globals(), "_older")


def _by_numpy(t: Tensor, versioned: bool, copied: bool) -> Any:
    array = memory(t.ptr, tuple(t.meta.shape), t.meta.strides, t.meta.dtype, t.store)
    try:
        made = array.__dlpack__(max_version=VERSION) if versioned else array.__dlpack__()
    except TypeError:  # NumPy 2.0 knows unversioned capsules only, which the protocol allows as an answer
        made = array.__dlpack__()
    if not copied and t.meta.device.type == "cpu" and t.meta.dtype is not dtypes.bfloat16:
        return made
    if _is_valid(made, _VERSIONED):
        whole = _ManagedVersioned.from_address(_pointer(made, _VERSIONED))
        whole.flags |= IS_COPIED if copied else 0
        description = whole.tensor
    else:
        description = _Managed.from_address(_pointer(made, _UNVERSIONED)).tensor
    description.device_type, description.device_id = device_of(t)
    if t.meta.dtype is dtypes.bfloat16:
        description.code = _BFLOAT
    return made


# ------------------------------------------------------------------------------------------------------------------ inwards
class _Lent:
    """Memory of another library: given back through its deleter when the last tensor on it is gone."""

    __slots__ = ("address", "deleter", "_pid")

    def __init__(self, address: int, deleter: int | None) -> None:
        self.address, self.deleter, self._pid = address, deleter, os.getpid()

    def __del__(self, pid: Any = os.getpid, ending: Any = sys.is_finalizing, function: Any = _delete) -> None:
        # a forked child holds a copy of the memory and none of the owner's threads: only the parent gives it back; and at the
        # interpreter's end the owner's library may be gone, and soon the memory is
        if self.deleter and self._pid == pid() and not ending():
            function(self.deleter)(self.address)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array.

    Args:
        ext_tensor: an object with `__dlpack__` and `__dlpack_device__`, or a DLPack capsule (which can be used once).
        device: where the tensor should be; the array's device by default.
        copy: True for memory of its own, False to refuse when a copy would be needed, None to copy where it must.

    The memory is shared and kept alive.  Raises BufferError when the array cannot be shared (its type, its device, a forbidden
    copy), RuntimeError for a used capsule, TypeError for another object.
    """
    if isinstance(ext_tensor, Tensor):
        return _own(ext_tensor, device, copy)
    if not hasattr(ext_tensor, "__dlpack__"):
        made = _taken(ext_tensor)
    else:
        made = _taken(_asked(ext_tensor, device, copy))
    target = made.meta.device if device is None else resolve(device)
    if target is made.meta.device:
        return made.clone() if copy and not hasattr(ext_tensor, "__dlpack__") else made
    if copy is False:
        raise BufferError(f"from_dlpack: the array is on {made.meta.device}; device={target} needs a copy, which copy=False forbids")
    moved: Tensor = unasked(made.to)(target)
    return moved


def _own(t: Tensor, device: Any, copy: bool | None) -> Tensor:
    _check_no_grad(t)
    target = t.meta.device if device is None else resolve(device)
    if target is not t.meta.device:
        if copy is False:
            raise BufferError(f"from_dlpack: the tensor is on {t.meta.device}; device={target} needs a copy, which copy=False forbids")
        moved: Tensor = unasked(t.to)(target)
        return moved
    return t.clone() if copy else alias(t, t.meta, t.ptr)


def _asked(array: Any, device: Any, copy: bool | None) -> Any:
    """The capsule of an array: with the newer arguments where its library knows them."""
    where = array.__dlpack_device__()
    kind, index = int(where[0]), int(where[1])
    options: dict[str, Any] = {}
    if kind in (CUDA, CUDA_MANAGED):
        from .._core.runtime import gpus
        if gpus.system() is None:
            raise BufferError(f"from_dlpack: the array is on a GPU {(kind, index)}, and there is none here: {gpus.why_none()}")
        options["stream"] = gpus.device_and_stream(resolve(device_class("cuda", index)))[1].cuda_stream or 1
    newer: dict[str, Any] = {"max_version": VERSION}
    if copy is not None:
        newer["copy"] = copy
    if device is not None and resolve(device).type == "cpu" and _DEVICES.get(kind) != "cpu":
        newer["dl_device"] = (CPU, 0)  # the way to a GPU we go ourselves
    try:
        return array.__dlpack__(**options, **newer)
    except TypeError:
        if copy:
            return export(_taken(array.__dlpack__(**options)).clone(), max_version=VERSION)
        return array.__dlpack__(**options)


def _taken(capsule: Any) -> Tensor:
    """The tensor of a capsule, which is used up."""
    if type(capsule).__name__ != "PyCapsule":
        raise TypeError(f"from_dlpack: argument 'ext_tensor' must be an object with __dlpack__ or a DLPack capsule, not {type(capsule).__name__}")
    for name, kind in ((_VERSIONED, _ManagedVersioned), (_UNVERSIONED, _Managed)):
        if _is_valid(capsule, name) and _claimed(capsule, name):
            try:
                address = _pointer(capsule, _USED[name])
                whole: Any = kind.from_address(address)
                if name is _VERSIONED and whole.major > VERSION[0]:
                    raise BufferError(f"from_dlpack: the array comes as DLPack {whole.major}.{whole.minor}; up to {VERSION[0]} is understood")
                m, p = _read(whole.tensor)
            except BaseException:
                _rename(capsule, name)  # what cannot be used stays with the capsule
                raise
            lent = _Lent(address, whole.deleter)
            if name is _VERSIONED and whole.flags & READ_ONLY:
                warn("from_dlpack: the array is read-only, and tensors are not: writing to this tensor will result in undefined "
                     "behavior. Pass copy=True for memory of its own.")
            return wrap(p, m, lent)
    raise RuntimeError("from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might have "
                       "already constructed a tensor from it once.")


def _claimed(capsule: Any, name: bytes) -> bool:
    """Marks a capsule of this name as used.  False where it has been: another thread, or another library in one, was quicker.

    Both steps are made by one call of C code, between whose own calls no other thread gets the interpreter lock.
    """
    was_valid, _ = map(operator.call, (_is_valid, _rename), (capsule, capsule), (name, _USED[name]))
    return bool(was_valid)


def _read(d: Any) -> tuple[Any, int]:
    """Layout and address from a description.  Raises BufferError for what a tensor cannot be."""
    found = _TYPES.get((d.code, d.bits))
    if found is None or d.lanes != 1:
        raise BufferError(f"from_dlpack: Unsupported dtype in DLTensor (code {d.code}, {d.bits} bits, {d.lanes} lanes): accepted are bool, "
                          "integers of 8 to 64 bits, float16 to float64, bfloat16, complex64 and complex128")
    if d.ndim < 0 or (d.ndim and not d.shape):
        raise BufferError(f"from_dlpack: the array says it has {d.ndim} axes and gives no shape")
    shape = tuple(d.shape[i] for i in range(d.ndim))
    strides = tuple(d.strides[i] for i in range(d.ndim)) if d.strides else None
    if any(n < 0 for n in shape):
        raise BufferError(f"from_dlpack: the array has a negative size: {list(shape)}")
    if strides is not None:
        if any(s < 0 for s, n in zip(strides, shape, strict=True) if n > 1):
            raise BufferError(f"from_dlpack: the array has negative strides {list(strides)}, which tensors cannot have: copy it first")
        strides = tuple(s if n > 1 else max(s, 1) for s, n in zip(strides, shape, strict=True))
    p = (d.data or 0) + d.byte_offset
    m = meta(shape, strides, found, _device(d, p if 0 not in shape else 0))
    if not p and m.numel:
        raise BufferError("from_dlpack: the array's address is null")
    return m, p


def _device(d: Any, p: int) -> device_class:
    if d.device_type in (CPU, CUDA_HOST):
        return device_class("cpu")
    if d.device_type not in (CUDA, CUDA_MANAGED):
        raise BufferError(f"from_dlpack: the array is on DLPack device type {d.device_type}: accepted are CPU (1), CUDA (2) and pinned memory (3)")
    from .._core.runtime import gpus
    system = gpus.system()
    if system is None:
        raise BufferError(f"from_dlpack: the array is on GPU {d.device_id}, and there is none here: {gpus.why_none()}")
    g = gpus.gpu(device_class("cuda", d.device_id))
    if p and not system.driver.owns(g.physical, p):
        raise BufferError(f"from_dlpack: address {p:#x} is not in the memory of {g.device} ({'a simulated GPU' if system.driver.simulated else 'GPU'} "
                          "of this process): bring the array to the host first")
    return g.device


def to_dlpack(tensor: Tensor) -> Any:
    """The tensor's capsule, unversioned, as PyTorch's older function gives it."""
    make = _older.get(tensor.meta)
    return export(tensor) if make is None else make(tensor)

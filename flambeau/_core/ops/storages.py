"""Storages as objects: the bytes under tensors.

A storage object is a handle; two are equal when they mean the same memory.  What they do with the bytes goes through a
flat uint8 tensor over them, so that it works on every device.
"""

from __future__ import annotations

import copyreg
from typing import Any

from .. import dtypes
from ..dtypes import dtype as dtype_class
from ..layout import extent
from ..runtime import versions
from ..runtime.device import device as device_class
from ..runtime.device import resolve
from ..tensor import NO_FREE, Storage, Tensor, _new, empty, meta


def tensor_on(s: Storage, m: Any, p: int) -> Tensor:
    """A tensor of layout `m` that begins at address `p` of a storage, outside autograd."""
    t = _new(Tensor)
    t.meta, t.store, t.ptr, t.node, t.base = m, s, p, None, None
    return t  # type: ignore[no-any-return]


class UntypedStorage:
    """The bytes under a tensor.

    ``UntypedStorage(n)`` has n uninitialised bytes, ``UntypedStorage([1, 2])`` those values; `device` says where
    (the default device).  ``tensor.untyped_storage()`` shares a tensor's.  A slice shares memory too.
    """

    __slots__ = ("_storage", "_held", "__weakref__")
    _storage: Storage
    _held: Tensor | None  # where the numbers were given

    def __init__(self, source: Any = 0, *, device: Any = None) -> None:
        if isinstance(source, Tensor):
            source.ptr  # noqa: B018 (waits for bytes that are still on their way)
            self._storage = source.store
        elif hasattr(source, "__index__"):
            self._storage = empty((int(source),), dtypes.uint8, resolve(device)).store
        else:
            from .creation import tensor
            self._storage = tensor(list(source), dtype=dtypes.uint8, device=device).store

    @staticmethod
    def _of(s: Storage) -> UntypedStorage:
        made = UntypedStorage.__new__(UntypedStorage)
        made._storage = s
        return made

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int | None = None, size: int | None = None) -> UntypedStorage:
        """The first `nbytes` of a file, mapped: written back to it if `shared` is true, seen by nobody else if not.

        The file must not be made shorter while the storage is in use: using what is cut off ends the process.
        """
        from ..drivers.files import mapped
        from ..tensor import wrap
        count = nbytes if nbytes is not None else size
        array = mapped(filename, shared, count)
        m = meta((array.nbytes,), None, dtypes.uint8, device_class("cpu"))
        return cls._of(wrap(int(array.__array_interface__["data"][0]), m, array).store)

    @property
    def device(self) -> device_class:
        return self._storage.meta.device

    @property
    def is_cuda(self) -> bool:
        return self._storage.meta.device.type == "cuda"

    is_sparse = False

    def _bytes(self) -> Tensor:
        s = self._storage
        return tensor_on(s, meta((s.meta.nbytes,), None, dtypes.uint8, s.meta.device), s.ptr)

    def data_ptr(self) -> int:
        return self._storage.ptr if self._storage.meta.device.type != "meta" else 0

    @property
    def _cdata(self) -> int:
        """The same number for the same storage."""
        return id(root(self._storage))

    def nbytes(self) -> int:
        return self._storage.meta.nbytes

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    size = __len__ = nbytes

    def element_size(self) -> int:
        return 1

    def untyped(self) -> UntypedStorage:
        return self

    def get_device(self) -> int:
        return self.device.index or 0 if self.device.type == "cuda" else -1

    def _there(self) -> None:
        """Raises NotImplementedError where there are no bytes to look at."""
        if self._storage.meta.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")

    def __getitem__(self, at: Any) -> Any:
        self._there()
        if not isinstance(at, slice):
            return self._bytes()[at].item()
        start, stop, step = at.indices(self.nbytes())
        if step != 1:
            raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
        part, s = Storage(), self._storage
        part.version, part.meta, part.free, part.keep = versions.apart(s.version), meta((max(stop - start, 0),), None, dtypes.uint8, s.meta.device), NO_FREE, s
        part.ptr = s.ptr + start
        return UntypedStorage._of(part)

    def __setitem__(self, at: Any, value: Any) -> None:
        self._bytes()[at] = value

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        self._there()
        return self._bytes().tolist()  # type: ignore[no-any-return]

    def fill_(self, value: int) -> UntypedStorage:
        self._bytes().fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> UntypedStorage:
        if source.device.type == "meta":
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        self._bytes().copy_(source.untyped()._bytes(), non_blocking=non_blocking)
        return self

    def clone(self) -> UntypedStorage:
        return UntypedStorage._of(self._bytes().clone().store)

    def to(self, device: Any, non_blocking: bool = False) -> UntypedStorage:
        """On `device`: this storage itself if it is there, else a copy."""
        target = resolve(device)
        if self.device.type == "meta" and target is not self.device:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        return self if target is self.device else UntypedStorage._of(self._bytes().to(target, non_blocking=non_blocking).store)

    def cpu(self) -> UntypedStorage:
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        return self.to("cuda" if device is None else device_class("cuda", device) if type(device) is int else device, non_blocking)

    def resize_(self, size: int) -> UntypedStorage:
        """As many bytes, those that were there first.  Tensors on the storage keep their places; raises RuntimeError where one would lie beyond the end,
        as memory under it cannot move."""
        if self.device.type == "meta":
            raise RuntimeError("UntypedStorage.resize_: got unexpected device type meta")
        s = self._storage
        if size > s.meta.nbytes:
            bigger = empty((size,), dtypes.uint8, s.meta.device)
            bigger[:s.meta.nbytes].copy_(self._bytes())
            self._storage = bigger.store
        else:
            s.meta = meta((size,), None, dtypes.uint8, s.meta.device)
        return self

    def is_shared(self) -> bool:
        """Whether other processes can be given it: what a GPU holds counts as shared."""
        return self.is_cuda or bool(self._bytes().is_shared())

    def is_pinned(self, device: Any = None) -> bool:
        return self._bytes().is_pinned()

    def pin_memory(self, device: Any = None) -> UntypedStorage:
        return self if self.is_pinned() else UntypedStorage._of(self._bytes().pin_memory().store)

    def byteswap(self, dtype: dtype_class) -> None:
        """Turns the bytes of each element of this type around."""
        part = dtype.to_real().itemsize
        self._bytes().reshape(-1, part).copy_(self._bytes().reshape(-1, part).flip(1))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._bytes().__array__(dtype, copy) if copy is not None else self._bytes().__array__(dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and (other._storage is self._storage or (
            other.data_ptr() == self.data_ptr() and other.nbytes() == self.nbytes() != 0 and other.device is self.device))

    def __hash__(self) -> int:
        return hash((self._storage.ptr, self._storage.meta.nbytes))

    def __deepcopy__(self, memo: dict[int, Any]) -> UntypedStorage:
        return UntypedStorage._of(copied(self._storage, memo))

    def __reduce__(self) -> Any:
        return UntypedStorage._of, (self._storage,)

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {self.nbytes()} bytes on {self.device}"


StorageBase = UntypedStorage  # PyTorch's class in C++ behind it


def on_storage(storage: Any, d: dtype_class, offset: int = 0, shape: Any = None, strides: Any = None) -> Tensor:
    """A tensor over a storage; all of it, with one axis, when no shape is given.  Raises RuntimeError where it does not fit."""
    s = storage.untyped()._storage
    there = s.meta.nbytes // d.itemsize
    shape = (max(there - offset, 0),) if shape is None else tuple(shape)
    m = meta(shape, None if strides is None else tuple(strides), d, s.meta.device)
    low, high = extent(tuple(m.shape), m.strides)
    if offset < 0 or low < 0 or offset + high >= there or min(shape, default=0) < 0:
        raise RuntimeError(f"setStorage: sizes {list(shape)}, strides {list(m.strides)} and storage offset {offset} are out of bounds for a storage "
                           f"of {there} elements")
    return tensor_on(s, m, s.ptr + offset * d.itemsize)


def from_file(filename: str, shared: bool | None = None, size: int | None = 0, *, dtype: Any = None, layout: Any = None, device: Any = None,
              pin_memory: bool | None = False, requires_grad: bool = False) -> Tensor:
    """A CPU tensor over the first `size` elements of a file, mapped; `shared`: what is written goes back to it, which is made as long as that needs.
    Raises RuntimeError for another device than the CPU, another layout than strided, and page-locked memory: a mapping has none of these."""
    if (device is not None and device_class(device).type != "cpu") or pin_memory or (layout is not None and layout.name != "strided"):
        raise RuntimeError(f"from_file: a file is mapped as a strided tensor of the CPU; got device={device}, layout={layout}, pin_memory={pin_memory}")
    d = dtypes.settled(dtype)
    made = on_storage(UntypedStorage.from_file(filename, bool(shared), (size or 0) * d.itemsize), d)
    return made.requires_grad_(requires_grad)


# ------------------------------------------------------------------------------------------------------ copies and pickles
def root(s: Storage) -> Storage:
    """The storage that owns these very bytes: `data` has one of its own over its tensor's."""
    keep = getattr(s, "keep", None)
    while isinstance(keep, Storage) and keep.ptr == s.ptr and keep.meta.nbytes == s.meta.nbytes:
        s, keep = keep, getattr(keep, "keep", None)
    return s


def copied(s: Storage, memo: dict[int, Any]) -> Storage:
    """A copy of a storage, one for each storage and `memo` of a `copy.deepcopy`."""
    s = root(s)
    found = memo.get(id(s))
    if found is None:
        found = memo[id(s)] = UntypedStorage._of(s).clone()._storage
        memo.setdefault(id(memo), []).append(s)  # its id must not come again
    return found


def host_bytes(s: Storage, reason: str) -> Any:
    """A storage's bytes as a NumPy array: shared with it on the CPU, copied from a GPU, for which the host waits."""
    from .reading import host_array
    return host_array(UntypedStorage._of(s)._bytes(), reason)


def _reduce(s: Storage) -> Any:
    whole = root(s)
    return (root, (whole,)) if whole is not s else (_rebuild, (host_bytes(s, "pickle").tobytes(), str(s.meta.device)))


def _rebuild(raw: bytes, where: str) -> Storage:
    from .creation import from_bytes
    return from_bytes(raw, (len(raw),), dtypes.uint8, where).store


copyreg.pickle(Storage, _reduce)

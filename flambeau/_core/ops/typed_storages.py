"""Storages of one element type, as older programs know them: `TypedStorage`, and `FloatStorage` and its like, which make one.

They are deprecated in PyTorch, which says so once; what it calls itself, by names with an underscore in front, says nothing.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..dtypes import dtype as dtype_class
from ..errors import warn
from ..runtime.device import device as device_class
from ..tensor import Tensor, meta
from .storages import UntypedStorage, tensor_on

if TYPE_CHECKING:
    from collections.abc import Callable

_said = {"once": False, "always": False}


def warn_removal() -> None:
    """Says that typed storages are deprecated: once, or, if asked for, always."""
    if _said["always"] or not _said["once"]:
        _said["once"] = True
        warn("TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage class. This should only matter to "
             "you if you are using storages directly.  To access UntypedStorage directly, use tensor.untyped_storage() instead of tensor.storage()")


def set_always_warn(always: bool) -> None:
    """Whether each use of a typed storage warns."""
    if not isinstance(always, bool):
        raise TypeError(f"always_warn must be a bool, got {type(always).__name__}")
    _said["always"] = always


def always_warns() -> bool:
    """Whether each use of a typed storage warns."""
    return _said["always"]


def forget_warning() -> None:
    """Has the next use warn again."""
    _said["once"] = False


def _loud(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        warn_removal()
        return method(*args, **kwargs)
    return call


class TypedStorage:
    """A storage seen as elements of one type.

    ``TypedStorage(n, dtype=..., device=...)`` has n uninitialised elements, ``TypedStorage([1, 2], dtype=...)`` those values; `wrap_storage` is an
    UntypedStorage to see so.  Raises RuntimeError and TypeError for anything else.
    """

    __slots__ = ("_untyped_storage", "dtype", "__weakref__")
    _untyped_storage: UntypedStorage
    dtype: dtype_class
    is_sparse = False

    def __init__(self, *args: Any, wrap_storage: Any = None, dtype: Any = None, device: Any = None, _internal: bool = False) -> None:
        if not _internal:
            warn_removal()
        name = "TypedStorage.__init__"
        if wrap_storage is not None:
            if args:
                raise RuntimeError(f"{name} received an invalid combination of arguments. No positional arguments should be given when using 'wrap_storage'")
            if dtype is None:
                raise RuntimeError(f"{name} received an invalid combination of arguments. Argument 'dtype' must be specified")
            if not isinstance(dtype, dtype_class):
                raise TypeError(f"{name}: Argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
            if device is not None:
                raise RuntimeError(f"{name}: Argument 'device' should not be specified when 'wrap_storage' is given")
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(f"{name}: Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage).__name__}")
            self._untyped_storage = wrap_storage
            self.dtype = dtype
            return
        self.dtype = dtypes.settled(dtype)
        if device is not None and str(device).partition(":")[0] not in ("cpu", "cuda", "meta"):
            raise RuntimeError(f"Storage device not recognized: {device}")
        if len(args) > 1:
            raise RuntimeError(f"{name}: Too many positional arguments: expected at most a size or a sequence, got {len(args)}")
        if args and not hasattr(args[0], "__index__") or (args and isinstance(args[0], Tensor)):
            if isinstance(args[0], str):
                raise TypeError(f"{name}: invalid data type 'str'")
            if not hasattr(args[0], "__getitem__") or isinstance(args[0], Tensor):
                raise TypeError(f"{name}: Argument type not recognized: {type(args[0]).__name__}")
            from .creation import tensor
            self._untyped_storage = tensor(list(args[0]), dtype=self.dtype, device=device).untyped_storage()
        else:
            self._untyped_storage = UntypedStorage(int(args[0]) * self.dtype.itemsize if args else 0, device=device)

    @staticmethod
    def _of(untyped: UntypedStorage, d: dtype_class) -> TypedStorage:
        return TypedStorage(wrap_storage=untyped, dtype=d, _internal=True)

    @property
    def device(self) -> device_class:
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        warn_removal()
        return self._untyped_storage.is_cuda

    @property
    def filename(self) -> str | None:
        """The file that is mapped here; not remembered."""
        return None

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    def _elements(self) -> Tensor:
        s = self._untyped_storage._storage
        return tensor_on(s, meta((s.meta.nbytes // self.dtype.itemsize,), None, self.dtype, s.meta.device), s.ptr)

    def untyped(self) -> UntypedStorage:
        return self._untyped_storage

    def data_ptr(self) -> int:
        return self._untyped_storage.data_ptr()

    def nbytes(self) -> int:
        return self._untyped_storage.nbytes()

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def element_size(self) -> int:
        return self.dtype.itemsize

    def size(self) -> int:
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    def __len__(self) -> int:
        return self.size()

    def get_device(self) -> int:
        return self._untyped_storage.get_device()

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the storage's type, or the storage as another type's."""
        if dtype is None:
            return f"torch.{'cuda.' if self._untyped_storage.is_cuda else ''}{name_of(self.dtype)}"
        to = dtype if isinstance(dtype, dtype_class) else parse(dtype)
        return TypedStorage._of(self._elements().to(to).untyped_storage(), to)

    def pickle_storage_type(self) -> str:
        return name_of(self.dtype)

    def getitem(self, at: Any) -> Any:
        self._untyped_storage._there()
        found = self._elements()[at]
        return found.tolist() if isinstance(at, slice) else found.item()

    def setitem(self, at: Any, value: Any) -> None:
        if isinstance(value, TypedStorage):
            raise RuntimeError(f"cannot set item with value of type {type(value).__name__}")
        self._elements()[at] = value

    def __getitem__(self, at: Any) -> Any:
        warn_removal()
        return self.getitem(at)

    def __setitem__(self, at: Any, value: Any) -> None:
        warn_removal()
        self.setitem(at, value)

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        self._untyped_storage._there()
        return self._elements().tolist()  # type: ignore[no-any-return]

    def fill_(self, value: Any) -> TypedStorage:
        self.setitem(slice(0, None), value)
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> TypedStorage:
        if source.device.type == "meta":
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        self._elements().copy_(source._elements(), non_blocking=non_blocking)
        return self

    def resize_(self, size: int) -> TypedStorage:
        self._untyped_storage.resize_(size * self.dtype.itemsize)
        return self

    def is_shared(self) -> bool:
        return self._untyped_storage.is_shared()

    def share_memory_(self) -> TypedStorage:
        """Moves the bytes to memory that other processes can map."""
        if self._untyped_storage.device.type == "meta":
            raise RuntimeError("share_memory_: only available on CPU")
        if not self._untyped_storage.is_cuda:
            self._untyped_storage = self._elements().share_memory_().untyped_storage()
        return self

    def share_fd_cpu_(self, *args: Any) -> Any:
        if self.device.type != "cpu":
            raise RuntimeError("_share_fd_cpu_: only available on CPU")
        raise NotImplementedError("_share_fd_cpu_: storages are shared by share_memory_ and torch.multiprocessing")

    share_filename_cpu_ = share_fd_cpu_

    def write_file(self, f: Any, is_real_file: bool, save_size: bool, element_size: int) -> None:
        """The bytes, after their number of elements where `save_size`, into a file."""
        if self.device.type == "meta":
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        raw = np.asarray(self._untyped_storage).tobytes()
        f.write((len(raw) // element_size).to_bytes(8, "little") + raw if save_size else raw)

    def pin_memory(self, device: Any = None) -> TypedStorage:
        return TypedStorage._of(self._untyped_storage.pin_memory(), self.dtype)

    def is_pinned(self, device: Any = None) -> bool:
        return self._untyped_storage.is_pinned()

    def clone(self) -> TypedStorage:
        return TypedStorage._of(self._untyped_storage.clone(), self.dtype)

    def to(self, device: Any, non_blocking: bool = False) -> TypedStorage:
        return TypedStorage._of(self._untyped_storage.to(device, non_blocking), self.dtype)

    def cpu(self) -> TypedStorage:
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        return TypedStorage._of(self._untyped_storage.cuda(device, non_blocking), self.dtype)

    def deepcopy(self, memo: dict[int, Any]) -> TypedStorage:
        return TypedStorage._of(self._untyped_storage.__deepcopy__(memo), self.dtype)

    @classmethod
    def from_buffer(cls, *args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> TypedStorage:
        """A copy of a buffer's elements of `dtype`: ``from_buffer(buffer, byte_order="native", count=-1, offset=0)``."""
        return from_buffer(dtypes.settled(dtype), *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and other.dtype is self.dtype and other._untyped_storage == self._untyped_storage

    def __hash__(self) -> int:
        return hash((self._untyped_storage, self.dtype))

    def __deepcopy__(self, memo: dict[int, Any]) -> TypedStorage:
        return self.deepcopy(memo)

    def __reduce__(self) -> Any:
        return TypedStorage._of, (self._untyped_storage, self.dtype)

    def __repr__(self) -> str:
        return f"TypedStorage of {self._untyped_storage.nbytes() // self.dtype.itemsize} {self.dtype} on {self.device}"


def _cast(d: dtype_class) -> Callable[[TypedStorage], TypedStorage]:
    def cast(self: TypedStorage) -> TypedStorage:
        found: TypedStorage = self.type(d)
        return found
    cast.__doc__ = f"The elements as {d}."
    return cast


_KINDS = {"Float": dtypes.float32, "Double": dtypes.float64, "Half": dtypes.float16, "BFloat16": dtypes.bfloat16, "Long": dtypes.int64,
          "Int": dtypes.int32, "Short": dtypes.int16, "Char": dtypes.int8, "Byte": dtypes.uint8, "Bool": dtypes.bool_,
          "ComplexFloat": dtypes.complex64, "ComplexDouble": dtypes.complex128}
for _kind, _dtype in _KINDS.items():
    setattr(TypedStorage, {"ComplexFloat": "complex_float", "ComplexDouble": "complex_double"}.get(_kind, _kind.lower()), _cast(_dtype))
for _name in ("untyped data_ptr nbytes element_size size resize_ is_shared share_memory_ pickle_storage_type getitem setitem deepcopy fill_ get_device type "
              "tolist copy_ clone share_fd_cpu_ share_filename_cpu_ write_file").split():
    _plain = vars(TypedStorage)[_name]
    setattr(TypedStorage, "_" + _name, _plain)
    if _name in ("getitem", "setitem", "deepcopy", "pickle_storage_type", "share_fd_cpu_", "share_filename_cpu_", "write_file"):
        continue
    setattr(TypedStorage, _name, _loud(_plain))

dtype_to_name = {d: f"{name}Storage" for name, d in _KINDS.items()}


def name_of(d: dtype_class) -> str:
    """FloatStorage and its like; TypedStorage for a type that has none."""
    return dtype_to_name.get(d, "TypedStorage")


def from_buffer(d: dtype_class, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0) -> TypedStorage:
    """A copy of a Python buffer's elements.  Raises ValueError for a byte order that there is not, or a buffer too small."""
    orders = {"native": sys.byteorder, None: sys.byteorder, "big": "big", "little": "little"}
    if byte_order not in orders:
        raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
    if offset < 0 or count == 0 or count < -1:
        raise ValueError(f"from_buffer: count must be -1 or larger than 0 and offset not below 0, got {count} and {offset}")
    part = d.to_real()
    raw = np.frombuffer(buffer, np.uint8, offset=offset)
    n = len(raw) // d.itemsize if count < 0 else count
    if n * d.itemsize > len(raw) or (count < 0 and len(raw) % d.itemsize):
        raise ValueError(f"from_buffer: the buffer has {len(raw)} bytes from offset {offset} on, and {n} elements of {d} are {n * d.itemsize}")
    raw = raw[:n * d.itemsize]
    if d.kind == "b":
        raw = (raw != 0).view(np.uint8)
    elif orders[byte_order] != sys.byteorder and part.itemsize > 1:
        raw = raw.reshape(-1, part.itemsize)[:, ::-1]
    return TypedStorage._of(UntypedStorage(raw.reshape(-1).tolist()), d)


class _LegacyStorageMeta(type):
    """Instances of a legacy storage are typed storages of its type on its device."""

    kind: dtype_class | None
    where: str

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TypedStorage) and (cls.kind is None or (instance.dtype is cls.kind and instance.device.type == cls.where))

    @property
    def dtype(cls) -> Any:
        warn_removal()
        return cls.kind

    @property
    def _dtype(cls) -> Any:
        return cls.kind

    @property
    def is_cuda(cls) -> bool:
        return cls.where == "cuda"


class LegacyStorage(metaclass=_LegacyStorageMeta):
    """What FloatStorage and its like are classes of: called, they give a TypedStorage.

    Raises RuntimeError for `dtype` or `device`, which the class says, and for more than one positional argument.
    """

    kind: dtype_class | None = None
    where = "cpu"
    is_sparse = False

    def __new__(cls, *args: Any, wrap_storage: Any = None, _internal: bool = False, **kwargs: Any) -> Any:
        if not _internal:
            warn_removal()
        name = f"{cls.__name__}.__new__"
        if cls.kind is None:
            raise RuntimeError("Only child classes of _LegacyStorage can be instantiated")
        for word in kwargs:
            if word in ("device", "dtype"):
                raise RuntimeError(f"{name}: '{word}' cannot be specified: the class says it")
            raise TypeError(f"{name}() got an unexpected keyword argument '{word}'")
        if wrap_storage is None:
            if len(args) > 1:
                raise RuntimeError(f"{name}: Too many positional arguments: expected at most a size or a sequence, got {len(args)}")
            return TypedStorage(*args, dtype=cls.kind, device=cls.where, _internal=True)
        if args:
            raise RuntimeError(f"{name}: No positional arguments should be given when using 'wrap_storage'")
        if not isinstance(wrap_storage, UntypedStorage):
            raise TypeError(f"{name}: Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage).__name__}")
        if wrap_storage.device.type != cls.where:
            raise RuntimeError(f"{name}: Device of 'wrap_storage' must be {cls.where}, but got {wrap_storage.device.type}")
        return TypedStorage._of(wrap_storage, cls.kind)

    @classmethod
    def from_buffer(cls, *args: Any, **kwargs: Any) -> TypedStorage:
        """A copy of a buffer's elements: ``from_buffer(buffer, byte_order="native", count=-1, offset=0)``."""
        cls._on_cpu("from_buffer")
        return from_buffer(cls.kind or dtypes.get_default_dtype(), *args, **kwargs)

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """The first `size` elements of a file, mapped; `shared` writes go back to it."""
        cls._on_cpu("from_file")
        d = cls.kind or dtypes.get_default_dtype()
        return TypedStorage._of(UntypedStorage.from_file(filename, shared, size * d.itemsize), d)

    @classmethod
    def _new_with_weak_ptr(cls, *args: Any, **kwargs: Any) -> Any:
        cls._on_cpu("_new_with_weak_ptr")
        raise NotImplementedError("_new_with_weak_ptr: storages are shared by torch.multiprocessing")

    _new_shared_filename = _new_with_weak_ptr

    @classmethod
    def _on_cpu(cls, name: str) -> None:
        if cls.where == "cuda":
            raise RuntimeError(f"{name}: Not available for CUDA storage")


def _made(where: str) -> tuple[Any, ...]:
    module = "torch.cuda" if where == "cuda" else "torch"
    return tuple(_LegacyStorageMeta(f"{name}Storage", (LegacyStorage,), {
        "kind": kind, "where": where, "__doc__": f"Storages of elements of type {kind}.", "__module__": module}) for name, kind in _KINDS.items())


(FloatStorage, DoubleStorage, HalfStorage, BFloat16Storage, LongStorage, IntStorage, ShortStorage, CharStorage, ByteStorage, BoolStorage,
 ComplexFloatStorage, ComplexDoubleStorage) = CPU_CLASSES = _made("cpu")
CUDA_CLASSES = {kind.__name__: kind for kind in _made("cuda")}
CLASSES = {UntypedStorage, TypedStorage, *CPU_CLASSES, *CUDA_CLASSES.values()}


def class_of(d: dtype_class, kind: str = "cpu") -> Any:
    """The legacy class of a type's storages."""
    name = name_of(d)
    return CUDA_CLASSES[name] if kind == "cuda" else next((c for c in CPU_CLASSES if c.__name__ == name), TypedStorage)


def parse(name: Any) -> dtype_class:
    """The type that a storage class or its name stands for.  Raises ValueError for another name."""
    found = getattr(name, "kind", None) or _KINDS.get(str(name).rpartition(".")[2].removesuffix("Storage"))
    if found is None:
        raise ValueError(f"invalid storage type: {name!r}")
    return found

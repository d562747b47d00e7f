"""PyTorch's older tensor types: `FloatTensor`, `cuda.LongTensor`, ..., `.type()` and the default tensor type."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dtypes import dtype as dtype_class
from ..engine.fields import has
from ..layout import Size
from ..runtime import defaults, provenance
from ..runtime.device import device as device_class
from ..runtime.device import resolve
from ..tensor import Tensor, empty
from .casts import convert
from .creation import tensor
from .determinism import fill_unfilled
from .sizes import sizes_of
from .table import op

_NAMES = {"FloatTensor": dtypes.float32, "DoubleTensor": dtypes.float64, "HalfTensor": dtypes.float16,
          "BFloat16Tensor": dtypes.bfloat16, "ByteTensor": dtypes.uint8, "CharTensor": dtypes.int8, "ShortTensor": dtypes.int16,
          "IntTensor": dtypes.int32, "LongTensor": dtypes.int64, "BoolTensor": dtypes.bool_}
_BY_DTYPE = {d: n for n, d in _NAMES.items()} | {dtypes.complex64: "ComplexFloatTensor", dtypes.complex128: "ComplexDoubleTensor"}


class tensor_type(type):
    """The type of `FloatTensor` and its like: a constructor, and a class whose instances are tensors of one dtype and device."""

    dtype: dtype_class
    kind: str

    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> tensor_type:
        if bases:
            raise TypeError(f"type 'torch.{bases[0].__name__}' is not an acceptable base type: derive from torch.Tensor")
        return super().__new__(cls, name, bases, members)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.meta.dtype is cls.dtype and instance.meta.device.type == cls.kind

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        made = construct(args, cls.dtype, _of_kind(cls.kind, device), device is not None)
        provenance.note(made)
        return made

    def __repr__(cls) -> str:
        return f"<class 'torch.{'cuda.' if cls.kind == 'cuda' else ''}{cls.__name__}'>"


def _of_kind(kind: str, given: Any) -> device_class:
    """Where a legacy constructor makes its tensor.  Raises RuntimeError for a device of another kind than the type's."""
    if given is not None and (asked := device_class(given).type) != kind:
        raise RuntimeError(f"legacy constructor expects device type: {kind} but device type: {asked} was passed")
    return resolve(kind if given is None else given)


def construct(args: tuple[Any, ...], d: dtype_class, dev: device_class, placed: bool = False) -> Tensor:
    """A legacy constructor's result: uninitialised for sizes, a copy for data, empty for nothing.

    placed: whether a device was given. Raises TypeError for arguments that are none of these, RuntimeError for a tensor with a device.
    """
    if not args:
        return empty((0,), d, dev)
    if len(args) == 1:
        (data,) = args
        if isinstance(data, Tensor):
            if placed:
                raise RuntimeError("Legacy tensor constructor of a tensor with device= is not supported: use torch.as_tensor(data, device=...)")
            if data.meta.dtype is not d:
                raise TypeError(f"expected a tensor of type {d}, got {data.meta.dtype}: .to({d}) converts")
            return convert(data.detach(), dev, d)
        if not isinstance(data, int):
            from .storages import UntypedStorage, on_storage
            from .typed_storages import TypedStorage
            if isinstance(data, TypedStorage) and data.dtype is not d:
                raise RuntimeError(f"Expected a Storage of type {dtypes.title(d)} or an UntypedStorage, but got type {dtypes.title(data.dtype)}")
            if isinstance(data, TypedStorage | UntypedStorage):
                return on_storage(data, d)
            if isinstance(data, Size):
                return fill_unfilled(empty(data, d, dev))
            if isinstance(data, (float, complex, str)):
                raise TypeError(f"new(): data must be a sequence, sizes or a Tensor, not {type(data).__name__}")
            return tensor(data, dtype=d, device=dev)
    if not all(hasattr(a, "__index__") for a in args):
        raise TypeError(f"new() received an invalid combination of arguments - got ({', '.join(type(a).__name__ for a in args)}), but "
                        "expected sizes (ints), a sequence or a Tensor")
    return fill_unfilled(empty(tuple(int(a) for a in args), d, dev))


def _make(name: str, kind: str) -> Any:
    told = f"Tensors of type {_NAMES[name].name}{' on GPUs' if kind == 'cuda' else ''}: a constructor from sizes or data, and a class for isinstance."
    return tensor_type(name, (), {"dtype": _NAMES[name], "kind": kind, "__doc__": told, "__module__": "torch.cuda" if kind == "cuda" else "torch"})


CPU_TYPES = {name: _make(name, "cpu") for name in _NAMES}
CUDA_TYPES = {name: _make(name, "cuda") for name in _NAMES}
(FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor, ByteTensor, CharTensor, ShortTensor, IntTensor, LongTensor,
 BoolTensor) = CPU_TYPES.values()


def parse(name: Any) -> tuple[dtype_class, str]:
    """The dtype and device kind of a tensor type or its name.  Raises ValueError naming the accepted forms."""
    if isinstance(name, tensor_type):
        return name.dtype, name.kind
    if name is Tensor:
        return dtypes.get_default_dtype(), "cpu"
    parts = str(name).split(".")
    if parts[0] == "torch" and parts[-1] in _NAMES and (len(parts) == 2 or (len(parts) == 3 and parts[1] == "cuda")):
        return _NAMES[parts[-1]], "cuda" if len(parts) == 3 else "cpu"
    raise ValueError(f"invalid type: '{name}' (it takes a torch.dtype, 'torch.FloatTensor', 'torch.cuda.FloatTensor' and their like)")


@op(spaces=(), name="type", batch="same", tangent="linear", moves=True)
def type_(self: Tensor, dtype: str | Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """The tensor type's name, or, given a dtype, a tensor type or its name, the tensor converted to it."""
    if dtype is None:
        return f"torch.{'cuda.' if self.meta.device.type == 'cuda' else ''}{_BY_DTYPE.get(self.meta.dtype, self.meta.dtype.name)}"
    if isinstance(dtype, dtype_class):
        return convert(self, None, dtype, non_blocking)
    d, kind = parse(dtype)
    return convert(self, self.meta.device if self.meta.device.type == kind else resolve(kind), d, non_blocking)


@op(spaces=())
def new(self: Tensor, *args: Any, size: Any = None, device: Any = None) -> Tensor:
    """A legacy constructor with this tensor's type and device (or another device of that kind), of sizes, data or `size=`."""
    at = self.meta.device if device is None else _of_kind(self.meta.device.type, device)
    if self.is_sparse:  # indices, values and perhaps a size; or a size alone
        from .sparse import sparse_coo_tensor
        whole = args if args and isinstance(args[0], Tensor) else (sizes_of("new", args if size is None else (size,)) if args or size is not None else (0,),)
        return sparse_coo_tensor(*whole, dtype=self.meta.dtype, device=at)  # type: ignore[no-any-return]
    return construct(args if size is None else (*args, Size(sizes_of("new", (size,)))), self.meta.dtype, at, device is not None)


def set_default_tensor_type(t: Any) -> None:
    """Makes a floating tensor type (or its name) the default: its dtype, and its device for factories."""
    if isinstance(t, dtype_class):
        raise TypeError(f"invalid type object: set_default_tensor_type() takes a tensor type such as torch.DoubleTensor, set_default_dtype() takes {t}")
    d, kind = parse(t)
    if not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {t}")
    dtypes.set_default_dtype(d)
    defaults.set_default_device(kind if kind != "cpu" else None)


def _construct(cls: type, *args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Tensor:
    """`Tensor(...)`: the default tensor type's legacy constructor; a subclass gives its own kind."""
    from ..tensor import _new
    if len(args) == 1 and isinstance(args[0], Tensor):
        dtype = args[0].meta.dtype  # a tensor's own
    made = construct(args, dtype or dtypes.get_default_dtype(), _of_kind(defaults.get_default_device().type, device), device is not None) if not (
        len(args) == 1 and isinstance(args[0], Tensor) and cls is not Tensor) else args[0]
    provenance.note(made)
    if cls is Tensor:
        return made
    t: Any = _new(cls)
    t.meta, t.store, t.ptr, t.node, t.base = made.meta, made.store, made.ptr, made.node, made.base
    return t  # type: ignore[no-any-return]


Tensor.__new__ = _construct  # type: ignore[method-assign]

has("new", sparse="composite")

"""Factories: tensors from sizes, numbers and data, made on their device."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes, hooks, layout
from ..autograd import tape
from ..dtypes import dtype as dtype_class
from ..engine.data import Taken
from ..engine.fields import has
from ..engine.fronts import BUFFER, DATA, DEVICE, DTYPE, PLACE, SCALAR, SIZES
from ..engine.plans import Compose, Held, Plan
from ..errors import warn, warn_once
from ..kernels import host_values
from ..kernels.calls import NEW, ON_ARRAY, ON_BUFFER
from ..runtime import caches, capture, dispatch, gpus
from ..runtime import device as devices
from ..runtime.device import CPU, resolve
from ..runtime.device import device as device_class
from ..tensor import Meta, Tensor, alias, meta, new, wrap
from . import determinism, launch, outputs
from .casts import convert
from .copies import itself, strides_for
from .memory_format import contiguous_format
from .sizes import sizes_of
from .table import op, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def zeros_meta(m: Meta) -> Tensor:
    """Zeros of an exact layout."""
    out = new(m)
    if m.nbytes:
        launch.fill(out, 0)
    return out


def _options(d: Any, dev: Any, layout_: Any = None) -> tuple[dtype_class, device_class]:
    return dtypes.settled(d), resolve(dev)


def _shape(name: str, size: tuple[Any, ...]) -> tuple[int, ...]:
    shape = sizes_of(name, size)
    for s in shape:
        if s < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {s}: {list(shape)}")
    return shape


def counts(name: str, d: dtype_class, real: bool = False) -> dtype_class:
    """The type of a factory whose elements are counted. Raises NotImplementedError for truths, and for complex numbers where they are `real`."""
    if d.kind == "b" or (real and d.is_complex):
        raise NotImplementedError(f"\"{name}\" not implemented for '{dtypes.title(d)}'")
    return d


def _finish(t: Tensor, requires_grad: bool, pin: bool = False) -> Tensor:
    if pin:
        t = t.pin_memory()
    if requires_grad:
        if t.meta.dtype.kind not in "fc":
            raise RuntimeError(f"Only Tensors of floating point and complex dtype can require gradients, got {t.meta.dtype}")
        t.requires_grad_(True)
    return t


def _fresh(m: Meta, pin: bool) -> Tensor:
    if not pin:
        return new(m)
    from .pinning import pinned_empty
    return pinned_empty(m)


def _make(shape: tuple[int, ...], value: Any, d: dtype_class, dev: device_class, out: Tensor | None, requires_grad: bool,
          memory_format: Any = None, pin: bool = False) -> Tensor:
    if out is not None:
        t = outputs.to_fill("factory", out, shape, value is not None)
        t.store.version += 1
    else:
        t = _fresh(meta(shape, None if memory_format is None else strides_for(shape, layout.contiguous_strides(shape), memory_format),
                        d, dev), pin)
    if value is None:
        determinism.fill_unfilled(t)
    else:
        if t.meta.numel:
            launch.fill(t, value)
        else:
            dtypes.number(value, d)
    return _finish(t, requires_grad)


_SIZED = inspect.signature(lambda *size, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
                           memory_format=None: 0).replace(return_annotation="Tensor")


def _filled(m: Meta, value: Any, requires_grad: bool, pin: bool, alike: bool = False) -> Compose | Plan:
    """The plan of a fresh tensor of this meta, filled with a number (None: with nothing). alike: of the operand's shape, or of
    sizes that the call was given."""
    result = _requiring if requires_grad else None
    if value is None:
        value = determinism.unfilled(m.dtype)
    if pin:
        def pinned(*given: Any) -> Tensor:
            t = _fresh(m, True)
            if value is not None and m.numel:
                launch.fill(t, value)
            return _finish(t, requires_grad)
        return Compose(pinned)
    if value is None or not m.numel:
        if value is not None:
            dtypes.number(value, m.dtype)
        return Plan((m,), None, result=result, reads=False, dense=(None, None) if alike else None)
    return Plan((m,), launch.filling(m), fixed=launch.fill_numbers(value, m.dtype), result=result, reads=False,
                dense=(launch.filler(m.dtype), None) if alike else None)


def _requiring(outs: tuple[Tensor, ...]) -> Tensor:
    return _finish(outs[0], True)


def _factory(name: str, value: Any, **fields: Any) -> Any:
    def told(layout: Any, names: Any) -> None:
        if "size" in (names or ()):
            raise TypeError(f"{name}(): named tensors are not supported")
        if layout is not None and str(layout) != "torch.strided" and (value or str(layout) != "torch.sparse_coo"):
            raise NotImplementedError(f"{name}: layout {layout} is not implemented here, only torch.strided" + ("" if value else " and torch.sparse_coo"))

    def fill(out: Any, size: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
        told(options.get("layout"), options.get("names"))
        return _make(_shape(name, size), value, options.get("dtype") or out.meta.dtype, out.meta.device, out, bool(options.get("requires_grad")),
                     options.get("memory_format"))

    def make(*size: Any, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
             pin_memory: bool = False, memory_format: Any = None, names: Any = None) -> Any:
        told(layout, names)
        if layout is not None and str(layout) != "torch.strided":
            return Compose(lambda *given: _nothing_at(_shape(name, size), dtype, device, requires_grad))
        d, dev = _options(dtype, device)
        shape = _shape(name, size)
        strides = None if memory_format is None else strides_for(shape, _dense(shape), memory_format)
        return _filled(meta(shape, strides, d, dev), value, requires_grad, pin_memory, True)
    make.__signature__ = _SIZED  # type: ignore[attr-defined]
    make.__doc__ = (f"A tensor of a size (ints or one sequence), "
                    f"{'uninitialised' if value is None else f'filled with {value}'}, on `device`, of type `dtype`.")
    return _registered(name, make, {"size": SIZES, "dtype": DTYPE, "device": DEVICE}, out=fill, **fields)


def _nothing_at(shape: tuple[int, ...], d: Any, dev: Any, requires_grad: bool) -> Any:
    """A sparse tensor with nothing specified."""
    from .sparse import sparse_coo_tensor
    return sparse_coo_tensor(shape, dtype=dtypes.settled(d), device=resolve(dev), requires_grad=requires_grad)


def _registered(name: str, make: Any, kinds: dict[str, str], **fields: Any) -> Any:
    """Registers a factory; the function that operations call, which no interpreter sees."""
    function = planned(name, make, method=False, kinds=kinds, gives="Tensor", **fields)
    return function.__operation__.started().direct


_dense = layout.contiguous_strides
empty, zeros, ones = _factory("empty", None, unfilled=True), _factory("zeros", 0), _factory("ones", 1)


@op(method=False)
def full(size: Any, fill_value: Any, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
         requires_grad: bool = False, pin_memory: bool = False, names: Any = None) -> Tensor:
    """A tensor of `size` filled with a number; its type is the number's own by default."""
    if isinstance(fill_value, np.generic) or (isinstance(fill_value, Tensor) and fill_value.meta.numel == 1):
        fill_value = fill_value.item()
    if not isinstance(fill_value, (int, float, complex)):
        raise TypeError(f"full(): argument 'fill_value' (position 2) must be Number, not {type(fill_value).__name__}")
    d = dtype if dtype is not None else out.meta.dtype if out is not None else dtypes.of_scalar(fill_value)
    d, dev = _options(d, device)
    return _make(_shape("full", (size,)), fill_value, d, dev, out, requires_grad, pin=pin_memory)


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                   requires_grad: bool = False, pin_memory: bool = False) -> Any:
    """An uninitialised tensor of these sizes and strides."""
    d, dev = _options(dtype, device)
    return _filled(meta(_shape("empty_strided", (size,)), tuple(stride), d, dev), None, requires_grad, pin_memory)


empty_strided = _registered("empty_strided", _empty_strided, {"dtype": DTYPE, "device": DEVICE}, unfilled=True)


def _empty_permuted(size: Any, physical_layout: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                    requires_grad: bool = False, pin_memory: bool = False) -> Any:
    """An uninitialised dense tensor whose axes lie in memory in the order `physical_layout`, outermost first."""
    shape, strides, step = _shape("empty_permuted", (size,)), [0] * len(size), 1
    if len(physical_layout) != len(shape):
        raise RuntimeError(f"Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = {len(shape)} is "
                           f"not equal to len(physical_layout) = {len(physical_layout)}")
    for axis in physical_layout:
        if not 0 <= axis < len(shape):
            raise RuntimeError(f"Dimension out of range (expected to be between 0 and {len(shape) - 1}, but got {axis}).  NB: negative dims "
                               "not currently supported; file an issue if you want it.")
    if len(set(physical_layout)) != len(shape):
        raise RuntimeError(f"Duplicate dim not allowed: physical_layout is {list(physical_layout)}")
    for axis in reversed(physical_layout):
        strides[axis] = step
        step *= max(shape[axis], 1)
    d, dev = _options(dtype, device)
    return _filled(meta(shape, tuple(strides), d, dev), None, requires_grad, pin_memory)


_registered("empty_permuted", _empty_permuted, {"dtype": DTYPE, "device": DEVICE}, unfilled=True)


# ---------------------------------------------------------------------------------------------------------- like and new
def _like(name: str, value: Any, **fields: Any) -> Any:
    def make(input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,  # noqa: A002
             pin_memory: bool = False, memory_format: Any = None) -> Any:
        if dtype is not None and not isinstance(dtype, dtype_class):  # `float` means the default type, which can change
            return direct(input, dtype=dtypes.settled(dtype), device=device, requires_grad=requires_grad, pin_memory=pin_memory,
                          memory_format=memory_format)
        return _filled(_as(input.meta, dtype, device, memory_format), value, requires_grad, pin_memory, True)
    make.__doc__ = f"`{name.split('_')[0]}` with the shape, type, device and layout of `input` unless given."
    direct = _registered(name, make, {"device": PLACE}, **fields)

    def new_one(self: Tensor, *size: Any, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
                pin_memory: bool = False) -> Any:
        if dtype is not None and not isinstance(dtype, dtype_class):
            return new_direct(self, *size, dtype=dtypes.settled(dtype), device=device, requires_grad=requires_grad, pin_memory=pin_memory)
        m = meta(_shape(named, size), None, dtype or self.meta.dtype, self.meta.device if device is None else resolve(device))
        return _filled(m, value, requires_grad, pin_memory, True)
    named = "new_" + name.split("_")[0]
    new_one.__name__ = new_one.__qualname__ = named
    new_one.__doc__ = f"`{name.split('_')[0]}` of a size, with this tensor's type and device unless given."
    new_direct = planned(named, new_one, spaces=(), kinds={"size": SIZES, "device": PLACE}, gives="Tensor", **fields).__operation__.started().direct
    return direct


def _as(m: Meta, d: dtype_class | None, dev: Any, memory_format: Any) -> Meta:
    """The meta of a tensor like one of meta `m` but for what is given."""
    return meta(m.shape, strides_for(m.shape, m.strides, memory_format), d or m.dtype, m.device if dev is None else resolve(dev))


empty_like, zeros_like, ones_like = _like("empty_like", None, unfilled=True), _like("zeros_like", 0), _like("ones_like", 1)


def _full_like(input: Tensor, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,  # noqa: A002
               requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None) -> Any:
    """A tensor like `input`, filled with a number."""
    if fill_value is None:
        raise TypeError("full_like(): argument 'fill_value' must be Number, not NoneType")
    if isinstance(fill_value, Tensor) or (dtype is not None and not isinstance(dtype, dtype_class)):
        return full_like(input, fill_value.item() if isinstance(fill_value, Tensor) else fill_value, device=device, requires_grad=requires_grad,
                         dtype=None if dtype is None else dtypes.settled(dtype), pin_memory=pin_memory, memory_format=memory_format)
    m = _as(input.meta, dtype, device, memory_format)
    if pin_memory or not m.numel or m.dtype.kind == "c":
        def general(t: Tensor, number: Any) -> Tensor:
            made = _fresh(m, pin_memory)
            if m.numel:
                launch.fill(made, number)
            else:
                dtypes.number(number, m.dtype)
            return _finish(made, requires_grad)
        return Compose(general)
    return Plan((m,), launch.filling(m), numbers=(Held(m.dtype),), result=_requiring if requires_grad else None, reads=False,
                dense=(launch.filler(m.dtype), None))


full_like = _registered("full_like", _full_like, {"fill_value": SCALAR, "device": PLACE})


@op(spaces=(), batch="sizes")
def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A filled tensor with this one's type and device unless given."""
    return full(size, fill_value, dtype=dtype or self.meta.dtype, device=self.meta.device if device is None else device,
                requires_grad=requires_grad, pin_memory=pin_memory)


def _new_empty_strided(self: Tensor, size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                       requires_grad: bool = False, pin_memory: bool = False) -> Any:
    """An uninitialised strided tensor with this one's type and device unless given."""
    d = self.meta.dtype if dtype is None else dtype
    m = meta(_shape("new_empty_strided", (size,)), tuple(stride), d, self.meta.device if device is None else resolve(device))
    return _filled(m, None, requires_grad, pin_memory)


planned("new_empty_strided", _new_empty_strided, spaces=(), kinds={"device": PLACE}, gives="Tensor", unfilled=True)


def _new_tensor(self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """`tensor(data)` with this one's type and device unless given."""
    m = self.meta
    d, dev = dtype or m.dtype, m.device if device is None else device

    def general(_: Tensor, data: Any) -> Tensor:
        return _tensor_of(data, d, dev, requires_grad)
    return _of_numbers(data, general, d, dev, requires_grad, at=1)


planned("new_tensor", _new_tensor, spaces=(), kinds={"data": DATA, "device": PLACE}, gives="Tensor")


# ----------------------------------------------------------------------------------------------------------------- data
def from_host(array: Any, d: dtype_class, dev: device_class) -> Tensor:
    """A tensor on `dev` with the values of a C-contiguous NumPy array of d's storage type (copied)."""
    m = meta(array.shape, None, d, dev)
    out = new(m)
    if m.numel:
        if dev.type == "cpu":
            from ..kernels.interpret import memory
            memory(out.ptr, tuple(m.shape), m.strides, d)[...] = array
            if capture.active:
                capture.was_written(out.ptr, array.tobytes())
        else:
            # pageable memory has been read when this returns: the host need not wait for the GPU
            p = array.ctypes.data
            dispatch.copy(dev, out.ptr, CPU, p, array.nbytes, blocking=gpus.is_pinned(p), owners=(None, out.store))
    return out


def _to_storage(array: Any, d: dtype_class) -> Any:
    """Host values as the stored elements of type `d`."""
    from ..kernels.interpret import bits_of, convert
    if d in dtypes.BITS:
        return np.asarray(bits_of(np.asarray(array).astype(d.opmath.np), d), order="C")
    source = np.asarray(array)
    if source.dtype == d.np:
        return np.ascontiguousarray(source).reshape(source.shape)
    if source.dtype.kind in "OUSMmV":
        raise TypeError(f"can't convert np.ndarray of type {source.dtype}. The only supported types are: float64, float32, float16, "
                        "complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool.")
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(convert(source, dtypes.from_numpy(source.dtype), d)).reshape(source.shape)


def _leaves(data: Any, kinds: list[dtype_class], depth: int = 0) -> Any:
    """Nested sequences as lists, where a tensor is the number that it holds; the tensors' types, and those of NumPy's arrays and numbers, are
    added to `kinds`.  Raises ValueError for a tensor of several elements, or none, TypeError for lists without an end."""
    if isinstance(data, (np.ndarray, np.generic)):
        kinds.append(dtypes.from_numpy(data.dtype))
        return data
    if isinstance(data, Tensor):
        if data.meta.numel != 1:
            raise ValueError(f"only one element tensors can be converted to Python scalars, but one of {data.meta.numel} is among the data: "
                             "torch.stack joins tensors")
        kinds.append(data.meta.dtype)
        return data.item()
    if isinstance(data, (list, tuple)):
        if depth >= _MOST_AXES:
            raise TypeError(f"new(): self-referential lists are incompatible: a list is nested more than {_MOST_AXES} deep, or holds itself")
        return [_leaves(x, kinds, depth + 1) for x in data]
    return data


def _sequence(data: Any) -> Any:
    """An object that can be indexed, as a list.  Raises ValueError where its elements cannot be asked for, RuntimeError for a mapping."""
    if isinstance(data, Mapping):
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}: a tensor holds numbers; list(x.values()) has a mapping's")
    try:
        return [data[i] for i in range(len(data))]
    except Exception as error:
        raise ValueError(f"could not determine the shape of object type '{type(data).__name__}': its elements cannot be asked for") from error


def _numbers(data: Any) -> Iterator[Any]:
    """The numbers in nested lists, but for those of tensors."""
    for x in data:
        if isinstance(x, (list, tuple)):
            yield from _numbers(x)
        elif not isinstance(x, (Tensor, np.ndarray, np.generic)):
            yield x


def _array(data: Any) -> Any:
    try:
        return np.asarray(data)
    except ValueError as error:
        raise (_uneven(data) or ValueError(f"expected sequence of equal length at every dimension: {error}")) from None


def _uneven(data: Any, place: str = "data") -> Exception | None:
    """Where nested lists are no block: what is no list among lists, or the other way round (TypeError), or has another length than the first beside it
    (ValueError); None where all are equal."""
    dim, level = 0, [(place, data)]
    while True:
        inner = [(f"{name}[{i}]", x) for name, those in level for i, x in enumerate(those)]
        lists = [isinstance(x, (list, tuple)) or isinstance(x, np.ndarray) and x.ndim > 0 for _, x in inner]
        dim += 1
        if not any(lists):
            return None
        if not all(lists):
            name, odd = inner[lists.index(not lists[0])]
            kind = type(odd).__name__
            if lists[0]:
                return TypeError(f"not a sequence: {name} is {'a number' if isinstance(odd, (int, float, complex)) else kind}, and {inner[0][0]} is not")
            return TypeError(f"'{kind}' object cannot be interpreted as a number: {name} is a {kind}, and {inner[0][0]} is not")
        length = len(inner[0][1])
        for name, x in inner:
            if len(x) != length:
                return ValueError(f"expected sequence of length {length} at dim {dim} (got {len(x)}: {name})")
        level = inner


def _infer(data: Any) -> Any:
    """Nested Python data as an array and the type PyTorch gives it."""
    kinds: list[dtype_class] = []
    if not isinstance(data, (list, tuple, str, bytes)) and hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "__array__"):
        data = _sequence(data)
    plain = _leaves(data, kinds) if isinstance(data, (list, tuple)) else data
    if kinds:
        array = _array(plain)
        d = kinds[0]
        for k in [*kinds[1:], *map(dtypes.of_scalar, _numbers(data))]:
            d = dtypes.promote_types(d, k)
        return array, d
    array = _array(plain)
    if array.dtype.kind == "O":
        flat = [type(x).__name__ for x in array.reshape(-1)[:1]] or ["object"]
        if isinstance(data, np.ndarray):
            dtypes.from_numpy(array.dtype)  # which says that it has no counterpart
        held = {type(x) for x in array.reshape(-1)}
        if held <= {int, float, bool}:  # integers beyond 64 bits, for floating types only
            return array.astype(np.float64), dtypes.get_default_dtype() if float in held else None
        if flat[0] in ("list", "tuple"):
            raise ValueError("expected sequence of equal length at every dimension")
        odd = next(x for x in array.reshape(-1) if type(x) not in (int, float, bool, complex))
        raise RuntimeError(f"Could not infer dtype of {type(odd).__name__}")
    if array.dtype.kind in "US":
        first = data
        while isinstance(first, (list, tuple)):
            first = first[0]
        if isinstance(data, (list, tuple)) and isinstance(first, str):  # PyTorch takes a text for a sequence
            raise ValueError("too many dimensions 'str': a tensor holds numbers, not texts")
        raise TypeError(f"new(): invalid data type '{type(array.reshape(-1)[0].item()).__name__}'")
    python = not isinstance(data, (np.ndarray, np.generic))
    if array.size == 0 and python:
        return array, dtypes.get_default_dtype()
    d = dtypes.from_numpy(array.dtype)
    if python and d is dtypes.uint64:
        return array, None
    if python:
        d = {"b": dtypes.bool_, "f": dtypes.get_default_dtype(), "c": dtypes.default_complex()}.get(d.kind, dtypes.int64)
    return array, d


_NUMBERS: frozenset[type] = frozenset((float, int, bool))
_MOST_AXES = 64  # of nested lists that are written by machine code; one that holds itself has no end


def _layout_of(data: Any, d: Any, device: Any) -> Meta | None:
    """The layout of a tensor of Python's numbers, or of nested lists and tuples of numbers, on the CPU; None for what is not so plain, and for another device.
    d: its type, None for that of the first number."""
    if (devices._thread.default if device is None else resolve(device)).type != "cpu":
        return None
    shape, x = [], data
    while x.__class__ is list or x.__class__ is tuple:
        shape.append(len(x))
        if not x or len(shape) > _MOST_AXES:
            return None
        x = x[0]
    kind = x.__class__
    if kind not in _NUMBERS:
        return None
    if d is None:
        d = dtypes._default.dtype if kind is float else dtypes.int64 if kind is int else dtypes.bool_
    return meta(tuple(shape), None, d, CPU) if d.__class__ is dtype_class else None


def _of_numbers(data: Any, general: Callable[..., Tensor], d: Any, device: Any, requires_grad: bool, at: int = 0) -> Compose | Taken:
    """The plan of a call that makes a tensor of data, which `general` does.  d, device: see `_layout_of`; at: see `Taken`."""
    m = _layout_of(data, d, device)
    return Compose(general) if m is None else Taken(m, general, at, NEW, result=_requiring if requires_grad else None)


def _of_plain(data: Any, d: Any, device: Any) -> Tensor | None:
    """Numbers as a tensor on the CPU; None where they are of no `_layout_of`, or uneven, or of several classes."""
    m = _layout_of(data, d, device)
    write = None if m is None else host_values.writer(tuple(m.shape), m.strides, m.dtype)
    if m is None or write is None:
        return None
    out = new(m)
    if not write(out.ptr, data):
        return None
    if capture.active:
        capture.was_written(out.ptr, ctypes.string_at(out.ptr, m.nbytes))
    return out


def _of_storage(data: Any, dtype: Any, device: Any) -> Tensor:
    """A copy of a storage's elements; untyped bytes are elements of `dtype`.  Raises RuntimeError where a typed storage has others."""
    d = dtypes.settled(dtype if dtype is not None else getattr(data, "dtype", None))
    if getattr(data, "dtype", d) is not d:
        raise RuntimeError(f"Expected a Storage of type {d} or an UntypedStorage, but got type {data.dtype} for argument 1 'storage'")
    raw = data.untyped()._bytes().clone()
    made = alias(raw, meta((raw.meta.numel // d.itemsize,), None, d, raw.meta.device), raw.ptr)
    return made if device is None else made.to(device)


def _tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Any:
    """A new tensor with a copy of `data`: a number, nested sequences, a NumPy array, or a tensor (with a warning)."""
    def general(data: Any) -> Tensor:
        return _tensor_of(data, dtype, device, requires_grad, pin_memory)
    if isinstance(data, np.ndarray) and not pin_memory:
        return _copying(data, dtype, device, general, requires_grad)
    return Compose(general) if pin_memory else _of_numbers(data, general, dtype, device, requires_grad)


def _tensor_of(data: Any, dtype: Any, device: Any, requires_grad: bool, pin_memory: bool = False) -> Tensor:
    """`tensor`, in Python."""
    quick = None if pin_memory else _of_plain(data, dtype, device)
    if quick is not None:
        return _finish(quick, requires_grad) if requires_grad else quick
    if isinstance(data, Tensor):
        warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
             "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).")
        copied = data.detach().to(device=data.meta.device if device is None else device, dtype=dtype or data.meta.dtype,
                                  copy=True)
        return _finish(copied, requires_grad, pin_memory)
    if hasattr(data, "untyped"):
        return _finish(_of_storage(data, dtype, device), requires_grad, pin_memory)
    if hasattr(data, "__array__") and not isinstance(data, (np.ndarray, np.generic)):
        data = np.asarray(data)
    array, inferred = _infer(data)
    if dtype is None and inferred is None:
        raise ValueError("Overflow when unpacking long long: an integer in the data is beyond 64 bits; give dtype=torch.float64")
    d, dev = _options(dtype if dtype is not None else inferred, device)
    if inferred is not None and inferred.is_complex and not d.is_complex and d.kind != "b" and not isinstance(data, (np.ndarray, np.generic)):
        raise TypeError(f"tensor(): complex numbers do not fit into {d}: must be real number, not complex")
    if d is dtypes.uint64 and array.dtype == np.float64 and isinstance(data, (list, tuple)):
        exact = np.asarray(_leaves(data, []), object)  # NumPy's common type of a number beyond int64 and a small one is float64
        if {type(x) for x in exact.reshape(-1)} <= {int, bool}:
            array = exact.astype(np.uint64)
    if d.kind in "ui" and array.dtype.kind in "iuf" and array.dtype != d.np and array.size and not isinstance(data, (np.ndarray, np.generic)):
        for v in (array.min(), array.max()):  # NaN where there is one
            try:
                dtypes.number(v.item(), d)
            except RuntimeError:
                raise RuntimeError(f"value cannot be converted to type {d.name} without overflow: {v} is outside of what {d} holds") from None
    if dev.type != "cpu" and array.ndim == 0 and type(data) in (int, float, bool) and not pin_memory:
        # a number rides along with the launch: no copy, and the host does not wait
        return full((), data, dtype=d, device=dev, requires_grad=requires_grad)
    return _finish(from_host(_to_storage(array, d), d, dev), requires_grad, pin_memory)


@op(method=False)
def scalar_tensor(s: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False,
                  requires_grad: bool = False) -> Tensor:
    """A zero-dim tensor of the default type holding one number."""
    return full((), s, dtype=dtype or dtypes.get_default_dtype(), device=device, requires_grad=requires_grad, pin_memory=pin_memory)


tensor: Callable[..., Tensor] = _registered("tensor", _tensor, {"data": DATA, "device": DEVICE})


def _address(array: Any) -> int:
    """Where a NumPy array's elements begin."""
    found: int = array.__array_interface__["data"][0]
    return found


def _shared_layout(ndarray: Any) -> Meta:
    d = dtypes.from_numpy(ndarray.dtype)
    if not ndarray.dtype.isnative:
        raise ValueError("given numpy array has byte order different from the native byte order. Conversion between byte orders is "
                         "currently not supported.")
    if any(s < 0 for s in ndarray.strides):
        raise ValueError("At least one stride in the given numpy array is negative, and tensors with negative strides are not "
                         "currently supported. (You can probably work around this by making a copy of your array  with "
                         "array.copy().) ")
    if any(s % d.itemsize for s in ndarray.strides):
        raise ValueError("given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate the "
                         "memory.")
    return meta(ndarray.shape, tuple(s // d.itemsize for s in ndarray.strides), d, CPU)


def _copying(array: Any, dtype: Any, device: Any, general: Callable[..., Tensor], requires_grad: bool) -> Compose:
    """The plan of a copy of an array: on the CPU by a kernel, where its numbers do not become real ones."""
    try:
        m = _shared_layout(array)
    except (TypeError, ValueError):
        return Compose(general)
    d = m.dtype if dtype is None else dtypes.settled(dtype)
    if caches.observed() or (m.dtype.is_complex and not d.is_complex) or (devices._thread.default if device is None else resolve(device)).type != "cpu":
        return Compose(general)  # who looks on is told which bytes Python writes
    shared = _on_array(array, _shared).bind("x")

    def copied(array: Any) -> Tensor:
        made = convert(shared(array), None, d, False, True, contiguous_format)
        return _finish(made, True) if requires_grad else made
    return Compose(copied)


def _from_numpy(ndarray: Any) -> Any:
    """A CPU tensor that shares the memory of a NumPy array.  Raises TypeError for other objects and types, ValueError for
    negative strides."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    m = _shared_layout(ndarray)
    if not ndarray.flags.writeable:
        warn("The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means writing "
             "to this tensor will result in undefined behavior.")
        return wrap(_address(ndarray), m, ndarray)
    return _on_array(ndarray, _shared)


def _shared(ndarray: Any) -> Tensor:
    """A tensor on an array's memory, in Python."""
    return wrap(_address(ndarray), _shared_layout(ndarray), ndarray)


def _on_array(ndarray: Any, general: Callable[..., Tensor], requires_grad: bool = False) -> Taken:
    """The plan of a tensor on an array's memory."""
    # no other type has the identity of the array's, which is in the key, while it is kept
    return Taken(_shared_layout(ndarray), general, 0, ON_ARRAY, result=_requiring if requires_grad else None, keep=ndarray.dtype)


from_numpy: Callable[..., Tensor] = _registered("from_numpy", _from_numpy, {"ndarray": DATA})


def _as_tensor(data: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
    """`data` as a tensor, sharing memory where type and device allow: a tensor as it is, a NumPy array through `from_numpy`."""
    def general(data: Any) -> Tensor:
        return _tensor_from(data, dtype, device)
    if isinstance(data, np.ndarray):
        return _on_array(data, general) if _shares(data, dtype, device) else Compose(general)
    if isinstance(data, Tensor) and dtype in (None, data.meta.dtype) and device is None:
        return Compose(itself)
    return _of_numbers(data, general, dtype, device, False)


def _shares(array: Any, dtype: Any, device: Any) -> bool:
    """Whether a tensor of this type on this device can be on an array's memory."""
    try:
        m = _shared_layout(array)
    except (TypeError, ValueError):
        return False
    return bool(array.flags.writeable) and dtype in (None, m.dtype) and resolve(device) is CPU


def _tensor_from(data: Any, dtype: Any, device: Any) -> Tensor:
    """`as_tensor`, in Python."""
    if isinstance(data, Tensor):
        moved: Tensor = data.to(device=data.meta.device if device is None else device, dtype=dtype or data.meta.dtype)
        return moved
    if isinstance(data, np.ndarray) and data.dtype.isnative and data.flags.writeable and all(s >= 0 for s in data.strides):
        found: Tensor = from_numpy(data)
        to = resolve(device)
        if to is not found.meta.device or dtype not in (None, found.meta.dtype):
            found = found.to(device=to, dtype=dtype or found.meta.dtype)
        return found
    return _tensor_of(data, dtype, device, False)


as_tensor: Callable[..., Tensor] = _registered("as_tensor", _as_tensor, {"data": DATA, "device": DEVICE})


def _asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False) -> Any:
    """`obj` as a tensor: shared where that is possible, always copied with copy=True.  Raises ValueError (RuntimeError for NumPy's
    numbers) when copy=False and a copy is needed."""
    def general(obj: Any) -> Tensor:
        return _array_from(obj, dtype, device, copy, requires_grad)
    if isinstance(obj, np.ndarray):
        return _on_array(obj, general, requires_grad) if not copy and _shares(obj, dtype, device) else Compose(general)
    return Compose(general) if copy is False else _of_numbers(obj, general, dtype, device, requires_grad)


def _array_from(obj: Any, dtype: Any, device: Any, copy: bool | None, requires_grad: bool) -> Tensor:
    """`asarray`, in Python."""
    obj = _lent(obj, dtype)
    if copy:
        made = tensor(obj.detach() if isinstance(obj, Tensor) else obj, dtype=dtype, device=device) if not isinstance(obj, Tensor) else (
            obj.detach().to(device=obj.meta.device if device is None else device, dtype=dtype or obj.meta.dtype, copy=True))
        return _finish(made, requires_grad)
    made = as_tensor(obj, dtype, device)
    if copy is False:
        shares = made is obj if isinstance(obj, Tensor) else isinstance(obj, np.ndarray) and made.store.ptr == _address(obj)
        if not shares:
            raise (RuntimeError if isinstance(obj, np.generic) else ValueError)(_no_alias(obj, made))
    return _finish(made, requires_grad) if requires_grad else made


asarray: Callable[..., Tensor] = _registered("asarray", _asarray, {"obj": DATA, "device": DEVICE})


def _lent(obj: Any, dtype: Any) -> Any:
    """A DLPack capsule or an object of Python's buffer protocol as a tensor on its memory; anything else as it is."""
    if type(obj).__name__ == "PyCapsule":
        return hooks.from_dlpack(obj)
    if isinstance(obj, (bytes, bytearray, memoryview)) or (type(obj).__module__, type(obj).__name__) == ("array", "array"):
        return frombuffer(obj, dtype=dtypes.get_default_dtype() if dtype is None else dtype)
    return obj


def _no_alias(obj: Any, made: Tensor) -> str:
    """Why a tensor could not be made on an object's own memory."""
    if isinstance(obj, np.generic):
        return "can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray."
    if not isinstance(obj, (Tensor, np.ndarray)):
        return "can't alias arbitrary sequence into a tensor."
    if isinstance(obj, Tensor) and obj.meta.device is not made.meta.device:
        return f"can't alias tensor from device '{obj.meta.device}' to '{made.meta.device}'."
    return f"can't alias tensor with dtype '{obj.dtype}' into dtype '{made.meta.dtype}'."


@op(method=False, learns=False)  # it asks whether its tensor requires grad, whatever is recorded
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array, or of a DLPack capsule; see `interop.dlpack`."""
    made: Tensor = hooks.from_dlpack(ext_tensor, device=device, copy=copy)
    return made


def _frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Any:
    """A one-axis CPU tensor over the memory of a Python buffer.  Raises ValueError when it does not fit."""
    def general(buffer: Any) -> Tensor:
        made = _on_buffer(buffer, dtype, count, offset)
        return made.requires_grad_() if requires_grad else made
    view, length = _span(buffer, dtype, count, offset)
    if view.readonly:
        return general(buffer)
    return Taken(meta((length,), None, dtype, CPU), general, 0, ON_BUFFER, offset, _requiring if requires_grad else None)


def _span(buffer: Any, dtype: Any, count: int, offset: int) -> tuple[memoryview, int]:
    """A buffer's memory, and how many elements of it are asked for.  Raises ValueError where they do not fit, TypeError for numbers that are no ints."""
    for name, number in (("count", count), ("offset", offset)):
        if not hasattr(number, "__index__"):
            raise TypeError(f"frombuffer(): argument '{name}' must be int, not {type(number).__name__}")
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ValueError("frombuffer(): object does not implement Python buffer protocol.") from None
    nbytes, step = view.nbytes, dtype.itemsize
    if nbytes == 0 or count == 0:
        raise ValueError(f"both buffer length ({nbytes}) and count ({count}) must not be 0")
    if offset < 0 or offset >= nbytes:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({nbytes} bytes) minus 1")
    if count < 0:
        count, left = divmod(nbytes - offset, step)
        if left:
            raise ValueError(f"buffer length ({nbytes - offset} bytes) after offset ({offset} bytes) must be a multiple of element size ({step})")
    if offset + count * step > nbytes:
        raise ValueError(f"requested buffer length ({count} * {step} bytes) after offset ({offset} bytes) must not be greater "
                         f"than actual buffer length ({nbytes} bytes)")
    return view, count


def _on_buffer(buffer: Any, dtype: Any, count: int, offset: int) -> Tensor:
    """`frombuffer`, in Python."""
    view, count = _span(buffer, dtype, count, offset)
    if view.readonly:
        warn_once("The given buffer is not writable, and PyTorch does not support non-writable tensors. This means you can write to the underlying "
                  "(supposedly non-writable) buffer using the tensor. You may want to copy the buffer to protect its data or make it writable.")
    array = np.frombuffer(buffer, dtype.np, count, offset)
    return wrap(_address(array), meta((count,), None, dtype, CPU), array)


frombuffer: Callable[..., Tensor] = _registered("frombuffer", _frombuffer, {"buffer": BUFFER})


def from_bytes(raw: bytes, shape: Sequence[int], d: dtype_class, dev: Any) -> Tensor:
    """A tensor from the raw bytes of its elements in row-major order.  Raises ValueError when their number is wrong."""
    shape = tuple(shape)
    if len(raw) != layout.numel(shape) * d.itemsize:
        raise ValueError(f"{len(raw)} bytes do not fill a {d} tensor of shape {list(shape)}")
    return from_host(np.frombuffer(raw, d.np).reshape(shape), d, resolve(dev))


# ---------------------------------------------------------------------------------------------------------- filling in place
@op(inplace=False, name="fill_", batch="pointwise")
def fill_(self: Tensor, value: Any) -> Tensor:
    """Every element becomes `value`, a number or a zero-dim tensor.  A number may go into elements that share memory."""
    from ..autograd import inplace
    from ..autograd.mode import _grad
    if isinstance(value, Tensor):
        if value.meta.shape:
            raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {len(value.meta.shape)} dimensions.")
        return self.copy_(value.clone() if value.store is self.store else value)
    recorded = _grad.get() and inplace.check(self, (self,))
    if self.meta.numel:
        launch.fill(self, value)
    else:
        dtypes.number(value, self.meta.dtype)
    self.store.version += 1
    if recorded:
        inplace.rebase(self, tape.node(lambda node, g: (zeros_like(g),), (self.node,), None, "FillBackward0"))
    return self


@op(name="zero_", batch="pointwise")
def zero_(self: Tensor) -> Tensor:
    """Every element becomes 0."""
    return fill_(self, 0)


@op(batch="pointwise")
def fill(input: Tensor, value: Any) -> Tensor:  # noqa: A002
    """A copy of `input` with every element `value`."""
    out: Tensor = input.clone() if tape.recording(input) else empty_like(input)
    return fill_(out, value)




hooks.provide(empty=empty, full=full, tensor=tensor, zeros_like=zeros_like, zeros_meta=zeros_meta)

has("empty_like full_like ones_like zeros_like", batch="same")
has("new_zeros new_ones new_empty", batch="sizes")
has("as_tensor asarray new_empty new_empty_strided new_full new_ones new_tensor new_zeros tensor", sparse="composite")

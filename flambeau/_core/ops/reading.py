"""Values read by the host: NumPy arrays, Python's numbers and lists."""

from __future__ import annotations

from ctypes import string_at
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import dtypes, layout
from ..autograd.mode import _grad
from ..engine.fields import has
from ..engine.operation import Operation
from ..engine.plans import Compose
from ..kernels import host_values
from ..kernels.interpret import load, memory
from ..runtime import capture, dispatch
from ..runtime.device import device as device_class
from ..tensor import Tensor, meta, new

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tensor import Meta

NO_INDEX = "only integer tensors of a single element can be converted to an index"


def host_array(t: Tensor, reason: str = "numpy") -> Any:
    """The elements as a NumPy array in host memory: shared for a CPU tensor, copied from a GPU, for which the host waits
    because of `reason`.  bfloat16 and complex32 as their bits."""
    if t.meta.device.type != "cpu":
        if t.meta.device.type == "meta":
            raise (RuntimeError("Tensor.item() cannot be called on meta tensors") if reason == "item" else
                   NotImplementedError(f"{reason}: a meta tensor has no values, only a shape and a type"))
        from .transfer import to_device
        dispatch.note_wait(t.meta.device, reason)
        token = _grad.set(False)
        try:
            t = to_device(t, device_class("cpu"))
        finally:
            _grad.reset(token)
    elif capture.active:
        low, high = layout.extent(t.meta.shape, t.meta.strides)
        capture.were_read(t.ptr + low * t.meta.dtype.itemsize, (high + 1 - low) * t.meta.dtype.itemsize)
    array = memory(t.ptr, tuple(t.meta.shape), t.meta.strides, t.meta.dtype, t.store)
    return array


def values(t: Tensor, reason: str = "numpy") -> Any:
    """The elements as NumPy values (bfloat16 as float32, complex32 as complex64); `reason` as for `host_array`."""
    return load(host_array(t, reason), t.meta.dtype)


# ---------------------------------------------------------------------------------------------------------- numbers and lists
def _elements(m: Meta, shape: tuple[int, ...], reason: str, convert: Callable[[Any], Any] | None = None) -> Callable[[Tensor], Any]:
    """What gives the elements of a tensor of this layout as nested lists of this shape, or as a number.  convert: what becomes of them."""
    if m.device.type == "meta":
        return lambda t: values(t, reason)
    if m.device.type != "cpu":
        from .transfer import carrier
        host = meta(m.shape, layout.dense_like(tuple(m.shape), m.strides), m.dtype, device_class("cpu"))
        fetch, get, dev = carrier(host, m, False), host_values.reader(shape, host.strides if shape else (), m.dtype), m.device
        one, nbytes = m.numel == 1, m.dtype.itemsize

        def bring(here: Tensor, t: Tensor) -> None:
            dispatch.note_wait(dev, reason)
            fetch(here, t)

        def element(here: Tensor, t: Tensor) -> bytes:
            bring(here, t)
            return string_at(here.ptr, nbytes)

        def waited(t: Tensor) -> Any:
            here = new(host)
            if one and capture.active:
                capture.fetched(dev, t.ptr, partial(element, here, t))
            else:
                bring(here, t)
            found = get(here.ptr)
            return found if convert is None else convert(found)
        return waited
    read = host_values.reader(shape, m.strides if shape else (), m.dtype)
    low, high = layout.extent(m.shape, m.strides)
    start, nbytes = low * m.dtype.itemsize, (high + 1 - low) * m.dtype.itemsize

    def elements(t: Tensor) -> Any:
        if capture.active:
            capture.were_read(t.ptr + start, nbytes)
        return read(t.ptr)

    def converted(t: Tensor) -> Any:
        if capture.active:
            capture.were_read(t.ptr + start, nbytes)
        return convert(read(t.ptr))  # type: ignore[misc]
    otherwise = elements if convert is None else converted
    if convert is not None and not isinstance(convert, type):
        return otherwise
    return host_values.element_reader(shape, m.strides if shape else (), m.dtype, Tensor, convert, capture.active, otherwise)


def _number(m: Meta, reason: str, convert: Callable[[Any], Any] | None = None) -> Callable[[Tensor], Any]:
    """What gives the one element of a tensor of this layout.  convert: what becomes of it.  Raises RuntimeError for any other number of elements."""
    if m.numel != 1:
        raise RuntimeError(f"a Tensor with {m.numel} elements cannot be converted to Scalar")
    return _elements(m, (), reason, convert)


def _item(self: Tensor) -> Compose:
    """The one element as a Python number; waits for the device.  Raises RuntimeError for any other number of elements."""
    return Compose(_number(self.meta, "item"))


def _tolist(self: Tensor) -> Compose:
    """The elements as nested lists of Python numbers (a number for a zero-dim tensor)."""
    return Compose(_elements(self.meta, tuple(self.meta.shape), "tolist"))


def _bool(self: Tensor) -> Compose:
    if self.meta.numel == 0:
        raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
    if self.meta.numel != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    return Compose(_number(self.meta, "bool", None if self.meta.dtype is dtypes.bool_ else bool))


def _scalar(kind: type) -> Callable[[Tensor], Compose]:
    def plan(self: Tensor) -> Compose:
        m = self.meta
        if m.numel != 1:
            raise ValueError(f"only one element tensors can be converted to Python scalars; this one has shape {list(m.shape)}")
        if m.dtype.is_complex and kind is not complex:
            return Compose(_number(m, "item", lambda v: kind(_real(v, kind))))
        exact = {"f": float, "u": int, "i": int, "c": complex}.get(m.dtype.kind)
        return Compose(_number(m, "item", None if exact is kind else kind))
    return plan


def _real(value: complex, kind: type) -> float:
    if value.imag != 0:
        raise RuntimeError(f"value cannot be converted to type {kind.__name__} without overflow")
    return value.real


def _index(self: Tensor) -> Compose:
    if self.meta.numel != 1 or self.meta.dtype.kind not in "bui":
        raise TypeError(NO_INDEX)
    return Compose(_number(self.meta, "item", None if self.meta.dtype.kind != "b" else int))


def _operation(name: str, plan: Callable[[Tensor], Compose], seen: str, gives: str) -> Any:
    """The method; seen: what onlookers call it; gives: what help says that it gives."""
    plan.__annotations__ = {**plan.__annotations__, "return": gives}
    return Operation(seen, plan, planned=True, shown=name, learns=False).function


methods: dict[str, Any] = {name: _operation(name, plan, seen, gives) for name, plan, seen, gives in (
    ("item", _item, "item", "Any"), ("tolist", _tolist, "tolist", "Any"), ("__bool__", _bool, "bool", "bool"), ("is_nonzero", _bool, "bool", "bool"),
    ("__float__", _scalar(float), "float", "float"), ("__int__", _scalar(int), "int", "int"), ("__complex__", _scalar(complex), "complex", "complex"),
    ("__index__", _index, "index", "int"))}
item, tolist = methods["item"], methods["tolist"]


# -------------------------------------------------------------------------------------------------------------------- NumPy
def _numpy(self: Tensor, *, force: bool = False) -> Compose:
    """The elements as a NumPy array that shares the memory of a CPU tensor.

    Raises TypeError for a GPU tensor, bfloat16 or complex32, RuntimeError for one that requires grad, unless nothing is
    recorded (``no_grad``); `force` detaches and copies.
    """
    m = self.meta
    if force:
        def forced(t: Tensor) -> Any:
            dispatch.note_wait(m.device, "numpy")
            return numpy(t.detach().cpu())
        return Compose(forced)
    if m.device.type != "cpu":
        raise TypeError(f"can't convert {m.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")
    view, lacking, grad_on = host_values.viewer(tuple(m.shape), m.strides, m.dtype), m.dtype in dtypes.BITS, _grad.get

    def shared(t: Tensor) -> Any:
        if t.node is not None and grad_on():
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        if lacking:
            raise TypeError(f"Got unsupported ScalarType {dtypes.title(m.dtype)}")
        if capture.active:
            capture.unrepeatable("what NumPy does with memory is not seen")
        return view(t.ptr, t.store)
    return Compose(shared)


numpy = methods["numpy"] = _operation("numpy", _numpy, "numpy", "Any")


def apply_(self: Tensor, callable: Any) -> Tensor:  # noqa: A002 (PyTorch's name)
    """Every element replaced by ``callable(element)``, one by one in Python.  Raises TypeError for a GPU tensor."""
    return _by_python("apply_", self, callable)


def map_(self: Tensor, tensor: Tensor, callable: Any) -> Tensor:  # noqa: A002
    """Every element replaced by ``callable(element, element of tensor)``, one by one in Python."""
    return _by_python("map_", self, callable, other=tensor)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Any) -> Tensor:  # noqa: A002
    """Every element replaced by ``callable(element, element of x, element of y)``, one by one in Python."""
    return _by_python("map2_", self, callable, x=x, y=y)


def _by_python(name: str, t: Tensor, f: Any, **others: Tensor) -> Tensor:
    """Raises TypeError for tensors that are not on the CPU, for others of another type than t's and for what `f` gives that is no number,
    RuntimeError for tensors that require grad or have another shape."""
    if t.meta.device.type != "cpu":
        raise TypeError(f"{name} is only implemented on CPU tensors")
    for param, x in others.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): argument '{param}' must be Tensor, not {type(x).__name__}")
    if any(x.node is not None for x in (t, *others.values())):
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    for param, x in others.items():
        if x.meta.dtype is not t.meta.dtype or x.meta.device is not t.meta.device:
            raise TypeError(f"{name}: expected a {t.meta.dtype} tensor on {t.meta.device} for argument '{param}', as self is, "
                            f"got {x.meta.dtype} on {x.meta.device}")
    from .creation import tensor
    columns = [x.detach().reshape(-1).tolist() for x in (t, *[x.expand(tuple(t.meta.shape)) for x in others.values()])]
    values = [f(*row) for row in zip(*columns, strict=True)]
    for v in values:
        if not hasattr(v, "__float__") and not isinstance(v, complex):
            raise TypeError(f"{name}(): what 'callable' gives must be real number, not {type(v).__name__}")
    made: Tensor = tensor(values, dtype=t.meta.dtype).reshape(tuple(t.meta.shape))
    t.copy_(made)
    return t

has("__bool__ __complex__ __float__ __index__ __int__ apply_ is_nonzero item map2_ map_ numpy tolist", batch="reads")
has("__bool__ __complex__ __float__ __index__ __int__ item numpy tolist", tangent="none")

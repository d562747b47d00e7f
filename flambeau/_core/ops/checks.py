"""Checks every operation shares: one device, no overlap between what is written and what is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes, hooks, layout
from ..autograd import tape
from ..autograd.mode import _grad
from ..kernels.specs import Check
from ..runtime import dispatch
from ..tensor import Tensor
from .device_errors import mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def to_one_device(name: str, operands: tuple[Any, ...], outs: Sequence[Tensor] = ()) -> tuple[Any, ...]:
    """The operands on one device: zero-dim CPU tensors follow the others; anything else mixed is an error.

    Raises RuntimeError; see `device_errors`.
    """
    tensors = [x for x in operands if isinstance(x, Tensor)]
    devices = {x.meta.device for x in (*tensors, *outs)}
    if len(devices) <= 1:
        return operands
    anchors = {x.meta.device for x in (*(t for t in tensors if t.meta.shape or t.meta.device.type != "cpu"), *outs)}
    if len(anchors) == 1:
        from .transfer import to_device
        (to,) = anchors
        return tuple(to_device(x, to) if isinstance(x, Tensor) and x.meta.device is not to else x for x in operands)
    raise mismatch(name, [*outs, *tensors], outs, operands)


def same_device(name: str, *tensors: Any) -> None:
    """Raises the mismatch error unless all tensors are on one device (no exception for zero-dim ones); what is no tensor does
    not matter."""
    present = [t for t in tensors if isinstance(t, Tensor)]
    if any(t.meta.device is not present[0].meta.device for t in present):
        raise mismatch(name, present)


def values_hold(t: Tensor, holds: Callable[[Tensor], Tensor], error: Exception) -> None:
    """Raises `error` unless `holds` gives nothing but True for t.  As PyTorch does, only where the host has the values at hand: on a GPU it would
    have to wait for them."""
    if t.meta.numel and dispatch.near(t.meta.device) and not bool(holds(t).all()):
        raise error


def within(t: Tensor, low: int, high: int, text: str, name: str) -> None:
    """Raises RuntimeError where an int64 of t is outside [low, high), with it in the place of "{}" in `text`; on a GPU when the host next waits, as
    PyTorch's assertions there, with `name` for the check's."""
    from . import routines
    m = t.meta
    if m.numel and m.device.type != "meta":
        routines.require(m.device, Check(tuple(m.shape), m.strides, low, high, None, text, RuntimeError, name), (t.ptr,))


def same_types(name: str, x: Tensor, **parameters: Tensor | None) -> None:
    """Raises RuntimeError for parameters of a normalisation that have another type than its input: those of a 16-bit input may all be float32."""
    given = {label: t.meta.dtype for label, t in parameters.items() if t is not None}
    wanted = x.meta.dtype
    if wanted.itemsize == 2 and wanted.kind == "f" and dtypes.float32 in given.values():
        wanted = dtypes.float32
    for label, d in given.items():
        if d is not wanted:
            raise RuntimeError(f"{name}(): mixed dtype: expect {label} to have scalar type of {dtypes.title(wanted)}, got {dtypes.title(d)}")


def without_gradient(name: str, **operands: Any) -> None:
    """Raises RuntimeError for an operand that requires grad, by which PyTorch does not differentiate, unless nothing is recorded."""
    for argument, t in operands.items():
        if isinstance(t, Tensor) and t.node is not None and _grad.get():
            raise RuntimeError(f"The function '{name}' is not differentiable with respect to argument '{argument}'. This input cannot have requires_grad "
                               f"True: pass {argument}.detach()")


def scalar_tensor(value: Any, like: Tensor) -> Tensor:
    """A Python number as a zero-dim tensor beside `like`, of the type it would be promoted as."""
    d = like.meta.dtype
    kind = dtypes.of_scalar(value)
    d = d if "buifc".index(kind.kind) <= "buifc".index(d.kind) else (d.to_complex() if kind.is_complex and d.kind == "f" else kind)
    made: Tensor = hooks.full((), value, dtype=d, device=like.meta.device)
    return made


def may_write(t: Tensor, *, one: bool = False) -> None:
    """Raises RuntimeError when elements of `t` share memory, as those of an expanded tensor do.  one: they all get the same value, so that it matters to
    none; PyTorch refuses expanded tensors even so."""
    m = t.meta
    if not m.contiguous and layout.overlaps_itself(m.shape, m.strides) and not (one and all(s or n < 2 for n, s in zip(m.shape, m.strides, strict=True))):
        raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a single memory "
                           "location. Please clone() the tensor before performing the operation.")


def overlap(out: Tensor, x: Tensor) -> bool:
    """Whether `x` shares some memory with `out` without being the very same elements."""
    if x.store.ptr != out.store.ptr or _same_elements(out, x):
        return False
    a, b = out.meta, x.meta
    return layout.common_bytes((a.shape, a.strides, a.dtype.itemsize), (b.shape, b.strides, b.dtype.itemsize), x.ptr - out.ptr)


def _dense(t: Tensor) -> bool:
    """Whether a tensor's elements fill a stretch of memory, each in a place of its own."""
    return t.meta.contiguous or layout.is_dense(t.meta.shape, t.meta.strides)


def partly_shared(out: Tensor, x: Tensor) -> bool:
    """Whether dense tensors share some of their memory, or all of it by other strides: what PyTorch refuses to copy or to compute on.  It compares
    strides as they are, also those of axes of size 1 and of another number of axes."""
    a, b = out.meta, x.meta
    if x is out or x.store.ptr != out.store.ptr or not (a.numel and b.numel and _dense(out) and _dense(x)):
        return False
    size_a, size_b = a.numel * a.dtype.itemsize, b.numel * b.dtype.itemsize
    if out.ptr == x.ptr and size_a == size_b:
        return tuple(a.strides) != tuple(b.strides)
    return out.ptr < x.ptr + size_b and x.ptr < out.ptr + size_a


def no_partial_overlap(out: Tensor, *read: Any) -> None:
    """Raises RuntimeError where `out` shares memory with what is read, but for the very same elements."""
    for x in read:
        if isinstance(x, Tensor) and partly_shared(out, x):
            raise _shared()


def no_overlap(out: Tensor, *read: Any) -> None:
    """Raises RuntimeError where `out` shares memory with what is read."""
    for x in read:
        if isinstance(x, Tensor) and x.store.ptr == out.store.ptr and (
                x is out or partly_shared(out, x) or (out.meta.numel and _same_elements(out, x) and _dense(out))):
            raise _shared()


def same_view(out: Tensor, x: Tensor) -> bool:
    """Whether both show the same elements in the same way, so that a copy has nothing to do, even where elements share memory."""
    return x is out or x.meta is out.meta and x.ptr == out.ptr and x.store.ptr == out.store.ptr


def _same_elements(out: Tensor, x: Tensor) -> bool:
    """Whether each element of `x`, broadcast to `out`'s shape, lies where that of `out` does; axes of size 1 do not matter."""
    if x.ptr != out.ptr:
        return False
    a, b = out.meta, x.meta
    if a.strides == b.strides and a.shape == b.shape:
        return True
    return [p for p in zip(a.shape, a.strides, strict=True) if p[0] != 1] == [p for p in zip(b.shape, b.strides, strict=True) if p[0] != 1]


def _shared() -> RuntimeError:
    return RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
                        "Please clone() the tensor before performing the operation.")


def of_kinds(name: str, t: Tensor, kinds: str) -> None:
    """Raises NotImplementedError for a tensor whose type is of none of these kinds (letters of `dtype.kind`)."""
    if t.meta.dtype.kind not in kinds:
        raise NotImplementedError(f"\"{name}\" not implemented for '{dtypes.title(t.meta.dtype)}'")


def one_type(name: str, *tensors: Any) -> None:
    """Raises RuntimeError unless all tensors have one type; what is no tensor does not matter."""
    types = [t.meta.dtype for t in tensors if isinstance(t, Tensor)]
    for d in types[1:]:
        if d is not types[0]:
            raise RuntimeError(f"{name}(): expected scalar type {dtypes.title(types[0])} but found {dtypes.title(d)}")


def apart_from(out: Tensor, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands, which may share all or none of `out`'s memory.  Raises RuntimeError where they share some."""
    for x in operands:
        if isinstance(x, Tensor) and x.store.ptr == out.store.ptr and (partly_shared(out, x) or overlap(out, x)):
            raise _shared()
    return operands


def may_record(name: str, result: dtypes.dtype, *inputs: Tensor, real: bool = False) -> None:
    """Raises RuntimeError where a call would be recorded whose result carries no gradient: integers, and complex numbers where there is only a
    derivative for real ones."""
    if result.kind in "bui" and any(t.meta.dtype.kind in "fc" for t in inputs) and tape.recording(*inputs):
        raise RuntimeError(f"Autograd not support dtype: {dtypes.title(result)}, the result of {name}()")
    if real and result.is_complex and tape.recording(*inputs):
        raise RuntimeError(f"{name} does not support automatic differentiation for outputs with complex dtype.")


def factor_fits(common: dtypes.dtype, factor: Any, label: str = "alpha") -> None:
    """Raises RuntimeError where a number is of a kind that a result of this type cannot take as its factor."""
    if isinstance(factor, bool) and common.kind != "b":
        raise RuntimeError(f"Boolean {label} only supported for Boolean results.")
    if common.kind in "bui" and isinstance(factor, float):
        raise RuntimeError(f"For integral input tensors, argument {label} must not be a floating point number.")
    if common.kind != "c" and isinstance(factor, complex):
        raise RuntimeError(f"For non-complex input tensors, argument {label} must not be a complex number.")

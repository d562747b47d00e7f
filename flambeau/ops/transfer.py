"""Moving tensors between devices, recorded on the tape: the gradient travels back the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import layout
from ..autograd import tape
from ..runtime import door
from ..tensor import Tensor, empty, meta, new

if TYPE_CHECKING:
    from ..runtime.device import device


def to_device(t: Tensor, dev: device, non_blocking: bool = False, strides: tuple[int, ...] | None = None) -> Tensor:
    """A copy of `t` on `dev` (a concrete device), with the same dense layout or `strides`.  Differentiable."""
    m = t.m
    if strides is None:
        strides = layout.dense_like(tuple(m.shape), m.strides)
    source = t
    if m.strides != strides and not layout.is_contiguous(m.shape, m.strides):
        source = _packed(t, strides)
    elif m.strides != strides and layout.contiguous_strides(m.shape) != strides:
        source = _packed(t, strides)
    out = new(meta(m.shape, strides, m.dtype, dev))
    if m.numel:
        door.copy(dev, out.p, m.device, source.p, m.numel * m.dtype.itemsize, not non_blocking, keep=source.s)
    return tape.record(out, _back, (t,), m.device, "ToCopyBackward0")


def _packed(t: Tensor, strides: tuple[int, ...]) -> Tensor:
    from . import launch
    from .copies import cast_program
    out = new(meta(t.m.shape, strides, t.m.dtype, t.m.device))
    launch.run(cast_program(t.m.dtype, t.m.dtype), tuple(t.m.shape), [out], [t], name="pack")
    return out


def _back(node: Any, g: Tensor) -> Any:
    return (to_device(g, node[tape.SAVED]),)


def copy_across(out: Tensor, source: Tensor) -> None:
    """out = source, from another device; outside the tape.  A change of type is made on the narrower side."""
    from . import launch
    from .copies import cast_program
    if source.m.dtype is not out.m.dtype and out.m.dtype.itemsize <= source.m.dtype.itemsize:
        cast = empty(source.m.shape, out.m.dtype, source.m.device)
        launch.run(cast_program(source.m.dtype, out.m.dtype), tuple(source.m.shape), [cast], [source], name="cast")
        source = cast
    if (source.m.dtype is out.m.dtype and source.m.shape == out.m.shape and source.m.contiguous and out.m.contiguous):
        if source.m.numel:
            door.copy(out.m.device, out.p, source.m.device, source.p, out.m.numel * out.m.dtype.itemsize, True, keep=source.s)
        return
    from ..autograd.mode import _grad
    token = _grad.set(False)
    try:
        here = to_device(source, out.m.device)
    finally:
        _grad.reset(token)
    shape = tuple(out.m.shape)
    strides = [out.m.strides, layout.expand_strides(here.m.shape, here.m.strides, shape)]
    launch.run(cast_program(here.m.dtype, out.m.dtype), shape, [out], [here], strides, name="copy")

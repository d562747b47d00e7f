"""Pinned host memory (`pin_memory`), and `record_stream`, which keeps a tensor's memory until a stream has used it."""

from __future__ import annotations

from typing import Any

from .. import hooks, layout
from ..autograd import tape
from ..engine.fields import has
from ..runtime import capture, gpus, staging
from ..runtime.versions import first
from ..tensor import Storage, Tensor, _new, meta
from .table import op


@op(spaces=(), learns=False, tangent="none")
def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether `self` lies in page-locked host memory, which copies to and from GPUs read and write asynchronously."""
    return gpus._system is not None and self.meta.device.type == "cpu" and gpus.is_pinned(self.store.ptr)


@op(spaces=(), learns=False, tangent="none")
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy of `self` in page-locked host memory; `self` when it lies there already.  Differentiable.

    Raises RuntimeError for a tensor that is not on the CPU, and where there is no GPU to pin memory for.
    """
    m = self.meta
    if m.device.type != "cpu":
        raise RuntimeError(f"cannot pin '{m.device}' memory: pin_memory is for dense CPU tensors")
    if is_pinned(self):
        return self
    out = pinned_empty(meta(m.shape, layout.dense_like(tuple(m.shape), m.strides), m.dtype, m.device))
    if m.strides == out.meta.strides:
        staging.move(out.ptr, self.ptr, m.numel * m.dtype.itemsize)
    else:
        from . import launch
        from .copies import cast_program
        launch.run(cast_program(m.dtype, m.dtype), tuple(m.shape), [out], [self], name="pin")
    return tape.record(out, _back, (self,), None, "PinMemoryBackward0")


def _back(node: Any, g: Tensor) -> Any:
    return (g,)


def pinned_empty(m: Any) -> Tensor:
    """An uninitialised CPU tensor of this layout in page-locked memory.  Raises RuntimeError for another device, and where
    there is no GPU."""
    if m.device.type != "cpu":
        raise RuntimeError(f"cannot pin '{m.device}' memory: only dense CPU tensors can be pinned")
    address, free = gpus.pinned_block(m.nbytes)
    s = Storage()
    s.ptr, s.version, s.meta, s.free = address, first(), m, free
    t: Tensor = _new(Tensor)
    t.meta, t.store, t.ptr, t.node, t.base = m, s, s.ptr, None, None
    return t


@op(spaces=(), tangent="none")
def record_stream(self: Tensor, stream: Any) -> None:
    """Tells the allocator that work of `stream` uses this tensor: its memory, once given back, waits for that work.

    Raises RuntimeError for a tensor that is not on a GPU.
    """
    if self.meta.device.type != "cuda":
        raise RuntimeError(f"record_stream is for tensors on a GPU; this one is on {self.meta.device}")
    capture.unrepeatable("the allocator is told of another stream")
    gpus.gpu(self.meta.device).pool.record_stream(self.store.ptr, stream._handle)


hooks.provide(pinned_empty=pinned_empty)

has("is_pinned", sparse="composite")

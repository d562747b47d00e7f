"""Tensors carried between the GPUs of one process (torch.cuda.comm): the steps of data parallelism without the tape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core.autograd.mode import no_grad
from .._core.runtime.asking import unasked
from .._core.runtime.device import device as _device

if TYPE_CHECKING:
    from collections.abc import Sequence


def _gpu(where: Any) -> _device:
    return _device("cuda", where) if isinstance(where, int) else _device(where)


def _given(name: str, devices: Any, out: Any) -> None:
    if (devices is None) == (out is None):
        raise RuntimeError(f"{name}: exactly one of 'devices' and 'out' must be given, got devices={devices} and out={'given' if out is not None else None}")


@no_grad()
def broadcast(tensor: Any, devices: Sequence[Any] | None = None, *, out: Sequence[Any] | None = None) -> tuple[Any, ...]:
    """A tensor on each of `devices`, first the one it is on; or written to each tensor of `out`, which is given back.  Raises RuntimeError unless
    exactly one of the two is given."""
    _given("broadcast", devices, out)
    if out is not None:
        return tuple(unasked(o.copy_)(tensor) for o in out)
    return tuple(unasked(tensor.to)(_gpu(d)) for d in devices or ())


@no_grad()
def broadcast_coalesced(tensors: Sequence[Any], devices: Sequence[Any], buffer_size: int = 10485760) -> list[tuple[Any, ...]]:
    """All of several tensors on each device.  buffer_size: accepted; copies of one stream follow each other without a wait as they are."""
    return [tuple(unasked(t.to)(_gpu(d)) for t in tensors) for d in devices]


@no_grad()
def reduce_add(inputs: Sequence[Any], destination: Any = None) -> Any:
    """The sum of tensors of one shape on several GPUs, on `destination` (that of the first).  Raises RuntimeError for other shapes, or for none."""
    if not inputs:
        raise RuntimeError("reduce_add: inputs is empty, one tensor at least is needed")
    for i, x in enumerate(inputs):
        if not x.is_cuda:
            raise AssertionError(f"reduce_add expects all inputs to be on GPUs, input {i} is on {x.device}")
        if x.shape != inputs[0].shape:
            raise ValueError(f"input {i} has invalid size: got {tuple(x.shape)}, but expected {tuple(inputs[0].shape)}")
    where = inputs[0].device if destination is None else _gpu(destination)
    total = unasked(inputs[0].to)(where, copy=True)
    for x in inputs[1:]:
        total += unasked(x.to)(where)
    return total


def reduce_add_coalesced(inputs: Sequence[Sequence[Any]], destination: Any = None, buffer_size: int = 10485760) -> tuple[Any, ...]:
    """`reduce_add` of the first tensors of all devices, of the second ones, and so on."""
    return tuple(reduce_add(column, destination) for column in zip(*inputs, strict=True))


@no_grad()
def scatter(tensor: Any, devices: Sequence[Any] | None = None, chunk_sizes: Sequence[int] | None = None, dim: int = 0, streams: Any = None, *,
            out: Sequence[Any] | None = None) -> tuple[Any, ...]:
    """A tensor cut along `dim`, a piece for each device.  chunk_sizes: their sizes, which add up to the tensor's; else equal ones as `chunk` cuts."""
    _given("scatter", devices, out)
    if out is not None:
        if chunk_sizes is not None:
            raise RuntimeError("scatter: 'chunk_sizes' is told by 'out', and must not be given with it")
        return tuple(unasked(o.copy_)(part) for o, part in zip(out, tensor.split([o.shape[dim] for o in out], dim), strict=True))
    places = [_gpu(d) for d in devices or ()]
    parts = tensor.chunk(len(places), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(unasked(part.to)(where) for part, where in zip(parts, places))


@no_grad()
def gather(tensors: Sequence[Any], dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
    """Tensors of several GPUs one after the other along `dim`, on `destination` (the current GPU; "cpu" and -1 are the CPU), or in `out`."""
    from .._core import ops
    join: Any = ops.cat
    if out is not None:
        if destination is not None:
            raise RuntimeError("gather: 'destination' must not be given with 'out'")
        return unasked(out.copy_)(join([unasked(t.to)(out.device) for t in tensors], dim))
    where = _device("cpu") if destination in (-1, "cpu") else _gpu("cuda" if destination is None else destination)
    return join([unasked(t.to)(where) for t in tensors], dim)


__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]

"""Positions repeated: repeat_interleave."""

from __future__ import annotations

from typing import Any

from ... import layout
from ...dtypes import int32, int64, title
from ...tensor import Tensor
from ..casts import to_dtype
from ..checks import same_device
from ..memory_format import contiguous_format
from ..table import op
from .along_axis import scatter_add
from .positions import take_at
from .rows import _at


def _repeated(counts: Tensor, size: int | None) -> Tensor:
    """Each place of a vector as often as `counts` says, found by the vector's device; the host reads how many that makes, unless it is told."""
    from ..concat import stack
    from ..reading import values
    ends = counts.cumsum(0)
    if size is None:
        least, size = (int(v) for v in values(stack([counts.min(), ends[-1]]), "repeat_interleave"))
        if least < 0:
            raise RuntimeError("repeats can not be negative")
    # an element of the result stands behind as many ends as its place says
    met = scatter_add(ends.new_zeros((size + 1,)), 0, ends.clamp(0, size), ends.new_ones(()).expand(ends.meta.shape))
    made: Tensor = met.cumsum(0)[:size].clamp(max=counts.meta.numel - 1)
    return made


@op(method=False, tangent="linear", own_view=True)
def repeat_interleave(input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None) -> Tensor:  # noqa: A002
    """Each position of an axis (of the flattened tensor by default) repeated, all alike or each its own number of times."""
    from ..creation import tensor
    from ..ranges import arange
    given = input if repeats is None else repeats
    if isinstance(given, Tensor):
        if given.meta.dtype not in (int64, int32):
            raise NotImplementedError(f"\"repeat_interleave_cpu\" not implemented for '{title(given.meta.dtype)}': repeats are int32 or int64")
        if len(given.meta.shape) > 1 or (repeats is None and not given.meta.shape):
            raise RuntimeError(f"repeats must be 0-dim or 1-dim tensor, got one of shape {list(given.meta.shape)}")
    if repeats is None:
        input, repeats, dim = arange(input.meta.shape[0], device=input.meta.device), input, 0
    x = input.reshape(-1) if dim is None else input
    axis = 0 if dim is None else layout.wrap_dim(dim, len(x.meta.shape))
    if not x.meta.shape:
        raise IndexError(f"repeat_interleave(): dim is {dim}, but the tensor has no dimensions")
    n = x.meta.shape[axis]
    if isinstance(repeats, int):
        if repeats < 0:
            raise RuntimeError("Repeats must be non-negative")
        wide = x.unsqueeze(axis + 1).expand(*x.meta.shape[:axis + 1], repeats, *x.meta.shape[axis + 1:])
        return wide.clone(memory_format=contiguous_format).reshape(*x.meta.shape[:axis], n * repeats, *x.meta.shape[axis + 1:])
    else:
        r = repeats if isinstance(repeats, Tensor) else tensor(repeats, device="cpu")
        if isinstance(repeats, Tensor) and repeats.meta.shape:
            same_device("repeat_interleave", x, r)
        if r.meta.numel not in (1, n):
            raise RuntimeError("repeats must have the same size as input along dim")
        counts = to_dtype(r.detach(), int64)
        if counts.meta.device is not x.meta.device:
            from ..transfer import to_device
            counts = to_device(counts, x.meta.device)
        counts = counts.reshape(-1).expand(n)
        return take_at(x, _at(len(x.meta.shape), axis, _repeated(counts, output_size) if n else counts))


Tensor.repeat_interleave = repeat_interleave  # type: ignore[assignment, method-assign]

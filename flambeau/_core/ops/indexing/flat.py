"""Positions in the flattened tensor: take, put."""

from __future__ import annotations

from ... import layout
from ...autograd import inplace
from ...autograd.mode import _grad
from ...dtypes import int64
from ...tensor import Tensor
from ..checks import no_overlap, same_device
from ..copies import contiguous
from ..memory_format import contiguous_format
from ..table import op
from .positions import put_at, take_at


@op(out=True, tangent="linear", out_apart=True)
def take(input: Tensor, index: Tensor) -> Tensor:  # noqa: A002
    """Elements of the flattened input at positions: the shape of index."""
    if index.meta.dtype is not int64:
        raise RuntimeError("take(): Expected a long tensor for index, but got " + index.meta.dtype.name.capitalize())
    same_device("take", input, index)
    return take_at(input.reshape(-1), [contiguous(index)])  # dense whatever the index's layout is, as PyTorch's


def _check_put(input: Tensor, index: Tensor, source: Tensor) -> None:  # noqa: A002
    if index.meta.dtype is not int64:
        raise RuntimeError("put_(): Expected a long tensor for index, but got " + index.meta.dtype.name.capitalize())
    if source.meta.dtype is not input.meta.dtype:
        raise RuntimeError(f"put_(): self and source expected to have the same dtype, but got self.dtype = {input.meta.dtype} and source.dtype "
                           f"= {source.meta.dtype}")
    if index.meta.numel != source.meta.numel:
        raise IndexError(f"put_(): Expected source and index to have the same number of elements, but got source.numel() = {source.meta.numel}, "
                         f"index.numel() = {index.meta.numel}")
    same_device("put", input, index, source)


@op(name="put_")
def put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Writes (or adds) elements at positions of the flattened tensor."""
    from ..copies import assign
    recorded = _grad.get() and inplace.check(self, (self, source))
    no_overlap(self, index, source)
    if self.meta.contiguous and not recorded:  # few elements into a large tensor cost no copy of it
        _check_put(self, index, source)
        put_at(self.detach().reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
        return self
    return assign(self, put(self, index, source, accumulate))


@op()
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:  # noqa: A002
    """A copy with elements written (or added) at positions of the flattened tensor."""
    _check_put(input, index, source)
    flat = input.clone(memory_format=contiguous_format).reshape(-1)
    made = put_at(flat, [index.reshape(-1)], source.reshape(-1), accumulate).reshape(tuple(input.meta.shape))
    m = input.meta
    if m.contiguous or not layout.is_dense(m.shape, m.strides):
        return made
    order = sorted(range(len(m.shape)), key=lambda i: -m.strides[i])  # dense input keeps its order of axes
    return made.permute(order).contiguous().permute([order.index(i) for i in range(len(order))])

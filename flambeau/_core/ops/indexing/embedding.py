"""Rows of a table, looked up."""

from __future__ import annotations

from typing import Any

from ...autograd import inplace, tape
from ...autograd.mode import _grad, no_recording
from ...dtypes import int64, title
from ...tensor import Tensor
from ..casts import to_dtype
from ..checks import same_device
from ..table import op
from .along_axis import scatter_add
from .positions import accumulated, take_at, taken


@op(method=False, spaces=("nn.functional",), tangent="linear", batch="lookup")
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,  # noqa: A002
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """Rows of weight (num, dim) at the positions in input (any shape): (*input.shape, dim).  The row padding_idx gets no
    gradient; max_norm rescales the rows used, in place; scale_grad_by_freq divides gradients by how often a row is used.
    sparse: weight's gradient is a sparse tensor of the rows that were looked up."""
    if input.meta.dtype.name not in ("int64", "int32"):
        raise RuntimeError(f"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
                           f"torch.{title(input.meta.dtype)}Tensor instead (while checking arguments for embedding)")
    if len(weight.meta.shape) != 2:
        raise RuntimeError("'weight' must be 2-D")
    same_device("embedding", input, weight)
    if padding_idx is not None:
        n = weight.meta.shape[0]
        if not -n <= padding_idx < n:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= n
    if max_norm is not None:
        _renormalise(weight, input, max_norm, norm_type)
    at = to_dtype(input, int64)
    out = taken(weight, [at, None], negative=False)
    saved = tuple(weight.meta.shape), tape.keep(at), padding_idx, scale_grad_by_freq, sparse
    return tape.record(out, _embedding_back, (weight,), saved, "EmbeddingBackward0")


def _embedding_back(node: Any, g: Tensor) -> Any:
    shape, held, padding, scale, sparse = node[tape.SAVED]
    (at,) = tape.kept(node, held)
    if sparse:
        return (_rows_used(g, shape, at, padding, scale),)
    if scale:
        count = scatter_add(at.new_zeros((shape[0],)), 0, at.reshape(-1), at.reshape(-1) * 0 + 1)
        g = g / take_at(count, [at]).unsqueeze(-1)
    if padding is not None:
        g = g.masked_fill((at == padding).unsqueeze(-1), 0.0)
    return (accumulated(g, shape, (at, None)),)


def _rows_used(g: Tensor, shape: tuple[int, ...], at: Tensor, padding: int | None, scale: bool) -> Tensor:
    """The gradient of a table as its rows that were looked up, as often as they were."""
    from ..sparse import Coo, make
    if scale:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    where, values = at.reshape(-1), g.reshape(at.meta.numel, shape[1])
    if padding is not None:
        kept = (where != padding).nonzero().reshape(-1)
        where, values = where[kept], values[kept]
    made: Tensor = make(Coo, (where.unsqueeze(0),), values, shape)
    return made


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:  # noqa: A002
    """Scales the rows of a table (num, dim) that `indices` name down to a `norm_type`-norm of max_norm where they are longer, in place.

    Raises RuntimeError for a table of other axes, for indices that are neither int32 nor int64, and for a leaf that requires grad; IndexError for indices
    of no row.
    """
    if len(input.meta.shape) != 2:
        raise RuntimeError(f"Expected 2-dimensional tensor, but got {len(input.meta.shape)}-dimensional tensor for argument #1 'self' (while checking "
                           "arguments for embedding_renorm_)")
    if indices.meta.dtype.name not in ("int64", "int32"):
        raise RuntimeError(f"Expected tensor for argument #2 'indices' to have one of the following scalar types: Long, Int; but got "
                           f"torch.{title(indices.meta.dtype)}Tensor instead (while checking arguments for embedding_renorm_)")
    if _grad.get():
        inplace.check(input, (input,))
    at: Any = indices.reshape(-1)
    n = input.meta.shape[0]
    if at.meta.numel and not at.meta.device.type == "meta" and bool(((at < 0) | (at >= n)).any()):
        raise IndexError(f"embedding_renorm_: an index is out of range for a table of size {list(input.meta.shape)}")
    _renormalise(input, indices, max_norm, norm_type)
    return input


def _renormalise(weight: Tensor, index: Tensor, max_norm: float, p: float) -> None:
    """The rows used, scaled down to max_norm where longer, in place and off the tape."""
    with no_recording():
        w = weight.detach()
        used = scatter_add(w.new_zeros((w.meta.shape[0],)), 0, to_dtype(index.reshape(-1), int64), w.new_ones((index.meta.numel,))) > 0
        size = w.norm(p, 1)
        scale = (max_norm / (size + 1e-7)).masked_fill(~(used & (size > max_norm)), 1.0)
        w.mul_(scale.unsqueeze(1))

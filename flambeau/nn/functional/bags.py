"""Sums, means and maxima of bags of rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import dtypes, ops
from ..._core.autograd import tape
from ..._core.autograd.tape import recording
from ..._core.ops.elementwise import saved_tensor
from ..._core.ops.indexing.positions import accumulated, check_positions
from ..._core.ops.sparse_products import rows_added, served
from ...autograd import no_grad
from .lazy_functional import F

if TYPE_CHECKING:
    from collections.abc import Callable

_ops: Any = ops


def embedding_bag(input: Any, weight: Any, offsets: Any = None, max_norm: float | None = None, norm_type: float = 2,  # noqa: A002
                  scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None,
                  include_last_offset: bool = False, padding_idx: int | None = None) -> Any:
    """The sum, mean or maximum of the rows of `weight` (V, D) in each bag of indices: (B, D).

    Args:
        input: integer indices, (B, N) for B bags of N, or (N) with `offsets`.
        offsets: (B) where each bag begins; with `include_last_offset` (B + 1), the last being where the last bag ends.
        max_norm, norm_type, scale_grad_by_freq: as for `embedding`.
        mode: "sum", "mean" or "max".
        sparse: accepted; gradients are dense.
        per_sample_weights: factors of the rows, of the shape of `input`; for "sum" only.
        padding_idx: an index whose rows count in no bag.

    An empty bag gives zeros.  Raises ValueError for shapes that do not fit, NotImplementedError for weights beside another mode.
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if weight.meta.dtype in (dtypes.int64, dtypes.int32) and input.is_floating_point():
        input, weight = weight, input  # noqa: A001 (the order of old)
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(f"embedding_bag: If per_sample_weights ({tuple(per_sample_weights.shape)}) is not None, then it must have the same shape "
                         f"as the input ({tuple(input.shape)})")
    if weight.dim() != 2:
        raise ValueError("weight has to be a 2D Tensor, but got Tensor of dimension " + str(weight.dim()))
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got "
                                  f"mode='{mode}').")
    if per_sample_weights is not None and per_sample_weights.meta.dtype is not weight.meta.dtype:
        raise RuntimeError(f"expected per_sample_weights to have the same type as weight ({weight.meta.dtype}), got {per_sample_weights.meta.dtype}")
    begins, bag_of = _bags(input, offsets, include_last_offset)
    bags = begins.shape[0]
    flat = input.reshape(-1).to(dtypes.int64)
    factors = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    if max_norm is not None:
        with no_grad():  # every row named is scaled down, padding too
            F.embedding(flat, weight, None, max_norm, norm_type)
    kept = None
    if padding_idx is not None:
        rows = weight.shape[0]
        if not -rows <= padding_idx < rows:
            raise RuntimeError(f"padding_idx must be within the number of embeddings, -{rows} through {rows - 1}, but got {padding_idx}")
        kept = (flat != padding_idx % rows).nonzero().reshape(-1)
        flat, factors = flat[kept], None if factors is None else factors[kept]
    bag = bag_of if kept is None else lambda: bag_of()[kept]
    try:
        if mode != "max" and flat.numel() and bags and not (scale_grad_by_freq and recording(weight)) and served(weight):
            ends = _ops.cat([begins, begins.new_full((1,), input.numel())]).clamp(0, input.numel())
            return _added_up(flat.contiguous(), weight, ends if kept is None else _ops.searchsorted(kept, ends), factors, mode == "mean", bag)
        found = F.embedding(flat, weight, None, None, norm_type, scale_grad_by_freq)
    except IndexError as error:
        raise RuntimeError(f"embedding_bag: Expected idx >= 0 && idx < num_embeddings, {weight.shape[0]}: {error}") from None
    d, which = found.meta.dtype, bag()
    if mode != "max" and d.kind == "f":
        found, factors = found.to(d.opmath), None if factors is None else factors.to(d.opmath)  # products and sums are rounded once
    if factors is not None:
        found = found * factors.unsqueeze(1)
    made = found.new_zeros((bags, weight.shape[1]))
    if mode == "max" and recording(found):
        return _greatest(found, which, bags)
    if mode == "max":
        return made.scatter_reduce(0, which.unsqueeze(1).expand(found.shape), found, "amax", include_self=False)
    made = made.index_add(0, which, found)
    if mode == "mean":
        counts = _ops.bincount(which, minlength=bags).clamp(min=1)
        made = made / counts.to(made.dtype).unsqueeze(1)
    return made.to(d)


def _greatest(found: Any, which: Any, bags: int) -> Any:
    """The maxima of each bag of rows, of which the first takes the gradient, as of equal ones in `max`; 0 for bags of none."""
    return ops.cat([found, found.new_zeros((1, found.shape[1]))]).gather(0, first_greatest(found, which, bags))


def first_greatest(found: Any, which: Any, bags: int) -> Any:
    """Which row of `found` (n, columns) is the first of the greatest of each bag: (bags, columns); n for bags of none."""
    n, columns = found.shape
    with no_grad():
        bag = which.unsqueeze(1).expand(found.shape)
        top = found.new_zeros((bags, columns)).scatter_reduce(0, bag, found, "amax", include_self=False).gather(0, bag)
        place = ops.arange(n, device=found.device).unsqueeze(1).expand(found.shape)
        place = place.masked_fill((found != top) & ~(found.isnan() & top.isnan()), n)
        return ops.full((bags, columns), n, dtype=dtypes.int64, device=found.device).scatter_reduce(0, bag, place, "amin")


def _added_up(at: Any, weight: Any, ends: Any, factors: Any, mean: bool, bag: Callable[[], Any]) -> Any:
    """Sums or means of bags whose rows are added up as they are read.  bag: what tells the bag of each position."""
    check_positions(weight, at)
    made = rows_added(ends, at, factors, weight, mean)
    if not recording(weight, factors):
        return made
    own = None if factors is None else (factors, factors.store.version)
    saved = (weight, weight.store.version), own, (at, at.store.version), bag(), ends.diff() if mean else None
    return tape.record(made, _spread_back, (weight, factors), saved, "EmbeddingBagBackward0")


def _spread_back(node: Any, g: Any) -> Any:
    (weight, version), own, places, which, counts = node[tape.SAVED]
    at = saved_tensor(places[0], places[1], node)
    wanted, d = node[tape.EDGES], g.meta.dtype
    factors = None if own is None else saved_tensor(own[0], own[1], node).to(d.opmath).unsqueeze(1)
    g = g.to(d.opmath)
    if counts is not None:
        g = g / counts.clamp(min=1).to(d.opmath).unsqueeze(1)
    down = slopes = None
    if wanted[0] is not None:
        # what is the same for all rows of a bag is done once a bag
        rows = g.to(d).index_select(0, which) if factors is None else (g.index_select(0, which) * factors).to(d)
        down = accumulated(rows, tuple(weight.meta.shape), (at, None))
    if len(wanted) > 1 and wanted[1] is not None:
        rows = saved_tensor(weight, version, node).index_select(0, at).to(d.opmath)
        slopes = (g.index_select(0, which) * rows).sum(1).to(d)
    return down, slopes


def _bags(input: Any, offsets: Any, include_last_offset: bool) -> tuple[Any, Any]:  # noqa: A002
    """Where each bag begins, and what tells which of them each index belongs to."""
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. However, "
                             f"found offsets of type {type(offsets)}")
        b, n = input.shape
        return _ops.arange(b, device=input.device) * n, lambda: _ops.arange(b, device=input.device).unsqueeze(1).expand(b, n).reshape(-1)
    if input.dim() != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if offsets.dim() != 1:
        raise ValueError(f"offsets has to be a 1D Tensor, but got Tensor of dimension {offsets.dim()}")
    begins = offsets.to(dtypes.int64)
    if begins.numel() and not begins.is_meta:
        first, last = int(begins[0]), int(begins[-1])
        if first != 0:
            raise RuntimeError(f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {first}")
        if last > input.shape[0]:
            raise RuntimeError(f"offsets[-1] can not be greater than input's length({input.shape[0]}) but got offsets[-1] of {last}")
    bags = begins.numel() - bool(include_last_offset)
    if bags < 0:
        raise RuntimeError("include_last_offset: number of offsets should be at least 1")
    begins = begins[:bags]
    return begins, lambda: _ops.searchsorted(begins, _ops.arange(input.shape[0], device=input.device), right=True) - 1

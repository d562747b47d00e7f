"""Losses made of several operations: distances, margins over classes, triplets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import dtypes, ops
from ..._core.engine.fields import has
from ..._core.ops.checks import of_kinds, without_gradient
from ..._core.ops.losses import MARGIN_SUMS
from .lazy_functional import F
from .reduction import chosen, reduced

if TYPE_CHECKING:
    from collections.abc import Callable


def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0, size_average: bool | None = None,
                          reduce: bool | None = None, reduction: str = "mean") -> Any:
    """1 - cos(a, b) where target is 1, max(0, cos(a, b) - margin) where it is -1; inputs (N, D) or (D)."""
    reduction = chosen(reduction, size_average, reduce)
    if target.dim() > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if target.dim() == 1 and (input1.dim() != 2 or input2.dim() != 2):
        raise RuntimeError(f"1D target tensor expects 2D input tensors, but found inputs with sizes "
                           f"{list(input1.shape)} and {list(input2.shape)}.")
    if target.dim() == 0 and (input1.dim() != 1 or input2.dim() != 1):
        raise RuntimeError(f"0D target tensor expects 1D input tensors, but found inputs with sizes "
                           f"{list(input1.shape)} and {list(input2.shape)}.")
    # The epsilon is inside the squares here, unlike in cosine_similarity.
    eps = 1e-12
    dot = (input1 * input2).sum(-1)
    norms = (((input1 * input1).sum(-1) + eps) * ((input2 * input2).sum(-1) + eps)).sqrt()
    cos = dot / norms
    zero = ops.zeros_like(cos)
    loss = ops.where(target == 1, 1 - cos, zero) + ops.where(target == -1, (cos - margin).clamp(min=0), zero)
    return reduced(loss, reduction)


def multi_margin_loss(input: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None,
                      size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> Any:
    """Σ over classes i other than t of weight[t] max(0, margin - x[t] + x[i])^p / C; input (N, C) or (C)."""
    reduction = chosen(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    of_kinds("multi_margin_loss", input, "f")
    without_gradient("multi_margin_loss", weight=weight)
    if input.dim() > 2 or input.shape[-1:] == (0,):
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
                           f"{list(input.shape)}")
    x = input if input.dim() == 2 else input.reshape(1, -1)
    if weight is not None and (weight.dim() != 1 or weight.shape[0] != x.shape[1]):
        raise ValueError("weight must be one-dimensional" if weight.dim() != 1 else
                         f"weight must have {x.shape[1]} elements, got {weight.shape[0]}")
    t = target.reshape(-1)
    if t.shape[0] != x.shape[0]:
        raise RuntimeError(f"inconsistent target size, expected {x.shape[0]} but got {list(target.shape)}")
    column = t.unsqueeze(1)
    z = (margin - x.gather(1, column) + x).relu()  # no slope at the corner
    if p == 2:
        z = z * z
    if weight is not None:
        z = z * weight[t].unsqueeze(1)
    own = ops.arange(x.shape[1], device=x.device).unsqueeze(0) == column
    loss = z.masked_fill(own, 0).sum(1) / x.shape[1]
    return reduced(loss.reshape(target.shape), reduction)


def multilabel_margin_loss(input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None,
                           reduction: str = "mean") -> Any:
    """Σ over target classes j and other classes i of max(0, 1 - x[j] + x[i]) / C; a sample's targets end at its first
    negative one. Input and target (N, C) or (C)."""
    reduction = chosen(reduction, size_average, reduce)
    if input.dim() > 2 or input.shape != target.shape and (input.dim() > 1 or target.dim() > 1 or input.numel() != target.numel()):
        raise RuntimeError(f"multilabel_margin_loss: Expected input and target of one shape (N, C) or (C), but got: {list(input.shape)} and "
                           f"{list(target.shape)}")
    if input.shape[-1:] == (0,):
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}")
    of_kinds("multilabel_margin_loss", input, "f")
    x = input.reshape(1, -1) if input.dim() < 2 else input
    t = target.reshape(1, -1) if target.dim() < 2 else target
    classes = x.shape[1]
    counts = (t < 0).to(dtypes.int64).cumsum(1) == 0
    place = ops.where(counts, t, ops.full_like(t, classes))
    is_target = ops.zeros((x.shape[0], classes + 1), dtype=dtypes.bool_, device=x.device)
    is_target = is_target.scatter(1, place, True)[:, :classes]
    chosen_x = x.gather(1, ops.where(counts, t, ops.zeros_like(t)))
    (sums,) = MARGIN_SUMS((chosen_x, x, is_target.logical_not().to(x.dtype)))
    loss = sums.masked_fill(counts.logical_not(), 0).sum(1) / classes
    return reduced(loss if input.dim() == 2 else loss.squeeze(0), reduction)


def multilabel_soft_margin_loss(input: Any, target: Any, weight: Any = None, size_average: bool | None = None,
                                reduce: bool | None = None, reduction: str = "mean") -> Any:
    """The mean over the last dimension of `binary_cross_entropy_with_logits`."""
    reduction = chosen(reduction, size_average, reduce)
    loss = F.binary_cross_entropy_with_logits(input, target, reduction="none")
    return reduced((loss if weight is None else loss * weight).mean(-1), reduction)


def triplet_margin_loss(anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2,
                        eps: float = 1e-6, swap: bool = False, size_average: bool | None = None,
                        reduce: bool | None = None, reduction: str = "mean") -> Any:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the p-norm of the difference; with `swap`, the
    negative's distance is the nearer of those to anchor and positive."""
    reduction = chosen(reduction, size_average, reduce)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")

    def distance(a: Any, b: Any) -> Any:
        return F.pairwise_distance(a, b, p, eps)

    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def triplet_margin_with_distance_loss(anchor: Any, positive: Any, negative: Any, *,
                                      distance_function: Callable[..., Any] | None = None, margin: float = 1.0,
                                      swap: bool = False, reduction: str = "mean") -> Any:
    """`triplet_margin_loss` with a distance function of one's own."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = distance_function if distance_function is not None else F.pairwise_distance
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(anchor: Any, positive: Any, negative: Any, distance: Callable[..., Any], margin: float, swap: bool,
             reduction: str) -> Any:
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(f"The anchor, positive, and negative tensors are expected to have the same number of "
                           f"dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and negative "
                           f"{negative.dim()}D inputs")
    near = distance(anchor, positive)
    far = distance(anchor, negative)
    if swap:
        far = ops.minimum(far, distance(positive, negative))
    return reduced((near - far + margin).clamp(min=0), reduction)

has("cosine_embedding_loss multi_margin_loss multilabel_margin_loss triplet_margin_loss", autocast="full")
has("cosine_embedding_loss multi_margin_loss triplet_margin_loss", batch="composite")

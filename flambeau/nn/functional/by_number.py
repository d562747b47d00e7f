"""What PyTorch's main namespace has of `nn.functional` with numbers for words: losses, `torch.kl_div` and its like, `grid_sampler`, `embedding_bag`.

The losses are those of `nn.functional` but for their arguments: the reduction is a number, 0 for the loss of every element (or example), 1 for the mean,
2 for the sum, and its older words are not taken.  Where none is given it is 0: PyTorch's signatures say "Mean", which its parser reads as 0.
"""

from __future__ import annotations

from typing import Any

from ..._core import dtypes, ops
from ..._core.engine.operation import Operation
from ..._core.ops.table import namespace
from .. import functional as F
from .bags import first_greatest
from .resample import placed_by

_WORDS = {1: "mean", 2: "sum"}  # of any other number, nothing is reduced


def _word(name: str, reduction: Any) -> str:
    """The reduction in words.  Raises TypeError for what is no number."""
    if reduction.__class__ is not int:
        raise TypeError(f"{name}(): argument 'reduction' must be int, not {type(reduction).__name__}")
    return _WORDS.get(reduction, "none")


def binary_cross_entropy_with_logits(input: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 0) -> Any:
    """`nn.functional.binary_cross_entropy_with_logits`, with the reduction as a number."""
    return F.binary_cross_entropy_with_logits(input, target, weight, pos_weight=pos_weight, reduction=_word("binary_cross_entropy_with_logits", reduction))


def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 0) -> Any:
    """`nn.functional.cosine_embedding_loss`, with the reduction as a number."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_word("cosine_embedding_loss", reduction))


def ctc_loss(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: int = 0, zero_infinity: bool = False) -> Any:
    """`nn.functional.ctc_loss`, with the reduction as a number."""
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, _word("ctc_loss", reduction), zero_infinity)


def hinge_embedding_loss(input: Any, target: Any, margin: float = 1.0, reduction: int = 0) -> Any:
    """`nn.functional.hinge_embedding_loss`, with the reduction as a number."""
    return F.hinge_embedding_loss(input, target, margin, reduction=_word("hinge_embedding_loss", reduction))


def kl_div(input: Any, target: Any, reduction: int = 0, *, log_target: bool = False) -> Any:
    """`nn.functional.kl_div`, with the reduction as a number; it does not warn of the mean over all elements."""
    word = _word("kl_div", reduction)
    if word != "mean":
        return F.kl_div(input, target, reduction=word, log_target=log_target)
    return F.kl_div(input, target, reduction="none", log_target=log_target).mean()


def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 0) -> Any:
    """`nn.functional.margin_ranking_loss` of tensors that broadcast, with the reduction as a number."""
    word = _word("margin_ranking_loss", reduction)
    if not input1.dim() == input2.dim() == target.dim():
        input1, input2, target = namespace("torch")["broadcast_tensors"](input1, input2, target)
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=word)


def poisson_nll_loss(input: Any, target: Any, log_input: bool, full: bool, eps: float, reduction: int) -> Any:
    """`nn.functional.poisson_nll_loss`, with the reduction as a number."""
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_word("poisson_nll_loss", reduction))


def triplet_margin_loss(anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
                        reduction: int = 0) -> Any:
    """`nn.functional.triplet_margin_loss`, with the reduction as a number."""
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_word("triplet_margin_loss", reduction))


_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sampler(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """`nn.functional.grid_sample` with its modes as numbers: 0 bilinear, 1 nearest, 2 bicubic; outside 0 zeros, 1 the border, 2 a reflection.
    Raises ValueError for other numbers."""
    for argument, value in (("interpolation_mode", interpolation_mode), ("padding_mode", padding_mode)):
        if value not in (0, 1, 2):
            raise ValueError(f"grid_sampler(): {argument} must be 0, 1 or 2, got {value!r}")
    return F.grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], bool(align_corners))


def _of_axes(name: str, dims: int, input: Any, grid: Any) -> None:  # noqa: A002
    if input.dim() != dims or grid.dim() != dims:
        raise RuntimeError(f"grid_sampler(): expected {dims}D input and grid with same number of dimensions, but {name} got input with sizes "
                           f"{list(input.shape)} and grid with sizes {list(grid.shape)}")


def grid_sampler_2d(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:  # noqa: A002
    """`grid_sampler` of images (N, C, H, W) alone.  Raises RuntimeError for others."""
    _of_axes("grid_sampler_2d", 4, input, grid)
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def grid_sampler_3d(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:  # noqa: A002
    """`grid_sampler` of volumes (N, C, D, H, W) alone.  Raises RuntimeError for others, and for bicubic interpolation."""
    _of_axes("grid_sampler_3d", 5, input, grid)
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def affine_grid_generator(theta: Any, size: Any, align_corners: bool) -> Any:
    """`nn.functional.affine_grid`, which does not warn, and may be of no points.  Raises RuntimeError for a size that is neither (N, C, H, W) nor
    (N, C, D, H, W), and for maps that are not of so many axes."""
    spatial = [int(n) for n in size][2:]
    axes = len(spatial)
    if axes not in (2, 3):
        raise RuntimeError("AffineGridGenerator needs 4d (spatial) or 5d (volumetric) inputs.")
    if theta.dim() != 3 or tuple(theta.shape) != (size[0], axes, axes + 1):
        raise RuntimeError(f"affine_grid_generator(): Expected a batch of {axes}D affine matrices of size {[size[0], axes, axes + 1]} for size {list(size)}, "
                           f"but got {list(theta.shape)}")
    return _placed(theta, spatial, bool(align_corners))


_placed = Operation("affine_grid_generator", placed_by).function  # learned, as `nn.functional.affine_grid` is
_HOW = ("sum", "mean", "max")


def embedding_bag(weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
                  per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int | None = None) -> Any:
    """`nn.functional.embedding_bag` with the table first and its mode as a number, 0 sum, 1 mean, 2 max, and what PyTorch's kernels find on the way.

    Four tensors: the result (B, D); the bag of each index (N), left empty for sums of which PyTorch does not work it out; how many indices count in
    each bag (B), and the rows that the maxima are of (B, D), 0 for an empty bag.  Sums leave the third 0, and the fourth is the third but for maxima.
    The last three are of the type of `indices`.  Raises RuntimeError for another mode, for indices of another type than int32 and int64 and another
    shape than (N), and for weights beside another mode than sum.
    """
    if mode not in (0, 1, 2):
        raise RuntimeError("`mode` must be sum, mean, or max.")
    kind = indices.dtype
    if kind is not dtypes.int64 and kind is not dtypes.int32:
        raise RuntimeError("Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
                           f"{indices.type()} instead (while checking arguments for embedding_bag)")
    if indices.dim() != 1 or offsets.dim() != 1:
        raise RuntimeError(f"embedding_bag(): expected 1D indices and offsets, but got sizes {list(indices.shape)} and {list(offsets.shape)}")
    if per_sample_weights is not None and mode != 0:
        raise RuntimeError("embedding_bag: per_sample_weights only supported with mode='sum'")
    made = F.embedding_bag(indices, weight, offsets, None, 2.0, scale_grad_by_freq, _HOW[mode], sparse, per_sample_weights, include_last_offset, padding_idx)
    narrow = weight.dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16)
    if mode == 0 and padding_idx is None and narrow and weight.stride(1) == 1:
        bag = indices.new_empty((0,))
    else:
        begins = offsets.narrow(0, 0, made.shape[0])
        places = namespace("torch")["arange"](indices.shape[0], device=indices.device, dtype=kind)
        bag = (namespace("torch")["searchsorted"](begins, places, right=True) - 1).to(kind)
    if mode == 0:
        sizes = indices.new_zeros((offsets.shape[0],))
        return made, bag, sizes, sizes.clone()
    at, which = indices, bag
    if padding_idx is not None:
        kept = (indices != padding_idx % weight.shape[0]).nonzero().reshape(-1)
        at, which = indices[kept], bag[kept]
    sizes = namespace("torch")["bincount"](which, minlength=made.shape[0]).to(kind)
    if mode == 1:
        return made, bag, sizes, sizes.clone()
    first = first_greatest(weight.detach()[at], which.to(dtypes.int64), made.shape[0])
    return made, bag, sizes, ops.cat([at, at.new_zeros((1,))])[first]

"""The losses that PyTorch's main namespace has, `torch.kl_div` and its like, and `torch.grid_sampler`: those that take numbers for words.

They are those of `nn.functional` but for their arguments: the reduction is a number, 0 for the loss of every element (or example), 1 for the mean,
2 for the sum, and its older words are not taken.  Where none is given it is 0: PyTorch's signatures say "Mean", which its parser reads as 0.
"""

from __future__ import annotations

from typing import Any

from ..._core.ops.table import namespace
from .. import functional as F

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

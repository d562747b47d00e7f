"""Losses that are one formula an element, then a reduction: each runs as a single fused kernel, and so does its
gradient."""

from __future__ import annotations

import math
from typing import Any

from ..._core import ops
from ..._core.dtypes import title
from ..._core.engine.fields import has
from ..._core.errors import warn
from ..._core.kernels import expr as E
from ..._core.ops.binary import no_bool
from ..._core.ops.checks import without_gradient
from ..._core.ops.elementwise import Pointwise
from ...autograd import no_grad
from .reduction import chosen, folded, reduced

# -- the formulas: x is the input, t the target
# --------------------------------------------------------------------------


def _smooth_l1(x: Any, t: Any, beta: Any) -> Any:
    d = E.abs_(x - t)
    return E.where(d >= beta, d - 0.5 * beta, 0.5 * d * d / beta)


def _huber(x: Any, t: Any, delta: Any) -> Any:
    d = E.abs_(x - t)
    return E.where(d > delta, delta * (d - 0.5 * delta), 0.5 * d * d)


def _clamped_log(x: Any) -> Any:
    return E.maximum(E.log(x), -100.0)


def _bce(x: Any, t: Any) -> Any:
    return (t - 1.0) * E.maximum(E.log1p(-x), -100.0) - t * _clamped_log(x)


def _bce_grad(g: Any, x: Any, t: Any, out: Any) -> Any:
    # The logarithms' bound is left out of the input's gradient; a small divisor's bound stands in for it.
    dx = g * (x - t) / E.maximum((1.0 - x) * x, 1e-12)
    dt = g * (E.maximum(E.log1p(-x), -100.0) - _clamped_log(x))
    return dx, dt


def _softplus_of_minus_abs(x: Any) -> Any:
    return E.log1p(E.exp(-E.abs_(x)))


def _bce_logits(x: Any, t: Any) -> Any:
    return (1.0 - t) * x + E.maximum(-x, 0.0) + _softplus_of_minus_abs(x)


def _bce_logits_grad(g: Any, x: Any, t: Any, out: Any) -> Any:
    return g * (1.0 / (1.0 + E.exp(-x)) - t), -g * x


def _bce_logits_weighted(x: Any, t: Any, w: Any) -> Any:
    return (1.0 - t) * x + (1.0 + (w - 1.0) * t) * (E.maximum(-x, 0.0) + _softplus_of_minus_abs(x))


def _bce_logits_weighted_grad(g: Any, x: Any, t: Any, w: Any, out: Any) -> Any:
    low = E.maximum(-x, 0.0) + _softplus_of_minus_abs(x)
    scale = 1.0 + (w - 1.0) * t
    minus = -1.0 / (1.0 + E.exp(x))
    return g * (1.0 - t + scale * minus), g * ((w - 1.0) * low - x), g * t * low


def _t_log_t(t: Any) -> Any:
    return E.where(t == 0.0, E.const(0, t.dtype), t * E.log(t))


def _kl(x: Any, t: Any) -> Any:
    return _t_log_t(t) - t * x


def _kl_log(x: Any, t: Any) -> Any:
    return E.exp(t) * (t - x)


def _stirling(t: Any) -> Any:
    return E.where(t <= 1.0, E.const(0, t.dtype), t * E.log(t) - t + 0.5 * E.log(2.0 * math.pi * t))


def _gaussian(x: Any, t: Any, v: Any) -> Any:
    return 0.5 * (E.log(v) + (x - t) * (x - t) / v)


def _soft_margin(x: Any, t: Any) -> Any:
    z = -t * x
    return E.maximum(z, 0.0) + _softplus_of_minus_abs(z)


def _soft_margin_grad(g: Any, x: Any, t: Any, out: Any) -> Any:
    slope = g / (1.0 + E.exp(t * x))
    return -t * slope, -x * slope


def _margin_ranking(a: Any, b: Any, t: Any, margin: Any) -> Any:
    z = -t * (a - b) + margin
    return E.where(z >= 0.0, z, 0.0 * E.maximum(z, -1.0))  # 0 of any number, and NaN of NaN; at the corner the slope counts, as everywhere in `clamp`


def _hinge(x: Any, t: Any, margin: Any) -> Any:
    below = margin - x
    zero = E.const(0, x.dtype)
    # a target that is neither counts as both
    return E.where(t == -1.0, zero, x) + E.where(t == 1.0, zero, E.where(below >= 0.0, below, 0.0 * E.maximum(below, -1.0)))


_mse = Pointwise("mse_loss", lambda x, t: (x - t) * (x - t), 2, accept="fc")
_weighted_mse = Pointwise("mse_loss", lambda x, t, w: w * (x - t) * (x - t), 3, accept="fc")
_l1 = Pointwise("l1_loss", lambda x, t: E.abs_(x - t), 2, types=no_bool)
_smooth = Pointwise("smooth_l1_loss", _smooth_l1, 2, accept="f")
_hub = Pointwise("huber_loss", _huber, 2, accept="f")
_binary = Pointwise("binary_cross_entropy", _bce, 2, grad=_bce_grad, accept="f")
_logits = Pointwise("binary_cross_entropy_with_logits", _bce_logits, 2, grad=_bce_logits_grad, accept="f")
_logits_weighted = Pointwise("binary_cross_entropy_with_logits", _bce_logits_weighted, 3,
                             grad=_bce_logits_weighted_grad, accept="f")
_divergence = Pointwise("kl_div", _kl, 2, accept="f")
_divergence_log = Pointwise("kl_div", _kl_log, 2, accept="f")
_poisson_log = Pointwise("poisson_nll_loss", lambda x, t: E.exp(x) - t * x, 2)
_poisson = Pointwise("poisson_nll_loss", lambda x, t, eps: x - t * E.log(x + eps), 2)
_stirling_term = Pointwise("poisson_nll_loss", _stirling, 1)
_normal = Pointwise("gaussian_nll_loss", _gaussian, 3)
_soft = Pointwise("soft_margin_loss", _soft_margin, 2, grad=_soft_margin_grad, accept="f")
_ranking = Pointwise("margin_ranking_loss", _margin_ranking, 3)
_hinged = Pointwise("hinge_embedding_loss", _hinge, 2)


def _of_one_size(input: Any, target: Any) -> tuple[Any, Any]:
    """Both, in their common shape: what has no axes counts like the others when the type is chosen.  Warns where the sizes differ."""
    if target.shape != input.shape:
        warn(f"Using a target size ({target.size()}) that is different to the input size ({input.size()}). "
             "This will likely lead to incorrect results due to broadcasting. Please ensure they have the "
             "same size.")
        input, target = ops.broadcast_tensors(input, target)  # noqa: A001
    return input, target


# -- the functions
# -------------------------------------------------------------------------------------------------------


def mse_loss(input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None,
             reduction: str = "mean", weight: Any = None) -> Any:
    """(input - target)², reduced; with `weight`, each element counts as often as it says."""
    reduction = chosen(reduction, size_average, reduce)
    input, target = _of_one_size(input, target)  # noqa: A001
    if input.is_complex() or target.is_complex():
        raise NotImplementedError(f"\"mse_cpu\" not implemented for '{title(input.dtype if input.is_complex() else target.dtype)}'")
    if weight is None:
        return folded(_mse, (input, target), reduction)
    if weight.shape != input.shape:
        raise ValueError("Weights and input must have the same size.")
    loss = _weighted_mse((input, target, weight))
    return loss.sum() / weight.sum() if reduction == "mean" else reduced(loss, reduction)


def l1_loss(input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None,
            reduction: str = "mean", weight: Any = None) -> Any:
    """|input - target|, reduced; with `weight`, each element counts as often as it says."""
    reduction = chosen(reduction, size_average, reduce)
    input, target = _of_one_size(input, target)  # noqa: A001
    # |z| of complex numbers is no formula of z alone (its gradient needs the conjugate), so those go by the op.
    plain = not (input.is_complex() or target.is_complex())
    if weight is None and plain:
        return folded(_l1, (input, target), reduction)
    loss = _l1((input, target)) if plain else (input - target).abs()
    if weight is None:
        return reduced(loss, reduction)
    if weight.shape != input.shape:
        raise ValueError("Weights and input must have the same size.")
    loss = weight * loss
    return loss.sum() / weight.sum() if reduction == "mean" else reduced(loss, reduction)


def smooth_l1_loss(input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None,
                   reduction: str = "mean", beta: float = 1.0) -> Any:
    """d²/(2 beta) where d = |input - target| < beta, else d - beta/2."""
    reduction = chosen(reduction, size_average, reduce)
    input, target = _of_one_size(input, target)  # noqa: A001
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return folded(_l1, (input, target), reduction)
    return folded(_smooth, (input, target), reduction, (float(beta),))


def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None) -> Any:
    """d²/2 where d = |input - target| <= delta, else delta (d - delta/2)."""
    input, target = _of_one_size(input, target)  # noqa: A001
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    d = input.dtype  # the loss's too, though it is computed in the common type
    if target.dtype.kind == "c" != d.kind or target.dtype.kind == "f" and d.kind in "bui":
        raise RuntimeError(f"result type {title(target.dtype)} can't be cast to the desired output type {title(d)}")
    if weight is None:
        return folded(_hub, (input, target), reduction, (float(delta),)).to(d)
    loss = _hub((input, target), (float(delta),)).to(d)
    if weight.shape != input.shape:
        raise ValueError("Weights and input must have the same size.")
    return reduced(weight * loss, reduction)  # a mean over all elements, unlike that of `mse_loss` and `l1_loss`


def binary_cross_entropy(input: Any, target: Any, weight: Any = None, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Any:
    """-(target log input + (1 - target) log(1 - input)); input in [0, 1], of target's shape, logarithms at least -100.

    Raises ValueError for different sizes, RuntimeError on the CPU for values outside [0, 1].
    """
    reduction = chosen(reduction, size_average, reduce)
    if target.shape != input.shape:
        raise ValueError(f"Using a target size ({target.size()}) that is different to the input size ({input.size()}) "
                         "is deprecated. Please ensure they have the same size.")
    if target.dtype is not input.dtype:
        raise RuntimeError(f"Found dtype {title(target.dtype)} but expected {title(input.dtype)}")
    without_gradient("binary_cross_entropy", weight=weight)
    # On a GPU the check would wait for the device.
    if input.device.type == "cpu":
        with no_grad():
            if not bool(((input >= 0) & (input <= 1)).all()):
                raise RuntimeError("all elements of input should be between 0 and 1")
    if weight is None:
        return folded(_binary, (input, target), reduction)
    made = reduced(_binary((input, target)) * weight, reduction)
    return made if made.dtype is input.dtype else made.to(input.dtype)


def binary_cross_entropy_with_logits(input: Any, target: Any, weight: Any = None, size_average: bool | None = None,
                                     reduce: bool | None = None, reduction: str = "mean",
                                     pos_weight: Any = None) -> Any:
    """`binary_cross_entropy` of sigmoid(input), without overflow; `pos_weight` multiplies the positive part."""
    reduction = chosen(reduction, size_average, reduce)
    if target.shape != input.shape:
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    if target.dtype.kind not in "fc" and input.dtype.kind == "f":  # PyTorch's loss takes the target's type
        raise RuntimeError(f"result type {title(input.dtype)} can't be cast to the desired output type {title(target.dtype)}")
    without_gradient("binary_cross_entropy_with_logits", weight=weight, pos_weight=pos_weight)
    op, operands = (_logits, (input, target)) if pos_weight is None else (_logits_weighted, (input, target, pos_weight))
    made = folded(op, operands, reduction) if weight is None else reduced(op(operands) * weight, reduction)
    d = target.dtype
    return made if made.dtype is d else made.to(d)


def kl_div(input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None,
           reduction: str = "mean", log_target: bool = False) -> Any:
    """target (log target - input); `input` holds log-probabilities, and so does `target` if `log_target`.

    reduction "batchmean" divides the sum by the first dimension, which is what the mathematics asks for.
    """
    reduction = chosen(reduction, size_average, reduce)
    if not (input.dtype.kind in "fc" and target.dtype.kind in "fc"):
        raise RuntimeError(f"kl_div: Integral inputs not supported, got {input.dtype} and {target.dtype}")
    loss = (_divergence_log if log_target else _divergence)((input, target))
    if reduction == "batchmean":
        total = loss.sum()
        return total / input.size(0) if input.dim() else total
    if reduction == "mean":
        warn("reduction: 'mean' divides the total loss by both the batch size and the support size."
             "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
             "'mean' will be changed to behave the same as 'batchmean' in the next major release.")
    return reduced(loss, reduction)


def poisson_nll_loss(input: Any, target: Any, log_input: bool = True, full: bool = False,
                     size_average: bool | None = None, eps: float = 1e-8, reduce: bool | None = None,
                     reduction: str = "mean") -> Any:
    """exp(input) - target * input, or input - target * log(input + eps); `full` adds Stirling's log(target!) for
    targets above 1."""
    reduction = chosen(reduction, size_average, reduce)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    loss = _poisson_log((input, target)) if log_input else _poisson((input, target), (float(eps),))
    if full:
        loss = loss + _stirling_term((target,))
    return reduced(loss, reduction)


def gaussian_nll_loss(input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Any:
    """(log v + (input - target)²/v) / 2 with v = max(var, eps), through which the gradient passes unchanged; `full`
    adds log(2π)/2. `var` has the input's shape, or lacks its last dimension, or has 1 there."""
    if not isinstance(var, float | int):
        if var.shape != input.shape:
            if input.shape[:-1] == var.shape:
                var = var.unsqueeze(-1)
            elif not (input.dim() == var.dim() and var.dim() > 0 and all(
                    v in (1, n) for v, n in zip(var.shape, input.shape))):
                raise ValueError("var is of incorrect size")
        negative = not var.is_meta and bool((var < 0).any())
    else:
        negative = var < 0
        var = var * ops.ones_like(input)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    if negative:
        raise ValueError("var has negative entry/entries")
    var = var.clone()
    with no_grad():
        var.clamp_(min=eps)
    loss = _normal((input, target, var))
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)


def soft_margin_loss(input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None,
                     reduction: str = "mean") -> Any:
    """log(1 + exp(-target * input)), targets 1 or -1.  Raises RuntimeError for a target that requires grad."""
    without_gradient("soft_margin_loss", target=target)
    return folded(_soft, (input, target), chosen(reduction, size_average, reduce))


def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0, size_average: bool | None = None,
                        reduce: bool | None = None, reduction: str = "mean") -> Any:
    """max(0, -target (input1 - input2) + margin), targets 1 or -1."""
    reduction = chosen(reduction, size_average, reduce)
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(f"margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
                           f"{input1.size()}, input2: {input2.size()}, target: {target.size()} ")
    return folded(_ranking, (input1, input2, target), reduction, (float(margin),))


def hinge_embedding_loss(input: Any, target: Any, margin: float = 1.0, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Any:
    """input where target is 1, max(0, margin - input) where it is -1; both where it is neither."""
    target = target.detach() if target.requires_grad else target  # it only chooses
    return folded(_hinged, (input, target), chosen(reduction, size_average, reduce), (float(margin),))

has("binary_cross_entropy", autocast="cpu full")
has("""binary_cross_entropy_with_logits hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss poisson_nll_loss smooth_l1_loss
 soft_margin_loss""", autocast="full")
has("""mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits
 kl_div poisson_nll_loss soft_margin_loss hinge_embedding_loss gaussian_nll_loss margin_ranking_loss""", batch="loss")
has("multilabel_soft_margin_loss", batch="composite")

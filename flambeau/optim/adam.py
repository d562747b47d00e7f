"""Adam and its kin.

Adam and Adamax: Kingma & Ba (2015); AdamW: Loshchilov & Hutter (2019); NAdam: Dozat (2016); RAdam: Liu et al. (2020).
"""

from __future__ import annotations

import math
from typing import Any

from .._core.kernels import expr as E
from .._core.ops.elementwise import Pointwise
from .._core.tensor import Tensor
from .optimizer import FormulaOptimizer, alike, check_options, elsewhere, together, zeros_for


def _gradient(p: Any, g: Any, lr: Any, decay: Any, maximize: bool, decoupled: bool | None) -> tuple[Any, Any]:
    """The parameter and gradient after weight decay: none (None), added to the gradient, or taken off the parameter."""
    if maximize:
        g = -g
    if decoupled is None:
        return p, g
    return (p * (1.0 - lr * decay), g) if decoupled else (p, g + decay * p)


def _moments(m: Any, v: Any, g: Any, b1: Any, b2: Any) -> tuple[Any, Any]:
    return m + b1 * (g - m), (1.0 - b2) * v + b2 * g * g


def _adam(p: Any, m: Any, v: Any, g: Any, lr: Any, decay: Any, b1: Any, b2: Any, eps: Any, rate: Any, root: Any, *,
          maximize: bool, decoupled: bool | None) -> Any:
    # b1 and b2 are one minus the betas, exact in double precision on the host; rate is lr / (1 - beta1^t) and root
    # the square root of 1 - beta2^t
    p, g = _gradient(p, g, lr, decay, maximize, decoupled)
    m, v = _moments(m, v, g, b1, b2)
    return p - rate * (m / (E.sqrt(v) / root + eps)), m, v


def _amsgrad(p: Any, m: Any, v: Any, top: Any, g: Any, lr: Any, decay: Any, b1: Any, b2: Any, eps: Any, rate: Any,
             root: Any, *, maximize: bool, decoupled: bool | None) -> Any:
    p, g = _gradient(p, g, lr, decay, maximize, decoupled)
    m, v = _moments(m, v, g, b1, b2)
    top = E.maximum(top, v)
    return p - rate * (m / (E.sqrt(top) / root + eps)), m, v, top


def _adamax(p: Any, m: Any, u: Any, g: Any, lr: Any, decay: Any, b1: Any, beta2: Any, eps: Any, rate: Any, *,
            maximize: bool, decoupled: bool | None) -> Any:
    p, g = _gradient(p, g, lr, decay, maximize, decoupled)
    m = m + b1 * (g - m)
    u = E.maximum(u * beta2, E.abs_(g) + eps)
    return p - rate * (m / u), m, u


def _nadam(p: Any, m: Any, v: Any, g: Any, lr: Any, decay: Any, b1: Any, b2: Any, eps: Any, bias: Any, rate_g: Any,
           rate_m: Any, *, maximize: bool, decoupled: bool | None) -> Any:
    p, g = _gradient(p, g, lr, decay, maximize, decoupled)
    m, v = _moments(m, v, g, b1, b2)
    below = E.sqrt(v / bias) + eps
    return p - rate_g * (g / below) - rate_m * (m / below), m, v


def _radam(p: Any, m: Any, v: Any, g: Any, lr: Any, decay: Any, b1: Any, b2: Any, eps: Any, rate: Any,
           rectified: Any, *,
           maximize: bool, decoupled: bool | None, adaptive: bool) -> Any:
    p, g = _gradient(p, g, lr, decay, maximize, decoupled)
    m, v = _moments(m, v, g, b1, b2)
    step = rate * m
    return p - (step * (rectified / (E.sqrt(v) + eps)) if adaptive else step), m, v


_adam_formula = Pointwise("adam", _adam, 4)
_amsgrad_formula = Pointwise("adam", _amsgrad, 5)
_adamax_formula = Pointwise("adamax", _adamax, 4)
_nadam_formula = Pointwise("nadam", _nadam, 4)
_radam_formula = Pointwise("radam", _radam, 4)


def _check(lr: Any, betas: Any, eps: float, weight_decay: float) -> None:
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    check_options((("learning rate", lr, lr >= 0.0), ("epsilon value", eps, eps >= 0.0),
                   ("beta parameter at index 0", betas[0], 0.0 <= betas[0] < 1.0),
                   ("beta parameter at index 1", betas[1], 0.0 <= betas[1] < 1.0),
                   ("weight_decay value", weight_decay, weight_decay >= 0.0)))


def _decoupled(group: dict[str, Any]) -> bool | None:
    """How the group decays weights: not, by the gradient (False) or by the parameter (True)."""
    return bool(group.get("decoupled_weight_decay", False)) if group["weight_decay"] != 0 else None


class _Moments(FormulaOptimizer):
    """Optimizers with a mean of gradients and a second state."""

    second = "exp_avg_sq"

    def _start(self, p: Tensor, state: dict[str, Any]) -> None:
        """Makes the state at the first step."""
        if not state:
            state["step"] = 0.0
            state["exp_avg"] = zeros_for(p)
            state[self.second] = zeros_for(p)
        elif state["exp_avg"].meta.device is not p.meta.device:
            elsewhere(p, state)


def _numbers(group: dict[str, Any], step: float) -> tuple[tuple[float, ...], tuple[tuple[str, Any], ...]]:
    """The numbers of a group's step, and the formula's flags."""
    (beta1, beta2), lr = group["betas"], float(group["lr"])
    beta1, beta2 = float(beta1), float(beta2)
    return ((lr, float(group["weight_decay"]), 1.0 - beta1, 1.0 - beta2, float(group["eps"]), lr / (1.0 - beta1**step), math.sqrt(1.0 - beta2**step)),
            (("maximize", group["maximize"]), ("decoupled", _decoupled(group))))


class Adam(_Moments):
    """m and v are running means of g and g²; p = p - lr m̂ / (√v̂ + eps), m̂ and v̂ corrected for their start at zero.

    `weight_decay` is added to the gradient, or with `decoupled_weight_decay` taken off the parameter; `amsgrad` uses
    the largest v so far. `foreach`, `capturable` and `fused` are accepted: every step is fused.
    """

    renews = True

    def __init__(self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
                 decoupled_weight_decay: bool = False) -> None:
        _check(lr, betas, eps, weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay})

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Any],
                memo: dict[Any, Any]) -> None:
        self._start(p, state)
        updates = together(_amsgrad_formula if group["amsgrad"] else _adam_formula, _numbers, group, state, memo, True)
        if group["amsgrad"]:
            if "max_exp_avg_sq" not in state:
                state["max_exp_avg_sq"] = zeros_for(p)
            updates.add((p, state["exp_avg"], state["exp_avg_sq"], state["max_exp_avg_sq"]), grad)
        else:
            updates.add((p, state["exp_avg"], state["exp_avg_sq"]), grad)


class AdamW(Adam):
    """`Adam` with the weight decay taken off the parameter: p = p (1 - lr weight_decay) before the step."""

    def __init__(self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
                 foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
                 fused: bool | None = None) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
                         capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # Files of versions where AdamW stood alone do not say so.
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


class Adamax(_Moments):
    """p = p - lr/(1 - beta1^t) m / u with u = max(beta2 u, |g| + eps) (Kingma & Ba, 2015, section 7)."""

    renews = True
    second = "exp_inf"

    def __init__(self, params: Any, lr: Any = 2e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False) -> None:
        _check(lr, betas, eps, weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable})

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Any],
                memo: dict[Any, Any]) -> None:
        self._start(p, state)
        together(_adamax_formula, self._numbers, group, state, memo).add((p, state["exp_avg"], state["exp_inf"]), grad)

    @staticmethod
    def _numbers(group: dict[str, Any], step: float) -> tuple[Any, Any]:
        (beta1, beta2), lr = group["betas"], float(group["lr"])
        return ((lr, float(group["weight_decay"]), 1.0 - beta1, float(beta2), float(group["eps"]), lr / (1.0 - beta1**step)),
                (("maximize", group["maximize"]), ("decoupled", _decoupled(group))))


class NAdam(_Moments):
    """Adam with Nesterov momentum, whose momentum grows by the schedule of `momentum_decay`."""

    renews = True
    counts = ("step", "mu_product")

    def __init__(self, params: Any, lr: Any = 2e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
                 foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False) -> None:
        _check(lr, betas, eps, weight_decay)
        check_options((("momentum_decay value", momentum_decay, momentum_decay >= 0.0),))
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable})

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Any],
                memo: dict[Any, Any]) -> None:
        if not state:
            state["mu_product"] = 1.0
            state.update(step=0.0, exp_avg=zeros_for(p), exp_avg_sq=zeros_for(p))
        self._start(p, state)
        alike(_nadam_formula, self._moved, group, state, memo).add((p, state["exp_avg"], state["exp_avg_sq"]), grad)

    @staticmethod
    def _moved(group: dict[str, Any], state: dict[str, Any]) -> tuple[Any, Any]:
        state["step"] = step = float(state["step"]) + 1.0
        beta1, beta2 = group["betas"]
        lr, decay = float(group["lr"]), group["momentum_decay"]
        mu = beta1 * (1.0 - 0.5 * 0.96 ** (step * decay))
        after = beta1 * (1.0 - 0.5 * 0.96 ** ((step + 1) * decay))
        state["mu_product"] = product = float(state["mu_product"]) * mu
        return ((lr, float(group["weight_decay"]), 1.0 - beta1, 1.0 - beta2, float(group["eps"]), 1.0 - beta2**step,
                 lr * (1.0 - mu) / (1.0 - product), lr * after / (1.0 - product * after)),
                (("maximize", group["maximize"]), ("decoupled", _decoupled(group))))

    def _saved(self, state: Any) -> Any:
        from .._core import ops

        state = super()._saved(state)
        product = state.get("mu_product")
        return {**state, "mu_product": ops.tensor(product, device="cpu")} if isinstance(product, float) else state


class RAdam(_Moments):
    """Adam whose step is rectified for the variance of its early steps, and plain momentum while that is unknown."""

    renews = True

    def __init__(self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False, differentiable: bool = False) -> None:
        _check(lr, betas, eps, weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable})

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Any],
                memo: dict[Any, Any]) -> None:
        self._start(p, state)
        alike(_radam_formula, self._moved, group, state, memo).add((p, state["exp_avg"], state["exp_avg_sq"]), grad)

    @staticmethod
    def _lengths(group: dict[str, Any], step: float) -> tuple[float, float, float]:
        """What the variance's correction is, the longest that its memory may be, and how long it is at a step."""
        beta2 = group["betas"][1]
        bias2 = 1.0 - beta2**step
        longest = 2.0 / (1.0 - beta2) - 1.0
        return bias2, longest, longest - 2.0 * step * beta2**step / bias2

    @staticmethod
    def kind(group: dict[str, Any], step: float) -> bool:
        """Whether the variance is known at a step."""
        return RAdam._lengths(group, step)[2] > 5.0

    @staticmethod
    def _moved(group: dict[str, Any], state: dict[str, Any]) -> tuple[Any, Any]:
        state["step"] = step = float(state["step"]) + 1.0
        beta1, beta2 = group["betas"]
        lr = float(group["lr"])
        bias2, longest, length = RAdam._lengths(group, step)
        adaptive = length > 5.0
        rectified = 0.0
        if adaptive:
            ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            rectified = math.sqrt(ratio * bias2)
        return ((lr, float(group["weight_decay"]), 1.0 - beta1, 1.0 - beta2, float(group["eps"]), lr / (1.0 - beta1**step), rectified),
                (("maximize", group["maximize"]), ("decoupled", _decoupled(group)), ("adaptive", adaptive)))

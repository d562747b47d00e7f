"""Optimizers with a learning rate for each element: RMSprop, Adagrad (Duchi et al., 2011), Adadelta (Zeiler, 2012),
Rprop."""

from __future__ import annotations

from typing import Any

from .._core import ops
from .._core.kernels import expr as E
from .._core.ops.elementwise import Pointwise
from .._core.tensor import Tensor
from .optimizer import FormulaOptimizer, check_options, elsewhere, together, zeros_for


def _gradient(p: Any, g: Any, decay: Any, maximize: bool, decayed: bool) -> Any:
    if maximize:
        g = -g
    return g + decay * p if decayed else g


def _rmsprop(p: Any, sq: Any, g: Any, lr: Any, decay: Any, alpha: Any, rest: Any, eps: Any, mu: Any, *, maximize: bool,
             decayed: bool) -> Any:
    g = _gradient(p, g, decay, maximize, decayed)
    sq = alpha * sq + rest * g * g
    return p - lr * (g / (E.sqrt(sq) + eps)), sq


def _rmsprop_momentum(p: Any, sq: Any, buf: Any, g: Any, lr: Any, decay: Any, alpha: Any, rest: Any, eps: Any, mu: Any,
                      *, maximize: bool, decayed: bool) -> Any:
    g = _gradient(p, g, decay, maximize, decayed)
    sq = alpha * sq + rest * g * g
    buf = mu * buf + g / (E.sqrt(sq) + eps)
    return p - lr * buf, sq, buf


def _rmsprop_centered(p: Any, sq: Any, mean: Any, g: Any, lr: Any, decay: Any, alpha: Any, rest: Any, eps: Any, mu: Any,
                      *, maximize: bool, decayed: bool) -> Any:
    g = _gradient(p, g, decay, maximize, decayed)
    sq = alpha * sq + rest * g * g
    mean = mean + rest * (g - mean)
    return p - lr * (g / (E.sqrt(sq - mean * mean) + eps)), sq, mean


def _rmsprop_both(p: Any, sq: Any, mean: Any, buf: Any, g: Any, lr: Any, decay: Any, alpha: Any, rest: Any, eps: Any,
                  mu: Any, *, maximize: bool, decayed: bool) -> Any:
    g = _gradient(p, g, decay, maximize, decayed)
    sq = alpha * sq + rest * g * g
    mean = mean + rest * (g - mean)
    buf = mu * buf + g / (E.sqrt(sq - mean * mean) + eps)
    return p - lr * buf, sq, mean, buf


_rms = {(False, False): Pointwise("rmsprop", _rmsprop, 3), (False, True): Pointwise("rmsprop", _rmsprop_momentum, 4),
        (True, False): Pointwise("rmsprop", _rmsprop_centered, 4), (True, True): Pointwise("rmsprop", _rmsprop_both, 5)}


class RMSprop(FormulaOptimizer):
    """p = p - lr g / (√v + eps), v a running mean of g² (Hinton's lecture 6e, 2012); `centered` takes the square of the
    mean gradient off v, `momentum` averages the steps."""

    renews = True

    def __init__(self, params: Any, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
                 momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: bool | None = None,
                 maximize: bool = False, differentiable: bool = False) -> None:
        check_options((("learning rate", lr, lr >= 0.0), ("epsilon value", eps, eps >= 0.0),
                       ("momentum value", momentum, momentum >= 0.0),
                       ("weight_decay value", weight_decay, weight_decay >= 0.0), ("alpha value", alpha, alpha >= 0.0)))
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable})

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Any],
                memo: dict[Any, Any]) -> None:
        mu, centered = float(group["momentum"]), group["centered"]
        if not state:
            state["step"] = 0.0
            state["square_avg"] = zeros_for(p)
            if mu > 0:
                state["momentum_buffer"] = zeros_for(p)
            if centered:
                state["grad_avg"] = zeros_for(p)
        elif state["square_avg"].meta.device is not p.meta.device:
            elsewhere(p, state)
        outs = [p, state["square_avg"]]
        if centered:
            outs.append(state["grad_avg"])
        if mu > 0:
            outs.append(state["momentum_buffer"])
        together(_rms[centered, mu > 0], self._numbers, group, state, memo).add(tuple(outs), grad)

    @staticmethod
    def _numbers(group: dict[str, Any], step: float) -> tuple[Any, Any]:
        decay, alpha = float(group["weight_decay"]), float(group["alpha"])
        return ((float(group["lr"]), decay, alpha, 1.0 - alpha, float(group["eps"]), float(group["momentum"])),
                (("maximize", group["maximize"]), ("decayed", decay != 0.0)))


def _adagrad(p: Any, total: Any, g: Any, rate: Any, decay: Any, eps: Any, *, maximize: bool, decayed: bool) -> Any:
    g = _gradient(p, g, decay, maximize, decayed)
    total = total + g * g
    return p - rate * (g / (E.sqrt(total) + eps)), total


_adagrad_formula = Pointwise("adagrad", _adagrad, 3)


class Adagrad(FormulaOptimizer):
    """p = p - lr_t g / (√Σg² + eps) with lr_t = lr / (1 + (t - 1) lr_decay)."""

    renews = True

    def __init__(self, params: Any, lr: Any = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
                 initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
                 maximize: bool = False, differentiable: bool = False, fused: bool | None = None) -> None:
        check_options((("learning rate", lr, lr >= 0.0), ("lr_decay value", lr_decay, lr_decay >= 0.0),
                       ("weight_decay value", weight_decay, weight_decay >= 0.0),
                       ("initial_accumulator_value value", initial_accumulator_value, initial_accumulator_value >= 0.0),
                       ("epsilon value", eps, eps >= 0.0)))
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused})
        for group in self.param_groups:
            for p in group["params"]:
                self._start(group, p, self.state[p])

    @staticmethod
    def _start(group: dict[str, Any], p: Tensor, state: dict[str, Any]) -> None:
        first = group["initial_accumulator_value"]
        state["step"] = 0.0
        state["sum"] = ops.full_like(p, complex(first, first) if p.is_complex() else first).detach()

    def share_memory(self) -> None:
        """Moves the sums to memory that several processes share."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Any],
                memo: dict[Any, Any]) -> None:
        if not state:  # a group added later
            self._start(group, p, state)
        elif state["sum"].meta.device is not p.meta.device:
            elsewhere(p, state)
        together(_adagrad_formula, self._numbers, group, state, memo).add((p, state["sum"]), grad)

    @staticmethod
    def _numbers(group: dict[str, Any], step: float) -> tuple[Any, Any]:
        decay = float(group["weight_decay"])
        rate = float(group["lr"]) / (1.0 + (step - 1.0) * group["lr_decay"])
        return (rate, decay, float(group["eps"])), (("maximize", group["maximize"]), ("decayed", decay != 0.0))

    def _update_rows(self, group: dict[str, Any], p: Any, grad: Any, state: dict[str, Any], memo: dict[Any, Any]) -> None:
        if group["weight_decay"]:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        from .sparse import adagrad
        state["step"] = step = float(state["step"]) + 1.0
        adagrad(p, state["sum"], grad, float(group["lr"]) / (1.0 + (step - 1.0) * group["lr_decay"]), float(group["eps"]), group["maximize"])


def _adadelta(p: Any, sq: Any, acc: Any, g: Any, lr: Any, decay: Any, rho: Any, rest: Any, eps: Any, *, maximize: bool,
              decayed: bool) -> Any:
    g = _gradient(p, g, decay, maximize, decayed)
    sq = rho * sq + rest * g * g
    delta = E.sqrt(acc + eps) / E.sqrt(sq + eps) * g
    return p - lr * delta, sq, rho * acc + rest * delta * delta


_adadelta_formula = Pointwise("adadelta", _adadelta, 4)


class Adadelta(FormulaOptimizer):
    """p = p - lr d with d = √(E[d²] + eps) / √(E[g²] + eps) g, E running means with factor rho."""

    renews = True

    def __init__(self, params: Any, lr: Any = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
                 foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False,
                 differentiable: bool = False) -> None:
        check_options((("learning rate", lr, lr >= 0.0), ("rho value", rho, 0.0 <= rho <= 1.0),
                       ("epsilon value", eps, eps >= 0.0), ("weight_decay value", weight_decay, weight_decay >= 0.0)))
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable})

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Any],
                memo: dict[Any, Any]) -> None:
        if not state:
            state.update(step=0.0, square_avg=zeros_for(p), acc_delta=zeros_for(p))
        elif state["square_avg"].meta.device is not p.meta.device:
            elsewhere(p, state)
        together(_adadelta_formula, self._numbers, group, state, memo).add((p, state["square_avg"], state["acc_delta"]), grad)

    @staticmethod
    def _numbers(group: dict[str, Any], step: float) -> tuple[Any, Any]:
        decay, rho = float(group["weight_decay"]), float(group["rho"])
        return (float(group["lr"]), decay, rho, 1.0 - rho, float(group["eps"])), (("maximize", group["maximize"]), ("decayed", decay != 0.0))


def _rprop(p: Any, prev: Any, size: Any, g: Any, down: Any, up: Any, low: Any, high: Any, *, maximize: bool) -> Any:
    if maximize:
        g = -g
    agree = g * prev
    size = size * E.where(agree > 0.0, up, E.where(agree < 0.0, down, 1.0 + 0.0 * size))
    size = E.minimum(E.maximum(size, low), high)
    # After a change of sign the step is left out, and the next one is judged as if there had been no gradient.
    g = E.where(agree < 0.0, 0.0 * g, g)
    sign = E.where(g > 0.0, 1.0 + 0.0 * g, E.where(g < 0.0, -1.0 + 0.0 * g, 0.0 * g))
    return p - sign * size, g, size


_rprop_formula = Pointwise("rprop", _rprop, 4)


class Rprop(FormulaOptimizer):
    """Steps by the gradient's sign, of a size that grows while the sign stays and shrinks when it changes (Riedmiller &
    Braun, 1993)."""

    renews = True

    def __init__(self, params: Any, lr: Any = 1e-2, etas: Any = (0.5, 1.2), step_sizes: Any = (1e-6, 50), *,
                 capturable: bool = False, foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False) -> None:
        check_options((("learning rate", lr, lr >= 0.0), ("eta values", f"{etas[0]}, "
                                                                        f"{etas[1]}", 0.0 < etas[0] < 1.0 < etas[1])))
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable})

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Any],
                memo: dict[Any, Any]) -> None:
        if not state:
            state.update(step=0.0, prev=zeros_for(p), step_size=ops.full_like(p, float(group["lr"])).detach())
        elif state["prev"].meta.device is not p.meta.device:
            elsewhere(p, state)
        together(_rprop_formula, self._numbers, group, state, memo).add((p, state["prev"], state["step_size"]), grad)

    @staticmethod
    def _numbers(group: dict[str, Any], step: float) -> tuple[Any, Any]:
        (down, up), (low, high) = group["etas"], group["step_sizes"]
        return (float(down), float(up), float(low), float(high)), (("maximize", group["maximize"]),)

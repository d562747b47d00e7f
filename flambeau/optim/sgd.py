"""Stochastic gradient descent, with momentum (Sutskever et al., 2013) and averaging (Polyak & Juditsky, 1992)."""

from __future__ import annotations

from typing import Any

from .._core.ops.elementwise import Pointwise
from .._core.tensor import Tensor
from .optimizer import FormulaOptimizer, Updates, alike, check_options, elsewhere, required, zeros_for


def _plain(p: Any, g: Any, lr: Any, decay: Any, *, decayed: bool, maximize: bool) -> Any:
    if maximize:
        g = -g
    if decayed:
        g = g + decay * p
    return p - lr * g


def _momentum(p: Any, buf: Any, g: Any, lr: Any, decay: Any, mu: Any, damp: Any, *, decayed: bool, maximize: bool,
              nesterov: bool, first: bool) -> Any:
    if maximize:
        g = -g
    if decayed:
        g = g + decay * p
    buf = g if first else mu * buf + damp * g
    return p - lr * (g + mu * buf if nesterov else buf), buf


_sgd = Pointwise("sgd", _plain, 2)
_sgd_momentum = Pointwise("sgd", _momentum, 3)


def _numbers(group: dict[str, Any], first: bool | None) -> tuple[tuple[float, ...], tuple[tuple[str, Any], ...]]:
    """The numbers of a group's step, and the formula's flags.  first: whether it is the first with momentum; None: there is none."""
    numbers = float(group["lr"]), float(group["weight_decay"])
    flags = (("decayed", numbers[1] != 0.0), ("maximize", group["maximize"]))
    if first is None:
        return numbers, flags
    return (*numbers, float(group["momentum"]), 1.0 - float(group["dampening"])), (*flags, ("nesterov", group["nesterov"]), ("first", first))


class SGD(FormulaOptimizer):
    """b = momentum b + (1 - dampening) g, p = p - lr b, g the gradient plus weight_decay p; the first b is g.

    `nesterov` steps by g + momentum b. `foreach` and `fused` are accepted: every step is fused.
    """

    renews = True

    def __init__(self, params: Any, lr: Any = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: Any = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None,
                 differentiable: bool = False, fused: bool | None = None) -> None:
        if lr is not required and isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        check_options((("learning rate", lr, lr is required or lr >= 0.0), ("momentum "
                                                                            "value", momentum, momentum >= 0.0),
                       ("weight_decay value", weight_decay, weight_decay >= 0.0)))
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused})

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Any],
                memo: dict[Any, Any]) -> None:
        plain = memo.get(None)
        if not memo and float(group["momentum"]) == 0.0:
            plain = memo[None] = Updates(_sgd, *_numbers(group, None), memo, lambda _: _numbers(group, None))
        if plain is not None:
            plain.add((p,), grad)
            return
        buf: Any = state.get("momentum_buffer")
        first = buf is None
        if first:
            buf = state["momentum_buffer"] = zeros_for(p)
        elif buf.meta.device is not p.meta.device:
            elsewhere(p, state)
        if first not in memo:
            memo[first] = Updates(_sgd_momentum, *_numbers(group, first), memo, lambda _: _numbers(group, first))
        memo[first].add((p, buf), grad)

    def _update_rows(self, group: dict[str, Any], p: Any, grad: Any, state: dict[str, Any], memo: dict[Any, Any]) -> None:
        if group["momentum"] or group["weight_decay"]:
            self._update(group, p, grad.to_dense(), state, memo)  # every row moves
            return
        from .sparse import plain
        plain(p, grad, float(group["lr"]), group["maximize"])


def _averaged(p: Any, ax: Any, g: Any, lr: Any, decay: Any, lambd: Any, mu: Any, *, maximize: bool) -> Any:
    if maximize:
        g = -g
    g = g + decay * p
    p = p * (1.0 - lambd * lr) - lr * g
    return p, ax + mu * (p - ax)


_asgd = Pointwise("asgd", _averaged, 3)


class ASGD(FormulaOptimizer):
    """SGD with eta = lr / (1 + lambd lr t)^alpha whose average over the steps after t0 is state "ax"."""

    renews = True
    counts = ("step", "eta", "mu")

    def __init__(self, params: Any, lr: Any = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
                 weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False) -> None:
        check_options((("learning rate", lr, lr >= 0.0), ("weight_decay value", weight_decay, weight_decay >= 0.0)))
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable})

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Any],
                memo: dict[Any, Any]) -> None:
        lr = float(group["lr"])
        if not state:
            state.update(step=0.0, eta=lr, mu=1.0, ax=zeros_for(p))
        elif state["ax"].meta.device is not p.meta.device:
            elsewhere(p, state)
        alike(_asgd, self._moved, group, state, memo).add((p, state["ax"]), grad)

    @staticmethod
    def _moved(group: dict[str, Any], state: dict[str, Any]) -> tuple[Any, Any]:
        lr, eta, mu = float(group["lr"]), float(state["eta"]), float(state["mu"])
        state["step"] = step = state["step"] + 1.0
        state["eta"] = lr / (1.0 + group["lambd"] * lr * step) ** group["alpha"]
        state["mu"] = 1.0 / max(1.0, step - group["t0"])
        return (eta, float(group["weight_decay"]), float(group["lambd"]), mu), (("maximize", group["maximize"]),)

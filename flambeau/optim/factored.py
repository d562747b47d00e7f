"""Optimizers for matrices: Adafactor (Shazeer and Stern, 2018) and Muon (Jordan et al., 2024)."""

from __future__ import annotations

import math
from typing import Any

from .._core import dtypes, ops
from .._core.tensor import Tensor
from ..autograd import enable_grad, no_grad
from .optimizer import Optimizer, check_options

_ops: Any = ops


class _Plain(Optimizer):
    """An optimizer whose `_update` is written in tensor operations."""

    @no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(group, p, -p.grad if group["maximize"] else p.grad, self.state[p])
        return loss

    def _update(self, group: dict[str, Any], p: Any, grad: Any, state: dict[str, Any]) -> None:
        raise NotImplementedError


class Adafactor(_Plain):
    """Second moments of a matrix kept as one row and one column; steps relative to the parameter's own size."""

    def __init__(self, params: Any, lr: Any = 1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
                 weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False) -> None:
        check_options((("learning rate", lr, isinstance(lr, Tensor) or lr >= 0.0), ("beta2_decay", beta2_decay, beta2_decay <= 0),
                       ("epsilon1", eps[0], eps[0] is None or eps[0] >= 0), ("epsilon2", eps[1], eps[1] >= 0),
                       ("clipping threshold d", d, d >= 1), ("weight_decay value", weight_decay, weight_decay >= 0.0)))
        super().__init__(params, {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "foreach": foreach,
                                  "maximize": maximize})

    def _update(self, group: dict[str, Any], p: Any, grad: Any, state: dict[str, Any]) -> None:
        matrix = grad.dim() > 1
        if not state:
            state["step"] = 0.0
            if matrix:
                state["row_var"] = grad.new_zeros((*grad.shape[:-1], 1))
                state["col_var"] = grad.new_zeros((*grad.shape[:-2], 1, grad.shape[-1]))
            else:
                state["variance"] = _ops.zeros_like(grad)
        state["step"] = step = float(state["step"]) + 1.0
        eps1 = dtypes.finfo(p.dtype).eps if group["eps"][0] is None else group["eps"][0]
        decay = step ** group["beta2_decay"]
        rho = min(group["lr"], 1.0 / math.sqrt(step))
        alpha = max(group["eps"][1], p.norm(2).item() / math.sqrt(p.numel())) * rho
        if group["weight_decay"]:
            p.mul_(1 - group["lr"] * group["weight_decay"])
        if matrix:
            rows = grad.norm(dim=-1, keepdim=True).square().div(grad.size(-1))
            columns = grad.norm(dim=-2, keepdim=True).square().div(grad.size(-2))
            state["row_var"].lerp_(rows, decay)
            state["col_var"].lerp_(columns, decay)
            estimate = (state["row_var"] @ state["col_var"]) / state["row_var"].mean(dim=-2, keepdim=True).clamp(min=eps1)
        else:
            state["variance"].lerp_(grad.square(), decay)
            estimate = state["variance"].clone()
        update = estimate.clamp(min=eps1 * eps1).rsqrt() * grad
        clip = max(1.0, update.norm(2).item() / (math.sqrt(update.numel()) * group["d"]))
        p.add_(update, alpha=-alpha / clip)


def _orthogonal(g: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """The nearest semi-orthogonal matrix, by `steps` of a quintic Newton-Schulz iteration."""
    a, b, c = coefficients
    x = g.to(dtypes.bfloat16)
    tall = x.size(0) > x.size(1)
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * (s @ s)) @ x
    return x.T if tall else x


class Muon(_Plain):
    """Momentum whose update is made orthogonal, for two-dimensional parameters only.  Raises ValueError for others."""

    def __init__(self, params: Any, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
                 ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
                 adjust_lr_fn: str | None = None) -> None:
        check_options((("learning rate", lr, lr >= 0.0), ("momentum value", momentum, momentum >= 0.0),
                       ("weight_decay value", weight_decay, weight_decay >= 0.0)))
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
                                  "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
                                  "maximize": False})
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")

    def _update(self, group: dict[str, Any], p: Any, grad: Any, state: dict[str, Any]) -> None:
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = _ops.zeros_like(grad)
        buf = state["momentum_buffer"]
        buf.lerp_(grad, 1 - group["momentum"])
        update = grad.lerp(buf, group["momentum"]) if group["nesterov"] else buf
        update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = p.shape
        ratio = math.sqrt(max(1.0, rows / columns)) if group["adjust_lr_fn"] in (None, "original") else 0.2 * math.sqrt(max(rows, columns))
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(update.to(p.dtype), alpha=-group["lr"] * ratio)

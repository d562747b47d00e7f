"""Limited-memory BFGS (Nocedal and Wright, "Numerical Optimization", 2006, algorithms 7.4 and 7.5), with their line search for
the strong Wolfe conditions (3.5, 3.6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .._core import ops
from .._core.tensor import Tensor
from ..autograd import enable_grad, no_grad
from .optimizer import Optimizer

_ops: Any = ops


class LBFGS(Optimizer):
    """A quasi-Newton method over one group of parameters; `step` needs a closure that computes the loss and its gradients.

    max_iter: iterations a step; max_eval: evaluations a step (1.25 max_iter); tolerance_grad, tolerance_change: where to
    stop; history_size: how many past steps are kept; line_search_fn: None (steps of lr) or "strong_wolfe".
    """

    def __init__(self, params: Any, lr: float = 1, max_iter: int = 20, max_eval: int | None = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: str | None = None) -> None:
        if lr < 0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        super().__init__(params, {"lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                                  "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
                                  "line_search_fn": line_search_fn})
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params: list[Any] = self.param_groups[0]["params"]

    def _gradient(self) -> Any:
        return _ops.cat([(p.grad if p.grad is not None else _ops.zeros_like(p)).reshape(-1) for p in self._params])

    def _move(self, step: float, direction: Any) -> None:
        at = 0
        for p in self._params:
            n = p.numel()
            p.add_(direction[at:at + n].reshape(p.shape), alpha=step)
            at += n

    @no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:
        """Up to max_iter iterations.  Returns the loss at the start."""
        compute = enable_grad()(closure)
        g0 = self.param_groups[0]
        lr, limit, evaluations = g0["lr"], g0["max_iter"], g0["max_eval"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = compute()
        loss, count = float(first), 1
        state["func_evals"] += 1
        grad = self._gradient()
        if grad.abs().max().item() <= g0["tolerance_grad"]:
            return first
        d, t = state.get("d"), state.get("t")
        ys, ss, ro = state.get("old_dirs") or [], state.get("old_stps") or [], state.get("ro") or []
        scale, before, loss_before = state.get("H_diag", 1.0), state.get("prev_flat_grad"), state.get("prev_loss")
        for done in range(1, limit + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                d, scale = -grad, 1.0
                ys, ss, ro = [], [], []
            else:
                y, s = grad - before, d * t
                curvature = float(y.dot(s))
                if curvature > 1e-10:
                    if len(ys) == g0["history_size"]:
                        ys.pop(0)
                        ss.pop(0)
                        ro.pop(0)
                    ys.append(y)
                    ss.append(s)
                    ro.append(1.0 / curvature)
                    scale = curvature / float(y.dot(y))
                d = self._direction(grad, ys, ss, ro, scale)
            before = grad.clone()
            loss_before = loss
            t = lr / max(1.0, float(grad.abs().sum())) if state["n_iter"] == 1 else lr
            slope = float(grad.dot(d))
            if slope > -g0["tolerance_change"]:
                break
            used = 0
            if g0["line_search_fn"] is None:
                self._move(t, d)
                if done != limit:
                    loss = float(compute())
                    grad = self._gradient()
                    used = 1
            else:
                start = [p.clone() for p in self._params]

                def at(step: float, start: list[Any] = start, d: Any = d) -> tuple[float, Any]:
                    self._move(step, d)
                    value = float(compute())
                    found = self._gradient()
                    for p, x in zip(self._params, start, strict=True):
                        p.copy_(x)
                    return value, found
                loss, grad, t, used = strong_wolfe(at, t, d, loss, grad, slope, tolerance_change=g0["tolerance_change"])
                self._move(t, d)
            count += used
            state["func_evals"] += used
            if (done == limit or count >= evaluations or grad.abs().max().item() <= g0["tolerance_grad"]
                    or (d * t).abs().max().item() <= g0["tolerance_change"] or abs(loss - loss_before) < g0["tolerance_change"]):
                break
        state.update(d=d, t=t, old_dirs=ys, old_stps=ss, ro=ro, H_diag=scale, prev_flat_grad=before, prev_loss=loss_before)
        return first

    @staticmethod
    def _direction(grad: Any, ys: list[Any], ss: list[Any], ro: list[float], scale: float) -> Any:
        """Two-loop recursion."""
        q = -grad
        alphas = [0.0] * len(ys)
        for i in range(len(ys) - 1, -1, -1):
            alphas[i] = float(ss[i].dot(q)) * ro[i]
            q = q.add(ys[i], alpha=-alphas[i])
        r = q * scale
        for i in range(len(ys)):
            r = r.add(ss[i], alpha=alphas[i] - float(ys[i].dot(r)) * ro[i])
        return r


def _cubic(x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, low: float | None = None, high: float | None = None) -> float:
    """The minimum of the cubic through two points and slopes, kept in [low, high]."""
    lo, hi = (min(x1, x2), max(x1, x2)) if low is None or high is None else (low, high)
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return (lo + hi) / 2.0
    d2 = math.sqrt(square)
    found = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2)) if x1 <= x2 else x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(found, lo), hi)


def strong_wolfe(at: Callable[[float], tuple[float, Any]], t: float, d: Tensor, loss: float, grad: Any, slope: float, c1: float = 1e-4,
                 c2: float = 0.9, tolerance_change: float = 1e-9, most: int = 25) -> tuple[float, Any, float, int]:
    """(loss, gradient, step, evaluations) of a step along d that decreases enough (c1) and flattens the slope enough (c2)."""
    size = float(d.abs().max())  # type: ignore[attr-defined, unused-ignore]
    g0 = grad.clone()
    new, gnew = at(t)
    used, snew = 1, float(gnew.dot(d))
    t_old, f_old, g_old, s_old = 0.0, loss, g0, slope
    bracket: list[tuple[float, float, Any, float]] = []  # (step, loss, gradient, slope)
    done = False
    for i in range(most):
        if new > loss + c1 * t * slope or (i > 0 and new >= f_old):
            bracket = [(t_old, f_old, g_old, s_old), (t, new, gnew, snew)]
            break
        if abs(snew) <= -c2 * slope:
            return new, gnew, t, used
        if snew >= 0:
            bracket = [(t_old, f_old, g_old, s_old), (t, new, gnew, snew)]
            break
        nearest, furthest = t + 0.01 * (t - t_old), t * 10
        step = _cubic(t_old, f_old, s_old, t, new, snew, nearest, furthest)
        t_old, f_old, g_old, s_old = t, new, gnew.clone(), snew
        t = step
        new, gnew = at(t)
        used += 1
        snew = float(gnew.dot(d))
    else:
        bracket = [(0.0, loss, g0, slope), (t, new, gnew, snew)]
    close = False
    low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
    while not done and used < most:
        if abs(bracket[1][0] - bracket[0][0]) * size < tolerance_change:
            break
        t = _cubic(bracket[0][0], bracket[0][1], bracket[0][3], bracket[1][0], bracket[1][1], bracket[1][3])
        left, right = sorted((bracket[0][0], bracket[1][0]))
        gap = 0.1 * (right - left)
        if min(right - t, t - left) < gap:  # too near an end: once let pass, then moved inside
            if close or t >= right or t <= left:
                t = right - gap if abs(t - right) < abs(t - left) else left + gap
                close = False
            else:
                close = True
        else:
            close = False
        new, gnew = at(t)
        used += 1
        snew = float(gnew.dot(d))
        if new > loss + c1 * t * slope or new >= bracket[low][1]:
            bracket[high] = (t, new, gnew.clone(), snew)
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        else:
            if abs(snew) <= -c2 * slope:
                done = True
            elif snew * (bracket[high][0] - bracket[low][0]) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = (t, new, gnew.clone(), snew)
    t, new, gnew, _ = bracket[low]
    return new, gnew, t, used

"""Formulas with named axes, an oracle that works them out with NumPy, and how a schedule of them is carried out on any target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flambeau._core.dtypes import dtype, int64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import formulas as F
from flambeau._core.kernels import interpret
from flambeau._core.kernels.expr import Expr
from flambeau._core.kernels.schedule import Schedule, launches

if TYPE_CHECKING:
    from collections.abc import Callable


class Formula:
    """operands: name to axes.  build: from the operands' expressions to (outputs, saved)."""

    def __init__(self, operands: dict[str, str], build: Callable[..., Any], numbers: tuple[float, ...] = (), low: float = -1.5, high: float = 1.5) -> None:
        self.operands, self.build, self.numbers, self.low, self.high = operands, build, numbers, low, high

    def leaves(self, d: dtype) -> dict[str, Expr]:
        return {n: F.operand(n, int64 if n == "t" else d, axes) for n, axes in self.operands.items()}

    def made(self, d: dtype) -> tuple[dict[str, Expr], tuple[Expr, ...], tuple[Expr, ...]]:
        leaves = self.leaves(d)
        outs, saved = self.build(*leaves.values())
        return leaves, outs, saved

    def values(self, sizes: dict[str, int], rng: np.random.Generator, d: Any = np.float64) -> dict[str, np.ndarray]:
        return {n: rng.integers(0, sizes.get("c", 1), shape_of(axes, sizes)) if n == "t" else
                rng.uniform(self.low, self.high, shape_of(axes, sizes)).astype(d) for n, axes in self.operands.items()}


def shape_of(axes: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[a] for a in axes)


def _softmax(x: Expr) -> Any:
    e = E.exp(x - F.fixed(F.fold("max", x, "c")))
    y = e / F.total(e, "c")
    return (y,), (y,)


def _log_softmax(x: Expr) -> Any:
    c = x - F.fixed(F.fold("max", x, "c"))
    y = c - E.log(F.total(E.exp(c), "c"))
    return (y,), (y,)


def _logsumexp(x: Expr) -> Any:
    y = F.logsumexp(x, "c")
    return (y,), (y,)


def _layer_norm(x: Expr, w: Expr, b: Expr) -> Any:
    mean = F.mean(x, "c")
    c = x - mean
    rstd = E.rsqrt(F.mean(c * c, "c") + E.scalar(0, x.dtype))
    return (c * rstd * w + b,), (mean, rstd)


def _rms_norm(x: Expr, w: Expr) -> Any:
    rstd = E.rsqrt(F.mean(x * x, "c") + E.scalar(0, x.dtype))
    return (x * rstd * w,), (rstd,)


def _group_norm(x: Expr, w: Expr, b: Expr) -> Any:
    mean = F.mean(x, "cs")
    c = x - mean
    rstd = E.rsqrt(F.mean(c * c, "cs") + E.scalar(0, x.dtype))
    return (c * rstd * w + b,), (mean, rstd)


def _var_mean(x: Expr) -> Any:
    mean = F.mean(x, "c")
    c = x - mean
    return (F.total(c * c, "c") / E.scalar(0, x.dtype), mean), (mean,)


def _std(x: Expr) -> Any:
    (var, mean), saved = _var_mean(x)
    std = F.safe_sqrt(var)
    return (std,), (mean, std)


def _norm(x: Expr) -> Any:
    n = F.safe_sqrt(F.total(x * x, "c"))
    return (n,), (n,)


def _normalize(x: Expr) -> Any:
    n = F.safe_sqrt(F.total(x * x, "c"))
    eps = E.scalar(0, x.dtype)
    return (x / E.where(n < eps, eps, n),), (n,)


def _cosine(x: Expr, y: Expr) -> Any:
    a, b = F.safe_sqrt(F.total(x * x, "c")), F.safe_sqrt(F.total(y * y, "c"))
    return (F.total((x / a) * (y / b), "c"),), (a, b)


def _cross_entropy(x: Expr, t: Expr) -> Any:
    zero, lse = E.const(0, x.dtype), F.logsumexp(x, "c")
    own = F.total(E.where(F.index("c") == t, x, zero), "c")
    return (E.where(t == E.scalar(0, int64), zero, lse - own),), (lse,)


def _smoothed(x: Expr, t: Expr) -> Any:
    (loss,), saved = _cross_entropy(x, t)
    return (loss * 0.75 + F.total(saved[0] - x, "c") * 0.25,), saved


def _distance(x: Expr, y: Expr) -> Any:
    far = F.safe_sqrt(F.total((x - y) * (x - y), "k"))
    return (far,), (far,)


def _batch_norm(x: Expr, w: Expr, b: Expr) -> Any:
    mean = F.mean(x, "rs")
    c = x - mean
    rstd = E.rsqrt(F.mean(c * c, "rs") + E.scalar(0, x.dtype))
    return (c * rstd * w + b,), (mean, rstd)


FORMULAS = {
    "sum of squares": Formula({"x": "rc"}, lambda x: ((F.total(x * x, "c"),), ())),
    "mean": Formula({"x": "rc"}, lambda x: ((F.mean(x, "c"),), ())),
    "largest": Formula({"x": "rc"}, lambda x: ((F.fold("max", x, "c"),), ())),
    "running sum": Formula({"x": "rc"}, lambda x: ((F.scan("sum", x * x, "c"),), ())),
    "softmax": Formula({"x": "rc"}, _softmax),
    "log_softmax": Formula({"x": "rc"}, _log_softmax),
    "logsumexp": Formula({"x": "rc"}, _logsumexp),
    "layer_norm": Formula({"x": "rc", "w": "c", "b": "c"}, _layer_norm, (1e-5,)),
    "rms_norm": Formula({"x": "rc", "w": "c"}, _rms_norm, (1e-5,)),
    "group_norm": Formula({"x": "ngcs", "w": "gc", "b": "gc"}, _group_norm, (1e-5,)),
    "batch_norm": Formula({"x": "rcs", "w": "c", "b": "c"}, _batch_norm, (1e-5,)),
    "var_mean": Formula({"x": "rc"}, _var_mean, (6.0,)),
    "std": Formula({"x": "rc"}, _std, (6.0,)),
    "norm": Formula({"x": "rc"}, _norm),
    "normalize": Formula({"x": "rc"}, _normalize, (1e-12,)),
    "cosine": Formula({"x": "rc", "y": "rc"}, _cosine),
    "cross_entropy": Formula({"x": "rc", "t": "r"}, _cross_entropy, (2.0,)),
    "smoothed cross_entropy": Formula({"x": "rc", "t": "r"}, _smoothed, (2.0,)),
    "distance": Formula({"x": "nk", "y": "mk"}, _distance)}
SIZES = {"r": 5, "c": 7, "n": 3, "g": 2, "s": 4, "m": 4, "k": 5}
# which axes one kernel folds along
FUSED = {"group_norm": "cs", "batch_norm": "rs", "distance": ""}


def domain_of(leaves: dict[str, Expr]) -> str:
    have = {a for e in leaves.values() for a in F.place(e)}
    return "".join(a for a in "nmgrcsk" if a in have)


# ----------------------------------------------------------------------------------------------------------- the oracle
def evaluate(roots: tuple[Expr, ...], operands: dict[Any, np.ndarray], numbers: tuple[float, ...], sizes: dict[str, int],
             domain: str) -> list[np.ndarray]:
    """The expressions' values, each an array over `domain` with size 1 where it does not vary."""
    done: dict[Expr, Any] = {}
    with np.errstate(all="ignore"):
        for e in E.walk(roots):
            done[e] = _value(e, [done[a] for a in e.args], operands, numbers, sizes, domain)
    return [np.asarray(done[r]) for r in roots]


def _value(e: Expr, args: list[Any], operands: dict[Any, np.ndarray], numbers: tuple[float, ...], sizes: dict[str, int], domain: str) -> Any:
    if e.op == "operand":
        which, axes = e.value
        order = sorted(range(len(axes)), key=lambda i: domain.index(axes[i]))
        return operands[which].transpose(order).reshape([sizes[a] if a in axes else 1 for a in domain])
    if e.op == "scalar":
        return np.asarray(numbers[e.value], e.dtype.np)
    if e.op == "const":
        return np.asarray(e.value, e.dtype.np)
    if e.op == "extent":
        return np.asarray(sizes[e.value], e.dtype.np)
    if e.op == "index":
        return np.arange(sizes[e.value]).reshape([sizes[a] if a == e.value else 1 for a in domain])
    if e.op in ("fixed", "ruled"):
        return args[0]
    if e.op == "fold":
        how, axes = e.value
        along = tuple(domain.index(a) for a in axes)
        f = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}[how]
        full = np.broadcast_to(args[0], [max(n, sizes[a] if a in axes else 1) for n, a in zip(args[0].shape, domain, strict=True)])
        return f(full, along, keepdims=True)
    if e.op == "scan":
        _, axis, reverse = e.value
        at = domain.index(axis)
        return np.flip(np.cumsum(np.flip(args[0], at), at), at) if reverse else np.cumsum(args[0], at)
    return interpret.apply(e, args)


# ------------------------------------------------------------------------------------------------------------- launching
def run(made: Schedule, axes: list[str], types: list[dtype], prepare: Callable[..., Any], operands: dict[Any, np.ndarray], places: dict[Any, str],
        numbers: tuple[float, ...], sizes: dict[str, int], seen: list[Any] | None = None) -> list[np.ndarray] | None:
    """Carries out the steps with a target's `prepare`; gives the outputs, each over its axes, or None where the layouts do not fit."""
    arrays: dict[Any, np.ndarray] = {("operand", k): v for k, v in operands.items()}
    where = {("operand", k): a for k, a in places.items()}
    for k, (a, d) in enumerate(zip(axes, types, strict=True)):
        arrays["out", k], where["out", k] = np.full(shape_of(a, sizes), 7, d.np), a
    for k, (a, d) in enumerate(made.temps):
        arrays["temp", k], where["temp", k] = np.full(shape_of(a, sizes), 7, d.np), a
    layouts = {ref: {a: (s // x.itemsize,) for a, s in zip(where[ref], x.strides, strict=True)} for ref, x in arrays.items()}
    found = launches(made, {a: (n,) for a, n in sizes.items()}, layouts)
    if found is None:
        return None
    for one in found:
        passed = [numbers[v] if kind == "scalar" else sizes[v] for kind, v, _ in one.step.numbers]
        refs = (*one.step.outs, *one.step.ins)
        if seen is not None:
            seen.append((one, [arrays[r] for r in refs], passed))
        p = prepare(one.program, one.domain, one.strides)
        room = np.zeros(max(p.workspace, 1), np.uint8)
        p.entry(*[arrays[r].__array_interface__["data"][0] for r in refs], *([room.__array_interface__["data"][0]] if p.workspace else []),
                *[float(v) if d.kind == "f" else int(v) for v, (_, _, d) in zip(passed, one.step.numbers, strict=True)])
    return [arrays["out", k] for k in range(len(axes))]

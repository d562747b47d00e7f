"""Batch normalization: channels normalised over a batch, or by running statistics."""

from __future__ import annotations

from typing import Any

from ..autograd import tape
from ..kernels import expr as E
from ..kernels.programs import Reduce
from ..tensor import Tensor, alias, empty, meta, on_forget
from .casts import in_float32, to_dtype
from .checks import same_device
from .elementwise import Pointwise, saved_tensor
from .reductions import reduce
from .table import no_recording, op

_programs: dict[Any, Any] = {}


# -------------------------------------------------------------------------------------------------------- channels, groups
def _per_channel(t: Tensor, ndim: int) -> Tensor:
    return t.reshape((1, -1) + (1,) * (ndim - 2))


_NORMALISE = Pointwise("batch_norm", lambda x, m, r, w, b: (x - m) * r * w + b, 5)
_BATCH_BACK = Pointwise("batch_norm_backward", lambda g, x, m, r, w, sg, sgx, part: (g - sg * part - (x - m) * r * (sgx * part)) * (r * w), 7)
_RSTD = Pointwise("batch_norm_rstd", lambda square, n, eps: E.rsqrt(square / n + eps), 1)
_STATISTICS = Pointwise("batch_norm_statistics", lambda square, mean, rm, rv, n, eps, keep, take, unbiased: (
    E.rsqrt(square / n + eps), rm * keep + mean * take, rv * keep + square * (take / unbiased)), 4)
_columns: dict[Any, Any] = {}
on_forget(_columns.clear)


def _column(t: Tensor, ndim: int) -> Tensor:
    """`_per_channel` of a fresh or saved (C,) tensor, outside the tape: another layout on the same numbers."""
    m = t.meta
    found = _columns.get((m, ndim))
    if found is None:
        if len(m.shape) != 1:
            return _per_channel(t, ndim)
        found = _columns[m, ndim] = meta((1, m.numel, *(1,) * (ndim - 2)), (m.numel * m.strides[0], m.strides[0], *(1,) * (ndim - 2)), m.dtype, m.device)
    return alias(t, found, t.ptr)


def _channel_sums(ts: list[Tensor], key: str, elems: Any, mean: float = 0.0) -> list[Tensor]:
    """Sums over all axes but the second, one for each expression; divided by `mean` when that is given."""
    t = ts[0]
    d = t.meta.dtype
    types = tuple([x.meta.dtype for x in ts])
    program = _programs.get((key, d, types))
    if program is None:
        wide = d.opmath
        made = elems(*[E.cast(E.input(i, k), wide) for i, k in enumerate(types)])
        posts = [E.acc(i, wide) for i in range(len(made))]
        if mean:
            posts = [e / E.scalar(0, wide) for e in posts]
        program = _programs[key, d, types] = Reduce(made, ("sum",) * len(made), tuple(posts), types, (wide,) if mean else ())
    axes = tuple([i for i in range(len(t.meta.shape)) if i != 1])
    return reduce(t, axes, False, program, key, ts[1:], (mean,) if mean else ())


@op(method=False, spaces=("nn.functional",))
def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None, bias: Tensor | None = None,  # noqa: A002
               training: bool = False, momentum: float | None = 0.1, eps: float = 1e-05) -> Tensor:
    """Channels normalised over the batch (training) or by running statistics, which training moves by `momentum`.

    S. Ioffe and C. Szegedy, "Batch normalization", 2015.
    """
    same_device("batch_norm", input, running_mean, running_var, weight, bias)
    c = input.meta.shape[1] if len(input.meta.shape) > 1 else 0
    count = input.meta.numel // c if c else 0
    for label, t in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        if t is not None and t.meta.numel != c:
            raise RuntimeError(f"{label} should contain {c} elements not {t.meta.numel}")
    if len(input.meta.shape) < 2:
        if input.meta.shape != (0,):
            raise IndexError(f"batch_norm takes an input of at least 2 dimensions, (N, C, ...), but got one of shape {list(input.meta.shape)}")
        return input * 1  # nothing has no channels
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when training=False")
        return _applied(input, running_mean, (to_dtype(running_var, running_var.meta.dtype.opmath) + eps).rsqrt(), weight, bias)
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.meta.shape!r}")
    return _trained(input, weight, bias, running_mean, running_var, momentum, eps)[0]


@in_float32
def _applied(x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
    n = len(x.meta.shape)
    from .casts import to_dtype
    made: Tensor = _NORMALISE((x, _per_channel(to_dtype(mean, x.meta.dtype), n), _per_channel(to_dtype(rstd, x.meta.dtype), n),
                               1.0 if w is None else _per_channel(to_dtype(w, x.meta.dtype), n),
                               0.0 if b is None else _per_channel(to_dtype(b, x.meta.dtype), n)))
    return made


def _trained(x: Tensor, w: Tensor | None, b: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, momentum: float | None,
             eps: float) -> tuple[Tensor, Tensor, Tensor]:
    n, c = len(x.meta.shape), x.meta.shape[1]
    count = float(max(x.meta.numel // c if c else 0, 1))
    with no_recording():
        (mean,) = _channel_sums([x], "batch_mean", lambda v: (v,), count)
        (square,) = _channel_sums([x, _column(mean, n)], "batch_var", lambda v, m: ((v - m) * (v - m),))
        if running_mean is not None and running_var is not None and x.meta.numel:
            rstd = empty(mean.meta.shape, mean.meta.dtype, mean.meta.device)
            take = momentum or 0.0
            _STATISTICS.write((rstd, running_mean, running_var), (square, mean, running_mean, running_var),
                              (count, eps, 1.0 - take, take, max(count - 1.0, 1.0)))
        else:
            rstd = _RSTD((square,), (count, eps))
            for running, value in ((running_mean, mean), (running_var, square / max(count - 1.0, 1.0))):
                if running is not None and x.meta.numel:
                    running.mul_(1.0 - (momentum or 0.0)).add_(value.to(running.meta.dtype), alpha=momentum or 0.0)
        d = x.meta.dtype
        if mean.meta.dtype is d and all(t is None or (t.meta.dtype is d and len(t.meta.shape) == 1) for t in (w, b)):
            out = _NORMALISE((x, _column(mean, n), _column(rstd, n), 1.0 if w is None else _column(w, n), 0.0 if b is None else _column(b, n)))
        else:
            out = _applied(x, mean, rstd, w, b)
    out.node = None
    tape.record(out, _batch_back, (x, w, b), (x, x.store.version, w, b, mean, rstd, count, eps), "NativeBatchNormBackward0")
    return out, mean, rstd


def _batch_back(node: Any, g: Tensor) -> Any:
    from .elementwise import fit
    x, version, w, b, mean, rstd, count, eps = node[tape.SAVED]
    saved_tensor(x, version, node)
    ex, ew, eb = node[tape.EDGES]
    n = len(x.meta.shape)
    if tape.recording(g, x, w):
        axes = tuple(i for i in range(n) if i != 1)
        m = x.mean(axes, True)
        r = (((x - m) * (x - m)).mean(axes, True) + eps).rsqrt()
        hat = (x - m) * r
        gh = g if w is None else g * _per_channel(w, n)
        dx = r * (gh - gh.mean(axes, True) - hat * (gh * hat).mean(axes, True))
        return (dx if ex is not None else None, (g * hat).sum(axes).reshape(tuple(w.meta.shape)) if ew is not None else None,
                g.sum(axes).reshape(tuple(b.meta.shape)) if eb is not None else None)
    m, r = _column(mean, n), _column(rstd, n)
    sg, sgx = _channel_sums([g, x, m, r], "batch_back", lambda g, x, m, r: (g, g * ((x - m) * r)))
    gx = None
    if ex is not None:
        gx = _BATCH_BACK((g, x, m, r, 1.0 if w is None else _column(w, n), _column(sg, n), _column(sgx, n)), (1.0 / count,))
        gx = fit(gx, x.meta)
    return (gx, fit(sgx, w.meta) if ew is not None else None, fit(sg, b.meta) if eb is not None else None)


@op(method=False, out=True)
def native_batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,  # noqa: A002
                      training: bool, momentum: float, eps: float) -> Any:
    """`batch_norm` with the mean and reciprocal deviation it used (empty when not training)."""
    if training:
        out, mean, rstd = _trained(input, weight, bias, running_mean, running_var, momentum, eps)
        kind = input.meta.dtype if weight is None else weight.meta.dtype
        return out, to_dtype(mean, kind), to_dtype(rstd, kind)
    none = input.new_empty((0,))
    return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps), none, none

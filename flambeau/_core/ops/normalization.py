"""Normalizations: over the last axes (layer, RMS), over a batch, over groups of channels, over single images."""

from __future__ import annotations

from typing import Any

from .. import layout
from ..autograd import tape
from ..dtypes import dtype as dtype_class
from ..kernels import expr as E
from ..kernels.programs import Reduce, Rows
from ..tensor import Tensor, alias, empty, meta, on_forget
from . import launch
from .casts import in_float32, to_dtype
from .checks import same_device
from .copies import contiguous
from .elementwise import Pointwise, saved_tensor
from .reductions import reduce
from .table import no_recording, op

_programs: dict[Any, Any] = {}


def _flat(t: Tensor, rows: int, cols: int) -> Tensor:
    """The elements as a matrix, outside the tape."""
    if not t.meta.contiguous:
        t = contiguous(alias(t, t.meta, t.ptr))
    return alias(t, meta((rows, cols), None, t.meta.dtype, t.meta.device), t.ptr)


def _like(t: Tensor, m: Any) -> Tensor:
    """A contiguous tensor of our own in the shape of `m`; no view, so that it alone holds its memory."""
    return t if t.meta.shape == m.shape else alias(t, meta(m.shape, None, t.meta.dtype, t.meta.device), t.ptr)


def _vector(t: Tensor | None, like: Tensor, cols: int, value: float) -> Tensor:
    """A weight or bias as a row; a constant where there is none."""
    from .creation import full
    if t is None:
        one = full((1,), value, dtype=like.meta.dtype, device=like.meta.device)
        return alias(one, meta((cols,), (0,), like.meta.dtype, like.meta.device), one.ptr)
    if not t.meta.contiguous:
        t = contiguous(alias(t, t.meta, t.ptr))
    return alias(t, meta((cols,), None, t.meta.dtype, t.meta.device), t.ptr)


# ------------------------------------------------------------------------------------------------------------- layer norm
def _row_program(d: dtype_class, rms: bool) -> Rows:
    found = _programs.get(("rows", d, rms))
    if found is None:
        wide = d.opmath
        x, w, b = (E.cast(E.input(i, d), wide) for i in range(3))
        n, eps = E.scalar(0, wide), E.scalar(1, wide)
        if rms:
            rstd = E.rsqrt(E.acc(0, wide) / n + eps)
            stages: tuple[Any, ...] = (("reduce", "sum", x * x), ("row", 1, E.const(0, wide)), ("row", 2, rstd), ("map", 0, E.cast(x * rstd * w + b, d)))
        else:
            mean = E.acc(0, wide) / n
            rstd = E.rsqrt(E.acc(1, wide) / n + eps)
            stages = (("reduce", "sum", x), ("reduce", "sum", (x - mean) * (x - mean)), ("row", 1, mean), ("row", 2, rstd),
                      ("map", 0, E.cast((x - mean) * rstd * w + b, d)))
        found = _programs["rows", d, rms] = Rows(stages, (d, d, d), (wide, wide))
    return found


def _row_back_program(d: dtype_class, rms: bool) -> Rows:
    """dx = rstd (gw - mean(gw) - xhat mean(gw xhat)); without the middle term for RMS."""
    found = _programs.get(("back", d, rms))
    if found is None:
        wide = d.opmath
        g, x, w = (E.cast(E.input(i, d), wide) for i in range(3))
        mean, rstd, n = E.input(3, wide), E.input(4, wide), E.scalar(0, wide)
        hat, gw = (x - mean) * rstd, g * w
        if rms:
            out = rstd * (gw - hat * (E.acc(0, wide) / n))
            stages: tuple[Any, ...] = (("reduce", "sum", gw * hat), ("map", 0, E.cast(out, d)))
        else:
            out = rstd * (gw - E.acc(0, wide) / n - hat * (E.acc(1, wide) / n))
            stages = (("reduce", "sum", gw), ("reduce", "sum", gw * hat), ("map", 0, E.cast(out, d)))
        found = _programs["back", d, rms] = Rows(stages, (d, d, d, wide, wide), (wide,))
    return found


def _affine_program(d: dtype_class) -> Reduce:
    """Sums over rows of g xhat and of g."""
    found = _programs.get(("affine", d))
    if found is None:
        wide = d.opmath
        g, x, mean, rstd = E.cast(E.input(0, d), wide), E.cast(E.input(1, d), wide), E.input(2, wide), E.input(3, wide)
        found = _programs["affine", d] = Reduce((g * ((x - mean) * rstd), g), ("sum", "sum"),
                                                (E.cast(E.acc(0, wide), d), E.cast(E.acc(1, wide), d)), (d, d, wide, wide))
    return found


def _rows_forward(x: Tensor, rows: int, cols: int, w: Tensor | None, b: Tensor | None, eps: float, rms: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised tensor, the means and the reciprocal deviations of its rows; outside the tape."""
    d = x.meta.dtype
    out = empty(x.meta.shape, d, x.meta.device)
    mean, rstd = (empty((rows,), d.opmath, x.meta.device) for _ in range(2))
    if x.meta.numel:
        flat = alias(out, meta((rows, cols), None, d, x.meta.device), out.ptr)
        ww, bb = _vector(w, x, cols, 1.0), _vector(b, x, cols, 0.0)
        launch.run(_row_program(d, rms), (rows, cols), [flat, mean, rstd], [_flat(x, rows, cols), ww, bb],
                   [(cols, 1), (1, 0), (1, 0), (cols, 1), (0, ww.meta.strides[0]), (0, bb.meta.strides[0])], (float(cols), float(eps)),
                   "rms_norm" if rms else "layer_norm")
    return out, mean, rstd


def _rows_back(node: Any, g: Tensor) -> Any:
    x, vx, w, b, mean, rstd, rows, cols, eps, rms = node[tape.SAVED]
    saved_tensor(x, vx, node)
    ex, ew, eb = node[tape.EDGES]
    if tape.recording(g, x, w):
        return _composite_back(x, w, b, g, rows, cols, eps, rms, (ex, ew, eb))
    d = x.meta.dtype
    gf, xf = _flat(g, rows, cols), _flat(x, rows, cols)
    gx = gw = gb = None
    if ex is not None:
        gx = empty(x.meta.shape, d, x.meta.device)
        if x.meta.numel:
            ww = _vector(w, x, cols, 1.0)
            flat = alias(gx, meta((rows, cols), None, d, x.meta.device), gx.ptr)
            launch.run(_row_back_program(d, rms), (rows, cols), [flat], [gf, xf, ww, mean, rstd],
                       [(cols, 1), (cols, 1), (cols, 1), (0, ww.meta.strides[0]), (1, 0), (1, 0)], (float(cols),), "layer_norm_backward")
    if ew is not None or eb is not None:
        sums = [empty((cols,), d, x.meta.device) for _ in range(2)]
        launch.run(_affine_program(d), (cols, rows), sums, [gf, xf, mean, rstd], [(1,), (1,), (1, cols), (1, cols), (0, 1), (0, 1)],
                   name="layer_norm_affine")
        gw = _like(sums[0], w.meta) if ew is not None else None
        gb = _like(sums[1], b.meta) if eb is not None else None
    return gx, gw, gb


def _composite(x: Tensor, w: Tensor | None, b: Tensor | None, rows: int, cols: int, eps: float, rms: bool) -> Tensor:
    """The same in differentiable operations."""
    f = x.reshape(rows, cols)
    center = f if rms else f - f.mean(1, True)
    out = center * ((center * center).mean(1, True) + eps).rsqrt()
    if w is not None:
        out = out * w.reshape(-1)
    if b is not None:
        out = out + b.reshape(-1)
    return out.reshape(tuple(x.meta.shape))


def _composite_back(x: Tensor, w: Any, b: Any, g: Tensor, rows: int, cols: int, eps: float, rms: bool, edges: Any) -> Any:
    f, gf = x.reshape(rows, cols), g.reshape(rows, cols)
    center = f if rms else f - f.mean(1, True)
    rstd = ((center * center).mean(1, True) + eps).rsqrt()
    hat = center * rstd
    gh = gf if w is None else gf * w.reshape(-1)
    dx = rstd * (gh - hat * (gh * hat).mean(1, True)) if rms else rstd * (gh - gh.mean(1, True) - hat * (gh * hat).mean(1, True))
    return (dx.reshape(tuple(x.meta.shape)) if edges[0] is not None else None,
            (gf * hat).sum(0).reshape(tuple(w.meta.shape)) if edges[1] is not None else None,
            gf.sum(0).reshape(tuple(b.meta.shape)) if edges[2] is not None else None)


def _over_last(name: str, x: Tensor, shape: Any, w: Tensor | None, b: Tensor | None, eps: float, rms: bool) -> tuple[Tensor, Tensor, Tensor]:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    same_device(name, x, w, b)
    if not shape:
        raise RuntimeError(f"Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got normalized_shape = "
                           f"{list(shape)}")
    for label, t in (("weight", w), ("bias", b)):
        if t is not None and tuple(t.meta.shape) != shape:
            raise RuntimeError(f"Expected {label} to be of same shape as normalized_shape, but got {label} of shape {list(t.meta.shape)} and "
                               f"normalized_shape = {list(shape)}")
    if tuple(x.meta.shape[len(x.meta.shape) - len(shape):]) != shape:
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape [{', '.join(['*', *map(str, shape)])}], but got input of "
                           f"size{list(x.meta.shape)}")
    if x.meta.dtype.kind != "f":
        raise NotImplementedError(f'"LayerNormKernelImpl" not implemented for \'{x.meta.dtype.name.capitalize()}\'')
    cols = layout.numel(shape)
    rows = x.meta.numel // cols if cols else layout.numel(x.meta.shape[:len(x.meta.shape) - len(shape)])
    if any(t is not None and t.meta.dtype is not x.meta.dtype for t in (w, b)):
        made = _composite(x, w, b, rows, cols, eps, rms)
        return made, made, made
    out, mean, rstd = _rows_forward(x, rows, cols, w, b, eps, rms)
    tape.record(out, _rows_back, (x, w, b), (x, x.store.version, w, b, mean, rstd, rows, cols, eps, rms), "NativeLayerNormBackward0")
    return out, mean, rstd


@op(method=False, spaces=("torch", "nn.functional"))
def layer_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05,  # noqa: A002
               cudnn_enable: bool = True) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes. J. L. Ba et al., "Layer normalization", 2016."""
    return _over_last("layer_norm", input, normalized_shape, weight, bias, eps, False)[0]


@op(method=False)
def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:  # noqa: A002
    """`layer_norm` with the means and reciprocal deviations it used."""
    out, mean, rstd = _over_last("native_layer_norm", input, normalized_shape, weight, bias, eps, False)
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    kept = (*input.meta.shape[:len(input.meta.shape) - len(shape)], *(1,) * len(shape))
    return out, to_dtype(mean.reshape(kept), input.meta.dtype), to_dtype(rstd.reshape(kept), input.meta.dtype)


@op(method=False, spaces=("torch", "nn.functional"))
def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:  # noqa: A002
    """x / sqrt(mean(x^2) + eps) * weight over the last axes. B. Zhang and R. Sennrich, 2019."""
    from ..dtypes import finfo
    if input.meta.dtype.is_complex:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        axes = tuple(range(-len(shape), 0))
        made = input * ((input * input).mean(axes, True) + (finfo(input.meta.dtype).eps if eps is None else eps)).rsqrt()
        return made if weight is None else made * weight
    return _over_last("rms_norm", input, normalized_shape, weight, None, finfo(input.meta.dtype).eps if eps is None else eps, True)[0]


# -------------------------------------------------------------------------------------------------------- channels, groups
def _per_channel(t: Tensor, ndim: int) -> Tensor:
    return t.reshape((1, -1) + (1,) * (ndim - 2))


@op(method=False, spaces=("torch", "nn.functional"))
@in_float32
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05,  # noqa: A002
               cudnn_enabled: bool = True) -> Tensor:
    """Each group of channels of each image normalised. Y. Wu and K. He, "Group normalization", 2018."""
    if len(input.meta.shape) < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {len(input.meta.shape)}")
    n, c = input.meta.shape[:2]
    if num_groups <= 0 or c % num_groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, but got input of shape {list(input.meta.shape)} and "
                           f"num_groups={num_groups}")
    for label, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.meta.shape) != (c,):
            raise RuntimeError(f"Expected {label} to be a vector of size equal to the number of channels in input, but got {label} of shape "
                               f"{list(t.meta.shape)} and input of shape {list(input.meta.shape)}")
    cols = layout.numel(input.meta.shape[1:]) // num_groups
    out = _over_last("group_norm", input.reshape(n * num_groups, cols), cols, None, None, eps, False)[0].reshape(tuple(input.meta.shape)) if (
        input.meta.numel) else input * 1
    if weight is not None:
        out = out * _per_channel(weight, len(input.meta.shape))
    return out + _per_channel(bias, len(input.meta.shape)) if bias is not None else out


@op(method=False)
def native_group_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float) -> Any:  # noqa: A002
    """`group_norm` with the mean and reciprocal deviation of each group."""
    flat = input.reshape(N, group, C * HxW // group if group else 0)
    mean = flat.mean(2)
    rstd = (flat.var(2, correction=0) + eps).rsqrt()
    return group_norm(input, group, weight, bias, eps), mean, rstd


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


@op(method=False, spaces=("nn.functional",))
def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,  # noqa: A002
                  bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-05) -> Tensor:
    """Each channel of each image normalised. D. Ulyanov et al., "Instance normalization", 2016."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    n, c = input.meta.shape[:2]
    size = layout.numel(input.meta.shape[2:])
    if size == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.meta.shape!r}")
    if running_mean is not None or running_var is not None:
        with no_recording():
            flat = input.detach().reshape(n, c, size)
            for running, value in ((running_mean, flat.mean(2).mean(0)), (running_var, flat.var(2).mean(0))):
                if running is not None:
                    running.mul_(1.0 - momentum).add_(value.to(running.meta.dtype), alpha=momentum)
    return group_norm(input, c, weight, bias, eps)

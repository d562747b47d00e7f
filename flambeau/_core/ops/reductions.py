"""Reductions: sums, products, means, truths, norms.  Each is one Reduce program over the axes asked for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .. import dtypes, hooks, layout
from ..autograd import tape
from ..autograd.mode import _grad
from ..dtypes import bool_, int64
from ..dtypes import dtype as dtype_class
from ..kernels import expr as E
from ..kernels.programs import Reduce
from ..runtime import door
from ..tensor import Tensor, alias, empty, meta, new, on_forget, storage
from . import launch
from .casts import in_float32, to_dtype
from .elementwise import Pointwise, saved_tensor
from .table import op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..tensor import Meta

_programs: dict[Any, Reduce] = {}


def axes_of(t: Tensor, dim: Any) -> tuple[int, ...]:
    """The axes a `dim` argument means; all of them for None and for an empty list."""
    if dim is None:
        return tuple(range(len(t.meta.shape)))
    return layout.wrap_dims(dim, len(t.meta.shape))


def kept_shape(shape: Sequence[int], axes: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def split_domain(t: Tensor, axes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], list[int]]:
    """The domain (kept axes, then reduced ones), t's strides over it, and the kept axes."""
    kept = [i for i in range(len(t.meta.shape)) if i not in axes]
    order = (*kept, *axes)
    return tuple(t.meta.shape[i] for i in order), tuple(t.meta.strides[i] for i in order), kept


_plans: dict[Any, tuple[tuple[Meta, ...], Callable[..., Any], Meta | None]] = {}
_sums: dict[Meta, dict[Any, Any]] = {}
_spreads: dict[Any, Meta] = {}
on_forget(_spreads.clear)
for _known in (_plans, _sums):
    on_forget(_known.clear)
    door.on_change(_known.clear)


def _alone(t: Tensor, axes: tuple[int, ...], keepdim: bool, program: Reduce, name: str) -> tuple[tuple[Meta, ...], Callable[..., Any], Meta | None]:
    """The layouts of the results of a Reduce of `t` alone, its launch and the layout of its workspace."""
    key = (t.meta, axes, keepdim, program, name)
    found = _plans.get(key)
    if found is None:
        domain, strides, kept = split_domain(t, axes)
        flat = layout.contiguous_strides(tuple(t.meta.shape[i] for i in kept))
        call, workspace = launch.plan(t.meta.device, program, domain, [flat] * len(program.out_types) + [strides], name)
        if len(_plans) > 1 << 14:
            _plans.clear()
        shape = kept_shape(t.meta.shape, axes, keepdim)
        found = _plans[key] = tuple(meta(shape, None, d, t.meta.device) for d in program.out_types), call, workspace
    return found


def reduce(t: Tensor, axes: tuple[int, ...], keepdim: bool, program: Reduce, name: str, others: Sequence[Tensor] = (),
           numbers: Sequence[Any] = ()) -> list[Tensor]:
    """Runs a Reduce over `axes` of `t`; `others` are further inputs, broadcast to t's shape.  Outside the tape."""
    if not others and t.meta.numel:
        metas, call, workspace = _alone(t, axes, keepdim, program, name)
        made = [new(m) for m in metas]
        scratch = [] if workspace is None else [launch.storage(workspace)]  # held until the launch is queued
        call(*[x.ptr for x in made], t.ptr, *[s.ptr for s in scratch], *numbers)
        return made
    domain, strides, kept = split_domain(t, axes)
    inner = tuple(t.meta.shape[i] for i in kept)
    outs = [empty(kept_shape(t.meta.shape, axes, keepdim), d, t.meta.device) for d in program.out_types]
    flat = layout.contiguous_strides(inner)
    all_strides = [flat] * len(outs) + [strides]
    order = (*kept, *axes)
    for x in others:
        st = layout.expand_strides(x.meta.shape, x.meta.strides, t.meta.shape)
        all_strides.append(tuple(st[i] for i in order))
    if outs[0].meta.numel:
        launch.run(program, domain, outs, [t, *others], all_strides, numbers, name)
    return outs


def _program(name: str, key: Any, build: Callable[[], Reduce]) -> Reduce:
    found = _programs.get((name, key))
    if found is None:
        found = _programs[name, key] = build()
    return found


def simple(name: str, source: dtype_class, wide: dtype_class, result: dtype_class, how: str, elem: Any = None, post: Any = None) -> Reduce:
    """One accumulator in type `wide`, of `elem` of each element, finished by `post`, stored as `result`."""
    def build() -> Reduce:
        x = E.cast(E.input(0, source), wide)
        e = x if elem is None else elem(x)
        a = E.acc(0, e.dtype)
        return Reduce((e,), (how,), (E.cast(a if post is None else post(a), result),), (source,))
    return _program(name, (source, wide, result), build)


# ------------------------------------------------------------------------------------------------------------------ sums
def _sum_type(t: Tensor, dtype: dtype_class | None) -> dtype_class:
    if dtype is not None:
        return dtype
    return int64 if t.meta.dtype.kind in "bui" else t.meta.dtype


@tape.keeps_nothing
def _sum_back(node: Any, g: Tensor) -> Any:
    shape, axes, keepdim, d = node[tape.SAVED]
    return (spread(to_dtype(g, d), shape, axes, keepdim),)


def spread(g: Tensor, shape: Sequence[int], axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """The reduced tensor repeated over the axes it lost."""
    if not _grad.get():  # outside the tape a bare alias will do
        key = (g.meta, shape, axes, keepdim)
        found = _spreads.get(key)
        if found is None:
            strides = list(g.meta.strides)
            for a in sorted(axes):
                if keepdim:
                    strides[a] = 0
                else:
                    strides.insert(a, 0)
            if len(_spreads) > 4096:
                _spreads.clear()
            found = _spreads[key] = meta(tuple(shape), tuple(strides), g.meta.dtype, g.meta.device)
        return alias(g, found, g.ptr)
    if not keepdim:
        for a in sorted(axes):
            g = g.unsqueeze(a)
    return g.expand(tuple(shape))


@op(out=True)
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A001, A002
    """The sum over `dim` (an axis, several, or all); integers sum in int64, half types in float32 rounded once."""
    try:
        (om,), launched, workspace, saved, name = _sums[input.meta][dim, type(dim), keepdim, dtype]
    except (KeyError, TypeError, AttributeError):  # not met yet, a list of axes, or no tensor
        return _first_sum(input, dim, keepdim, dtype)
    r = new(om)
    if workspace is None:
        launched(r.ptr, input.ptr)
    else:
        scratch = launch.storage(workspace)
        launched(r.ptr, input.ptr, scratch.ptr)
    if input.node is not None and _grad.get():
        r.node = [tape.next_seq(), None, _sum_back, (input.node,), saved, {"name": name}]
        if tape.anomaly.on:
            tape.anomaly.note(r.node)
    return r


def _first_sum(input: Tensor, dim: Any, keepdim: bool, dtype: Any) -> Tensor:  # noqa: A002
    axes = axes_of(input, dim)
    result = _sum_type(input, dtype)
    if result.is_complex and not input.meta.dtype.is_complex:
        input = to_dtype(input, result)
    program = simple("sum", input.meta.dtype, result.opmath, result, "sum")
    out = reduce(input, axes, keepdim, program, "sum")[0]
    saved, name = (tuple(input.meta.shape), axes, keepdim, input.meta.dtype), "SumBackward1" if dim is not None else "SumBackward0"
    if type(dim) in (int, tuple, type(None)) and input.meta.numel:
        _sums.setdefault(input.meta, {})[dim, type(dim), keepdim, dtype] = (*_alone(input, axes, keepdim, program, "sum"), saved, name)
    return tape.record(out, _sum_back, (input,), saved, name)


def sum_to(g: Tensor, shape: Sequence[int]) -> Tensor:
    """`g` summed over the axes along which `shape` was broadcast to it.  Differentiable."""
    if not tape.recording(g):
        plan = _to_shape.get((g.meta, shape), 0)
        if plan:
            om, call, room = plan
            r = new(om)
            if room is None:
                call(r.ptr, g.ptr)
            else:
                work = storage(room)
                call(r.ptr, g.ptr, work.ptr)
            return r
    have = tuple(g.meta.shape)
    wanted, shape = shape, tuple(shape)
    if have == shape:
        return g
    pad = len(have) - len(shape)
    axes = tuple(i for i, d in enumerate(have) if i < pad or (shape[i - pad] == 1 and d != 1))
    if not tape.recording(g) and g.meta.numel and axes and (g.meta, wanted) not in _to_shape:
        plan = _to_shape[g.meta, wanted] = _plan_to_shape(g, shape, axes)
        if plan is not None:
            return sum_to(g, wanted)
    out: Tensor = sum(g, axes, True) if axes else g
    return out.reshape(shape) if tuple(out.meta.shape) != shape else out


_to_shape: dict[Any, Any] = {}
on_forget(_to_shape.clear)
door.on_change(_to_shape.clear)


def _plan_to_shape(g: Tensor, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """The launch of a sum of this kind, ready to call: (the result's meta, the launch, the meta of its workspace)."""
    m = g.meta
    d = m.dtype
    if d.kind not in "fc":
        return None
    domain, strides, kept = split_domain(g, axes)
    flat = layout.contiguous_strides(tuple(m.shape[i] for i in kept))
    prepared = door.prepare(m.device, simple("sum", d, d.opmath, d, "sum"), domain, (flat, strides))
    prepared.name = "sum"
    if len(_to_shape) > 4096:
        _to_shape.clear()
    room = meta((prepared.workspace,), None, dtypes.uint8, m.device) if prepared.workspace else None
    return meta(shape, None, d, m.device), door.bind(m.device, prepared), room


@op()
def sum_to_size(input: Tensor, *size: Any) -> Tensor:  # noqa: A002
    """The sum over the axes that a tensor of `size` would be broadcast along."""
    from .views import sizes_of
    shape = sizes_of("sum_to_size", size)
    try:
        ok = layout.broadcast_shapes(shape, input.meta.shape) == tuple(input.meta.shape)
    except RuntimeError:
        ok = False
    if not ok:
        raise RuntimeError(f"size {{{list(shape)}}} is not expandable to size {{{list(input.meta.shape)}}}.")
    if not shape:
        return input.sum()
    return sum_to(input, shape)


@op(out=True)
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A002
    """The sum of what is not NaN."""
    clean = input if input.meta.dtype.kind != "f" else input.masked_fill(input.isnan(), 0.0)
    return sum(clean, dim, keepdim, dtype=dtype)


@op(out=True)
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A002
    """The arithmetic mean over `dim`; NaN for no elements.  Raises RuntimeError for integers without dtype."""
    result = input.meta.dtype if dtype is None else dtype
    if result.kind not in "fc":
        raise RuntimeError(f"mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: "
                           f"{result.name.capitalize() if result is not int64 else 'Long'}")
    axes = axes_of(input, dim)
    if result.is_complex != input.meta.dtype.is_complex:
        input = to_dtype(input, result)
    count = layout.numel([input.meta.shape[a] for a in axes])
    wide = result.opmath

    def build() -> Reduce:
        x = E.cast(E.input(0, input.meta.dtype), wide)
        a = E.acc(0, wide)
        n = E.scalar(0, wide.to_real())
        return Reduce((x,), ("sum",), (E.cast(a / (E.complex_(n, 0.0) if wide.is_complex else n), result),), (input.meta.dtype,),
                      (wide.to_real(),))
    out = reduce(input, axes, keepdim, _program("mean", (input.meta.dtype, result), build), "mean", numbers=(float(count),))[0]
    return tape.record(out, _mean_back, (input,), (tuple(input.meta.shape), axes, keepdim, input.meta.dtype, count), "MeanBackward1" if
                       dim is not None else "MeanBackward0")


@tape.keeps_nothing
def _mean_back(node: Any, g: Tensor) -> Any:
    shape, axes, keepdim, d, count = node[tape.SAVED]
    return (spread(to_dtype(g, d) / max(count, 1), shape, axes, keepdim),)


@op(out=True)
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A002
    """The mean of what is not NaN."""
    return nansum(input, dim, keepdim, dtype=dtype) / sum(~input.isnan(), dim, keepdim)


@op(out=True)
def prod(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A002
    """The product over one axis or all."""
    axes = axes_of(input, dim)
    result = _sum_type(input, dtype)
    if result.is_complex:
        input = to_dtype(input, result)
    out = reduce(input, axes, keepdim, simple("prod", input.meta.dtype, result.opmath, result, "prod"), "prod")[0]
    return tape.record(out, _prod_back, (input,), (input, input.store.version, axes, keepdim, result), "ProdBackward0")


def _prod_back(node: Any, g: Tensor) -> Any:
    """The gradient of element i is the product of the others: exclusive products from both sides, exact with zeros."""
    x, version, axes, keepdim, result = node[tape.SAVED]
    x = to_dtype(saved_tensor(x, version, node), result)
    if not x.meta.shape:
        return (g,)
    order = [i for i in range(len(x.meta.shape)) if i not in axes] + list(axes)
    kept = len(order) - len(axes)
    flat = x.permute(order).reshape(*[x.meta.shape[i] for i in order[:kept]], -1)
    n = flat.meta.shape[-1]
    if n == 0:
        return (x * 0,)
    one = flat.narrow(-1, 0, 1) * 0 + 1
    left = _joined([one, flat.narrow(-1, 0, n - 1)]).cumprod(-1)
    right = _joined([flat.narrow(-1, 1, n - 1), one]).flip(-1).cumprod(-1).flip(-1)
    others = (left * right).conj()
    full = others.reshape([x.meta.shape[i] for i in order]).permute(sorted(range(len(order)), key=order.__getitem__))
    return (spread(g, x.meta.shape, axes, keepdim) * full,)


def _joined(parts: list[Tensor]) -> Tensor:
    from .joining import cat
    made: Tensor = cat(parts, -1)
    return made


# ---------------------------------------------------------------------------------------------------------------- truths
def _truth(name: str, how: str) -> Any:
    def function(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:  # noqa: A002
        result = dtypes.uint8 if input.meta.dtype is dtypes.uint8 else bool_
        axes = axes_of(input, dim)

        def build() -> Reduce:
            x = E.input(0, input.meta.dtype)
            e = (E.real(x) != 0) | (E.imag(x) != 0) if x.dtype.is_complex else E.cast(x, bool_)
            return Reduce((e,), (how,), (E.cast(E.acc(0, bool_), result),), (input.meta.dtype,))
        return reduce(input, axes, keepdim, _program(name, (input.meta.dtype, result), build), name)[0]
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Whether {name} elements along `dim` are true."
    return op(out=True)(function)


all, any = _truth("all", "and"), _truth("any", "or")  # noqa: A001


@op()
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:  # noqa: A002
    """How many elements are not 0."""
    return sum(input != 0, dim)


# -------------------------------------------------------------------------------------------------------------- variance
def _moments(t: Tensor, dim: Any, correction: Any, keepdim: bool) -> tuple[Tensor, Tensor, tuple[int, ...], float]:
    """The mean (kept axes of size 1), and the sum of squared deviations over n - correction: two launches, no cancellation."""
    axes = axes_of(t, dim)
    count = layout.numel([t.meta.shape[a] for a in axes])
    center = mean(t, axes if axes else (), True) if axes else t
    d, wide = t.meta.dtype, t.meta.dtype.opmath.to_real()
    divisor = max(0.0, count - correction)

    def build() -> Reduce:
        x = E.cast(E.input(0, d), d.opmath) - E.cast(E.input(1, d), d.opmath)
        e = E.real(x) * E.real(x) + E.imag(x) * E.imag(x) if d.is_complex else x * x
        return Reduce((e,), ("sum",), (E.cast(E.acc(0, wide) / E.scalar(0, wide), d.to_real()),), (d, d), (wide,))
    out = reduce(t, axes, keepdim, _program("var", d, build), "var", [center], (divisor,))[0]
    return out, center, axes, divisor


def _var_args(dim: Any, unbiased: Any, correction: Any) -> tuple[Any, Any]:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    return dim, correction


@op(out=True)
def var(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Tensor:  # noqa: A002
    """The variance over `dim`, the sum of squared deviations divided by n - correction (1 by default)."""
    if input.meta.dtype.kind not in "fc":
        raise RuntimeError("std and var only support floating point and complex dtypes")
    dim, correction = _var_args(dim, unbiased, correction)
    if tape.recording(input):
        # recorded through differentiable operations: the mean's own gradient vanishes, but not in second derivatives
        axes = axes_of(input, dim)
        count = layout.numel([input.meta.shape[a] for a in axes])
        with_grad = input - mean(input, axes, True) if axes else input - input
        square = with_grad * with_grad if not input.meta.dtype.is_complex else (with_grad * with_grad.conj()).real
        total = sum(square, axes, keepdim) if axes else square
        divisor = max(0.0, count - correction)
        return total / divisor if divisor else total * math.nan
    return _moments(input, dim, correction, keepdim)[0]


@op(out=True)
@in_float32
def std(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Tensor:  # noqa: A002
    """The square root of `var`."""
    v: Tensor = var(input, dim, unbiased, keepdim, correction=correction)
    return _safe_sqrt(v)


# the deviation of equal numbers is 0, and there its gradient is taken as 0
_SQRT_AT_ZERO = Pointwise("std", E.sqrt, 1, grad=lambda g, x, y: E.where(y == 0.0, E.const(0, g.dtype), g / (y * 2.0)), accept="f")


def _safe_sqrt(v: Tensor) -> Tensor:
    made: Tensor = _SQRT_AT_ZERO((v,))
    return made


@op(method=False)
def var_mean(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:  # noqa: A002
    """`var` and `mean`."""
    dim, correction = _var_args(dim, unbiased, correction)
    return var(input, dim, None, keepdim, correction=correction), mean(input, dim, keepdim)


@op(method=False)
def std_mean(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:  # noqa: A002
    """`std` and `mean`."""
    dim, correction = _var_args(dim, unbiased, correction)
    return std(input, dim, None, keepdim, correction=correction), mean(input, dim, keepdim)


# ----------------------------------------------------------------------------------------------------------------- norms
def norm_program(d: dtype_class, p: float, result: dtype_class) -> Reduce:
    wide = result.opmath

    def build() -> Reduce:
        x = E.input(0, d)
        size = abs(E.cast(x, d.opmath)) if d.kind in "fc" else E.cast(abs(x) if d.kind == "i" else x, wide)
        size = E.cast(size, wide)
        if p == math.inf or p == -math.inf:
            return Reduce((size,), ("max" if p > 0 else "min",), (E.cast(E.acc(0, wide), result),), (d,))
        if p == 0:
            return Reduce((E.cast(size != 0.0, wide),), ("sum",), (E.cast(E.acc(0, wide), result),), (d,))
        e = size if p == 1 else size * size if p == 2 else E.pow_(size, p)
        a = E.acc(0, wide)
        root = a if p == 1 else E.sqrt(a) if p == 2 else E.pow_(a, 1.0 / p)
        return Reduce((e,), ("sum",), (E.cast(root, result),), (d,))
    return _program("norm", (d, p, result), build)


@op(method=False, out=True, spaces=("linalg",))
def vector_norm(input: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A002
    """The p-norm of the elements along `dim`, all of them as one vector by default."""
    if input.meta.dtype.kind not in "fc":
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {input.meta.dtype.name.capitalize()}")
    axes = axes_of(input, dim)
    p = float(ord)
    if dtype is not None:
        input = to_dtype(input, dtype)
    result = input.meta.dtype.to_real()
    if layout.numel([input.meta.shape[a] for a in axes]) == 0 and (p < 0 or p == math.inf):
        raise RuntimeError(f"linalg.vector_norm cannot compute the {p} norm on an empty tensor because the operation does not have an "
                           "identity")
    out = reduce(input, axes, keepdim, norm_program(input.meta.dtype, p, result), "norm")[0]
    own = alias(out, out.meta, out.ptr)
    return tape.record(out, _norm_back, (input,), (input, input.store.version, own, p, axes, keepdim), "LinalgVectorNormBackward0")


def _norm_back(node: Any, g: Tensor) -> Any:
    from .creation import zeros_like
    x, version, own, p, axes, keepdim = node[tape.SAVED]
    saved_tensor(x, version, node)
    own = alias(own, own.meta, own.ptr)
    own.node = node
    n, g = spread(own, x.meta.shape, axes, keepdim), spread(g, x.meta.shape, axes, keepdim)
    if p == 0:
        return (zeros_like(x),)
    sign = x.sgn()
    if p == 1:
        return (sign * g,)
    if p == 2:
        return ((x / n.masked_fill(n == 0, 1.0)) * g,)
    if math.isinf(p):
        hit = (x.abs() == n)
        share = sum(hit, axes, True).to(g.meta.dtype)
        return (sign * (hit * (g / share)),)
    size = x.abs()
    body = size.pow(p - 1)
    if p < 1:
        body = body.masked_fill(size == 0, 0.0)
    scale = (g / n.masked_fill(n == 0, 1.0).pow(p - 1)).masked_fill(n == 0, 0.0)
    return (sign * body * scale,)


@op(out=True)
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:  # noqa: A002
    """The p-norm over `dim`; "fro" is the 2-norm, "nuc" the sum of singular values."""
    if p == "nuc":
        from .linalg.singular import values_of
        dims = (-2, -1) if dim is None else dim
        values: Tensor = values_of("linalg.svd", input.movedim(dims, (-2, -1))).sum(-1)
        return values
    if dtype is not None:
        input = to_dtype(input, dtype)
    if input.meta.dtype.kind not in "fc":
        raise RuntimeError(f"norm(): input dtype should be either floating point or complex. Got {input.meta.dtype.name.capitalize()} instead.")
    return vector_norm(input, 2.0 if p in ("fro", None) else p, dim, keepdim)


@op()
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:  # noqa: A002
    """The p-norm of input - other."""
    return norm(input - other, p)


# ------------------------------------------------------------------------------------------------------------- logsumexp
@op(out=True, aliases=("special.logsumexp",))
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:  # noqa: A002
    """log(sum(exp(input))) over `dim`, without overflow: the maximum first, then the sum of what is left."""
    if input.meta.dtype.kind in "bui":
        input = to_dtype(input, dtypes.get_default_dtype())
    axes = axes_of(input, dim)
    d, wide = input.meta.dtype, input.meta.dtype.opmath
    if d.is_complex:
        from .complexes import real
        top = real(input.detach())
        for a in axes:
            top = top.amax(a, True) if top.meta.numel else top.sum(a, True)
        top = top.masked_fill(top.abs() == math.inf, 0.0)
        made: Tensor = sum((input - top).exp(), dim, keepdim).log() + top.reshape(kept_shape(input.meta.shape, axes, keepdim))
        return made
    top = reduce(input, axes, True, simple("finite max", d, wide, d, "max", None, lambda a: E.where(
        abs(a) == math.inf, E.const(0, a.dtype), a)), "max")[0] if layout.numel([input.meta.shape[a] for a in axes]) else input.new_zeros(
            kept_shape(input.meta.shape, axes, True))

    def build() -> Reduce:
        e = E.exp(E.cast(E.input(0, d), wide) - E.cast(E.input(1, d), wide))
        return Reduce((e,), ("sum",), (E.log(E.acc(0, wide)),), (d, d))
    logs = reduce(input, axes, True, _program("logsumexp", d, build), "logsumexp", [top])[0]
    from ..autograd.mode import _grad
    token = _grad.set(False)
    try:
        out = to_dtype(logs + top, d).reshape(kept_shape(input.meta.shape, axes, keepdim))
    finally:
        _grad.reset(token)
    out = alias(out, out.meta, out.ptr)
    return tape.record(out, _logsumexp_back, (input,), (input, input.store.version, alias(out, out.meta, out.ptr), axes, keepdim), "LogsumexpBackward0")


def _logsumexp_back(node: Any, g: Tensor) -> Any:
    x, version, own, axes, keepdim = node[tape.SAVED]
    saved_tensor(x, version, node)
    own = alias(own, own.meta, own.ptr)
    own.node = node
    lse = spread(own, x.meta.shape, axes, keepdim)
    return (spread(g, x.meta.shape, axes, keepdim) * (x - lse.masked_fill(lse.abs() == math.inf, 0.0)).exp(),)


# ----------------------------------------------------------------------------------------------------------- comparisons
@op()
def equal(input: Tensor, other: Tensor) -> bool:  # noqa: A002
    """Whether two tensors have one shape and equal elements."""
    from .checks import same_device
    same_device("equal", input, other)
    return input.meta.shape == other.meta.shape and bool(all(input == other))


@op()
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:  # noqa: A002
    """Whether all |input - other| <= atol + rtol * |other|."""
    if input.meta.dtype is not other.meta.dtype:
        raise RuntimeError(f"{input.meta.dtype.name.capitalize()} did not match {other.meta.dtype.name.capitalize()}")
    return bool(all(input.isclose(other, rtol=rtol, atol=atol, equal_nan=equal_nan)))


@op(out=True)
def trace(input: Tensor) -> Tensor:  # noqa: A002
    """The sum of a matrix's diagonal."""
    if len(input.meta.shape) != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {len(input.meta.shape)}")
    return sum(input.diagonal())



hooks.provide(sum_to=sum_to)

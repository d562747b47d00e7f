"""Running sums, products, extremes and log-sum-exps along an axis."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes, layout
from ..autograd import tape
from ..dtypes import dtype as dtype_class
from ..dtypes import int64
from ..engine.fields import has
from ..kernels import expr as E
from ..kernels import formulas as F
from ..kernels.programs import Scan
from ..tensor import Tensor, empty
from . import launch
from .casts import to_dtype
from .checks import may_record, of_kinds
from .reductions import in_integers
from .results import named
from .row_places import elements
from .rowwise import Rowwise
from .table import op

_programs: dict[Any, Scan] = {}
_RESULTS = {n: named(n, "values indices") for n in ("cummax", "cummin")}


def _scan(t: Tensor, axis: int, how: str, result: dtype_class, reverse: bool = False) -> list[Tensor]:
    """One Scan program along `axis`; max and min give positions too."""
    wide = dtypes.float64 if how in ("prod", "logsumexp") and _in_double(t, result) else result.opmath
    key = (t.meta.dtype, how, result, reverse, wide)
    program = _programs.get(key)
    if program is None:
        e = E.cast(E.input(0, t.meta.dtype), wide)
        posts: tuple[E.Expr, ...] = (E.cast(E.acc(0, wide), result),)
        if how in ("max", "min"):
            posts += (E.acc(1, int64),)
        program = _programs[key] = Scan(e, how, posts, (t.meta.dtype,), (), reverse)
    outs = [empty(t.meta.shape, d, t.meta.device) for d in program.out_types]
    if not t.meta.numel:
        return outs
    order = [i for i in range(len(t.meta.shape)) if i != axis] + ([axis] if t.meta.shape else [])
    domain = tuple(t.meta.shape[i] for i in order) if order else (1,)

    def over(x: Tensor) -> tuple[int, ...]:
        return tuple(x.meta.strides[i] for i in order) if order else (1,)
    launch.run(program, domain, outs, [t], [over(x) for x in (*outs, t)], name=f"cum{how}")
    return outs


def _axis(t: Tensor, dim: int) -> int:
    return layout.wrap_dim(dim, len(t.meta.shape))


def _result(t: Tensor, dtype: Any) -> dtype_class:
    found: dtype_class = dtype if dtype is not None else int64 if t.meta.dtype.kind in "bui" else t.meta.dtype
    return found


def _by_parts(t: Tensor, dim: int) -> Tensor:
    """A complex running sum is that of its parts."""
    from .complexes import complex_, imag, real
    made: Tensor = complex_(cumsum(real(t), dim), cumsum(imag(t), dim))
    return made


@op(inplace=True, out=True, autocast="cuda full", batch="along -1", tangent="linear", out_type="any", out_apart="but itself")
def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:  # noqa: A002
    """The running sum along `dim`; integers in int64."""
    axis, result = _axis(input, dim), _result(input, dtype)
    if result.kind in "bui" and input.meta.dtype.kind in "fc":
        input = in_integers("cumsum", input, result)  # noqa: A001
    if result.is_complex:
        return _by_parts(to_dtype(input, result), axis)
    return _running(to_dtype(input, result) if input.meta.dtype.is_complex else input, axis, False, result)


def _sum(x: E.Expr, reverse: bool, wide: bool = False) -> Any:
    if not wide:
        return (F.scan("sum", x, "c", reverse),), ()
    return (E.cast(F.scan("sum", E.cast(x, dtypes.float64), "c", reverse), x.dtype),), ()


CUMSUM = Rowwise("cumsum", "rc -> rc", _sum, elements)


def _running(t: Tensor, axis: int, reverse: bool, result: dtype_class | None = None) -> Tensor:
    """A running sum from either end.  Differentiable."""
    if t.meta.dtype.is_complex:
        return cumsum(t.flip(axis), axis).flip(axis) if reverse else cumsum(t, axis)
    return CUMSUM((t,), where=((axis,) if t.meta.shape else (),), consts=(("reverse", reverse), ("wide", _in_double(t, result))),
                  result=result)[0]


def _in_double(t: Tensor, result: dtype_class | None) -> bool:
    """Whether float32 is summed in float64, as PyTorch does on the CPU: each running sum is rounded once, however long the row.  On a simulated GPU,
    whose bits are the CPU's, too; not on a real one."""
    if (t.meta.dtype if result is None else result) is not dtypes.float32:
        return False
    if t.meta.device.type != "cuda":
        return True
    from ..runtime import gpus
    return gpus.gpu(t.meta.device).driver.simulated


@op(inplace=True, out=True, autocast="cuda full", batch="along -1", out_type="any", out_apart="but itself")
def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:  # noqa: A002
    """The running product along `dim`; integers in int64."""
    axis, result = _axis(input, dim), _result(input, dtype)
    x = in_integers("cumprod", input, result)
    if result.is_complex:
        return _complex_product(x, axis)
    out = _scan(x, axis, "prod", result)[0]
    return tape.record(out, _cumprod_back, (x,), (tape.keep(x), tape.keep_outputs(out), axis), "CumprodBackward0")


def _complex_product(x: Tensor, axis: int) -> Tensor:
    from .concat import stack
    if not x.meta.shape or not x.meta.numel:
        return x.clone()
    parts = [x.select(axis, 0)]
    for i in range(1, x.meta.shape[axis]):
        parts.append(parts[-1] * x.select(axis, i))
    made: Tensor = stack(parts, axis)
    return made


def _cumprod_back(node: Any, g: Tensor) -> Any:
    held, outputs, axis = node[tape.SAVED]
    (x,), (own,) = tape.kept(node, held), tape.kept_outputs(node, outputs)
    n = x.meta.shape[axis] if x.meta.shape else 1
    if n == 1 or not x.meta.numel:
        return (g,)
    if not bool((x == 0).any()):
        return (_running(g * own, axis, True) / x,)
    # with zeros: the products that leave element k out, one k at a time
    from .concat import cat, stack
    parts = []
    one = x.new_ones([s for i, s in enumerate(x.meta.shape) if i != axis])
    for k in range(n):
        before = x.narrow(axis, 0, k).prod(axis) if k else one
        after = cat([one.unsqueeze(axis), x.narrow(axis, k + 1, n - k - 1).cumprod(axis)], axis) if k + 1 < n else one.unsqueeze(axis)
        parts.append((g.narrow(axis, k, n - k) * after).sum(axis) * before)
    made: Tensor = stack(parts, axis)
    return (made,)


def _extreme(name: str) -> Any:
    how = name[3:]

    def function(input: Tensor, dim: int) -> Any:  # noqa: A002
        axis = _axis(input, dim) if input.meta.numel else 0  # of no elements any axis is the same
        if input.meta.numel and input.meta.shape and input.meta.dtype.is_complex:
            of_kinds(f"{name}_cpu", input, "buif")
        may_record(name, input.meta.dtype, input, real=True)
        values, at = _scan(input, axis, how, input.meta.dtype)
        tape.record(values, _extreme_back, (input,), (axis, tape.keep(at)), f"{name.capitalize()}Backward0")
        return _RESULTS[name](values, at)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The running {how}imum along `dim` and its latest position."
    return op(out=True)(function)


def _extreme_back(node: Any, g: Tensor) -> Any:
    axis, held = node[tape.SAVED]
    (at,) = tape.kept(node, held)
    if not g.meta.shape:
        return (g,)
    return (g.new_zeros(g.meta.shape).scatter_add(axis, at, g),)


cummax, cummin = _extreme("cummax"), _extreme("cummin")


@op(out=True, batch="along -1")
def logcumsumexp(input: Tensor, dim: int) -> Tensor:  # noqa: A002
    """log of the running sum of exp along `dim`, without overflow."""
    axis = _axis(input, dim)
    if input.meta.dtype.kind not in "fc":
        raise NotImplementedError(f'"logcumsumexp_out_cpu" not implemented for \'{dtypes.title(input.meta.dtype)}\'')
    if input.meta.dtype.is_complex:
        return _by_doubling(input, axis)
    out = _scan(input, axis, "logsumexp", input.meta.dtype)[0]
    return tape.record(out, _lcse_back, (input,), (tape.keep(input), tape.keep_outputs(out), axis), "LogcumsumexpBackward0")


def _by_doubling(x: Tensor, axis: int) -> Tensor:
    """log(n) steps, each joining runs twice as long; every partial sum keeps its own scale."""
    from .binary import LOGADDEXP
    from .concat import cat
    n = x.meta.shape[axis] if x.meta.shape else 1
    reach = 1
    # the logarithm of 0 has no phase, and half a NaN is one
    unknown = x.isnan()
    x = x.masked_fill((x.real == -math.inf) & ~unknown, complex(-math.inf, 0)).masked_fill(unknown, complex(math.nan, math.nan))
    out = x.clone() if n < 2 else x
    while reach < n:
        out = cat([out.narrow(axis, 0, reach), LOGADDEXP((out.narrow(axis, reach, n - reach), out.narrow(axis, 0, n - reach)))], axis)
        reach *= 2
    return out


def _lcse_back(node: Any, g: Tensor) -> Any:
    """sum over j >= i of g_j exp(x_i - out_j), each sign of g in the log domain so that nothing overflows."""
    held, outputs, axis = node[tape.SAVED]
    (x,), (own,) = tape.kept(node, held), tape.kept_outputs(node, outputs)
    if not x.meta.shape:
        return (g,)
    if tape.recording(g, x):  # logarithms of the signs would have no second derivative at 0
        top = x.detach().amax(axis, True)
        return (_running(g * (top - own).exp(), axis, True) * (x - top).exp(),)

    def part(h: Tensor) -> Tensor:
        made: Tensor = (logcumsumexp((h.log() - own).flip(axis), axis).flip(axis) + x).exp()
        return made
    zero = g * 0.0
    return (part(g.clamp(min=0.0) + zero) - part((-g).clamp(min=0.0) + zero),)

has("cummax cummin", batch="along -1")

"""Reductions: sums, products, means, truths, norms.  Each is one Reduce program over the axes asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes, hooks, layout
from ..autograd import tape
from ..autograd.mode import _grad
from ..dtypes import bool_, int64
from ..dtypes import dtype as dtype_class
from ..engine import general
from ..engine.fields import has
from ..engine.plans import Compose, Facts, Later, Plan, Saved
from ..kernels import expr as E
from ..kernels.programs import Reduce
from ..runtime import caches
from ..tensor import Meta, Tensor, alias, empty, meta
from . import launch
from .casts import to_dtype
from .checks import may_record, of_kinds
from .elementwise import saved_tensor
from .sizes import sizes_of
from .table import op, out_form, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def reducing(t: Tensor, axes: tuple[int, ...], keepdim: bool, program: Reduce, name: str, saved: Saved | None = None, result: Any = None) -> Plan:
    """The plan of a Reduce over `axes` of `t`.  saved, result: see `Plan`."""
    m = t.meta
    domain, strides, kept = split_domain(t, axes)
    inner = domain[:len(kept)]
    shape = kept_shape(m.shape, axes, keepdim)
    outs = [meta(shape, None, d, m.device) for d in program.out_types]
    if not layout.numel(inner):
        return Plan(outs, None, saved=saved, result=result)
    flat = layout.contiguous_strides(inner)
    call, room = launch.plan(m.device, program, domain, [flat] * len(outs) + [strides], [x.nbytes for x in (*outs, m)], name)
    return Plan(outs, call, room, saved=saved, result=result)


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
    shape, axes, keepdim, d = node[tape.SAVED][0]
    return (spread(to_dtype(g, d), shape, axes, keepdim),)


_sum_back.grad_name = "SumBackward0"


@tape.keeps_nothing
def _sum_back_along(node: Any, g: Tensor) -> Any:
    return _sum_back(node, g)


_sum_back_along.grad_name = "SumBackward1"


def spread(g: Tensor, shape: Sequence[int], axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """The reduced tensor repeated over the axes it lost."""
    if not _grad.get():  # outside the tape a bare alias will do
        return alias(g, _spread(g.meta, tuple(shape), axes, keepdim), g.ptr)
    if not keepdim:
        for a in sorted(axes):
            g = g.unsqueeze(a)
    return g.expand(tuple(shape))


@general.kept
def _spread(m: Meta, shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool) -> Meta:
    strides = list(m.strides)
    for a in sorted(axes):
        if keepdim:
            strides[a] = 0
        else:
            strides.insert(a, 0)
    return meta(shape, tuple(strides), m.dtype, m.device)


def in_integers(name: str, t: Tensor, result: dtypes.dtype) -> Tensor:
    """`t` cast to the integers that a reduction of it gives.  Raises RuntimeError where that would be recorded."""
    may_record(name, result, t)
    return to_dtype(t, result)


def _sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:  # noqa: A002
    """The sum over `dim` (an axis, several, or all); integers sum in int64, half types in float32 rounded once."""
    axes = axes_of(input, dim)
    result = _sum_type(input, dtype)
    if result.kind == "8":
        raise NotImplementedError(f"\"sum\" not implemented for '{dtypes.title(result).capitalize()}'")
    if result.is_complex and not input.meta.dtype.is_complex:
        return Compose(lambda input: sum(to_dtype(input, result), dim, keepdim))
    if result.kind in "bui" and input.meta.dtype.kind in "fc":
        return Compose(lambda input: sum(in_integers("sum", input, result), dim, keepdim, dtype=result))
    program = simple("sum", input.meta.dtype, result.opmath, result, "sum")
    saved = Saved(_sum_back if dim is None else _sum_back_along, info=(tuple(input.meta.shape), axes, keepdim, input.meta.dtype))
    return reducing(input, axes, keepdim, program, "sum", saved)


sum: Callable[..., Tensor] = planned(  # noqa: A001
    "sum", _sum, out=out_form("sum", lambda *args, **kwargs: sum(*args, **kwargs)), gives="Tensor", autocast="cuda full", batch="along all",
    tangent="linear", out_type="any")


def sum_to(g: Tensor, shape: Sequence[int]) -> Tensor:
    """`g` summed over the axes along which `shape` was broadcast to it.  Differentiable."""
    shape = tuple(shape)
    if not tape.recording(g):
        plan = _summing_to(g.meta, shape)
        if plan is not None:
            made: Tensor = plan(g)
            return made
    have = tuple(g.meta.shape)
    if have == shape:
        return g
    axes = _lost(have, shape)
    out: Tensor = sum(g, axes, True) if axes else g
    return out.reshape(shape) if tuple(out.meta.shape) != shape else out


def _lost(have: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes along which `shape` was broadcast."""
    pad = len(have) - len(shape)
    return tuple(i for i, d in enumerate(have) if i < pad or (shape[i - pad] == 1 and d != 1))


@caches.kept
def _summing_to(m: Meta, shape: tuple[int, ...]) -> Any:
    """What sums a tensor of this meta at once; None where `sum_to` goes by other operations."""
    plan = _sum_plan(m, shape)
    return None if plan is None else Later(plan, "t")


@general.kept
def _sum_plan(m: Meta, shape: tuple[int, ...]) -> Any:
    """The plan of that."""
    axes, d = _lost(tuple(m.shape), shape), m.dtype
    if d.kind not in "fc" or not m.numel or not axes:
        return None
    order = sorted(range(len(m.shape)), key=lambda i: i in axes)
    domain = tuple(m.shape[i] for i in order)
    out = meta(shape, None, d, m.device)
    strides = [layout.contiguous_strides(domain[:len(order) - len(axes)]), tuple(m.strides[i] for i in order)]
    call, room = launch.plan(m.device, simple("sum", d, d.opmath, d, "sum"), domain, strides, [out.nbytes, m.nbytes], "sum")
    return Plan([out], call, room)


@op(tangent="linear")
def sum_to_size(input: Tensor, *size: Any) -> Tensor:  # noqa: A002
    """The sum over the axes that a tensor of `size` would be broadcast along."""
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


@op(out=True, gives="Tensor", autocast="full", batch="along flat", out_type="any")
def prod(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:  # noqa: A002
    """The product over one axis or all."""
    axes = axes_of(input, dim)
    result = _sum_type(input, dtype)
    if result.is_complex and not input.meta.dtype.is_complex:
        return Compose(lambda input, *_: prod(to_dtype(input, result), dim, keepdim))
    if result.kind in "bui" and input.meta.dtype.kind in "fc":
        return Compose(lambda input, *_: prod(in_integers("prod", input, result), dim, keepdim, dtype=result))
    return reducing(input, axes, keepdim, simple("prod", input.meta.dtype, result.opmath, result, "prod"), "prod",
                    Saved(_prod_back, keep=(0,), info=Facts("ProdBackward0", axes, keepdim, result)))


def _prod_back(node: Any, g: Tensor) -> Any:
    """The gradient of element i is the product of the others: exclusive products from both sides, exact with zeros."""
    info, (x,), (version,), _, _ = node[tape.SAVED]
    axes, keepdim, result = info.facts
    x = saved_tensor(x, version, node)
    own, x = x.meta.dtype, to_dtype(x, result)
    if not x.meta.shape:
        return (to_dtype(g, own),)
    order = [i for i in range(len(x.meta.shape)) if i not in axes] + list(axes)
    kept = len(order) - len(axes)
    n = layout.numel([x.meta.shape[i] for i in axes])
    flat = x.permute(order).reshape(*[x.meta.shape[i] for i in order[:kept]], n)
    if n == 0:
        return (to_dtype(x * 0, own),)
    one = flat.new_ones((*flat.meta.shape[:-1], 1))
    left = _joined([one, flat.narrow(-1, 0, n - 1)]).cumprod(-1)
    right = _joined([flat.narrow(-1, 1, n - 1), one]).flip(-1).cumprod(-1).flip(-1)
    others = (left * right).conj_physical()
    full = others.reshape([x.meta.shape[i] for i in order]).permute(sorted(range(len(order)), key=order.__getitem__))
    return (to_dtype(spread(g, x.meta.shape, axes, keepdim) * full, own),)


def _joined(parts: list[Tensor]) -> Tensor:
    made: Tensor = hooks.cat(parts, -1)
    return made


# ---------------------------------------------------------------------------------------------------------------- truths
def _truth(name: str, how: str) -> Any:
    def function(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:  # noqa: A002
        result = dtypes.uint8 if input.meta.dtype is dtypes.uint8 else bool_
        axes = axes_of(input, dim)

        def build() -> Reduce:
            x = E.input(0, input.meta.dtype)
            e = E.cast(E.convert(x, bool_), dtypes.uint8)  # bytes: CPUs without registers for masks take bits apart
            return Reduce((e,), (how,), (E.cast(E.convert(E.acc(0, dtypes.uint8), bool_), result),), (input.meta.dtype,))
        return reducing(input, axes, keepdim, _program(name, (input.meta.dtype, result), build), name)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Whether {name} elements along `dim` are true."
    return op(out=True, gives="Tensor")(function)


all, any = _truth("all", "and"), _truth("any", "or")  # noqa: A001


@op(batch="along all")
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:  # noqa: A002
    """How many elements are not 0."""
    return sum(input != 0, dim)


# ----------------------------------------------------------------------------------------------------------- comparisons
@op(batch="reads")
def equal(input: Tensor, other: Tensor) -> bool:  # noqa: A002
    """Whether two tensors have one shape and equal elements."""
    from .checks import same_device
    same_device("equal", input, other)
    a, b = input.meta, other.meta
    if a.shape != b.shape:
        return False
    if not (a.plain and b.plain) or a.dtype is not b.dtype or a.dtype.is_complex or a.device.type == "meta" or not a.numel:
        return bool(all(input == other))
    if a.numel > 8 * _GLANCE and a.contiguous and b.contiguous:  # most that differ do so at once
        few = meta((_GLANCE,), None, a.dtype, a.device)
        if not _alike(alias(input, few, input.ptr), alias(other, few, other.ptr)):
            return False
    return _alike(input, other)


_GLANCE = 1 << 12  # elements
_alike_programs: dict[Any, Reduce] = {}


def _alike(a: Tensor, b: Tensor) -> bool:
    """Whether all elements of two tensors of one shape and type are equal."""
    d = a.meta.dtype
    program = _alike_programs.get(d)
    if program is None:
        same = E.cast(E.input(0, d) == E.input(1, d), dtypes.uint8)  # bytes, as of `all`
        program = _alike_programs[d] = Reduce((same,), ("and",), (E.convert(E.acc(0, dtypes.uint8), bool_),), (d, d))
    out = empty((), bool_, a.meta.device)
    launch.run(program, tuple(a.meta.shape), [out], [a, b], [(), a.meta.strides, b.meta.strides], name="equal")
    return bool(out)


@op(batch="reads")
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:  # noqa: A002
    """Whether all |input - other| <= atol + rtol * |other|."""
    if input.meta.dtype is not other.meta.dtype:
        raise RuntimeError(f"{dtypes.title(input.meta.dtype)} did not match {dtypes.title(other.meta.dtype)}")
    return bool(all(input.isclose(other, rtol=rtol, atol=atol, equal_nan=equal_nan)))


@op(out=True, autocast="cpu full", tangent="linear")
def trace(input: Tensor) -> Tensor:  # noqa: A002
    """The sum of a matrix's diagonal."""
    if len(input.meta.shape) != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {len(input.meta.shape)}")
    of_kinds("trace", input, "uifc")
    return sum(input.diagonal())



hooks.provide(sum_to=sum_to)

has("trace", batch="composite")
has("equal sum_to_size", sparse="composite")
has("all any", batch="along all", out_type="bytes too", out_said="{name} only supports {made} tensor for result, got: {found}")

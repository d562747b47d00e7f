"""Sorting and order statistics along an axis: sort, topk, kthvalue, median, mode, quantiles.

The device's backend sorts rows (`specs.Sort`) or finds one element of each (`specs.Element`); where it has none of the second, the element
is taken from the rows in order.  The gradient puts what arrives at the positions the values came from.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from .. import layout
from ..autograd import tape
from ..dtypes import bool_, int64, title
from ..engine.fields import has
from ..engine.plans import Facts, Plan, Saved
from ..kernels.specs import Element, Put, Sort
from ..tensor import Tensor, empty, meta, storage
from ..unknowns import index
from . import launch, outputs, routines
from .checks import may_record, of_kinds, same_device, values_hold
from .copies import cast_program
from .indexing.along_axis import gather, scatter, taken_along
from .ranges import arange
from .reductions import kept_shape
from .results import named
from .table import op

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dtypes import dtype
    from ..kernels.specs import Spec
    from ..tensor import Meta

_RESULTS = {n: named(n, "values indices") for n in ("sort", "topk", "kthvalue", "median", "nanmedian", "mode")}


def _real(name: str, t: Tensor) -> None:
    if t.meta.dtype.is_complex:
        raise NotImplementedError(f"\"{name}\" not implemented for '{title(t.meta.dtype)}': complex numbers have no order")


def _picking(name: str, t: Tensor, axis: int, width: int | None, kind: Callable[..., Spec], numbers: tuple[Any, ...], keepdim: bool = True,
             keep_layout: bool = False, result: Any = None) -> Plan | None:
    """The plan of elements of each row along `axis` and their positions; None where the device's backend has no launch for it, but for `Sort`.

    kind(type, domain, strides, *numbers): the spec.  width None: one a row, whose axis disappears unless `keepdim`.  keep_layout: results laid
    out as t is.  result: see `Plan`; by default the named tuple of both.
    """
    m = t.meta
    shape, strides = tuple(m.shape) or (1,), m.strides or (1,)
    to = (*shape[:axis], 1 if width is None else width, *shape[axis + 1:])
    out_shape = to if m.shape and (width is not None or keepdim) else () if not m.shape else (*shape[:axis], *shape[axis + 1:])
    out_strides = layout.dense_like(tuple(m.shape), m.strides) if keep_layout else None
    outs = meta(out_shape, out_strides, m.dtype, m.device), meta(out_shape, out_strides, int64, m.device)
    saved = Saved(_placed_back, results=(1,), info=_facts(name, tuple(m.shape), axis, width is None and not keepdim), first=True)
    result = result or _RESULTS[name]._make
    if not outs[0].numel:
        return Plan(outs, None, saved=saved, result=result)
    steps = outs[0].strides if len(out_shape) == len(to) else layout.contiguous_strides(to)
    shape, strides, to, steps = [_last(x, axis) for x in (shape, strides, to, steps)]
    bound = routines.find(m.device, kind(m.dtype, shape, (steps, steps, strides), *numbers))
    if bound is not None:
        return Plan(outs, *bound, saved=saved, result=result)
    rows, packed = layout.contiguous_strides(shape), layout.contiguous_strides(to)
    spec = kind(m.dtype, shape, (packed, packed, rows), *numbers)
    bound = None if strides == rows else routines.find(m.device, spec)
    if bound is None and kind is Sort:
        bound = routines.needed(m.device, spec)
    if bound is None:
        return None
    return Plan(outs, _on_rows(m, bound, shape, strides, to, steps, outs), saved=saved, result=result)


def _facts(name: str, shape: tuple[int, ...], axis: int, gone: bool) -> Facts:
    """What the gradient must know of values taken along an axis.  gone: the results do not have it."""
    return Facts(f"{name.capitalize()}Backward0", shape, axis, gone)


def _on_rows(m: Meta, bound: Any, shape: tuple[int, ...], strides: tuple[int, ...], to: tuple[int, ...], steps: tuple[int, ...],
             outs: tuple[Meta, Meta]) -> Callable[..., None]:
    """The launch on a copy whose rows lie one behind the other, as the backend wants them: the results are copied to where they belong."""
    rows, made, places = meta(shape, None, m.dtype, m.device), meta(to, None, m.dtype, m.device), meta(to, None, int64, m.device)

    def copying(d: dtype, domain: tuple[int, ...], into: tuple[int, ...], of: tuple[int, ...], room: int, read: int) -> Callable[..., Any]:
        return launch.plan(m.device, cast_program(d, d), domain, [into, of], [room, read], "sort")[0]
    load = copying(m.dtype, shape, rows.strides, strides, rows.nbytes, m.nbytes)
    store = copying(m.dtype, to, steps, made.strides, outs[0].nbytes, made.nbytes)
    store_places = copying(int64, to, steps, places.strides, outs[1].nbytes, places.nbytes)

    def run(values: int, at: int, x: int) -> None:
        a, b, c = storage(rows), storage(made), storage(places)  # held until the launches are queued
        load(a.ptr, x)
        routines.call(bound, (b.ptr, c.ptr, a.ptr))
        store(values, b.ptr)
        store_places(at, c.ptr)
    return run


def _by_order(name: str, t: Tensor, axis: int, keepdim: bool, where: Callable[[Tensor], Tensor]) -> Any:
    """One element a row from the rows in order, where these are sorted at once: `where` gives its place, an axis of size 1 at the end."""
    x = t.detach()
    x = x.movedim(axis, -1) if t.meta.shape else x.reshape(1)
    ordered, at = sort(x, -1)
    place = where(ordered)
    values, at = [taken_along(z, place).squeeze(-1) for z in (ordered, at)]
    if keepdim and t.meta.shape:
        values, at = values.unsqueeze(axis), at.unsqueeze(axis)
    facts = _facts(name, tuple(t.meta.shape), axis, bool(t.meta.shape) and not keepdim)
    tape.record(values, _placed_back, (t,), (facts, (), (), tape.keep(at), ()))
    return _RESULTS[name](values, at)


def _element(name: str, t: Tensor, axis: int, keepdim: bool, k: int, middle: str) -> Any:
    """The k-th element of each row, or with `middle` a median, and its position: the plan of that, or both."""
    found = _picking(name, t, axis, None, Element, (k, middle), keepdim)
    if found is not None:
        return found
    n, floating = _length(t, axis), t.meta.dtype.kind == "f"

    def where(ordered: Tensor) -> Tensor:
        if not middle or not floating:
            return ordered.new_full((*ordered.meta.shape[:-1], 1), (n - 1) // 2 if middle else k, dtype=int64)
        numbers = n - ordered.isnan().sum(-1, keepdim=True)
        if middle == "nanmedian":
            return ((numbers - 1).clamp(min=0)).div(2, rounding_mode="floor")
        return numbers.masked_fill(numbers == n, (n - 1) // 2)
    return _by_order(name, t, axis, keepdim, where)


def _commonest(ordered: Tensor) -> Tensor:
    """Where in order the longest run of equal elements ends, the first of several."""
    later, earlier = ordered[..., 1:], ordered[..., :-1]
    new = later != earlier
    if ordered.meta.dtype.kind == "f":
        new = new & ~(later.isnan() & earlier.isnan())
    place = arange(ordered.meta.shape[-1], device=ordered.meta.device)
    starts = (place[1:] * new).cummax(-1)[0]  # the first run starts at 0
    length = place.expand(ordered.meta.shape).clone()
    length[..., 1:] -= starts
    return length.argmax(-1, keepdim=True)


def _last(of: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """With what belongs to `axis` at the end."""
    return (*of[:axis], *of[axis + 1:], of[axis])


def _placed_back(node: Any, g: Tensor) -> Any:
    info, _, _, held, _ = node[tape.SAVED]
    shape, axis, gone = info.facts
    (at,) = tape.kept(node, held)
    if not shape:
        return (g.reshape(()),)
    if gone:
        g, at = g.unsqueeze(axis), at.unsqueeze(axis)
    if g.meta.numel and not tape.recording(g):
        # the places of a row are all different, so that nothing has to be put in order
        m = g.meta
        out = meta(shape, None, m.dtype, m.device)
        bound = routines.find(m.device, Put(m.dtype, _last(tuple(m.shape), axis), shape[axis],
                                            (_last(out.strides, axis), _last(at.meta.strides, axis), _last(m.strides, axis))))
        if bound is not None:
            to = g.new_zeros(shape)
            routines.call(bound, (to.ptr, at.ptr, g.ptr))
            return (to,)
    return (scatter(g.new_zeros(shape), axis, at, g),)


# ------------------------------------------------------------------------------------------------------------------- sort
def _axis(t: Tensor, dim: int) -> int:
    return layout.wrap_dim(dim, len(t.meta.shape))


def _length(t: Tensor, axis: int) -> int:
    return t.meta.shape[axis] if t.meta.shape else 1


def _sorting(t: Tensor, dim: int, descending: bool, valued: bool = True, result: Any = None) -> Plan:
    """The plan of the elements in order and their positions; without `valued` the elements need not be there."""
    axis = _axis(t, dim)
    _real("sort", t)
    n = _length(t, axis)
    made = _picking("sort", t, axis, n, Sort, (descending, n, True, valued), keep_layout=True, result=result)
    assert made is not None
    return made


@op(out=True, batch="along -1", out_apart="but itself")
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:  # noqa: A002
    """The elements along `dim` in order, and the positions they came from (int64).  NaN counts as the greatest value; equal
    elements keep their order whether `stable` or not.  Gradients flow to the positions.  Raises RuntimeError for complex types.
    """
    return _sorting(input, dim, bool(descending))


@op(gives="Tensor", batch="along -1")
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False, *, axis: int | None = None) -> Any:  # noqa: A002
    """The positions (int64) that sort `dim`."""
    made = _sorting(input, dim if axis is None else axis, bool(descending), False, itemgetter(1))
    made.saved = None
    return made


@op(out=True, gives="Tensor", batch="along 0")
def msort(input: Tensor) -> Any:  # noqa: A002
    """The elements in order along the first axis."""
    return _sorting(input, 0, False, result=itemgetter(0))


@op(out=True, batch="along -1", out_apart="but itself")
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:  # noqa: A002
    """The k largest (smallest) elements along `dim` and their positions, in order when `sorted`.

    NaN counts as the greatest value.  Raises RuntimeError for k outside 0..size.
    """
    axis, d, k = _axis(input, dim), input.meta.dtype, index(k) if not isinstance(k, Tensor) else int(k.item())  # type: ignore[unreachable]
    if not 0 <= k <= _length(input, axis):
        raise RuntimeError(f"selected index k out of range: k is {k}, the size of dimension {axis} is {_length(input, axis)}")
    if d is bool_ or d.is_complex:
        raise RuntimeError(f"topk does not support {d.name} elements: {'truths' if d is bool_ else 'complex numbers'} have no order here")
    if not input.meta.shape:  # the one element, also for k = 0
        return _RESULTS["topk"](*_only(input))
    return _picking("topk", input, axis, k, Sort, (bool(largest), k, bool(sorted)))


# -------------------------------------------------------------------------------------------------------- one element a row
@op(out=True, batch="along -1", out_apart=True)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:  # noqa: A002
    """The k-th smallest element (from 1) along `dim` and its position.  Raises RuntimeError for k outside 1..size."""
    axis = _axis(input, dim)
    if input.meta.shape and not input.meta.shape[axis]:
        raise IndexError(f"kthvalue(): Expected reduction dim {axis} to have non-zero size.")
    if not 1 <= k <= _length(input, axis):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {axis}: k is {k}, the size is {_length(input, axis)}")
    if not input.meta.shape and input.meta.dtype.kind not in "uif":
        return _RESULTS["kthvalue"](*_only(input))
    of_kinds("kthvalue", input, "uif")
    return _element("kthvalue", input, axis, keepdim, k - 1, "")


def _only(t: Tensor) -> tuple[Tensor, Tensor]:
    """A zero-dim tensor as the element of its one row, and its position: of any type."""
    return t.clone(), t.new_zeros((), dtype=int64)


def _median(name: str, skip_nan: bool) -> Any:
    def function(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None, axis: int | None = None,  # noqa: A002
                 keepdims: bool = False) -> Any:
        dim, keepdim = dim if axis is None else axis, keepdim or keepdims
        if dim is None:
            made = _median_of_all(name, input, skip_nan, public)
            return made if out is None else _written(name, input, made, out)
        if out is not None:
            return _written(name, input, public(input, dim, keepdim), out)
        axis = _axis(input, dim)
        if input.meta.shape and not input.meta.shape[axis]:
            raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")
        of_kinds(name, input, "uif")
        return _element(name, input, axis, keepdim, 0, name)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = ("The lower median of all elements, or, along `dim`, the medians and their positions"
                        + (", NaN left out." if skip_nan else "; NaN where there is one.") +
                        "  The gradient of the median of all is shared among elements equal to it.")
    public = op(out=None)(function)
    return public


def _written(name: str, t: Tensor, made: Any, out: Any) -> Any:
    return outputs.write(name, out, made, (t,))


def _median_of_all(name: str, t: Tensor, skip_nan: bool, along: Callable[..., Any]) -> Tensor:
    d = t.meta.dtype
    if not t.meta.numel:
        if d.kind in "bui":  # no number is there: the lowest, as a NaN becomes where PyTorch makes an integer of it
            return t.new_full((), d.kind == "b" or (-(1 << 8 * d.itemsize - 1) if d.kind == "i" and d.itemsize > 2 else 0))
        return t.new_full((), float("nan")) if not tape.recording(t) else t.sum() * float("nan")
    of_kinds(name, t, "uif")
    value = along(t.detach().reshape(-1), 0)[0]
    return tape.record(value, _shared_back, (t,), (tape.keep(t), tape.keep_outputs(value)), f"{name.capitalize()}Backward0")


def _shared_back(node: Any, g: Tensor) -> Any:
    held, outputs = node[tape.SAVED]
    x, value = (t.detach() for t in (*tape.kept(node, held), *tape.kept_outputs(node, outputs)))
    hit = ((x == value) | ((x != x) & (value != value))).to(g.meta.dtype)
    return (hit * (g / hit.sum()),)


median, nanmedian = _median("median", False), _median("nanmedian", True)


@op(out=True, batch="along -1", out_said="expected scalar type {made} but got {found} for {result}")
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:  # noqa: A002
    """The most frequent element along `dim` (the smallest of several) and its last position."""
    axis = _axis(input, dim)
    if input.meta.shape and not input.meta.shape[axis]:
        raise IndexError(f"mode(): Expected reduction dim {axis} to have non-zero size.")
    if input.meta.dtype.is_complex and not input.meta.shape:
        return _RESULTS["mode"](*_only(input))
    if input.meta.dtype.is_complex and not input.meta.numel:
        may_record("mode", input.meta.dtype, input, real=True)
        rest = kept_shape(input.meta.shape, (axis,), keepdim)
        return _RESULTS["mode"](empty(rest, input.meta.dtype, input.meta.device), empty(rest, int64, input.meta.device))
    _real("mode", input)
    return _picking("mode", input, axis, None, Element, (0, "mode"), keepdim) or _by_order("mode", input, axis, keepdim, _commonest)


# --------------------------------------------------------------------------------------------------------------- quantiles
def _quantile(name: str, skip_nan: bool) -> Any:
    def function(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear") -> Tensor:  # noqa: A002
        if input.meta.numel == 0:
            raise RuntimeError(f"{name}() input tensor must be non-empty")
        if input.meta.dtype.name not in ("float32", "float64"):
            raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
        if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
            raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}")
        if not isinstance(q, Tensor):
            if not 0 <= q <= 1:
                raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
            q = input.new_full((), q)
        elif len(q.meta.shape) > 1:
            raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
        if q.meta.dtype is not input.meta.dtype:
            raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
        same_device(name, input, q)
        values_hold(q, lambda q: (q >= 0) & (q <= 1), RuntimeError(f"{name}() q values must be in the range [0, 1]"))
        return _quantiles(input, q, dim, keepdim, interpolation, skip_nan)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = ("The q-th quantiles along `dim` (of all elements by default)" + (", NaN left out." if skip_nan else "; NaN where "
                        "there is one.") + "\n\n    q: a number or a vector in [0, 1], of input's type; several give a new first axis.  "
                        "The element at rank q (n - 1), counted from 0, is interpolated as `interpolation` says.")
    return op(out=True)(function)


def _quantiles(t: Tensor, q: Tensor, dim: int | None, keepdim: bool, how: str, skip_nan: bool) -> Tensor:
    axis = 0 if dim is None else _axis(t, dim)
    x = t.reshape(-1) if dim is None or not t.meta.shape else t.movedim(axis, -1)
    ordered = sort(x, -1)[0]
    n = x.meta.shape[-1]
    lead = len(x.meta.shape) - 1
    # ranks: one row of them a quantile, in front of the other axes; float64 so that long rows keep exact positions
    rank = q.to(dtype=_float64()).reshape([-1, *[1] * (lead + 1)])
    bad = x.isnan()
    if skip_nan:
        rank = rank * ((~bad).sum(-1, keepdim=True) - 1).clamp(min=0)
    else:
        rank = rank * (n - 1)
        rank = rank.masked_fill(bad.any(-1, keepdim=True), n - 1)  # a row with NaN gives its last element, which is one
    if how == "lower":
        rank = rank.floor()
    elif how == "higher":
        rank = rank.ceil()
    elif how == "nearest":
        rank = rank.round()
    below = rank.floor()
    at = below.to(int64)
    full = (rank.meta.shape[0], *x.meta.shape[:-1], rank.meta.shape[-1])
    rows = ordered.unsqueeze(0).expand((full[0], *x.meta.shape))
    made = gather(rows, -1, at.expand(full))
    if how in ("linear", "midpoint"):
        above = gather(rows, -1, rank.ceil().to(int64).expand(full))
        weight = (rank - below).to(t.meta.dtype) if how == "linear" else (rank != below).to(t.meta.dtype) * 0.5
        made = made.lerp(above, weight.expand(full))
    made = made.squeeze(-1)
    if keepdim and t.meta.shape:
        made = made.reshape((full[0], *[1] * len(t.meta.shape))) if dim is None else made.unsqueeze(-1).movedim(-1, axis + 1)
    return made if q.meta.shape else made.squeeze(0)


def _float64() -> Any:
    from ..dtypes import float64
    return float64


quantile, nanquantile = _quantile("quantile", False), _quantile("nanquantile", True)

has("nanquantile quantile", autocast="cpu full", out_said="{name}() out tensor must be same dtype as the input tensor")
has("median nanmedian", batch="extreme")

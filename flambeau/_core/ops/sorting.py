"""Sorting and order statistics along an axis: sort, topk, kthvalue, median, mode, quantiles.

A device's own routine serves where it has one; else the positions come from a host routine over rows (`ordering`) on the device's
queue.  The gradient puts what arrives at the positions the values came from.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import layout
from ..autograd import tape
from ..dtypes import bfloat16, bool_, int64
from ..kernels.interpret import memory
from ..kernels.programs import Prepared
from ..runtime import door
from ..tensor import Tensor, alias, empty, meta, new, on_forget
from . import device_routines, launch, ordering
from .checks import same_device
from .copies import contiguous, copy_into
from .creation import arange
from .elementwise import saved_tensor
from .positions import gather, scatter, taken_along
from .results import named
from .table import op

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tensor import Meta

_RESULTS = {n: named(n, "values indices") for n in ("sort", "topk", "kthvalue", "median", "nanmedian", "mode")}
_LONG = 1 << 18
_NEAR = 32  # elements of rows that a block reads many of at once, wherever they lie
_TURNED = 1 << 16


def _real(name: str, t: Tensor) -> None:
    if t.meta.dtype.is_complex:
        raise RuntimeError(f"{name}(): complex numbers have no order, got {t.meta.dtype}")


def _picked(name: str, t: Tensor, axis: int, width: int | None, f: Callable[[Any], Any], own: tuple[Any, ...], keepdim: bool = True,
            keep_layout: bool = False) -> tuple[Tensor, Tensor]:
    """Elements of each row along `axis` and their positions: f gives positions (rows, width) of rows (rows, n).

    own: the name of the device's routine for it, and what that is told besides the type and the layouts.
    width None: one a row, whose axis disappears unless `keepdim`.  keep_layout: results laid out as t is.
    """
    m = t.meta
    shape = tuple(m.shape) or (1,)
    strides = m.strides or (1,)
    wide = 1 if width is None else width
    to = (*shape[:axis], wide, *shape[axis + 1:])
    out_shape = to if m.shape and (width is not None or keepdim) else () if not m.shape else (*shape[:axis], *shape[axis + 1:])
    out_strides = layout.dense_like(tuple(m.shape), m.strides) if keep_layout else None
    values = empty(out_shape, m.dtype, m.device, out_strides)
    at = empty(out_shape, int64, m.device, out_strides)
    d = m.dtype
    steps = values.meta.strides if len(out_shape) == len(to) else layout.contiguous_strides(to)

    def entry(out_values: int, out_at: int, source: int) -> None:
        x = np.moveaxis(memory(source, shape, strides, d), axis, -1)
        rows = x.reshape(-1, shape[axis])
        found = ordering.over_rows(rows, wide, f)
        moved = (*x.shape[:-1], wide)
        np.moveaxis(memory(out_at, to, steps, int64), axis, -1)[...] = found.reshape(moved)
        np.moveaxis(memory(out_values, to, steps, d), axis, -1)[...] = np.take_along_axis(rows, found, -1).reshape(moved)
    if values.meta.numel and not _by_device(own, t, values, at, (shape, strides), (to, steps), axis):
        launch.routine(m.device, name, entry, (values.ptr, at.ptr, t.ptr), outputs=2, nbytes=m.nbytes + values.meta.nbytes + at.meta.nbytes)
    backward_name = f"{name.capitalize()}Backward0"
    tape.record(values, _placed_back, (t,), (tuple(m.shape), axis, width is None and not keepdim, at), backward_name)
    return values, at


def _by_device(own: tuple[Any, ...], t: Tensor, values: Tensor, at: Tensor, given: Any, wanted: Any, axis: int) -> bool:
    """`_picked` by the device's own routine; False where it has none.  given, wanted: shape and strides of t and of the results.

    The elements of a row must lie together for a GPU to read them at memory's speed, so large tensors that are sorted along
    another axis are turned by copies, which go by tiles.
    """
    m = t.meta
    if door.by_host(m.device):
        return False
    (shape, strides), (to, steps) = [tuple(_last(x, axis) for x in pair) for pair in (given, wanted)]
    if strides[-1] == 1 or shape[-1] <= _NEAR or m.numel < _TURNED:
        return device_routines.run(m.device, own[0], (m.dtype, shape, (steps, steps, strides), *own[1:]), (values.ptr, at.ptr, t.ptr))
    x = contiguous(alias(t, meta(shape, strides, m.dtype, m.device), t.ptr))
    made = empty(to, m.dtype, m.device), empty(to, int64, m.device)
    order = made[0].meta.strides
    if not device_routines.run(m.device, own[0], (m.dtype, shape, (order, order, x.meta.strides), *own[1:]), (made[0].ptr, made[1].ptr, x.ptr)):
        return False
    for out, found in zip((values, at), made, strict=True):
        copy_into(alias(out, meta(to, steps, out.meta.dtype, m.device), out.ptr), found)
    return True


def _by_order(name: str, t: Tensor, axis: int, keepdim: bool, where: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """One element a row from the rows in order, where these are sorted at once: `where` gives its place, an axis of size 1 at the end."""
    x = t.detach()
    x = x.movedim(axis, -1) if t.meta.shape else x.reshape(1)
    ordered, at = _sorted(x, -1, False)
    place = where(ordered)
    values, at = [taken_along(z, place).squeeze(-1) for z in (ordered, at)]
    if keepdim and t.meta.shape:
        values, at = values.unsqueeze(axis), at.unsqueeze(axis)
    tape.record(values, _placed_back, (t,), (tuple(t.meta.shape), axis, bool(t.meta.shape) and not keepdim, at), f"{name.capitalize()}Backward0")
    return values, at


def _is_long(t: Tensor, axis: int) -> bool:
    """Whether rows are so long and few that a device which is not `by_host` had better sort them to find one element."""
    n = _length(t, axis)
    return n > _LONG and t.meta.numel < 16 * n and not door.by_host(t.meta.device)


def _element(name: str, t: Tensor, axis: int, keepdim: bool, k: int, middle: str, f: Callable[[Any], Any]) -> tuple[Tensor, Tensor]:
    """The k-th element of each row, or with `middle` a median."""
    if not _is_long(t, axis):
        return _picked(name, t, axis, None, f, ("element", k, middle), keepdim)
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
    shape, axis, gone, at = node[tape.SAVED]
    if not shape:
        return (g.reshape(()),)
    if gone:
        g, at = g.unsqueeze(axis), at.unsqueeze(axis)
    if not tape.recording(g) and not door.by_host(g.meta.device):
        # the places of a row are all different, so that nothing has to be put in order
        out = g.new_zeros(shape)
        strides = tuple(_last(x.meta.strides, axis) for x in (out, at, g))
        if not g.meta.numel or device_routines.run(g.meta.device, "put", (g.meta.dtype, _last(tuple(g.meta.shape), axis), shape[axis], strides),
                                                        (out.ptr, at.ptr, g.ptr)):
            return (out,)
    return (scatter(g.new_zeros(shape), axis, at, g),)


# ------------------------------------------------------------------------------------------------------------------- sort
def _axis(t: Tensor, dim: int) -> int:
    return layout.wrap_dim(dim, len(t.meta.shape))


def _length(t: Tensor, axis: int) -> int:
    return t.meta.shape[axis] if t.meta.shape else 1


def _sorted(t: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    _real("sort", t)
    axis, d = _axis(t, dim), t.meta.dtype
    return _picked("sort", t, axis, _length(t, axis), lambda rows: ordering.order(rows, d, descending),
                   ("sort", descending, _length(t, axis)), keep_layout=True)


_FEW = 1 << 10  # elements that NumPy's stable sort has in order before keys are made
_plans: dict[Any, Any] = {}  # of a layout and a call's numbers: what few elements on the CPU take, or None
_MOST_PLANS = 1 << 12
on_forget(_plans.clear)
door.on_change(_plans.clear)


def _few(name: str, t: Tensor, dim: int, descending: bool, k: int) -> tuple[Tensor, Tensor] | None:
    """The first k elements in order of each row along `dim` (-1: all) and their positions, where there are few elements, on the CPU, and
    rows lie one behind the other; None elsewhere."""
    if type(dim) is not int or type(k) is not int:
        return None
    key = name, t.meta, dim, descending, k
    try:
        plan = _plans[key]
    except KeyError:
        if len(_plans) > _MOST_PLANS:
            _plans.clear()
        plan = _plans[key] = _plan(name, t.meta, dim, descending, k)
    if plan is None:
        return None
    made, places, call, saved, grad_name = plan
    values, at = new(made), new(places)
    call(values.ptr, at.ptr, t.ptr)
    if t.node is not None:
        tape.record(values, _placed_back, (t,), (*saved, at), grad_name)
    return values, at


def _plan(name: str, m: Meta, dim: int, descending: bool, k: int) -> Any:
    d, shape, last = m.dtype, tuple(m.shape), len(m.shape) - 1
    if m.device.type != "cpu" or not 0 < m.numel <= _FEW or not m.contiguous or dim not in (-1, last) or last < 0 or d is bfloat16 or d.is_complex:
        return None
    n = shape[-1]
    if k > n or not k or d is bool_ and name == "topk":
        return None
    k = n if k < 0 else k
    rows = m.numel // n
    raw, raw_values, raw_at = (ctypes.c_char * size for size in (m.nbytes, rows * k * d.itemsize, rows * k * 8))
    starts = np.arange(0, m.numel, n)[:, None] if rows > 1 else None
    read: Any = np.frombuffer
    plain, position = d.np, np.dtype(np.int64)

    def entry(out_values: int, out_at: int, source: int) -> None:
        x = read(raw.from_address(source), plain)
        r = x.reshape(rows, n)
        # NaN is the greatest for NumPy too; backwards twice, equal elements keep their order
        at = n - 1 - r[:, ::-1].argsort(-1, kind="stable")[:, ::-1] if descending else r.argsort(-1, kind="stable")
        if k < n:
            at = at[:, :k]
        read(raw_at.from_address(out_at), position).reshape(rows, k)[...] = at
        read(raw_values.from_address(out_values), plain).reshape(rows, k)[...] = x[at if starts is None else at + starts]
    to = (*shape[:-1], k)
    made, places = meta(to, None, d, m.device), meta(to, None, int64, m.device)
    call = door.bind(m.device, Prepared(name, entry, outputs=2, nbytes=m.nbytes + made.nbytes + places.nbytes))
    return made, places, call, (shape, last, False), f"{name.capitalize()}Backward0"


@op(out=True)
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:  # noqa: A002
    """The elements along `dim` in order, and the positions they came from (int64).  NaN counts as the greatest value; equal
    elements keep their order whether `stable` or not.  Gradients flow to the positions.  Raises RuntimeError for complex types.
    """
    return _RESULTS["sort"](*(_few("sort", input, dim, bool(descending), -1) or _sorted(input, dim, bool(descending))))


@op()
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False, *, axis: int | None = None) -> Tensor:  # noqa: A002
    """The positions (int64) that sort `dim`."""
    dim = dim if axis is None else axis
    if input.node is None:
        found = _few("sort", input, dim, bool(descending), -1)
        if found is not None:
            return found[1]
    return _sorted(input.detach(), dim, bool(descending))[1]


@op(out=True)
def msort(input: Tensor) -> Tensor:  # noqa: A002
    """The elements in order along the first axis."""
    return _sorted(input, 0, False)[0]


@op(out=True)
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:  # noqa: A002
    """The k largest (smallest) elements along `dim` and their positions, in order when `sorted`.

    NaN counts as the greatest value.  Raises RuntimeError for k outside 0..size.
    """
    found = _few("topk", input, dim, bool(largest), k) if type(k) is int and k > 0 else None
    if found is not None:
        return _RESULTS["topk"](*found)
    _real("topk", input)
    axis, d, k = _axis(input, dim), input.meta.dtype, k.__index__() if not isinstance(k, Tensor) else int(k.item())  # type: ignore[unreachable]
    if d is bool_:
        raise NotImplementedError("\"topk\" not implemented for 'Bool'")
    if not 0 <= k <= _length(input, axis):
        raise RuntimeError(f"selected index k out of range: k is {k}, the size of dimension {axis} is {_length(input, axis)}")
    if not input.meta.shape and k == 0:
        return _RESULTS["topk"](empty((0,), d, input.meta.device), empty((0,), int64, input.meta.device))
    return _RESULTS["topk"](*_picked("topk", input, axis, k, lambda rows: ordering.first(rows, d, k, bool(largest), bool(sorted)),
                                     ("sort", bool(largest), k)))


# -------------------------------------------------------------------------------------------------------- one element a row
@op(out=True)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:  # noqa: A002
    """The k-th smallest element (from 1) along `dim` and its position.  Raises RuntimeError for k outside 1..size."""
    _real("kthvalue", input)
    axis, d = _axis(input, dim), input.meta.dtype
    if input.meta.shape and not input.meta.shape[axis]:
        raise IndexError(f"kthvalue(): Expected reduction dim {axis} to have non-zero size.")
    if not 1 <= k <= _length(input, axis):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {axis}: k is {k}, the size is {_length(input, axis)}")
    return _RESULTS["kthvalue"](*_element("kthvalue", input, axis, keepdim, k - 1, "", lambda rows: ordering.kth(rows, d, k - 1)))


def _median(name: str, skip_nan: bool) -> Any:
    def function(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None, axis: int | None = None,  # noqa: A002
                 keepdims: bool = False) -> Any:
        dim, keepdim = dim if axis is None else axis, keepdim or keepdims
        d = input.meta.dtype
        if d.is_complex or d is bool_:
            raise NotImplementedError(f"\"{name}\" not implemented for '{d.name}'")
        if dim is None:
            made = _median_of_all(name, input, skip_nan)
            return made if out is None else _written(name, input, made, out)
        axis = _axis(input, dim)
        if input.meta.shape and not input.meta.shape[axis]:
            raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")
        made = _RESULTS[name](*_element(name, input, axis, keepdim, 0, name, lambda rows: ordering.middle(rows, d, skip_nan)))
        return made if out is None else _written(name, input, made, out)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = ("The lower median of all elements, or, along `dim`, the medians and their positions"
                        + (", NaN left out." if skip_nan else "; NaN where there is one.") +
                        "  The gradient of the median of all is shared among elements equal to it.")
    return op(out=None)(function)


def _written(name: str, t: Tensor, made: Any, out: Any) -> Any:
    from .table import into
    if tape.recording(t):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
                           "requires grad.")
    return into(out, made) if isinstance(made, Tensor) else type(made)(*[into(o, r) for o, r in zip(out, made, strict=True)])


def _median_of_all(name: str, t: Tensor, skip_nan: bool) -> Tensor:
    d = t.meta.dtype
    if not t.meta.numel:
        if d.kind != "f":
            raise RuntimeError(f"{name}(): the median of no elements is NaN, which {d} does not have")
        return t.new_full((), float("nan")) if not tape.recording(t) else t.sum() * float("nan")
    flat = t.detach().reshape(-1)
    value = _element(name, flat, 0, False, 0, name, lambda rows: ordering.middle(rows, d, skip_nan))[0]
    return tape.record(value, _shared_back, (t,), (t, t.store.version, alias(value, value.meta, value.ptr)), f"{name.capitalize()}Backward0")


def _shared_back(node: Any, g: Tensor) -> Any:
    x, version, value = node[tape.SAVED]
    saved_tensor(x, version, node)
    x = x.detach()
    hit = ((x == value) | ((x != x) & (value != value))).to(g.meta.dtype)
    return (hit * (g / hit.sum()),)


median, nanmedian = _median("median", False), _median("nanmedian", True)


@op(out=True)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:  # noqa: A002
    """The most frequent element along `dim` (the smallest of several) and its last position."""
    _real("mode", input)
    axis, d = _axis(input, dim), input.meta.dtype
    if input.meta.shape and not input.meta.shape[axis]:
        raise IndexError(f"mode(): Expected reduction dim {axis} to have non-zero size.")
    if not door.by_host(input.meta.device):
        return _RESULTS["mode"](*_by_order("mode", input, axis, keepdim, _commonest))
    return _RESULTS["mode"](*_picked("mode", input, axis, None, lambda rows: ordering.commonest(rows, d), ("mode",), keepdim))


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
        if q.meta.device.type == "cpu" and not bool(((q >= 0) & (q <= 1)).all()):
            raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
        return _quantiles(input, q, dim, keepdim, interpolation, skip_nan)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = ("The q-th quantiles along `dim` (of all elements by default)" + (", NaN left out." if skip_nan else "; NaN where "
                        "there is one.") + "\n\n    q: a number or a vector in [0, 1], of input's type; several give a new first axis.  "
                        "The element at rank q (n - 1), counted from 0, is interpolated as `interpolation` says.")
    return op(out=True)(function)


def _quantiles(t: Tensor, q: Tensor, dim: int | None, keepdim: bool, how: str, skip_nan: bool) -> Tensor:
    axis = 0 if dim is None else _axis(t, dim)
    x = t.reshape(-1) if dim is None or not t.meta.shape else t.movedim(axis, -1)
    ordered = _sorted(x, -1, False)[0]
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

"""Counting: distinct elements, occurrences of integers, histograms.

The size of most results depends on the elements, so the host waits for them and NumPy does the counting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes, layout
from ..autograd import tape
from ..drivers.cpu import row_order
from ..drivers.cpu.nonzero_histogram import edges
from ..dtypes import bool_, float64, int64
from ..kernels import expr as E
from ..kernels.interpret import load, narrow_bfloat16, widen_bfloat16
from ..kernels.programs import Map
from ..kernels.specs import Histogram, Occurrences, Spread
from ..runtime import dispatch
from ..tensor import Tensor, empty
from . import launch, routines
from .casts import to_dtype
from .checks import same_device
from .concat import stack
from .copies import contiguous
from .creation import from_host, full, zeros
from .indexing.along_axis import added_at, taken_along
from .indexing.nonzero import nonzero
from .indexing.positions import take_at
from .reading import host_array, values
from .results import named
from .searching import searchsorted
from .sorting import sort
from .table import op

if TYPE_CHECKING:
    from ..dtypes import dtype

_HISTOGRAM = named("histogram", "hist bin_edges")
_HISTOGRAMDD = named("histogramdd", "hist bin_edges")


# ------------------------------------------------------------------------------------------------------ distinct elements
def _no_gradient(node: Any, g: Tensor) -> Any:
    raise NotImplementedError(f"the derivative for '{node[tape.SAVED]}' is not implemented.")


def _order(a: Any, d: dtype) -> tuple[Any, Any]:
    """Positions that sort the rows of `a` (n, k), and where a row of the sorted ones differs from the one before."""
    n, k = a.shape
    if k == 1:
        at = row_order.order(a.reshape(1, n), d)[0]
    else:
        whole = row_order.keys(a, d)
        big = whole.astype(whole.dtype.newbyteorder(">"))  # so that comparing bytes compares rows
        at = np.argsort(np.ascontiguousarray(big).view(f"V{k * d.itemsize}").reshape(n), kind="stable")
    return at, _changes(load(a, d)[at])


def _changes(rows: Any) -> Any:
    new = np.ones(len(rows), bool)
    if len(rows):
        np.any(rows[1:] != rows[:-1], axis=1, out=new[1:])
    return new


_MOST_COLUMNS = 512  # of slices that are sorted a column at a time


def _by_device(name: str, t: Tensor, by_order: bool, return_inverse: bool, return_counts: bool, dim: int | None) -> Any:
    """The distinct elements or slices, found by t's own device, of which only how many there are comes to the host; None where it does
    not."""
    if not dispatch.serves(t.meta.device, Spread) or t.meta.dtype.is_complex or not t.meta.numel:
        return None
    shape = tuple(t.meta.shape)
    x = t.detach()
    axis = 0 if dim is None else layout.wrap_dim(dim, len(shape))
    rows = x.reshape(-1) if dim is None or not shape else x.movedim(axis, 0).reshape(shape[axis], -1)
    n, width = rows.meta.shape[0], 1 if dim is None or not shape else rows.meta.shape[1]
    if by_order and width > _MOST_COLUMNS:
        return None
    at = None
    if by_order and len(rows.meta.shape) == 1:
        rows, at = sort(rows)
    elif by_order:
        for column in range(width - 1, -1, -1):  # a stable sort by each, the last first
            key = rows[:, column]
            by = sort(key if at is None else taken_along(key, at))[1]
            at = by if at is None else taken_along(at, by)
        rows = take_at(rows, [at])
    new = full((n,), True, dtype=bool_, device=t.meta.device)
    apart = rows[1:] != rows[:-1]
    new[1:] = apart if len(rows.meta.shape) == 1 else apart.any(1)
    starts = nonzero(new, as_tuple=True)[0] if return_counts else None  # how many there are comes to the host once
    picked = rows[new] if starts is None else take_at(rows, [starts])
    if dim is None or not shape:
        made = picked.reshape(-1)
    else:
        made = picked.reshape(-1, *shape[:axis], *shape[axis + 1:]).movedim(0, axis)
    made.base = None  # nobody else sees its memory
    result = tape.record(made, _no_gradient, (t,), name, f"{name.capitalize()}Backward0")
    out = [result]
    if return_inverse:
        new[0] = False  # so the sums count from 0
        place = new.cumsum(0)
        inverse = place if at is None else empty((n,), int64, t.meta.device)
        if at is not None:
            routines.require(t.meta.device, Spread(n), (inverse.ptr, at.ptr, place.ptr))
        out.append(inverse.reshape(shape) if dim is None else inverse)
    if starts is not None:
        counts = starts.roll(-1)
        counts[-1] = n
        out.append(counts.sub_(starts))
    return result if len(out) == 1 else tuple(out)


def _distinct(name: str, t: Tensor, by_order: bool, return_inverse: bool, return_counts: bool, dim: int | None) -> Any:
    if t.meta.dtype.is_complex:
        raise NotImplementedError(f"\"{name}\" not implemented for '{t.meta.dtype.name}': complex numbers have no order")
    if dim is not None and not t.meta.shape:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    own = _by_device(name, t, by_order, return_inverse, return_counts, dim)
    if own is not None:
        return own
    a, m = host_array(t.detach()), t.meta
    if dim is None:
        axis, rows = 0, np.ascontiguousarray(a).reshape(-1, 1)
    else:
        axis = layout.wrap_dim(dim, len(m.shape))
        if 0 in m.shape and (m.shape[axis] or sum(1 for s in m.shape if not s) > 1):
            raise RuntimeError(f"{name}(): the tensor has axes of size 0 besides dim {axis}, so its parts have nothing to be compared by")
        moved = np.moveaxis(a, axis, 0) if m.shape else a.reshape(1)
        rows = np.ascontiguousarray(moved).reshape(len(moved), layout.numel(moved.shape[1:]))
    n = len(rows)
    if by_order and n:
        at, new = _order(rows, m.dtype)
    else:
        at, new = np.arange(n), _changes(load(rows, m.dtype))
    starts = np.nonzero(new)[0]
    picked = rows[at[starts]]
    made = from_host(np.ascontiguousarray(picked.reshape(-1) if dim is None else picked.reshape(len(picked), *moved.shape[1:])), m.dtype, m.device)
    if axis:
        made = made.movedim(0, axis)
        made.base = None  # nobody else sees its memory
    result = tape.record(made, _no_gradient, (t,), name, f"{name.capitalize()}Backward0")
    if not (return_inverse or return_counts):
        return result
    out = [result]
    if return_inverse:
        inverse = np.empty(n, np.int64)
        inverse[at] = np.cumsum(new) - 1
        out.append(from_host(inverse.reshape(tuple(m.shape) if dim is None else (n,)), int64, m.device))
    if return_counts:
        out.append(from_host(np.diff(np.append(starts, n)).astype(np.int64), int64, m.device))
    return tuple(out)


@op(batch="reads")
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:  # noqa: A002
    """The distinct elements in order (of the flattened tensor), or the distinct slices along `dim`.

    return_inverse: also where each element is in the result (int64).  return_counts: also how often each occurs.  Each NaN is
    distinct.  The host waits for the values.  No gradient.
    """
    return _distinct("unique", input, True, return_inverse, return_counts, dim)


@op(batch="reads")
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:  # noqa: A002
    """The first element of each run of equal ones (of the flattened tensor, or of slices along `dim`); else as `unique`."""
    return _distinct("unique_consecutive", input, False, return_inverse, return_counts, dim)


# ------------------------------------------------------------------------------------------------------------- occurrences
@op()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:  # noqa: A002
    """How often each number 0, 1, ... occurs in a vector of integers (int64), or the sums of their `weights` (of their floating
    type, else float64).  The host waits for the values.

    Raises RuntimeError for negative numbers or a wrong shape.
    """
    if input.meta.dtype.kind not in "ui":
        raise NotImplementedError(f"\"bincount_cpu\" not implemented for '{input.meta.dtype.name}': input must have an integer type")
    if minlength < 0:
        raise RuntimeError(f"minlength should be >= 0, got {minlength}")
    made = _counts(input, weights, minlength)
    tape.record_underived((made,), (weights,), "bincount")
    return made


def _counts(input: Tensor, weights: Tensor | None, minlength: int) -> Tensor:  # noqa: A002
    if len(input.meta.shape) == 1 and input.meta.numel and dispatch.serves(input.meta.device, Occurrences):
        return _counted_by_device(input, weights, minlength)
    a = host_array(input)
    if len(input.meta.shape) != 1 or (len(a) and int(a.min()) < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        return from_host(np.bincount(a.astype(np.int64), minlength=minlength).astype(np.int64), int64, input.meta.device)
    if weights.meta.shape != input.meta.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    same_device("bincount", input, weights)
    d = weights.meta.dtype if weights.meta.dtype.name == "float32" else float64
    w = load(host_array(weights.detach()), weights.meta.dtype).astype(np.float64)
    return from_host(np.bincount(a.astype(np.int64), w, minlength).astype(d.np), d, input.meta.device)


def _counted_by_device(t: Tensor, weights: Tensor | None, minlength: int) -> Tensor:
    """bincount by t's own device, of which only the least and the greatest number come to the host."""
    least, greatest = (int(v) for v in values(stack([t.min(), t.max()]), "bincount"))
    if least < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    bins = max(greatest + 1, minlength)
    if weights is None:
        return _occurrences(t, bins)
    if weights.meta.shape != t.meta.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    same_device("bincount", t, weights)
    d = weights.meta.dtype if weights.meta.dtype.name == "float32" else float64
    made: Tensor = zeros(bins, dtype=float64, device=t.meta.device)
    _tally(made, contiguous(t), weights.detach() if weights.meta.dtype.name == "float32" else to_dtype(weights.detach(), float64))
    return to_dtype(made, d)


def _occurrences(t: Tensor, bins: int) -> Tensor:
    """How often each of 0 .. bins - 1 is among the elements of t, integers which are all of these."""
    made: Tensor = zeros(bins, dtype=int64, device=t.meta.device)
    t = contiguous(t)
    own = None if t.meta.dtype is int64 else t.meta.dtype
    if own is None or not routines.run(t.meta.device, Occurrences(t.meta.numel, bins, own), (made.ptr, t.ptr)):
        t = to_dtype(t, int64)
        routines.require(t.meta.device, Occurrences(t.meta.numel, bins), (made.ptr, t.ptr))
    return made


# --------------------------------------------------------------------------------------------------------------- histograms
@op(out=True)
def histc(input: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:  # noqa: A002
    """How many elements fall into each of `bins` equal intervals from min to max (of input's type, a floating one, or on a GPU an integer
    one); the last includes max, elements outside and NaN are not counted.  Equal min and max stand for the data's own.
    """
    d, m = input.meta.dtype, input.meta
    whole = d.kind in "iu" and m.device.type == "cuda"
    if d.kind != "f" and not whole:
        where = "histc" if m.device.type == "cuda" else "histogram_cpu"
        raise NotImplementedError(f"\"{where}\" not implemented for '{d.name}': input must have a floating type" + ", or an integer one on a GPU")
    if bins <= 0:
        raise RuntimeError(f"torch.histc(): bins must be > 0, but got {bins}")
    if min > max:
        raise RuntimeError(f"torch.histc: max must be larger than min, got [{min}, {max}]")
    if whole:
        return _histc_of_integers(input.detach(), bins, min, max)
    if not dispatch.serves(m.device, Histogram) and dispatch.serves(m.device, Occurrences):
        return _histc_by_counting(input.detach(), bins, min, max)
    own = min == max
    low, high = (0.0, 0.0) if own else edges("histc", _kind(d)(min), _kind(d)(max), 1)
    out, told = empty((bins,), d, m.device), empty((), int64, m.device)
    routines.require(m.device, Histogram(d, tuple(m.shape), m.strides, bins, own), (out.ptr, told.ptr, input.ptr), (float(low), float(high)))
    if own and told.item():
        least, greatest = values(stack([input.detach().min(), input.detach().max()]), "histc")
        edges("histc", least, greatest, 1)
    return out


def _kind(d: dtype) -> Any:
    """NumPy's type that calculates with elements of a floating type."""
    return np.float32 if d is dtypes.bfloat16 else np.dtype(d.np).type


def _histc_by_counting(x: Tensor, bins: int, low: Any, high: Any) -> Tensor:
    """histc with the roundings of the host's, of which only the data's own edges come to the host where they are asked for."""
    d = x.meta.dtype
    kind = _kind(d)
    if low == high and x.meta.numel:
        low, high = values(stack([x.min(), x.max()]), "histc")
    low, high = edges("histc", kind(low), kind(high), 1)
    inside = (x >= float(low)) & (x <= float(high))
    width = high - low
    if d is dtypes.bfloat16:
        width = widen_bfloat16(narrow_bfloat16(np.asarray(width, np.float32)))
    place = (x - float(low)) * float(kind(bins)) / float(width)
    at = to_dtype(place.masked_fill(~inside, 0.0), int64).clamp_(max=bins - 1).masked_fill(~inside, bins)
    counts: Tensor = _occurrences(at, bins + 1)[:bins]
    return to_dtype(counts, d)


def _histc_of_integers(x: Tensor, bins: int, low: Any, high: Any) -> Tensor:
    """histc of integers, whose edges are integers too: numbers given for them lose what is behind the point, and intervals are those of
    integer division."""
    low, high = int(low), int(high)
    if low == high and x.meta.numel:
        low, high = (int(v) for v in values(stack([x.min(), x.max()]), "histc"))
    if low == high:
        low, high = low - 1, high + 1
    wide = to_dtype(x, int64)
    outside = (wide < low) | (wide > high)
    at = (wide.masked_fill(outside, low) - low).mul_(bins).floor_divide_(high - low).clamp_(max=bins - 1).masked_fill_(outside, bins)
    return to_dtype(_occurrences(at, bins + 1)[:bins], x.meta.dtype)


def _edges(name: str, bins: Any, x: Tensor, limits: tuple[Any, Any] | None) -> tuple[Tensor, float, float]:
    """The edges of one axis: a tensor's elements, or equally spaced ones, of the type of x; and the outer ones as numbers."""
    d, dev = x.meta.dtype, x.meta.device
    if isinstance(bins, Tensor):
        if bins.meta.dtype is not d:
            raise RuntimeError(f"torch.{name}: input tensor and bins tensors should have the same dtype, but got input with dtype {d.name} and bins with "
                               f"dtype {bins.meta.dtype.name}")
        if len(bins.meta.shape) != 1:
            raise RuntimeError(f"torch.{name}: bins tensor should have one dimension, but got {len(bins.meta.shape)} dimensions")
        if not bins.meta.numel:
            raise RuntimeError(f"torch.{name}: bins tensor should have at least 1 element, but got 0 elements")
        if limits is not None:
            raise TypeError(f"{name}() received an invalid combination of arguments: range is for a number of bins, and bins is a tensor of edges")
        made = contiguous(to_dtype(bins.detach(), d))
        first, last = values(stack([made[0], made[-1]]), name)
        return made, float(first), float(last)
    if bins <= 0:
        raise RuntimeError(f"torch.{name}(): bins must be > 0, but got {bins}")
    if limits is None:
        limits = tuple(values(stack([x.min(), x.max()]), name)) if x.meta.numel else (0.0, 1.0)
    low, high = edges(name, limits[0], limits[1], 0.5)
    host = np.linspace(low, high, bins + 1, dtype=np.float64).astype(d.np)
    return from_host(host, d, dev), float(host[0]), float(host[-1])


def _cell_program(d: dtype) -> Map:
    """Which cell a point is in, after one more axis: of the interval that its coordinate was sorted into, the coordinate, and the cell so far.
    Numbers: the outer edges, how many intervals the axis has, and how many cells there are, which stands for none of them."""
    found = _cell_programs.get(d)
    if found is None:
        sorted_into, x, before = E.input(0, int64), E.input(1, d), E.input(2, int64)
        first, last, many, none = E.scalar(0, d), E.scalar(1, d), E.scalar(2, int64), E.scalar(3, int64)
        at = E.where(x == last, many, sorted_into) - E.const(1, int64)
        inside = (x >= first) & (x <= last) & (before != none)
        found = _cell_programs[d] = Map((E.where(inside, before * many + at, none),), (int64, d, int64), (d, d, int64, int64))
    return found


_cell_programs: dict[dtype, Map] = {}


def _counted(points: list[Tensor], axes: list[tuple[Tensor, float, float]], weight: Tensor | None, density: bool) -> Tensor:
    """The histogram of points, a vector for each axis, over the cells that the edges make."""
    d, dev, n = points[0].meta.dtype, points[0].meta.device, points[0].meta.numel
    cells = [e.meta.shape[0] - 1 for e, _, _ in axes]
    total = layout.numel(cells)
    counts: Tensor = zeros(total + 1, dtype=int64 if weight is None else float64, device=dev)
    if n:
        place = zeros(1, dtype=int64, device=dev).expand(n)
        for x, (e, first, last), many in zip(points, axes, cells, strict=True):
            made = empty((n,), int64, dev)
            launch.run(_cell_program(d), (n,), [made], [searchsorted(e, x, right=True), x, place], None, (first, last, many, total), "histogram")
            place = made
        _tally(counts, place, weight)
    kept = counts[:total].reshape(cells)
    if density:
        kept = kept / kept.sum(dtype=float64)
        for i, (e, _, _) in enumerate(axes):
            kept = kept / to_dtype(e, float64).diff().reshape([-1 if k == i else 1 for k in range(len(axes))])
    return to_dtype(kept, d)


def _tally(counts: Tensor, place: Tensor, weight: Tensor | None) -> None:
    """Adds to counts, at each place, 1 or the weight there."""
    n, bins = place.meta.numel, counts.meta.numel
    if weight is None:
        routines.require(place.meta.device, Occurrences(n, bins), (counts.ptr, place.ptr))
        return
    w = contiguous(weight)
    if not routines.run(place.meta.device, Occurrences(n, bins, place.meta.dtype, w.meta.dtype), (counts.ptr, place.ptr, w.ptr)):
        added_at(counts, to_dtype(place, int64), to_dtype(w, float64))


def _histogram_input(name: str, input: Tensor, weight: Tensor | None, rest: tuple[int, ...]) -> Any:  # noqa: A002
    if input.meta.dtype.name not in ("float32", "float64"):
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{input.meta.dtype.name}': input must be float32 or float64")
    if weight is None:
        return None
    if weight.meta.dtype is not input.meta.dtype:
        raise RuntimeError(f"torch.{name}: if weight tensor is provided, input tensor and weight tensor should have the same dtype, but got "
                           f"input({input.meta.dtype.name}), and weight({weight.meta.dtype.name})")
    if tuple(weight.meta.shape) != rest:
        raise RuntimeError(f"torch.{name}(): if weight tensor is provided it should have the same shape as the input tensor excluding its innermost "
                           f"dimension, but got input with shape {list(input.meta.shape)} and weight with shape {list(weight.meta.shape)}")
    return weight.detach().reshape(-1)


@op(out=True, out_said="input tensor and {result} tensor should have the same dtype")
def histogram(input: Tensor, bins: Any = 100, *, range: Any = None, weight: Tensor | None = None, density: bool = False) -> Any:  # noqa: A002
    """Counts of the elements in intervals, and the intervals' edges, both of input's type (float32 or float64).

    bins: how many equal intervals over `range` (the data's own by default), or an increasing vector of edges.  weight: what
    each element counts.  density: divided by the total and the intervals' lengths.  The host waits for the values.
    """
    same_device("histogram", input, weight, bins)
    w = _histogram_input("histogram", input, weight, tuple(input.meta.shape))
    x = contiguous(input.detach().reshape(-1))
    axis = _edges("histogram", bins, x, range)
    made = _HISTOGRAM(_counted([x], [axis], w, density), axis[0])
    tape.record_underived(made, [t for t in (input, weight, bins) if isinstance(t, Tensor)], "histogram")
    return made


@op(method=True, out=True)
def histogramdd(input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False) -> Any:  # noqa: A002
    """`histogram` of points: input is (..., axes).  bins: a number, a number an axis, or a vector of edges an axis.  range: lowest
    and highest of each axis in turn.  Gives the counts, one axis a coordinate, and a tuple of edges.
    """
    if len(input.meta.shape) < 2:
        raise RuntimeError(f"torch.histogramdd(): input tensor should have at least 2 dimensions, but got {len(input.meta.shape)}")
    axes = input.meta.shape[-1]
    same_device("histogramdd", input, weight, *(bins if isinstance(bins, (list, tuple)) else ()))
    w = _histogram_input("histogramdd", input, weight, tuple(input.meta.shape[:-1]))
    points = [contiguous(x) for x in input.detach().reshape(-1, axes).unbind(1)]
    each = [bins] * axes if isinstance(bins, int) else list(bins)
    if len(each) != axes:
        raise RuntimeError(f"torch.histogramdd(): expected {axes} sequences of bin edges or counts, one for each coordinate, but got {len(each)}")
    limits = None if range is None else list(range)
    if limits is not None and len(limits) != 2 * axes:
        raise RuntimeError(f"torch.histogramdd(): for a {axes}-dimensional histogram range should have {2 * axes} elements, but got {len(limits)}")
    found = [_edges("histogramdd", b, x, None if limits is None else (limits[2 * i], limits[2 * i + 1]))
             for i, (b, x) in enumerate(zip(each, points, strict=True))]
    made = _HISTOGRAMDD(_counted(points, found, w, density), tuple([e for e, _, _ in found]))
    tape.record_underived((made[0], *made[1]), [t for t in (input, weight, *each) if isinstance(t, Tensor)], "histogramdd")
    return made


@op(out=True)
def hash_tensor(input: Tensor, dim: Any = (), *, keepdim: bool = False, mode: int = 0) -> Tensor:  # noqa: A002
    """The exclusive or over `dim` (all axes for none) of the elements' 64 bits, as uint64: integers widened to int64, floating
    numbers to float64.  mode 0 is the only one.  Raises NotImplementedError for complex numbers."""
    if mode != 0:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
    d = input.meta.dtype
    if d.is_complex:
        raise NotImplementedError(f"\"hash_tensor\" not implemented for '{d.name}'")
    n = len(input.meta.shape)
    wanted = (dim,) if isinstance(dim, int) else tuple(dim or ())
    axes = tuple(sorted(layout.wrap_dim(a, n) for a in wanted)) if wanted and n else tuple(range(n))
    if len(set(axes)) != len(axes):
        raise RuntimeError(f"dim appears multiple times in the list of dims: {wanted}")
    from ..kernels.llvm.handwritten import hashing
    shape = tuple(input.meta.shape)
    rest = [i for i in range(n) if i not in axes]
    result = tuple([1 if i in axes else s for i, s in enumerate(shape) if keepdim or i not in axes])
    out = empty(result, dtypes.uint64, input.meta.device)
    x = contiguous(input.detach().permute(*rest, *axes)) if n else input
    rows = out.meta.numel
    launch.routine("hash_tensor", hashing.entry(d, rows, layout.numel([shape[i] for i in axes])), (out,), (x,), nbytes=input.meta.nbytes)
    return out

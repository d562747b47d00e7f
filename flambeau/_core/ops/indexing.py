"""Indexing: `x[...]` to read and write, and the operations that take positions.

Basic indices (ints, slices, None, ...) make one view by arithmetic.  Tensors of positions become one generated kernel: a Map
whose input (or output) is addressed by offsets computed from the positions.  Colliding writes are applied in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes, layout
from ..autograd import inplace, tape
from ..autograd.mode import _grad
from ..dtypes import bool_, int32, int64, uint8
from ..engine.fields import has
from ..engine.fronts import OPEN, TENSORS
from ..engine.operation import Operation
from ..errors import warn
from ..kernels import expr as E
from ..kernels.programs import Map
from ..kernels.specs import Check, Chosen, NonzeroCount, NonzeroWrite
from ..runtime import caches
from ..tensor import Meta, Tensor, _new, alias, empty, meta, new
from . import launch, outputs, routines
from .casts import to_dtype
from .checks import may_write, no_overlap, same_device
from .device_errors import mismatch
from .table import op
from .views import _select, placed, planning

if TYPE_CHECKING:

    from ..dtypes import dtype as dtype_class

_POSITIONS = frozenset((int64, int32, uint8, bool_))
_TILE = 2048  # elements whose count a device's routine keeps


# ----------------------------------------------------------------------------------------------------------- basic indices
def _too_many(t: Tensor) -> IndexError:
    return IndexError(f"too many indices for tensor of dimension {len(t.meta.shape)}")


def _normal(index: Any) -> list[Any]:
    """The index as a list, nested lists and arrays as tensors."""
    from .creation import tensor
    items = list(index) if isinstance(index, tuple) or _as_tuple(index) else [index]
    out: list[Any] = []
    for x in items:
        if isinstance(x, (list, tuple, range)):
            x = tensor(list(x), device="cpu") if len(x) else tensor([], dtype=int64, device="cpu")
            x = to_dtype(x, int64) if x.meta.dtype.kind == "f" else x  # of numbers as such the whole part counts
        elif isinstance(x, np.ndarray):
            x = tensor(x, device="cpu")
        elif isinstance(x, np.bool_):
            x = bool(x)
        elif isinstance(x, np.integer):
            x = int(x)
        if isinstance(x, Tensor) and x.meta.dtype not in _POSITIONS and x.meta.dtype.kind in "ui" and not x.meta.shape:
            x = to_dtype(x, int64)  # one integer is a position, whatever its type
        if isinstance(x, Tensor) and x.meta.dtype not in _POSITIONS:
            raise IndexError(f"tensors used as indices must be long, int, byte or bool tensors, got {x.meta.dtype}")
        if isinstance(x, Tensor) and x.meta.dtype is uint8:
            warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
        out.append(x)
    return out


def _as_tuple(index: Any) -> bool:
    """Whether a sequence that is no tuple is taken for one, as PyTorch does with a list of what are indices themselves."""
    if not isinstance(index, (list, range)) or len(index) >= 32:
        return False
    if not any(x is None or x is Ellipsis or isinstance(x, (Tensor, slice, list, tuple, range, np.ndarray)) for x in index):
        return False
    warn("Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq], or "
         "x[torch.tensor(seq)] for what is meant as one tensor of positions.")
    return True


def _consumes(x: Any) -> int:
    """How many axes of the tensor an index uses up."""
    if x is None or isinstance(x, bool):
        return 0
    if isinstance(x, Tensor) and x.meta.dtype in (bool_, uint8):
        return len(x.meta.shape)
    return 1


def _basic(t: Tensor, items: list[Any]) -> tuple[Tensor, list[Any]]:
    """The view that ints, slices, None and ... make, and for each of its axes the tensor of positions still to apply."""
    used = 0
    for x in items:
        if x is not Ellipsis:
            used += _consumes(x)
    ndim = len(t.meta.shape)
    if used > ndim:
        raise _too_many(t)
    places = [i for i, x in enumerate(items) if x is Ellipsis]
    if not places:
        items = [*items, Ellipsis]
    elif len(places) > 1:  # the others stand for no axes, so that nothing can come after them
        if any(_consumes(x) for x in items[places[1]:] if x is not Ellipsis):
            raise IndexError("an index can only have a single ellipsis ('...')")
        items = [x for i, x in enumerate(items) if i not in places[1:]]
    shape: list[int] = []
    strides: list[int] = []
    pending: list[Any] = []
    offset, axis = 0, 0
    sizes, steps = t.meta.shape, t.meta.strides
    for x in items:
        if x is Ellipsis:
            for _ in range(ndim - used):
                shape.append(sizes[axis])
                strides.append(steps[axis])
                pending.append(None)
                axis += 1
        elif x is None or isinstance(x, bool):
            shape.append(1)
            strides.append(sizes[axis] * steps[axis] if axis < ndim else 1)
            pending.append(x)
        elif isinstance(x, slice):
            start, stop, step = _slice(x, sizes[axis])
            count = max(0, -(-(stop - start) // step))
            offset += start * steps[axis]
            shape.append(count)
            strides.append(steps[axis] * step)
            pending.append(None)
            axis += 1
        elif isinstance(x, Tensor) and (x.meta.shape or x.meta.dtype in (bool_, uint8)):
            k = _consumes(x)
            for i in range(k):
                shape.append(sizes[axis])
                strides.append(steps[axis])
                pending.append(x if i == 0 else "with the one before")
                axis += 1
            if k == 0:
                shape.append(1)
                strides.append(0)
                pending.append(x)
        else:
            if isinstance(x, (float, str)) or not hasattr(x, "__index__"):
                kind: type[Exception] = TypeError if isinstance(x, str) else IndexError
                raise kind("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
                           f"{type(x).__name__})")
            i = _position(x)
            n = sizes[axis]
            if not -n <= i < n:
                raise IndexError(f"index {i} is out of bounds for dimension {axis} with size {n}")
            offset += (i + n if i < 0 else i) * steps[axis]
            axis += 1
    if shape == list(sizes) and strides == list(steps) and any(p is not None for p in pending):
        return t, pending
    region = _region([slice(None) if isinstance(x, Tensor) else None if isinstance(x, bool) else x for x in items], items)
    out = placed(t, shape, tuple(strides), t.ptr + offset * t.meta.dtype.itemsize, region, "SliceBackward0" if len(items) else "AliasBackward0")
    return out, pending


def _region(basic: list[Any], items: list[Any]) -> Any:
    """The same view of another tensor: positions stand for whole axes."""
    expanded: list[Any] = []
    for b, x in zip(basic, items, strict=True):
        if isinstance(x, Tensor) and (x.meta.shape or x.meta.dtype in (bool_, uint8)):
            expanded += [slice(None)] * _consumes(x) if _consumes(x) else [None]
        elif isinstance(x, Tensor):
            expanded.append(_position(x))
        else:
            expanded.append(b)
    return lambda z: _basic(z, expanded)[0]


def _position(x: Any) -> int:
    if isinstance(x, Tensor):
        return int(x.item())
    if isinstance(x, (float, str)) or not hasattr(x, "__index__"):
        raise TypeError(f"only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
                        f"{type(x).__name__})")
    return int(x.__index__())


def _slice(x: slice, n: int) -> tuple[int, int, int]:
    for p in (x.start, x.stop, x.step):
        if p is not None and not hasattr(p, "__index__"):
            raise TypeError(f"slice indices must be integers or None or have an __index__ method, not {type(p).__name__}")
    parts = [None if p is None else _position(p) for p in (x.start, x.stop, x.step)]
    if parts[2] is not None and parts[2] <= 0:
        raise ValueError("step must be greater than zero")
    return slice(*parts).indices(n)


# ------------------------------------------------------------------------------------------------------ positions as tensors
def _expanded(x: Tensor, pending: list[Any]) -> tuple[Tensor, list[Tensor | None]]:
    """Masks as positions; positions in int64 on x's device.  Bool scalars become an axis of size 1 or 0."""
    out: list[Tensor | None] = []
    i = 0
    while i < len(pending):
        p = pending[i]
        if p is None:
            out.append(None)
        elif isinstance(p, bool) or (isinstance(p, Tensor) and not p.meta.shape and p.meta.dtype in (bool_, uint8)):
            from .creation import zeros
            out.append(zeros((1 if bool(p) else 0,), dtype=int64, device=x.meta.device))
        elif p.meta.dtype in (bool_, uint8):
            for k, (a, b) in enumerate(zip(p.meta.shape, x.meta.shape[i:], strict=False)):
                if a != b:
                    raise IndexError(f"The shape of the mask {list(p.meta.shape)} at index {k} does not match the shape of the indexed tensor "
                                     f"{list(x.meta.shape)} at index {i + k}")
            out += list(_nonzero_parts(p, x.meta.device))
            i += len(p.meta.shape) - 1
        else:
            out.append(_placed_index(p, x))
        i += 1
    return x, out


def _placed_index(p: Tensor, x: Tensor) -> Tensor:
    if p.meta.device is not x.meta.device:
        if p.meta.device.type != "cpu" or (p.meta.shape and x.meta.device.type == "cpu"):
            raise mismatch("index", [x, p], [x], begins=f"indices should be either on cpu or on the same device as the indexed tensor ({x.meta.device})",
                           labels=("input", "index"))
        from .transfer import to_device
        p = to_device(p, x.meta.device)
    return to_dtype(p, int64)


def _nonzero_parts(mask: Tensor, dev: Any) -> tuple[Tensor, ...]:
    found = nonzero_columns(mask) if mask.meta.device is dev else None
    if found is not None:
        parts = tuple(found[k] for k in range(len(mask.meta.shape)))
    else:
        from .creation import from_host
        parts = tuple(from_host(np.ascontiguousarray(a, np.int64), int64, dev) for a in _nonzero_host(mask))
    for part, n in zip(parts, mask.meta.shape, strict=True):
        part.__dict__["_below"] = n  # nobody else has them: they need no check
    return parts


def nonzero_counts(t: Tensor) -> Tensor | None:
    """What "nonzero write" needs: how many elements are not 0, and how many before each of its blocks, in t's own memory; None where
    t's device has no routine for it."""
    plan = _counting(t.meta)
    if plan is None:
        return None
    counts = new(plan[0])
    routines.call(plan[1], (counts.ptr, t.ptr))
    return counts


@caches.kept
def _counting(m: Meta) -> tuple[Meta, routines.Bound] | None:
    """The layout of a tensor's counts and the launch; None where there is none."""
    bound = routines.find(m.device, NonzeroCount(m.dtype, tuple(m.shape), m.strides)) if m.numel and m.shape else None
    return None if bound is None else (meta((1 + -(-m.numel // _TILE),), None, int64, m.device), bound)


def _count_of(counts: Tensor) -> int:
    """The first of these numbers, for which the host waits."""
    from .reading import values
    return int(values(alias(counts, meta((), None, int64, counts.meta.device), counts.ptr), "nonzero"))


def nonzero_columns(t: Tensor) -> Tensor | None:
    """The coordinates (ndim, count) of the elements that are not 0, found by t's own device, of which only the count comes to the host;
    None where the host is to find them."""
    counts = nonzero_counts(t)
    if counts is None:
        return None
    n = _count_of(counts)
    return _coordinates(t, counts, n, meta((len(t.meta.shape), n), None, int64, t.meta.device))


def _coordinates(t: Tensor, counts: Tensor, n: int, layout: Meta) -> Tensor:
    """The coordinates of the n elements that are not 0, those along an axis together, in a new tensor."""
    found = new(layout)
    if n:
        routines.call(_placing(t.meta), (found.ptr, t.ptr, counts.ptr), (n, 1, n))
    return found


@caches.kept
def _placing(m: Meta) -> routines.Bound:
    return routines.needed(m.device, NonzeroWrite(m.dtype, tuple(m.shape), m.strides))


def _nonzero_host(t: Tensor) -> tuple[Any, ...]:
    """NumPy's nonzero of the values, which come to the host."""
    from .reading import values
    v = values(t.detach() if t.node is not None else t, "nonzero")
    return tuple(np.nonzero(v)) if t.meta.shape else tuple(np.nonzero(v.reshape(1)))[:0] or ()


@caches.kept
def checking(m: Meta, low: int, high: int, axis: int, *named: Any) -> routines.Bound:
    """What raises IndexError for positions along an axis that are not in low .. high - 1.  named: another class of the error, and the check's name."""
    told = f"index {{}} is out of bounds for dimension {axis} with size {high}"
    return routines.needed(m.device, Check(tuple(m.shape), m.strides, low, high, None, told, *named))


def once(m: Meta) -> Meta:
    """The layout of the same elements, those once that an axis repeats."""
    return meta(tuple([n if s else 1 for n, s in zip(m.shape, m.strides, strict=True)]), m.strides, m.dtype, m.device) if 0 in m.strides else m


class _Where:
    """Where an advanced index reads or writes: the result's domain and the offset of each of its elements in what is laid out as `x` says.

    indices: the layouts of the positions, None for a whole axis; in a form that a cache is looked up by.
    """

    __slots__ = ("domain", "idx", "axes", "sizes", "negative", "strides", "numbers", "key", "apart")

    def __init__(self, x: Meta, negative: bool, *indices: Meta | None) -> None:
        axes = [i for i, p in enumerate(indices) if p is not None]
        given: list[Meta] = [p for p in indices if p is not None]
        try:
            shape = layout.broadcast_shapes(*[p.shape for p in given])
        except RuntimeError:
            raise IndexError("shape mismatch: indexing tensors could not be broadcast together with shapes " +
                             ", ".join(str(list(p.shape)) for p in given)) from None
        # an index that stands alone or whose tensors are adjacent keeps its place; separated ones go first
        at = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
        rest = [i for i in range(len(x.shape)) if i >= len(indices) or indices[i] is None]
        before = [i for i in rest if i < at] if at else []
        after = [i for i in rest if i not in before]
        self.domain = (*[x.shape[i] for i in before], *shape, *[x.shape[i] for i in after])
        sizes = [x.shape[a] for a in axes]
        if negative and 0 in sizes and 0 not in shape:
            raise IndexError(f"index is out of bounds for dimension with size 0: dimension {axes[sizes.index(0)]} has no elements")
        self.axes, self.sizes, self.negative = axes, sizes, negative
        lead, tail = len(before), len(after)
        self.idx = given
        self.strides = [(0,) * lead + layout.expand_strides(p.shape, p.strides, shape) + (0,) * tail for p in given]
        self.numbers = (*[x.shape[a] for a in axes], *[x.strides[a] for a in axes], *[x.strides[i] for i in (*before, *after)])
        dense = tail > 0 and x.strides[after[-1]] == 1  # its rows are then seen to be neighbours, which go by vectors
        self.key = (len(given), lead, len(shape), tail, dense)
        # along its other axes x has different elements
        self.apart = () if layout.overlaps_itself(x.shape, x.strides) else (*range(lead), *range(lead + len(shape), lead + len(shape) + tail))

    def laid_out(self) -> tuple[int, ...]:
        """The strides of what is read."""
        _, lead, positions, tail, _ = self.key
        kept = self.numbers[2 * len(self.idx):]
        own = (*kept[:lead], *[0] * positions, *kept[lead:])
        shape = (*[1] * lead, *self.domain[lead:lead + positions], *[1] * tail)
        return layout.result_strides(self.domain, [(self.domain, own), *[(shape, s) for s in self.strides]])

    def checks(self) -> list[tuple[int, routines.Bound]]:
        """For each index the size of its axis, and what raises IndexError for positions outside it; none where nothing is read or written, as none
        is looked at then."""
        if not layout.numel(self.domain) and self.negative:
            return []
        return [(n, checking(p, -n if self.negative else 0, n, axis)) for p, n, axis in zip(self.idx, self.sizes, self.axes, strict=True) if p.numel]


def _offset(first: int, key: tuple[int, int, int, int, bool]) -> E.Expr:
    """The element offset of a `_Where` with this key; the positions are inputs first, first + 1, ..."""
    k, lead, positions, tail, dense = key
    places = [*range(lead), *range(lead + positions, lead + positions + tail)]
    total: E.Expr = E.const(0, int64)
    for j in range(k):
        p, n = E.input(first + j, int64), E.scalar(j, int64)
        p = E.where(p < 0, p + n, p)
        # a wrong position on a GPU is reported by the check; meanwhile it must not leave the tensor
        p = E.where((p >= 0) & (p < n), p, E.const(0, int64))
        total = total + p * E.scalar(k + j, int64)
    for j, place in enumerate(places):
        total = total + (E.coord(place) if dense and j == len(places) - 1 else E.coord(place) * E.scalar(2 * k + j, int64))
    return total


_where = caches.kept(_Where)


def _held_within(checks: Sequence[tuple[int, routines.Bound]], indices: Sequence[Tensor]) -> None:
    """Raises IndexError for positions outside an axis: at once on the CPU, from the queue on a GPU."""
    for (n, check), p in zip(checks, [p for p in indices if p.meta.numel], strict=False):
        if p.__dict__.get("_below") != n:
            routines.call(check, (p.ptr,))


def check_positions(x: Tensor, at: Tensor) -> None:
    """Raises IndexError, as `taken` would, for positions of rows of x that it has not; none may count from the end."""
    _held_within(_where(x.meta, False, at.meta, *[None] * (len(x.meta.shape) - 1)).checks(), [at])


def _scalars(key: tuple[int, int, int, int, bool]) -> tuple[dtype_class, ...]:
    return (int64,) * (2 * key[0] + key[1] + key[3])


@cache
def _taking(d: dtype_class, key: tuple[int, int, int, int, bool]) -> Map:
    """The program that takes elements of a type where a `_Where` with this key says."""
    return Map((E.gather(0, _offset(1, key), d),), (d, *[int64] * key[0]), _scalars(key))


@caches.kept
def _reading(x: Meta, negative: bool, *indices: Meta | None) -> tuple[Meta, list[tuple[int, routines.Bound]], Any, tuple[int, ...]]:
    """What takes the elements of x at positions: the result's layout, the checks, the launch with its workspace (None for no elements) and its numbers.

    The result is laid out as elementwise results of x and the positions are, or contiguous where positions are those of rows.
    """
    w = _where(x, negative, *indices)
    out, checks = meta(w.domain, w.laid_out() if negative else None, x.dtype, x.device), w.checks()
    if not out.numel or not x.numel:  # or there is nothing to take from, as the checks tell
        return out, checks, None, ()
    strides = [out.strides, (0,) * len(w.domain), *w.strides]
    return out, checks, launch.plan(x.device, _taking(x.dtype, w.key), w.domain, strides, [m.nbytes for m in (out, x, *w.idx)], "index"), w.numbers


@cache
def _putting(d: dtype_class, key: tuple[int, int, int, int, bool], mode: str, apart: tuple[int, ...], unit: int) -> Map:
    """The program that writes elements of a type where a `_Where` with this key says."""
    return Map((E.input(0, d),), (d, *[int64] * key[0]), _scalars(key), ((mode, _offset(1, key)),), apart, unit)


def _put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, mode: str, negative: bool = True) -> None:
    """x at these positions takes (or adds) values, broadcast; outside the tape.  Raises IndexError for a position outside an axis."""
    w, given = _where(x.meta, negative, *_layouts(indices)), [p for p in indices if p is not None]
    _held_within(w.checks(), given)
    if not layout.numel(w.domain):
        return
    k = len(given)
    unit = gcd(*w.numbers[k:2 * k]) or 1 if w.apart else 1  # a device that sorts the places sorts smaller numbers by it
    n = len(w.domain)
    launch.run(_putting(x.meta.dtype, w.key, mode, w.apart, unit), w.domain, [x], [values, *given],
               [(0,) * n, layout.expand_strides(values.meta.shape, values.meta.strides, w.domain), *w.strides], w.numbers, "index_put")


def _index_back(node: Any, g: Tensor) -> Any:
    shape, held = node[tape.SAVED]
    return (_accumulated(g, shape, tape.kept(node, held)),)


def _accumulated(g: Tensor, shape: Sequence[int], indices: Any) -> Tensor:
    """Zeros with g added at the positions.  Differentiable."""
    from .creation import zeros_meta
    out = zeros_meta(meta(shape, None, g.meta.dtype, g.meta.device))
    _put(out, indices, g, "add")
    return tape.record(out, lambda node, gg: (take_at(gg, tape.kept(node, node[tape.SAVED])),), (g,), tape.keep(*indices), "IndexPutBackward0")


def take_at(x: Tensor, indices: Sequence[Tensor | None], negative: bool = True) -> Tensor:
    """x[indices] for tensors of positions (None: the whole axis), recorded.  negative: they may count from an axis's end."""
    out = taken(x, indices, negative)
    if x.node is None:
        return out
    return tape.record(out, _index_back, (x,), (tuple(x.meta.shape), tape.keep(*indices)), "IndexBackward0")


def taken(x: Tensor, indices: Sequence[Tensor | None], negative: bool = True) -> Tensor:
    """`take_at` outside the tape."""
    given = [p for p in indices if p is not None]
    if any(p.meta.device is not x.meta.device for p in given):
        same_device("index", x, *given)
    made, checks, bound, numbers = _reading(x.meta, negative, *_layouts(indices))
    _held_within(checks, given)
    out = new(made)
    if bound is not None:
        routines.call(bound, (out.ptr, x.ptr, *[p.ptr for p in given]), numbers)
    return out


def _layouts(indices: Sequence[Tensor | None]) -> list[Meta | None]:
    return [None if p is None else p.meta for p in indices]


# ---------------------------------------------------------------------------------------------------------- x[...] itself
@caches.kept
def _rows(m: Meta) -> tuple[Meta, int, int]:
    """Of a tensor with axes: what a row is, how many, and how many bytes from one to the next."""
    return meta(m.shape[1:], m.strides[1:], m.dtype, m.device), m.shape[0], m.strides[0] * m.dtype.itemsize


def _row(t: Tensor, index: int) -> Tensor | None:
    """`t[index]` for a tensor without a history, the common case of reading samples; None out of range."""
    if not t.meta.shape:
        return None
    m, n, step = _rows(t.meta)
    if index < 0:
        index += n
    if not 0 <= index < n:
        return None
    r: Tensor = _new(Tensor)
    r.meta, r.store, r.ptr, r.node = m, t.store, t.ptr + index * step, None
    base = t.base
    inplace.note_view(t if base is None else base, r)
    if base is not None and "_made" in t.__dict__:
        r.__dict__["_made"] = t.__dict__["_made"]
    return r


_ALL = slice(None)


def _plain(t: Tensor, index: Any) -> list[Tensor | None] | None:
    """The positions for each axis, where an index is nothing but them and whole axes; None for other indices."""
    items = index if type(index) is tuple else (index,)
    out: list[Tensor | None] = []
    some, dev = False, t.meta.device
    for x in items:
        if type(x) is Tensor:
            m = x.meta
            if m.dtype is not int64 or not m.shape or m.device is not dev:
                return None
            some = True
            out.append(x)
        elif type(x) is slice and x == _ALL:
            out.append(None)
        else:
            return None
    rest = len(t.meta.shape) - len(out)
    if rest < 0 or not some:
        return None
    return out + [None] * rest if rest else out


def _chosen(t: Tensor, mask: Tensor) -> Tensor | None:
    """t[mask] outside the tape, for a mask over the first axes of dense memory, where the device moves the rows at once; None elsewhere."""
    m = t.meta
    plan = _choice(m, mask.meta)
    if plan is None:
        return None
    bound, rest = plan
    counts = nonzero_counts(mask)
    if counts is None:
        return None
    out = new(meta((_count_of(counts), *rest), None, m.dtype, m.device))
    if out.meta.numel:
        routines.call(bound, (out.ptr, t.ptr, mask.ptr, counts.ptr))
    return out


def fill_chosen(t: Tensor, mask: Tensor, source: Tensor) -> int | None:
    """Outside the tape, writes the elements of dense `source` in order to where a dense mask of t's shape is set, t being dense too; gives how
    many that are, of which more than there are elements are not written. None, and nothing is done, where the device does not do it at once."""
    m, n = t.meta, mask.meta
    if n.shape != m.shape or not source.meta.contiguous or _choice(m, n) is None:
        return None
    bound, counts = routines.find(m.device, Chosen(n.numel, m.dtype.itemsize, True)), nonzero_counts(mask)
    if bound is None or counts is None:
        return None
    count = _count_of(counts)
    if 0 < count <= source.meta.numel:
        routines.call(bound, (t.ptr, source.ptr, mask.ptr, counts.ptr))
    return count


@caches.kept
def _choice(m: Meta, n: Meta) -> Any:
    """The launch that moves chosen rows, and the shape of a row; None where there is none."""
    axes = len(n.shape)
    if not axes or n.device is not m.device or not n.numel or not m.numel or not n.contiguous or not m.contiguous or (
            tuple(m.shape[:axes]) != tuple(n.shape)):
        return None
    bound = routines.find(m.device, Chosen(n.numel, m.nbytes // n.numel))
    return None if bound is None else (bound, tuple(m.shape[axes:]))


def _get(self: Tensor, index: Any) -> Any:
    if type(index) is int:
        if self.node is None:  # of a thousand rows each is asked for once: no plans of them
            row = _row(self, index)
            if row is not None:
                return row
        if not self.meta.shape:
            raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a "
                             "0-dim tensor to a number")
        n = self.meta.shape[0]
        if not -n <= index < n:
            raise IndexError(f"index {index} is out of bounds for dimension 0 with size {n}")
        return planning(_select, self, 0, index)
    if type(index) is Tensor and index.meta.dtype is bool_ and not tape.recording(self):
        chosen = _chosen(self, index)
        if chosen is not None:
            return chosen
    plain = _plain(self, index)
    if plain is not None:
        return take_at(self, plain)
    items = _normal(index)
    if all(map(_constant, items)):
        return planning(_basic, self, items)[0]
    view, pending = _basic(self, items)
    if all(p is None for p in pending):
        return view
    x, indices = _expanded(view, pending)
    return take_at(x, indices)


def _constant(x: Any) -> bool:
    """Whether a part of an index is known from what a plan's key holds."""
    if type(x) is slice:
        return all(p is None or type(p) is int for p in (x.start, x.stop, x.step))
    return x is None or x is Ellipsis or type(x) is int


def _number_for(d: dtype_class, value: Any) -> bool:
    """Whether a Python number can stand in a tensor of type d as it is."""
    if d.kind in "ui":
        return type(value) is int
    return d.kind == "f" and type(value) in (int, float) or d is bool_ and type(value) is bool


def _filled(x: Tensor, pending: list[Any], value: Any) -> bool:
    """x[mask] = value for one mask and one number, where nothing is recorded: no positions are needed, and no GPU is waited for."""
    at = [i for i, p in enumerate(pending) if isinstance(p, Tensor)]
    if len(at) != 1 or any(type(p) is bool for p in pending):
        return False
    mask, axis = pending[at[0]], at[0]
    if mask.meta.dtype is not bool_ or not mask.meta.shape or mask.meta.device is not x.meta.device or not x.meta.numel:
        return False
    if isinstance(value, Tensor):
        if value.meta.shape or value.meta.dtype is not x.meta.dtype or value.meta.device is not x.meta.device or tape.recording(value):
            return False
    elif not _number_for(x.meta.dtype, value):
        return False
    last = axis + len(mask.meta.shape)
    if tape.recording(x) or tuple(x.meta.shape[axis:last]) != tuple(mask.meta.shape):
        return False
    if not x.meta.contiguous and layout.overlaps_itself(x.meta.shape, x.meta.strides):
        return False
    x.masked_fill_(mask.reshape((*mask.meta.shape, *[1] * (len(x.meta.shape) - last))), value)
    return True


def _set(self: Tensor, index: Any, value: Any) -> None:
    from .creation import tensor
    if index is False:
        _held(self, value)
        return
    pending: list[Any] = []
    try:
        if all(map(_constant, index)) if type(index) is tuple else _constant(index):
            view = GET.started().direct(self, index)
        else:
            view, pending = _basic(self, [None] if index is True else _normal(index))
    except IndexError:
        _held(self, value)  # PyTorch makes the value first
        raise
    if all(p is None for p in pending):
        _assign(view, tensor(value, dtype=self.meta.dtype, device=self.meta.device) if isinstance(value, (list, tuple, np.ndarray)) else value)
        return
    if _filled(view, pending, value):
        return
    if not isinstance(value, Tensor):
        value = tensor(_held(self, value), dtype=self.meta.dtype, device=self.meta.device)
    elif value.meta.device is not self.meta.device and value.meta.shape:
        raise mismatch("index_put_", [self, value], [self], (self, None, value))
    if _grad.get():
        inplace.check(view, (view, value))
    if value.meta.numel != 1:  # for one value PyTorch looks at a mask first
        no_overlap(view, value)
    x, indices = _expanded(view, pending)
    while len(value.meta.shape) > 1 and value.meta.shape[0] == 1:  # leading axes of size 1 do not count here
        value = value.reshape(value.meta.shape[1:])
    put_at(x, indices, _one_for_a_mask(x, [p for p in pending if p is not None], value), False)


def _held(self: Tensor, value: Any) -> Any:
    """A number as elements of self hold it; what is no number as it is.  Raises RuntimeError for one that they cannot hold."""
    value = value.item() if isinstance(value, np.generic) else value
    return dtypes.number(value, self.meta.dtype) if isinstance(value, (int, float, complex)) else value


def _assign(view: Tensor, value: Any) -> None:
    """What a basic index shows takes a value: broadcast, which has the leading axes of size 1 that it needs and no others that count."""
    if not isinstance(value, Tensor):
        may_write(view)
        view.fill_(_held(view, value) if not view.meta.numel or isinstance(value, np.generic) else value)
        return
    if value.meta.device is not view.meta.device and value.meta.shape:
        raise mismatch("index_put_", [view, value], [view], (view, None, value))
    shape, to = tuple(value.meta.shape), tuple(view.meta.shape)
    if shape == to:
        view.copy_(value)
    elif not shape:
        view.fill_(value)
    else:
        while shape and shape[0] == 1:
            shape = shape[1:]
        view.copy_((value.view(shape) if shape != tuple(value.meta.shape) else value).expand(to))


def _one_for_a_mask(x: Tensor, indices: Sequence[Any], value: Tensor) -> Tensor:
    """One value for the places of one mask may be of any type, as that of a fill; others must be of x's."""
    masks = [p for p in indices if not isinstance(p, str)]
    if value.meta.numel == 1 and len(masks) == 1 and isinstance(masks[0], Tensor) and masks[0].meta.dtype in (bool_, uint8):
        value = to_dtype(value, x.meta.dtype)
        return value.clone() if value.store.ptr == x.store.ptr else value
    return value


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


def put_at(x: Tensor, indices: Sequence[Tensor | None], value: Tensor, accumulate: bool, negative: bool = True) -> Tensor:
    """Writes (or adds) values at positions, in place, recorded.  negative: they may count from an axis's end."""
    recording = _grad.get() and inplace.check(x, (x, value))
    if not x.meta.contiguous and layout.overlaps_itself(x.meta.shape, x.meta.strides):
        warn("Use of index_put_ on expanded tensors is deprecated. Please clone() the tensor before performing this operation. This also applies to "
             "advanced indexing e.g. tensor[indices] = tensor")
    no_overlap(x, value, *indices)
    if value.meta.device is not x.meta.device:
        if value.meta.shape or value.meta.device.type != "cpu":
            raise mismatch("index_put_", [x, value], [x], labels=("self", "values"))
        from .transfer import to_device
        value = to_device(value, x.meta.device)
    w = _where(x.meta, negative, *_layouts(indices))
    if not _broadcasts(tuple(value.meta.shape), w.domain):
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(value.meta.shape)} cannot be broadcast to indexing result of shape "
                           f"{list(w.domain)}")
    if value.meta.dtype is not x.meta.dtype:
        raise RuntimeError(f"Index put requires the source and destination dtypes match, got {x.meta.dtype} for the destination and "
                           f"{value.meta.dtype} for the source.")
    source = value.detach() if value.store.ptr != x.store.ptr else value.detach().clone()
    _put(x, indices, source, "add" if accumulate else "set", negative)
    x.store.version += 1
    if recording:
        saved = (tape.keep(*indices), accumulate, value.meta)
        inplace.rebase(x, tape.node(_put_at_back, (x.node, value.node), saved, "IndexPutBackward0"))
    return x


def _put_at_back(node: Any, g: Tensor) -> Any:
    from .elementwise import fit
    held, accumulate, m = node[tape.SAVED]
    indices = tape.kept(node, held)
    ex, ev = node[tape.EDGES]
    gx = None
    if ex is not None:
        gx = g
        if not accumulate:
            gx = g.clone()
            put_at(gx, indices, g.new_zeros(()), False)
    return gx, (fit(take_at(g, indices), m) if ev is not None else None)


_get.__doc__, _set.__doc__ = "What an index shows: a view, or for tensors of positions a copy.", "Writes to what an index shows."
GET = Operation("index", _get, shown="__getitem__", kinds={"index": TENSORS})
Tensor.__getitem__ = GET.function  # type: ignore[method-assign]
Tensor.__setitem__ = Operation(  # type: ignore[method-assign]
    "index_put_", _set, shown="__setitem__", kinds={"index": TENSORS, "value": OPEN}).function


@op(name="index_put_")
def index_put_(self: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """Writes values at positions (one tensor an axis), or adds them.  Raises RuntimeError for no positions at all."""
    if not len(indices):
        raise RuntimeError("index_put_(): at least one index must be given, as a list or tuple with a tensor for each axis")
    for i in indices:
        if isinstance(i, Tensor) and i.meta.dtype.name not in ("int64", "int32", "uint8", "bool"):
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    x, found = _expanded(self, [*indices, *[None] * (len(self.meta.shape) - len(indices))]) if not any(
        isinstance(i, Tensor) and i.meta.dtype is bool_ for i in indices) else _expanded(*_basic(self, list(indices)))
    return put_at(x, found, values if accumulate else _one_for_a_mask(x, [i for i in indices if i is not None], values), accumulate)


@op(autocast="cuda widest")
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:  # noqa: A002
    """A copy with values written (or added) at positions."""
    return index_put_(input.clone(), indices, values, accumulate)


# ------------------------------------------------------------------------------------------------------------------ masks
@op(batch="reads")
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Any = None) -> Any:  # noqa: A002
    """The positions of the elements that are not 0, (count, ndim) int64, or one vector an axis.  The host waits for the values.

    Raises RuntimeError for `out` beside `as_tuple`."""
    if as_tuple and out is not None:
        raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True")
    if not input.meta.shape:
        if as_tuple:
            return nonzero(input.unsqueeze(0), as_tuple=True)
        made = empty((int(bool(input.item())), 0), int64, input.meta.device)
    else:
        # PyTorch's layout: each axis's positions lie together
        counts = None if as_tuple else nonzero_counts(input)
        if counts is not None:
            n, axes = _count_of(counts), len(input.meta.shape)
            made = _coordinates(input, counts, n, meta((n, axes), (1, n) if n else None, int64, input.meta.device))
            return made if out is None else outputs.write("nonzero", out, made)
        columns = nonzero_columns(input)
        if columns is None:
            from .creation import from_host
            columns = from_host(np.ascontiguousarray(np.stack(_nonzero_host(input)), np.int64), int64, input.meta.device)
        axes, n = columns.meta.shape
        if as_tuple:
            return tuple([columns[k] for k in range(axes)])
        made = alias(columns, meta((n, axes), (1, n), int64, input.meta.device), columns.ptr) if n else columns.reshape(0, axes)
    if out is not None:
        return outputs.write("nonzero", out, made)
    return made


@op(batch="reads")
def argwhere(input: Tensor) -> Tensor:  # noqa: A002
    """The positions of the elements that are not 0, one a row."""
    found: Tensor = nonzero(input)
    return found


@op(out=True, batch="reads", tangent="linear", out_apart=True)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:  # noqa: A002
    """The elements where the mask is true, as a vector."""
    if mask.meta.dtype is not bool_:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    same_device("masked_select", input, mask)
    if input.meta.shape == mask.meta.shape and mask.meta.shape:
        picked: Tensor = input[mask]
        return picked
    shape = layout.broadcast_shapes(input.meta.shape, mask.meta.shape)
    picked = input.expand(shape)[mask.expand(shape)]
    return picked.reshape(-1)

has("index", tangent="linear")
has("__getitem__", batch="item")
has("__setitem__", batch="item set")
has("index_put", batch="composite")

"""Reading and writing at tensors of positions.

They become one generated kernel: a Map whose input (or output) is addressed by offsets computed from the positions.  Colliding writes are
applied in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import gcd
from typing import Any

from ... import layout
from ...autograd import inplace, tape
from ...autograd.mode import _grad
from ...dtypes import dtype, int64
from ...engine import general
from ...errors import warn
from ...kernels import expr as E
from ...kernels.programs import Map
from ...kernels.specs import Check
from ...runtime import caches
from ...tensor import Meta, Tensor, meta, new
from .. import launch, routines
from ..checks import no_overlap, same_device
from ..device_errors import mismatch


@general.kept
def checking(m: Meta, low: int, high: int, axis: int, *named: Any) -> routines.Bound:
    """What raises IndexError for positions along an axis that are not in low .. high - 1.  named: another class of the error, and the check's name."""
    told = f"index {{}} is out of bounds for dimension {axis} with size {{high}}"
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


def _scalars(key: tuple[int, int, int, int, bool]) -> tuple[dtype, ...]:
    return (int64,) * (2 * key[0] + key[1] + key[3])


@cache
def _taking(d: dtype, key: tuple[int, int, int, int, bool]) -> Map:
    """The program that takes elements of a type where a `_Where` with this key says."""
    return Map((E.gather(0, _offset(1, key), d),), (d, *[int64] * key[0]), _scalars(key))


@general.kept
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
def _putting(d: dtype, key: tuple[int, int, int, int, bool], mode: str, apart: tuple[int, ...], unit: int) -> Map:
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
    return (accumulated(g, shape, tape.kept(node, held)),)


def accumulated(g: Tensor, shape: Sequence[int], indices: Any) -> Tensor:
    """Zeros with g added at the positions.  Differentiable."""
    from ..creation import zeros_meta
    out = zeros_meta(meta(shape, None, g.meta.dtype, g.meta.device))
    _put(out, indices, g, "add")
    return tape.record(out, lambda node, gg: (take_at(gg, tape.kept(node, node[tape.SAVED])),), (g,), tape.keep(*indices), "IndexPutBackward0")


def take_at(x: Tensor, indices: Sequence[Tensor | None], negative: bool = True, name: str = "IndexBackward0") -> Tensor:
    """x[indices] for tensors of positions (None: the whole axis), recorded under a name.  negative: they may count from an axis's end."""
    out = taken(x, indices, negative)
    if x.node is None:
        return out
    return tape.record(out, _index_back, (x,), (tuple(x.meta.shape), tape.keep(*indices)), name)


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


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


def put_at(x: Tensor, indices: Sequence[Tensor | None], value: Tensor, accumulate: bool, negative: bool = True,
           told: bool = False) -> Tensor:
    """Writes (or adds) values at positions, in place, recorded.  negative: they may count from an axis's end.  told: the user has been warned of an
    expanded x."""
    recording = _grad.get() and inplace.check(x, (x, value))
    if not told and not x.meta.contiguous and layout.overlaps_itself(x.meta.shape, x.meta.strides):
        warn("Use of index_put_ on expanded tensors is deprecated. Please clone() the tensor before performing this operation. This also applies to "
             "advanced indexing e.g. tensor[indices] = tensor")
    no_overlap(x, value, *indices)
    if value.meta.device is not x.meta.device:
        if value.meta.shape or value.meta.device.type != "cpu":
            raise mismatch("index_put_", [x, value], [x], labels=("self", "values"))
        from ..transfer import to_device
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
    from ..elementwise import fit
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

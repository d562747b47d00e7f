"""Weighted sums of few places: of an axis that is resized, of images at places that a tensor names."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import layout
from ..autograd import tape
from ..autograd.mode import no_grad
from ..dtypes import bool_, dtype, float64, int64
from ..kernels import expr as E
from ..kernels.expr import Expr
from ..kernels.programs import Map
from ..runtime import caches, capture
from ..runtime.asking import unasked
from ..tensor import Tensor, empty
from . import launch
from .copies import contiguous
from .elementwise import Pointwise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_programs: dict[Any, Map] = {}


MOST_TAPS = 8  # that one launch sums


class Taps(NamedTuple):
    """What a place along an axis is made of: `weights[k]` times what lies at `places[k]`, summed over k; vectors, of int64 and of the elements'
    type.  some: places below 0 stand for nothing."""

    places: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    some: bool = False


def turned_taps(pairs: Sequence[tuple[Any, Any]], size: int) -> list[tuple[Any, Any]]:
    """NumPy arrays of places and weights, for each of which the transposed ones come: for each of the `size` places that are read what reads it,
    and with which weight.  Places of -1 fill up."""
    place, weight = (np.stack([p[k] for p in pairs], 1).reshape(-1) for k in (0, 1))
    reader = np.repeat(np.arange(len(pairs[0][0])), len(pairs))
    place, weight, reader = (a[place >= 0] for a in (place, weight, reader))
    order = np.argsort(place, kind="stable")
    place, weight, reader = place[order], weight[order], reader[order]
    counts = np.bincount(place, minlength=size)
    number = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
    made = [(np.full(size, -1, np.int64), np.zeros(size)) for _ in range(counts.max(initial=1))]
    for k, (at, value) in enumerate(made):
        mine = number == k
        at[place[mine]], value[place[mine]] = reader[mine], weight[mine]
    return made


_kept: dict[Any, tuple[Taps, Taps]] = caches.cache(globals(), "_kept")


def kept_taps(key: Any, pairs: Callable[[], Sequence[tuple[Any, Any]]], like: Tensor, size: int) -> tuple[Taps, Taps]:
    """What `pairs` gives, and its `turned_taps`, as tensors of the type and on the device of `like`; asked for once a key.  Weights are worked out in
    single precision but for doubles; of None there are none."""
    m = like.meta
    key = key, size, m.device, m.dtype
    found = _kept.get(key)
    if found is None:
        from .creation import from_numpy
        since, there = caches.epoch, pairs()

        def taps(some: Sequence[tuple[Any, Any]]) -> Taps:
            wide = m.dtype is float64
            return Taps(tuple([unasked(from_numpy(place).to)(m.device) for place, _ in some]),
                        tuple([unasked(from_numpy(w if wide else w.astype(np.float32)).to)(m.device, m.dtype) for _, w in some if w is not None]),
                        any((place < 0).any() for place, _ in some))
        with no_grad():
            found = taps(there), taps([] if there[0][1] is None else turned_taps(there, size))
        caches.keep_since(since, _kept, key, found)
    elif capture.active:
        for t in (t for taps in found for t in (*taps.places, *taps.weights)):
            capture.was_wrapped(t.ptr, t.meta.nbytes, t.store)  # constants, which a replay may hold on to
    return found


def resized(x: Tensor, dim: int, taps: Taps, turned: Taps) -> Tensor:
    """Along an axis of x, of its type, what `taps` say, each with places in range; turned: `turned_taps` of them, which give the gradient.  Recorded."""
    source = contiguous(x.detach())
    out = _summed(source, dim, taps.places[:MOST_TAPS], taps.weights[:MOST_TAPS], taps.some)
    for k in range(MOST_TAPS, len(taps.places), MOST_TAPS):
        out.add_(_summed(source, dim, taps.places[k:k + MOST_TAPS], taps.weights[k:k + MOST_TAPS], taps.some))
    return tape.record(out, _back, (x,), (dim, taps, turned), "UpsampleBackward0")


def _summed(source: Tensor, dim: int, places: tuple[Tensor, ...], weights: tuple[Tensor, ...], some: bool) -> Tensor:
    shape, d, count = tuple(source.meta.shape), source.meta.dtype, len(places)
    n = places[0].meta.shape[0]
    out = empty((*shape[:dim], n, *shape[dim + 1:]), d, source.meta.device)
    inner = layout.numel(shape[dim + 1:])
    if out.meta.numel:
        domain = (layout.numel(shape[:dim]), n, *([inner] if inner > 1 else []))
        along = (0, 1, 0)[:len(domain)]
        launch.run(_summing(d, count, inner == 1, some), domain, [out], [source, *places, *weights],
                   [layout.contiguous_strides(domain), (0,) * len(domain), *[along] * (2 * count)], (shape[dim] * inner, inner), name="resize")
    return out


@functools.cache
def _summing(d: dtype, count: int, last: bool, some: bool) -> Map:
    start, total = E.coord(0) * E.scalar(0, int64), None
    for k in range(count):
        place = E.input(1 + k, int64)
        inside = place >= E.const(0, int64)
        p = E.where(inside, place, E.const(0, int64)) if some else place
        at = start + p if last else start + p * E.scalar(1, int64) + E.coord(2)  # behind the axis rows lie dense
        value = E.gather(0, at, d)
        term = (E.where(inside, value, E.const(0, d)) if some else value) * E.input(1 + count + k, d)
        total = term if total is None else total + term
    assert total is not None
    return Map((total,), (d, *[int64] * count, *[d] * count), (int64, int64))


# ------------------------------------------------------------------------------------------------- places that a grid names
def _reflected(x: Expr, low: Expr, high: Expr) -> Expr:
    """x folded back into [low, high]."""
    span = high - low
    x = abs(x - low)
    turns = E.floor(x / span)
    rest = x - turns * span
    return E.where(span == 0.0, 0.0 * rest, E.where(turns - 2.0 * E.floor(turns * 0.5) == 0.0, rest + low, span - rest + low))


def _bounded(x: Expr, size: Expr, padding_mode: str, align_corners: bool, volume: bool) -> Expr:
    """The place by which x is seen.  What is no number shows as PyTorch's: in images it stays so, or is held at the first element; in volumes it lies
    outside, or is held at the last."""
    if padding_mode == "zeros":
        return E.where(abs(x) < 2.0 ** 31, x, -100.0 + 0.0 * size) if volume else x
    if padding_mode == "reflection":
        x = _reflected(x, 0.0 * size, size - 1.0) if align_corners else _reflected(x, -0.5 + 0.0 * size, size - 0.5)
    # what is held at an end does not follow x there
    if volume:
        return E.where(x <= 0.0, 0.0 * size, E.where(x < size - 1.0, x, size - 1.0))
    return E.where(x > 0.0, E.where(x >= size - 1.0, size - 1.0, x), 0.0 * size)


def _cubic(t: Expr, k: int) -> Expr:
    """The weight of the neighbour k of a place t behind neighbour 0 (R. Keys, 1981, with a = -3/4)."""
    a, u = -0.75, abs(t - float(k))
    return (((a + 2) * u - (a + 3)) * u * u + 1.0) if k in (0, 1) else ((u - 5.0) * u + 8.0) * u * a - 4 * a


def _places(coordinates: tuple[Expr, ...], sizes: tuple[Expr, ...], mode: str, padding_mode: str, align_corners: bool) -> tuple[Expr, ...]:
    """Of coordinates from -1 to 1, one for each axis: the places among the elements, int64, of the neighbours that are looked at, below 0 outside;
    then, but for the nearest alone, their weights."""
    positions, volume = [], len(sizes) == 3
    for g, s in zip(coordinates, sizes, strict=True):
        x = (g + 1.0) * ((s - 1.0) / 2.0) if align_corners else ((g + 1.0) * s - 1.0) / 2.0
        positions.append(x if mode == "bicubic" else _bounded(x, s, padding_mode, align_corners, volume))

    def place(index: list[Expr]) -> Expr:
        inside, where = E.const(True, bool_), E.const(0, int64)
        for x, s in zip(index, sizes, strict=True):
            inside = inside & (x >= 0.0) & (x <= s - 1.0)
            where = where * E.cast(s, int64) + E.cast(E.minimum(E.maximum(x, 0.0 * s), s - 1.0), int64)
        return E.where(inside, where, E.const(-1, int64))
    if mode == "nearest":
        return (place([E.round_(x) for x in positions]),)
    base = [E.floor(x) for x in positions]
    parts = [x - b for x, b in zip(positions, base, strict=True)]
    at, weights = [], []
    for steps in itertools.product((-1, 0, 1, 2) if mode == "bicubic" else (0, 1), repeat=len(sizes)):
        index = [b + float(k) for b, k in zip(base, steps, strict=True)]
        at.append(place([_bounded(x, s, padding_mode, align_corners, volume) for x, s in zip(index, sizes, strict=True)] if mode == "bicubic" else index))
        each = [_cubic(t, k) if mode == "bicubic" else t if k else 1.0 - t for t, k in zip(parts, steps, strict=True)]
        weights.append(functools.reduce(lambda a, b: a * b, each))
    return (*at, *weights)


_OF_IMAGES = Pointwise("grid_places", lambda y, x, height, width, mode, padding_mode, align_corners: _places(
    (y, x), (height, width), mode, padding_mode, align_corners), 2, accept="f")
_OF_VOLUMES = Pointwise("grid_places", lambda z, y, x, depth, height, width, mode, padding_mode, align_corners: _places(
    (z, y, x), (depth, height, width), mode, padding_mode, align_corners), 3, accept="f")


def grid_places(grid: Tensor, size: tuple[int, ...], mode: str, padding_mode: str, align_corners: bool) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """What `sampled` takes for images of `size`, from a grid (n, *out, 2 or 3) of coordinates, x first: places and weights, each (n, p).  Recorded."""
    dims = len(size)
    formula = _OF_IMAGES if dims == 2 else _OF_VOLUMES
    found = formula(tuple([grid[..., dims - 1 - d] for d in range(dims)]), tuple([1.0 * s for s in size]),
                    (("align_corners", align_corners), ("mode", mode), ("padding_mode", padding_mode)))
    rows = [t.flatten(1) for t in (found if isinstance(found, tuple) else (found,))]
    count = 1 if mode == "nearest" else len(rows) // 2
    return tuple(rows[:count]), tuple(rows[count:])


def sampled(x: Tensor, places: tuple[Tensor, ...], weights: tuple[Tensor, ...], grid: Tensor) -> Tensor:
    """(n, c, p): the sum over k of x's elements at `places[k]` times `weights[k]`, both (n, p), of x (n, c, s).  Recorded in x and the weights.

    places: int64, below s; below 0 stands for an element outside, which is a 0.  No weights: all are 1, and the `grid` that the places come from
    has a gradient of zeros.
    """
    (n, c, s), d, count, p = x.meta.shape, x.meta.dtype, len(places), places[0].meta.shape[1]
    source = contiguous(x.detach())
    out = empty((n, c, p), d, x.meta.device)
    if out.meta.numel:
        key = d, count, len(weights)
        program = _programs.get(key)
        if program is None:
            start, terms = E.coord(0) * E.scalar(0, int64) + E.coord(1) * E.scalar(1, int64), []
            for k in range(count):
                at = E.input(1 + k, int64)
                inside = at >= E.const(0, int64)
                value = E.gather(0, start + E.where(inside, at, E.const(0, int64)), d)
                value = E.where(inside, value, E.const(0, d))
                terms.append(value * E.input(1 + count + k, d) if weights else value)  # a weight of NaN shows outside too
            total = terms[0]
            for term in terms[1:]:
                total = total + term
            program = _programs[key] = Map((total,), (d, *[int64] * count, *[d] * len(weights)), (int64, int64))
        operands = [contiguous(t.detach()) for t in (*places, *weights)]
        launch.run(program, (n, c, p), [out], [source, *operands], [(c * p, p, 1), (0, 0, 0), *[(p, 0, 1)] * len(operands)], (c * s, s), name="sample")
    return tape.record(out, _sampled_back, (x, *(weights or (grid,))), (places, tape.keep(x, *weights), tuple(grid.meta.shape)), "GridSampler2DBackward0")


def _sampled_back(node: Any, g: Tensor) -> Any:
    places, kept, of_grid = node[tape.SAVED]
    x, *weights = tape.kept(node, kept)
    ex, *ew = node[tape.EDGES]
    rows = [at.clamp(min=0).unsqueeze(1).expand(g.meta.shape) for at in places]
    outside = [(at < 0).unsqueeze(1) for at in places]
    gx = None
    if ex is not None:
        gx = g.new_zeros(x.meta.shape)
        for at, out, w in zip(rows, outside, weights or [None], strict=True):
            gx.scatter_add_(2, at, (g if w is None else g * w.unsqueeze(1)).masked_fill(out, 0))
    if not weights:
        return gx, None if ew[0] is None else g.new_zeros(of_grid)
    gw = [None if e is None else (x.gather(2, at).masked_fill(out, 0) * g).sum(1) for e, at, out in zip(ew, rows, outside, strict=False)]
    return (gx, *gw)


@tape.keeps_nothing
def _back(node: Any, g: Tensor) -> Any:
    dim, taps, turned = node[tape.SAVED]
    return (resized(g, dim, turned, taps),)

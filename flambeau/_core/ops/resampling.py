"""Weighted sums of few places: of an axis that is resized, of images at places that a tensor names."""

from __future__ import annotations

from typing import Any

from .. import layout
from ..autograd import tape
from ..dtypes import int64
from ..kernels import expr as E
from ..kernels.programs import Map
from ..tensor import Tensor, empty
from . import launch
from .copies import contiguous

_programs: dict[Any, Map] = {}


def resized(x: Tensor, dim: int, places: tuple[Tensor, ...], weights: tuple[Tensor, ...]) -> Tensor:
    """The sum over k of x's places `places[k]` (int64 vectors, in range) along an axis times `weights[k]` (vectors of x's type).  Recorded."""
    source = contiguous(x.detach())
    shape, d, count = tuple(x.meta.shape), x.meta.dtype, len(places)
    n = places[0].meta.shape[0]
    out = empty((*shape[:dim], n, *shape[dim + 1:]), d, x.meta.device)
    inner = layout.numel(shape[dim + 1:])
    if out.meta.numel:
        key = d, count, inner == 1
        program = _programs.get(key)
        if program is None:
            start, total = E.coord(0) * E.scalar(0, int64), None
            for k in range(count):
                # behind the axis rows lie dense
                at = start + E.input(1 + k, int64) if inner == 1 else start + E.input(1 + k, int64) * E.scalar(1, int64) + E.coord(2)
                term = E.gather(0, at, d) * E.input(1 + count + k, d)
                total = term if total is None else total + term
            assert total is not None
            program = _programs[key] = Map((total,), (d, *[int64] * count, *[d] * count), (int64, int64))
        domain = (layout.numel(shape[:dim]), n, *([inner] if inner > 1 else []))
        along = (0, 1, 0)[:len(domain)]
        launch.run(program, domain, [out], [source, *places, *weights],
                   [layout.contiguous_strides(domain), (0,) * len(domain), *[along] * (2 * count)], (shape[dim] * inner, inner), name="resize")
    return tape.record(out, _back, (x,), (shape, dim, places, weights), "UpsampleBackward0")


def sampled(x: Tensor, places: tuple[Tensor, ...], weights: tuple[Tensor, ...]) -> Tensor:
    """(n, c, p): the sum over k of x's elements at `places[k]` times `weights[k]`, both (n, p), of x (n, c, s).  Recorded in x and the weights.

    places: int64, below s; below 0 stands for an element outside, which is 0 whatever its weight.
    """
    (n, c, s), d, count, p = x.meta.shape, x.meta.dtype, len(places), places[0].meta.shape[1]
    source = contiguous(x.detach())
    out = empty((n, c, p), d, x.meta.device)
    if out.meta.numel:
        key = d, count
        program = _programs.get(key)
        if program is None:
            start, terms = E.coord(0) * E.scalar(0, int64) + E.coord(1) * E.scalar(1, int64), []
            for k in range(count):
                at = E.input(1 + k, int64)
                inside = at >= E.const(0, int64)
                value = E.gather(0, start + E.where(inside, at, E.const(0, int64)), d) * E.input(1 + count + k, d)
                terms.append(E.where(inside, value, E.const(0, d)))
            total = terms[0]
            for term in terms[1:]:
                total = total + term
            program = _programs[key] = Map((total,), (d, *[int64] * count, *[d] * count), (int64, int64))
        operands = [contiguous(t.detach()) for t in (*places, *weights)]
        launch.run(program, (n, c, p), [out], [source, *operands], [(c * p, p, 1), (0, 0, 0), *[(p, 0, 1)] * (2 * count)], (c * s, s), name="sample")
    return tape.record(out, _sampled_back, (x, *weights), (places, tape.keep(x, *weights)), "GridSampler2DBackward0")


def _sampled_back(node: Any, g: Tensor) -> Any:
    places, kept = node[tape.SAVED]
    x, *weights = tape.kept(node, kept)
    ex, *ew = node[tape.EDGES]
    rows = [at.clamp(min=0).unsqueeze(1).expand(g.meta.shape) for at in places]
    outside = [(at < 0).unsqueeze(1) for at in places]
    gx = None
    if ex is not None:
        gx = g.new_zeros(x.meta.shape)
        for at, out, w in zip(rows, outside, weights, strict=True):
            gx.scatter_add_(2, at, (g * w.unsqueeze(1)).masked_fill(out, 0))
    gw = [None if e is None else (x.gather(2, at).masked_fill(out, 0) * g).sum(1) for e, at, out in zip(ew, rows, outside, strict=True)]
    return (gx, *gw)


@tape.keeps_nothing
def _back(node: Any, g: Tensor) -> Any:
    shape, dim, places, weights = node[tape.SAVED]
    made = g.new_zeros(shape)
    ones = [1] * len(shape)
    ones[dim] = -1
    for at, weight in zip(places, weights, strict=True):
        made = made.index_add(dim, at, g * weight.reshape(ones))
    return (made,)

"""Resizing an axis: each of its places a weighted sum of few places of the old one."""

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


@tape.keeps_nothing
def _back(node: Any, g: Tensor) -> Any:
    shape, dim, places, weights = node[tape.SAVED]
    made = g.new_zeros(shape)
    ones = [1] * len(shape)
    ones[dim] = -1
    for at, weight in zip(places, weights, strict=True):
        made = made.index_add(dim, at, g * weight.reshape(ones))
    return (made,)

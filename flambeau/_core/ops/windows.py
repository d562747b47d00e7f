"""Windows over axes, put back: each element gets the sum of what the windows that hold it give it."""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING, Any

from .. import layout
from ..kernels import expr as E
from ..kernels.programs import Map
from ..tensor import Tensor, alias, empty, meta
from . import launch
from .copies import cast_program
from .creation import zeros_meta

if TYPE_CHECKING:
    from collections.abc import Sequence

    Part = tuple[int, int, int, int, int]  # the first window and how many, the first place in them and how many, where that lies on the axis


@cache
def _sum(d: Any) -> Map:
    return Map((E.cast(E.cast(E.input(0, d), d.opmath) + E.cast(E.input(1, d), d.opmath), d),), (d, d))


def _parts(count: int, kernel: int, stride: int, dilation: int) -> list[Part]:
    """What of an axis' windows can be added at once, as no two windows overlap there: places as many as a stride has, of all windows; or where the
    windows are fewer, all places of one."""
    wide = stride if dilation == 1 else 1
    places = range(0, kernel, wide)
    if count < len(places):
        return [(w, 1, 0, kernel, w * stride) for w in range(count)]
    return [(0, count, k, min(wide, kernel - k), k * dilation) for k in places]


def added_up(pieces: Tensor, at: int, sizes: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """(*before, *counts, *after, *kernel), with any strides, as windows over axes of `sizes`: (*before, *sizes, *after), contiguous.  Outside the tape.

    at: how many axes are before.  Window w of an axis has its place k at w * stride + k * dilation.  An element's windows are added in one order, that
    of their places.
    """
    n, m = len(sizes), pieces.meta
    counts, kernel = m.shape[at:at + n], m.shape[len(m.shape) - n:]
    shape = (*m.shape[:at], *sizes, *m.shape[at + n:len(m.shape) - n])
    to = layout.contiguous_strides(shape)
    if any((c - 1) * s + (k - 1) * d >= size for c, k, s, d, size in zip(counts, kernel, stride, dilation, sizes, strict=True)) and m.numel:
        raise RuntimeError(f"{list(counts)} windows of {list(kernel)} every {list(stride)} places reach beyond axes of {list(sizes)}")
    # windows side by side, one as wide as its stride, leave nothing to fill or to add
    covered = all(d == 1 and k == s and c * s == size for c, k, s, d, size in zip(counts, kernel, stride, dilation, sizes, strict=True))
    out = empty(shape, m.dtype, m.device) if covered else zeros_meta(meta(shape, None, m.dtype, m.device))
    if not m.numel:
        return out
    rest = range(at + n, len(shape))
    for first, parts in enumerate(itertools.product(*[_parts(*a) for a in zip(counts, kernel, stride, dilation, strict=True)])):
        # each axis' windows beside their places, as they lie in the result
        domain, there, here = [*m.shape[:at]], [*to[:at]], [*m.strides[:at]]
        put = taken = 0
        for i, (w, windows, k, places, begin) in enumerate(parts):
            step, across, along = to[at + i], m.strides[at + i], m.strides[len(shape) + i]
            domain += (windows, places)
            there += (step * stride[i], step * dilation[i])
            here += (across, along)
            put, taken = put + step * begin, taken + across * w + along * k
        domain += [shape[i] for i in rest]
        there += [to[i] for i in rest]
        here += [m.strides[i] for i in rest]
        target, source = _seen(out, domain, there, put), _seen(pieces, domain, here, taken)
        if first:
            launch.run(_sum(m.dtype), tuple(domain), [target], [target, source], name="add_windows")
        else:  # into zeros
            launch.run(cast_program(m.dtype, m.dtype), tuple(domain), [target], [source], name="put_windows")
    return out


def _seen(t: Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> Tensor:
    return alias(t, meta(tuple(shape), tuple(strides), t.meta.dtype, t.meta.device), t.ptr + offset * t.meta.dtype.itemsize)

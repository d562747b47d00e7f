"""Convolutions whose groups have one channel each, of any number of axes: where each row of a plane and each place of the kernel lies, as tables for
`kernels/llvm/handwritten/channelwise.py`.

A plane's copy has a border of zeros, and in forward convolutions its places are sorted by their remainder by the steps along each axis, so that the windows'
views of one place of the kernel are neighbours.  Flat positions in a grid (one remainder's places) stand for places of the result; a row's end and the next
row's begin are then some positions apart, which are summed too and left out.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from ...kernels import routines
from ...kernels.programs import PreparedLaunch
from ...layout import contiguous_strides, numel

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels.llvm.handwritten.channelwise import Rows
    from ...kernels.specs import Convolution

    Sizes = tuple[int, ...]


def convolution(spec: Convolution) -> PreparedLaunch | None:
    """None for other groups and types, and for gradients of images of several results a channel."""
    (x, steps), (y, _) = spec.x, spec.y
    if spec.groups != x[1] or y[1] % x[1] or spec.dtype.name not in ("float32", "float64") or not routines.generated():
        return None
    if any(operand[1] != contiguous_strides(operand[0]) for operand in (spec.w, spec.y)):
        return None
    if spec.kind == "images":
        return _priced(spec, _images(spec)) if y[1] == x[1] and steps == contiguous_strides(x) else None
    return _priced(spec, (_forward if spec.kind == "forward" else _weights)(spec)) if steps[-1] == 1 else None


def _flat(at: Sizes, strides: Sizes) -> int:
    return sum([a * s for a, s in zip(at, strides, strict=True)])


def _taps(kernel: Sizes) -> list[Sizes]:
    return list(itertools.product(*map(range, kernel)))


def _plain(shape: Sizes, from_: Sizes, to: Sizes, first: int = 0) -> Rows:
    """Rows of neighbours: of what is read, by steps; `first`: elements before them in what is written."""
    from ...kernels.llvm.handwritten.channelwise import Rows
    lead = list(itertools.product(*map(range, shape[:-1])))
    return Rows([(_flat(at, from_[:-1]), _flat(at, to[:-1])) for at in lead], [(0, first, shape[-1])], 1)


class _Windows:
    """The copy of an image's plane that forward convolutions and gradients of weights read."""

    def __init__(self, spec: Convolution) -> None:
        from ...kernels.llvm.handwritten.channelwise import Phase, Rows
        image, kernel, out = spec.x[0][2:], spec.w[0][2:], spec.y[0][2:]
        step, apart, border = spec.stride, spec.dilation, spec.padding
        grid = tuple([o + (k - 1) * d // s for o, k, d, s in zip(out, kernel, apart, step, strict=True)])
        self.strides, one = contiguous_strides(grid), math.prod(grid)
        turns = contiguous_strides(step)
        self.size = one * math.prod(step)

        def place(at: Sizes) -> int | None:
            """Where a place of the bordered image lies; None where no window sees it."""
            if any(a // s >= g for a, s, g in zip(at, step, grid, strict=True)):
                return None
            return sum([a % s * t * one + a // s * g for a, s, t, g in zip(at, step, turns, self.strides, strict=True)])
        still, starts = (0,) * len(image), []
        for at in itertools.product(*map(range, image[:-1])):
            to = place((*[a + b for a, b in zip(at, border, strict=False)], 0))
            if to is not None:
                starts.append((_flat(at, spec.x[1][2:-1]), to))
        parts = []
        for rest in range(step[-1]):
            first = (rest - border[-1]) % step[-1]
            to = place((*still[:-1], first + border[-1]))
            if to is not None and first < image[-1]:
                parts.append((first, to, min(len(range(first, image[-1], step[-1])), grid[-1] - (first + border[-1]) // step[-1])))
        self.rows = Rows(starts, parts, step[-1])
        taps = [place(tuple([t * d for t, d in zip(tap, apart, strict=True)])) for tap in _taps(kernel)]
        self.phase = Phase([(at, k) for k, at in enumerate(taps) if at is not None], _flat(tuple([o - 1 for o in out]), self.strides) + 1, 0)


def _sizes(spec: Convolution) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Planes and steps between them, for the kernels."""
    channels = spec.y[0][1]
    return (spec.y[0][0], channels, channels // spec.groups), (spec.x[1][0], spec.x[1][1], math.prod(spec.y[0][2:]))


def _forward(spec: Convolution) -> Callable[..., None]:
    from ...kernels.llvm.handwritten import channelwise
    windows, out = _Windows(spec), spec.y[0][2:]
    return channelwise.apply(spec.dtype, (1, 2, 3 if spec.bias else 0), *_sizes(spec), math.prod(spec.w[0][2:]), windows.size, windows.rows,
                             [windows.phase], windows.phase.length, _plain(out, windows.strides, contiguous_strides(out)))


def _weights(spec: Convolution) -> Callable[..., None]:
    from ...kernels.llvm.handwritten import channelwise
    windows, out = _Windows(spec), spec.y[0][2:]
    return channelwise.weights(spec.dtype, (1, 2, 0), *_sizes(spec), windows.size, windows.rows, windows.phase,
                               _plain(out, contiguous_strides(out), windows.strides))


def _images(spec: Convolution) -> Callable[..., None]:
    """For each remainder of an image's place in its border by the steps, the sum over the kernel's places that fall on it."""
    from ...kernels.llvm.handwritten import channelwise
    size, kernel, out = spec.x[0][2:], spec.w[0][2:], spec.y[0][2:]
    step, apart, pad, axes = spec.stride, spec.dilation, spec.padding, range(len(size))
    # along an axis: the first and the last window that begins at or before a place of this remainder
    first = [[-(-(pad[i] - r) // step[i]) for r in range(step[i])] for i in axes]
    last = [[(size[i] - 1 + pad[i] - r) // step[i] for r in range(step[i])] for i in axes]
    low = tuple([max(0, (kernel[i] - 1) * apart[i] // step[i] - min(first[i])) for i in axes])
    high = tuple([max(0, max(last[i]) - out[i] + 1) for i in axes])
    grid = tuple([a + o + b for a, o, b in zip(low, out, high, strict=True)])
    strides, turns = contiguous_strides(grid), contiguous_strides(step)
    rows = _plain(out, contiguous_strides(out), strides, _flat(low, strides))
    each = max([_flat(tuple([last[i][r] - first[i][r] for i, r in enumerate(rest)]), strides) + 1 for rest in itertools.product(*map(range, step))])
    phases = []
    for rest in itertools.product(*map(range, step)):
        ends = tuple([last[i][r] - first[i][r] for i, r in enumerate(rest)])
        if min(ends) < 0:
            continue
        chosen = [(k, tap) for k, tap in enumerate(_taps(kernel)) if all((tap[i] * apart[i] - rest[i]) % step[i] == 0 for i in axes)]
        places = [(_flat(tuple([first[i][rest[i]] - (tap[i] * apart[i] - rest[i]) // step[i] + low[i] for i in axes]), strides), k) for k, tap in chosen]
        phases.append(channelwise.Phase(places, _flat(ends, strides) + 1, _flat(rest, turns) * each))

    def source(i: int, place: int) -> int:
        rest, window = (place + pad[i]) % step[i], (place + pad[i]) // step[i]
        return rest * turns[i] * each + (window - first[i][rest]) * strides[i]
    to = contiguous_strides(size)
    starts = [(sum([source(i, a) for i, a in enumerate(at)]), _flat(at, to[:-1])) for at in itertools.product(*map(range, size[:-1]))]
    parts = [(source(axes[-1], begin), begin, len(range(begin, size[-1], step[-1]))) for begin in range(min(step[-1], size[-1]))]
    shape = spec.y[0]
    steps = (spec.y[1][0], spec.y[1][1], math.prod(size))
    return channelwise.apply(spec.dtype, (2, 1, 0), (shape[0], shape[1], 1), steps, math.prod(kernel), math.prod(grid), rows,
                             phases, each * math.prod(step), channelwise.Rows(starts, parts, step[-1]))


def _priced(spec: Convolution, entry: Callable[..., None]) -> PreparedLaunch:
    nbytes = (numel(spec.x[0]) + numel(spec.w[0]) + numel(spec.y[0])) * spec.dtype.itemsize
    return PreparedLaunch(f"depthwise_{spec.dtype.name}", entry, workspace=64, nbytes=nbytes, flops=2 * numel(spec.y[0]) * math.prod(spec.w[0][2:]))

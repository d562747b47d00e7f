"""Convolutions whose groups have one channel each, as maps and folds over the places of the kernel: memory is the limit, so that no columns are made.

A result is the sum, over the places, of what the image has there times one number of the kernel.  Images with a border are copied into it first, into
the workspace.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from ...kernels import expr as E
from ...kernels import target
from ...kernels.programs import Map, PreparedLaunch, Reduce
from ...layout import contiguous_strides, numel

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype
    from ...kernels.specs import Convolution

    Sizes = tuple[int, ...]

MOST = 16  # places of a kernel: each is an operand or two
_programs: dict[tuple[str, dtype, int, bool], Map | Reduce] = {}


def convolution(spec: Convolution) -> PreparedLaunch | None:
    """None for other groups, types and kernels, and for gradients of images of several results a channel."""
    (x, _), (w, _), (y, _) = spec.x, spec.w, spec.y
    if spec.groups != x[1] or y[1] % x[1] or spec.dtype.name not in ("float32", "float64") or math.prod(w[2:]) > MOST:
        return None
    if any(operand[1] != contiguous_strides(operand[0]) for operand in (spec.w, spec.y)):
        return None
    if spec.kind == "forward":
        return _forward(spec)
    if spec.kind == "weights":
        return _weights(spec)
    return _images(spec) if y[1] == x[1] and spec.x[1] == contiguous_strides(x) else None


def _bordered(d: dtype, shape: Sizes, strides: Sizes, low: Sizes, high: Sizes) -> tuple[Callable[[int, int], int], Sizes, int]:
    """What gives, of an image's address and the workspace's, the address of the image in a border of so many zeros before and behind it; its
    strides; the bytes of workspace."""
    if not any(low) and not any(high):
        return (lambda x, room: x), strides, 0
    whole = (*shape[:2], *[a + i + b for a, i, b in zip(low, shape[2:], high, strict=True)])
    steps = contiguous_strides(whole)
    start = sum([a * s for a, s in zip(low, steps[2:], strict=True)]) * d.itemsize
    clear = target.prepare(Map((E.const(0, d),), ()), (numel(whole),), ((1,),)).entry
    copy = target.prepare(Map((E.input(0, d),), (d,)), shape, (steps, strides)).entry

    def place(x: int, room: int) -> int:
        clear(room)
        copy(room + start, x)
        return room
    return place, steps, numel(whole) * d.itemsize


def _places(spec: Convolution, steps: Sizes) -> list[int]:
    """How many bytes behind a window's first place each of its places lies."""
    apart = [d * s * spec.dtype.itemsize for d, s in zip(spec.dilation, steps[2:], strict=True)]
    return [sum([a * s for a, s in zip(at, apart, strict=True)]) for at in itertools.product(*map(range, spec.w[0][2:]))]


def _summing(d: dtype, count: int, bias: bool) -> Map:
    """The sum of products of so many inputs with as many others, and of one more."""
    key = ("forward", d, count, bias)
    program = _programs.get(key)
    if program is None:
        total = E.input(2 * count, d) if bias else E.const(0, d) if not count else E.input(0, d) * E.input(count, d)
        for k in range(0 if bias else 1, count):
            total = total + E.input(k, d) * E.input(count + k, d)
        program = _programs[key] = Map((total,), (d,) * (2 * count + bias))
    assert isinstance(program, Map)
    return program


def _forward(spec: Convolution) -> PreparedLaunch:
    d, out, groups = spec.dtype, spec.y[0], spec.groups
    item, each = d.itemsize, out[1] // groups
    at, steps, workspace = _bordered(d, *spec.x, spec.padding, spec.padding)
    places = _places(spec, steps)
    count, still = len(places), (0,) * (len(out) - 2)
    from_image = (steps[0], steps[1], 0, *[s * t for s, t in zip(steps[2:], spec.stride, strict=True)])
    from_kernel = (0, each * count, count, *still)
    to = contiguous_strides((out[0], groups, each, *out[2:]))
    strides = (to, *[from_image] * count, *[from_kernel] * count, *([(0, each, 1, *still)] if spec.bias else []))
    run = target.prepare(_summing(d, count, spec.bias), (out[0], groups, each, *out[2:]), strides).entry

    def entry(y: int, x: int, w: int, *more: int) -> None:
        image = at(x, more[-1])
        run(y, *[image + p for p in places], *[w + k * item for k in range(count)], *more[:-1])
    return _priced(spec, entry, workspace)


def _images(spec: Convolution) -> PreparedLaunch:
    """For each remainder of an image's place in its border by the steps, the sum over the kernel's places that fall on it."""
    d, shape, out = spec.dtype, spec.x[0], spec.y[0]
    item, axes = d.itemsize, range(len(shape) - 2)
    size, gone, step, apart, pad = shape[2:], out[2:], spec.stride, spec.dilation, spec.padding
    taps = list(itertools.product(*map(range, spec.w[0][2:])))
    # along an axis: the first and the last window that begins at or before a place of this remainder
    first = [[-(-(pad[i] - r) // step[i]) for r in range(step[i])] for i in axes]
    last = [[(size[i] - 1 + pad[i] - r) // step[i] for r in range(step[i])] for i in axes]
    low = tuple([max(0, (spec.w[0][2 + i] - 1) * apart[i] // step[i] - min(first[i])) for i in axes])
    high = tuple([max(0, max(last[i]) - gone[i] + 1) for i in axes])
    at, steps, workspace = _bordered(d, *spec.y, low, high)
    to = spec.x[1]
    runs = []
    for rest in itertools.product(*map(range, step)):
        domain = tuple([last[i][rest[i]] - first[i][rest[i]] + 1 for i in axes])
        if min(domain) <= 0:
            continue
        chosen = [k for k, tap in enumerate(taps) if all((tap[i] * apart[i] - rest[i]) % step[i] == 0 for i in axes)]
        start = sum([(step[i] * first[i][rest[i]] + rest[i] - pad[i]) * to[2 + i] for i in axes]) * item
        places = [sum([(first[i][rest[i]] - (taps[k][i] * apart[i] - rest[i]) // step[i] + low[i]) * steps[2 + i] for i in axes]) * item for k in chosen]
        strides = ((*to[:2], *[s * t for s, t in zip(to[2:], step, strict=True)]), *[steps] * len(chosen),
                   *[(0, len(taps), *(0,) * len(size))] * len(chosen))
        run = target.prepare(_summing(d, len(chosen), False), (*shape[:2], *domain), strides).entry
        runs.append((run, start, places, [k * item for k in chosen]))

    def entry(gx: int, w: int, gy: int, *more: int) -> None:
        image = at(gy, more[-1])
        for run, start, places, numbers in runs:
            run(gx + start, *[image + p for p in places], *[w + n for n in numbers])
    return _priced(spec, entry, workspace)


def _weights(spec: Convolution) -> PreparedLaunch:
    d, out, groups = spec.dtype, spec.y[0], spec.groups
    item, each = d.itemsize, out[1] // groups
    at, steps, workspace = _bordered(d, *spec.x, spec.padding, spec.padding)
    places = _places(spec, steps)
    count = len(places)
    key = ("weights", d, 1, False)
    program = _programs.get(key)
    if program is None:
        program = _programs[key] = Reduce((E.input(0, d) * E.input(1, d),), ("sum",), (E.acc(0, d),), (d, d))
    from_image = (steps[1], 0, steps[0], *[s * t for s, t in zip(steps[2:], spec.stride, strict=True)])
    own = contiguous_strides(out)
    made = target.prepare(program, (groups, each, out[0], *out[2:]), ((each * count, count), from_image, (own[1] * each, own[1], own[0], *own[2:])))
    run, room = made.entry, -(-workspace // 64) * 64

    def entry(gw: int, x: int, gy: int, *more: int) -> None:
        image = at(x, more[-1])
        scratch = [more[-1] + room] if made.workspace else []
        for k, p in enumerate(places):
            run(gw + k * item, image + p, gy, *scratch)
    return _priced(spec, entry, room + made.workspace)


def _priced(spec: Convolution, entry: Callable[..., None], workspace: int) -> PreparedLaunch:
    nbytes = (numel(spec.x[0]) + numel(spec.w[0]) + numel(spec.y[0])) * spec.dtype.itemsize
    return PreparedLaunch(f"depthwise_{spec.dtype.name}", entry, workspace=max(workspace, 64), nbytes=nbytes,
                          flops=2 * numel(spec.y[0]) * math.prod(spec.w[0][2:]))

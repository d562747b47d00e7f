"""The gradient of the images of a convolution in steps, which is the transposed convolution: for each remainder of a place by the steps, a plain
convolution of the gradients with those of the kernel's places that fall on it.

No product is made with a zero and no sum is scattered: each remainder's result lies by itself in the workspace, and one copy puts them in turn.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ...kernels import expr as E
from ...kernels import routines, target
from ...kernels.programs import Map, PreparedLaunch
from ...layout import contiguous_strides, numel

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype
    from ...kernels.specs import Convolution

    Sizes = tuple[int, ...]

MOST = 16  # remainders; more of them have few places of the kernel each, and one product for all of them is better
LINE = 64  # bytes


class Remainder(NamedTuple):
    """One axis: the images' places `begin`, begin + step ..., and what of the kernel falls on them."""

    begin: int
    length: int
    tap: int  # the first of the kernel's places,
    taps: int  # how many there are, each so many places behind the one before: `apart` of the kernel and `dilation` of the gradients
    apart: int
    dilation: int
    padding: int  # of the gradients, in front; below 0 so many of them are left out


def remainders(image: int, kernel: int, step: int, padding: int, dilation: int) -> list[Remainder]:
    """In the order of their first places. A place of the image i is seen by window o at the kernel's place k where i + padding = step o + dilation k."""
    apart, found = step // math.gcd(step, dilation), []
    for begin in range(min(step, image)):
        rest, first = (begin + padding) % step, (begin + padding) // step
        tap = next((k for k in range(min(apart, kernel)) if (dilation * k - rest) % step == 0), None)
        taps = 0 if tap is None else len(range(tap, kernel, apart))
        wide = dilation * apart // step
        front = 0 if tap is None else (dilation * tap - rest) // step + wide * (taps - 1) - first
        found.append(Remainder(begin, len(range(begin, image, step)), tap or 0, taps, apart, wide, front))
    return found


def images(spec: Convolution) -> PreparedLaunch | None:
    """``entry(gx, w, gy, workspace)``. None where steps are 1 or so many that each remainder has next to nothing, and for operands with gaps."""
    d, (shape, to), (kernels, own), (out, given) = spec.dtype, spec.x, spec.w, spec.y
    if max(spec.stride) == 1 or math.prod(spec.stride) > MOST or not routines.generated() or d.name not in ("float32", "float64"):
        return None
    if own != contiguous_strides(kernels) or to != contiguous_strides(shape) or given[-1] != 1:
        return None
    axes = [remainders(*sizes) for sizes in zip(shape[2:], kernels[2:], spec.stride, spec.padding, spec.dilation, strict=True)]
    even = all(i % s == 0 for i, s in zip(shape[2:], spec.stride, strict=True))
    each = _up(numel(shape) // math.prod(spec.stride) * d.itemsize) if even else 0
    work: list[Callable[..., Any]] = []
    room = 0
    for number, chosen in enumerate(itertools.product(*axes)):
        made = _remainder(spec, chosen)
        place = number * each
        if made is None:
            if even:
                work.append(_clearing(d, each // d.itemsize, place))
            else:
                work.append(_putting(d, spec, chosen, 0, False))
            continue
        start = each * math.prod(spec.stride) if even else _up(math.prod((*shape[:2], *[r.length for r in chosen])) * d.itemsize)
        work.append(made[0](place, start))
        if not even:
            work.append(_putting(d, spec, chosen, 0, True))
        room = max(room, start + made[1])
    if even:
        room = max(room, each * math.prod(spec.stride))
        work.append(_interleaving(d, shape, spec.stride, each // d.itemsize))

    def entry(gx: int, w: int, gy: int, workspace: int) -> None:
        for call in work:
            call(gx, w, gy, workspace)
    nbytes = (numel(shape) + numel(kernels) + numel(out)) * d.itemsize
    return PreparedLaunch(f"convolution_{d.name}_transposed", entry, workspace=max(room, LINE), nbytes=nbytes,
                          flops=2 * numel(out) * math.prod(kernels[1:]))


def _up(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE


def _copy(d: dtype, shape: Sizes, to: Sizes, from_: Sizes) -> Callable[..., None]:
    return target.prepare(Map((E.input(0, d),), (d,)), shape, (to, from_)).entry


def _remainder(spec: Convolution, chosen: tuple[Remainder, ...]) -> tuple[Callable[[int, int], Callable[..., None]], int] | None:
    """The convolution of one remainder, given where its result and its workspace lie, and how much of the latter it takes; None: it is all zeros."""
    d, (shape, _), (kernels, own), (out, given) = spec.dtype, spec.x, spec.w, spec.y
    taps = tuple([r.taps for r in chosen])
    cut = [max(0, -r.padding) for r in chosen]
    seen = tuple([o - c for o, c in zip(out[2:], cut, strict=True)])
    if not all(taps) or min(seen) <= 0:
        return None
    count = math.prod(taps)
    steps = tuple([r.apart * s for r, s in zip(chosen, own[2:], strict=True)])
    first = sum([r.tap * s for r, s in zip(chosen, own[2:], strict=True)]) * d.itemsize
    packed = (*kernels[:2], *taps)
    kernel = _copy(d, packed, contiguous_strides(packed), (*own[:2], *steps))
    before = sum([c * s for c, s in zip(cut, given[2:], strict=True)]) * d.itemsize
    sizes = (seen, tuple([r.length for r in chosen]), taps, (1,) * len(taps), tuple([max(0, r.padding) for r in chosen]),
             tuple([r.dilation for r in chosen]))
    a = (count, kernels[1] * count, -1, count - 1)
    made = routines.convolution(d, shape[0], out[1] // spec.groups, kernels[1], sizes, given, a, False, spec.groups)
    assert made is not None
    run, own_room = made.entry, _up(numel(packed) * d.itemsize)

    def placed(place: int, start: int) -> Callable[..., None]:
        def call(gx: int, w: int, gy: int, workspace: int) -> None:
            kernel(workspace + start, w + first)
            run(workspace + place, gy + before, workspace + start, workspace + start + own_room)
        return call
    return placed, own_room + made.workspace


def _clearing(d: dtype, count: int, place: int) -> Callable[..., None]:
    clear = target.prepare(Map((E.const(0, d),), ()), (count,), ((1,),)).entry
    return lambda gx, w, gy, workspace: clear(workspace + place)


def _putting(d: dtype, spec: Convolution, chosen: tuple[Remainder, ...], place: int, made: bool) -> Callable[..., None]:
    """Writes one remainder's result to its places, or zeros."""
    shape, to = spec.x
    part = (*shape[:2], *[r.length for r in chosen])
    steps = (*to[:2], *[s * t for s, t in zip(to[2:], spec.stride, strict=True)])
    start = sum([r.begin * s for r, s in zip(chosen, to[2:], strict=True)]) * d.itemsize
    if made:
        copy = _copy(d, part, steps, contiguous_strides(part))
        return lambda gx, w, gy, workspace: copy(gx + start, workspace + place)
    clear = target.prepare(Map((E.const(0, d),), ()), part, (steps,)).entry
    return lambda gx, w, gy, workspace: clear(gx + start)


def _interleaving(d: dtype, shape: Sizes, stride: Sizes, each: int) -> Callable[..., None]:
    """One copy of all remainders' results, `each` elements from one to the next, where every axis is a multiple of its step."""
    part = (*shape[:2], *[i // s for i, s in zip(shape[2:], stride, strict=True)])
    inner, turns = contiguous_strides(part), contiguous_strides(stride)
    domain, from_ = [*shape[:2]], [*inner[:2]]
    for i, s in enumerate(stride):
        domain += [part[2 + i], s]
        from_ += [inner[2 + i], turns[i] * each]
    copy = _copy(d, tuple(domain), contiguous_strides(tuple(domain)), tuple(from_))
    return lambda gx, w, gy, workspace: copy(gx, workspace)

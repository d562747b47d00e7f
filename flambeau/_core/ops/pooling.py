"""Pooling: greatest and mean elements over windows of one, two or three axes, fixed or adapted to an output size."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np

from .. import dtypes, layout
from ..autograd import tape
from ..autograd.mode import _grad
from ..dtypes import float32, int64
from ..engine import general
from ..engine.fields import has
from ..kernels import expr as E
from ..kernels.expr import Expr
from ..kernels.programs import Map, Reduce
from ..runtime import dispatch
from ..tensor import Meta, Tensor, empty, meta, new
from ..unknowns import index
from . import launch, routines
from .casts import in_float32, to_dtype
from .checks import of_kinds
from .convolution import Geometry, Sizes, _copy, _raw, _windows
from .copies import as_images, contiguous, laid_as
from .indexing.along_axis import _written
from .resampling import kept_taps, resized
from .table import op
from .windows import added_up


def _many(name: str, value: Any, n: int) -> Sizes:
    if isinstance(value, int):
        return (value,) * n
    out = tuple(map(index, value))
    if len(out) == 1:
        return out * n
    if len(out) != n:
        raise RuntimeError(f"{name} must either be a single int, or a tuple of {n} ints, but got {list(out)}")
    return out


class Pool:
    """The numbers of one pooling: kernel, stride, padding, dilation, the image's and the result's sizes."""

    __slots__ = ("kernel", "stride", "padding", "dilation", "image", "out", "reach", "inside", "few")

    def __init__(self, name: str, image: Sizes, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, channels: int) -> None:
        n = len(image)
        self.kernel = _many("kernel_size", kernel, n)
        self.stride = self.kernel if stride is None or stride == () or stride == [] else _many("stride", stride, n)
        self.padding, self.dilation, self.image = _many("padding", padding, n), _many("dilation", dilation, n), image
        for label, sizes in (("kernel size", self.kernel), ("stride", self.stride), ("dilation", self.dilation)):
            if any(s <= 0 for s in sizes):
                wanted = "should not be zero, it should be greater than zero" if label == "stride" and 0 in sizes else "should be greater than zero"
                raise RuntimeError(f"{name}: {label} {wanted}, but got {list(sizes)}")
        for p, k in zip(self.padding, self.kernel, strict=True):
            if p < 0 or 2 * p > k:
                raise RuntimeError(f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and dilation=1" if p >= 0
                                   else f"pad must be non-negative, but got pad: {p}")
        out = []
        for i, k, s, p, d in zip(image, self.kernel, self.stride, self.padding, self.dilation, strict=True):
            span = i + 2 * p - d * (k - 1) - 1
            o = (-(-span // s) if ceil else span // s) + 1
            if ceil and (o - 1) * s >= i + p:  # the last window must begin inside the image or its left border
                o -= 1
            out.append(o)
        if min(out) <= 0:
            given, made, kernel_sizes = ("x".join(map(str, those)) for those in ((channels, *image), (channels, *out), self.kernel))
            raise RuntimeError(f"Given input size: ({given}). Calculated output size: ({made}), with a kernel of {kernel_sizes}. "
                               "Output size is too small")
        self.out = tuple(out)
        # sizes of the padded image that all windows fit into
        self.reach = tuple(max((o - 1) * s + d * (k - 1) + 1, i + p)
                           for o, s, d, k, i, p in zip(self.out, self.stride, self.dilation, self.kernel, image, self.padding, strict=True))
        self.inside = not any(self.padding) and self.reach == image  # no window reaches over the image's border
        self.few = math.prod(self.kernel) <= _FEW  # one formula looks at all of a window

    def geometry(self) -> Geometry:
        return Geometry(self.stride, self.padding, self.dilation, 1, self.image, self.kernel, self.out)


def _single(name: str, shape: Sizes, n: int, channels: bool = True) -> bool:
    """Whether images of n axes came without a batch.  channels: there must be some."""
    if len(shape) not in (n + 1, n + 2):
        raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D input, but got {len(shape)}D: {list(shape)}")
    if 0 in shape[len(shape) - n - channels:]:
        raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size for input, but got: "
                           f"{list(shape)}")
    return len(shape) == n + 1


def _given(*sizes: Any) -> list[Any]:
    """Kernel sizes, strides and their like as a cache is looked up by: a tensor or a list may hold other numbers next time."""
    return [v if v is None or isinstance(v, int) else tuple(map(index, v)) for v in sizes]


@general.kept
def _pool(name: str, n: int, m: Meta, ceil: bool, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Pool, bool]:
    """The pooling of what is laid out so, and whether it came without a batch."""
    single = _single(name, m.shape, n)
    return Pool(name, tuple(m.shape[-n:]), kernel, stride, padding, dilation, ceil, m.shape[-n - 1]), single


def _bordered(x: Tensor, p: Pool, value: Any) -> Tensor:
    """x in a border of `value` that all windows fit into, dense in the layout of images; outside the tape."""
    x = x.detach()
    if p.inside:
        return _dense(x)
    out = new(_laid((*x.meta.shape[:2], *p.reach), x.meta, x.meta.dtype))
    launch.fill(out, value)
    offset = 0
    for pad, s in zip(p.padding, out.meta.strides[2:], strict=True):
        offset += pad * s
    _copy(_raw(out, x.meta.shape, out.meta.strides, offset), x)
    return out


def _laid(shape: Sizes, image: Meta, d: Any) -> Meta:
    """The meta of a fresh result of this shape on images of such a layout."""
    return meta(shape, layout.image_strides(shape, image.shape, image.strides), d, image.device)


def _dense(x: Tensor) -> Tensor:
    """x row by row, or channels last where it lies so with gaps."""
    return laid_as(x, x) if layout.wants_channels_last(x.meta.shape, x.meta.strides) else contiguous(x)


# -------------------------------------------------------------------------------------------------------------------- max
def _lowest(d: Any) -> Any:
    return -math.inf if d.kind == "f" else dtypes.iinfo(d).min if d.kind != "b" else False


_FEW = 32  # taps of a window that one formula looks at


def _max_small(x: Tensor, p: Pool) -> tuple[Tensor, Tensor]:
    """The greatest of each small window and its position, in one pass over the results as they lie in memory."""
    d = x.meta.dtype
    shape = (*x.meta.shape[:2], *p.out)
    values, flat = new(_laid(shape, x.meta, d)), new(_laid(shape, x.meta, int64))
    if not values.meta.numel:
        return values, flat
    if layout.wants_channels_last(x.meta.shape, x.meta.strides):
        image = _bordered(x, p, _lowest(d))
        strides, places = _taps(d, image.meta.strides, p.kernel, p.stride, p.dilation)
        steps = layout.contiguous_strides(p.image)
        offsets = [sum(a * t * s for a, t, s in zip(at, p.dilation, steps, strict=True)) for at in itertools.product(*map(range, p.kernel))]
        launch.run(_channels_program(d, p.kernel), shape, [values, flat], [_raw(image, shape, strides, place // d.itemsize) for place in places],
                   [values.meta.strides, flat.meta.strides, *[strides] * len(places)], (*p.stride, *p.padding, *p.dilation, *steps, *offsets), name="max_pool")
        return values, flat
    program, numbers = _small(x, p)
    launch.run(program, (values.meta.numel,), [_raw(values, (values.meta.numel,), (1,)), _raw(flat, (values.meta.numel,), (1,))], [_dense(x.detach())],
               [(1,), (1,), (0,)], numbers, name="max_pool")
    return values, flat


def _small(x: Tensor, p: Pool) -> tuple[Map, tuple[Any, ...]]:
    """The program for small windows and its numbers."""
    last = layout.wants_channels_last(x.meta.shape, x.meta.strides)
    steps = layout.contiguous_strides(p.image)
    taps = [sum(a * t * s for a, t, s in zip(at, p.dilation, steps, strict=True)) for at in itertools.product(*map(range, p.kernel))]
    channels = (x.meta.shape[1],) if last else ()
    numbers = (*[1.0 * d for d in (*p.out, *channels)], *channels, layout.numel(p.image), -sum(a * s for a, s in zip(p.padding, steps, strict=True)),
               *[a * s for a, s in zip(p.stride, steps, strict=True)], *taps)
    if not p.inside:
        numbers += (*p.stride, *p.padding, *p.dilation, *p.image)
    return _small_program(x.meta.dtype, p.kernel, p.inside, last), numbers


def unravelled(place: Expr, sizes: list[Expr]) -> tuple[list[Expr], Expr]:
    """The coordinates of a place along the innermost axes, whose sizes are float64 numbers, and the place along what is outside of them."""
    own = [place] * len(sizes)
    for i in reversed(range(len(sizes))):
        # a quotient in double, of a half more than a whole number, is exact where 64-bit division would be slow
        above = E.cast(E.floor((E.cast(place, dtypes.float64) + 0.5) / sizes[i]), int64)
        own[i], place = place - above * E.cast(sizes[i], int64), above
    return own, place


@cache
def _small_program(d: Any, kernel: Sizes, inside: bool, last: bool) -> Map:
    """Numbers: output sizes (as floats; last: and the channels, innermost then, once more as an integer), the image's size, the padding's offset,
    strides and taps as offsets; where windows reach over the border also strides, paddings, dilations and image sizes."""
    k, wide = len(kernel), dtypes.float64
    count = math.prod(kernel)
    at = k + 2 * last
    whole, pad = E.scalar(at, int64), E.scalar(at + 1, int64)
    at += 2
    own, rest = unravelled(E.coord(0), [E.scalar(i, wide) for i in range(k + last)])
    place = pad
    for i in reversed(range(k)):
        place = place + own[i] * E.scalar(at + i, int64)
    base, apart = rest * whole, E.scalar(k + 1, int64)
    if last:
        base = base * apart + own[k]
    at += k
    fits = []  # for each axis and place in the kernel, whether it falls on the image
    if not inside:
        extra = [[E.scalar(at + count + j * k + i, int64) for i in range(k)] for j in range(4)]
        for i in range(k):
            first = own[i] * extra[0][i] - extra[1][i]
            fits.append([(first + extra[2][i] * a >= 0) & (first + extra[2][i] * a < extra[3][i]) for a in range(kernel[i])])
    best, where = E.const(_lowest(d), d.opmath), E.const(-1, int64)
    for t, taps in enumerate(itertools.product(*map(range, kernel))):
        offset = place + E.scalar(at + t, int64)
        there = base + (offset * apart if last else offset)
        if inside:
            v = E.cast(E.gather(0, there, d), d.opmath)
        else:
            good = fits[0][taps[0]]
            for i in range(1, k):
                good = good & fits[i][taps[i]]
            v = E.cast(E.gather(0, E.where(good, there, base), d), d.opmath)
        more = v > best
        if d.kind == "f":
            more = more | E.isnan(v)  # of several the last, as in PyTorch
        if not inside:
            more = (more | (where < 0)) & good
        best, where = (v, offset) if inside and not t else (E.where(more, v, best), E.where(more, offset, where))
    scalars = (wide,) * (k + last) + (int64,) * (last + 2 + k + count + (0 if inside else 4 * k))
    return Map((E.cast(best, d), where), (d,), scalars)


@cache
def _channels_program(d: Any, kernel: Sizes) -> Map:
    """The greatest of a window's elements, an input each, and its place, over images whose channels are innermost: whole vectors of them have the same places.
    Beyond the border inputs are the least there is.  Numbers: strides, paddings, dilations, steps from row to row of the image, taps as offsets."""
    k, count = len(kernel), math.prod(kernel)
    stride, pad, dilation, step = ([E.scalar(j * k + i, int64) for i in range(k)] for j in range(4))
    zero = E.const(0, int64)
    base, where = zero, zero
    for i in range(k):
        first = E.coord(2 + i) * stride[i] - pad[i]
        base = base + first * step[i]
        # where nothing is greater than the least, it is the first that falls on the image
        where = where + (first + E.maximum(E.floordiv(dilation[i] - 1 - first, dilation[i]), zero) * dilation[i]) * step[i]
    best = E.const(_lowest(d), d.opmath)
    for t in range(count):
        v = E.cast(E.input(t, d), d.opmath)
        more = v > best
        if d.kind == "f":
            more = more | E.isnan(v)  # of several the last, as in PyTorch
        best, where = E.where(more, v, best), E.where(more, base + E.scalar(4 * k + t, int64), where)
    return Map((E.cast(best, d), where), (d,) * count, (int64,) * (4 * k + count))


@cache
def _max_program(d: Any, k: int) -> Reduce:
    """The greatest element of a window of k axes and its number in it, of several that are NaN the last one's.  Numbers: the window's sizes."""
    x, best, first = E.cast(E.input(0, d), d.opmath), E.cast(E.acc(0, d.opmath), d), E.acc(1, int64)
    if d.kind != "f":
        return Reduce((x,), ("argmax",), (best, first), (d,), (int64,) * k)
    place: Expr = E.coord(-k)
    for i in range(1, k):
        place = place * E.scalar(i, int64) + E.coord(i - k)
    last = E.acc(2, int64)
    return Reduce((x, E.where(E.isnan(x), place, E.const(-1, int64))), ("argmax", "max"), (best, E.where(last < 0, first, last)), (d,), (int64,) * k)


@cache
def _place_program(k: int) -> Map:
    """The position in the flattened image of an element by its number in its window of k axes."""
    rest, total = E.input(0, int64), E.const(0, int64)
    kernel, stride, pad, dil, image = ([E.scalar(j * k + i, int64) for i in range(k)] for j in range(5))
    parts = []
    for i in reversed(range(k)):
        parts.append(E.rem(rest, kernel[i]))
        rest = E.floordiv(rest, kernel[i])
    parts.reverse()
    for i in range(k):
        where = E.coord(2 + i) * stride[i] + parts[i] * dil[i] - pad[i]
        total = total * image[i] + E.minimum(E.maximum(where, E.const(0, int64)), image[i] - 1)
    return Map((total,), (int64,), (int64,) * (5 * k))


def _max_raw(x: Tensor, p: Pool) -> tuple[Tensor, Tensor]:
    """The greatest of each window and its position in the flattened image."""
    if p.few:
        return _max_small(x, p)
    d = x.meta.dtype
    n, k = len(p.image), len(p.image)
    shape = (*x.meta.shape[:2], *p.out)
    values, at, flat = new(_laid(shape, x.meta, d)), new(_laid(shape, x.meta, int64)), new(_laid(shape, x.meta, int64))
    if not values.meta.numel:
        return values, flat
    view = _windows(_bordered(x, p, _lowest(d)), p.geometry())
    st = view.meta.strides
    strides = (st[0], st[1], *st[2 + n:], *st[2:2 + n])
    launch.run(_max_program(d, k), (*shape, *p.kernel), [values, at], [view], [values.meta.strides, at.meta.strides, strides], p.kernel, name="max_pool")
    launch.run(_place_program(k), shape, [flat], [at], numbers=(*p.kernel, *p.stride, *p.padding, *p.dilation, *p.image), name="max_pool_index")
    return values, flat


def _max(name: str, n: int, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> tuple[Tensor, Tensor]:
    if x.meta.dtype.is_complex or x.meta.dtype.kind == "b":
        raise NotImplementedError(f'"{name}" not implemented for \'{dtypes.title(x.meta.dtype)}\'')
    p, single = _pool(name, n, x.meta, ceil, *_given(kernel, stride, padding, dilation))
    x = contiguous(x).unsqueeze(0) if single else x
    values, at = _max_raw(x, p)
    tape.record(values, _max_back, (x,), (x.meta, tape.keep(at), p), f"MaxPool{n}DWithIndicesBackward0")
    return (values.squeeze(0), at.squeeze(0)) if single else (values, at)


def _greatest(name: str, n: int, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Tensor:
    """`_max` without the places, which nobody asks for where nothing is recorded: small windows by vectors."""
    if n == 1 and x.meta.device.type == "cpu" and x.meta.dtype.kind in "ui":
        _pool(name, n, x.meta, ceil, *_given(kernel, stride, padding, dilation))
        of_kinds("max_pool1d_impl", x, "f")  # PyTorch takes integers where places are asked for, and on a GPU
    if (x.meta.contiguous or layout.wants_channels_last(x.meta.shape, x.meta.strides)) and x.meta.numel and x.meta.dtype.kind in "fiu":
        p, single = _pool(name, n, x.meta, ceil, *_given(kernel, stride, padding, dilation))
        if p.few:
            x = contiguous(x).unsqueeze(0) if single else x
            out = _over_windows("max", x if p.inside else _bordered(x, p, _lowest(x.meta.dtype)), p)
            return out.squeeze(0) if single else out
    return _max(name, n, x, kernel, stride, padding, dilation, ceil)[0]


def _max_back(node: Any, g: Tensor) -> Any:
    image, held, p = node[tape.SAVED]
    (at,) = tape.kept(node, held)
    (n, c), size, last = image.shape[:2], image.shape[2:], layout.wants_channels_last(image.shape, image.strides)
    if not n * c:
        return (g.new_zeros(image.shape),)
    if dispatch.sorts_writes(g.meta.device) and not tape.recording(g) and math.prod(_reaching(p)) <= _FEW:
        return (_max_collected(g, image, at, p),)
    if last:  # (n, places, c): the channels stay innermost
        flat, at, g = g.new_zeros((n, layout.numel(size), c)), at.flatten(2).transpose(1, 2), g.flatten(2).transpose(1, 2)
    else:
        flat, at, g = g.new_zeros((n * c, layout.numel(size))), at.reshape(n * c, -1), g.reshape(n * c, -1)
    if tape.recording(g) or not _written("scatter_add", flat, 1, at, g, "add", known=True):
        flat = flat.scatter_add(1, at, g)
    return (flat.reshape(n, *size, c).movedim(-1, 1) if last else flat.reshape(image.shape),)


def _reaching(p: Pool) -> Sizes:
    """How many windows may hold an element, along each axis."""
    return tuple(-(-(d * (k - 1) + 1) // s) for d, k, s in zip(p.dilation, p.kernel, p.stride, strict=True))


@cache
def _collecting(d: Any, stride: Sizes, reaching: Sizes, inner: bool) -> Map:
    """The sum of the gradients of the windows that chose an element.  inner: one of (n, *image, c), else of (planes, *image)."""
    wide, k = d.opmath, len(stride)
    pads, steps, outs, out_steps = ([E.scalar(j * k + i, int64) for i in range(k)] for j in range(4))
    own, zero, total = E.const(0, int64), E.const(0, int64), E.const(0, wide)
    for i in range(k):
        own = own + E.coord(1 + i) * steps[i]
    last = [(E.coord(1 + i) + pads[i]) // stride[i] for i in range(k)]  # of the windows that begin there or before
    for back in itertools.product(*map(range, reaching)):
        offset, good = E.coord(0) * E.scalar(4 * k, int64), E.const(True, dtypes.bool_)
        if inner:
            offset = offset + E.coord(1 + k)
        for i in range(k):
            o = last[i] - back[i]
            good = good & (o >= 0) & (o < outs[i])
            offset = offset + o * out_steps[i]
        offset = E.where(good, offset, zero)
        chose = good & (E.gather(1, offset, int64) == own)
        total = total + E.where(chose, E.cast(E.gather(0, offset, d), wide), E.const(0, wide))
    return Map((E.cast(total, d),), (d, int64), (int64,) * (4 * k + 1))


def _max_collected(g: Tensor, image: Meta, at: Tensor, p: Pool) -> Tensor:
    """The gradients of the windows that chose each element, added up at the element: in one pass, always in the same order."""
    d, (n, c), last = g.meta.dtype, image.shape[:2], layout.wants_channels_last(image.shape, image.strides)
    out, channels = new(_laid(tuple(image.shape), image, d)), c if last else 1
    domain = (n, *p.image, c) if last else (n * c, *p.image)
    steps = [s * channels for s in layout.contiguous_strides(p.out)]
    numbers = (*p.padding, *layout.contiguous_strides(p.image), *p.out, *steps, layout.numel(p.out) * channels)
    nowhere, g = (0,) * len(domain), laid_as(g.detach(), out) if last else contiguous(g)
    launch.run(_collecting(d, p.stride, _reaching(p), last), domain, [out], [g, at], [layout.contiguous_strides(domain), nowhere, nowhere], numbers,
               name="max_pool_backward")
    return out


# ------------------------------------------------------------------------------------------------------------------- mean
def _taps(d: Any, strides: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes) -> tuple[Sizes, list[int]]:
    """An image in its border, laid out by `strides`, by the places of a window: the strides from window to window, and how many bytes behind the
    first place each one lies."""
    apart = [s * a for s, a in zip(strides[2:], dilation, strict=True)]
    places = [sum([a * s for a, s in zip(at, apart, strict=True)]) * d.itemsize for at in itertools.product(*map(range, kernel))]
    return (*strides[:2], *[s * t for s, t in zip(strides[2:], stride, strict=True)]), places


@cache
def _over_taps(how: str, d: Any, count: int) -> Map:
    """The sum, or the greatest, of so many inputs."""
    total, *rest = [E.cast(E.input(k, d), d.opmath) for k in range(count)]
    for v in rest:
        total = total + v if how == "sum" else E.where((v > total) | E.isnan(v) if d.kind == "f" else v > total, v, total)
    return Map((E.cast(total, d),), (d,) * count)


@general.kept
def _pooling(how: str, m: Meta, p: Pool) -> tuple[Meta, routines.Bound, list[int]]:
    """Of small windows inside an image laid out as m says: the sums', or the greatest's, layout, what writes them, and the bytes from the image's
    address to each of those that it takes behind the result's."""
    made = _laid((*m.shape[:2], *p.out), m, m.dtype)
    strides, places = _taps(m.dtype, m.strides, p.kernel, p.stride, p.dilation)
    rooms = [made.nbytes, *[m.nbytes - place for place in places]]
    return made, launch.plan(m.device, _over_taps(how, m.dtype, len(places)), tuple(made.shape), [made.strides, *[strides] * len(places)], rooms,
                             "avg_pool" if how == "sum" else "max_pool"), places


def _over_windows(how: str, image: Tensor, p: Pool) -> Tensor:
    """The sum, or the greatest, of each small window inside an image that has elements."""
    made, bound, places = _pooling(how, image.meta, p)
    out = new(made)
    routines.call(bound, (out.ptr, *map(image.ptr.__add__, places)))
    return out


@cache
def _sum_program(d: Any) -> Reduce:
    return Reduce((E.cast(E.input(0, d), d.opmath),), ("sum",), (E.cast(E.acc(0, d.opmath), d),), (d,))


def _sum_along(image: Tensor, axis: int, out: int, kernel: int, stride: int, dilation: int) -> Tensor:
    """The sums of windows along one axis.  Of all axes, one after the other, they are those of whole windows: the first ones are walked in whole
    rows of the image, and what windows share is added up once."""
    shape, st = list(image.meta.shape), image.meta.strides
    shape[axis] = out
    made = new(_laid(tuple(shape), image.meta, image.meta.dtype))
    if made.meta.numel:
        steps = (*st[:axis], st[axis] * stride, *st[axis + 1:], st[axis] * dilation)
        launch.run(_sum_program(image.meta.dtype), (*shape, kernel), [made], [image], [made.meta.strides, steps], name="avg_pool")
    return made


def _sum_windows(x: Tensor, p: Pool) -> Tensor:
    """The sum of each window, zeros beyond the image.  Recorded."""
    n = len(p.image)
    if p.few and x.meta.numel:
        out = _over_windows("sum", _bordered(x, p, 0), p)
    else:
        out = _bordered(x, p, 0)
        for axis, sizes in enumerate(zip(p.out, p.kernel, p.stride, p.dilation, strict=True), 2):
            out = _sum_along(out, axis, *sizes)
    return tape.record(out, _sum_back, (x,), (x.meta, p), f"AvgPool{n}DBackward0")


@tape.keeps_nothing
def _sum_back(node: Any, g: Tensor) -> Any:
    image, p = node[tape.SAVED]
    return (_spread_windows(g, image, p),)


def _spread_windows(g: Tensor, image: Meta, p: Pool) -> Tensor:
    """Each window's gradient added to all its elements, laid out as the images are.  Recorded."""
    source, last, k = g.detach(), layout.wants_channels_last(image.shape, image.strides), len(p.kernel)
    source = source if last else contiguous(source)
    whole, steps = [*source.meta.shape], [*source.meta.strides]
    if last:
        whole, steps = [whole[0], *whole[2:], whole[1]], [steps[0], *steps[2:], steps[1]]
    made = added_up(_raw(source, (*whole, *p.kernel), (*steps, *[0] * k)), 1 if last else 2, p.reach, p.stride, p.dilation)
    st = made.meta.strides
    st = (st[0], st[-1], *st[1:-1]) if last else st
    out = _dense(_raw(made, image.shape, st, sum([pad * s for pad, s in zip(p.padding, st[2:], strict=True)])))
    return tape.record(out, lambda node, gg: (_sum_windows(gg, node[tape.SAVED]),), (g,), p, "AvgPoolBackwardBackward0")


@general.kept
def _shares(p: Pool, include_pad: bool) -> Any:
    """How many elements each window's mean is taken over: one number, or an array where windows differ."""
    sides = []
    for o, s, k, pad, i in zip(p.out, p.stride, p.kernel, p.padding, p.image, strict=True):
        start = np.arange(o) * s - pad
        stop = np.minimum(start + k, i + pad)
        if not include_pad:
            start, stop = np.maximum(start, 0), np.minimum(stop, i)
        sides.append(stop - start)
    if all((s == s[0]).all() for s in sides):
        return int(math.prod(int(s[0]) for s in sides))
    made = sides[0]
    for s in sides[1:]:  # type: ignore[assignment]
        made = made[..., None] * s
    return made


def _mean(name: str, n: int, x: Tensor, kernel: Any, stride: Any, padding: Any, ceil: bool, include: bool, override: int | None) -> Tensor:
    if x.meta.dtype.kind == "f" and x.meta.dtype.itemsize == 2:  # the sums, which may pass float16's range, are not rounded
        return to_dtype(_mean(name, n, to_dtype(x, float32), kernel, stride, padding, ceil, include, override), x.meta.dtype)
    p, single = _pool(name, n, x.meta, ceil, *_given(kernel, stride, padding, 1))
    x, d = contiguous(x) if single or n == 3 else x, x.meta.dtype  # as in PyTorch, means of volumes are row-major
    x = x.unsqueeze(0) if single else x
    if d.kind not in "fc" and d is not int64:
        of_kinds("avg_pool3d_out_frame" if n == 3 else "avg_pool2d", x, "fc")
    if override == 0:
        raise RuntimeError("divisor must be not zero")
    total, by = _sum_windows(x, p), _shares(p, include) if override is None else override
    if isinstance(by, np.ndarray):
        from .creation import tensor
        by = tensor(by, dtype=d if d.is_floating_point else int64, device=x.meta.device)
    out = total / by if d.is_floating_point else total.div(by, rounding_mode="trunc")
    return out.squeeze(0) if single else out


# --------------------------------------------------------------------------------------------------------------- adapted
def _targets(name: str, x: Tensor, size: Any, n: int) -> Sizes:
    sizes = (size,) * n if isinstance(size, int) or size is None else tuple(size)
    if len(sizes) == 1 and n > 1:
        sizes = tuple(sizes) * n
    if len(sizes) != n:
        raise RuntimeError(f"{name}(): internal error: output_size.size() must be {n}")
    out = tuple(int(x.meta.shape[2 + i] if s is None else s) for i, s in enumerate(sizes))
    if any(s < 0 for s in out):
        raise RuntimeError(f"{name}(): elements of output_size must be greater than or equal to 0 but received {list(out)}")
    return out


def _bounds(x: Tensor, i: int, o: int) -> tuple[Tensor, Tensor]:
    """Where the windows along an axis begin and end, int64, on x's device."""
    from .ranges import arange
    at = arange(o, device=x.meta.device) * i
    return at // o, -((-i - at) // o)


def _shared(i: int, o: int) -> list[tuple[Any, Any]]:
    """What the means over the windows of an axis are made of, as `resampling.Taps` in NumPy."""
    low, high = (np.arange(o) * i) // max(o, 1), -(-(np.arange(1, o + 1) * i) // max(o, 1))
    size = high - low
    return [(np.where(k < size, low + k, -1), np.where(k < size, 1.0 / np.maximum(size, 1), 0.0)) for k in range(size.max(initial=1))]


def _adaptive_mean(name: str, n: int, x: Tensor, size: Any) -> Tensor:
    return _adaptive_mean_of(x, name, n, size)


@in_float32
def _adaptive_mean_of(x: Tensor, name: str, n: int, size: Any) -> Tensor:
    of_kinds(name, x, "f")
    single = _single(name, x.meta.shape, n, False)
    x = contiguous(x) if single or n == 3 else x
    x = x.unsqueeze(0) if single else x
    out = _targets(name, x, size, n)
    image = tuple(x.meta.shape[2:])
    if x.meta.numel and 0 not in out and all(i % o == 0 for i, o in zip(image, out, strict=True)):
        kernel = tuple(i // o for i, o in zip(image, out, strict=True))
        made = _mean(name, n, x, kernel, None, 0, False, True, None)
    else:
        empty((*x.meta.shape[:2], *out), x.meta.dtype, x.meta.device)  # whether there is room at all is known before any work
        x = as_images(x)
        last = layout.wants_channels_last(x.meta.shape, x.meta.strides)
        made = x.movedim(1, -1) if last else x
        for axis, (i, o) in enumerate(zip(image, out, strict=True), 1 if last else 2):
            made = resized(made, axis, *kept_taps(("mean", o), lambda i=i, o=o: _shared(i, o), made, i))  # type: ignore[misc]
        made = made.movedim(-1, 1) if last else made
    return made.squeeze(0) if single else made


def _adaptive_max(name: str, n: int, x: Tensor, size: Any) -> tuple[Tensor, Tensor]:
    of_kinds(name, x, "f")
    single = _single(name, x.meta.shape, n)
    x = contiguous(x) if single or n == 3 else x
    x = x.unsqueeze(0) if single else x
    out = _targets(name, x, size, n)
    image = tuple(x.meta.shape[2:])
    if 0 not in out and all(i % o == 0 for i, o in zip(image, out, strict=True)):
        kernel = tuple(i // o for i, o in zip(image, out, strict=True))
        values, at = _max(name, n, x, kernel, None, 0, 1, False)
    else:
        values, at = [laid_as(t, x) for t in _by_cells(as_images(x), image, out)]
    return (values.squeeze(0), at.squeeze(0)) if single else (values, at)


def _by_cells(x: Tensor, image: Sizes, out: Sizes) -> tuple[Tensor, Tensor]:
    """Windows of unequal size: their elements side by side, the last one again where a window is shorter than the longest."""
    from .ranges import arange
    n, shape = len(image), (*x.meta.shape[:2], *out)
    if 0 in out:
        return x.new_zeros(shape), x.new_zeros(shape, dtype=int64)
    empty(shape, int64, x.meta.device)  # whether there is room at all is known before any work
    places: Any = 0
    for axis, (i, o) in enumerate(zip(image, out, strict=True)):
        low, high = _bounds(x, i, o)
        taps = arange(-(-i // o) + (i % o != 0), device=x.meta.device)
        at = (low.unsqueeze(-1) + taps).minimum(high.unsqueeze(-1) - 1) * math.prod(image[axis + 1:])
        ones = [1] * (2 * n)
        ones[axis], ones[n + axis] = at.meta.shape
        places = places + at.reshape(ones)
    places = places.reshape(layout.numel(out), -1)
    flat = x.flatten(2)
    cells = flat.detach().index_select(2, places.reshape(-1)).reshape(*flat.meta.shape[:2], *places.meta.shape)
    kept, d = cells.meta.shape[:-1], cells.meta.dtype
    values, best = new(meta(kept, None, d, cells.meta.device)), new(meta(kept, None, int64, cells.meta.device))
    if best.meta.numel:
        launch.run(_max_program(d, 1), cells.meta.shape, [values, best], [cells], [values.meta.strides, best.meta.strides, cells.meta.strides],
                   cells.meta.shape[-1:], name="max_pool")
    at = places.expand(*cells.meta.shape).gather(-1, best.unsqueeze(-1)).squeeze(-1)
    return flat.gather(2, at).reshape(shape), at.reshape(shape)


def _define(n: int) -> None:
    max_name, avg_name = f"max_pool{n}d", f"avg_pool{n}d"
    functional = ("torch", "nn.functional")

    def with_indices(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,  # noqa: A002
                     return_indices: bool = False) -> tuple[Tensor, Tensor]:
        return _max(max_name, n, input, kernel_size, stride, padding, dilation, ceil_mode)

    def max_pool(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,  # noqa: A002
                 return_indices: bool = False) -> Any:
        if not return_indices and (input.node is None or not _grad.get()):
            return _greatest(max_name, n, input, kernel_size, stride, padding, dilation, ceil_mode)
        values, at = _max(max_name, n, input, kernel_size, stride, padding, dilation, ceil_mode)
        return (values, at) if return_indices else values

    def avg_pool(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,  # noqa: A002
                 divisor_override: int | None = None) -> Tensor:
        return _mean(avg_name, n, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    def avg_pool_1(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:  # noqa: A002, E501
        return _mean(avg_name, n, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)

    def adaptive_avg(input: Tensor, output_size: Any) -> Tensor:  # noqa: A002
        return _adaptive_mean(f"adaptive_avg_pool{n}d", n, input, output_size)

    def adaptive_max(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:  # noqa: A002
        values, at = _adaptive_max(adaptive_name, n, input, output_size)
        return (values, at) if return_indices else values

    def adaptive_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> tuple[Tensor, Tensor]:  # noqa: A002
        made: tuple[Tensor, Tensor] = adaptive_max(input, output_size, True)
        return made

    def adaptive_pair(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:  # noqa: A002
        return _adaptive_max(adaptive_name, n, input, output_size)
    adaptive_name = f"adaptive_max_pool{n}d"
    shape = "(N, C, " + ", ".join("DHW"[3 - n:]) + ")"
    for f, name, doc, spaces in (
            (max_pool, max_name, f"The greatest of each window of {shape}; positions in the flattened image with return_indices.", functional),
            (with_indices, max_name + "_with_indices", "`max_pool` with positions.", functional),
            (avg_pool if n > 1 else avg_pool_1, avg_name, f"The mean of each window of {shape}.", functional if n == 1 else ("nn.functional",)),
            (adaptive_avg, f"adaptive_avg_pool{n}d", "The mean over windows that give the output size.", functional if n == 1 else ("nn.functional",)),
            (adaptive_max, adaptive_name, "The greatest over windows that give the output size.", ("nn.functional",)),
            (adaptive_with_indices, adaptive_name + "_with_indices", "`adaptive_max_pool` with positions.", ("nn.functional",)),
            *([(adaptive_pair, adaptive_name, "`nn.functional.adaptive_max_pool1d` with positions.", ("torch",))] if n == 1 else ())):
        f.__name__ = f.__qualname__ = name
        f.__doc__ = doc
        op(method=False, spaces=spaces, out=f is avg_pool)(f)


for _n in (1, 2, 3):
    _define(_n)

has("adaptive_avg_pool3d avg_pool3d max_pool3d", autocast="cpu full")
has("adaptive_avg_pool1d avg_pool1d max_pool1d", own_view=True)
for _n in (1, 2, 3):
    has(f"""max_pool{_n}d max_pool{_n}d_with_indices avg_pool{_n}d adaptive_avg_pool{_n}d adaptive_max_pool{_n}d
     adaptive_max_pool{_n}d_with_indices""", batch=f"images {_n}d")

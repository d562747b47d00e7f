"""Convolutions of one, two and three axes, plain and transposed, and their gradients.

Three linear maps close the family under differentiation: `_forward` (x, w -> y), `_to_input` (g, w -> gradient of x) and
`_to_weight` (g, x -> gradient of w); the gradient of each is made of the other two.  A transposed convolution is
`_to_input` called by its user.  Windows are copied into columns, image by image so that they stay in cache, and multiplied
by the library; grouped ones go through one generated reduction.
"""

from __future__ import annotations

import math
from typing import Any

from .. import layout
from ..autograd import tape
from ..autograd.mode import no_recording
from ..dtypes import dtype, float32, title
from ..engine.fields import has
from ..errors import warn_once
from ..kernels import expr as E
from ..kernels.programs import Reduce
from ..tensor import Tensor, alias, empty, meta
from . import launch
from .casts import to_dtype
from .convolving import convolve, served
from .copies import cast_program, contiguous, laid_by
from .creation import zeros_meta
from .device_errors import mismatch
from .elementwise import saved_tensor
from .matmul import _BY_KERNEL, _plan, _product, _type_name, linear, matmul, mm
from .table import op

Sizes = tuple[int, ...]
_programs: dict[Any, Reduce] = {}
_BY_PRODUCTS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


class Geometry:
    """The numbers of a convolution: strides, paddings, dilations, groups, and the sizes of both sides."""

    __slots__ = ("stride", "padding", "dilation", "groups", "image", "kernel", "out")

    def __init__(self, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int, image: Sizes, kernel: Sizes, out: Sizes) -> None:
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.image, self.kernel, self.out = image, kernel, out

    def padded(self) -> Sizes:
        return tuple(i + 2 * p for i, p in zip(self.image, self.padding, strict=True))


def _raw(t: Tensor, shape: Any, strides: Sizes, offset: int = 0) -> Tensor:
    """A window on t's memory, outside autograd; offset in elements.  Raises RuntimeError where it would reach beyond that."""
    m = meta(shape, strides, t.meta.dtype, t.meta.device)
    begin = offset * t.meta.dtype.itemsize
    if begin < 0 or begin + m.nbytes > t.meta.nbytes and m.numel:
        raise RuntimeError(f"a window of {list(shape)} by strides {list(strides)} from element {offset} on reaches beyond a tensor of {t.meta.nbytes} bytes")
    return alias(t, m, t.ptr + begin)


def _copy(out: Tensor, source: Tensor) -> None:
    if out.meta.numel:
        launch.run(cast_program(source.meta.dtype, out.meta.dtype), tuple(out.meta.shape), [out], [source], name="im2col")


def _pad(x: Tensor, g: Geometry) -> Tensor:
    """x (N, C, ...) with its zero border, contiguous."""
    if not any(g.padding):
        return contiguous(x.detach())
    out = zeros_meta(meta((*x.meta.shape[:2], *g.padded()), None, x.meta.dtype, x.meta.device))
    offset = 0
    for p, s in zip(g.padding, out.meta.strides[2:], strict=True):
        offset += p * s
    _copy(_raw(out, x.meta.shape, out.meta.strides, offset), x)
    return out


def _windows(xp: Tensor, g: Geometry) -> Tensor:
    """The view (N, C, *kernel, *out) of a padded image."""
    n, c = xp.meta.shape[:2]
    st = xp.meta.strides
    return _raw(xp, (n, c, *g.kernel, *g.out), (st[0], st[1], *[s * d for s, d in zip(st[2:], g.dilation, strict=True)],
                                                *[s * t for s, t in zip(st[2:], g.stride, strict=True)]))


def _is_plain(g: Geometry) -> bool:
    """Kernel 1, stride 1, no border: the image is its own columns."""
    return all(k == 1 for k in g.kernel) and all(s == 1 for s in g.stride) and not any(g.padding)


def _by_pixels(g: Geometry, *images: Tensor) -> bool:
    """Whether it is a product of matrices whose rows are pixels, as the images have their channels innermost."""
    return g.groups == 1 and _is_plain(g) and all(
        i.meta.numel and i.meta.dtype.kind == "f" and not i.meta.contiguous and layout.is_channels_last(i.meta.shape, i.meta.strides) for i in images)


def _pixels(t: Tensor) -> Tensor:
    """Images with their channels innermost, or a kernel of one element, as a matrix: a row for each pixel, or each result."""
    c = t.meta.shape[1]
    t = t.detach() if layout.is_channels_last(t.meta.shape, t.meta.strides) else contiguous(t.detach())
    return _raw(t, (t.meta.numel // c, c), (c, 1))


def _by_planes(g: Geometry, image: Tensor) -> bool:
    """Whether it is a product of the kernel with each image, as a matrix of its channels' planes."""
    return g.groups == 1 and _is_plain(g) and bool(image.meta.numel)


def _planes(t: Tensor) -> Tensor:
    n, c = t.meta.shape[:2]
    plane = layout.numel(t.meta.shape[2:])
    return _raw(contiguous(t.detach()), (n, c, plane), (c * plane, plane, 1))


def _image(pixels: Tensor, shape: Sizes) -> Tensor:
    return _raw(pixels, shape, tuple(layout.channels_last_strides(shape)))


def _columns(view: Tensor, i: int, count: int, scratch: Tensor | None, g: Geometry) -> Tensor:
    """Columns (count, C prod(kernel), prod(out)) of images i ... of a window view."""
    n, c = view.meta.shape[:2]
    shape = (count, c, *g.kernel, *g.out)
    part = _raw(view, shape, view.meta.strides, i * view.meta.strides[0])
    rows, cols = c * math.prod(g.kernel), math.prod(g.out)
    if scratch is None or scratch.meta.shape[0] != count:
        scratch = empty((count, rows, cols), view.meta.dtype, view.meta.device)
    _copy(_raw(scratch, shape, layout.contiguous_strides(shape)), part)
    return scratch


def _step(c: int, g: Geometry, item: int, n: int) -> int:
    """How many images' columns to make at a time: about a megabyte."""
    size = c * math.prod(g.kernel) * math.prod(g.out) * item
    return max(1, min(n, (1 << 20) // max(size, 1)))


def _is_narrow(d: dtype) -> bool:
    """Whether sums of products of this type are taken in float32, and the library has refused it."""
    return d.kind == "f" and d.itemsize == 2


def _wide(t: Tensor | None) -> Any:
    return None if t is None else to_dtype(t.detach(), float32)


def _forward_raw(x: Tensor, w: Tensor, bias: Tensor | None, g: Geometry) -> Tensor:
    shape = (x.meta.shape[0], w.meta.shape[0], *g.out)
    made = convolve("forward", x, w, g, shape, bias)
    if made is not None:
        return made
    if _by_pixels(g, x):
        with no_recording():
            return _image(linear(_pixels(x), _pixels(w), None if bias is None else bias.detach()), shape)
    if _is_narrow(x.meta.dtype):
        if bias is None and _by_planes(g, x):
            with no_recording():
                return matmul(_pixels(w), _planes(x)).reshape(shape)
        if _narrow_columns(x, w, g):
            out = empty(shape, x.meta.dtype, x.meta.device)
            if bias is not None:  # it is among the sums before they are rounded
                _copy(out, bias.detach().reshape((1, -1) + (1,) * len(g.kernel)).expand(shape))
            return _by_columns(out, x, w, g, bias is not None)
        return to_dtype(_forward_raw(_wide(x), _wide(w), _wide(bias), g), x.meta.dtype)
    alone = None if bias is None else convolve("forward", x, w, g, shape)
    out = empty(shape, x.meta.dtype, x.meta.device) if alone is None else alone
    if alone is None:
        _by_columns(out, x, w, g)
    if bias is not None:
        with no_recording():
            out.add_(bias.detach().reshape((-1,) + (1,) * len(g.kernel)))
    return out


def _narrow_columns(x: Tensor, w: Tensor, g: Geometry) -> bool:
    """Whether the device has products of this 16-bit type for columns: wider ones take longer than the columns do."""
    if g.groups > 1 or not (x.meta.numel and w.meta.numel):
        return False
    o, rows, cols = w.meta.shape[0], w.meta.numel // w.meta.shape[0], math.prod(g.out)
    c, a, b = (meta(s, None, x.meta.dtype, x.meta.device) for s in ((1, o, cols), (1, o, rows), (1, rows, cols)))
    return _plan(c, a, b, 1.0, 0.0) is not _BY_KERNEL


def _by_columns(out: Tensor, x: Tensor, w: Tensor, g: Geometry, more: bool = False) -> Tensor:
    """Writes the convolution to out, or adds it there."""
    n, c = x.meta.shape[:2]
    o = w.meta.shape[0]
    if not out.meta.numel:
        return out
    if g.groups > 1 or x.meta.dtype.name not in _BY_PRODUCTS or c == 0:
        return _grouped(x, w, g, out)
    rows, cols = c * math.prod(g.kernel), math.prod(g.out)
    wide = _raw(contiguous(w.detach()), (o, rows), (rows, 1))
    xp = _pad(x, g)
    view = _windows(xp, g)
    step = n if _is_plain(g) else _step(c, g, x.meta.dtype.itemsize, n)
    scratch = None
    for i in range(0, n, step):
        count = min(step, n - i)
        if _is_plain(g):
            columns = _raw(xp, (count, c, cols), (c * cols, cols, 1), i * c * cols)
        else:
            columns = scratch = _columns(view, i, count, scratch, g)
        target = _raw(out, (count, o, cols), (o * cols, cols, 1), i * o * cols)
        _product(target, _raw(wide, (count, o, rows), (0, rows, 1)), columns, 1.0, 1.0 if more else 0.0)
    return out


def _grouped(x: Tensor, w: Tensor, g: Geometry, out: Tensor) -> Tensor:
    """One reduction over a group's channels and the kernel."""
    d = x.meta.dtype
    n, c = x.meta.shape[:2]
    o, cg = w.meta.shape[:2]
    og, k = o // g.groups, len(g.kernel)
    wide = d.opmath
    program = _programs.get(d)
    if program is None:
        a, b = E.cast(E.input(0, d), wide), E.cast(E.input(1, d), wide)
        program = _programs[d] = Reduce((a * b,), ("sum",), (E.cast(E.acc(0, wide), d),), (d, d))
    view, w = _windows(_pad(x, g), g), contiguous(w.detach())
    vs, ws, os = view.meta.strides, w.meta.strides, out.meta.strides
    domain = (n, g.groups, og, *g.out, cg, *g.kernel)
    launch.run(program, domain, [out], [view, w],
               [(os[0], os[1] * og, os[1], *os[2:]),
                (vs[0], vs[1] * cg, 0, *vs[2 + k:], vs[1], *vs[2:2 + k]),
                (0, ws[0] * og, ws[0], *(0,) * k, ws[1], *ws[2:])], name=f"conv_{d.name}")
    return out


def _to_input_raw(gy: Tensor, w: Tensor, g: Geometry) -> Tensor:
    """The gradient of the image: columns of W^T g, added where their windows were."""
    n = gy.meta.shape[0]
    o, cg = w.meta.shape[:2]
    c = cg * g.groups
    shape = (n, c, *g.image)
    made = convolve("images", w, gy, g, shape)
    if made is not None:
        return made
    if _by_pixels(g, gy):
        with no_recording():
            return _image(mm(_pixels(gy), _pixels(w)), shape)
    if _is_narrow(gy.meta.dtype):
        if _by_planes(g, gy):
            with no_recording():
                return matmul(_pixels(w).t(), _planes(gy)).reshape(shape)
    k = len(g.kernel)
    borders = tuple(d * (s - 1) - p for p, d, s in zip(g.padding, g.dilation, g.kernel, strict=True))
    if g.groups == 1 and all(s == 1 for s in g.stride) and min(borders) >= 0 and o and not _is_plain(g):
        # stride 1: a plain convolution of g with the kernel turned round, unless some of the image is in no window (output_padding)
        turned = Geometry(g.stride, borders, g.dilation, g.groups, g.out, g.kernel, g.image)
        if all(size + b - p == i for size, b, p, i in zip(g.out, borders, g.padding, g.image, strict=True)):
            there = w.detach().flip(tuple(range(2, 2 + k))).transpose(0, 1)
            if not _is_narrow(gy.meta.dtype) or _narrow_columns(gy, there, turned):
                return _by_columns(empty(shape, gy.meta.dtype, gy.meta.device), gy, there, turned)
    if _is_narrow(gy.meta.dtype):
        return to_dtype(_to_input_raw(_wide(gy), _wide(w), g), gy.meta.dtype)
    d = gy.meta.dtype
    gy, w = contiguous(gy.detach()), contiguous(w.detach())
    rows, cols, og = cg * math.prod(g.kernel), math.prod(g.out), o // g.groups
    padded = zeros_meta(meta((n, c, *g.padded()), None, d, gy.meta.device))
    if gy.meta.numel and w.meta.numel:
        for j in range(g.groups):
            columns = empty((n, rows, cols), d, gy.meta.device)
            _product(columns, _raw(w, (n, rows, og), (0, 1, rows), j * og * rows), _raw(gy, (n, og, cols), (o * cols, cols, 1), j * og * cols))
            _scatter_columns(padded, columns, j * cg, cg, g)
    if not any(g.padding):
        return padded
    offset = 0
    for p, s in zip(g.padding, padded.meta.strides[2:], strict=True):
        offset += p * s
    return contiguous(_raw(padded, shape, padded.meta.strides, offset))


def _scatter_columns(padded: Tensor, columns: Tensor, first: int, cg: int, g: Geometry) -> None:
    """Adds columns (n, cg prod(kernel), prod(out)) to their places: one strided addition for each element of the kernel."""
    n = padded.meta.shape[0]
    ps = padded.meta.strides
    flat = layout.contiguous_strides((n, cg, *g.kernel, *g.out))
    k = len(g.kernel)
    for at in range(math.prod(g.kernel)):
        pos, rest = [], at
        for size in reversed(g.kernel):
            pos.append(rest % size)
            rest //= size
        pos.reverse()
        place, source = first * ps[1], 0
        for p, s, dil, f in zip(pos, ps[2:], g.dilation, flat[2:2 + k], strict=True):
            place += p * s * dil
            source += p * f
        target = _raw(padded, (n, cg, *g.out), (ps[0], ps[1], *[s * t for s, t in zip(ps[2:], g.stride, strict=True)]), place)
        target.add_(_raw(columns, (n, cg, *g.out), (flat[0], flat[1], *flat[2 + k:]), source))


def _to_weight_raw(gy: Tensor, x: Tensor, g: Geometry) -> Tensor:
    """The gradient of the kernel: g columns^T, summed over the images."""
    n, c = x.meta.shape[:2]
    o, cg = gy.meta.shape[1], c // g.groups
    og = o // g.groups
    rows, cols = cg * math.prod(g.kernel), math.prod(g.out)
    d = x.meta.dtype
    made = convolve("weights", x, gy, g, (o, cg, *g.kernel))
    if made is not None:
        return made
    if _by_pixels(g, x, gy):
        with no_recording():
            return mm(_pixels(gy).t(), _pixels(x)).reshape(o, cg, *g.kernel)
    if _is_narrow(d):
        return to_dtype(_to_weight_raw(_wide(gy), _wide(x), g), d)
    out = empty((o, cg, *g.kernel), d, x.meta.device)
    if not (gy.meta.numel and x.meta.numel and out.meta.numel):
        launch.fill(out, 0)
        return out
    gy = contiguous(gy.detach())
    launch.fill(out, 0)
    xp = _pad(x, g)
    view = _windows(xp, g)
    flat = _raw(out, (o, rows), (rows, 1))
    scratch = None
    for i in range(n):
        if _is_plain(g):
            columns = _raw(xp, (1, c, cols), (c * cols, cols, 1), i * c * cols)
        else:
            columns = scratch = _columns(view, i, 1, scratch, g)
        for j in range(g.groups):
            _product(_raw(flat, (og, rows), (rows, 1), j * og * rows), _raw(gy, (og, cols), (cols, 1), (i * o + j * og) * cols),
                     _raw(columns, (cols, rows), (1, cols), j * rows * cols), 1.0, 1.0)
    return out


# -------------------------------------------------------------------------------------------------- the three, on the tape
def _c(t: Tensor) -> Tensor:
    return t.conj_physical() if t.meta.dtype.is_complex else t


def _forward(x: Tensor, w: Tensor, g: Geometry, bias: Tensor | None = None) -> Tensor:
    made = _forward_raw(x, w, bias, g)
    return tape.record(made, _forward_back, (x, w) if bias is None else (x, w, bias), (x, x.store.version, w, w.store.version, g, made.meta),
                       "ConvolutionBackward0")


def _forward_back(node: Any, gy: Tensor) -> Any:
    x, vx, w, vw, g, made = node[tape.SAVED]
    gy = laid_by(gy, made)  # once for both
    saved_tensor(x, vx, node)
    saved_tensor(w, vw, node)
    ex, ew, *eb = node[tape.EDGES]
    made = (_to_input(gy, _c(w), g) if ex is not None else None, _to_weight(gy, _c(x), g) if ew is not None else None)
    return (*made, gy.sum((0, *range(2, 2 + len(g.kernel)))) if eb[0] is not None else None) if eb else made


def _to_input(gy: Tensor, w: Tensor, g: Geometry) -> Tensor:
    made = _to_input_raw(gy, w, g)
    return tape.record(made, _to_input_back, (gy, w), (gy, gy.store.version, w, w.store.version, g, made.meta), "ConvolutionBackward0")


def _to_input_back(node: Any, gx: Tensor) -> Any:
    gy, vg, w, vw, g, made = node[tape.SAVED]
    gx = laid_by(gx, made)
    saved_tensor(gy, vg, node)
    saved_tensor(w, vw, node)
    ey, ew = node[tape.EDGES]
    return _forward(gx, _c(w), g) if ey is not None else None, _to_weight(_c(gy), gx, g) if ew is not None else None


def _to_weight(gy: Tensor, x: Tensor, g: Geometry) -> Tensor:
    return tape.record(_to_weight_raw(gy, x, g), _to_weight_back, (gy, x), (gy, gy.store.version, x, x.store.version, g), "ConvolutionBackward0")


def _to_weight_back(node: Any, gw: Tensor) -> Any:
    gy, vg, x, vx, g = node[tape.SAVED]
    saved_tensor(gy, vg, node)
    saved_tensor(x, vx, node)
    ey, ex = node[tape.EDGES]
    return _forward(_c(x), gw, g) if ey is not None else None, _to_input(_c(gy), gw, g) if ex is not None else None


# ----------------------------------------------------------------------------------------------------------------- checks
def _many(name: str, value: Any, n: int) -> Sizes:
    if isinstance(value, int):
        return (value,) * n
    out = tuple(int(v) for v in value)
    if len(out) == 1:
        return out * n
    if len(out) != n:
        raise RuntimeError(f"expected {name} to be a single integer value or a list of {n} values to match the convolution dimensions, but "
                           f"got {name}={list(out)}")
    return out


def _checked(name: str, x: Tensor, w: Tensor, bias: Tensor | None, n: int, groups: int, transposed: bool) -> tuple[Tensor, bool]:
    """The input with a batch axis, and whether it had none.  Raises RuntimeError as PyTorch does."""
    for t in (w, *([bias] if bias is not None else [])):
        if t.meta.device is not x.meta.device:
            raise mismatch(name, [x, w, *([bias] if bias is not None else [])])
        if t.meta.dtype is not x.meta.dtype:
            what = "weight" if t is w else "bias"
            raise RuntimeError(f"Input type ({_type_name(x)}) and {what} type ({_type_name(t)}) should be the same: "
                               f"expected scalar type {title(x.meta.dtype)} but found {title(t.meta.dtype)}")
    if len(w.meta.shape) != n + 2:
        raise RuntimeError(f"weight should have at least three dimensions, but got {len(w.meta.shape)}" if len(w.meta.shape) < 3 else
                           f"Expected {n + 2}-dimensional weight for {name}, but got weight of size {list(w.meta.shape)}")
    single = len(x.meta.shape) == n + 1
    if not single and len(x.meta.shape) != n + 2:
        raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: {list(x.meta.shape)}")
    if single:
        x = x.unsqueeze(0)
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    channels = w.meta.shape[0] if transposed else w.meta.shape[1] * groups
    if x.meta.shape[1] != channels:
        raise RuntimeError(f"Given {'transposed=1' if transposed else f'groups={groups}'}, weight of size {list(w.meta.shape)}, expected input"
                           f"{list(x.meta.shape)} to have {channels} channels, but got {x.meta.shape[1]} channels instead")
    if not transposed and w.meta.shape[0] % groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size "
                           f"{list(w.meta.shape)} instead")
    outs = w.meta.shape[1] * groups if transposed else w.meta.shape[0]
    if bias is not None and tuple(bias.meta.shape) != (outs,):
        raise RuntimeError(f"Given {'transposed=1' if transposed else 'weight'} of size {list(w.meta.shape)}, expected bias to be 1-dimensional "
                           f"with {outs} elements, but got bias of size {list(bias.meta.shape)} instead")
    return x, single


def _positive(stride: Sizes, dilation: Sizes, padding: Sizes) -> None:
    if any(s <= 0 for s in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(d <= 0 for d in dilation):
        raise RuntimeError("dilation should be greater than zero")
    if any(p < 0 for p in padding):
        raise RuntimeError("negative padding is not supported")


def _convolve(name: str, n: int, x: Tensor, w: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    x, single = _checked(name, x, w, bias, n, groups, False)
    made = _convolved(x, n, w, bias, stride, padding, dilation, groups)
    return made.squeeze(0) if single else made


def _convolved(x: Tensor, n: int, w: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    stride, dilation = _many("stride", stride, n), _many("dilation", dilation, n)
    kernel = tuple(w.meta.shape[2:])
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise RuntimeError(f"Invalid padding string: '{padding}'")
        if padding == "same" and any(s != 1 for s in stride):
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, kernel, strict=True)]
        if any(t % 2 for t in total):  # the odd one goes to the far side
            warn_once("Using padding='same' with even kernel lengths and odd dilation may require a zero-padded copy of the input be created")
            x = _padded_far(x, [t % 2 for t in total])
        padding = tuple(t // 2 for t in total)
    padding = _many("padding", padding, n)
    _positive(stride, dilation, padding)
    image = tuple(x.meta.shape[2:])
    out = tuple((i + 2 * p - d * (k - 1) - 1) // s + 1 for i, p, d, k, s in zip(image, padding, dilation, kernel, stride, strict=True))
    if any(i + 2 * p < d * (k - 1) + 1 for i, p, d, k in zip(image, padding, dilation, kernel, strict=True)):
        raise RuntimeError(f"Calculated padded input size per channel: ({' x '.join(str(i + 2 * p) for i, p in zip(image, padding, strict=True))}). "
                           f"Kernel size: ({' x '.join(str(d * (k - 1) + 1) for d, k in zip(dilation, kernel, strict=True))}). Kernel size can't be "
                           "greater than actual input size")
    return _forward(x, w, Geometry(stride, padding, dilation, groups, image, kernel, out), bias)


def _padded_far(x: Tensor, far: list[int]) -> Tensor:
    from .concat import cat
    for i, f in enumerate(far):
        if f:
            shape = list(x.meta.shape)
            shape[2 + i] = f
            x = cat([x, x.new_zeros(shape)], 2 + i)
    return x


def _transposed(name: str, n: int, x: Tensor, w: Tensor, bias: Tensor | None, stride: Any, padding: Any, output_padding: Any, groups: int,
                dilation: Any) -> Tensor:
    x, single = _checked(name, x, w, bias, n, groups, True)
    made = _transposed_of(x, n, w, bias, stride, padding, output_padding, groups, dilation)
    return made.squeeze(0) if single else made


def _transposed_of(x: Tensor, n: int, w: Tensor, bias: Tensor | None, stride: Any, padding: Any, output_padding: Any, groups: int,
                   dilation: Any) -> Tensor:
    stride, padding, dilation = _many("stride", stride, n), _many("padding", padding, n), _many("dilation", dilation, n)
    extra = _many("output_padding", output_padding, n)
    _positive(stride, dilation, padding)
    for e, s, d in zip(extra, stride, dilation, strict=True):
        if e >= s and e >= d:
            raise RuntimeError(f"output padding must be smaller than either stride or dilation, but got output_padding: {list(extra)} stride: "
                               f"{list(stride)} dilation: {list(dilation)}")
    kernel = tuple(w.meta.shape[2:])
    image = tuple((i - 1) * s - 2 * p + d * (k - 1) + e + 1
                  for i, s, p, d, k, e in zip(x.meta.shape[2:], stride, padding, dilation, kernel, extra, strict=True))
    if any(i <= 0 for i in image):
        raise RuntimeError(f"Given input size per channel: ({' x '.join(map(str, x.meta.shape[2:]))}). Calculated output size per channel: "
                           f"({' x '.join(map(str, image))}). Output size is too small")
    g = Geometry(stride, padding, dilation, groups, image, kernel, tuple(x.meta.shape[2:]))
    if bias is not None and _is_narrow(x.meta.dtype) and not served("images", w, x, g, (x.meta.shape[0], w.meta.shape[1] * groups, *image)):
        # sums of 16-bit products, the bias among them, stay in float32 until the result is rounded
        wide = _to_input(to_dtype(x, float32), to_dtype(w, float32), g)
        return to_dtype(wide.add_(to_dtype(bias, float32).reshape((-1,) + (1,) * n)), x.meta.dtype)
    y = _to_input(x, w, g)
    if bias is not None:
        # the fresh result takes the bias in its own memory; both keep their gradients
        y = y.add_(bias.reshape((-1,) + (1,) * n))
    return y


def _define(n: int) -> None:
    plain, turned = f"conv{n}d", f"conv_transpose{n}d"

    def conv(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,  # noqa: A002
             groups: int = 1) -> Tensor:
        return _convolve(plain, n, input, weight, bias, stride, padding, dilation, groups)

    def transposed(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,  # noqa: A002
                   output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Tensor:
        return _transposed(turned, n, input, weight, bias, stride, padding, output_padding, groups, dilation)
    conv.__name__ = conv.__qualname__ = plain
    transposed.__name__ = transposed.__qualname__ = turned
    shape = "(N, C, " + ", ".join("DHW"[3 - n:]) + ")"
    conv.__doc__ = f"The cross-correlation of input {shape} with weight (out, C / groups, kernel...), over {n} axes; padding may be \"same\"."
    transposed.__doc__ = f"The gradient of conv{n}d with respect to its input, as an operation: weight (C, out / groups, kernel...)."
    op(method=False, spaces=("torch", "nn.functional"))(conv)
    op(method=False, spaces=("torch", "nn.functional"))(transposed)


for _n in (1, 2, 3):
    _define(_n)

has("conv1d", own_view=True)
has("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", autocast="lower", tangent="product and bias")
for _n in (1, 2, 3):
    has(f"conv{_n}d conv_transpose{_n}d", batch=f"convolution {_n}d")

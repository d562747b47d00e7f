"""Functions that move elements and compute little: padding, shuffles, sliding blocks, one-hot codes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..._core import dtypes, ops
from ..._core.autograd import tape
from ..._core.autograd.function import Function
from ..._core.engine.fields import has
from ..._core.kernels import expr as E
from ..._core.kernels.programs import Map
from ..._core.layout import channels_last_strides, image_strides, wants_channels_last
from ..._core.ops import launch, memory_format
from ..._core.ops.checks import of_kinds, within
from ..._core.ops.copies import as_images, cast_program, laid_as
from ..._core.ops.windows import added_up
from ..._core.runtime import caches
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor, meta, new
from ..parameter import Parameter
from ..sizes import ntuple

_ANY = (1 << 63) - 1  # above any position


def _narrowed(t: Any, starts: list[int], sizes: list[int]) -> Any:
    for d, (start, size) in enumerate(zip(starts, sizes)):
        if start != 0 or size != t.shape[d]:
            t = t.narrow(d, start, size)
    return t


class _ConstantPad(Function):
    """Puts the input into a larger tensor of one value; `before`, `after` are per dimension and not negative."""

    @staticmethod
    def forward(ctx: Any, input: Any, before: list[int], after: list[int], value: float) -> Any:
        ctx.before, ctx.sizes = before, list(input.shape)
        shape = [b + s + a for b, s, a in zip(before, input.shape, after)]
        out = input.new_empty_strided(shape, image_strides(shape, input.shape, input.stride())).fill_(value)
        _narrowed(out, before, ctx.sizes).copy_(input)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _narrowed(grad, ctx.before, ctx.sizes), None, None, None


_plans: dict[Any, Any] = caches.cache(globals(), "_plans")  # of a layout, amounts and a value: what a constant border takes on the CPU


def _pad_back(node: Any, grad: Any) -> Any:
    before, sizes = node[tape.SAVED]
    return (_narrowed(grad, before, sizes),)


_LARGE = {"f": 65504, "i": 127}  # what every type of the kind has


def _by_plan(plan: Any, input: Any) -> Any:  # noqa: A002
    made, fill, number, copy, offset, saved = plan
    t = new(made)
    fill(t.ptr, number)
    copy(t.ptr + offset, input.ptr)
    return t if input.node is None else tape.record(t, _pad_back, (input,), saved, "ConstantPadNdBackward0")


def _plan(m: Any, before: list[int], after: list[int], value: Any) -> Any:
    """What puts a tensor laid out as m into a border of `value`; None where that is left to the general way."""
    d = m.dtype
    if m.device.type != "cpu" or not m.numel or d.kind not in "fi" or type(value) not in ((float, int) if d.kind == "f" else (int,)):
        return None
    if abs(value) > _LARGE[d.kind] and not (d.kind == "f" and (value != value or math.isinf(value))):  # whether it fits is asked there
        return None
    shape = [b + s + a for b, s, a in zip(before, m.shape, after)]
    made = meta(shape, image_strides(shape, m.shape, m.strides), d, m.device)
    fill, none = launch.plan(m.device, Map((E.scalar(0, d),), (), (d,)), tuple(made.shape), [made.strides], [made.nbytes], "fill")
    offset = sum(b * s for b, s in zip(before, made.strides)) * d.itemsize
    copy, nothing = launch.plan(m.device, cast_program(d, d), tuple(m.shape), [made.strides, m.strides], [made.nbytes - offset, m.nbytes], "copy")
    if none is not None or nothing is not None:
        return None
    return made, fill, float(value) if d.kind == "f" else value, copy, offset, (before, list(m.shape))


def _source_indices(mode: str, size: int, before: int, after: int) -> np.ndarray[Any, Any]:
    """Where each place along one padded dimension takes its value from."""
    places = np.arange(-before, size + after)
    if mode == "replicate":
        return places.clip(0, size - 1)
    if mode == "circular":
        return places % size
    period = max(2 * (size - 1), 1)
    places = np.abs(places) % period
    return np.where(places >= size, period - places, places)


def _borders(mode: str, size: int, before: int, after: int) -> list[tuple[int, int, int, int]]:
    """The two borders of a padded dimension: where each begins and how long it is, where what it repeats begins, and by which steps that goes."""
    end = before + size
    first = {"reflect": (2 * before, -1), "replicate": (before, 0), "circular": (size, 1)}[mode]
    second = {"reflect": (end - 2, -1), "replicate": (end - 1, 0), "circular": (before, 1)}[mode]
    return [(at, n, *source) for at, n, source in ((0, before, first), (end, after, second)) if n]


def _copies(m: Any, mode: str, before: list[int], after: list[int], last: bool) -> Any:
    """What surrounds a tensor laid out as m with its own elements, as copies of slices: the tensor itself, then the borders of one dimension after
    the other, which repeat what lies in the result by then.  None where that is left to the general way."""
    d = m.dtype
    if m.device.type != "cpu" or not m.numel:
        return None
    shape = [b + s + a for b, s, a in zip(before, m.shape, after)]
    made = meta(shape, channels_last_strides(shape) if last else None, d, m.device)
    step = made.strides
    offset = sum(b * s for b, s in zip(before, step))
    # how much is copied, the strides of both sides, where it goes to and where in the result it comes from
    moves: list[Any] = [(list(m.shape), step, m.strides, offset, None)]
    done = list(m.shape)
    for axis in reversed(range(len(shape))):
        offset -= before[axis] * step[axis]
        for at, n, source, by in _borders(mode, m.shape[axis], before[axis], after[axis]):
            there = [*step[:axis], by * step[axis], *step[axis + 1:]]
            moves.append(([*done[:axis], n, *done[axis + 1:]], step, there, offset + at * step[axis], offset + source * step[axis]))
        done[axis] = shape[axis]
    program, calls = cast_program(d, d), []
    for domain, to, come, put, taken in moves:
        rooms = [(at * d.itemsize, made.nbytes - at * d.itemsize) for at in (put, taken or 0)]
        if taken is None:
            rooms[1] = 0, m.nbytes
        call, workspace = launch.plan(m.device, program, tuple(domain), [tuple(to), tuple(come)], rooms, "pad")
        if workspace is not None:
            return None
        calls.append((call, put * d.itemsize, None if taken is None else taken * d.itemsize))
    k = sum(1 for b, a in zip(before, after) if b or a)
    name = f"{'Reflection' if mode == 'reflect' else 'Replication'}Pad{k}DBackward0" if mode != "circular" else "CircularPadBackward0"
    return made, calls, (mode, before, after, list(m.shape), last), name


def _by_copies(plan: Any, input: Any) -> Any:  # noqa: A002
    made, calls, saved, name = plan
    t = new(made)
    at = t.ptr
    for call, put, taken in calls:
        call(at + put, input.ptr if taken is None else at + taken)
    return t if input.node is None else tape.record(t, _borders_back, (input,), saved, name)


@tape.keeps_nothing
def _borders_back(node: Any, grad: Any) -> Any:
    """Each border's gradient added to what it repeated, the dimension that was padded last first."""
    mode, before, after, shape, last = node[tape.SAVED]
    for axis, (b, size, a) in enumerate(zip(before, shape, after)):
        if not b and not a:
            continue
        middle = grad.narrow(axis, b, size).clone(memory_format=memory_format.channels_last if last else memory_format.contiguous_format)
        for at, n, source, by in _borders(mode, size, b, a):
            border = grad.narrow(axis, at, n)
            if by < 0:
                border, source = border.flip(axis), source - n + 1
            elif by == 0:
                border, n = border.sum(axis, True), 1
            middle.narrow(axis, source - b, n).add_(border)
        grad = middle
    return (grad,)


def pad(input: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    """Pads `input`: `pad` is (before, after) of the last dimension, then of the one before it, and so on.

    Modes: "constant" (any dimensions; negative amounts crop), and for the last one to three dimensions of (C, ...) or
    (N, C, ...) "reflect" (amounts below the size), "replicate" and "circular" (amounts at most the size). Raises
    RuntimeError for amounts that do not fit, NotImplementedError for another mode.
    """
    amounts = [int(p) for p in pad]
    key = None
    if type(input) in (Tensor, Parameter):
        key = input.meta, tuple(amounts), None if value is None else repr(value), mode
        plan = _plans.get(key)
        if plan is not None:
            return _by_plan(plan, input) if mode == "constant" else _by_copies(plan, input)
    if len(amounts) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2, got {len(amounts)}")
    if len(amounts) // 2 > input.dim():
        raise RuntimeError(f"Padding length should be less than or equal to two times the input dimension but got "
                           f"padding length {len(amounts)} and input of dimension {input.dim()}")
    n = input.dim()
    before, after = [0] * n, [0] * n
    for i in range(len(amounts) // 2):
        before[n - 1 - i], after[n - 1 - i] = amounts[2 * i], amounts[2 * i + 1]
    if mode == "constant":
        starts = [max(-b, 0) for b in before]
        sizes = [s - max(-b, 0) - max(-a, 0) for s, b, a in zip(input.shape, before, after)]
        if any(s < 0 for s in sizes):
            raise RuntimeError(f"The input size {list(input.shape)}, plus negative padding {amounts} resulted in a "
                               "negative output size, which is invalid.")
        cropped = _narrowed(input, starts, sizes)
        before, after = [max(b, 0) for b in before], [max(a, 0) for a in after]
        if not any(before) and not any(after):
            return cropped.clone()
        value = 0 if value is None else value
        since, plan = caches.epoch, _plan(input.meta, before, after, value) if key is not None and cropped is input else None
        if plan is None:
            return _ConstantPad.apply(cropped, before, after, value)
        caches.keep_since(since, _plans, key, plan)
        return _by_plan(plan, input)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    spatial = len(amounts) // 2
    if spatial > 3 or n not in (spatial + 1, spatial + 2):
        raise NotImplementedError(f"Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now: got "
                                  f"{len(amounts)} amounts for a {n}-D input")
    if mode != "circular" and 0 in input.shape[n - spatial - 1:]:
        raise RuntimeError(f"Expected {spatial + 1}D or {spatial + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, "
                           f"but got: {list(input.shape)}")
    if mode != "circular" and input.dtype is dtypes.bool_:
        raise NotImplementedError(f"\"{'reflection' if mode == 'reflect' else 'replication'}_pad{spatial}d\" not implemented for 'Bool'")
    last = n == spatial + 2 and _channels_last(input)
    for d in range(n - spatial, n):
        b, a, size = before[d], after[d], input.shape[d]
        if b == 0 and a == 0:
            continue
        if mode == "reflect" and (b >= size or a >= size):
            raise RuntimeError(f"Argument #4: Padding size should be less than the corresponding input dimension, but "
                               f"got: padding ({b}, {a}) at dimension {d} of input {list(input.shape)}")
        if mode == "circular" and (b > size or a > size):
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if size == 0:
            raise RuntimeError(f"Expected dimension {d} of the input to be non-empty for padding mode {mode}, got "
                               f"{list(input.shape)}")
        if mode == "circular" and min(b, a) < 0 and max(-b, 0) >= size - max(-a, 0):
            raise RuntimeError("Negative padding value is resulting in an empty dimension.")
    if key is not None and min(amounts) >= 0:
        since, copied = caches.epoch, _copies(input.meta, mode, before, after, last)
        if copied is not None:
            caches.keep_since(since, _plans, key, copied)
            return _by_copies(copied, input)
    out = image = input.movedim(1, -1) if last else input
    for d in range(n - spatial, n):
        b, a, size = before[d], after[d], input.shape[d]
        if b == 0 and a == 0:
            continue
        start, stop = max(-b, 0), size - max(-a, 0)
        if mode == "circular" and min(b, a) < 0:
            out, size, b, a = out.narrow(d - last, start, stop - start), stop - start, max(b, 0), max(a, 0)  # what is left is what comes round
        where = _source_indices(mode, size, b, a) if min(b, a) >= 0 else _source_indices(
            mode, size, max(b, 0), max(a, 0))[start:len(range(-max(b, 0), size + max(a, 0))) - max(-a, 0)]
        out = out.index_select(d - last, unasked(ops.from_numpy(np.ascontiguousarray(where)).to)(input.device))
    if out is image:
        return input.clone()
    return out.movedim(-1, 1) if last else out


def one_hot(input: Any, num_classes: int = -1) -> Any:  # noqa: A002
    """int64 codes of shape (*, num_classes): 1 at each index, 0 elsewhere. -1 classes: one more than the largest
    index."""
    if input.dtype is not dtypes.int64:
        raise RuntimeError(f"one_hot is only applicable to index tensor of type LongTensor, got {input.dtype}")
    if input.numel() == 0:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return ops.zeros((*input.shape, num_classes), dtype=dtypes.int64, device=input.device)
    if input.is_meta and num_classes > 0:
        return ops.empty((*input.shape, num_classes), dtype=dtypes.int64, device=input.device)
    if num_classes != -1 and num_classes < 1 and input.is_cuda:  # where the values are not at hand, as in PyTorch
        raise RuntimeError("num_classes should be positive")
    within(input, 0, _ANY, "Class values must be non-negative.", "class check")
    if num_classes == -1:
        num_classes = int(input.max()) + 1
    else:
        within(input, 0, num_classes, "Class values must be smaller than num_classes.", "class check")
    return (input.unsqueeze(-1) == ops.arange(num_classes, device=input.device)).to(dtypes.int64)


def _channels_last(images: Any) -> bool:
    """Whether what is done to the images is done with their channels behind: they lie so."""
    return images.dim() == 4 and wants_channels_last(images.shape, images.stride())


def pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    """(..., C r², H, W) to (..., C, H r, W r)."""
    if input.dim() < 3:
        raise RuntimeError(f"pixel_shuffle expects input to have at least 3 dimensions, but got input with "
                           f"{input.dim()} dimension(s)")
    r = upscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *lead, c, h, w = input.shape
    if c % (r * r):
        raise RuntimeError(f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                           f"upscale_factor, but input.size(-3)={c} is not divisible by {r * r}")
    n, fewer = len(lead), c // (r * r)
    # row by row whatever the layout: copies along axes as short as r take longer than the two more here
    blocks = as_images(input).reshape(*lead, fewer, r, r, h, w)
    return laid_as(blocks.permute(*range(n + 1), n + 3, n + 1, n + 4, n + 2).reshape(*lead, fewer, h * r, w * r), input)


def pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    """(..., C, H r, W r) to (..., C r², H, W)."""
    if input.dim() < 3:
        raise RuntimeError(f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with "
                           f"{input.dim()} dimension(s)")
    r = downscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *lead, c, h, w = input.shape
    for name, size, axis in (("height", h, -2), ("width", w, -1)):
        if size % r:
            raise RuntimeError(f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but "
                               f"input.size({axis})={size} is not divisible by {r}")
    n, more = len(lead), c * r * r
    blocks = as_images(input).reshape(*lead, c, h // r, r, w // r, r)
    return laid_as(blocks.permute(*range(n + 1), n + 2, n + 4, n + 1, n + 3).reshape(*lead, more, h // r, w // r), input)


def channel_shuffle(input: Any, groups: int) -> Any:
    """Deals the channels of (N, C, ...) out among `groups`."""
    if input.dim() < 3:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    n, c, *rest = input.shape
    if c % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups.")
    if _channels_last(input):
        return input.movedim(1, -1).reshape(n, *rest, groups, c // groups).transpose(-1, -2).reshape(n, *rest, c).movedim(-1, 1)
    return input.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(n, c, *rest)


def native_channel_shuffle(input: Any, groups: int) -> Any:
    """`channel_shuffle`, by the name of PyTorch's kernel."""
    return channel_shuffle(input, groups)


# -- sliding blocks
# ------------------------------------------------------------------------------------------------------


def _blocks(size: tuple[int, ...], kernel: tuple[int, ...], dilation: tuple[int, ...], padding: tuple[int, ...],
            stride: tuple[int, ...]) -> list[int]:
    for name, short, least, wrong in (("kernel size", "kernel", 1, kernel), ("dilation", "dilation", 1, dilation), ("padding", "pad", 0, padding),
                                      ("stride", "stride", 1, stride)):
        if min(wrong) < least:
            raise RuntimeError(f"{name} should be {'greater than zero' if least else 'non-negative'}, but got {short}_height: {wrong[0]} "
                               f"{short}_width: {wrong[1]}")
    return [(s + 2 * p - d * (k - 1) - 1) // st + 1 for s, k, d, p, st in zip(size, kernel, dilation, padding, stride)]


def _unfold(x: Any, geometry: Any) -> Any:
    kernel, dilation, padding, stride = geometry
    n, c, *size = x.shape
    counts = _blocks(tuple(size), kernel, dilation, padding, stride)
    if any(padding):
        x = _ConstantPad.forward(_Scratch(), x, [0, 0, *padding], [0, 0, *padding], 0)
    x = x.contiguous()
    sn, sc, sh, sw = x.stride()
    windows = x.as_strided((n, c, *kernel, *counts),
                           (sn, sc, sh * dilation[0], sw * dilation[1], sh * stride[0], sw * stride[1]))
    return windows.reshape(n, c * math.prod(kernel), math.prod(counts))


class _Scratch:
    """Stands for a tape context where nothing is to be kept."""

    before: Any
    sizes: Any


def _fold(cols: Any, size: tuple[int, ...], geometry: Any) -> Any:
    kernel, dilation, padding, stride = geometry
    counts = _blocks(size, kernel, dilation, padding, stride)
    n = cols.shape[0]
    c = cols.shape[1] // math.prod(kernel)
    cols = cols.reshape(n, c, *kernel, *counts)
    out = added_up(cols.permute(0, 1, 4, 5, 2, 3), 2, [s + 2 * p for s, p in zip(size, padding)], stride, dilation)
    return _narrowed(out, [0, 0, *padding], [n, c, *size])


class _Unfold(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, geometry: Any) -> Any:
        ctx.size, ctx.geometry = tuple(x.shape[2:]), geometry
        return _unfold(x, geometry)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _Fold.apply(grad, ctx.size, ctx.geometry), None


class _Fold(Function):
    @staticmethod
    def forward(ctx: Any, cols: Any, size: tuple[int, ...], geometry: Any) -> Any:
        ctx.geometry = geometry
        return _fold(cols, size, geometry).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _Unfold.apply(grad, ctx.geometry), None, None


def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Sliding blocks of (N, C, H, W) or (C, H, W) as columns: (N, C kh kw, L), L blocks in row order."""
    of_kinds("im2col", input, "bfc")
    if input.dim() not in (3, 4) or 0 in input.shape[-3:]:
        raise RuntimeError(f"Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
                           f"dimensions for input, but got: {list(input.shape)}")
    geometry = tuple(ntuple(v, 2) for v in (kernel_size, dilation, padding, stride))
    x = input if input.dim() == 4 else input.unsqueeze(0)
    counts = _blocks(tuple(x.shape[2:]), *geometry)
    if min(counts) < 1:
        raise RuntimeError(f"Given input with spatial size {tuple(x.shape[2:])}, kernel_size={geometry[0]}, "
                           f"dilation={geometry[1]}, padding={geometry[2]}, stride={geometry[3]}, calculated shape of "
                           f"the array of sliding blocks as {tuple(counts)}, but its components must be at least one.")
    out = _Unfold.apply(x, geometry)
    return out if input.dim() == 4 else out.squeeze(0)


def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Adds columns (N, C kh kw, L) or (C kh kw, L) up into (N, C, *output_size): the transpose of `unfold`."""
    of_kinds("col2im", input, "bfc")
    if input.dim() not in (2, 3):
        raise RuntimeError(f"Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero "
                           f"dimensions for input, but got: {list(input.shape)}")
    geometry = tuple(ntuple(v, 2) for v in (kernel_size, dilation, padding, stride))
    size = tuple(ntuple(output_size, 2))
    cols = input if input.dim() == 3 else input.unsqueeze(0)
    block = math.prod(geometry[0])
    counts = _blocks(size, *geometry)
    if cols.shape[1] % block:
        raise RuntimeError(f"Expected size of input's dimension 1 to be divisible by the product of kernel_size, but "
                           f"got input.size(1)={cols.shape[1]} and kernel_size={geometry[0]}.")
    if min(counts) < 1:
        raise RuntimeError(f"Given output_size={size}, kernel_size={geometry[0]}, dilation={geometry[1]}, padding={geometry[2]}, stride={geometry[3]}, "
                           f"calculated shape of the array of sliding blocks as {tuple(counts)}, which is too small (non-positive)")
    if math.prod(counts) != cols.shape[2]:
        raise RuntimeError(f"Given output_size={size}, kernel_size={geometry[0]}, dilation={geometry[1]}, "
                           f"padding={geometry[2]}, stride={geometry[3]}, expected size of input's dimension 2 to "
                           f"match the calculated number of sliding blocks {' * '.join(map(str, counts))} = "
                           f"{math.prod(counts)}, but got input.size(2)={cols.shape[2]}.")
    out = _Fold.apply(cols, size, geometry)
    return out if input.dim() == 3 else out.squeeze(0)


def max_unpool(input: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any,
               dims: int) -> Any:
    """What `max_unpool1d` to `max_unpool3d` are."""
    kernel = ntuple(kernel_size, dims)
    steps = kernel if stride is None else ntuple(stride, dims)
    pads = ntuple(padding, dims)
    for name, sizes in (("kernel_size", kernel), ("stride", steps), ("padding", pads)):
        if len(sizes) != dims:
            raise RuntimeError(f"max_unpool{dims}d(): {name} must be a number or {dims} of them, but got {list(sizes)}")
    spatial = input.shape[-dims:]
    default = [(s - 1) * st + k - 2 * p for s, st, k, p in zip(spatial, steps, kernel, pads)]
    if output_size is None:
        size = default
    else:
        size = list(output_size)
        if len(size) > dims:
            size = size[-dims:]
        if len(size) != dims:
            raise ValueError(f"output_size should be a sequence containing {dims} or {dims + 2} elements, but it has a "
                             f"length of '{len(size)}'")
        for d in range(dims):
            if not default[d] - steps[d] < size[d] < default[d] + steps[d]:
                raise ValueError(f"invalid output_size {size} (dim {d} must be between {default[d] - steps[d]} and "
                                 f"{default[d] + steps[d]})")
    if input.shape != indices.shape:
        raise RuntimeError(f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) "
                           f"but got indices tensor with shape: {list(indices.shape)}")
    if indices.dtype is not dtypes.int64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype}")
    lead = tuple(input.shape[:-dims])
    total = math.prod(size)
    flat = indices.reshape(*lead, math.prod(spatial))
    within(flat, 0, total, f"Found an invalid max index: {{}} (output volumes are of size {'x'.join(map(str, size))})", "max index check")
    zero = ops.zeros((*lead, total), dtype=input.dtype, device=input.device)
    made = zero.scatter(-1, flat, input.reshape(flat.shape)).reshape(*lead, *size)
    return laid_as(made, input) if dims == 2 else made


def max_unpool1d(input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                 output_size: Any = None) -> Any:
    """Puts the values of `max_pool1d` back at `indices`, zeros elsewhere."""
    return max_unpool(input, indices, kernel_size, stride, padding, output_size, 1)


def max_unpool2d(input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                 output_size: Any = None) -> Any:
    """Puts the values of `max_pool2d` back at `indices`, zeros elsewhere."""
    return max_unpool(input, indices, kernel_size, stride, padding, output_size, 2)


def max_unpool3d(input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                 output_size: Any = None) -> Any:
    """Puts the values of `max_pool3d` back at `indices`, zeros elsewhere."""
    return max_unpool(input, indices, kernel_size, stride, padding, output_size, 3)

has("max_unpool2d max_unpool3d", autocast="cpu full")
has("pixel_shuffle pixel_unshuffle", batch="trailing")
has("nn.functional.unfold fold channel_shuffle", batch="batches of images")
has("pad", batch="pad")
has("one_hot", batch="one hot")
has("pad", sparse="composite")

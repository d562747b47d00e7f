"""Convolutions by a GPU's own library, for `convolution`: which launch, which layout, and room for its work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtypes import uint8
from ..errors import OutOfMemoryError
from ..layout import channels_last_strides, is_channels_last, numel
from ..runtime import door, switches
from ..tensor import Tensor, empty, on_forget
from .copies import contiguous
from .memory_format import channels_last, channels_last_3d

if TYPE_CHECKING:
    from .convolution import Geometry

    Sizes = tuple[int, ...]

_launches: dict[Any, Any] = {}


def _forget() -> None:
    _launches.clear()


on_forget(_forget)
door.on_change(_forget)


def narrow(x: Tensor) -> bool:
    """Whether 16-bit images of this device are convolved as they are, sums in float32."""
    return x.meta.device.type != "cpu" and not door.by_host(x.meta.device)


def convolve(kind: str, a: Tensor, b: Tensor, g: Geometry, shape: Sizes, bias: Tensor | None = None) -> Tensor | None:
    """A result of this shape, outside the tape; None where the device has no library that does it.

    kind: "forward" (of images a and weights b), "images" (the gradient of images, of weights a and gradients b) or "weights"
    (of images a and gradients b).  It lies channels last where an operand does, else row by row.
    """
    if a.meta.device.type == "cpu" or door.by_host(a.meta.device) or a.meta.dtype.kind != "f" or not switches.values["cudnn.enabled"]:
        return None
    if not (a.meta.numel and b.meta.numel and numel(shape)) or not _even(g):
        return None
    formats = (True, False) if len(shape) > 3 and any(is_channels_last(t.meta.shape, t.meta.strides) and not t.meta.contiguous for t in (a, b)) else (False,)
    for last in formats:
        found = _with_room(kind, a, b, g, shape, bias, last)
        if found is not None:
            return found
    return None


def _even(g: Geometry) -> bool:
    """Whether the sizes of both sides are those of a plain convolution: a transposed one may ask for a longer border."""
    return all((i + 2 * p - d * (k - 1) - 1) // s + 1 == o
               for i, p, d, k, s, o in zip(g.image, g.padding, g.dilation, g.kernel, g.stride, g.out, strict=True))


def _with_room(kind: str, a: Tensor, b: Tensor, g: Geometry, shape: Sizes, bias: Tensor | None, last: bool) -> Tensor | None:
    """With as much workspace as the library likes, else with less."""
    d, dev = a.meta.dtype, a.meta.device
    a, b = _placed(a, last), _placed(b, last)
    out = empty(shape, d, dev, tuple(channels_last_strides(shape)) if last else None)
    room: int | None = None
    while True:
        key = (kind, a.meta, b.meta, out.meta, bias is not None, g.stride, g.padding, g.dilation, g.groups, room)
        if key in _launches:
            found = _launches[key]
        else:
            found = _launches[key] = _prepare(kind, a, b, out, g, bias is not None, room)
        if found is None:
            return None
        call, prepared = found
        try:
            space = empty((prepared.workspace,), uint8, dev)
        except OutOfMemoryError:
            room = 0 if prepared.workspace < 1 << 20 else prepared.workspace // 2
            continue
        try:
            if bias is None:
                call(out.ptr, a.ptr, b.ptr, space.ptr)
            else:
                call(out.ptr, a.ptr, b.ptr, contiguous(bias.detach()).ptr, space.ptr)
        except NotImplementedError:  # it said so only now: it needs other room, or has nothing
            if prepared.workspace == space.meta.numel:
                _launches[key] = None
                return None
            continue
        return out


def _placed(t: Tensor, last: bool) -> Tensor:
    if not last:
        return contiguous(t.detach())
    return contiguous(t.detach(), memory_format=channels_last if len(t.meta.shape) == 4 else channels_last_3d)


def _prepare(kind: str, a: Tensor, b: Tensor, out: Tensor, g: Geometry, bias: bool, room: int | None) -> Any:
    x, w, y = {"forward": (a, b, out), "images": (out, a, b), "weights": (a, out, b)}[kind]
    values = switches.values
    how = (bool(values["cudnn.benchmark"]), bool(values["cudnn.deterministic"] or values["deterministic"]), bool(values["cudnn.allow_tf32"]))
    operands = [(tuple(t.meta.shape), tuple(t.meta.strides)) for t in (x, w, y)]
    prepared = door.routine(out.meta.device, "convolution", kind, out.meta.dtype, *operands, (g.padding, g.stride, g.dilation), g.groups, bias, room, how)
    return None if prepared is None else (door.bind(out.meta.device, prepared), prepared)

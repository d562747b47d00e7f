"""Convolutions by the device's backend, for `convolution`: which launch, which layout, and room for its work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtypes import uint8
from ..errors import OutOfMemoryError
from ..kernels.specs import Convolution
from ..layout import channels_last_strides, contiguous_strides, is_channels_last, numel
from ..runtime import backend_flags, caches, dispatch
from ..tensor import Meta, Tensor, meta, new
from .copies import contiguous
from .memory_format import channels_last, channels_last_3d

if TYPE_CHECKING:
    from ..kernels.programs import PreparedLaunch
    from .convolution import Geometry

    Sizes = tuple[int, ...]

_plans: dict[Any, _Plan | None] = caches.cache(globals(), "_plans")
_FARTHEST = 1 << 31  # kernels and libraries count positions along an axis in 32 bits
_VECTOR = 64
_ALL = 1 << 10  # algorithms: more than a library has
_GIVEN, _ROWS, _LAST = "as given", "row by row", "channels last"


class _Plan:
    """A launch, how its operands must lie, and the layouts of its result and workspace."""

    __slots__ = ("call", "prepared", "layout", "out", "space")

    def __init__(self, prepared: PreparedLaunch, layout: str, out: Meta) -> None:
        self.call, self.prepared, self.layout, self.out = dispatch.bind(out.device, prepared), prepared, layout, out
        self.space = meta((prepared.workspace,), None, uint8, out.device)


def convolve(kind: str, a: Tensor, b: Tensor, g: Geometry, shape: Sizes, bias: Tensor | None = None) -> Tensor | None:
    """A result of this shape, outside the tape; None where the device's backend has no launch that makes it.

    kind: "forward" (of images a and weights b), "images" (the gradient of images, of weights a and gradients b) or "weights"
    (of images a and gradients b).  It lies channels last where the backend reads operands that do, else row by row.
    """
    if not (a.meta.numel and b.meta.numel and numel(shape)):
        return None
    key = (kind, a.meta, b.meta, shape, bias is not None, g.stride, g.padding, g.dilation, g.groups)
    room: int | None = None  # as much workspace as the backend likes, else less
    while True:
        since, plan = caches.epoch, _planned(key, kind, a, b, g, shape, room)
        if plan is None:
            return None
        try:
            return _run(plan, a, b, bias)
        except OutOfMemoryError:
            room = 0 if plan.prepared.workspace < 1 << 20 else plan.prepared.workspace // 2
        except NotImplementedError:  # it said so only now: it needs other room, or has nothing
            if plan.prepared.workspace == plan.space.numel:
                caches.keep_since(since, _plans, (key, room), None)
                return None


def served(kind: str, a: Tensor, b: Tensor, g: Geometry, shape: Sizes) -> bool:
    """Whether the device's backend has a launch for these operands as they are."""
    if not (a.meta.numel and b.meta.numel and numel(shape)):
        return False
    key = (kind, a.meta, b.meta, shape, False, g.stride, g.padding, g.dilation, g.groups)
    return _planned(key, kind, a, b, g, shape, None) is not None


def _planned(key: Any, kind: str, a: Tensor, b: Tensor, g: Geometry, shape: Sizes, room: int | None) -> _Plan | None:
    """The plan by its key; None where the backend has none."""
    try:
        return _plans[key, room]
    except KeyError:
        since, plan = caches.epoch, _plan(kind, a.meta, b.meta, g, shape, key[4], room)
        caches.keep_since(since, _plans, (key, room), plan)
        return plan


def _run(plan: _Plan, a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    if plan.layout is not _GIVEN:
        a, b = _placed(a, plan.layout), _placed(b, plan.layout)
    out = new(plan.out)
    if plan.prepared.workspace != plan.space.numel:  # trying has found one that needs other room
        plan.space = meta((plan.prepared.workspace,), None, uint8, plan.out.device)
    space = new(plan.space)
    if bias is None:
        plan.call(out.ptr, a.ptr, b.ptr, space.ptr)
    else:
        plan.call(out.ptr, a.ptr, b.ptr, contiguous(bias.detach()).ptr, space.ptr)
    return out


def _plan(kind: str, a: Meta, b: Meta, g: Geometry, shape: Sizes, bias: bool, room: int | None) -> _Plan | None:
    """The first layout of the operands that the backend has a launch for."""
    if _far(g):
        return None  # the padded image itself then says whether there is room for it
    layouts = [_GIVEN, _ROWS]
    if len(shape) > 3 and any(is_channels_last(m.shape, m.strides) and not m.contiguous for m in (a, b)):
        layouts.insert(1, _LAST)
    for way in layouts:
        operands = [(tuple(m.shape), _strides(m, way)) for m in (a, b)]
        out = meta(shape, tuple(channels_last_strides(shape)) if way is _LAST else None, a.dtype, a.device)
        made = (tuple(out.shape), out.strides)
        first, second = operands
        x, w, y = {"forward": (first, second, made), "images": (made, first, second), "weights": (first, made, second)}[kind]
        prepared = dispatch.find(a.device, Convolution(kind, a.dtype, x, w, y, g.padding, g.stride, g.dilation, g.groups, bias, *_allowed(room)))
        if prepared is not None:
            return _Plan(prepared, way, out)
    return None


def _far(g: Geometry) -> bool:
    """Whether windows lie so far from an image's edge that addresses could overflow, those of a kernel's last vector among them that the result has not."""
    return any(p + (o + _VECTOR) * s + d * k + i >= _FARTHEST
               for i, k, o, s, p, d in zip(g.image, g.kernel, g.out, g.stride, g.padding, g.dilation, strict=True))


def _allowed(room: int | None) -> tuple[bool, int | None, tuple[int, bool, bool]]:
    values = backend_flags.values
    tries = (int(values["cudnn.benchmark_limit"]) or _ALL) if values["cudnn.benchmark"] else 0
    how = (tries, bool(values["cudnn.deterministic"] or values["deterministic"]), bool(values["cudnn.allow_tf32"]))
    return bool(values["cudnn.enabled"]), room, how


def _strides(m: Meta, way: str) -> tuple[int, ...]:
    return m.strides if way is _GIVEN else tuple((channels_last_strides if way is _LAST else contiguous_strides)(m.shape))


def _placed(t: Tensor, way: str) -> Tensor:
    if way is _ROWS:
        return contiguous(t.detach())
    return contiguous(t.detach(), memory_format=channels_last if len(t.meta.shape) == 4 else channels_last_3d)

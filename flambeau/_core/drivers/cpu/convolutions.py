"""Convolutions on the CPU by generated kernels, which read windows where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...kernels import routines
from ...layout import contiguous_strides, numel
from . import depthwise, transposed

if TYPE_CHECKING:
    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import Convolution, Operand


def convolution(spec: Convolution) -> PreparedLaunch | None:
    """None where the kernels do not read such operands, and where columns and a product are better: one-element kernels, and gradients of images
    where windows lie far apart."""
    (x, steps), (w, _), (y, _) = spec.x, spec.w, spec.y
    if not (numel(x) and numel(w) and numel(y)) or steps[-1] != 1 and spec.kind != "images":
        return None
    if spec.groups > 1 and routines.generated():
        made = depthwise.convolution(spec)
        if made is not None:
            return made
    return {"forward": _forward, "images": _images, "weights": _weights}[spec.kind](spec)


def _is_plain(spec: Convolution) -> bool:
    """Kernel 1, stride 1, no border: the image is its own columns."""
    return all(k == 1 for k in spec.w[0][2:]) and all(s == 1 for s in spec.stride) and not any(spec.padding)


def _packed(operand: Operand) -> bool:
    return operand[1] == contiguous_strides(operand[0])


def _sizes(spec: Convolution) -> tuple[Any, ...]:
    return spec.x[0][2:], spec.y[0][2:], spec.w[0][2:], spec.stride, spec.padding, spec.dilation


def _forward(spec: Convolution) -> PreparedLaunch | None:
    if _is_plain(spec) and spec.groups == 1 or not _packed(spec.w) or not _packed(spec.y):
        return None
    n, c, taps = spec.x[0][0], spec.x[0][1] // spec.groups, numel(spec.w[0][2:])
    return routines.convolution(spec.dtype, n, c, spec.y[0][1] // spec.groups, _sizes(spec), spec.x[1], (c * taps, taps, 1, 0), spec.bias, spec.groups)


def _images(spec: Convolution) -> PreparedLaunch | None:
    """At stride 1: a plain convolution of the gradients with the kernels turned round and their channels changing places; at others, several."""
    if max(spec.stride) > 1:
        return transposed.images(spec)
    image, out, kernel, stride, padding, dilation = _sizes(spec)
    border = tuple([d * (k - 1) - p for p, d, k in zip(padding, dilation, kernel, strict=True)])
    if any(b < 0 for b in border) or _is_plain(spec) and spec.groups == 1:
        return None
    if spec.y[1][-1] != 1 or not _packed(spec.w) or not _packed(spec.x):
        return None
    taps = numel(kernel)
    prepared = routines.convolution(spec.dtype, spec.y[0][0], spec.y[0][1] // spec.groups, spec.x[0][1] // spec.groups,
                                    (out, image, kernel, stride, border, dilation), spec.y[1], (taps, spec.w[0][1] * taps, -1, taps - 1), False,
                                    spec.groups)
    if prepared is not None:
        entry = prepared.entry
        prepared.entry = lambda gx, w, gy, room: entry(gx, gy, w, room)
    return prepared


def _weights(spec: Convolution) -> PreparedLaunch | None:
    if not _packed(spec.y) or not _packed(spec.w):
        return None
    n, c = spec.x[0][0], spec.x[0][1] // spec.groups
    prepared = routines.convolution_weights(spec.dtype, n, c, spec.w[0][0] // spec.groups, _sizes(spec), spec.x[1], spec.groups)
    if prepared is not None:
        entry = prepared.entry
        prepared.entry = lambda gw, x, gy, room: entry(gw, gy, x, room)
    return prepared

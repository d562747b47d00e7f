"""Convolutions on NVIDIA GPUs: by kernels of our own where each group has one channel, else by cuDNN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.cuda_c.handwritten import channelwise
from ...layout import numel
from . import cudnn

if TYPE_CHECKING:
    from ...kernels.cuda_c import Kernel
    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import Convolution
    from .launches import Launches


def convolution(launches: Launches, device: int, spec: Convolution) -> PreparedLaunch | None:
    """None where neither has it."""
    kernel = _own(spec)
    if kernel is not None:
        return launches.kernel(f"convolution_{spec.kind}_{spec.dtype.name}", kernel)
    return cudnn.convolution(launches, device, spec)


def _own(spec: Convolution) -> Kernel | None:
    """Of one channel a group: cuDNN's are for products of many channels, of which there are none here."""
    (x, _), (w, steps), (y, _) = spec.x, spec.w, spec.y
    if not cudnn.packed((spec.x, spec.y)):
        return None
    dense = all(n == 1 or s == t for n, s, t in zip((w[0], *w[2:]), (steps[0], *steps[2:]), _dense(w), strict=True))
    if spec.groups != x[1] or w[1] != 1 or not dense or not all(map(numel, (x, w, y))):
        return None
    try:
        shape = channelwise.shape(spec.x, spec.y, w[2:], spec.padding, spec.stride, spec.dilation)
        if spec.kind == "forward":
            return channelwise.forward(spec.dtype, shape, spec.bias)
        return (channelwise.images if spec.kind == "images" else channelwise.weights)(spec.dtype, shape)
    except NotImplementedError:
        return None


def _dense(w: tuple[int, ...]) -> list[int]:
    """Strides of weights (outputs, 1, axes) side by side, without that of the one channel."""
    strides, step = [], 1
    for n in reversed((w[0], *w[2:])):
        strides.append(step)
        step *= n
    return strides[::-1]

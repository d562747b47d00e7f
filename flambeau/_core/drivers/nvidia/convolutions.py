"""Convolutions on NVIDIA GPUs: by kernels of our own where each group has one channel, else by cuDNN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.cuda_c.handwritten import channelwise
from ...layout import is_contiguous, numel
from . import cudnn_convolutions

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
    return cudnn_convolutions.prepare(launches, device, spec)


def _own(spec: Convolution) -> Kernel | None:
    """Of one channel a group: cuDNN's are for products of many channels, of which there are none here."""
    x, w, y = (sizes for sizes, _ in (spec.x, spec.w, spec.y))
    if spec.groups != x[1] or w[1] != 1 or not is_contiguous(*spec.w) or not cudnn_convolutions.packed((spec.x, spec.y)) or not all(map(numel, (x, w, y))):
        return None
    try:
        shape = channelwise.shape(spec.x, spec.y, w[2:], spec.padding, spec.stride, spec.dilation)
        if spec.kind == "forward":
            return channelwise.forward(spec.dtype, shape, spec.bias)
        return (channelwise.images if spec.kind == "images" else channelwise.weights)(spec.dtype, shape)
    except NotImplementedError:
        return None

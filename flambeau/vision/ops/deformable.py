"""Convolutions that read between the pixels, each tap where an offset says (torchvision.ops.deform_conv2d)."""

from __future__ import annotations

import math
from typing import Any

from ... import nn
from ..._core import ops
from ...nn import init
from ...nn.sizes import ntuple

_ops: Any = ops


def _taps(x: Any, y: Any, at: Any) -> Any:
    """Values (N, C, P) of maps (N, C, H, W) at P places: bilinear, 0 outside."""
    n, c, height, width = x.shape
    flat = x.reshape(n, c, height * width)
    top, left = y.floor(), at.floor()
    total: Any = 0
    for row, wy in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, wx in ((left, 1 - (at - left)), (left + 1, at - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long()
            weight = _ops.where(inside, wy * wx, _ops.zeros_like(wy))
            total = total + flat.gather(2, place[:, None].expand(n, c, place.shape[1])) * weight[:, None]
    return total


def deform_conv2d(input: Any, offset: Any, weight: Any, bias: Any = None, stride: Any = (1, 1), padding: Any = (0, 0), dilation: Any = (1, 1),  # noqa: A002
                  mask: Any = None) -> Any:
    """A convolution whose taps are moved by `offset`, (N, 2 * groups * kh * kw, out_h, out_w) with y before x for each tap, and weighed by `mask`,
    (N, groups * kh * kw, out_h, out_w), where given.  The groups cut the input's channels; `weight` is (out, C / its groups, kh, kw).

    X. Zhu et al., "Deformable ConvNets v2", 2019.  Differentiable in all tensors.  Raises RuntimeError for sizes that do not fit.
    """
    (sy, sx), (py, px), (dy, dx) = ntuple(stride, 2), ntuple(padding, 2), ntuple(dilation, 2)
    n, channels, height, width = input.shape
    out, per_group, kh, kw = weight.shape
    out_h, out_w = (height + 2 * py - dy * (kh - 1) - 1) // sy + 1, (width + 2 * px - dx * (kw - 1) - 1) // sx + 1
    taps = kh * kw
    groups = offset.shape[1] // (2 * taps)
    if groups == 0 or offset.shape[1] % (2 * taps) or channels % groups:
        raise RuntimeError(f"deform_conv2d: the shape of the offset tensor at dimension 1 is not valid: got {offset.shape[1]}, expected a multiple of "
                           f"2 * {kh} * {kw} that cuts {channels} channels")
    if tuple(offset.shape) != (n, 2 * groups * taps, out_h, out_w):
        raise RuntimeError(f"deform_conv2d: offset must be {(n, 2 * groups * taps, out_h, out_w)}, got {tuple(offset.shape)}")
    if mask is not None and tuple(mask.shape) != (n, groups * taps, out_h, out_w):
        raise RuntimeError(f"deform_conv2d: mask must be {(n, groups * taps, out_h, out_w)}, got {tuple(mask.shape)}")
    if channels % per_group or out % (channels // per_group):
        raise RuntimeError(f"deform_conv2d: a weight of {tuple(weight.shape)} does not fit an input of {channels} channels")
    moved = offset.reshape(n * groups, taps, 2, out_h, out_w)
    options: Any = {"device": input.device, "dtype": input.dtype}
    rows = (_ops.arange(out_h, **options) * sy - py)[None, :, None] + (_ops.arange(kh, **options) * dy).repeat_interleave(kw)[:, None, None]
    columns = (_ops.arange(out_w, **options) * sx - px)[None, None, :] + (_ops.arange(kw, **options) * dx).repeat(kh)[:, None, None]
    y, x = (rows + moved[:, :, 0]).reshape(n * groups, -1), (columns + moved[:, :, 1]).reshape(n * groups, -1)
    values = _taps(input.reshape(n * groups, channels // groups, height, width), y, x)
    if mask is not None:
        values = values * mask.reshape(n * groups, 1, -1)
    parts = channels // per_group
    columns_of = values.reshape(n, parts, per_group * taps, out_h * out_w)
    made = (weight.reshape(parts, out // parts, per_group * taps) @ columns_of).reshape(n, out, out_h, out_w)
    return made if bias is None else made + bias[:, None, None]


class DeformConv2d(nn.Module):
    """`deform_conv2d` with a weight and a bias of its own."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
                 bias: bool = True) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"DeformConv2d: in_channels ({in_channels}) and out_channels ({out_channels}) must be divisible by groups ({groups})")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.padding, self.dilation = (ntuple(v, 2) for v in (kernel_size, stride, padding, dilation))
        self.weight = nn.Parameter(_ops.empty(out_channels, in_channels // groups, *self.kernel_size))
        self.bias = nn.Parameter(_ops.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform within one over the root of a tap's inputs, as a convolution's."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight[0].numel())
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Any, offset: Any, mask: Any = None) -> Any:  # noqa: A002
        return deform_conv2d(input, offset, self.weight, self.bias, self.stride, self.padding, self.dilation, mask)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"

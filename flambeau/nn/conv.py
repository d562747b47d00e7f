"""Convolutions and transposed convolutions in one, two and three dimensions, and their lazy variants."""

from __future__ import annotations

import math
from typing import Any

from .._core import ops
from . import functional as F
from . import init
from .lazy import LazyModuleMixin
from .module import Module
from .parameter import Parameter, UninitializedParameter
from .sizes import ntuple


class _ConvNd(Module):
    """What all convolutions share. `weight` is (out, in / groups, *kernel), for transposed ones (in, out / groups,
    *kernel); it and `bias` start uniform on [-k, k], k = 1/√fan_in."""

    dims: int
    transposed = False
    bias: Parameter | None

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
                 output_padding: Any, groups: int, bias: bool, padding_mode: str, device: Any, dtype: Any) -> None:
        super().__init__()
        n = self.dims
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        modes = ("zeros", "reflect", "replicate", "circular")
        if padding_mode not in modes:
            raise ValueError(f"padding_mode must be one of {set(modes)}, but got padding_mode='{padding_mode}'")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = ntuple(kernel_size, n)
        self.stride = ntuple(stride, n)
        self.dilation = ntuple(dilation, n)
        self.output_padding = ntuple(output_padding, n)
        self.groups = groups
        self.padding_mode = padding_mode
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'valid', 'same'}}")
            if padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
            self.padding: Any = padding
        else:
            self.padding = ntuple(padding, n)
        self._reversed_padding_repeated_twice = self._pad_amounts()
        if self.transposed:
            shape = (in_channels, out_channels // groups, *self.kernel_size)
        else:
            shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(ops.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(ops.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _pad_amounts(self) -> list[int]:
        """The padding as `F.pad` takes it: pairs, from the last dimension to the first."""
        if self.padding == "valid":
            return [0, 0] * self.dims
        amounts: list[int] = []
        for d in reversed(range(self.dims)):
            if self.padding == "same":
                total = self.dilation[d] * (self.kernel_size[d] - 1)
                amounts += [total // 2, total - total // 2]
            else:
                amounts += [self.padding[d], self.padding[d]]
        return amounts

    def reset_parameters(self) -> None:
        """Draws new values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = (f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}")
        if self.padding != (0,) * self.dims:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.dims:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * self.dims:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Conv(_ConvNd):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias,
                         padding_mode, device, dtype)

    def _conv(self) -> Any:
        raise NotImplementedError

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        conv = self._conv()
        if self.padding_mode != "zeros":
            padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return conv(padded, weight, bias, self.stride, 0, self.dilation, self.groups)
        return conv(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def forward(self, input: Any) -> Any:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """Cross-correlation of (N, C_in, L) or (C_in, L) with `weight`, plus `bias`.

    Each size becomes `out = (size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1`.
    """

    dims = 1

    def _conv(self) -> Any:
        return F.conv1d


class Conv2d(_Conv):
    """Cross-correlation of (N, C_in, H, W) or (C_in, H, W) with `weight`, plus `bias`.

    Each size becomes `out = (size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1`.
    """

    dims = 2

    def _conv(self) -> Any:
        return F.conv2d


class Conv3d(_Conv):
    """Cross-correlation of (N, C_in, D, H, W) or (C_in, D, H, W) with `weight`, plus `bias`.

    Each size becomes `out = (size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1`.
    """

    dims = 3

    def _conv(self) -> Any:
        return F.conv3d


class _ConvTransposeNd(_ConvNd):
    transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1,
                 padding_mode: str = "zeros", device: Any = None, dtype: Any = None) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding, groups,
                         bias, padding_mode, device, dtype)

    def _conv(self) -> Any:
        raise NotImplementedError

    def _output_padding(self, input: Any, output_size: Any) -> tuple[int, ...]:
        """The output_padding that gives `output_size`, which several input sizes of a strided convolution share."""
        if output_size is None:
            return self.output_padding
        n = self.dims
        size = list(output_size)
        if len(size) == input.dim():
            size = size[-n:]
        if len(size) != n:
            raise ValueError(f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or {input.dim()} "
                             f"elements (got {len(size)})")
        low = [(input.size(d - n) - 1) * self.stride[d] - 2 * self.padding[d]
               + self.dilation[d] * (self.kernel_size[d] - 1) + 1 for d in range(n)]
        high = [low[d] + self.stride[d] - 1 for d in range(n)]
        if any(not low[d] <= size[d] <= high[d] for d in range(n)):
            raise ValueError(f"requested an output size of {size}, but valid sizes range from {low} to {high} (for an "
                             f"input of {input.size()[2:]})")
        return tuple(size[d] - low[d] for d in range(n))

    def forward(self, input: Any, output_size: Any = None) -> Any:
        return self._conv()(input, self.weight, self.bias, self.stride, self.padding,
                            self._output_padding(input, output_size), self.groups, self.dilation)


class ConvTranspose1d(_ConvTransposeNd):
    """The gradient of `Conv1d` with respect to its input, as a layer: (N, C_in, L) to (N, C_out, L_out).

    Each size becomes `out = (size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1`.
    """

    dims = 1

    def _conv(self) -> Any:
        return F.conv_transpose1d


class ConvTranspose2d(_ConvTransposeNd):
    """The gradient of `Conv2d` with respect to its input, as a layer: (N, C_in, H, W) to (N, C_out, H_out, W_out).

    Each size becomes `out = (size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1`.
    """

    dims = 2

    def _conv(self) -> Any:
        return F.conv_transpose2d


class ConvTranspose3d(_ConvTransposeNd):
    """The gradient of `Conv3d` with respect to its input, as a layer.

    Each size becomes `out = (size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1`.
    """

    dims = 3

    def _conv(self) -> Any:
        return F.conv_transpose3d


class _LazyConv(LazyModuleMixin, _ConvNd):
    """A convolution that learns `in_channels` from its first input."""

    def __init__(self, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
                 bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None, **more: Any) -> None:
        self_init: Any = super().__init__
        # Zero channels are divisible by any number of groups, so the layer can be made before its sizes are known.
        self_init(0, 0, kernel_size, stride, padding, dilation=dilation, groups=groups, bias=False, padding_mode=padding_mode, **more)
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Any, *args: Any, **kwargs: Any) -> None:
        """Takes the sizes from an input."""
        if input.dim() not in (self.dims + 1, self.dims + 2):
            raise RuntimeError(f"Expected {self.dims + 1}D (unbatched) or {self.dims + 2}D (batched) input to "
                               f"{type(self).__name__}, but got input of size: {input.shape}")
        self.in_channels = input.shape[-self.dims - 1]
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        if self.transposed:
            shape = (self.in_channels, self.out_channels // self.groups, *self.kernel_size)
        else:
            shape = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        self.materialize({"weight": shape, "bias": (self.out_channels,)})


class _LazyConvTranspose(_LazyConv):
    """A transposed convolution of that kind."""

    def __init__(self, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
                 bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None) -> None:
        super().__init__(out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype, output_padding=output_padding)


class LazyConv1d(_LazyConv, Conv1d):
    """A `Conv1d` that learns `in_channels` from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A `Conv2d` that learns `in_channels` from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A `Conv3d` that learns `in_channels` from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A `ConvTranspose1d` that learns `in_channels` from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A `ConvTranspose2d` that learns `in_channels` from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A `ConvTranspose3d` that learns `in_channels` from its first input."""

    cls_to_become = ConvTranspose3d

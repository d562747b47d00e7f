"""Pooling layers. Their output sizes are floor (or, with `ceil_mode`, ceil) of (in + 2 padding - kernel) / stride +
1."""

from __future__ import annotations

from typing import Any

from . import functional as F
from .module import Module
from .sizes import ntuple


class _MaxPoolNd(Module):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                 return_indices: bool = False, ceil_mode: bool = False) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
                f"dilation={self.dilation}, ceil_mode={self.ceil_mode}")

    def _pool(self, pool: Any, input: Any) -> Any:
        return pool(input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
                    return_indices=self.return_indices)


class MaxPool1d(_MaxPoolNd):
    """The maximum over windows of (N, C, L) or (C, L).

    Each size becomes `out = (size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1`. With ceil_mode the division is rounded up,
    unless the last window would begin in the padding behind.
    """

    def forward(self, input: Any) -> Any:
        return self._pool(F.max_pool1d, input)


class MaxPool2d(_MaxPoolNd):
    """The maximum over windows of (N, C, H, W) or (C, H, W).

    Each size becomes `out = (size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1`. With ceil_mode the division is rounded up,
    unless the last window would begin in the padding behind.
    """

    def forward(self, input: Any) -> Any:
        return self._pool(F.max_pool2d, input)


class MaxPool3d(_MaxPoolNd):
    """The maximum over windows of (N, C, D, H, W) or (C, D, H, W).

    Each size becomes `out = (size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1`. With ceil_mode the division is rounded up,
    unless the last window would begin in the padding behind.
    """

    def forward(self, input: Any) -> Any:
        return self._pool(F.max_pool3d, input)


class _MaxUnpoolNd(Module):
    dims: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = ntuple(kernel_size, self.dims)
        self.stride = ntuple(stride if stride is not None else kernel_size, self.dims)
        self.padding = ntuple(padding, self.dims)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"

    def forward(self, input: Any, indices: Any, output_size: Any = None) -> Any:
        return F.max_unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size, self.dims)


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts the values of a `MaxPool1d` back where `indices` says they came from, with zeros elsewhere.

    Each size becomes `out = (size - 1) * stride - 2 * padding + kernel_size`. `output_size` may name another.
    """

    dims = 1


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts the values of a `MaxPool2d` back where `indices` says they came from, with zeros elsewhere.

    Each size becomes `out = (size - 1) * stride - 2 * padding + kernel_size`. `output_size` may name another.
    """

    dims = 2


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts the values of a `MaxPool3d` back where `indices` says they came from, with zeros elsewhere.

    Each size becomes `out = (size - 1) * stride - 2 * padding + kernel_size`. `output_size` may name another.
    """

    dims = 3


class AvgPool1d(Module):
    """The mean over windows of (N, C, L) or (C, L).

    Each size becomes `out = (size + 2 * padding - kernel_size) // stride + 1`. With ceil_mode the division is rounded up,
    unless the last window would begin in the padding behind.
    """

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True) -> None:
        super().__init__()
        self.kernel_size = ntuple(kernel_size, 1)
        self.stride = ntuple(stride if stride is not None else kernel_size, 1)
        self.padding = ntuple(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Any) -> Any:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPoolNd(Module):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True, divisor_override: int | None = None) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def _pool(self, pool: Any, input: Any) -> Any:
        return pool(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
                    self.divisor_override)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(_AvgPoolNd):
    """The mean over windows of (N, C, H, W) or (C, H, W).

    Each size becomes `out = (size + 2 * padding - kernel_size) // stride + 1`. With ceil_mode the division is rounded up,
    unless the last window would begin in the padding behind.
    """

    def forward(self, input: Any) -> Any:
        return self._pool(F.avg_pool2d, input)


class AvgPool3d(_AvgPoolNd):
    """The mean over windows of (N, C, D, H, W) or (C, D, H, W).

    Each size becomes `out = (size + 2 * padding - kernel_size) // stride + 1`. With ceil_mode the division is rounded up,
    unless the last window would begin in the padding behind.
    """

    def forward(self, input: Any) -> Any:
        return self._pool(F.avg_pool3d, input)


class _LPPoolNd(Module):
    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
                f"ceil_mode={self.ceil_mode}")


class LPPool1d(_LPPoolNd):
    """The p-norm over windows of (N, C, L).

    Each size becomes `out = (size - kernel_size) // stride + 1`. With ceil_mode the division is rounded up.
    """

    def forward(self, input: Any) -> Any:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPoolNd):
    """The p-norm over windows of (N, C, H, W).

    Each size becomes `out = (size - kernel_size) // stride + 1`. With ceil_mode the division is rounded up.
    """

    def forward(self, input: Any) -> Any:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPoolNd):
    """The p-norm over windows of (N, C, D, H, W).

    Each size becomes `out = (size - kernel_size) // stride + 1`. With ceil_mode the division is rounded up.
    """

    def forward(self, input: Any) -> Any:
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class _AdaptiveMaxPoolNd(Module):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The maximum over as many windows as `output_size` says.

    Each size becomes `out = output_size`.
    """

    def forward(self, input: Any) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The maximum over as many windows as `output_size` says; None keeps a dimension's size.

    Each size becomes `out = output_size`.
    """

    def forward(self, input: Any) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The maximum over as many windows as `output_size` says; None keeps a dimension's size.

    Each size becomes `out = output_size`.
    """

    def forward(self, input: Any) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _AdaptiveAvgPoolNd(Module):
    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The mean over as many windows as `output_size` says.

    Each size becomes `out = output_size`.
    """

    def forward(self, input: Any) -> Any:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The mean over as many windows as `output_size` says; None keeps a dimension's size.

    Each size becomes `out = output_size`.
    """

    def forward(self, input: Any) -> Any:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The mean over as many windows as `output_size` says; None keeps a dimension's size.

    Each size becomes `out = output_size`.
    """

    def forward(self, input: Any) -> Any:
        return F.adaptive_avg_pool3d(input, self.output_size)


class _FractionalMaxPoolNd(Module):
    dims: int
    _random_samples: Any

    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
                 _random_samples: Any = None) -> None:
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio, and not both")
        self.kernel_size = ntuple(kernel_size, self.dims)
        self.output_size = None if output_size is None else ntuple(output_size, self.dims)
        self.output_ratio = None if output_ratio is None else ntuple(output_ratio, self.dims)
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Any) -> Any:  # noqa: A002 (PyTorch's name)
        pool = F.fractional_max_pool2d if self.dims == 2 else F.fractional_max_pool3d
        return pool(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, _random_samples=self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Maxima over windows at random, increasing places of (N, C, H, W) or (C, H, W). B. Graham, 2014.

    Each size becomes `output_size`, or `out = int(size * output_ratio)`.
    """

    dims = 2


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """The same of (N, C, D, H, W) or (C, D, H, W)."""

    dims = 3

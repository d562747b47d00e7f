"""Functions with a random draw or a power pool: `gumbel_softmax`, `lp_pool1d` to `lp_pool3d`, `local_response_norm`."""

from __future__ import annotations

import math
from typing import Any

from ..._core import ops
from ..._core.engine.fields import has
from ..._core.ops.casts import in_float32
from ..sizes import ntuple
from .lazy_functional import F


def gumbel_softmax(logits: Any, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """A draw from the Gumbel-softmax distribution (Jang et al., 2017); `hard` gives one-hot vectors whose gradient is
    the
    soft ones'."""
    noise = -ops.empty_like(logits).exponential_().log()
    soft = F.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one = ops.zeros_like(logits).scatter_(dim, index, 1.0)
    return one - soft.detach() + soft


def _lp_pool(input: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool, dims: int) -> Any:
    kernel = ntuple(kernel_size, dims)
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]
    mean = pool(input.pow(norm_type), kernel, None if stride is None else ntuple(stride, dims), 0, ceil_mode)
    # The sign is kept apart, so that an odd power's negative sums give zero and not NaN.
    return (mean.sign() * F.relu(mean.abs())).mul(math.prod(kernel)).pow(1.0 / norm_type)


def lp_pool1d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """The p-norm over windows of (N, C, L)."""
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 1)


def lp_pool2d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """The p-norm over windows of (N, C, H, W)."""
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 2)


def lp_pool3d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """The p-norm over windows of (N, C, D, H, W)."""
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 3)


@in_float32
def local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """x / (k + alpha * mean of squares over `size` neighbouring channels)^beta, zeros beyond the first and last channel
    (Krizhevsky et al., 2012); input (N, C, ...)."""
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    if input.numel() == 0:
        return input
    squares = input * input

    padding = [0, 0] * (input.dim() - 2) + [size // 2, (size - 1) // 2]
    padded = F.pad(squares, padding)
    total = padded.narrow(1, 0, input.shape[1])
    for i in range(1, size):
        total = total + padded.narrow(1, i, input.shape[1])
    if not input.dtype.is_floating_point:
        total = total // size * size  # means of integers are integers
    return input / (total * (alpha / size) + k).pow(beta)

has("gumbel_softmax", batch="draws")
has("lp_pool1d lp_pool2d local_response_norm", batch="batches of images")

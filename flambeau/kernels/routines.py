"""Library routines by name and shape, whatever carries them out: what operations call that is no loop program.

Each function gives a `Prepared` launch for the kernels of the CPU, or None where the caller should use its own library
(other types, kernels by interpreter).  Strides are in elements, and any are taken.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .programs import Prepared

if TYPE_CHECKING:
    from ..dtypes import dtype

Strides = tuple[int, int, int]
_generated: bool | None = None


def generated() -> bool:
    """Whether routines of our own making are to be used."""
    global _generated
    if _generated is None:
        _generated = os.environ.get("FLAMBEAU_KERNELS", "llvm") == "llvm"
    return _generated


def product(d: dtype, m: int, n: int, k: int, a: Strides, b: Strides, c: Strides, batch: int = 1, add: bool = False) -> Prepared | None:
    """``entry(C, A, B)``: C = A B, or C += A B where `add`, for `batch` matrices; sizes are not zero.

    a, b, c: (from row to row, from column to column, from matrix to matrix).  C's columns are neighbours.
    """
    if d.name not in ("float32", "float64") or not generated() or c[1] != 1 or min(m, n) < 32 or m * n * k < 1 << 19:
        return None
    from .llvm import gemm
    entry = gemm.gemm(d, m, n, k, a, b, (c[0], c[2]), batch, add)
    return Prepared(f"matmul_{d.name}", entry, nbytes=(m * k + k * n + m * n) * batch * d.itemsize, flops=2 * m * n * k * batch)


def convolution(d: dtype, n: int, c: int, m: int, sizes: tuple[tuple[int, ...], ...], x: tuple[int, ...], a: tuple[int, int, int, int],
                bias: bool = False) -> Prepared | None:
    """``entry(Y, X, A, [bias,] workspace)``: contiguous y (N, M, out) = A (M, C taps) by the windows of x (N, C, image) +
    a number for each of the M.

    sizes: image, out, kernel, stride, padding and dilation, of one to three axes.  x: elements from image to image, from
    channel to channel and along the axes, 1 along the last.  a: elements of A from row to row, from channel to channel, from
    tap to tap, and to its first.  Nothing is empty.
    """
    if d.name not in ("float32", "float64") or not generated() or x[-1] != 1:
        return None
    from .llvm import windows
    axes = len(sizes[0])
    image, out, kernel, stride, padding, dilation = (
        (fill,) * (3 - axes) + tuple(s) for s, fill in zip(sizes, (1, 1, 1, 1, 0, 1), strict=True))
    steps = (*x[:2], *((0, 0, *x[2:])[axes - 1:]))
    entry, workspace = windows.convolution(d, n, c, m, (image, out, kernel, stride, padding, dilation), steps, a, bias)
    p, taps = out[0] * out[1] * out[2], kernel[0] * kernel[1] * kernel[2]
    return Prepared(f"convolution_{d.name}", entry, workspace=workspace, flops=2 * n * m * c * taps * p,
                    nbytes=(n * c * image[0] * image[1] * image[2] + m * c * taps + n * m * p) * d.itemsize)

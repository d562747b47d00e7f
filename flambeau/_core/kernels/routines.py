"""Library routines by name and shape, whatever carries them out: what operations call that is no loop program.

Each function gives a `PreparedLaunch` launch for the kernels of the CPU, or None where the caller should use its own library
(other types, kernels by interpreter).  Strides are in elements, and any are taken.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from .programs import PreparedLaunch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dtypes import dtype

Strides = tuple[int, int, int]
_generated: bool | None = None


def generated() -> bool:
    """Whether routines of our own making are to be used."""
    global _generated
    if _generated is None:
        _generated = os.environ.get("FLAMBEAU_KERNELS", "llvm") == "llvm"
    return _generated


def product(d: dtype, m: int, n: int, k: int, a: Strides, b: Strides, c: Strides, batch: int = 1, add: bool = False,
            bias: bool = False, after: str = "") -> PreparedLaunch | None:
    """``entry(C, A, B)``: C = A B, or C += A B where `add`, for `batch` matrices; sizes are not zero.  Where `bias`,
    ``entry(C, A, B, row)``: C = A B + row, n neighbours.  after: "relu" beside `bias`, then max(x, 0); "relu gradient" alone,
    ``entry(C, A, B, Y)``: C = A B where Y, laid out as C, is above 0, else 0.

    a, b, c: (from row to row, from column to column, from matrix to matrix).  C's columns are neighbours.
    """
    if not generated() or c[1] != 1 or not (_is_worth_packing(m, n, k) if d.kind == "f" else d.kind in "ui" and min(m, n) > 1 and m * n * k >= LEAST_INTEGERS):
        return None
    if d.itemsize not in (4, 8) or (d.kind != "f" and (bias or after)):
        return None
    from .llvm.handwritten import gemm
    entry = gemm.gemm(d, m, n, k, a, b, (c[0], c[2]), batch, add, bias, after)
    name = f"matmul_{d.name}_{after.replace(' ', '_')}" if after else f"matmul_{d.name}"
    beside = m * n if after == "relu gradient" else 0
    return PreparedLaunch(name, entry, nbytes=(m * k + k * n + m * n + beside) * batch * d.itemsize, flops=2 * m * n * k * batch)


def lane_product(d: dtype, m: int, n: int, k: int, a: Strides, b: Strides, c: Strides, batch: int, add: bool = False) -> PreparedLaunch | None:
    """`product` of many small matrices of a floating or complex type, whose strides may be any."""
    if not generated():
        return None
    from .llvm.handwritten import lane_products
    return PreparedLaunch(f"matmul_{d.name}", lane_products.entry(d, m, n, k, a, b, c, batch, add),
                          nbytes=((m * k + m * n) * batch + k * n * (batch if b[2] else 1)) * d.itemsize, flops=2 * m * n * k * batch)


LEAST_INTEGERS = 1 << 9  # products of numbers, from which on blocks of integers are worth packing


def _is_worth_packing(m: int, n: int, k: int) -> bool:
    """Of floats, beside a library."""
    return min(m, n) >= 32 and m * n * k >= 1 << 19


def product_of_pairs(m: int, n: int, k: int, a: Strides, b: Strides, c: Strides, batch: int = 1, add: bool = False,
                     bias: bool = False) -> PreparedLaunch | None:
    """`product` of bfloat16 matrices, of any size, where the CPU has instructions for them; rows or columns of A and B must be neighbours."""
    from .llvm import compile as compiler
    if not generated() or c[1] != 1 or 1 not in a[:2] or 1 not in b[:2] or not compiler.has_pairs():
        return None
    from .llvm.handwritten import gemm_pairs
    entry = gemm_pairs.gemm(m, n, k, a, b, (c[0], c[2]), batch, add, bias)
    return PreparedLaunch("matmul_bfloat16", entry, nbytes=2 * (m * k + k * n + m * n) * batch, flops=2 * m * n * k * batch)


def convolution(d: dtype, n: int, c: int, m: int, sizes: tuple[tuple[int, ...], ...], x: tuple[int, ...], a: tuple[int, int, int, int],
                bias: bool = False, groups: int = 1) -> PreparedLaunch | None:
    """``entry(Y, X, A, [bias,] workspace)``: contiguous y (N, M, out) = A (M, C taps) by the windows of x (N, C, image) +
    a number for each of the M.

    sizes: image, out, kernel, stride, padding and dilation, of one to three axes.  x: elements from image to image, from
    channel to channel and along the axes, 1 along the last.  a: elements of A from row to row, from channel to channel, from
    tap to tap, and to its first.  Nothing is empty.  groups: so many of these side by side, each of C and M channels.
    """
    if d.name not in ("float32", "float64") or not generated() or x[-1] != 1:
        return None
    from .llvm.handwritten import conv_forward
    entry, workspace = conv_forward.convolution(d, n, c, m, _three(sizes), _steps(x), a, bias, groups)
    nbytes, flops = _price(d, n, c, m, sizes, groups)
    return PreparedLaunch(f"convolution_{d.name}", entry, workspace=workspace, nbytes=nbytes, flops=flops)


def convolution_weights(d: dtype, n: int, c: int, m: int, sizes: tuple[tuple[int, ...], ...], x: tuple[int, ...],
                        groups: int = 1) -> PreparedLaunch | None:
    """``entry(GW, G, X, workspace)``: contiguous gw (M, C, kernel) = the sum of contiguous g (N, M, out) by the windows of x
    (N, C, image).  sizes, x and groups as for `convolution`.
    """
    if d.name not in ("float32", "float64") or not generated() or x[-1] != 1:
        return None
    from .llvm.handwritten import conv_weight_grad
    made = conv_weight_grad.weights(d, n, c, m, _three(sizes), _steps(x), groups)
    if made is None:
        return None
    nbytes, flops = _price(d, n, c, m, sizes, groups)
    return PreparedLaunch(f"convolution_weights_{d.name}", made[0], workspace=made[1], nbytes=nbytes, flops=flops)


def attention(d: dtype, mask: dtype | None, causal: bool, drop: bool, sizes: tuple[int, ...], scale: float,
              steps: dict[str, tuple[int, ...]]) -> PreparedLaunch | None:
    """``entry(O, LSE, Q, K, V, [mask,] [seed, offset, p])``: O = softmax(Q K^T scale + mask) V and the logarithms of its sums.

    sizes: batch, query heads, query heads a key head, queries, keys, depth, depth of values.  steps: of "q", "k", "v" along
    batch, head, row and column; of "o" and "mask" along batch, head and row, their columns being neighbours.
    """
    if d.name not in ("float32", "float64") or not generated():
        return None
    from .llvm.handwritten import attention as a
    shape = a.Shape(sizes, scale, steps)
    return PreparedLaunch("attention", a.forward(a.Variant(d, mask, causal, drop), shape), outputs=2, nbytes=_attention_bytes(d, sizes), flops=shape.flops(2))


def attention_backward(d: dtype, mask: dtype | None, causal: bool, drop: bool, sizes: tuple[int, ...], scale: float,
                       steps: dict[str, tuple[int, ...]]) -> PreparedLaunch:
    """``entry(DQ, DK, DV, DO, O, LSE, Q, K, V, [mask,] [seed, offset, p])`` where `attention` gave a launch.

    steps: also of "g" (DO) and "dq" along batch, head and row, and of "dk" and "dv" from part to part and along batch, query
    head and row: the gradients of keys and values are sums of `attention_parts` parts.
    """
    from .llvm.handwritten import attention as a
    shape = a.Shape(sizes, scale, steps)
    return PreparedLaunch("attention_backward", a.backward(a.Variant(d, mask, causal, drop), shape), outputs=3, nbytes=2 * _attention_bytes(d, sizes),
                    flops=shape.flops(5))


def attention_parts(batch: int, heads: int, length: int) -> int:
    """How many parts of the gradients of keys and values `attention_backward` makes."""
    from .llvm.handwritten import attention as a
    return a.splits(batch, heads, length)


def rows_product(d: dtype, rows: int, columns: int, step: int, count: int, weighted: bool, mean: bool) -> Callable[..., None]:
    """``entry(out, crow, columns of entries[, values], dense)``: a matrix of compressed rows (int64 places, `count` entries, of a floating
    type) times a dense one whose rows lie `step` elements apart; see `specs.RowsProduct`."""
    from .llvm.handwritten import sparse_rows
    return sparse_rows.entry(d, rows, columns, step, count, weighted, mean)


def blocks(times: int, sizes: tuple[int, ...], steps: tuple[int, ...]) -> Callable[..., None] | None:
    """``entry(to, *parts)``: `times` times, one behind the other, `sizes` bytes of each part, which then goes `steps` bytes on."""
    if not generated():
        return None
    from .llvm.handwritten import blocks as b
    return b.entry(times, sizes, steps)


def _attention_bytes(d: dtype, sizes: tuple[int, ...]) -> int:
    batch, heads, group, length, source, depth, value_depth = sizes
    return batch * heads * (length + source // group) * (depth + value_depth) * d.itemsize


def _three(sizes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """The sizes of a convolution over three axes: the first ones of length 1."""
    return tuple((fill,) * (3 - len(s)) + tuple(s) for s, fill in zip(sizes, (1, 1, 1, 1, 0, 1), strict=True))


def _steps(x: tuple[int, ...]) -> tuple[int, ...]:
    """From image to image, channel to channel, and along depth and height."""
    return (*x[:2], *(0, 0, *x[2:])[-3:-1])


def _price(d: dtype, n: int, c: int, m: int, sizes: tuple[tuple[int, ...], ...], groups: int) -> tuple[int, int]:
    """Bytes and operations."""
    image, out, taps = (math.prod(s) for s in sizes[:3])
    return groups * (n * c * image + m * c * taps + n * m * out) * d.itemsize, groups * 2 * n * m * c * taps * out

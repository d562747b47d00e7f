"""Order by NumPy, over rows: where no kernels are generated, and what kernels are compared with.

Every type is compared through unsigned integers in the same order (`keys`): NaN is the greatest value, -0.0 equals 0.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.specs import PARTED

if TYPE_CHECKING:
    from ...dtypes import dtype

Array = Any
_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SIGNED: dict[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_INFINITY = {"bfloat16": 0x7F80, "float16": 0x7C00, "float32": 0x7F800000, "float64": 0x7FF0000000000000}


def keys(a: Array, d: dtype, descending: bool = False) -> Array:
    """Unsigned integers ordered as the elements of `a` (stored as d stores them: bfloat16 in uint16)."""
    unsigned = _UNSIGNED[d.itemsize]
    bits = np.ascontiguousarray(a).view(unsigned)
    if d.kind in "bu":
        return ~bits if descending else bits
    top = unsigned(1 << (8 * d.itemsize - 1))
    if d.kind == "i":
        return bits ^ (unsigned(top - 1) if descending else top)
    width = 8 * d.itemsize
    s = bits.view(_SIGNED[d.itemsize])
    k = (s ^ ((s >> (width - 1)) & _SIGNED[d.itemsize](top - unsigned(1)))).view(unsigned)
    k ^= top
    k[bits == top] = top  # -0.0
    k[(bits & ~top) > unsigned(_INFINITY[d.name])] = np.iinfo(unsigned).max  # NaN
    return ~k if descending else k


def is_nan(k: Array, d: dtype) -> Array:
    """Which (ascending) keys are those of NaN."""
    return k == np.iinfo(k.dtype).max if d.kind == "f" else np.zeros(k.shape, bool)


def places(row: Array, wanted: Array, d: dtype, right: bool) -> Array:
    """Where each of `wanted` goes in a row of keys, before equal ones or, with `right`, after them, by halving; NaN in the row lies before all.

    The middle is rounded as PyTorch rounds it, so that a row out of order gives its places too."""
    low, high = np.zeros(wanted.shape, np.int64), np.full(wanted.shape, row.size, np.int64)
    nan = is_nan(row, d)
    while (open_ := low < high).any():
        middle = np.where(open_, low + (high - low) // 2, 0)
        here = row[middle]
        further = (here <= wanted if right else here < wanted) | nan[middle]
        low, high = np.where(open_ & further, middle + 1, low), np.where(open_ & ~further, middle, high)
    return low


def order(a: Array, d: dtype, descending: bool = False) -> Array:
    """Positions (int64) that sort each row of `a` (rows, n), equal elements in their order."""
    return np.argsort(keys(a, d, descending), -1, kind="stable")


def kth(a: Array, d: dtype, k: int) -> Array:
    """Position of the k-th element in order of each row of `a` (rows, n): see `specs.Element` of which one of equal elements."""
    if a.shape[-1] > PARTED:
        return order(a, d)[:, k]
    return np.array([_part(row, k) for row in keys(a, d).tolist()], np.int64)


def _part(row: list[int], k: int) -> int:
    """The position of the k-th in order of some keys, by C. A. R. Hoare's selection with R. Sedgewick's median of three as the pivot."""
    at = list(range(len(row)))

    def exchange(i: int, j: int) -> None:
        row[i], row[j], at[i], at[j] = row[j], row[i], at[j], at[i]

    def in_order(i: int, j: int) -> None:
        if row[j] < row[i]:
            exchange(i, j)
    left, right = 0, len(row) - 1
    while left + 1 < right:
        exchange((left + right) // 2, left + 1)
        in_order(left + 1, right)
        in_order(left, right)
        in_order(left + 1, left)
        up, down, pivot = left + 1, right, row[left]
        while True:
            up, down = up + 1, down - 1
            while row[up] < pivot:
                up += 1
            while row[down] > pivot:
                down -= 1
            if down < up:
                break
            exchange(up, down)
        exchange(left, down)
        left, right = (left if k < down else up), (right if k > down else down - 1)
    if left < right:
        in_order(left, right)
    return at[k]


def middle(a: Array, d: dtype, skip_nan: bool) -> Array:
    """Position of the lower median of each row of `a` (rows, n): of a NaN where the row has one, unless they are skipped."""
    n = a.shape[-1]
    numbers = n - is_nan(keys(a, d), d).sum(-1)
    rank = np.maximum(numbers - 1, 0) // 2 if skip_nan else np.where(numbers < n, numbers, (n - 1) // 2)
    return order(a, d)[np.arange(len(a)), rank]


def commonest(a: Array, d: dtype) -> Array:
    """Position of the most frequent element of each row of `a` (rows, n): the smallest of several, its last position."""
    at = order(a, d)
    s = np.take_along_axis(keys(a, d), at, -1)
    place = np.broadcast_to(np.arange(a.shape[-1]), a.shape)
    new = np.ones(a.shape, bool)
    np.not_equal(s[:, 1:], s[:, :-1], out=new[:, 1:])
    length = place - np.maximum.accumulate(np.where(new, place, 0), -1)
    return at[np.arange(a.shape[0]), length.argmax(-1)]

"""Order on the host: NumPy routines over rows that sorting, selecting and counting are built from.

Every type is compared through unsigned integers in the same order (`keys`): NaN is the greatest value, -0.0 equals 0.0.
Keys of up to 32 bits are packed with their position into 64 bits, so that one plain sort is stable and gives positions too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype

Array = Any
_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SIGNED: dict[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_INFINITY = {"bfloat16": 0x7F80, "float16": 0x7C00, "float32": 0x7F800000, "float64": 0x7FF0000000000000}
_LOW = np.uint64(0xFFFFFFFF)
_PACKED = np.uint64(32)
_BLOCK = 1 << 16  # elements that are worked on at a time, so that the passes over them stay in the cache
_WIDE = 1 << 17  # elements from which threads are worth their start


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


def _packed(a: Array, d: dtype, descending: bool) -> Array:
    p = keys(a, d, descending).astype(np.uint64)
    p <<= _PACKED
    p |= np.arange(a.shape[-1], dtype=np.uint64)
    return p


def _sort_long(p: Array) -> None:
    """One long row sorted in place, by halves on two threads when long enough."""
    parts = _threads() if p.shape[-1] >= _WIDE else 1
    if parts < 2:
        p.sort(axis=-1)
        return
    cuts = np.linspace(0, p.shape[-1], parts + 1).astype(int)
    together([lambda a=a, b=b: p[a:b].sort() for a, b in zip(cuts, cuts[1:], strict=False)])  # type: ignore[misc]
    p.sort(kind="stable")  # recognises the sorted runs and merges them


def order(a: Array, d: dtype, descending: bool = False) -> Array:
    """Positions (int64) that sort each row of `a` (rows, n), equal elements in their order."""
    n = a.shape[-1]
    if d.itemsize <= 4 and n <= 1 << 32:
        p = _packed(a, d, descending)
        if p.shape[0] == 1:
            _sort_long(p[0])
        else:
            p.sort(axis=-1)
        p &= _LOW
        return p.view(np.int64)
    k = keys(a, d, descending)
    at = np.argsort(k, -1)
    s = np.take_along_axis(k, at, -1)
    if (s[:, 1:] == s[:, :-1]).any():  # the fast sort is not stable; most rows of wide types have no equal elements
        at = np.argsort(k, -1, kind="stable")
    return at


def first(a: Array, d: dtype, count: int, descending: bool, ordered: bool = True) -> Array:
    """Positions of the `count` elements that come first in each row of `a` (rows, n), in order when `ordered`."""
    n = a.shape[-1]
    if count * 4 >= n:
        return order(a, d, descending)[:, :count]
    if count == 0:
        return np.empty((a.shape[0], 0), np.int64)
    if d.itemsize <= 4 and n <= 1 << 32:
        p = _packed(a, d, descending)
        p.partition(count - 1, axis=-1)
        p = p[:, :count].copy()
        if ordered:
            p.sort(axis=-1)
        return (p & _LOW).view(np.int64)
    k = keys(a, d, descending)
    at = _before(k, np.take_along_axis(k, np.argpartition(k, count - 1, -1)[:, count - 1:count], -1), count)
    if ordered:
        at = np.take_along_axis(at, np.argsort(np.take_along_axis(k, at, -1), -1, kind="stable"), -1)
    return at


def _before(k: Array, border: Array, count: int) -> Array:
    """Positions, ascending, of the `count` keys of each row that a stable sort puts first; border: the last of them, (rows, 1)."""
    wanted = k < border
    like = k == border
    wanted |= like & (np.cumsum(like, -1) <= count - wanted.sum(-1, keepdims=True))
    return np.nonzero(wanted)[1].reshape(-1, count)


def kth(a: Array, d: dtype, k: int) -> Array:
    """Position of the k-th smallest element (from 0) of each row of `a` (rows, n): where a stable sort has it."""
    if d.itemsize <= 4 and a.shape[-1] <= 1 << 32:
        p = _packed(a, d, False)
        p.partition(k, axis=-1)
        return (p[:, k] & _LOW).view(np.int64)
    all_keys = keys(a, d)
    found = np.take_along_axis(all_keys, np.argpartition(all_keys, k, -1)[:, k:k + 1], -1)
    rank = k - (all_keys < found).sum(-1, keepdims=True)  # among the keys equal to it
    like = all_keys == found
    return (like & (np.cumsum(like, -1) == rank + 1)).argmax(-1)


def middle(a: Array, d: dtype, skip_nan: bool) -> Array:
    """Position of the lower median of each row of `a` (rows, n): of a NaN where the row has one, unless they are skipped."""
    n = a.shape[-1]
    at = kth(a, d, (n - 1) // 2)
    if d.kind == "f":
        nans = is_nan(keys(a, d), d).sum(-1)
        odd = np.nonzero(nans)[0]
        if len(odd):
            sorted_at = order(a[odd], d)
            count = n - nans[odd]
            pick = np.maximum(count - 1, 0) // 2 if skip_nan else count
            at[odd] = sorted_at[np.arange(len(odd)), pick]
    return at


def commonest(a: Array, d: dtype) -> Array:
    """Position of the most frequent element of each row of `a` (rows, n): the smallest of several, its last position."""
    at = order(a, d)
    s = np.take_along_axis(keys(a, d), at, -1)
    place = np.broadcast_to(np.arange(a.shape[-1]), a.shape)
    new = np.ones(a.shape, bool)
    np.not_equal(s[:, 1:], s[:, :-1], out=new[:, 1:])
    length = place - np.maximum.accumulate(np.where(new, place, 0), -1)
    return at[np.arange(a.shape[0]), length.argmax(-1)]


# ------------------------------------------------------------------------------------------------------------ many rows
def _threads() -> int:
    from ...kernels import native
    return native.get_num_threads()


def together(work: list[Callable[[], Any]]) -> None:
    """Runs the parts on a thread each; NumPy lets them run at once."""
    if len(work) == 1:
        work[0]()
        return
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(len(work)) as pool:
        for done in [pool.submit(w) for w in work]:
            done.result()


def over_rows(a: Array, width: int, f: Callable[[Array], Array]) -> Array:
    """f of the rows of `a` (rows, n), some at a time and on several threads: int64 (rows, width)."""
    rows, n = a.shape
    step = max(1, _BLOCK // max(n, 1))
    if rows <= step:
        return f(a).reshape(rows, width)
    out = np.empty((rows, width), np.int64)

    def part(begin: int, end: int) -> None:
        for i in range(begin, end, step):
            j = min(i + step, end)
            out[i:j] = f(a[i:j]).reshape(j - i, width)
    parts = min(_threads(), rows // step) if a.size >= _WIDE else 1
    cuts = [rows * i // parts for i in range(parts + 1)]
    together([lambda b=b, e=e: part(b, e) for b, e in zip(cuts, cuts[1:], strict=False)])  # type: ignore[misc]
    return out

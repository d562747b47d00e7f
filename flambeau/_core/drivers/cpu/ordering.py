"""Sorting, selecting and searching on the CPU by NumPy, over rows (`row_order`)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import dtypes
from ...dtypes import bfloat16, bool_, int64
from ...kernels.interpret import load, memory
from ...kernels.programs import Prepared
from ...layout import contiguous_strides, numel
from . import row_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype
    from ...kernels.specs import Among, Element, NonzeroFirst, Search, Sizes, Sort

_FEW = 1 << 10  # elements that NumPy's stable sort has in order before keys are made
_FEW_VALUES = 1 << 12  # elements that need no threads


# ------------------------------------------------------------------------------------------------------------- sorting
def sort(spec: Sort) -> Prepared | None:
    """None for complex numbers, which have no order."""
    d, n, width, descending = spec.dtype, spec.domain[-1], spec.width, spec.descending
    if d.is_complex:
        return None
    name = "sort" if width == n else "topk"
    few = _few_sorted(spec)
    if few is not None:
        return _priced(name, few, spec, width)
    if width == n:
        return _rows(name, spec, width, lambda rows: row_order.order(rows, d, descending))
    return _rows(name, spec, width, lambda rows: row_order.first(rows, d, width, descending, spec.ordered))


def element(spec: Element) -> Prepared | None:
    """None for complex numbers."""
    d, which = spec.dtype, spec.which
    if d.is_complex:
        return None
    if which == "mode":
        return _rows(which, spec, 1, lambda rows: row_order.commonest(rows, d))
    if which:
        return _rows(which, spec, 1, lambda rows: row_order.middle(rows, d, which == "nanmedian"))
    return _rows("kthvalue", spec, 1, lambda rows: row_order.kth(rows, d, spec.k))


def _priced(name: str, entry: Callable[..., None], spec: Sort | Element, width: int) -> Prepared:
    rows = numel(spec.domain[:-1])
    return Prepared(name, entry, outputs=2, nbytes=numel(spec.domain) * spec.dtype.itemsize + rows * width * (spec.dtype.itemsize + 8))


def _rows(name: str, spec: Sort | Element, width: int, find: Callable[[Any], Any]) -> Prepared:
    """Elements of each row and their positions: find gives positions (rows, width) of rows (rows, n)."""
    d, domain, (out_steps, at_steps, steps) = spec.dtype, spec.domain, spec.strides
    to = (*domain[:-1], width)

    def entry(out: int, at: int, source: int) -> None:
        rows = memory(source, domain, steps, d).reshape(-1, domain[-1])
        found = row_order.over_rows(rows, width, find)
        memory(at, to, at_steps, int64)[...] = found.reshape(to)
        memory(out, to, out_steps, d)[...] = np.take_along_axis(rows, found, -1).reshape(to)
    return _priced(name, entry, spec, width)


def _few_sorted(spec: Sort) -> Callable[[int, int, int], None] | None:
    """For few elements whose rows lie one behind the other, in results that do too."""
    d, shape, k = spec.dtype, spec.domain, spec.width
    to = contiguous_strides((*shape[:-1], k))
    if not 0 < numel(shape) <= _FEW or d is bfloat16 or not k or spec.strides != (to, to, contiguous_strides(shape)):
        return None
    n, descending = shape[-1], spec.descending
    size = numel(shape)
    rows = size // n
    raw, raw_values, raw_at = (ctypes.c_char * nbytes for nbytes in (size * d.itemsize, rows * k * d.itemsize, rows * k * 8))
    starts = np.arange(0, size, n)[:, None] if rows > 1 else None
    read: Any = np.frombuffer
    plain, position = d.np, np.dtype(np.int64)

    def entry(out: int, places: int, source: int) -> None:
        x = read(raw.from_address(source), plain)
        r = x.reshape(rows, n)
        # NaN is the greatest for NumPy too; backwards twice, equal elements keep their order
        at = n - 1 - r[:, ::-1].argsort(-1, kind="stable")[:, ::-1] if descending else r.argsort(-1, kind="stable")
        if k < n:
            at = at[:, :k]
        read(raw_at.from_address(places), position).reshape(rows, k)[...] = at
        read(raw_values.from_address(out), plain).reshape(rows, k)[...] = x[at if starts is None else at + starts]
    return entry


# ----------------------------------------------------------------------------------------------------------- searching
def search(spec: Search) -> Prepared:
    """In rows of one type and values of another as NumPy compares them."""
    shape, n, right = spec.shape, spec.length, spec.right
    d, other = spec.dtype, spec.values or spec.dtype
    lead = () if len(spec.strides[1]) == 1 else shape[:-1]
    size = numel(shape)
    nbytes = numel(lead) * n * d.itemsize + size * (other.itemsize + spec.result.itemsize)
    few = _few_found(spec)
    if few is not None:
        return Prepared("searchsorted", few, nbytes=nbytes)

    def entry(out: int, sequence: int, values: int) -> None:
        rows, wanted = load(memory(sequence, (*lead, n), spec.strides[1], d), d), load(memory(values, shape, spec.strides[2], other), other)
        if not lead:
            found = np.searchsorted(rows, wanted, "right" if right else "left")
        else:
            found = _find(rows.reshape(-1, n), wanted.reshape(-1, shape[-1]), right).reshape(shape)
        memory(out, shape, spec.strides[0], spec.result)[...] = found
    return Prepared("searchsorted", entry, nbytes=nbytes)


def _few_found(spec: Search) -> Callable[[int, int, int], None] | None:
    """For few values in one short row, all dense and of one type."""
    size, n, d = numel(spec.shape), spec.length, spec.dtype
    packed = contiguous_strides(spec.shape)
    if not 0 < size <= _FEW_VALUES or not 0 < n <= _FEW_VALUES or spec.values not in (None, d) or d is bfloat16:
        return None
    if spec.strides != (packed, (1,), packed):
        return None
    raw, raw_out, raw_values = (ctypes.c_char * nbytes for nbytes in (n * d.itemsize, size * spec.result.itemsize, size * d.itemsize))
    read: Any = np.frombuffer
    plain, position, side = d.np, spec.result.np, "right" if spec.right else "left"

    def entry(out: int, sequence: int, values: int) -> None:
        read(raw_out.from_address(out), position)[...] = read(raw.from_address(sequence), plain).searchsorted(
            read(raw_values.from_address(values), plain), side)
    return entry


def _find(rows: Any, wanted: Any, right: bool) -> Any:
    """Positions in each row of `rows` (r, n) for the values of each row of `wanted` (r, k), NaN the greatest."""
    if len(rows) <= 16:
        return np.stack([np.searchsorted(row, w, "right" if right else "left") for row, w in zip(rows, wanted, strict=True)])
    common = np.result_type(rows, wanted)
    d: dtype = dtypes.from_numpy(common)
    sorted_keys, key = row_order.keys(rows.astype(common), d), row_order.keys(wanted.astype(common), d)
    # binary search in all rows at once
    n = rows.shape[-1]
    low, high = np.zeros(key.shape, np.int64), np.full(key.shape, n, np.int64)
    for _ in range(n.bit_length()):
        mid = (low + high) >> 1
        at = np.take_along_axis(sorted_keys, np.minimum(mid, n - 1), -1)
        further = ((at <= key) if right else (at < key)) & (low < high)
        low, high = np.where(further, mid + 1, low), np.where(further, high, mid)
    return low


def among(spec: Among) -> Prepared:
    """Types as NumPy compares them."""
    (d, shape, strides), (other, those_shape, those_strides) = spec.given

    def entry(out: int, elements: int, those: int) -> None:
        found = np.isin(load(memory(elements, shape, strides, d), d), load(memory(those, those_shape, those_strides, other), other),
                        assume_unique=spec.unique, invert=spec.invert)
        memory(out, shape, spec.to, bool_)[...] = found
    return Prepared("isin", entry, nbytes=numel(shape) * (d.itemsize + 1) + numel(those_shape) * other.itemsize)


def nonzero_first(spec: NonzeroFirst) -> Prepared:
    """In the order of the elements."""
    d, shape, strides, size = spec.dtype, spec.shape, spec.strides, spec.size
    to: Sizes = (size, len(shape))

    def entry(out: int, source: int) -> None:
        found = np.argwhere(load(memory(source, shape, strides, d), d))[:size]
        target = memory(out, to, contiguous_strides(to), int64)
        target[:len(found)] = found
        target[len(found):] = spec.fill
    return Prepared("nonzero_static", entry, nbytes=numel(shape) * d.itemsize + numel(to) * 8)

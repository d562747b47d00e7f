"""Sorting, selecting and searching on the CPU: generated kernels, or NumPy over rows (`row_order`) where nothing is generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import bool_, int64
from ...kernels import routines
from ...kernels.interpret import load, memory
from ...kernels.programs import PreparedLaunch
from ...layout import numel
from . import row_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels.specs import Among, Element, Search, Sort

_MOST = 1 << 31  # elements of a row that has positions of 32 bits
_NEAR = 32  # elements of rows that lie in the cache wherever they are
_APART = 1 << 16  # elements from which a row's must lie together to be read at memory's speed


# ------------------------------------------------------------------------------------------------------------- sorting
def _scattered(spec: Sort | Element) -> bool:
    """Whether rows lie so that a copy of them, which goes by tiles, is worth its while."""
    return spec.strides[2][-1] != 1 and spec.domain[-1] > _NEAR and numel(spec.domain) >= _APART and numel(spec.domain[:-1]) > 1


def sort(spec: Sort) -> PreparedLaunch | None:
    """None for complex numbers, which have no order, and for rows that had better be copied first."""
    d, domain, strides, descending, width, _, valued = spec
    if d.is_complex or _scattered(spec):
        return None
    n = domain[-1]
    if routines.generated() and n < _MOST:
        from ...kernels.llvm.handwritten.ordering import merging, sorting, topk
        pieces = merging.pieces(n, numel(domain[:-1])) if width == n else 1
        if topk.worth(n, width):
            entry, workspace, nbytes = topk.first(d, domain, strides, descending, width)
        elif pieces > 1:
            entry, workspace, nbytes = merging.sort(d, domain, strides, descending, pieces, valued)
        else:
            entry, workspace, nbytes = sorting.sort(d, domain, strides, descending, width, valued)
        return PreparedLaunch("sort" if width == n else "topk", entry, outputs=2, workspace=workspace, nbytes=nbytes)
    return _rows("sort" if width == n else "topk", spec, width, lambda rows: row_order.order(rows, d, descending)[:, :width])


def element(spec: Element) -> PreparedLaunch | None:
    """None for complex numbers, and for rows that had better be copied first."""
    d, domain, strides, k, which = spec
    if d.is_complex or _scattered(spec):
        return None
    name = which or "kthvalue"
    if routines.generated() and domain[-1] < _MOST:
        from ...kernels.llvm.handwritten.ordering import topk
        entry, workspace, nbytes = topk.element(d, domain, strides, k, which)
        return PreparedLaunch(name, entry, outputs=2, workspace=workspace, nbytes=nbytes)
    if which == "mode":
        return _rows(name, spec, 1, lambda rows: row_order.commonest(rows, d))
    return _rows(name, spec, 1, lambda rows: row_order.middle(rows, d, which == "nanmedian") if which else row_order.kth(rows, d, k))


def _rows(name: str, spec: Sort | Element, width: int, find: Callable[[Any], Any]) -> PreparedLaunch:
    """Elements of each row and their positions by NumPy: find gives positions (rows, width) of rows (rows, n)."""
    d, domain, (out_steps, at_steps, steps) = spec.dtype, spec.domain, spec.strides
    to = (*domain[:-1], width)

    def entry(out: int, at: int, source: int) -> None:
        rows = memory(source, domain, steps, d).reshape(-1, domain[-1])
        found = find(rows).reshape(-1, width)
        memory(at, to, at_steps, int64)[...] = found.reshape(to)
        memory(out, to, out_steps, d)[...] = np.take_along_axis(rows, found, -1).reshape(to)
    return PreparedLaunch(name, entry, outputs=2, nbytes=numel(domain) * d.itemsize + numel(domain[:-1]) * width * (d.itemsize + 8))


# ----------------------------------------------------------------------------------------------------------- searching
def search(spec: Search) -> PreparedLaunch | None:
    """None for types that differ and for rows whose elements do not lie side by side."""
    d, result, shape, n, (to, rows, steps), right, other = spec
    if other not in (None, d) or d.is_complex or (n > 1 and rows[-1] != 1):
        return None
    lead = shape[:-1] if len(rows) > 1 else ()
    nbytes = numel(lead) * n * d.itemsize + numel(shape) * (d.itemsize + result.itemsize)
    if routines.generated() and n < _MOST:
        from ...kernels.llvm.handwritten.ordering import searching
        return PreparedLaunch("searchsorted", searching.search(d, result, shape, n, (to, rows, steps), right), nbytes=nbytes)

    def entry(out: int, sequence: int, values: int) -> None:
        keys = row_order.keys(memory(sequence, (*lead, n), rows, d), d).reshape(-1, n)
        wanted = row_order.keys(memory(values, shape, steps, d), d).reshape(len(keys), -1)
        found = [row_order.places(k, w, d, right) for k, w in zip(keys, wanted, strict=True)]
        memory(out, shape, to, result)[...] = np.reshape(found, shape)
    return PreparedLaunch("searchsorted", entry, nbytes=nbytes)


def among(spec: Among) -> PreparedLaunch | None:
    """None for two types."""
    (d, shape, strides), (other, those_shape, those_strides) = spec.given
    if d is not other or d.is_complex:
        return None
    nbytes = numel(shape) * (d.itemsize + 1) + numel(those_shape) * d.itemsize
    if routines.generated() and numel(those_shape) < _MOST:
        from ...kernels.llvm.handwritten.ordering import searching
        made, workspace = searching.among(d, shape, strides, those_shape, those_strides, spec.to, spec.invert)
        return PreparedLaunch("isin", made, workspace=workspace, nbytes=nbytes)

    def entry(out: int, elements: int, those: int) -> None:
        found = np.isin(load(memory(elements, shape, strides, d), d), load(memory(those, those_shape, those_strides, d), d), invert=spec.invert)
        memory(out, shape, spec.to, bool_)[...] = found
    return PreparedLaunch("isin", entry, nbytes=nbytes)

"""A matrix of compressed rows times a strided one, differentiable in the entries' values and the strided matrix."""

from __future__ import annotations

from typing import Any

from ..autograd import tape
from ..kernels.specs import RowsProduct
from ..tensor import Tensor, empty
from . import routines
from .elementwise import saved_tensor


def served(values: Tensor) -> bool:
    """Whether there is a kernel for the type and the device."""
    return routines.find(values.meta.device, RowsProduct(values.meta.dtype, 1, 1, 1, 1)) is not None


class Rows:
    """The places of a sparse matrix's entries: by rows, and when they are asked for, by columns."""

    __slots__ = ("crow", "rows", "columns", "shape", "_turned")

    def __init__(self, crow: Any, rows: Any, columns: Any, shape: tuple[int, int]) -> None:
        self.crow, self.rows, self.columns, self.shape = crow, rows, columns, shape
        self._turned: tuple[Rows, Any] | None = None

    def turned(self) -> tuple[Rows, Any]:
        """The places of the transpose, and which entry each of its entries is."""
        if self._turned is None:
            order = self.columns.argsort(stable=True)
            ends = begins(self.columns, self.shape[1])
            self._turned = Rows(ends, self.columns[order], self.rows[order], (self.shape[1], self.shape[0])), order
        return self._turned


def begins(sorted_or_not: Any, size: int) -> Any:
    """Where each row's entries begin, and the number of entries: (size + 1)."""
    counts = sorted_or_not.new_zeros((size + 1,))
    counts.index_add_(0, sorted_or_not + 1, sorted_or_not * 0 + 1)
    return counts.cumsum(0)


def rows_added(ends: Any, at: Any, values: Any, dense: Any, mean: bool = False) -> Any:
    """(m, n), off the tape: each row is the sum of the rows of `dense` (k, n) at positions `at` (int64, contiguous, in range) from where `ends`
    (m + 1) says, each times its number of `values`, where there are any; or their mean.  No position: zeros."""
    x: Any = dense.detach()
    if x.meta.shape[1] > 1 and x.meta.strides[1] != 1 or x.meta.shape[0] > 1 and x.meta.strides[0] < x.meta.shape[1]:
        x = x.contiguous()
    v = [] if values is None else [values.detach().contiguous()]
    m, n = ends.meta.numel - 1, x.meta.shape[1]
    out = empty((m, n), x.meta.dtype, x.meta.device)
    if m and n:
        step = x.meta.strides[0] if x.meta.shape[0] > 1 else n
        routines.require(x.meta.device, RowsProduct(x.meta.dtype, m, n, step, at.meta.numel, bool(v), mean),
                         (out.ptr, ends.ptr, at.ptr, *[t.ptr for t in v], x.ptr))
    return out


def product(places: Rows, values: Any, dense: Any) -> Any:
    """(m, n) = the matrix (m, k) with these places and values, times `dense` (k, n)."""
    out = rows_added(places.crow, places.columns, values, dense)
    return tape.record(out, _back, (values, dense), ((values, values.store.version), (dense, dense.store.version), places), "SparseMmBackward0")


def at_places(a: Any, b: Any, rows: Any, columns: Any) -> Any:
    """The elements of a @ b (a is (m, n), b is (n, k)) at pairs of rows and columns, by what takes less memory: all of the product, or the
    rows and columns that meet.  Differentiable."""
    if a.shape[0] * b.shape[1] <= rows.numel() * a.shape[1]:
        return (a @ b)[rows, columns]
    return (a.index_select(0, rows) * b.t().index_select(0, columns)).sum(1)


def _back(node: Any, g: Any) -> Any:
    (values, vv), (dense, dv), places = node[tape.SAVED]
    edges = node[tape.EDGES]
    slopes = down = None
    if edges[0] is not None:
        dense = saved_tensor(dense, dv, node)
        slopes = at_places(g, dense.t(), places.rows, places.columns)
    if edges[1] is not None:
        values = saved_tensor(values, vv, node)
        other, order = places.turned()
        down = product(other, values[order], g)
    return slopes, down

"""Sparse matrices by compressed rows or columns, of elements (CSR, CSC) or of blocks of them (BSR, BSC).

The parts are two tensors of indices and the values: where each row's (column's) entries begin and, last, how many there are; the other index of each
entry; and the entries, each an element or a block of elements.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..layout import Size
from ..tensor import Tensor
from . import table
from .memory_format import layout as layout_class
from .memory_format import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from .sparse import Coo, Sparse, _end, _fits, _on_parts, _plan, _tensor_of, class_of, make, named
from .sparse_checks import check_compressed, checking


class Compressed(Sparse):
    """What these layouts share."""

    __slots__ = ()
    by_columns = False

    def values(self) -> Any:
        """The entries: (nnz), or (nnz, rows of a block, columns of a block)."""
        return self._value

    @property
    def blocksize(self) -> tuple[int, int] | None:
        """Rows and columns of a block; None where entries are elements."""
        return tuple(self._value.meta.shape[1:]) if self.block_dims else None

    def entries(self) -> Coo:
        """Each element that is specified, by coordinates and in the order of the values."""
        ends, minor = self._index
        ops: Any = named
        major = _majors(ends)
        rows, columns = [i.to(dtypes.int64) for i in ((minor, major) if self.by_columns else (major, minor))]
        if self.blocksize is not None:
            within = [ops.arange(n, device=ends.device) for n in self.blocksize]
            shape = tuple(self._value.meta.shape)
            rows = (rows[:, None, None] * shape[1] + within[0][:, None]).expand(shape).reshape(-1)
            columns = (columns[:, None, None] * shape[2] + within[1]).expand(shape).reshape(-1)
        made: Coo = make(Coo, (ops.stack([rows, columns]),), self._value.reshape(-1), self.meta.shape, type(self) is Csr)
        return made

    def to_sparse(self, *args: Any, **kwargs: Any) -> Any:
        """The tensor in COO layout, or in the `layout` asked for.  Raises RuntimeError where blocks would become elements, or blocks of another size."""
        layout, blocksize = kwargs.get("layout"), kwargs.get("blocksize")
        if layout is None or layout is sparse_coo:
            return self.entries().coalesce()
        if layout is self.kind and (blocksize is None or _pair(blocksize) == self.blocksize):
            return self
        kind = class_of(layout.name)
        if self.block_dims and not kind.block_dims:
            raise RuntimeError(f"sparse_compressed_to_{kind.kind.name}: expected SparseCsr or SparseCsc layout but got {self.title}")
        if self.block_dims and blocksize is not None and _pair(blocksize) != self.blocksize:
            raise RuntimeError(f"sparse_compressed_to_{kind.kind.name}: conversion from {self.title} to {kind.title} with blocksize changed from "
                               f"{list(self.blocksize or ())} to {list(_pair(blocksize))} is not supported")
        return kind.of(self.to_sparse(), blocksize if blocksize is not None else self.blocksize)

    to_sparse_coo = to_sparse

    @classmethod
    def of(cls, t: Any, blocksize: Any = None) -> Any:
        """A matrix by coordinates in this layout.  Raises RuntimeError for another number of dimensions, and for blocks that do not divide it."""
        name = cls.kind.name
        if t.sparse_dim() != 2 or t.dense_dim():
            raise RuntimeError(f"to_{name}: only matrices have a {cls.title[6:].upper()} layout here, this has {t.sparse_dim()} sparse and {t.dense_dim()} "
                               "dense dimensions")
        if not cls.block_dims:
            return _on_parts(f"to_{name}", cls._of_elements, (t,))
        if blocksize is None:
            raise RuntimeError(f"to_{name}: blocksize must be given, two numbers that divide the matrix's sizes")
        pair = _pair(blocksize)
        if min(pair) < 1 or any(n % b for n, b in zip(t.meta.shape, pair, strict=True)):
            raise RuntimeError(f"dense_to_{name}: tensor sparse size ({','.join(map(str, t.meta.shape))}) must be divisible by given blocksize "
                               f"({','.join(map(str, pair))})")
        return _on_parts(f"to_{name}", cls._of_blocks, (t, *pair))

    @classmethod
    def _of_elements(cls, t: Any) -> Any:
        one = t.coalesce()
        rows, columns = one._indices()
        values = one._value
        if cls.by_columns:
            order = columns.argsort(stable=True)
            rows, columns, values = columns[order], rows[order], values.index_select(0, order)
        return make(cls, (_ends(rows, t.meta.shape[cls.by_columns]), columns.clone()), values, t.meta.shape, True)

    @classmethod
    def _of_blocks(cls, t: Any, height: int, width: int) -> Any:
        ops: Any = named
        one = t.coalesce()
        rows, columns = one._indices()
        block = [(rows // height), (columns // width)]
        counts = [t.meta.shape[0] // height, t.meta.shape[1] // width]
        major, minor = (1, 0) if cls.by_columns else (0, 1)
        places, which = ops.unique(block[major] * counts[minor] + block[minor], return_inverse=True)
        kept = one._value.to(dtypes.uint8) if one._value.meta.dtype is dtypes.bool_ else one._value
        at = which * (height * width) + rows % height * width + columns % width
        values = kept.new_zeros((places.numel() * height * width,)).index_add(0, at, kept).to(one._value.dtype).reshape(-1, height, width)
        inner = max(counts[minor], 1)
        return make(cls, (_ends(places // inner, counts[major]), places % inner), values, t.meta.shape, True)


def _ends(places: Any, count: int) -> Any:
    """Where the entries of each of so many rows begin, and their number, of entries in the order of their rows."""
    ops: Any = named
    ends = ops.bincount(places, minlength=count).cumsum(0)
    return ops.cat([ends.new_zeros((1,)), ends])[:count + 1]


def _majors(ends: Any) -> Any:
    """The row (column) of each entry: what `_ends` was made of."""
    ops: Any = named
    return ops.repeat_interleave(ops.arange(ends.shape[0] - 1, device=ends.device), ends[1:] - ends[:-1])


def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:  # noqa: A002
    """Where each of `size` rows begins (size + 1,), of the sorted rows (nnz,) of entries; int64, or int32."""
    made: Tensor = _ends(input, size).to(dtypes.int32 if out_int32 else dtypes.int64)
    return made


def _convert_indices_from_csr_to_coo(crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False) -> Tensor:
    """The rows and columns (2, nnz) of entries by compressed rows, columns first when `transpose`; int64, or int32."""
    ops: Any = named
    rows = _majors(crow_indices)
    pair = (col_indices, rows) if transpose else (rows, col_indices)
    made: Tensor = ops.stack([x.to(dtypes.int32 if out_int32 else dtypes.int64) for x in pair])
    return made


def _pair(blocksize: Any) -> tuple[int, int]:
    found = (blocksize, blocksize) if isinstance(blocksize, int) else tuple(blocksize)
    if len(found) == 1:
        found = found * 2
    if len(found) != 2:
        raise RuntimeError(f"blocksize must have two elements, rows and columns of a block, but got {len(found)}")
    return int(found[0]), int(found[1])


class _ByRows(Compressed):
    __slots__ = ()
    names = ("crow_indices", "col_indices")

    def crow_indices(self) -> Any:
        """Where each row's entries begin, and the number of entries: (rows + 1)."""
        return self._index[0]

    def col_indices(self) -> Any:
        """The column of each entry."""
        return self._index[1]


class _ByColumns(Compressed):
    __slots__ = ()
    names = ("ccol_indices", "row_indices")
    by_columns = True

    def ccol_indices(self) -> Any:
        """Where each column's entries begin, and the number of entries: (columns + 1)."""
        return self._index[0]

    def row_indices(self) -> Any:
        """The row of each entry."""
        return self._index[1]


class Csr(_ByRows):
    """A sparse matrix by rows: where each row's entries begin, the entries' columns, and their values."""

    __slots__ = ()
    kind, title = sparse_csr, "SparseCsr"


class Csc(_ByColumns):
    """A sparse matrix by columns: where each column's entries begin, the entries' rows, and their values."""

    __slots__ = ()
    kind, title = sparse_csc, "SparseCsc"


class Bsr(_ByRows):
    """A sparse matrix of blocks, by rows of them."""

    __slots__ = ()
    kind, title, block_dims = sparse_bsr, "SparseBsr", 2


class Bsc(_ByColumns):
    """A sparse matrix of blocks, by columns of them."""

    __slots__ = ()
    kind, title, block_dims = sparse_bsc, "SparseBsc", 2


_TURNED: dict[Any, Any] = {Csr: Csc, Csc: Csr, Bsr: Bsc, Bsc: Bsr}


def transposed(t: Compressed) -> Any:
    """The transpose: the same entries, by columns where they were by rows."""
    values = t._value.transpose(1, 2) if t.block_dims else t._value
    return make(_TURNED[type(t)], t._index, values, tuple(t.meta.shape)[::-1], True)


# ------------------------------------------------------------------------------------------------------------- creation
def _built(kind: Any, ends: Any, minor: Any, values: Any, size: Any, d: Any, dev: Any, requires_grad: bool, checks: bool | None) -> Any:
    v = _tensor_of(values, d, dev)
    parts = [_tensor_of(i, None, v.device) for i in (ends, minor)]
    for name, x in zip(kind.names, parts, strict=True):
        if x.meta.dtype is not dtypes.int64 and x.meta.dtype is not dtypes.int32:
            raise RuntimeError(f"{name} and the other indices must be int32 or int64, got {x.meta.dtype}")
        if len(x.meta.shape) != 1:
            raise NotImplementedError(f"{kind.kind.name}_tensor: {name} must have one dimension, it has {len(x.shape)}: batches are not implemented")
    if len(v.meta.shape) != 1 + kind.block_dims or parts[1].meta.numel != v.meta.shape[0]:
        raise RuntimeError(f"{kind.names[1]} and values must have the same number of entries, got {list(parts[1].shape)} and {list(v.shape)}")
    block = tuple(v.meta.shape[1:]) or (1, 1)
    told = size is not None
    if not told:
        counts = (parts[0].shape[0] - 1, int(parts[1].max()) + 1 if parts[1].numel() else 0)
        size = [n * b for n, b in zip(counts[::-1] if kind.by_columns else counts, block, strict=True)]
    size = Size(size)
    if len(size) != 2 or min(block) < 1 or parts[0].meta.numel != size[kind.by_columns] // block[kind.by_columns] + 1:
        raise RuntimeError(f"{kind.names[0]} must have one entry more than {'columns' if kind.by_columns else 'rows'}"
                           f"{' of blocks' if kind.block_dims else ''}: got {parts[0].shape[0]} for size {list(size)}")

    def check(ends: Any, minor: Any, shape: Any) -> None:
        check_compressed(ends, minor, kind.names, shape[not kind.by_columns] // block[not kind.by_columns])
    if told and _fits(d, dev, values, ends, minor):
        return _plan(kind, v.meta, size, True, requires_grad, check)
    if checking() if checks is None else checks:
        check(parts[0], parts[1], size)
    return _end(kind, tuple(parts), v, size, True, requires_grad)


@table.op(method=False, gives="Tensor")
def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
                      requires_grad: bool = False, check_invariants: bool | None = None, pin_memory: bool = False) -> Any:
    """A sparse matrix by rows: `values` (nnz) in the columns `col_indices` (nnz), row r being [crow_indices[r], crow_indices[r + 1])."""
    return _built(Csr, crow_indices, col_indices, values, size, dtype, device, requires_grad, check_invariants)


@table.op(method=False, gives="Tensor")
def sparse_csc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
                      requires_grad: bool = False, check_invariants: bool | None = None, pin_memory: bool = False) -> Any:
    """A sparse matrix by columns: `values` (nnz) in the rows `row_indices` (nnz), column c being [ccol_indices[c], ccol_indices[c + 1])."""
    return _built(Csc, ccol_indices, row_indices, values, size, dtype, device, requires_grad, check_invariants)


@table.op(method=False, gives="Tensor")
def sparse_bsr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
                      requires_grad: bool = False, check_invariants: bool | None = None, pin_memory: bool = False) -> Any:
    """A sparse matrix of blocks by rows: blocks `values` (nnz, rows, columns) at the columns of blocks `col_indices`, as `sparse_csr_tensor` has elements."""
    return _built(Bsr, crow_indices, col_indices, values, size, dtype, device, requires_grad, check_invariants)


@table.op(method=False, gives="Tensor")
def sparse_bsc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
                      requires_grad: bool = False, check_invariants: bool | None = None, pin_memory: bool = False) -> Any:
    """A sparse matrix of blocks by columns: blocks `values` (nnz, rows, columns) at the rows of blocks `row_indices`, as `sparse_csc_tensor` has elements."""
    return _built(Bsc, ccol_indices, row_indices, values, size, dtype, device, requires_grad, check_invariants)


@table.op(method=False, gives="Tensor")
def sparse_compressed_tensor(compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, layout: Any = None,
                             device: Any = None, requires_grad: bool = False, check_invariants: bool | None = None, pin_memory: bool = False) -> Any:
    """The sparse matrix that the constructor of `layout` gives: `sparse_csr_tensor` and its like.  Raises RuntimeError for a layout of no such kind."""
    kind: Any = None if layout is None or type(layout) is not layout_class or layout.name == "strided" else class_of(layout.name)
    if kind is None or kind is Coo:
        shown = "Strided" if kind is None else "Sparse"
        raise RuntimeError(f"sparse_compressed_tensor expected sparse compressed tensor layout but got {shown}")
    return _built(kind, compressed_indices, plain_indices, values, size, dtype, device, requires_grad, check_invariants)


# -------------------------------------------------------------------------------------------------- methods of all tensors
def to_sparse_csr(self: Any, dense_dim: Any = None) -> Any:
    """The nonzero elements of a matrix by compressed rows."""
    return self.to_sparse(layout=sparse_csr)


def to_sparse_csc(self: Any, dense_dim: Any = None) -> Any:
    """The nonzero elements of a matrix by compressed columns."""
    return self.to_sparse(layout=sparse_csc)


def to_sparse_bsr(self: Any, blocksize: Any, dense_dim: Any = None) -> Any:
    """The blocks of a matrix that are not all zeros, by compressed rows of blocks.  blocksize: their rows and columns."""
    return self.to_sparse(layout=sparse_bsr, blocksize=blocksize)


def to_sparse_bsc(self: Any, blocksize: Any, dense_dim: Any = None) -> Any:
    """The blocks of a matrix that are not all zeros, by compressed columns of blocks.  blocksize: their rows and columns."""
    return self.to_sparse(layout=sparse_bsc, blocksize=blocksize)


for _f in (to_sparse_csr, to_sparse_csc, to_sparse_bsr, to_sparse_bsc):
    setattr(Tensor, _f.__name__, _f)


# --------------------------------------------------------------------------------------------------------------- copies
def _copy_of(part: str) -> None:
    def function(input: Tensor) -> Tensor:  # noqa: A002
        made: Tensor = getattr(input, part)().clone()
        return made
    function.__name__ = function.__qualname__ = f"{part}_copy"
    function.__doc__ = f"`{part}` of a sparse tensor, in memory of its own.  Raises RuntimeError for a layout that has none."
    table.op(method=False, out=True, sparse="composite")(function)


for _part in ("indices", "values", "crow_indices", "col_indices", "ccol_indices", "row_indices"):
    _copy_of(_part)

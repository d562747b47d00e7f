"""Operations on sparse tensors (torch.sparse).

Layouts: coordinates (`sparse_coo_tensor`) and compressed rows (`sparse_csr_tensor`).  Products with strided tensors,
sums, softmax, sums and products of sparse tensors, and the operations that leave zeros zero are computed on the specified
elements; everything else raises NotImplementedError and names `to_dense`.
"""

from __future__ import annotations

from typing import Any

from .._core.ops import sparse_ops as _forms
from .._core.ops.sparse import Sparse
from .._core.ops.sparse_checks import check_sparse_tensor_invariants

__all__ = ["addmm", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum"]


def mm(mat1: Any, mat2: Any, reduce: str | None = None) -> Any:
    """The product of a sparse matrix and a sparse or strided one; differentiable in both.

    reduce: what becomes of the products that come to one element: "sum" (the matrix product), "mean", "amax" or "amin".
    """
    if reduce not in (None, "sum"):
        if reduce not in ("mean", "amax", "amin"):
            raise RuntimeError(f"sparse.mm: reduce argument must be either sum, mean, amax or amin, got {reduce!r}")
        if not isinstance(mat1, Sparse) or isinstance(mat2, Sparse):
            raise RuntimeError("sparse.mm: with `reduce`, mat1 must be sparse and mat2 strided")
        return _forms.reduced(mat1, mat2, reduce)
    if not isinstance(mat1, Sparse) and not isinstance(mat2, Sparse):
        return mat1.mm(mat2)
    return _forms.matmul(mat1, mat2)


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta mat + alpha (mat1 @ mat2), of a sparse mat1; differentiable in all three."""
    return _forms._addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None) -> Any:  # noqa: A002
    """alpha (mat1 @ mat2) + beta input at the places that the sparse matrix `input` specifies, without computing the others."""
    if not isinstance(input, Sparse):
        raise RuntimeError("sampled_addmm: Expected self to be a sparse CSR tensor")
    made = _forms.sampled(input, mat1, mat2, beta, alpha)
    return made if out is None else out._replace(made)


def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:  # noqa: A001, A002
    """The sum of the specified elements, or over some dimensions."""
    return _forms.total(input, dim, dtype=dtype)


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:  # noqa: A002
    """The softmax along `dim` over the specified elements: the others count as -inf."""
    return _forms.softmax(input if dtype is None else input.to(dtype), dim, False)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:  # noqa: A002
    """The logarithm of `softmax`."""
    return _forms.softmax(input if dtype is None else input.to(dtype), dim, True)


def spdiags(diagonals: Any, offsets: Any, shape: Any, layout: Any = None) -> Any:
    """The sparse matrix with the rows of `diagonals` as its diagonals at `offsets`; column j holds element j of each."""
    from .._core import ops
    o: Any = ops
    rows, columns, values = [], [], []
    for row, k in zip(diagonals.reshape(-1, diagonals.shape[-1]), offsets.reshape(-1).tolist(), strict=True):
        j = o.arange(max(k, 0), max(max(k, 0), min(shape[1], shape[0] + k, row.shape[0])), device=row.device)
        rows.append(j - k)
        columns.append(j)
        values.append(row[j])
    made = o.sparse_coo_tensor(o.stack([o.cat(rows), o.cat(columns)]), o.cat(values), tuple(shape)).coalesce()
    return made if layout is None else made.to_sparse(layout=layout)


def __getattr__(name: str) -> Any:
    if name.endswith("Tensor"):
        import importlib
        found = importlib.import_module(".legacy", __name__).TYPES.get(name)
        if found is not None:
            return found
    raise AttributeError(f"module 'flambeau.sparse' has no attribute {name!r}")

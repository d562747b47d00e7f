"""`grouped_mm`: products of groups of rows or columns with a matrix each, as mixtures of experts have them."""

from __future__ import annotations

from typing import Any

from ..._core import dtypes, ops
from ..._core.ops.checks import same_device

_ACCEPTED = (dtypes.float32, dtypes.bfloat16, dtypes.float16)


def grouped_mm(mat_a: Any, mat_b: Any, *, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Each group's part of `mat_a` times its part of `mat_b`.

    Args:
        mat_a, mat_b: of one of float32, bfloat16, float16; of two axes or three.  (G, M, K) @ (G, K, N) is `bmm`.
            (M, K) @ (G, K, N): rows of `mat_a` in groups, gives (M, N).  (G, M, K) @ (K, N): columns of `mat_b` in groups,
            gives (M, N).  (M, K) @ (K, N): the inner axis in groups, gives (G, M, N).
        offs: (G,) int32, where each group ends on the axis that is cut, rising; needed where an operand has two axes.  What lies past the
            last end belongs to no group: its results are zero.  The ends are read by the host, which waits for a GPU.
        bias: must be None.
        out_dtype: the type of the operands, or None.

    Raises RuntimeError for other types, shapes, or ends.
    """
    for name, t in (("mat_a", mat_a), ("mat_b", mat_b)):
        if t.dtype not in _ACCEPTED:
            raise RuntimeError(f"grouped_mm: Expected {name} to be Float32, BFloat16 or Float16 matrix, got {t.dtype}")
        if t.dim() not in (2, 3):
            raise RuntimeError(f"grouped_mm: {name} has to be 2 or 3d, got {t.dim()} axes")
    if mat_a.dtype is not mat_b.dtype:
        raise RuntimeError(f"grouped_mm: mat_a and mat_b must be of one type, got {mat_a.dtype} and {mat_b.dtype}")
    cut = mat_a.dim() == 2 or mat_b.dim() == 2
    if cut != (offs is not None):
        raise RuntimeError("grouped_mm: Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError(f"grouped_mm: contraction dimension of mat_a and mat_b must match, got {mat_a.shape[-1]} and {mat_b.shape[-2]}")
    if bias is not None:
        raise RuntimeError("grouped_mm: Bias not supported yet; add it to the result")
    if out_dtype is not None and out_dtype is not mat_a.dtype:
        raise RuntimeError(f"grouped_mm: Grouped gemm output dtype must match `mat_a` dtype, got {out_dtype} for {mat_a.dtype}")
    if not cut:
        return ops.bmm(mat_a, mat_b)
    same_device("grouped_mm", mat_a, mat_b)
    whole = mat_a if mat_a.dim() == 3 else mat_b if mat_b.dim() == 3 else None
    length = mat_b.shape[1] if mat_a.dim() == 3 else mat_a.shape[0] if mat_b.dim() == 3 else mat_a.shape[1]
    ends = _ends(offs, length, None if whole is None else whole.shape[0])
    sizes = [end - start for start, end in zip([0, *ends], ends)]
    rest = length - sum(sizes)
    if mat_a.dim() == 2 and mat_b.dim() == 2:
        if not sizes:
            return mat_a.new_empty((0, mat_a.shape[0], mat_b.shape[1]))
        return ops.stack([a @ b for a, b in zip(mat_a.split([*sizes, rest], 1)[:-1], mat_b.split([*sizes, rest], 0))])
    if mat_a.dim() == 2:
        parts = [a @ b for a, b in zip(mat_a.split([*sizes, rest], 0), mat_b.unbind(0))]
        return ops.cat([*parts, mat_a.new_zeros((rest, mat_b.shape[2]))], 0)
    parts = [a @ b for a, b in zip(mat_a.unbind(0), mat_b.split([*sizes, rest], 1))]
    return ops.cat([*parts, mat_a.new_zeros((mat_a.shape[1], rest))], 1)


def _ends(offs: Any, length: int, groups: int | None) -> list[int]:
    """Where the groups end."""
    if offs.dim() != 1 or offs.dtype is not dtypes.int32:
        raise RuntimeError(f"grouped_mm: Offsets have to be int32, of one axis; got {offs.dtype} of {offs.dim()} axes")
    if groups is not None and offs.shape[0] != groups:
        raise RuntimeError(f"grouped_mm: matrix batch sizes have to match: offs has {offs.shape[0]} groups, the matrices are {groups}")
    ends: list[int] = offs.tolist()
    if any(not start <= end <= length for start, end in zip([0, *ends], ends)):
        raise RuntimeError(f"grouped_mm: offs must rise from 0 to at most {length}, the length of the axis that is cut; got {ends}")
    return ends


def _grouped_mm(self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """`grouped_mm` by the name it had before."""
    return grouped_mm(self, mat2, offs=offs, bias=bias, out_dtype=out_dtype)

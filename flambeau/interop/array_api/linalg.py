"""The standard's linear algebra: the whole is `array_api.linalg`, and `CORE` of it are in the namespace itself."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from ..._core import ops
from ..._core.layout import broadcast_shapes
from ..._core.ops import table
from ..._core.ops.matmul import matmul as _matmul
from ..._core.tensor import Tensor
from .promotion import floating, together

CORE = "matmul matrix_transpose tensordot vecdot".split()
__all__ = [*CORE, "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matrix_norm", "matrix_power", "matrix_rank", "outer", "pinv",
           "qr", "slogdet", "solve", "svd", "svdvals", "trace", "vector_norm"]

_of = table.namespace("linalg")
_Eigh = namedtuple("EighResult", "eigenvalues eigenvectors")  # type: ignore[name-match]
_Qr = namedtuple("QRResult", "Q R")  # type: ignore[name-match]
_Slogdet = namedtuple("SlogdetResult", "sign logabsdet")  # type: ignore[name-match]
_Svd = namedtuple("SVDResult", "U S Vh")  # type: ignore[name-match]


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product."""
    return _matmul(*together(x1, x2))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return x.mT


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Products summed over axes of both."""
    return ops.tensordot(*together(x1, x2), dims=axes)  # type: ignore[no-any-return]


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Products of vectors along an axis, the first conjugated; the other axes broadcast."""
    x1, x2 = together(x1, x2)
    if not -min(len(x1.meta.shape), len(x2.meta.shape)) <= axis < 0:
        raise IndexError(f"vecdot: axis {axis} is not a negative one that both arrays have")
    if x1.meta.shape[axis] != x2.meta.shape[axis]:
        raise ValueError(f"vecdot: x1 has {x1.meta.shape[axis]} elements along axis {axis}, x2 {x2.meta.shape[axis]}")
    first = ops.conj_physical(x1) if x1.meta.dtype.is_complex else x1
    return ops.sum(first * x2, axis, dtype=x1.meta.dtype)  # type: ignore[no-any-return]


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of positive definite matrices."""
    return _of["cholesky"](x, upper=upper)  # type: ignore[no-any-return]


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three."""
    x1, x2 = together(x1, x2)
    if not -min(len(x1.meta.shape), len(x2.meta.shape)) <= axis < 0:
        raise IndexError(f"cross: axis {axis} is not a negative one that both arrays have")
    return _of["cross"](*ops.broadcast_tensors(x1, x2), dim=axis)  # type: ignore[no-any-return]


def det(x: Tensor, /) -> Tensor:
    """Determinants."""
    return _of["det"](x)  # type: ignore[no-any-return]


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices."""
    return ops.diagonal(x, offset, -2, -1)  # type: ignore[no-any-return]


def eigh(x: Tensor, /) -> Any:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    return _Eigh(*_of["eigh"](x))


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of Hermitian matrices."""
    return _of["eigvalsh"](x)  # type: ignore[no-any-return]


def inv(x: Tensor, /) -> Tensor:
    """Inverses."""
    return _of["inv"](x)  # type: ignore[no-any-return]


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:  # noqa: A002
    """Norms of matrices."""
    return _of["matrix_norm"](x, ord, keepdim=keepdims)  # type: ignore[no-any-return]


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Powers of square matrices."""
    return _of["matrix_power"](x, n)  # type: ignore[no-any-return]


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are above rtol times the greatest."""
    return _of["matrix_rank"](x, rtol=rtol)  # type: ignore[no-any-return]


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of two vectors' elements."""
    return ops.outer(*together(x1, x2))  # type: ignore[no-any-return]


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """Pseudo-inverses."""
    return _of["pinv"](x, rtol=rtol)  # type: ignore[no-any-return]


def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """The factors Q and R."""
    return _Qr(*_of["qr"](x, mode=mode))


def slogdet(x: Tensor, /) -> Any:
    """Sign and logarithm of determinants."""
    return _Slogdet(*_of["slogdet"](x))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """What x1 must be multiplied by to give x2: a vector only where x2 has one axis."""
    x1, x2 = together(x1, x2)
    if len(x2.meta.shape) == 1:
        return _of["solve"](x1, x2.unsqueeze(-1).expand(*x1.meta.shape[:-1], 1)).squeeze(-1)  # type: ignore[no-any-return]
    lead = broadcast_shapes(tuple(x1.meta.shape[:-2]), tuple(x2.meta.shape[:-2]))
    x1, x2 = x1.expand(*lead, *x1.meta.shape[-2:]), x2.expand(*lead, *x2.meta.shape[-2:])
    return _of["solve"](x1, x2)  # type: ignore[no-any-return]


def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    """The singular value decomposition."""
    return _Svd(*_of["svd"](x, full_matrices=full_matrices))


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values."""
    return _of["svdvals"](x)  # type: ignore[no-any-return]


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sums of diagonals."""
    return ops.sum(ops.diagonal(x, offset, -2, -1), -1, dtype=dtype or floating(x.meta.dtype))  # type: ignore[no-any-return]


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:  # noqa: A002
    """Norms over axes, all by default."""
    if axis == ():
        size: Tensor = abs(x)
        return size if ord != 0 else (x != 0).to(size.meta.dtype)
    return _of["vector_norm"](x, ord, dim=axis, keepdim=keepdims)  # type: ignore[no-any-return]

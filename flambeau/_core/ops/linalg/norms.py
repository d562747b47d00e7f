"""Norms of matrices and condition numbers."""

from __future__ import annotations

from typing import Any

from ...engine.fields import has
from ...layout import wrap_dim
from ...tensor import Tensor
from ..casts import to_dtype
from ..norms import vector_norm
from ..table import op
from . import matrices
from .singular import values_of
from .solving import inverted

_INF = float("inf")


def _typed(name: str, t: Tensor, dtype: Any) -> Tensor:
    if dtype is None:
        return t
    if dtype.kind not in "fc" or (t.meta.dtype.is_complex and not dtype.is_complex) or (dtype.is_complex and not t.meta.dtype.is_complex):
        kind = "complex" if t.meta.dtype.is_complex else "real"
        raise RuntimeError(f"{name}: dtype should be {'floating point or complex' if dtype.kind not in 'fc' else kind}, but got {dtype}")
    if dtype.itemsize < t.meta.dtype.itemsize:
        raise RuntimeError(f"{name}: the dtype of the input ({t.meta.dtype}) should be convertible without narrowing to the specified dtype ({dtype})")
    return to_dtype(t, dtype)


def _two(name: str, dim: Any, ndim: int) -> tuple[int, int]:
    axes = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    if len(axes) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {' '.join(str(a) for a in axes)}")
    first, second = (wrap_dim(a, ndim) for a in axes)
    if first == second:
        raise RuntimeError(f"{name}: dims must be different. Got ({axes[0]}, {axes[1]})")
    return first, second


def _spread(t: Tensor, axes: tuple[int, int], keepdim: bool) -> Tensor:
    if keepdim:
        for a in sorted(axes):
            t = t.unsqueeze(a)
    return t


@op(method=False, out=True, spaces=("linalg",), autocast="cuda full")
def matrix_norm(input: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A002
    """The norm of the matrices along two axes: "fro" (root of the sum of squares), "nuc" (sum of the singular values), 2 and -2
    (largest and smallest singular value), 1 and -1 (of the columns' sums), inf and -inf (of the rows' sums)."""
    name = "linalg.matrix_norm"
    matrices.numeric(name, input, low=True)
    if len(input.meta.shape) < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    axes = _two(name, dim, len(input.meta.shape))
    if isinstance(ord, str):
        if ord not in ("fro", "nuc"):
            raise RuntimeError(f"{name}: Order {ord} not supported.")
    elif abs(ord) not in (1, 2, _INF):
        raise RuntimeError(f"{name}: Order {ord} not supported.")
    x = _typed(name, input, dtype)
    if ord == "fro" or not x.meta.numel:  # of an empty matrix every norm is 0
        return vector_norm(x, 2, list(axes), keepdim)
    if ord == "nuc" or abs(ord) == 2:
        matrices.numeric(name, x)
        s = values_of(name, x.movedim(axes, (-2, -1)))
        if ord == "nuc":
            return _spread(s.sum(-1), axes, keepdim)
        return _spread(s.amax(-1) if ord > 0 else s.amin(-1), axes, keepdim)  # ties share the gradient
    sums, other = axes if abs(ord) == 1 else axes[::-1]
    total = vector_norm(x, 1, sums, keepdim)
    if not keepdim and other > sums:
        other -= 1
    most: Tensor = total.amax(other, keepdim) if ord > 0 else total.amin(other, keepdim)
    return most


@op(method=False, out=True, spaces=("linalg",), name="norm", autocast="cuda full", batch="along all")
def linalg_norm(input: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A002
    """`vector_norm` or `matrix_norm`, by what is asked: of all elements when neither `ord` nor `dim` is given, of matrices when `ord` is
    a word or `dim` (or, without it, the tensor) has two axes, else of vectors."""
    name = "linalg.norm"
    matrices.numeric(name, input, low=True)
    if dim is not None:
        axes = list(dim) if isinstance(dim, (tuple, list)) else [dim]
        if len(axes) not in (1, 2):
            raise RuntimeError(f"{name}: If dim is specified, it must be of length 1 or 2. Got {axes}")
    elif ord is not None and len(input.meta.shape) not in (1, 2):
        raise RuntimeError(f"{name}: If dim is not specified but ord is, the input must be 1D or 2D. Got {len(input.meta.shape)}D.")
    else:
        axes = list(range(len(input.meta.shape)))
    if isinstance(ord, str) or (ord is not None and len(axes) == 2):
        return matrix_norm(input, ord, axes if dim is not None else (-2, -1), keepdim, dtype=dtype)
    x = _typed(name, input, dtype)
    if dim is None and ord is None:
        return vector_norm(x, 2, None, keepdim)
    return vector_norm(x, 2 if ord is None else ord, axes, keepdim)


@op(method=False, out=True, spaces=("linalg",), batch="trailing", out_type="castable")
def cond(input: Tensor, p: Any = None) -> Tensor:  # noqa: A002
    """The condition number of A = `input` (..., m, n) in a matrix norm: the ratio of the extreme singular values by default (p None or 2; -2 turns
    it over), else |A| |A^-1| for square A; a singular matrix has inf."""
    name = "linalg.cond"
    matrices.matrix(name, input)
    if p is None or (not isinstance(p, str) and abs(p) == 2):
        s = values_of(name, input)
        if not s.meta.shape[-1]:
            nothing: Tensor = s.sum(-1)
            return nothing
        large, small = s.select(-1, 0), s.select(-1, s.meta.shape[-1] - 1)
        ratio: Tensor = small / large if p is not None and p < 0 else large / small
        return ratio
    matrices.square(name, input)
    if isinstance(p, str) and p not in ("fro", "nuc") or not isinstance(p, str) and abs(p) not in (1, _INF):
        raise RuntimeError(f"{name} got an invalid norm type: {p}")
    if not input.meta.numel:
        return vector_norm(input, 2, [-2, -1])
    inverse, info = inverted(input)
    found: Tensor = matrix_norm(input, p) * matrix_norm(inverse, p)
    made: Tensor = found.masked_fill(info != 0, _INF)
    return made

has("linalg.norm", batch="composite")

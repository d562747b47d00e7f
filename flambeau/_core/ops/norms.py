"""Norms of what is reduced: a formula for each power."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .. import dtypes, layout
from ..engine.fields import has
from ..kernels import expr as E
from ..kernels import formulas as F
from ..kernels.schedule import schedule
from ..tensor import Tensor
from .casts import to_dtype
from .reductions import axes_of
from .row_places import Places, along, elements, row_values
from .rowwise import Rowwise
from .table import op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtypes import dtype
    from ..kernels.programs import Reduce


def length(x: E.Expr, p: float, axes: str = "c") -> E.Expr:
    """The p-norm of the values along `axes`."""
    if p == 2:
        return F.safe_sqrt(F.total(_square(x), axes))
    size = abs(x)
    if math.isinf(p):
        return F.fold("max" if p > 0 else "min", size, axes)
    if p == 0:
        return F.total(E.cast(size != 0.0, size.dtype), axes)
    if p == 1:
        return F.total(size, axes)
    return F.ruled(E.pow_(F.total(E.pow_(size, p), axes), 1.0 / p), (size if x.dtype.is_complex else x,), _slope(p))


def _square(x: E.Expr) -> E.Expr:
    """|x| squared. A complex number with an infinite part is infinite, its other part may be no number."""
    square = F.squared_size(x)
    if not x.dtype.is_complex:
        return square
    re, im = E.real(x), E.imag(x)
    endless = (abs(re) == float("inf")) | (abs(im) == float("inf"))
    return F.ruled(E.where(endless, E.const(float("inf"), square.dtype), square), (re, im), _parts)


def _parts(g: E.Expr, square: E.Expr, re: E.Expr, im: E.Expr) -> tuple[E.Expr, E.Expr]:
    twice = g * 2.0
    return twice * re, twice * im


@lru_cache
def _slope(p: float) -> Callable[..., Any]:
    """The gradient of (sum of |x|^p)^(1/p) at x, sign(x) (|x| / length)^(p - 1); 0 where that is not known."""
    def rule(g: E.Expr, y: E.Expr, x: E.Expr) -> tuple[E.Expr]:
        zero, one, size = E.const(0, y.dtype), E.const(1, y.dtype), abs(x)
        scale = E.where(y == zero, zero, g / E.pow_(E.where(y == zero, one, y), p - 1.0))
        body = E.pow_(size, p - 1.0) if p > 1 else E.where(size == zero, zero, E.pow_(E.where(size == zero, one, size), p - 1.0))
        return (E.where(x < zero, -body, body) * scale,)
    return rule


def _norm(x: E.Expr, p: float) -> Any:
    made = length(x, p)
    return (made,), (made,)


def _bounded(x: E.Expr, p: float, eps: E.Expr) -> tuple[E.Expr, E.Expr]:
    """x over its p-norm, or over eps where that is larger; and the norm."""
    n = length(x, p)
    return x / E.where(n < eps, eps, n), n


def _normalize(x: E.Expr, eps: E.Expr, p: float) -> Any:
    made, n = _bounded(x, p, eps)
    return (made,), (n,)


def _cosine(x: E.Expr, y: E.Expr, eps: E.Expr) -> Any:
    # each side is divided by its norm before they are multiplied, so that products of long vectors do not overflow
    (a, far), (b, wide) = _bounded(x, 2.0, eps), _bounded(y, 2.0, eps)
    return (F.total(a * b, "c"),), (far, wide)


def _pairs(metas: Sequence[Any], axes: tuple[int, ...]) -> Places:
    sizes, whole, short = along(metas[0].shape, axes)
    return Places(sizes, (whole, whole), (short,))


NORM = Rowwise("norm", "rc -> r", _norm, row_values, grad_name="LinalgVectorNormBackward0")
NORMALIZE = Rowwise("normalize", "rc -> rc", _normalize, elements, numbers="f", like="dense")
COSINE = Rowwise("cosine_similarity", "rc, rc -> r", _cosine, _pairs, numbers="f")


def norm_program(d: dtype, p: float, result: dtype) -> Reduce:
    """The p-norm of all elements as a loop program."""
    x = F.operand(0, d, "c")
    wide = E.cast(x, result.opmath if d.kind != "c" else d.opmath)
    (step,) = schedule((E.cast(length(wide, p), result),), ("",), "c").steps
    program: Any = step.program
    return program  # type: ignore[no-any-return]


@op(method=False, out=True, spaces=("linalg",), autocast="cuda full", batch="along all")
def vector_norm(input: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A002
    """The p-norm of the elements along `dim`, all of them as one vector by default."""
    if input.meta.dtype.kind not in "fc":
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {dtypes.title(input.meta.dtype)}")
    axes = axes_of(input, dim)
    p = float(ord)
    if dtype is not None:
        kinds = "fc" if input.meta.dtype.is_complex else "f"
        if dtype.kind not in "fc":
            raise RuntimeError(f"linalg.vector_norm: dtype should be floating point or complex, but got {dtypes.title(dtype)}")
        if dtype.kind not in kinds or input.meta.dtype.is_complex and not dtype.is_complex:
            raise RuntimeError(f"linalg.vector_norm: dtype should be {'complex' if input.meta.dtype.is_complex else 'real'} for "
                               f"{'complex' if input.meta.dtype.is_complex else 'real'} inputs, but got {dtypes.title(dtype)}")
        input = to_dtype(input, dtype)  # noqa: A001
    _not_empty(input, p, axes)
    return NORM((input,), where=(axes, keepdim), consts=(("p", p),))[0]


def _not_empty(t: Tensor, p: float, axes: tuple[int, ...]) -> None:
    if (p < 0 or p == math.inf) and layout.numel([t.meta.shape[a] for a in axes]) == 0:
        raise RuntimeError(f"linalg.vector_norm cannot compute the {p} norm on an empty tensor because the operation does not have an "
                           "identity")


@op(out=True, autocast="cuda full", batch="along all")
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:  # noqa: A002
    """The p-norm over `dim`; "fro" is the 2-norm, "nuc" the sum of singular values."""
    if p == "nuc":
        from .linalg.singular import values_of
        if dtype is not None:
            input = to_dtype(input, dtype)  # noqa: A001
        axes = layout.wrap_dims((-2, -1) if dim is None else dim, len(input.meta.shape))
        if len(axes) != 2:
            raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {list(axes)}")
        values: Tensor = values_of("linalg.svd", input.movedim(axes, (-2, -1))).sum(-1)
        for axis in sorted(axes) if keepdim else ():
            values = values.unsqueeze(axis)
        return values
    if dtype is not None:
        input = to_dtype(input, dtype)  # noqa: A001
    _has_norm(input)
    return vector_norm(input, 2.0 if p in ("fro", None) else p, dim, keepdim)


def _has_norm(t: Tensor) -> None:
    if t.meta.dtype.kind not in "fc":
        raise RuntimeError(f"norm(): input dtype should be either floating point or complex. Got {dtypes.title(t.meta.dtype)} instead.")


def normalize(input: Tensor, p: float, dim: Any, eps: float) -> Tensor:  # noqa: A002
    """input / max(norm, eps), the p-norm along `dim`."""
    _has_norm(input)
    axes = axes_of(input, dim)
    _not_empty(input, float(p), axes)
    return NORMALIZE((input,), (float(eps),), (axes,), (("p", float(p)),))[0]


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int, eps: float) -> Tensor:
    """The cosine of the angle between vectors of two tensors of one shape and type, lying along `dim`."""
    return COSINE((x1, x2), (float(eps),), (axes_of(x1, dim),))[0]


@op(autocast="cuda full")
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:  # noqa: A002
    """The p-norm of input - other."""
    return norm(input - other, p)

has("dist", batch="composite")

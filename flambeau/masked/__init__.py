"""Reductions and normalizations over the elements that a mask selects (torch.masked).

`mask` is a bool tensor that broadcasts to the input, True where an element counts; None: all count.  What no element
of counts for gives the operation's neutral value (NaN for a mean).  `dtype` is the type computed in.
"""

from __future__ import annotations

import math
from typing import Any

from .._core import dtypes, ops
from .._core.tensor import Tensor

_ops: Any = ops


def _ready(input: Any, dtype: Any, mask: Any) -> tuple[Any, Any]:
    """The input in its type and the mask at its shape."""
    x = input if dtype is None or input.meta.dtype is dtype else input.to(dtype)
    if mask is None:
        return x, None
    if mask.meta.dtype is not dtypes.bool_:
        mask = mask.to(dtypes.bool_)
    if len(mask.meta.shape) > len(x.meta.shape):
        raise IndexError(f"_input_mask expected broadcastable mask (got mask dimensionality {len(mask.meta.shape)} higher than of the input "
                         f"dimensionality {len(x.meta.shape)})")
    return x, mask.expand(x.meta.shape)


def _filled(x: Any, mask: Any, value: Any) -> Any:
    return x if mask is None else _ops.where(mask, x, _ops.full((), value, dtype=x.meta.dtype, device=x.meta.device))


def _lowest(d: Any, highest: bool = False) -> Any:
    if d.kind == "f":
        return math.inf if highest else -math.inf
    if d.kind == "b":
        return highest
    info = dtypes.iinfo(d)
    return info.max if highest else info.min


def _dims(x: Any, dim: Any) -> tuple[int, ...]:
    n = len(x.meta.shape)
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(n))
    wanted = (dim,) if isinstance(dim, int) else tuple(dim)
    for d in wanted:
        if not -max(n, 1) <= d < max(n, 1):
            raise IndexError(f"Dimension out of range (expected to be in range of [{-max(n, 1)}, {max(n, 1) - 1}], but got {d})")
    return tuple(d % n for d in wanted) if n else ()


def _wide(input: Any, dtype: Any) -> Any:
    if dtype is not None:
        return dtype
    return dtypes.int64 if input.meta.dtype.kind in "bui" else input.meta.dtype


def sum(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A001, A002
    """The sum; 0 where nothing counts."""
    x, m = _ready(input, _wide(input, dtype), mask)
    made: Tensor = _ops.sum(_filled(x, m, 0), _dims(x, dim), bool(keepdim))
    return made


def prod(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """The product; 1 where nothing counts."""
    x, m = _ready(input, _wide(input, dtype), mask)
    found = _filled(x, m, 1)
    for d in sorted(set(_dims(x, dim)), reverse=True):
        found = _ops.prod(found, d, bool(keepdim))
    made: Tensor = found
    return made


def amax(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """The largest; the lowest value of the type where nothing counts."""
    x, m = _ready(input, dtype, mask)
    made: Tensor = _ops.amax(_filled(x, m, _lowest(x.meta.dtype)), _dims(x, dim), bool(keepdim))
    return made


def amin(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """The smallest; the highest value of the type where nothing counts."""
    x, m = _ready(input, dtype, mask)
    made: Tensor = _ops.amin(_filled(x, m, _lowest(x.meta.dtype, True)), _dims(x, dim), bool(keepdim))
    return made


def argmax(input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """Where the largest is, as a number of the input's type (or `dtype`)."""
    x, m = _ready(input, dtype, mask)
    made: Tensor = _ops.argmax(_filled(x, m, _lowest(x.meta.dtype)), dim, bool(keepdim)).to(x.meta.dtype)
    return made


def argmin(input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """Where the smallest is, as a number of the input's type (or `dtype`)."""
    x, m = _ready(input, dtype, mask)
    made: Tensor = _ops.argmin(_filled(x, m, _lowest(x.meta.dtype, True)), dim, bool(keepdim)).to(x.meta.dtype)
    return made


def _count(x: Any, m: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    kind = x.meta.dtype.to_real() if x.meta.dtype.is_complex else x.meta.dtype
    if m is None:
        return float(math.prod(x.meta.shape[d] for d in dims))
    return _ops.sum(m.to(dtypes.int64), dims, keepdim).to(kind)


def mean(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """The arithmetic mean; NaN where nothing counts.  Raises ValueError for integers without dtype."""
    x, m = _ready(input, dtype, mask)
    if x.meta.dtype.kind not in "fc":
        raise ValueError("input type unsupported for masked mean" if x.meta.dtype.kind == "b" else
                         "mean input should be floating or complex")
    dims = _dims(x, dim)
    made: Tensor = _ops.sum(_filled(x, m, 0), dims, bool(keepdim)) / _count(x, m, dims, bool(keepdim))
    return made


def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """The lower median; NaN where nothing counts."""
    x, m = _ready(input, dtype, mask)
    if not x.meta.dtype.is_floating_point:
        raise ValueError("input tensor does not support masked median: expected a floating type")
    found: Tensor = _ops.nanmedian(_filled(x, m, math.nan), dim, keepdim).values
    return found


def norm(input: Tensor, ord: float | None = 2.0, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,  # noqa: A002
         mask: Tensor | None = None) -> Tensor:
    """The vector norm of order `ord`."""
    x, m = _ready(input, dtype, mask)
    order = 2.0 if ord is None else float(ord)
    from .. import linalg
    norms: Any = linalg
    made: Tensor = norms.vector_norm(_filled(x, m, math.inf if order == -math.inf else 0), order, _dims(x, dim), bool(keepdim))
    return made


def var(input: Tensor, dim: Any = None, unbiased: bool | None = None, *, correction: float | None = None, keepdim: bool | None = False,  # noqa: A002
        dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The variance, with n - correction in the denominator (1, or 0 for unbiased=False)."""
    x, m = _ready(input, dtype if dtype is not None or input.meta.dtype.kind in "fc" else dtypes.get_default_dtype(), mask)
    if unbiased is not None and correction is not None:
        raise ValueError("Only one of unbiased and correction may be given")
    less = (1 if unbiased is None or unbiased else 0) if correction is None else correction
    dims = _dims(x, dim)
    n = _count(x, m, dims, True)
    middle = _ops.sum(_filled(x, m, 0), dims, True) / n
    gap = _filled(x - middle, m, 0)
    square = gap * gap.conj_physical() if x.meta.dtype.is_complex else gap * gap
    total = _ops.sum(square, dims, bool(keepdim))
    count = n if not isinstance(n, Tensor) else n.reshape(total.meta.shape)
    rest = count - less
    made: Tensor = total / (max(rest, 0.0) if not isinstance(rest, Tensor) else rest.clamp(min=0))
    return made


def std(input: Tensor, dim: Any = None, unbiased: bool | None = None, *, correction: int | None = None, keepdim: bool | None = False,  # noqa: A002
        dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The square root of `var`."""
    made: Tensor = _ops.sqrt(var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask))
    return made


def logsumexp(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """log of the sum of exponentials; -inf where nothing counts."""
    x, m = _ready(input, dtype, mask)
    made: Tensor = _ops.logsumexp(_filled(x, m, _lowest(x.meta.dtype) if x.meta.dtype.kind in "ui" else -math.inf), _dims(x, dim), bool(keepdim))
    if x.meta.dtype.kind in "ui":
        return made.to(x.meta.dtype)
    return made


def logaddexp(input: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Tensor | None = None, other_mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """log(exp(input) + exp(other)), of what counts in each."""
    x, m = _ready(input, dtype, input_mask)
    y, k = _ready(other, dtype, other_mask)
    made: Tensor = _ops.logaddexp(_filled(x, m, -math.inf), _filled(y, k, -math.inf))
    return made


def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """Running sums of what counts."""
    x, m = _ready(input, _wide(input, dtype), mask)
    made: Tensor = _ops.cumsum(_filled(x, m, 0), dim)
    return made


def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """Running products of what counts."""
    x, m = _ready(input, _wide(input, dtype), mask)
    made: Tensor = _ops.cumprod(_filled(x, m, 1), dim)
    return made


def softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """The softmax over what counts; NaN in a row where nothing does."""
    x, m = _ready(input, dtype, mask)
    made: Tensor = _filled(x, m, -math.inf).softmax(dim)
    return made


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """The logarithm of `softmax`."""
    x, m = _ready(input, dtype, mask)
    made: Tensor = _filled(x, m, -math.inf).log_softmax(dim)
    return made


def softmin(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """`softmax` of the opposite."""
    x, m = _ready(input, dtype, mask)
    made: Tensor = (-_filled(x, m, math.inf)).softmax(dim)
    return made


def normalize(input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    """The input over its norm along `dim`, at least eps."""
    x, m = _ready(input, dtype, mask)
    size = norm(x, ord, dim, keepdim=True, mask=mask)
    made: Tensor = _filled(x, m, 0) / size.clamp(min=eps)
    return made


__all__ = [n for n in list(globals()) if not n.startswith("_") and n not in ("annotations", "math", "Any", "builtins", "dtypes", "ops", "Tensor")]

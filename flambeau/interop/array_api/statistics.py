"""Over axes: the standard's statistical and utility functions."""

from __future__ import annotations

from typing import Any

from ..._core import ops
from ..._core.tensor import Tensor
from .promotion import axes, floating

NAMES = "cumulative_prod cumulative_sum max mean min prod std sum var all any diff".split()


def _cumulative(f: Any, start: int, x: Tensor, axis: int | None, dtype: Any, include_initial: bool) -> Tensor:
    if axis is None:
        if len(x.meta.shape) != 1:
            raise ValueError(f"axis must be given for an array of {len(x.meta.shape)} axes")
        axis = 0
    made: Tensor = f(x, axis, dtype=dtype or floating(x.meta.dtype))
    if include_initial:
        shape = list(made.meta.shape)
        shape[axis] = 1
        made = ops.cat([ops.full(shape, start, dtype=made.meta.dtype, device=made.meta.device), made], axis)
    return made


def cumulative_prod(x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """Products of the elements so far, with 1 before them where include_initial."""
    return _cumulative(ops.cumprod, 1, x, axis, dtype, include_initial)


def cumulative_sum(x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """Sums of the elements so far, with 0 before them where include_initial."""
    return _cumulative(ops.cumsum, 0, x, axis, dtype, include_initial)


def max(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:  # noqa: A001 (the standard's names)
    """The greatest element."""
    places = axes(axis, x)
    return ops.amax(x, places, keepdims) if places else x.clone()


def min(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """The least element."""
    places = axes(axis, x)
    return ops.amin(x, places, keepdims) if places else x.clone()


def mean(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The mean."""
    places = axes(axis, x)
    return ops.mean(x, places, keepdims) if places else x.clone()


def sum(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """The sum; integers are added in the widest type of their kind."""
    places, d = axes(axis, x), dtype or floating(x.meta.dtype)
    return ops.sum(x, places, keepdims, dtype=d) if places else x.to(d, copy=True)


def prod(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product; integers are multiplied in the widest type of their kind."""
    made = x.to(dtype or floating(x.meta.dtype), copy=True)
    for a in sorted(axes(axis, x), reverse=True):
        made = ops.prod(made, a, keepdims, dtype=made.meta.dtype)
    return made


def var(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance, with `correction` taken off the number of elements."""
    places = axes(axis, x)
    return ops.var(x, places, correction=correction, keepdim=keepdims) if places else _none(x, correction)


def std(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation, with `correction` taken off the number of elements."""
    places = axes(axis, x)
    return ops.std(x, places, correction=correction, keepdim=keepdims) if places else _none(x, correction)


def _none(x: Tensor, correction: float) -> Tensor:
    """The spread of single elements."""
    made: Tensor = x - x
    return made if correction < 1 else made / 0


def all(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """Whether all elements are other than zero."""
    made: Tensor = x != 0
    for a in sorted(axes(axis, x), reverse=True):
        made = ops.all(made, a, keepdims)
    return made


def any(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """Whether an element is other than zero."""
    made: Tensor = x != 0
    for a in sorted(axes(axis, x), reverse=True):
        made = ops.any(made, a, keepdims)
    return made


def diff(x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """Differences between neighbours along an axis, n times."""
    return ops.diff(x, n, axis, prepend, append)  # type: ignore[no-any-return]

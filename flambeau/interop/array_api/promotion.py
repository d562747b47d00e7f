"""The standard's promotion, which looks at types only: a zero-dim array counts as any other."""

from __future__ import annotations

from typing import Any

from ..._core import dtypes
from ..._core.tensor import Tensor


def promote(a: dtypes.dtype, b: dtypes.dtype) -> dtypes.dtype:
    """The standard's common type of two; where it has none, PyTorch's.  Raises RuntimeError when that has none either."""
    if a is not b and {a.kind, b.kind} <= {"u", "i"}:
        if a.kind == b.kind:
            return a if a.itemsize > b.itemsize else b
        unsigned, signed = (a, b) if a.kind == "u" else (b, a)
        found = dtypes.BY_NAME.get(f"int{8 * max(2 * unsigned.itemsize, signed.itemsize)}")
        if found is not None:
            return found
    return dtypes.promote_types(a, b)


def together(*xs: Any) -> tuple[Any, ...]:
    """The arrays in their common type; Python numbers become arrays of the type of the arrays beside them."""
    arrays = [x for x in xs if isinstance(x, Tensor)]
    if not arrays:
        raise TypeError("at least one operand must be an array, got " + ", ".join(type(x).__name__ for x in xs))
    common = arrays[0].meta.dtype
    for x in arrays[1:]:
        common = promote(common, x.meta.dtype)
    return tuple(x.to(common) if isinstance(x, Tensor) else number(x, common, arrays[0]) for x in xs)


def number(x: Any, common: dtypes.dtype, like: Tensor) -> Any:
    """A Python number as a zero-dim array.  Raises TypeError when its kind is above that of the arrays."""
    kinds = "buifc" if isinstance(x, bool) else "uifc" if isinstance(x, int) else "fc" if isinstance(x, float) else "c"
    if common.kind not in kinds or not isinstance(x, (bool, int, float, complex)):
        raise TypeError(f"a Python {type(x).__name__} cannot be combined with an array of {common}")
    from ..._core.ops.creation import tensor
    return tensor(x, dtype=common, device=like.meta.device)


def floating(d: dtypes.dtype, like: Tensor | None = None) -> dtypes.dtype:
    """The type of sums: integers become the widest of their kind."""
    if d.kind == "u":
        return dtypes.uint64
    return dtypes.int64 if d.kind in "bi" else d


def axes(axis: Any, x: Tensor) -> tuple[int, ...]:
    """Axes as a tuple; None means all."""
    from ..._core.layout import wrap_dim
    n = len(x.meta.shape)
    if axis is None:
        return tuple(range(n))
    found = (axis,) if hasattr(axis, "__index__") else tuple(axis)
    return tuple(wrap_dim(int(a), n, False) for a in found)

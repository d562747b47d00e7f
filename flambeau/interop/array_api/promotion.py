"""The standard's promotion, which looks at types only: a zero-dim array counts as any other."""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...tensor import Tensor


def together(*xs: Any) -> tuple[Any, ...]:
    """The arrays in their common type; Python numbers become arrays of the type of the arrays beside them."""
    arrays = [x for x in xs if isinstance(x, Tensor)]
    if not arrays:
        raise TypeError("at least one operand must be an array, got " + ", ".join(type(x).__name__ for x in xs))
    common = arrays[0].m.dtype
    for x in arrays[1:]:
        common = dtypes.promote_types(common, x.m.dtype)
    return tuple(x.to(common) if isinstance(x, Tensor) else number(x, common, arrays[0]) for x in xs)


def number(x: Any, common: dtypes.dtype, like: Tensor) -> Any:
    """A Python number as a zero-dim array.  Raises TypeError when its kind is above that of the arrays."""
    kinds = "buifc" if isinstance(x, bool) else "uifc" if isinstance(x, int) else "fc" if isinstance(x, float) else "c"
    if common.kind not in kinds or not isinstance(x, (bool, int, float, complex)):
        raise TypeError(f"a Python {type(x).__name__} cannot be combined with an array of {common}")
    from ... import ops
    return ops.tensor(x, dtype=common, device=like.m.device)


def floating(d: dtypes.dtype, like: Tensor | None = None) -> dtypes.dtype:
    """The type of sums: integers become the widest of their kind."""
    if d.kind == "u":
        return dtypes.uint64
    return dtypes.int64 if d.kind in "bi" else d


def axes(axis: Any, x: Tensor) -> tuple[int, ...]:
    """Axes as a tuple; None means all."""
    from ... import layout
    n = len(x.m.shape)
    if axis is None:
        return tuple(range(n))
    found = (axis,) if hasattr(axis, "__index__") else tuple(axis)
    return tuple(layout.wrap_dim(int(a), n, False) for a in found)

"""How losses are reduced."""

from __future__ import annotations

from typing import Any

from ..._core.errors import warn
from ..._core.ops.map_reduce import fold


def legacy_reduction(size_average: bool | None, reduce: bool | None) -> str:
    """The `reduction` that the two old arguments mean."""

    size_average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    name = "none" if not reduce else "mean" if size_average else "sum"
    warn(f"size_average and reduce args will be deprecated, please use reduction='{name}' instead.")
    return name


def chosen(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction a loss was called with, by its new or its old arguments."""
    if size_average is None and reduce is None:
        return reduction
    return legacy_reduction(size_average, reduce)


def reduced(loss: Any, reduction: str) -> Any:
    """The mean, the sum or all of `loss`. Raises ValueError for another reduction."""
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    raise ValueError(f"{reduction} is not a valid value for reduction; it must be 'none', 'mean' or 'sum'")


def folded(op: Any, operands: tuple[Any, ...], reduction: str, numbers: tuple[float, ...] = ()) -> Any:
    """`reduced` of a pointwise formula, in one kernel."""
    if reduction == "mean" or reduction == "sum":
        return fold(op, operands, reduction, numbers)
    return reduced(op(operands, numbers), reduction)

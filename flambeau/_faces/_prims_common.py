"""A few questions about layouts and types (torch._prims_common)."""

from __future__ import annotations

from typing import Any


def is_contiguous(a: Any, *args: Any) -> bool:
    """Whether the elements lie one after another in memory."""
    return bool(a.is_contiguous())


is_contiguous_or_false = is_contiguous


def is_float_dtype(dtype: Any) -> bool:
    """Whether it is a floating type."""
    return bool(dtype.is_floating_point)


def is_integer_dtype(dtype: Any) -> bool:
    """Whether it is an integer type; bool is none."""
    return dtype.kind in "ui"


__all__ = ["is_contiguous", "is_contiguous_or_false", "is_float_dtype", "is_integer_dtype"]

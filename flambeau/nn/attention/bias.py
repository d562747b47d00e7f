"""Causal masks for queries and keys of different lengths (torch.nn.attention.bias)."""

from __future__ import annotations

from typing import Any

from ..._core import ops as _ops
from ..._core.dtypes import bool_

ops: Any = _ops

__all__ = ["causal_lower_right", "causal_upper_left"]


def causal_upper_left(*size: int) -> Any:
    """The booleans (L, S) of a causal mask whose corner is that of the first query and the first key."""
    return _mask(size, 0)


def causal_lower_right(*size: int) -> Any:
    """The booleans (L, S) of a causal mask whose corner is that of the last query and the last key."""
    return _mask(size, None)


def _mask(size: tuple[int, ...], shift: int | None) -> Any:
    if len(size) != 2:
        raise ValueError(f"a causal mask takes two sizes, got {size}")
    rows, columns = size
    return ops.ones(rows, columns, dtype=bool_).tril(columns - rows if shift is None else shift)

"""One number or one for each spatial dimension: how layers take kernel sizes, strides and paddings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .state import consume_prefix_in_state_dict_if_present as consume_prefix_in_state_dict_if_present  # PyTorch's torch.nn.modules.utils has both


def ntuple(value: Any, n: int) -> tuple[Any, ...]:
    """`value` n times if it is one number, else its items."""
    return tuple(value) if isinstance(value, Iterable) else (value,) * n


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function of this name that gives one number n times and leaves other items as they are; libraries make sizes of their own with it."""
    def parse(value: Any) -> tuple[Any, ...]:
        return ntuple(value, n)
    parse.__name__ = name
    return parse


def _single(value: Any) -> tuple[Any, ...]:
    return ntuple(value, 1)


def _pair(value: Any) -> tuple[Any, ...]:
    return ntuple(value, 2)


def _triple(value: Any) -> tuple[Any, ...]:
    return ntuple(value, 3)


def _quadruple(value: Any) -> tuple[Any, ...]:
    return ntuple(value, 4)

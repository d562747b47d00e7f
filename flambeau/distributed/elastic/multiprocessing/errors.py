"""`record`, which scripts put over their main function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", bound="Callable[..., Any]")


def record(fn: T, error_handler: Any = None) -> T:
    """The function as it is: the agent shows by itself what the first rank that failed had said."""
    return fn

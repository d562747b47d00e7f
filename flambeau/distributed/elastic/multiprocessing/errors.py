"""`record`, which scripts put over their main function."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def record(fn: Callable[..., T], error_handler: Any = None) -> Callable[..., T]:
    """The function as it is: the agent shows the traceback of the first rank that fails by itself."""
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> T:
        return fn(*args, **kwargs)
    return wrapper

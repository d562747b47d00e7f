"""Named ranges for NVIDIA's profilers (torch.cuda.nvtx).  No profiler listens here, so that they only nest and count."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Thread(threading.local):
    depth = 0


_thread = _Thread()
_ranges = 0


def range_push(msg: str) -> int:
    """Opens a range on this thread's stack; gives its depth from 0."""
    if not isinstance(msg, str):
        raise TypeError(f"range_push: msg must be a str, got {type(msg).__name__}")
    _thread.depth += 1
    return _thread.depth - 1


def range_pop() -> int:
    """Closes the innermost range; gives its depth, -1 when none was open."""
    if not _thread.depth:
        return -1
    _thread.depth -= 1
    return _thread.depth


def range_start(msg: str) -> int:
    """Opens a range that any thread may end; gives its number."""
    global _ranges
    _ranges += 1
    return _ranges


def range_end(range_id: int) -> None:
    """Ends what `range_start` opened."""


def mark(msg: str) -> None:
    """A point in time."""


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:  # noqa: A001 (PyTorch's name)
    """A range as a block or a decorator; `msg` is formatted with the other arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

"""Which version a new tensor begins with: 0, however many launches of the operation that made it wrote to it.

An operation's body may make a tensor and write to it by operations that count their writes, where a plan, or what is learned of the body's calls,
counts none.  A result that nobody holds, on memory that nobody holds, is the operation's own: nobody has read its version, so that it can begin anew.
So is each of several results.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

from ..tensor import Tensor


def begins(made: Tensor, more: int = 0) -> None:
    """Sets the version of a body's result to 0 if nobody holds it but the caller's one variable, and so many more, and nobody its storage but itself."""
    if getrefcount(made) <= _HOLDERS[0] + more and getrefcount(made.store) <= _HOLDERS[1]:
        made.store.version = 0


def all_begin(made: Any, more: int = 0) -> None:
    """`begins` for the tensors in a tuple or list that a body gave, if nobody else holds that."""
    if isinstance(made, (tuple, list)) and getrefcount(made) <= _HOLDERS[0] + more:
        for part in made:
            if part.__class__ is not Tensor:
                all_begin(part, 1)
            elif part.store.version > 0:
                begins(part, 1)


class _Example:
    store: Any = None


def _counted(made: Any) -> tuple[int, int]:
    return getrefcount(made), getrefcount(made.store)


def _usual() -> tuple[int, int]:
    """What `begins` counts where nobody else holds anything, which differs between versions of Python."""
    made = _Example()
    made.store = _Example()
    return _counted(made)


_HOLDERS = _usual()

"""Python's collector of garbage, held while nothing may be collected: in any number of blocks at once, of any threads."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

from . import forks

_lock = forks.lock()
_holders: list[int] = []  # the threads that hold it, once for each block
_collects = True  # whether it was at work before the first


def _take() -> None:
    global _collects
    with _lock:
        if not _holders:
            _collects = gc.isenabled()
            gc.disable()
        _holders.append(threading.get_ident())


def _give() -> None:
    with _lock:
        _holders.remove(threading.get_ident())
        if not _holders and _collects:
            gc.enable()


class held:
    """A block in which nothing is collected by itself, whatever blocks of other threads end meanwhile."""

    __slots__ = ()

    def __enter__(self) -> None:
        _take()

    def __exit__(self, *exc: Any) -> None:
        _give()


def _in_child() -> None:
    """A forked child has none of the other threads, and nobody to end their blocks."""
    me = threading.get_ident()
    others = bool(_holders) and me not in _holders
    _holders[:] = [one for one in _holders if one == me]
    if others and _collects:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

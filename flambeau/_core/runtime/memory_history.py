"""What a GPU's allocator gave out and took back, with the program's lines: recorded when asked for, and told in PyTorch's snapshot format.

While a history is kept, the pool's `taker`s hand blocks out with a note (`_Watched`), so a program that keeps none pays nothing.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from .gpu_memory import Pool

_PACKAGE = __name__.partition(".")[0]
_DEEPEST = 64  # frames of a stack
_SMALL = 1 << 20  # as PyTorch tells small segments from large ones


class History:
    """The record of one pool.  living: what each living block was asked for, by its address: (bytes, frames).  trace: what happened, in order.

    keep: whether there is a trace.  context: "state" (stacks of living blocks), "alloc" (also in the trace), "all" (also of frees) or None.
    """

    def __init__(self, index: int, keep: bool, context: str | None, most: int | None, skip: Collection[str], depth: int = _DEEPEST) -> None:
        self.index, self.keep, self.context, self.skip, self.depth = index, keep, context, frozenset(skip), depth
        self.on = True
        self.living: dict[int, tuple[int, list[dict[str, Any]]]] = {}
        self.trace: deque[dict[str, Any]] = deque(maxlen=most)

    def note(self, action: str, address: int, size: int, frames: list[dict[str, Any]] | None = None, **more: Any) -> None:
        """Something happened."""
        if self.on and self.keep and action not in self.skip:
            self.trace.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": time.time_ns() // 1000,
                               "frames": frames or [], "pool_id": (0, 0), **more})

    def segment(self, taken: bool, address: int, size: int) -> None:
        """The pool took memory from the driver, or gave it back."""
        if self.on:
            frames = stack(self.depth) if self.context in (("alloc", "all") if taken else ("all",)) else None
            self.note("segment_alloc" if taken else "segment_free", address, size, frames)

    def taker(self, take: Callable[[int], tuple[int, Any]]) -> Callable[[int], tuple[int, Any]]:
        """`take` with a note of each block."""
        def watched(nbytes: int) -> tuple[int, Any]:
            address, back = take(nbytes)
            if not self.on:
                return address, back
            frames = stack(self.depth) if self.context is not None else []
            self.living[address] = nbytes, frames
            self.note("alloc", address, nbytes, frames if self.context in ("alloc", "all") else None)
            return address, _Watched(back, self, nbytes)
        return watched


class _Watched:
    """What takes a block back: notes it and passes it on.  Called by finalizers in any thread: each step is one operation on a container."""

    __slots__ = ("_back", "_history", "_nbytes")

    def __init__(self, back: Any, history: History, nbytes: int) -> None:
        self._back, self._history, self._nbytes = back, history, nbytes

    def append(self, address: int) -> None:
        h = self._history
        h.living.pop(address, None)
        if h.on:
            frames = stack(h.depth) if h.context == "all" else None
            h.note("free_requested", address, self._nbytes, frames)
            h.note("free_completed", address, self._nbytes, frames)
        self._back.append(address)


def stack(depth: int = _DEEPEST) -> list[dict[str, Any]]:
    """The program's own frames, the innermost first."""
    found: list[dict[str, Any]] = []
    frame: Any = sys._getframe(1)
    while frame is not None and len(found) < depth:
        name = frame.f_globals.get("__name__", "")
        if name != _PACKAGE and not name.startswith(_PACKAGE + "."):
            found.append({"filename": frame.f_code.co_filename, "line": frame.f_lineno, "name": frame.f_code.co_name})
        frame = frame.f_back
    return found


def segments(pool: Pool) -> list[dict[str, Any]]:
    """The memory that a pool holds, each segment with its blocks."""
    with pool.lock:
        pool._settle(1 << 60)
        free = {address for shelf in pool.shelves.values() for address in shelf}
        waiting = {address for _, _, address in pool.pending}
        held = sorted(pool.segments.items())
        living = dict(pool.history.living) if pool.history is not None else {}
    found = []
    for base, (size, block) in held:
        blocks, used, active, requested = [], 0, 0, 0
        for address in range(base, base + size // block * block, block):
            state = "inactive" if address in free else "active_awaiting_free" if address in waiting else "active_allocated"
            asked, frames = living.get(address, (block, [])) if state == "active_allocated" else (0, [])
            blocks.append({"address": address, "size": block, "requested_size": asked, "state": state, "frames": frames})
            used += block * (state == "active_allocated")
            active += block * (state != "inactive")
            requested += asked
        if size % block:
            blocks.append({"address": base + size // block * block, "size": size % block, "requested_size": 0, "state": "inactive", "frames": []})
        found.append({"device": pool.index, "address": base, "total_size": size, "allocated_size": used, "active_size": active,
                      "requested_size": requested, "stream": 0, "segment_type": "small" if block <= _SMALL else "large",
                      "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks})
    return found


def by_line(pool: Pool) -> list[tuple[str, int, int]]:
    """What living blocks are for, as (line, bytes, blocks), most first; line "" where no history was kept when they were made."""
    held: dict[str, list[int]] = {}
    for segment in segments(pool):
        for b in segment["blocks"]:
            if b["state"] == "active_allocated":
                f = b["frames"]
                entry = held.setdefault(f"{f[0]['filename']}:{f[0]['line']}" if f else "", [0, 0])
                entry[0] += b["size"]
                entry[1] += 1
    return sorted(((line, n, count) for line, (n, count) in held.items()), key=lambda row: -row[1])

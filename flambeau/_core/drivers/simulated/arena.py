"""A simulated GPU's memory: a range of host addresses of its own, with a capacity.

The range is reserved once and filled as it is touched, so that an address tells which device it lies on.  It is twice
the capacity: on hardware, too, addresses do not run out before memory does.
"""

from __future__ import annotations

import gc
import sys
import threading
from bisect import bisect_left
from typing import Any

from ... import collector
from ..pages import drop_pages, map_pages, unmap_pages

_PAGE = 4096
_HUGE = 2 << 20


class Arena:
    """`low` to `high` are its addresses; `capacity` and `used` are bytes."""

    __slots__ = ("low", "high", "capacity", "used", "_holes", "_sizes", "_lock", "__weakref__")

    def __init__(self, capacity: int) -> None:
        self.low = self.high = 0
        span = (2 * capacity + _HUGE - 1) & -_HUGE
        self.low = map_pages(span, reserve=False)
        if not self.low:
            gc.collect()  # an earlier simulation may be waiting for the collector
            self.low = map_pages(span, reserve=False)
        if not self.low:
            raise RuntimeError(f"cannot reserve {span} bytes of addresses for a simulated GPU with {capacity} bytes of "
                               "memory; pass a smaller `memory` to simulate()")
        self.high = self.low + span
        self.capacity, self.used = capacity, 0
        self._holes = [(self.low, span)]  # (start, size), by start
        self._sizes: dict[int, int] = {}
        self._lock = threading.RLock()

    def alloc(self, nbytes: int) -> int:
        """The address of a block, 2 MiB aligned when it is that big, or 0 when there is no room."""
        size = (nbytes + _PAGE - 1) & -_PAGE
        align = _HUGE if size >= _HUGE else _PAGE
        with self._lock, collector.held():  # a finalizer may give memory back: holes are not where they were then
            if self.used + size > self.capacity:
                return 0
            for i, (start, room) in enumerate(self._holes):
                address = (start + align - 1) & -align
                rest = start + room - address - size
                if rest < 0:
                    continue
                pieces = [(start, address - start)] if address > start else []
                if rest:
                    pieces.append((address + size, rest))
                self._holes[i:i + 1] = pieces
                self._sizes[address] = size
                self.used += size
                return address
            return 0

    def free(self, address: int) -> None:
        """Takes a block back and lets the system have its pages.  Raises ValueError for an address it did not give."""
        with self._lock, collector.held():
            size = self._sizes.pop(address, 0)
            if not size:
                raise ValueError(f"free: {address:#x} is not the start of a block of this device")
            drop_pages(address, size)
            self.used -= size
            i = bisect_left(self._holes, (address, 0))
            start, end = address, address + size
            last = i
            if i < len(self._holes) and self._holes[i][0] == end:
                end += self._holes[i][1]
                last = i + 1
            if i and sum(self._holes[i - 1]) == start:
                i -= 1
                start = self._holes[i][0]
            self._holes[i:last] = [(start, end - start)]

    def __contains__(self, address: int) -> bool:
        return self.low <= address < self.high

    def __del__(self, ending: Any = sys.is_finalizing, unmap: Any = unmap_pages) -> None:
        # at the interpreter's end a stream's thread may still be writing here
        if self.low and not ending():
            unmap(self.low, self.high - self.low)

"""Shared memory for batches: nameless files that two processes map.

A segment has no name anywhere: its descriptor travels once over the socket between the two processes, and both close
it after mapping.  So whatever dies and however, the system frees the memory with the last process that maps it, and
no limit on /dev/shm or on open files applies.

The worker owns the segments and writes batches into them; a batch's memory is on loan to the reader until the last
tensor on it dies there, and is then written again, with its pages already in place on both sides.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from .._core.runtime.shared_memory import Mapping, nameless

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable

_PAGE = 4096
_ALIGN = 64
_MOST_IDLE_BYTES = 256 << 20
_MOST_IDLE = 256


def _rounded(nbytes: int) -> int:
    """Sizes go in steps of an eighth of a power of two, so that batches of nearly one size share segments."""
    step = max(_PAGE, 1 << max(nbytes.bit_length() - 4, 0))
    return -(-nbytes // step) * step


class Lease:
    """The writer's own use of a segment: what a tensor on it keeps alive."""

    __slots__ = ("segment", "__weakref__")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment


class Segment:
    """One piece of shared memory as its owner sees it."""

    __slots__ = ("mapping", "loans", "lease")

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping
        self.loans = 0  # messages about it that the reader has not given back
        self.lease: Any = None  # a weak reference

    def busy(self) -> bool:
        return self.loans > 0 or (self.lease is not None and self.lease() is not None)


class Store:
    """The writer's segments."""

    def __init__(self) -> None:
        self._here: list[Segment] = []  # not on loan, the longest unused first
        self._lent: dict[int, Segment] = {}
        self._made = 0
        self._lock = threading.Lock()
        self.fresh: list[tuple[int, int, int]] = []  # number, size, descriptor: the reader has yet to learn of these
        self.dropped: list[int] = []  # numbers that the reader may forget

    def take(self, nbytes: int) -> Lease:
        """A segment of at least `nbytes` for the caller; raises OSError when the system has none."""
        with self._lock:
            best = None
            for segment in self._here:
                size = segment.mapping.size
                if nbytes <= size <= 2 * nbytes + _PAGE and not segment.busy() and (
                        best is None or size < best.mapping.size):
                    best = segment
            if best is None:
                best = self._make(_rounded(max(nbytes, 1)))
                self._here.append(best)
                self._trim()
            lease = Lease(best)
            best.lease = weakref.ref(lease)
            return lease

    def _make(self, size: int) -> Segment:
        descriptor = nameless(size)
        try:
            mapping = Mapping(descriptor, size, self._made)
        except OSError:
            os.close(descriptor)
            raise
        self._made += 1
        self.fresh.append((mapping.number, size, descriptor))
        return Segment(mapping)

    def _trim(self) -> None:
        idle = [s for s in self._here[:-1] if not s.busy()]
        total = sum(s.mapping.size for s in idle)
        known = {number for number, _, _ in self.fresh}
        for segment in idle:
            if total <= _MOST_IDLE_BYTES and len(idle) <= _MOST_IDLE:
                break
            if segment.mapping.number in known:  # the reader must hear of it first
                continue
            total -= segment.mapping.size
            idle = idle[1:]
            self._here.remove(segment)
            self.dropped.append(segment.mapping.number)

    def find(self, address: int, nbytes: int) -> Segment | None:
        """The segment that holds all of these bytes."""
        for segment in (*self._here, *self._lent.values()):
            at = segment.mapping
            if at.address <= address and address + nbytes <= at.address + at.size:
                return segment
        return None

    def lend(self, segment: Segment) -> None:
        """Notes that a message with this segment's number goes out."""
        with self._lock:
            segment.loans += 1
            if segment.loans == 1:
                self._here.remove(segment)
                self._lent[segment.mapping.number] = segment

    def returned(self, numbers: Iterable[int]) -> None:
        """Notes what the reader gave back."""
        with self._lock:
            for number in numbers:
                segment = self._lent[number]
                segment.loans -= 1
                if segment.loans == 0:
                    del self._lent[number]
                    self._here.append(segment)


class Loan:
    """The reader's use of a segment for one message: given back when everything made of it has died."""

    __slots__ = ("mapping", "home")

    def __init__(self, mapping: Mapping, home: deque[int]) -> None:
        self.mapping, self.home = mapping, home

    def __del__(self) -> None:
        self.home.append(self.mapping.number)


def aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN

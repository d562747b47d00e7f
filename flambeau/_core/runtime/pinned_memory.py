"""Page-locked host memory: the caching pool behind `pin_memory`, and small copies' buffers.

Pinning pages costs far more than filling them, so blocks are kept for reuse, up to a bound.  A block that copies of some
stream use is remembered with that stream; given back, it waits for the work queued there until then, so that nobody
writes where a copy still reads.  The pool is the GPU's own (`gpu_memory.Pool`) without its streams: no queue orders the
host's accesses, so every reuse waits for events.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, Any

from .. import errors
from .gpu_memory import _ALL, _LOOKS, Bin, Pool, _Meter

if TYPE_CHECKING:
    from ..drivers.interface import Driver


class _Spent:
    """What calls of the driver took, in microseconds."""

    __slots__ = ("total", "most", "least", "count")

    def __init__(self) -> None:
        self.total = self.most = self.least = self.count = 0

    def add(self, since: float) -> None:
        took = int((time.perf_counter() - since) * 1e6)
        self.least = min(self.least, took) if self.count else took
        self.most = max(self.most, took)
        self.total += took
        self.count += 1


class HostPool(Pool):
    """The pinned blocks of one system of GPUs.  `bound`: how many unused bytes are kept."""

    quick = False

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver, 0, 0, "pinned host memory")
        self.bases: list[int] = []  # of the segments, sorted
        self.meters["active_requests"], self.meters["active_bytes"] = _Meter(), _Meter()
        self.alloc_time, self.free_time = _Spent(), _Spent()
        self.touched: dict[int, int] = {}  # segment -> when a block of it was last given back, in counts
        self.count = 0
        try:
            self.bound = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8
        except (ValueError, OSError):
            self.bound = 1 << 30

    def block(self, nbytes: int) -> tuple[int, Bin]:
        """The address of `nbytes` page-locked bytes, 512-byte aligned, and what takes them back by ``append(address)``.

        Raises RuntimeError when the system has no more to give.
        """
        with self.lock:
            address, b = self.take(None, nbytes)
            self.meters["active_requests"].add(1)
            self.meters["active_bytes"].add(b.size)
            return address, b

    def used(self, address: int, stream: Any) -> None:
        """A copy queued on `stream` (a driver's handle) reads or writes there: the block, given back, waits for it."""
        if stream in self.used_by.get(address, ()):  # as often before: a living block's streams stay
            return
        with self.lock:
            start = self._start(address)
            if start:
                streams = self.used_by.setdefault(start, [])
                if stream not in streams:
                    streams.append(stream)

    def _start(self, address: int) -> int:
        """The start of the block around an address; 0 when it is none of this pool's."""
        i = bisect_right(self.bases, address) - 1
        if i < 0:
            return 0
        base = self.bases[i]
        size, block = self.segments[base]
        return base + (address - base) // block * block if address < base + size else 0

    def _idle(self, b: Bin, address: int) -> None:
        super()._idle(b, address)
        self.meters["active_requests"].take(1)
        self.meters["active_bytes"].take(b.size)
        self.count += 1
        self.touched[self.bases[bisect_right(self.bases, address) - 1]] = self.count

    def _settle(self, looks: int = _LOOKS) -> None:
        super()._settle(looks)
        if self.unused() > self.bound:
            self._release(self.bound)

    def settle(self) -> None:
        """Counts what came back, and keeps to the bound."""
        with self.lock:
            self._settle(_ALL)

    def unused(self) -> int:
        """Bytes kept for reuse."""
        return self.meters["reserved_bytes"].current - self.meters["active_bytes"].current

    def _release(self, keep: int = 0) -> None:
        self.keep = keep
        super()._release()

    def _chosen(self, empty: set[int]) -> set[int]:
        """Those unused for longest, until what is left fits."""
        chosen, left = set(), self.unused()
        for base in sorted(empty, key=lambda b: self.touched.get(b, 0)):
            if left <= self.keep:
                break
            chosen.add(base)
            left -= self.segments[base][0]
        return chosen

    def _quiet(self) -> None:
        pass  # a free block's copies are done: it came here behind their events

    def _reserve(self, size: int) -> int:
        since = time.perf_counter()
        address = self.driver.host_alloc(size)
        if address:
            self.alloc_time.add(since)
            insort(self.bases, address)
        return address

    def _unreserve(self, base: int) -> None:
        since = time.perf_counter()
        self.driver.host_free(base)
        self.free_time.add(since)
        del self.bases[bisect_left(self.bases, base)]
        self.touched.pop(base, None)

    def _error(self, nbytes: int) -> Any:
        return RuntimeError(
            f"cannot pin {errors.size(nbytes)} of host memory: the system gives no more. "
            f"{errors.size(self.meters['active_bytes'].current)} of pinned memory are in use")

    def reset_totals(self) -> None:
        with self.lock:
            super().reset_totals()
            self.alloc_time, self.free_time = _Spent(), _Spent()

    def stats(self) -> dict[str, Any]:
        """PyTorch's names; see `flambeau.cuda.host_memory_stats`."""
        with self.lock:
            self.settle()
            found: dict[str, Any] = {}
            for name, meter in (("allocations", "segment"), ("allocated_bytes", "reserved_bytes"),
                                ("active_requests", "active_requests"), ("active_bytes", "active_bytes")):
                for what in ("current", "peak", "allocated", "freed"):
                    found[f"{name}.{what}"] = getattr(self.meters[meter], what)
            for name, spent in (("host_alloc_time", self.alloc_time), ("host_free_time", self.free_time)):
                found |= {f"{name}.total": spent.total, f"{name}.max": spent.most, f"{name}.min": spent.least,
                          f"{name}.count": spent.count, f"{name}.avg": spent.total / spent.count if spent.count else 0}
            found["num_host_alloc"], found["num_host_free"] = self.alloc_time.count, self.free_time.count
            return dict(sorted(found.items()))

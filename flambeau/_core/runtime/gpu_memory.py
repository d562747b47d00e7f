"""The caching allocator of one GPU.

Memory comes from the driver in segments: small blocks (up to 1 MiB) are carved from 2 MiB ones, larger blocks have
their own.  A block belongs to the stream that was current when it was made.  Given back, it serves the same stream
again at once, since that stream's work runs in order; another stream gets it only behind an event.

Blocks come back in finalizers, in any thread at any moment, so giving back only adds to a list: that of the blocks' own bin
(`Bin.back`), from where the next request like theirs takes them, or `inbox`.  Requests that find nothing on their shelf settle both.
Once a program has done its work a few times, nearly every request is served by its bin's own list, and nothing is settled any more.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Any

from .. import collector, errors
from . import memory_history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..drivers.interface import Driver

SMALL = 1 << 20
SEGMENT = 2 << 20
_GRAIN = 512  # what sizes are counted in, as in PyTorch
_MOST_BINS = 4096
_ALL = 1 << 60
_LOOKS = 2  # blocks still in use that one request finds, in turn: a long list of them must not slow every request down


def rounded(nbytes: int) -> int:
    """What a request counts as: at least 512 bytes, in steps of 512."""
    return max(_GRAIN, (nbytes + _GRAIN - 1) & -_GRAIN)


def block_size(nbytes: int) -> int:
    """The size of the block that serves a request: four steps to a doubling up to 1 MiB, then eight, in whole 2 MiB."""
    n = rounded(nbytes)
    if n <= SMALL:
        step = max(_GRAIN, 1 << ((n - 1).bit_length() - 3))
    else:
        step = max(SEGMENT, 1 << ((n - 1).bit_length() - 4))
    return -(-n // step) * step


class Bin:
    """Where blocks that serve one rounded size on one stream go back to: ``append(address)``.

    `back` holds what was given back and is on no shelf yet; `recycled` is how often a block went out from there again since that
    was counted.
    """

    __slots__ = ("pool", "stream", "size", "counted", "free", "back", "recycled")

    def __init__(self, pool: Pool, stream: Any, size: int, counted: int, free: list[int]) -> None:
        self.pool, self.stream, self.size, self.counted, self.free = pool, stream, size, counted, free
        self.back: list[int] = []
        self.recycled = 0

    def append(self, address: int) -> None:
        self.pool.now -= self.counted  # no other thread runs between reading and writing: nothing is called
        self.back.append(address)


class LateBin(Bin):
    """One whose blocks go to the pool's inbox."""

    __slots__ = ()

    def append(self, address: int) -> None:
        self.pool.now -= self.counted
        self.pool.inbox.append((self, address))


class _Meter:
    """One statistic: now, its peak, and all that was ever added and taken away."""

    __slots__ = ("current", "peak", "freed", "before")

    def __init__(self) -> None:
        self.current = self.peak = self.freed = 0
        self.before = 0  # what was there when the totals began

    @property
    def allocated(self) -> int:
        return self.current + self.freed - self.before

    def add(self, n: int) -> None:
        self.current = now = self.current + n
        if now > self.peak:
            self.peak = now

    def take(self, n: int) -> None:
        self.current -= n
        self.freed += n

    def again(self, n: int) -> None:
        """Taken away and added at once."""
        self.freed += n

    def restart(self) -> None:
        self.freed, self.before = 0, self.current


METERS = ("allocation", "allocated_bytes", "segment", "reserved_bytes")


class Pool:
    """All blocks of one GPU.  `stream` arguments are the driver's handles."""

    quick = True  # whether the bins' own lists are used

    def __init__(self, driver: Driver, physical: int, index: int, name: str) -> None:
        self.driver, self.physical, self.index, self.name = driver, physical, index, name
        self.inbox: deque[tuple[Bin, int]] = deque()
        self.lock = threading.RLock()  # re-entrant: a finalizer that allocates may interrupt this thread in here
        self.shelves: dict[tuple[Any, int], list[int]] = {}  # (stream, block size) -> free blocks
        self.bins: dict[Any, dict[int, Bin]] = {}
        self.takers: dict[Any, Callable[[int], tuple[int, Any]]] = {}  # `taker`s by stream
        self.retired: list[Bin] = []
        self.segments: dict[int, tuple[int, int]] = {}  # address -> (bytes, block size), of all the driver gave
        self.used_by: dict[int, list[Any]] = {}  # living block -> other streams that use it
        self.pending: deque[tuple[list[Any], Bin, int]] = deque()  # (events, bin, address): back, still in use
        self.meters = {name: _Meter() for name in METERS}
        self._bytes, self._blocks = self.meters["allocated_bytes"], self.meters["allocation"]
        self.now = self.top = 0  # bytes that are allocated, and the most that ever were
        self.retries = self.ooms = 0
        self.limit: int | None = None
        self.own: weakref.WeakSet[Pool] = weakref.WeakSet()  # pools of a program's own beside this one (torch.cuda.MemPool)
        self.lends = False  # whether what is free here may go back to the driver when the pool beside it finds no room
        self.history: memory_history.History | None = None  # where each block is noted while somebody asks for it

    # ------------------------------------------------------------------------------------------------------- requests
    def take(self, stream: Any, nbytes: int) -> tuple[int, Any]:
        """A block for `nbytes` on `stream`, and what takes it back by ``append(address)``.  Raises OutOfMemoryError when nothing
        helps."""
        found = self.takers.get(stream)
        if found is None:
            found = self.takers[stream] = self.taker(stream)
        return found(nbytes)

    def taker(self, stream: Any) -> Callable[[int], tuple[int, Any]]:
        """`take` for one stream, for callers that keep it."""
        bins = self.bins.setdefault(stream, {})

        def take(nbytes: int) -> tuple[int, Any]:
            try:
                b = bins[nbytes]
                address = b.back.pop()
            except (KeyError, IndexError):
                return self._take(stream, nbytes)
            if self.used_by and address in self.used_by:
                self.inbox.append((b, address))
                return self._take(stream, nbytes)
            b.recycled += 1
            now = self.now = self.now + b.counted
            if now > self.top:
                self._new_peak()
            return address, b
        return take if self.history is None or not self.history.on else self.history.taker(take)

    def _new_peak(self) -> None:
        """More bytes are allocated than ever; how many blocks are is looked at then, and when a request finds nothing in its bin."""
        with self.lock:
            self.top = max(self.top, self.now)
            self._blocks.peak = max(self._blocks.peak, self._living())

    def _living(self) -> int:
        """How many blocks are allocated."""
        idle = sum(len(b.back) for bins in list(self.bins.values()) for b in list(bins.values()))
        return self._blocks.current - idle - sum(len(b.back) for b in self.retired) - len(self.inbox)

    def _count(self) -> None:
        """Brings the meters up to what went out from the bins' own lists."""
        for b in [b for bins in list(self.bins.values()) for b in list(bins.values())] + self.retired:
            n, b.recycled = b.recycled, 0
            self._bytes.again(n * b.counted)
            self._blocks.again(n)
        self._bytes.peak = self.top

    def _take(self, stream: Any, nbytes: int) -> tuple[int, Any]:
        with self.lock:
            bins = self.bins.get(stream)
            if bins is None:
                bins = self.bins[stream] = {}
            b = bins.get(nbytes)
            if b is None:
                b = self._bin(bins, stream, nbytes)
            if not self.quick:
                self._settle()
            elif not b.free:
                for other in list(bins.values()):
                    if other.free is b.free:
                        self._empty(other)
                self._sort()
                if not b.free:
                    self._settle()
            address = b.free.pop() if b.free else self._grow(b, nbytes)
            self._bytes.current += b.counted
            self._blocks.current += 1
            now = self.now = self.now + b.counted
            if now > self.top:
                self._new_peak()
            return address, b

    def _bin(self, bins: dict[int, Bin], stream: Any, nbytes: int) -> Bin:
        size = block_size(nbytes)
        shelf = self.shelves.setdefault((stream, size), [])
        if len(bins) > _MOST_BINS:
            self._settle()
            self.retired.extend(bins.values())  # living blocks still go back to them
            bins.clear()
        b = bins[nbytes] = (Bin if self.quick else LateBin)(self, stream, size, rounded(nbytes), shelf)
        return b

    def _settle(self, looks: int = _LOOKS) -> None:
        """Puts back what was given back, and, of those that wait for other streams, those that may go, until `looks` may
        not yet."""
        for bins in list(self.bins.values()):
            for b in list(bins.values()):
                self._empty(b)
        for b in self.retired:
            self._empty(b)
        self._sort()
        for _ in range(len(self.pending)):
            events, b, address = self.pending.popleft()
            if all(self.driver.event_query(e) for e in events):
                self._idle(b, address)
            else:
                self.pending.append((events, b, address))
                looks -= 1
                if not looks:
                    break

    def _sort(self) -> None:
        """What was given back goes to the shelves, or waits for the other streams that use it."""
        inbox = self.inbox
        while inbox:
            b, address = inbox.popleft()
            self._bytes.take(b.counted)
            self._blocks.take(1)
            streams = self.used_by.pop(address, None) if self.used_by else None
            if streams is None:
                self._idle(b, address)
            else:
                self.pending.append(([self._mark(s) for s in streams], b, address))

    def _empty(self, b: Bin) -> None:
        """What lies in a bin's own list goes the way of the inbox."""
        while b.back:
            try:
                self.inbox.append((b, b.back.pop()))
            except IndexError:  # taken meanwhile
                return

    def _idle(self, b: Bin, address: int) -> None:
        """A block that nobody uses any more, on any stream."""
        b.free.append(address)

    def _mark(self, stream: Any) -> Any:
        event = self.driver.event_create()
        self.driver.event_record(event, stream)
        return event

    def free_blocks(self) -> set[int]:
        """Where the blocks begin that are nobody's now."""
        with self.lock:
            found = {address for shelf in self.shelves.values() for address in shelf}
            for b in [b for bins in list(self.bins.values()) for b in list(bins.values())] + self.retired:
                found.update(b.back)
            return found.union([address for _, address in list(self.inbox)])

    @contextlib.contextmanager
    def unseen(self) -> Iterator[None]:
        """A block whose allocations, all given back at its end, count for no peak."""
        top, blocks = self.top, self._blocks.peak
        try:
            yield
        finally:
            with self.lock:
                self.top, self._blocks.peak = max(top, self.now), max(blocks, self._living())

    def claim(self, address: int) -> Callable[[], None] | None:
        """Takes a block that is nobody's off its list, so that it is not given out; gives what puts it back.  None where it is somebody's."""
        with self.lock:
            lists = [*self.shelves.values(), *[b.back for bins in list(self.bins.values()) for b in list(bins.values())], *[b.back for b in self.retired]]
            for found in lists:
                if address in found:
                    found.remove(address)
                    return lambda: found.append(address)
            return None

    # ------------------------------------------------------------------------------- the ladder when a shelf is empty
    def _grow(self, b: Bin, nbytes: int) -> int:
        """A block for an empty bin, from the gentlest step to the harshest."""
        steps: tuple[Callable[[Bin], int], ...] = (
            self._new, self._from_other_stream, self._after_pending, self._after_release, self._after_collection)
        for i, step in enumerate(steps[:2] if self._captured(b) else steps):  # nobody waits for the device while its work is captured
            if i == 3:
                self.retries += 1
            address = step(b)
            if address:
                return address
        self.ooms += 1
        if self.history is not None:
            self.history.note("oom", 0, nbytes, memory_history.stack(), device_free=self.driver.memory_info(self.physical)[0])
        raise self._error(nbytes)

    def _captured(self, b: Bin) -> bool:
        """Whether work of the bin's stream is being captured; page-locked memory is of none."""
        return b.stream is not None and self.driver.capturing(b.stream)

    def _new(self, b: Bin) -> int:
        """From the driver."""
        if b.size > SMALL:
            return self._segment(b.size, b.size)
        address = self._segment(SEGMENT, b.size)
        if address:
            blocks = SEGMENT // b.size
            b.free.extend(range(address + (blocks - 1) * b.size, address, -b.size))
        return address

    def _segment(self, size: int, block: int) -> int:
        if self.limit is not None and self.meters["reserved_bytes"].current + size > self.limit:
            return 0
        address = self._reserve(size)
        if address:
            self.segments[address] = size, block
            self.meters["reserved_bytes"].add(size)
            self.meters["segment"].add(1)
            if self.history is not None:
                self.history.segment(True, address, size)
        return address

    def _reserve(self, size: int) -> int:
        """Memory of the driver's, or 0."""
        return self.driver.alloc(self.physical, size)

    def _unreserve(self, base: int) -> None:
        """A segment goes back to the driver."""
        self.driver.free(self.physical, base)

    def _quiet(self) -> None:
        """Returns when nothing that is queued uses free blocks."""
        self.driver.synchronize(self.physical)

    def _from_other_stream(self, b: Bin) -> int:
        """A block another stream has free: this stream waits for what that stream was still to do with it."""
        for (stream, size), shelf in self.shelves.items():
            if size == b.size and stream is not b.stream and shelf:
                address = shelf.pop()
                if self._captured(b):  # work that is captured cannot wait for work that is not
                    self.driver.event_synchronize(self._mark(stream))
                else:
                    self.driver.stream_wait_event(b.stream, self._mark(stream))
                return address
        return 0

    def _after_pending(self, b: Bin) -> int:
        """A block that waited for other streams to finish with it."""
        if not self.pending:
            return 0
        while self.pending:
            events, c, address = self.pending.popleft()
            try:
                for e in events:
                    self.driver.event_synchronize(e)
            finally:  # work that failed is done too
                self._idle(c, address)
        return b.free.pop() if b.free else self._from_other_stream(b)

    def _after_release(self, b: Bin) -> int:
        """From the driver, after giving it back every segment that is wholly free."""
        self._release()
        for other in list(self.own):
            if other.lends:
                other.empty_cache()
        return self._new(b)

    def _after_collection(self, b: Bin) -> int:
        """The same, after collecting garbage: tensors in reference cycles hold blocks."""
        gc.collect()
        self._settle()
        if b.free:
            return b.free.pop()
        return self._from_other_stream(b) or self._after_pending(b) or self._after_release(b)

    def _release(self) -> None:
        """Gives wholly free segments back to the driver."""
        with collector.held():  # a pool of a program's own that dies here would do so too, with the same segments
            self._give_up()

    def _give_up(self) -> None:
        bases = sorted(self.segments)
        free: dict[int, int] = {}
        for (_, size), shelf in self.shelves.items():
            for address in shelf:
                base = bases[bisect_right(bases, address) - 1]
                free[base] = free.get(base, 0) + size
        # blocks may leave a rest at the end of their segment
        empty = set()
        for base, n in free.items():
            size, block = self.segments[base]
            if n == size // block * block:
                empty.add(base)
        empty = self._chosen(empty)
        if not empty:
            return
        self._quiet()
        for shelf in self.shelves.values():
            shelf[:] = [a for a in shelf if bases[bisect_right(bases, a) - 1] not in empty]
        for base in empty:
            size, _ = self.segments.pop(base)
            self.meters["reserved_bytes"].take(size)
            self.meters["segment"].take(1)
            if self.history is not None:
                self.history.segment(False, base, size)
            self._unreserve(base)
        self.driver.trim(self.physical)

    def _chosen(self, empty: set[int]) -> set[int]:
        """Which of the wholly free segments to give back."""
        return empty

    def _error(self, nbytes: int) -> errors.OutOfMemoryError:
        free, total = self.driver.memory_info(self.physical)
        return errors.out_of_memory(
            nbytes, name=self.name, index=self.index, total=total, free=free,
            allocated=self.now, reserved=self.meters["reserved_bytes"].current,
            largest=max((size for (_, size), shelf in self.shelves.items() if shelf), default=0))

    # ------------------------------------------------------------------------------------------------ what users ask
    def record_stream(self, address: int, stream: Any) -> None:
        """The living block at `address` is used on `stream` too: given back, it waits for that stream."""
        with self.lock:
            streams = self.used_by.setdefault(address, [])
            if stream not in streams:
                streams.append(stream)

    def span(self, address: int) -> tuple[int, int] | None:
        """(start, bytes) of the block around an address; None when it is none of this pool's."""
        with self.lock:
            bases = sorted(self.segments)
            i = bisect_right(bases, address) - 1
            if i < 0:
                return None
            size, block = self.segments[bases[i]]
            at = address - bases[i]
            return (bases[i] + at // block * block, block) if at < size // block * block else None

    def empty_cache(self) -> None:
        """Gives what nobody uses back to the driver."""
        with self.lock:
            self._settle(_ALL)
            self._release()

    def together(self) -> list[Pool]:
        """This pool, and those of the program's own on the same GPU."""
        return [self, *self.own]

    def current(self, name: str) -> int:
        with self.lock:
            return self.now if name == "allocated_bytes" else self._living() if name == "allocation" else self.meters[name].current

    def peak(self, name: str) -> int:
        with self.lock:
            self._count()
            return self.meters[name].peak

    def reset_peaks(self) -> None:
        with self.lock:
            self.top = self.now
            for name, m in self.meters.items():
                m.peak = self.current(name)

    def reset_totals(self) -> None:
        with self.lock:
            self._settle()
            self._count()
            self.retries = self.ooms = 0
            for m in self.meters.values():
                m.restart()

    def stats(self) -> dict[str, int]:
        """PyTorch's names: "allocated_bytes.all.current" and the like."""
        with self.lock:
            self._settle(_ALL)
            self._count()
            found = {f"{name}.all.{what}": getattr(m, what) for name, m in self.meters.items()
                     for what in ("current", "peak", "allocated", "freed")}
            found["num_alloc_retries"], found["num_ooms"] = self.retries, self.ooms
            found["pending_bytes.all.current"] = sum(b.size for _, b, _ in self.pending)
            return dict(sorted(found.items()))

"""The CPU's caching allocator.

A fresh page costs far more than the arithmetic done on it, so memory comes from the system in big pieces and goes
round in free lists.  Small blocks (up to `SMALL` bytes) have size classes whose free lists are plain Python lists:
taking one is `free.pop()`, giving it back `free.append(address)`, both atomic.  Larger blocks are mapped one by one,
on huge pages where the system has them, and kept for reuse up to a bound.  Those of up to `MIDDLE` bytes go round in plain lists too, so
that they cost no more than small ones; the bound is kept to where one is mapped.  Beyond, it is kept to wherever one is given back.

Blocks come back in finalizers, which may run in any thread at any moment, even inside this module: `append` therefore
never waits for a lock.
"""

from __future__ import annotations

import gc
import os
from bisect import bisect_right, insort
from collections import deque
from typing import Any

from .. import forks
from ..drivers.cpu.driver import CPU

SMALL = 1 << 20
MIDDLE = 1 << 24
ALIGN = 64  # a cache line and the widest vector
_PAGE = 4096
_ARENA = 32 << 20  # small classes are carved from pieces of this size; pages never touched cost nothing

def _failed(nbytes: int) -> RuntimeError:
    s = stats()
    return RuntimeError(
        f"out of CPU memory: tried to allocate {nbytes} bytes; the system gave none. This process holds "
        f"{s['allocated_bytes']} bytes in living tensors and {s['cached_bytes']} bytes of small blocks ready for reuse")


class SizeClass:
    """The free blocks of one small size: `free`, a list of addresses, and `grow()`, which makes more and gives one."""

    __slots__ = ("size", "free", "made")

    def __init__(self, size: int) -> None:
        self.size = size
        self.free: list[int] = []
        self.made = 0

    def __call__(self) -> int:
        return self.grow()

    def grow(self) -> int:
        """An address, after filling the free list from fresh memory.  Raises RuntimeError when there is none."""
        size = self.size
        count = max(1, min(64, (256 << 10) // size))
        start = _arena.take(count * size)
        if not start:
            _large.trim(0)
            gc.collect()
            start = _arena.take(count * size)
            if not start:
                raise _failed(size)
        self.made += count
        insort(_runs, (start, size, count, len(_runs)))
        # lowest address last: blocks are handed out upwards, as the hardware prefetches
        self.free.extend(range(start + (count - 1) * size, start, -size))
        return start


class _MiddleClass(SizeClass):
    """The free blocks of one size between `SMALL` and `MIDDLE`, each mapped by itself."""

    __slots__ = ()

    def grow(self) -> int:
        """A fresh block.  Raises RuntimeError when there is none."""
        _large.settle()
        address = _large.mapping(self.size)
        self.made += 1
        return address

    def drop(self) -> bool:
        """Gives the block that has been free longest back to the system; False where none is free."""
        try:
            address = self.free.pop(0)
        except IndexError:
            return False
        CPU.free(0, address)
        self.made -= 1
        return True


class _Arena:
    """Where small classes are carved from; what is taken stays taken."""

    def __init__(self) -> None:
        self.lock = forks.lock()  # re-entrant: a finalizer that allocates may interrupt this thread in here
        self.at = self.end = self.reserved = 0

    def take(self, nbytes: int) -> int:
        with self.lock:
            if self.at + nbytes > self.end:
                start = CPU.alloc(0, _ARENA)
                if not start:
                    return 0
                self.reserved += _ARENA
                self.at, self.end = start, start + _ARENA
            address, self.at = self.at, self.at + nbytes
            return address


def _small_sizes() -> list[int]:
    """64, 128, ... 512, then four steps to a doubling: at most a fifth of a block is unused."""
    sizes = list(range(64, 513, 64))
    while sizes[-1] < SMALL:
        base = sizes[-1]
        sizes += [base + base // 4 * k for k in (1, 2, 3, 4)]
    return sizes


_small = [SizeClass(s) for s in _small_sizes()]
by_64 = [next(c for c in _small if c.size >= max(n, 1) * 64) for n in range(129)]


def size_class(nbytes: int) -> SizeClass:
    """The class of blocks for `nbytes` (0 to `MIDDLE`); no bytes still get an address."""
    if nbytes <= 8192:
        return by_64[(nbytes + 63) >> 6]
    if nbytes <= SMALL:
        return _small[_step(nbytes, 512) + 7]
    size = large_size(nbytes)
    return _middle.get(size) or _middle.setdefault(size, _MiddleClass(size))


def rounded(nbytes: int) -> int:
    """How large the block is that so many bytes get."""
    return size_class(nbytes).size if nbytes <= MIDDLE else large_size(nbytes)


def _step(nbytes: int, base: int) -> int:
    """The index of the least size >= nbytes among base * 2**k * (1, 1.25, 1.5, 1.75)."""
    k = ((nbytes - 1) // base).bit_length() - 1
    quarter = (base << k) // 4
    return 4 * k + -(-(nbytes - (base << k)) // quarter)


def large_size(nbytes: int) -> int:
    """The bytes a large request takes: eight steps to a doubling, whole pages."""
    step = max(_PAGE, 1 << ((nbytes - 1).bit_length() - 4))
    return -(-nbytes // step) * step


class _LargeClass:
    """The free blocks of one large size.  `append` gives a block back."""

    __slots__ = ("size", "free", "used")

    def __init__(self, size: int) -> None:
        self.size = size
        self.free: list[int] = []
        self.used = 0  # when one was last taken or given back, in the cache's own count

    def append(self, address: int) -> None:
        _large.inbox.append((self, address))
        _large.settle()


class _LargeCache:
    def __init__(self) -> None:
        self.lock = forks.once()
        self.inbox: deque[tuple[_LargeClass, int]] = deque()  # given back, not yet counted
        self.classes: dict[int, _LargeClass] = {}
        self.cached = self.mapped = self.clock = 0
        try:
            physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (ValueError, OSError):
            physical = 8 << 30
        self.bound = physical // 4

    def settle(self) -> None:
        """Counts what was given back and keeps to the bound, unless somebody is at it (who will)."""
        if self.lock.acquire(False):
            try:
                self._settle(self.bound)
            finally:
                self.lock.release()

    def _settle(self, bound: int) -> None:
        while self.inbox:
            c, address = self.inbox.popleft()
            c.free.append(address)
            self.clock += 1
            c.used = self.clock
            self.cached += c.size
        middle = [(len(c.free) * c.size, c) for c in list(_middle.values())]
        over = self.cached + sum(n for n, _ in middle) - bound
        for _, most in sorted(middle, key=lambda x: x[0], reverse=True):  # of what there is most
            while over > 0 and most.drop():
                over -= most.size
        bound = max(bound - sum(len(m.free) * m.size for _, m in middle), 0)
        while self.cached > bound:
            oldest = min([c for c in list(self.classes.values()) if c.free], key=lambda c: c.used)
            CPU.free(0, oldest.free.pop(0))
            self.cached -= oldest.size
            self.mapped -= oldest.size

    def trim(self, bound: int) -> None:
        """Gives cached blocks back to the system until at most `bound` bytes are kept."""
        if self.lock.acquire(timeout=1.0):
            try:
                self._settle(bound)
            finally:
                self.lock.release()

    def claim(self, address: int, size: int) -> bool:
        """See `claim`."""
        with self.lock:
            self._settle(self.bound)
            c = self.classes.get(size)
            if c is None or address not in c.free:
                return False
            c.free.remove(address)
            self.cached -= size
            return True

    def take(self, nbytes: int) -> tuple[int, _LargeClass]:
        size = large_size(nbytes)
        # a finalizer that interrupts this thread in here and allocates finds the lock taken and maps its own block
        if self.lock.acquire(timeout=0.5):
            try:
                self._settle(self.bound)
                c = self.classes.get(size)
                if c is None:
                    c = self.classes[size] = _LargeClass(size)
                if c.free:
                    self.clock += 1
                    c.used = self.clock
                    self.cached -= size
                    return c.free.pop(), c
            finally:
                self.lock.release()
        else:
            c = self.classes.setdefault(size, _LargeClass(size))
        address = self.mapping(size)
        self.mapped += size
        return address, c

    def mapping(self, size: int) -> int:
        """Fresh memory from the system.  Raises RuntimeError when there is none."""
        address = CPU.alloc(0, size)
        if not address:
            self.trim(0)
            gc.collect()
            self.trim(0)
            address = CPU.alloc(0, size)
            if not address:
                raise _failed(size)
        return address


_arena = _Arena()
_large = _LargeCache()
_middle: dict[int, _MiddleClass] = {}  # by the bytes of a block
_runs: list[tuple[int, int, int, int]] = []  # small blocks as they were made, by address: where, of what size, how many, which run it was
_NEXT = 512  # free blocks of a size that are looked at: those that are given out next


def free_blocks() -> tuple[set[int], int]:
    """The small blocks that are free now and given out next, and how many runs of them have been made."""
    made = len(_runs)
    return {address for c in _small for address in c.free[-_NEXT:]}, made


def large_in_use() -> set[int]:
    """Where the large blocks begin that are somebody's now."""
    _large.settle()
    return set(CPU._blocks).difference(*[c.free for c in list(_large.classes.values())], *[c.free for c in list(_middle.values())])


def claim(address: int, size: int) -> bool:
    """Takes a block off the free list of its size; False where it is not there."""
    if size > MIDDLE:
        return _large.claim(address, size)
    try:
        size_class(size).free.remove(address)
    except ValueError:
        return False
    return True


class Claimed:
    """Holds a block that was claimed, until it is dropped itself."""

    __slots__ = ("address", "size", "_free")

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self._free: Any = _large.classes[size] if size > MIDDLE else size_class(size).free

    def __del__(self) -> None:
        self._free.append(self.address)


def whole(address: int) -> tuple[int, int] | None:
    """Where the block around an address begins, and its size; None where there is none. The sizes of large ones are what they count as."""
    found = span(address)
    if found is not None:
        return found[:2]
    for start, nbytes in list(CPU._blocks.items()):
        if start <= address < start + nbytes:
            return (start, nbytes) if nbytes in _large.classes or nbytes in _middle else None
    return None


def span(address: int) -> tuple[int, int, int] | None:
    """Of the small block around an address: where it begins, its size, and in which run of blocks it was made. None where there is none."""
    at = bisect_right(_runs, (address, 1 << 62)) - 1
    if at < 0:
        return None
    start, size, count, run = _runs[at]
    return (start + (address - start) // size * size, size, run) if address < start + size * count else None


def block(nbytes: int) -> tuple[int, Any]:
    """The address of `nbytes` bytes, 64-byte aligned, and what gives them back: ``free.append(address)``.

    Raises RuntimeError when the system has no memory left, after everything cached was given back to it.
    """
    if nbytes <= MIDDLE:
        c = size_class(nbytes)
        free = c.free
        try:
            return free.pop(), free
        except IndexError:
            return c.grow(), free
    return _large.take(nbytes)


def empty_cache() -> None:
    """Gives the large blocks that nobody uses back to the system."""
    _large.trim(0)


def set_cache_bound(nbytes: int) -> int:
    """Keeps at most `nbytes` bytes of unused large blocks from now on; returns the bound before."""
    before, _large.bound = _large.bound, nbytes
    _large.settle()
    return before


def stats() -> dict[str, int]:
    """Bytes in living blocks, kept for reuse, and reserved from the system."""
    _large.settle()
    listed = [*_small, *_middle.values()]
    made = sum(c.made * c.size for c in listed)
    free = sum(len(c.free) * c.size for c in listed)
    return {"allocated_bytes": made - free + _large.mapped - _large.cached,
            "cached_bytes": free + _large.cached,
            "reserved_bytes": _arena.reserved + sum(c.made * c.size for c in list(_middle.values())) + _large.mapped}


"""A plugin of pytest (`-p tests._core.runtime.guard_pages`), and a switch for other programs (`install()`): memory whose ends nobody may touch.

Each block of the CPU, and of simulated GPUs, lies by itself before a page that may be neither read nor written, so that machine code which
goes one element too far ends the process at that instruction, and faulthandler says in which call. Blocks of the CPU that are given back
may not be touched either, for a while, and fresh ones are full of a byte that is no zero. A simulated GPU's are left as they are until its
queues are empty, as work that was queued before still has them.

GUARD_SIDE=begin puts the page before each block instead, for code that goes too far back. GUARD_ALIGN: blocks begin (end) at multiples of it.

With that the CPU's allocator has no lists of free blocks, which machine code takes blocks from, and by which captures know what is new: all calls go
the long way, and none that allocates is learned. `install(lists=True)`, and the plugin beside `learned_at_once` or under GUARD_LISTS=1, keeps such
lists, one for each number of bytes: a block is then given out again, until `sweep()`, after each test, takes what is free out of the lists.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import threading
from bisect import bisect_right, insort
from collections import deque
from typing import Any
from weakref import WeakKeyDictionary, ref

PAGE = mmap.PAGESIZE
NONE, BOTH = 0, mmap.PROT_READ | mmap.PROT_WRITE
SIDE = os.environ.get("GUARD_SIDE", "end")
ALIGN = int(os.environ.get("GUARD_ALIGN", "8"))
FILL = 0xA5
WAITING = 4000  # blocks that were given back and may not be touched
MOST = 1 << 57
ADDRESSES = {"test_record_stream_holds_a_block_back"}  # tests that look where blocks of GPUs lie
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def _within(start: int, room: int, nbytes: int) -> int:
    """Where a block begins in pages of its own."""
    return start if SIDE == "begin" else start + room - -(-nbytes // ALIGN) * ALIGN


def _wrong() -> None:
    os.write(2, b"guard pages: a block was given back twice, or is none\n")
    os.abort()


_waiting: deque[tuple[int, int]] = deque()


def _retire(start: int, size: int) -> None:
    """Nobody may touch this mapping for a while; then it is the system's."""
    _libc.mprotect(start, size, NONE)
    _libc.madvise(start, size, mmap.MADV_DONTNEED)
    _waiting.append((start, size))
    while len(_waiting) > WAITING:
        try:
            _libc.munmap(*_waiting.popleft())
        except IndexError:  # another thread was quicker
            break


class _Given:
    """Takes blocks of the CPU back."""

    def __init__(self) -> None:
        self.living: dict[int, tuple[int, int]] = {}  # by address: the mapping's

    def append(self, address: int) -> None:
        found = self.living.pop(address, None)
        if found is None:
            _wrong()
        else:
            _retire(*found)


_cpu = _Given()


def _map(size: int) -> Any:
    start = _libc.mmap(None, size, BOTH, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    return None if start == ctypes.c_void_p(-1).value else start


def _mapped(nbytes: int) -> tuple[int, int, int]:
    """A new block: its address, and where its mapping begins and how long that is."""
    room = _pages(nbytes)
    size = room + 2 * PAGE
    start = None
    if nbytes < MOST:
        start = _map(size)
        if start is None:  # the system has a most of mappings
            sweep()
            while _waiting:
                _libc.munmap(*_waiting.popleft())
            start = _map(size)
    if start is None:
        raise RuntimeError(f"out of CPU memory: tried to allocate {nbytes} bytes; the system gave none (guard pages)")
    _libc.mprotect(start, PAGE, NONE)
    _libc.mprotect(start + PAGE + room, PAGE, NONE)
    address = _within(start + PAGE, room, nbytes)
    if room <= 1 << 24:
        ctypes.memset(start + PAGE, FILL, room)
    return address, start, size


def block(nbytes: int) -> tuple[int, Any]:
    """As `cpu_memory.block`."""
    address, start, size = _mapped(nbytes)
    _cpu.living[address] = (start, size)
    return address, _cpu


class _Lists:
    """Takes the place of the CPU's size classes: there is one for each number of bytes, and each of its blocks lies in pages of its own."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.classes: dict[int, Any] = {}  # by the bytes
        self.living: dict[int, tuple[int, int, int, int]] = {}  # by address: the mapping's, the block's bytes, and how many were made before it
        self.order: list[int] = []  # those addresses
        self.made = 0

    def size_class(self, nbytes: int) -> Any:
        """As `cpu_memory.size_class`."""
        from flambeau._core.runtime import cpu_memory
        size = -(-nbytes // ALIGN) * ALIGN
        found = self.classes.get(size)
        return found if found is not None else self.classes.setdefault(size, cpu_memory.SizeClass(size))

    def grow(self, of: Any) -> int:
        """As `SizeClass.grow`."""
        address, start, size = _mapped(of.size)
        with self.lock:
            of.made += 1
            self.living[address] = (start, size, max(of.size, 1), self.made)
            self.made += 1
            insort(self.order, address)
        return address

    def span(self, address: int) -> tuple[int, int, int] | None:
        """As `cpu_memory.span`."""
        with self.lock:
            at = bisect_right(self.order, address) - 1
            if at < 0:
                return None
            base = self.order[at]
            _, _, size, run = self.living[base]
        return (base, size, run) if address < base + size else None

    def free_blocks(self) -> tuple[set[int], int]:
        """As `cpu_memory.free_blocks`."""
        return {address for c in self.all() for address in c.free}, self.made

    def all(self) -> list[Any]:
        from flambeau._core.runtime import cpu_memory
        return [*self.classes.values(), *cpu_memory._small, *cpu_memory._middle.values()]

    def block(self, nbytes: int) -> tuple[int, Any]:
        """As `cpu_memory.block`."""
        from flambeau._core.runtime import cpu_memory
        if nbytes > cpu_memory.MIDDLE:
            return block(nbytes)
        c = self.size_class(nbytes)
        try:
            return c.free.pop(), c.free
        except IndexError:
            return c.grow(), c.free

    def sweep(self) -> None:
        """Takes all free blocks out of the lists: nobody may touch them any more."""
        for c in self.all():
            while True:
                try:
                    address = c.free.pop()
                except IndexError:
                    break
                with self.lock:
                    found = self.living.pop(address, None)
                    if found is None:
                        _wrong()
                        return
                    del self.order[bisect_right(self.order, address) - 1]
                _retire(*found[:2])

    def install(self) -> None:
        from flambeau._core.runtime import cpu_memory
        module: Any = cpu_memory
        for c in self.all():
            c.free.clear()  # what is free lies among other blocks
        for c in (module.SizeClass, module._MiddleClass):
            c.grow = lambda of: self.grow(of)
        for name in ("size_class", "span", "free_blocks", "block"):
            setattr(module, name, getattr(self, name))


_lists: list[_Lists] = []


def sweep() -> None:
    """Nobody may touch any more what was given back until now."""
    for each in _lists:
        each.sweep()


class _OfGpu:
    """Blocks of one simulated GPU's pool; takes them back."""

    def __init__(self, pool: Any) -> None:
        self._pool, self.lock = ref(pool), threading.RLock()
        self.living: dict[int, tuple[int, int]] = {}
        self.waiting: deque[tuple[int, int]] = deque()

    @property
    def pool(self) -> Any:
        return self._pool()

    def take(self, nbytes: int) -> tuple[int, Any]:
        driver, device = self.pool.driver, self.pool.physical
        room = _pages(max(nbytes, 1))
        size = room + 2 * PAGE
        if len(self.waiting) > WAITING:
            self.empty()
        start = driver.alloc(device, size) if nbytes < MOST else 0
        if not start:
            self.empty()
            start = driver.alloc(device, size) if nbytes < MOST else 0
            if not start:
                raise self.pool._error(nbytes)
        _libc.mprotect(start, PAGE, NONE)
        _libc.mprotect(start + PAGE + room, PAGE, NONE)
        address = _within(start + PAGE, room, nbytes)
        self.living[address] = (start, size)
        return address, self

    def append(self, address: int) -> None:
        self.waiting.append(self.living.pop(address))

    def empty(self) -> None:
        """Lets the driver have what was given back, when no queued work has it any more."""
        from flambeau._core.drivers.simulated.queues import advance
        with self.lock:
            count = len(self.waiting)
            for device in self.pool.driver._devices:
                for queue in list(device.queues):
                    advance(queue, queue.submitted)
            for _ in range(count):
                start, size = self.waiting.popleft()
                _libc.mprotect(start, size, BOTH)
                self.pool.driver.free(self.pool.physical, start)


def install(lists: bool = False) -> None:
    """From now on, for blocks that are taken from now on.  lists: see above."""
    from flambeau._core import tensor
    from flambeau._core.runtime import caches, cpu_memory, gpu_memory
    faulthandler.enable()
    if lists:
        _lists.append(_Lists())
        _lists[0].install()
    else:
        module: Any = cpu_memory
        module.SMALL = module.MIDDLE = -1
        module.block = block
    pool: Any = gpu_memory.Pool
    take, taker = pool.take, pool.taker
    of_pools: WeakKeyDictionary[Any, _OfGpu] = WeakKeyDictionary()

    def of(self: Any) -> _OfGpu:
        found = of_pools.get(self)
        if found is None:
            found = of_pools[self] = _OfGpu(self)
        return found

    def guarded_take(self: Any, stream: Any, nbytes: int) -> tuple[int, Any]:
        found: tuple[int, Any] = of(self).take(nbytes) if guarded(self) else take(self, stream, nbytes)
        return found

    def guarded_taker(self: Any, stream: Any) -> Any:
        return of(self).take if guarded(self) else taker(self, stream)

    def guarded(self: Any) -> bool:  # not pinned memory, which is the host's
        return type(self) is pool and self.driver.simulated
    pool.take, pool.taker = guarded_take, guarded_taker
    pool.record_stream = lambda self, address, stream: None  # what is given back waits for all streams
    parts: Any = tensor
    parts._metas.clear()  # small ones know the free list of their size
    caches.forget()


def pytest_configure(config: Any) -> None:
    install(lists=os.environ.get("GUARD_LISTS") == "1" or config.pluginmanager.has_plugin("tests._core.engine.learned_at_once"))


def pytest_runtest_teardown() -> None:
    sweep()


def pytest_collection_modifyitems(items: list[Any]) -> None:
    import pytest
    for item in items:
        if item.name in ADDRESSES:
            item.add_marker(pytest.mark.skip(reason="guard pages: no block is given out again at once"))

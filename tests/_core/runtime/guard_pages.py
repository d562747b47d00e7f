"""A plugin of pytest (`-p tests._core.runtime.guard_pages`), and a switch for other programs (`install()`): memory whose ends nobody may touch.

Each block of the CPU, and of simulated GPUs, lies by itself before a page that may be neither read nor written, so that machine code which
goes one element too far ends the process at that instruction, and faulthandler says in which call. Blocks of the CPU that are given back
may not be touched either, for a while, and fresh ones are full of a byte that is no zero. A simulated GPU's are left as they are until its
queues are empty, as work that was queued before still has them.

GUARD_SIDE=begin puts the page before each block instead, for code that goes too far back. GUARD_ALIGN: blocks begin (end) at multiples of it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import threading
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


class _Given:
    """Takes blocks of the CPU back."""

    def __init__(self) -> None:
        self.living: dict[int, tuple[int, int]] = {}  # by address: the mapping's
        self.waiting: deque[tuple[int, int]] = deque()

    def append(self, address: int) -> None:
        found = self.living.pop(address, None)
        if found is None:
            os.write(2, b"guard pages: a block was given back twice, or is none\n")
            os.abort()
        start, size = found
        _libc.mprotect(start, size, NONE)
        _libc.madvise(start, size, mmap.MADV_DONTNEED)
        self.waiting.append(found)
        while len(self.waiting) > WAITING:
            try:
                _libc.munmap(*self.waiting.popleft())
            except IndexError:  # another thread was quicker
                break


_cpu = _Given()


def block(nbytes: int) -> tuple[int, Any]:
    """As `cpu_memory.block`."""
    room = _pages(nbytes)
    size = room + 2 * PAGE
    start = _libc.mmap(None, size, BOTH, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0) if nbytes < MOST else None
    if start is None or start == ctypes.c_void_p(-1).value:
        raise RuntimeError(f"out of CPU memory: tried to allocate {nbytes} bytes; the system gave none (guard pages)")
    _libc.mprotect(start, PAGE, NONE)
    _libc.mprotect(start + PAGE + room, PAGE, NONE)
    address = _within(start + PAGE, room, nbytes)
    if room <= 1 << 24:
        ctypes.memset(start + PAGE, FILL, room)
    _cpu.living[address] = (start, size)
    return address, _cpu


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


def install() -> None:
    """From now on, for blocks that are taken from now on."""
    from flambeau._core import tensor
    from flambeau._core.runtime import caches, cpu_memory, gpu_memory
    faulthandler.enable()
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
    install()

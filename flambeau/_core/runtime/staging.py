"""The staging ring: how pageable host memory reaches a GPU, and back.

A GPU copies at full speed, and without the host's waiting, only from page-locked memory.  Pageable memory goes through
a few pinned slots: the threads of the kernels' pool fill one (packing strides and changing the type on the way, in one
pass) while the copies from the others run.  Where the driver can, plain bytes go without such turns: each thread fills places of its own within
the slots and queues their copies itself (`Ring.carry`).  Slots are made when first needed and kept, 64 MiB of them at most.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any

from .. import dtypes, layout
from ..drivers.pages import map_pages
from ..kernels import expr as E
from ..kernels import target
from ..kernels.programs import Map, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..drivers.interface import Driver

    Part = tuple[int, Callable[[int], None]]  # bytes, and what fills (or empties) a slot at an address

SLOT = 4 << 20
MOST_SLOTS = 16
_LEAST = 256 << 10  # pieces are no smaller: each copy has its set-up
_LEAST_STAGED, _MOST_STAGED = 128 << 10, 512 << 10  # where each piece has a thread: its set-up, and what a core's own cache holds twice
_AHEAD = 4  # slots that one copy to the host keeps in flight
_BY_THREADS = 256 << 10  # what one thread copies faster than several
_MOST_KERNELS = 256

_kernels: dict[Any, Any] = {}


# -------------------------------------------------------------------------------------------------------------- the ring
class Ring:
    """The slots of one system of GPUs."""

    def __init__(self, driver: Driver, slot: int = SLOT, most: int = MOST_SLOTS) -> None:
        self.driver, self.slot, self.most = driver, slot, most
        self.made = 0
        self.pinned = 0  # those made whose memory could be pinned
        self._free: deque[tuple[int, Any]] = deque()  # (address, the event of its last copy), longest unused first
        self._changed = threading.Condition(threading.RLock())

    def take(self, wait: bool = True) -> int:
        """A slot that no copy uses any more; 0 when all are with others and `wait` is False."""
        with self._changed:
            while True:
                if self._free and (self._free[0][1] is None or self.driver.event_query(self._free[0][1])):
                    return self._free.popleft()[0]
                if self.made < self.most:
                    address = self._make()
                    if address:
                        return address
                if self._free:
                    address, event = self._free.popleft()
                    break
                if not wait:
                    return 0
                self._changed.wait()
        try:
            self.driver.event_synchronize(event)
        except BaseException:
            self.give(address, None)
            raise
        return address

    def _make(self) -> int:
        address = self.driver.host_alloc(self.slot)
        if address:
            self.pinned += 1
        elif not self.made:
            # a system that pins no more memory: still correct, as slots wait for their copies all the same
            address = map_pages(self.slot)
            if not address:
                raise RuntimeError(f"out of CPU memory: no {self.slot} bytes for a staging buffer")
        if address:
            self.made += 1
        else:
            self.most = self.made
        return address

    def give(self, address: int, event: Any) -> None:
        """A slot back, in use until `event`."""
        with self._changed:
            if event is None:
                self._free.appendleft((address, event))
            else:
                self._free.append((address, event))
            self._changed.notify()

    def piece(self, nbytes: int) -> int:
        """How many bytes of a copy of `nbytes` go at a time: several pieces, so that filling and copying overlap."""
        return min(self.slot, max(_LEAST, -(-nbytes // _AHEAD) + 4095 & -4096))

    def carry(self, stream: Any, direction: str, dst: int, src: int, nbytes: int) -> None:
        """Copies plain bytes: "h2d" as `send` does, "d2h" as `fetch`; by the driver's own threads where it has a way for that (`Driver.stage`)."""
        up, driver = direction == "h2d", self.driver
        if not driver.places:
            if up:
                self.send(stream, dst, bytes_out(src, nbytes, self.piece(nbytes)))
            else:
                self.fetch(stream, src, bytes_in(dst, nbytes, self.piece(nbytes)))
            return
        piece = min(self.slot // 2, _MOST_STAGED, max(_LEAST_STAGED, -(-nbytes // driver.places) + 4095 & -4096))
        wanted = min(driver.places, -(-nbytes // piece) + 1 & -2)
        slots, event = [self.take()], None
        try:
            each = self.slot // piece & -2
            # who waits for a slot holds none, so that two never wait for each other
            while len(slots) * each < wanted and (slot := self.take(wait=False)):
                slots.append(slot)
            places = [slot + k * piece for slot in slots for k in range(each)]
            event = driver.event_create()
            try:
                driver.stage(stream, direction, dst, src, nbytes, piece, places[:wanted])
            except BaseException:
                with suppress(RuntimeError):  # what was queued may still be on its way, unless the device is gone
                    driver.event_record(event, stream)
                raise
            driver.event_record(event, stream)
        finally:
            for slot in slots:
                self.give(slot, event)

    def send(self, stream: Any, dst: int, parts: Iterable[Part]) -> None:
        """Queues the copy of `parts` (each filled into a slot) to `dst` and on.  The source is free when this returns."""
        driver = self.driver
        for nbytes, fill in parts:
            slot, event = self.take(), None
            try:
                fill(slot)
                driver.host_moved(nbytes)
                driver.memcpy(stream, dst, slot, nbytes)
                event = driver.event_create()
                driver.event_record(event, stream)
            finally:
                self.give(slot, event)
            dst += nbytes

    def fetch(self, stream: Any, src: int, parts: Iterable[Part]) -> None:
        """Copies from `src` on into slots, and empties each by its part; all is in place when this returns."""
        driver = self.driver
        flying: deque[tuple[int, Any, int, Callable[[int], None]]] = deque()

        def land() -> None:
            slot, event, nbytes, empty = flying.popleft()
            try:
                driver.event_synchronize(event)
                empty(slot)
                driver.host_moved(nbytes)
            finally:
                self.give(slot, None)
        try:
            for nbytes, empty in parts:
                # whoever waits for a slot holds none, so that two that fetch never wait for each other
                while not (slot := self.take(wait=not flying)):
                    land()
                event = None
                try:
                    driver.memcpy(stream, slot, src, nbytes)
                    event = driver.event_create()
                    driver.event_record(event, stream)
                finally:
                    if event is None:
                        self.give(slot, None)
                flying.append((slot, event, nbytes, empty))
                src += nbytes
                if len(flying) >= _AHEAD:
                    land()
            while flying:
                land()
        finally:
            while flying:  # something failed: the rest is still on its way into the slots
                slot, event, _, _ = flying.popleft()
                self.give(slot, event)


# --------------------------------------------------------------------------------------------------------------- the parts
def bytes_out(address: int, nbytes: int, most: int) -> Iterator[Part]:
    """Parts that fill slots from plain memory."""
    for at in range(0, nbytes, most):
        n = min(most, nbytes - at)
        yield n, lambda slot, a=address + at, n=n: move(slot, a, n)  # type: ignore[misc]


def bytes_in(address: int, nbytes: int, most: int) -> Iterator[Part]:
    """Parts that empty slots into plain memory."""
    for at in range(0, nbytes, most):
        n = min(most, nbytes - at)
        yield n, lambda slot, a=address + at, n=n: move(a, slot, n)  # type: ignore[misc]


def elements_out(program: Map, shape: tuple[int, ...], strides: tuple[int, ...], address: int, most: int) -> Iterator[Part]:
    """Parts that fill slots with `program` of strided elements, row-major over `shape`."""
    here, wire = program.inputs[0].itemsize, program.out_types[0].itemsize
    for sizes, offset, steps in blocks(shape, strides, max(1, most // wire)):
        entry = _kernel(program, sizes, (layout.contiguous_strides(sizes), steps))
        yield size_of(sizes) * wire, lambda slot, e=entry, a=address + offset * here: e(slot, a)  # type: ignore[misc]


def elements_in(program: Map, shape: tuple[int, ...], strides: tuple[int, ...], address: int, most: int) -> Iterator[Part]:
    """Parts that empty slots through `program` into strided elements, row-major over `shape`."""
    wire, here = program.inputs[0].itemsize, program.out_types[0].itemsize
    for sizes, offset, steps in blocks(shape, strides, max(1, most // wire)):
        entry = _kernel(program, sizes, (steps, layout.contiguous_strides(sizes)))
        yield size_of(sizes) * wire, lambda slot, e=entry, a=address + offset * here: e(a, slot)  # type: ignore[misc]


def blocks(shape: tuple[int, ...], strides: tuple[int, ...], most: int) -> Iterator[tuple[tuple[int, ...], int, tuple[int, ...]]]:
    """Cuts a row-major walk over `shape` into runs of at most `most` elements: (sizes, offset in elements, strides)."""
    axis, inner = len(shape), 1
    while axis and inner * shape[axis - 1] <= most:
        axis -= 1
        inner *= shape[axis]
    if not axis:
        yield shape, 0, strides
        return
    axis -= 1  # the axis that is cut; those before it are walked over
    rows = max(1, most // inner)
    for outer in product(*map(range, shape[:axis])):
        start = sum(i * s for i, s in zip(outer, strides, strict=False))
        for row in range(0, shape[axis], rows):
            yield (min(rows, shape[axis] - row), *shape[axis + 1:]), start + row * strides[axis], strides[axis:]


def _kernel(program: Map, sizes: tuple[int, ...], strides: tuple[tuple[int, ...], tuple[int, ...]]) -> Any:
    key = program.key, sizes, strides
    found = _kernels.get(key)
    if found is None:
        if len(_kernels) >= _MOST_KERNELS:
            _kernels.clear()
        found = _kernels[key] = target.prepare(program, sizes, strides).entry
    return found


_words = Map((E.input(0, dtypes.int64),), (dtypes.int64,))
_octets = Map((E.input(0, dtypes.uint8),), (dtypes.uint8,))


def move(dst: int, src: int, nbytes: int) -> None:
    """memcpy by several threads when it is worth it; other Python threads run meanwhile."""
    if nbytes < _BY_THREADS:
        ctypes.memmove(dst, src, nbytes)
        return
    aligned = not (dst | src) & 7
    n = nbytes >> 3 if aligned else nbytes
    _kernel(_words if aligned else _octets, (n,), ((1,), (1,)))(dst, src)
    if aligned and nbytes & 7:
        ctypes.memmove(dst + (n << 3), src + (n << 3), nbytes & 7)

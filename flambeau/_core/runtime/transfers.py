"""Copies between the host and GPUs, and between GPUs: which path each takes.

    host to GPU   pinned: queued straight from the source.  Else staged through pinned memory; a small one for which the
                  host waits anyway, or that the driver reads at once, goes straight ("pageable").
    GPU to host   the same, the other way.
    GPU to GPU    "peer" where one reaches the other's memory, else by the driver through the "host"; "d2d" within one.

A copy is planned like any other work: `bind` works out what depends on the devices and the number of bytes, and gives a function of
the addresses.  Where elements are strided in host memory, or change their type, the caller gives `parts` that fill or empty staging
memory in one pass (see `staging`).
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from . import caches, dispatch, gpus, staging
from .dispatch import Way, made, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..drivers.interface import Driver
    from .device import device
    from .gpus import Gpu
    from .streams import Stream

    Parts = Callable[[int, int], Iterable[staging.Part]]  # given the host's address and the most bytes a part may have
    Carry = Callable[..., "Arrival | None"]

SMALL = 64 << 10  # up to here a copy skips the ring


@caches.kept
def plain(to: device, source: device, nbytes: int, blocking: bool) -> Carry:
    """`bind` of plain bytes, kept."""
    return bind(to, source, nbytes, blocking)


def bind(to: device, source: device, nbytes: int, blocking: bool, parts: Parts | None = None) -> Carry:
    """What copies so many bytes where at least one side is a GPU: ``f(dst, src, read, written, keep)`` with the addresses, the storages for
    observers, what must live until the copy is done, and `place`: what of the storage is read, where that is not told by `src` and these bytes (a
    packed copy's address is not where its elements are).

    Plain bytes, or through `parts`.  blocking: it returns when they have arrived.  Otherwise only page-locked memory is read or written
    later: then what a copy to the host gives waits for it.  Between GPUs the host never waits.
    """
    if to.type == source.type:
        return _between(to, source, nbytes)
    return (_up if to.type == "cuda" else _down)(to, source, nbytes, blocking, parts)


def _up(to: device, source: device, nbytes: int, blocking: bool, parts: Parts | None) -> Carry:
    """From the host: anything but page-locked plain bytes has been read when the call returns."""
    g = gpus.gpu(to)
    thread, default, is_pinned, pool, whole, small = gpus._thread, g.default, g.driver.is_pinned, g.host, parts is None, nbytes <= SMALL
    read_at_once = whole and (blocking and small or nbytes <= g.driver.reads_at_once)
    make: Parts = parts or (lambda src, most: staging.bytes_out(src, nbytes, most))
    straight = g.driver.copier(g.physical, "h2d", nbytes, blocking)
    by_staging, from_pinned, from_pageable = (Way("h2d", path, nbytes, blocking, source, to) for path in ("staged", "pinned", "pageable"))

    def carry(dst: int, src: int, read: Any = None, written: Any = None, keep: Any = None, place: Any = None) -> None:
        stream = thread.streams.get(g) or default
        pinned = whole and is_pinned(src)
        staged = not (pinned or read_at_once)
        way = by_staging if staged else from_pinned if pinned else from_pageable
        place = place or (src if whole else (src, parts))
        record = show(way, stream, read, written, place) if dispatch._copy_observers else None
        since = perf_counter()
        try:
            if not staged:
                straight(stream._handle, dst, src, pinned, keep)
                if pinned and not blocking:
                    pool.used(src, stream._handle)
                return
            if small:
                _send_small(g, stream, dst, make(src, SMALL))
            elif whole:
                gpus.start().ring.carry(stream._handle, "h2d", dst, src, nbytes)
            else:
                ring = gpus.start().ring
                ring.send(stream._handle, dst, make(src, ring.piece(nbytes)))
            if blocking:
                stream.synchronize()
        finally:
            made(way, perf_counter() - since, read, written, place, record)
    return carry


def _send_small(g: Gpu, stream: Stream, dst: int, parts: Iterable[staging.Part]) -> None:
    pool = g.host
    for nbytes, fill in parts:
        address, b = pool.block(nbytes)
        try:
            fill(address)
            g.driver.memcpy(stream._handle, dst, address, nbytes)
            pool.used(address, stream._handle)
        finally:
            b.append(address)
        dst += nbytes


def _down(to: device, source: device, nbytes: int, blocking: bool, parts: Parts | None) -> Carry:
    """To the host: only a copy of plain bytes into page-locked memory can be on its way when the call returns."""
    g = gpus.gpu(source)
    thread, default, is_pinned, pool, whole, small = gpus._thread, g.default, g.driver.is_pinned, g.host, parts is None, nbytes <= SMALL
    make: Parts = parts or (lambda dst, most: staging.bytes_in(dst, nbytes, most))
    by_staging, to_pageable, to_pinned = (Way("d2h", path, nbytes, path != "pinned" or blocking, source, to) for path in ("staged", "pageable", "pinned"))
    waiting = g.driver.copier(g.physical, "d2h", nbytes, True)
    later = None if blocking else g.driver.copier(g.physical, "d2h", nbytes, False)

    def carry(dst: int, src: int, read: Any = None, written: Any = None, keep: Any = None, place: Any = None) -> Arrival | None:
        stream = thread.streams.get(g) or default
        pinned = whole and is_pinned(dst)
        staged = not pinned and not (small and whole)
        way = by_staging if staged else to_pinned if pinned else to_pageable
        place = place or src
        record = show(way, stream, read, written, place) if dispatch._copy_observers else None
        since = perf_counter()
        try:
            if staged:
                if small:
                    _fetch_small(g, stream, src, make(dst, SMALL))
                elif whole:
                    gpus.start().ring.carry(stream._handle, "d2h", dst, src, nbytes)
                else:
                    ring = gpus.start().ring
                    ring.fetch(stream._handle, src, make(dst, ring.piece(nbytes)))
                return None
            if not pinned or later is None:
                waiting(stream._handle, dst, src, pinned, keep)
                return None
            later(stream._handle, dst, src, pinned, keep)
            pool.used(dst, stream._handle)
            return Arrival(g.driver, stream._handle)
        finally:
            made(way, perf_counter() - since, read, written, place, record)
    return carry


def _fetch_small(g: Gpu, stream: Stream, src: int, parts: Iterable[staging.Part]) -> None:
    pool = g.host
    for nbytes, empty in parts:
        address, b = pool.block(nbytes)
        try:
            g.driver.memcpy(stream._handle, address, src, nbytes)
            pool.used(address, stream._handle)
            stream.synchronize()
            empty(address)
        finally:
            b.append(address)
        src += nbytes


class Arrival:
    """What a copy to the host that was queued on a stream comes to: called, it waits for that, or makes a stream wait.

    place: where in the work it is; what arrives later at the same place arrives after this.
    """

    __slots__ = ("place", "_driver", "_event")

    def __init__(self, driver: Driver, stream: Any) -> None:
        self._driver, self._event = driver, driver.event_create()
        driver.event_record(self._event, stream)
        self.place = self._event if driver.capturing(stream) else stream  # what is captured is not done yet when the capture is over

    def __call__(self, stream: Stream | None = None) -> None:
        if stream is None:
            self._driver.event_synchronize(self._event)
        else:
            self._driver.stream_wait_event(stream._handle, self._event)


def _between(to: device, source: device, nbytes: int) -> Carry:
    """Between GPUs, or within one.  The copy runs on the source's current stream, and the destination's waits for it."""
    a, b = gpus.gpu(source), gpus.gpu(to)
    driver, thread = a.driver, gpus._thread
    peer = a is not b and gpus.enable_peer(b, a)
    way = Way("d2d", "d2d", nbytes, False, source, to) if a is b else Way("peer", "peer" if peer else "host", nbytes, False, source, to)

    def carry(dst: int, src: int, read: Any = None, written: Any = None, keep: Any = None, place: Any = None) -> None:
        here, there = thread.streams.get(a) or a.default, thread.streams.get(b) or b.default
        place = place or src
        record = show(way, here, read, written, place) if dispatch._copy_observers else None
        since = perf_counter()
        try:
            if a is not b:  # after what the destination's stream did with that memory, before what it does next
                _wait(driver, here, there)
            driver.memcpy(here._handle, dst, src, nbytes, keep)
            if a is not b:
                _wait(driver, there, here)
        finally:
            made(way, perf_counter() - since, read, written, place, record)
    return carry


def _wait(driver: Driver, waits: Stream, for_: Stream) -> None:
    event = driver.event_create()
    driver.event_record(event, for_._handle)
    driver.stream_wait_event(waits._handle, event)

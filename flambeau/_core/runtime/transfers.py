"""Copies between the host and GPUs, and between GPUs: which path each takes.

    host to GPU   pinned: queued straight from the source.  Else staged through pinned memory; a small one for which the
                  host waits anyway goes straight ("pageable").
    GPU to host   the same, the other way.
    GPU to GPU    "peer" where one reaches the other's memory, else by the driver through the "host"; "d2d" within one.

Everything here deals in addresses and bytes.  Where elements are strided in host memory, or change their type, the
caller gives `parts` that fill or empty staging memory in one pass (see `staging`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import dispatch, gpus, staging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..drivers.interface import Driver
    from .device import device
    from .gpus import Gpu
    from .streams import Stream

    Parts = Callable[[int], Iterable[staging.Part]]  # given the most bytes a part may have

SMALL = 64 << 10  # up to here a copy skips the ring


def copy(to: device, dst: int, source: device, src: int, nbytes: int, blocking: bool, keep: Any, owners: tuple[Any, Any]) -> None:
    """Copies plain bytes where at least one side is a GPU; see `dispatch.copy`."""
    if to.type == source.type:
        between(to, dst, source, src, nbytes, keep, owners)
    elif to.type == "cuda":
        up(to, dst, source, nbytes, blocking, src, owners=owners, keep=keep)
    else:
        down(to, dst, source, src, nbytes, blocking, owners=owners, keep=keep)


def up(to: device, dst: int, source: device, nbytes: int, blocking: bool, src: int = 0, parts: Parts | None = None,
       owners: tuple[Any, Any] = (None, None), keep: Any = None) -> None:
    """From the host: plain bytes at `src`, or `parts` that make them.  Pinned plain bytes are read later, unless
    `blocking`; anything else has been read when this returns."""
    g, stream = gpus.device_and_stream(to)
    driver = g.driver
    pinned = parts is None and driver.is_pinned(src)
    path = "pinned" if pinned else "pageable" if blocking and nbytes <= SMALL and parts is None else "staged"
    with dispatch.CopyScope("h2d", path, nbytes, blocking, source, to, stream, owners):
        if path == "staged":
            make = parts or (lambda most: staging.bytes_out(src, nbytes, most))
            if nbytes <= SMALL:
                _send_small(g, stream, dst, make)
            else:
                ring = gpus.start().ring
                ring.send(stream._handle, dst, make(ring.piece(nbytes)))
        else:
            driver.memcpy(stream._handle, dst, src, nbytes, keep)
            if pinned and not blocking:
                g.host.used(src, stream._handle)
        if blocking:
            stream.synchronize()


def _send_small(g: Gpu, stream: Stream, dst: int, make: Parts) -> None:
    pool = g.host
    for nbytes, fill in make(SMALL):
        address, b = pool.block(nbytes)
        try:
            fill(address)
            g.driver.memcpy(stream._handle, dst, address, nbytes)
            pool.used(address, stream._handle)
        finally:
            b.append(address)
        dst += nbytes


def down(to: device, dst: int, source: device, src: int, nbytes: int, blocking: bool, parts: Parts | None = None,
         owners: tuple[Any, Any] = (None, None), keep: Any = None) -> Callable[[], None] | None:
    """To the host: plain bytes to `dst`, or through `parts`.  Only a copy of plain bytes into pinned memory can be on
    its way when this returns: what is given then waits for it."""
    g, stream = gpus.device_and_stream(source)
    driver = g.driver
    pinned = parts is None and driver.is_pinned(dst)
    blocking = blocking or not pinned
    path = "pinned" if pinned else "pageable" if nbytes <= SMALL and parts is None else "staged"
    with dispatch.CopyScope("d2h", path, nbytes, blocking, source, to, stream, owners):
        if path == "staged":
            make = parts or (lambda most: staging.bytes_in(dst, nbytes, most))
            if nbytes <= SMALL:
                _fetch_small(g, stream, src, make)
            else:
                ring = gpus.start().ring
                ring.fetch(stream._handle, src, make(ring.piece(nbytes)))
            return None
        driver.memcpy(stream._handle, dst, src, nbytes, keep)
        if blocking:
            stream.synchronize()
            return None
        g.host.used(dst, stream._handle)
        return _arrival(driver, stream._handle)


def _fetch_small(g: Gpu, stream: Stream, src: int, make: Parts) -> None:
    pool = g.host
    for nbytes, empty in make(SMALL):
        address, b = pool.block(nbytes)
        try:
            g.driver.memcpy(stream._handle, address, src, nbytes)
            pool.used(address, stream._handle)
            stream.synchronize()
            empty(address)
        finally:
            b.append(address)
        src += nbytes


def _arrival(driver: Driver, stream: Any) -> Callable[[], None]:
    event = driver.event_create()
    driver.event_record(event, stream)

    def wait(stream: Stream | None = None) -> None:
        if stream is None:
            driver.event_synchronize(event)
        else:
            stream._gpu.driver.stream_wait_event(stream._handle, event)
    return wait


def between(to: device, dst: int, source: device, src: int, nbytes: int, keep: Any, owners: tuple[Any, Any] = (None, None)) -> None:
    """Between GPUs, or within one: the host never waits.  The copy runs on the source's current stream, and the
    destination's waits for it.  `keep` lives until it is done."""
    (a, here), (b, there) = gpus.device_and_stream(source), gpus.device_and_stream(to)
    driver = a.driver
    if a is b:
        with dispatch.CopyScope("d2d", "d2d", nbytes, False, source, to, here, owners):
            driver.memcpy(here._handle, dst, src, nbytes, keep)
        return
    peer = gpus.enable_peer(b, a)
    with dispatch.CopyScope("peer", "peer" if peer else "host", nbytes, False, source, to, here, owners):
        # on the source's stream: after what the destination's did with that memory, before what it does next
        _wait(driver, here, there)
        driver.memcpy(here._handle, dst, src, nbytes, keep)
        _wait(driver, there, here)


def _wait(driver: Driver, waits: Stream, for_: Stream) -> None:
    event = driver.event_create()
    driver.event_record(event, for_._handle)
    driver.stream_wait_event(waits._handle, event)

"""The launch door: everything a device is asked to do passes here.

A *bound* launch is what callers keep and call with addresses and numbers.  On the CPU it is the kernel's own entry, so
the door costs nothing; on a GPU it puts the launch on the current stream.  While somebody observes (a ledger, a trace,
a recording of a step), bound launches go past the observers.  Callers keep bound launches in caches, so the door tells
them when those are stale: `on_change` registers what empties such a cache.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..kernels.programs import Prepared
    from .device import device

    LaunchObserver = Callable[[device, Any, Prepared, tuple[Any, ...]], Callable[[], None] | None]
    CopyObserver = Callable[["Copy"], None]

_launch_observers: tuple[Any, ...] = ()
_copy_observers: tuple[Any, ...] = ()
_clearers: list[Callable[[], None]] = []
_lock = threading.Lock()


def on_change(clear: Callable[[], None]) -> None:
    """Registers a function that empties a cache of bound launches."""
    _clearers.append(clear)


def changed() -> None:
    """Bound launches are stale: every registered cache is emptied."""
    for clear in list(_clearers):
        clear()


class observe:
    """Calls `launches(device, stream, prepared, args)` before every launch on any device and thread, and
    `copies(Copy)` before every copy through the door; a ``with`` block, or until `close()`.  On the CPU there is no
    `stream` (None), and what `launches` gives, if anything, is called when the launch is done.
    """

    def __init__(self, launches: LaunchObserver | None = None, copies: CopyObserver | None = None) -> None:
        global _launch_observers, _copy_observers
        self._launches, self._copies = launches, copies
        with _lock:
            if launches is not None:
                _launch_observers += (launches,)
            if copies is not None:
                _copy_observers += (copies,)
        if launches is not None:
            changed()

    def close(self) -> None:
        """Stops observing.  Doing it again does nothing."""
        global _launch_observers, _copy_observers
        launches, copies, self._launches, self._copies = self._launches, self._copies, None, None
        with _lock:
            _launch_observers = _without(_launch_observers, launches)
            _copy_observers = _without(_copy_observers, copies)
        if launches is not None:
            changed()

    def __enter__(self) -> observe:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _without(those: tuple[Any, ...], one: Any) -> tuple[Any, ...]:
    """`those` less the first entry that is `one`: the same callback may observe twice."""
    for i, each in enumerate(those):
        if each is one:
            return those[:i] + those[i + 1:]
    return those


def bind(dev: device, prepared: Prepared) -> Callable[..., Any]:
    """What carries out `prepared` on a concrete device when called with its addresses and numbers.

    On a GPU the call returns at once: the work is queued on the calling thread's current stream of `dev`.
    """
    if dev.type == "cpu":
        if not _launch_observers:
            return prepared.entry
        entry = prepared.entry

        def observed(*args: Any) -> Any:
            after = [callback(dev, None, prepared, args) for callback in _launch_observers]
            result = entry(*args)
            for done in after:
                if done is not None:
                    done()
            return result
        return observed
    from . import gpus
    launch = gpus.launcher(dev, prepared)
    if not _launch_observers:
        return launch

    def observed_launch(*args: Any) -> Any:
        stream = gpus.current_stream(dev)
        for callback in _launch_observers:
            callback(dev, stream, prepared, args)
        return launch(*args)
    return observed_launch


class Copy:
    """One copy of bytes: `path` ("h2d", "d2h", "d2d", "peer", "h2h"), `nbytes`, `blocking` (the host waited), `pinned`
    (the host's side is page-locked), `source` and `target` devices, `stream` (None for h2h)."""

    __slots__ = ("path", "nbytes", "blocking", "pinned", "source", "target", "stream")

    def __init__(self, path: str, nbytes: int, blocking: bool, pinned: bool, source: device, target: device,
                 stream: Any) -> None:
        self.path, self.nbytes, self.blocking, self.pinned = path, nbytes, blocking, pinned
        self.source, self.target, self.stream = source, target, stream

    def __repr__(self) -> str:
        return (f"Copy({self.path}, {self.nbytes} bytes, {self.source} to {self.target}, "
                f"{'blocking' if self.blocking else 'asynchronous'}, {'pinned' if self.pinned else 'pageable'})")


class Total:
    """What copies of one path came to: `count`, `nbytes`, and how many made the host wait, `waits`."""

    __slots__ = ("count", "nbytes", "waits")

    def __init__(self) -> None:
        self.count = self.nbytes = self.waits = 0

    def __repr__(self) -> str:
        return f"Total(count={self.count}, nbytes={self.nbytes}, waits={self.waits})"


totals: dict[str, Total] = {path: Total() for path in ("h2d", "d2h", "d2d", "peer", "h2h")}


def note(record: Copy) -> None:
    """Counts a copy and shows it to the observers."""
    with _lock:
        total = totals[record.path]
        total.count += 1
        total.nbytes += record.nbytes
        total.waits += record.blocking
    for callback in _copy_observers:
        callback(record)


def copy(dst_device: device, dst: int, src_device: device, src: int, nbytes: int, blocking: bool = True,
         keep: Any = None) -> None:
    """Copies `nbytes` bytes from address `src` on one device to `dst` on another (or the same).

    blocking: return when the bytes have arrived.  Otherwise the copy is queued on the GPU's current stream, and only
    page-locked (pinned) host memory is read or written later: pageable memory may be reused when this returns.  Between
    GPUs the host never waits: the copy runs on the source's current stream, and the destination's waits for it.
    `keep` lives until the copy is done.
    """
    if not nbytes:
        return
    if dst_device.type == src_device.type == "cpu":
        note(Copy("h2h", nbytes, True, False, src_device, dst_device, None))
        ctypes.memmove(dst, src, nbytes)
        return
    from . import gpus
    gpus.copy(dst_device, dst, src_device, src, nbytes, blocking, keep)


def synchronize(dev: device) -> None:
    """Waits until everything queued on `dev` is done, and raises what went wrong there.  Nothing to do for the CPU."""
    if dev.type != "cpu":
        from . import gpus
        gpus.synchronize(dev)


def wait_ready_for_host(dev: device) -> None:
    """Waits until the current stream's work on `dev` is done, so that the host may read what it wrote."""
    if dev.type != "cpu":
        from . import gpus
        gpus.current_stream(dev).synchronize()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held the old one


os.register_at_fork(after_in_child=_in_child)

"""What a profiled stretch has GPUs do, and how long each piece took there.

A pair of events goes into the stream around every launch and copy, so a real GPU measures the time and a simulated one predicts it.  Where the stream
was idle, the time in which a launch reaches the GPU is within the pair, a few microseconds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from .._core.runtime import dispatch, gpus
from .._core.runtime.streams import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core.kernels.programs import PreparedLaunch
    from .._core.runtime.device import device


class Kernel(NamedTuple):
    """One launch or copy: its name, the GPU's index, its microseconds there, when it began (on the host's clock, nanoseconds) and its stream."""

    name: str
    device: int
    duration: float
    start_ns: int
    stream: int


class DeviceWork:
    """Watches dispatch.  `owner()` gives the list that belongs to the innermost open call of this thread: what is launched is put there, and
    `flops` are added up by `count(n)`."""

    def __init__(self, owner: Callable[[], list[Any]], count: Callable[[int], None] | None, timed: bool) -> None:
        self._owner, self._count, self._timed = owner, count, timed
        self._bases: dict[int, tuple[Event, int]] = {}  # a moment of each GPU on its own clock and on the host's
        self._pairs: list[tuple[list[Any], int, str, Any, Event, Event]] = []
        self._observer = dispatch.observe(self._launched, self._copied)

    def _launched(self, dev: device, stream: Any, prepared: PreparedLaunch, args: tuple[Any, ...]) -> Callable[[], None] | None:
        if self._count is not None:
            self._count(prepared.flops)
        return self._around(prepared.name, stream)

    def _copied(self, copy: dispatch.Copy) -> Callable[[], None] | None:
        return self._around(f"copy {copy.direction}", copy.stream)

    def _around(self, name: str, stream: Any) -> Callable[[], None] | None:
        if stream is None or not self._timed or stream._gpu.driver.capturing(stream._handle):
            return None
        index = stream.device_index
        if index not in self._bases:
            base = Event(enable_timing=True)
            base.record(stream)
            self._bases[index] = base, time.perf_counter_ns()
        start, end = Event(enable_timing=True), Event(enable_timing=True)
        start.record(stream)
        mine = self._owner()
        mine.append(None)  # its place, until its time is known
        self._pairs.append((mine, len(mine) - 1, name, stream, start, end))
        return lambda: end.record(stream)

    def close(self) -> None:
        """Stops watching, and waits for the GPUs to learn how long everything took.  Raises what went wrong there."""
        self._observer.close()
        pairs, self._pairs = self._pairs, []
        for index in self._bases:
            gpus.synchronize(index)
        for mine, place, name, stream, start, end in pairs:
            base, at = self._bases[stream.device_index]
            mine[place] = Kernel(name, stream.device_index, start.elapsed_time(end) * 1e3, at + int(base.elapsed_time(start) * 1e6), stream.stream_id)


def models() -> str:
    """What is to be said of the times of GPUs: that they are predicted, and for which models; "" where they are measured."""
    system = gpus._system
    if system is None or not system.driver.simulated:
        return ""
    return "predicted for " + ", ".join(sorted({g.properties.name for g in gpus.start().gpus}))

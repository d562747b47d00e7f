"""Moments of the virtual clock that are not known yet: a collective begins when the last of its ranks is there, who may not have come.

While a stream's moment is not known, what happens on it is kept in its order (`Queue.later`), and worked out once the ranks have agreed (`Meet.settle`),
which they do when the collective has its turn.  Whoever waits for work runs it first, so that he finds its moment known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import clock
from .queues import Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ...kernels.programs import PreparedLaunch
    from .clock import Engine
    from .queues import Queue


class Moment:
    """A moment of the virtual clock, in seconds; None until it is known."""

    time: float | None = None


class Mark:
    """The moment at which a stream has done what came before, not before the host's call."""

    __slots__ = ("moment", "host")

    def __init__(self, moment: Moment, host: float) -> None:
        self.moment, self.host = moment, host

    def settled(self, stream: Queue) -> bool:
        """Works it out; False where that cannot be done yet."""
        self.moment.time = stream.ready = max(stream.ready, self.host)
        return True


class Behind:
    """What comes after waits for a moment of another stream."""

    __slots__ = ("moment",)

    def __init__(self, moment: Moment) -> None:
        self.moment = moment

    def settled(self, stream: Queue) -> bool:
        if self.moment.time is None:
            return False
        stream.ready = max(stream.ready, self.moment.time)
        return True


class Placed:
    """Work of a known price.  told: called with its start and end."""

    __slots__ = ("cost", "busy", "engines", "host", "told")

    def __init__(self, cost: float, busy: float, engines: Sequence[Engine], host: float, told: Callable[[float, float], None]) -> None:
        self.cost, self.busy, self.engines, self.host, self.told = cost, busy, engines, host, told

    def settled(self, stream: Queue) -> bool:
        start = clock.schedule(self.engines, max(stream.ready, self.host), self.busy)
        stream.ready = start + self.cost
        self.told(start, stream.ready)
        return True


class Meet(Launch):
    """A queued collective.  ready: when this rank could have begun it; start: when all ranks could; end; last: the rank that the others waited for, -1
    where that is not known.  `settle` says when the last rank is ready; without it, it begins when this rank is."""

    __slots__ = ("stream", "seconds", "engines", "host", "told", "drain", "agreed", "ready", "start", "end", "last")
    virtual = True

    def __init__(self, prepared: PreparedLaunch, args: tuple[Any, ...], site: tuple[str, int] | None, stream: Queue, seconds: float,
                 engines: Sequence[Engine], drain: Callable[[], None]) -> None:
        super().__init__(prepared, args, site)
        self.stream, self.seconds, self.engines, self.drain = stream, seconds, engines, drain
        self.host = 0.0
        self.told: Callable[[float, float], None] | None = None
        self.agreed: float | None = None
        self.ready = self.start = self.end = 0.0
        self.last = -1

    def run(self) -> None:
        self.prepared.keep.carry_out(self, self.args)

    def comes(self) -> float:
        """When this rank is ready for it, in seconds; it has its turn."""
        self.ready = max(self.stream.ready, self.host)
        for engine in self.engines:
            self.ready = engine.gap(self.ready, self.seconds)
        return self.ready

    def settle(self, agreed: float, last: int) -> None:
        """All ranks are ready at `agreed`; `last` was the latest of them."""
        self.agreed, self.last = agreed, last
        self.drain()

    def alone(self) -> None:
        """It was not carried out, or nobody said when the others were ready."""
        if self.agreed is None:
            self.settle(self.comes(), -1)

    def settled(self, stream: Queue) -> bool:
        if self.agreed is None:
            return False
        self.ready = max(stream.ready, self.host)
        self.start = clock.schedule(self.engines, max(self.ready, self.agreed), self.seconds)
        self.end = stream.ready = self.start + self.seconds
        if self.told is not None:
            self.told(self.start, self.end)
        return True


def drain(streams: Iterable[Queue]) -> None:
    """Works out what is known now, on all streams."""
    found = [q for q in streams if q.later]
    moved = True
    while moved:
        moved = False
        for q in found:
            while q.later and q.later[0].settled(q):
                q.later.popleft()
                moved = True

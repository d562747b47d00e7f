"""Who waits for whom in collectives: what each rank says of its clock as it comes, and who looks on.

A rank's word is the moment at which it is ready, and its number; the largest says when the last rank is, and which that is.  Virtual clocks begin at 0 in
every process and count nanoseconds; where nothing is simulated the hosts' clocks say it, in microseconds since 2020.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    Watcher = Callable[[str, int, float, float, bool], None]

_VIRTUAL = 1 << 62
_BITS = 12  # of a word, for the rank
_NOBODY = (1 << _BITS) - 1
_SINCE = 1_577_836_800.0  # 2020
_UNITS = (1e6, 1e9)  # of real and virtual clocks, in a second


class Clock(Protocol):
    """What tells a collective's moments on one rank.  virtual: whether they are predicted."""

    virtual: bool

    def comes(self) -> float:
        """When this rank is ready, in seconds."""
        ...

    def settle(self, agreed: float, last: int) -> None:
        """All ranks are ready at `agreed`, the last of them being `last` (a global rank, -1 where that is not known)."""
        ...


def word(clock: Clock, rank: int) -> int:
    """What a group's rank tells the others of its clock, as a number of 63 bits."""
    return _VIRTUAL * clock.virtual | int(clock.comes() * _UNITS[clock.virtual]) << _BITS | min(rank, _NOBODY)


def read(said: int) -> tuple[float, bool, int]:
    """Seconds, whether of a virtual clock, and the group's rank, -1 for one that has no room."""
    virtual, rank = bool(said & _VIRTUAL), said & _NOBODY
    return ((said & ~_VIRTUAL) >> _BITS) / _UNITS[virtual], virtual, -1 if rank == _NOBODY else rank


def wall() -> float:
    """The host's clock, in seconds."""
    return time.time() - _SINCE


class HostClock:
    """The clock of a collective that the host waits for.  driver: of simulated GPUs, whose virtual clock it is then."""

    __slots__ = ("driver", "virtual", "ready", "agreed", "last")

    def __init__(self, driver: Any) -> None:
        self.driver, self.virtual = driver, driver is not None
        self.ready = driver.host_time() if driver is not None else wall()
        self.agreed: float | None = None
        self.last = -1

    def comes(self) -> float:
        return self.ready

    def settle(self, agreed: float, last: int) -> None:
        self.agreed, self.last = agreed, last

    def waited(self, what: str, since: float) -> None:
        """The host has waited for the collective, since a moment of this clock.  Who looks on is told for whom."""
        if self.agreed is None:
            return
        until, self.agreed = self.agreed if self.virtual else min(self.agreed, wall()), None
        if self.virtual:
            self.driver.host_until(until)
        if until - since > 1 / _UNITS[self.virtual]:
            for watcher in _watchers:
                watcher(what, self.last, since, until, self.virtual)

    def now(self) -> float:
        """This moment, as this clock has it."""
        return float(self.driver.host_time()) if self.virtual else wall()


_watchers: tuple[Watcher, ...] = ()


def watched() -> bool:
    """Whether anybody looks on."""
    return bool(_watchers)


def watch(watcher: Watcher) -> Callable[[], None]:
    """Calls `watcher(what, rank, start, end, virtual)` in a thread that has waited for a rank, with moments of its clock.  What is given ends that."""
    global _watchers
    _watchers += (watcher,)

    def end() -> None:
        global _watchers
        _watchers = tuple([w for w in _watchers if w is not watcher])
    return end

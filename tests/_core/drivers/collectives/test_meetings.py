"""What ranks say of their clocks: the largest word is that of the last rank; the host waits until then, on either clock."""

from __future__ import annotations

import random
from typing import Any

import pytest

from flambeau._core.drivers.collectives import meetings


class Said:
    def __init__(self, virtual: bool, seconds: float) -> None:
        self.virtual, self.seconds = virtual, seconds

    def comes(self) -> float:
        return self.seconds

    def settle(self, agreed: float, last: int) -> None:
        raise AssertionError("nobody agrees here")


class Driver:
    def __init__(self, now: float) -> None:
        self.now = now

    def host_time(self) -> float:
        return self.now

    def host_until(self, moment: float) -> None:
        self.now = max(self.now, moment)


@pytest.mark.parametrize("virtual,unit", [(True, 1e-9), (False, 1e-6)])
def test_the_largest_word_is_the_last_ranks(virtual: bool, unit: float) -> None:
    rng = random.Random(4)
    for _ in range(300):
        moments = [rng.uniform(0, 10 ** rng.uniform(-6, 6)) for _ in range(rng.randrange(2, 9))]
        words = [meetings.word(Said(virtual, t), r) for r, t in enumerate(moments)]
        assert all(0 < w < 1 << 63 or w == 0 for w in words)
        seconds, kind, last = meetings.read(max(words))
        assert kind is virtual and seconds == pytest.approx(max(moments), abs=unit * 1.01, rel=1e-12)
        assert moments[last] >= max(moments) - unit


def test_a_rank_without_room_is_nobody_and_a_virtual_clock_is_told_from_a_real_one() -> None:
    assert meetings.read(meetings.word(Said(True, 2.5), 5000)) == (2.5, True, -1)
    assert meetings.word(Said(True, 0.0), 0) > meetings.word(Said(False, meetings.wall()), 4000) > meetings.word(Said(False, 1.0), 1)
    assert 0 < meetings.wall() < 2**50 / 1e6


def test_the_host_waits_on_the_virtual_clock_and_who_looks_on_is_told() -> None:
    seen: list[Any] = []
    end = meetings.watch(lambda *said: seen.append(said))
    driver = Driver(1.0)
    clock = meetings.HostClock(driver)
    assert clock.virtual and clock.comes() == 1.0
    clock.settle(1.5, 3)
    clock.waited("barrier()", clock.ready)
    assert driver.now == 1.5 and seen == [("barrier()", 3, 1.0, 1.5, True)]
    clock.waited("barrier()", clock.ready)  # that is over
    last = meetings.HostClock(driver)
    last.settle(1.5, 0)  # it is the last itself
    last.waited("barrier()", last.ready)
    late = meetings.HostClock(driver)  # begun in the background; the host comes when it is done
    driver.now = 3.0
    late.settle(2.0, 1)
    late.waited("all_reduce", late.now())
    end()
    nobody = meetings.HostClock(driver)
    nobody.settle(9.0, 1)
    nobody.waited("barrier()", 3.0)
    assert len(seen) == 1 and driver.now == 9.0


def test_without_a_virtual_clock_it_is_the_hosts() -> None:
    seen: list[Any] = []
    end = meetings.watch(lambda *said: seen.append(said))
    clock = meetings.HostClock(None)
    clock.settle(clock.ready + 3600, 2)  # another host's clock may be ahead: it has not waited longer than until now
    clock.waited("barrier()", clock.ready)
    clock.waited("barrier()", clock.ready)
    assert meetings.watched()
    end()
    assert not meetings.watched()
    ((what, rank, start, until, virtual),) = seen
    assert (what, rank, virtual) == ("barrier()", 2, False) and start == clock.ready <= until <= meetings.wall()

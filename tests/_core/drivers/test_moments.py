"""Work behind a collective whose other ranks have not come: its moments are worked out when they have, in any order of waiting."""

from __future__ import annotations

from typing import Any

import pytest

from flambeau._core.drivers.simulated import clock
from flambeau._core.drivers.simulated.driver import SimulatedDriver
from flambeau._core.drivers.simulated.models import MODELS
from flambeau._core.drivers.simulated.reached import KERNEL
from flambeau._core.errors import AcceleratorError
from flambeau._core.kernels.programs import PreparedLaunch
from flambeau._core.kernels.specs import Collective


class Bench:
    """A driver whose streams are told of by letters; `known` are their items' (start, end) in microseconds, once these are known."""

    def __init__(self, queue: str = "lazy") -> None:
        self.d = SimulatedDriver(["H200"], 1 << 20, queue, 3)
        self.met: list[Any] = []
        self.known: dict[str, tuple[float, float]] = {}
        self.asked: list[str] = []
        self.d.watch(self._seen)

    def _seen(self, stream: Any, item: Any, engine: str, start: float | None, end: float | None) -> None:
        if start is None or end is None:
            self.asked.append(item.name)
        else:
            self.known[item.name] = round(start * 1e6, 3), round(end * 1e6, 3)

    def kernel(self, stream: Any, micros: float, name: str) -> None:
        self.d.launch(stream, PreparedLaunch(name, lambda: None, nbytes=round(micros * MODELS["H200"].reached.moving["map"] * 1e3)), ())

    def collective(self, stream: Any, agreed: float | None, name: str = "all_reduce", fails: bool = False) -> None:
        """agreed: when the last rank is ready, in microseconds; None: nobody says."""
        def carry_out(item: Any, addresses: Any) -> None:
            self.met.append(item)
            item.comes()
            if fails:
                raise RuntimeError("the other ranks are gone")
            if agreed is not None:
                item.settle(agreed * 1e-6, 1)
        self.d.launch(stream, PreparedLaunch(name, lambda: None, keep=Collective(name, carry_out, 0, 0, 2)), ())

    def mark(self, stream: Any) -> Any:
        e = self.d.event_create(True)
        self.d.event_record(e, stream)
        return e


TOOK = round(2e6 * clock.HOP, 3)  # of nothing, around two ranks


@pytest.mark.parametrize("queue", ["lazy", "eager", "random"])
def test_what_is_behind_a_collective_begins_when_the_last_rank_is_there(queue: str) -> None:
    b = Bench(queue)
    work, talk = b.d.stream_create(0), b.d.stream_create(0)
    b.kernel(work, 100, "before")  # 4 to 104
    b.d.stream_wait_event(talk, b.mark(work))
    b.collective(talk, 500)
    b.kernel(work, 30, "beside")  # nothing holds it up
    b.d.stream_wait_event(work, there := b.mark(talk))
    b.kernel(work, 50, "behind")
    last = b.mark(work)
    b.d.event_synchronize(last)
    assert b.known == {"before": (4, 104), "beside": (104, 134), "all_reduce": (500, 500 + TOOK), "behind": (500 + TOOK, 550 + TOOK)}
    assert b.d.event_elapsed(there, last) == pytest.approx(0.05)
    assert b.d.host_time() == pytest.approx((550 + TOOK) * 1e-6)
    (item,) = b.met
    assert (item.ready, item.start, item.last) == (pytest.approx(104e-6), pytest.approx(500e-6), 1)


def test_nothing_is_known_before_and_others_are_not_held_up() -> None:
    b = Bench()
    work, talk = b.d.stream_create(0), b.d.stream_create(0)
    b.collective(talk, 900)
    b.kernel(talk, 10, "behind")
    b.kernel(work, 20, "beside")
    b.d.stream_synchronize(work)
    assert b.asked == ["all_reduce", "behind"] and list(b.known) == ["beside"] and not b.met
    assert b.d.host_time() < 100e-6
    b.d.synchronize(0)
    assert b.known["behind"] == (900 + TOOK, 910 + TOOK)
    assert b.d.host_time() == pytest.approx((910 + TOOK) * 1e-6) and b.d.device_time(0) == b.d.host_time()


def test_collectives_follow_one_another_and_the_last_rank_waits_for_nobody() -> None:
    b = Bench()
    s = b.d.stream_create(0)
    b.kernel(s, 100, "first")
    b.collective(s, 50, "one")  # the others were there before
    b.collective(s, 300, "two")
    b.d.stream_synchronize(s)
    one, two = b.met
    assert one.ready == one.start == pytest.approx(104e-6)
    assert two.ready == pytest.approx((104 + TOOK) * 1e-6) and two.start == pytest.approx(300e-6)


def test_where_nobody_says_when_it_begins_as_this_rank_is_ready() -> None:
    b = Bench()
    s = b.d.stream_create(0)
    b.collective(s, None)
    b.d.stream_synchronize(s)
    assert b.known["all_reduce"] == (4, 4 + TOOK) and b.met[0].last == -1


def test_a_collective_that_fails_and_what_is_dropped_behind_it_hold_up_no_clock() -> None:
    b = Bench()
    s = b.d.stream_create(0)
    b.collective(s, None, "one", fails=True)
    b.collective(s, 500, "two")
    b.kernel(s, 10, "behind")
    with pytest.raises(AcceleratorError, match="the other ranks are gone"):
        b.d.stream_synchronize(s)
    assert b.known["one"] == (4, 4 + TOOK) and set(b.known) == {"one", "two", "behind"} and len(b.met) == 1
    b.kernel(s, 10, "after")
    b.d.stream_synchronize(s)
    assert not s.later and b.known["after"][0] >= b.known["behind"][1] - KERNEL * 1e6


def test_many_streams_that_wait_for_one_another() -> None:
    """A chain of collectives and events over three streams, waited for from its end, in every order of queues."""
    for queue in ("lazy", "eager", "random"):
        b = Bench(queue)
        streams = [b.d.stream_create(0) for _ in range(3)]
        for k in range(9):
            s, t = streams[k % 3], streams[(k + 1) % 3]
            b.collective(s, 1000 * (k + 1), f"collective {k}")
            b.kernel(s, 100, f"kernel {k}")
            b.d.stream_wait_event(t, b.mark(s))
        b.d.synchronize(0)
        assert [b.known[f"collective {k}"][0] for k in range(9)] == [1000 * (k + 1) for k in range(9)]
        assert all(b.known[f"kernel {k}"] == (1000 * (k + 1) + TOOK, 1100 + 1000 * k + TOOK) for k in range(9))

"""Trials of calls: the time that learning may take on a GPU."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from flambeau._core.engine import trials


class _Clock:
    now = 1e6

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Clock]:
    made = _Clock()
    monkeypatch.setattr(trials, "time", made)
    yield made


def test_learning_takes_a_twentieth_of_the_time(clock: _Clock) -> None:
    budget, rng, learned, begun = trials.Budget(), random.Random(0), 0.0, clock.now
    for _ in range(200_000):
        clock.now += rng.uniform(0, 1e-3)
        while budget.left():
            took = rng.uniform(5e-3, 20e-3)
            clock.now += took
            budget.spent += took
            learned += took
    assert 0.045 < learned / (clock.now - begun) <= 0.0501


@pytest.mark.parametrize("pause", [10.0, 3600.0])
def test_a_pause_saves_nothing_up(clock: _Clock, pause: float) -> None:
    """What may be learned at once afterwards is one call, as at the beginning."""
    budget = trials.Budget()
    for _ in range(3):
        clock.now += pause
        assert budget.left()
        budget.spent += 0.01
        clock.now += 0.15
        assert not budget.left()
        clock.now += 0.06
        assert budget.left()

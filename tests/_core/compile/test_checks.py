"""Which checks of arguments a record does first."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau._core.compile.captured import recorded
from flambeau._core.compile.checks import checked_first, is_check, looked_before
from flambeau._core.compile.lenient import Lenient
from flambeau._core.compile.record import Recording
from flambeau._core.compile.replay import Planned
from flambeau.nn import functional as F


def planned(f: Any, *args: Any) -> Planned:
    """The record of a call that looks at values."""
    f(*args)
    recording = Lenient()
    tree, shown = recorded(lambda: f(*args), recording)
    return Planned(recording, args, tree, shown)


def places(f: Any, *args: Any) -> tuple[list[int], list[int], int]:
    """Where the checks stand among a record's steps, in its own order and in the other; and how many steps there are more."""
    f(*args)
    recording = Recording()
    tree, shown = recorded(lambda: f(*args), recording)
    plan = Planned(recording, args, tree, shown)
    steps, _ = checked_first(plan)
    before, after = ([i for i, s in enumerate(x) if is_check(s)] for x in (plan.steps, steps))
    return before, after, len(steps) - len(plan.steps)


def test_a_check_of_an_argument_is_first() -> None:
    state, table = torch.zeros(2), torch.rand(4, 3)

    def f(rows: Any) -> Any:
        state.add_(1)
        return F.embedding(rows, table)
    assert places(f, torch.tensor([1, 2])) == ([1], [0], 0)


def test_what_it_looks_at_is_worked_out_before_it() -> None:
    state, table = torch.zeros(2), torch.rand(4, 3)

    def f(rows: Any) -> Any:
        state.add_(1)
        return F.embedding(rows * 2 + 1, table)
    before, after, more = places(f, torch.tensor([0, 1]))
    assert before[0] > after[0] == more > 0


def test_a_check_of_what_was_changed_stays() -> None:
    state, table = torch.zeros(2, dtype=torch.int64), torch.rand(99, 3)

    def f(rows: Any) -> Any:
        state.add_(rows)
        return F.embedding(state, table)
    before, after, more = places(f, torch.tensor([0, 1]))
    assert before == after == [1]
    assert more == 0


def test_a_look_at_what_was_worked_out_before_a_change_is_before_it() -> None:
    state = torch.zeros(2)

    def f(x: Any) -> Any:
        y = x.cumsum(0)
        state.add_(1)
        (y * 2).sum().item()
        return y
    plan = planned(f, torch.ones(3))
    at = next(k for k, s in enumerate(plan.steps) if getattr(getattr(s, "prepared", None), "name", "") == "add")
    count, claimed = len(plan.steps), len(plan.claimed)
    looked_before(plan, at)
    (look,) = [k for k, s in enumerate(plan.steps) if is_check(s)]
    assert plan.steps[look + 1].prepared.name == "add"
    assert len(plan.steps) > count
    assert len(plan.claimed) > claimed


def test_a_look_at_what_was_changed_stays() -> None:
    state = torch.zeros(2)

    def f(x: Any) -> Any:
        state.add_(x)
        (state * 2).sum().item()
        return x * 2
    plan = planned(f, torch.ones(2))
    before = [*plan.steps]
    looked_before(plan, 0)
    assert plan.steps == before

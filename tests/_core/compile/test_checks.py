"""Which checks of arguments a record does first."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau._core.compile.captured import recorded
from flambeau._core.compile.checks import checked_first, is_check
from flambeau._core.compile.record import Recording
from flambeau._core.compile.replay import Planned
from flambeau.nn import functional as F


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

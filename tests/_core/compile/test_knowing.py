"""What a run knows of what it met, and when it stops knowing."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._core.compile.reads import Run


def test_objects_that_happen_to_live_are_not_asked_for_their_class() -> None:
    asked: list[int] = []

    class Proxy:
        @property
        def __class__(self) -> Any:
            asked.append(1)
            return int
    held = Proxy()
    with Run([]):
        pass
    assert not asked
    assert type(held) is Proxy


def test_an_exception_ends_it_and_passes() -> None:
    def f(x: Any) -> Any:
        raise ValueError("no")
    run = Run([])
    with pytest.raises(ValueError, match="no"), run:
        run.callee(f)(1)
    assert "ValueError" in str(run.why)
    assert torch.ones(1).add(1).tolist() == [2.0]


def test_a_change_of_mode_ends_it() -> None:
    def f() -> None:
        torch.set_grad_enabled(False)
    try:
        run = Run([])
        with run:
            run.callee(f)()
        assert "how operations are carried out" in str(run.why)
    finally:
        torch.set_grad_enabled(True)


def test_gradients_that_are_only_asked_for_may_be_others() -> None:
    p = torch.ones(2, requires_grad=True)
    p.grad = torch.ones(2)

    def f() -> Any:
        return p.grad is None
    run = Run([])
    with run:
        made = run.callee(f)()
    assert run.why is None
    assert made is False
    assert [s.asked for s in run.seen.values()] == [True]


def test_what_is_old_and_what_is_new() -> None:
    old = torch.ones(2)
    found: list[Any] = []

    def f() -> Any:
        new = old * 2
        found.insert(0, new)
        return [new]
    run = Run([])
    with run:
        made = run.callee(f)()
        assert run.is_old(old)
        assert not run.is_old(made[0])
        assert run.is_fresh(made) is False  # a list that lived before was changed, so nothing is known any more
    assert "insert" in str(run.why)
    run = Run([])
    with run:
        kept = run.fresh([1, 2])
        assert run.is_fresh(kept)
        assert run.atoms((1, "a", None))
        assert not run.atoms((1, object()))

"""An optimizer's launches for large parameters are one, and give the same bits."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau._core.compile.passes import shortened
from flambeau._core.compile.record import Launch


def trained(steps: int, capture: bool) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    sizes = [(300, 400), (400,), (256, 300), (7,)]
    parameters = [torch.rand(*n).requires_grad_() for n in sizes]
    optimizer = torch.optim.AdamW(parameters, lr=0.01)

    def step(x: Any) -> None:
        optimizer.zero_grad()
        sum((p * p * x).sum() for p in parameters).backward()
        optimizer.step()
    f = torch.capture(step, check=capture) if capture else step
    for i in range(steps):
        f(torch.tensor(0.1 * i))
    return parameters, f


def test_large_updates_are_one_launch() -> None:
    _, f = trained(2, True)
    (plan,) = f.records
    names = [s.prepared.name for s in shortened(plan) if isinstance(s, Launch)]
    assert [n for n in names if "adam" in n] == ["adam x 4"]
    assert sum(s.prepared.name == "adam" for s in plan.launches()) == 4


def test_the_bits_are_those_of_the_launches_one_by_one() -> None:
    torch.manual_seed(0)
    wanted, _ = trained(5, False)
    torch.manual_seed(0)
    sizes = [(300, 400), (400,), (256, 300), (7,)]
    parameters = [torch.rand(*n).requires_grad_() for n in sizes]
    optimizer = torch.optim.AdamW(parameters, lr=0.01)

    @torch.capture
    def step(x: Any) -> None:
        optimizer.zero_grad()
        sum((p * p * x).sum() for p in parameters).backward()
        optimizer.step()
    for i in range(5):
        step(torch.tensor(0.1 * i))
    for p, q in zip(parameters, wanted, strict=True):
        assert torch.equal(p, q)


def test_those_that_depend_on_one_another_stay_apart() -> None:
    state = torch.rand(600, 600)

    def f(i: Any) -> None:
        state.t().mul_(0.5)
        state.add_(state.t().flip(0))
        state.mul_(0.5)
    captured = torch.capture(f)
    other = state.clone()
    for _ in range(3):
        captured(torch.ones(1))
        other.t().mul_(0.5)
        other.add_(other.t().flip(0))
        other.mul_(0.5)
        assert torch.equal(state, other)

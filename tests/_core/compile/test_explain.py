"""What `explain` says of a step: what became one launch, what stayed apart, and that nothing is changed by the timing."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau import nn


def test_groups_and_what_stayed_apart() -> None:
    w = torch.rand(16, 16)

    def f(x: Any) -> Any:
        y = (x * 2).tanh()
        return ((y @ w) + 1).exp() + y
    e = torch.explain(f)(torch.rand(16, 16))
    assert [[name for name, _ in g] for g in e.groups] == [["mul", "tanh"], ["add", "exp", "add"]]
    assert all("test_explain.py:" in line for g in e.groups for _, line in g)
    assert e.launches == (6, 3)
    assert e.nbytes[1] < e.nbytes[0]
    assert 0 < e.scratch[1] <= e.scratch[0]
    assert all(0 < s < 1 for s in e.seconds)
    assert e.peak[1] <= e.peak[0]
    assert any("matmul" in why and "must stay between" in why for why in e.apart)
    text = str(e)
    assert "6 recorded, 3 replayed" in text
    assert "mul (" in text and "apart:" in text


def test_the_most_memory_that_a_step_takes() -> None:
    n = 1 << 18  # elements of a MiB
    w = torch.rand(4, 4)

    def f(x: Any) -> Any:
        a = x.cumsum(0)
        b = a.cumsum(0)
        c = b.cumsum(0)
        return c.sum() + w.sum(), a.view(-1)[:4].clone()
    e = torch.explain(f)(torch.rand(n))
    assert 3 * 4 * n <= e.peak[0] < 3.2 * 4 * n
    assert 2 * 4 * n <= e.peak[1] < 3.2 * 4 * n
    assert "MiB lived at once" in str(e) or "KiB lived at once" in str(e)


def test_only_the_two_calls_change_anything() -> None:
    torch.manual_seed(0)
    nets = [nn.Linear(4, 4), nn.Linear(4, 4)]
    nets[1].load_state_dict(nets[0].state_dict())
    steps = []
    for net in nets:
        o = torch.optim.AdamW(net.parameters(), lr=0.1)

        def step(x: Any, net: Any = net, o: Any = o) -> Any:
            o.zero_grad()
            loss = (net(x) * torch.rand(4)).square().mean()
            loss.backward()
            o.step()
            return loss
        steps.append((step, o))
    x = torch.rand(2, 4)
    torch.manual_seed(1)
    e = torch.explain(steps[0][0])(x)
    state = torch.get_rng_state()
    torch.manual_seed(1)
    for _ in range(2):
        steps[1][0](x)
    assert torch.equal(state, torch.get_rng_state())
    for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(p, q)
    assert steps[0][1].state_dict()["state"][0]["step"] == steps[1][1].state_dict()["state"][0]["step"]
    assert e.launches[1] <= e.launches[0]


def test_what_cannot_be_captured_is_said() -> None:
    with pytest.raises(RuntimeError, match="capture: Python looks at a tensor's values"):
        torch.explain(lambda x: x.sum().item())(torch.ones(3))
    with pytest.raises(TypeError, match="explain: expected a function, got int"):
        torch.explain(3)  # type: ignore[arg-type]


def test_a_compiled_function_says_why_calls_were_left_to_python() -> None:
    seen: list[int] = []

    def f(x: Any) -> Any:
        seen.insert(0, 1)
        return x * 2 + 1
    g = torch.compile(f)
    x = torch.ones(3)
    for _ in range(8):
        g(x)
    found = torch.explain(g)(x)
    (why,) = found.breaks
    assert "list.insert" in why
    assert __file__ in why
    assert found.breaks[why] == 3
    assert "left to Python by compile" in str(found)
    assert not torch.explain(f)(x).breaks

"""Values that Python looks at are conditions of a replay: where one is another, Python does the call from its beginning, with the numbers not yet drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import flambeau as torch
from flambeau import nn
from flambeau._core.compile import kept
from flambeau.nn import functional as F

pytestmark = pytest.mark.usefixtures("always_kept")


class Parts(NamedTuple):
    first: Any
    second: Any


class World:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def learned(self, loss: Any) -> Any:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def branch(w: World, x: Any) -> Any:
    y = w.net(x)
    if y.sum() > x.sum():
        return -y.detach()
    return y.detach()


def drawn_branch(w: World, x: Any) -> Any:
    """The draw before the branch is made again by Python where the branch is the other."""
    noise = torch.randn(4, 4)
    y = w.net(x + 0.1 * noise)
    if y.mean() > 0.2:
        return y.detach(), torch.rand(2)
    return noise, y.detach() * 2, torch.rand(2)


def drawn_indices(w: World, x: Any) -> Any:
    t = torch.randint(0, 4, (3,))
    return w.net(x[t])[torch.randperm(3)].detach()


def between(w: World, x: Any) -> Any:
    """Raises where a value lies outside [0, 1]: with the gradients let go before."""
    w.optimizer.zero_grad()
    p = w.net(x) * x.max()
    return w.learned(F.binary_cross_entropy((p * p) / 8, torch.full((4, 4), 0.5)))


def between_late(w: World, x: Any) -> Any:
    """The same with the gradients let go of only behind the check: they are there when it raises."""
    p = w.net(x) * x.max()
    return w.learned(F.binary_cross_entropy((p * p) / 8, torch.full((4, 4), 0.5)))


def codes(w: World, x: Any) -> Any:
    w.optimizer.zero_grad()
    return w.learned((w.net(x) - F.one_hot((x[:, 0] * 4).long().clamp(max=4), 4).float()).square().mean())


def a_number(w: World, x: Any) -> Any:
    return w.net(x).detach() * int(x.sum() > 4)


def requiring(w: World, x: Any) -> Any:
    x = x.detach().clone()
    x.requires_grad = True
    (g,) = torch.autograd.grad(w.net(x).sum(), [x], create_graph=True)
    return w.learned(g.square().mean())


def named(w: World, x: Any) -> Any:
    top = w.net(x).max(1)
    parts = Parts(top.values, top.indices)
    return parts.first.detach(), parts.second


def language(w: World, x: Any) -> Any:
    """Chains of comparisons, imports, attributes among other targets, a mode set to what it is."""
    from math import sqrt
    w.net.train()
    low = high = 0
    if 0 <= len(w.net) - 1 < x.shape[0] and low is high is not None:
        low, high = 1, 2
    return w.net(x).detach() * sqrt(low + high)


CASES: list[Callable[[World, Any], Any]] = [branch, drawn_branch, drawn_indices, between, between_late, codes, a_number, requiring, named, language]


def lived(case: Any, compiles: bool) -> tuple[Any, Any]:
    w = World()

    def f(x: Any) -> Any:
        return case(w, x)
    g: Any = torch.compile(f) if compiles else f
    found: list[Any] = []
    for k in range(18):
        x = torch.linspace(0, 1, 16).view(4, 4) * (1 if k < 10 or k % 3 else 4.0) * (1 if k % 2 else -1 if case is branch and k > 10 else 1)
        try:
            made = g(x)
            found.append([t.tolist() for t in (made if isinstance(made, tuple) else (made,))])
        except RuntimeError as error:
            found.append(str(error))
        found.append([None if p.grad is None else p.grad.tolist() for p in w.net.parameters()])
    found += [p.tolist() for p in w.net.parameters()]
    return g, (found, torch.rand(1).item())


@pytest.mark.parametrize("case", CASES)
def test_values_are_conditions(case: Any) -> None:
    f, found = lived(case, True)
    wanted = lived(case, False)[1]
    if case is not between_late:  # whose gradients a replay that ends at the check would have written over
        assert f.__compiled__.records, [k.why for k in f.__compiled__.kinds.values()]
    assert found == wanted
    if case in (between, between_late, codes):
        assert any(isinstance(x, str) for x in wanted[0])


def test_records_whose_checks_keep_failing_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_WASTED", 3)

    def f(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x * 3
    g = torch.compile(f)
    for _ in range(5):
        g(torch.ones(3))
    assert len(g.__compiled__.records) == 1
    for _ in range(6):
        assert g(-torch.ones(3)).tolist() == [-3.0] * 3
    for _ in range(6):
        assert g(torch.ones(3)).tolist() == [2.0] * 3
    assert all(kept.wasted <= 3 for kept in g.__compiled__.records)

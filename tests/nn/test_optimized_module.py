"""A compiled Module is the Module, with calls that may leave Python out."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau._core.compile import compiled
from flambeau.nn.optimized_module import OptimizedModule


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "pays", lambda *times: True)
    monkeypatch.setattr(compiled, "_TIMED", 1)
    monkeypatch.setattr(compiled, "AFTER", 1)


def net() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))


def trained(model: Any, change: Any = None) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for k in range(8):
        x = torch.linspace(-1, k, 12).view(4, 3)
        if k == 5 and change is not None:
            change(model)
        loss = model(x).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append((loss.item(), [p.tolist() for p in model.parameters()], [b.tolist() for b in model.buffers()]))
    return seen


def _swap(model: Any) -> None:
    inner = getattr(model, "_orig_mod", model)
    inner[3] = nn.Linear(4, 2, bias=False)


def _frozen(model: Any) -> None:
    for k, p in enumerate(model.parameters()):
        p.requires_grad_(k > 1)


@pytest.mark.parametrize("change", [None, lambda m: m.eval(), _frozen, _swap,
                                    lambda m: m.register_forward_hook(lambda m, args, out: out * 2)], ids=range(5))
def test_it_trains_as_the_module_does(change: Any) -> None:
    model = torch.compile(net())
    inner = model._orig_mod
    assert trained(model, change) == trained(net(), change)
    assert inner is model._orig_mod
    assert model._calls.__compiled__.records


def test_it_is_a_module_around_the_module() -> None:
    inner = net()
    model = torch.compile(inner)
    assert type(model) is OptimizedModule is torch._dynamo.OptimizedModule
    assert torch.compile(model) is model
    assert list(model.state_dict()) == [f"_orig_mod.{name}" for name in inner.state_dict()]
    assert model.training
    model.eval()
    assert not inner.training
    assert not inner[1].training
    model.train()
    assert inner.training
    model.label = "a"
    assert inner.label == "a"
    assert model.label == "a"
    with pytest.raises(AttributeError, match="nothing"):
        _ = model.nothing
    del model.label
    assert not hasattr(inner, "label")


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_modules_of_their_own(again: Any) -> None:
    model = torch.compile(net())
    x = torch.ones(4, 3)
    for _ in range(6):
        model(x)
    other = again(model)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    assert other(x).tolist() == [[0.0, 0.0]] * 4
    assert model(x).tolist() != [[0.0, 0.0]] * 4

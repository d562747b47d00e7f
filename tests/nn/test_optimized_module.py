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


class _Calls(nn.Module):
    """Counts how often Python does its call."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.scale = net(), 2.0
        self.cuts = True

    def forward(self, x: Any, *, twice: bool = False) -> Any:
        y = self.net(x) * self.scale
        return y + y if twice else y


def _scaled(model: Any) -> None:
    model.scale = 3.0


def _other_forward(model: Any) -> None:
    model.forward = lambda x: model.net(x) - 1


@pytest.mark.parametrize("change", [None, lambda m: m.eval(), _frozen, _scaled, _other_forward, lambda m: m.register_buffer("more", torch.ones(1)),
                                    lambda m: m.net[0].register_forward_pre_hook(lambda m, args: (args[0] * 3,)),
                                    lambda m: m.register_forward_hook(lambda m, args, out: out * 2),
                                    lambda m: setattr(m.net, "2", nn.ReLU())], ids=range(9))
def test_compiled_in_place_it_does_what_it_did(change: Any) -> None:
    model, plain = _Calls(), _Calls()
    model.compile()
    assert type(model) is _Calls
    assert list(model.state_dict()) == list(plain.state_dict())
    assert trained(model, change) == trained(plain, change)
    assert model._compiled_call_impl.__compiled__.records


def test_compiled_in_place_python_is_left_out() -> None:
    model = _Calls()
    model.compile()
    x = torch.ones(4, 3)
    with torch.no_grad():
        model.eval()
        for _ in range(6):
            wanted = model(x)
        (record,) = model._compiled_call_impl.__compiled__.records
        made = record.call((x,), {})
        assert made is not compiled.MISS
        assert made.tolist() == wanted.tolist()
        assert model(x, twice=True).tolist() == (wanted + wanted).tolist()
        model.scale = 5.0
        assert record.call((x,), {}) is compiled.MISS


def test_compiled_in_place_within_others() -> None:
    inner, plain = _Calls(), _Calls()
    inner.compile()
    around, beside = torch.compile(nn.Sequential(inner, nn.Tanh())), nn.Sequential(plain, nn.Tanh())
    assert trained(around) == trained(beside)
    around.compile()
    assert trained(around) == trained(beside)
    assert around(torch.ones(4, 3)).tolist() == beside(torch.ones(4, 3)).tolist()


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy])
def test_copies_of_what_was_compiled_in_place_are_not(again: Any) -> None:
    model = net()
    model.compile()
    for _ in range(6):
        model(torch.ones(4, 3))
    other = again(model)
    assert other._compiled_call_impl is None
    other.__dict__["forward"] = lambda x: x
    assert other(torch.ones(2)).tolist() == [1.0, 1.0]
    assert model(torch.ones(4, 3)).shape == (4, 2)
    assert pickle.loads(pickle.dumps(model))._compiled_call_impl is None


def test_compile_in_place_reads_its_options_as_compile_does() -> None:
    model = net()
    with pytest.raises(RuntimeError, match="Unrecognized mode=fast"):
        model.compile(mode="fast")
    assert model._compiled_call_impl is None
    model.compile(backend="eager")
    assert model(torch.ones(4, 3)).shape == (4, 2)
    with pytest.raises(TypeError):
        model.compile(model)


def test_traced_modules_compiled_in_place_are_copied_without_it() -> None:
    traced = torch.fx.symbolic_trace(net())
    traced.compile()
    assert traced(torch.ones(4, 3)).shape == (4, 2)
    assert copy.deepcopy(traced)._compiled_call_impl is None
    assert pickle.loads(pickle.dumps(traced))._compiled_call_impl is None

"""What `compile` gives is what the function does, whatever of all that it depends on is changed between calls."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn

SCALE = 2.0


class World:
    """A model and all else that its function reads."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.1)
        self.numbers = [1.0, 2.0]
        self.options: dict[str, Any] = {"add": 0.0, "loud": False, "fail": False}
        self.calls = 0
        self.x = torch.linspace(-1, 1, 12).view(4, 3)

    def function(self) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            self.calls += 1
            y = self.net(x) * SCALE + self.options["add"]
            for n in self.numbers:
                y = y * n
            if self.options["loud"]:
                print("called", self.calls)
            if self.options["fail"]:
                raise ValueError(f"failed at {self.calls}")
            if x.sum() > 3:
                y = -y
            loss = y.square().mean() + torch.zeros(1).sum()
            self.optimizer.zero_grad()
            if loss.requires_grad:
                loss.backward()
                self.optimizer.step()
            return loss.detach(), torch.rand(2), torch.ones(1).dtype
        return f


def _seed(w: World) -> None:
    torch.manual_seed(7)


def _hook(w: World) -> None:
    w.net[0].register_forward_hook(lambda m, args, out: out * 2)


def _replace(w: World) -> None:
    w.net[3] = nn.Linear(4, 2, bias=False)


def _bigger(w: World) -> None:
    w.x = torch.linspace(0, 3, 18).view(6, 3)


CHANGES: dict[str, Callable[[World], Any]] = {
    "nothing": lambda w: None, "eval": lambda w: w.net.eval(), "schedule": lambda w: w.schedule.step(), "frozen": lambda w: w.net.requires_grad_(False),
    "one frozen": lambda w: w.net[0].weight.requires_grad_(False), "module": _replace, "list": lambda w: w.numbers.append(3.0),
    "element": lambda w: w.numbers.__setitem__(0, 5.0), "dict": lambda w: w.options.update(add=1.0), "hook": _hook, "shape": _bigger,
    "branch": lambda w: setattr(w, "x", w.x + 5), "seed": _seed, "printing": lambda w: w.options.update(loud=True),
    "exception": lambda w: w.options.update(fail=True), "weight in place": lambda w: w.net[0].weight.data.mul_(2),
    "weight data": lambda w: setattr(w.net[0].weight, "data", torch.ones(4, 3)), "p of dropout": lambda w: setattr(w.net[2], "p", 0.0),
    "momentum": lambda w: setattr(w.net[1], "momentum", 0.9), "strides": lambda w: setattr(w, "x", w.x.t().contiguous().t()),
    "attribute": lambda w: setattr(w, "numbers", [4.0]), "betas": lambda w: w.optimizer.param_groups[0].update(betas=(0.5, 0.5))}


def told(call: Callable[[], Any]) -> Any:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        try:
            loss, draw, dtype = call()
            found: Any = loss.tolist(), draw.tolist(), dtype
        except ValueError as error:
            found = str(error)
    return found, text.getvalue()


def lived(change: Callable[[World], Any], compiled: bool, around: Callable[[], Any] = contextlib.nullcontext) -> Any:
    w = World()
    f: Callable[[Any], Any] = torch.compile(w.function()) if compiled else w.function()
    seen = [told(lambda: f(w.x)) for _ in range(3)]
    change(w)
    with around():
        seen += [told(lambda: f(w.x)) for _ in range(2)]
    seen.append(told(lambda: f(w.x)))
    return seen, w.calls, [p.tolist() for p in w.net.parameters()], [None if p.grad is None else p.grad.tolist() for p in w.net.parameters()]


@pytest.mark.parametrize("kind", CHANGES)
def test_each_change_has_its_effect(kind: str) -> None:
    assert lived(CHANGES[kind], True) == lived(CHANGES[kind], False)


def test_a_global_has_its_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(w: World) -> None:
        monkeypatch.setitem(globals(), "SCALE", 3.0)
    found = lived(change, True)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert found == lived(change, False)
    assert found != lived(lambda w: None, False)


@contextlib.contextmanager
def _doubles() -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("around", [torch.no_grad, lambda: torch.autocast("cpu"), _doubles, lambda: torch.random.fork_rng()])
def test_modes_around_the_call_have_their_effect(around: Any) -> None:
    found = lived(lambda w: None, True, around)
    assert found == lived(lambda w: None, False, around)


def test_forms() -> None:
    @torch.compile
    def f(x: Any) -> Any:
        return x * 2

    @torch.compile(mode="reduce-overhead", fullgraph=True, dynamic=True)
    def g(x: Any) -> Any:
        return x * 3
    x = torch.ones(2)
    assert (f(x) + g(x)).tolist() == [5.0, 5.0]
    assert torch.compile(f, backend="eager")(x).tolist() == [2.0, 2.0]
    net = nn.Linear(2, 2)
    assert net.compile(backend="eager") is None
    assert torch.equal(torch.compile(net)(x), net(x))


def test_bad_input() -> None:
    with pytest.raises(RuntimeError, match="Unrecognized mode=fast"):
        torch.compile(nn.ReLU(), mode="fast")
    with pytest.raises(RuntimeError, match="Either mode or options"):
        torch.compile(nn.ReLU(), mode="default", options={})
    with pytest.raises(RuntimeError, match="Invalid backend: 'nope'"):
        torch.compile(nn.ReLU(), backend="nope")
    with pytest.raises(AssertionError, match="callable"):
        torch.compile(3)

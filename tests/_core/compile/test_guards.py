"""Each guard holds as long as what it says is so, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.compile.guards import ABSENT, SPACE, Guards, modes, watched
from flambeau._core.engine.plans import maker
from flambeau._core.runtime import dispatch


def check(g: Guards) -> Callable[[], bool]:
    names = "".join(f"c{i}, " for i in range(len(g.constants)))
    text = "\n".join(["def make(constants):", f" {names} = constants" if names else " pass", " def holds():",
                      *[f"  if not ({line}): return False" for line in g.lines()], "  return True", " return holds"])
    found: Callable[[], bool] = maker(text, {**SPACE})(g.constants)
    return found


class Thing:
    def __init__(self) -> None:
        self.a = 1.5


def _cell() -> tuple[Any, Callable[[Any], None]]:
    x: Any = object()

    def put(y: Any) -> None:
        nonlocal x
        x = y
    assert put.__closure__ is not None
    return put.__closure__[0], put


def test_each_kind() -> None:
    d: dict[Any, Any] = {"a": [1], "b": 2}
    x: list[Any] = [object(), object()]
    o = Thing()
    options: dict[str, Any] = {"lr": 0.1, "betas": (0.9, 0.99), "on": True, "none": None}
    cell, put = _cell()
    t = torch.ones(3)
    kinds: list[tuple[Callable[[Guards], Any], Callable[[], Any]]] = [
        (lambda g: g.part(d, "a", d["a"]), lambda: d.update(a=[1])),
        (lambda g: g.part(d, "c", ABSENT), lambda: d.update(c=1)),
        (lambda g: g.keys(d), lambda: d.update(e=1)),
        (lambda g: g.elements(x), lambda: x.append(1)),
        (lambda g: g.element(x, -1), lambda: x.append(2)),
        (lambda g: g.empty(x), x.clear),
        (lambda g: g.attribute(o, "a", o.a), lambda: setattr(o, "a", 2.0)),
        (lambda g: g.lacks(Thing, "later"), lambda: setattr(Thing, "later", 1)),
        (lambda g: g.shape(o, o.__dict__), lambda: setattr(o, "__dict__", {"a": 2.0})),
        (lambda g: g.shape(o, None), lambda: setattr(o, "__class__", type("Other", (Thing,), {}))),
        (lambda g: g.cell(cell), lambda: put(1)),
        (lambda g: g.options(options, options, ("lr",)), lambda: options.update(betas=(0.9, 0.5))),
        (lambda g: g.tensor(t), lambda: setattr(t, "data", torch.zeros(3))),
        (lambda g: g.tensor(t), lambda: t.requires_grad_()),
        (lambda g: g.tensor(t), lambda: t.register_hook(print)),
    ]
    for say, change in kinds:
        g = Guards()
        say(g)
        holds = check(g)
        assert holds()
        change()
        assert not holds()


def test_numbers_that_may_be_others() -> None:
    g, options = Guards(), {"lr": 0.1, "eps": 1e-8}
    assert g.options(dict(options), options, ("lr",))
    holds = check(g)
    options["lr"] = 0.5
    assert holds()
    options["lr"] = torch.ones(1)  # type: ignore[assignment]
    assert not holds()
    assert not Guards().options({"lr": torch.ones(1)}, options, ("lr",))


@pytest.mark.parametrize("block", [torch.no_grad, torch.inference_mode, lambda: torch.autograd.graph.save_on_cpu(), lambda: torch.autocast("cpu")])
def test_modes(block: Any) -> None:
    before = modes()
    with block():
        assert modes() != before or watched()
    assert modes() == before


def test_who_looks_on_is_seen() -> None:
    assert not watched()
    with dispatch.observe(launches=lambda *args: None):
        assert watched()
    assert not watched()

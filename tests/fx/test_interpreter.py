"""Graphs carried out node by node, and made into others."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau import fx, nn


def test_each_kind_of_node_can_be_done_otherwise() -> None:
    class Halved(fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(target, args, kwargs) / 2

        def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
            return super().call_method("sum" if target == "mean" else target, args, kwargs)
    gm = fx.symbolic_trace(lambda x: (x + 1).mean())
    assert Halved(gm).run(torch.ones(4)).item() == 4 and fx.Interpreter(gm).run(torch.ones(4)).item() == 2


def test_values_are_let_go() -> None:
    gm = fx.symbolic_trace(lambda x: ((x + 1) * 2).relu())
    run = fx.Interpreter(gm)
    run.run(torch.ones(1))
    assert [n.name for n in run.env] == ["output"]
    kept = fx.Interpreter(gm, garbage_collect_values=False)
    kept.run(torch.ones(1))
    assert len(kept.env) == len(gm.graph.nodes)


def test_known_values_and_defaults() -> None:
    gm = fx.symbolic_trace(lambda x, y=3: (x + 1) * y)
    add = gm.graph.find_nodes(op="call_function", target=__import__("operator").add)[0]
    assert fx.Interpreter(gm).run(torch.ones(1), initial_env={add: torch.tensor(5)}).item() == 15
    with pytest.raises(RuntimeError, match="parameter x"):
        fx.Interpreter(gm).run()
    box = [torch.ones(1), 2]
    assert fx.Interpreter(gm).boxed_run(box).item() == 4 and box == []


def test_errors_name_the_node() -> None:
    gm = fx.symbolic_trace(lambda x: x.view(7))
    with pytest.raises(RuntimeError, match=r"While executing %view"):
        fx.Interpreter(gm).run(torch.ones(2))


def test_transformed() -> None:
    class Smooth(fx.Transformer):
        def call_module(self, target: str, args: Any, kwargs: Any) -> Any:
            return torch.tanh(*args) if isinstance(self.fetch_attr(target), nn.ReLU) else super().call_module(target, args, kwargs)

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(torch.sigmoid if target is torch.tanh else target, args, kwargs)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    made = Smooth(fx.symbolic_trace(model)).transform()
    x = torch.randn(3, 2)
    assert torch.allclose(made(x), torch.tanh(model[0](x)))
    made.graph.lint()

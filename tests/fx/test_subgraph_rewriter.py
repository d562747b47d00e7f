"""Pieces of graphs for others."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import fx, nn
from flambeau.fx import subgraph_rewriter


def test_every_place() -> None:
    gm = fx.symbolic_trace(lambda x: torch.relu(torch.relu(x) + 1) * torch.relu(x - 1))
    found = fx.replace_pattern(gm, lambda x: torch.relu(x), lambda x: torch.clamp(x, min=0.5))
    assert len(found) == 3 and not gm.graph.find_nodes(op="call_function", target=torch.relu)
    x = torch.randn(5)
    assert torch.equal(gm(x), ((x.clamp(min=0.5) + 1).clamp(min=0.5)) * (x - 1).clamp(min=0.5))
    gm.graph.lint()


def test_what_is_used_elsewhere_stays() -> None:
    def f(x):
        y = x + 1
        return torch.relu(y), y
    gm = fx.symbolic_trace(f)
    assert fx.replace_pattern(gm, lambda x: torch.relu(x + 1), lambda x: x) == []
    assert len(fx.replace_pattern(gm, lambda x: torch.relu(x), lambda x: torch.tanh(x))) == 1


def test_constants_are_part_of_a_pattern() -> None:
    gm = fx.symbolic_trace(lambda x: (x + 1) * (x + 2))
    assert len(fx.replace_pattern(gm, lambda x: x + 2, lambda x: x - 2)) == 1
    assert len(subgraph_rewriter.replace_pattern_with_filters(gm, lambda x: x + 7, lambda x: x, ignore_literals=True)) == 1
    assert gm(torch.tensor([5.0])).item() == 15


def test_two_results() -> None:
    gm = fx.symbolic_trace(lambda x: (torch.sin(x) * 2, torch.cos(x) * 3))
    found = fx.replace_pattern(gm, lambda x: (torch.sin(x), torch.cos(x)), lambda x: (x + 1, x + 2))
    assert len(found) == 1 and [v.item() for v in gm(torch.zeros(1))] == [2, 6]


def test_modules_and_filters() -> None:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return torch.relu(self.b(torch.relu(self.a(x))))
    gm = fx.symbolic_trace(Net())
    found = subgraph_rewriter.replace_pattern_with_filters(
        gm, lambda x: torch.relu(x), lambda x: torch.tanh(x), [lambda match, graph, pattern: match.placeholder_nodes[0].target == "a"])
    assert len(found) == 1 and [n.name for n in found[0].replacements] == ["tanh"]
    x = torch.randn(1, 2)
    assert torch.allclose(gm(x), torch.relu(gm.b(torch.tanh(gm.a(x)))))


def test_other_numbers_of_arguments() -> None:
    gm = fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(RuntimeError, match="as many"):
        fx.replace_pattern(gm, lambda x: x + 1, lambda x, y: x + y)

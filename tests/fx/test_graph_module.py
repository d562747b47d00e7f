"""Modules made of graphs: their code, their parts, and how they are kept."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau import fx, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
        self.unused = nn.Linear(1, 1)
        self.scale = nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: Any) -> Any:
        return self.two(self.one(x)) * self.scale + torch.ones(2)


def traced() -> fx.GraphModule:
    torch.manual_seed(3)
    return fx.symbolic_trace(Net())


def test_changes_take_effect_when_compiled_anew() -> None:
    gm = traced()
    x = torch.randn(2, 3)
    before = gm(x)
    for node in gm.graph.nodes:
        if node.op == "call_module" and node.target == "two.0":
            with gm.graph.inserting_after(node):
                new = gm.graph.call_function(torch.tanh, node.args)
            node.replace_all_uses_with(new)
            gm.graph.erase_node(node)
    assert torch.equal(gm(x), before)
    code = gm.recompile()
    assert "torch.tanh(one)" in code.src == gm.code
    assert torch.equal(gm(x), getattr(gm.two, "1")(torch.tanh(gm.one(x))) * 2 + 1)


def test_each_has_its_own_forward() -> None:
    a, b = fx.symbolic_trace(lambda x: x + 1), fx.symbolic_trace(lambda x: x + 2)
    assert (a(torch.zeros(1)).item(), b(torch.zeros(1)).item()) == (1, 2)


@pytest.mark.parametrize("keep", [copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "copy", "pickle"])
def test_copies(keep: Any) -> None:
    gm = traced()
    x = torch.randn(2, 3)
    other = keep(gm)
    assert torch.equal(other(x), gm(x)) and other.code == gm.code and type(other).__name__ == "Net"
    other.graph.lint()
    assert other.graph is not gm.graph and other.graph.owning_module is other
    assert list(other.state_dict()) == list(gm.state_dict())


def test_saved_and_loaded() -> None:
    gm, buffer = traced(), io.BytesIO()
    torch.save(gm, buffer)
    buffer.seek(0)
    x = torch.randn(2, 3)
    assert torch.equal(torch.load(buffer, weights_only=False)(x), gm(x))


def test_on_a_simulated_gpu(device: str) -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.GELU())).to(device)
    x = torch.randn(2, 3, device=device)
    assert torch.equal(gm(x), fx.Interpreter(gm).run(x)) and gm(x).device == x.device


def test_a_folder(tmp_path: Path, monkeypatch: Any) -> None:
    gm = traced()
    gm.to_folder(tmp_path / "kept_net", "Kept")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        made = importlib.import_module("kept_net").Kept()
    finally:
        for name in [n for n in sys.modules if n.startswith("kept_net")]:
            del sys.modules[name]
    x = torch.randn(2, 3)
    assert torch.equal(made(x), gm(x))


def test_modules_within() -> None:
    gm = traced()
    assert not hasattr(gm, "unused")
    assert gm.add_submodule("a.b.c", nn.ReLU()) and isinstance(gm.a.b.c, nn.ReLU)
    assert not gm.add_submodule("scale.x", nn.ReLU()) and not gm.delete_submodule("a.x")
    gm.delete_all_unused_submodules()
    assert not hasattr(gm, "a") and hasattr(gm.two, "1")
    with pytest.raises(AttributeError):
        gm.graph.call_module("a.b")
    with pytest.warns(UserWarning, match="get_attr"):
        gm.graph.get_attr("nowhere")


def test_of_parts_by_their_paths() -> None:
    g = fx.Graph()
    g.output(g.call_module("a.b", (g.placeholder("x"),)))
    assert fx.GraphModule({"a.b": nn.Threshold(1, 5)}, g)(torch.zeros(1)).item() == 5
    with pytest.raises(RuntimeError, match="not provided"):
        fx.GraphModule({}, g)
    with pytest.raises(RuntimeError, match="Unsupported type"):
        fx.GraphModule(3, g)  # type: ignore[arg-type]


def test_errors_show_the_code() -> None:
    gm = fx.symbolic_trace(lambda x: x.view(3) + 1)
    with pytest.raises(RuntimeError) as found:
        gm(torch.ones(2))
    assert "view = x.view(3)" in "".join(traceback.format_exception(found.value))


def test_told(capsys: Any) -> None:
    gm = traced()
    assert gm.print_readable(print_output=False).startswith("class Net(torch.nn.Module):\n    def forward(self, x : ")
    assert gm.code in str(gm)
    gm.graph.print_tabular()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["opcode", "name", "target", "args", "kwargs"] and len(lines) == 2 + len(gm.graph.nodes)


def test_annotations_are_objects_as_in_any_other_text() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", type_expr=torch.Tensor)
    graph.output(graph.call_function(torch.neg, (x,)), type_expr=torch.Tensor)
    made = fx.GraphModule(nn.Module(), graph)
    assert made.forward.__annotations__ == {"x": torch.Tensor, "return": torch.Tensor}

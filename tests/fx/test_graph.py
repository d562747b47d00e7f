"""Graphs by hand: order, uses, names, checks."""

from __future__ import annotations

import operator
import pickle
from typing import Any

import pytest

import flambeau as torch
from flambeau import fx


def add_chain(n: int = 3) -> tuple[fx.Graph, list[Any]]:
    g = fx.Graph()
    made = [g.placeholder("x")]
    for i in range(n):
        made.append(g.call_function(operator.add, (made[-1], i)))
    made.append(g.output(made[-1]))
    return g, made


def test_order() -> None:
    g, (x, a, b, c, out) = add_chain()
    assert [n.name for n in g.nodes] == ["x", "add", "add_1", "add_2", "output"] and len(g.nodes) == 5
    assert list(reversed(g.nodes))[0] is out and a < b and not b < a and b.next is c and b.prev is a
    c.prepend(a)
    with pytest.raises(RuntimeError, match="before it has been defined"):
        g.lint()
    b.prepend(a)
    g.lint()
    with pytest.raises(AssertionError, match="different Graph"):
        a.append(fx.Graph().placeholder("y"))


def test_uses_are_kept() -> None:
    g, (x, a, b, c, out) = add_chain()
    assert list(a.users) == [b] and b.all_input_nodes == [a]
    b.args = (x, x)
    assert not a.users and set(x.users) == {a, b}
    g.erase_node(a)
    b.update_arg(1, 7)
    b.insert_arg(0, x)
    b.update_kwarg("k", [x])
    assert b.args == (x, x, 7) and b.kwargs == {"k": [x]}
    assert b.replace_all_uses_with(x) == [c] and c.args[0] is x
    c.replace_input_with(x, b)
    assert c.args[0] is b
    with pytest.raises(RuntimeError, match="still had 1 users"):
        g.erase_node(b)


def test_arguments_do_not_change() -> None:
    g = fx.Graph()
    n = g.call_function(print, ([1, {"a": 2}],), {"end": [3]})
    for change in (lambda: n.args[0].append(1), lambda: n.args[0][1].update(b=1), lambda: n.kwargs.pop("end"), lambda: n.kwargs["end"].sort()):
        with pytest.raises(TypeError, match="does not support mutation"):
            change()
    assert pickle.loads(pickle.dumps(n.args)) == n.args and hash(n.args[0][1]) == hash(n.args[0][1])


def test_names() -> None:
    g = fx.Graph()
    assert [g.placeholder(n).name for n in ("x", "x", "x_1", "sum", "class", "input", "torch", "1a", "*args")] == \
        ["x", "x_1", "x_2", "sum_1", "class_1", "input_1", "torch_1", "_1a", "_args"]
    assert g.call_module("layers.0").name == "layers_0" and g.call_method("__len__").name == "len_1"


def test_dead_code() -> None:
    g, (x, a, b, c, out) = add_chain()
    g.inserting_before(out)
    kept = g.call_function(operator.setitem, (x, 0, 1))
    g.call_function(operator.mul, (x, 2))
    asserted = g.call_function(torch._assert, (x, "no"))
    assert g.eliminate_dead_code() and not g.eliminate_dead_code()
    assert kept in list(g.nodes) and asserted in list(g.nodes) and len(g.nodes) == 7


def test_code_of_all_kinds_of_values() -> None:
    g = fx.Graph()
    x = g.placeholder("x")
    g.call_function(operator.iadd, (x, 1))
    y = g.call_function(dict, (), {"a": float("inf"), "b": torch.float16, "c": torch.device("cuda:1"), "d": [slice(1, None), ...], "e": int})
    g.output((y, x))
    code = fx.GraphModule({}, g)
    assert "x += 1;  iadd = x" in code.code
    made, _ = code(torch.zeros(1))
    assert made == {"a": float("inf"), "b": torch.float16, "c": torch.device("cuda:1"), "d": [slice(1, None), ...], "e": int}


def test_other_code() -> None:
    gm = fx.symbolic_trace(lambda x: x + 1)
    with gm.graph.on_generate_code(lambda before: lambda lines: ["print('begun')\n", *lines]):
        assert "print('begun')" in gm.graph.python_code("self").src
    assert "begun" not in gm.graph.python_code("self").src

    class Listed(fx.CodeGen):
        def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
            return f"def forward(self, args):\n    {', '.join(free_vars)}, = args"

        def process_inputs(self, *args: Any) -> Any:
            return args[0]
    gm.graph.set_codegen(Listed())
    gm.recompile()
    assert gm([torch.ones(1)]).item() == 2 == fx.Interpreter(gm).run([torch.ones(1)]).item()


def test_what_no_node_can_be() -> None:
    g = fx.Graph()
    for make in (lambda: g.create_node("call", "x"), lambda: g.create_node("call_function", "x"), lambda: g.create_node("get_attr", print),
                 lambda: g.create_node("call_method", "x", [1])):
        with pytest.raises((AssertionError, ValueError)):
            make()
    with pytest.raises(RuntimeError, match="redefined"):
        a, b = g.placeholder("a"), g.placeholder("b")
        b.name = a.name
        g.lint()

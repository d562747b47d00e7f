"""Proxies made by hand, outside a trace: functions, methods and operators on them are nodes."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau import fx
from flambeau.nn import functional as F


def proxy() -> tuple[fx.Graph, Any]:
    graph = fx.Graph()
    return graph, fx.Proxy(graph.placeholder("x"))


@pytest.mark.parametrize("call, target, args, kwargs", [
    (lambda x: torch.relu(x), torch.relu, 1, {}),
    (lambda x: F.dropout(x, 0.5, True), F.dropout, 1, {"p": 0.5, "training": True, "inplace": False}),
    (lambda x: torch.cat([x, x], 1), torch.cat, 2, {}),
    (lambda x: torch.flatten(x, 1), torch.flatten, 2, {}),
    (lambda x: F.max_pool2d(x, 2), F.max_pool2d, 2, {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}),
    (lambda x: torch.add(x, 1, alpha=2), torch.add, 2, {"alpha": 2}),
    (lambda x: torch.where(x, x, 0.0), torch.where, 3, {}),
    (lambda x: torch.einsum("ij,jk->ik", x, x), torch.einsum, 3, {}),
    (lambda x: F.layer_norm(x, (3,)), F.layer_norm, 2, {"weight": None, "bias": None, "eps": 1e-5}),
    (lambda x: torch.logsumexp(x, 1), torch.logsumexp, 2, {}),
], ids=lambda v: "" if callable(v) else str(v))
def test_functions(call: Any, target: Any, args: int, kwargs: dict[str, Any]) -> None:
    graph, x = proxy()
    node = call(x).node
    assert (node.op, node.target, len(node.args), node.kwargs) == ("call_function", target, args, kwargs)
    assert len(graph.nodes) == 2  # nothing was asked of the proxy on the way


def test_tensors_on_the_left() -> None:
    t = torch.ones(3)
    traced = fx.symbolic_trace(lambda x: (t + x, t @ x, t == x, t.add(x)))
    assert [(n.op, n.target) for n in traced.graph.nodes if n.op.startswith("call")] == \
        [("call_method", "add"), ("call_method", "matmul"), ("call_method", "eq"), ("call_function", torch.add)]
    assert [v.tolist() for v in traced(t)] == [[2, 2, 2], 3, [True] * 3, [2, 2, 2]]


def test_methods_and_attributes() -> None:
    graph, x = proxy()
    y = x.shape
    assert len(graph.nodes) == 1  # an attribute is a node when it is used
    assert y.node.target is getattr and (-x).node.target.__name__ == "neg" and x.view(1, -1).node.target == "view"
    assert x(1).node.target == "__call__" and repr(x) == "Proxy(x)" and (2 ** x).node.args == (2, x.node)


def test_refusals() -> None:
    _, x = proxy()
    for ask, error in ((bool, fx.proxy.TraceError), (list, fx.proxy.TraceError), (len, RuntimeError), (int, TypeError)):
        with pytest.raises(error):
            ask(x)

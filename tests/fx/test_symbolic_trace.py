"""Tracing: what becomes a node, what is refused, and that nothing of it stays behind."""

from __future__ import annotations

import math
import threading
from collections import namedtuple
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn.functional as f
from flambeau import fx, nn, relu
from flambeau._core.engine import interpreters
from flambeau.nn import functional as F
from flambeau.nn.functional import relu as relu_of_layers


@fx.wrap
def branching(x: Any, times: int) -> Any:
    return x * times if x.sum() > 0 else x


fx.wrap("len")
Pair = namedtuple("Pair", "first second")


class Shifted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("shift", torch.arange(3.0))

    def forward(self, x: Any, scale: float = 2.0) -> Any:
        return self.inner(x) * self.weight * scale + self.shift


def ops_of(gm: Any) -> list[tuple[str, str]]:
    return [(n.op, n.target if isinstance(n.target, str) else n.target.__name__) for n in gm.graph.nodes]


def test_a_module(device: str) -> None:
    model = Shifted().to(device)
    traced = fx.symbolic_trace(model)
    assert ops_of(traced) == [("placeholder", "x"), ("placeholder", "scale"), ("call_module", "inner.0"), ("call_module", "inner.1"),
                              ("get_attr", "weight"), ("call_function", "mul"), ("call_function", "mul"), ("get_attr", "shift"),
                              ("call_function", "add"), ("output", "output")]
    x = torch.randn(4, 3, device=device, requires_grad=True)
    assert torch.equal(traced(x), model(x)) and torch.equal(traced(x, 3.0), model(x, 3.0))
    traced(x).sum().backward()
    assert model.weight.grad is not None and traced.weight is model.weight
    assert isinstance(traced, fx.GraphModule) and list(traced.state_dict()) == ["weight", "shift", "inner.0.weight", "inner.0.bias"]


def test_wrapped_functions_are_nodes() -> None:
    traced = fx.symbolic_trace(lambda x: branching(x, 3) + len(x) + math.floor(x.size(0) / 2))
    assert ("call_function", "branching") in ops_of(traced) and ("call_function", "len") in ops_of(traced)
    assert ("call_function", "floor") in ops_of(traced)
    assert traced(torch.ones(2)).tolist() == [6, 6] and traced(-torch.ones(2)).tolist() == [2, 2]
    assert branching.__name__ == "branching" and len([1]) == 1 and math.floor(1.5) == 1  # and are themselves afterwards


def test_wrap_refuses() -> None:
    with pytest.raises(RuntimeError, match="callable or string"):
        fx.wrap(3)
    with pytest.raises(NotImplementedError, match="top level"):
        fx.wrap("branching")


def test_functions_of_a_module_of_ones_own() -> None:
    tracer = fx.Tracer(autowrap_functions=(helper,))
    graph = tracer.trace(lambda x: helper(x) + 1)
    assert [n.target for n in graph.nodes if n.op == "call_function"][0] is helper
    assert fx.symbolic_trace(lambda x: helper(x)).graph.find_nodes(op="call_function", target=helper) == []


def helper(x: Any) -> Any:
    return x * 2


def test_nothing_stays_behind() -> None:
    before = nn.Module.__getattr__, interpreters._stack
    with pytest.raises(fx.proxy.TraceError, match="control flow"):
        fx.symbolic_trace(lambda x: x if x.mean() > 0 else -x)
    assert (nn.Module.__getattr__, interpreters._stack) == before
    assert isinstance(Shifted()(torch.ones(1, 3)), torch.Tensor) and torch.relu(torch.ones(1)).item() == 1


def test_another_thread_computes_meanwhile() -> None:
    results: list[Any] = []

    class Slow(nn.Module):
        def forward(self, x: Any) -> Any:
            worker = threading.Thread(target=lambda: results.append(nn.Sequential(nn.Identity())(torch.ones(2)).sum()))
            worker.start()
            worker.join()
            return x + 1
    assert len(ops_of(fx.symbolic_trace(Slow()))) == 3
    assert results[0].item() == 2


def test_arguments_of_all_kinds() -> None:
    def f(x, *rest, key=1, **more):
        return Pair(x + rest[0], {"k": [more["a"], slice(x, None)]}), key
    traced = fx.symbolic_trace(f)
    assert "def forward(self, x, key = 1, *rest, **more)" in traced.code
    made, key = traced(torch.ones(1), 5, torch.ones(1), a=3)
    assert type(made) is Pair and made.first.item() == 2 and made.second["k"][0] == 3 and key == 5
    with pytest.raises(RuntimeError, match="Keys"):
        fx.symbolic_trace(lambda x: {x: 1})
    with pytest.raises(NotImplementedError, match="object"):
        fx.symbolic_trace(lambda x: (x, object()))


def test_unpacking() -> None:
    traced = fx.symbolic_trace(lambda x: [a + b for a, b in [x.chunk(2)]][0])
    assert traced(torch.arange(4)).tolist() == [2, 4]


def test_tensors_that_have_no_name_get_one() -> None:
    constant = torch.ones(2)
    traced = fx.symbolic_trace(lambda x: x + constant + torch.cat([constant, x])[:2])
    assert traced._tensor_constant0 is constant
    assert [n.target for n in traced.graph.nodes if n.op == "get_attr"] == ["_tensor_constant0", "_tensor_constant0"]


def test_a_parameter_of_no_one() -> None:
    other = nn.Parameter(torch.ones(1))
    with pytest.raises(NameError, match="parameter"):
        fx.symbolic_trace(lambda x: x + other)


def test_shapes_of_parameters_may_be_numbers() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 4))

        def forward(self, x: Any) -> Any:
            return x @ self.weight if self.weight.shape[0] == 3 and self.weight.dim() == 2 else x
    with pytest.raises(fx.proxy.TraceError):
        fx.symbolic_trace(Net())
    assert len(fx.Tracer(param_shapes_constant=True).trace(Net()).nodes) == 4


def test_which_namespace_was_asked() -> None:
    """PyTorch's relu in nn.functional is Python, and recorded with all its arguments; that in torch is not. The target is the function that was
    called, whatever the caller's line calls it."""
    kept, space, t = [torch.relu, F.relu], f, torch

    def inner(x: Any) -> Any:
        def innermost(x: Any) -> Any:
            return t.relu(space.relu(x))
        return innermost(x)

    def targets(g: Any) -> list[Any]:
        return [n.target for n in fx.symbolic_trace(g).graph.nodes if n.op.startswith("call")]
    assert torch.relu is not F.relu and F.relu is f.relu is relu_of_layers
    both = [torch.relu, F.relu]
    for g, wanted in ((lambda x: F.relu(torch.relu(x)), both), (lambda x: relu_of_layers(relu(x)), both), (lambda x: kept[1](kept[0](x)), both),
                      (inner, both[::-1]), (lambda x: torch.relu(x).relu(), [torch.relu, "relu"]), (lambda x: list(map(t.relu, [x])), [torch.relu]),
                      (lambda x: F.softmax(torch.softmax(x, 1), 1), [torch.softmax, F.softmax]), (lambda x: F.tanh(torch.sigmoid(x)), [torch.sigmoid, "tanh"])):
        assert targets(g) == wanted
    traced = fx.symbolic_trace(lambda x: F.relu(x) + torch.relu(x))
    first, second = [n for n in traced.graph.nodes if n.target in (torch.relu, F.relu)]
    assert first.kwargs == {"inplace": False} and second.kwargs == {}
    assert "torch.nn.functional.relu(x, inplace = False)" in traced.code and "torch.relu(x)" in traced.code
    assert traced(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 4.0]


def relu_twice(x: Any) -> Any:
    return torch.relu(F.relu(x))


fx.wrap("relu_twice")


def test_which_namespace_was_asked_of_wrapped_functions_and_modules() -> None:
    traced = fx.symbolic_trace(lambda x: relu_twice(x) + relu(x))
    assert [n.target for n in traced.graph.nodes if n.op == "call_function"][:2] == [relu_twice, torch.relu]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = torch.relu, F.relu

        def forward(self, x: Any) -> Any:
            return self.other(self.one(x))
    assert [n.target for n in fx.symbolic_trace(Net()).graph.nodes if n.op == "call_function"] == [torch.relu, F.relu]


def test_proxies_made_by_hand_keep_the_function_that_was_called() -> None:
    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"))
    assert torch.relu(x).node.target is torch.relu and F.relu(x).node.target is F.relu
    assert torch.relu(x).node.kwargs == {} and F.relu(x).node.kwargs == {"inplace": False}


def test_shown_where_modules_were_called() -> None:
    traced = fx.symbolic_trace(Shifted())
    node = next(n for n in traced.graph.nodes if n.target == "inner.1")
    assert list(node.meta["nn_module_stack"]) == ["inner", "inner.1"]
    assert not fx._symbolic_trace.is_fx_tracing()

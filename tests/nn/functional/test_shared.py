"""Which functions of the namespace are `torch`'s own, and which are others of the same operations."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn, overrides
from flambeau._core.ops import table
from flambeau.nn import functional as F


def test_functions_of_both_namespaces_are_two_where_pytorch_has_two() -> None:
    for name in ("relu", "softmax", "log_softmax", "dropout", "layer_norm", "group_norm", "max_pool2d", "celu"):
        ours, theirs = getattr(F, name), getattr(torch, name)
        assert ours is not theirs and ours.__operation__.body is theirs.__operation__.body, name
        assert (ours.__module__, ours.__doc__) == ("flambeau.nn.functional", theirs.__doc__)
    for name in ("conv2d", "avg_pool1d", "relu_", "threshold_", "hardshrink"):
        assert getattr(F, name) is table.find("torch", name), name


def test_both_do_the_same_and_a_pickle_finds_them() -> None:
    x = torch.tensor([[-1.0, 2.0, 0.5]], requires_grad=True)
    for name, given in (("relu", ()), ("softmax", (1,)), ("log_softmax", (1,)), ("celu", ()), ("layer_norm", ((3,),))):
        results = []
        for f in (getattr(F, name), getattr(torch, name)):
            assert pickle.loads(pickle.dumps(f)) is f
            made = [f(x, *given) for _ in range(6)][-1]  # also once it is learned
            results.append((made.tolist(), torch.autograd.grad(made, x, torch.tensor([[1.0, 2.0, 3.0]]))[0].tolist()))
        assert results[0] == results[1], name
    out = torch.empty(3)
    assert F.relu(torch.ones(3), inplace=True).tolist() == [1.0] * 3 and torch.softmax(torch.zeros(3), 0, out=out) is out


def test_vmap_has_one_rule_for_both() -> None:
    from flambeau.func import rules
    rules.learn()
    for name in ("relu", "softmax", "group_norm", "dropout", "max_pool2d"):
        assert rules.name_of(getattr(F, name)) == rules.name_of(getattr(torch, name)) == name


def test_a_class_that_answers_is_told_which_was_called() -> None:
    class Told(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})
    heard: list[Any] = []
    x = torch.ones(2).as_subclass(Told)
    F.relu(x), torch.relu(x), nn.ReLU()(x)
    assert heard == [F.relu, torch.relu, F.relu]
    assert overrides.is_tensor_method_or_property(torch.Tensor.relu) and F.relu in overrides.get_overridable_functions()[F]


def test_a_wrong_name_is_told() -> None:
    with pytest.raises(AttributeError, match="'no_such_function'"):
        F.no_such_function  # noqa: B018


def test_names_that_lie_elsewhere() -> None:
    from flambeau import _jit_internal
    assert F.Tensor is torch.Tensor and F.handle_torch_function is overrides.handle_torch_function
    assert F.has_torch_function((1,)) is F.has_torch_function_unary(torch.ones(1)) is F.has_torch_function_variadic(1, 2) is False
    assert F.boolean_dispatch is _jit_internal.boolean_dispatch and F.BroadcastingList2[int] == list[int]
    assert F.BroadcastingList1 is F.BroadcastingList3 and F.assert_int_or_pair is _jit_internal.assert_int_or_pair
    assert "has_torch_function" in dir(F)

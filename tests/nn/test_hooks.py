"""Hooks: the global tables by PyTorch's names, hooks that take themselves away, hooks on loading that go with their module."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections import OrderedDict

import pytest

import flambeau as torch
from flambeau.nn.modules import module as place


def test_global_tables_by_pytorchs_names_can_be_emptied():
    seen = []
    handle = place.register_module_forward_hook(lambda m, args, out: seen.append(m))
    assert list(place._global_forward_hooks.values()) and isinstance(place._global_forward_hooks, OrderedDict)
    layer = torch.nn.Sigmoid()
    layer(torch.zeros(1))
    place._global_forward_hooks = OrderedDict()
    layer(torch.zeros(1))
    assert seen == [layer] and not place._global_forward_hooks
    handle.remove()
    layer(torch.zeros(1))
    assert seen == [layer]


def test_a_hook_may_take_itself_away():
    layer, seen, handles = torch.nn.Sigmoid(), [], []

    def once(m, args, out=None):
        seen.append(len(seen))
        handles.pop().remove()
    handles.append(layer.register_forward_hook(once))
    handles.append(layer.register_forward_pre_hook(once))
    layer(torch.zeros(1))
    layer(torch.zeros(1))
    assert seen == [0, 1]


def _loading(module, state, *rest):
    state["weight"] = state["weight"] + 1


def test_a_loading_hook_is_copied_with_its_module_and_keeps_none_alive():
    layer = torch.nn.Linear(2, 2)
    layer.register_load_state_dict_pre_hook(_loading)
    for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        hook = next(iter(other._load_state_dict_pre_hooks.values()))
        assert hook.module() is other
        before = other.weight.detach().clone()
        other.load_state_dict(layer.state_dict())
        assert torch.equal(other.weight, before + 1)
    del hook, other
    gone = weakref.ref(layer)
    gc.disable()
    try:
        del layer
        assert gone() is None
    finally:
        gc.enable()


def test_a_backward_hook_says_when_it_sees_no_gradient_of_the_result():
    class Named(torch.nn.Module):
        def forward(self, x):
            return {"x": x * 2}

    layer, seen = Named(), []
    layer.register_full_backward_hook(lambda *of: seen.append(of))
    x = torch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="should be a Tensor or a tuple of Tensors but received <class 'dict'>"):
        layer(x)["x"].sum().backward()
    assert x.grad.tolist() == [2, 2]

"""Containers of modules and parameters."""

from __future__ import annotations

from collections import OrderedDict

import pytest

import flambeau
from flambeau import nn


def test_sequential_is_a_list_and_a_function():
    net = nn.Sequential(nn.Identity(), nn.ReLU())
    assert len(net) == 2 and isinstance(net[-1], nn.ReLU) and isinstance(net[:1], nn.Sequential)
    net.append(nn.Tanh()).insert(1, nn.Sigmoid())
    assert [type(m).__name__ for m in net] == ["Identity", "Sigmoid", "ReLU", "Tanh"]
    assert list(dict(net.named_children())) == ["0", "1", "2", "3"]
    last = nn.Sequential(nn.Identity(), nn.Tanh()).insert(0, nn.ReLU()).insert(-1, nn.Sigmoid()).insert(4, nn.Identity())
    assert [type(m).__name__ for m in last] == ["ReLU", "Identity", "Sigmoid", "Tanh", "Identity"]
    with pytest.raises(IndexError, match="Index out of range: 6"):
        last.insert(6, nn.ReLU())
    del net[1]
    assert [n for n, _ in net.named_children()] == ["0", "1", "2"]
    assert isinstance(net.pop(0), nn.Identity)
    net[0] = nn.Tanh()
    assert isinstance(net[0], nn.Tanh)
    assert len(net + nn.Sequential(nn.ReLU())) == 3 and len(net * 2) == 4
    for index in (5, -3):
        with pytest.raises(IndexError):
            net[index]
    with pytest.raises(ValueError):
        net * 0
    with pytest.raises(TypeError, match="is not a Module subclass"):
        nn.Sequential(3)
    named = nn.Sequential(OrderedDict(a=nn.Identity(), b=nn.ReLU()))
    assert list(dict(named.named_children())) == ["a", "b"] and named(flambeau.tensor([-1.0, 2.0])).tolist() == [0.0,
                                                                                                                 2.0]


def test_module_list():
    made = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    made += [nn.Sigmoid()]
    made.insert(0, nn.Identity())
    assert [type(m).__name__ for m in made] == ["Identity", "ReLU", "Tanh", "Sigmoid"]
    assert isinstance(made.pop(-1), nn.Sigmoid) and len(made[1:]) == 2
    del made[0]
    assert [n for n, _ in made.named_children()] == ["0", "1"]
    with pytest.raises(TypeError):
        made.extend(3)
    with pytest.raises(IndexError):
        made[2]


def test_module_dict():
    made = nn.ModuleDict({"a": nn.ReLU()})
    made.update([("b", nn.Tanh())])
    made["c"] = nn.Sigmoid()
    assert list(made) == ["a", "b", "c"] and "a" in made and len(made) == 3
    assert isinstance(made.pop("a"), nn.ReLU) and [k for k, _ in made.items()] == ["b", "c"]
    with pytest.raises(ValueError, match="has length 1; 2 is required"):
        made.update([("x",)])
    with pytest.raises(TypeError):
        made.update(3)


def test_parameter_list():
    made = nn.ParameterList([nn.Parameter(flambeau.ones(2)), flambeau.zeros(3)])
    made.append(nn.Parameter(flambeau.ones(1)))
    assert len(list(made.parameters())) == 3 and all(isinstance(p, nn.Parameter) for p in made)
    assert made[-1].shape == (1,) and len(made[:2]) == 2
    assert repr(made) == ("ParameterList(\n    (0): Parameter containing: [torch.float32 of size 2]\n"
                          "    (1): Parameter containing: [torch.float32 of size 3]\n"
                          "    (2): Parameter containing: [torch.float32 of size 1]\n)")
    with pytest.raises(RuntimeError, match="should not be called"):
        made()


def test_parameter_dict():
    made = nn.ParameterDict({"a": nn.Parameter(flambeau.ones(2))})
    made["b"] = flambeau.zeros(1)
    assert list(made.keys()) == ["a", "b"] and dict(made.named_parameters()).keys() == {"a", "b"}
    assert made.get("z", 5) == 5 and made.setdefault("a") is made["a"]
    made.pop("a")
    assert "a" not in made and len(made) == 1 and not hasattr(made, "a")
    with pytest.raises(TypeError, match="not a string"):
        made[3] = flambeau.ones(1)

"""Data parallelism's parts. On one machine without a GPU the devices are the CPU several times: all but the moves."""

from __future__ import annotations

from collections import namedtuple

import pytest

import flambeau
from flambeau import nn
from flambeau.nn.parallel import DataParallel, gather, parallel_apply, replicate, scatter, scatter_kwargs

CPU = flambeau.device("cpu")


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(flambeau.tensor([2.0, 3.0]))
        self.register_buffer("shift", flambeau.ones(2))

    def forward(self, x):
        return x * self.by + self.shift


def test_scatter_cuts_tensors_and_repeats_the_rest():
    x = flambeau.arange(5).float()
    parts = scatter({"x": x, "n": 3, "l": [x, "s"]}, [CPU, CPU])
    assert [p["x"].tolist() for p in parts] == [[0.0, 1.0, 2.0], [3.0, 4.0]] and [p["n"] for p in parts] == [3, 3]
    assert parts[1]["l"][0].tolist() == [3.0, 4.0] and parts[1]["l"][1] == "s"
    Pair = namedtuple("Pair", "a b")
    assert isinstance(scatter(Pair(x, 1), [CPU, CPU])[0], Pair)
    assert len(scatter(flambeau.arange(2), [CPU] * 4)) == 2
    args, kwargs = scatter_kwargs((x,), {"k": 1}, [CPU, CPU])
    assert len(args) == len(kwargs) == 2 and kwargs[1] == {"k": 1}


def test_gradients_pass_through_scatter_and_gather():
    x = flambeau.arange(5).float().requires_grad_()
    a, b = scatter(x, [CPU, CPU])
    out = gather([a * 2, b * 3], CPU)
    assert out.tolist() == [0.0, 2.0, 4.0, 9.0, 12.0]
    out.backward(flambeau.ones(5))
    assert x.grad.tolist() == [2.0, 2.0, 2.0, 3.0, 3.0]


def test_gather_of_containers_and_numbers():
    outs = [{"a": flambeau.tensor([1.0]), "b": [flambeau.tensor([2.0])], "n": None}] * 2
    joined = gather(outs, CPU)
    assert joined["a"].tolist() == [1.0, 1.0] and joined["b"][0].tolist() == [2.0, 2.0] and joined["n"] is None
    with pytest.warns(UserWarning, match="all input tensors were scalars"):
        assert gather([flambeau.tensor(1.0), flambeau.tensor(2.0)], CPU).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="same number of keys"):
        gather([{"a": 1}, {}], CPU)
    with pytest.raises(TypeError, match="outputs must be tensors"):
        gather(["x", "y"], CPU)


def test_replicas_send_their_gradients_home():
    net = nn.Sequential(Scale(), Scale())
    net[1].by = net[0].by
    copies = replicate(net, [CPU, CPU])
    assert len(copies) == 2 and copies[0][0].by is copies[0][1].by and list(copies[0].parameters()) == []
    inputs = [(flambeau.tensor([[1.0, 1.0]]),), (flambeau.tensor([[2.0, 0.0]]),)]
    gather(parallel_apply(copies, inputs), CPU).backward(flambeau.ones(2, 2))
    parallel = net[0].by.grad.tolist()
    net.zero_grad()
    net(flambeau.tensor([[1.0, 1.0], [2.0, 0.0]])).backward(flambeau.ones(2, 2))
    assert parallel == net[0].by.grad.tolist()
    assert not replicate(net, [CPU], detach=True)[0][0].by.requires_grad


def test_an_error_names_its_replica():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    with pytest.raises(ValueError, match="Caught ValueError in replica 1 on device"):
        parallel_apply([nn.Identity(), Fails()], [flambeau.ones(1), flambeau.ones(1)])


def test_grad_mode_reaches_the_threads():
    seen = []

    class Look(nn.Module):
        def forward(self, x):
            seen.append(flambeau.is_grad_enabled())
            return x

    with flambeau.no_grad():
        parallel_apply([Look(), Look()], [flambeau.ones(1)] * 2)
    assert seen == [False, False]


def test_without_gpus_the_module_is_called_as_it_is():
    net = Scale()
    wrapped = DataParallel(net, device_ids=[])
    assert wrapped(flambeau.ones(1, 2)).tolist() == [[3.0, 4.0]] and list(wrapped.state_dict())[0] == "module.by"


def test_a_copy_of_a_module_for_data_parallelism_has_tables_of_its_own():
    values = nn.ParameterList([flambeau.ones(2), flambeau.zeros(2)])
    copy = values._replicate_for_data_parallel()
    for name, p in values.named_parameters():
        setattr(copy, name, p.view_as(p))
    assert all(c._base is p and c.grad_fn is not None for p, c in zip(values, copy)) and len(list(values.parameters())) == 2

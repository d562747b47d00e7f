"""Modules, optimizers, files and DataParallel on several devices (simulated GPUs, eager and lazy queues)."""

from __future__ import annotations

import io
import warnings

import pytest

import flambeau
from flambeau import nn, optim


@pytest.fixture(params=["eager", "lazy"], autouse=True)
def _gpus(request):
    with flambeau.simulate(gpus=2, queue=request.param):
        yield


class Affine(nn.Module):
    """Needs nothing but pointwise operations."""

    def __init__(self, width=2):
        super().__init__()
        self.by = nn.Parameter(flambeau.full((width,), 2.0))
        self.plus = nn.Parameter(flambeau.full((width,), 1.0))
        self.register_buffer("seen", flambeau.zeros(width))

    def forward(self, x):
        return x * self.by + self.plus


def _step(net, optimizer):
    optimizer.zero_grad()
    x = flambeau.full((2,), 3.0, device=net.device)
    net(x).backward(flambeau.ones(2, device=net.device))
    optimizer.step()


def test_a_model_moves_in_place():
    net = nn.Sequential(Affine(), Affine())
    net[1].by = net[0].by
    weight = net[0].by
    weight.grad = flambeau.ones(2)
    for move, where in ((lambda: net.cuda(), "cuda:0"), (lambda: net.to("cuda:1"), "cuda:1"),
                        (lambda: net.cuda(0), "cuda:0"),
                        (lambda: net.to(flambeau.zeros(1, device="cuda:1", dtype=flambeau.float64)), "cuda:1"),
                        (lambda: net.cpu(), "cpu")):
        assert move() is net
        assert net[0].by is weight is net[1].by and weight.is_leaf and weight.requires_grad
        assert {str(t.device) for t in (weight, weight.grad, net[0].seen)} == {where} and str(net.device) == where
    assert weight.dtype is flambeau.float64 and weight.tolist() == [2.0, 2.0] and weight.grad.tolist() == [1.0, 1.0]


def test_a_module_on_two_devices_has_no_device():
    net = nn.Sequential(Affine(), Affine())
    net[1].cuda()
    with pytest.raises(AttributeError, match="it is on cpu and cuda:0"):
        _ = net.device


@pytest.mark.parametrize("make", [
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: optim.Adam(p, lr=0.1,
                                                                       amsgrad=True), lambda p: optim.AdamW(p, lr=0.1),
    lambda p: optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True), lambda p: optim.Adagrad(p, lr=0.1),
    lambda p: optim.Adadelta(p, lr=0.1), lambda p: optim.Adamax(p, lr=0.1), lambda p: optim.NAdam(p, lr=0.1),
    lambda p: optim.RAdam(p, lr=0.1),
])
def test_state_follows_a_model_that_moves_when_it_is_loaded(make):
    """As in PyTorch: a step whose state is elsewhere is refused, and changes nothing; a state_dict lands beside the parameters."""
    home, away = Affine(), Affine()
    one, two = make(home.parameters()), make(away.parameters())
    for where in ("cpu", "cuda:0", "cuda:1", "cpu"):
        moved = away.by.device != flambeau.device(where)
        away.to(where)
        _step(home, one)
        if moved:
            with pytest.raises(RuntimeError, match=f"found at least two devices, {where} and .*move a model before its optimizer"):
                _step(away, two)
            two.zero_grad()
            two.load_state_dict(two.state_dict())
        _step(away, two)
        assert {str(v.device) for v in two.state[away.by].values() if isinstance(v, flambeau.Tensor)} == {where}
    assert home.by.tolist() == away.by.tolist() and home.plus.tolist() == away.plus.tolist()


def test_loaded_state_lands_beside_its_parameter():
    net, other = Affine(), Affine().cuda(1)
    optimizer, resumed = optim.Adam(net.parameters()), optim.Adam(other.parameters())
    _step(net, optimizer)
    other.load_state_dict(net.state_dict())
    resumed.load_state_dict(optimizer.state_dict())
    assert str(resumed.state[other.by]["exp_avg"].device) == "cuda:1"
    _step(net, optimizer)
    _step(other, resumed)
    assert net.by.tolist() == other.by.tolist()


def _saved():
    stream = io.BytesIO()
    flambeau.save({"a": flambeau.ones(2, device="cuda:1"), "b": flambeau.zeros(1)}, stream)
    stream.seek(0)
    return stream


@pytest.mark.parametrize("location,where", [
    (None, "cuda:1"), ("cpu", "cpu"), ("cuda:0", "cuda:0"), (flambeau.device("cpu"), "cpu"), ({"cuda:1": "cuda:0"},
                                                                                              "cuda:0"),
    ({"cuda:0": "cpu"}, "cuda:1"), (lambda t, place: t, "cpu"), (lambda t, place: t.cuda(0), "cuda:0"),
    (lambda t, place: None, "cuda:1"),
])
def test_map_location(location, where):
    assert str(flambeau.load(_saved(), map_location=location)["a"].device) == where


def test_a_gpu_file_loads_where_there_is_no_gpu(monkeypatch):
    stream = _saved()
    monkeypatch.setattr("flambeau.io.map_location._noted", False)
    with flambeau.simulate(gpus=1), pytest.warns(UserWarning, match="tensors saved from cuda:1 are loaded on the CPU"):
        assert str(flambeau.load(stream)["a"].device) == "cpu"


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_data_parallel_gives_the_results_of_one_device(rows):
    x = flambeau.arange(rows * 2).float().reshape(rows, 2)
    alone = nn.Sequential(Affine(), Affine())
    alone(x).backward(flambeau.ones(rows, 2))
    net = nn.Sequential(Affine(), Affine()).cuda()
    wrapped = nn.DataParallel(net, output_device=1)
    out = wrapped(x.cuda())
    assert str(out.device) == "cuda:1" or rows == 1
    out.backward(flambeau.ones(rows, 2, device=out.device))
    assert out.tolist() == alone(x).tolist()
    for p, q in zip(net.parameters(), alone.parameters()):
        assert str(p.grad.device) == "cuda:0" and p.grad.tolist() == q.grad.tolist()


def test_data_parallel_wants_its_module_on_the_first_device():
    with pytest.raises(RuntimeError,
                       match=r"must have its parameters and buffers on device cuda:0 \(device_ids\[0\]\)"):
        nn.DataParallel(Affine(), device_ids=[0, 1])(flambeau.ones(2, 2))


def test_training_through_a_cast_and_a_move_warns_of_nothing():
    net = Affine()
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _step(net.cuda(), optimizer)
        _step(net.to("cuda:1", non_blocking=True), optimizer)

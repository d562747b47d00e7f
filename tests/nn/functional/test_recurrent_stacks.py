"""Recurrent networks by their parameters, held against the modules with the same parameters."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import flambeau as fl
from flambeau import nn

KINDS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN, "rnn_relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)}


def tensors(made: Any) -> list[fl.Tensor]:
    return [t for part in made for t in tensors(part)] if isinstance(made, tuple) else [made]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("layers", "both", "bias", "first"), [(1, False, True, False), (2, True, True, True), (2, False, False, False)])
def test_a_network_by_its_parameters(name: str, layers: int, both: bool, bias: bool, first: bool) -> None:
    fl.manual_seed(1)
    net = KINDS[name](3, 4, layers, bias=bias, batch_first=first, bidirectional=both)
    x = fl.randn(5, 2, 3, requires_grad=True)
    batch = 5 if first else 2
    states = [fl.randn(layers * (2 if both else 1), batch, 4) for _ in range(2 if name == "lstm" else 1)]
    hx = tuple(states) if name == "lstm" else states[0]
    found = getattr(fl, name)(x, hx, list(net.parameters()), bias, layers, 0.0, False, both, first)
    expected = tensors(net(x, hx))
    assert len(found) == len(expected) and all(fl.equal(a, b) for a, b in zip(found, expected, strict=True))
    ours, theirs = (fl.autograd.grad(made[0].sum(), [x, *net.parameters()]) for made in (found, expected))
    assert all(fl.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", KINDS)
def test_packed_steps_and_dropout(name: str) -> None:
    net = KINDS[name](3, 4, 2, dropout=0.5)
    packed = nn.utils.rnn.pack_sequence([fl.randn(n, 3) for n in (4, 2, 1)])
    states = [fl.randn(2, 3, 4) for _ in range(2 if name == "lstm" else 1)]
    hx = tuple(states) if name == "lstm" else states[0]
    for train in (False, True):
        net.train(train)
        fl.manual_seed(5)
        found = getattr(fl, name)(packed.data, packed.batch_sizes, hx, list(net.parameters()), True, 2, 0.5, train, False)
        fl.manual_seed(5)
        out, last = net(packed, hx)
        assert all(fl.equal(a, b) for a, b in zip(found, [out.data, *tensors(last)], strict=True))


def test_projections_and_wrong_numbers_of_parameters() -> None:
    net = nn.LSTM(3, 4, 2, proj_size=2)
    x, hx = fl.randn(5, 1, 3), (fl.zeros(2, 1, 2), fl.zeros(2, 1, 4))
    found = fl.lstm(x, hx, list(net.parameters()), True, 2, 0.0, False, False, False)
    assert all(fl.equal(a, b) for a, b in zip(found, tensors(net(x, hx)), strict=True))
    with pytest.raises(RuntimeError, match="expected 4 parameters"):
        fl.lstm(x, hx, list(net.parameters())[:-1], True, 2, 0.0, False, False, False)
    with pytest.raises(RuntimeError, match="two hidden states"):
        fl.lstm(x, hx[:1], list(net.parameters()), True, 2, 0.0, False, False, False)


@pytest.mark.parametrize(("name", "kind"), [("lstm_cell", nn.LSTMCell), ("gru_cell", nn.GRUCell), ("rnn_tanh_cell", nn.RNNCell)])
def test_one_step(name: str, kind: Any) -> None:
    cell = kind(3, 4)
    x, h = fl.randn(2, 3), fl.randn(2, 4)
    hx = (h, h + 1) if name == "lstm_cell" else h
    found, expected = tensors(getattr(fl, name)(x, hx, *cell.parameters())), tensors(cell(x, hx))
    assert all(fl.equal(a, b) for a, b in zip(found, expected, strict=True))
    without = tensors(getattr(fl, name)(x, hx, cell.weight_ih, cell.weight_hh))
    assert without[0].shape == expected[0].shape and not fl.equal(without[0], expected[0])


def test_they_are_pickled_by_their_names() -> None:
    assert fl.lstm.__module__ == "flambeau" and pickle.loads(pickle.dumps(fl.lstm)) is fl.lstm

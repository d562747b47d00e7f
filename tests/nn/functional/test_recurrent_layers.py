"""A recurrent layer as one step of the tape, beside the same layer step by step, and its gradients by finite differences."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.autograd import gradcheck, gradgradcheck
from flambeau.nn.functional import recurrent, recurrent_layers

KINDS = [nn.LSTM, nn.GRU, nn.RNN, lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)]
NAMES = ["lstm", "gru", "tanh", "relu"]


def _results(net, x, state, weights):
    """Outputs, last states and the gradients of everything."""
    leaves = [x.detach().requires_grad_(), *[s.detach().requires_grad_() for s in state]]
    out, last = net(leaves[0], tuple(leaves[1:]) if len(state) > 1 else leaves[1])
    outs = [out, *(last if isinstance(last, tuple) else (last,))]
    found = flambeau.autograd.grad(outs, [*leaves, *net.parameters()], weights[:len(outs)])
    return [*outs, *found]


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
@pytest.mark.parametrize("bias", [True, False])
def test_beside_the_steps_one_by_one(kind, bias, device):
    flambeau.manual_seed(0)
    net = kind(3, 4, num_layers=2, bidirectional=True, bias=bias).to(device)
    states = 2 if isinstance(net, nn.LSTM) else 1
    x = flambeau.randn(9, 2, 3, device=device)
    state = [flambeau.randn(4, 2, 4, device=device) for _ in range(states)]
    weights = [flambeau.randn(9, 2, 8, device=device), *[flambeau.randn(4, 2, 4, device=device) for _ in range(2)]]
    got = _results(net, x, state, weights)
    with mock.patch.object(recurrent, "whole_layer", return_value=None) as refused:
        expected = _results(net, x, state, weights)
    assert refused.call_count == 4
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().cpu().numpy(), rtol=2e-4, atol=1e-5)
    with flambeau.no_grad():
        out, last = net(x, tuple(state) if states > 1 else state[0])
    for a, b in zip((out, *(last if states > 1 else (last,))), got):
        np.testing.assert_array_equal(a.cpu().numpy(), b.detach().cpu().numpy())


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
@pytest.mark.parametrize("d", [flambeau.bfloat16, flambeau.float16], ids=["bfloat16", "float16"])
def test_half_types_beside_float64(kind, d, device):
    """Computed in float32 and rounded between steps; the weights are the same numbers on both sides."""
    flambeau.manual_seed(0)
    net = kind(3, 4, num_layers=2, bidirectional=True).to(d)
    kinked = getattr(net, "nonlinearity", "") == "relu"
    if kinked:  # rounding must not take a value over the kink
        for p in net.parameters():
            p.data.abs_()
    exact = kind(3, 4, num_layers=2, bidirectional=True).double()
    exact.load_state_dict({k: v.double() for k, v in net.state_dict().items()})
    states = 2 if isinstance(net, nn.LSTM) else 1
    x, *state = [t.abs() if kinked else t for t in (flambeau.randn(9, 2, 3).to(d), *[flambeau.randn(4, 2, 4).to(d) for _ in range(states)])]
    weights = [flambeau.randn(9, 2, 8).to(d), *[flambeau.randn(4, 2, 4).to(d) for _ in range(2)]]
    got = _results(net.to(device), x.to(device), [s.to(device) for s in state], [w.to(device) for w in weights])
    expected = _results(exact, x.double(), [s.double() for s in state], [w.double() for w in weights])
    room = 40 * flambeau.finfo(d).eps / 8
    for a, b in zip(got, expected, strict=True):
        assert a.dtype is d
        np.testing.assert_allclose(a.detach().double().cpu().numpy(), b.detach().numpy(), rtol=room, atol=room * float(b.detach().abs().max()))


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_under_autocast(kind, device):
    """A region that lowers nothing here changes nothing; a GPU's layers are all in the region's type, as cuDNN's are."""
    flambeau.manual_seed(0)
    net, x = kind(3, 4).to(device), flambeau.randn(9, 2, 3, device=device)
    where = flambeau.device(device).type
    plain = net(x)[0]
    for region in (flambeau.autocast(where, flambeau.bfloat16, enabled=False), flambeau.autocast("cpu" if where == "cuda" else "cuda", flambeau.bfloat16)):
        with region, mock.patch.object(recurrent, "_by_steps", side_effect=AssertionError):
            np.testing.assert_array_equal(net(x)[0].detach().cpu().numpy(), plain.detach().cpu().numpy())
    if where == "cpu":
        return
    with flambeau.autocast(where, flambeau.bfloat16), mock.patch.object(recurrent, "_by_steps", side_effect=AssertionError):
        out, last = net(x)
    assert {t.dtype for t in (out, *(last if isinstance(last, tuple) else (last,)))} == {flambeau.bfloat16}
    np.testing.assert_allclose(out.float().detach().cpu().numpy(), plain.detach().cpu().numpy(), rtol=0.05, atol=0.05)
    out.float().sum().backward()
    got = [p.grad for p in net.parameters()]
    for g, e in zip(got, flambeau.autograd.grad(plain.sum(), list(net.parameters())), strict=True):
        assert g.dtype is flambeau.float32
        np.testing.assert_allclose(g.cpu().numpy(), e.cpu().numpy(), rtol=0.05, atol=0.05 * float(e.abs().max()))


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
@pytest.mark.parametrize("length", [1, recurrent_layers.LEAST_STEPS])
def test_gradients_by_finite_differences(kind, length):
    flambeau.manual_seed(1)
    net = kind(1, 2).double()
    states = 2 if isinstance(net, nn.LSTM) else 1
    x = flambeau.randn(length, 1, 1, dtype=flambeau.float64, requires_grad=True)
    state = [flambeau.randn(1, 1, 2, dtype=flambeau.float64, requires_grad=True) for _ in range(states)]

    def call(x, *given):
        out, last = flambeau.func.functional_call(net, dict(zip(dict(net.named_parameters()), given[states:])), (
            x, given[:states] if states > 1 else given[0]))
        return (out, *last) if states > 1 else (out, last)
    operands = (x, *state, *[p.detach().requires_grad_() for p in net.parameters()])
    assert gradcheck(call, operands)
    assert length > 1 or gradgradcheck(call, operands)


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_each_result_alone_and_layouts_that_are_not_contiguous(kind):
    flambeau.manual_seed(2)
    net = kind(3, 4, batch_first=True)
    x = flambeau.randn(2, 10, 6)[:, :, ::2]
    for at in range(2):
        def loss(x, at=at):
            made = net(x)[at]
            made = made if isinstance(made, tuple) else (made,)
            return sum((m.transpose(0, -1) * 0.5).sum() for m in made)
        got = flambeau.autograd.grad(loss(x), list(net.parameters()))
        with mock.patch.object(recurrent, "whole_layer", return_value=None):
            expected = flambeau.autograd.grad(loss(x), list(net.parameters()))
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=1e-5)


def test_only_what_requires_grad_gets_a_gradient_and_the_graph_can_be_kept():
    net = nn.LSTM(3, 4)
    net.requires_grad_(False)
    net.bias_hh_l0.requires_grad_(True)
    out, _ = net(flambeau.ones(5, 2, 3))
    out.sum().backward(retain_graph=True)
    first = net.bias_hh_l0.grad.clone()
    out.sum().backward()
    np.testing.assert_allclose(net.bias_hh_l0.grad.numpy(), 2 * first.numpy(), rtol=1e-6)
    assert net.weight_hh_l0.grad is None
    with pytest.raises(RuntimeError, match="a second time"):
        out.sum().backward()


def test_what_was_written_to_before_the_backward_pass_is_said():
    for place in ("weight", "outputs", "input"):
        net, x = nn.GRU(3, 4), flambeau.ones(5, 2, 3)
        out, _ = net(x)
        loss = out.sum()
        if place == "outputs":
            loss = (out * 2).sum()
        with flambeau.no_grad():
            {"weight": net.weight_hh_l0, "outputs": out, "input": x}[place].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_gradients_of_two_biases_are_two_tensors():
    net = nn.LSTM(3, 4)
    net(flambeau.ones(2, 1, 3))[0].sum().backward()
    net.bias_ih_l0.grad.zero_()
    assert bool(net.bias_hh_l0.grad.abs().sum() > 0)


@pytest.mark.parametrize("kind", KINDS[:2], ids=NAMES[:2])
def test_bits_do_not_depend_on_the_number_of_threads(kind):
    flambeau.manual_seed(3)
    net, x = kind(32, 64), flambeau.randn(12, 33, 32)
    before = flambeau.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            flambeau.set_num_threads(threads)
            net.zero_grad()
            out, _ = net(x)
            out.pow(2).sum().backward()
            found.append([out.detach().clone(), *[p.grad.clone() for p in net.parameters()]])
    finally:
        flambeau.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_hooks_on_saved_tensors_see_a_layer(device):
    net, x = nn.LSTM(3, 4).to(device), flambeau.ones(9, 2, 3, device=device)
    seen = []
    with flambeau.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t.clone(), lambda t: t):
        out, _ = net(x)
    out.sum().backward()
    expected = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    net(x)[0].sum().backward()
    assert seen
    for a, p in zip(expected, net.parameters(), strict=True):
        np.testing.assert_allclose(a.cpu().numpy(), p.grad.cpu().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_gates_that_are_shut_have_gradients(kind, device):
    """Where a gate's exponential is infinite in float32, the gradients are those of the same network in float64."""
    flambeau.manual_seed(3)
    whole = getattr(nn, kind)(3, 4, 2, batch_first=True, dtype=flambeau.float64)
    for p in whole.parameters():
        nn.init.normal_(p)
    layer = getattr(nn, kind)(3, 4, 2, batch_first=True, dtype=flambeau.float32).to(device)
    layer.load_state_dict(whole.state_dict())
    for size in (1, 30, 100, 300):
        x = (flambeau.randn(2, 5, 3, dtype=flambeau.float64) * size).requires_grad_()
        y = x.detach().float().to(device).requires_grad_()
        whole(x)[0].abs().sum().backward()
        layer(y)[0].abs().sum().backward()
        assert y.grad.isfinite().all()
        np.testing.assert_allclose(y.grad.cpu().numpy(), x.grad.numpy(), rtol=2e-2, atol=2e-4)
        assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_glu_has_a_gradient_where_its_gate_is_shut():
    for d in (flambeau.float32, flambeau.float64, flambeau.bfloat16):
        x = flambeau.tensor([2.0, 3.0, 2.0, -1e4, 0.0, 1e4], dtype=d, requires_grad=True)
        nn.functional.glu(x).sum().backward()
        assert x.grad.tolist() == [0.0, 0.5, 1.0, 0.0, 0.75, 0.0]

"""Recurrent layers against their equations in NumPy, and their shapes and errors."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 2, 3))


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _weights(net, suffix="_l0"):
    return [getattr(net, n + suffix).detach().numpy() for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def _lstm(x, weights, h, c):
    w_ih, w_hh, b_ih, b_hh = weights
    out = []
    for step in x:
        i, f, g, o = np.split(step @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, -1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.stack(out), h, c


def test_lstm():
    net = nn.LSTM(3, 4).double()
    h, c = RNG.standard_normal((1, 2, 4)), RNG.standard_normal((1, 2, 4))
    out, (hn, cn) = net(flambeau.from_numpy(X), (flambeau.from_numpy(h), flambeau.from_numpy(c)))
    expected = _lstm(X, _weights(net), h[0], c[0])
    for mine, theirs in zip((out, hn[0], cn[0]), expected):
        np.testing.assert_allclose(mine.detach().numpy(), theirs, rtol=1e-10)


def test_gru_and_its_cell():
    net, cell = nn.GRU(3, 4).double(), nn.GRUCell(3, 4).double()
    w_ih, w_hh, b_ih, b_hh = weights = _weights(net)
    for p, w in zip((cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh), weights):
        p.data = flambeau.from_numpy(w.copy())
    h = np.zeros((2, 4))
    for step in X:
        x_r, x_z, x_n = np.split(step @ w_ih.T + b_ih, 3, -1)
        h_r, h_z, h_n = np.split(h @ w_hh.T + b_hh, 3, -1)
        z, n = _sigmoid(x_z + h_z), np.tanh(x_n + _sigmoid(x_r + h_r) * h_n)
        h = (1 - z) * n + z * h
    out, last = net(flambeau.from_numpy(X))
    np.testing.assert_allclose(last[0].detach().numpy(), h, rtol=1e-10)
    state = None
    for step in X:
        state = cell(flambeau.from_numpy(step.copy()), state)
    np.testing.assert_allclose(state.detach().numpy(), h, rtol=1e-10)
    assert out.shape == (5, 2, 4)


def test_the_reverse_direction_reads_backwards():
    net = nn.LSTM(3, 4, bidirectional=True).double()
    out, _ = net(flambeau.from_numpy(X))
    zero = np.zeros((2, 4))
    back, _, _ = _lstm(X[::-1], _weights(net, "_l0_reverse"), zero, zero)
    np.testing.assert_allclose(out.detach().numpy()[:, :, 4:], back[::-1], rtol=1e-10)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_packed_sequences_end_where_they_end(kind):
    net = kind(3, 4, num_layers=2, bidirectional=True).double()
    lengths = [5, 2]
    packed = nn.utils.rnn.pack_padded_sequence(flambeau.from_numpy(X), lengths)
    out, last = net(packed)
    padded, _ = nn.utils.rnn.pad_packed_sequence(out)
    for i, n in enumerate(lengths):
        alone, end = net(flambeau.from_numpy(X[:n, i:i + 1].copy()))
        np.testing.assert_allclose(padded.detach().numpy()[:n, i], alone.detach().numpy()[:, 0], rtol=1e-10)
        one, other = (last[0], end[0]) if kind is nn.LSTM else (last, end)
        np.testing.assert_allclose(one.detach().numpy()[:, i], other.detach().numpy()[:, 0], rtol=1e-10)


def test_shapes():
    assert nn.RNN(3, 4, batch_first=True)(flambeau.zeros(2, 5, 3))[0].shape == (2, 5, 4)
    out, h = nn.GRU(3, 4)(flambeau.zeros(5, 3))
    assert out.shape == (5, 4) and h.shape == (1, 4)
    out, (h, c) = nn.LSTM(3, 4, proj_size=2)(flambeau.zeros(5, 2, 3))
    assert out.shape == (5, 2, 2) and h.shape == (1, 2, 2) and c.shape == (1, 2, 4)


def test_errors():
    net = nn.LSTM(3, 4)
    with pytest.raises(RuntimeError, match=r"input.size\(-1\) must be equal to input_size. Expected 3, got 5"):
        net(flambeau.zeros(2, 1, 5))
    with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size \(1, 1, 4\), got \[1, 2, 4\]"):
        net(flambeau.zeros(2, 1, 3), (flambeau.zeros(1, 2, 4), flambeau.zeros(1, 1, 4)))
    with pytest.raises(ValueError, match="Expected input to be 2D or 3D, got 1D instead"):
        net(flambeau.zeros(3))
    with pytest.raises(ValueError, match="RNN input dtype"):
        net(flambeau.zeros(2, 1, 3, dtype=flambeau.float64))
    with pytest.raises(ValueError, match="hidden_size must be greater than zero"):
        nn.LSTM(3, 0)
    with pytest.raises(ValueError, match="Unknown nonlinearity 'sin'"):
        nn.RNN(3, 4, nonlinearity="sin")
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last recurrent layer"):
        nn.GRU(3, 4, dropout=0.5)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_step_is_one_node_whose_gradients_have_gradients(kind) -> None:
    net = kind(2, 3).double()
    x = flambeau.randn(3, 2, 2, dtype=flambeau.float64, requires_grad=True)
    out, state = net(x)
    assert gradcheck(lambda x: net(x)[0], [x]) and gradgradcheck(lambda x: net(x)[0], [x])
    if kind is nn.LSTM:
        assert gradcheck(lambda x: net(x)[1][1], [x])  # the last cell alone: nothing arrives for the last output
        assert gradcheck(lambda x: net(x)[1][0] * 2 + net(x)[1][1], [x])
        cell = nn.LSTMCell(2, 3).double()
        h, c = flambeau.zeros(2, 3, dtype=flambeau.float64), flambeau.randn(2, 3, dtype=flambeau.float64, requires_grad=True)
        assert gradcheck(lambda c: cell(x[0].detach(), (h, c))[1], [c]) and gradgradcheck(lambda c: cell(x[0].detach(), (h, c)), [c])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_every_weights_gradient_beside_steps_written_out(kind, device) -> None:
    flambeau.manual_seed(0)
    net, x = kind(4, 5).to(device), flambeau.randn(6, 3, 4, device=device)
    w = flambeau.randn(6, 3, 5, device=device)
    (net(x)[0] * w).sum().backward()
    got = {n: p.grad.clone() for n, p in net.named_parameters()}
    net.zero_grad()
    h = c = flambeau.zeros(3, 5, device=device)
    outs = []
    for t in range(6):
        a = x[t] @ net.weight_ih_l0.t() + net.bias_ih_l0
        b = h @ net.weight_hh_l0.t() + net.bias_hh_l0
        if kind is nn.LSTM:
            i, f, g, o = (a + b).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        elif kind is nn.GRU:
            (ar, az, an), (br, bz, bn) = a.chunk(3, -1), b.chunk(3, -1)
            z = (az + bz).sigmoid()
            h = (1 - z) * (an + (ar + br).sigmoid() * bn).tanh() + z * h
        else:
            h = (a + b).tanh()
        outs.append(h)
    (flambeau.stack(outs) * w).sum().backward()
    for n, p in net.named_parameters():
        np.testing.assert_allclose(got[n].cpu().numpy(), p.grad.cpu().numpy(), rtol=2e-4, atol=2e-5, err_msg=n)


def test_a_state_that_was_written_to_before_the_backward_pass_is_said() -> None:
    cell = nn.LSTMCell(2, 3)
    h, c = flambeau.zeros(1, 3), flambeau.zeros(1, 3)
    out, _ = cell(flambeau.ones(1, 2), (h, c))
    c.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_steps_under_autocast(device) -> None:
    net = nn.LSTM(3, 4).to(device)
    with flambeau.autocast(flambeau.device(device).type, dtype=flambeau.bfloat16):
        out, _ = net(flambeau.ones(2, 1, 3, device=device))
    out.float().sum().backward()
    assert all(bool(flambeau.isfinite(p.grad).all()) for p in net.parameters())


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_narrow_input_under_autocast_needs_no_narrow_weights(kind):
    made = getattr(flambeau.nn, kind)(3, 2)
    x = flambeau.ones(4, 1, 3).bfloat16()
    with pytest.raises(ValueError, match="does not match weight dtype"):
        made(x)
    with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
        out = made(x)[0]
    assert out.dtype is flambeau.bfloat16 and flambeau.allclose(out.float(), made(x.float())[0], atol=0.02)


@pytest.mark.parametrize(("kind", "given"), [("RNN", {}), ("GRU", {}), ("LSTM", {}), ("LSTM", {"num_layers": 2, "bidirectional": True, "bias": False}),
                                             ("LSTM", {"proj_size": 1})])
def test_what_the_cpus_autocast_lowers_of_a_layer(kind, given):
    """An LSTM as a whole; of a GRU, a projected LSTM and packed sequences the products, beside a state that stays wide; of an RNN there is no other part."""
    net = getattr(nn, kind)(3, 2, **given)
    x = flambeau.randn(4, 2, 3)
    packed = flambeau.nn.utils.rnn.pack_padded_sequence(x, [4, 3])
    want, last = net(x)
    with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
        out, state = net(x)
        steps = net(packed)[0].data
    narrow = kind == "RNN" or (kind == "LSTM" and "proj_size" not in given)
    found = {t.dtype for t in (out, *(state if kind == "LSTM" else (state,)))}
    assert found == {flambeau.bfloat16} if narrow else out.dtype is flambeau.float32 or "proj_size" in given
    assert steps.dtype is flambeau.float32 or kind == "RNN" or "proj_size" in given
    assert flambeau.allclose(out.float(), want, atol=0.03)
    out.float().sum().backward()
    assert all(p.grad.dtype is flambeau.float32 and bool(p.grad.isfinite().all()) for p in net.parameters())


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_what_the_cpus_autocast_lowers_of_a_step(kind):
    cell = getattr(nn, kind + "Cell")(3, 2)
    x = flambeau.randn(4, 3)
    with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
        made = cell(x)
    wide = cell(x)
    for a, b in zip(made, wide) if kind == "LSTM" else ((made, wide),):
        assert a.dtype is (flambeau.bfloat16 if kind == "RNN" else flambeau.float32)
        assert not flambeau.equal(a.float(), b) and flambeau.allclose(a.float(), b, atol=0.03)


@pytest.mark.parametrize("cls", [nn.RNN, nn.GRU])
def test_only_an_lstm_has_projections(cls):
    with pytest.raises(ValueError, match="proj_size argument is only supported for LSTM, not RNN or GRU"):
        cls(30, 20, 2, proj_size=10)

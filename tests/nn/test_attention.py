"""MultiheadAttention and the transformer layers against NumPy, with masks."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau
from flambeau import nn

RNG = np.random.default_rng(0)
Q, K = RNG.standard_normal((3, 2, 4)), RNG.standard_normal((5, 2, 4))


def _attention(net, q, k, mask=0.0):
    w, b = net.in_proj_weight.detach().numpy(), net.in_proj_bias.detach().numpy()
    out_w, out_b = net.out_proj.weight.detach().numpy(), net.out_proj.bias.detach().numpy()
    wq, wk, wv = np.split(w, 3)
    bq, bk, bv = np.split(b, 3)

    def heads(x):  # (L, N, E) to (N, heads, L, E / heads)
        return x.reshape(len(x), 2, 2, 2).transpose(1, 2, 0, 3)

    qh, kh, vh = heads(q @ wq.T + bq), heads(k @ wk.T + bk), heads(k @ wv.T + bv)
    scores = qh @ kh.transpose(0, 1, 3, 2) / math.sqrt(2) + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = (weights @ vh).transpose(2, 0, 1, 3).reshape(len(q), 2, 4)
    return out @ out_w.T + out_b, weights


@pytest.mark.parametrize("need", [True, False])
def test_values_weights_and_masks(need):
    net = nn.MultiheadAttention(4, 2).double()
    q, k = flambeau.from_numpy(Q), flambeau.from_numpy(K)
    out, weights = net(q, k, k, need_weights=need, average_attn_weights=False)
    expected, shares = _attention(net, Q, K)
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-9)
    if need:
        np.testing.assert_allclose(weights.detach().numpy(), shares, rtol=1e-9)
        np.testing.assert_allclose(net(q, k, k)[1].detach().numpy(), shares.mean(1), rtol=1e-9)
    else:
        assert weights is None
    hidden = np.array([[False] * 5, [False, True, False, True, True]])
    out, _ = net(q, k, k, key_padding_mask=flambeau.from_numpy(hidden), need_weights=need)
    expected, _ = _attention(net, Q, K, np.where(hidden, -np.inf, 0.0)[:, None, None])
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-9)
    forbidden = np.triu(np.ones((3, 5), dtype=bool), 1)
    out, _ = net(q, k, k, attn_mask=flambeau.from_numpy(forbidden), need_weights=need)
    np.testing.assert_allclose(out.detach().numpy(), _attention(net, Q, K, np.where(forbidden, -np.inf, 0.0))[0],
                               rtol=1e-9)


def test_batch_first_and_unbatched():
    net = nn.MultiheadAttention(4, 2).double()
    first = nn.MultiheadAttention(4, 2, batch_first=True).double()
    first.load_state_dict(net.state_dict())
    q, k = flambeau.from_numpy(Q), flambeau.from_numpy(K)
    out = net(q, k, k)[0].detach().numpy()
    np.testing.assert_allclose(first(q.transpose(0, 1), k.transpose(0, 1), k.transpose(0, 1))[0].detach().numpy(),
                               out.transpose(1, 0, 2), rtol=1e-9)
    alone, weights = net(q[:, 0], k[:, 0], k[:, 0])
    np.testing.assert_allclose(alone.detach().numpy(), out[:, 0], rtol=1e-9)
    assert weights.shape == (3, 5)


def test_causal_hint_needs_a_mask_and_masks():
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0).double()
    x = flambeau.from_numpy(K)
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=flambeau.float64)
    out = layer(x, src_mask=mask, is_causal=True).detach().numpy()
    np.testing.assert_allclose(out, layer(x, src_mask=mask).detach().numpy(), rtol=1e-9)
    np.testing.assert_allclose(out[:2], layer(x[:2], src_mask=mask[:2, :2]).detach().numpy(), rtol=1e-9)
    encoder = nn.TransformerEncoder(layer, 2)
    np.testing.assert_allclose(encoder(x, mask=mask).detach().numpy()[:2],
                               encoder(x[:2], mask=mask[:2, :2]).detach().numpy(),
                               rtol=1e-9)
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        layer.self_attn(x, x, x, is_causal=True)


def test_errors():
    net = nn.MultiheadAttention(4, 2)
    with pytest.raises(AssertionError, match="was expecting embedding dimension of 4, but got 6"):
        net(flambeau.zeros(3, 2, 6), flambeau.zeros(3, 2, 6), flambeau.zeros(3, 2, 6))
    x = flambeau.zeros(3, 2, 4)
    with pytest.raises(RuntimeError, match=r"The shape of the 2D attn_mask is .*, but should be \(3, 3\)"):
        net(x, x, x, attn_mask=flambeau.zeros(2, 3))
    with pytest.raises(AssertionError, match=r"key_padding_mask should have shape \(2, 3\)"):
        net(x, x, x, key_padding_mask=flambeau.zeros(3, 2))
    with pytest.raises(AssertionError, match="embed_dim must be divisible by num_heads"):
        nn.MultiheadAttention(5, 2)
    with pytest.raises(ValueError, match="must be greater than 0"):
        nn.MultiheadAttention(0, 2)
    with pytest.raises(RuntimeError, match="activation should be relu/gelu, not tanh"):
        nn.TransformerEncoderLayer(4, 2, activation="tanh")


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("length, batch, source", [(3, 0, 2), (0, 2, 2), (0, 0, 0), (3, 0, 0)])
def test_attention_of_nothing(length, batch, source, need_weights):
    layer = flambeau.nn.MultiheadAttention(4, 2)
    query, key = flambeau.ones(length, batch, 4, requires_grad=True), flambeau.ones(source, batch, 4)
    for masks in ({}, {"key_padding_mask": flambeau.zeros(batch, source, dtype=flambeau.bool)}, {"attn_mask": flambeau.zeros(2 * batch, length, source)}):
        made, weights = layer(query, key, key, need_weights=need_weights, **masks)
        assert made.shape == query.shape and (weights is None if not need_weights else weights.shape == (batch, length, source))
    made.sum().backward()
    assert query.grad.shape == query.shape

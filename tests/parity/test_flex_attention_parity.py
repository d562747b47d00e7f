"""Attention whose scores and masks are functions, as PyTorch computes it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.attention import bias as their_bias
from torch.nn.attention import flex_attention as theirs

import flambeau as fb
from flambeau.nn.attention import flex_attention as ours


def pair(*shape, seed):
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return fb.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)


def causal(b, h, q, k):
    return q >= k


def window(b, h, q, k):
    return (q - k).abs() <= 20


def distance(score, b, h, q, k):
    return score - 0.1 * (q - k).abs() * (h + 1)


@pytest.mark.parametrize("mask, score, grouped", [(None, distance, False), (causal, None, False), (window, distance, True)])
def test_flex_attention(mask, score, grouped):
    q, k, v = pair(2, 4, 100, 16, seed=0), pair(2, 2 if grouped else 4, 130, 16, seed=1), pair(2, 2 if grouped else 4, 130, 8, seed=2)
    blocks = [None if mask is None else m.create_block_mask(mask, None, None, 100, 130, device="cpu") for m in (ours, theirs)]
    options = {"score_mod": score, "enable_gqa": grouped, "return_lse": True}
    out, lse = ours.flex_attention(q[0], k[0], v[0], block_mask=blocks[0], **options)
    with torch.no_grad():
        expected = theirs.flex_attention(q[1].detach(), k[1].detach(), v[1].detach(), block_mask=blocks[1], **options)
    for x, y in zip((out, lse), expected, strict=True):
        np.testing.assert_allclose(x.detach().numpy(), y.numpy(), rtol=2e-4, atol=2e-5)
    # PyTorch's has no gradients on the CPU: they are those of the formula
    out.sin().sum().backward()
    a, b, c = q[1], *(t[1].repeat_interleave(2, 1) if grouped else t[1] for t in (k, v))
    where = [torch.arange(n).reshape([-1 if i == j else 1 for j in range(4)]) for i, n in enumerate((2, 4, 100, 130))]
    scores = a @ b.mT / 4
    scores = scores if score is None else score(scores, *where)
    scores = scores if mask is None else scores.masked_fill(~mask(*where), -torch.inf)
    (scores.softmax(-1) @ c).sin().sum().backward()
    for x, y in (q, k, v):
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=2e-3, atol=2e-5)


def test_block_masks():
    for make in (lambda m: causal, lambda m: window, lambda m: m.and_masks(causal, window)):
        a = ours.create_block_mask(make(ours), 2, 3, 300, 260, BLOCK_SIZE=64)
        b = theirs.create_block_mask(make(theirs), 2, 3, 300, 260, device="cpu", BLOCK_SIZE=64)
        assert a.shape == tuple(b.shape) and np.array_equal(a.to_dense().numpy(), b.to_dense().numpy())
        assert np.array_equal(a.kv_num_blocks.numpy(), b.kv_num_blocks.numpy())
        assert np.array_equal(a.full_kv_num_blocks.numpy(), b.full_kv_num_blocks.numpy())
    assert ours.create_block_mask(ours.or_masks(causal, window), None, None, 64, 64).shape == (1, 1, 64, 64)
    assert ours.create_mask(ours.noop_mask, None, None, 3, 4).all()


def test_what_is_refused():
    q, k = fb.zeros(1, 4, 8, 2), fb.zeros(1, 2, 8, 2)
    with pytest.raises(ValueError, match="enable_gqa"):
        ours.flex_attention(q, k, k)
    with pytest.raises(ValueError, match="create_block_mask"):
        ours.flex_attention(q, q, q, block_mask=ours.create_block_mask(causal, None, None, 4, 4))
    with pytest.raises(ValueError, match="4 dimensions"):
        ours.flex_attention(q[0], q, q)


def test_backends_are_chosen():
    from flambeau.nn.attention import SDPBackend, sdpa_kernel
    from flambeau.nn.attention.bias import causal_lower_right, causal_upper_left
    q = fb.randn(1, 2, 4, 8)
    plain = fb.nn.functional.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        assert fb.equal(fb.nn.functional.scaled_dot_product_attention(q, q, q), plain)
    with pytest.raises(TypeError, match="SDPBackend"), sdpa_kernel("math"):
        pass
    assert [int(b) for b in SDPBackend] == [int(torch.nn.attention.SDPBackend.__members__[b.name]) for b in SDPBackend]
    wide = their_bias.causal_lower_right(3, 5)
    assert np.array_equal(causal_lower_right(3, 5).numpy(), wide._materialize().numpy())
    assert causal_upper_left(2, 3).tolist() == [[True, False, False], [True, True, False]]

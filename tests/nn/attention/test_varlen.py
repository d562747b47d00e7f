"""Attention of sequences of different lengths, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn.attention.varlen import AuxRequest, varlen_attn


def _alone(q, k, v, window, scale):
    """One head of one sequence: (q, D), (k, D), (k, E)."""
    scores = q @ k.T * scale
    apart = np.arange(len(k))[None] - (np.arange(len(q))[:, None] + len(k) - len(q))
    left, right = window
    hidden = ((apart < -left) if left >= 0 else False) | ((apart > right) if right >= 0 else False) | np.zeros_like(scores, bool)
    scores = np.where(hidden, -np.inf, scores)
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - top)
    return e / e.sum(-1, keepdims=True) @ v, (top + np.log(e.sum(-1, keepdims=True)))[:, 0]


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 1)])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
def test_each_sequence_sees_itself(device: str, window: tuple[int, int], heads: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    begins, keys = [0, 3, 3, 8, 9], [0, 4, 6, 11, 12]  # the second has no query
    q, k, v = (rng.standard_normal((n, h, 6)) for n, h in ((9, heads[0]), (12, heads[1]), (12, heads[1])))
    want, sums = np.zeros((9, heads[0], 6)), np.zeros((heads[0], 9))
    for a, b, c, d in zip(begins, begins[1:], keys, keys[1:]):
        for h in range(heads[0]):
            if b > a:
                g = h * heads[1] // heads[0]
                want[a:b, h], sums[h, a:b] = _alone(q[a:b, h], k[c:d, g], v[c:d, g], window, 0.3)
    given = [torch.tensor(x, device=device, requires_grad=True) for x in (q, k, v)]
    places = torch.tensor(begins, device=device), torch.tensor(keys, device=device)
    out, lse = varlen_attn(*given, *places, 5, 5, return_aux=AuxRequest(lse=True), scale=0.3, window_size=window, enable_gqa=heads[0] != heads[1])
    np.testing.assert_allclose(out.detach().cpu().numpy(), want, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(lse.detach().cpu().numpy(), sums, rtol=1e-5)
    out.sum().backward()
    assert all(t.grad is not None and bool(torch.isfinite(t.grad).all()) for t in given)


def test_what_is_refused() -> None:
    q, places = torch.randn(4, 2, 3), torch.tensor([0, 4])
    with pytest.raises(RuntimeError, match="query has 2 heads and key 1"):
        varlen_attn(q, q[:, :1], q[:, :1], places, places, 4, 4)
    with pytest.raises(ValueError, match="end at 4 and 4"):
        varlen_attn(q, q, q, torch.tensor([0, 3]), places, 4, 4)
    with pytest.raises(NotImplementedError, match="pages"):
        varlen_attn(q, q, q, places, None, 4, 4)

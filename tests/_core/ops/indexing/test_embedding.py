"""Rows of a table, looked up."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 3, 5))


def test_embeddings():
    w = fb.tensor(A[0], requires_grad=True)
    at = fb.tensor([[0, 2], [2, 2]])
    F = fb.nn.functional
    out = F.embedding(at, w)
    np.testing.assert_array_equal(out.detach().numpy(), A[0][at.numpy()])
    out.sum().backward()
    assert w.grad[:, 0].tolist() == [1, 0, 3]
    w.grad = None
    F.embedding(at, w, padding_idx=2).sum().backward()
    assert w.grad[:, 0].tolist() == [1, 0, 0]
    short = fb.tensor(A[0] * 10)
    F.embedding(fb.tensor([1]), short, max_norm=1.0)
    assert short[1].norm().item() == pytest.approx(1, rel=1e-4) and short[0].tolist() == (A[0][0] * 10).tolist()
    with pytest.raises(IndexError):
        F.embedding(fb.tensor([3]), short)

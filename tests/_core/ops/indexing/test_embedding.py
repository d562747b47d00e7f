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


def test_long_rows_are_scaled_down_in_place() -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((5, 3)) * 3
    w = fb.tensor(table)
    before = w._version
    assert fb.embedding_renorm_(w, fb.tensor([[1, 1], [4, 0]]), 1.0, 2.0) is w and w._version > before
    length = np.linalg.norm(table, axis=1, keepdims=True)
    used = np.isin(np.arange(5), [0, 1, 4])[:, None]
    np.testing.assert_allclose(w.numpy(), np.where(used & (length > 1), table / (length + 1e-7), table), rtol=1e-6)
    for args, error, told in (((w[0], fb.tensor([0])), RuntimeError, "2-dimensional"), ((w, fb.ones(1)), RuntimeError, "Long, Int"),
                              ((w, fb.tensor([5])), IndexError, "out of range"), ((w, fb.tensor([-1])), IndexError, "out of range"),
                              ((fb.nn.Parameter(w), fb.tensor([0])), RuntimeError, "leaf Variable")):
        with pytest.raises(error, match=told):
            fb.embedding_renorm_(*args, 1.0, 2.0)

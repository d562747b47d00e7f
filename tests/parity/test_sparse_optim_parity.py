"""Sparse gradients of tables, and the optimizers that take them, beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import flambeau as fb

TABLE = np.random.default_rng(0).standard_normal((11, 3)).astype(np.float32)
ROWS = [[[1, 2, 2], [7, 1, 0]], [[3, 3, 3], [10, 0, 1]], [[5, 6, 1], [2, 2, 2]]]


def trained(t, make, padding=None):
    layer = t.nn.Embedding(11, 3, padding_idx=padding, sparse=True)
    with t.no_grad():
        layer.weight.copy_(t.tensor(TABLE))
    optimizer = make(t, layer.parameters())
    seen = []
    for where in ROWS:
        optimizer.zero_grad()
        (layer(t.tensor(where)).sin().pow(2).sum() * 0.3).backward()
        assert layer.weight.grad.is_sparse
        seen.append(layer.weight.grad.to_dense().numpy().copy())
        optimizer.step()
    return [*seen, layer.weight.detach().numpy()]


OPTIMIZERS = {
    "SGD": lambda t, p: t.optim.SGD(p, lr=0.5), "momentum": lambda t, p: t.optim.SGD(p, lr=0.5, momentum=0.9),
    "Adagrad": lambda t, p: t.optim.Adagrad(p, lr=0.1, lr_decay=0.1), "SparseAdam": lambda t, p: t.optim.SparseAdam(p, lr=0.05, betas=(0.8, 0.95)),
    "maximize": lambda t, p: t.optim.SparseAdam(p, lr=0.05, maximize=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("padding", [None, 2])
def test_steps_by_sparse_gradients(name, padding):
    for ours, theirs in zip(trained(fb, OPTIMIZERS[name], padding), trained(torch, OPTIMIZERS[name], padding), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_gradients_add_up():
    for t in (fb, torch):
        w = t.tensor(TABLE, requires_grad=True)
        for _ in range(2):
            t.nn.functional.embedding(t.tensor([1, 1, 4]), w, sparse=True).sum().backward()
        assert w.grad.is_sparse and w.grad.coalesce()._nnz() == 2
        assert w.grad.to_dense()[1].tolist() == [4.0, 4.0, 4.0]
        (w * 2).sum().backward()
        assert not w.grad.is_sparse and w.grad[1].tolist() == [6.0, 6.0, 6.0] and w.grad[0].tolist() == [2.0, 2.0, 2.0]


def test_what_is_refused():
    for t in (fb, torch):
        w = t.tensor(TABLE, requires_grad=True)
        t.nn.functional.embedding(t.tensor([1]), w, sparse=True).sum().backward()
        with pytest.raises(RuntimeError, match="sparse gradients"):
            t.optim.Adam([w]).step()
        with pytest.raises(RuntimeError, match="sparse gradients"):
            t.optim.Adagrad([w], weight_decay=0.1).step()
        w.grad = None
        w.sum().backward()
        with pytest.raises(RuntimeError, match="dense gradients"):
            t.optim.SparseAdam([w]).step()
        with pytest.raises(ValueError):
            t.optim.SparseAdam([w], betas=(1.0, 0.9))

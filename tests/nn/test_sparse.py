"""Embedding: its table, its padding row and its errors."""

from __future__ import annotations

import pytest

import flambeau
from flambeau import nn


def test_embedding():
    table = nn.Embedding(5, 2, padding_idx=-2)
    assert table.padding_idx == 3 and table.weight[3].tolist() == [0.0, 0.0]
    assert repr(table) == "Embedding(5, 2, padding_idx=3)"
    where = flambeau.tensor([[1, 3], [4, 1]])
    out = table(where)
    assert out.tolist() == table.weight[where].tolist() and out.shape == (2, 2, 2)
    out.sum().backward()
    assert table.weight.grad.tolist() == [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]


def test_from_pretrained_is_frozen_and_shares():
    given = flambeau.arange(6).float().reshape(3, 2)
    table = nn.Embedding.from_pretrained(given)
    assert not table.weight.requires_grad and table.weight.data_ptr() == given.data_ptr()
    assert nn.Embedding.from_pretrained(given, freeze=False).weight.requires_grad
    with pytest.raises(AssertionError, match="expected to be 2-dimensional"):
        nn.Embedding.from_pretrained(flambeau.zeros(3))
    with pytest.raises(AssertionError, match="padding_idx must be within num_embeddings"):
        nn.Embedding(3, 2, padding_idx=3)


def test_sparse_gradients_of_rows_of_nothing():
    table = nn.Embedding(10, 0, sparse=True)
    table(flambeau.tensor([[0, 2, 4], [4, 3, 9]])).sum().backward()
    assert table.weight.grad.is_sparse and table.weight.grad.shape == (10, 0)

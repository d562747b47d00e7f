"""Data sets and their splits."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.utils.data import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)


class Squares(Dataset):
    def __init__(self, n, start=0):
        self.n, self.start = n, start

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return (self.start + i) ** 2


class Count(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))


def test_tensor_dataset():
    made = TensorDataset(flambeau.arange(6).reshape(3, 2), flambeau.arange(3))
    x, y = made[1]
    assert x.tolist() == [2, 3] and y.item() == 1 and len(made) == 3
    with pytest.raises(AssertionError, match="Size mismatch between tensors"):
        TensorDataset(flambeau.zeros(3), flambeau.zeros(2))


def test_concat_chain_and_stack():
    both = Squares(2) + Squares(3, 10)
    assert isinstance(both, ConcatDataset) and len(both) == 5
    assert [both[i] for i in (0, 1, 2, 4, -1)] == [0, 1, 100, 144, 144]
    with pytest.raises(ValueError, match="absolute value of index should not exceed dataset length"):
        both[-6]
    with pytest.raises(AssertionError):
        ConcatDataset([])
    assert list(Count(2) + Count(3)) == [0, 1, 0, 1, 2] and isinstance(Count(1) + Count(1), ChainDataset)
    assert StackDataset(Squares(3), Squares(3, 1))[1] == (1, 4)
    assert StackDataset(a=Squares(3), b=Squares(3, 1))[2] == {"a": 4, "b": 9}
    with pytest.raises(ValueError, match="Size mismatch"):
        StackDataset(Squares(3), Squares(2))


def test_random_split_is_a_partition():
    parts = random_split(Squares(10), [0.5, 0.26, 0.24])
    assert [len(p) for p in parts] == [6, 2, 2]
    assert sorted(i for p in parts for i in p.indices) == list(range(10))
    same = [random_split(range(20), [12, 8],
                         generator=flambeau.Generator().manual_seed(3))[0].indices for _ in range(2)]
    assert same[0] == same[1] and isinstance(parts[0], Subset)
    with pytest.raises(ValueError, match="Sum of input lengths does not equal the length of the input dataset!"):
        random_split(Squares(10), [5, 4])
    with pytest.raises(ValueError, match="Fraction at index 0 is not between 0 and 1"):
        random_split(Squares(10), [-0.5, 1.5])
    with pytest.warns(UserWarning, match="Length of split at index 0 is 0"):
        assert [len(p) for p in random_split(Squares(10), [0.0, 1.0])] == [0, 10]


def test_subset():
    part = Subset(Squares(10), [5, 2])
    assert len(part) == 2 and part[0] == 25 and part.__getitems__([1, 0]) == [4, 25]
    np.testing.assert_array_equal(Subset(np.arange(10) * 2, [3, 1])[[1, 0]], [2, 6])


def test_a_dataset_must_define_getitem():
    with pytest.raises(NotImplementedError):
        Dataset()[0]


def test_generic_classes_of_libraries_derive_from_these():
    from typing import TypeVar

    from flambeau.utils.data import ConcatDataset, DistributedSampler, Subset
    T = TypeVar("T", covariant=True)

    class Part(Subset[T]):
        """avalanche's."""
    assert Part([5, 6, 7], [2, 0])[0] == 7 and ConcatDataset[int]([[1], [2]])[1] == 2
    assert list(DistributedSampler[int]([0, 1, 2, 3], 2, 1, shuffle=False)) == [1, 3]

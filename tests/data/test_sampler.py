"""Samplers."""

from __future__ import annotations

from collections import Counter

import pytest

import flambeau
from flambeau.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)


def _generator(seed=1):
    return flambeau.Generator().manual_seed(seed)


def test_random_sampler_is_a_permutation_and_repeats_by_seed():
    orders = [list(RandomSampler(range(50), generator=_generator(s))) for s in (1, 1, 2)]
    assert sorted(orders[0]) == list(range(50)) and orders[0] == orders[1] != orders[2]
    assert len(list(RandomSampler(range(3), num_samples=8))) == 8
    drawn = list(RandomSampler(range(4), replacement=True, num_samples=3000, generator=_generator()))
    assert len(drawn) == 3000 and all(600 < n < 900 for n in Counter(drawn).values())


def test_batch_sampler():
    assert list(BatchSampler(SequentialSampler(range(5)), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert len(BatchSampler(range(5), 2, False)) == 3 and len(BatchSampler(range(5), 2, True)) == 2


def test_subset_random_sampler():
    assert sorted(SubsetRandomSampler([5, 7, 9])) == [5, 7, 9]


def test_weighted_sampler_follows_its_weights():
    drawn = Counter(WeightedRandomSampler([1.0, 0.0, 3.0], 4000, generator=_generator()))
    assert drawn[1] == 0 and 0.2 < drawn[0] / 4000 < 0.3
    assert sorted(WeightedRandomSampler([1.0, 2.0, 3.0], 3, replacement=False)) == [0, 1, 2]
    with pytest.raises(ValueError, match="weights should be a 1d sequence"):
        WeightedRandomSampler([[1.0]], 1)


@pytest.mark.parametrize("drop", [False, True])
def test_distributed_shares(drop):
    shares = [list(DistributedSampler(range(10), 4, r, shuffle=False, drop_last=drop)) for r in range(4)]
    assert len({len(s) for s in shares}) == 1
    seen = [i for s in shares for i in s]
    assert set(seen) == (set(range(8)) if drop else set(range(10)))
    sampler = DistributedSampler(range(10), 2, 0)
    first = list(sampler)
    assert first == list(sampler)
    sampler.set_epoch(1)
    assert first != list(sampler)
    with pytest.raises(ValueError, match=r"Invalid rank 4, rank should be in the interval \[0, 3\]"):
        DistributedSampler(range(10), 4, 4)


@pytest.mark.parametrize("make", [
    lambda: BatchSampler(range(3), 0, False), lambda: BatchSampler(range(3), True, False),
    lambda: BatchSampler(range(3), 1, 1), lambda: RandomSampler(range(3), num_samples=-1),
    lambda: WeightedRandomSampler([1.0], 0),
])
def test_bad_arguments(make):
    with pytest.raises(ValueError):
        make()

"""Data sets, samplers, loaders and collation answer as PyTorch's do: values, types, errors, warnings."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple

import numpy as np
import pytest
import torch

import flambeau

Point = namedtuple("Point", "a b")


class Rows(list):
    pass


BATCHES = [
    [1, 2], [True, False], [1.5, 2], [1, 2.5], ["a", "b"], [b"a", b"b"], [None, None], [1j, 2j], [{1, 2}] * 2, [range(3)] * 2,
    [np.float32(1)] * 2, [np.int8(1)] * 2, [np.bool_(1)] * 2, [np.uint16(3)] * 2, [np.ones(2, np.float16)] * 2, [np.array("a")] * 2,
    [np.array(3.0)] * 2, [np.ones((2, 3)), np.ones((2, 2))], [(1, 2), (3, 4)], [[1, 2], [3, 4]], [(1, 2), (3,)], [[1], [2, 3]],
    [{"a": 1}, {"a": 2}], [{"a": 1}, {"b": 2}], [{"a": 1}, {"a": 2, "b": 3}], [OrderedDict(a=1)] * 2, [UserDict(a=1)] * 2,
    [defaultdict(int, a=1)] * 2, [Point(1, 2.0)] * 2, [Rows([1, 2])] * 2, [deque([1, 2])] * 2, [(1, "a", [2.0, {"x": 3}])] * 2,
    [[], []], [{}, {}], [(), ()], [],
]  # fmt: skip
SPLITS = [[5, 5], [3, 3], [0.5, 0.5], [0.33, 0.33, 0.34], [0.3, 0.3, 0.3], [1.0], [0.9, 0.05, 0.05], [1.5, -0.5], [0, 10], [1 / 3] * 3,
          [11, -1], [0.5, 0.5001]]
OPTIONS = [
    {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2}, {"num_workers": 1, "prefetch_factor": -1},
    {"persistent_workers": True}, {"multiprocessing_context": "fork"}, {"num_workers": 1, "multiprocessing_context": "bad"},
    {"num_workers": 1, "multiprocessing_context": 3}, {"sampler": range(3), "shuffle": True}, {"batch_sampler": [[1]], "batch_size": 2},
    {"batch_sampler": [[1]], "drop_last": True}, {"batch_sampler": [[1]], "shuffle": True}, {"batch_size": None, "drop_last": True},
    {"batch_size": None, "shuffle": True}, {"batch_size": 0}, {"batch_size": 2.5}, {"batch_size": "a"}, {"shuffle": 1},
]  # fmt: skip


def cases(lib):
    d, t, L = lib.utils.data, lib.tensor, lib.utils.data.DataLoader

    class Ten(d.Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, i):
            return i

    class NoLength(d.Dataset):
        def __getitem__(self, i):
            return i

    class TooFew(Ten):
        def __getitems__(self, indices):
            return indices[:1]

    class Stream(d.IterableDataset):
        def __iter__(self):
            return iter(range(5))

    class Sized(Stream):
        def __len__(self):
            return 3

    def longer():
        loader = L(Sized(), 1)
        len(loader)
        return [b.tolist() for b in loader]

    def split(lengths):
        return [len(s) for s in d.random_split(Ten(), lengths)]

    def shares(n, count, **more):
        return [list(d.DistributedSampler(range(n), count, r, shuffle=False, **more)) for r in range(count)]

    made = {
        "batches of 0": lambda: d.BatchSampler(range(5), 0, False), "batches of True": lambda: d.BatchSampler(range(5), True, False),
        "drop_last 1": lambda: d.BatchSampler(range(5), 2, 1), "batches": lambda: list(d.BatchSampler(range(5), 2, False)),
        "full batches": lambda: list(d.BatchSampler(d.SequentialSampler(range(5)), 2, True)),
        "0 random": lambda: d.RandomSampler(range(5), num_samples=0), "replacement 1": lambda: d.RandomSampler(range(5), replacement=1),
        "random of none": lambda: d.RandomSampler([]),
        "random length": lambda: [len(d.RandomSampler(range(5))), len(list(d.RandomSampler(range(5), num_samples=12)))],
        "replaced": lambda: len(list(d.RandomSampler(range(5), True, num_samples=77))),
        "2d weights": lambda: d.WeightedRandomSampler([[1.0, 2]], 3), "0 weighted": lambda: d.WeightedRandomSampler([1.0, 2], 0),
        "weighted None": lambda: d.WeightedRandomSampler([1.0, 2], 1, None),
        "too many": lambda: list(d.WeightedRandomSampler([1.0, 2], 5, False)), "sure": lambda: list(d.WeightedRandomSampler([0.0, 2], 5)),
        "shares": lambda: shares(10, 3), "full shares": lambda: shares(10, 3, drop_last=True), "few": lambda: shares(2, 5),
        "rank 3": lambda: d.DistributedSampler(range(10), 3, 3), "rank -1": lambda: d.DistributedSampler(range(10), 3, -1),
        "concat none": lambda: d.ConcatDataset([]), "concat stream": lambda: d.ConcatDataset([Stream()]),
        "concat": lambda: [d.ConcatDataset([Ten(), Ten()])[i] for i in (0, 10, 19, -1, -20)],
        "concat -21": lambda: d.ConcatDataset([Ten(), Ten()])[-21], "concat far": lambda: d.ConcatDataset([[1], [2]])[2],
        "sum": lambda: type(Ten() + Ten()).__name__, "sum of streams": lambda: type(Stream() + Stream()).__name__,
        "chain": lambda: list(d.ChainDataset([Stream(), Stream()])), "chain map": lambda: list(d.ChainDataset([Ten()])),
        "chain length": lambda: len(d.ChainDataset([Sized(), Sized()])), "chain no length": lambda: len(d.ChainDataset([Stream()])),
        "stack": lambda: d.StackDataset(Ten(), [5] * 10)[3], "stack named": lambda: d.StackDataset(a=Ten(), b=[5] * 10)[3],
        "stack items": lambda: d.StackDataset(Ten(), [5] * 10).__getitems__([3, 4]),
        "stack named items": lambda: d.StackDataset(a=Ten(), b=[5] * 10).__getitems__([3, 4]),
        "stack too few": lambda: d.StackDataset(Ten(), TooFew()).__getitems__([3, 4]),
        "stack unequal": lambda: d.StackDataset(Ten(), [5]), "stack none": lambda: d.StackDataset(),
        "stack both": lambda: d.StackDataset(Ten(), a=Ten()),
        "subset": lambda: d.Subset(Ten(), [1, 5])[1], "subset far": lambda: d.Subset(Ten(), [1, 5])[2],
        "subset list": lambda: d.Subset(np.arange(10) * 2, [1, 5])[[0, 1]].tolist(),
        "subset items": lambda: d.Subset(TooFew(), [1, 5]).__getitems__([0, 1]),
        "tensors unequal": lambda: d.TensorDataset(t([1, 2]), t([1])), "no tensors": lambda: d.TensorDataset(),
        "split whole": lambda: sorted(i for s in d.random_split(Ten(), [3, 7]) for i in s),
        "stream shuffle": lambda: L(Stream(), shuffle=True), "stream no shuffle": lambda: list(L(Stream(), shuffle=False)),
        "stream sampler": lambda: L(Stream(), sampler=range(3)), "stream batches": lambda: L(Stream(), batch_sampler=[[1]]),
        "stream length": lambda: len(L(Stream())), "stream longer": longer,
        "stream lengths": lambda: (len(L(Sized(), 2)), len(L(Sized(), 2, drop_last=True)), len(L(Sized(), None))),
        "no length": lambda: len(L(NoLength())), "shuffle no length": lambda: L(NoLength(), shuffle=True),
        "empty": lambda: list(L([])), "shuffle empty": lambda: L([], shuffle=True), "set": lambda: setattr(L(Ten()), "dataset", 3),
        "set other": lambda: setattr(L(Ten()), "num_workers", 0), "of a list": lambda: [b.tolist() for b in L([1.5, 2.5, 3.5], 2)],
        "of a dict": lambda: list(L({0: 1, 1: 2}, 1)), "iterator length": lambda: len(iter(L(Ten(), 3))),
        "stack tensors": lambda: d.default_collate([t([1, 2]), t([3, 4])]), "unequal": lambda: d.default_collate([t([1, 2]), t([3])]),
        "mixed types": lambda: d.default_collate([t([1, 2]), t([3.0, 2])]), "not tensor": lambda: d.default_collate([t([1, 2]), 3]),
        "history": lambda: d.default_collate([lib.ones(2, requires_grad=True)] * 2).requires_grad,
        "no worker": lambda: d.get_worker_info(),
    }  # fmt: skip
    made |= {f"split {ls}": lambda ls=ls: split(ls) for ls in SPLITS}
    made |= {f"loader {o}": lambda o=o: len(L(Ten(), **o)) for o in OPTIONS}
    made |= {f"collate {b}": lambda b=b: d.default_collate(b) for b in BATCHES}
    made |= {f"convert {b}": lambda b=b: d.default_convert(b) for b in BATCHES}
    return made


def shown(x):
    """A value with its types, comparable over libraries."""
    if hasattr(x, "tolist") and hasattr(x, "dtype"):
        return str(x.dtype), tuple(x.shape), x.tolist()
    if isinstance(x, dict | UserDict):
        return type(x).__name__, {k: shown(v) for k, v in x.items()}
    if isinstance(x, list | tuple | deque):
        return type(x).__name__, [shown(v) for v in x]
    return x if isinstance(x, int | float | str | bytes | complex | type(None)) else type(x).__name__


def outcome(case):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = shown(case())
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    return result, [re.sub(r"<.*?> was|\s", "", str(w.message)) for w in caught]  # a space is missing in one of theirs


THEIRS, OURS = cases(torch), cases(flambeau)


@pytest.mark.parametrize("name", THEIRS)
def test_same_answer(name):
    assert outcome(OURS[name]) == outcome(THEIRS[name])


def test_worker_errors_read_alike():
    class Bad(list):
        def __getitem__(self, i):
            raise KeyError(f"no {i}")

    def text(lib):
        with pytest.raises(KeyError) as caught:
            list(lib.utils.data.DataLoader(Bad([1]), num_workers=1))
        lines = str(caught.value).splitlines()
        return lines[:2], lines[-1]

    assert text(flambeau) == text(torch)

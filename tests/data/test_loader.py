"""DataLoader: batches, orders, workers, errors."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import namedtuple

import numpy as np
import pytest

import flambeau
from flambeau.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    get_worker_info,
)

WORKERS = pytest.mark.parametrize("workers", [0, 1, 3])


class Items(Dataset):
    def __init__(self, n=10, fail=None, slow=0.0):
        self.n, self.fail, self.slow = n, fail, slow

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i == self.fail:
            raise ValueError(f"item {i} is bad")
        time.sleep(self.slow * (i % 3))
        return flambeau.tensor([float(i), -float(i)]), i


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.n, step))


@WORKERS
def test_batches_come_in_order(workers):
    loader = DataLoader(Items(10, slow=0.002), batch_size=4, num_workers=workers)
    batches = list(loader)
    assert len(loader) == 3 and [y.tolist() for _, y in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    np.testing.assert_array_equal(batches[2][0].numpy(), [[8.0, -8.0], [9.0, -9.0]])
    assert len(list(DataLoader(Items(10), batch_size=4, drop_last=True, num_workers=workers))) == 2


@WORKERS
def test_shuffling_gives_everything_once_and_repeats_by_generator(workers):
    def order(seed):
        made = DataLoader(Items(20), batch_size=6, shuffle=True, num_workers=workers,
                          generator=flambeau.Generator().manual_seed(seed))
        return [i for _, y in made for i in y.tolist()]

    assert sorted(order(1)) == list(range(20)) and order(1) == order(1) != order(2)


@WORKERS
def test_streams(workers):
    loader = DataLoader(Stream(11), batch_size=2, num_workers=workers)
    for _ in range(2):
        assert sorted(i for b in loader for i in b.tolist()) == list(range(11))
    full = [b.tolist() for b in DataLoader(Stream(11), batch_size=2, drop_last=True, num_workers=workers)]
    assert all(len(b) == 2 for b in full)
    assert sorted(DataLoader(Stream(4), batch_size=None, num_workers=workers)) == [0, 1, 2, 3]


@WORKERS
def test_an_error_reaches_the_reader(workers):
    loader = DataLoader(Items(10, fail=5), batch_size=2, num_workers=workers)
    seen = []
    with pytest.raises(ValueError, match="item 5 is bad") as caught:
        for _, y in loader:
            seen.append(y.tolist())
    assert seen == [[0, 1], [2, 3]]
    if workers:
        assert "in DataLoader worker" in str(caught.value)


class Whoami(Dataset):
    """What each worker says of itself, and the first random numbers it draws."""

    limit = 100

    def __len__(self):
        return 6

    def __getitem__(self, i):
        import random

        info = get_worker_info()
        assert info.dataset is self
        numbers = (random.random(), float(np.random.rand()), float(flambeau.rand(())))
        return info.id, info.num_workers, info.seed, self.limit, flambeau.get_num_threads(), numbers


def _name_limits(worker):
    get_worker_info().dataset.limit = 3 + worker


def test_workers_know_who_they_are_and_own_their_dataset():
    data = Whoami()

    def said():
        loader = DataLoader(data, batch_size=None, num_workers=2, worker_init_fn=_name_limits, collate_fn=lambda x: x,
                            generator=flambeau.Generator().manual_seed(5))
        return list(loader)

    seen = said()
    assert [s[0] for s in seen] == [0, 1, 0, 1, 0, 1] and all(s[1] == 2 and s[3] == 3 + s[0] and s[4] == 1 for s in seen)
    assert len({s[2] - s[0] for s in seen}) == 1 and data.limit == 100
    assert len({n for s in seen for n in s[5]}) == 18  # no worker draws what another drew
    assert said() == seen
    assert get_worker_info() is None


def test_failing_worker_init_is_raised():
    def init(worker):
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        list(DataLoader(Items(), num_workers=1, worker_init_fn=init))


def test_a_slow_batch_times_out():
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.05 seconds"):
        list(DataLoader(Items(3, slow=0.5), num_workers=1, timeout=0.05))


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_end_with_their_loader(persistent):
    others = multiprocessing.active_children()  # of tests before whose exceptions are still referred to
    loader = DataLoader(Items(20), num_workers=2, persistent_workers=persistent)
    it = iter(loader)
    next(it)
    pids = [process.pid for process in multiprocessing.active_children() if process not in others]
    assert len(pids) == 2
    if persistent:
        assert len(list(loader)) == 20  # without what the last iteration left over
        assert {process.pid for process in multiprocessing.active_children()} >= set(pids)
    del it, loader
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_tensors_are_gathered_whole():
    x = flambeau.arange(12).reshape(6, 2)
    data = TensorDataset(x, flambeau.arange(6))
    for made in (data, Subset(data, [5, 4, 3, 2, 1, 0])):
        for batch, single in zip(DataLoader(made, batch_size=4),
                                 DataLoader(made, batch_size=4, collate_fn=default_collate)):
            assert isinstance(batch, list) and [t.tolist() for t in batch] == [t.tolist() for t in single]
    whole = next(iter(DataLoader(data, batch_size=6)))[0]
    whole.zero_()
    assert x.sum().item() == 66


def test_batch_sampler_and_collate_function():
    loader = DataLoader(Items(), batch_sampler=[[1, 3], [5]], collate_fn=lambda items: [i for _, i in items])
    assert list(loader) == [[1, 3], [5]] and loader.batch_size is None
    assert [y for _, y in DataLoader(Items(3), batch_size=None)] == [0, 1, 2]


@pytest.mark.parametrize("options,text", [
    ({"num_workers": -1}, "num_workers option should be non-negative"),
    ({"timeout": -1}, "timeout option should be non-negative"),
    ({"prefetch_factor": 2}, "prefetch_factor option could only be specified"),
    ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
    ({"sampler": [1], "shuffle": True}, "sampler option is mutually exclusive with shuffle"),
    ({"batch_sampler": [[1]], "batch_size": 3}, "batch_sampler option is mutually exclusive"),
    ({"batch_size": None, "drop_last": True}, "batch_size=None option disables auto-batching"),
    ({"batch_size": 0}, "batch_size should be a positive integer value"),
])
def test_bad_options(options, text):
    with pytest.raises(ValueError, match=text):
        DataLoader(Items(), **options)
    if "shuffle" in options:
        with pytest.raises(ValueError, match="expected unspecified shuffle option"):
            DataLoader(Stream(3), shuffle=True)


def test_settings_are_fixed():
    loader = DataLoader(Items())
    with pytest.raises(ValueError, match="batch_size attribute should not be set after DataLoader is initialized"):
        loader.batch_size = 3


def test_default_collate():
    Pair = namedtuple("Pair", "a b")
    out = default_collate([{"n": 1, "f": 1.5, "s": "x", "t": (1, [2.0]), "p": Pair(np.float32(1), np.ones(2))}] * 2)
    assert out["n"].dtype is flambeau.int64 and out["f"].dtype is flambeau.float64 and out["s"] == ["x", "x"]
    assert out["t"][0].tolist() == [1, 1] and out["t"][1][0].tolist() == [2.0, 2.0]
    assert isinstance(out["p"], Pair) and out["p"].a.dtype is flambeau.float32 and out["p"].b.shape == (2, 2)
    with pytest.raises(TypeError, match="default_collate: batch must contain tensors"):
        default_collate([object()])
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal size"):
        default_collate([(1, 2), (1,)])


def test_default_convert():
    out = default_convert({"a": np.ones(2), "b": ["x", np.float64(2.0)], "c": 5})
    assert isinstance(out["a"], flambeau.Tensor) and out["b"][0] == "x" and out["b"][1].item() == 2.0 and out["c"] == 5


class _FromOutside:
    """A loader of a library's own, as fastai's: the names that PyTorch's iterators ask for, and no more. It is its own data set."""

    _dataset_kind, _IterableDataset_len_called, _auto_collation, drop_last, in_order = 1, None, False, False, True
    generator, prefetch_factor, timeout, pin_memory, persistent_workers, worker_init_fn = None, 2, 0, False, False, None

    def __init__(self, workers):
        self.dataset, self.num_workers = self, workers
        self.multiprocessing_context = flambeau.multiprocessing if workers else None

    @property
    def _index_sampler(self):
        return iter(lambda: 0, 1)

    def collate_fn(self, batch):
        return batch

    def __iter__(self):
        worker = get_worker_info()
        return iter([flambeau.full((2,), 10.0 * i + (0 if worker is None else worker.id)) for i in range(3)])


def test_iterators_of_loaders_that_libraries_write():
    from flambeau.utils.data.dataloader import _DatasetKind, _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter
    assert [x.tolist() for x in _SingleProcessDataLoaderIter(_FromOutside(0))] == [[0, 0], [10, 10], [20, 20]]
    assert [x.tolist() for x in _MultiProcessingDataLoaderIter(_FromOutside(2))] == [[10 * i + w] * 2 for i in range(3) for w in range(2)]
    assert _DatasetKind.create_fetcher(_DatasetKind.Map, "abcd", True, "".join, False).fetch([2, 0]) == "ca"
    stream = _DatasetKind.create_fetcher(_DatasetKind.Iterable, "abcd", True, "".join, True)
    assert stream.fetch([0, 0, 0]) == "abc"
    with pytest.raises(StopIteration):
        stream.fetch([0, 0, 0])


def test_an_iterator_of_a_librarys_own_derives_from_ours():
    from flambeau.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind

    class Counted(_BaseDataLoaderIter):
        def __init__(self, loader):
            super().__init__(loader)
            self.given = 0
            self.fetcher = _DatasetKind.create_fetcher(self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last)

        def _next_index(self):
            self.given += 1
            return super()._next_index()

        def _next_data(self):
            return self.fetcher.fetch(self._next_index())

    loader = DataLoader(range(7), 3)
    found = Counted(loader)
    assert [b.tolist() for b in found] == [[0, 1, 2], [3, 4, 5], [6]] and found.given == 4 and found._num_yielded == 3 and len(found) == 3
    found._reset(loader)
    assert next(found).tolist() == [0, 1, 2] and found._num_yielded == 1
    assert isinstance(iter(loader), _BaseDataLoaderIter)


def test_what_a_generator_gives_follows_from_the_iterators_made():
    """One number when an iterator is made and one when the sampler begins: workers that stay begin their second epoch with the latter alone."""
    def drawn(**options):
        flambeau.manual_seed(5)
        loader = DataLoader(range(40), 40, shuffle=True, **options)
        return [next(iter(loader)).tolist() for _ in range(3)]

    once, stays = drawn(), drawn(num_workers=1, persistent_workers=True)
    flambeau.manual_seed(5)
    seeds = [int(flambeau.empty((), dtype=flambeau.int64).random_()) for _ in range(6)]
    orders = [flambeau.randperm(40, generator=flambeau.Generator().manual_seed(seed)).tolist() for seed in seeds]
    assert once == drawn(num_workers=1) == [orders[1], orders[3], orders[5]] and stays == [orders[1], orders[2], orders[3]]


def test_a_stream_drops_what_is_less_than_its_sampler_asked_for():
    class Numbers(IterableDataset):
        def __iter__(self):
            return iter(range(7))

    assert [b.tolist() for b in DataLoader(Numbers(), 3, drop_last=True)] == [[0, 1, 2], [3, 4, 5]]
    assert [b.tolist() for b in DataLoader(Numbers(), 3)] == [[0, 1, 2], [3, 4, 5], [6]]

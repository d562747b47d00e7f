"""`DataLoader`: batches of a data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from .._core.errors import warn
from .collate import default_collate, default_convert
from .dataset import Dataset, IterableDataset
from .fetch import MAP, STREAM
from .iterators import MultiProcessIter, SingleProcessIter
from .pool import context_of
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

T_co = TypeVar("T_co", covariant=True)

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _Endless(Sampler[None]):
    """The "indices" of a stream."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader(Generic[T_co]):
    """Iterates over a data set in batches.

    Args:
        dataset: a `Dataset` with `__getitem__`, or an `IterableDataset`.
        batch_size: samples a batch; None gives single samples, not collated.
        shuffle: a new random order each epoch. `sampler` or `batch_sampler` choose an order of one's own instead.
        num_workers: processes that make batches ahead; 0 makes them here, when they are asked for.
        collate_fn: from a list of samples to a batch; `default_collate` if None.
        pin_memory: put batches into pinned memory, from which copies to a GPU are asynchronous, if there is a GPU; with workers, a
            thread does it. `pin_memory_device` is accepted, and the memory is good for every GPU.
        drop_last: leave out a last batch that is too short.
        timeout: seconds to wait for a worker's batch; 0 waits as long as the workers live.
        worker_init_fn: called as ``worker_init_fn(worker_id)`` in each worker before it starts, when it has its seeds (of `random`,
            NumPy and Flambeau) and `get_worker_info()`.
        multiprocessing_context: "fork", "spawn", "forkserver" or a context of `multiprocessing`; see `pool.context_of`.
        generator: for the random order and the workers' seeds, which do not depend on the number of workers.
        prefetch_factor: batches each worker keeps ahead; 2 if None.
        persistent_workers: keep the workers, and what they did to their data sets, after an epoch.
        in_order: give batches in the sampler's order; False gives each as soon as it is made.

    A worker's exception is raised here with its traceback, as the same type; a worker that dies is a RuntimeError. Batches come through
    shared memory that has no name and goes with the last tensor on it. Workers end when the iterator is dropped or exhausted (with
    persistent_workers, when the loader is dropped), and at once if this process dies.

    Raises ValueError for options that do not go together, TypeError for a `multiprocessing_context` that is none.
    """

    _initialized = False
    _iterator: MultiProcessIter | None = None  # the persistent workers'
    _IterableDataset_len_called: int | None = None  # the length that a stream's loader was asked for and gave

    def __init__(self, dataset: Dataset[T_co], batch_size: int | None = 1, shuffle: bool | None = None,
                 sampler: Iterable[Any] | None = None, batch_sampler: Iterable[Any] | None = None, num_workers: int = 0,
                 collate_fn: Callable[[Any], Any] | None = None, pin_memory: bool = False, drop_last: bool = False,
                 timeout: float = 0, worker_init_fn: Callable[[int], Any] | None = None,
                 multiprocessing_context: Any = None, generator: Any = None, *, prefetch_factor: int | None = None,
                 persistent_workers: bool = False, pin_memory_device: str = "", in_order: bool = True) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 "
                             "to enable multiprocessing, otherwise set prefetch_factor to None.")
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self._dataset_kind = STREAM if isinstance(dataset, IterableDataset) else MAP
        if self._dataset_kind == STREAM:
            if shuffle not in (False, None):
                raise ValueError(f"DataLoader with IterableDataset: expected unspecified shuffle option, but got "
                                 f"shuffle={shuffle}")
            if sampler is not None:
                raise ValueError(f"DataLoader with IterableDataset: expected unspecified sampler option, but got "
                                 f"sampler={sampler}")
            if batch_sampler is not None:
                raise ValueError(f"DataLoader with IterableDataset: expected unspecified batch_sampler option, but got "
                                 f"batch_sampler={batch_sampler}")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
                                 "drop_last")
            batch_size = None
            drop_last = False
        elif batch_size is None:
            if drop_last:
                raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with "
                                 "drop_last")
        if sampler is None:
            if self._dataset_kind == STREAM:
                sampler = _Endless()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)  # type: ignore[arg-type]
            else:
                sampler = SequentialSampler(dataset)  # type: ignore[arg-type]
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)  # type: ignore[arg-type]
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        self.collate_fn: Callable[[Any], Any] = collate_fn if collate_fn is not None else (
            default_collate if batch_sampler is not None else default_convert)
        self.persistent_workers = persistent_workers
        self._initialized = True
        self.check_worker_number_rationality()

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        if name == "multiprocessing_context" and value is not None:
            if self.num_workers == 0:
                raise ValueError(f"multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                                 f"num_workers={self.num_workers}")
            context_of(value)
        super().__setattr__(name, value)

    def __len__(self) -> int:
        """Batches an epoch, as far as it is known."""
        if self._dataset_kind == MAP:
            return len(self._index_sampler)
        n = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is not None:
            n = n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        self._IterableDataset_len_called = n
        return n

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self.batch_sampler is not None else self.sampler

    def _get_iterator(self) -> Any:
        """A new iterator: what subclasses of libraries put in its place."""
        return SingleProcessIter(self) if self.num_workers == 0 else MultiProcessIter(self)

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers == 0 or not self.persistent_workers:
            return self._get_iterator()  # type: ignore[no-any-return]
        kept = self._iterator
        if kept is not None and kept.usable():
            kept._reset(self)
        else:
            kept = self._iterator = self._get_iterator()
        return kept

    def check_worker_number_rationality(self) -> None:
        """Warns of more workers than there are processors for this process."""
        workers = self.num_workers
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if cpus is not None and workers > cpus:
            warn(f"This DataLoader will create {workers} worker processes in total. Our suggested max number of worker in current "
                 f"system is {cpus}, which is smaller than what this DataLoader is going to create. Please be aware that "
                 "excessive worker creation might get DataLoader running slow or even freeze, lower the worker number to avoid "
                 "potential slowness/freeze if necessary.")

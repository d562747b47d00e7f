"""`torch.utils.data.dataloader`: the loader and its iterators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, TypeAlias, TypeVar

from ...data import DataLoader, Sampler, default_collate, default_convert, get_worker_info
from ...data.fetch import MAP, STREAM
from ...data.iterators import Batches as _BaseDataLoaderIter
from ...data.iterators import MultiProcessIter as _MultiProcessingDataLoaderIter
from ...data.iterators import SingleProcessIter as _SingleProcessDataLoaderIter
from ...data.pipe_graph import SHARDING_PRIORITIES, apply_sharding
from ._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher


class _InfiniteConstantSampler(Sampler[None]):
    """The sampler of streams: None for ever."""

    def __iter__(self) -> Iterator[None]:
        return repeat(None)


def _sharding_worker_init_fn(worker_init_fn: Any, world_size: int, rank_id: int, worker_id: int) -> None:
    """What a worker of a data pipe begins with: its share of the share of its process."""
    info = get_worker_info()
    assert info is not None, "called in a worker"
    apply_sharding(info.dataset, world_size, rank_id, SHARDING_PRIORITIES.DISTRIBUTED)
    apply_sharding(info.dataset, info.num_workers, worker_id, SHARDING_PRIORITIES.MULTIPROCESSING)
    if worker_init_fn is not None:
        worker_init_fn(worker_id)


class _DatasetKind:
    """Which of the two kinds of data sets a loader has, as PyTorch numbers them."""

    Map, Iterable = MAP, STREAM

    @staticmethod
    def create_fetcher(kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> Any:
        """What gives a batch for some places of such a data set."""
        made = _MapDatasetFetcher if kind == MAP else _IterableDatasetFetcher
        return made(dataset, auto_collation, collate_fn, drop_last)


T = TypeVar("T")
_collate_fn_t: TypeAlias = Callable[[list[T]], Any]
_worker_init_fn_t: TypeAlias = Callable[[int], None]

__all__ = ["DataLoader", "_BaseDataLoaderIter", "_InfiniteConstantSampler", "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter", "default_collate",
           "default_convert", "get_worker_info"]

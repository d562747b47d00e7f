"""`torch.utils.data.dataloader`: the loader and its iterators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from ...data import DataLoader, default_collate, default_convert, get_worker_info
from ...data.fetch import MAP, STREAM
from ...data.iterators import Batches as _BaseDataLoaderIter
from ...data.iterators import MultiProcessIter as _MultiProcessingDataLoaderIter
from ...data.iterators import SingleProcessIter as _SingleProcessDataLoaderIter
from ._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher


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

__all__ = ["DataLoader", "_BaseDataLoaderIter", "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter", "default_collate",
           "default_convert", "get_worker_info"]

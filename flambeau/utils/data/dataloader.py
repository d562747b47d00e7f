"""`torch.utils.data.dataloader`: the loader and its iterators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from ...data import DataLoader, default_collate, default_convert, get_worker_info
from ...data.iterators import Batches as _BaseDataLoaderIter
from ...data.iterators import MultiProcessIter as _MultiProcessingDataLoaderIter
from ...data.iterators import SingleProcessIter as _SingleProcessDataLoaderIter


class _DatasetKind:
    """Which of the two kinds of data sets a loader has, as PyTorch numbers them."""

    Map, Iterable = 0, 1


T = TypeVar("T")
_collate_fn_t: TypeAlias = Callable[[list[T]], Any]
_worker_init_fn_t: TypeAlias = Callable[[int], None]

__all__ = ["DataLoader", "_BaseDataLoaderIter", "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter", "default_collate",
           "default_convert", "get_worker_info"]

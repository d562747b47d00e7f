"""`torch.utils.data.dataloader`: the loader and its iterators."""

from __future__ import annotations

from ...data import DataLoader, default_collate, default_convert, get_worker_info
from ...data.iterators import Batches as _BaseDataLoaderIter
from ...data.iterators import MultiProcessIter as _MultiProcessingDataLoaderIter
from ...data.iterators import SingleProcessIter as _SingleProcessDataLoaderIter

__all__ = ["DataLoader", "_BaseDataLoaderIter", "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter", "default_collate",
           "default_convert", "get_worker_info"]

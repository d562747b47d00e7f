"""Samples of a data set by their places (torch.utils.data._utils.fetch)."""

from __future__ import annotations

from typing import Any


class _BaseDatasetFetcher:
    """Gives the batch of some places; of a stream, the next so many samples, then StopIteration."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> None:
        self.dataset, self.auto_collation, self.collate_fn, self.drop_last = dataset, auto_collation, collate_fn, drop_last


class _MapDatasetFetcher(_BaseDatasetFetcher):
    def fetch(self, possibly_batched_index: Any) -> Any:
        """The batch."""
        if not self.auto_collation:
            return self.collate_fn(self.dataset[possibly_batched_index])
        several = getattr(self.dataset, "__getitems__", None)
        return self.collate_fn(several(possibly_batched_index) if several else [self.dataset[i] for i in possibly_batched_index])


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter, self.ended = iter(dataset), False

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The next batch, of as many samples as there are places."""
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        samples: list[Any] = []
        for _ in possibly_batched_index:
            try:
                samples.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not samples or (self.drop_last and len(samples) < len(possibly_batched_index)):
            raise StopIteration
        return self.collate_fn(samples)


__all__ = ["_BaseDatasetFetcher", "_IterableDatasetFetcher", "_MapDatasetFetcher"]

"""From an entry of the sampler to a batch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from .collate import default_collate
from .dataset import Subset, TensorDataset

MAP, STREAM = 0, 1  # the two kinds of data sets, as PyTorch numbers them


class Stopped(BaseException):
    """The loader has closed: the batch under way is not wanted any more."""


def fetcher(dataset: Any, kind: int, collate: Callable[[Any], Any], batched: bool, whole: bool,
            check: Callable[[], None] | None = None) -> Callable[[Any], Any]:
    """A function from an entry of the sampler to a batch. Of a stream, it raises StopIteration when no sample is left, or with `whole` fewer than
    a batch has. `check` is called before each sample and may raise `Stopped`."""
    if kind == STREAM:
        return _of_stream(iter(dataset), collate, batched, whole, check)
    if not batched:
        return _whole(lambda i: collate(dataset[i]))
    if collate is default_collate:
        gather = gatherer(dataset)
        if gather is not None:
            return gather
    fetch = getattr(dataset, "__getitems__", None)
    if fetch is not None:
        return _whole(lambda indices: collate(fetch(indices)))
    if check is None:
        return _whole(lambda indices: collate([dataset[i] for i in indices]))

    def checked(indices: Any) -> Any:
        samples = []
        for i in indices:
            check()
            samples.append(dataset[i])
        return collate(samples)

    return _whole(checked)


def _whole(fetch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Of a map, StopIteration is no end but a mistake, which must not end the loop silently."""
    def call(entry: Any) -> Any:
        try:
            return fetch(entry)
        except StopIteration as error:
            raise RuntimeError("the data set's __getitem__ (or collate_fn) raised StopIteration") from error

    return call


def _of_stream(stream: Any, collate: Callable[[Any], Any], batched: bool, whole: bool,
               check: Callable[[], None] | None) -> Callable[[Any], Any]:
    over = False

    def samples(count: int) -> list[Any]:
        nonlocal over
        if over:
            raise StopIteration
        if check is None:
            taken = list(islice(stream, count))
        else:
            taken = []
            for sample in islice(stream, count):
                taken.append(sample)
                check()
        if len(taken) < count:
            over = True
        return taken

    def take(entries: Any) -> Any:
        taken = samples(len(entries))
        if not taken or (whole and len(taken) < len(entries)):
            raise StopIteration
        return collated(taken)

    def collated(taken: Any) -> Any:
        try:
            return collate(taken)
        except StopIteration as error:
            raise RuntimeError("collate_fn raised StopIteration") from error

    def single(_: Any) -> Any:
        taken = samples(1)
        if not taken:
            raise StopIteration
        return collated(taken[0])

    return take if batched else single


def gatherer(dataset: Any) -> Callable[[list[int]], Any] | None:
    """For a `TensorDataset`, or a `Subset` of one, a function that gathers a batch by indexing each tensor once: the same values as
    collating the samples, without making them. None for any other data set."""
    if type(dataset) is TensorDataset:
        return dataset._batch
    if type(dataset) is Subset:
        inner = gatherer(dataset.dataset)
        if inner is not None:
            places = dataset.indices
            return lambda indices: inner([places[i] for i in indices])
    return None

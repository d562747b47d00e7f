"""Data pipes: steps of a program's own, by their classes and by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flambeau.utils.data import DataLoader, Dataset, IterableDataset, IterDataPipe, MapDataPipe, functional_datapipe


class Numbers(IterDataPipe):
    def __init__(self, n: int) -> None:
        self.n, self.resets = n, 0

    def reset(self) -> None:
        self.resets += 1

    def __iter__(self) -> Iterator[int]:
        yield from range(self.n)


class MoreNumbers(Numbers):
    def __iter__(self) -> Iterator[int]:
        yield from super().__iter__()
        yield self.n


@functional_datapipe("scaled_here")
class Scaled(IterDataPipe):
    def __init__(self, source: Any, by: int = 2) -> None:
        self.source, self.by = source, by

    def __iter__(self) -> Iterator[int]:
        for x in self.source:
            yield x * self.by


@functional_datapipe("scaled_here")  # each kind has names of its own
class ScaledMap(MapDataPipe):
    def __init__(self, source: Any, by: int = 2) -> None:
        self.source, self.by = source, by

    def __getitem__(self, i: Any) -> int:
        return int(self.source[i] * self.by)

    def __len__(self) -> int:
        return len(self.source)


def test_streams_are_made_of_streams() -> None:
    pipe = Numbers(4).scaled_here().scaled_here(by=5)
    assert type(pipe) is Scaled and list(pipe) == list(pipe) == [0, 10, 20, 30] and isinstance(pipe, IterableDataset)
    assert pipe.source.source.resets == 2 and list(MoreNumbers(2)) == [0, 1, 2]
    assert [int(b.sum()) for b in DataLoader(pipe, batch_size=2)] == [10, 50]
    assert "scaled_here" in dir(pipe) and repr(pipe) == "Scaled"
    with pytest.raises(AttributeError, match="'Numbers' object has no attribute 'nothing'"):
        Numbers(1).nothing  # noqa: B018


def test_maps_are_made_of_maps() -> None:
    pipe = ScaledMap([1, 2, 3]).scaled_here(10)
    assert type(pipe) is ScaledMap and [pipe[i] for i in range(len(pipe))] == [20, 40, 60] and isinstance(pipe, Dataset)


def test_one_iterator_counts_at_a_time() -> None:
    pipe = Numbers(3)
    first = iter(pipe)
    assert next(first) == 0
    second = iter(pipe)
    assert next(second) == 0
    with pytest.raises(RuntimeError, match="has been invalidated"):
        next(first)
    assert list(second) == [1, 2]


def test_names_that_cannot_be() -> None:
    with pytest.raises(TypeError, match="IterDataPipe or MapDataPipe"):
        functional_datapipe("x_here")(int)
    with pytest.raises(Exception, match="already taken"):
        functional_datapipe("scaled_here")(Numbers)
    Numbers.register_function("first_here", lambda pipe: next(iter(pipe)))
    assert Numbers(3).first_here() == 0

"""Data pipes by what they take from: the graph below a pipe, and settings for all pipes in it (torch.utils.data.graph and graph_settings)."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import Any

from .._core import dtypes, ops
from .._core.errors import warn
from .pipes import IterDataPipe, MapDataPipe

DataPipe = IterDataPipe[Any] | MapDataPipe[Any]
_PIPES = (IterDataPipe, MapDataPipe)
DataPipeGraph = dict[int, tuple[DataPipe, Any]]


class SHARDING_PRIORITIES(IntEnum):
    """Between whom the samples of a pipe are shared out."""

    DEFAULT = 1
    DISTRIBUTED = 2
    MULTIPROCESSING = 3


def _taken(value: Any, seen: set[int]) -> Iterator[DataPipe]:
    """The pipes in a value: itself, or inside of collections."""
    if isinstance(value, _PIPES):
        yield value
    elif isinstance(value, Collection) and not isinstance(value, (str, bytes, bytearray, range)) and id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, Mapping):
            for key, inner in value.items():
                yield from _taken(key, seen)
                yield from _taken(inner, seen)
        elif type(value) in (list, tuple, set, frozenset):
            for inner in value:
                yield from _taken(inner, seen)


def _walk(pipe: DataPipe, above: frozenset[int]) -> DataPipeGraph:
    if id(pipe) in above:
        return {}
    below: DataPipeGraph = {}
    for value in vars(pipe).values():
        for inner in _taken(value, set()):
            below.update(_walk(inner, above | {id(pipe)}))
    return {id(pipe): (pipe, below)}


def traverse_dps(datapipe: DataPipe) -> DataPipeGraph:
    """The pipes that a pipe's attributes hold, directly or in collections, and so on: ``{id(pipe): (pipe, the same of what it holds)}``.
    Raises RuntimeError for what is no pipe."""
    if not isinstance(datapipe, _PIPES):
        raise RuntimeError(f"Expected `IterDataPipe` or `MapDataPipe`, but {type(datapipe)} is found")
    return _walk(datapipe, frozenset())


def traverse(datapipe: DataPipe, only_datapipe: bool | None = None) -> DataPipeGraph:
    """The old name of `traverse_dps`."""
    warn("`traverse` function is deprecated and will be removed after 1.13. Please use `traverse_dps` instead.", FutureWarning)
    return traverse_dps(datapipe)


def get_all_graph_pipes(graph: DataPipeGraph) -> list[DataPipe]:
    """Each pipe of a graph once, those above before those below."""
    found: dict[int, DataPipe] = {}

    def add(part: DataPipeGraph) -> None:
        for key, (pipe, below) in part.items():
            if key not in found:
                found[key] = pipe
                add(below)
    add(graph)
    return list(found.values())


def _has(pipe: Any, *names: str) -> bool:
    return all(inspect.ismethod(getattr(pipe, name, None)) for name in names)


def apply_sharding(datapipe: DataPipe, num_of_instances: int, instance_id: int, sharding_group: Any = SHARDING_PRIORITIES.DEFAULT) -> DataPipe:
    """Has each pipe with a method `apply_sharding` give the share of one of so many readers.  Raises RuntimeError where one is below another."""
    def share(graph: DataPipeGraph, done: Any) -> None:
        for pipe, below in graph.values():
            given: Any = pipe
            if not _has(pipe, "apply_sharding"):
                share(below, done)
                continue
            if done is not None:
                raise RuntimeError("Sharding twice on a single pipeline is likely unintended and will cause data loss. "
                                   f"Sharding already applied to {done} while trying to apply to {pipe}")
            by_group = {} if len(inspect.signature(given.apply_sharding).parameters) < 3 else {"sharding_group": sharding_group}
            given.apply_sharding(num_of_instances, instance_id, **by_group)
            share(below, pipe)
    share(traverse_dps(datapipe), None)
    return datapipe


def apply_shuffle_settings(datapipe: DataPipe, shuffle: bool | None = None) -> DataPipe:
    """Turns the pipes that shuffle on or off; None: as they are. Without one, a pipe that is to shuffle gets one at its end, by its `shuffle()`."""
    if shuffle is None:
        return datapipe
    found: list[Any] = [pipe for pipe in get_all_graph_pipes(traverse_dps(datapipe)) if _has(pipe, "set_shuffle", "set_seed")]
    if not found and shuffle:
        warn("`shuffle=True` was set, but the datapipe does not contain a `Shuffler`. Adding one at the end. Be aware that the default buffer size "
             "might not be sufficient for your task.")
        datapipe = datapipe.shuffle()
        found = [datapipe]
    for pipe in found:
        pipe.set_shuffle(shuffle)
    return datapipe


def apply_random_seed(datapipe: DataPipe, rng: Any) -> DataPipe:
    """Gives every pipe with a method `set_seed` a number that the generator draws."""
    for pipe in get_all_graph_pipes(traverse_dps(datapipe)):
        given: Any = pipe
        if _has(given, "set_seed"):
            given.set_seed(int(ops.empty((), dtype=dtypes.int64).random_(generator=rng)))
    return datapipe


def apply_shuffle_seed(datapipe: DataPipe, rng: Any) -> DataPipe:
    """The old name of `apply_random_seed`."""
    warn("`apply_shuffle_seed` is deprecated since 1.12 and will be removed in the future releases. Please use `apply_random_seed` instead.", FutureWarning)
    return apply_random_seed(datapipe, rng)

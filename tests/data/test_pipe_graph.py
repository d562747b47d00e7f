"""Graphs of data pipes, and settings for all pipes in one."""

from __future__ import annotations

import pytest

import flambeau
from flambeau.data import IterDataPipe, functional_datapipe
from flambeau.data.pipe_graph import SHARDING_PRIORITIES, apply_random_seed, apply_sharding, apply_shuffle_settings, get_all_graph_pipes, traverse_dps


class Numbers(IterDataPipe):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))


class Share(IterDataPipe):
    def __init__(self, source):
        self.source, self.of, self.at, self.group = source, 1, 0, None

    def apply_sharding(self, of, at, sharding_group=None):
        self.of, self.at, self.group = of, at, sharding_group

    def __iter__(self):
        return (x for i, x in enumerate(self.source) if i % self.of == self.at)


@functional_datapipe("shuffle")
class Mixed(IterDataPipe):
    def __init__(self, *sources):
        self.sources, self.on, self.seed = {"all": list(sources)}, None, None

    def set_shuffle(self, on=True):
        self.on = on
        return self

    def set_seed(self, seed):
        self.seed = seed
        return self

    def __iter__(self):
        for source in self.sources["all"]:
            yield from source


def test_pipes_are_found_in_attributes_and_collections():
    a, b = Numbers(3), Share(Numbers(4))
    pipe = Mixed(a, b, a)
    graph = traverse_dps(pipe)
    assert list(graph) == [id(pipe)] and graph[id(pipe)][0] is pipe
    below = graph[id(pipe)][1]
    assert set(below) == {id(a), id(b)} and set(below[id(b)][1]) == {id(b.source)} and below[id(a)][1] == {}
    assert get_all_graph_pipes(graph) == [pipe, a, b, b.source]
    with pytest.raises(RuntimeError, match="Expected `IterDataPipe` or `MapDataPipe`"):
        traverse_dps([1])


def test_shares():
    pipe = Share(Numbers(7))
    assert apply_sharding(Mixed(pipe), 3, 1, SHARDING_PRIORITIES.MULTIPROCESSING) is not None
    assert list(pipe) == [1, 4] and pipe.group == SHARDING_PRIORITIES.MULTIPROCESSING == 3
    with pytest.raises(RuntimeError, match="Sharding twice"):
        apply_sharding(Share(Share(Numbers(7))), 2, 0)


def test_shuffling_and_seeds():
    pipe = Mixed(Mixed(Numbers(2)))
    assert apply_shuffle_settings(pipe, None) is pipe and pipe.on is None
    assert apply_shuffle_settings(pipe, False) is pipe and pipe.on is False and pipe.sources["all"][0].on is False
    with pytest.warns(UserWarning, match="does not contain a `Shuffler`"):
        made = apply_shuffle_settings(Numbers(2), True)
    assert type(made) is Mixed and made.on is True
    apply_random_seed(pipe, flambeau.Generator().manual_seed(3))
    drawn = flambeau.Generator().manual_seed(3)
    expected = [int(flambeau.empty((), dtype=flambeau.int64).random_(generator=drawn)) for _ in range(2)]
    assert [pipe.seed, pipe.sources["all"][0].seed] == expected

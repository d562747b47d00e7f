"""What is older than a moment, and what is newer."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from flambeau._core.compile.ages import Since


class Thing:
    pass


@pytest.fixture(autouse=True, params=[False, True], ids=["collected before", "young"])
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """No collection by itself; what lived before is in an old generation, or in the youngest."""
    gc.disable()
    if not request.param:
        gc.collect()
    yield
    gc.enable()


def old_ones() -> list[Any]:
    return [Thing(), [], {1: []}, lambda: None, Thing]


def test_what_lived_is_older_and_what_is_made_is_not() -> None:
    old = old_ones()
    since = Since()
    new = [Thing(), [], {1: []}, lambda: None]
    for _ in range(2):
        assert [since.made(x) for x in old] == [False] * 5
        assert [since.made(x) for x in new] == [True] * 4
    since.close()
    assert [since.made(x) for x in [*old, *new]] == [False] * 5 + [True] * 4


def test_what_the_collector_does_not_know_is_new() -> None:
    since = Since()
    assert since.made(10**30)
    since.close()


@pytest.mark.parametrize("generation", [0, 1, 2])
@pytest.mark.parametrize("asked", [False, True])
def test_an_explicit_collection_changes_nothing(generation: int, asked: bool) -> None:
    old = old_ones()
    since = Since()
    new = Thing()
    assert not asked or since.made(new)
    gc.collect(generation)
    later = Thing()
    assert [since.made(x) for x in old] == [False] * 5
    assert since.made(new)
    assert since.made(later)
    since.close()
    gc.collect()
    assert [since.made(x) for x in old] == [False] * 5
    assert since.made(new)
    assert since.made(later)


def test_places_of_what_lived_are_given_to_nobody_else() -> None:
    old = [Thing() for _ in range(100)]
    since = Since()
    assert not any(map(since.made, old))
    places = set(map(id, old))
    del old
    new = [Thing() for _ in range(100)]
    assert not places & set(map(id, new))
    assert all(map(since.made, new))
    since.close()


def test_nothing_is_left_behind() -> None:
    before = list(gc.callbacks)
    since = Since()
    assert len(gc.callbacks) == len(before) + 1
    since.close()
    assert gc.callbacks == before
    since.release()
    since.close()
    assert gc.callbacks == before


def test_a_program_may_empty_the_callbacks() -> None:
    before = list(gc.callbacks)
    since = Since()
    gc.callbacks.clear()
    since.close()
    assert not gc.callbacks
    gc.callbacks.extend(before)

"""Versions that say whose they are."""

from __future__ import annotations

import flambeau as torch
from flambeau._core.compile.versions import Marked, Version


def test_marked_versions_are_the_numbers_that_they_were() -> None:
    t = torch.ones(3)
    t.add_(1)
    marked = Marked()
    marked.mark(t.store)
    marked.mark(t.store)
    assert t._version == 1
    t.add_(1)
    found = t.store.version
    assert isinstance(found, Version)
    assert found == 2
    assert found.of is t.store
    marked.release()
    assert type(t.store.version) is int
    assert t._version == 2
    assert not marked.lost


def test_a_plain_number_in_the_place_of_one_is_noticed() -> None:
    t = torch.ones(3)
    marked = Marked()
    marked.mark(t.store)
    t.store.version = 5
    marked.release()
    assert marked.lost

"""How a reader walks what a writer made, held against NumPy's own strides."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from flambeau._core.compile.places import Walk, walk
from flambeau._core.kernels import expr as E


def strides(a: Any) -> tuple[int, ...]:
    return tuple([s // a.itemsize for s in a.strides])


def value(e: Any, at: tuple[int, ...]) -> int:
    """An expression of coordinates at a place."""
    if e.op == "coord":
        return at[e.value]
    if e.op == "const":
        return int(e.value)
    a, b = (value(x, at) for x in e.args)
    return a + b if e.op == "add" else a * b


def found(made: Any, read: Any) -> Walk | None:
    start = (read.__array_interface__["data"][0] - made.__array_interface__["data"][0]) // made.itemsize
    return walk(made.shape, strides(made), read.shape, strides(read), start)


_VIEWS = [lambda a: a, lambda a: a.T, lambda a: a[1:] if a.ndim and len(a) > 1 else a, lambda a: a[..., ::2] if a.ndim else a,
          lambda a: a.reshape(-1) if a.flags.c_contiguous else a,
          lambda a: a[0] if a.ndim > 1 else a, lambda a: a[None], lambda a: np.broadcast_to(a, (3, *a.shape)),
          lambda a: a.reshape(2, -1) if a.flags.c_contiguous and a.size % 2 == 0 else a]


@settings(deadline=None)
@given(st.sampled_from([(4,), (4, 6), (2, 3, 4), (1, 5), ()]), st.lists(st.integers(0, len(_VIEWS) - 1), max_size=3))
def test_a_view_is_walked_as_its_elements_lie(shape: tuple[int, ...], views: list[int]) -> None:
    made = np.arange(int(np.prod(shape))).reshape(shape)
    read: Any = made
    for k in views:
        read = _VIEWS[k](read)
    w = found(made, read)
    if w is None:
        return
    values = read.reshape(w.domain) if read.shape != w.domain else read
    seen = []
    for at in np.ndindex(*w.domain):
        there = tuple([value(w.writers_coord(k), at) for k in range(made.ndim)])
        assert made[there] == values[at]
        assert w.offset(strides(made)) + sum(i * s for i, s in zip(at, w.of_writer(strides(made)), strict=True)) == values[at]
        assert sum(i * s for i, s in zip(at, w.of_reader(strides(read)), strict=True)) + w.offset(strides(made)) == values[at]
        assert read[tuple([value(w.readers_coord(k), at) for k in range(read.ndim)])] == values[at]
        seen.append(there)
    assert w.once == (len(set(seen)) == made.size == len(seen))
    assert w.repeats == (len(set(seen)) < len(seen))


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a.T, lambda a: a[1:, ::2], lambda a: a.reshape(-1), lambda a: a.reshape(2, 12),
                                  lambda a: a[2], lambda a: np.broadcast_to(a[:, None], (4, 5, 6))])
def test_common_views_are_known(view: Any) -> None:
    made = np.arange(24).reshape(4, 6)
    assert found(made, view(made)) is not None


def test_an_axis_is_split_where_it_runs_over_several() -> None:
    w = walk((4, 6), (6, 1), (24,), (1,), 0)
    assert w is not None
    assert w.domain == (4, 6)
    assert w.split
    assert w.once
    assert E.show(w.readers_coord(0)).count("coord") == 2


def test_what_lies_elsewhere_is_not_walked() -> None:
    assert walk((4,), (1,), (5,), (1,), 0) is None  # more than was written
    assert walk((4,), (1,), (4,), (1,), 1) is None
    assert walk((4,), (1,), (2,), (-1,), 1) is None  # backwards
    assert walk((4,), (1,), (4,), (1,), -1) is None
    assert walk((4, 2), (4, 1), (8,), (1,), 0) is None  # between the rows
    assert walk((4,), (0,), (4,), (1,), 0) is None  # written one over another
    assert walk((4,), (2,), (4,), (1,), 0) is None
    assert walk((4, 6), (6, 1), (3, 8), (8, 1), 0) is None  # its rows end within the writer's

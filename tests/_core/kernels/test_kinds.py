"""Kinds by machine code are those of Python: two keys are of one kind there if and only if they are here, and have the same sizes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fl
from flambeau._core import layout
from flambeau._core.engine import general
from flambeau._core.runtime.device import CPU

ones = fl.ones(2, 2)  # machine code is loaded at the first launch
NUMBERS = st.sampled_from([-7, -1, 0, 1, 1, 2, 3, 4, 5, 6, 8, 9, 40, 1 << 40, 1 << 70, True, 2.5, "sum", None, fl.float32, CPU])
SIZES = st.sampled_from([0, 1, 2, 3, 5, 5, 8, 9, 40])


@st.composite
def layouts(draw: Any) -> Any:
    shape = draw(st.lists(SIZES, max_size=4))
    x = fl.empty(*shape, dtype=draw(st.sampled_from([fl.float32, fl.int64])))
    how = draw(st.sampled_from(["dense", "turned", "steps", "repeated"]))
    if how == "turned":
        x = x.permute(tuple(reversed(range(len(shape)))))
    elif how == "steps" and shape:
        x = x[..., ::2]
    elif how == "repeated":
        x = x.unsqueeze(0).expand(3, *shape)
    return x.meta


PARTS = st.one_of(layouts(), NUMBERS, st.lists(st.sampled_from([0, 1, 2, 5, 9, -1]), max_size=3).map(tuple), st.lists(SIZES, max_size=3).map(layout.Size),
                  st.tuples(layouts(), NUMBERS), st.tuples(st.tuples(SIZES), NUMBERS))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(PARTS, min_size=1, max_size=4).map(tuple), min_size=2, max_size=6), st.sampled_from([2, 5]), st.booleans(), st.data())
def test_machine_code_tells_kinds_apart_as_python_does(keys: list[tuple[Any, ...]], least: int, deep: bool, data: Any) -> None:
    here: dict[Any, Any] = {}
    for key in keys:
        how = least if deep else tuple([data.draw(st.sampled_from([0, least])) for _ in key])
        ours, python = general.kind_of(key, how), general.told(key, how)
        assert (ours is None) == (python is None), key
        if ours is not None and python is not None:
            assert ours[1] == python[1]
            here.setdefault((python[0], how if deep else None, len(key)), []).append(ours[0])
    for kinds in here.values():
        assert all(k == kinds[0] for k in kinds)
    apart = [kinds[0] for kinds in here.values()]
    assert all(a != b for i, a in enumerate(apart) for b in apart[:i] if len(a) and len(b) and deep)


def test_sizes_are_told_by_which_are_equal() -> None:
    def kind(*shapes: tuple[int, ...]) -> Any:
        return general.kind_of(tuple([fl.empty(*s).meta for s in shapes]), 5)
    assert kind((7, 9), (9, 3))[0] == kind((70, 30), (30, 4))[0] and kind((7, 9), (9, 3))[1] == (7, 9, 3)
    assert kind((7, 9), (9, 3))[0] != kind((7, 9), (7, 3))[0]
    assert kind((7, 1))[0] != kind((7, 2))[0] and kind((7, 0))[0] != kind((7, 1))[0]
    assert general.kind_of((fl.empty(3, device="meta").meta,), 5) is None
    assert general.kind_of((3, None), 5) is None


def test_a_shape_is_answered_some_times_and_then_left_to_its_own_plan() -> None:
    w = fl.arange(6.0)
    for n in range(30, 40):
        fl.empty(n, 6).copy_(w)
    add = fl.add.__operation__
    for n in range(40, 50):
        fl.add(w, fl.ones(n, 6))
    x = fl.ones(77, 6)
    key = next(k for k in add.env["fresh"] if k and k[1] is fl.ones(49, 6).meta)
    assert add.env["fresh"][key] == 1
    for k in range(general.TIMES + 2):
        assert fl.add(w, x)[3].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], k
    assert any(k[1] is x.meta for k in add.env["plans"] if k[0] is w.meta)


@pytest.mark.parametrize("bad", [(), (None,), ((), 5)])
def test_what_is_no_key_is_of_no_kind(bad: Any) -> None:
    assert general.kind_of(bad, 5) is None or bad

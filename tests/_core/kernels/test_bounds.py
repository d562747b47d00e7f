"""No launch goes beyond its operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau._core.kernels import bounds
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.programs import Map, Reduce
from flambeau._core.ops import launch

COPY = Map((E.input(0, torch.float32) + 1.0,), (torch.float32,))
SUM = Reduce((E.input(0, torch.float32),), ("sum",), (E.acc(0, torch.float32),), (torch.float32,))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-7, 7)), max_size=4))
def test_reach_is_where_the_elements_lie(axes: list[tuple[int, int]]) -> None:
    shape, strides = [n for n, _ in axes], [s for _, s in axes]
    offsets = sum(np.meshgrid(*[np.arange(n) * s for n, s in axes], indexing="ij"), np.zeros(shape, int))
    assert bounds.reach(shape, strides) == ((int(offsets.min()), int(offsets.max())) if offsets.size else (0, -1))


@pytest.mark.parametrize("strides,rooms,right", [
    (((1,), (1,)), (40, 40), True), (((1,), (1,)), (40, 39), False), (((1,), (1,)), (36, 40), False), (((1,), (0,)), (40, 4), True),
    (((1,), (2,)), (40, 76), True), (((1,), (2,)), (40, 75), False), (((1,), (-1,)), (40, 40), False), (((1,), (-1,)), (40, (36, 4)), True),
    (((1,), (-1,)), (40, (35, 40)), False)])
def test_a_launch_stays_within_its_rooms(strides: Any, rooms: Any, right: bool) -> None:
    if right:
        bounds.hold(COPY, (10,), strides, rooms)
    else:
        with pytest.raises(RuntimeError, match=r"map over \(10,\): operand [01] \(float32\) has .* bytes, and strides"):
            bounds.hold(COPY, (10,), strides, rooms)


def test_a_reduction_s_result_has_the_axes_that_are_kept() -> None:
    bounds.hold(SUM, (3, 1000), ((1,), (1000, 1)), (12, 12000))
    bounds.hold(SUM, (3, 0), ((1,), (1, 1)), (12, 0))
    with pytest.raises(RuntimeError, match="operand 0"):
        bounds.hold(SUM, (4, 1000), ((1,), (1000, 1)), (12, 16000))
    with pytest.raises(RuntimeError, match="a launch on 2 operands is given"):
        bounds.hold(SUM, (4,), ((),), (4, 16))


def test_every_device_refuses_an_operation_s_mistake_before_it_reads_or_writes(device: str) -> None:
    x, out = torch.ones(10, device=device), torch.zeros(10, device=device)
    for domain, strides in (((11,), None), ((10,), [(1,), (2,)]), ((10,), [(2,), (1,)])):
        with pytest.raises(RuntimeError, match="the operation did not check its arguments" if strides else ""):
            launch.run(COPY, domain, [out], [x], strides or [(1,), (1,)])
    assert out.tolist() == [0.0] * 10
    launch.run(COPY, (10,), [out], [x])
    assert out.tolist() == [2.0] * 10
    assert torch.arange(12, device=device).reshape(3, 4)[:, 1:].flip(0, 1).tolist() == [[11, 10, 9], [7, 6, 5], [3, 2, 1]]

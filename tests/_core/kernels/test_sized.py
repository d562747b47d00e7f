"""Arithmetic on sizes by machine code is Python's, or the call is left to Python."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import flambeau as fl
from flambeau._core import dtypes
from flambeau._core.engine.plans import CALLS, block_of
from flambeau._core.kernels.calls import NEW, Made
from flambeau._core.runtime.device import CPU
from flambeau._core.tensor import Sketch, meta
from flambeau._core.unknowns import Address, NoTrace, Trace

fl.ones(2)  # machine code is loaded at the first launch
OPERATIONS = ["+", "-", "*", "//", "%", "/", ">>", "&", "int"]
CONSTANTS = st.sampled_from([-5, -1, 1, 2, 3, 7, 64, 0.08, 2.5])
STEPS = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 5), st.integers(-3, 5), CONSTANTS), max_size=8)


def lines(steps: list[Any], sizes: list[Any]) -> Any:
    """The last number that these steps make of some, in Python's arithmetic or in a trace's."""
    known = list(sizes)
    for op, i, j, constant in steps:
        a, b = known[i % len(known)], known[j % len(known)] if j >= 0 else constant
        if op == "+":
            known.append(a + b)
        elif op == "-":
            known.append(a - b)
        elif op == "*":
            known.append(a * b)
        elif op == "/":
            known.append(a / b)
        elif op == "int":
            known.append(math.trunc(a))
        elif op == "//":
            known.append(a // b)
        elif op == "%":
            known.append(a % b)
        elif op == ">>":
            known.append(a >> 3)
        else:
            known.append(a & 0x7F0)
    return known[-1]


def of_example(steps: list[Any], sizes: tuple[int, ...]) -> Any:
    """A builtin that gives a tensor of as many elements as the last number says, from an example."""
    trace = Trace()
    numbers = [trace.given(f"s{i}", n, 2) for i, n in enumerate(sizes)]
    last = lines(steps, numbers)
    last = math.trunc(last)
    count = last if last > 1 else numbers[0] + 0 * numbers[0] + (1 if last > 0 else 2)
    m = meta((count,), None, dtypes.uint8, CPU)
    if type(m) is not Sketch:
        raise NoTrace("known")
    return CALLS.sized(trace, len(sizes), "", [block_of(m, True)], [], [Made(NEW, m, 0)], None, False)


def count_of(steps: list[Any], sizes: tuple[int, ...]) -> Any:
    last = math.trunc(lines(steps, list(sizes)))
    return last if last > 1 else sizes[0] + (1 if last > 0 else 2)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.tuples(*[st.integers(2, 300)] * 2), st.lists(st.tuples(*[st.one_of(st.integers(2, 300), st.integers(2, 1 << 62))] * 2), max_size=5))
@example([("-", 0, 1, 0), ("//", 2, -1, 7)], (5, 9), [(9, 5), (3, 8)])
@example([("-", 0, 1, 0), (">>", 2, -1, 7)], (5, 9), [(9, 5), (3, 80)])
def test_sizes_are_worked_out_as_python_does(steps: list[Any], sizes: tuple[int, int], others: list[tuple[int, int]]) -> None:
    try:
        run = of_example(steps, sizes)
    except (NoTrace, ZeroDivisionError, TypeError, OverflowError, ValueError):
        assume(False)
    for given_now in (sizes, *others):
        made = run(given_now)
        if made is NotImplemented:
            continue
        count = count_of(steps, given_now)
        assert made.numel() == count and made.stride() == (1,) and made.meta is meta((count,), None, dtypes.uint8, CPU)
        assert made.meta.nbytes == count and made.meta.contiguous and made.meta.plain and type(made.meta.shape) is fl.Size


def test_what_takes_another_turn_is_left_to_others() -> None:
    trace = Trace()
    n = trace.given("s0", 40, 2)
    assert n < 100 and n % 8 == 0
    m = meta((n, 3), None, dtypes.float32, CPU)
    run = CALLS.sized(trace, 1, "", [block_of(m, True)], [], [Made(NEW, m, 0)], None, False)
    assert run((48,)).shape == (48, 3) and run((8,)).stride() == (3, 1)
    for other in ((41,), (104,), (40, 40), (), (2.0,), (True,), (1 << 70,)):
        assert run(other) is NotImplemented, other
    assert run((40,), 1) is NotImplemented


def test_memory_beyond_the_lists_of_free_blocks_is_left_to_others() -> None:
    trace = Trace()
    m = meta((trace.given("s0", 40, 2) * 1000,), None, dtypes.float64, CPU)
    run = CALLS.sized(trace, 1, "", [block_of(m, True)], [], [Made(NEW, m, 0)], None, False)
    assert run((50,)).shape == (50_000,)
    assert run((1 << 20,)) is NotImplemented and run((1 << 60,)) is NotImplemented


def test_addresses_of_a_trace_tell_nothing() -> None:
    a = Address(1, 8)
    assert (a + 8 - a) == 8 and (a | Address(2)) & 0 == 0
    with pytest.raises(NoTrace):
        (a | Address(2)) & 15  # noqa: B018
    with pytest.raises(NoTrace):
        a - Address(2)  # noqa: B018

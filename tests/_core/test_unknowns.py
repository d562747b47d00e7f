"""Arithmetic and questions with unknown numbers hold for all numbers that meet the conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flambeau._core.unknowns import NoTrace, Trace, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = st.integers(2, 200)


def steps(x: Any, y: Any, choices: list[int]) -> Any:
    """Some number made of two, by turns that depend on them."""
    have = [x, y, 3, 64, 0.5]
    for c in choices:
        a, b = have[c % len(have)], have[c // 7 % len(have)]
        how = c // 61 % 9
        if how == 0:
            have.append(a + b)
        elif how == 1:
            have.append(a - b)
        elif how == 2:
            have.append(a * b)
        elif how == 3 and b != 0:
            have.append(a // b)
        elif how == 4 and b != 0:
            have.append(a % b)
        elif how == 5:
            have.append(a if a < b else b)
        elif how == 6:
            have.append(max(a, b, 1))
        elif how == 7:
            have.append(-(-a // 8))
        elif a == b or a >= 17:
            have.append(b - 1)
    return have[-1]


def function(trace: Trace, result: Any) -> Callable[[int, int], Any]:
    """What the trace says of other numbers."""
    needed = {result.name} if type(result) is Unknown else set()
    space: dict[str, Any] = {}
    lines = ["def f(s0, s1):", *trace.written(needed), f"return {result.name if type(result) is Unknown else repr(result)}"]
    exec("\n ".join(lines), space)
    return space["f"]  # type: ignore[no-any-return]


@settings(deadline=None, max_examples=300)
@given(SIZE, SIZE, SIZE, SIZE, st.lists(st.integers(0, 10_000), min_size=1, max_size=12))
def test_what_is_traced_holds_for_all_numbers_that_meet_the_conditions(x: int, y: int, u: int, v: int, choices: list[int]) -> None:
    trace = Trace()
    made = steps(trace.given("s0", x, 2), trace.given("s1", y, 2), choices)
    result = steps(x, y, choices)
    assume(abs(result) < 1e15)
    f = function(trace, made)
    assert f(x, y) == result
    other = f(u, v)
    assert other is NotImplemented or other == pytest.approx(steps(u, v, choices), rel=1e-12, abs=1e-9)


def test_whoever_needs_the_number_itself_has_it_as_a_condition() -> None:
    trace = Trace()
    x = trace.given("s0", 5, 2)
    assert list(range(x)) == [0, 1, 2, 3, 4] and f"{x}" == "5" and [7] * x == [7] * 5
    f = function(trace, 1)
    assert f(5, 0) == 1 and f(6, 0) is NotImplemented


def test_an_unknown_number_has_no_hash_and_too_long_a_trace_ends() -> None:
    trace = Trace()
    x = trace.given("s0", 5, 2)
    with pytest.raises(TypeError):
        hash(x)
    with pytest.raises(NoTrace):
        for k in range(1000):
            x = x * 2 + k


def test_products_are_equal_however_they_are_written() -> None:
    trace = Trace()
    x, y = trace.given("s0", 5, 2), trace.given("s1", 7, 2)
    assert x * y * 4 == 4 * y * x and (x * y * 4) // y == 4 * x and (x * y * 8) % (4 * x) == 0
    assert not trace.written({"s0", "s1"})

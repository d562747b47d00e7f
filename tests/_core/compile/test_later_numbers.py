"""Numbers that are others at each call: what is reckoned with them, and what looks at them."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest

from flambeau._core.compile.guards import Guards
from flambeau._core.compile.later_numbers import LATER, How, cleanse, compared, number, plain, reckoned, settled


def begun(value: Any, text: str = "n0", early: bool = True) -> tuple[Guards, Any]:
    g = Guards()
    how = How(g, value, text, early)
    how.begins = (how,)
    return g, number(how)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"])
@pytest.mark.parametrize("other", [3, -2.5, True, 0.1])
@pytest.mark.parametrize("value", [7, -3, 2.5, -0.0, math.inf])
def test_the_text_gives_what_python_gives(name: str, other: Any, value: Any) -> None:
    f = getattr(operator, name)
    for turned in (False, True):
        g, n = begun(value)
        pair = (other, n) if turned else (n, other)
        try:
            wanted = f(*map(plain, pair))
        except (ZeroDivisionError, OverflowError):
            continue
        how, raises = reckoned(name, f, *pair, g)
        if how is None:
            assert type(wanted) not in (int, float)
            continue
        found = eval(how.text, {"n0": value, **dict(zip([f"c{i}" for i in range(len(g.constants))], g.constants, strict=True))})  # noqa: S307
        assert repr(found) == repr(wanted) == repr(how.value)
        assert raises is (name == "pow" or (turned and name in ("truediv", "floordiv", "mod")))


@pytest.mark.parametrize("look", [bool, hash, repr, str, int, float, round, abs, math.floor, lambda n: n == 3, lambda n: n < 3, lambda n: f"{n:.2f}",
                                  lambda n: n + 1,
                                  lambda n: 2 - n, lambda n: -n, lambda n: divmod(n, 2)])
@pytest.mark.parametrize("value", [3, 2.5])
def test_a_look_makes_it_a_condition(look: Any, value: Any) -> None:
    g, n = begun(value)
    assert look(n) == look(value)
    assert g.lines() == [f"repr(n0) == {value!r:}".replace(repr(value), repr(repr(value)))]


def test_plain() -> None:
    _, n = begun(3)
    parts = [n, {"a": n}, (n, 1)]
    cleanse(parts)
    assert type(parts[0]) is int
    assert type(parts[2][0]) is int
    assert {type(p) for p in plain((n, (n, slice(n, None))))[1][:1]} == {int}
    assert plain((1, "a")) == (1, "a")
    untouched = (1, (2, "b"))
    assert plain(untouched) is untouched
    assert type(n) in LATER


def test_comparisons_that_are_known_before() -> None:
    g, n = begun(3)
    assert compared("lt", n, 5, g) == "(n0 < (5))"
    assert compared("lt", begun(2.0, "m0", False)[1], 5, g) is None
    assert g.lines() == []
    assert settled((n, 2)) == (3, 2)
    assert g.lines() == ["repr(n0) == '3'"]

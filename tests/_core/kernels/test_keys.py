"""Arguments' parts in keys by machine code, beside the same in Python."""

import os
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.engine import fronts
from flambeau._core.kernels import keys
from flambeau._core.layout import Size

pytestmark = pytest.mark.skipif(os.environ.get("FLAMBEAU_KERNELS", "llvm") != "llvm", reason="kernels by the interpreter: there is no machine code")

X = torch.ones(2)
SELF: list[Any] = []
SELF.append(SELF)
FLAT = [3, 2**70, True, False, 2.5, -0.25, 2.0, -3.0, 5e-324, 1e300, 2.0**51 - 0.5, 0.5 - 2.0**51, 2.0**51 + 0.5, 2.0**52,
        float("inf"), 0.0, -0.0, float("nan"), None, "word", torch.float32, X, X.device, int, range, ..., 1j, 0j, object(),
        torch.nn.Parameter(X)]
NESTED = [(), [], (1, 2), Size((1, 2)), [1, 2], [X, X], (X, X), (X, 3), (slice(None), 1), slice(1, None, 2), slice(2.5, X, None), (None, ..., [1, 2]),
          [[1], [2.0, "a"]], [True, 2.0, "s", (1, (2, [3]))], (1, object()), [0.0, -0.0], list(range(64)), list(range(65)), tuple(range(100)), [X] * 70, SELF,
          ((((((((((1,),),),),),),),),),)]
WAYS = {"constant": (fronts.constant, True), "metas": (fronts.metas, True), "exact": (fronts.exact, False)}


def answer(f: Any, v: Any) -> Any:
    try:
        return f(v)
    except (TypeError, RecursionError) as error:
        return type(error)


def same(a: Any, b: Any) -> bool:
    """Whether two parts are the same in a key, of the same classes down to the last."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a is b or (type(a) is type(b) and type(a) in (int, float, complex, str, tuple) and a == b)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("v", FLAT + NESTED, ids=lambda v: repr(type(v))[:20])
def test_parts_are_those_that_python_gives(way: str, v: Any) -> None:
    python, tells = WAYS[way]
    part = keys.part(torch.Tensor, Size, tuple(fronts.PLAIN_CONSTANTS), python, tells, 64)
    assert part is not python and same(answer(part, v), answer(python, v))


def test_unusual_arguments_are_asked_for() -> None:
    asked: list[Any] = []
    part = keys.part(torch.Tensor, Size, (str,), lambda v: asked.append(v) or "asked", True, 3)
    assert part((1, None, "a")) == (1, "asked", "a") and asked == [None]
    assert part([1, 2, 3, 4]) == "asked" and part([1, 2, 3]) == (list, 1, 2, 3) and asked[1:] == [[1, 2, 3, 4]]

    def fails(v: Any) -> Any:
        raise KeyError("it is raised")
    with pytest.raises(KeyError, match="it is raised"):
        keys.part(torch.Tensor, Size, (), fails, True, 64)([1, (2, None)])


def test_a_list_that_changes_meanwhile_is_taken_as_it_was() -> None:
    given: list[Any] = [1, None, "a" * 3, 4]
    part = keys.part(torch.Tensor, Size, (str,), lambda v: given.clear(), True, 64)
    assert part(given) == (list, 1, None, "aaa", 4) and given == []


def test_nothing_is_left_behind() -> None:
    import sys
    part, given = fronts._parts()["constant"], [X, (slice(None), 2.5), [3, None], True]
    things = (given, X.meta, list, slice, float, bool, None)
    before = [sys.getrefcount(t) for t in things[:-1]]
    for _ in range(1000):
        part(given)
    assert [sys.getrefcount(t) for t in things[:-1]] == before

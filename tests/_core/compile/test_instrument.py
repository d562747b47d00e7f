"""Functions with something in between do what they did, and what is not looked through is said."""

from __future__ import annotations

import operator
from types import FunctionType
from typing import Any

import pytest

from flambeau._core.compile.instrument import Beyond, global_names, global_stores, instrumented, is_instrumented

BY = 3
LEVEL = 0


class Through:
    """Does what Python does, and notes it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __getattr__(self, kind: str) -> Any:
        def call(*args: Any) -> Any:
            self.seen.append(kind)
            return self.do(kind, *args)
        return call

    def do(self, kind: str, *args: Any) -> Any:
        if kind == "attribute":
            return getattr(*args)
        if kind == "item":
            return args[0][args[1]]
        if kind in ("global_", "moved_global"):
            return globals()[args[0]]
        if kind == "store_global":
            return globals().__setitem__(*args)
        if kind == "slice":
            return slice(*args)
        if kind in ("binary", "unary"):
            return getattr(operator, args[0])(*args[1:])
        if kind == "compare" and args[0] in ("Is", "IsNot"):
            return (args[1] is args[2]) is (args[0] == "Is")
        if kind == "compare":
            return args[1] in args[2] if args[0] == "in" else args[1] not in args[2] if args[0] == "not in" else getattr(operator, args[0])(*args[1:])
        if kind == "place":
            return (*args, getattr(args[1], args[2]) if args[0] == "attribute" else args[1][args[2]])
        if kind == "store":
            return self.put(args[0], args[2], args[3], args[1])
        if kind == "augment":
            (where, o, key, before), name, value = args
            return self.put(where, o, key, getattr(operator, name)(before, value))
        if kind == "chain":
            a, *rest = args
            made: Any = True
            for name, later in zip(rest[::2], rest[1::2], strict=True):
                b = later()
                made = self.do("compare", name, a, b)
                if not made:
                    break
                a = b
            return made
        return args[0]  # callee, iterable, parts, mapping, tested, formatted, context, fresh

    @staticmethod
    def put(kind: str, o: Any, key: Any, value: Any) -> None:
        if kind == "attribute":
            setattr(o, key, value)
        else:
            o[key] = value


class Thing:
    def __init__(self) -> None:
        self.n, self.d = 1, {"a": [1, 2, 3]}

    def __enter__(self) -> Thing:
        return self

    def __exit__(self, *error: object) -> None:
        self.n += 100


def everything(thing: Any, *rest: Any, by: int = 2, **options: Any) -> Any:
    total: int = 0
    a, (b, *c) = 1, [2, 3, 4]
    for i, x in enumerate(rest):
        if x in (5, 6) or not x:
            continue
        total += x * BY - -i
    while total > 1000:
        total //= 2
    else:
        total = total + 1
    with thing as t:
        t.n *= 2
        t.d["a"][0] += 7
        t.d["b"] = {**t.d, "z": [*c, b]}
    try:
        _ = thing.missing
    except AttributeError as error:
        text = f"{total:>5} {type(error).__name__!r} {a}"
    inner = lambda y, z=by: y + z + total  # noqa: E731

    def more(n: int) -> Any:
        yield from (inner(k) for k in range(n) if k != 1)
        if n > 2:
            yield thing.n
    if total is None or not inner:
        raise ValueError(total)
    return text, list(more(3)), {k: [v] for k, v in options.items()}, {x + 1 for x in c}, [total, *c][::2], max(*c, a if by else b), thing.d


@pytest.mark.parametrize("args", [((), {}), ((1, 5, 0, 9), {"by": 7, "name": "x"}), ((3000,), {"by": 0})])
def test_it_does_what_it_did(args: Any) -> None:
    run = Through()
    first, second = Thing(), Thing()
    assert instrumented(everything, run)(first, *args[0], **args[1]) == everything(second, *args[0], **args[1])
    assert vars(first) == vars(second)
    assert {"attribute", "item", "callee", "iterable", "parts", "tested", "binary", "compare", "store", "augment", "fresh", "formatted",
            "context"} <= {*run.seen}


def test_closures_defaults_and_super_are_kept() -> None:
    class Base:
        def f(self) -> str:
            return "base"

    class Derived(Base):
        def f(self, times: int = 2, *, end: str = "!") -> str:
            return super().f() * times + end + str(outer)
    outer = [1]
    made = instrumented(Derived.f, Through())
    assert is_instrumented(made.__code__)
    assert not is_instrumented(Derived.f.__code__)
    assert made(Derived()) == Derived().f() == "basebase![1]"
    outer.append(2)
    assert made(Derived(), 1, end="?") == "base?[1, 2]"
    assert made.__code__.co_firstlineno == Derived.f.__code__.co_firstlineno


def test_globals_are_those_of_functions_inside_too() -> None:
    assert {"BY", "enumerate", "AttributeError", "range"} <= set(global_names(everything.__code__))


def _changes(by: int) -> Any:
    global BY, LEVEL
    BY = LEVEL = by
    LEVEL += 1
    x, LEVEL = LEVEL, LEVEL * 2

    def inside() -> Any:
        nonlocal x
        global BY
        x += BY
        BY -= 1
        return [BY + k for k in range(2)]
    return inside(), inside(), x, (lambda: LEVEL)()


def test_globals_and_names_around_are_bound() -> None:
    global BY
    before = BY
    through = Through()
    assert instrumented(_changes, through)(4) == ([3, 4], [2, 3], 12, 10)
    assert (BY, LEVEL) == (2, 10)
    assert _changes(4) == ([3, 4], [2, 3], 12, 10)
    assert through.seen.count("store_global") == 6
    assert global_stores(_changes.__code__) == {"BY", "LEVEL"}
    BY = before


def _compares(a: int) -> bool:
    return 1 < (b := a + 1) < 3 < b


def _between(a: int, b: Any) -> Any:
    seen: list[int] = []

    def noted(x: int) -> int:
        seen.append(x)
        return x
    found = 1 < a <= 3 != b, 0 < a is b, a if not 5 > a > b else b, a == a == b, 0 < noted(a) <= noted(2) < noted(a + 1), [0 < k + 1 < a for k in range(3)]
    return found, seen


def _binds() -> Any:
    t, u = Thing(), Thing()
    t.n, (x, u.d["b"]) = 5, (6, 7)
    y = t.d["c"] = u.n = [8]
    import operator as o
    from math import floor as down
    return t.n, x, u.d, t.d, u.n is y, down(2.5), o.add(1, 2)


def test_several_are_bound_at_once() -> None:
    through = Through()
    assert instrumented(_binds, through)() == _binds()
    assert through.seen.count("store") == 4
    assert through.seen.count("imported") == 2


@pytest.mark.parametrize(("a", "b"), [(0, 1), (2, 2), (3, 3), (4, 1), (2, 3), (1, True)])
def test_several_comparisons_at_once(a: int, b: Any) -> None:
    assert instrumented(_between, Through())(a, b) == _between(a, b)


def _imports() -> Any:
    import os.path
    return os.path


def _names() -> Any:
    global LEVEL
    for LEVEL in range(3):
        print(LEVEL)


def _arguments() -> Any:
    def inside() -> Any:
        global LEVEL
        LEVEL = 1
    return inside, LEVEL


def _sees() -> Any:
    return locals()


def test_what_is_not_looked_through() -> None:
    space: dict[str, Any] = {}
    exec("def made():\n  return 1", space)
    for f, why in ((_names, "global among other names"), (_arguments, "global elsewhere"), (_compares, "chain of comparisons"),
                   (_imports, "inner module"), (_sees, "locals"),
                   (space["made"], "text is not known")):
        assert isinstance(f, FunctionType)
        with pytest.raises(Beyond, match=why):
            instrumented(f, Through())


def test_two_on_one_line_are_not_told_apart() -> None:
    f, g = (lambda x: x + 1), (lambda x: x + 1)
    for h in (f, g):
        with pytest.raises(Beyond, match="text is not known"):
            instrumented(h, Through())

"""The graph over memory says what must stay before what, and whether a value is read any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau._core.compile.graph import Access, Graph, bits, may_alias, placed
from flambeau._core.compile.record import Launch


def graph(f: Callable[..., Any], *args: Any) -> Graph:
    captured = torch.capture(f, check=True)  # which keeps the record's memory
    for _ in range(2):
        captured(*args)
    (plan,) = captured.records
    made = Graph(plan)
    made.held = captured  # type: ignore[attr-defined]  # its memory
    return made


def names(g: Graph) -> list[str]:
    return [n.step.prepared.name for n in g.order if isinstance(n.step, Launch)]


def test_a_reader_stays_behind_its_writer_and_before_the_next() -> None:
    state = torch.zeros(4)

    def f(x: Any) -> Any:
        y = state * 2
        state.add_(x)
        return y, state.exp()
    g = graph(f, torch.ones(4))
    mul, add, exp = g.order
    assert names(g) == ["mul", "add", "exp"]
    assert add.before == mul.bit  # it writes what the first reads
    assert exp.before == mul.bit | add.bit
    assert g.between(mul, exp) is add
    assert g.between(mul, add) is None


def test_those_that_share_nothing_stand_in_any_order() -> None:
    g = graph(lambda: (torch.ones(4), torch.zeros(4)))
    assert [n.before for n in g.order] == [0, 0]


def test_an_argument_may_be_whatever_lives_on() -> None:
    state = torch.zeros(4)

    def f(x: Any, y: Any) -> Any:
        state.add_(1.0)
        return x * 2, y
    a, b = graph(f, torch.ones(4), torch.ones(4)).order
    assert b.before == a.bit
    assert may_alias(("a", 0), ("a", 1))
    assert may_alias(("k", 5), ("a", 1))
    assert not may_alias(("k", 5), ("k", 6))
    assert not may_alias(("a", 0), ("c", 7))
    assert not may_alias(("a", 0), ("p", 0))


def test_what_was_given_back_is_unread_and_what_lives_on_is_read() -> None:
    g = graph(lambda x: (x * 2).exp().sum(0), torch.ones(4, 4))
    mul, exp, total = g.order
    (w,) = mul.writes
    assert not g.unread(mul, w)
    assert g.unread(mul, w, besides=exp)
    (w,) = total.writes
    assert not g.unread(total, w)  # the result


def test_a_value_that_is_written_over_is_unread() -> None:
    state = torch.zeros(4)

    def f(x: Any) -> None:
        state.copy_(x)
        state.fill_(1.0)
    g = graph(f, torch.ones(4))
    first, second = g.order
    (w,) = first.writes
    assert g.unread(first, w)
    (w,) = second.writes
    assert not g.unread(second, w)


def test_a_value_is_unread_once_all_its_bytes_are_written_over() -> None:
    state = torch.zeros(8)

    def f() -> None:
        state.fill_(1.0)
        state[:4].fill_(2.0)
        state[3:].fill_(3.0)
    g = graph(f)
    assert [g.unread(n, w) for n in g.order for w in n.writes] == [True, False, False]


def test_a_check_stays_where_it_is() -> None:
    state = torch.zeros(4)

    def f(x: Any, i: Any) -> Any:
        state.add_(1.0)
        y = x[i]
        state.add_(1.0)
        return y
    g = graph(f, torch.ones(4), torch.tensor([0, 1]))
    check = next(n for n in g.order if n.barrier)
    first, last = g.order[0], g.order[-1]
    assert check.before & first.bit
    assert last.before & check.bit


def test_joining_keeps_what_must_be_before_and_behind() -> None:
    g = graph(lambda x: ((x * 2).exp().sum(), x + 1), torch.ones(4))
    mul, exp, total, add = g.order
    made = g.join(mul, exp, exp.step)
    assert g.order == [made, total, add]
    assert list(bits(made.bit)) == [mul.bit, exp.bit]
    assert total.before & made.bit == made.bit
    assert made.before == 0
    assert len(made.members) == 2


def test_bytes_of_a_loop() -> None:
    a = placed(("k", 0), 8, (2, 3), (6, 2), 4, True)
    assert (a.low, a.high) == (8, 8 + 4 * 11)
    assert a.meets(Access(("k", 0), 40, 41, False))
    assert not a.meets(Access(("k", 0), 52, 60, False))
    assert not a.covers(Access(("k", 0), 8, 12, False))  # there is room between its elements
    assert a.covers(placed(("k", 0), 8, (2, 3), (6, 2), 4, False))
    dense = placed(("k", 0), 0, (2, 3), (1, 2), 4, True)
    assert dense.covers(Access(("k", 0), 4, 20, False))
    assert not dense.covers(Access(("k", 0), 4, 28, False))
    assert not dense.covers(Access(("k", 1), 4, 20, False))

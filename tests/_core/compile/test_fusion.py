"""Which loops become one, which stay apart and why; the bits are those of the launches one by one (also `test_passes`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import flambeau as torch
from flambeau._core.compile.fusion import drop, fuse
from flambeau._core.compile.graph import Graph
from flambeau._core.compile.record import Launch
from flambeau.nn import functional as F


def fused(f: Callable[..., Any], *args: Any) -> Graph:
    captured = torch.capture(f)
    wanted = f(*[a.clone() for a in args])
    for _ in range(3):
        found = captured(*[a.clone() for a in args])
    for a, b in zip(*[x if isinstance(x, tuple) else (x,) for x in (wanted, found)], strict=True):
        assert torch.equal(a, b)
    held = torch.capture(f, check=True)  # which keeps the record's memory
    for _ in range(2):
        held(*[a.clone() for a in args])
    (plan,) = held.records
    g = Graph(plan)
    fuse(g)
    drop(g)
    g.held = held  # type: ignore[attr-defined]
    return g


def names(g: Graph) -> list[str]:
    return [n.step.prepared.name for n in g.order if isinstance(n.step, Launch)]


def test_maps_in_a_row_are_one_and_write_only_the_result() -> None:
    g = fused(lambda x: ((x * 2).exp() - 1).sqrt(), torch.rand(5, 7))
    assert names(g) == ["mul+exp+sub+sqrt"]
    assert g.order[0].step.prepared.outputs == 1


def test_what_is_given_is_written_too() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return y, y.exp()
    g = fused(f, torch.rand(5, 7))
    assert names(g) == ["mul+exp"]
    assert g.order[0].step.prepared.outputs == 2


@pytest.mark.parametrize("view", [lambda y: y.t(), lambda y: y[1:], lambda y: y.reshape(-1), lambda y: y[:, ::2], lambda y: y[:, None].expand(4, 3, 6),
                                  lambda y: y.reshape(2, 12)])
def test_through_views(view: Any) -> None:
    g = fused(lambda x: view(x + 1.0) * 2, torch.rand(4, 6))
    assert names(g) == ["add+mul"]


def test_a_costly_value_is_not_worked_out_again() -> None:
    g = fused(lambda x: (x.exp()[:, None] * torch.ones(4, 3, 6)), torch.rand(4, 6))
    assert "exp" in names(g)
    assert any("worked out again" in why for n in g.order for why in n.why)


def test_coordinates_go_through_views() -> None:
    def f(x: Any) -> Any:
        return torch.arange(24).view(4, 6).t() + x
    g = fused(f, torch.rand(6, 4))
    assert len(g.order) == 1


def test_writes_in_place_at_the_same_element() -> None:
    state = torch.rand(4, 4)

    def f() -> Any:
        state.add_(state * 2)
        state.mul_(0.5)
        return state.clone()
    captured = torch.capture(f, check=True)
    other = state.clone()
    for _ in range(4):
        found = captured()
        other.add_(other * 2)
        other.mul_(0.5)
        assert torch.equal(found, other)
    (plan,) = captured.records
    g = Graph(plan)
    fuse(g)
    assert len(names(g)) == 1


def test_a_write_over_what_others_still_read_is_not_fused() -> None:
    state = torch.rand(4, 4)

    def f(x: Any) -> Any:
        y = state.t() * 2
        state.copy_(y)
        return x + 1
    captured = torch.capture(f, check=True)
    other = state.clone()
    for _ in range(4):
        captured(torch.ones(2))
        other.copy_(other.t() * 2)
        assert torch.equal(state, other)
    (plan,) = captured.records
    g = Graph(plan)
    fuse(g)
    assert any("it writes where the other reads" in why for n in g.order for why in n.why)


@pytest.mark.parametrize("f", [lambda y: y[:4] + y[4:], lambda y: y[4:] * y[:4], lambda y: y[::2] - y[1::2], lambda y: y[:4].sum() + y[4:].sum(),
                               lambda y: torch.cat([y[4:], y[:4]]) * 2, lambda y: (y[:4] * y[4:]).softmax(0)])
def test_parts_of_a_map_that_are_read_apart(f: Any) -> None:
    work = lambda x: f((x * 2).exp())  # noqa: E731
    captured = torch.capture(work)
    for k in range(5):
        x = torch.arange(8.0) * (k - 2)
        assert torch.equal(captured(x), work(x))
    g = fused(lambda x: (x * 2)[:4] + (x * 3)[4:], torch.rand(8))
    assert len(names(g)) == 1  # one part of each is all that is read


def test_a_library_routine_between_keeps_two_apart() -> None:
    w = torch.rand(16, 16)

    def f(x: Any) -> Any:
        y = x.tanh()
        return (y @ w) + y
    g = fused(f, torch.rand(16, 16))
    assert any("must stay between" in why for n in g.order for why in n.why)


@pytest.mark.parametrize("d", [torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.complex64])
def test_values_are_rounded_as_they_were(d: Any) -> None:
    x = (torch.rand(300) * 50).to(d)
    g = fused(lambda x: (x * 3 + x) * x - x, x)
    assert len(g.order) == 1


def test_draws_are_fused() -> None:
    torch.manual_seed(0)
    f = lambda x: F.dropout(x * 2, 0.5) + 1  # noqa: E731
    captured = torch.capture(f)
    for seed in range(4):
        torch.manual_seed(seed)
        found = captured(torch.ones(50))
        torch.manual_seed(seed)
        assert torch.equal(found, f(torch.ones(50)))


def test_an_argument_that_is_the_state_is_seen() -> None:
    state = torch.rand(4)

    def f(x: Any) -> Any:
        y = x * 2
        state.add_(1.0)
        return y + x
    captured = torch.capture(f)
    for _ in range(3):
        captured(torch.ones(4))
    before = state.clone()
    assert torch.equal(captured(state), before * 2 + (before + 1.0))


def test_a_map_whose_values_are_summed_is_part_of_the_sum() -> None:
    assert names(fused(lambda x: (x * x).sum(0), torch.rand(40, 50))) == ["mul+sum"]
    assert names(fused(lambda x: (x.t() * 2).mean(), torch.rand(40, 50))) == ["mul+mean"]
    assert names(fused(lambda x: (x - 0.5).abs().argmax(), torch.rand(40, 50))) == ["sub+abs+argmax"]


def test_a_sum_whose_order_would_change_stays_apart() -> None:
    g = fused(lambda x: (((x * 3 + 1) * x - 2) * x * x * x + x * 0.1).sum(1), torch.rand(40, 5000))
    assert any("another order" in why for n in g.order for why in n.why)


def test_sums_that_others_read_too_stay_apart() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return y, y.sum(0)
    assert len(names(fused(f, torch.rand(4, 5)))) == 2


@pytest.mark.parametrize("rows", [lambda y: F.layer_norm(y, (32,)), lambda y: y.softmax(-1), lambda y: y.log_softmax(1)])
def test_rows_take_up_the_map_before_and_the_map_behind(rows: Any) -> None:
    assert len(names(fused(lambda x, y: rows(x + y), torch.rand(20, 32), torch.rand(20, 32)))) == 1
    assert len(names(fused(lambda x, y: rows(x) + y, torch.rand(20, 32), torch.rand(20, 32)))) == 1

    def residual(x: Any, y: Any) -> Any:
        z = x + y
        return z, rows(z) * 2
    assert len(names(fused(residual, torch.rand(20, 32), torch.rand(20, 32)))) == 1


def test_rows_that_a_map_reads_across_stay_apart() -> None:
    assert len(names(fused(lambda x: x.softmax(1).t() + 1, torch.rand(20, 32)))) == 2


def test_a_write_over_what_is_read_at_positions_stays_apart() -> None:
    table, i = torch.rand(8, 4), torch.tensor([7, 6, 5, 4])

    def f() -> Any:
        y = table[i] + table[4:]
        table[4:] = y * 2
    captured = torch.capture(f)
    other = table.clone()
    for _ in range(4):
        captured()
        other[4:] = (other[i] + other[4:]) * 2
        assert torch.equal(table, other)


_BEFORE: list[Callable[..., Any]] = [lambda x, y: x * y, lambda x, y: (x - y).square(), lambda x, y: x.to(torch.bfloat16), lambda x, y: x + y[:1],
                                     lambda x, y: x * 2 + y.sum(), lambda x, y: (x > y).float(), lambda x, y: x.t() * y.t()]
_SUMS: list[Callable[..., Any]] = [lambda z: z.sum(0), lambda z: z.sum(1), lambda z: z.float().mean(), lambda z: z.amax(1), lambda z: z.float().var(1),
                                   lambda z: z.float().softmax(1) * 2, lambda z: F.layer_norm(z.float(), z.shape[1:]) + 1, lambda z: z.argmin(0),
                                   lambda z: z.float().logsumexp(0), lambda z: z.float().norm(dim=1)]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([(3, 70001), (4000, 33), (257, 300), (1, 5000), (70000, 2), (5, 7)]), st.sampled_from(_BEFORE), st.sampled_from(_SUMS))
def test_sums_keep_their_bits(shape: tuple[int, int], before: Any, total: Any) -> None:
    g = torch.Generator().manual_seed(1)
    x, y = torch.rand(*shape, generator=g) - 0.5, torch.rand(*shape, generator=g)

    def f(x: Any, y: Any) -> Any:
        return total(before(x, y))
    captured = torch.capture(f)
    wanted = f(x, y)
    for _ in range(3):
        np.testing.assert_array_equal(captured(x, y).double().numpy(), wanted.double().numpy())  # NaN too, the variance of one number

"""Gradients of views of one tensor, put together in one piece of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau._core.runtime import dispatch


def values(*shape: int) -> Any:
    return torch.tensor(np.random.default_rng(0).standard_normal(shape), requires_grad=True)


def gradient(x: Any, *parts: tuple[Any, float]) -> Any:
    """What sum of factor * x[index] gives, by NumPy."""
    out = np.zeros(x.shape)
    for index, factor in parts:
        np.add.at(out, index, factor)
    return out


@pytest.mark.parametrize("parts", [
    [(0, 2.0), (1, 3.0), (2, -1.0)],  # all of it
    [(0, 2.0), (2, -1.0)],  # with a gap
    [(slice(0, 2), 2.0), (slice(1, 3), 3.0)],  # overlapping
    [(slice(None, None, 2), 2.0), (1, 5.0)],  # steps
    [((slice(None), 0), 1.0), ((slice(None), slice(1, 4)), 2.0)],
    [((0, 0), 1.0), (1, 2.0), (2, 2.0), ((0, slice(1, 4)), 4.0)],
    [((slice(None), None, slice(1, 3)), 2.0), (-1, 3.0), (Ellipsis, 1.0)],
])
@pytest.mark.parametrize("permuted", [False, True])
def test_parts(parts: Any, permuted: bool) -> None:
    x = values(4, 3) if permuted else values(3, 4)
    y = (x * 1).t() if permuted else x * 1
    sum((y[index] * factor).sum() for index, factor in parts).backward()
    expected = gradient(y, *parts)
    np.testing.assert_allclose(x.grad.numpy(), expected.T if permuted else expected)


def test_with_a_gradient_of_the_whole() -> None:
    x = values(4, 3)
    y = x * 1
    (y[0] * 2.0 + (y * 3.0)[1] + y[2]).sum().backward()
    y = x * 1
    (y.sum() + (y * y).sum() + y[3].sum()).backward()
    a = x.detach().numpy()
    once = np.array([[2.0], [3.0], [1.0], [0.0]]) * np.ones((4, 3))
    np.testing.assert_allclose(x.grad.numpy(), once + 1 + 2 * a + np.array([[0.0], [0.0], [0.0], [1.0]]))


def test_the_whole_is_not_written_to() -> None:
    x = values(4, 3)
    y = x * 1
    z = y.clone()
    g = torch.ones(4, 3, dtype=torch.float64)
    torch.autograd.backward([z, y[1]], [g, torch.ones(3, dtype=torch.float64)])
    assert (g == 1).all()
    np.testing.assert_allclose(x.grad.numpy(), [[1.0] * 3, [2.0] * 3, [1.0] * 3, [1.0] * 3])


def test_hooks_and_capture_see_the_sum() -> None:
    x = values(3, 2)
    y = x * 1
    y.retain_grad()
    y.register_hook(lambda g: g * 2)
    (y[0] + y[1] * 3).sum().backward(retain_graph=True)
    assert y.grad.tolist() == [[2.0, 2.0], [6.0, 6.0], [0.0, 0.0]]
    assert x.grad.tolist() == y.grad.tolist()
    g, = torch.autograd.grad((y[0] + y[1] * 3).sum(), y)
    assert g.tolist() == y.grad.tolist()


def test_chunks() -> None:
    x = values(2, 6)
    a, b, c = (x * 1).chunk(3, 1)
    (a * 2 + c * 3).sum().backward()
    assert x.grad.tolist() == [[2.0, 2.0, 0.0, 0.0, 3.0, 3.0]] * 2
    del b


@pytest.mark.parametrize("selected", [True, False])
def test_heads_are_written_where_they_belong(selected: bool) -> None:
    """q, k and v of one projection: three copies in all, no zeros, sums or other layouts."""
    x = torch.randn(2, 5, 24, requires_grad=True)
    y = (x * 2).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
    q, k, v = (y[0], y[1], y[2]) if selected else y.unbind(0)
    loss = (q * k * v).sum()
    seen: list[str] = []
    with dispatch.observe(lambda dev, stream, prepared, args: seen.append(prepared.name)):
        loss.backward()
    assert seen.count("put") == 3
    assert not {"add", "contiguous", "clone", "cat"} & set(seen)
    assert seen.count("fill") <= 1  # where the pass begins


def test_many_parts() -> None:
    x = values(100, 3)
    y = x * 1
    sum((y[i] * i).sum() for i in range(100)).backward()
    np.testing.assert_allclose(x.grad.numpy(), np.arange(100.0)[:, None] * np.ones(3))


_AXIS = st.one_of(st.integers(0, 2), st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(1, 2)).map(lambda t: slice(t[0], t[0] + t[1], t[2])))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.tuples(_AXIS, _AXIS, _AXIS), st.integers(-3, 3)), min_size=1, max_size=6), st.permutations(range(3)), st.booleans())
def test_any_parts_add_up(parts: list[tuple[Any, int]], order: list[int], whole: bool) -> None:
    x = values(3, 3, 3)
    y = (x * 1).permute(*order)
    total = sum((y[index] * float(factor)).sum() for index, factor in parts)
    (total + y.sum() if whole else total).backward()
    expected = gradient(y, *[(index, float(factor)) for index, factor in parts]) + whole
    np.testing.assert_allclose(x.grad.numpy(), expected.transpose(np.argsort(order)))

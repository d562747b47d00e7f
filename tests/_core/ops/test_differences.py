"""Differences, numerical derivatives and the trapezoidal rule against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import gradcheck


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_diff(n, dim):
    a = normal(5, 4)
    np.testing.assert_allclose(fb.diff(fb.tensor(a), n, dim).numpy(), np.diff(a, n, dim))
    if n:
        more = normal(*(2 if i == dim % 2 else s for i, s in enumerate((5, 4))), seed=1)
        np.testing.assert_allclose(fb.diff(fb.tensor(a), n, dim, prepend=fb.tensor(more), append=fb.tensor(more[:])).numpy(),
                                   np.diff(a, n, dim, more, more))


def test_differences_of_nothing_are_it_itself():
    for shape, dim in (((0,), 0), ((2, 0), 1)):
        x = fb.ones(*shape, requires_grad=True)
        assert fb.diff(x, 3, dim) is x
    assert fb.diff(fb.ones(0, 2, requires_grad=True), dim=1).grad_fn is not None
    assert fb.diff(fb.ones(2, 2), 5, 1).shape == (2, 0)


def test_diff_of_truths_and_failures():
    assert fb.diff(fb.tensor([True, False, False])).tolist() == [True, False]
    assert fb.diff(fb.tensor([3, 1, 8])).tolist() == [-2, 7]
    assert fb.diff(fb.zeros(0)).shape == (0,)
    with pytest.raises(RuntimeError, match="at least one-dimensional"):
        fb.diff(fb.tensor(1.0))
    with pytest.raises(RuntimeError, match="order must be non-negative but got -1"):
        fb.diff(fb.ones(3), -1)
    with pytest.raises(RuntimeError, match="same dimension as input"):
        fb.diff(fb.ones(3), prepend=fb.ones(2, 2))


@pytest.mark.parametrize("order", [1, 2])
def test_gradient(order):
    a = normal(5, 4)
    x, y = np.cumsum(abs(normal(5, seed=1))), np.cumsum(abs(normal(4, seed=2)))
    for got, want in ((fb.gradient(fb.tensor(a), edge_order=order), np.gradient(a, edge_order=order)),
                      (fb.gradient(fb.tensor(a), spacing=0.5, edge_order=order), np.gradient(a, 0.5, edge_order=order)),
                      (fb.gradient(fb.tensor(a), spacing=[2.0, 3.0], edge_order=order), np.gradient(a, 2.0, 3.0, edge_order=order)),
                      (fb.gradient(fb.tensor(a), spacing=[fb.tensor(x), fb.tensor(y)], edge_order=order), np.gradient(a, x, y, edge_order=order)),
                      (fb.gradient(fb.tensor(a), dim=1, edge_order=order), (np.gradient(a, axis=1, edge_order=order),))):
        assert isinstance(got, tuple) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g.numpy(), w, atol=1e-10)


def test_gradient_failures():
    with pytest.raises(RuntimeError, match="at least edge_order"):
        fb.gradient(fb.ones(1))
    with pytest.raises(RuntimeError, match="only supports edge_order=1 and edge_order=2"):
        fb.gradient(fb.ones(4), edge_order=3)
    with pytest.raises(RuntimeError, match="a list of length equal to 'self.dim"):
        fb.gradient(fb.ones(3, 3), spacing=[1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="appears multiple times"):
        fb.gradient(fb.ones(4, 4), dim=(0, 0))


def test_trapezoids():
    y, x = normal(3, 5), np.cumsum(abs(normal(5, seed=1)))
    np.testing.assert_allclose(fb.trapezoid(fb.tensor(y)).numpy(), np.trapezoid(y))
    np.testing.assert_allclose(fb.trapz(fb.tensor(y), dx=0.3, dim=0).numpy(), np.trapezoid(y, dx=0.3, axis=0))
    np.testing.assert_allclose(fb.trapezoid(fb.tensor(y), fb.tensor(x)).numpy(), np.trapezoid(y, x))
    np.testing.assert_allclose(fb.trapezoid(fb.tensor(y), fb.tensor(y * 2)).numpy(), np.trapezoid(y, y * 2))
    steps = np.diff(x) * (y[:, 1:] + y[:, :-1]) / 2
    np.testing.assert_allclose(fb.cumulative_trapezoid(fb.tensor(y), fb.tensor(x)).numpy(), np.cumsum(steps, 1))
    assert fb.trapezoid(fb.zeros(0)).item() == 0 and fb.cumulative_trapezoid(fb.zeros(0)).shape == (0,)
    assert fb.trapezoid(fb.ones(3, dtype=fb.int32)).item() == 2.0
    with pytest.raises(RuntimeError, match="one `x` value for each sample point"):
        fb.trapezoid(fb.ones(3), fb.ones(2))


def test_derivatives():
    a = fb.tensor(normal(4, 3), requires_grad=True)
    x = fb.tensor(np.cumsum(abs(normal(4, seed=3))), requires_grad=True)
    assert gradcheck(lambda t: fb.diff(t, 2, 0), (a,))
    assert gradcheck(lambda t: fb.gradient(t, edge_order=2), (a,))
    assert gradcheck(lambda t, s: fb.trapezoid(t, s, dim=0), (a, x.detach().requires_grad_()))


def test_truths_have_no_integral():
    truths, x = fb.tensor([True, False]), fb.tensor([0.0, 1.0])
    for call in (lambda: fb.trapezoid(truths), lambda: fb.cumulative_trapezoid(truths, dx=2), lambda: fb.trapezoid(x, truths), lambda: fb.trapezoid(truths, x)):
        with pytest.raises(RuntimeError, match="bool is not supported"):
            call()


def test_the_integral_of_no_samples_is_0_and_follows_from_nothing():
    made = fb.trapezoid(fb.ones(2, 0, requires_grad=True))
    assert made.tolist() == [0, 0] and not made.requires_grad
    assert fb.trapezoid(fb.zeros(0, 3, dtype=fb.int64), dim=0).dtype is fb.int64 and fb.trapezoid(fb.ones(1, requires_grad=True)).requires_grad

"""Weighted sums of few places along an axis, and their gradients, against matrices in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as torch
from flambeau._core.ops.resampling import MOST_TAPS, Taps, resized, turned_taps
from flambeau.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(23)


def pairs_of(size: int, out: int, taps: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(RNG.integers(0, size, out), RNG.standard_normal(out)) for _ in range(taps)]


def matrix(pairs: list[tuple[np.ndarray, np.ndarray]], size: int) -> np.ndarray:
    made = np.zeros((len(pairs[0][0]), size))
    for place, weight in pairs:
        for row, (at, w) in enumerate(zip(place, weight, strict=True)):
            if at >= 0:
                made[row, at] += w
    return made


def tensors(pairs: list[tuple[np.ndarray, np.ndarray]], some: bool) -> Taps:
    return Taps(tuple(torch.from_numpy(p) for p, _ in pairs), tuple(torch.from_numpy(w) for _, w in pairs), some)


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 4), st.booleans())
def test_turned_taps_are_the_transposed_matrix(size: int, out: int, taps: int, gaps: bool) -> None:
    pairs = pairs_of(size, out, taps)
    if gaps:
        pairs = [(np.where(w < 0, -1, p), w) for p, w in pairs]
    turned = turned_taps(pairs, size)
    np.testing.assert_allclose(matrix(turned, out), matrix(pairs, size).T, rtol=1e-12)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize(("size", "out", "taps"), [(5, 12, 2), (12, 5, 2), (2, 30, 4)])  # the last has more than a launch sums
def test_resized_and_its_gradients(dim: int, size: int, out: int, taps: int) -> None:
    pairs = pairs_of(size, out, taps)
    made = turned_taps(pairs, size)
    assert len(made) > MOST_TAPS or size != 2
    there, back, m = tensors(pairs, False), tensors(made, True), matrix(pairs, size)
    shape = [3, 3, 3]
    shape[dim] = size
    a = RNG.standard_normal(shape)
    x = torch.tensor(a, requires_grad=True)
    y = resized(x, dim, there, back)
    np.testing.assert_allclose(y.detach().numpy(), np.moveaxis(np.moveaxis(a, dim, -1) @ m.T, -1, dim), rtol=1e-12, atol=1e-12)
    g = RNG.standard_normal(y.shape)
    y.backward(torch.tensor(g))
    np.testing.assert_allclose(x.grad.numpy(), np.moveaxis(np.moveaxis(g, dim, -1) @ m, -1, dim), rtol=1e-12, atol=1e-12)
    assert gradcheck(lambda x: resized(x, dim, there, back), (x,)) and gradgradcheck(lambda x: resized(x, dim, there, back), (x,))


def test_gradients_that_are_infinite_stay_where_they_belong() -> None:
    x = torch.zeros(1, 1, 4, 4, requires_grad=True)
    y = torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
    g = np.ones(y.shape, np.float32)
    g[0, 0, 3, 3] = np.inf
    y.backward(torch.tensor(g))
    found = x.grad.numpy()[0, 0]
    middle = np.zeros((4, 4), bool)
    middle[1:3, 1:3] = True
    assert np.isinf(found[middle]).all() and np.isfinite(found[~middle]).all()

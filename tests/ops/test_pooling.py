"""The greatest of windows against a direct search."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb

F = fb.nn.functional


def direct(x, kernel, stride, padding, dilation, out):
    """Values and positions; the first of equals, NaN above all."""
    values, at = np.empty((*x.shape[:2], *out), x.dtype), np.empty((*x.shape[:2], *out), np.int64)
    for place in itertools.product(*map(range, values.shape)):
        best = None
        for tap in itertools.product(*map(range, kernel)):
            where = [o * s - p + t * d for o, s, p, t, d in zip(place[2:], stride, padding, tap, dilation, strict=True)]
            if all(0 <= w < i for w, i in zip(where, x.shape[2:], strict=True)):
                v = x[(*place[:2], *where)]
                if best is None or v > best or (v != v and best == best):
                    best, position = v, np.ravel_multi_index(where, x.shape[2:])
        values[place], at[place] = best, position
    return values, at


AXIS = st.tuples(st.integers(4, 11), st.integers(1, 3), st.integers(1, 3), st.integers(0, 1), st.integers(1, 2))


@given(st.integers(1, 2), st.lists(AXIS, min_size=1, max_size=3),
       st.sampled_from(["float32", "float64", "int32"]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_values_and_positions(n, axes, dtype, ceil):
    image, kernel, stride, padding, dilation = (tuple(c) for c in zip(*axes, strict=True))
    padding = tuple(min(p, k // 2) for p, k in zip(padding, kernel, strict=True))
    if any(i + 2 * p < d * (k - 1) + 1 for i, p, d, k in zip(image, padding, dilation, kernel, strict=True)):
        return
    rng = np.random.default_rng(sum(image))
    x = rng.integers(-9, 9, (n, 3, *image)).astype(dtype)
    if dtype != "int32":
        x.reshape(-1)[::7], x[0, 0] = np.nan, -np.inf
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(image) - 1]
    y, at = pool(fb.from_numpy(x), kernel, stride, padding, dilation, ceil, True)
    want, where = direct(x, kernel, stride, padding, dilation, tuple(y.shape[2:]))
    np.testing.assert_array_equal(y.numpy(), want)
    np.testing.assert_array_equal(at.numpy(), where)


@pytest.mark.parametrize("kernel", [2, 7])
def test_big_windows_and_small_ones_have_gradients(kernel):
    x = fb.randn(2, 3, 15, 14, dtype=fb.float64, requires_grad=True)
    y, at = F.max_pool2d(x[:, :, :, 1:], kernel, return_indices=True)
    g, = fb.autograd.grad(y.sum(), x)
    want = np.zeros((6, 15 * 13))
    np.add.at(want, (np.arange(6)[:, None], at.numpy().reshape(6, -1)), 1)
    np.testing.assert_array_equal(g.numpy()[..., 1:], want.reshape(2, 3, 15, 13))
    assert (g.numpy()[..., 0] == 0).all()

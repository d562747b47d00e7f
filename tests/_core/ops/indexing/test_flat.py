"""take and put."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 3, 5))


def test_take_put_and_take_along_dim():
    t, at = fb.tensor(A), np.array([[0, 59], [-1, 7]])
    np.testing.assert_array_equal(t.take(fb.tensor(at)).numpy(), A.take(at))
    want = A.copy()
    want.put([3, 8], [1.0, 2.0])
    np.testing.assert_array_equal(t.put(fb.tensor([3, 8]), fb.tensor([1.0, 2.0], dtype=fb.float64)).numpy(), want)
    u = fb.zeros(3)
    assert u.put_(fb.tensor([1, 1, 2]), fb.tensor([1.0, 2.0, 4.0]), accumulate=True).tolist() == [0, 3, 4]
    order = A.argsort(1)
    np.testing.assert_array_equal(fb.take_along_dim(t, fb.tensor(order), 1).numpy(), np.take_along_axis(A, order, 1))
    np.testing.assert_array_equal(fb.take_along_dim(t, fb.tensor([3, 1])).numpy(), A.ravel()[[3, 1]])


def test_undersized_and_mistyped_positions():
    with pytest.raises(IndexError, match="same number of elements"):
        fb.ones(3).put_(fb.tensor([0, 1]), fb.ones(1))
    with pytest.raises(IndexError, match="int64"):
        fb.index_fill(fb.ones(3), 0, fb.zeros(1, dtype=fb.int32), 1.0)
    for call in (lambda x, v: x.__setitem__(fb.tensor([0]), v), lambda x, v: x.index_put_((fb.tensor([0]),), v)):
        for d in (fb.float64, fb.int64):
            with pytest.raises(RuntimeError, match="dtypes match"):
                call(fb.zeros(3), fb.ones(1, dtype=d))
    x = fb.zeros(3)
    x[fb.tensor([True, False, True])] = fb.tensor(2, dtype=fb.int64)
    assert x.tolist() == [2, 0, 2]


def test_layouts_of_take_and_put():
    x = fb.arange(6.0).view(2, 3)
    assert fb.take(x, fb.tensor([[0, 1, 2], [1, 2, 3]]).t()).stride() == (2, 1)
    made = fb.put(x.t(), fb.tensor([1]), fb.ones(1))
    assert made.stride() == (1, 3) and made.tolist() == [[0.0, 1.0], [1.0, 4.0], [2.0, 5.0]]

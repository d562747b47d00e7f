"""Where elements are not 0."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

A = np.random.default_rng(0).normal(size=(4, 5, 6))


def test_nonzero_and_masks():
    t = fb.tensor(A > 0.5)
    np.testing.assert_array_equal(t.nonzero().numpy(), np.argwhere(A > 0.5))
    np.testing.assert_array_equal(fb.tensor(A).masked_select(t).numpy(), A[A > 0.5])
    for ours, want in zip(fb.where(t), np.where(A > 0.5), strict=True):
        np.testing.assert_array_equal(ours.numpy(), want)


def test_nonzero_as_a_tuple_has_no_out():
    with pytest.raises(RuntimeError, match="does not support the out kwarg"):
        fb.nonzero(fb.ones(2), as_tuple=True, out=fb.zeros(0, dtype=fb.int64))

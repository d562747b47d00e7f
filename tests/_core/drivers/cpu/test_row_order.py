"""Order by NumPy: keys sort as values do, routines over rows against NumPy's of values."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau._core import dtypes
from flambeau._core.drivers.cpu import row_order
from flambeau._core.kernels import interpret

REAL = [d for d in dtypes.ALL if not d.is_complex]


def stored(d, values):
    """Values as the type stores them, and back as float64 for comparison."""
    with np.errstate(all="ignore"):
        a = interpret.narrow_bfloat16(np.asarray(values, np.float32)) if d is dtypes.bfloat16 else np.asarray(values).astype(d.np)
    return a, interpret.load(a, d).astype(np.float64)


@st.composite
def rows(draw):
    d = draw(st.sampled_from(REAL))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    shape = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    v = rng.integers(-5 if d.is_signed else 0, 6, shape).astype(float)
    if d.kind == "f":
        for special in (np.nan, np.inf, -np.inf, -0.0):
            v[rng.random(shape) < 0.08] = special
    if d.kind == "b":
        v = v > 2
    return d, *stored(d, v)


def least_first(v):
    return np.argsort(v, -1, kind="stable")


@settings(max_examples=150, deadline=None)
@given(rows(), st.booleans())
def test_keys_order_as_values_nan_the_greatest(case, descending):
    d, a, v = case
    k = row_order.keys(a, d, descending)
    assert k.dtype.kind == "u" and k.dtype.itemsize == d.itemsize
    for x, kx in zip(v, k, strict=True):
        lesser = (x[:, None] < x[None]) | (~np.isnan(x[:, None]) & np.isnan(x[None]))
        equal = (x[:, None] == x[None]) | (np.isnan(x[:, None]) & np.isnan(x[None]))
        np.testing.assert_array_equal(kx[:, None] == kx[None], equal)
        np.testing.assert_array_equal(kx[:, None] > kx[None] if descending else kx[:, None] < kx[None], lesser)
    if not descending:
        np.testing.assert_array_equal(row_order.is_nan(k, d), np.isnan(v) if d.kind == "f" else np.zeros(v.shape, bool))


@settings(max_examples=150, deadline=None)
@given(rows(), st.booleans())
def test_order_and_middle(case, descending):
    d, a, v = case
    n = a.shape[-1]
    at = n - 1 - least_first(v[:, ::-1])[:, ::-1] if descending else least_first(v)
    np.testing.assert_array_equal(row_order.order(a, d, descending), at)
    ascending = np.sort(v, -1)
    for skip in (False, True):
        got = np.take_along_axis(v, row_order.middle(a, d, skip)[:, None], -1)[:, 0]
        nans = np.isnan(v).sum(-1)
        place = np.where(nans == n, 0, (n - nans - 1) // 2) if skip else np.where(nans > 0, n - 1, (n - 1) // 2)
        np.testing.assert_array_equal(got, np.take_along_axis(ascending, place[:, None], -1)[:, 0])


@settings(max_examples=80, deadline=None)
@given(rows())
def test_the_commonest_is_the_smallest_of_the_most_frequent(case):
    d, a, v = case
    if np.isnan(v).any():
        return
    got = np.take_along_axis(v, row_order.commonest(a, d).reshape(-1, 1), -1)[:, 0]
    for x, g in zip(v, got, strict=True):
        values, counts = np.unique(x, return_counts=True)
        assert g == values[counts.argmax()]

"""Ranges, spaced numbers and the identity beside NumPy."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb


@settings(max_examples=150, deadline=None)
@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(-5, 5).filter(bool), st.sampled_from([None, fb.int32, fb.float32, fb.float64, fb.int8]))
def test_whole_ranges_are_numpys(a, b, step, d):
    if (b - a) * step < 0:
        with pytest.raises(RuntimeError, match="inconsistent with step sign"):
            fb.arange(a, b, step)
        return
    got = fb.arange(a, b, step, dtype=d)
    assert got.dtype is (d or fb.int64)
    np.testing.assert_array_equal(got.numpy(), np.arange(a, b, step))


@settings(max_examples=80, deadline=None)
@given(st.integers(-40, 40), st.integers(0, 60), st.sampled_from([0.25, 0.1, 0.3, 1.5]))
def test_fractional_ranges(start, count, step):
    a = start * 0.5
    want = np.arange(a, a + count * step, step)
    got = fb.arange(a, a + count * step, step, dtype=fb.float64)
    assert got.shape[0] == math.ceil((a + count * step - a) / step)
    np.testing.assert_allclose(got.numpy()[:len(want)], want[:got.shape[0]], rtol=1e-12, atol=1e-12)
    assert fb.arange(a, a + 2.0).dtype is fb.float32


@settings(max_examples=80, deadline=None)
@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(0, 30), st.sampled_from([fb.float32, fb.float64, fb.float16]))
def test_spaced_numbers_are_numpys_with_exact_ends(a, b, n, d):
    got = fb.linspace(a, b, n, dtype=d)
    rtol, atol = {fb.float16: (1e-3, 1e-2), fb.float32: (1e-6, 1e-6), fb.float64: (1e-13, 1e-13)}[d]
    np.testing.assert_allclose(got.numpy(), np.linspace(a, b, n), rtol, atol)
    if n > 1:
        assert got[0].item() == a and got[-1].item() == b
    if abs(a) < 3 and abs(b) < 3:
        np.testing.assert_allclose(fb.logspace(a, b, n, dtype=fb.float64).numpy(), np.logspace(a, b, n), rtol=1e-10)


def test_odd_ranges():
    assert fb.arange(0).shape == (0,) and fb.arange(3.0).tolist() == [0, 1, 2] and fb.arange(5, 1, -2).tolist() == [5, 3]
    assert fb.linspace(3, 9, 1).tolist() == [3] and fb.linspace(0, 1, 5, dtype=fb.int64).tolist() == [0, 0, 0, 0, 1]
    assert fb.linspace(0, 1j, 3).dtype is fb.complex64
    for call in (lambda: fb.arange(0, 1, 0), lambda: fb.arange(0.0, float("inf")), lambda: fb.linspace(0, 1, -1), lambda: fb.eye(-1)):
        with pytest.raises(RuntimeError):
            call()
    big = fb.arange(2 ** 53, 2 ** 53 + 3)
    assert big.tolist() == [2 ** 53, 2 ** 53 + 1, 2 ** 53 + 2]
    for n, m in ((3, None), (2, 4), (4, 2), (0, 3)):
        np.testing.assert_array_equal(fb.eye(n, m).numpy() if m is not None else fb.eye(n).numpy(), np.eye(n, m))
    assert fb.eye(2, dtype=fb.complex64)[1, 1].item() == 1


@pytest.mark.parametrize(("f", "want"), [(lambda out: fb.arange(6, out=out), np.arange(6)), (lambda out: fb.range(0, 5, out=out), np.arange(6)),
                                         (lambda out: fb.linspace(0, 5, 6, out=out), np.arange(6)),
                                         (lambda out: fb.logspace(0, 5, 6, base=2.0, out=out), 2 ** np.arange(6))])
@pytest.mark.parametrize("d", [fb.float32, fb.float64, fb.int64, fb.float16, fb.complex64], ids=str)
def test_ranges_fill_what_they_are_given_however_it_lies(f, want, d, device):
    if d.is_complex and f.__code__.co_names[1] in ("arange", "range"):
        with pytest.raises(NotImplementedError, match="ComplexFloat"):
            f(fb.empty(6, dtype=d, device=device))
        return
    memory = fb.full((12,), -1, dtype=d, device=device)
    made = f(memory[::2])
    assert made.tolist() == want.tolist() and memory[::2].tolist() == want.tolist() and memory[1::2].tolist() == [-1] * 6
    turned = fb.zeros(2, 3, dtype=d, device=device).t()
    assert f(turned) is turned and turned.shape == (3, 2) and turned.stride() == (1, 3) and turned.reshape(-1).tolist() == want.tolist()
    assert f(fb.empty(0, dtype=d, device=device)).tolist() == want.tolist()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert f(fb.empty(4, dtype=d, device=device)[::2]).shape == (6,)
    assert [("resized" in str(w.message)) for w in told if "deprecated" not in str(w.message)] == [True] * (f.__code__.co_names[1] == "arange")  # as PyTorch


@pytest.mark.parametrize("make", [
    lambda: fb.linspace(0, 300, 4, dtype=fb.uint8), lambda: fb.linspace(300, 0, 1, dtype=fb.int8), lambda: fb.linspace(0, 1e300, 3),
    lambda: fb.linspace(0, 1e6, 3, dtype=fb.float16), lambda: fb.logspace(0, 300, 4, dtype=fb.int8), lambda: fb.logspace(0, 1e300, 3),
    lambda: fb.arange(0, 3, 1e300, dtype=fb.int32), lambda: fb.arange(0, 1e19, 5e18, dtype=fb.int64),
    lambda: fb.arange(0, 1.0, 1e300, out=fb.ones(4, dtype=fb.int64)), lambda: fb.range(0, 3, 1e300, dtype=fb.uint8)])
@pytest.mark.filterwarnings("ignore:torch.range")
def test_bounds_that_the_type_does_not_hold_are_refused(make):
    with pytest.raises(RuntimeError, match="cannot be converted to type .* without overflow"):
        make()


def test_bounds_that_nobody_reads_are_not_held_against_the_type():
    assert fb.linspace(0, 1e10, 1, dtype=fb.int8).tolist() == [0] and fb.linspace(1e10, 1e10, 0, dtype=fb.int8).tolist() == []
    assert fb.linspace(-3, 3, 4, dtype=fb.uint8).tolist() == [253, 169, 86, 3]  # counted from what -3 is there
    assert fb.arange(0, 300, 100, dtype=fb.int8).tolist() == [0, 100, -56]


def test_arange_says_that_it_resizes_what_it_fills():
    out = fb.zeros(1, 49)
    with pytest.warns(UserWarning, match=r"shape \[1, 49\] is 49 .* computed number of elements 50.*The out tensor will be resized"):
        assert fb.arange(0, 50, out=out) is out
    assert out.tolist() == list(range(50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fb.arange(0, 50, out=fb.zeros(0)), fb.arange(0, 50, out=fb.zeros(5, 10)), fb.linspace(0, 1, 5, out=fb.zeros(3))

"""Distinct elements, occurrences and histograms against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flambeau as fb

TYPES = [fb.float32, fb.float64, fb.int64, fb.int32, fb.uint8, fb.bool, fb.float16]


@settings(max_examples=100, deadline=None)
@given(hnp.arrays(np.int64, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6), elements=st.integers(0, 4)), st.sampled_from(TYPES))
def test_unique_is_numpys(a, d):
    a = a.astype(d.np)
    values, inverse, counts = fb.unique(fb.tensor(a), return_inverse=True, return_counts=True)
    want, where, often = np.unique(a, return_inverse=True, return_counts=True)
    assert values.dtype is d and inverse.dtype is counts.dtype is fb.int64 and inverse.shape == a.shape
    np.testing.assert_array_equal(values.numpy(), want)
    np.testing.assert_array_equal(inverse.numpy(), where.reshape(a.shape))
    np.testing.assert_array_equal(counts.numpy(), often)
    np.testing.assert_array_equal(fb.tensor(a).permute(*range(a.ndim)[::-1]).unique().numpy(), want)


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 2)), elements=st.integers(-1, 1)), st.integers(-3, 2))
def test_unique_slices_are_numpys(a, axis):
    values, inverse, counts = fb.unique(fb.tensor(a), dim=axis, return_inverse=True, return_counts=True)
    want, where, often = np.unique(a, axis=axis, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(values.numpy(), want)
    np.testing.assert_array_equal(inverse.numpy(), where.reshape(-1))
    np.testing.assert_array_equal(counts.numpy(), often)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=30))
def test_runs(values):
    a = np.array(values, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], a[1:] != a[:-1]])) if len(a) else np.zeros(0, int)
    got, inverse, counts = fb.unique_consecutive(fb.tensor(a), return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(got.numpy(), a[starts])
    np.testing.assert_array_equal(counts.numpy(), np.diff(np.append(starts, len(a))))
    np.testing.assert_array_equal(got[inverse].numpy() if len(a) else a, a)


def test_every_nan_is_distinct_and_both_zeros_are_one():
    nan = float("nan")
    got, counts = fb.tensor([nan, 1.0, nan, -0.0, 0.0]).unique(return_counts=True)
    assert got.tolist()[:2] == [0, 1] and got.isnan().tolist() == [False, False, True, True] and counts.tolist() == [2, 1, 1, 1]
    assert fb.tensor([]).unique().shape == (0,) and fb.tensor(4).unique().tolist() == [4]
    with pytest.raises(RuntimeError, match="unique"):
        fb.zeros(2, 0, 0).unique(dim=0)
    x = fb.ones(3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="the derivative for 'unique' is not implemented"):
        x.unique().sum().backward()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=40), st.integers(0, 15), st.sampled_from([fb.int64, fb.uint8, fb.int16]))
def test_bincount_is_numpys(values, least, d):
    a = np.array(values, d.np)
    w = np.arange(len(a)) * 0.25
    np.testing.assert_array_equal(fb.bincount(fb.tensor(a), minlength=least).numpy(), np.bincount(a, minlength=least))
    got = fb.bincount(fb.tensor(a), fb.tensor(w), least)
    assert got.dtype is fb.float64 and fb.bincount(fb.tensor(a), fb.tensor(w).float()).dtype is fb.float32
    np.testing.assert_allclose(got.numpy(), np.bincount(a, w, least))


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float64, st.integers(1, 50), elements=st.floats(-10, 10)), st.integers(1, 12), st.sampled_from([(0, 0), (-5, 5), (2, 2.5)]))
def test_histograms_are_numpys(a, bins, limits):
    span = (a.min(), a.max()) if limits == (0, 0) else limits
    if span[0] == span[1]:
        span = (span[0] - 1, span[1] + 1)
    edges = np.linspace(*span, bins + 1)
    if np.isclose(a[:, None], edges, rtol=1e-9, atol=1e-9).any(1).sum() > 2 or span[1] - span[0] < 1e-6:
        return  # an element on an edge may fall to either side by rounding
    got = fb.histc(fb.tensor(a), bins, *limits)
    assert got.dtype is fb.float64 and got.sum().item() == ((a >= span[0]) & (a <= span[1])).sum()
    want = np.histogram(a, bins, span)[0]
    assert np.abs(got.numpy() - want).sum() <= 4  # the elements on edges
    counts, at = fb.histogram(fb.tensor(a), bins, range=(float(span[0]), float(span[1])))
    np.testing.assert_allclose(at.numpy(), edges)
    assert np.abs(counts.numpy() - want).sum() <= 4


def test_histogram_edges_weights_density_and_several_axes():
    a, w = np.array([0.1, 0.5, 1.5, 2.0, 2.5, -1.0]), np.array([1.0, 2, 3, 4, 5, 6])
    edges = np.array([0.0, 1.0, 1.75, 2.0])
    for density in (False, True):
        for weight in (None, w):
            got = fb.histogram(fb.tensor(a), fb.tensor(edges), weight=None if weight is None else fb.tensor(weight), density=density)
            np.testing.assert_allclose(got.hist.numpy(), np.histogram(a, edges, weights=weight, density=density)[0])
    points = np.random.default_rng(0).normal(size=(200, 2))
    hist, at = fb.histogramdd(fb.tensor(points), [4, 3])
    want, want_at = np.histogramdd(points, [4, 3])
    np.testing.assert_array_equal(hist.numpy(), want)
    for x, y in zip(at, want_at, strict=True):
        np.testing.assert_allclose(x.numpy(), y)
    assert fb.histc(fb.tensor([1.0, 2.0, 1.0]), 4, 0, 3).tolist() == [0, 2, 1, 0]
    assert fb.histc(fb.tensor([1.0, float("nan"), 9.0]), 2, 0, 2).tolist() == [0, 1]


@pytest.mark.parametrize("call,message", [
    (lambda: fb.bincount(fb.tensor([-1])), "non-negative"), (lambda: fb.bincount(fb.zeros(2)), "integer"),
    (lambda: fb.bincount(fb.zeros(2, 2, dtype=fb.int64)), "1-d"),
    (lambda: fb.bincount(fb.tensor([1, 2]), fb.ones(3)), "same length"), (lambda: fb.bincount(fb.tensor([1]), minlength=-1), "minlength"),
    (lambda: fb.histc(fb.zeros(2), 0), "bins must be > 0"), (lambda: fb.histc(fb.zeros(2), 3, 2, 1), "max must be larger"),
    (lambda: fb.histc(fb.zeros(2, dtype=fb.int64)), "floating"), (lambda: fb.histogram(fb.zeros(2), 2, weight=fb.ones(3)), "same shape"),
    (lambda: fb.histogramdd(fb.zeros(3), 2), "at least 2 dimensions")])
def test_errors(call, message):
    with pytest.raises((RuntimeError, NotImplementedError), match=message):
        call()


def test_on_every_device(device):
    a = np.random.default_rng(0).integers(0, 9, 100)
    t = fb.tensor(a).to(device)
    values, counts = t.unique(return_counts=True)
    assert str(values.device) == str(counts.device) == device
    np.testing.assert_array_equal(counts.cpu().numpy(), np.bincount(a, minlength=9)[np.unique(a)])
    np.testing.assert_array_equal(t.bincount().cpu().numpy(), np.bincount(a))
    np.testing.assert_array_equal(t.double().histc(3, 0, 9).cpu().numpy(), np.histogram(a, 3, (0, 9))[0])


@pytest.mark.parametrize("limits", [(0, 0), (-3, 4), (0, 7), (1.9, 6.9), (5, 5)])
def test_histograms_of_integers_on_a_gpu_are_by_integer_division(device, limits):
    a = np.random.default_rng(1).integers(-5, 9, 60)
    low, high = (a.min(), a.max()) if limits[0] == limits[1] else map(int, limits)
    inside = a[(a >= low) & (a <= high)]
    for d in (fb.int32, fb.int64, fb.int8):
        t = fb.tensor(a, dtype=d, device=device)
        if t.is_cuda:
            got = t.histc(5, *limits)
            want = np.bincount(np.minimum((inside - low) * 5 // (high - low), 4), minlength=5)
            assert got.dtype is d and got.tolist() == want.tolist()
        else:
            with pytest.raises(NotImplementedError, match="histogram_cpu"):
                t.histc(5, *limits)
    if device != "cpu":
        assert fb.tensor([3, 3], device=device).histc(3).tolist() == [0, 2, 0]
        assert fb.zeros(0, dtype=fb.int64, device=device).histc(3).tolist() == [0, 0, 0]
        with pytest.raises(NotImplementedError, match='"histc" not implemented'):
            fb.ones(2, dtype=fb.bool, device=device).histc(3)


@pytest.mark.parametrize("d", [fb.float32, fb.float64], ids=str)
def test_histograms_of_points_outside_weights_and_devices(d, device):
    rng = np.random.default_rng(8)
    points = rng.standard_normal((500, 2)).astype(d.np)
    points[:3] = np.array([[np.nan], [7.0], [-7.0]])
    points[3:6] = 1.0  # the last edge belongs to the last interval
    w = rng.random(500).astype(d.np)
    edges = [np.array([-1.0, -0.5, 0.25, 1.0], d.np), np.linspace(-1, 1, 6).astype(d.np)]
    seen = ~np.isnan(points).any(1)
    for weight in (None, w):
        for density in (False, True):
            given = None if weight is None else fb.tensor(weight).to(device)
            got = fb.histogramdd(fb.tensor(points).to(device), [fb.tensor(e).to(device) for e in edges], weight=given, density=density)
            want = np.histogramdd(points[seen], edges, weights=None if weight is None else weight[seen], density=density)[0]
            np.testing.assert_allclose(got[0].cpu().numpy(), want.astype(d.np), rtol=1e-6)
            assert got[0].dtype is d and got[0].device.type == fb.tensor(0.0).to(device).device.type
    x = fb.tensor(points[:, 0]).to(device)
    hist, at = fb.histogram(x, 4, range=(-1.0, 1.0), weight=fb.tensor(w).to(device))
    want, want_at = np.histogram(points[seen, 0], 4, (-1.0, 1.0), weights=w[seen])
    np.testing.assert_allclose(hist.cpu().numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(at.cpu().numpy(), want_at, rtol=1e-6)
    with pytest.raises(RuntimeError, match="not finite"):
        fb.histogram(x, 3)
    assert fb.histogram(fb.zeros(0, dtype=d), 2).hist.tolist() == [0, 0]


def test_unique_tells_nan_apart_and_keeps_the_first_zero():
    a = np.array([3.0, np.nan, -0.0, 0.0, np.nan, 3.0, -1.0], np.float32)
    made, inverse, counts = fb.unique(fb.tensor(a), return_inverse=True, return_counts=True)
    assert str(made.tolist()) == "[-1.0, -0.0, 3.0, nan, nan]"
    assert inverse.tolist() == [2, 3, 1, 1, 4, 2, 0] and counts.tolist() == [1, 2, 2, 1, 1]
    assert fb.unique_consecutive(fb.tensor([[1, 1, 2], [2, 1, 1]]), return_counts=True)[1].tolist() == [2, 2, 2]


def test_a_number_has_no_slices_to_tell_apart():
    for f in (fb.unique, fb.unique_consecutive):
        with pytest.raises(IndexError, match="no dimensions"):
            f(fb.tensor(3.0), dim=0)
        assert f(fb.tensor(3.0)).tolist() == [3.0]


def test_histogram_refuses_edges_that_are_none():
    x = fb.arange(4.0)
    for bins, message in ((fb.ones(2, dtype=fb.float64), "same dtype, but got input with dtype float32 and bins with dtype float64"),
                          (fb.tensor(1.0), "one dimension, but got 0"), (fb.ones(1, 2), "one dimension, but got 2"), (fb.ones(0), "at least 1 element")):
        with pytest.raises(RuntimeError, match=message):
            fb.histogram(x, bins)
    with pytest.raises(TypeError, match="invalid combination"):
        fb.histogram(x, fb.ones(2), range=(0, 1))
    with pytest.raises(RuntimeError, match=r"weight\(float64\)"):
        fb.histogram(x, 2, weight=x.double())
    assert len(fb.histogram(x).hist) == 100


def test_complex_numbers_have_no_order_whatever_the_shape():
    for how in ({"dim": 0}, {}):
        with pytest.raises(NotImplementedError, match="complex64"):
            fb.unique(fb.zeros((), dtype=fb.complex64), **how)


def test_a_pass_into_counts_raises_and_leaves_no_gradient_out():
    x = fb.tensor([0.1, 0.4, 0.9, 0.5], requires_grad=True)
    plain, edges = x.detach(), fb.tensor([0.0, 0.5, 1.0], requires_grad=True)
    for name, call in (("histogram", lambda: fb.histogram(x, 3)), ("histogram", lambda: fb.histogram(plain, 3, weight=x)),
                       ("histogram", lambda: fb.histogram(plain, edges)), ("histogramdd", lambda: fb.histogramdd(x.reshape(2, 2), [2, 2])),
                       ("bincount", lambda: (fb.bincount(fb.tensor([0, 1, 1, 2]), x),))):
        for _ in range(6):  # learned too
            for part in call()[:1]:
                with pytest.raises(RuntimeError, match=f"derivative for aten::{name} is not implemented"):
                    (part.sum() + x.sum()).backward()
    assert not fb.histogram(plain, 3).hist.requires_grad and not fb.histc(x).requires_grad and not fb.bincount(fb.tensor([1]), x[:1].detach()).requires_grad

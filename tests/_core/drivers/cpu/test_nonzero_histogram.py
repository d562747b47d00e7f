"""Counting and compaction by generated kernels, against NumPy: all types, tiles' ends, any strides, one thread and several."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import flambeau as fb
from flambeau._core import dtypes
from flambeau._core.drivers.cpu import backend
from flambeau._core.kernels import interpret, native, routines
from flambeau._core.kernels.specs import Histogram, NonzeroCount, NonzeroWrite, Occurrences, Spread

SMALL = [d for d in dtypes.ALL if d.itemsize <= 8]
FLOATS = [d for d in dtypes.ALL if d.kind == "f"]


@pytest.fixture(autouse=True, params=[1, 2])
def threads(request):
    before = native.get_num_threads()
    native.set_num_threads(request.param)
    yield
    native.set_num_threads(before)


def carried_out(spec, addresses, numbers=()):
    made = backend.prepare(spec)
    room = ctypes.create_string_buffer(made.workspace + 64)
    made.entry(*[x.ctypes.data for x in addresses], *([(ctypes.addressof(room) + 63) & -64] if made.workspace else []), *numbers)


def stored(d, v):
    with np.errstate(all="ignore"):
        return interpret.narrow_bfloat16(np.asarray(v, np.float32)) if d is dtypes.bfloat16 else np.asarray(v).astype(d.np)


def steps(a):
    return tuple(s // a.itemsize for s in a.strides)


def positions(d, a):
    """What nonzero_count and nonzero_write give, by columns."""
    counts = np.full(1 + -(-a.size // 2048), -1, np.int64)
    carried_out(NonzeroCount(d, a.shape, steps(a)), (counts, a))
    n = int(counts[0])
    found = np.full((a.ndim, n), -1, np.int64)
    if n:
        carried_out(NonzeroWrite(d, a.shape, steps(a)), (found, a, counts), (n, 1, n))
    few = np.full((max(n // 2, 1), a.ndim), -1, np.int64)
    carried_out(NonzeroWrite(d, a.shape, steps(a)), (few, a, counts), (n // 2, a.ndim, 1))
    np.testing.assert_array_equal(few[:n // 2], found.T[:n // 2])
    return found


@pytest.mark.parametrize("d", SMALL, ids=str)
def test_nonzero_of_every_type(d):
    rng = np.random.default_rng(0)
    for n in (1, 15, 17, 64, 100, 2047, 2048, 2049, 70_000):
        for part in (0.0, 0.02, 0.5, 1.0):
            v = np.where(rng.random(n) < part, 3.0, np.where(rng.random(n) < 0.5, -0.0, 0.0))
            if d.kind in "fc" and n > 2:
                v[:2] = np.nan, -5e-324 if d is dtypes.float64 else -0.0
            a = stored(d, v)
            np.testing.assert_array_equal(positions(d, a)[0], np.nonzero(interpret.load(a, d))[0])


@pytest.mark.parametrize("shape", [(3, 5), (1, 7), (700, 1), (6, 1, 9), (40, 30, 20), (2, 3, 4, 5, 6)])
def test_nonzero_of_shapes_and_strides(shape):
    rng = np.random.default_rng(1)
    a = (rng.random(shape) < 0.4).astype(np.float32)
    for x in (a, a.T, a[::-1].copy()[::-1], np.repeat(a, 2, -1)[..., ::2], np.broadcast_to(a[:1], shape)):
        np.testing.assert_array_equal(positions(dtypes.float32, x), np.stack(np.nonzero(x)))


@pytest.mark.parametrize(("n", "bins"), [(1, 1), (1000, 7), (200_000, 300), (200_000, 40_000)])
def test_occurrences_are_added(n, bins):
    rng = np.random.default_rng(2)
    a = rng.integers(0, bins, n)
    counts = np.full(bins, 5, np.int64)
    carried_out(Occurrences(n, bins), (counts, a))
    np.testing.assert_array_equal(counts, 5 + np.bincount(a, minlength=bins))


@pytest.mark.parametrize("d", [d for d in dtypes.ALL if d.kind in "ui"], ids=str)
@pytest.mark.parametrize("generated", [True, False])
def test_occurrences_of_every_type_and_weights(d, generated, monkeypatch):
    monkeypatch.setattr(routines, "_generated", generated)
    rng = np.random.default_rng(6)
    for n in (1, 40, 70_000 if generated else 50):
        a = rng.integers(0, 100, n).astype(d.np)
        counts = np.zeros(120, np.int64)
        carried_out(Occurrences(n, 120, d), (counts, a))
        np.testing.assert_array_equal(counts, np.bincount(a.astype(np.int64), minlength=120))
        for weights in (dtypes.float32, dtypes.float64):
            w, sums = rng.standard_normal(n).astype(weights.np), np.zeros(120)
            carried_out(Occurrences(n, 120, d, weights), (sums, a, w))
            np.testing.assert_array_equal(sums, np.bincount(a.astype(np.int64), w.astype(np.float64), 120))


def test_values_at_places_of_their_own():
    rng = np.random.default_rng(3)
    for n in (1, 1000, 100_000):
        at, v, out = rng.permutation(n), rng.integers(0, 99, n), np.zeros(n, np.int64)
        carried_out(Spread(n), (out, at, v))
        want = np.zeros(n, np.int64)
        want[at] = v
        np.testing.assert_array_equal(out, want)


def counted(x, low, high, bins, d):
    """The definition, with the roundings of the type."""
    def rounded(v):
        return interpret.widen_bfloat16(interpret.narrow_bfloat16(np.asarray(v, np.float32))) if d is dtypes.bfloat16 else v
    low, high = x.dtype.type(low), x.dtype.type(high)
    x = x[(x >= low) & (x <= high)]
    at = np.minimum(rounded(rounded(rounded(x - low) * bins) / rounded(high - low)).astype(np.int64), bins - 1)
    return np.bincount(at, minlength=bins)


@pytest.mark.parametrize("d", FLOATS, ids=str)
@pytest.mark.parametrize("generated", [True, False])
def test_histograms(d, generated, monkeypatch):
    monkeypatch.setattr(routines, "_generated", generated)
    rng = np.random.default_rng(4)
    for shape in ((1,), (17,), (511,), (513,), (9, 7), (300, 300)):
        if generated is False and len(shape) > 1:
            continue
        a = stored(d, rng.standard_normal(shape) * 3)
        for x in (a, a.T, np.repeat(a, 2, -1)[..., ::2]):
            v = interpret.load(x, d).reshape(-1)
            for bins in (1, 7, 100):
                out, told = np.full(bins, 9).astype(x.dtype), np.full((), 9, np.int64)
                carried_out(Histogram(d, x.shape, steps(x), bins, False), (out, told, x), (-2.0, 1.5))
                np.testing.assert_array_equal(out, stored(d, counted(v, -2.0, 1.5, bins, d)))
                carried_out(Histogram(d, x.shape, steps(x), bins, True), (out, told, x), (0.0, 0.0))
                ends = (v.min() - 1, v.max() + 1) if v.min() == v.max() else (v.min(), v.max())
                np.testing.assert_array_equal(out, stored(d, counted(v, *ends, bins, d)))
                assert told == 0


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_a_range_without_end_is_told(special):
    for n in (1, 5, 100_000):
        a = np.zeros(n, np.float32)
        a[n // 2] = special
        out, told = np.zeros(4, np.float32), np.zeros((), np.int64)
        carried_out(Histogram(dtypes.float32, (n,), (1,), 4, True), (out, told, a), (0.0, 0.0))
        assert told == 1
        with pytest.raises(RuntimeError, match="not finite"):
            fb.histc(fb.tensor(a), 4)
        carried_out(Histogram(dtypes.float32, (n,), (1,), 4, False), (out, told, a), (-1.0, 1.0))
        assert out.sum() == n - 1 and told == 0


def test_where_the_range_is_wider_than_the_type():
    x = fb.tensor([-3e38, 0.0, 3e38])
    assert fb.histc(x, 4).sum().item() == 3

"""Generated matrix products against NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau._core import dtypes
from flambeau._core.kernels import native, routines
from flambeau._core.kernels.llvm.handwritten import gemm

TYPES = {"float32": np.float32, "float64": np.float64}
EPS = {"float32": 6e-8, "float64": 1.2e-16}


def laid(values, layout):
    """The same matrix (or batch) in another layout: 0 rows, 1 columns, 2 with gaps, 3 backwards."""
    if layout == 1:
        return np.ascontiguousarray(np.swapaxes(values, -1, -2)).swapaxes(-1, -2)
    if layout == 2:
        wide = np.full((*values.shape[:-2], 2 * values.shape[-2], 3 * values.shape[-1]), np.nan, values.dtype)
        wide[..., ::2, ::3] = values
        return wide[..., ::2, ::3]
    if layout == 3:
        return np.ascontiguousarray(values[..., ::-1, ::-1])[..., ::-1, ::-1]
    return values


def steps(x):
    item = x.itemsize
    return x.strides[-2] // item, x.strides[-1] // item, x.strides[0] // item if x.ndim == 3 else 0


def run(a, b, c, add=False):
    batch = a.shape[0] if a.ndim == 3 else 1
    entry = gemm.gemm(getattr(dtypes, a.dtype.name), a.shape[-2], b.shape[-1], a.shape[-1], steps(a), steps(b), (steps(c)[0], steps(c)[2]), batch, add)
    entry(c.ctypes.data, a.ctypes.data, b.ctypes.data)


def close(got, a, b, base=0.0):
    """|got - a b| within the bound of a sum of k products in any order (Higham, "Accuracy and Stability", 3.5)."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    k = a.shape[-1]
    bound = 2 * (k + 2) * EPS[a.dtype.name] * (np.abs(wide_a) @ np.abs(wide_b) + np.abs(base)) + 1e-300
    assert (np.abs(got - (wide_a @ wide_b + base)) <= bound).all()


@pytest.mark.parametrize("name", TYPES)
@given(st.integers(1, 70), st.integers(1, 100), st.integers(1, 90), st.integers(0, 3), st.integers(0, 3), st.booleans(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_any_size_and_layout(name, m, n, k, la, lb, add, batch):
    rng = np.random.default_rng(m * 7919 + n * 31 + k)
    a, b = laid(rng.normal(size=(batch, m, k)).astype(TYPES[name]), la), laid(rng.normal(size=(batch, k, n)).astype(TYPES[name]), lb)
    room = np.full((batch, m, n + 5), 7.0, TYPES[name])
    run(a, b, room[..., :n], add)
    close(room[..., :n], a, b, 7.0 if add else 0.0)
    assert (room[..., n:] == 7).all()


@pytest.mark.parametrize("name", ["int32", "int64", "uint32", "uint64"])
@given(st.integers(1, 70), st.integers(1, 100), st.integers(1, 90), st.integers(0, 3), st.integers(0, 3), st.booleans(), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_integers_wrap(name, m, n, k, la, lb, add, batch):
    rng = np.random.default_rng(m * 7919 + n * 31 + k)
    info = np.iinfo(name)
    a, b = (rng.integers(info.min, info.max, size=s, dtype=name, endpoint=True) for s in ((batch, m, k), (batch, k, n)))
    room = np.full((batch, m, n + 5), 7, name)
    run(laid(a, la) if la != 2 else a, laid(b, lb) if lb != 2 else b, room[..., :n], add)
    np.testing.assert_array_equal(room[..., :n], a @ b + np.array(7 * add, name))
    assert (room[..., n:] == 7).all()


@pytest.mark.parametrize("m,n,k", [(500, 900, 700), (3, 2000, 1300), (2100, 33, 400), (64, 64, 5000)])
@pytest.mark.parametrize("layout", [0, 1])
def test_several_blocks_and_the_same_bits_on_any_threads(m, n, k, layout):
    rng = np.random.default_rng(0)
    a, b = laid(rng.normal(size=(m, k)).astype(np.float32), layout), laid(rng.normal(size=(k, n)).astype(np.float32), layout)
    before, results = native.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            native.set_num_threads(threads)
            c = np.empty((m, n), np.float32)
            run(a, b, c)
            results.append(c)
    finally:
        native.set_num_threads(before)
    close(results[0], a, b)
    assert all((r == results[0]).all() for r in results)


def test_nan_and_infinities_stay_in_their_rows_and_columns():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(20, 40)).astype(np.float32), rng.normal(size=(40, 37)).astype(np.float32)
    a[3, 5], b[7, 36], b[:, 2] = np.inf, np.nan, 0
    c = np.empty((20, 37), np.float32)
    run(a, b, c)
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(c), np.isnan(want))
    assert np.isnan(c[3, 2]) and np.isinf(c[3, :2]).all()  # infinity times 0
    np.testing.assert_allclose(c, want.astype(np.float32), rtol=1e-4, atol=1e-4)


def test_a_routine_for_some_types_and_sizes_only():
    strides = (128, 1, 0)
    assert routines.product(dtypes.complex64, 128, 128, 128, strides, strides, strides) is None
    assert routines.product(dtypes.float32, 8, 128, 128, strides, strides, strides) is None
    made = routines.product(dtypes.float32, 128, 128, 128, strides, strides, strides)
    assert made is not None and made.flops == 2 * 128 ** 3 and made.nbytes == 3 * 128 * 128 * 4


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("m,n,k", [(40, 70, 30), (33, 100, 1300), (1, 33, 5), (300, 600, 700)])
def test_a_row_is_added_as_if_it_had_been_there(name, m, n, k):
    rng = np.random.default_rng(5)
    a, b, row = (rng.normal(size=s).astype(TYPES[name]) for s in ((m, k), (n, k), (n + 1,)))
    row = row[1:]  # where vectors are not aligned
    got, there = np.full((m, n), np.nan, TYPES[name]), np.repeat(row[None], m, 0)
    d = getattr(dtypes, name)
    gemm.gemm(d, m, n, k, steps(a), steps(b.T), (n, 0), bias=True)(got.ctypes.data, a.ctypes.data, b.ctypes.data, row.ctypes.data)
    run(a, b.T, there, add=True)
    assert (got == there).all()
    close(got, a, b.T, row)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("m,n,k", [(40, 70, 30), (33, 100, 1300), (1, 33, 5), (300, 600, 700), (15, 31, 193)])
def test_an_activation_in_the_store_is_one_after_it(name, transposed, m, n, k):
    """Bit for bit, NaN, infinities and zeros too; over one block of K and over several."""
    rng = np.random.default_rng(6)
    a, b, row, gate = (rng.normal(size=s).astype(TYPES[name]) for s in ((m, k), (n, k), (n,), (m, n)))
    a[0], a[-1, 0], row[-1] = 0, np.nan, np.inf
    row[0], gate[0] = -0.0, 0
    gate[-1, :2] = np.nan
    right = b.T if transposed else np.ascontiguousarray(b.T)
    d, (shifted, plain, got) = getattr(dtypes, name), (np.full((m, n), 7, TYPES[name]) for _ in range(3))
    start = [x.ctypes.data for x in (a, right)]
    gemm.gemm(d, m, n, k, steps(a), steps(right), (n, 0), bias=True)(shifted.ctypes.data, *start, row.ctypes.data)
    gemm.gemm(d, m, n, k, steps(a), steps(right), (n, 0), bias=True, after="relu")(got.ctypes.data, *start, row.ctypes.data)
    np.testing.assert_array_equal(got, np.where(shifted <= 0, 0, shifted))
    assert not np.signbit(got[got == 0]).any()
    gemm.gemm(d, m, n, k, steps(a), steps(right), (n, 0))(plain.ctypes.data, *start)
    gemm.gemm(d, m, n, k, steps(a), steps(right), (n, 0), after="relu gradient")(got.ctypes.data, *start, gate.ctypes.data)
    np.testing.assert_array_equal(got, np.where(gate <= 0, 0, plain))  # PyTorch's gradient passes at NaN


def test_an_activation_in_every_matrix_of_a_batch():
    rng = np.random.default_rng(7)
    a, b, gate = (rng.normal(size=s).astype(np.float32) for s in ((3, 40, 50), (3, 50, 60), (3, 40, 60)))
    row, got = rng.normal(size=60).astype(np.float32), np.empty((3, 40, 60), np.float32)
    sizes, given = (40, 60, 50, steps(a), steps(b), (60, 2400), 3), [x.ctypes.data for x in (got, a, b)]
    gemm.gemm(dtypes.float32, *sizes, bias=True, after="relu")(*given, row.ctypes.data)
    np.testing.assert_allclose(got, np.maximum(a @ b + row, 0), rtol=1e-4, atol=1e-4)
    gemm.gemm(dtypes.float32, *sizes, after="relu gradient")(*given, gate.ctypes.data)
    np.testing.assert_allclose(got, np.where(gate > 0, a @ b, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_a_task_is_no_more_than_the_caches_hold_and_nothing_is_left_out(threads):
    for m, n in ((1, 1), (14, 32), (768, 384), (32, 1536), (5000, 40), (40, 100_000), (100_000, 40), (4096, 4096)):
        for depth in (16, 352, 512):
            rows, columns = gemm._task(m, n, 4 * depth, 1, threads, False, False, gemm.sizes(4))
            assert 0 < rows <= gemm.MOST_ROWS
            assert 0 < columns * depth * 4 <= gemm.BLOCK_BYTES
            assert rows % gemm.sizes(4)[0] == 0 and columns % gemm.sizes(4)[2] == 0


def test_two_threads_get_the_same_work():
    for m, n, k in ((768, 384, 128), (768, 128, 384), (128, 512, 768), (1024, 1536, 384), (1024, 1024, 512)):
        rows, columns = gemm._task(m, n, 4 * k, 1, 2, False, False, (14, 16, 32))
        panels = [-(-min(rows, m - i) // 14) * -(-min(columns, n - j) // 32) for i in range(0, m, rows) for j in range(0, n, columns)]
        loads = [0, 0]
        for p in panels:
            loads[loads.index(min(loads))] += p
        assert max(loads) <= 1.08 * sum(panels) / 2

"""Routines of our own that jobs call."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core import dtypes
from flambeau._core.drivers.cpu.jobs import Job

TYPES = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)


def steps(d, name, *args):
    """Carries one routine out; arrays are operands, in order."""
    job, arrays = Job(d, 1), []
    places = []
    for x in args:
        if isinstance(x, np.ndarray):
            arrays.append(x)
            x = job.operand(x.nbytes)
        places.append(x)
    job.call(name, *places)
    entry, _ = job.launch()
    entry(*(x.ctypes.data for x in arrays))


def test_whole_numbers_change_their_width():
    wide, narrow = np.array([1, -2, 2 ** 31 - 1]), np.zeros(3, np.int32)
    steps(dtypes.float32, "narrow", 3, wide, narrow)
    assert narrow.tolist() == wide.tolist()
    again = np.zeros(3, np.int64)
    steps(dtypes.float32, "widen", 3, narrow, again)
    assert again.tolist() == wide.tolist()


def test_pivots_that_no_factorization_gives_are_bad():
    wide, bad = np.zeros(4, np.int64), np.zeros(1, np.int64)
    for pivots, want in (([1, 2, 3, 4], 0), ([-1, -1, 3, 4], 0), ([1, -2, -4, 4], 0), ([-1, -2, -3, -4], 0), ([1, 2, 3, -4], 1), ([-1, 2, -3, 4], 1),
                         ([-1, -1, -1, 4], 1), ([0, 2, 3, 4], 1), ([1, 5, 3, 4], 1), ([1, -5, -5, 4], 1), ([1, 2, 3, -2 ** 31], 1)):
        steps(dtypes.float32, "blocks", 4, np.array(pivots, np.int32), wide, bad)
        assert (wide.tolist(), bad[0]) == (pivots, want)


def test_permutation_leaves_out_what_is_no_row():
    there, back, failed = np.zeros(4, np.int64), np.zeros(4, np.int64), np.zeros(1, np.int32)
    steps(dtypes.float32, "permutation", 4, 3, np.array([3, 4, 3], np.int32), there, back, failed)
    assert (there.tolist(), back.tolist(), failed[0]) == ([2, 3, 0, 1], [2, 3, 0, 1], 0)
    for bad in (0, 5, -7, 2 ** 31 - 1):
        steps(dtypes.float32, "permutation", 4, 3, np.array([2, bad, bad], np.int32), there, back, failed)
        assert (there.tolist(), failed[0]) == ([1, 0, 2, 3], 2)


@pytest.mark.parametrize("d", [dtypes.float32, dtypes.float64], ids=str)
def test_parity_counts_the_exchanges(d):
    letter = "s" if d is dtypes.float32 else "d"
    for pivots, want in (([1, 2, 3], 1), ([2, 2, 3], -1), ([3, 3, 3], 1), ([], 1)):
        sign = np.zeros(1, d.np)
        steps(d, "parity" + letter, len(pivots), np.array([*pivots, 0]), sign)
        assert sign[0] == want


@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("part", "ALU")
def test_check_finds_nan_and_infinities_in_what_is_read(d, part):
    real, parts = "s" if d.to_real() is dtypes.float32 else "d", 2 if d.is_complex else 1
    for m, n in ((5, 5), (40, 40), (7, 3), (3, 7), (1, 1)):
        for i, j in {(0, 0), (m - 1, 0), (0, n - 1), (m - 1, n - 1), (m // 2, n // 2)}:
            for value, want in ((np.nan, -4), (np.inf, 3), (-np.inf, 3), (np.finfo(d.np).max, 0)):
                a = np.ones((n, m), d.np)
                a[j, i] = value * (1j if d.is_complex and np.isfinite(value) else 1)
                code = np.full(1, 99)
                steps(d, "check" + real, part.encode(), m, n, parts, a, m, -4, 3, code)
                read = part == "A" or (i >= j if part == "L" else i <= j)
                assert code[0] == (want if read else 0)


@pytest.mark.parametrize("d", [dtypes.float32, dtypes.float64], ids=str)
def test_pairs_of_real_vectors_are_complex_ones(d):
    v = np.arange(16, dtype=d.np).reshape(4, 4)
    out = np.zeros((4, 4), d.to_complex().np)
    steps(d, "pairs" + ("s" if d is dtypes.float32 else "d"), 4, np.array([0, 2, -2, 0], d.np), v, out)
    np.testing.assert_array_equal(out, [v[0], v[1] + 1j * v[2], v[1] - 1j * v[2], v[3]])


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_regular_moves_zeros_and_multiplies_the_diagonal(d):
    a = np.array([[2, 5, 5], [5, 3j if d.is_complex else 3, 5], [5, 5, 4]], d.np)
    det, sign = np.zeros(1, d.np), np.array([-1], d.to_real().np)

    def product():
        steps(d, "regular" + Job(d, 1).letter, 3, a)
        steps(d, "product" + Job(d, 1).letter, 3, a, sign, det)
    product()
    assert det[0] == (-24j if d.is_complex else -24)
    a[1, 1] = 0
    product()
    eps = np.finfo(d.np).eps
    assert a[1, 1] == 4 * eps
    assert det[0] == -32 * eps
    a[...] = 0
    product()
    assert (np.diagonal(a) == eps).all()


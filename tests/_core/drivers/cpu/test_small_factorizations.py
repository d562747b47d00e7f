"""Batches of small matrices: what is done in lanes, and that lanes do not see each other.  That results are right is tested with the other jobs."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core import dtypes
from flambeau._core.drivers.cpu import small_factorizations
from flambeau._core.kernels.specs import Lapack
from tests._core.drivers.cpu.lapack_jobs import adjoint, columns, definite, infos, make, near, rows, run

TYPES = (dtypes.float32, dtypes.float64)


def test_what_is_done_in_lanes():
    for d, batch, sizes, want in ((TYPES[0], 8, (4,), True), (TYPES[1], 100, (16,), True), (TYPES[0], 7, (4,), False), (TYPES[0], 8, (17,), False),
                                  (TYPES[0], 8, (0,), False), (dtypes.complex64, 8, (4,), False)):
        assert (small_factorizations.find("inv", Lapack("inv", d, batch, sizes)) is not None) is want
    assert small_factorizations.find("eigh", Lapack("eigh", TYPES[0], 8, (4, True, True))) is None


@pytest.mark.parametrize("name, sizes", [("cholesky", (5,)), ("lu_factor", (5, 4, True)), ("lu", (5,)), ("solve", (5, 3)), ("inv", (5,)),
                                         ("qr", (5, 5, "complete"))])
@pytest.mark.parametrize("d", TYPES, ids=str)
def test_bits_do_not_depend_on_the_place_in_a_batch(name, sizes, d):
    """Which lane a matrix is in, and whether its group is full."""
    n, batch = 5, 37
    m = sizes[1] if name == "lu_factor" else n
    a, b = definite(d, batch, n)[..., :m], make(d, batch, n, 3, 1)

    def result(which):
        k = len(which)
        work, x, pivots, info, sign = columns(a[which]), columns(b[which]), np.zeros((k, m), np.int32), infos(k), np.zeros(k, d.np)
        operands = {"cholesky": (work, info), "lu_factor": (work, pivots, info), "lu": (work, pivots, sign), "solve": (x, work, pivots, info),
                    "inv": (work, info), "qr": (np.zeros_like(work), np.zeros_like(work), work)}[name]
        run(name, d, k, sizes, *operands)
        return operands
    order = np.random.default_rng(5).permutation(batch)[:30]
    for one, other in zip(result(np.arange(batch)), result(order), strict=True):
        np.testing.assert_array_equal(one[order], other)


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_lengths_of_columns_overflow_nowhere(d):
    batch, n = 9, 4
    a = make(d, batch, n, n)
    a[1] *= np.finfo(d.np).max / 100
    a[2] *= np.finfo(d.np).tiny * 100
    a[3] = 0
    a[4, 1:, 0] = 0
    q, r = np.zeros((batch, n, n), d.np), np.zeros((batch, n, n), d.np)
    run("qr", d, batch, (n, n, "reduced"), q, r, columns(a))
    q, r = rows(q), rows(r)
    near(adjoint(q) @ q, np.broadcast_to(np.eye(n), q.shape))
    scale = np.abs(a).max((1, 2), keepdims=True) + (a == 0).all((1, 2), keepdims=True)
    near(q @ (r / scale), a / scale)


def test_what_is_not_finite_stays_in_its_lane():
    d, n, batch = dtypes.float32, 4, 20
    a = definite(d, batch, n)
    a[3], a[5] = np.nan, np.inf
    work, info = columns(a), infos(batch)
    run("cholesky", d, batch, (n,), work, info)
    assert info[3] == 1
    assert np.isfinite(np.delete(work, [3, 5], 0)).all()
    assert info.nonzero()[0].tolist() == [3, 5]

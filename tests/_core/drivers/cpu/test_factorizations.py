"""The jobs of linear algebra against NumPy: all types, batches, shapes, failures, threads."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core import dtypes
from flambeau._core.drivers.cpu import factorizations
from flambeau._core.kernels import native
from flambeau._core.kernels.specs import Lapack
from tests._core.drivers.cpu.lapack_jobs import adjoint, columns, definite, infos, make, near, rows, run

TYPES = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
SHAPES = ((4, 4), (1, 1), (5, 3), (3, 5), (33, 40))
BATCHES = (1, 3, 21)  # and more than a vector has lanes


@pytest.fixture(params=TYPES, ids=str)
def d(request):
    return request.param


@pytest.fixture(params=BATCHES)
def batch(request):
    return request.param


def ordered(a, pivots):
    """The rows of matrices after exchanges."""
    a = a.copy()
    for x, p in zip(a, pivots, strict=True):
        for i, j in enumerate(p - 1):
            x[[i, j]] = x[[j, i]]
    return a


@pytest.mark.parametrize("n", [4, 1, 40])
def test_cholesky(d, batch, n):
    a = definite(d, batch, n)
    a[0, n - 1, n - 1] = -1
    work, info = columns(a), infos(batch)
    run("cholesky", d, batch, (n,), work, info)
    assert info.tolist() == [n, *[0] * (batch - 1)]
    l = rows(work)
    np.testing.assert_array_equal(l, np.tril(l))
    near(l[1:], np.linalg.cholesky(a[1:]))


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("exchange", [True, False])
def test_lu_factor(d, batch, m, n, exchange):
    k = min(m, n)
    a = make(d, batch, m, n) + 3 * np.eye(m, n, dtype=d.np)
    a[0, :, 0] = 0
    work, pivots, info = columns(a), np.zeros((batch, k), np.int32), infos(batch)
    run("lu_factor", d, batch, (m, n, exchange), work, pivots, info)
    assert info[0] == 1
    assert not info[1:].any()
    packed = rows(work)[1:]
    got = (np.tril(packed[..., :k], -1) + np.eye(m, k)) @ np.triu(packed[:, :k])
    near(got.astype(d.np), ordered(a, pivots)[1:], 20000)


def test_lu_and_its_parity(d, batch):
    n = 6
    a = make(d, batch, n, n)
    work, pivots, parity = columns(a), np.zeros((batch, n), np.int32), np.zeros(batch, d.to_real().np)
    run("lu", d, batch, (n,), work, pivots, parity)
    near(np.prod(np.diagonal(work, axis1=1, axis2=2), -1) * parity, np.linalg.det(a))
    again, det = columns(a), np.zeros(batch, d.np)
    run("det", d, batch, (n,), again, pivots, det)
    np.testing.assert_array_equal(again, work)
    near(det, np.linalg.det(a))
    run("det", d, batch, (0,), again, pivots, det)
    assert (det == 1).all()
    none = np.full(batch, 9, d.to_real().np)
    run("lu", d, batch, (0,), work, pivots, none)
    assert (none == 1).all()
    out = np.zeros_like(work)
    run("cofactors", d, batch, (n,), out, work, pivots)
    near(rows(out), np.linalg.det(a).conj()[:, None, None] * np.linalg.inv(adjoint(a)))


def test_permutation():
    pivots = np.array([[2, 2, 3], [3, 3, 3]], np.int32)
    there, back, info = np.zeros((2, 4), np.int64), np.zeros((2, 4), np.int64), infos(2)
    run("permutation", dtypes.int32, 2, (4, 3), there, back, pivots, info)
    assert there.tolist() == [[1, 0, 2, 3], [2, 0, 1, 3]]
    assert back.tolist() == np.argsort(there, -1).tolist()
    assert not info.any()


@pytest.mark.parametrize("m, n", [*SHAPES, (3, 0), (0, 3)])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr(d, batch, m, n, mode):
    a = make(d, batch, m, n)
    wide = m if mode == "complete" else min(m, n)
    q, r = np.full((batch, wide, m), 7, d.np), np.full((batch, n, wide), 7, d.np)
    run("qr", d, batch, (m, n, mode), q, r, columns(a))
    q, r = rows(q), rows(r)
    np.testing.assert_array_equal(r, np.triu(r))
    if mode == "r":
        assert (q == 7).all()
        near(np.abs(r), np.abs(np.linalg.qr(a, "r")))
    else:
        near(q @ r, a)
        near(adjoint(q) @ q, np.broadcast_to(np.eye(wide), (batch, wide, wide)))


def test_reflectors_are_those_of_qr(d):
    m, n = 5, 3
    a = columns(make(d, 2, m, n))
    tau = np.zeros((2, 3), d.np)
    run("geqrf", d, 2, (m, n), a, tau)
    near(np.abs(np.triu(rows(a)[:, :3])), np.abs(np.linalg.qr(make(d, 2, m, n), "r")))
    assert tau.all()


@pytest.mark.parametrize("hermitian", [True, False])
def test_ldl(d, batch, hermitian):
    n = 6
    a = make(d, batch, n, n)
    a = a + (adjoint(a) if hermitian else rows(a))
    work, pivots, info = columns(np.tril(a)), np.zeros((batch, n), np.int32), infos(batch)
    run("ldl_factor", d, batch, (n, hermitian), work, pivots, info)
    assert not info.any()
    b = make(d, batch, n, 2, 1)
    x = columns(b)
    run("ldl_solve", d, batch, (n, 2, hermitian), x, work, pivots, info)
    assert not info.any()
    near(a @ rows(x), b, 3000)
    wrong, x = pivots.copy(), columns(b)
    wrong[0, -1] = n + 1
    run("ldl_solve", d, batch, (n, 2, hermitian), x, work, wrong, info)
    assert info.tolist() == [1, *[0] * (batch - 1)]
    np.testing.assert_array_equal(rows(x)[0], b[0])
    zero = np.zeros((batch, n, n), d.np)
    run("ldl_factor", d, batch, (n, hermitian), zero, pivots, info)
    assert info.tolist() == [1] * batch


@pytest.mark.parametrize("n, k", [(4, 4), (1, 1), (40, 3), (4, 0), (0, 2)])
def test_solve(d, batch, n, k):
    a = make(d, batch, n, n) + 2 * n ** 0.5 * np.eye(n, dtype=d.np)
    b = make(d, batch, n, k, 1)
    x, lu, pivots, info = columns(b), columns(a), np.zeros((batch, n), np.int32), infos(batch)
    run("solve", d, batch, (n, k), x, lu, pivots, info)
    assert not info.any()
    near(a @ rows(x), b)
    if n:
        for turned, of in ((False, a), (True, adjoint(a))):
            x = columns(b)
            run("lu_solve", d, batch, (n, k, turned), x, lu, pivots)
            near(of @ rows(x), b)


def test_inverse(d, batch):
    n = 5
    a = make(d, batch, n, n) + 3 * np.eye(n, dtype=d.np)
    a[0] = 1
    work, info = columns(a), infos(batch)
    run("inv", d, batch, (n,), work, info)
    assert info.tolist() == [2, *[0] * (batch - 1)]
    assert np.isinf(work[0].real).all()
    near(rows(work)[1:], np.linalg.inv(a[1:]))


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("unit", [0, 1])
@pytest.mark.parametrize("k", [1, 2])
def test_triangular(d, batch, upper, unit, k):
    n = 5
    a, b = make(d, batch, n, n) + 3 * np.eye(n, dtype=d.np), make(d, batch, n, k, 1)
    t = np.triu(a) if upper else np.tril(a)
    if unit:
        np.einsum("bii->bi", t)[...] = 1
    x = columns(b)
    run("trsm", d, batch, (n, k, upper, unit), x, columns(a))
    near(t @ rows(x), b, 20000)


@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("k", [1, 2])
def test_matrices_that_are_read_may_lie_otherwise(d, batch, by_rows, shared, k):
    n = 5
    a = make(d, 1 if shared else batch, n, n) + 4 * np.eye(n, dtype=d.np)
    held = np.full((len(a), n + 2, n + 3), np.nan, d.np)
    held[:, :n, :n] = a if by_rows else rows(a)
    laid = (by_rows, n + 3, 0 if shared else (n + 2) * (n + 3))
    b = make(d, batch, n, k, 1)
    for upper in (True, False):
        t = np.triu(a) if upper else np.tril(a)
        x = columns(b)
        run("trsm laid", d, batch, (n, k, int(upper), 0, *laid), x, held)
        near(t @ rows(x), b, 3000)
        spec = Lapack("cholesky_solve laid", d, batch, (n, k, upper, *laid))
        if by_rows and d.is_complex:
            assert factorizations.prepare(spec) is None
            continue
        x = columns(b)
        run(*spec, x, held)
        near((adjoint(t) @ t if upper else t @ adjoint(t)) @ rows(x), b, 20000)
    for name, sizes in (("lu_solve laid", (n, k, False)), ("ldl_solve laid", (n, k, False)), ("ormqr laid", (n, k, 2, True, True))):
        assert (factorizations.prepare(Lapack(name, d, batch, (*sizes, *laid))) is None) is by_rows


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_products_of_reflectors(d, batch, left, turned):
    m, k = 5, 3
    a, tau = columns(make(d, batch, m, k)), np.zeros((batch, k), d.np)
    run("geqrf", d, batch, (m, k), a, tau)
    q = np.zeros((batch, m, m), d.np)
    q[:, :k] = a
    run("orgqr", d, batch, (m, m, k), q, tau)
    q = rows(q)
    near(adjoint(q) @ q, np.broadcast_to(np.eye(m), q.shape))
    c = make(d, batch, m, 2, 1) if left else make(d, batch, 2, m, 1)
    x = columns(c)
    run("ormqr laid", d, batch, (*c.shape[1:], k, left, turned, False, m, m * k), x, a, tau)
    q = adjoint(q) if turned else q
    near(rows(x), q @ c if left else c @ q)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("m, n", [(6, 4), (4, 6), (40, 30)])
def test_least_squares(d, batch, driver, m, n):
    k, tall, least = 2, max(m, n), min(m, n)
    a, b = make(d, batch, m, n), make(d, batch, m, k, 1)
    x = np.zeros((batch, k, tall), d.np)
    x[..., :m] = rows(b)
    rank, s, info = np.full(batch, 99), np.zeros((batch, least), d.to_real().np), infos(batch)
    run("lstsq", d, batch, (m, n, k, driver, 1e-6), x, rank, s, info, columns(a))
    assert not info.any()
    assert rank.tolist() == [0 if driver == "gels" else least] * batch
    near(rows(x)[:, :n], np.linalg.pinv(a) @ b, 3000)
    if driver in ("gelsd", "gelss"):
        near(s, np.linalg.svd(a, compute_uv=False))


def test_least_squares_of_nothing():
    x, rank, s, info = np.full((2, 2, 3), 7.0), np.full(2, 99), np.zeros(0), infos(2)
    run("lstsq", dtypes.float64, 2, (0, 3, 2, "gelsd", 1e-6), x, rank, s, info, np.zeros(0))
    assert not x.any()
    assert not rank.any()
    assert not info.any()


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("n", [4, 1, 40])
def test_eigh(d, batch, vectors, lower, n):
    a = make(d, batch, n, n)
    a = a + adjoint(a)
    given = np.tril(a) if lower else np.triu(a)
    given = given + (np.triu if lower else np.tril)(np.full((n, n), np.nan), 1 if lower else -1)  # which nobody reads
    if n > 1:
        given[0, *((1, 0) if lower else (0, 1))] = np.inf
    w, v, info = np.zeros((batch, n), d.to_real().np), columns(given.astype(d.np)), infos(batch)
    run("eigh", d, batch, (n, vectors, lower), w, *((v, info) if vectors else (info, v)))
    assert not info.any()
    if n > 1:
        assert np.isnan(w[0]).all()
        assert np.isnan(v[0].real).all()
    near(w[1:], np.linalg.eigvalsh(a[1:]))
    if vectors:
        near(a[1:] @ rows(v)[1:], rows(v)[1:] * w[1:, None, :])


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("n", [4, 1, 12])
def test_eig(d, batch, vectors, n):
    a = make(d, batch, n, n)
    a[0, n - 1, 0] = np.nan
    wide = d.to_complex().np
    w, v, info = np.zeros((batch, n), wide), np.zeros((batch, n, n) if vectors else 0, wide), infos(batch)
    run("eig", d, batch, (n, vectors), w, v, info, columns(a))
    assert info.tolist() == [-1, *[0] * (batch - 1)]
    if vectors:
        near(a[1:] @ rows(v)[1:], rows(v)[1:] * w[1:, None, :], 3000)
    near(w[1:].sum(-1), np.trace(a[1:], axis1=1, axis2=2), 3000)


@pytest.mark.parametrize("how", "NSA")
@pytest.mark.parametrize("m, n", [*SHAPES, (0, 3), (3, 0)])
def test_svd(d, batch, how, m, n):
    k = min(m, n)
    a = make(d, batch, m, n)
    columns_of, rows_of = (m, n) if how == "A" else (k, k) if how == "S" else (0, 0)
    u, s, vh, info = np.zeros((batch, columns_of, m), d.np), np.zeros((batch, k), d.to_real().np), np.zeros((batch, n, rows_of), d.np), infos(batch)
    run("svd", d, batch, (m, n, how), u, s, vh, info, columns(a))
    assert not info.any()
    near(s, np.linalg.svd(a, compute_uv=False))
    if how != "N":
        near(adjoint(rows(u)) @ rows(u), np.broadcast_to(np.eye(columns_of), (batch, columns_of, columns_of)))
        near((rows(u)[..., :k] * s[:, None, :]) @ rows(vh)[:, :k], a)


@pytest.mark.parametrize("n", [4, 60])
def test_svd_of_what_is_not_finite_ends(d, n):
    a = make(d, 3, n, n)
    a[0, 1, 2], a[1, 2, 1] = np.nan, np.inf
    s, info, none = np.zeros((3, n), d.to_real().np), infos(3), np.zeros(1, d.np)
    run("svd", d, 3, (n, n, "N"), none, s, none, info, columns(a))
    assert info.tolist() == [-4, 0, 0]
    assert np.isnan(s[:2]).all()
    near(s[2], np.linalg.svd(a[2], compute_uv=False))


@pytest.mark.parametrize("n, batch", [(24, 200), (8, 4001)])
@pytest.mark.parametrize("name", ["cholesky", "lu_factor", "eigh"])
def test_bits_do_not_depend_on_the_threads(monkeypatch, name, n, batch):
    sizes = {"cholesky": (n,), "lu_factor": (n, n, True), "eigh": (n, True, True)}[name]
    found = []
    for threads in (1, 2):
        monkeypatch.setattr(native, "get_num_threads", lambda threads=threads: threads)
        work = columns(definite(dtypes.float64, batch, n))
        w, pivots, info = np.zeros((batch, n)), np.zeros((batch, n), np.int32), infos(batch)
        operands = {"cholesky": (work, info), "lu_factor": (work, pivots, info), "eigh": (w, work, info)}[name]
        run(name, dtypes.float64, batch, sizes, *operands)
        found.append(operands)
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


OF = {  # sizes, results (elements of a matrix, type: d the job's, r its real numbers', c its complex ones', others NumPy's), which are over A
    "cholesky": ((5,), [(25, "d"), (1, "i4")], 1), "lu_factor": ((5, 5, True), [(25, "d"), (5, "i4"), (1, "i4")], 1),
    "lu": ((5,), [(25, "d"), (5, "i4"), (1, "r")], 1), "det": ((5,), [(25, "d"), (5, "i4"), (1, "d")], 1), "inv": ((5,), [(25, "d"), (1, "i4")], 1),
    "solve": ((5, 5), [(25, "d"), (25, "d"), (5, "i4"), (1, "i4")], 2), "geqrf": ((5, 5), [(25, "d"), (5, "d")], 1),
    "ldl_factor": ((5, True), [(25, "d"), (5, "i4"), (1, "i4")], 1), "qr": ((5, 5, "complete"), [(25, "d"), (25, "d")], 0),
    "svd": ((5, 5, "A"), [(25, "d"), (5, "r"), (25, "d"), (1, "i4")], 0), "eig": ((5, True), [(5, "c"), (25, "c"), (1, "i4")], 0),
    "eigh": ((5, False, True), [(5, "r"), (1, "i4")], 0),
    "lstsq": ((5, 5, 5, "gelsd", 1e-6), [(25, "d"), (1, "i8"), (5, "r"), (1, "i4")], 0),
}


@pytest.mark.parametrize("name", OF)
def test_jobs_bring_small_matrices_themselves(d, batch, name):
    sizes, results, over = OF[name]
    n = 5
    a = definite(d, batch, n)
    held = np.full((batch + 1, 2 * n, 3 * n), np.nan, d.np)
    held[:batch, ::2, 1::3] = a
    inside = held[:, :, 1:]
    lies = (6 * n, 3, 6 * n * n)
    kinds = {"d": d.np, "r": d.to_real().np, "c": d.to_complex().np}

    def places():
        return [np.full((batch, count), 7, kinds.get(kind, kind)) for count, kind in results]
    plain, own = places(), places()
    for to in plain[:over]:
        to[...] = columns(a).reshape(batch, -1)
    run(name, d, batch, sizes, *plain, *([] if over else [columns(a)]))
    run(name + " of", d, batch, (*sizes, *[lies] * max(over, 1)), *own, *[inside] * max(over, 1))
    for one, other in zip(plain, own, strict=True):
        np.testing.assert_array_equal(one, other)


def test_names_of_other_backends_are_refused():
    assert factorizations.prepare(Lapack("potrf", dtypes.float32, 1, (3,))) is None

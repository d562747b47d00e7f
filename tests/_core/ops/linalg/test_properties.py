"""What holds of each decomposition for any shape, batch, type and layout: its factors have their form and make up the matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb

L: Any = fb.linalg
quick = settings(max_examples=20, deadline=None)
TYPES = st.sampled_from([np.float32, np.float64, np.complex64, np.complex128])


@st.composite
def matrices(draw: Any, square: bool = False, kind: str = "any") -> Any:
    """A batch of matrices; "regular" is far from singular, "hermitian" equals its conjugate transpose, "definite" has positive eigenvalues."""
    batch = draw(st.lists(st.integers(0, 3), max_size=2))
    m = draw(st.sampled_from([1, 2, 3, 5, 8]))
    n = m if square else draw(st.sampled_from([1, 2, 3, 5, 8]))
    d, rng = np.dtype(draw(TYPES)), np.random.default_rng(draw(st.integers(0, 2 ** 32 - 1)))
    a = rng.standard_normal((*batch, m, n))
    if d.kind == "c":
        a = a + 1j * rng.standard_normal(a.shape)
    if kind == "regular":
        a = a + 3 * n ** 0.5 * np.eye(n)
    if kind in ("hermitian", "definite"):
        h = np.conj(a.swapaxes(-1, -2))
        a = a + h if kind == "hermitian" else a @ h + np.eye(n)
    t = fb.from_numpy(np.asarray(a).astype(d))
    return t.mT.contiguous().mT if draw(st.booleans()) else t


def near(got: Any, want: Any, scale: float = 1.0) -> None:
    a, b = got.numpy(), want.numpy()
    assert a.shape == b.shape and a.dtype == b.dtype
    eps = (3e-5 if a.dtype in (np.float32, np.complex64) else 1e-11) * scale
    np.testing.assert_allclose(a, b, rtol=eps, atol=eps * max(1.0, float(np.abs(b).max(initial=0))))


def eye_like(a: Any) -> Any:
    return fb.eye(a.shape[-1], dtype=a.dtype).expand(*a.shape[:-2], -1, -1)


@quick
@given(matrices(), st.booleans())
def test_svd_and_qr(a: Any, full: bool) -> None:
    u, s, vh = L.svd(a, full)
    k = min(a.shape[-2:])
    near((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a)
    near(u.mH @ u, eye_like(u))
    near(vh @ vh.mH, eye_like(vh.mH))
    assert (s[..., :-1] >= s[..., 1:]).all() and (s >= 0).all()
    near(L.svdvals(a), s)
    q, r = L.qr(a, "complete" if full else "reduced")
    near(q @ r, a)
    near(q.mH @ q, eye_like(q))
    assert fb.equal(r.triu(), r)


@quick
@given(matrices(square=True, kind="definite"))
def test_cholesky(a: Any) -> None:
    low = L.cholesky(a)
    near(low @ low.mH, a)
    assert fb.equal(low.tril(), low) and fb.allclose(L.cholesky(a, upper=True), low.mH)
    b = fb.ones(*a.shape[:-1], 2, dtype=a.dtype)
    near(a @ fb.cholesky_solve(b, low), b, 20)
    near(fb.cholesky_inverse(low) @ a, eye_like(a), 50)


@quick
@given(matrices(square=True, kind="hermitian"))
def test_eigenvalues_of_hermitian_matrices(a: Any) -> None:
    w, v = L.eigh(a)
    near((v * w.unsqueeze(-2)) @ v.mH, a)
    near(v.mH @ v, eye_like(v))
    assert (w[..., :-1] <= w[..., 1:]).all()
    near(L.eigvalsh(a), w)
    near(w.sum(-1), a.diagonal(dim1=-2, dim2=-1).sum(-1).real if a.is_complex() else a.diagonal(dim1=-2, dim2=-1).sum(-1), 5)


@quick
@given(matrices(square=True))
def test_eigenvalues(a: Any) -> None:
    w, v = L.eig(a)
    near(a.to(v.dtype) @ v, v * w.unsqueeze(-2), 5)
    near(w.sum(-1), a.diagonal(dim1=-2, dim2=-1).sum(-1).to(w.dtype), 5)


@quick
@given(matrices(square=True, kind="regular"), st.integers(1, 3))
def test_lu_solutions_inverses_determinants(a: Any, columns: int) -> None:
    p, low, up = L.lu(a)
    near(p @ low @ up, a)
    assert fb.equal(low.tril(), low) and fb.equal(up.triu(), up)
    b = fb.randn(*a.shape[:-1], columns, dtype=a.dtype)
    near(a @ L.solve(a, b), b, 5)
    near(L.solve(a.mT, b.mT, left=False) @ a.mT if columns == a.shape[-1] else b, b.mT if columns == a.shape[-1] else b, 5)
    near(L.lu_solve(*L.lu_factor(a), b), L.solve(a, b), 5)
    near(L.inv(a) @ a, eye_like(a), 5)
    near(L.pinv(a), L.inv(a), 20)
    near(L.solve_triangular(up, b, upper=True), L.solve(up, b), 20)
    sign, size = L.slogdet(a)
    near(L.det(a), sign * size.exp().to(sign.dtype), 20)
    near(L.det(a @ a), L.det(a) * L.det(a), 100)
    near(L.matrix_power(a, 3), a @ a @ a, 5)
    near(L.matrix_power(a, -1), L.inv(a), 5)


@quick
@given(matrices(), st.sampled_from([1, 2, -1, -2, float("inf"), float("-inf"), "fro", "nuc"]))
def test_norms(a: Any, order: Any) -> None:
    if a.numel():
        want = np.linalg.norm(a.numpy(), order, axis=(-2, -1))
        near(L.matrix_norm(a, order), fb.from_numpy(np.asarray(want)), 20)
        near(L.vector_norm(a, 3, dim=(-2, -1)), (a.abs() ** 3).sum((-2, -1)) ** (1 / 3), 5)


@quick
@given(matrices(), matrices())
def test_products(a: Any, b: Any) -> None:
    if a.dtype is b.dtype and a.shape[:-2] == b.shape[:-2]:
        near(L.multi_dot([a, a.mH, a]) if a.dim() == 2 else a @ a.mH @ a, a @ (a.mH @ a), 5)
        near(fb.kron(a, b), fb.from_numpy(np.kron(a.numpy(), b.numpy())) if a.dim() == 2 else fb.kron(a, b), 5)
    near(fb.einsum("...ij,...kj->...ik", a, a.conj()), a @ a.mH, 5)


@quick
@given(matrices())
def test_least_squares(a: Any) -> None:
    """What is left over stands at right angles to the columns."""
    b = fb.randn(*a.shape[:-1], 2, dtype=a.dtype)
    if a.shape[-2] >= a.shape[-1]:
        x = L.lstsq(a, b).solution
        near(a.mH @ (a @ x - b), fb.zeros(*a.shape[:-2], a.shape[-1], 2, dtype=a.dtype), 300)


@quick
@given(matrices(), st.integers(0, 3))
def test_householder(a: Any, fewer: int) -> None:
    m, n = a.shape[-2:]
    if m >= n:
        packed, tau = fb.geqrf(a)
        q = L.householder_product(packed, tau)
        near(q @ packed[..., :n, :].triu(), a)
        near(q.mH @ q, eye_like(q))


@quick
@given(matrices(square=True, kind="hermitian"))
def test_indefinite(a: Any) -> None:
    made = L.ldl_factor(a, hermitian=True)
    b = fb.randn(*a.shape[:-1], 1, dtype=a.dtype)
    x = L.ldl_solve(made[0], made[1], b, hermitian=True)
    if a.numel() and float(L.cond(a).max()) < 50:
        near(a @ x, b, 100)


@quick
@given(matrices(square=True))
def test_exponentials(a: Any) -> None:
    a = a / max(1, a.shape[-1])
    near(fb.matrix_exp(a) @ fb.matrix_exp(-a), eye_like(a), 20)
    near(L.det(fb.matrix_exp(a)), a.diagonal(dim1=-2, dim2=-1).sum(-1).exp(), 50)

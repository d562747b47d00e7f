"""Singular values and vectors against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.linalg import LinAlgError
from tests import processes

TYPES = (np.float32, np.float64, np.complex64, np.complex128)
SHAPES = [(1, 1), (4, 4), (3, 5), (5, 3), (2, 3, 4, 2), (0, 0), (3, 0), (0, 3), (0, 2, 2), (40, 30)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("full", [True, False])
def test_svd(dtype, shape, full, make, close):
    a = make(shape, dtype)
    u, s, vh = fb.linalg.svd(fb.tensor(a), full_matrices=full)
    m, n = shape[-2:]
    k = min(m, n)
    assert u.shape == (*shape[:-1], m if full else k) and vh.shape == (*shape[:-2], n if full else k, n)
    assert s.dtype is fb.tensor(a).real.dtype
    close(s, np.linalg.svd(a, compute_uv=False).astype(s.numpy().dtype))
    close((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a)
    close(u.mH @ u, np.broadcast_to(np.eye(u.shape[-1], dtype=dtype), (*shape[:-2], u.shape[-1], u.shape[-1])))
    close(vh @ vh.mH, np.broadcast_to(np.eye(vh.shape[-2], dtype=dtype), (*shape[:-2], vh.shape[-2], vh.shape[-2])))
    close(fb.linalg.svdvals(fb.tensor(a)), s.numpy())
    older = fb.svd(fb.tensor(a), some=not full)
    close(older.V, vh.mH.resolve_conj().numpy())


def test_older_form_without_vectors(make):
    u, s, v = fb.svd(fb.tensor(make((4, 3))), compute_uv=False)
    assert u.shape == (4, 4) and v.shape == (3, 3) and not bool(u.any()) and not bool(v.any())
    np.testing.assert_allclose(s.numpy(), np.linalg.svd(make((4, 3)))[1])


def test_failures():
    for f in (fb.linalg.svd, fb.linalg.svdvals):
        with pytest.raises(LinAlgError, match="linalg.svd"):
            f(fb.full((2, 2), float("nan")))
        with pytest.raises(RuntimeError, match="only supported on CUDA"):
            f(fb.ones(2, 2), driver="gesvd")


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)])
@pytest.mark.parametrize("full", [True, False])
def test_gradients(dtype, shape, full, make, differentiable):
    a = make(shape, dtype, 2)
    k = min(shape[-2:])

    def invariant(x):
        # phases of the vectors are free, so functions of them that do not depend on phases
        u, s, vh = fb.linalg.svd(x, full_matrices=full)
        u, vh = u[..., :k], vh[..., :k, :]
        return u.abs(), s, vh.abs(), u[..., :1] @ vh[..., :1, :]
    differentiable(invariant, a)
    differentiable(fb.linalg.svdvals, a)


@pytest.mark.parametrize("shape", [(20, 8), (8, 20), (2, 9, 9)])
def test_low_rank(shape, make, close):
    m, n = shape[-2:]
    a = make((*shape[:-2], m, 3)) @ make((*shape[:-2], 3, n), seed=1)
    u, s, v = fb.svd_lowrank(fb.tensor(a), q=4)
    close((u * s.unsqueeze(-2)) @ v.mT, a, 1e5)
    u, s, v = fb.pca_lowrank(fb.tensor(a), q=4)
    centred = a - a.mean(-2, keepdims=True)
    close((u * s.unsqueeze(-2)) @ v.mT, centred, 1e5)
    mean = np.broadcast_to(a.mean(-2, keepdims=True), a.shape)
    close(fb.svd_lowrank(fb.tensor(a), q=4, M=fb.tensor(mean))[1][..., :3], np.linalg.svd(centred, compute_uv=False)[..., :3], 1e5)
    with pytest.raises(ValueError, match="must be non-negative integer and not greater than"):
        fb.pca_lowrank(fb.tensor(a), q=100)


def test_simulated_gpu(sim_gpus, make, close):
    a = make((3, 5, 4), np.float32)
    x = fb.tensor(a).cuda().requires_grad_()
    u, s, vh = fb.linalg.svd(x, full_matrices=False)
    close((u * s.unsqueeze(-2) @ vh).detach(), a)
    s.sum().backward()
    close(x.grad, (u @ vh).detach().cpu().numpy())


@pytest.mark.parametrize("n", [4, 60])
def test_matrices_that_are_not_finite_end(n):
    a = fb.ones(n, n)
    a[1, 2] = float("inf")
    for _ in range(5):
        assert fb.linalg.svdvals(a).isnan().all()
        u, s, vh = fb.linalg.svd(a)
        assert s.isnan().all()
        assert u.shape == vh.shape == (n, n)
    a[2, 1] = float("nan")
    for f in (fb.linalg.svd, fb.linalg.svdvals, fb.linalg.pinv):
        with pytest.raises(fb.linalg.LinAlgError, match="non-finite"):
            f(a)


ENDS = """
from flambeau.linalg import *
calls = {"svd": svd, "values": svdvals, "pinv": pinv, "rank": matrix_rank, "cond": cond, "norm": lambda x: matrix_norm(x, 2), "eigh": eigh, "qr": qr,
         "eig": eig, "exp": matrix_exp, "ldl": ldl_factor, "lu": lu_factor, "cholesky": cholesky, "det": slogdet, "lowrank": torch.svd_lowrank,
         **{d: lambda x, d=d: lstsq(x, x, driver=d) for d in ("gelsd", "gelss", "gelsy", "gels")}}
for n in (3, 5, 30):
    for shape in ((n, n), (n + 40, n), (n, n + 40), (2, n, n)):
        x = torch.eye(*shape[-2:]).repeat(*shape[:-2], 1, 1)
        x.view(-1)[0] = BAD
        for name, call in calls.items():
            print(name, shape, flush=True)
            try:
                call(x)
            except RuntimeError as error:
                assert str(error)
"""


@pytest.mark.parametrize("bad", ["inf", "-inf", "nan"])
def test_a_matrix_that_is_not_finite_ends_in_an_error_or_an_answer(bad):
    """LAPACK's iterations may never end on it."""
    processes.says(ENDS.replace("BAD", f"float('{bad}')"))

"""QR and products of reflectors, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy  # which imports its parts when they are first asked for

import flambeau as fb

TYPES = (np.float32, np.float64, np.complex64, np.complex128)
SHAPES = [(1, 1), (4, 4), (3, 5), (5, 3), (2, 3, 4, 2), (0, 0), (3, 0), (0, 3), (0, 2, 2)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr(dtype, shape, mode, make, close):
    a = make(shape, dtype)
    q, r = fb.linalg.qr(fb.tensor(a), mode)
    m, n = shape[-2:]
    k = m if mode == "complete" else min(m, n)
    assert r.shape == (*shape[:-2], k, n)
    np.testing.assert_array_equal(r.numpy(), np.triu(r.numpy()))
    if mode == "r":
        assert q.shape == (0,)
        close(r.mH @ r, a.conj().swapaxes(-1, -2) @ a)
    else:
        assert q.shape == (*shape[:-2], m, k)
        close(q @ r, a)
        close(q.mH @ q, np.broadcast_to(np.eye(k, dtype=dtype), (*shape[:-2], k, k)))


def test_older_name(make, close):
    a = make((4, 2))
    q, r = fb.qr(fb.tensor(a), some=False)
    assert q.shape == (4, 4)
    close(q @ r, a)
    with pytest.raises(RuntimeError, match="unrecognized mode 'x'"):
        fb.linalg.qr(fb.tensor(a), "x")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape, k", [((4, 4), 4), ((5, 3), 3), ((5, 3), 2), ((5, 3), 0), ((2, 4, 2), 2), ((0, 4, 2), 2)])
def test_products(dtype, shape, k, make, close):
    a, tau = make(shape, dtype), make((*shape[:-2], k), dtype, 1)
    q = np.broadcast_to(np.eye(shape[-2], dtype=dtype), (*shape[:-1], shape[-2])).copy()
    for i in range(k):
        v = np.concatenate([np.zeros((*shape[:-2], i)), np.ones((*shape[:-2], 1)), a[..., i + 1:, i]], -1)
        q = q - tau[..., i, None, None] * (q @ v[..., :, None]) @ v[..., None, :].conj()
    q = q.astype(dtype)
    close(fb.linalg.householder_product(fb.tensor(a), fb.tensor(tau)), q[..., :shape[-1]])
    close(fb.orgqr(fb.tensor(a), fb.tensor(tau)), q[..., :shape[-1]])
    c = make((*shape[:-2], shape[-2], 2), dtype, 2)
    h = q.conj().swapaxes(-1, -2)
    close(fb.ormqr(fb.tensor(a), fb.tensor(tau), fb.tensor(c)), (q @ c).astype(dtype))
    close(fb.ormqr(fb.tensor(a), fb.tensor(tau), fb.tensor(c), transpose=True), (h @ c).astype(dtype))
    close(fb.ormqr(fb.tensor(a), fb.tensor(tau), fb.tensor(c).mT, left=False), (c.swapaxes(-1, -2) @ q).astype(dtype))


def test_packed_form(make, close):
    a = make((5, 3))
    want, tau, _, _ = scipy.linalg.lapack.dgeqrf(a)
    got = fb.geqrf(fb.tensor(a))
    close(got.a, want)
    close(got.tau, tau)
    q = fb.linalg.householder_product(got.a, got.tau)
    close(q @ got.a[:3].triu(), a)


def test_failures(make):
    a = fb.tensor(make((3, 4)))
    with pytest.raises(RuntimeError, match="greater than or equal to input.shape"):
        fb.linalg.householder_product(a, fb.ones(3, dtype=fb.float64))
    with pytest.raises(RuntimeError, match="not differentiable when mode='complete' and nrows > ncols"):
        fb.linalg.qr(a.mT.clone().requires_grad_(), "complete")[0].sum().backward()
    with pytest.raises(RuntimeError, match="depends on Q, which is not computed when mode='r'"):
        fb.linalg.qr(a.clone().requires_grad_(), "r")[1].sum().backward()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)])
def test_gradients(dtype, shape, make, differentiable):
    a = make(shape, dtype)
    differentiable(lambda x: fb.linalg.qr(x), a)
    if shape[-2] >= shape[-1]:
        tau = make((*shape[:-2], shape[-1]), dtype, 1)
        differentiable(fb.linalg.householder_product, a, tau)
        differentiable(lambda x, t, c: fb.ormqr(x, t, c, transpose=True), a, tau, make((*shape[:-1], 2), dtype, 2), second=False)


def test_simulated_gpu(sim_gpus, make, close):
    a = make((3, 5, 4), np.float32)
    q, r = fb.linalg.qr(fb.tensor(a).cuda())
    close((q @ r).cpu(), a)


@pytest.mark.parametrize("dtype", TYPES)
def test_products_of_reflectors_are_the_same_with_and_without_a_history(dtype, make, close):
    a, tau = fb.geqrf(fb.tensor(make((3, 5, 4), dtype)))
    c = fb.tensor(make((3, 5, 5), dtype, 1))
    for t in (a, a.contiguous()):
        recorded = t.detach().clone().requires_grad_(True)
        close(fb.linalg.householder_product(t, tau), fb.linalg.householder_product(recorded, tau).detach().numpy())
        close(fb.linalg.householder_product(t[..., :3], tau[..., :2]), fb.linalg.householder_product(recorded[..., :3], tau[..., :2]).detach().numpy())
        for left in (True, False):
            for transpose in (True, False):
                close(fb.ormqr(t, tau, c, left, transpose), fb.ormqr(recorded, tau, c, left, transpose).detach().numpy())

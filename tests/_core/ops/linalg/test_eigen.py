"""Eigenvalues and eigenvectors against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

TYPES = (np.float32, np.float64, np.complex64, np.complex128)
SHAPES = [(1, 1), (5, 5), (3, 4, 4), (0, 0), (0, 3, 3), (2, 0, 0), (40, 40)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_hermitian(dtype, shape, uplo, make, close):
    a = make(shape, dtype)
    whole = np.tril(a) + np.tril(a, -1).conj().swapaxes(-1, -2) if uplo == "L" else np.triu(a) + np.triu(a, 1).conj().swapaxes(-1, -2)
    whole = whole - 1j * (whole * np.eye(shape[-1])).imag if np.dtype(dtype).kind == "c" else whole
    whole = whole.astype(dtype)
    w, v = fb.linalg.eigh(fb.tensor(a), uplo)
    close(w, np.linalg.eigvalsh(whole).astype(w.numpy().dtype))
    close((v * w.unsqueeze(-2)) @ v.mH, whole)
    close(v.mH @ v, np.broadcast_to(np.eye(shape[-1], dtype=dtype), shape))
    close(fb.linalg.eigvalsh(fb.tensor(a), uplo), w.numpy())


def test_not_a_number(make):
    a = make((2, 3, 3))
    a[1, 0, 0] = np.nan
    w, v = fb.linalg.eigh(fb.tensor(a))
    assert np.isnan(w[1].numpy()).all() and np.isnan(v[1].numpy()).all() and np.isfinite(w[0].numpy()).all()
    with pytest.raises(RuntimeError, match="torch.linalg.eig: input tensor should not contain infs or NaNs"):
        fb.linalg.eig(fb.tensor(a))
    with pytest.raises(RuntimeError, match="Expected UPLO argument to be 'L' or 'U', but got X"):
        fb.linalg.eigh(fb.tensor(a), "X")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_general(dtype, shape, make, close):
    a = make(shape, dtype)
    w, v = fb.linalg.eig(fb.tensor(a))
    assert w.dtype is v.dtype and w.dtype.is_complex
    close(fb.tensor(a).to(v.dtype) @ v, (v * w.unsqueeze(-2)).numpy(), 2000)
    close((v.abs() ** 2).sum(-2), np.ones(w.shape, np.float32 if np.finfo(dtype).bits == 32 else np.float64))
    values = fb.linalg.eigvals(fb.tensor(a)).numpy()
    np.testing.assert_allclose(np.sort_complex(values.round(3)), np.sort_complex(np.linalg.eigvals(a).round(3)).astype(values.dtype), atol=5e-3)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_gradients(dtype, make, differentiable):
    a = make((2, 3, 3), dtype, 3)

    def hermitian(x):
        w, v = fb.linalg.eigh(x + x.mH)
        return w, v.abs(), v[..., :1] @ v[..., :1].mH
    differentiable(hermitian, a)
    differentiable(lambda x: fb.linalg.eigvalsh(x + x.mH), a)

    def general(x):
        w, v = fb.linalg.eig(x)
        return w, v.abs()
    differentiable(general, a)
    differentiable(fb.linalg.eigvals, a)


def test_simulated_gpu(sim_gpus, make, close):
    a = make((3, 4, 4))
    a = a + a.swapaxes(-1, -2)
    w, v = fb.linalg.eigh(fb.tensor(a).cuda())
    close(w, np.linalg.eigvalsh(a))
    assert fb.linalg.eigvals(fb.tensor(a).cuda()).device.type == "cuda"


def test_a_triangle_that_is_not_read_may_hold_anything():
    a = np.array([[2.0, np.nan], [1.0, 3.0]])
    want = np.linalg.eigvalsh(np.array([[2.0, 1.0], [1.0, 3.0]]))
    np.testing.assert_allclose(fb.linalg.eigvalsh(fb.tensor(a)).numpy(), want)
    np.testing.assert_allclose(fb.linalg.eigh(fb.tensor(a.T.copy()), UPLO="U")[0].numpy(), want)
    assert fb.linalg.eigvalsh(fb.tensor(a), UPLO="U").isnan().all()

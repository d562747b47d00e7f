"""Determinants against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

TYPES = (np.float32, np.float64, np.complex64, np.complex128)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 4, 4), (0, 0), (0, 3, 3), (2, 0, 0)])
def test_values(dtype, shape, make, close):
    a = make(shape, dtype)
    want = np.linalg.det(a).astype(dtype)
    for f in (fb.det, fb.linalg.det, fb.Tensor.det):
        close(f(fb.tensor(a)), want)
    sign, size = np.linalg.slogdet(a)
    got = fb.linalg.slogdet(fb.tensor(a))
    close(got.sign, sign.astype(dtype))
    close(got.logabsdet, size.astype(got.logabsdet.numpy().dtype))
    log = fb.logdet(fb.tensor(a)).numpy()
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(np.exp(log), want if np.dtype(dtype).kind == "c" else np.where(want < 0, np.nan, want), rtol=1e-3)


def test_singular():
    sign, size = fb.linalg.slogdet(fb.zeros(2, 2))
    assert sign.item() == 0 and size.item() == -np.inf
    assert fb.det(fb.zeros(3, 3)).item() == 0
    assert fb.logdet(fb.zeros(3, 3)).item() == -np.inf


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_gradients(dtype, make, regular, differentiable):
    a = regular((2, 3, 3), dtype)
    differentiable(fb.det, a)
    differentiable(fb.linalg.slogdet, a)
    differentiable(fb.logdet, a)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_gradients_of_singular_matrices(dtype, make, differentiable):
    a = make((3, 2), dtype) @ make((2, 3), dtype, 1)
    differentiable(fb.det, a, second=False)
    a[2] = 0
    differentiable(fb.det, a, second=False)
    differentiable(fb.det, make((3, 1), dtype) @ make((1, 3), dtype, 1), second=False)
    differentiable(fb.det, np.zeros((3, 3), dtype), second=False)


def test_simulated_gpu(sim_gpus, make, close):
    a = make((3, 4, 4))
    x = fb.tensor(a).cuda().requires_grad_()
    got = fb.det(x)
    close(got.detach(), np.linalg.det(a))
    got.sum().backward()
    close(x.grad, np.linalg.det(a)[:, None, None] * np.linalg.inv(a).swapaxes(-1, -2), 1e4)

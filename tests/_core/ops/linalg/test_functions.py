"""Powers and exponentials of matrices against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.linalg import LinAlgError


def expm(a):
    """Taylor's series of a / 1024, squared ten times, in long doubles: SciPy's own loses three digits at norms of 20."""
    x = a.astype(np.clongdouble if a.dtype.kind == "c" else np.longdouble) / 1024
    total = term = np.broadcast_to(np.eye(a.shape[-1], dtype=x.dtype), x.shape)
    for k in range(1, 25):
        term = term @ x / k
        total = total + term
    for _ in range(10):
        total = total @ total
    return total.astype(a.dtype)


TYPES = (np.float32, np.float64, np.complex64, np.complex128)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 4, 4), (0, 0), (0, 3, 3)])
@pytest.mark.parametrize("scale", [1e-3, 1, 20])
def test_exponential(dtype, shape, scale, make, close):
    a = (make(shape, dtype) * scale / max(shape[-1], 1)).astype(dtype)
    want = expm(a)
    close(fb.linalg.matrix_exp(fb.tensor(a)), want, 2000)
    close(fb.matrix_exp(fb.tensor(a)), want, 2000)


def test_exponentials_of_unlike_sizes(make, close):
    a = make((4, 3, 3)) * np.array([1e-8, 1, 30, 0])[:, None, None]
    close(fb.matrix_exp(fb.tensor(a)), expm(a), 1e5)
    assert np.isnan(fb.matrix_exp(fb.full((2, 2), float("nan"))).numpy()).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 6, -1, -3])
def test_powers(dtype, n, regular, close):
    a = (regular((2, 3, 3), dtype) / 4).astype(dtype)
    want = np.linalg.matrix_power(a, n).astype(dtype)
    close(fb.linalg.matrix_power(fb.tensor(a), n), want, 5000)
    close(fb.tensor(a).matrix_power(n), want, 5000)


def test_powers_of_views_are_fresh(regular):
    t = fb.tensor(regular((3, 3)))
    assert fb.linalg.matrix_power(t, 1).data_ptr() != t.data_ptr()


def test_failures():
    with pytest.raises(LinAlgError):
        fb.linalg.matrix_power(fb.zeros(2, 2), -1)
    with pytest.raises(RuntimeError, match="square matrices, but they are 2 by 3"):
        fb.linalg.matrix_power(fb.zeros(2, 3), 2)
    with pytest.raises(RuntimeError, match="square matrices, but they are 2 by 3"):
        fb.matrix_exp(fb.zeros(2, 3))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_gradients(dtype, make, regular, differentiable):
    differentiable(fb.linalg.matrix_exp, make((2, 3, 3), dtype))
    for n in (0, 1, 3, -2):
        differentiable(lambda x, n=n: fb.linalg.matrix_power(x, n), regular((2, 2), dtype))


def test_simulated_gpu(sim_gpus, make, close):
    a = make((3, 4, 4))
    close(fb.matrix_exp(fb.tensor(a).cuda()), expm(a), 2000)

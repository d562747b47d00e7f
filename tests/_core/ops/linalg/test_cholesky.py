"""Cholesky's factorization against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.linalg import LinAlgError

TYPES = (np.float32, np.float64, np.complex64, np.complex128)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 4, 4), (2, 3, 2, 2), (0, 0), (0, 3, 3), (2, 0, 0)])
def test_factor(dtype, shape, definite, close):
    a = definite(shape, dtype)
    want = np.linalg.cholesky(a)
    close(fb.linalg.cholesky(fb.tensor(a)), want)
    close(fb.linalg.cholesky(fb.tensor(a), upper=True), want.conj().swapaxes(-1, -2))
    close(fb.cholesky(fb.tensor(a)), want)
    assert fb.linalg.cholesky(fb.tensor(a)).dtype is fb.tensor(a).dtype


def test_one_triangle_is_read(definite, close):
    a = definite((4, 4))
    want = np.linalg.cholesky(a)
    close(fb.linalg.cholesky(fb.tensor(np.tril(a))), want)
    close(fb.linalg.cholesky(fb.tensor(np.triu(a)), upper=True), want.T)


def test_strided_input(definite, close):
    a = definite((6, 6))
    close(fb.linalg.cholesky(fb.tensor(a)[::2, ::2]), np.linalg.cholesky(a[::2, ::2]))
    close(fb.linalg.cholesky(fb.tensor(a).t()), np.linalg.cholesky(a))
    close(fb.linalg.cholesky(fb.tensor(a).expand(2, 6, 6)), np.linalg.cholesky(np.stack([a, a])))


def test_failures(definite):
    a = definite((3, 3, 3))
    a[1, 1, 1] = -5
    with pytest.raises(LinAlgError, match=r"linalg.cholesky: \(Batch element 1\): .* not positive-definite \(the leading minor of order 2"):
        fb.linalg.cholesky(fb.tensor(a))
    result = fb.linalg.cholesky_ex(fb.tensor(a))
    assert result.info.tolist() == [0, 2, 0] and result.info.dtype is fb.int32
    np.testing.assert_allclose(result.L[0].numpy(), np.linalg.cholesky(a[0]))
    with pytest.raises(LinAlgError, match="linalg.cholesky_ex"):
        fb.linalg.cholesky_ex(fb.tensor(a), check_errors=True)
    with pytest.raises(RuntimeError, match="square matrices, but they are 2 by 3"):
        fb.linalg.cholesky(fb.ones(2, 3))
    assert issubclass(LinAlgError, RuntimeError)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("upper", [False, True])
def test_solving(dtype, upper, definite, make, close):
    a, b = definite((2, 4, 4), dtype), make((4, 3), dtype, 1)
    l = fb.linalg.cholesky(fb.tensor(a), upper=upper)
    close(fb.cholesky_solve(fb.tensor(b), l, upper), np.linalg.solve(a, np.broadcast_to(b, (2, 4, 3))).astype(dtype), 2000)
    close(fb.cholesky_inverse(l, upper), np.linalg.inv(a).astype(dtype), 2000)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("upper", [False, True])
def test_gradients(dtype, upper, definite, make, differentiable):
    a, b = definite((2, 3, 3), dtype), make((2, 3, 2), dtype, 1)

    def factor(x):
        return fb.linalg.cholesky((x + x.mH) / 2, upper=upper)
    differentiable(factor, a)
    differentiable(lambda y, x: fb.cholesky_solve(y, factor(x), upper), b, a)
    differentiable(lambda x: fb.cholesky_inverse(factor(x), upper), a, second=False)


def test_simulated_gpu(sim_gpus, definite, close):
    a = definite((5, 4, 4), np.float32)
    l = fb.linalg.cholesky(fb.tensor(a).cuda())
    assert l.device.type == "cuda"
    close(l, np.linalg.cholesky(a))

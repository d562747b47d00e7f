"""Products of vectors, Vandermonde matrices and equations of tensors against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

TYPES = (np.float32, np.float64, np.complex64, np.complex128)


@pytest.mark.parametrize("dtype", [*TYPES, np.int32])
def test_cross(dtype, make, close):
    a, b = (make((4, 3), np.float64) * 9).astype(dtype), (make((5, 1, 3), np.float64, 1) * 9).astype(dtype)
    want = np.cross(a, b[0])
    np.testing.assert_allclose(fb.linalg.cross(fb.tensor(a), fb.tensor(b[0])).numpy(), want, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(fb.cross(fb.tensor(a.T.copy()), fb.tensor(np.broadcast_to(b[0].T, (3, 4)))).numpy(), want.T, rtol=1e-4, atol=1e-3)
    with pytest.raises(RuntimeError, match="same number of dimensions"):
        fb.linalg.cross(fb.tensor(a), fb.tensor(b))
    with pytest.raises(RuntimeError, match="no dimension of size 3 in input"):
        fb.cross(fb.ones(2, 4), fb.ones(2, 4))
    with pytest.raises(RuntimeError, match="inputs dimension -1 must have length 3. Got 3 and 4"):
        fb.linalg.cross(fb.ones(3, 3), fb.ones(3, 4))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("a, b, dim", [((4,), (4,), -1), ((2, 3, 4), (3, 4), -1), ((2, 3), (2, 3), 0), ((2, 0), (2, 0), -1), ((0, 3), (0, 3), -1)])
def test_vecdot(dtype, a, b, dim, make, close):
    x, y = make(a, dtype), make(b, dtype, 1)
    close(fb.linalg.vecdot(fb.tensor(x), fb.tensor(y), dim=dim), (x.conj() * y).sum(dim))


def test_vander(make, close):
    a = make((4,))
    close(fb.linalg.vander(fb.tensor(a)), np.vander(a, increasing=True))
    close(fb.linalg.vander(fb.tensor(a), N=6), np.vander(a, 6, increasing=True))
    close(fb.vander(fb.tensor(a)), np.vander(a))
    close(fb.vander(fb.tensor(a), 2, increasing=True), np.vander(a, 2, increasing=True))
    assert fb.vander(fb.tensor([1, 2, 3])).tolist() == np.vander([1, 2, 3]).tolist() and fb.vander(fb.tensor([1, 2])).dtype is fb.int64
    assert fb.vander(fb.tensor(a), 0).shape == (4, 0)
    assert fb.linalg.vander(fb.tensor(make((2, 3)))).shape == (2, 3, 3)
    with pytest.raises(RuntimeError, match="N must be greater than 1"):
        fb.linalg.vander(fb.tensor(a), N=1)


def test_tensor_equations(make, close):
    a, b = make((2, 3, 6)), make((2, 3), seed=1)
    close(fb.linalg.tensorinv(fb.tensor(a)), np.linalg.tensorinv(a), 2000)
    close(fb.linalg.tensorsolve(fb.tensor(a), fb.tensor(b)), np.linalg.tensorsolve(a, b), 2000)
    a = make((3, 4, 6, 4, 1, 2))[:, :, :, :2, :, :]
    a, b = make((6, 4, 6, 4)), make((6, 4), seed=1)
    close(fb.linalg.tensorsolve(fb.tensor(a), fb.tensor(b), dims=(0, 1)), np.linalg.tensorsolve(a, b, axes=(0, 1)), 1e5)
    with pytest.raises(RuntimeError, match="strictly positive integer for 'ind'"):
        fb.linalg.tensorinv(fb.tensor(a), 0)
    with pytest.raises(RuntimeError, match="Expected self to satisfy the requirement"):
        fb.linalg.tensorsolve(fb.ones(3, 3), fb.ones(2))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_gradients(dtype, make, regular, differentiable):
    differentiable(fb.linalg.cross, make((2, 3), dtype), make((2, 3), dtype, 1))
    differentiable(fb.linalg.vecdot, make((2, 3), dtype), make((2, 3), dtype, 1))
    differentiable(fb.linalg.vander, make((3,), dtype))
    differentiable(lambda x: fb.linalg.tensorinv(x, 1), regular((3, 3), dtype))
    differentiable(fb.linalg.tensorsolve, regular((4, 4), dtype), make((4,), dtype, 1))

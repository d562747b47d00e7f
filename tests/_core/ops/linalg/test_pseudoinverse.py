"""Pseudoinverses, ranks and least squares against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

TYPES = (np.float32, np.float64, np.complex64, np.complex128)
SHAPES = [(1, 1), (4, 4), (3, 5), (5, 3), (2, 3, 4, 2), (3, 0), (0, 3), (0, 2, 2)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_inverse(dtype, shape, make, close):
    a = make(shape, dtype)
    close(fb.linalg.pinv(fb.tensor(a)), np.linalg.pinv(a).astype(dtype), 2000)
    close(fb.pinverse(fb.tensor(a)), np.linalg.pinv(a).astype(dtype), 2000)
    if shape[-1] == shape[-2]:
        h = (a + a.conj().swapaxes(-1, -2)).astype(dtype)
        close(fb.linalg.pinv(fb.tensor(h), hermitian=True), np.linalg.pinv(h).astype(dtype), 2000)


def test_tolerances(close):
    a = np.diag([1.0, 1e-3, 1e-6])
    for kwargs, inverse, rank in (({}, [1, 1e3, 1e6], 3), ({"rtol": 1e-4}, [1, 1e3, 0], 2), ({"atol": 1e-2}, [1, 0, 0], 1),
                                  ({"atol": 1e-4, "rtol": 1e-2}, [1, 0, 0], 1), ({"atol": fb.tensor(1e-4)}, [1, 1e3, 0], 2)):
        close(fb.linalg.pinv(fb.tensor(a), **kwargs), np.diag(inverse).astype(float))
        assert fb.linalg.matrix_rank(fb.tensor(a), **kwargs).item() == rank
        assert fb.linalg.matrix_rank(fb.tensor(-a), hermitian=True, **kwargs).item() == rank
    close(fb.linalg.pinv(fb.tensor(a), 1e-4), np.diag([1.0, 1e3, 0]))
    assert fb.linalg.matrix_rank(fb.tensor(a), 1e-4).item() == 2
    assert fb.linalg.matrix_rank(fb.ones(2, 0, 3)).tolist() == [0, 0]
    assert fb.linalg.matrix_rank(fb.ones(2, 3, 4)).dtype is fb.int64


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)])
def test_gradients(dtype, shape, make, differentiable):
    differentiable(fb.linalg.pinv, make(shape, dtype))
    m, n = shape[-2:]
    # rank 1, kept so by the product
    differentiable(lambda x, y: fb.linalg.pinv(x @ y), make((*shape[:-1], 1), dtype), make((*shape[:-2], 1, n), dtype, 1))


def test_gradient_of_hermitian(make, differentiable):
    differentiable(lambda x: fb.linalg.pinv(x + x.mH, hermitian=True), make((3, 3), np.complex128))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("a, b", [((5, 3), (5, 2)), ((3, 5), (3, 2)), ((4, 4), (4, 1)), ((2, 5, 3), (2, 5, 2)), ((2, 5, 3), (2, 5)), ((70, 60), (70, 3)),
                                  ((0, 3), (0, 2)), ((3, 0), (3, 2)), ((0, 5, 3), (0, 5, 2)), ((2, 1, 5, 3), (3, 5, 2))])
def test_least_squares(dtype, driver, a, b, make, close):
    x, y = make(a, dtype), make(b, dtype, 1)
    got = fb.linalg.lstsq(fb.tensor(x), fb.tensor(y), driver=driver)
    vector = b == a[:-1]
    right = y[..., None] if vector else y
    want = (np.linalg.pinv(x) @ right).astype(dtype)
    close(got.solution, want[..., 0] if vector else want, 5000)
    m, n = a[-2:]
    lead = want.shape[:-2]
    if m > n and driver not in (None, "gelsy"):
        close(got.residuals, (np.abs(x @ want - right) ** 2).sum(-2).astype(np.float32 if np.finfo(dtype).bits == 32 else np.float64), 5000)
    else:
        assert got.residuals.numel() == 0
    if driver == "gels":
        assert got.rank.shape == (0,)
    else:
        assert got.rank.tolist() == np.full(lead, min(m, n)).tolist() and got.rank.dtype is fb.int64
    if driver in ("gelsd", "gelss"):
        close(got.singular_values, np.broadcast_to(np.linalg.svd(x, compute_uv=False), (*lead, min(m, n))), 5000)
    else:
        assert got.singular_values.numel() == 0


def test_least_squares_of_low_rank(make, close):
    a = make((5, 2)) @ make((2, 4), seed=1)
    for driver in ("gelsy", "gelsd", "gelss"):
        got = fb.linalg.lstsq(fb.tensor(a), fb.ones(5, 1, dtype=fb.float64), driver=driver)
        assert got.rank.item() == 2 and got.residuals.numel() == 0
        close(got.solution, np.linalg.lstsq(a, np.ones((5, 1)), rcond=None)[0], 5000)
    with pytest.raises(RuntimeError, match="parameter `driver` should be one of"):
        fb.linalg.lstsq(fb.tensor(a), fb.ones(5, 1, dtype=fb.float64), driver="x")
    with pytest.raises(RuntimeError, match=r"input.size\(-2\) should match other.size\(-2\)"):
        fb.linalg.lstsq(fb.tensor(a), fb.ones(4, 1, dtype=fb.float64))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3), (2, 4, 3)])
def test_gradients_of_least_squares(dtype, shape, make, differentiable):
    a, b = make(shape, dtype), make((*shape[:-1], 2), dtype, 1)
    differentiable(lambda x, y: fb.linalg.lstsq(x, y)[0], a, b)
    if shape[-2] > shape[-1]:
        differentiable(lambda x, y: fb.linalg.lstsq(x, y, driver="gels")[:2], a, b)


def test_simulated_gpu(sim_gpus, make, close):
    a, b = make((3, 5, 3)), make((3, 5, 2))
    close(fb.linalg.lstsq(fb.tensor(a).cuda(), fb.tensor(b).cuda()).solution, np.linalg.pinv(a) @ b)
    close(fb.linalg.pinv(fb.tensor(a).cuda()), np.linalg.pinv(a))
    with pytest.raises(RuntimeError, match="not supported on CUDA"):
        fb.linalg.lstsq(fb.tensor(a).cuda(), fb.tensor(b).cuda(), driver="gelsd")


@pytest.mark.parametrize("driver", ["gelsd", "gelss"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_least_squares_by_the_svd_refuse_what_is_not_finite(driver, value):
    a = fb.ones(40, 30)
    a[1, 2] = value
    with pytest.raises(fb.linalg.LinAlgError, match="non-finite"):
        fb.linalg.lstsq(a, fb.ones(40, 1), driver=driver)

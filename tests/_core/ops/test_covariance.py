"""Covariance and correlation against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import gradcheck


def values(*shape, dtype=np.float64):
    rng = np.random.default_rng(0)
    a = rng.normal(size=shape)
    return (a + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else a).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 6), (1, 6), (6,)])
def test_cov(dtype, shape):
    a = values(*shape, dtype=dtype)
    f, w = np.array([1, 2, 0, 3, 1, 1]), np.array([0.5, 1, 2, 0.1, 1, 1])
    for ours, theirs in (({}, {}), ({"correction": 0}, {"ddof": 0}), ({"fweights": fb.tensor(f)}, {"fweights": f}),
                         ({"aweights": fb.tensor(w)}, {"aweights": w}),
                         ({"fweights": fb.tensor(f), "aweights": fb.tensor(w), "correction": 1}, {"fweights": f, "aweights": w})):
        want = np.cov(a, **theirs)
        got = fb.cov(fb.tensor(a), **ours)
        assert got.shape == want.shape
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4 if dtype == np.float32 else 1e-9, atol=1e-6 if dtype == np.float32 else 1e-12)


def test_corrcoef():
    a = values(3, 7)
    np.testing.assert_allclose(fb.corrcoef(fb.tensor(a)).numpy(), np.corrcoef(a), rtol=1e-12)
    assert fb.corrcoef(fb.tensor(a[0])).item() == 1.0
    c = values(3, 7, dtype=np.complex128)
    np.testing.assert_allclose(fb.corrcoef(fb.tensor(c)).numpy(), np.corrcoef(c), rtol=1e-12)


def test_failures():
    with pytest.raises(RuntimeError, match="two or fewer dimensions"):
        fb.cov(fb.ones(2, 2, 2))
    with pytest.raises(RuntimeError, match="fweights to have integral dtype"):
        fb.cov(fb.ones(2, 2), fweights=fb.ones(2))
    with pytest.raises(RuntimeError, match="aweights to have floating point dtype"):
        fb.cov(fb.ones(2, 2), aweights=fb.ones(2, dtype=fb.int64))
    with pytest.raises(RuntimeError, match="fweights cannot be negative"):
        fb.cov(fb.ones(2, 2), fweights=fb.tensor([-1, 2]))
    with pytest.raises(RuntimeError, match="same numel as there are observations"):
        fb.cov(fb.ones(2, 2), aweights=fb.ones(3))
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert np.isnan(fb.cov(fb.tensor([3.0])).item())


def test_gradients():
    a = fb.tensor(values(3, 5), requires_grad=True)
    assert gradcheck(fb.cov, (a,))
    assert gradcheck(fb.corrcoef, (a,))

"""Matrix products against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck


def random(shape, dtype=np.float64, seed=0):
    a = np.random.default_rng(seed).normal(size=shape)
    return a.astype(dtype) if np.dtype(dtype).kind != "c" else (a + 1j * a[..., ::-1]).astype(dtype)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.booleans(), st.booleans(), st.sampled_from([np.float32, np.float64, np.complex64]))
def test_any_size_and_orientation(m, k, n, ta, tb, dtype):
    a, b = random((k, m) if ta else (m, k), dtype), random((n, k) if tb else (k, n), dtype, 1)
    x, y = fb.from_numpy(a), fb.from_numpy(b)
    got = (x.t() if ta else x) @ (y.t() if tb else y)
    want = (a.T if ta else a) @ (b.T if tb else b)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("a,b", [((5,), (5,)), ((3, 5), (5,)), ((5,), (5, 3)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((7, 1, 3, 4), (2, 4, 5)),
                                 ((2, 3, 4), (4,)), ((4,), (2, 4, 3)), ((0, 3), (3, 2)), ((2, 0), (0, 3))])
def test_rank_rules(a, b):
    x, y = random(a), random(b, seed=1)
    np.testing.assert_allclose((fb.tensor(x) @ fb.tensor(y)).numpy(), np.matmul(x, y), atol=1e-12)


@pytest.mark.parametrize("dtype", [fb.int64, fb.int32, fb.uint8, fb.float16, fb.bfloat16])
def test_other_types(dtype):
    a, b = np.random.default_rng(0).integers(0, 9, (6, 7)), np.random.default_rng(1).integers(0, 9, (7, 5))
    got = fb.tensor(a).to(dtype) @ fb.tensor(b).to(dtype)
    assert got.dtype is dtype
    want = fb.tensor(a @ b).to(dtype)
    np.testing.assert_array_equal(got.double().numpy(), want.double().numpy())


def test_big_products_run_on_several_threads():
    a, b = random((700, 300), np.float32), random((300, 900), np.float32, 1)
    np.testing.assert_allclose((fb.from_numpy(a) @ fb.from_numpy(b)).numpy(), a @ b, rtol=1e-3, atol=1e-3)
    a, b = random((9, 128, 128), np.float32), random((9, 128, 128), np.float32, 1)
    np.testing.assert_allclose(fb.bmm(fb.from_numpy(a), fb.from_numpy(b)).numpy(), a @ b, rtol=1e-3, atol=1e-3)


FORMS = {"mm": lambda a, b: a @ b, "linear": lambda a, b: fb.nn.functional.linear(a, b.t(), b[0]), "addmm": lambda a, b: fb.addmm(b[0], a, b, beta=2, alpha=3)}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients(name):
    a, b = (fb.tensor(random(s, seed=i), requires_grad=True) for i, s in enumerate([(2, 3), (3, 4)]))
    assert gradcheck(FORMS[name], (a, b)) and gradgradcheck(FORMS[name], (a, b))


def test_errors():
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 4x5\)"):
        fb.zeros(2, 3) @ fb.zeros(4, 5)
    with pytest.raises(RuntimeError, match="same dtype"):
        fb.zeros(2, 3) @ fb.zeros(3, 2, dtype=fb.float64)


def test_on_every_device(device):
    a, b = random((20, 30), np.float32), random((30, 10), np.float32, 1)
    np.testing.assert_allclose((fb.from_numpy(a).to(device) @ fb.from_numpy(b).to(device)).cpu().numpy(), a @ b, rtol=1e-4, atol=1e-4)

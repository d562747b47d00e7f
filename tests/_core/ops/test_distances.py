"""Distances against SciPy, and slices brought to a norm."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy  # which imports its parts when they are first asked for

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck


def points(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("p", [0.5, 1, 2, 3.5, float("inf")])
@pytest.mark.parametrize("n, m", [(4, 3), (40, 30)])
def test_cdist(p, n, m):
    a, b = points(n, 5), points(m, 5, seed=1)
    want = scipy.spatial.distance.cdist(a, b, "chebyshev") if np.isinf(p) else scipy.spatial.distance.cdist(a, b, "minkowski", p=p)
    np.testing.assert_allclose(fb.cdist(fb.tensor(a), fb.tensor(b), p).numpy(), want, rtol=1e-6, atol=1e-6)
    for mode in ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"):
        np.testing.assert_allclose(fb.cdist(fb.tensor(a), fb.tensor(b), p, mode).numpy(), want, rtol=1e-6, atol=1e-6)


def test_cdist_counts_broadcasts_and_nothing():
    a, b = fb.tensor([[1.0, 2, 3]]), fb.tensor([[1.0, 0, 0], [1, 2, 3]])
    assert fb.cdist(a, b, 0).tolist() == [[2.0, 0.0]]
    assert fb.cdist(fb.ones(2, 1, 4, 3), fb.ones(5, 6, 3)).shape == (2, 5, 4, 6)
    assert fb.cdist(fb.ones(0, 3), fb.ones(2, 3)).shape == (0, 2)
    assert fb.cdist(fb.ones(2, 0), fb.ones(3, 0)).tolist() == [[0.0] * 3] * 2
    np.testing.assert_allclose(fb.pdist(fb.tensor(points(5, 3))).numpy(), scipy.spatial.distance.pdist(points(5, 3)))


@pytest.mark.parametrize("call, text", [(lambda: fb.cdist(fb.ones(3), fb.ones(3, 3)), "at least 2D tensors, X1 got: 1D"),
                                        (lambda: fb.cdist(fb.ones(3, 2), fb.ones(3, 3)), "same number of columns. X1: 2 X2: 3"),
                                        (lambda: fb.cdist(fb.ones(3, 2), fb.ones(3, 2), -1), "non-negative p values"),
                                        (lambda: fb.renorm(fb.ones(3), 1, 0, 1), "at least 2 dimensions, got 1"),
                                        (lambda: fb.renorm(fb.ones(3, 3), -1, 0, 1), "non-positive-norm not supported")])
def test_failures(call, text):
    with pytest.raises(RuntimeError, match=text):
        call()


def test_gradients():
    a, b = (fb.tensor(points(2, n, 3, seed=n), requires_grad=True) for n in (4, 3))
    for p in (0.5, 1, 2, 3, float("inf")):
        assert gradcheck(lambda x, y, p=p: fb.cdist(x, y, p), (a, b))
        assert gradgradcheck(lambda x, y, p=p: fb.cdist(x, y, p), (a, b), atol=1e-4)
        fb.cdist(a, b[0], p).sum().backward()  # broadcast, without a second derivative
        shared = fb.autograd.grad(fb.cdist(a, b[0], p).sum(), b)[0]
        each = fb.autograd.grad(fb.cdist(a, b[:1], p).sum(), b, create_graph=True)[0]
        np.testing.assert_allclose(shared.numpy(), each.detach().numpy(), atol=1e-10)
    product = "use_mm_for_euclid_dist"
    assert gradcheck(lambda x, y: fb.cdist(x, y, 2.0, product), (a, b))
    assert gradgradcheck(lambda x, y: fb.cdist(x, y, 2.0, product), (a, b), atol=1e-4)
    same = fb.tensor(points(3, 2), requires_grad=True)
    fb.cdist(same, same, 2.0, product).sum().backward()
    assert np.isfinite(same.grad.numpy()).all()


def test_points_at_no_distance_have_no_gradient():
    for p in (0.5, 1, 2, 3, float("inf")):
        x = fb.tensor(points(3, 2), requires_grad=True)
        fb.cdist(x, x, p).sum().backward()
        assert np.isfinite(x.grad.numpy()).all()


def test_half_types_and_views():
    a, b = points(6, 8), points(5, 8, seed=1)
    got = fb.cdist(fb.tensor(a)[::2, ::2], fb.tensor(b.T.copy()).t()[:, 1::2], 3)
    np.testing.assert_allclose(got.numpy(), scipy.spatial.distance.cdist(a[::2, ::2], b[:, 1::2], "minkowski", p=3))
    np.testing.assert_allclose(fb.cdist(fb.tensor(a).half(), fb.tensor(b).half()).float().numpy(), scipy.spatial.distance.cdist(a, b), rtol=5e-3)


def test_renorm():
    a = points(4, 3) * 3
    norms = np.linalg.norm(a, axis=0)
    want = a * np.where(norms > 2, 2 / (norms + 1e-7), 1)
    np.testing.assert_allclose(fb.renorm(fb.tensor(a), 2, 1, 2).numpy(), want)
    t = fb.tensor(a)
    assert t.renorm_(2, 1, 2) is t
    np.testing.assert_allclose(t.numpy(), want)
    assert gradcheck(lambda x: fb.renorm(x, 3, 0, 1.5), (fb.tensor(a, requires_grad=True),))


@pytest.mark.parametrize("d", [fb.float16, fb.bfloat16])
def test_renorm_of_16_bits_rounds_once(d):
    rows = fb.tensor(np.random.default_rng(0).uniform(0.1, 0.9, (64, 96))).to(d)
    wide, narrow = rows.double().requires_grad_(), rows.clone().requires_grad_()
    want, got = fb.renorm(wide, 2, 0, 0.5), fb.renorm(narrow, 2, 0, 0.5)
    want.sum().backward()
    got.sum().backward()
    for found, exact in ((got.detach(), want.detach()), (narrow.grad, wide.grad), (rows.clone().renorm_(2, 0, 0.5), want.detach())):
        # half a unit in the last place, and a little of float32's
        assert found.dtype is d and bool(((found.double() - exact).abs() <= exact.abs() * fb.finfo(d).eps * 0.51 + 1e-7).all())


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, math.inf])
def test_distances_of_pairs_of_rows_are_those_of_all_pairs(p):
    for n, d in ((0, 3), (1, 3), (2, 1), (6, 4), (5, 0)):
        x = fb.tensor(np.random.default_rng(n).normal(size=(n, d)), dtype=fb.float64)
        i, j = np.triu_indices(n, 1)
        expected = np.linalg.norm(x.numpy()[i] - x.numpy()[j], p, axis=1) if d else np.zeros(len(i))
        np.testing.assert_allclose(fb.pdist(x, p).numpy(), expected)
        if n > 1 and d:
            assert gradcheck(lambda x: fb.pdist(x, p), (x.clone().requires_grad_(),)) if p else True
    same = fb.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]]).requires_grad_()
    fb.pdist(same).sum().backward()
    assert same.grad is not None and fb.isfinite(same.grad).all()


def test_distances_of_pairs_that_are_refused():
    with pytest.raises(RuntimeError, match="pdist only supports floating-point dtypes"):
        fb.pdist(fb.arange(6).reshape(3, 2))
    with pytest.raises(RuntimeError, match="pdist only supports non-negative p values"):
        fb.pdist(fb.rand(3, 2), -1.0)
    with pytest.raises(RuntimeError, match="2D tensors, got: 3D"):
        fb.pdist(fb.rand(3, 2, 2))

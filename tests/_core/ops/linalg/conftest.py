"""Matrices, and the check every differentiable operation here passes."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

TYPES = (np.float32, np.float64, np.complex64, np.complex128)


def _make(shape, dtype=np.float64, seed=0):
    """Numbers of a normal distribution; square matrices get a diagonal that keeps them far from singular."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        a = a + 1j * rng.normal(size=shape)
    return a.astype(dtype)


@pytest.fixture
def make():
    return _make


@pytest.fixture
def regular():
    """Square matrices far from singular."""
    def made(shape, dtype=np.float64, seed=0):
        a = _make(shape, dtype, seed)
        return (a + 2 * shape[-1] ** 0.5 * np.eye(shape[-1])).astype(dtype)
    return made


@pytest.fixture
def definite():
    """Hermitian positive-definite matrices."""
    def made(shape, dtype=np.float64, seed=0):
        a = _make(shape, dtype, seed)
        return (a @ a.conj().swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)
    return made


@pytest.fixture
def close():
    """Equality up to a few roundings of the type."""
    def check(got, want, factor=200):
        got = got.resolve_conj().cpu().numpy() if isinstance(got, fb.Tensor) else got
        eps = np.finfo(want.dtype).eps if np.asarray(want).dtype.kind in "fc" else 0
        scale = max(1.0, float(np.abs(want).max(initial=0)))
        np.testing.assert_allclose(got, want, rtol=factor * eps, atol=factor * eps * scale)
        assert got.shape == np.shape(want)
    return check


@pytest.fixture
def differentiable():
    """First and second derivatives against finite differences."""
    def check(f, *arrays, second=True):
        inputs = tuple(fb.tensor(a, requires_grad=True) for a in arrays)
        assert gradcheck(f, inputs, check_forward_ad=True)
        if second:
            assert gradgradcheck(f, inputs, atol=1e-4)
    return check

"""Matrices and jobs for the tests of linear algebra on the CPU."""

from __future__ import annotations

import numpy as np

from flambeau._core.drivers.cpu import factorizations
from flambeau._core.kernels.specs import Lapack


def make(d, batch, m, n, seed=0):
    """Matrices as NumPy has them."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(batch, m, n))
    return (a + 1j * rng.normal(size=a.shape) if d.is_complex else a).astype(d.np)


def columns(a):
    """A copy, column by column, which `rows` undoes."""
    return np.array(np.swapaxes(a, -1, -2), order="C")


def rows(a):
    return np.swapaxes(a, -1, -2)


def run(name, d, batch, sizes, *arrays):
    """Carries a job out over arrays, in workspace full of something."""
    made = factorizations.prepare(Lapack(name, d, batch, sizes))
    room = np.full(made.workspace + 64, 0xA5, np.uint8)
    room = room[-room.ctypes.data % 64:]
    made.entry(*(a.ctypes.data for a in arrays), *([room.ctypes.data] if made.workspace else []))


def near(got, want, factor=300):
    want = np.asarray(want)
    eps = np.finfo(got.dtype).eps
    np.testing.assert_allclose(got, want, rtol=factor * eps, atol=factor * eps * max(1, np.abs(want).max(initial=0)))


def infos(batch):
    return np.full(batch, 99, np.int32)


def adjoint(a):
    return rows(a).conj()


def definite(d, batch, n):
    a = make(d, batch, n, n)
    return a @ adjoint(a) + n * np.eye(n, dtype=d.np)

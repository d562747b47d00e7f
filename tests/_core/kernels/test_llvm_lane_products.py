"""Many small products in the lanes of vectors: what lies between and behind the matrices stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import complex64, float32, float64
from flambeau._core.kernels.llvm.handwritten import lane_products


@pytest.mark.parametrize("d", [float32, float64, complex64], ids=str)
@pytest.mark.parametrize("batch", [1, 7, 8, 16, 33, 5000])
@pytest.mark.parametrize("add", [False, True])
def test_steps_may_be_any(d, batch: int, add: bool) -> None:
    rng = np.random.default_rng(1)

    def drawn(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if d.is_complex else 0)).astype(d.np)
    m, n, k = 3, 5, 4
    a, b, c = drawn(batch, m + 2, k * 2)[:, 1:1 + m, ::2], drawn(n, k, batch).transpose(2, 1, 0), drawn(batch + 1, m, n + 1)
    before = c.copy()
    want = (before[:batch, :, :n] if add else 0) + a @ b
    steps = [tuple(x.strides[at] // d.itemsize for at in (1, 2, 0)) for x in (a, b, c)]
    lane_products.entry(d, m, n, k, *steps, batch, add)(c.ctypes.data, a.__array_interface__["data"][0], b.__array_interface__["data"][0])
    np.testing.assert_allclose(c[:batch, :, :n], want, rtol=0, atol=1e-5 if d is not float64 else 1e-14)
    np.testing.assert_array_equal(c[:, :, n], before[:, :, n])
    np.testing.assert_array_equal(c[batch], before[batch])

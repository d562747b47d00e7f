"""Products by OpenBLAS, cut into tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.drivers.cpu import blas
from flambeau._core.runtime import caches


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
    caches.forget()


def _with_threads(n: int, work: Any) -> bytes:
    torch.set_num_threads(n)
    caches.forget()
    made = work()
    return (torch.view_as_real(made) if made.is_complex() else made).numpy().tobytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("m,k,n", [(5, 3000, 77), (77, 3000, 5), (3, 20000, 3), (1, 4000, 500), (500, 4000, 1), (300, 300, 300), (17, 900, 2000)])
def test_results_do_not_depend_on_the_number_of_threads(dtype: Any, m: int, k: int, n: int) -> None:
    a, at, b = torch.randn(m, k, dtype=dtype), torch.randn(k, m, dtype=dtype), torch.randn(k, n, dtype=dtype)
    batch = torch.randn(5, k, n, dtype=dtype)
    for work in (lambda: a @ b, lambda: at.t() @ b, lambda: a @ batch):
        assert len({_with_threads(threads, work) for threads in (1, 2, 3, 4, 8)}) == 1
    wide = np.complex128 if dtype.is_complex else np.float64
    exact = a.numpy().astype(wide) @ b.numpy().astype(wide)
    np.testing.assert_allclose((a @ b).numpy(), exact, atol=float(torch.finfo(dtype).eps) * k * 4)


def test_tiles_are_chosen_by_the_sizes_alone() -> None:
    assert blas._tiling(5, 77, 3000) == (64, True) and blas._tiling(77, 5, 3000) == (64, False)
    assert blas._tiling(10, 20, 30) == (20, True)  # too little to share
    for longest in (100, 513, 5000, 100_000):
        length, along = blas._tiling(8, longest, 4000)
        assert along and length <= longest and -(-longest // length) <= 64

"""Products by OpenBLAS, cut into tiles."""

from __future__ import annotations

import subprocess
import sys
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


def test_tiles_are_chosen_by_sizes_and_layout_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "packs_always", lambda: True)
    assert blas._tiling(5, 77, 3000, True) == (64, True) and blas._tiling(77, 5, 3000, False) == (64, False)
    assert blas._tiling(10, 20, 30, True) == (20, True)  # too little to share
    for longest in (100, 513, 5000, 100_000):
        length, along = blas._tiling(8, longest, 4000, True)
        assert along and length <= longest and -(-longest // length) <= 64


def test_tiles_are_small_enough_for_kernels_that_pack_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "packs_always", lambda: False)
    for m, n, k in ((8, 1024, 1024), (31, 4096, 1000), (8, 4096, 4096), (5000, 9, 2000)):
        length, along = blas._tiling(m, n, k, True)
        assert along == (n >= m) and length % 16 == 0 and length * min(m, n) * k <= 1_000_000
    assert blas._tiling(8, 1024, 1024, False) == (112, True)  # columns of rows that lie apart: no tile narrower than a few lines
    assert blas._tiling(16, 1024, 1024, False) == (128, True) and blas._tiling(31, 4096, 20_000, True) == (128, True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("m, n, k", [(8, 1000, 1024), (20, 333, 2000), (1000, 9, 1100)])
def test_products_of_a_few_rows_against_numpy(dtype: Any, m: int, n: int, k: int) -> None:
    a, b, row = torch.randn(m, k, dtype=dtype), torch.randn(n, k, dtype=dtype), torch.randn(n, dtype=dtype)
    exact = a.double().numpy() @ b.double().numpy().T
    for made, want in ((a @ b.t(), exact), (a @ b.t().contiguous(), exact), (a.t().contiguous().t() @ b.t(), exact),
                       (torch.nn.functional.linear(a, b, row), exact + row.double().numpy())):
        np.testing.assert_allclose(made.numpy(), want, atol=float(torch.finfo(dtype).eps) * k * 4)
        assert len({_with_threads(threads, lambda: a @ b.t()) for threads in (1, 2, 4)}) == 1


def test_the_library_is_its_own_and_leaves_scipy_s_as_it_is() -> None:
    """Loaded for all to see, its LAPACK's helpers with 64-bit counts took the place of SciPy's, whose sizes of workspaces were then wrong."""
    program = """
import sys
import flambeau as torch
a = torch.eye(3) + 1
(a @ a).inverse(), torch.linalg.svd(a), torch.linalg.lstsq(a, a)
assert "scipy_openblas64" not in sys.modules
from flambeau import inventory
inventory.collect()
import numpy as np
import scipy.linalg
from scipy.linalg.lapack import sgelsd_lwork, sgesvd_lwork
x = np.random.default_rng(0).random((25, 4), np.float32)
print(sgelsd_lwork(25, 4, 1, -1.0)[0] < 1e6, sgesvd_lwork(25, 4)[0].real < 1e6, np.allclose(scipy.linalg.lstsq(x, x @ x[:4])[0], x[:4], atol=1e-3))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout.split() == ["True"] * 3, run.stderr


def test_numpy_s_own_copy_serves_where_the_package_is_absent() -> None:
    program = """
import sys
sys.modules["scipy_openblas64"] = None
import numpy as np
import flambeau as torch
from flambeau._core.drivers.cpu import blas
for kind in (torch.float32, torch.float64, torch.complex64, torch.complex128):
    a = torch.randn(70, 70, dtype=kind) + 70 * torch.eye(70, dtype=kind)
    print(np.allclose((a @ a).numpy(), a.numpy() @ a.numpy(), rtol=1e-3), np.allclose((a @ a.inverse()).numpy(), np.eye(70), atol=1e-3),
          np.allclose(torch.linalg.svdvals(a).numpy(), np.linalg.svd(a.numpy())[1], rtol=1e-3), torch.linalg.eigvals(a).shape == (70,))
print("numpy.libs" in blas._where(), blas.version().startswith("0.3."))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout.split() == ["True"] * 18, run.stderr

"""Products of which one side is a vector, or few rows are long, as sums: against NumPy, whatever the strides, types and threads."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.drivers.cpu.products import product
from flambeau._core.dtypes import bfloat16, complex64, complex128, float16, float32, float64
from flambeau._core.kernels.specs import Product

RNG = np.random.default_rng(3)


def contracted(a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
    return np.einsum("...ij,...jk->...ik", a.double().numpy(), b.double().numpy())


@pytest.mark.parametrize("d", [float32, float64, float16, bfloat16], ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 100_000), (1, 700, 65), (300, 1, 70), (2, 2, 5000), (1, 1, 1), (40, 50, 1), (1, 3, 100_000)])
def test_vectors_and_few_long_rows(d: torch.dtype, m: int, n: int, k: int) -> None:
    a, b = (torch.from_numpy(RNG.standard_normal(shape)).to(d) for shape in ((m, k), (k, n)))
    bound = 4 * torch.finfo(d).eps * np.sqrt(k) * max(1.0, float(np.abs(contracted(a, b)).max()))
    for x, y in ((a, b), (a.t().contiguous().t(), b.t().contiguous().t()), (a.repeat(2, 2)[::2, k:][:m], b.repeat_interleave(2, 0)[::2])):
        if x.shape == a.shape:
            np.testing.assert_allclose((x @ y).double().numpy(), contracted(x, y), rtol=0, atol=bound)


def test_a_batch_of_dot_products_and_a_bias() -> None:
    a, b = torch.randn(6, 1, 500), torch.randn(6, 500, 1)
    np.testing.assert_allclose((a @ b).numpy(), contracted(a, b), rtol=1e-5, atol=1e-4)
    x, w, bias = torch.randn(1, 300), torch.randn(77, 300), torch.randn(77)
    np.testing.assert_allclose(torch.nn.functional.linear(x, w, bias).numpy(), contracted(x, w.t()) + bias.numpy(), rtol=1e-5, atol=1e-4)


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    x, v = torch.randn(1000, 1300), torch.randn(1300)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append([(x @ v).numpy(), (v @ x.t()).numpy(), torch.dot(x.reshape(-1), x.reshape(-1)).numpy()])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("d", [float32, float64, float16, bfloat16, complex64, complex128], ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(2, 2, 2), (3, 3, 3), (1, 4, 3), (5, 1, 8), (3, 8, 2), (6, 5, 7), (8, 8, 8), (1, 1, 1)])
def test_many_small_matrices(d: torch.dtype, m: int, n: int, k: int) -> None:
    def drawn(*shape: int) -> torch.Tensor:
        return torch.from_numpy(RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape) if d.is_complex else RNG.standard_normal(shape)).to(d)
    wide = np.complex128 if d.is_complex else np.float64

    def exact(t: torch.Tensor) -> np.ndarray:
        return np.asarray((t if d.is_complex else t.double()).numpy(), wide)
    bound = 8 * torch.finfo(d).eps * k
    for batch in (32, 37, 300):
        a, b, c = drawn(batch, m, k), drawn(batch, k, n), drawn(batch, m, n)
        turned = a.mT.contiguous().mT, b.permute(1, 2, 0).contiguous().permute(2, 0, 1)
        for x, y in ((a, b), turned, (a, b[:1].expand(batch, k, n)), (a.repeat(2, 1, 1)[::2], b.flip(0))):
            want = exact(x) @ exact(y)
            np.testing.assert_allclose(exact(torch.bmm(x, y)), want, rtol=0, atol=bound * max(1.0, float(np.abs(want).max())))
            more = want + exact(c)
            np.testing.assert_allclose(exact(torch.baddbmm(c, x, y)), more, rtol=0, atol=bound * max(1.0, float(np.abs(more).max())))
        rows = a.reshape(batch * m, k) @ b[0]
        np.testing.assert_allclose(exact(rows), exact(a).reshape(-1, k) @ exact(b[0]), rtol=0, atol=bound * 16)


def test_small_matrices_have_the_same_bits_by_any_number_of_threads() -> None:
    a, b = torch.randn(60_000, 3, 3), torch.randn(60_000, 3, 3)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append((a @ b).numpy())
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[0][59_990:], (a[59_990:] @ b[59_990:]).numpy())  # ten of them, one by one


def test_which_products_are_sums() -> None:
    def program(m: int, n: int, k: int, **more: object) -> object:
        made = product(Product(float32, m, n, k, (k, 1, 0), (n, 1, 0), (n, 1, 0), **more))
        assert made is not None
        return made.program
    assert program(1, 1, 4096) is not None and program(2, 2, 4096) is not None and program(64, 64, 1) is not None
    assert program(64, 64, 64) is None and program(4, 4, 4) is None and program(1, 64, 64, beta=1.0) is None

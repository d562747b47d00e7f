"""Compressed rows times a dense matrix, beside the product of dense ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as torch
from flambeau._core.ops.sparse_products import at_places


def matrix(m, k, count, dtype, seed=0):
    rng = np.random.default_rng(seed)
    places = np.stack([rng.integers(0, m, count), rng.integers(0, k, count)])
    return torch.sparse_coo_tensor(torch.tensor(places), torch.tensor(rng.standard_normal(count), dtype=dtype), (m, k))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [0, 1, 2, 3, 5, 16, 17, 63, 64, 65, 128, 203])
@pytest.mark.parametrize("layout", ["coo", "csr", "uncoalesced"])
def test_products(dtype, columns, layout):
    a = matrix(23, 19, 60, dtype)
    a = a if layout == "uncoalesced" else a.coalesce() if layout == "coo" else a.to_sparse_csr()
    x = torch.tensor(np.random.default_rng(1).standard_normal((19, columns)), dtype=dtype)
    expected = a.to_dense().numpy().astype(np.float64) @ x.numpy().astype(np.float64)
    np.testing.assert_allclose((a @ x).numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("change", [lambda x: x.t().contiguous().t(), lambda x: x[:, ::2], lambda x: x[:, 3:10], lambda x: x[:, :1].expand(19, 7),
                                    lambda x: x[:1].expand(19, 20), lambda x: x.flip(0)])
def test_any_strides(change):
    a, x = matrix(23, 19, 60, torch.float64), change(torch.tensor(np.random.default_rng(1).standard_normal((19, 20))))
    np.testing.assert_allclose((a @ x).numpy(), a.to_dense().numpy() @ x.numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose((x.t() @ a.t()).numpy(), (a.to_dense().numpy() @ x.numpy()).T, rtol=1e-12, atol=1e-12)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 40), st.integers(0, 20), st.integers(0, 1000))
def test_any_size_and_places(m, k, count, n, seed):
    """Equal places add up; rows without any are 0."""
    a = matrix(m, k, count, torch.float64, seed)
    x = torch.tensor(np.random.default_rng(seed + 1).standard_normal((k, n)))
    np.testing.assert_allclose((a @ x).numpy(), a.to_dense().numpy() @ x.numpy(), rtol=1e-12, atol=1e-12)


def test_empty_ones():
    for m, k, count, n in ((3, 4, 0, 5), (0, 4, 0, 5), (3, 0, 0, 5), (3, 4, 2, 0)):
        a = matrix(m, k, count, torch.float32) if count else torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0), (m, k))
        found = a @ torch.ones(k, n)
        assert found.shape == (m, n) and float(found.abs().sum()) == 0


def test_gradients_of_any_order():
    a = matrix(5, 4, 8, torch.float64).coalesce()
    where, values = a.indices(), a.values().detach().requires_grad_()
    x = torch.tensor(np.random.default_rng(3).standard_normal((4, 3)), requires_grad=True)

    def f(v, x):
        return torch.sparse.mm(torch.sparse_coo_tensor(where, v, (5, 4)), x)
    assert torch.autograd.gradcheck(f, (values, x)) and torch.autograd.gradgradcheck(f, (values, x))


def test_changed_in_place():
    a = matrix(5, 4, 8, torch.float64).coalesce()
    x = torch.ones(4, 2, dtype=torch.float64)
    before = (a @ x).numpy().copy()
    a.mul_(3)
    np.testing.assert_allclose((a @ x).numpy(), 3 * before)
    y = torch.ones(4, 2, dtype=torch.float64, requires_grad=True)
    v = a.values().detach().clone().requires_grad_()
    out = torch.sparse_coo_tensor(a.indices(), v, (5, 4), is_coalesced=True) @ y
    with torch.no_grad():
        v.mul_(2)
    with pytest.raises(RuntimeError, match="in-?place"):
        out.sum().backward()


def test_large_ones_by_all_threads():
    a = matrix(3000, 2000, 40000, torch.float32).coalesce()
    x = torch.randn(2000, 96, requires_grad=True)
    out = a @ x
    dense = a.to_dense()
    np.testing.assert_allclose(out.detach().numpy(), dense.numpy() @ x.detach().numpy(), rtol=1e-4, atol=1e-4)
    out.square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * dense.numpy().T @ out.detach().numpy(), rtol=1e-3, atol=1e-3)


def test_on_simulated_gpus(sim_gpus):
    a, x = matrix(23, 19, 60, torch.float32), torch.randn(19, 33)
    there = a.to("cuda") @ x.to("cuda")
    assert there.device.type == "cuda"
    np.testing.assert_allclose(there.cpu().numpy(), (a @ x).numpy(), rtol=1e-6, atol=1e-6)


def test_places_outside_are_refused():
    with pytest.raises(RuntimeError):
        torch.sparse_coo_tensor(torch.tensor([[0, 5], [0, 0]]), torch.ones(2), (3, 2)) @ torch.ones(2, 2)
    with pytest.raises(RuntimeError):
        torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 7]), torch.ones(2), (2, 2)) @ torch.ones(2, 2)


@pytest.mark.parametrize("count", [0, 3, 29])
def test_elements_of_a_product_at_places(count):
    """By rows and columns that meet, or by the whole product where that takes less."""
    rng = np.random.default_rng(count)
    rows, columns = torch.tensor(rng.integers(0, 6, count)), torch.tensor(rng.integers(0, 5, count))
    a, b = (torch.tensor(rng.standard_normal(s), requires_grad=True) for s in ((6, 4), (4, 5)))
    made = at_places(a, b, rows, columns)
    np.testing.assert_allclose(made.detach().numpy(), (a.detach().numpy() @ b.detach().numpy())[rows.numpy(), columns.numpy()], rtol=1e-12)
    assert torch.autograd.gradcheck(lambda a, b: at_places(a, b, rows, columns), (a, b))

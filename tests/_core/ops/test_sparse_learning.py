"""Calls with sparse tensors that are made often: learned over their parts, and the same as the first."""

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.engine import learning

OFTEN = 8


def _matrix(seed=0, shape=(4, 5), some=0.5):
    r = np.random.default_rng(seed)
    return torch.tensor(np.where(r.uniform(size=shape) < some, r.uniform(0.1, 1, shape), 0.0))


CALLS = {
    "to_dense": lambda s, x: s.to_dense(), "to_sparse_csr": lambda s, x: s.to_sparse_csr(), "of a strided one": lambda s, x: x.to_sparse(),
    "rows of a strided one": lambda s, x: x.to_sparse_csr(), "mm": lambda s, x: torch.mm(s, x.t()), "@": lambda s, x: s @ x.t(),
    "smm": lambda s, x: torch.smm(s, x.t()), "hspmm": lambda s, x: torch.hspmm(s, x.t()), "spmm": lambda s, x: torch.spmm(s, x.t()),
    "sspaddmm": lambda s, x: torch.sspaddmm(s @ s.t(), s, x.t().contiguous()), "add": lambda s, x: s + s * 2, "sum": lambda s, x: torch.sum(s.sum(1)),
    "transpose": lambda s, x: s.transpose(0, 1), "mul": lambda s, x: s * x}


def _dense(x):
    return x.to_dense().numpy() if x.layout is not torch.strided else x.numpy()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_made_often_gives_what_the_first_gave(name):
    call = CALLS[name]
    d = _matrix()
    s, x = d.to_sparse(), _matrix(1)
    first = call(s, x)
    for _ in range(OFTEN):
        found = call(s, x)
        assert type(found) is type(first) and found.shape == first.shape and found.layout is first.layout
        np.testing.assert_array_equal(_dense(found), _dense(first))
    for seed in range(2, 6):  # other values, and mostly other numbers of entries
        d, x = _matrix(seed), _matrix(seed + 1)
        np.testing.assert_allclose(_dense(call(d.to_sparse(), x)), _dense(call(d.to_sparse_csr(), x)) if name not in ("transpose", "sspaddmm", "add")
                                   else _dense(call(d.to_sparse(), x)), rtol=1e-14)


def test_they_are_learned():
    learning.learned.clear()
    s, x = _matrix(shape=(7, 6)).to_sparse(), torch.rand(6, 3, dtype=torch.float64)
    for _ in range(OFTEN):
        s.to_dense(), torch.spmm(s, x)
    assert {"sparse.to_dense", "sparse.spmm"} <= set(learning.learned)


def test_numbers_of_entries_that_change_are_seen():
    for i in range(20):
        d = _matrix(3, some=0.1 + 0.04 * i)
        assert d.to_sparse()._nnz() == int((d != 0).sum()) and torch.equal(d.to_sparse().to_dense(), d)
    d = _matrix(4)
    for _ in range(OFTEN):
        d.to_sparse()
    d[0, 0] = 0.0 if d[0, 0] else 1.0  # in the same memory
    assert torch.equal(d.to_sparse().to_dense(), d) and torch.equal(d.to_sparse_csr().to_dense(), d)


def test_whether_it_is_coalesced_counts():
    i, v = torch.tensor([[0, 0, 1], [1, 1, 0]]), torch.tensor([1.0, 2.0, 3.0])
    for _ in range(OFTEN):
        twice, once = torch.sparse_coo_tensor(i, v, (2, 2)), torch.sparse_coo_tensor(i, v, (2, 2), is_coalesced=False).coalesce()
        assert twice._nnz() == 3 and once._nnz() == 2
        assert twice.to_dense().tolist() == once.to_dense().tolist() == [[0, 3], [3, 0]]
        assert torch.smm(twice, torch.eye(2)).to_dense().tolist() == torch.smm(once, torch.eye(2)).to_dense().tolist()


def test_gradients_of_what_was_learned():
    s = _matrix().to_sparse()
    x = torch.rand(5, 3, dtype=torch.float64)
    found = []
    for _ in range(OFTEN):
        v, y = s.values().detach().clone().requires_grad_(), x.clone().requires_grad_()
        (torch.mm(torch.sparse_coo_tensor(s.indices(), v, (4, 5)), y) ** 2).sum().backward()
        found.append((v.grad.numpy(), y.grad.numpy()))
    for v, y in found[1:]:
        np.testing.assert_array_equal(v, found[0][0])
        np.testing.assert_array_equal(y, found[0][1])
    a = s.to_dense().numpy()
    down = 2 * a @ x.numpy()
    np.testing.assert_allclose(found[0][1], a.T @ down, rtol=1e-12)
    np.testing.assert_allclose(found[0][0], (down @ x.numpy().T)[tuple(s.indices().numpy())], rtol=1e-12)


def test_wrong_operands_are_told_as_at_first():
    s = _matrix().to_sparse()
    for _ in range(OFTEN):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.spmm(s, torch.rand(4, 4, dtype=torch.float64))
        with pytest.raises(RuntimeError, match="sparse"):
            torch.smm(torch.rand(4, 4), torch.rand(4, 4))
    beyond = torch.sparse_coo_tensor(torch.tensor([[0, 9], [0, 0]]), torch.ones(2), (4, 4))
    for _ in range(OFTEN):
        with pytest.raises(RuntimeError, match="outside"):
            torch.spmm(beyond, torch.rand(4, 4))


def test_tensors_in_lists_are_parts_too():
    def one(v):
        return torch.sparse_coo_tensor([[0, 1], [2, 0]], [v, 10 * v], (2, 3))
    for i in range(6):
        found = torch.cat([one(float(i)), one(2.0 * i)]).to_dense()
        assert found.tolist() == [[0, 0, i], [10 * i, 0, 0], [0, 0, 2 * i], [20 * i, 0, 0]]

"""Sparse tensors against NumPy's dense arithmetic and finite differences; what they cannot do is refused."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.engine import operation

I, V = [[0, 1, 1, 0], [2, 0, 2, 2]], [3.0, 4.0, 5.0, 1.5]
DENSE = np.array([[0.0, 0.0, 4.5], [4.0, 0.0, 5.0]])


def coo(device="cpu", **kwargs):
    return torch.sparse_coo_tensor(torch.tensor(I, device=device), torch.tensor(V, dtype=torch.float64, device=device), (2, 3), **kwargs)


def csr(**kwargs):
    return torch.sparse_csr_tensor([0, 1, 3], [2, 0, 2], torch.tensor([4.5, 4.0, 5.0], dtype=torch.float64), (2, 3), **kwargs)


def test_what_it_tells() -> None:
    s = coo()
    assert isinstance(s, torch.Tensor) and torch.is_tensor(s) and s.is_sparse and not s.is_sparse_csr and s.layout is torch.sparse_coo
    assert s.shape == (2, 3) and s.dtype is torch.float64 and s.dim() == 2 and s.numel() == 6 and s.device.type == "cpu" and len(s) == 2
    assert s.sparse_dim() == 2 and s.dense_dim() == 0 and s._nnz() == 4 and not s.is_coalesced()
    assert repr(torch.tensor(1.0).layout) == "torch.strided" and not torch.tensor(1.0).is_sparse
    c = csr()
    assert c.is_sparse_csr and not c.is_sparse and c.layout is torch.sparse_csr and c.crow_indices().tolist() == [0, 1,
    3] and c.col_indices().tolist() == [2, 0, 2]
    assert coo().type() == "torch.sparse.DoubleTensor"


def test_the_printed_form() -> None:
    s = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
    assert repr(s) == ("tensor(indices=tensor([[0, 1, 1],\n                       [2, 0, 2]]),\n       values=tensor([3., 4., 5.]),\n"
                       "       size=(2, 3), nnz=3, layout=torch.sparse_coo)")


def test_conversions(device: str) -> None:
    s = coo(device)
    np.testing.assert_array_equal(s.to_dense().cpu().numpy(), DENSE)
    one = s.coalesce()
    assert one.is_coalesced() and one.indices().tolist() == [[0, 1, 1], [2, 0, 2]] and one.values().tolist() == [4.5, 4.0, 5.0]
    with pytest.raises(RuntimeError, match="coalesce"):
        s.indices()
    rows = s.to_sparse_csr()
    np.testing.assert_array_equal(rows.to_dense().cpu().numpy(), DENSE)
    np.testing.assert_array_equal(rows.to_sparse().to_dense().cpu().numpy(), DENSE)
    back = torch.tensor(DENSE, device=device).to_sparse()
    assert back._nnz() == 3 and back.is_coalesced() and back.device.type == s.device.type
    np.testing.assert_array_equal(back.to_dense().cpu().numpy(), DENSE)
    assert torch.tensor(DENSE, device=device).to_sparse_csr().crow_indices().tolist() == [0, 1, 3]
    assert s.cpu().device.type == "cpu" and s.float().dtype is torch.float32 and s.to(torch.float64) is s


def test_dense_dimensions() -> None:
    s = torch.sparse_coo_tensor([[0, 2, 0]], torch.arange(6.0).reshape(3, 2), (3, 2))
    assert s.sparse_dim() == 1 and s.dense_dim() == 1
    np.testing.assert_array_equal(s.to_dense().numpy(), [[4, 6], [0, 0], [2, 3]])
    np.testing.assert_array_equal(s.coalesce().values().numpy(), [[4, 6], [2, 3]])
    t = torch.tensor([[0.0, 0.0], [1.0, 0.0]]).to_sparse(1)
    assert t._indices().tolist() == [[1]] and t._values().tolist() == [[1.0, 0.0]]


def test_sizes_that_are_not_given() -> None:
    assert coo().shape == torch.sparse_coo_tensor(I, V).shape == (2, 3)
    empty = torch.sparse_coo_tensor((4, 5))
    assert empty._nnz() == 0 and empty.shape == (4, 5) and float(empty.to_dense().abs().sum()) == 0
    assert torch.sparse_coo_tensor(torch.empty((2, 0), dtype=torch.int64), torch.empty(0), (2, 2)).to_dense().shape == (2, 2)
    assert torch.sparse_csr_tensor([0, 1, 2], [1, 3], [1.0, 2.0]).shape == (2, 4)


def test_wrong_parts_are_refused() -> None:
    i, v = torch.tensor(I), torch.tensor(V)
    with pytest.raises(RuntimeError, match="nnz"):
        torch.sparse_coo_tensor(i, v[:2], (2, 3))
    with pytest.raises(RuntimeError, match="number of dimensions"):
        torch.sparse_coo_tensor(i, v, (2, 3, 4))
    with pytest.raises(RuntimeError, match="sparse_dim x nnz"):
        torch.sparse_coo_tensor(i[0], v, (2,))
    with torch.sparse.check_sparse_tensor_invariants():
        with pytest.raises(RuntimeError, match="dim 0, size is 1 but found index 1"):
            torch.sparse_coo_tensor(i, v, (1, 3))
        with pytest.raises(RuntimeError, match="col_indices < 2"):
            torch.sparse_csr_tensor([0, 1, 2], [0, 2], [1.0, 2.0], (2, 2))
    with pytest.raises(RuntimeError, match="negative index"):
        torch.sparse_coo_tensor(-i, v, (2, 3), check_invariants=True)
    with pytest.raises(RuntimeError, match="one entry more"):
        torch.sparse_csr_tensor([0, 2], [0, 2], [1.0, 2.0], (2, 2))


@pytest.mark.parametrize("make", [coo, csr])
def test_products(make) -> None:
    s = make()
    rng = np.random.default_rng(0)
    d, e, x = rng.standard_normal((3, 4)), rng.standard_normal((4, 2)), rng.standard_normal(3)
    td, te, tx = torch.tensor(d), torch.tensor(e), torch.tensor(x)
    for found in (s @ td, torch.matmul(s, td), torch.mm(s, td), s.mm(td), torch.sparse.mm(s, td), torch.spmm(s, td)):
        assert not isinstance(found, type(s))
        np.testing.assert_allclose(found.numpy(), DENSE @ d, rtol=1e-12)
    for found in (te @ s, torch.mm(te, s), te.matmul(s)):
        np.testing.assert_allclose(found.numpy(), e @ DENSE, rtol=1e-12)
    for found in (s @ tx, torch.mv(s, tx), s.matmul(tx)):
        np.testing.assert_allclose(found.numpy(), DENSE @ x, rtol=1e-12)
    square = torch.sparse.mm(s, s.t())
    assert square.layout is s.layout
    np.testing.assert_allclose(square.to_dense().numpy(), DENSE @ DENSE.T, rtol=1e-12)
    m = torch.tensor(rng.standard_normal((2, 4)))
    for found in (torch.addmm(m, s, td, beta=0.5, alpha=2), torch.sparse.addmm(m, s, td, beta=0.5, alpha=2)):
        np.testing.assert_allclose(found.numpy(), 0.5 * m.numpy() + 2 * DENSE @ d, rtol=1e-12)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        s @ te
    with pytest.raises(RuntimeError, match="same dtype"):
        s @ td.float()


def test_products_at_places_and_reduced() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 4)), rng.standard_normal((4, 3))
    for s in (coo().coalesce(), csr()):
        found = torch.sparse.sampled_addmm(s, torch.tensor(a), torch.tensor(b), beta=0.5, alpha=2.0)
        assert found.layout is s.layout
        np.testing.assert_allclose(found.to_dense().numpy(), np.where(DENSE != 0, 2 * a @ b + 0.5 * DENSE, 0), rtol=1e-12)
        d = rng.standard_normal((3, 2))
        each = DENSE[:, :, None] * d[None]
        for reduce, f in (("mean", np.mean), ("amax", np.max), ("amin", np.min)):
            want = np.stack([f(each[r][DENSE[r] != 0], 0) for r in range(2)])
            np.testing.assert_allclose(torch.sparse.mm(s, torch.tensor(d), reduce).numpy(), want, rtol=1e-12)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.sparse.sampled_addmm(csr(), torch.tensor(a), torch.tensor(a))
    with pytest.raises(RuntimeError, match="reduce"):
        torch.sparse.mm(csr(), torch.tensor(d), "median")


def test_gradients_of_products() -> None:
    v = torch.tensor(V, dtype=torch.float64, requires_grad=True)
    d = torch.tensor(np.random.default_rng(1).standard_normal((3, 2)), requires_grad=True)
    i = torch.tensor(I)

    def f(v, d):
        return torch.matmul(torch.sparse_coo_tensor(i, v, (2, 3)), d).tanh()
    assert torch.autograd.gradcheck(f, (v, d)) and torch.autograd.gradgradcheck(f, (v, d))
    assert torch.autograd.gradcheck(lambda v: torch.sparse.softmax(torch.sparse_coo_tensor(i, v, (2, 3)), 1).to_dense(), (v,))
    assert torch.autograd.gradcheck(lambda v: torch.sparse.mm(torch.sparse_coo_tensor(i, v, (2, 3)), torch.sparse_coo_tensor(i, v, (2, 3)).t()).to_dense(),
    (v,))
    assert torch.autograd.gradcheck(lambda v: torch.sparse.sum(torch.sparse_coo_tensor(i, v, (2, 3)).to_sparse_csr().to_sparse(), 0).to_dense(), (v,))
    assert torch.autograd.gradcheck(lambda d: d.to_sparse().coalesce().values(), (d,))


def test_a_sparse_leaf() -> None:
    s = coo(requires_grad=True)
    assert s.requires_grad and s.is_leaf and s.grad is None and "requires_grad=True" in repr(s)
    (s @ torch.ones(3, 2, dtype=torch.float64)).sum().backward()
    assert s.grad.is_sparse and s.grad._indices().tolist() == I and s.grad._values().tolist() == [2.0] * 4
    s.grad = None
    assert s.grad is None
    made = coo()
    assert not made.requires_grad and made.requires_grad_().requires_grad
    computed = torch.sparse_coo_tensor(I, torch.tensor(V, requires_grad=True), (2, 3))
    assert computed.requires_grad and not computed.is_leaf and not computed.detach().requires_grad


def test_arithmetic() -> None:
    s, other = coo(), torch.tensor(DENSE * [[1, 2, 3]] + [[0, 7, 0], [0, 0, 0]]).to_sparse()
    o = other.to_dense().numpy()
    for found, want in ((s + other, DENSE + o), (s - other, DENSE - o), (s * other, DENSE * o), (s * 2, DENSE * 2), (2 * s, DENSE * 2), (s / 2, DENSE / 2),
                        (-s, -DENSE), (torch.add(s, other, alpha=3), DENSE + 3 * o), (torch.mul(s, other), DENSE * o), (s.abs(), DENSE), (torch.sin(s),
                        np.sin(DENSE)),
                        (s.pow(2), DENSE ** 2), (torch.relu(-s), DENSE * 0), (s.sqrt(), np.sqrt(DENSE)), (torch.cat([s, other]), np.concatenate([DENSE, o])),
                        (torch.cat([s, other], 1), np.concatenate([DENSE, o], 1)), (s.t(), DENSE.T), (s.transpose(0, 1), DENSE.T), (s.T, DENSE.T)):
        assert found.is_sparse
        np.testing.assert_allclose(found.to_dense().numpy(), want, rtol=1e-12)
    full = torch.tensor(o + 1)
    for found, want in ((full + s, o + 1 + DENSE), (s + full, o + 1 + DENSE), (torch.add(full, s, alpha=2), o + 1 + 2 * DENSE), (full - s, o + 1 - DENSE)):
        assert not found.is_sparse
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-12)
    masked = full * s
    assert masked.is_sparse
    np.testing.assert_allclose(masked.to_dense().numpy(), (o + 1) * DENSE)
    np.testing.assert_allclose(full.sparse_mask(s.coalesce()).to_dense().numpy(), np.where(DENSE != 0, o + 1, 0))
    np.testing.assert_allclose(s[1].to_dense().numpy(), DENSE[1])
    assert float(s[1, 2]) == 5.0 and float(s[0, 0]) == 0.0
    s.mul_(3)
    np.testing.assert_allclose(s.to_dense().numpy(), DENSE * 3)


def test_reductions() -> None:
    s = coo()
    assert float(s.sum()) == float(torch.sparse.sum(s)) == DENSE.sum()
    for d in (0, 1, -1):
        np.testing.assert_allclose(torch.sparse.sum(s, d).to_dense().numpy(), DENSE.sum(d))
    np.testing.assert_allclose(torch.sparse.sum(s, (0, 1)).numpy(), DENSE.sum())
    p = torch.sparse.softmax(s, 1).to_dense().numpy()
    e = np.where(DENSE != 0, np.exp(DENSE), 0)
    np.testing.assert_allclose(p, e / e.sum(1, keepdims=True))
    logs = np.log(np.where(e > 0, e / np.maximum(e.sum(0), 1), 1))
    np.testing.assert_allclose(torch.sparse.log_softmax(s, 0).to_dense().numpy(), logs, atol=1e-12)


def test_forms_in_place_with_out_and_by_keyword(monkeypatch) -> None:
    """All are found by the operation's row: nobody runs into memory that is not there, and is put right."""
    def stumbled(*args: object) -> None:
        raise AssertionError(args)
    monkeypatch.setattr("flambeau._core.ops.arguments.tripped", stumbled)
    monkeypatch.setattr(operation.Operation, "tripped", stumbled)
    for make in (coo, csr):
        s = make()
        want = DENSE + DENSE
        for found in (torch.add(input=s, other=s), torch.add(s, other=s), torch.add(s, s, out=make()), make().add_(s), torch.Tensor.add_(make(), s),
                      torch.mul(input=s, other=2.0), make().mul_(2)):
            np.testing.assert_array_equal(found.to_dense().numpy(), want)
        kept = make()
        assert torch.sin(s, out=kept) is kept
        np.testing.assert_allclose(kept.to_dense().numpy(), np.sin(DENSE))
        dense = torch.ones(3, 2, dtype=torch.float64)
        out = torch.empty(0, dtype=torch.float64)
        assert torch.mm(s, dense, out=out) is out
        np.testing.assert_allclose(out.numpy(), DENSE @ np.ones((3, 2)))
        np.testing.assert_allclose(torch.addmm(input=torch.zeros(2, 2, dtype=torch.float64), mat1=s, mat2=dense, beta=2).numpy(), DENSE @ np.ones((3, 2)))
        np.testing.assert_allclose(torch.cat(tensors=[s, s]).to_dense().numpy(), np.concatenate([DENSE, DENSE]))
        other = make()
        assert other.copy_(s * 2) is other
        np.testing.assert_array_equal(other.to_dense().numpy(), want)
    with pytest.raises(RuntimeError, match="Expected out tensor to have layout torch.sparse_coo"):
        torch.add(coo(), coo(), out=torch.zeros(2, 3, dtype=torch.float64))
    with pytest.raises(NotImplementedError, match="copy_ between layouts"):
        coo().copy_(torch.ones(2, 3))


def test_there_is_no_memory() -> None:
    for s in (coo(), csr()):
        for name in ("ptr", "strides"):
            with pytest.raises(AttributeError):
                getattr(s if name == "ptr" else s.meta, name)
            assert name not in {n for c in (type(s), type(s.meta)) for k in c.__mro__[:-1] for n, v in vars(k).items() if isinstance(v, property)}


def test_what_is_made_of_other_operations_takes_sparse_tensors() -> None:
    for s in (coo(), csr()):
        w = torch.ones(4, 3, dtype=torch.float64)
        np.testing.assert_allclose(torch.nn.functional.linear(s, w).numpy(), DENSE @ np.ones((3, 4)))
        assert torch.nn.functional.dropout(s, training=False) is s
        np.testing.assert_array_equal(torch.stack([r.to_dense() for r in s]).numpy(), DENSE)
        assert f"{s}" == repr(s) and torch.equal(s.new_zeros(2), torch.zeros(2, dtype=torch.float64))
        np.testing.assert_array_equal(torch.adjoint(s).to_dense().numpy(), DENSE.T)


def test_what_has_no_sparse_form_is_refused() -> None:
    for s in (coo(), csr()):
        for f in (lambda s: s.exp(), torch.cos, lambda s: s.view(6), lambda s: s.reshape(6), lambda s: torch.flip(s, (0,)), lambda s: s.unsqueeze(0),
                  lambda s: s.max(), lambda s: torch.softmax(s, 1), lambda s: s == s, lambda s: s + 1, torch.linalg.svd, lambda s: s[:, 1],
                  lambda s: s.stride()):
            with pytest.raises(NotImplementedError, match="torch.sparse_cs?[or]"):
                f(s)
        with pytest.raises(TypeError, match="to_dense"):
            s.numpy()
    huge = torch.sparse_coo_tensor([[0], [10 ** 9 - 1]], [1.0], (10 ** 9, 10 ** 9))
    with pytest.raises(NotImplementedError):
        huge.exp()
    assert float(huge.t().sum()) == 1.0
    for name in ("indices", "values", "coalesce"):
        with pytest.raises(RuntimeError, match="Strided"):
            getattr(torch.ones(2), name)()


def test_copies() -> None:
    for s in (coo(), csr()):
        for made in (copy.deepcopy(s), pickle.loads(pickle.dumps(s)), s.clone(), s.detach()):
            assert made.layout is s.layout
            np.testing.assert_array_equal(made.to_dense().numpy(), DENSE)


def test_the_older_constructors() -> None:
    i, v = torch.tensor(I), torch.tensor(V)
    s = torch.sparse.FloatTensor(i, v, torch.Size([2, 3]))
    assert s.is_sparse and isinstance(s, torch.sparse.FloatTensor) and not isinstance(s, torch.sparse.DoubleTensor)
    np.testing.assert_allclose(s.to_dense().numpy(), DENSE)
    assert torch.sparse.DoubleTensor(2, 3).dtype is torch.float64
    with pytest.raises(AttributeError, match="Nothing"):
        _ = torch.sparse.Nothing


def test_diagonals() -> None:
    import scipy.sparse
    rows = np.arange(9.0).reshape(3, 3)
    want = scipy.sparse.spdiags(rows, [0, 1, -1], 3, 4).toarray()
    found = torch.sparse.spdiags(torch.tensor(rows), torch.tensor([0, 1, -1]), (3, 4)).to_dense().numpy()
    np.testing.assert_array_equal(found, want)


def test_attention_over_the_edges_of_a_graph(device: str) -> None:
    """A user's Function that keeps a sparse matrix for its backward, as graph networks write it."""
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, indices, values, shape, b):
            a = torch.sparse_coo_tensor(indices, values, shape)
            ctx.save_for_backward(a, b)
            ctx.n = shape[0]
            return torch.matmul(a, b)

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            dense = g.matmul(b.t())
            at = a._indices()[0, :] * ctx.n + a._indices()[1, :]
            return None, dense.view(-1)[at] if ctx.needs_input_grad[1] else None, None, a.t().matmul(g)
    rng = np.random.default_rng(0)
    edges = torch.tensor((rng.random((5, 5)) < 0.5).astype(np.int64), device=device).nonzero().t()
    v = torch.tensor(rng.standard_normal(edges.shape[1]), device=device, requires_grad=True)
    b = torch.tensor(rng.standard_normal((5, 3)), device=device, requires_grad=True)
    Product.apply(edges, v, torch.Size([5, 5]), b).square().sum().backward()
    w = v.detach().clone().requires_grad_()
    c = b.detach().clone().requires_grad_()
    (torch.zeros(25, dtype=torch.float64, device=device).index_add(0, edges[0] * 5 + edges[1], w).reshape(5, 5) @ c).square().sum().backward()
    np.testing.assert_allclose(v.grad.cpu().numpy(), w.grad.cpu().numpy(), rtol=1e-10)
    np.testing.assert_allclose(b.grad.cpu().numpy(), c.grad.cpu().numpy(), rtol=1e-10)


def test_rows_of_a_sparse_matrix_are_sparse() -> None:
    for s in (coo(), csr()):
        rows = list(s)
        assert [row.shape for row in rows] == [(3,), (3,)] and all(row.is_sparse for row in rows)
        assert [row.to_dense().tolist() for row in rows] == DENSE.tolist()


@pytest.mark.parametrize("call", ["s.div(torch.tensor(2.0))", "torch.mul(s, 2)", "s.abs()", "torch.add(s, s)"])
def test_the_first_operation_of_a_process_finds_its_sparse_form(call: str) -> None:
    program = f"import flambeau as torch; s = torch.eye(2).to_sparse(); print({call}.layout)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "torch.sparse_coo\n", done.stderr


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("name", ["abs", "asin", "ceil", "expm1", "floor", "log1p", "neg", "round", "sgn", "sin", "sqrt", "tanh", "trunc"])
def test_every_form_value_by_value_has_one_in_place(name, layout):
    dense = torch.tensor([[0.0, 0.25, 0.0], [0.5, 0.0, 0.75]])
    s = dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()
    made = getattr(s, name + "_")()
    assert made is s and torch.allclose(s.to_dense(), getattr(dense, name)())


def test_in_place_keeps_the_type():
    s = torch.tensor([[0, 4], [9, 0]]).to_sparse()
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        s.sqrt_()
    assert s.dtype is torch.int64 and s.to_dense().tolist() == [[0, 4], [9, 0]]
    half = torch.tensor([[0.0, 2.0]], dtype=torch.float16).to_sparse()
    half.mul_(torch.tensor(2.0, dtype=torch.float64))
    assert half.dtype is torch.float16 and half.to_dense().tolist() == [[0.0, 4.0]]


def test_constructors_are_planned_and_still_check_what_they_are_told_to() -> None:
    places, values = torch.tensor([[0, 1, 2], [2, 0, 1]]), torch.tensor([1.0, 2.0, 3.0])
    rows, columns = torch.tensor([0, 1, 2, 3]), torch.tensor([2, 0, 1])
    makes = {
        "coo": (lambda v=values, i=places, **more: torch.sparse_coo_tensor(i, v, (3, 3), **more)),
        "csr": (lambda v=values, i=columns, **more: torch.sparse_csr_tensor(rows, i, v, (3, 3), **more)),
        "compressed": (lambda v=values, i=columns, **more: torch.sparse_compressed_tensor(rows, i, v, (3, 3), layout=torch.sparse_csr, **more)),
    }
    for name, make in makes.items():
        made = [make() for _ in range(4)]
        assert all(m.to_dense().tolist() == [[0, 0, 1], [2, 0, 0], [0, 3, 0]] and not m.requires_grad for m in made), name
        assert made[-1]._values().data_ptr() == values.data_ptr() if name == "coo" else made[-1].values().data_ptr() == values.data_ptr()
        leaf = make(requires_grad=True)
        assert leaf.is_leaf and leaf.requires_grad and not values.requires_grad
        v = values.clone().requires_grad_()
        for _ in range(2):
            make(v).to_dense().sum().backward()
        assert v.grad.tolist() == [2, 2, 2]
        assert make(values.double()).dtype is torch.float64 and make(values, dtype=torch.float64).dtype is torch.float64
        wrong = (places if name == "coo" else columns) + 2
        make(i=wrong)
        with pytest.raises(RuntimeError):
            make(i=wrong, check_invariants=True)
        with torch.sparse.check_sparse_tensor_invariants(), pytest.raises(RuntimeError):
            make(i=wrong)
        make(i=wrong)
        assert make([4.0, 5.0, 6.0]).to_dense().sum().item() == 15
    assert torch.sparse_coo_tensor(places, values, (3, 3), is_coalesced=True).is_coalesced()
    assert not torch.sparse_coo_tensor(places, values, (3, 3)).is_coalesced()


def test_a_strided_tensor_has_no_axis_of_indices():
    assert [(t.sparse_dim(), t.dense_dim()) for t in (torch.ones(()), torch.ones(2, 3))] == [(0, 0), (0, 2)]


def test_products_by_older_names_take_dense_matrices_too() -> None:
    a, b = torch.rand(2, 3), torch.rand(3, 4)
    for f in (torch.spmm, torch.dsmm):
        assert f(a, b).allclose(a @ b) and f(a.to_sparse(), b).allclose(a @ b)
    assert torch.hsmm(a.to_sparse(), b).is_sparse and torch.hsmm(a.to_sparse(), b).to_dense().allclose(a @ b)


def test_writing_between_layouts_in_place():
    x = torch.tensor([[1.0, 0, 2], [0, 3, 0]])
    s = (x * 2).to_sparse()
    dense = x.clone()
    assert dense.mul_(s) is dense and dense.tolist() == (x * x * 2).tolist() and x.clone().add_(s).tolist() == (x * 3).tolist()
    with pytest.raises(RuntimeError, match="add_ with a strided tensor"):
        s.add_(x)
    for whole in (x.int(), x.int().to_sparse()):
        with pytest.raises(RuntimeError, match="result type Float can't be cast"):
            whole.mul_(s)


@pytest.mark.parametrize("name", ["zeros_like", "empty_like"])
def test_sparse_tensors_have_no_memory_format(name):
    s = torch.eye(2).to_sparse()
    assert getattr(torch, name)(s)._nnz() == 0
    with pytest.raises(RuntimeError, match="memory format option is only supported by strided tensors"):
        getattr(torch, name)(s, memory_format=torch.preserve_format)


def test_saddmm_is_sspaddmm() -> None:
    a, b = torch.eye(2).to_sparse(), torch.ones(2, 2)
    assert torch.saddmm(a, a, b, beta=2, alpha=3).to_dense().tolist() == torch.sspaddmm(a, a, b, beta=2, alpha=3).to_dense().tolist() == [[5, 3], [3, 5]]
    assert not hasattr(torch.Tensor, "saddmm")


def test_sspaddmm_of_a_sparse_input_is_sparse() -> None:
    """mat2 may lie in any way; the entries of the product come to those of the input."""
    a, x = torch.tensor([[0.0, 1], [2, 0]]).to_sparse(), torch.arange(6.0).reshape(3, 2).t()
    made = torch.sspaddmm(torch.tensor([[1.0, 0, 2], [0, 3, 0]]).to_sparse(), a, x, beta=2)
    assert made.layout is torch.sparse_coo and made.to_dense().tolist() == [[3, 3, 9], [0, 10, 8]]


def test_addmm_of_a_sparse_matrix_is_row_by_row() -> None:
    """Whatever the layout of what it is added to, as in PyTorch."""
    a, x = torch.tensor([[0.0, 1], [2, 0]]).to_sparse(), torch.arange(6.0).reshape(3, 2).t()
    for input in (x, torch.ones(1, 3).expand(2, 3), torch.ones(3, 2).t()):
        made = torch.sparse.addmm(input, a, x, beta=3, alpha=2)
        assert made.stride() == (3, 1)
        np.testing.assert_array_equal(made.numpy(), 3 * input.numpy() + 2 * (a.to_dense().numpy() @ x.numpy()))

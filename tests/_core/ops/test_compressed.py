"""Sparse matrices by compressed rows and columns, of elements and of blocks, against SciPy's and against dense arithmetic."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch

DENSE = np.array([[0.0, 1.5, 0.0, 0.0], [2.0, 0.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0], [0.0, 4.0, 0.0, 5.0], [6.0, 0.0, 0.0, 0.0], [0.0, 0.0, 7.0, 0.0]])
LAYOUTS = {"csr": (), "csc": (), "bsr": ((2, 2),), "bsc": ((3, 2),)}
COLUMNS = ("csc", "bsc")


def of(name, x=None):
    return getattr(torch.tensor(DENSE) if x is None else x, f"to_sparse_{name}")(*LAYOUTS[name])


def parts(s):
    by_columns = str(s.layout).endswith("c")
    return (s.ccol_indices(), s.row_indices()) if by_columns else (s.crow_indices(), s.col_indices())


def scipys(name):
    """Ends, other indices and entries by SciPy; its blocks are by rows only, so those by columns are the transpose's."""
    if name in ("csr", "csc"):
        made = {"csr": scipy.sparse.csr_matrix, "csc": scipy.sparse.csc_matrix}[name](DENSE)
        return made.indptr, made.indices, made.data
    (size,) = LAYOUTS[name]
    if name == "bsr":
        made = scipy.sparse.csr_matrix(DENSE).tobsr(size)
        made.sort_indices()
        return made.indptr, made.indices, made.data
    made = scipy.sparse.csr_matrix(DENSE.T).tobsr(size[::-1])
    made.sort_indices()
    return made.indptr, made.indices, made.data.transpose(0, 2, 1)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("start", ["strided", "coo", "csr"])
def test_conversions(name, start, device):
    x = torch.tensor(DENSE, device=device)
    for _ in range(4):
        s = of(name, {"strided": x, "coo": x.to_sparse(), "csr": x.to_sparse_csr()}[start])
        for got, wanted in zip((*parts(s), s.values()), scipys(name), strict=True):
            np.testing.assert_array_equal(got.cpu().numpy(), wanted)
        assert s.layout is getattr(torch, f"sparse_{name}") and s.shape == (6, 4) and s._nnz() == len(s.values()) and not s.is_sparse
        assert s.is_sparse_csr == (name == "csr") and (s.sparse_dim(), s.dense_dim()) == (2, 0) and s.device.type == x.device.type
        np.testing.assert_array_equal(s.to_dense().cpu().numpy(), DENSE)
        back = s.to_sparse()
        assert back.is_sparse and back.is_coalesced()
        np.testing.assert_array_equal(back.to_dense().cpu().numpy(), DENSE)
        turned = s.t()
        assert str(turned.layout).endswith({"csr": "csc", "csc": "csr", "bsr": "bsc", "bsc": "bsr"}[name])
        np.testing.assert_array_equal(turned.to_dense().cpu().numpy(), DENSE.T)
        assert s.to_sparse(layout=s.layout) is s and s.transpose(0, 0).layout is s.layout
        np.testing.assert_array_equal(x.to_sparse(layout=s.layout, blocksize=(LAYOUTS[name] or (None,))[0]).to_dense().cpu().numpy(), DENSE)


def test_conversions_that_are_none():
    b = of("bsr")
    np.testing.assert_array_equal(b.to_sparse_bsc((2, 2)).to_dense().numpy(), DENSE)
    for ask, words in ((lambda: b.to_sparse_csr(), "sparse_compressed_to_sparse_csr: expected SparseCsr or SparseCsc layout but got SparseBsr"),
                       (lambda: b.to_sparse_bsc((3, 2)), r"with blocksize changed from \[2, 2\] to \[3, 2\] is not supported"),
                       (lambda: torch.tensor(DENSE).to_sparse_bsr((4, 2)), r"tensor sparse size \(6,4\) must be divisible by given blocksize \(4,2\)"),
                       (lambda: torch.tensor(DENSE).to_sparse_bsr((0, 2)), "must be divisible"),
                       (lambda: torch.tensor(DENSE).to_sparse_bsr((1, 2, 2)), "blocksize must have two elements"),
                       (lambda: torch.tensor(DENSE).to_sparse(layout=torch.sparse_bsr), "blocksize must be given"),
                       (lambda: torch.ones(3).to_sparse_csc(), "only matrices"),
                       (lambda: b.ccol_indices(), "ccol_indices expected sparse column compressed tensor layout but got SparseBsr"),
                       (lambda: torch.ones(2, 2).row_indices(), "row_indices expected sparse column compressed tensor layout but got Strided"),
                       (lambda: b.coalesce(), "coalesce expected sparse coordinate tensor layout but got SparseBsr")):
        with pytest.raises(RuntimeError, match=words):
            ask()
    with pytest.raises(TypeError, match="can't convert SparseBsr layout tensor to numpy"):
        b.numpy()


@pytest.mark.parametrize("name", LAYOUTS)
def test_constructors(name):
    ends, minor, values = [torch.tensor(p) for p in scipys(name)]
    make = getattr(torch, f"sparse_{name}_tensor")
    for _ in range(4):
        for s in (make(ends, minor, values, (6, 4)), make(ends, minor, values), make(ends.long(), minor.long(), values.float(), (6, 4), dtype=torch.float64),
                  make(ends.tolist(), minor.tolist(), values.tolist(), dtype=torch.float64),
                  torch.sparse_compressed_tensor(ends, minor, values, (6, 4), layout=getattr(torch, f"sparse_{name}"))):
            np.testing.assert_array_equal(s.to_dense().numpy(), DENSE)
    leaf = make(ends, minor, values, (6, 4), requires_grad=True)
    leaf.to_dense().square().sum().backward()
    assert leaf.grad.layout is leaf.layout
    np.testing.assert_array_equal(leaf.grad.to_dense().numpy(), 2 * DENSE)


@pytest.mark.parametrize("name", LAYOUTS)
def test_constructors_check_what_they_are_given(name):
    ends, minor, values = [torch.tensor(p) for p in scipys(name)]
    make = getattr(torch, f"sparse_{name}_tensor")
    for wrong in ((ends[1:], minor, values, (6, 4)), (ends, minor[1:], values, (6, 4)), (ends, minor, values[..., None], (6, 4)),
                  (ends, minor, values, (6, 4, 1)), (ends.double(), minor, values, (6, 4))):
        with pytest.raises(RuntimeError):
            make(*wrong)
    for i, m in ((ends, minor + 9), (ends, minor - 9), (ends.flip(0), minor), (ends + 1, minor)):
        with pytest.raises(RuntimeError):
            make(i, m, values, (6, 4), check_invariants=True)
    for m in (minor + 9, minor - 9):  # not checked, and outside of the matrix and its memory
        s = make(ends, m, values, (6, 4))
        with pytest.raises(IndexError):
            s.to_dense()
    with pytest.raises(RuntimeError, match="expected sparse compressed tensor layout but got Strided"):
        torch.sparse_compressed_tensor(ends, minor, values, (6, 4), layout=torch.strided)


@pytest.mark.parametrize("name", LAYOUTS)
def test_arithmetic(name, device):
    d = torch.tensor(DENSE, device=device)
    other = torch.arange(24, dtype=torch.float64, device=device).reshape(4, 6) / 7
    calls = {"@": lambda s: s @ other, "of a vector": lambda s: s @ other[:, 0], "by a strided one": lambda s: other @ s, "+": lambda s: s + s,
             "* 2": lambda s: s * 2, "*": lambda s: s * (d + 1), "sin": lambda s: s.sin(), "neg": lambda s: -s, "sum": lambda s: s.sum(),
             "addmm": lambda s: torch.addmm(other @ d, other, s), "of two": lambda s: s @ s.t(),
             "masked": lambda s: (d + 1).sparse_mask(s) * s, "double": lambda s: s.double(), "clone": lambda s: s.clone()}
    for call, f in calls.items():
        for _ in range(3):
            made = f(of(name, d))
            made = made.to_dense() if made.layout is not torch.strided else made
            wanted = d * (d + 1) if call == "masked" else f(d)
            np.testing.assert_allclose(made.cpu().numpy(), wanted.cpu().numpy(), rtol=1e-12, err_msg=call)


@pytest.mark.parametrize("name", LAYOUTS)
def test_gradients(name):
    weight = torch.arange(24, dtype=torch.float64).reshape(6, 4)
    for f in (lambda x: (of(name, x).to_dense() * weight).sum(), lambda x: (of(name, x) @ weight.t()).square().sum(), lambda x: of(name, x).sin().sum()):
        x = torch.tensor(DENSE, requires_grad=True)
        f(x).backward()
        step = 1e-6
        for i, j in ((0, 1), (1, 3), (5, 2)):
            up, down = (torch.tensor(DENSE + h * (np.arange(24).reshape(6, 4) == 4 * i + j)) for h in (step, -step))
            assert x.grad[i, j].item() == pytest.approx((f(up).item() - f(down).item()) / (2 * step), rel=1e-6)


def test_the_printed_form():
    x = torch.tensor([[0.0, 1], [2, 0]])
    assert repr(x.to_sparse_csc()) == (
        "tensor(ccol_indices=tensor([0, 1, 2]),\n       row_indices=tensor([1, 0]),\n       values=tensor([2., 1.]), size=(2, 2), nnz=2, "
        "layout=torch.sparse_csc)")
    assert repr(torch.eye(4).to_sparse_bsr(2)) == (
        "tensor(crow_indices=tensor([0, 1, 2]),\n       col_indices=tensor([0, 1]),\n       values=tensor([[[1., 0.],\n                       [0., 1.]],\n\n"
        "                      [[1., 0.],\n                       [0., 1.]]]), size=(4, 4), nnz=2,\n       layout=torch.sparse_bsr)")


@pytest.mark.parametrize("name", LAYOUTS)
def test_files_and_copies(name):
    s = of(name)
    held = io.BytesIO()
    torch.save(s, held)
    held.seek(0)
    for t in (torch.load(held), pickle.loads(pickle.dumps(s)), copy.deepcopy(s), s.detach()):
        assert t.layout is s.layout and t.shape == s.shape and [p.tolist() for p in parts(t)] == [p.tolist() for p in parts(s)]
        assert t.values().tolist() == s.values().tolist()


@pytest.mark.parametrize("name", LAYOUTS)
def test_tensors_like_it(name):
    s = of(name)
    none, ones = torch.zeros_like(s), torch.ones_like(s, dtype=torch.float32)
    assert none._nnz() == 0 and none.layout is s.layout and not none.to_dense().any() and none.values().shape[1:] == s.values().shape[1:]
    assert ones._nnz() == s._nnz() and ones.dtype is torch.float32 and bool((ones.values() == 1).all())
    assert torch.empty_like(s).values().shape == s.values().shape


@pytest.mark.parametrize("name", LAYOUTS)
def test_of_nothing(name):
    for shape in ((0, 4), (6, 0), (6, 4)):
        s = of(name, torch.zeros(shape))
        assert s._nnz() == 0 and s.shape == shape and s.to_dense().shape == shape and s.t().to_dense().shape == shape[::-1]


def test_indices_by_rows_and_by_coordinates() -> None:
    rows, columns = torch.tensor([0, 0, 2, 4]), torch.tensor([1, 3, 0, 2])
    ends = torch._convert_indices_from_coo_to_csr(rows, 5)
    assert ends.tolist() == [0, 2, 2, 3, 3, 4] and torch._convert_indices_from_coo_to_csr(rows, 5, out_int32=True).dtype is torch.int32
    assert torch._convert_indices_from_csr_to_coo(ends, columns).tolist() == [rows.tolist(), columns.tolist()]
    assert torch._convert_indices_from_csr_to_coo(ends, columns, transpose=True).tolist() == [columns.tolist(), rows.tolist()]
    assert torch._convert_indices_from_coo_to_csr(rows[:0], 3).tolist() == [0, 0, 0, 0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2**32 - 1), st.sampled_from(["csr", "csc"]))
def test_any_matrix_comes_back(rows, columns, seed, name):
    rng = np.random.default_rng(seed)
    dense = torch.tensor(rng.integers(-2, 3, (rows, columns)).astype(np.float64) * (rng.random((rows, columns)) < 0.5))
    s = getattr(dense, f"to_sparse_{name}")()
    assert s._nnz() == int((dense != 0).sum()) and s.to_dense().tolist() == dense.tolist()
    assert s.to_sparse().to_dense().tolist() == dense.tolist() == s.t().to_dense().t().tolist()
    if rows and columns:
        v = torch.tensor(rng.standard_normal((columns, 2)))
        np.testing.assert_allclose((s @ v).numpy(), dense.numpy() @ v.numpy(), rtol=1e-12, atol=1e-12)


WAYS = {"coo": lambda t: t.to_sparse(), "hybrid": lambda t: t.to_sparse(1), "csr": lambda t: t.to_sparse_csr(), "csc": lambda t: t.to_sparse_csc(),
        "bsr": lambda t: t.to_sparse_bsr((2, 3)), "bsc": lambda t: t.to_sparse_bsc((2, 3))}


@pytest.mark.parametrize("way", WAYS)
def test_a_pass_may_begin_at_a_sparse_tensor(way):
    dense = np.arange(24.0).reshape(4, 6) * (np.arange(24).reshape(4, 6) % 5 == 1)
    for _ in range(6):  # until the call is learned
        x = torch.tensor(dense, requires_grad=True)
        made = WAYS[way](x)
        places = made.detach()._with(torch.ones_like(made.detach()._value)).to_dense()  # zeros within a block, or a row, are specified as well
        for gradient in ((made * 3).detach(), torch.ones(4, 6, dtype=torch.float64), (made * 3).detach().to_dense().to_sparse()):
            want = (gradient.to_dense() if gradient.layout is not torch.strided else gradient) * places
            x.grad = None
            made.backward(gradient, retain_graph=True)
            assert x.grad.layout is torch.strided and torch.equal(x.grad, want)
            assert torch.equal(torch.autograd.grad(made, x, gradient, retain_graph=True)[0], want)
        x.grad, weights = None, torch.arange(24.0, dtype=torch.float64).reshape(4, 6)
        (made.to_dense() * weights).sum().backward()
        assert torch.equal(x.grad, weights * places)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        made.backward(torch.ones(4, 5))
    with pytest.raises(RuntimeError, match="scalar outputs"):
        made.backward()


def test_a_pass_from_a_sparse_leaf_fills_its_own_gradient():
    leaf = torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse_csr().requires_grad_()
    leaf.backward(torch.tensor([[5.0, 6.0], [7.0, 8.0]]))
    assert leaf.grad.layout is torch.sparse_csr and leaf.grad.to_dense().tolist() == [[0.0, 6.0], [7.0, 0.0]]
    one = torch.tensor([3.0], requires_grad=True)
    torch.sparse_coo_tensor([[0], [0]], one * 2, (1, 1)).backward()
    assert one.grad.tolist() == [2.0]


def test_parts_in_memory_of_their_own() -> None:
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    for s, parts in ((x.to_sparse(), ("indices", "values")), (x.to_sparse_csr(), ("crow_indices", "col_indices", "values")),
                     (x.to_sparse_csc(), ("ccol_indices", "row_indices", "values"))):
        for part in parts:
            made, own = getattr(torch, f"{part}_copy")(s), getattr(s, part)()
            assert made.tolist() == own.tolist() and made.data_ptr() != own.data_ptr()
    out = torch.empty(2)
    assert torch.values_copy(x.to_sparse(), out=out) is out and out.tolist() == [2.0, 3.0]
    with pytest.raises(RuntimeError, match="Strided"):
        torch.crow_indices_copy(x)
    with pytest.raises(RuntimeError, match="row compressed"):
        torch.crow_indices_copy(x.to_sparse())

"""LU factorization against its definition and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy  # which imports its parts when they are first asked for

import flambeau as fb
from flambeau.linalg import LinAlgError

TYPES = (np.float32, np.float64, np.complex64, np.complex128)
SHAPES = [(1, 1), (4, 4), (3, 5), (5, 3), (2, 3, 4, 2), (0, 0), (3, 0), (0, 3), (0, 2, 2)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_parts_multiply_to_the_matrix(dtype, shape, make, close):
    a = make(shape, dtype)
    p, l, u = fb.linalg.lu(fb.tensor(a))
    k = min(shape[-2:])
    assert p.shape == (*shape[:-1], shape[-2]) and l.shape == (*shape[:-1], k) and u.shape == (*shape[:-2], k, shape[-1])
    close(p @ l @ u, a)
    np.testing.assert_array_equal(l.numpy(), np.tril(l.numpy(), -1) + np.eye(shape[-2], k, dtype=dtype))
    np.testing.assert_array_equal(u.numpy(), np.triu(u.numpy()))
    assert (abs(l.numpy()) <= 1 + 1e-5).all() or np.dtype(dtype).kind == "c"


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_packed_form(shape, make, close):
    a = make(shape)
    want, pivots = scipy.linalg.lu_factor(a)
    got = fb.linalg.lu_factor(fb.tensor(a))
    close(got.LU, want)
    assert got.pivots.tolist() == (pivots + 1).tolist() and got.pivots.dtype is fb.int32
    lu, p = fb.lu(fb.tensor(a))
    close(lu, want)
    assert p.tolist() == got.pivots.tolist() and fb.lu(fb.tensor(a), get_infos=True)[2].item() == 0


def test_failures():
    with pytest.raises(LinAlgError, match=r"torch.linalg.lu_factor: U\[1,1\] is zero"):
        fb.linalg.lu_factor(fb.zeros(2, 2))
    assert fb.linalg.lu_factor_ex(fb.zeros(2, 2)).info.item() == 1
    assert fb.lu(fb.zeros(2, 2))[1].tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="LU without pivoting is not implemented on the CPU"):
        fb.linalg.lu(fb.ones(2, 2), pivot=False)


def test_without_exchanges_on_a_gpu(sim_gpus, regular, close):
    a = regular((2, 4, 4))
    p, l, u = fb.linalg.lu(fb.tensor(a).cuda(), pivot=False)
    close(p, np.broadcast_to(np.eye(4), (2, 4, 4)))
    close(l @ u, a)


def test_unpacking_in_part(make):
    lu, pivots = fb.linalg.lu_factor(fb.tensor(make((4, 3))))
    p, l, u = fb.lu_unpack(lu, pivots, unpack_data=False)
    assert p.shape == (4, 4) and l.numel() == 0 and u.numel() == 0
    p, l, u = fb.lu_unpack(lu, pivots, unpack_pivots=False)
    assert p.numel() == 0 and l.shape == (4, 3) and u.shape == (3, 3)
    with pytest.raises(RuntimeError, match="int32"):
        fb.lu_unpack(lu, pivots.long())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_solving(dtype, left, adjoint, regular, make, close):
    a, b = regular((2, 4, 4), dtype), make((4, 3) if left else (3, 4), dtype, 1)
    lu, pivots = fb.linalg.lu_factor(fb.tensor(a))
    inverse = np.linalg.inv(a.conj().swapaxes(-1, -2) if adjoint else a)
    want = (inverse @ b if left else b @ inverse).astype(dtype)
    close(fb.linalg.lu_solve(lu, pivots, fb.tensor(b), left=left, adjoint=adjoint), want)
    if left and not adjoint:
        close(fb.lu_solve(fb.tensor(b), lu, pivots), want)
        close(fb.tensor(b).lu_solve(lu, pivots), want)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2), (2, 2, 3)])
def test_gradients_of_the_factors(dtype, shape, make, differentiable):
    a = make(shape, dtype, 5)
    differentiable(lambda x: fb.linalg.lu(x)[1:], a)
    differentiable(lambda x: fb.linalg.lu_factor(x)[0], a)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("adjoint", [True, False])
@pytest.mark.parametrize("left", [True, False])
def test_gradients_of_solving(dtype, adjoint, left, regular, make, differentiable):
    a, b = regular((2, 3, 3), dtype), make((2, 3, 2) if left else (2, 2, 3), dtype, 1)

    def f(x, y):
        return fb.linalg.lu_solve(*fb.linalg.lu_factor(x), y, left=left, adjoint=adjoint)
    differentiable(f, a, b)


def test_pivots_that_are_no_rows_are_refused():
    lu, pivots = fb.linalg.lu_factor(fb.eye(3))
    for bad in (0, 4, -1):
        wrong = pivots.clone()
        wrong[1] = bad
        for _ in range(5):
            with pytest.raises(RuntimeError, match="LU_pivots must lie between 1 and LU_data.size"):
                fb.lu_unpack(lu, wrong)
    for _ in range(5):
        np.testing.assert_array_equal(fb.lu_unpack(lu, pivots)[0].numpy(), np.eye(3))


@pytest.mark.parametrize("pivots", [[100, 2, 3], [0, 2, 3], [1, -7, 3]])
@pytest.mark.parametrize("recorded", [False, True])
def test_pivots_that_name_no_row_are_refused_before_the_library_sees_them(pivots, recorded):
    p = fb.tensor(pivots, dtype=fb.int32)
    b = fb.ones(3, 1, requires_grad=recorded)
    wrong = next(x for x in pivots if not 1 <= x <= 3)
    for call in (lambda: fb.linalg.lu_solve(fb.eye(3), p, b), lambda: fb.lu_solve(b, fb.eye(3), p)):
        for _ in range(5):
            with pytest.raises(RuntimeError, match=rf"pivots must lie between 1 and LU.size\(-2\), which is 3, got {wrong}"):
                call()


def test_wrong_pivots_on_a_simulated_gpu_are_told_where_it_waits(sim_gpus):
    p = fb.tensor([100, 2, 3], dtype=fb.int32).cuda()
    with pytest.raises(fb.cuda.AcceleratorError, match="pivots must lie between 1 and"):
        fb.linalg.lu_solve(fb.eye(3).cuda(), p, fb.ones(3, 1).cuda()).cpu()


@pytest.mark.parametrize(("matrix", "pivots"), [((16, 16), (17,)), ((16, 16), (15,)), ((16, 16), ()), ((3, 4), (4,)), ((2, 3, 3), (3,)), ((2, 3, 3), (3, 3))])
def test_pivots_of_another_number_are_refused(matrix, pivots):
    """Before any of them is read: PyTorch reads what lies behind them."""
    lu, wrong = fb.zeros(matrix), fb.ones(pivots, dtype=fb.int32)
    with pytest.raises(RuntimeError, match="LU_pivots is expected to have the shape"):
        fb.lu_unpack(lu, wrong)
    assert fb.lu_unpack(lu, wrong, unpack_pivots=False)[2].shape == matrix

"""LDL factorization against LAPACK by way of SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy  # which imports its parts when they are first asked for

import flambeau as fb
from flambeau.linalg import LinAlgError

TYPES = (np.float32, np.float64, np.complex64, np.complex128)


def symmetric(make, shape, dtype, hermitian):
    a = make(shape, dtype)
    other = a.swapaxes(-1, -2)
    return (a + (other.conj() if hermitian else other)).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (6, 6), (3, 5, 5), (0, 0), (0, 3, 3)])
def test_solving(dtype, hermitian, shape, make, close):
    a, b = symmetric(make, shape, dtype, hermitian), make((*shape[:-1], 2), dtype, 1)
    ld, pivots = fb.linalg.ldl_factor(fb.tensor(a), hermitian=hermitian)
    assert pivots.dtype is fb.int32 and pivots.shape == shape[:-1]
    np.testing.assert_array_equal(ld.numpy(), np.tril(ld.numpy()))
    x = fb.linalg.ldl_solve(ld, pivots, fb.tensor(b), hermitian=hermitian)
    close(fb.tensor(a) @ x, b, 5000)


def test_packed_form(make, close):
    a = symmetric(make, (6, 6), np.float64, False)
    want, pivots, _ = scipy.linalg.lapack.dsytrf(a, lower=1)
    got = fb.linalg.ldl_factor_ex(fb.tensor(a))
    close(got.LD, np.tril(want))
    assert got.pivots.tolist() == [p if p < 0 else p + 1 for p in pivots.tolist()] or got.pivots.tolist() == pivots.tolist()
    assert got.info.item() == 0


def test_failures():
    with pytest.raises(LinAlgError, match="torch.linalg.ldl_factor.*singular"):
        fb.linalg.ldl_factor(fb.zeros(2, 2))
    assert fb.linalg.ldl_factor_ex(fb.zeros(2, 2)).info.item() == 1


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("hermitian", [False, True])
def test_gradient_of_the_right_hand_side(dtype, hermitian, make, differentiable):
    ld, pivots = fb.linalg.ldl_factor(fb.tensor(symmetric(make, (2, 3, 3), dtype, hermitian)), hermitian=hermitian)
    differentiable(lambda b: fb.linalg.ldl_solve(ld, pivots, b, hermitian=hermitian), make((2, 3, 2), dtype))


@pytest.mark.parametrize("pivots", [[4, 2, 3], [0, 2, 3], [1, 2, -3], [-1, 2, 3], [-1, -1, -1], [-9, -9, 1]])
def test_pivots_that_no_factorization_gives_are_refused(pivots):
    with pytest.raises(RuntimeError, match=r"linalg.ldl_solve: .*pivots"):
        fb.linalg.ldl_solve(fb.eye(3), fb.tensor(pivots, dtype=fb.int32), fb.ones(3, 1))

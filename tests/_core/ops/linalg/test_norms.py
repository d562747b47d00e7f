"""Norms and condition numbers against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

TYPES = (np.float32, np.float64, np.complex64, np.complex128)
ORDERS = ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf]


def real(x, dtype):
    return np.asarray(x).astype(np.float32 if np.finfo(dtype).bits == 32 else np.float64)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("keepdim", [False, True])
def test_of_matrices(dtype, order, keepdim, make, close):
    a = make((3, 4), dtype)
    want = real(np.linalg.norm(a, order, keepdims=keepdim), dtype)
    close(fb.linalg.matrix_norm(fb.tensor(a), order, keepdim=keepdim), want)
    close(fb.linalg.norm(fb.tensor(a), order, keepdim=keepdim), want)
    b = make((2, 3, 4), dtype)
    for dim in ((0, 2), (2, 0), (-2, -1), (1, 0)):
        close(fb.linalg.matrix_norm(fb.tensor(b), order, dim, keepdim), real(np.linalg.norm(b, order, dim, keepdim), dtype))
        close(fb.linalg.norm(fb.tensor(b), order, dim, keepdim), real(np.linalg.norm(b, order, dim, keepdim), dtype))


@pytest.mark.parametrize("order", [None, 0, 1, -1, 2, 3, -2.5, 0.5, np.inf, -np.inf])
def test_of_vectors(order, make, close):
    a = make((4, 5))
    close(fb.linalg.norm(fb.tensor(a), order, 1), np.linalg.norm(a, order, 1))
    close(fb.linalg.norm(fb.tensor(a[0]), order), np.asarray(np.linalg.norm(a[0], order)))


def test_of_everything(make, close):
    a = make((2, 3, 4))
    close(fb.linalg.norm(fb.tensor(a)), np.asarray(np.linalg.norm(a)))
    close(fb.linalg.norm(fb.tensor(a), keepdim=True), np.linalg.norm(a.reshape(-1)).reshape(1, 1, 1))
    close(fb.linalg.norm(fb.tensor(a).float(), dtype=fb.float64), np.asarray(np.linalg.norm(a.astype(np.float32).astype(np.float64))))
    assert fb.norm(fb.tensor(a), "nuc", (1, 2)).shape == (2,)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
@pytest.mark.parametrize("order", ORDERS)
def test_of_nothing(shape, order):
    assert fb.linalg.matrix_norm(fb.zeros(shape), order).item() == 0
    assert fb.linalg.matrix_norm(fb.zeros(2, *shape), order).tolist() == [0, 0]


@pytest.mark.parametrize("call, text", [(lambda t: fb.linalg.norm(t[0], "x"), "linalg.matrix_norm: Order x not supported"),
                                        (lambda t: fb.linalg.matrix_norm(t, 3), "linalg.matrix_norm: Order 3 not supported"),
                                        (lambda t: fb.linalg.matrix_norm(t, 2, (0, 0)), r"dims must be different. Got \(0, 0\)"),
                                        (lambda t: fb.linalg.norm(t, 2, (0, 1, 2)), "must be of length 1 or 2"),
                                        (lambda t: fb.linalg.norm(t, 2), "the input must be 1D or 2D. Got 3D"),
                                        (lambda t: fb.linalg.norm(t.long()), "Expected a floating point or complex tensor as input. Got Long"),
                                        (lambda t: fb.linalg.cond(t, 3), "linalg.cond got an invalid norm type: 3")])
def test_failures(call, text):
    with pytest.raises(RuntimeError, match=text):
        call(fb.ones(3, 3, 3))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("order", [None, *ORDERS])
def test_condition(dtype, order, regular, close):
    a = regular((3, 4, 4), dtype)
    close(fb.linalg.cond(fb.tensor(a), order), real(np.linalg.cond(a, order), dtype), 2000)


def test_condition_of_singular_matrices():
    assert fb.linalg.cond(fb.zeros(2, 2), 1).item() == np.inf
    assert np.isnan(fb.linalg.cond(fb.zeros(2, 2)).item())
    assert fb.linalg.cond(fb.zeros(0, 0)).item() == 0


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("order", ORDERS)
def test_gradients(dtype, order, make, regular, differentiable):
    differentiable(lambda x: fb.linalg.matrix_norm(x, order), make((2, 3, 4), dtype))
    differentiable(lambda x: fb.linalg.cond(x, order), regular((3, 3), dtype), second=False)


@pytest.mark.parametrize("of", [fb.norm, fb.linalg.vector_norm, fb.linalg.norm])
@pytest.mark.parametrize("dtype", [fb.complex64, fb.complex128])
def test_a_complex_number_with_an_infinite_part_is_infinite(of, dtype):
    inf, nan = float("inf"), float("nan")
    for z in (complex(inf, nan), complex(nan, -inf), complex(inf, inf), complex(-inf, 1)):
        for rest in ([], [1j, 2]):
            assert of(fb.tensor([z, *rest], dtype=dtype)).item() == inf
    assert np.isnan(of(fb.tensor([complex(1, nan), 1], dtype=dtype)).item())
    x = fb.tensor([3 + 4j, complex(inf, nan)], dtype=dtype, requires_grad=True)
    fb.linalg.vector_norm(x[:1]).backward()
    np.testing.assert_allclose(x.grad.numpy(), [0.6 + 0.8j, 0], rtol=1e-6)


def test_a_count_has_no_gradient():
    for dtype in (fb.float32, fb.complex64):
        for dim in (None, 0):
            for _ in range(5):  # calls that are learned give none either
                x = fb.tensor([0.0, 1, -2], dtype=dtype, requires_grad=True)
                y = fb.linalg.vector_norm(x, 0, dim)
                y.backward()
                assert y.item() == 2 and x.grad is None
    x = fb.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        fb.autograd.grad(fb.norm(x, 0), x)
    assert fb.autograd.grad(fb.norm(x, 0) * x.sum(), x)[0].tolist() == [3, 3, 3]
    first, = fb.autograd.grad(fb.norm(x, 1), x, create_graph=True)
    assert fb.autograd.grad(first.sum(), x)[0].tolist() == [0, 0, 0]

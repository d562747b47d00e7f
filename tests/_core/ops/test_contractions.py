"""Contractions of several axes against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck


def random(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("equation,shapes", [("ij,jk->ik", [(3, 4), (4, 5)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("ii->i", [(4, 4)]), ("ij->", [(3, 4)]),
                                             ("i,j->ij", [(3,), (4,)]), ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
                                             ("ijk,jil,kl->i", [(2, 3, 4), (3, 2, 5), (4, 5)]),
                                             ("ij,ji", [(3, 4), (4, 3)]), ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)])])
def test_einsum(equation, shapes):
    arrays = [random(s, seed=i) for i, s in enumerate(shapes)]
    np.testing.assert_allclose(fb.einsum(equation, *map(fb.tensor, arrays)).numpy(), np.einsum(equation, *arrays), atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=2), st.lists(st.integers(0, 4), max_size=3), st.lists(st.integers(0, 4), max_size=2),
       st.randoms(use_true_random=False))
def test_tensordot_of_any_axes(left, shared, right, order):
    """The shared axes lie anywhere in each operand, in another order."""
    a_at, b_at = list(range(len(left) + len(shared))), list(range(len(right) + len(shared)))
    order.shuffle(a_at)
    order.shuffle(b_at)
    a, b = random([*left, *shared]).transpose(a_at), random([*shared, *right], 1).transpose(b_at)
    axes = [a_at.index(len(left) + i) for i in range(len(shared))], [b_at.index(i) for i in range(len(shared))]
    got = fb.tensordot(fb.from_numpy(a.copy()), fb.from_numpy(b.copy()), axes)
    np.testing.assert_allclose(got.numpy(), np.tensordot(a, b, axes), rtol=1e-10, atol=1e-12)


def test_chains_and_kronecker_products():
    chain = [random(s, i) for i, s in enumerate([(4, 9), (9, 2), (2, 7), (7, 3)])]
    want = np.linalg.multi_dot(chain)
    np.testing.assert_allclose(fb.linalg.multi_dot([fb.tensor(m) for m in chain]).numpy(), want, rtol=1e-10)
    np.testing.assert_allclose(fb.chain_matmul(*[fb.tensor(m) for m in chain]).numpy(), want, rtol=1e-10)
    a, b = random((2, 3)), random((4, 1, 2), 1)
    np.testing.assert_allclose(fb.kron(fb.tensor(a), fb.tensor(b)).numpy(), np.kron(a, b), rtol=1e-12)
    np.testing.assert_allclose(fb.inner(fb.tensor(a), fb.tensor(a[:1])).numpy(), np.inner(a, a[:1]), rtol=1e-12)


FORMS = {"einsum": lambda a, b: fb.einsum("ij,jk->ki", a, b), "tensordot": lambda a, b: fb.tensordot(a, b, 1), "kron": fb.kron,
         "inner": lambda a, b: fb.inner(a, b.t())}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients(name):
    a, b = (fb.tensor(random(s, seed=i), requires_grad=True) for i, s in enumerate([(2, 3), (3, 4)]))
    assert gradcheck(FORMS[name], (a, b)) and gradgradcheck(FORMS[name], (a, b))


def test_on_every_device(device):
    a, b = random((5, 6)), random((6, 4), 1)
    got = fb.einsum("ij,jk->ik", fb.from_numpy(a).to(device), fb.from_numpy(b).to(device))
    np.testing.assert_allclose(got.cpu().numpy(), a @ b, rtol=1e-10)


@pytest.mark.parametrize("equation", [",->", ",,->", "...,...->...", "...,...,...->..."])
def test_einsum_of_numbers(equation: str, device: str) -> None:
    tensors = [fb.tensor(float(i), device=device, requires_grad=True) for i in range(2, 3 + equation.count(","))]
    made = fb.einsum(equation, *tensors)
    assert made.shape == () and made.item() == np.prod([t.item() for t in tensors])
    made.backward()
    assert tensors[0].grad is not None and tensors[0].grad.item() == made.item() / 2


@pytest.mark.parametrize("dims", [0, 1, ([0], [1])])
def test_tensordot_of_mixed_types(dims):
    for left, right in ((fb.ones(1, 3), fb.ones(3, 1).double()), (fb.ones(1, 0).half(), fb.ones(0, 1)), (fb.ones(2, 1).long(), fb.ones(1, 2))):
        with pytest.raises(RuntimeError, match="both inputs should have same dtype"):
            fb.tensordot(left, right, dims)
    with pytest.raises(RuntimeError, match="both dimension lists should have same length"):
        fb.tensordot(fb.ones(1), fb.ones(1), ([0], [0, 1]))


def test_bilinear_is_one_function() -> None:
    assert fb.nn.functional.bilinear is fb.bilinear
    a, b, w, bias = (np.random.default_rng(k).standard_normal(s) for k, s in enumerate([(3, 5, 2), (3, 5, 4), (6, 2, 4), (6,)]))
    found = fb.bilinear(*map(fb.tensor, (a, b, w, bias)))
    np.testing.assert_allclose(found.numpy(), np.einsum("...i,kij,...j->...k", a, w, b) + bias, rtol=1e-12)
    with pytest.raises(RuntimeError, match=r"input batch dimensions do not match: expected \[2\], got \[3\]"):
        fb.bilinear(fb.ones(2, 2), fb.ones(3, 4), fb.ones(6, 2, 4))
    with pytest.raises(RuntimeError, match="last dimensions of input1 and input2 must be 2 and 4"):
        fb.bilinear(fb.ones(2, 3), fb.ones(2, 4), fb.ones(6, 2, 4))


def test_bilinear_of_nothing_and_of_bytes():
    for lead, size, made in (((0,), 3, 2), ((0, 2), 3, 0), ((2,), 3, 0), ((2, 2), 0, 2)):
        found = fb.bilinear(fb.ones(*lead, size), fb.ones(*lead, size), fb.ones(made, size, size))
        assert found.shape == (*lead, made) and not found.any()
    x = fb.full((1, 4), 9, dtype=fb.uint8)
    found = fb.bilinear(x, x, fb.ones(2, 4, 4, dtype=fb.uint8))
    assert found.dtype is fb.uint8 and found.tolist() == [[36 * 36 % 256] * 2]

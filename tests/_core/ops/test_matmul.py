"""Matrix products against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck


def random(shape, dtype=np.float64, seed=0):
    a = np.random.default_rng(seed).normal(size=shape)
    return a.astype(dtype) if np.dtype(dtype).kind != "c" else (a + 1j * a[..., ::-1]).astype(dtype)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.booleans(), st.booleans(), st.sampled_from([np.float32, np.float64, np.complex64]))
def test_any_size_and_orientation(m, k, n, ta, tb, dtype):
    a, b = random((k, m) if ta else (m, k), dtype), random((n, k) if tb else (k, n), dtype, 1)
    x, y = fb.from_numpy(a), fb.from_numpy(b)
    got = (x.t() if ta else x) @ (y.t() if tb else y)
    want = (a.T if ta else a) @ (b.T if tb else b)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("a,b", [((5,), (5,)), ((3, 5), (5,)), ((5,), (5, 3)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((7, 1, 3, 4), (2, 4, 5)),
                                 ((2, 3, 4), (4,)), ((4,), (2, 4, 3)), ((0, 3), (3, 2)), ((2, 0), (0, 3))])
def test_rank_rules(a, b):
    x, y = random(a), random(b, seed=1)
    np.testing.assert_allclose((fb.tensor(x) @ fb.tensor(y)).numpy(), np.matmul(x, y), atol=1e-12)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 70, 50), (60, 1, 90), (1, 1, 3000), (40, 50, 1), (2, 2, 700)])
def test_complex_vectors_of_any_layout(name, m, n, k):
    a, b = ((random((3, *s), np.float64) + 1j * random((3, *s), np.float64, 1)).astype(name) for s in ((m, k), (k, n)))
    want = a.astype(np.complex128) @ b.astype(np.complex128)
    close = {"rtol": 1e-4, "atol": 1e-4} if name == "complex64" else {"rtol": 1e-11, "atol": 1e-11}
    for x in (fb.tensor(a), fb.tensor(np.ascontiguousarray(a.swapaxes(1, 2))).transpose(1, 2), fb.tensor(np.repeat(a, 2, 2))[:, :, ::2]):
        for y in (fb.tensor(b), fb.tensor(np.ascontiguousarray(b.swapaxes(1, 2))).transpose(1, 2), fb.tensor(np.repeat(b, 2, 1))[:, ::2]):
            np.testing.assert_allclose(fb.bmm(x, y).numpy(), want, **close)
            np.testing.assert_allclose((x[0] @ y[0]).numpy(), want[0], **close)


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize(("batch", "m", "n", "k"), [(1, 33, 70, 50), (3, 20, 17, 9), (1, 1, 40, 30), (1, 40, 1, 30), (2, 3, 2, 1), (1, 5, 6, 0)])
def test_integers_of_any_layout_wrap(name, batch, m, n, k):
    rng = np.random.default_rng(m + n + k)
    info = np.iinfo(name)
    a, b = (rng.integers(info.min, info.max, s, name, endpoint=True) for s in ((batch, m, k), (batch, k, n)))
    want = a @ b
    for x in (fb.tensor(a), fb.tensor(np.ascontiguousarray(a.swapaxes(1, 2))).transpose(1, 2), fb.tensor(np.repeat(a, 2, 2))[:, :, ::2]):
        for y in (fb.tensor(b), fb.tensor(np.ascontiguousarray(b.swapaxes(1, 2))).transpose(1, 2), fb.tensor(np.repeat(b, 2, 2))[:, :, ::2]):
            np.testing.assert_array_equal(fb.bmm(x, y).numpy(), want)
            np.testing.assert_array_equal((x[0] @ y[0]).numpy(), want[0])
            np.testing.assert_array_equal(fb.addmm(fb.full((n,), 3, dtype=x.dtype), x[0], y[0], beta=2, alpha=5).numpy(),
                                          want[0] * np.array(5, name) + np.array(6, name))


@pytest.mark.parametrize("dtype", [fb.int64, fb.int32, fb.uint8, fb.float16, fb.bfloat16])
def test_other_types(dtype):
    a, b = np.random.default_rng(0).integers(0, 9, (6, 7)), np.random.default_rng(1).integers(0, 9, (7, 5))
    got = fb.tensor(a).to(dtype) @ fb.tensor(b).to(dtype)
    assert got.dtype is dtype
    want = fb.tensor(a @ b).to(dtype)
    np.testing.assert_array_equal(got.double().numpy(), want.double().numpy())


def test_big_products_run_on_several_threads():
    a, b = random((700, 300), np.float32), random((300, 900), np.float32, 1)
    np.testing.assert_allclose((fb.from_numpy(a) @ fb.from_numpy(b)).numpy(), a @ b, rtol=1e-3, atol=1e-3)
    a, b = random((9, 128, 128), np.float32), random((9, 128, 128), np.float32, 1)
    np.testing.assert_allclose(fb.bmm(fb.from_numpy(a), fb.from_numpy(b)).numpy(), a @ b, rtol=1e-3, atol=1e-3)


FORMS = {"mm": lambda a, b: a @ b, "linear": lambda a, b: fb.nn.functional.linear(a, b.t(), b[0]), "addmm": lambda a, b: fb.addmm(b[0], a, b, beta=2, alpha=3)}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients(name):
    a, b = (fb.tensor(random(s, seed=i), requires_grad=True) for i, s in enumerate([(2, 3), (3, 4)]))
    assert gradcheck(FORMS[name], (a, b)) and gradgradcheck(FORMS[name], (a, b))


def test_errors():
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 4x5\)"):
        fb.zeros(2, 3) @ fb.zeros(4, 5)
    with pytest.raises(RuntimeError, match="same dtype"):
        fb.zeros(2, 3) @ fb.zeros(3, 2, dtype=fb.float64)


@pytest.mark.parametrize("types", [("bfloat16", "float32", "bfloat16"), ("bfloat16", "bfloat16", "float32"), ("float32", "int64", "int64")])
def test_sums_of_products_of_mixed_types(types):
    base, left, right = (fb.ones(2, 2, dtype=getattr(fb, name)) for name in types)
    for name, call in {"addmm": lambda: base.addmm(left, right), "addmv": lambda: base[0].addmv(left, right[0]),
                       "baddbmm": lambda: base[None].baddbmm(left[None], right[None]), "addbmm": lambda: base.addbmm(left[None], right[None])}.items():
        words = "^(self|mat1) and mat2 must have the same dtype, but got (Float|BFloat16) and (Float|BFloat16|Long)$"
        with pytest.raises(RuntimeError, match=words if name == "addmm" else f"{name} operands to have the same dtype, but got: .*, .* and "):
            call()


def test_addr_promotes():
    base, left, right = fb.ones(2, 3, dtype=fb.int64), fb.tensor([1.0, 2.0]), fb.tensor([1, 2, 3], dtype=fb.uint8)
    made = base.addr(left, right, alpha=0.5)
    assert made.dtype is fb.float32 and made.tolist() == [[1.5, 2.0, 2.5], [2.0, 3.0, 4.0]]
    with pytest.raises(RuntimeError, match="Float can't be cast to the desired output type Long"):
        base.addr_(left, right)
    assert base.addr_(right[:2], right).tolist() == [[2, 3, 4], [3, 5, 7]]
    assert fb.ones(2, 2, dtype=fb.float16).addr_(left, left).dtype is fb.float16
    for more, words in (({"alpha": 0.5}, "argument alpha must not be a floating"), ({"beta": 0.5}, "argument beta must not be a floating"),
                        ({"alpha": True}, "Boolean alpha only")):
        with pytest.raises(RuntimeError, match=words):
            base.addr(right[:2], right, **more)


def test_on_every_device(device):
    a, b = random((20, 30), np.float32), random((30, 10), np.float32, 1)
    np.testing.assert_allclose((fb.from_numpy(a).to(device) @ fb.from_numpy(b).to(device)).cpu().numpy(), a @ b, rtol=1e-4, atol=1e-4)


SUMS = {"addmm": ((4, 5), (5, 6), (4, 6)), "baddbmm": ((3, 4, 5), (3, 5, 6), (3, 4, 6)), "addbmm": ((3, 4, 5), (3, 5, 6), (4, 6))}


@pytest.mark.parametrize("dtype", [fb.bfloat16, fb.float16])
@pytest.mark.parametrize("name", sorted(SUMS))
@pytest.mark.parametrize("row", [False, True])
def test_a_sum_of_16_bit_products_is_rounded_once_and_has_gradients(name, dtype, row):
    left, right, whole = SUMS[name]
    given = [fb.from_numpy(random(s, seed=i)).to(dtype) for i, s in enumerate((whole[-1:] if row else whole, left, right))]
    wide = [t.double().requires_grad_() for t in given]
    narrow = [t.requires_grad_() for t in given]
    out, want = (getattr(ts[0], name)(*ts[1:]) for ts in (narrow, wide))
    eps = fb.finfo(dtype).eps
    assert out.dtype is dtype and out.grad_fn is not None
    np.testing.assert_allclose(out.detach().double().numpy(), want.detach().numpy(), rtol=0.51 * eps, atol=1e-5)
    seed = fb.from_numpy(random(whole, seed=9)).to(dtype)
    out.backward(seed)
    want.backward(seed.double())
    for got, right_one in zip(narrow, wide, strict=True):
        assert got.grad.dtype is dtype and got.grad.shape == got.shape
        np.testing.assert_allclose(got.grad.double().numpy(), right_one.grad.numpy(), rtol=0.51 * eps, atol=1e-5)
    if not row:
        again = given[0].detach().clone()
        assert getattr(again, name + "_")(*(t.detach() for t in given[1:])) is again and fb.equal(again, out.detach())


def test_second_derivatives_of_16_bit_sums():
    base, a, b = (fb.from_numpy(random(s, seed=i)).to(fb.bfloat16).requires_grad_() for i, s in enumerate(((4, 6), (4, 5), (5, 6))))
    gradient, = fb.autograd.grad(fb.addmm(base, a, b).square().sum(), a, create_graph=True)
    second, = fb.autograd.grad(gradient.sum(), base)
    np.testing.assert_allclose(second.double().numpy(), 2 * np.repeat(b.detach().double().numpy().sum(0)[None], 4, 0), rtol=0.02, atol=0.02)


def test_shapes_that_do_not_fit_in_16_bit_sums():
    one = fb.ones(2, 3, dtype=fb.bfloat16)
    for call in (lambda: one.addmm(one, one), lambda: one.addmm(one.t(), one), lambda: one.addmm(one[0], one),
                 lambda: one.baddbmm(one[None], one[None]), lambda: one.addbmm(one[None], one[None])):
        with pytest.raises(RuntimeError):
            call()


def test_products_of_nothing_ask_for_no_type():
    none, row, column = (fb.zeros(*s, dtype=fb.bool) for s in ((0, 2), (1, 0), (0, 3)))
    assert fb.mm(row, column).tolist() == [[False] * 3] and (none @ fb.ones(2, 4, dtype=fb.bool)).shape == (0, 4)
    assert fb.tensordot(row, row, 0).shape == (1, 0, 1, 0)
    with pytest.raises(NotImplementedError, match="Bool"):
        fb.ones(1, 2, dtype=fb.bool) @ fb.ones(2, 1, dtype=fb.bool)


@pytest.mark.parametrize("dtype", [fb.float32, fb.float16, fb.complex64])
def test_sums_of_products_name_what_is_no_matrix(dtype) -> None:
    def ones(*shape, of=dtype):
        return fb.ones(*shape, dtype=of)
    for wrong in ((), (2,), (2, 2, 2)):
        with pytest.raises(RuntimeError, match=f"^mat1 must be a matrix, got {len(wrong)}-D tensor"):
            fb.addmm(ones(2, 2), ones(*wrong), ones(2, 2))
        with pytest.raises(RuntimeError, match=f"^mat2 must be a matrix, got {len(wrong)}-D tensor"):
            ones(2, 2).addmm_(ones(2, 2), ones(*wrong))
    for base, mat, vec in (((2, 2), (2, 2), (2,)), ((2,), (2,), (2,)), ((2,), (2, 2), ())):
        with pytest.raises(RuntimeError, match=f"vector . matrix @ vector expected, got {len(base)}, {len(mat)}, {len(vec)}"):
            fb.addmv(ones(*base), ones(*mat), ones(*vec))
    for one, two, words in (((), (2,), "vec1, but got 0-D"), ((2,), (2, 2), "vec2, but got 2-D")):
        with pytest.raises(RuntimeError, match=f"addr: Expected 1-D argument {words}"):
            fb.addr(ones(2, 2), ones(*one), ones(*two))
    with pytest.raises(IndexError, match="Dimension specified as 1 but tensor has no dimensions"):
        fb.addbmm(ones(2, 2), ones(), ones(2, 2, 2))
    with pytest.raises(IndexError, match=r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)"):
        fb.addbmm(ones(2, 2), ones(2, 2), ones(2, 2))
    with pytest.raises(RuntimeError, match="self and mat2 must have the same dtype, but got Double and"):
        fb.addmm(ones(2, 2, of=fb.float64), ones(2), ones(2))
    with pytest.raises(RuntimeError, match="mat1 and mat2 must have the same dtype, but got Double and"):
        fb.addmm(ones(2, 2), ones(2, 2, of=fb.float64), ones(2, 2))

"""`@flambeau.pointwise`: a user's formula broadcasts, promotes, differentiates and runs everywhere; its mistakes are named."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

K = 0.79788456


@fb.pointwise
def gelu_residual(x, bias, residual):
    """Bias, gelu and residual at once."""
    y = x + bias
    return 0.5 * y * (1 + fb.tanh(K * (y + 0.044715 * y * y * y))) + residual


@fb.pointwise
def squash(x, *, low=-1.0, high=1.0):
    return fb.where(x < low, low, fb.where(x > high, high, x))


@fb.pointwise
def polar(r, phi):
    return r * fb.cos(phi), r * fb.sin(phi)


@fb.pointwise(promote="default")
def middle(a, b):
    return (a + b) // 2


RNG = np.random.default_rng(0)


def test_one_kernel_gives_what_the_operations_give():
    x, b, r = fb.randn(5, 7), fb.randn(7), fb.randn(5, 1)
    y = x + b
    want = 0.5 * y * (1 + fb.tanh(K * (y + 0.044715 * y * y * y))) + r
    np.testing.assert_allclose(gelu_residual(x, b, r).numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
    assert gelu_residual.__name__ == "gelu_residual" and gelu_residual.__doc__ == "Bias, gelu and residual at once." and callable(gelu_residual.formula)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([(3, 4), (1, 4), (4,), (), (0, 4)]), st.sampled_from([(3, 4), (3, 1), (1,), ()]))
def test_operands_broadcast(a, b):
    x, y = RNG.normal(size=a), RNG.normal(size=b if 0 not in a else (4,))
    got = polar(fb.tensor(x), fb.tensor(y))
    assert isinstance(got, tuple) and len(got) == 2
    np.testing.assert_allclose(got[0].numpy(), x * np.cos(y), rtol=1e-10)
    np.testing.assert_allclose(got[1].numpy(), x * np.sin(y), rtol=1e-10)


def test_shapes_that_do_not_fit_say_so():
    with pytest.raises(RuntimeError, match="must match the size of tensor"):
        polar(fb.zeros(3), fb.zeros(4))


def test_types_are_promoted_as_everywhere():
    assert polar(fb.ones(2, dtype=fb.float16), fb.ones(2))[0].dtype is fb.float32 and polar(fb.ones(2, dtype=fb.int64), 1)[0].dtype is fb.float32
    assert polar(fb.ones(2, dtype=fb.float16), fb.ones((), dtype=fb.float64))[0].dtype is fb.float16
    assert polar(fb.ones(2, dtype=fb.float64), 2)[1].dtype is fb.float64
    got = middle(fb.tensor([1, 7]), fb.tensor([4, 8]))
    assert got.dtype is fb.int64 and got.tolist() == [2, 7] and middle(fb.tensor([1.0]), 4).item() == 2
    half = fb.tensor(RNG.normal(size=50)).half()
    np.testing.assert_allclose(squash(half * 3).float().numpy(), np.clip((half * 3).float().numpy(), -1, 1))


def test_numbers_names_defaults_and_constants():
    x = fb.tensor([-3.0, 0.5, 3.0])
    assert squash(x).tolist() == [-1, 0.5, 1] and squash(x, high=2.0).tolist() == [-1, 0.5, 2] and squash(x=x, low=0.0).tolist() == [0, 0.5, 1]
    assert polar(2.0, fb.tensor([0.0]))[0].item() == 2 and polar(phi=fb.tensor([0.0]), r=3)[0].item() == 3

    @fb.pointwise
    def scaled(x, k=2.0, *, shift):
        return x * k + shift
    assert scaled(x, shift=1).tolist() == [-5, 2, 7] and scaled(x, 3.0, shift=0).tolist() == [-9, 1.5, 9]
    assert scaled(x, k=fb.tensor(1.0), shift=0).tolist() == x.tolist()
    with pytest.raises(TypeError, match=r"scaled\(\) missing 1 required keyword-only argument: 'shift'"):
        scaled(x)


@pytest.mark.parametrize("call,message", [
    (lambda: polar(fb.ones(1)), r"polar\(\) missing 1 required positional argument: 'phi'"), (lambda: polar(1.0, 2.0),
    "at least one argument must be a Tensor"),
    (lambda: polar(fb.ones(1), "a"), r"argument 'phi' must be Tensor or Number, not str"), (lambda: polar(fb.ones(1), 1, 2),
    "takes 2 positional arguments but 3 were given"),
    (lambda: polar(fb.ones(1), 1, phi=2), "multiple values for argument 'phi'"), (lambda: polar(fb.ones(1), 1, q=2), "unexpected keyword argument 'q'"),
    (lambda: fb.pointwise(lambda *x: x[0]), "fixed number of positional parameters"), (lambda: fb.pointwise(lambda: 1), "at least one"),
    (lambda: fb.pointwise(lambda x: 3)(fb.ones(1)), "must return an expression of its operands"), (lambda: fb.pointwise(lambda x: None)(fb.ones(1)),
    "not NoneType"),
    (lambda: fb.pointwise(lambda x: x if x > 0 else -x)(fb.ones(1)), r"write where\(condition, a, b\) instead of"),
    (lambda: fb.pointwise(lambda x: x + "1")(fb.ones(1)), "str"), (lambda: fb.pointwise(lambda x: math.sin(x))(fb.ones(1)), "real number")])
def test_mistakes_are_named(call, message):
    with pytest.raises(TypeError, match=message):
        call()


FORMS = {"gelu": (gelu_residual, [(2, 3), (3,), (2, 1)]), "polar": (polar, [(2, 2), (2,)]), "squash": (lambda x: squash(x * 0.4, high=0.3), [(3, 3)]),
         "many": (fb.pointwise(lambda x, y: fb.exp(-x * x) * fb.atan(y) + fb.sqrt(x * x + 1) / (fb.abs(y) + 1) + x ** 3 + fb.sigmoid(x * y)
                             + fb.log1p(y * y)), [(2, 3), (3,)]),
         "extremes": (fb.pointwise(lambda x, y: fb.maximum(x, y) * fb.minimum(x, 0.3) + fb.clamp(x, -0.5, 0.5)), [(2, 3), (1, 3)])}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients_of_every_order_come_from_the_formula(name):
    f, shapes = FORMS[name]
    rng = np.random.default_rng(4)
    xs = tuple(fb.tensor(rng.normal(size=s), requires_grad=True) for s in shapes)
    assert gradcheck(f, xs) and gradgradcheck(f, xs, atol=1e-4)


def test_complex_formulas():
    f = fb.pointwise(lambda z, w: z * fb.conj(w) + fb.exp(z) * fb.real(w) - fb.imag(z))
    z = fb.tensor([1 + 2j, -0.5j], dtype=fb.complex128, requires_grad=True)
    w = fb.tensor([0.5 - 1j], dtype=fb.complex128, requires_grad=True)
    zn, wn = z.detach().numpy(), w.detach().numpy()
    np.testing.assert_allclose(f(z, w).detach().numpy(), zn * wn.conj() + np.exp(zn) * wn.real - zn.imag)
    assert gradcheck(f, (z, w)) and gradgradcheck(f, (z, w))


def test_only_the_operands_that_need_it_get_gradients():
    x, b = fb.ones(3, requires_grad=True), fb.ones(3)
    out = gelu_residual(x, b, 0.0)
    out.sum().backward()
    assert x.grad is not None and b.grad is None and out.grad_fn.name() == "GeluResidualBackward0"
    a, _ = polar(x, b)
    x.grad = None
    a.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.cos([1.0] * 3), rtol=1e-6)
    y = x * 1
    z = squash(y)
    with fb.no_grad():
        assert not squash(x).requires_grad
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_any_layout_and_size():
    x = fb.randn(40, 50)
    for t in (x.t(), x[::3, 1::2], x[:0], x[:1].expand(9, 50), fb.tensor(2.0), fb.randn(300_001)):
        np.testing.assert_allclose(squash(t, high=0.5).numpy(), np.clip(t.numpy(), -1, 0.5))
    assert squash(x.t()).stride() == x.t().stride()


def test_formulas_inside_formulas():
    @fb.pointwise
    def outer(x):
        return squash(x * 2) + polar(x, 0.0)[0]
    assert outer(fb.tensor([0.25, 5.0])).tolist() == [0.75, 6.0]


def test_random_formulas_agree_with_python():
    ops = ["({} + {})", "({} - {})", "({} * {})", "fb.maximum({}, y + {})", "fb.where({} > 0, {}, 1.5)"]
    rng = np.random.default_rng(9)
    for _ in range(15):
        text = "x"
        for _ in range(6):
            text = rng.choice(ops).format(text, rng.choice(["x", "y", "0.5", "fb.sin(y)"]))
        f = eval(f"lambda x, y: {text}", {"fb": fb})
        x, y = fb.tensor(RNG.normal(size=20)), fb.tensor(RNG.normal(size=20))
        np.testing.assert_allclose(fb.pointwise(f)(x, y).numpy(), f(x, y).numpy(), rtol=1e-9)


def test_threads_may_meet_a_formula_first_together():
    f = fb.pointwise(lambda x, y: fb.tanh(x) * y + 0.125)
    x, out = fb.randn(100), [None] * 6
    threads = [threading.Thread(target=lambda i=i: out.__setitem__(i, f(x, float(i)))) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, o in enumerate(out):
        np.testing.assert_allclose(o.numpy(), np.tanh(x.numpy()) * i + 0.125, rtol=1e-5, atol=1e-6)


def test_on_every_device(device):
    x = fb.tensor(RNG.normal(size=(4, 5))).to(device).requires_grad_()
    b = fb.tensor(RNG.normal(size=5)).to(device)
    out = gelu_residual(x, b, 1.0)
    assert str(out.device) == device
    np.testing.assert_allclose(out.detach().cpu().numpy(), gelu_residual(x.detach().cpu(), b.cpu(), 1.0).numpy())
    out.sum().backward()
    assert str(x.grad.device) == device
    if device != "cpu":
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            gelu_residual(x, b.cpu(), 0.0)

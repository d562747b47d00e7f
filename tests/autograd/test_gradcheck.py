"""The checks of gradients find what is wrong and pass what is right."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import Function, gradcheck, gradgradcheck
from flambeau.autograd.gradcheck import GradcheckError


def leaf(*shape, d=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=shape)
    return fb.tensor(a + 1j * rng.normal(size=shape) if d is np.complex128 else a, requires_grad=True)


class Wrong(Function):
    """Right at first order when `factor` is 1, never at second."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x ** 3

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].detach()  # which cuts the second derivative
        return g * 3 * x * x * ctx.factor, None


def test_right_gradients_pass():
    x, w = leaf(2, 3), leaf(3, 2, seed=1)
    assert gradcheck(lambda x, w: (x @ w).tanh(), (x, w)) and gradgradcheck(lambda x, w: (x @ w).tanh(), (x, w))
    assert gradcheck(lambda x: (x.sum(), x * 2, fb.tensor(3)), x)
    assert gradcheck(lambda x, k: x * k, (x, 2.0)) and gradcheck(lambda x, c: x * c, (x, fb.ones(3, dtype=fb.float64)))
    assert gradcheck(lambda x: x[:0] * 2, (x,))


def test_wrong_gradients_are_found():
    x = leaf(3)
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradcheck(lambda x: Wrong.apply(x, 1.01), (x,))
    assert gradcheck(lambda x: Wrong.apply(x, 1.01), (x,), raise_exception=False) is False
    assert issubclass(GradcheckError, RuntimeError)
    assert gradcheck(lambda x: Wrong.apply(x, 1.0), (x,))
    with pytest.raises(GradcheckError):
        gradgradcheck(lambda x: Wrong.apply(x, 1.0), (x,))
    assert gradgradcheck(lambda x: Wrong.apply(x, 1.0), (x,), raise_exception=False) is False
    with pytest.raises(GradcheckError, match="input 1"):
        gradcheck(lambda x, y: x * y.detach(), (x, leaf(3, seed=1)))


def test_nothing_to_check_is_an_error():
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lambda x: x, (fb.ones(2),))


def test_complex_functions():
    z = leaf(2, 2, d=np.complex128)
    for f in (lambda z: z * z, lambda z: z.abs(), lambda z: z.conj() * z.real, lambda z: fb.view_as_real(z) ** 2, lambda z: (z.exp() + z.sin()).imag):
        assert gradcheck(f, (z,)) and gradgradcheck(f, (z,))
    assert gradcheck(lambda x: x * (1 + 2j), (leaf(3),))
    with pytest.raises(GradcheckError):
        gradcheck(lambda z: z * z.detach().conj(), (z,))


def test_given_output_gradients_and_tolerances():
    x = leaf(3)
    assert gradgradcheck(lambda x: x ** 3, (x,), grad_outputs=fb.ones(3, dtype=fb.float64, requires_grad=True))
    loose = fb.tensor([0.5, 1.5], requires_grad=True)
    assert gradcheck(lambda x: x * x, (loose,), eps=1e-2, atol=1e-2)
    assert gradcheck(lambda x: x * x, (x,), eps=1e-4, atol=1e-7, rtol=1e-7)


def test_inputs_are_left_as_they_were():
    x = leaf(2, 2)
    before = x.detach().clone()
    gradcheck(lambda x: x.exp(), (x,))
    assert fb.equal(x.detach(), before) and x.grad is None and x._version == 0


def test_on_every_device(device):
    x = leaf(2, 2).detach().to(device).requires_grad_()
    assert gradcheck(lambda x: x.t() @ x, (x,)) and gradgradcheck(lambda x: x.sigmoid(), (x,))


def test_either_check_may_be_named_first() -> None:
    import subprocess
    import sys
    code = "import flambeau as t; t.autograd.gradgradcheck; assert callable(t.autograd.gradcheck)"
    subprocess.run([sys.executable, "-c", code], check=True)

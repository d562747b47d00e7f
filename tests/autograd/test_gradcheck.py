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


class Jittery(Function):
    """Right, but for a little noise that each backward pass draws anew."""

    @staticmethod
    def forward(ctx, x, noise):
        ctx.noise = noise
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return Jittery.apply(g, ctx.noise) * (1 + fb.rand_like(g) * ctx.noise), None


def test_backward_passes_must_agree():
    x = leaf(4)
    assert gradcheck(lambda x: Jittery.apply(x, 0.0), (x,))
    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        gradcheck(lambda x: Jittery.apply(x, 1e-6), (x,))
    assert gradcheck(lambda x: Jittery.apply(x, 1e-6), (x,), nondet_tol=1e-5)
    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        gradgradcheck(lambda x: Jittery.apply(x, 1e-12), (x,))


def test_gradients_of_zero_must_stay_zero():
    def shifted(x):
        y = x.clone()
        y.register_hook(lambda g: g + 1e-3)
        return y
    with pytest.raises(GradcheckError, match="not multiplied by grad_output"):
        gradcheck(shifted, (leaf(2),), atol=1e-1)
    assert gradcheck(shifted, (leaf(2),), atol=1e-1, raise_exception=False) is False


def test_outputs_must_not_change_their_kind():
    one = fb.ones(1, dtype=fb.float64, requires_grad=True)
    with pytest.raises(AssertionError, match="same shape when inputs are perturbed"):
        gradcheck(lambda x: fb.cat([x, x]) if bool((x >= 1).all()) else x, (one,))
    with pytest.raises(AssertionError, match="same dtype when inputs are perturbed"):
        gradcheck(lambda x: x.float() if bool((x >= 1).all()) else x, (one,))


def test_outputs_without_gradients_must_be_constant():
    x = leaf(2)
    assert gradcheck(lambda x: x.detach() * 0, (x,)) and gradcheck(lambda x: (), (x,))
    with pytest.raises(GradcheckError, match="expected to be zero"):
        gradcheck(lambda x: x.detach() * 2, (x,))


def test_inputs_that_cannot_be_checked():
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0"):
        gradcheck(lambda x: x, (fb.ones(1, dtype=fb.float64, requires_grad=True).expand(2, 2),))
    with pytest.warns(UserWarning, match="Input #1 requires gradient and is not a double precision"):
        gradcheck(lambda x, y: x * y, (leaf(1), fb.ones(1, requires_grad=True)), atol=1e-1, eps=1e-2)


def test_the_input_is_moved_where_it_lies():
    x = leaf(3)
    assert gradcheck(lambda _: x * x, (x,))


def test_values_of_sparse_inputs():
    a, b = leaf(2, 2), fb.tensor([[0.0, 2.0], [3.0, 0.0]], dtype=fb.float64).to_sparse().requires_grad_()
    assert gradcheck(lambda a, b: a * b.to_dense() ** 2, (a, b))
    assert gradcheck(lambda b: b.to_dense().sum(), (b,))


def test_a_mismatch_names_the_part_of_complex_numbers():
    def shifted(z):
        y = z.clone()
        y.register_hook(lambda g: g * 1j)
        return y
    with pytest.raises(GradcheckError, match="While considering the imaginary part of complex outputs only, Jacobian mismatch"):
        gradcheck(shifted, (leaf(2, d=np.complex128),))


def test_of_no_elements():
    x = fb.rand([0, 1], dtype=fb.complex128, requires_grad=True)
    assert gradcheck(lambda t: fb.diagonal(t), (x,), check_forward_ad=True)
    assert gradcheck(lambda t: fb.cat([t.flatten(), fb.ones(3, dtype=t.dtype)]), (x,), check_forward_ad=True)

"""Writing in place under autograd: what is refused, and gradients (of gradients too) through writes into views."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck


def leaf(*shape, seed=0):
    return fb.tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True)


def through(view):
    """Writes a function of w into a view of x*x, and uses the whole."""
    def f(x, w):
        y = x * x
        v = view(y)
        v.copy_(w.expand(v.shape) ** 3 if w.dim() == 0 else w ** 3)
        v.mul_(w)
        return y * y.roll(1)
    return f


VIEWS = {"select": lambda y: y[1], "narrow": lambda y: y.narrow(1, 1, 2), "strided": lambda y: y[::2, ::2], "transposed": lambda y: y.t()[:2],
         "diagonal": lambda y: y.diagonal(), "nested": lambda y: y[1:].select(1, 0)[1:], "whole": lambda y: y}


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_writes_through_views_have_gradients_of_every_order(name):
    x, w = leaf(3, 3), fb.tensor(0.7, dtype=fb.float64, requires_grad=True)
    assert gradcheck(through(VIEWS[name]), (x, w)) and gradgradcheck(through(VIEWS[name]), (x, w))


def test_other_views_see_the_write():
    x, w = leaf(4), leaf(2, seed=1)

    def f(x, w):
        y = x * 2
        windows, wide, pair = y.unfold(0, 2, 1), y.expand(3, 4), y[1:3]
        pair.mul_(w)
        return windows * 3, wide.sum(0), y
    assert gradcheck(f, (x, w)) and gradgradcheck(f, (x, w))


def test_writes_through_the_parts_of_complex_numbers():
    z = fb.tensor([1 + 2j, 3 - 1j], dtype=fb.complex128, requires_grad=True)

    def pairs(z):
        y = z * 1
        fb.view_as_real(y).mul_(fb.tensor([2.0, 3.0], dtype=fb.float64))
        return y * y

    def real(z):
        y = z * 1
        y.real.mul_(2)
        y.imag.add_(y.real * 3)
        return y * y

    def numbers(z):
        y = fb.view_as_real(z) * 1
        fb.view_as_complex(y).mul_(2j)
        return y * y
    for f in (pairs, real, numbers):
        assert gradcheck(f, (z,)) and gradgradcheck(f, (z,))


OPERATIONS = {"add_": lambda y, w: y.add_(w), "add_alpha": lambda y, w: y.add_(w, alpha=2), "sub_": lambda y, w: y.sub_(w), "mul_": lambda y, w: y.mul_(w),
              "div_": lambda y, w: y.div_(w), "pow_": lambda y, w: y.abs_().pow_(w), "addcmul_": lambda y, w: y.addcmul_(w, w, value=0.5),
              "addcdiv_": lambda y, w: y.addcdiv_(w, w * w + 1), "lerp_": lambda y, w: y.lerp_(w, 0.3), "exp_": lambda y, w: y.exp_() * w,
              "sigmoid_": lambda y, w: y.sigmoid_() * w, "tanh_": lambda y, w: y.tanh_() * w, "sqrt_": lambda y, w: y.square_().add_(1).sqrt_() * w,
              "clamp_": lambda y, w: y.clamp_(-0.5, 0.5) * w, "masked_fill_": lambda y, w: y.masked_fill_(y.detach() > 0, 2.0) * w,
              "index_add_": lambda y, w: y.index_add_(0, fb.tensor([1, 1, 0]), w * w), "zero_": lambda y, w: y.zero_() + w * w,
              "setitem": lambda y, w: y.__setitem__(0, (w * w)[1]) or y * y, "relu_": lambda y, w: fb.relu_(y) * w, "tril_": lambda y, w: y.tril_() * w,
              "scatter_": lambda y, w: y.scatter_(0, fb.tensor([[0, 1, 2]]), w * w) * w, "fill_": lambda y, w: y.fill_(w[0, 0] ** 2) * w,
              "cumsum_": lambda y, w: y.cumsum_(1) * w, "reciprocal_": lambda y, w: y.square_().add_(1).reciprocal_() * w}


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_operations_in_place_have_gradients_of_every_order(name):
    x = leaf(3, 3)
    w = fb.tensor(np.random.default_rng(1).uniform(0.6, 1.9, (3, 3)), requires_grad=True)

    def f(x, w):
        y = x * x * 0.9 - 0.3
        return OPERATIONS[name](y, w)
    assert gradcheck(f, (x, w)) and gradgradcheck(f, (x, w))


def test_a_write_makes_a_tensor_require_grad_and_fixes_its_history():
    y, w = fb.zeros(3), fb.ones(3, requires_grad=True)
    assert y.add_(w) is y and y.requires_grad and not y.is_leaf
    y.mul_(2).sum().backward()
    assert w.grad.tolist() == [2, 2, 2]


def test_what_is_overwritten_has_gradient_zero():
    x, w = fb.ones(3, requires_grad=True), fb.ones(3, requires_grad=True)
    y = x * 3
    y.copy_(w * 5)
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 0] and w.grad.tolist() == [5, 5, 5]
    y = x * 3
    y.zero_()
    assert y.requires_grad and fb.autograd.grad(y.sum(), x)[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("write", [lambda t: t.add_(1), lambda t: t.zero_(), lambda t: t.copy_(fb.ones(2, 2)), lambda t: t.t_(), lambda t: t.normal_(),
                                   lambda t: t.__setitem__(0, 1.0), lambda t: t.clamp_(0), lambda t: t.index_fill_(0, fb.tensor([0]), 1.0)])
def test_leaves_are_not_written_while_recording(write):
    x = fb.ones(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        write(x)
    with fb.no_grad():
        write(x)
    assert x.is_leaf and x.requires_grad


def test_views_that_may_not_be_written_say_why():
    x = fb.ones(4, requires_grad=True)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x[0].zero_()
    y = x * 1
    with pytest.raises(RuntimeError, match="Output 1 of UnbindBackward0 is a view.*returns multiple views"):
        y.unbind()[1].mul_(2)
    with fb.no_grad():
        v = y[:2]
    with pytest.raises(RuntimeError, match="created in no_grad mode and is being modified inplace with grad mode enabled"):
        v.mul_(2)
    with fb.no_grad():
        v.mul_(2)
    assert y.tolist() == [2, 2, 1, 1]


def test_saved_values_changed_through_any_alias_are_noticed():
    for change in (lambda y: y.add_(1), lambda y: y[0].add_(1), lambda y: y.detach().add_(1), lambda y: y.view(-1).zero_(), lambda y: y.t().zero_()):
        x = fb.ones(2, 2, requires_grad=True)
        y = x * 1
        z = y * y
        change(y)
        with pytest.raises(RuntimeError, match=r"modified by an inplace operation: \[torch.FloatTensor \[2, 2\]\].*is at version 1; expected version 0"):
            z.sum().backward()
    y = x * 1
    z = y * y
    y.data.add_(1)  # unnoticed, as PyTorch's documentation warns
    z.sum().backward()


def test_a_result_that_does_not_fit_is_refused():
    with pytest.raises(RuntimeError, match=r"output with shape \[3\] doesn't match the broadcast shape \[2, 3\]"):
        fb.zeros(3).add_(fb.zeros(2, 3))
    with pytest.raises(RuntimeError, match="single memory location"):
        fb.zeros(1).expand(3).add_(1)


def test_on_every_device(device):
    x, w = leaf(3, 3).detach().to(device).requires_grad_(), leaf(3, seed=1).detach().to(device).requires_grad_()
    y = x * x
    y[1].mul_(w)
    y.sum().backward()
    xs = x.detach().cpu().numpy()
    want = 2 * xs
    want[1] *= w.detach().cpu().numpy()
    np.testing.assert_allclose(x.grad.cpu().numpy(), want)
    np.testing.assert_allclose(w.grad.cpu().numpy(), xs[1] ** 2)


@pytest.mark.parametrize("write", [lambda x: x.sub_(fb.ones(5)), lambda x: x.bitwise_not_(), lambda x: x.add_(1j), lambda x: x.relu_()])
def test_a_leaf_is_refused_before_what_else_is_wrong(write):
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad") as caught:
        write(fb.ones(2, 3, requires_grad=True))
    assert caught.type is RuntimeError


@pytest.mark.parametrize("write", [lambda y: y.mul_(3), lambda y: y.cumsum_(0), lambda y: y.clamp_(0, 9), lambda y: y[:1].mul_(3),
                                   lambda y: y.__setitem__(0, 4.0), lambda y: y.zero_(),
                                   lambda y: y.index_add_(0, fb.tensor([0]), fb.ones(1)), lambda y: y.sub_(1).exp_()])
def test_a_kept_gradient_is_that_of_the_last_value(write):
    for _ in range(6):  # learned calls too
        y = fb.tensor([1.0, 2.0], requires_grad=True) * 2
        y.retain_grad()
        write(y)
        (y * fb.tensor([5.0, 7.0])).sum().backward()
        assert y.retains_grad and y.grad.tolist() == [5, 7]


IN_PLACE = {"cumprod_": lambda x: x.cumprod_(1), "cumsum_": lambda x: x.cumsum_(1), "renorm_": lambda x: x.renorm_(2, 0, 1.0),
            "logit_": lambda x: x.logit_(0.1), "polygamma_": lambda x: x.polygamma_(1),
            "scatter_reduce_ prod": lambda x: x.scatter_reduce_(0, fb.tensor([[0, 1, 0]]), fb.ones(1, 3, dtype=fb.float64) * 2, "prod"),
            "scatter_reduce_ amax": lambda x: x.scatter_reduce_(0, fb.tensor([[0, 1, 0]]), fb.ones(1, 3, dtype=fb.float64) * 2, "amax"),
            "index_reduce_ amin": lambda x: x.index_reduce_(0, fb.tensor([0]), fb.ones(1, 3, dtype=fb.float64) * 2, "amin")}


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_gradients_of_forms_in_place_read_what_was_overwritten(name):
    x = fb.tensor([[0.5, 3.5, 2.5], [0.25, 4.5, 0.75]], dtype=fb.float64, requires_grad=True)
    assert gradcheck(lambda x: IN_PLACE[name](x * 1), (x,))


@pytest.mark.parametrize("name", ["logical_not_", "logical_and_", "logical_or_", "logical_xor_"])
def test_truths_are_written_into_leaves(name):
    """Autograd is not asked, as in PyTorch; elsewhere the write is recorded, and what was there gets no gradient."""
    others = () if name == "logical_not_" else (fb.tensor([0.0, 1.0]),)
    want = {"logical_not_": [0, 1], "logical_and_": [0, 0], "logical_or_": [1, 1], "logical_xor_": [1, 1]}[name]
    for whole in (True, False):
        x = fb.tensor([2.0, 0.0], requires_grad=True)
        y = getattr(x if whole else x[:], name)(*others)
        assert x.is_leaf and x.requires_grad and y.tolist() == x.tolist() == want and x._version == 1
    x = fb.tensor([2.0, 0.0], requires_grad=True)
    getattr(x * 1, name)(*others).sum().backward()
    assert x.grad.tolist() == [0, 0]


def test_views_made_while_nothing_is_recorded_say_what_their_base_does(device):
    p = fb.ones(2, 3, device=device, requires_grad=True)
    computed = p * 2
    views = {"view": lambda t: t.view(-1), "index": lambda t: t[0], "slice": lambda t: t[:, 1:], "t": lambda t: t.t(), "unbind": lambda t: t.unbind()[1],
             "chunk": lambda t: t.chunk(2)[0], "split": lambda t: t.split(1)[0], "expand": lambda t: t.expand(2, 2, 3), "twice": lambda t: t.view(-1)[1:],
             "unsqueeze": lambda t: t.unsqueeze(0), "diagonal": lambda t: t.diagonal()}
    for base in (p, computed):
        for name, view in views.items():
            for _ in range(5):  # by the body, and learned
                with fb.no_grad():
                    v = view(base)
                assert v.requires_grad and v.grad_fn is None and v.is_leaf, name
    with fb.no_grad():
        assert "requires_grad=True" in repr(p.view(-1))
        for v in (p.detach(), p.detach().view(-1), p.data[0], p + 0, p.clone().view(-1), fb.ones(2).view(-1)):
            assert not v.requires_grad
        v = p.view(-1)
        v.mul_(3)
        np.testing.assert_array_equal(p.cpu().numpy(), np.full((2, 3), 3.0))  # numpy() asks nothing here
        np.testing.assert_array_equal(computed.cpu().numpy(), np.full((2, 3), 2.0))
        assert p.requires_grad and not p.detach().requires_grad
    assert p.view(-1).requires_grad and p.view(-1).grad_fn is not None


def test_a_view_taken_before_its_base_required_grad():
    a = fb.ones(2, 3)
    b = a[:]
    b.add_(5)
    a.requires_grad = True
    for t in (a, b):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            t.add_(5)
    with fb.no_grad():
        b.add_(1)
    assert a.tolist() == [[7] * 3] * 2


def test_one_view_of_several_says_so_first():
    x = fb.ones(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="output of a function that returns multiple views"):
        x.unbind(0)[0].add_(fb.ones(2, requires_grad=True))

"""Greatest and least elements against NumPy: values, first positions, NaN, ties, empty axes, gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

TYPES = [fb.float32, fb.float64, fb.float16, fb.bfloat16, fb.int64, fb.int32, fb.int8, fb.uint8, fb.bool]


@st.composite
def cases(draw):
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 17, 70]), min_size=1, max_size=3))
    d = draw(st.sampled_from(TYPES))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    a = rng.integers(-9 if d.is_signed else 0, 10, shape).astype(float)
    if d.is_floating_point:
        a[rng.random(shape) < draw(st.sampled_from([0, 0.1]))] = np.nan
        a[rng.random(shape) < 0.05] = np.inf
        a[rng.random(shape) < 0.05] = -np.inf
    if d is fb.bool:
        a = (a > 4).astype(float)
    t = fb.tensor(a).to(d)
    if draw(st.booleans()):
        t = t.movedim(0, -1).contiguous().movedim(-1, 0)
    return t, a, draw(st.integers(-len(shape), len(shape) - 1)), d


def plain(t):
    return t.double().numpy()


@settings(max_examples=60, deadline=None)
@given(cases(), st.booleans())
def test_values_and_first_positions_are_numpys(case, keepdim):
    t, a, axis, d = case
    for name, arg in (("max", "argmax"), ("min", "argmin")):
        want, at = getattr(np, name)(a, axis, keepdims=keepdim), getattr(np, arg)(a, axis, keepdims=keepdim)
        found = getattr(t, name)(axis, keepdim)
        assert found.values.dtype is d and found.indices.dtype is fb.int64
        np.testing.assert_array_equal(plain(found.values), want)
        np.testing.assert_array_equal(found.indices.numpy(), at)
        np.testing.assert_array_equal(plain(getattr(fb, "a" + name)(t, axis, keepdim)), want)
        assert np.array_equal(getattr(t, name)().item(), getattr(np, name)(a), equal_nan=True)
        if d is not fb.bool:
            np.testing.assert_array_equal(getattr(t, arg)(axis, keepdim).numpy(), at)
            assert getattr(t, arg)().item() == getattr(np, arg)(a)


@settings(max_examples=25, deadline=None)
@given(cases())
def test_several_axes_and_both_ends_at_once(case):
    t, a, axis, d = case
    dims = tuple(range(a.ndim))[:2]
    np.testing.assert_array_equal(plain(t.amax(dims)), a.max(dims))
    np.testing.assert_array_equal(plain(t.amin(dims, keepdim=True)), a.min(dims, keepdims=True))
    low, high = fb.aminmax(t, dim=axis)
    np.testing.assert_array_equal(plain(low), a.min(axis))
    np.testing.assert_array_equal(plain(high), a.max(axis))
    assert fb.aminmax(t)._fields == ("min", "max")
    np.testing.assert_array_equal([plain(x) for x in fb.aminmax(t)], [a.min(), a.max()])
    assert fb.aminmax(t, dim=axis, keepdim=True).max.ndim == a.ndim


def test_large_reductions():
    a = np.random.default_rng(0).permutation(300_001)
    t = fb.tensor(a)
    assert t.max().item() == 300_000 and t.argmax().item() == a.argmax() and t.argmin().item() == a.argmin()
    f = fb.tensor(a, dtype=fb.float32).reshape(-1, 1).expand(-1, 3)
    assert f.max(0).indices.tolist() == [int(a.argmax())] * 3
    nan = fb.tensor(a, dtype=fb.float32)
    nan[170_000] = float("nan")
    assert nan.max().isnan() and nan.min().isnan() and nan.argmax().item() == 170_000


def test_pairs_of_tensors_scalars_and_out():
    x = fb.tensor([1, 5, 3])
    assert fb.max(x, fb.tensor([2, 2, 2])).tolist() == [2, 5, 3] and x.min(other=fb.tensor([2])).tolist() == [1, 2, 2]
    assert fb.tensor(4).max(0).indices.item() == 0 and fb.tensor(4.0).argmax().item() == 0 and fb.tensor(3).amax().item() == 3
    values, at = fb.empty(0, dtype=fb.int64), fb.empty(0, dtype=fb.int64)
    assert fb.max(x, 0, out=(values, at)).values is values and values.item() == 5 and at.item() == 1
    assert repr(x.max(0)) == "torch.return_types.max(\nvalues=tensor(5),\nindices=tensor(1))"


@pytest.mark.parametrize("call,error,message", [
    (lambda: fb.zeros(0).max(), RuntimeError, "Specify the reduction dim"), (lambda: fb.zeros(2, 0).max(1), IndexError, "non-zero size"),
    (lambda: fb.zeros(2, 0).amax(1), IndexError, "non-zero size"), (lambda: fb.zeros(0).argmax(), IndexError, "numel"),
    (lambda: fb.zeros(2).max(1), IndexError, "out of range"),
    (lambda: fb.zeros(2, dtype=fb.complex64).max(), RuntimeError, "complex64"), (lambda: fb.zeros(0).aminmax(), RuntimeError, "aminmax"),
    (lambda: fb.zeros(2, 2).amax((0, 0)), RuntimeError, "multiple times"), (lambda: fb.zeros(2, dtype=fb.bool).argmax(), NotImplementedError, "Bool")])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
    assert fb.zeros(2, 0).max(0).values.shape == (0,) and fb.zeros(0, 3).amax(1).shape == (0,)


FORMS = {"max": lambda x: x.max(1).values ** 2, "min keep": lambda x: x.min(0, keepdim=True)[0] ** 2, "max of all": lambda x: x.max() ** 2,
         "amax": lambda x: x.amax((0, 1)) ** 3,
         "amin": lambda x: x.t().amin(1, keepdim=True) ** 2, "aminmax": lambda x: fb.aminmax(x, dim=1).max * fb.aminmax(x, dim=1).min}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients_match_finite_differences(name):
    x = fb.tensor(np.random.default_rng(5).permutation(12).reshape(3, 4) * 0.7, requires_grad=True)
    assert gradcheck(FORMS[name], (x,)) and gradgradcheck(FORMS[name], (x,))


def test_who_gets_the_gradient_of_a_tie():
    x = fb.tensor([3.0, 1.0, 3.0], requires_grad=True)
    for make, want in ((lambda: x.max(), [0.5, 0, 0.5]), (lambda: x.amax(0), [0.5, 0, 0.5]), (lambda: x.max(0).values, [1, 0, 0]),
            (lambda: x.min(), [0, 1, 0])):
        x.grad = None
        make().backward()
        assert x.grad.tolist() == want


def test_on_every_device(device):
    a = np.random.default_rng(0).normal(size=(7, 300))
    t = fb.tensor(a).to(device)
    values, at = t.max(1)
    assert str(at.device) == device
    np.testing.assert_array_equal(values.cpu().numpy(), a.max(1))
    np.testing.assert_array_equal(at.cpu().numpy(), a.argmax(1))
    assert t.argmin().item() == a.argmin()
    np.testing.assert_array_equal(t.amin((0, 1)).cpu().numpy(), a.min())


def test_aminmax_says_first_that_an_axis_is_empty():
    with pytest.raises(IndexError, match="dim 0 to have non-zero size"):
        fb.aminmax(fb.zeros(0, 2, dtype=fb.complex64), dim=0)
    with pytest.raises(NotImplementedError, match="complex64"):
        fb.aminmax(fb.zeros(1, 2, dtype=fb.complex64), dim=0)


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_a_row_whose_extreme_is_nan_has_no_gradient(name):
    x = fb.tensor([[np.nan, 1.0, 2.0], [3.0, 1.0, 3.0]], dtype=fb.float64, requires_grad=True)
    getattr(x, name)(1).sum().backward()
    share = [0.5, 0, 0.5] if name == "amax" else [0, 1, 0]
    assert np.isnan(x.grad[0].numpy()).all() and x.grad[1].tolist() == share
    x.grad = None
    fb.aminmax(x, dim=1)[name == "amax"].sum().backward()
    assert np.isnan(x.grad[0].numpy()).all() and x.grad[1].tolist() == share

"""Running sums, products, extremes and log-sum-exps against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

TYPES = [fb.bool, fb.uint8, fb.int32, fb.int64, fb.float16, fb.bfloat16, fb.float32, fb.float64]


@st.composite
def cases(draw):
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 17, 40]), min_size=1, max_size=3))
    if draw(st.integers(0, 9)) == 0:
        shape[draw(st.integers(0, len(shape) - 1))] = 0
    d = draw(st.sampled_from(TYPES))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    a = rng.integers(-3, 4, shape) if d.is_signed else rng.integers(0, 3, shape)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    t = fb.tensor(a).to(d)
    if draw(st.booleans()):
        t = t.movedim(0, -1).contiguous().movedim(-1, 0)
    return t, a.astype(bool) if d is fb.bool else a, axis, d


def plain(t):
    return t.double().numpy() if t.dtype.is_floating_point else t.numpy()


@settings(max_examples=100, deadline=None)
@given(cases())
def test_sums_and_products_are_numpys(case):
    t, a, axis, d = case
    a = a.astype(np.int64)
    for ours, numpys in ((fb.cumsum, np.cumsum), (fb.cumprod, np.cumprod)):
        got = ours(t, axis)
        assert got.dtype is (d if d.is_floating_point else fb.int64) and got.shape == t.shape
        want = numpys(a if not d.is_floating_point else a.astype(float), axis)
        if d is fb.float64 or not d.is_floating_point:
            np.testing.assert_array_equal(plain(got), want)
        elif ours is fb.cumsum:
            np.testing.assert_allclose(plain(got), want, rtol={fb.float16: 2e-3, fb.bfloat16: 1e-2}.get(d, 1e-6))


@settings(max_examples=60, deadline=None)
@given(cases())
def test_extremes_are_numpys_with_the_latest_position(case):
    t, a, axis, d = case
    for ours, numpys in ((fb.cummax, np.maximum), (fb.cummin, np.minimum)):
        values, at = ours(t, axis)
        want = numpys.accumulate(a, axis)
        assert values.dtype is d and at.dtype is fb.int64
        np.testing.assert_array_equal(plain(values), want)
        if a.size:
            np.testing.assert_array_equal(np.take_along_axis(a, at.numpy(), axis), want)
            position = np.arange(a.shape[axis]).reshape([-1 if i == axis % a.ndim else 1 for i in range(a.ndim)])
            hit = np.where(np.broadcast_to(a == want, a.shape), position, -1)
            np.testing.assert_array_equal(at.numpy(), np.maximum.accumulate(hit, axis))


@pytest.mark.parametrize("d", [fb.float32, fb.float64, fb.float16], ids=str)
def test_nan_and_infinity_go_on_along_the_axis(d):
    nan, inf = float("nan"), float("inf")
    a = np.array([[1, nan, 2, 3], [inf, 1, -inf, 1], [-inf, -inf, 0, 1], [5, 4, nan, 9]])
    t = fb.tensor(a, dtype=d)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(t.cumsum(1).double().numpy(), np.cumsum(a, 1))
        np.testing.assert_array_equal(t.cumprod(1).double().numpy(), np.cumprod(a, 1))
        np.testing.assert_array_equal(t.cummax(1)[0].double().numpy(), np.maximum.accumulate(a, 1))
        np.testing.assert_array_equal(t.cummin(1)[0].double().numpy(), np.minimum.accumulate(a, 1))
        want = np.array([[1, nan, nan, nan], [inf, inf, inf, inf], [-inf, -inf, 0, np.log1p(np.e)], [5, np.logaddexp(5, 4), nan, nan]])
        np.testing.assert_allclose(t.logcumsumexp(1).double().numpy(), want, rtol=2e-3 if d is fb.float16 else 1e-6)
    assert t.cummax(1)[1].tolist()[0] == [0, 1, 1, 1] and t.cummax(1)[1].tolist()[3] == [0, 0, 2, 2]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.floats(-1000, 1000), st.integers(0, 9))
def test_logcumsumexp_neither_overflows_nor_loses_digits(n, shift, seed):
    a = np.random.default_rng(seed).normal(size=(2, n)) * 20 + shift
    np.testing.assert_allclose(fb.logcumsumexp(fb.tensor(a), 1).numpy(), np.logaddexp.accumulate(a, 1), rtol=1e-12)
    np.testing.assert_allclose(fb.logcumsumexp(fb.tensor(a.T, dtype=fb.float32), 0).numpy(), np.logaddexp.accumulate(a.T, 0), rtol=3e-6)


@pytest.mark.parametrize("shape", [(40, 5), (40, 7), (9, 33), (3, 200), (20, 3, 11), (1, 50)])
def test_logcumsumexp_of_rows_of_any_length(shape):
    a = np.random.default_rng(1).standard_normal(shape) * 30
    a.flat[3] = -np.inf
    for axis in range(len(shape)):
        np.testing.assert_allclose(fb.tensor(a).logcumsumexp(axis).numpy(), np.logaddexp.accumulate(a, axis), rtol=1e-13)


def test_long_rows_and_complex_numbers():
    a = np.random.default_rng(0).normal(size=300_001)
    np.testing.assert_allclose(fb.tensor(a).cumsum(0).numpy(), np.cumsum(a), rtol=1e-9, atol=1e-9)
    i = np.random.default_rng(0).integers(-9, 9, (3, 100_001))
    np.testing.assert_array_equal(fb.tensor(i).cumsum(1).numpy(), np.cumsum(i, 1))
    z = a[:60].reshape(3, 20) + 1j * a[60:120].reshape(3, 20)
    np.testing.assert_allclose(fb.tensor(z).cumsum(1).numpy(), np.cumsum(z, 1))
    np.testing.assert_allclose(fb.tensor(z).cumprod(0).numpy(), np.cumprod(z, 0))


def test_a_real_type_takes_the_real_parts_of_complex_numbers():
    x = fb.tensor([[1 + 2j, 3 - 1j]], requires_grad=True)
    made = x.cumsum(1, dtype=fb.float64)
    assert made.dtype is fb.float64 and made.tolist() == [[1.0, 4.0]]
    assert fb.autograd.grad(made.sum(), x)[0].tolist() == [[2.0, 1.0]]
    assert fb.empty(0, 2, dtype=fb.complex64).cumsum(1, dtype=fb.float32).dtype is fb.float32


def test_types_scalars_out_and_errors():
    t = fb.tensor([[1, 2], [3, 4]], dtype=fb.uint8)
    assert t.cumsum(0).dtype is fb.int64 and t.cumsum(0, dtype=fb.float32).dtype is fb.float32
    assert fb.tensor([200, 100], dtype=fb.uint8).cumsum(0).tolist() == [200, 300]
    assert fb.tensor(3.0).cumsum(0).item() == 3 and fb.tensor(3.0).cummax(-1)[1].item() == 0 and fb.tensor(2.0).logcumsumexp(0).item() == 2
    out = fb.empty(0)
    assert fb.cumsum(fb.ones(3), 0, out=out) is out and out.tolist() == [1, 2, 3]
    x = fb.ones(3)
    assert x.cumsum_(0) is x and x.tolist() == [1, 2, 3] and x.cumprod_(0).tolist() == [1, 2, 6]
    found = fb.cummax(fb.tensor([1.0, 3.0, 2.0]), 0)
    assert found.values.tolist() == [1, 3, 3] and found.indices.tolist() == [0, 1, 1] and repr(found).startswith("torch.return_types.cummax(\nvalues=")
    with pytest.raises(IndexError, match="Dimension out of range"):
        t.cumsum(2)
    with pytest.raises(NotImplementedError):
        t.logcumsumexp(0)


FORMS = {"cumsum": lambda x: x.cumsum(1) ** 2, "cumsum dtype": lambda x: x.cumsum(0, dtype=fb.complex128) * 1j, "cumprod": lambda x: x.cumprod(1),
         "cummax": lambda x: x.cummax(0)[0] ** 2,
         "cummin": lambda x: x.cummin(1)[0] ** 2, "logcumsumexp": lambda x: x.logcumsumexp(1), "transposed": lambda x: x.t().cumprod(1) + x.t().cumsum(0)}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients_match_finite_differences(name):
    x = fb.tensor(np.random.default_rng(2).normal(size=(3, 4)), requires_grad=True)
    assert gradcheck(FORMS[name], (x,)) and gradgradcheck(FORMS[name], (x,))


def test_gradients_of_products_with_zeros():
    for values in ([[0.0, 2, 3], [1, 0, 4], [0, 0, 5], [1, 2, 0]],):
        x = fb.tensor(values, dtype=fb.float64, requires_grad=True)
        assert gradcheck(lambda t: t.cumprod(1), (x,)) and gradgradcheck(lambda t: t.cumprod(1), (x,))


def test_gradient_of_ties_goes_to_the_position_given():
    x = fb.tensor([1.0, 1.0, 0.0], requires_grad=True)
    values, at = x.cummax(0)
    values.sum().backward()
    want = [0.0, 0.0, 0.0]
    for i in at.tolist():
        want[i] += 1
    assert x.grad.tolist() == want


def test_gradient_of_logcumsumexp_stays_finite_far_out():
    x = fb.tensor([800.0, -800.0, 790.0], dtype=fb.float64, requires_grad=True)
    x.logcumsumexp(0).sum().backward()
    p = np.exp(-np.logaddexp(0, -10.0))
    np.testing.assert_allclose(x.grad.numpy(), [2 + p, 0, 1 - p], atol=1e-12)


def test_on_every_device(device):
    a = np.random.default_rng(0).normal(size=(5, 300))
    t = fb.tensor(a).to(device)
    np.testing.assert_allclose(t.cumsum(1).cpu().numpy(), np.cumsum(a, 1))
    np.testing.assert_allclose(t.cumprod(0).cpu().numpy(), np.cumprod(a, 0))
    np.testing.assert_array_equal(t.cummin(1).values.cpu().numpy(), np.minimum.accumulate(a, 1))
    np.testing.assert_allclose(t.logcumsumexp(1).cpu().numpy(), np.logaddexp.accumulate(a, 1))
    assert str(t.cummax(0).indices.device) == device


def test_logcumsumexp_of_complex_infinities():
    inf, nan = float("inf"), float("nan")
    t = fb.tensor([complex(-inf, 4), complex(-inf, inf), complex(1, 2), complex(inf, 1), complex(nan, 0), 0j])
    found = t.logcumsumexp(0).tolist()
    assert found[:2] == [complex(-inf, 0)] * 2 and abs(found[2] - complex(1, 2)) < 1e-6 and found[3].real == inf
    assert all(np.isnan([v.real, v.imag]).all() for v in found[4:])


@pytest.mark.parametrize("shape, dim", [((5000,), 0), ((60, 300), 1), ((3000, 40), 0), ((2, 50, 33), 1)])
def test_running_sums_of_float32_on_the_cpu_are_rounded_once(shape, dim):
    """They are kept in float64, as PyTorch keeps them there: a row of 5,000 lost four bits."""
    rng = np.random.default_rng(7)
    large, near = rng.uniform(0, 300, shape).astype(np.float32), rng.uniform(0.98, 1.02, shape).astype(np.float32)
    np.testing.assert_array_equal(fb.tensor(large).cumsum(dim).numpy(), large.astype(np.float64).cumsum(dim).astype(np.float32))
    np.testing.assert_array_equal(fb.tensor(near).cumprod(dim).numpy(), near.astype(np.float64).cumprod(dim).astype(np.float32))
    x = fb.tensor(large, requires_grad=True)
    x.cumsum(dim).backward(fb.tensor(large))
    want = np.flip(np.flip(large, dim).astype(np.float64).cumsum(dim), dim).astype(np.float32)
    np.testing.assert_array_equal(x.grad.numpy(), want)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_logcumsumexp_of_float32_on_the_cpu_is_rounded_once(axis, scale):
    """And on simulated GPUs, which have its bits; NVIDIA GPUs add up in float32, as PyTorch does there."""
    a = (np.random.default_rng(1).standard_normal((40, 300)) * scale).astype(np.float32)
    got = fb.tensor(a).logcumsumexp(axis)
    np.testing.assert_array_max_ulp(got.numpy(), np.logaddexp.accumulate(a.astype(np.float64), axis).astype(np.float32), 1)
    for queue in ("eager", "lazy"):
        with fb.simulate(gpus=1, queue=queue):
            assert fb.tensor(a, device="cuda").logcumsumexp(axis).cpu().equal(got)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [5, 16, 33, 200])
def test_running_extremes_of_floats_and_their_places_against_a_loop(dtype, n):
    rng = np.random.default_rng(n)
    a = rng.integers(-3, 4, (20, n)).astype(dtype)
    a[rng.random(a.shape) < 0.5] = -np.inf
    a[rng.random(a.shape) < 0.1] = -0.0
    a[10:][rng.random((10, n)) < 0.1] = np.nan
    for found, beats in ((fb.from_numpy(a).cummax(1), np.greater_equal), (fb.from_numpy(a).cummin(1), np.less_equal)):
        for row, values, places in zip(a, found[0].numpy(), found[1].tolist(), strict=True):
            best = 0
            for k, v in enumerate(row):
                best = k if np.isnan(v) or not np.isnan(row[best]) and beats(v, row[best]) else best  # the last of equals, and NaN for good
                assert places[k] == best
                np.testing.assert_array_equal(values[k], row[best])


def test_infinities_stay_where_they_are_in_gradients():
    """What an element's product leaves out is no part of its gradient; extremes hand an infinite gradient to one element."""
    inf = np.inf
    x = fb.tensor([inf, 0.0, 2.0], dtype=fb.float64, requires_grad=True)
    (g,) = fb.autograd.grad(x.prod(), x)
    assert g[:2].tolist() == [0, inf] and g[2].isnan()
    (g,) = fb.autograd.grad(x.cumprod(0)[1], x)
    assert g[:2].tolist() == [0, inf]
    one = fb.tensor([[inf], [np.nan]], dtype=fb.float64, requires_grad=True)
    (g,) = fb.autograd.grad(one.cumprod(1).sum(), one)
    assert g.tolist() == [[1], [1]]
    (g,) = fb.autograd.grad(one.sum((0, 1)).logcumsumexp(0), one)
    assert g.tolist() == [[1], [1]]
    (g,) = fb.autograd.grad(fb.cummax(x, 0)[0], x, fb.tensor([inf, 0.0, 0.0], dtype=fb.float64))
    assert g.tolist() == [inf, 0, 0]

"""Operations of two and three operands: values against NumPy, broadcasting, operators, types, alpha, rounding modes, errors."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

FLOATS = st.floats(-100, 100, width=32).map(lambda v: v if abs(v) > 1e-3 else 0.0)
ODD = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 3.0])


@st.composite
def pairs(draw, elements=FLOATS, d=np.float64):
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4, min_side=0)).input_shapes
    return tuple(draw(hnp.arrays(d, s, elements=elements)) for s in shapes)


ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": np.maximum, "minimum": np.minimum,
              "fmax": np.fmax, "fmin": np.fmin,
              "atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign, "fmod": np.fmod, "remainder": np.remainder, "floor_divide": np.floor_divide,
              "logaddexp": np.logaddexp, "logaddexp2": np.logaddexp2, "heaviside": np.heaviside, "nextafter": np.nextafter, "eq": np.equal,
              "ne": np.not_equal, "lt": np.less,
              "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
              "logical_xor": np.logical_xor}


@pytest.mark.parametrize("name", sorted(ARITHMETIC))
@settings(max_examples=25, deadline=None)
@given(case=pairs())
def test_values_broadcast_as_numpys(name, case):
    a, b = case
    with np.errstate(all="ignore"):
        want = ARITHMETIC[name](a, b)
    got = getattr(fb, name)(fb.tensor(a), fb.tensor(b))
    assert tuple(got.shape) == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(ARITHMETIC) - {"floor_divide", "remainder", "heaviside"}))
def test_odd_values_are_numpys(name):
    a, b = (x.reshape(-1) for x in np.meshgrid(ODD, ODD))
    with np.errstate(all="ignore"):
        want = ARITHMETIC[name](a, b)
    got = getattr(fb, name)(fb.tensor(a), fb.tensor(b)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-12, equal_nan=True)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([fb.int8, fb.uint8, fb.int32, fb.int64]),
       st.lists(st.tuples(st.integers(-100, 100), st.integers(-9, 9).filter(bool)), min_size=1, max_size=20))
def test_integer_arithmetic_is_numpys(d, values):
    a, b = (np.array(v).astype(d.np) for v in zip(*values, strict=True))
    b[b == 0] = 1
    x, y = fb.tensor(a), fb.tensor(b)
    with np.errstate(all="ignore"):
        for f, g in ((operator.add, np.add), (operator.sub, np.subtract), (operator.mul, np.multiply), (operator.floordiv, np.floor_divide),
                (operator.mod, np.mod),
                     (operator.and_, np.bitwise_and), (operator.or_, np.bitwise_or), (operator.xor, np.bitwise_xor), (fb.maximum, np.maximum),
                     (fb.fmod, np.fmod)):
            got = f(x, y)
            assert got.dtype is d
            np.testing.assert_array_equal(got.numpy(), g(a, b))
        np.testing.assert_array_equal(fb.div(x, y, rounding_mode="trunc").numpy(), np.trunc(a / b).astype(d.np))
        assert (x / y).dtype is fb.float32
        np.testing.assert_allclose((x / y).numpy(), a / b, rtol=1e-6)
        small = fb.tensor(np.abs(b).astype(d.np) % 4)
        np.testing.assert_array_equal((x << small).numpy(), a << small.numpy())
        np.testing.assert_array_equal((x >> small).numpy(), a >> small.numpy())
        np.testing.assert_array_equal((x ** small).numpy(), a ** small.numpy())


def test_python_operators_with_numbers_on_either_side():
    x = fb.tensor([1.0, 2.0, -3.0], dtype=fb.float64)
    a = x.numpy()
    for f in (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow):
        np.testing.assert_allclose(f(x, 2).numpy(), f(a, 2))
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(f(2, x).numpy(), f(2, a))
        np.testing.assert_allclose(f(x, np.float64(1.5)).numpy()[:2], f(a[:2], 1.5))
    for f in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        np.testing.assert_array_equal(f(x, 1).numpy(), f(a, 1))
        np.testing.assert_array_equal(f(1, x).numpy(), f(1, a))
    assert isinstance(a + x, fb.Tensor) and (np.float64(2) * x).tolist() == [2, 4, -6] and (x == None) is False and x != "text"  # noqa: E711
    assert (-x).tolist() == [-1, -2, 3] and abs(x).tolist() == [1, 2, 3] and (+x).tolist() == x.tolist() and (~fb.tensor([True])).item() is False
    t = x.clone()
    t += 1
    t *= 2
    t -= fb.tensor(1.0)
    t /= 3
    assert t.tolist() == pytest.approx([1, 5 / 3, -5 / 3]) and t._version == 4
    for wrong in (lambda: x + "1", lambda: x * None, lambda: [1] - x):
        with pytest.raises(TypeError):
            wrong()


def test_alpha_scales_the_second_operand():
    x, y = fb.tensor([1, 2]), fb.tensor([10, 20])
    assert fb.add(x, y, alpha=3).tolist() == [31, 62] and fb.sub(x, y, alpha=2).tolist() == [-19, -38] and fb.rsub(x, y).tolist() == [9, 18]
    assert x.add(y, alpha=-1).tolist() == [-9, -18] and fb.add(x.float(), 2, alpha=0.5).tolist() == [2, 3]
    assert x.clone().add_(y, alpha=2).tolist() == [21, 42]
    for call, message in ((lambda: fb.add(x, y, alpha=1.5), "floating point"), (lambda: fb.sub(x, y, alpha=False), "Boolean alpha"),
                          (lambda: (x > 0) - (y > 0), "two bool tensors is not supported"), (lambda: x - (y > 0), "with a bool tensor is not supported"),
                          (lambda: x - True, "with a bool tensor"), (lambda: 1 - (x > 0), "with a bool tensor"), (lambda: fb.rsub(x > 0, x), "with a bool"),
                          (lambda: (x * 1).sub_(x > 0), "with a bool tensor"), (lambda: fb.sub(x, True, out=fb.zeros(2)), "with a bool tensor")):
        with pytest.raises(RuntimeError, match=message):
            call()
    assert fb.add(x > 0, y > 0, alpha=2).tolist() == [True, True]
    assert ((x > 0) + (y > 0)).dtype is fb.bool and ((x > 0) * (y > 0)).dtype is fb.bool


def test_division_and_its_rounding_modes():
    a, b = np.array([7.0, -7.0, 7.0, -7.0, 1.0, 0.0]), np.array([2.0, 2.0, -2.0, -2.0, 0.0, 0.0])
    x, y = fb.tensor(a), fb.tensor(b)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(fb.div(x, y, rounding_mode="floor").numpy(), np.floor(a / b))
        np.testing.assert_array_equal(fb.div(x, y, rounding_mode="trunc").numpy(), np.trunc(a / b))
    with pytest.raises(RuntimeError, match="rounding_mode to be one of None, 'trunc', or 'floor' but found 'round'"):
        fb.div(x, y, rounding_mode="round")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        fb.tensor([1, 2]) // 0
    with pytest.raises(RuntimeError, match="can't be cast"):
        fb.tensor([1, 2]).div_(2)
    assert fb.tensor([7]).floor_divide_(2).item() == 3 and fb.true_divide(fb.tensor(3), fb.tensor(2)).item() == 1.5


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 5, -1, -2, 0.5, -0.5, 1.7, 2.0, -3])
def test_powers(exponent):
    a = np.array([0.0, 0.5, 1.0, 2.0, 3.5, np.inf, np.nan])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose((fb.tensor(a) ** exponent).numpy(), a ** exponent, rtol=1e-12)
        np.testing.assert_allclose(fb.pow(exponent, fb.tensor(a[1:5])).numpy(), float(exponent) ** a[1:5], rtol=1e-12)
    i = fb.tensor([-2, 0, 1, 3])
    if isinstance(exponent, int) and exponent < 0:
        with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
            i ** exponent
    elif isinstance(exponent, int):
        assert (i ** exponent).tolist() == (i.numpy() ** exponent).tolist() and (i ** exponent).dtype is fb.int64
    assert fb.float_power(i, 2).dtype is fb.float64


@pytest.mark.parametrize("exponent", [1.5, 2, fb.tensor(1.5), fb.tensor([1.5, 3.0])])
@pytest.mark.parametrize("view", [False, True])
def test_a_float_power_in_place_has_a_gradient(exponent, view):
    x = fb.tensor([1.0, 2.0], dtype=fb.float64, requires_grad=True)
    y = x.clone()
    (y.view(2) if view else y).float_power_(exponent)
    y.sum().backward()
    n = exponent.numpy() if isinstance(exponent, fb.Tensor) else exponent
    np.testing.assert_allclose(x.grad.numpy(), n * x.detach().numpy() ** (n - 1), rtol=1e-14)
    with pytest.raises(RuntimeError, match="has dtype .*float32 but the operation.s result requires dtype .*float64"):
        fb.ones(2).float_power_(exponent)
    with pytest.raises(RuntimeError, match="requires dtype .*complex128"):
        fb.ones(2, dtype=fb.float64).float_power_(fb.ones(2, dtype=fb.complex64))


def test_clamps_with_numbers_tensors_and_nan():
    a = np.array([-2.0, -0.5, 0.5, 2.0, np.nan])
    x = fb.tensor(a)
    np.testing.assert_array_equal(x.clamp(-1, 1).numpy(), np.clip(a, -1, 1))
    np.testing.assert_array_equal(x.clamp(min=0).numpy(), np.maximum(a, 0))
    np.testing.assert_array_equal(x.clamp(max=fb.tensor([0.0, -1, 0, 1, 1])).numpy(), np.minimum(a, [0, -1, 0, 1, 1]))
    assert x.clamp(1, -1)[:4].tolist() == [-1] * 4 and fb.tensor([1, 9]).clamp(2, 5).dtype is fb.int64 and fb.tensor([1, 9]).clamp(2.5).dtype is fb.float32
    assert x.clone().clamp_(0, 1)[:4].tolist() == [0, 0, 0.5, 1] and fb.clip(x, 0, 1)[3].item() == 1
    with pytest.raises(RuntimeError, match="At least one of 'min' or 'max' must not be None"):
        x.clamp()


def test_where_names_the_operand_that_is_missing():
    for options in ({}, {"out": fb.ones(2)}):
        with pytest.raises(TypeError, match=r"where\(\): argument 'other' must be Tensor or Number, not NoneType"):
            fb.where(fb.ones(2) > 0, input=fb.ones(2), **options)


def test_where_chooses_promotes_and_finds():
    c = fb.tensor([True, False, True])
    assert fb.where(c, fb.tensor([1, 2, 3]), 0.5).tolist() == [1, 0.5, 3] and fb.where(c, 1, 2).dtype is fb.int64
    assert fb.where(c, 1.0, 2.0).dtype is fb.float32
    assert fb.where(c, fb.tensor([1], dtype=fb.int8), fb.tensor([[2], [3]])).shape == (2, 3) and fb.tensor([1, 2, 3]).where(c, 0).tolist() == [1, 0, 3]
    assert fb.where(c)[0].tolist() == [0, 2]
    with pytest.raises(RuntimeError, match="boolean tensor"):
        fb.where(fb.tensor([1.0]), 1, 2)
    x = fb.tensor([1.0, float("nan")], requires_grad=True)
    fb.where(fb.tensor([True, False]), x, 0.0).sum().backward()
    assert x.grad.tolist() == [1, 0]


@settings(max_examples=40, deadline=None)
@given(pairs(), st.sampled_from([1e-8, 1e-2]), st.booleans())
def test_closeness_is_numpys(case, tolerance, equal_nan):
    a, b = case
    want = np.isclose(a, b, tolerance, tolerance, equal_nan)
    np.testing.assert_array_equal(fb.isclose(fb.tensor(a), fb.tensor(b), tolerance, tolerance, equal_nan).numpy(), want)
    assert fb.allclose(fb.tensor(a), fb.tensor(a)) and fb.equal(fb.tensor(a), fb.tensor(a)) and not fb.equal(fb.tensor(a), fb.zeros(7, 7))


def test_results_in_out_and_their_resizing():
    x, y, out = fb.ones(2, 3), fb.ones(3), fb.empty(0)
    for f in (fb.add, fb.sub, fb.mul, fb.div, fb.maximum, fb.pow, fb.atan2, fb.fmod, fb.lt, fb.logical_and):
        d = fb.bool if f in (fb.lt, fb.logical_and) else fb.float32
        out = fb.empty(0, dtype=d)
        assert f(x, y, out=out) is out and out.shape == (2, 3) and fb.equal(out, f(x, y))
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        fb.add(x, y, out=fb.zeros(5))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        fb.add(fb.ones(1, requires_grad=True), 1, out=fb.empty(1))


def test_shapes_and_devices_that_do_not_fit(sim_gpus):
    with pytest.raises(RuntimeError, match=r"The size of tensor a \(2\) must match the size of tensor b \(3\) at non-singleton dimension 0"):
        fb.zeros(2) + fb.zeros(3)
    a, b = fb.zeros(2, device="cuda:0"), fb.zeros(2, device="cuda:1")
    for wrong in (lambda: a + b, lambda: a * fb.zeros(2), lambda: fb.where(a > 0, a, b), lambda: a.add_(b)):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but found at least two devices"):
            wrong()
    assert str((a + fb.tensor(1.0)).device) == "cuda:0" and str((fb.tensor(1.0) + b).device) == "cuda:1"


FORMS = {"lerp": lambda x, y: fb.lerp(x, y, 0.3), "lerp weight": lambda x, y: fb.lerp(x, y, x.sigmoid()),
         "addcmul": lambda x, y: fb.addcmul(x, x, y, value=0.5),
         "addcdiv": lambda x, y: fb.addcdiv(x, x, y, value=2), "clamp": lambda x, y: x.clamp(-0.4 * y, 0.6 * y),
         "where": lambda x, y: fb.where(x > 0, x * y, y ** 2),
         "pow": lambda x, y: y ** x, "rpow": lambda x, y: 2.5 ** x, "rsub": lambda x, y: 3 - x * y, "rdiv": lambda x, y: 2 / y,
         "remainder": lambda x, y: (x * 3) % y,
         "floor": lambda x, y: x * fb.div(x, y, rounding_mode="floor"), "alpha": lambda x, y: fb.sub(x * x, y, alpha=3), "ldexp": lambda x, y: fb.ldexp(x, y),
         "logaddexp": lambda x, y: fb.logaddexp(x, y), "xlogy": lambda x, y: fb.xlogy(x, y), "hypot": lambda x, y: fb.hypot(x, y),
         "atan2": lambda x, y: fb.atan2(x, y)}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients_match_finite_differences(name):
    rng = np.random.default_rng(3)
    x = fb.tensor(rng.normal(size=(2, 3)), requires_grad=True)
    y = fb.tensor(rng.uniform(0.5, 2, size=(3,)), requires_grad=True)
    assert gradcheck(FORMS[name], (x, y), check_forward_ad=True) and gradgradcheck(FORMS[name], (x, y))


def test_gradients_of_ties_and_choices():
    x, y = fb.tensor([1.0, 2.0], requires_grad=True), fb.tensor([1.0, 1.0], requires_grad=True)
    fb.maximum(x, y).sum().backward()
    assert x.grad.tolist() == [0.5, 1] and y.grad.tolist() == [0.5, 0]
    x.grad = None
    fb.fmax(x, fb.tensor([float("nan"), 5.0])).sum().backward()
    assert x.grad.tolist() == [1, 0]
    x.grad = None
    x.clamp(1, 1.5).sum().backward()
    assert x.grad.tolist() == [1, 0]


def test_on_every_device(device):
    a, b = np.arange(6.0).reshape(2, 3), np.array([1.0, -2.0, 0.5])
    x, y = fb.tensor(a).to(device), fb.tensor(b).to(device)
    for got, want in ((x + y, a + b), (x * 2 - y, a * 2 - b), (x / y, a / b), (x.t() % 3, a.T % 3), (fb.where(x > y, x, y), np.maximum(a, b)),
            (1 - x, 1 - a), (x.pow(3), a ** 3)):
        assert str(got.device) == device
        np.testing.assert_allclose(got.cpu().numpy(), want)


DIVISIONS = {"floor_divide": lambda x, y: x // y, "remainder": lambda x, y: x % y, "fmod": fb.fmod, "trunc": lambda x, y: fb.div(x, y, rounding_mode="trunc"),
             "floor": lambda x, y: fb.div(x, y, rounding_mode="floor"), "floor_divide_": lambda x, y: x.clone().floor_divide_(y),
             "remainder_": lambda x, y: x.clone().remainder_(y), "fmod_": lambda x, y: x.clone().fmod_(y),
             "div_": lambda x, y: x.clone().div_(y, rounding_mode="trunc"), "out": lambda x, y: fb.remainder(x, y, out=fb.empty(4, dtype=x.dtype))}


@pytest.mark.parametrize("name", sorted(DIVISIONS))
@pytest.mark.parametrize("d", [fb.int8, fb.uint8, fb.int16, fb.int32, fb.int64], ids=str)
def test_integers_are_not_divided_by_0_on_the_cpu(name, d):
    f, x, y = DIVISIONS[name], fb.tensor([6, 7, 8, 9], dtype=d), fb.tensor([1, 2, 0, 4], dtype=d)
    good = fb.tensor([1, 2, 3, 4], dtype=d)
    for _ in range(5):  # each call is looked at
        expected = f(x, good).tolist()
        for divisor in (y, fb.zeros(8, dtype=d)[::2], fb.tensor(0, dtype=d), fb.zeros(1, dtype=d).expand(4), 0):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                f(x, divisor)
        assert f(x, good).tolist() == expected and f(x, 1).shape == (4,)
    if name != "out":
        assert f(x[:0], y[:0]).tolist() == [] and f(x[:0], 0).tolist() == []
        assert f(x.to(fb.float32), 0).isfinite().logical_not().all() and f(x.to(fb.float32), y).shape == (4,)
    for call in (lambda: 5 // y, lambda: 5 % y, lambda: fb.remainder(5, y), lambda: fb.zeros(2, 2, dtype=d) // fb.tensor([[1], [0]], dtype=d)):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            call()


@pytest.mark.parametrize(("d", "wrong"), [(fb.uint8, 300), (fb.int8, 128), (fb.int8, -129), (fb.int32, 2 ** 31), (fb.float16, 1e5), (fb.float32, 1e39)],
                         ids=str)
def test_bounds_that_the_type_cannot_hold_are_refused(d, wrong):
    x = fb.tensor([0, 1, 100], dtype=d)
    for call in (lambda: x.clamp(wrong), lambda: x.clamp(max=wrong), lambda: x.clone().clamp_(max=wrong), lambda: x.clamp(0, wrong), lambda: x.clamp_max(wrong),
                 lambda: fb.clamp(x, 0, wrong, out=x.clone()), lambda: x.masked_fill(x > 0, wrong)):
        with pytest.raises(RuntimeError, match="without overflow"):
            call()
    assert x.clamp(1, 50).tolist() == [1, 1, 50]


def test_bounds_that_are_held():
    assert fb.tensor([0.0, math.inf]).clamp(max=math.inf).tolist() == [0, math.inf] and fb.tensor([1.0], dtype=fb.float16).clamp(max=math.inf).tolist() == [1]
    assert fb.tensor([5, 200], dtype=fb.uint8).clamp(1.5, 300.5).tolist() == [5, 200]
    with pytest.raises(RuntimeError, match="without overflow"):
        fb.tensor([1, 2], dtype=fb.uint8) ** 300


@pytest.mark.parametrize("d", [fb.float16, fb.bfloat16], ids=str)
def test_the_next_16_bit_value_is_the_next_in_its_bits(d, device):
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.int16)
    x = fb.tensor(bits, device=device).view(d)
    wide = x.float().cpu().numpy()
    top = {fb.float16: 0x7C00, fb.bfloat16: 0x7F80}[d]
    rank = np.where(bits < 0, -(bits.astype(np.int64) & 0x7FFF), bits.astype(np.int64))  # order of values by order of bits
    for towards in (np.inf, -np.inf, 0.0, 1.0):
        found = fb.nextafter(x, fb.tensor(towards, dtype=d, device=device)).view(fb.int16).cpu().numpy()
        step = np.where(wide < towards, 1, np.where(wide > towards, -1, 0))
        want = rank + step
        got = np.where(found < 0, -(found.astype(np.int64) & 0x7FFF), found.astype(np.int64))
        known = np.abs(rank) <= top  # the others are NaN
        np.testing.assert_array_equal(got[known], want[known])
        assert np.isnan(fb.tensor(found).view(d).float().numpy()[~known]).all()
    assert fb.nextafter(x[:3], fb.full((3,), math.nan, dtype=d, device=device)).isnan().all()
    y = x[0x100:0x104].clone().nextafter_(x[0x7000])
    assert y.view(fb.int16).tolist() == [0x101, 0x102, 0x103, 0x104]


def test_heaviside_of_nan_is_0_as_it_is_not_above_0():
    x = fb.tensor([math.nan, -math.inf, -1.0, -0.0, 0.0, 2.0, math.inf])
    assert fb.heaviside(x, fb.tensor(5.0)).tolist() == [0, 0, 0, 5, 5, 1, 1]
    assert fb.heaviside(x, fb.tensor(math.nan)).isnan().tolist() == [False, False, False, True, True, False, False]


def test_results_that_do_not_vary_have_gradients_of_zeros():
    for f in (lambda x, y: fb.div(x, y, rounding_mode="floor"), lambda x, y: fb.div(x, y, rounding_mode="trunc"),
              lambda x, y: (x * 1).div_(y, rounding_mode="floor"), lambda x, y: x.floor() + y.ceil(), lambda x, y: x.sgn() + y.sign(),
              lambda x, y: x.trunc() + y.round()):
        x, y = fb.tensor([5.0, -5.0], requires_grad=True), fb.tensor([2.0, 3.0], requires_grad=True)
        f(x, y).sum().backward()
        assert x.grad.tolist() == [0, 0] and y.grad.tolist() == [0, 0]


def test_what_has_no_derivative_says_so_in_the_backward_pass():
    x = fb.tensor([5.0, -5.0], requires_grad=True)
    for f, name in ((lambda: x // x, "floor_divide"), (lambda: (x * 1).floor_divide_(2.0), "floor_divide"), (lambda: 5.0 % x, "remainder"),
                    (lambda: fb.heaviside(x, x), "heaviside")):
        for _ in range(5):  # also where the call is learned
            y = f()
            assert y.requires_grad
            with pytest.raises(RuntimeError, match=f"derivative for aten::{name} is not implemented"):
                y.sum().backward()
    (x % 3.0).sum().backward()
    assert x.grad.tolist() == [1, 1]
    assert (x.detach() // 2.0).tolist() == [2, -3]


def test_gradients_at_nan_and_at_the_origin():
    def slope(f, *values):
        x = fb.tensor(values, requires_grad=True)
        f(x).sum().backward()
        return x.grad.tolist()
    for f in (lambda x: x.clamp(0, 1), lambda x: x.clamp(min=0), lambda x: x.clamp(max=1), lambda x: x.clamp(fb.tensor(0.0), fb.tensor(1.0))):
        assert slope(f, math.nan, 0.5) == [0, 1]  # NaN is in no range
    for f in (fb.relu, fb.nn.functional.relu6, fb.nn.functional.hardtanh, fb.nn.functional.elu, fb.celu):
        assert slope(f, math.nan, 0.5) == [1, 1]
    x, y = fb.tensor([0.0, 0.0, 1.0], requires_grad=True), fb.tensor([0.0, 2.0, 0.0], requires_grad=True)
    fb.atan2(x, y).sum().backward()
    assert x.grad.tolist() == [0, 0.5, 0] and y.grad.tolist() == [0, 0, -1]


def test_addcmul_of_integers_stays_exact_and_of_their_type():
    x, a, b = fb.tensor([1, 0, 2 ** 53 + 1]), fb.tensor([1, 2, 3]), fb.tensor([4, 1, 1])
    assert fb.addcmul(x, a, b).tolist() == [5, 2, 2 ** 53 + 4] and fb.addcmul(x, a, b, value=1.5).tolist() == [5, 2, 2 ** 53 + 4]
    assert x.to(fb.int8).addcmul_(a.to(fb.int8), b.to(fb.int8), value=-1).tolist() == [-3, -2, -2]
    with pytest.raises(NotImplementedError):
        fb.addcmul(x > 0, x > 0, x > 0)


def test_functions_of_two_numbers_give_tensors():
    for _ in range(4):
        for made, want in ((fb.add(1.0, 2.0), 3.0), (fb.sub(3, 1), 2), (fb.add(1, 2, alpha=3), 7), (fb.add(True, False), True)):
            assert isinstance(made, fb.Tensor) and made.shape == () and made.item() == want
        for made, want in ((fb.mul(7, 2), 14), (fb.div(7, 2), 3.5), (fb.div(-7, 2, rounding_mode="trunc"), -3), (fb.div(7.5, 2, rounding_mode="floor"), 3.0),
                           (fb.floor_divide(-7, 2), -4), (fb.true_divide(True, 2), 0.5), (fb.multiply(7.5, 2), 15.0)):
            assert isinstance(made, fb.Tensor) and made.shape == () and made.item() == want and type(made.item()) is type(want)
    assert fb.add(1.0, 2.0).dtype is fb.float32 and fb.sub(3, 1).dtype is fb.int64 and fb.add(True, True).dtype is fb.bool
    assert [0] * fb.div(7, 2, rounding_mode="trunc") == [0, 0, 0] and fb.mul(3, 4, out=fb.empty((), dtype=fb.int64)).item() == 12
    for refused in (fb.pow, fb.fmod, fb.remainder, fb.maximum, fb.eq, fb.bitwise_and):
        with pytest.raises(TypeError, match="must be Tensor"):
            refused(7, 2)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "floor_divide"])
def test_numbers_are_not_written_over(name):
    with pytest.raises(TypeError, match="argument 'self' must be Tensor, not int"):
        getattr(fb.Tensor, name + "_")(7, 2)


def test_an_in_place_operator_leaves_what_it_does_not_know_to_the_other_side():
    class Other:
        def __getattr__(self, name):
            raise AttributeError(name)

    class Answers:
        def __radd__(self, x):
            return "answered"
        __rsub__ = __rmul__ = __rtruediv__ = __rpow__ = __radd__
    for op in ("iadd", "isub", "imul", "itruediv", "ipow", "iand", "ior", "ilshift", "imod", "ifloordiv"):
        assert getattr(fb.ones(2, dtype=fb.int64), f"__{op}__")(Other()) is NotImplemented
    x = fb.ones(2)
    x += Answers()
    assert x == "answered"
    with pytest.raises(TypeError, match="unsupported operand"):
        y = fb.ones(2)
        y *= "a"
    with pytest.raises(RuntimeError):
        y += fb.ones(3)


def test_alpha_is_of_the_result_s_kind():
    b, i, f = fb.tensor([True, False]), fb.arange(2), fb.ones(2)
    assert fb.add(b, b, alpha=2).tolist() == [True, False] == fb.add(b, b, alpha=True).tolist()
    for call, words in ((lambda: fb.add(b, b, alpha=1.5), "must not be a floating"), (lambda: fb.add(i, i, alpha=1.5), "must not be a floating"),
                        (lambda: fb.add(f, f, alpha=2j), "must not be a complex")):
        with pytest.raises(RuntimeError, match=words):
            call()
    with pytest.raises(RuntimeError, match="Integer division with addcdiv is no longer supported"):
        fb.addcdiv(i, i, i)


def test_a_truth_to_the_power_of_a_truth():
    t = fb.tensor([True, False])
    assert t.pow(True).tolist() == (t ** True).tolist() == [True, False] and t.pow(False).tolist() == [True, True] and t.pow(True).dtype is fb.bool
    assert t.pow_(False) is t and t.tolist() == [True, True]
    with pytest.raises(NotImplementedError, match="pow"):
        t.pow(t)


@pytest.mark.parametrize("d", [fb.float16, fb.bfloat16], ids=str)
def test_what_is_decided_beside_16_bits_is_decided_in_16_bits(d):
    """An element that was written as 0.3 equals 0.3, and divides by it without a rest."""
    x = fb.tensor([0.3, 0.5, 0.1, -0.3], dtype=d)
    for other in (0.3, fb.tensor(0.3), fb.tensor(0.3, dtype=fb.float64)):
        assert (x == other).tolist() == [True, False, False, False] == (~(x != other)).tolist()
        assert (x > other).tolist() == [False, True, False, False] == (~(x <= other)).tolist()
        assert (x >= other).tolist() == [True, True, False, False] == (~(x < other)).tolist()
        assert x.remainder(other)[0].item() == x.fmod(other)[0].item() == 0
    assert (0.3 == x).tolist() == [True, False, False, False] and x.clone().eq_(0.3).tolist() == [1, 0, 0, 0]
    assert fb.nn.functional.hardshrink(x, 0.3).tolist() == [0, 0.5, 0, 0]
    assert (fb.tensor([0.3]) == 0.3).item() and (fb.tensor([0.3]).double() == fb.tensor([0.3])).item() is True


def test_the_first_power_in_place_leaves_what_is_there() -> None:
    for x in (fb.rand(3, 4), fb.rand(4, 3).t(), fb.arange(5), fb.rand(3, dtype=fb.complex64)):
        before, version = x.clone(), x._version
        x **= 1
        assert x.pow_(1) is x and fb.equal(x, before) and x._version == version + 2
    leaf = fb.rand(3, requires_grad=True)
    y = leaf * 2
    y.pow_(1).sum().backward()
    assert leaf.grad.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.pow_(1)
    with pytest.raises(RuntimeError):
        fb.rand(1).expand(3).pow_(1)


def test_alpha_is_of_a_kind_that_the_result_can_take():
    a = fb.tensor([1], dtype=fb.int8)
    for call in (fb.add, fb.sub, fb.Tensor.add_, lambda x, y, alpha: fb.add(x, y, alpha=alpha, out=x.clone())):
        with pytest.raises(RuntimeError, match="For integral input tensors, argument alpha must not be a floating point number"):
            call(a, a, alpha=1.0)
        with pytest.raises(RuntimeError, match="Boolean alpha only supported for Boolean results"):
            call(a, a, alpha=True)
    assert fb.add(a, a, alpha=1).tolist() == [2] and fb.add(a.float(), a, alpha=1.0).tolist() == [2]


def test_heaviside_of_complex_numbers_is_not_there():
    z, x = fb.tensor([1j, 2.0]), fb.ones(2)
    for call in (lambda: fb.heaviside(z, x), lambda: x.heaviside(z), lambda: z.heaviside_(z), lambda: fb.heaviside(x, x, out=z)):
        with pytest.raises(RuntimeError, match="heaviside is not yet implemented for complex tensors."):
            call()


@pytest.mark.parametrize("exponent", [0.5, -0.5, 2, -1, 1.7])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_powers_result_may_be_written_over(exponent, in_place, device):
    x = fb.tensor([0.25, 4.0, 1.0], device=device, requires_grad=True)
    y = x.clone().pow_(exponent) if in_place else x ** exponent
    y.masked_fill_(y == 1, 0.0)
    y.sum().backward()
    a = np.array([0.25, 4.0, 1.0])
    np.testing.assert_allclose(x.grad.cpu().numpy(), exponent * a ** (exponent - 1) * (a != 1), rtol=1e-5)


@pytest.mark.parametrize("exponent", [0.5, -0.5])
@pytest.mark.parametrize("dtype", [fb.float64, fb.complex128])
def test_gradients_of_roots(exponent, dtype):
    x = (fb.rand(3, dtype=dtype) + 0.2).requires_grad_()
    assert gradcheck(lambda x: x ** exponent, (x,)) and gradgradcheck(lambda x: x ** exponent, (x,))


def test_complex_powers_at_their_edges() -> None:
    inf = float("inf")
    z = fb.tensor([complex(0, inf), complex(-inf, 0), complex(inf, inf)])
    assert z.pow(0.5 + 0j).tolist() == z.sqrt().tolist() == [complex(inf, inf), complex(0, inf), complex(inf, inf)]
    assert z.pow(1 + 0j).tolist() == z.tolist() and z.pow(0j).tolist() == [1, 1, 1] and z[:2].pow(-1 + 0j).tolist() == z[:2].reciprocal().tolist()
    x = fb.tensor([0j, 0j, 0j, 2 + 0j], requires_grad=True)
    y = fb.tensor([0j, 1 + 0j, -1 + 0j, 1j], requires_grad=True)
    made = x ** y
    made.backward(fb.ones(4, dtype=fb.complex64))
    assert made[:2].tolist() == [1, 0] and made[2].real == inf
    want = np.conj(complex(2) ** 1j * np.log(2))
    assert y.grad[:2].tolist() == [0, 0] and np.isnan(y.grad[2].real.item()) and abs(y.grad[3].item() - want) < 1e-6
    assert x.grad[:2].tolist() == [0, 1] and abs(x.grad[3].item() - np.conj(1j * complex(2) ** (1j - 1))) < 1e-6


def test_truths_have_no_negative_integer_powers():
    t = fb.tensor([True, False])
    for power in (lambda: t ** -3, lambda: fb.pow(t, -1), lambda: t.clone().pow_(-2)):
        with pytest.raises(RuntimeError, match="Integers to negative integer powers"):
            power()
    assert (t ** -3.0).tolist() == [1.0, float("inf")] and (t ** 2).tolist() == [1, 0]


@pytest.mark.parametrize("name", ["logical_and_", "logical_or_", "logical_xor_"])
def test_a_truth_written_in_place_asks_for_no_gradient_of_the_other_operand(name):
    y = fb.ones(3, requires_grad=True)
    for _ in range(3):
        x = fb.zeros(3)
        assert getattr(x, name)(y) is x and not x.requires_grad
        z = fb.zeros(3, requires_grad=True)
        w = z * 2
        getattr(w, name)(y).sum().backward()
        assert z.grad.tolist() == [0, 0, 0] and y.grad is None


def test_a_bound_of_no_axes_beside_a_number_is_a_number():
    """Its type does not count then, as in PyTorch; beside another tensor it does."""
    x = fb.tensor([0, 1, 9], dtype=fb.uint8)
    for d in (fb.bfloat16, fb.float64):
        for _ in range(4):
            made = fb.clamp(x, fb.tensor(0.5, dtype=d), 2.5)
            assert made.dtype is fb.float32 and made.tolist() == [0.5, 1.0, 2.5]
            assert fb.clamp(x, 0.5, fb.tensor(2.5, dtype=d)).dtype is fb.float32
            assert fb.clamp(x, fb.tensor(0.5, dtype=d), fb.tensor(2.5, dtype=d)).dtype is d
    assert [fb.clamp(x, 1, fb.tensor(k)).tolist()[2] for k in range(2, 8)] == list(range(2, 8))

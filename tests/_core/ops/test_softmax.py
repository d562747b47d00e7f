"""softmax, log_softmax and softmin against NumPy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

TOLERANCE = {fb.float16: 1e-3, fb.bfloat16: 8e-3, fb.float32: 1e-6, fb.float64: 1e-14}


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def log_softmax(x: Any, axis: int) -> Any:
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


FUNCTIONS = {"softmax": (fb.softmax, softmax), "log_softmax": (fb.log_softmax, log_softmax),
             "softmin": (fb.nn.functional.softmin, lambda x, axis: softmax(-x, axis))}


def made(shape: tuple[int, ...], d: Any, layout: str = "plain", seed: int = 0) -> Any:
    """Random numbers as a tensor of type d: in order, transposed, every second of more, or expanded along the first axis."""
    a = np.random.default_rng(seed).standard_normal(shape) * 3
    if layout == "expanded" and shape:
        return fb.tensor(a[:1]).to(d).expand(*shape)
    t = fb.tensor(a).to(d)
    if layout == "turned":
        return t.permute(*range(t.dim())[::-1]).contiguous().permute(*range(t.dim())[::-1])
    if layout == "gaps" and shape:
        wide = fb.zeros(*shape[:-1], 2 * shape[-1], dtype=d)
        wide[..., ::2] = t
        return wide[..., ::2]
    return t


@settings(max_examples=120, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 5, 16, 33, 70]), min_size=1, max_size=3), st.sampled_from(list(TOLERANCE)), st.sampled_from(sorted(FUNCTIONS)),
       st.sampled_from(["plain", "turned", "gaps", "expanded"]), st.integers(0, 2), st.integers(0, 99))
def test_values_of_any_layout(shape: list[int], d: Any, name: str, layout: str, axis: int, seed: int) -> None:
    t = made(tuple(shape), d, layout, seed)
    ours, expected = FUNCTIONS[name]
    axis = axis % len(shape) - (seed % 2) * len(shape)
    got = ours(t, axis)
    assert got.dtype is d and got.shape == t.shape
    want = expected(t.double().numpy(), axis)
    np.testing.assert_allclose(got.double().numpy(), want, rtol=TOLERANCE[d], atol=TOLERANCE[d] * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("d", TOLERANCE, ids=str)
def test_values_and_gradients_on_each_device(device: str, name: str, d: Any) -> None:
    ours, expected = FUNCTIONS[name]
    t = made((3, 70, 5), d).to(device).requires_grad_()
    g = made((3, 70, 5), d, seed=1).to(device)
    out = ours(t, 1)
    (grad,) = fb.autograd.grad(out, t, g)
    x, gx = t.detach().cpu().double().numpy(), g.cpu().double().numpy()
    sign = -1.0 if name == "softmin" else 1.0
    y = softmax(sign * x, 1)
    want = gx - y * gx.sum(1, keepdims=True) if name == "log_softmax" else sign * y * (gx - (gx * y).sum(1, keepdims=True))
    np.testing.assert_allclose(out.detach().cpu().double().numpy(), expected(x, 1), rtol=TOLERANCE[d], atol=8 * TOLERANCE[d])
    np.testing.assert_allclose(grad.cpu().double().numpy(), want, rtol=8 * TOLERANCE[d], atol=16 * TOLERANCE[d])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("layout", ["plain", "turned"])
def test_gradients_twice(name: str, axis: int, layout: str) -> None:
    ours = FUNCTIONS[name][0]
    t = made((2, 4, 3), fb.float64, layout).requires_grad_()
    assert gradcheck(lambda x: ours(x, axis), (t,), check_forward_ad=True)
    assert gradgradcheck(lambda x: ours(x, axis), (t,))


def test_a_second_gradient_on_each_device(device: str) -> None:
    t = made((2, 4), fb.float64).to(device).requires_grad_()
    for ours, _ in FUNCTIONS.values():
        assert gradgradcheck(lambda x, f=ours: f(x, 1), (t,))


def test_no_dimensions() -> None:
    t = fb.tensor(3.0, requires_grad=True)
    for name, value in (("softmax", 1.0), ("log_softmax", 0.0), ("softmin", 1.0)):
        out = FUNCTIONS[name][0](t, 0)
        assert out.shape == () and out.item() == value
        assert fb.autograd.grad(out, t)[0].item() == 0.0


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_no_elements(device: str, shape: tuple[int, ...]) -> None:
    for ours, _ in FUNCTIONS.values():
        t = fb.zeros(shape, device=device, requires_grad=True)
        out = ours(t, -1)
        assert tuple(out.shape) == shape
        assert tuple(fb.autograd.grad(out.sum(), t)[0].shape) == shape


@pytest.mark.parametrize("d", [fb.float32, fb.float64], ids=str)
def test_nan_and_infinity(device: str, d: Any) -> None:
    rows = fb.tensor([[0.0, math.nan, 1.0], [0.0, math.inf, 1.0], [-math.inf] * 3, [-math.inf, 2.0, -math.inf], [1e38, 1e38, -1e38], [1.0, 1.0, 1.0]],
                     dtype=d, device=device)
    y, logs = fb.softmax(rows, 1).cpu(), fb.log_softmax(rows, 1).cpu()
    assert y[0].isnan().all() and logs[0].isnan().all()
    assert y[1].isnan().all()  # inf - inf is in the sum
    assert y[2].isnan().all() and logs[2].isnan().all()
    assert y[3].tolist() == [0.0, 1.0, 0.0] and logs[3].tolist() == [-math.inf, 0.0, -math.inf]
    assert y[4].tolist() == [0.5, 0.5, 0.0]
    np.testing.assert_allclose(y[5].numpy(), 1 / 3, rtol=1e-6)


def test_long_rows_of_one_value_are_exact() -> None:
    t = fb.full((2, 100_003), 7.5, dtype=fb.float32)
    np.testing.assert_allclose(fb.softmax(t, 1).double().numpy(), 1 / 100_003, rtol=1e-6)
    np.testing.assert_allclose(fb.log_softmax(t, 1).double().numpy(), -math.log(100_003), rtol=1e-6)


def test_dtype_is_converted_first() -> None:
    t = fb.tensor([[1, 2, 3]])
    assert fb.softmax(t, 1, dtype=fb.float64).dtype is fb.float64
    half = made((4, 9), fb.float16).requires_grad_()
    out = fb.softmax(half, 1, dtype=fb.float32)
    assert out.dtype is fb.float32
    assert fb.autograd.grad(out.sum(), half)[0].dtype is fb.float16
    np.testing.assert_allclose(out.detach().numpy(), softmax(half.detach().double().numpy(), 1), rtol=1e-6)


def test_methods_out_and_default_dimension() -> None:
    t = made((3, 4), fb.float64)
    assert fb.equal(t.softmax(0), fb.softmax(t, 0)) and fb.equal(t.log_softmax(1), fb.log_softmax(t, 1))
    out = fb.empty(0, dtype=fb.float64)
    assert fb.softmax(t, 1, out=out) is out and fb.equal(out, t.softmax(1))
    assert fb.equal(fb.special.softmax(t, 1), t.softmax(1)) and fb.equal(fb.special.log_softmax(t, 1), t.log_softmax(1))
    for shape, axis in (((4,), 0), ((3, 4), 1), ((2, 3, 4), 0), ((2, 3, 2, 2), 1)):
        x = made(shape, fb.float64)
        assert fb.equal(fb.nn.functional.softmax(x), fb.softmax(x, axis))


def test_bad_input() -> None:
    for f in (fb.softmax, fb.log_softmax):
        with pytest.raises(IndexError, match="Dimension out of range"):
            f(fb.zeros(2, 3), 2)
        with pytest.raises((NotImplementedError, RuntimeError), match="not implemented"):
            f(fb.tensor([1, 2]), 0)
    with pytest.raises(TypeError):
        fb.softmax("words", 0)


def test_a_changed_result_is_noticed() -> None:
    t = fb.randn(3, 4, requires_grad=True)
    out = fb.softmax(t, 1)
    out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()

"""Normalizations against NumPy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

F = fb.nn.functional
TOLERANCE = {fb.float16: 4e-3, fb.bfloat16: 3e-2, fb.float32: 5e-6, fb.float64: 1e-12}


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed + len(shape)).standard_normal(shape) * 2 + 0.5


def as_tensor(a: Any, d: Any = fb.float64, device: str = "cpu", layout: str = "plain") -> Any:
    t = fb.tensor(a).to(d)
    if layout == "turned":
        t = t.permute(*range(t.dim())[::-1]).contiguous().permute(*range(t.dim())[::-1])
    elif layout == "expanded":
        t = t[:1].expand(*t.shape)
    elif layout == "gaps":
        wide = fb.zeros(*t.shape[:-1], 2 * t.shape[-1], dtype=d)
        wide[..., 1::2] = t
        t = wide[..., 1::2]
    return t.to(device)


def plain(t: Any) -> Any:
    return t.detach().cpu().double().numpy()


def normalised(x: Any, axes: tuple[int, ...], eps: float, rms: bool = False) -> Any:
    center = x if rms else x - x.mean(axes, keepdims=True)
    return center / np.sqrt((center ** 2).mean(axes, keepdims=True) + eps)


def slope(g: Any, x: Any, axes: tuple[int, ...], eps: float, rms: bool = False) -> Any:
    """The gradient of x through `normalised`."""
    hat = normalised(x, axes, eps, rms)
    center = x if rms else x - x.mean(axes, keepdims=True)
    g0 = g if rms else g - g.mean(axes, keepdims=True)
    return (g0 - hat * (g * hat).mean(axes, keepdims=True)) / np.sqrt((center ** 2).mean(axes, keepdims=True) + eps)


def close(got: Any, want: Any, d: Any, wider: float = 1.0) -> None:
    t = TOLERANCE[d] * wider
    np.testing.assert_allclose(plain(got), want, rtol=t, atol=t * max(1.0, float(np.abs(want).max(initial=0.0))))


def channels(v: Any, n: int) -> Any:
    return v.reshape((1, -1) + (1,) * (n - 2))


# ------------------------------------------------------------------------------------------------------- over the last axes
@pytest.mark.parametrize("d", TOLERANCE, ids=str)
@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_over_last_axes(device: str, d: Any, rms: bool, affine: bool) -> None:
    x, g, w, b = (as_tensor(normal(*s, seed=i), d, device) for i, s in enumerate(((3, 5, 7, 11), (3, 5, 7, 11), (7, 11), (7, 11))))
    inputs = [t.requires_grad_() for t in ((x, w, b)[:3 - rms] if affine else (x,))]
    eps = 1e-3
    out = F.rms_norm(x, (7, 11), *inputs[1:], eps=eps) if rms else F.layer_norm(x, (7, 11), *inputs[1:], eps=eps)
    grads = fb.autograd.grad(out, inputs, g)
    xn, gn, wn, bn = (plain(t) for t in (x, g, w, b))
    hat = normalised(xn, (2, 3), eps, rms)
    assert out.dtype is d
    close(out, hat * (wn if affine else 1.0) + (bn if affine and not rms else 0.0), d)
    close(grads[0], slope(gn * (wn if affine else 1.0), xn, (2, 3), eps, rms), d, 4)
    if affine:
        close(grads[1], (gn * hat).sum((0, 1)), d, 8)
    if affine and not rms:
        close(grads[2], gn.sum((0, 1)), d, 8)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 5, 16, 33]), min_size=1, max_size=4), st.integers(1, 4), st.booleans(),
       st.sampled_from(["plain", "turned", "expanded", "gaps"]))
def test_over_last_axes_of_any_shape(shape: list[int], last: int, rms: bool, layout: str) -> None:
    last = min(last, len(shape))
    x = as_tensor(normal(*shape), layout=layout)
    f = F.rms_norm if rms else F.layer_norm
    out = f(x, shape[-last:], eps=1e-2)
    assert out.shape == x.shape
    close(out, normalised(plain(x), tuple(range(-last, 0)), 1e-2, rms), fb.float64)


@pytest.mark.parametrize("f", ["layer_norm", "rms_norm"])
def test_over_last_axes_twice(f: str) -> None:
    x, w, b = (as_tensor(normal(*s, seed=i)).requires_grad_() for i, s in enumerate(((3, 2, 4), (4,), (4,))))
    inputs = (x, w) if f == "rms_norm" else (x, w, b)
    for layout in (lambda t: t, lambda t: t.transpose(0, 1)):
        def run(t: Any, *more: Any, turned: Any = layout) -> Any:
            return getattr(F, f)(turned(t), (4,), *more)
        assert gradcheck(run, inputs, check_forward_ad=True)
        assert gradgradcheck(run, inputs)
    assert gradgradcheck(lambda t: getattr(F, f)(t, (2, 4)), (x,))


def test_rms_norm_without_eps_takes_the_types() -> None:
    for d in (fb.float32, fb.float64):
        x = fb.full((1, 3), fb.finfo(d).eps, dtype=d)
        close(F.rms_norm(x, (3,)), normalised(plain(x), (1,), fb.finfo(d).eps, True), d)
    for d in (fb.float16, fb.bfloat16):  # of what it is computed in
        x = fb.full((1, 64), 1e-3).to(d).requires_grad_()
        out = F.rms_norm(x, (64,))
        np.testing.assert_allclose(out.detach().float().numpy(), normalised(plain(x.detach().float()), (1,), fb.finfo(fb.float32).eps, True), rtol=8e-3)
        assert fb.equal(fb.nn.RMSNorm(64).to(d)(x), out)


def test_statistics_of_layer_norm() -> None:
    x = as_tensor(normal(4, 6))
    out, mean, rstd = fb.native_layer_norm(x, (6,), None, None, 1e-5)
    close(out, normalised(plain(x), (1,), 1e-5), fb.float64)
    close(mean.reshape(-1), plain(x).mean(1), fb.float64)
    close(rstd.reshape(-1), 1 / np.sqrt(plain(x).var(1) + 1e-5), fb.float64)


@pytest.mark.parametrize("shape", [(0, 4), (2, 0, 4)])
def test_no_rows(device: str, shape: tuple[int, ...]) -> None:
    x = fb.zeros(shape, device=device, requires_grad=True)
    w, b = (fb.ones(4, device=device, requires_grad=True) for _ in range(2))
    out = F.layer_norm(x, (4,), w, b)
    gx, gw, gb = fb.autograd.grad(out.sum(), (x, w, b))
    assert tuple(out.shape) == tuple(gx.shape) == shape
    assert gw.tolist() == gb.tolist() == [0.0] * 4


def test_nan_stays_in_its_row(device: str) -> None:
    x = as_tensor(normal(3, 5), device=device)
    x[1, 2] = math.nan
    x[2, 0] = math.inf
    for out in (F.layer_norm(x, (5,)).cpu(), F.rms_norm(x, (5,)).cpu()):
        assert not out[0].isnan().any() and out[1].isnan().all()
        assert out[2, 0].isnan()
    assert F.rms_norm(x, (5,))[2, 1:].cpu().tolist() == [0.0] * 4


def test_a_large_mean_does_not_drown_the_variance() -> None:
    x = as_tensor(normal(4, 1000) + 1e4, fb.float32)
    close(F.layer_norm(x, (1000,)), normalised(plain(x), (1,), 1e-5), fb.float32, 400)


# ------------------------------------------------------------------------------------------------------------------- groups
@pytest.mark.parametrize("d", TOLERANCE, ids=str)
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(device: str, d: Any, groups: int) -> None:
    x, g, w, b = (as_tensor(normal(*s, seed=i), d, device) for i, s in enumerate(((3, 6, 4, 5), (3, 6, 4, 5), (6,), (6,))))
    inputs = [t.requires_grad_() for t in (x, w, b)]
    out = F.group_norm(x, groups, w, b, eps=1e-3)
    gx, gw, gb = fb.autograd.grad(out, inputs, g)
    xn, gn, wn, bn = plain(x).reshape(3, groups, -1), plain(g), channels(plain(w), 4), channels(plain(b), 4)
    hat = normalised(xn, (2,), 1e-3).reshape(3, 6, 4, 5)
    close(out, hat * wn + bn, d, 2)
    close(gx, slope((gn * wn).reshape(3, groups, -1), xn, (2,), 1e-3).reshape(3, 6, 4, 5), d, 6)
    close(gw, (gn * hat).sum((0, 2, 3)), d, 8)
    close(gb, gn.sum((0, 2, 3)), d, 8)


def test_group_norm_twice() -> None:
    x, w, b = (as_tensor(normal(*s, seed=i)).requires_grad_() for i, s in enumerate(((2, 4, 3), (4,), (4,))))
    assert gradcheck(lambda *t: F.group_norm(t[0], 2, *t[1:]), (x, w, b), check_forward_ad=True)
    assert gradgradcheck(lambda *t: F.group_norm(t[0], 2, *t[1:]), (x, w, b))


def test_group_norm_of_turned_and_empty() -> None:
    x = as_tensor(normal(2, 4, 6), layout="turned")
    close(F.group_norm(x, 2), normalised(plain(x).reshape(2, 2, -1), (2,), 1e-5).reshape(2, 4, 6), fb.float64)
    for shape in ((0, 4, 3), (2, 4, 0)):
        e = fb.zeros(shape, requires_grad=True)
        out = F.group_norm(e, 2)
        assert tuple(out.shape) == tuple(fb.autograd.grad(out.sum(), e)[0].shape) == shape
    out, mean, rstd = fb.native_group_norm(x, None, None, 2, 4, 6, 2, 1e-5)
    close(mean, plain(x).reshape(2, 2, -1).mean(2), fb.float64)
    close(rstd, 1 / np.sqrt(plain(x).reshape(2, 2, -1).var(2) + 1e-5), fb.float64)
    assert fb.native_group_norm(fb.zeros(0, 4, 3), None, None, 0, 4, 3, 2, 1e-5)[1].shape == (0, 2)


@pytest.mark.parametrize("layout", ["plain", "turned"])
def test_the_statistics_of_a_group_norm_have_gradients(layout: Any) -> None:
    x = as_tensor(normal(2, 4, 3), layout=layout).requires_grad_()
    w, b = [as_tensor(normal(4, seed=seed)).requires_grad_() for seed in (1, 2)]

    def whole(*t: Any) -> Any:
        return fb.native_group_norm(*t, 2, 4, 3, 2, 1e-5)
    assert [t.grad_fn.name() for t in whole(x, w, b)] == ["NativeGroupNormBackward0"] * 3  # type: ignore[union-attr]
    assert gradcheck(whole, (x, w, b), check_forward_ad=True)
    assert gradgradcheck(whole, (x, w, b))
    assert gradcheck(lambda t: whole(t, None, None)[2], (x,))


@pytest.mark.parametrize("d", TOLERANCE, ids=str)
def test_instance_norm(device: str, d: Any) -> None:
    x, w, b = (as_tensor(normal(*s, seed=i), d, device) for i, s in enumerate(((3, 4, 5, 2), (4,), (4,))))
    mean, var = (as_tensor(a, d, device) for a in (np.zeros(4), np.ones(4)))
    out = F.instance_norm(x, mean, var, w, b, momentum=0.25, eps=1e-3)
    xn = plain(x)
    close(out, normalised(xn, (2, 3), 1e-3) * channels(plain(w), 4) + channels(plain(b), 4), d, 2)
    flat = xn.reshape(3, 4, -1)
    close(mean, 0.25 * flat.mean(2).mean(0), d, 2)
    close(var, 0.75 + 0.25 * flat.var(2, ddof=1).mean(0), d, 2)
    fixed = F.instance_norm(x, mean, var, w, b, use_input_stats=False, eps=1e-3)
    want = (xn - channels(plain(mean), 4)) / np.sqrt(channels(plain(var), 4) + 1e-3) * channels(plain(w), 4) + channels(plain(b), 4)
    close(fixed, want, d, 4)


# -------------------------------------------------------------------------------------------------------------------- batch
@pytest.mark.parametrize("d", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(6, 4), (5, 4, 3), (3, 4, 2, 5), (2, 4, 2, 3, 2)], ids=str)
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm_in_training(device: str, d: Any, shape: tuple[int, ...], affine: bool) -> None:
    x, g, w, b = (as_tensor(normal(*s, seed=i), d, device) for i, s in enumerate((shape, shape, (4,), (4,))))
    mean, var = (as_tensor(a, d, device) for a in (np.full(4, 0.5), np.full(4, 2.0)))
    inputs = [t.requires_grad_() for t in ((x, w, b) if affine else (x,))]
    out = F.batch_norm(x, mean, var, *(inputs[1:] or (None, None)), training=True, momentum=0.25, eps=1e-3)
    grads = fb.autograd.grad(out, inputs, g)
    n, axes = len(shape), (0, *range(2, len(shape)))
    xn, gn = plain(x), plain(g)
    wn, bn = (channels(plain(w), n), channels(plain(b), n)) if affine else (1.0, 0.0)
    hat = normalised(xn, axes, 1e-3)
    assert out.dtype is d
    close(out, hat * wn + bn, d, 2)
    close(grads[0], slope(gn * wn, xn, axes, 1e-3), d, 6)
    if affine:
        close(grads[1], (gn * hat).sum(axes), d, 8)
        close(grads[2], gn.sum(axes), d, 8)
    close(mean, 0.375 + 0.25 * xn.mean(axes), d, 2)
    close(var, 1.5 + 0.25 * xn.var(axes, ddof=1), d, 2)


@pytest.mark.parametrize("d", TOLERANCE, ids=str)
def test_batch_norm_by_running_statistics(device: str, d: Any) -> None:
    x, w, b, mean = (as_tensor(normal(*s, seed=i), d, device) for i, s in enumerate(((5, 4, 3), (4,), (4,), (4,))))
    var = as_tensor(normal(4, seed=9) ** 2 + 0.5, d, device)
    inputs = [t.requires_grad_() for t in (x, w, b)]
    before = plain(mean).copy()
    out = F.batch_norm(x, mean, var, w, b, eps=1e-3)
    g = as_tensor(normal(5, 4, 3, seed=7), d, device)
    grads = fb.autograd.grad(out, inputs, g)
    rstd = 1 / np.sqrt(channels(plain(var), 3) + 1e-3)
    hat = (plain(x) - channels(plain(mean), 3)) * rstd
    close(out, hat * channels(plain(w), 3) + channels(plain(b), 3), d, 4)
    close(grads[0], plain(g) * rstd * channels(plain(w), 3), d, 4)
    close(grads[1], (plain(g) * hat).sum((0, 2)), d, 16)
    close(grads[2], plain(g).sum((0, 2)), d, 8)
    assert (plain(mean) == before).all()


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_twice(training: bool) -> None:
    x, w, b = (as_tensor(normal(*s, seed=i)).requires_grad_() for i, s in enumerate(((3, 2, 3), (2,), (2,))))

    def run(*t: Any) -> Any:
        return F.batch_norm(t[0], fb.zeros(2, dtype=fb.float64), fb.ones(2, dtype=fb.float64), t[1], t[2], training)
    assert gradcheck(run, (x, w, b), check_forward_ad=True)
    assert gradgradcheck(run, (x, w, b))


@pytest.mark.parametrize("layout", ["turned", "expanded", "gaps"])
def test_batch_norm_of_any_layout(layout: str) -> None:
    x = as_tensor(normal(4, 3, 5, 6), layout=layout).requires_grad_()
    out = F.batch_norm(x, None, None, training=True)
    close(out, normalised(plain(x), (0, 2, 3), 1e-5), fb.float64)
    g = as_tensor(normal(4, 3, 5, 6, seed=3), layout=layout)
    close(fb.autograd.grad(out, x, g)[0], slope(plain(g), plain(x), (0, 2, 3), 1e-5), fb.float64, 10)


def test_batch_norm_with_wider_statistics() -> None:
    """Half types with parameters in float32, as autocast leaves them."""
    x = as_tensor(normal(8, 3, 4), fb.bfloat16)
    w, b, mean, var = (as_tensor(a, fb.float32) for a in (normal(3), normal(3, seed=1), np.zeros(3), np.ones(3)))
    out = F.batch_norm(x, mean, var, w, b, training=True)
    assert out.dtype is fb.bfloat16 and mean.dtype is fb.float32
    close(out, normalised(plain(x), (0, 2), 1e-5) * channels(plain(w), 3) + channels(plain(b), 3), fb.bfloat16)
    close(mean, 0.1 * plain(x).mean((0, 2)), fb.float32, 10)


def test_native_batch_norm_and_its_out() -> None:
    x = as_tensor(normal(5, 3, 2))
    made = fb.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    close(made[0], normalised(plain(x), (0, 2), 1e-5), fb.float64)
    close(made[1], plain(x).mean((0, 2)), fb.float64)
    close(made[2], 1 / np.sqrt(plain(x).var((0, 2)) + 1e-5), fb.float64)
    outs = tuple(fb.empty(0, dtype=fb.float64) for _ in range(3))
    fb.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5, out=outs)
    for a, b in zip(made, outs, strict=True):
        assert fb.equal(a, b)


def test_batch_norm_of_nothing(device: str) -> None:
    x = fb.zeros(0, 3, 4, device=device, requires_grad=True)
    mean, var = fb.zeros(3, device=device), fb.ones(3, device=device)
    out = F.batch_norm(x, mean, var, training=True)
    assert tuple(out.shape) == tuple(fb.autograd.grad(out.sum(), x)[0].shape) == (0, 3, 4)
    assert mean.tolist() == [0.0] * 3 and var.tolist() == [1.0] * 3
    assert F.batch_norm(fb.zeros(0, device=device), mean[:0], var[:0], training=True).shape == (0,)


# ---------------------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: F.layer_norm(fb.zeros(2, 3), ()), RuntimeError, "normalized_shape"),
    (lambda: F.layer_norm(fb.zeros(2, 3), (4,)), RuntimeError, "normalized_shape"),
    (lambda: F.layer_norm(fb.zeros(2, 3), (3,), fb.ones(2)), RuntimeError, "weight"),
    (lambda: F.layer_norm(fb.zeros(2, 3), (3,), None, fb.ones(2)), RuntimeError, "bias"),
    (lambda: F.layer_norm(fb.zeros(2, 3, dtype=fb.int64), (3,)), (RuntimeError, NotImplementedError), "not implemented"),
    (lambda: F.rms_norm(fb.zeros(2, 3), (2,)), RuntimeError, "normalized_shape"),
    (lambda: F.group_norm(fb.zeros(4), 2), RuntimeError, "at least 2 dimensions"),
    (lambda: F.group_norm(fb.zeros(2, 5, 3), 2), RuntimeError, "divisible"),
    (lambda: F.group_norm(fb.zeros(2, 4, 3), 2, fb.ones(3)), RuntimeError, "weight"),
    (lambda: F.batch_norm(fb.zeros(2, 3), fb.zeros(2), fb.ones(3)), RuntimeError, "running_mean should contain 3 elements not 2"),
    (lambda: F.batch_norm(fb.zeros(2, 3), fb.zeros(3), fb.ones(3), fb.ones(4)), RuntimeError, "weight should contain 3 elements not 4"),
    (lambda: F.batch_norm(fb.zeros(2, 3), None, None), RuntimeError, "running_mean"),
    (lambda: F.batch_norm(fb.zeros(1, 3), None, None, training=True), ValueError, "more than 1 value per channel"),
    (lambda: F.batch_norm(fb.zeros(3), None, None, training=True), IndexError, "at least 2 dimensions"),
    (lambda: F.instance_norm(fb.zeros(2, 3, 1)), ValueError, "more than 1 spatial element"),
])
def test_bad_input(call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("given", [(5,), (7,), (0,), (2, 2)], ids=str)
def test_channels_of_the_native_forms_are_counted(given: tuple[int, ...]) -> None:
    """They read no weight beyond its end."""
    x, wrong = fb.randn(4, 6, 5), fb.ones(given)
    for label in ("weight", "bias", "running_mean", "running_var"):
        operands = {"weight": None, "bias": None, "running_mean": None, "running_var": None, label: wrong}
        with pytest.raises(RuntimeError, match=f"{label} should contain 6 elements not {wrong.numel()}"):
            fb.native_batch_norm(x, **operands, training=True, momentum=0.1, eps=1e-5)
    for label in ("weight", "bias"):
        with pytest.raises(RuntimeError, match=f"Expected {label} to be a vector of size equal"):
            fb.native_group_norm(x, **{"weight": None, "bias": None, label: wrong}, N=4, C=6, HxW=5, group=2, eps=1e-5)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_normalize_keeps_the_layout(p: float) -> None:
    x = fb.randn(6, 4, 2).transpose(0, 1)
    made = F.normalize(x, p, dim=1)
    assert made.stride() == x.stride() and made.equal(F.normalize(x.contiguous(), p, dim=1))
    assert F.normalize(x[:, ::2], p).stride() == x[:, ::2].clone().stride()


def test_sizes_of_the_native_forms() -> None:
    x = fb.randn(4, 6, 5)
    with pytest.raises(RuntimeError, match="divisible by num_groups"):
        fb.native_group_norm(x, None, None, 4, 6, 5, 0, 1e-5)
    with pytest.raises(RuntimeError, match="N . C . HxW is 5 . 6 . 5, but input has 120 elements"):
        fb.native_group_norm(x, None, None, 5, 6, 5, 2, 1e-5)
    with pytest.raises(IndexError, match="at least 2 dimensions"):
        fb.native_batch_norm(fb.ones(3), None, None, None, None, True, 0.1, 1e-5)


def test_a_changed_input_is_noticed() -> None:
    for f in (lambda t: F.layer_norm(t, (4,)), lambda t: F.batch_norm(t, None, None, training=True), lambda t: F.rms_norm(t, (4,))):
        x = fb.randn(3, 4, requires_grad=True)
        y = x * 1
        out = f(y)
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_narrow_rows_with_wide_weights_stay_narrow(kind, device):
    d = getattr(fb, kind)
    x = fb.linspace(-2, 2, 8, device=device).reshape(2, 4)
    w = fb.tensor([1.0, 2.0, 0.5, -1.0], device=device).requires_grad_()
    for made, wide in ((fb.nn.functional.layer_norm(x.to(d), (4,), w, w), fb.nn.functional.layer_norm(x, (4,), w, w)),
                       (fb.nn.functional.rms_norm(x.to(d), (4,), w), fb.nn.functional.rms_norm(x, (4,), w))):
        assert made.dtype is d and fb.allclose(made.float(), wide, atol=0.05)
        assert fb.autograd.grad(made.float().sum(), w)[0].dtype is fb.float32


def test_norms_of_no_channels_and_of_types_they_cannot_take():
    F = fb.nn.functional
    assert F.instance_norm(fb.ones(2, 0, 4)).shape == (2, 0, 4)
    for call in (lambda: F.rms_norm(fb.ones(2, dtype=fb.bool), (2,)), lambda: F.batch_norm(fb.ones(2, 3, dtype=fb.uint8), None, None, training=True)):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            call()
    for shape in ((), (2,)):
        with pytest.raises(RuntimeError, match="normalized_shape"):
            F.rms_norm(fb.ones(2, 3, dtype=fb.complex64), shape)

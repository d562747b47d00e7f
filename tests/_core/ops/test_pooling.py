"""Pooling against NumPy: every window looked at in turn, the greatest also element by element."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck
from tests import processes

F = fb.nn.functional
TOLERANCE = {fb.float16: 2e-3, fb.bfloat16: 1.6e-2, fb.float32: 1e-6, fb.float64: 1e-13}
MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
MEAN = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
ADAPTIVE_MEAN = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
IMAGES = {1: (11,), 2: (7, 9), 3: (5, 6, 4)}


def plain(t: Any) -> Any:
    return t.detach().cpu().double().numpy()


def outputs(image: tuple[int, ...], k: Any, s: Any, p: Any, d: Any, ceil: bool) -> tuple[int, ...]:
    found = []
    for i, a, b, c, e in zip(image, k, s, p, d, strict=True):
        span = (i + 2 * c - e * (a - 1) - 1) / b
        o = (math.ceil(span) if ceil else math.floor(span)) + 1
        found.append(o - 1 if ceil and (o - 1) * b >= i + c else o)
    return tuple(found)


def windows(image: tuple[int, ...], k: Any, s: Any, p: Any, d: Any, out: tuple[int, ...]) -> Any:
    """For each result, its place and the positions along each axis that lie on the image."""
    for at in itertools.product(*map(range, out)):
        yield at, [[o * b - c + t * e for t in range(a) if 0 <= o * b - c + t * e < i]
                   for o, i, a, b, c, e in zip(at, image, k, s, p, d, strict=True)]


def greatest(x: Any, spots: Any, out: tuple[int, ...]) -> tuple[Any, Any]:
    """The greatest of each window's elements and its position in the flattened image: the first one, of NaNs the last, as in PyTorch."""
    image = x.shape[2:]
    values, at = np.zeros((*x.shape[:2], *out), x.dtype), np.zeros((*x.shape[:2], *out), np.int64)
    flat = x.reshape(*x.shape[:2], -1)
    for place, axes in spots:
        index = np.array([np.ravel_multi_index(c, image) for c in itertools.product(*axes)])
        seen = flat[:, :, index]
        nan = np.isnan(seen)
        best = index[np.where(nan.any(-1), seen.shape[-1] - 1 - np.argmax(nan[..., ::-1], -1), np.argmax(seen, -1))]
        values[(slice(None), slice(None), *place)] = np.take_along_axis(flat, best[..., None], 2)[..., 0]
        at[(slice(None), slice(None), *place)] = best
    return values, at


def mean(x: Any, k: Any, s: Any, p: Any, out: tuple[int, ...], include: bool, divisor: int | None) -> Any:
    image = x.shape[2:]
    made = np.zeros((*x.shape[:2], *out))
    for place, axes in windows(image, k, s, p, (1,) * len(k), out):
        picked = x[(slice(None), slice(None), *np.ix_(*axes))]
        whole = math.prod(min(o * b - c + a, i + c) - (o * b - c) for o, a, b, c, i in zip(place, k, s, p, image, strict=True))
        by = divisor or (whole if include else math.prod(map(len, axes)))
        made[(slice(None), slice(None), *place)] = picked.sum(tuple(range(2, x.ndim))) / by
    return made


def laid_out(x: Any, layout: str) -> Any:
    t = fb.tensor(x)
    if layout == "channels last":
        return t.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "expanded":
        return t[:, :1].expand(*x.shape)
    if layout == "gaps":
        wide = fb.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=t.dtype)
        wide[..., ::2] = t
        return wide[..., ::2]
    return t


def made(n: int, seed: int = 0, image: tuple[int, ...] | None = None) -> Any:
    return np.random.default_rng(seed).standard_normal((2, 3, *(image or IMAGES[n])))


@st.composite
def cases(draw: Any) -> Any:
    n = draw(st.integers(1, 3))
    k = tuple(draw(st.integers(1, 4 if n < 3 else 3)) for _ in range(n))
    s = tuple(draw(st.integers(1, 3)) for _ in range(n))
    p = tuple(draw(st.integers(0, a // 2)) for a in k)
    d = tuple(draw(st.integers(1, 2)) for _ in range(n))
    image = tuple(draw(st.integers(1, 9)) for _ in range(n))
    layout = draw(st.sampled_from(["plain", "channels last", "expanded", "gaps"]))
    return n, image, k, s, p, d, draw(st.booleans()), layout, draw(st.integers(0, 99))


@settings(max_examples=120, deadline=None)
@given(cases())
def test_greatest_of_any_windows(case: Any) -> None:
    n, image, k, s, p, d, ceil, layout, seed = case
    out = outputs(image, k, s, p, d, ceil)
    assume(min(out) > 0)
    t = laid_out(np.round(made(n, seed, image), 1), layout)  # rounded: ties
    values, at = MAX[n](t, k, s, p, d, ceil, return_indices=True)
    spots = list(windows(image, k, s, p, d, out))
    assume(all(all(axes) for _, axes in spots))
    want, place = greatest(plain(t), spots, out)
    np.testing.assert_array_equal(values.numpy(), want)
    np.testing.assert_array_equal(at.numpy(), place)


@settings(max_examples=100, deadline=None)
@given(cases(), st.booleans(), st.sampled_from([None, 3]))
def test_means_of_any_windows(case: Any, include: bool, divisor: int | None) -> None:
    n, image, k, s, p, _, ceil, layout, seed = case
    out = outputs(image, k, s, p, (1,) * n, ceil)
    assume(min(out) > 0)
    divisor = divisor if n > 1 else None
    t = laid_out(made(n, seed, image), layout)
    got = MEAN[n](t, k, s, p, ceil, include, *([divisor] if n > 1 else []))
    spots = list(windows(image, k, s, p, (1,) * n, out))
    assume(all(all(axes) for _, axes in spots))
    np.testing.assert_allclose(got.numpy(), mean(plain(t), k, s, p, out, include, divisor), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("d", TOLERANCE, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_values_and_gradients_on_each_device(device: str, d: Any, n: int) -> None:
    t = fb.tensor(made(n)).to(d).to(device).requires_grad_()
    k, s, p, one = (3,) * n, (2,) * n, (1,) * n, (1,) * n
    out = outputs(IMAGES[n], k, s, p, one, False)
    x = plain(t)
    values, at = MAX[n](t, 3, 2, 1, return_indices=True)
    want, place = greatest(x, windows(IMAGES[n], k, s, p, one, out), out)
    np.testing.assert_array_equal(plain(values), want)
    np.testing.assert_array_equal(at.cpu().numpy(), place)
    g = fb.tensor(np.random.default_rng(5).integers(-4, 5, values.shape)).to(d).to(device)
    grad = np.zeros((2, 3, math.prod(IMAGES[n])))
    for i, j in itertools.product(range(2), range(3)):
        np.add.at(grad[i, j], place[i, j].ravel(), plain(g)[i, j].ravel())
    np.testing.assert_array_equal(plain(fb.autograd.grad(values, t, g)[0]).reshape(grad.shape), grad)
    average = MEAN[n](t, 3, 2, 1)
    np.testing.assert_allclose(plain(average), mean(x, k, s, p, out, True, None), rtol=TOLERANCE[d], atol=TOLERANCE[d])
    spread = np.zeros(x.shape)
    for spot, axes in windows(IMAGES[n], k, s, p, one, out):
        spread[(slice(None), slice(None), *np.ix_(*axes))] += plain(g)[(slice(None), slice(None), *spot)].reshape(2, 3, *(1,) * n) / 3 ** n
    np.testing.assert_allclose(plain(fb.autograd.grad(average, t, g)[0]), spread, rtol=4 * TOLERANCE[d], atol=8 * TOLERANCE[d])


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_adaptive(device: str, n: int, size: int) -> None:
    t = fb.tensor(made(n), device=device)
    spots = []
    for place in itertools.product(range(size), repeat=n):
        spots.append((place, [list(range(a * i // size, -(-(a + 1) * i // size))) for a, i in zip(place, IMAGES[n], strict=True)]))
    x = plain(t)
    want, at = greatest(x, spots, (size,) * n)
    values, places = ADAPTIVE_MAX[n](t, size, return_indices=True)
    np.testing.assert_array_equal(plain(values), want)
    np.testing.assert_array_equal(places.cpu().numpy(), at)
    average = np.zeros(want.shape)
    for place, axes in spots:
        average[(slice(None), slice(None), *place)] = x[(slice(None), slice(None), *np.ix_(*axes))].mean(tuple(range(2, n + 2)))
    np.testing.assert_allclose(plain(ADAPTIVE_MEAN[n](t, size)), average, rtol=1e-12, atol=1e-13)


def test_adaptive_size_none_keeps_an_axis() -> None:
    t = fb.tensor(made(2))
    assert F.adaptive_avg_pool2d(t, (None, 3)).shape == (2, 3, 7, 3)
    assert F.adaptive_max_pool2d(t, (2, None)).shape == (2, 3, 2, 9)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_gradients_twice(n: int) -> None:
    x = np.random.default_rng(n).permutation(2 * 5 ** n).reshape(1, 2, *(5,) * n) / 7.0  # no ties
    t = fb.tensor(x, requires_grad=True)
    for f in (lambda v: MAX[n](v, 2, 1, 1), lambda v: MEAN[n](v, 3, 2, 1, True, False), lambda v: ADAPTIVE_MAX[n](v, 3), lambda v: ADAPTIVE_MEAN[n](v, 3)):
        assert gradcheck(f, (t,))
        assert gradgradcheck(f, (t,))


def test_a_second_gradient_on_each_device(device: str) -> None:
    t = fb.tensor(np.random.default_rng(0).permutation(50).reshape(1, 2, 5, 5) / 7.0, device=device, requires_grad=True)
    for f in (lambda v: F.max_pool2d(v, 2), lambda v: F.avg_pool2d(v, 2), lambda v: F.adaptive_avg_pool2d(v, 3)):
        assert gradgradcheck(f, (t,))


@pytest.mark.parametrize("kernel", [2, 7])
def test_nan_and_infinity(device: str, kernel: int) -> None:
    """Small windows and large ones have kernels of their own."""
    x = made(2, image=(14, 14))
    x[0, 0, 3, 3] = math.nan
    x[0, 1] = -math.inf
    x[1, 0, 0, 0] = math.inf
    t = fb.tensor(x, device=device)
    values, at = F.max_pool2d(t, kernel, return_indices=True)
    want, place = greatest(x, windows((14, 14), (kernel,) * 2, (kernel,) * 2, (0, 0), (1, 1), (14 // kernel,) * 2), (14 // kernel,) * 2)
    np.testing.assert_array_equal(plain(values), want)
    np.testing.assert_array_equal(at.cpu().numpy(), place)
    assert np.isnan(plain(F.avg_pool2d(t, kernel))).sum() == 1


@pytest.mark.parametrize("d", [fb.uint8, fb.int8, fb.int32, fb.int64], ids=str)
def test_integers(d: Any) -> None:
    x = np.random.default_rng(0).integers(0, 100, (1, 2, 6, 6))
    t = fb.tensor(x).to(d)
    values, at = F.max_pool2d(t, 3, 2, 1, return_indices=True)
    want, place = greatest(x.astype(float), windows((6, 6), (3, 3), (2, 2), (1, 1), (1, 1), (3, 3)), (3, 3))
    assert values.dtype is d
    np.testing.assert_array_equal(values.numpy(), want)
    np.testing.assert_array_equal(at.numpy(), place)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_without_a_batch_and_with_an_empty_one(device: str, n: int) -> None:
    x = made(n)
    t = fb.tensor(x, device=device)
    for f in (lambda v: MAX[n](v, 2), lambda v: MEAN[n](v, 2), lambda v: ADAPTIVE_MAX[n](v, 2), lambda v: ADAPTIVE_MEAN[n](v, 3)):
        assert fb.equal(f(t[0]), f(t)[0])
        empty = fb.zeros(0, *x.shape[1:], device=device, requires_grad=True)
        out = f(empty)
        assert out.shape == (0, *f(t).shape[1:])
        assert fb.autograd.grad(out.sum(), empty)[0].shape == empty.shape


def test_out_of_means() -> None:
    for n in (2, 3):
        t, out = fb.tensor(made(n)), fb.empty(0, dtype=fb.float64)
        assert MEAN[n](t, 2, out=out) is out and fb.equal(out, MEAN[n](t, 2))


def direct(x, kernel, stride, padding, dilation, out):
    """Values and positions; the first of equals, NaN above all, of several the last."""
    values, at = np.empty((*x.shape[:2], *out), x.dtype), np.empty((*x.shape[:2], *out), np.int64)
    for place in itertools.product(*map(range, values.shape)):
        best = None
        for tap in itertools.product(*map(range, kernel)):
            where = [o * s - p + t * d for o, s, p, t, d in zip(place[2:], stride, padding, tap, dilation, strict=True)]
            if all(0 <= w < i for w, i in zip(where, x.shape[2:], strict=True)):
                v = x[(*place[:2], *where)]
                if best is None or v > best or v != v:
                    best, position = v, np.ravel_multi_index(where, x.shape[2:])
        values[place], at[place] = best, position
    return values, at


AXIS = st.tuples(st.integers(4, 11), st.integers(1, 3), st.integers(1, 3), st.integers(0, 1), st.integers(1, 2))


@given(st.integers(1, 2), st.lists(AXIS, min_size=1, max_size=3),
       st.sampled_from(["float32", "float64", "int32"]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_values_and_positions(n, axes, dtype, ceil):
    image, kernel, stride, padding, dilation = (tuple(c) for c in zip(*axes, strict=True))
    padding = tuple(min(p, k // 2) for p, k in zip(padding, kernel, strict=True))
    if any(i + 2 * p < d * (k - 1) + 1 for i, p, d, k in zip(image, padding, dilation, kernel, strict=True)):
        return
    rng = np.random.default_rng(sum(image))
    x = rng.integers(-9, 9, (n, 3, *image)).astype(dtype)
    if dtype != "int32":
        x.reshape(-1)[::7], x[0, 0] = np.nan, -np.inf
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(image) - 1]
    y, at = pool(fb.from_numpy(x), kernel, stride, padding, dilation, ceil, True)
    want, where = direct(x, kernel, stride, padding, dilation, tuple(y.shape[2:]))
    np.testing.assert_array_equal(y.numpy(), want)
    np.testing.assert_array_equal(at.numpy(), where)


@pytest.mark.parametrize("kernel", [2, 7])
def test_big_windows_and_small_ones_have_gradients(kernel):
    x = fb.randn(2, 3, 15, 14, dtype=fb.float64, requires_grad=True)
    y, at = F.max_pool2d(x[:, :, :, 1:], kernel, return_indices=True)
    g, = fb.autograd.grad(y.sum(), x)
    want = np.zeros((6, 15 * 13))
    np.add.at(want, (np.arange(6)[:, None], at.numpy().reshape(6, -1)), 1)
    np.testing.assert_array_equal(g.numpy()[..., 1:], want.reshape(2, 3, 15, 13))
    assert (g.numpy()[..., 0] == 0).all()


# --------------------------------------------------------------------------------------------------------------- fractional
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("d", TOLERANCE, ids=str)
def test_fractional(device: str, n: int, d: Any) -> None:
    x, size = made(n), (3, 4, 2)[:n]
    u = np.random.default_rng(1).random((2, 3, n))
    t, samples = fb.tensor(x).to(d).to(device), fb.tensor(u).to(d).to(device)
    f = F.fractional_max_pool2d if n == 2 else F.fractional_max_pool3d
    values, at = f(t, 2, size, return_indices=True, _random_samples=samples)
    x, u = plain(t), plain(samples)
    if d not in (fb.float32, fb.float64):  # the places are computed in the type itself
        assert values.shape == (2, 3, *size)
        np.testing.assert_array_equal(np.take_along_axis(x.reshape(2, 3, -1), at.cpu().numpy().reshape(2, 3, -1), 2), plain(values).reshape(2, 3, -1))
        return
    for i, j in itertools.product(range(2), range(3)):
        starts = []
        for axis, (length, outs) in enumerate(zip(IMAGES[n], size, strict=True)):
            alpha, v = (length - 2) / (outs - 1), u[i, j, n - 1 - axis if n == 2 else axis]
            starts.append([int((o + v) * alpha) - int(v * alpha) for o in range(outs - 1)] + [length - 2])
        spots = [(place, [[s[o], s[o] + 1] for s, o in zip(starts, place, strict=True)]) for place in itertools.product(*map(range, size))]
        want, where = greatest(x[i:i + 1, j:j + 1], spots, size)
        np.testing.assert_array_equal(plain(values)[i, j], want[0, 0])
        np.testing.assert_array_equal(at.cpu().numpy()[i, j], where[0, 0])


@pytest.mark.parametrize("n", [2, 3])
def test_fractional_gradients_and_random_places(n: int) -> None:
    f = F.fractional_max_pool2d if n == 2 else F.fractional_max_pool3d
    x = np.random.default_rng(n).permutation(2 * 5 ** n).reshape(1, 2, *(5,) * n) / 7.0
    t, samples = fb.tensor(x, requires_grad=True), fb.rand(1, 2, n, dtype=fb.float64)
    assert gradcheck(lambda v: f(v, 2, 3, _random_samples=samples), (t,))
    assert gradgradcheck(lambda v: f(v, 2, 3, _random_samples=samples), (t,))
    fb.manual_seed(0)
    first = f(t, 2, output_ratio=0.7)
    assert first.shape == (1, 2, *(3,) * n)
    fb.manual_seed(0)
    assert fb.equal(first, f(t, 2, output_ratio=0.7))
    assert f(t[0], 2, 3).shape == (2, *(3,) * n)
    assert f(t[:0], 2, 3).shape == (0, 2, *(3,) * n)
    assert (f(t, 5, 1).reshape(2) == t.detach().reshape(2, -1).max(1).values).all()


# ---------------------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: F.max_pool2d(fb.zeros(3, 3), 2), RuntimeError, "Expected 3D or 4D"),
    (lambda: F.max_pool1d(fb.zeros(0, 10), 1), RuntimeError, "optional 0 dim batch size"),
    (lambda: F.max_pool3d(fb.zeros(0, 1, 2, 10), 1), RuntimeError, "optional 0 dim batch size"),
    (lambda: F.avg_pool2d(fb.zeros(2, 0, 3, 3), 1), RuntimeError, "optional 0 dim batch size"),
    (lambda: F.max_pool2d(fb.zeros(1, 1, 4, 4), 0), RuntimeError, "greater than zero"),
    (lambda: F.max_pool2d(fb.zeros(1, 1, 4, 4), 2, 0), RuntimeError, "greater than zero"),
    (lambda: F.max_pool2d(fb.zeros(1, 1, 4, 4), 2, padding=2), RuntimeError, "at most half"),
    (lambda: F.avg_pool2d(fb.zeros(1, 1, 4, 4), 2, padding=-1), RuntimeError, "non-negative"),
    (lambda: F.max_pool2d(fb.zeros(1, 1, 4, 4), (2, 2, 2)), RuntimeError, "kernel_size"),
    (lambda: F.max_pool2d(fb.zeros(1, 1, 2, 2), 3), RuntimeError, "too small"),
    (lambda: F.avg_pool2d(fb.zeros(1, 1, 4, 4), 2, divisor_override=0), RuntimeError, "divisor must be not zero"),
    (lambda: F.max_pool2d(fb.zeros(1, 1, 4, 4, dtype=fb.complex64), 2), (RuntimeError, NotImplementedError), "not implemented"),
    (lambda: F.adaptive_avg_pool2d(fb.zeros(1, 1, 4, 4), (2, 2, 2)), RuntimeError, "output_size"),
    (lambda: F.adaptive_max_pool2d(fb.zeros(1, 1, 4, 4), -1), RuntimeError, "output_size"),
    (lambda: F.fractional_max_pool2d(fb.zeros(1, 2, 7, 7), 2), ValueError, "output_size or an output_ratio"),
    (lambda: F.fractional_max_pool2d(fb.zeros(1, 2, 7, 7), 8, 3), RuntimeError, "pool height 8 too large relative to input height 7"),
    (lambda: F.fractional_max_pool2d(fb.zeros(1, 0, 7, 7), 2, 3), RuntimeError, "non-zero size"),
    (lambda: F.fractional_max_pool3d(fb.zeros(7, 7), 2, 3), RuntimeError, "Expected 4D or 5D"),
])
def test_bad_input(call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_poolings_met_before():
    """The second call on the same layout goes by what the first one kept, in values, positions and gradients."""
    values = np.random.default_rng(3).normal(size=(2, 3, 6, 8))
    for turned in (False, True):
        for options in ({}, {"stride": [1, 2]}, {"padding": 1}, {"ceil_mode": True, "stride": 3}):
            seen = []
            for scale in (1.0, 1.0, -1.0):
                x = (fb.tensor(values) * scale).requires_grad_()
                z = x.transpose(2, 3) if turned else x
                made, at = F.max_pool2d(z, 2, return_indices=True, **options)
                assert at.dtype is fb.int64 and at.grad_fn is None
                assert z.detach().flatten(2).gather(2, at.flatten(2)).reshape(made.shape).tolist() == made.tolist()
                mean = F.avg_pool2d(z, 2, **options)
                (made.sum() + (mean * mean).sum()).backward()
                seen.append((made.tolist(), mean.tolist(), x.grad.tolist()))
            assert seen[0] == seen[1]
            np.testing.assert_array_equal(np.array(seen[2][1]), -np.array(seen[0][1]))
            assert seen[2][0] != seen[0][0]
            with fb.no_grad():
                assert F.max_pool2d(z, 2, **options).grad_fn is None and F.avg_pool2d(z, 2, **options).grad_fn is None


@pytest.mark.parametrize("n, kernel, stride, padding, dilation, ceil", [
    (2, 2, 2, 0, 1, False), (2, 3, 2, 1, 1, False), (2, 3, 1, 1, 1, True), (2, (3, 2), (1, 3), (1, 0), (2, 1), True), (1, 3, 2, 1, 2, False),
    (3, 2, (1, 2, 2), 1, 1, False), (2, 2, 3, 0, 1, False), (3, 4, 1, 2, 1, False)])
def test_max_gradients_on_every_device(n: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, device: str) -> None:
    """Collected element by element, they are those of the CPU; equal elements and NaN among them."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, (2, 3, *IMAGES[n])).astype("f4")
    a[0, 0].reshape(-1)[3] = np.nan
    grads = []
    for dev in ("cpu", device):
        for single in (False, True):
            x = fb.tensor(a[0] if single else a, device=dev).requires_grad_()
            y = MAX[n](x, kernel, stride, padding, dilation, ceil)
            y.backward(fb.tensor(np.random.default_rng(1).integers(-9, 9, tuple(y.shape)).astype("f4"), device=dev))
            grads.append(plain(x.grad))
    np.testing.assert_array_equal(grads[2], grads[0])
    np.testing.assert_array_equal(grads[3], grads[1])
    if n > 1:  # with the channels innermost, whatever the layout of the gradient that arrives
        last = fb.channels_last if n == 2 else fb.channels_last_3d
        x = fb.tensor(a, device=device).to(memory_format=last).requires_grad_()
        y, at = MAX[n](x, kernel, stride, padding, dilation, ceil, return_indices=True)
        want, places = MAX[n](fb.tensor(a), kernel, stride, padding, dilation, ceil, return_indices=True)
        for t, w in ((y, want), (at, places)):
            assert t.is_contiguous(memory_format=last)
            np.testing.assert_array_equal(plain(t), plain(w))
        g = fb.tensor(np.random.default_rng(1).integers(-9, 9, tuple(y.shape)).astype("f4"), device=device)
        for arriving in (g, g.to(memory_format=last)):
            gx, = fb.autograd.grad(y, x, arriving, retain_graph=True)
            assert gx.is_contiguous(memory_format=last)
            np.testing.assert_array_equal(plain(gx), grads[0])


@pytest.mark.parametrize("size", [5, 7, 1, 12, 40])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_adaptive_windows_of_unequal_size(size, n):
    x = fb.tensor(np.random.default_rng(size).normal(size=(2, 3, *range(5, 5 + n))), requires_grad=True)
    values, at = getattr(fb.nn.functional, f"adaptive_max_pool{n}d")(x, size, return_indices=True)
    means = getattr(fb.nn.functional, f"adaptive_avg_pool{n}d")(x, size)
    a = x.detach().numpy()
    # along an axis many cells may have one window
    windows = [[(c * i // size, -(-(c + 1) * i // size)) for c in range(size)] for i in a.shape[2:]]
    most, mean = np.empty((2, 3, *[size] * n)), np.empty((2, 3, *[size] * n))
    for window in itertools.product(*map(set, windows)):
        part = a[(..., *[slice(*w) for w in window])].reshape(2, 3, -1)
        cells = (slice(None), slice(None), *np.ix_(*[[c for c in range(size) if own[c] == w] for own, w in zip(windows, window, strict=True)]))
        most[cells] = part.max(-1).reshape(2, 3, *[1] * n)
        mean[cells] = part.mean(-1).reshape(2, 3, *[1] * n)
    np.testing.assert_array_equal(values.detach().numpy(), most)
    np.testing.assert_array_equal(np.take_along_axis(a.reshape(2, 3, -1), at.numpy().reshape(2, 3, -1), -1), most.reshape(2, 3, -1))
    np.testing.assert_allclose(means.detach().numpy(), mean)
    values.sum().backward()
    assert x.grad.sum().item() == values.numel()


def test_an_output_that_no_memory_holds_is_an_error_with_sizes_at_once():
    processes.says("""
F = torch.nn.functional
for n in (1, 2, 3):
    for kind in ("max", "avg"):
        for size in (2**31 - 1, 2**40, 2**62):
            try:
                getattr(F, f"adaptive_{kind}_pool{n}d")(torch.ones(1, 1, *[4] * n), size)
            except RuntimeError as error:
                assert "out of CPU memory: tried to allocate" in str(error) or "overflow" in str(error), error
            else:
                raise SystemExit("there was room")
""", seconds=20)


def test_integers_are_pooled_as_pytorch_pools_them():
    for d in (fb.int32, fb.uint8, fb.bool):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            fb.nn.functional.avg_pool1d(fb.ones(1, 1, 4, dtype=d), 2)
        with pytest.raises(NotImplementedError, match="not implemented for"):
            fb.nn.functional.max_pool1d(fb.ones(1, 1, 4, dtype=d), 2)
    x = fb.tensor([[[1, 4, 7, 2]]])
    assert fb.nn.functional.avg_pool1d(x, 2).tolist() == [[[2, 4]]]
    assert fb.nn.functional.max_pool1d(x, 2, return_indices=True)[0].tolist() == [[[4, 7]]]


def test_results_of_images_with_their_channels_innermost_are_so_too():
    import flambeau.nn.functional as F
    last = fb.channels_last
    whole = fb.arange(2 * 6 * 8 * 8.0).reshape(2, 6, 8, 8).contiguous(memory_format=last)
    for x in (whole, whole[:, ::2], whole.bfloat16()):
        row = x.contiguous()
        for pool in (lambda t: F.max_pool2d(t, 2), lambda t: F.max_pool2d(t, 7), lambda t: F.avg_pool2d(t, 2), lambda t: F.adaptive_avg_pool2d(t, 3),
                     lambda t: F.adaptive_avg_pool2d(t, 1), lambda t: F.adaptive_max_pool2d(t, 3), lambda t: F.lp_pool2d(t, 2, 2),
                     lambda t: F.max_pool2d(t, 2, return_indices=True)[1], lambda t: F.max_unpool2d(*F.max_pool2d(t, 2, return_indices=True), 2),
                     lambda t: F.interpolate(t, scale_factor=2), lambda t: F.pixel_unshuffle(t, 2), lambda t: fb.cat([t, t], 1)):
            found, want = pool(x), pool(row)
            assert found.stride() == tuple(fb.empty(found.shape).contiguous(memory_format=last).stride()) or found.shape[2:] == (1, 1), found.stride()
            assert want.is_contiguous() and fb.equal(found, want)
        for pool in (lambda t: F.max_pool2d(t, 2), lambda t: F.max_pool2d(t, 7), lambda t: F.avg_pool2d(t, 3, 2, 1), lambda t: F.avg_pool2d(t, (2, 3)),
                     lambda t: F.avg_pool2d(t, 7), lambda t: F.adaptive_avg_pool2d(t, 3), lambda t: F.adaptive_max_pool2d(t, 3),
                     lambda t: F.lp_pool2d(t, 2, 2)):
            y, z = x.detach().clone().float().requires_grad_(), row.detach().clone().float().requires_grad_()
            for t in (y, z):
                made = pool(t)
                made.square().sum().backward()
            gx, = fb.autograd.grad(pool(y), y, fb.ones(made.shape))
            assert gx.is_contiguous(memory_format=last) and y.grad.is_contiguous(memory_format=last)
            np.testing.assert_allclose(y.grad.numpy(), z.grad.numpy(), rtol=1e-5)
    single = whole[0].requires_grad_()
    for pool in (lambda t: F.max_pool2d(t, 2), lambda t: F.avg_pool2d(t, 2)):  # one image is no batch: row by row, as PyTorch's
        made = pool(single)
        assert made.is_contiguous() and fb.equal(made, pool(whole[:1].contiguous())[0])
    volume = fb.rand(2, 3, 4, 4, 4).contiguous(memory_format=fb.channels_last_3d)
    assert F.max_pool3d(volume, 2).is_contiguous(memory_format=fb.channels_last_3d) and F.avg_pool3d(volume, 2).is_contiguous()


@pytest.mark.parametrize("size", [1, 3, (4,), 0])
def test_pytorchs_main_namespace_gives_the_places_of_adaptive_maxima_too(size):
    x = fb.randn(2, 3, 8, dtype=fb.float64, requires_grad=True)
    values, at = fb.adaptive_max_pool1d(x, size)
    assert fb.equal(values, F.adaptive_max_pool1d(x, size)) and at.dtype is fb.int64
    assert fb.equal(values, x.gather(2, at)) and not at.requires_grad
    assert gradcheck(lambda t: fb.adaptive_max_pool1d(t, size)[0], (x,))
    assert [t.shape for t in fb.func.vmap(lambda t: fb.adaptive_max_pool1d(t, 2))(x.detach())] == [(2, 3, 2)] * 2
    for n, of in ((1, x), (2, fb.randn(2, 3, 5, 4)), (3, fb.randn(1, 2, 3, 4, 5))):
        both, name = getattr(F, f"adaptive_max_pool{n}d")(of, 2, return_indices=True), f"adaptive_max_pool{n}d_with_indices"
        assert all(map(fb.equal, both, getattr(F, name)(of, 2)))
    with pytest.raises(TypeError):
        fb.adaptive_max_pool1d(x, 2, True)


def test_images_without_elements():
    import flambeau.nn.functional as F
    assert F.adaptive_avg_pool1d(fb.ones(0, 10), 5).shape == (0, 5)
    with pytest.raises(RuntimeError, match="Expected"):
        F.adaptive_max_pool1d(fb.ones(1, 0, 50), 3)
    x = fb.ones(0, 3, 4, 4, requires_grad=True)
    F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2).sum().backward()
    assert x.grad.shape == (0, 3, 4, 4)
    assert F.fractional_max_pool2d(fb.ones(2, 3, 4, 4), 2, (0, 1)).shape == (2, 3, 0, 1)
    for wrong in (lambda: F.max_unpool3d(fb.ones(1, 1, 1, 1, 1), fb.zeros(1, 1, 1, 1, 1, dtype=fb.int64), [1, 1]),
                  lambda: F.fractional_max_pool2d(fb.ones(2, 3, 4, 4), (1,), 2), lambda: F.max_pool2d(fb.ones(1, 4, 4), 2, 0)):
        with pytest.raises(RuntimeError):
            wrong()


@pytest.mark.parametrize("d", [fb.float32, fb.float64, fb.float16, fb.bfloat16], ids=str)
@pytest.mark.parametrize("kernel, stride, padding", [((9, 8), (4, 8), (2, 0)), ((16, 11), (1, 5), (8, 5)), ((20, 20), (20, 20), (0, 0))])
def test_means_of_large_windows(d, kernel, stride, padding):
    """They are summed axis by axis: values and gradients are those of each window by itself, whatever the layout."""
    a = np.random.default_rng(1).uniform(-1, 1, (2, 3, 20, 23))
    for x in (fb.tensor(a).to(d), fb.tensor(a).to(d).contiguous(memory_format=fb.channels_last)):
        x.requires_grad_()
        out = F.avg_pool2d(x, kernel, stride, padding)
        wide = np.pad(x.detach().double().numpy(), ((0, 0), (0, 0), *[(p, p) for p in padding]))
        windows = np.lib.stride_tricks.sliding_window_view(wide, kernel, (2, 3))[:, :, ::stride[0], ::stride[1]]
        np.testing.assert_allclose(out.detach().double().numpy(), windows.mean((-1, -2)), atol=TOLERANCE[d])
        out.sum().backward()
        g = np.zeros_like(wide)
        for i, j in itertools.product(range(windows.shape[2]), range(windows.shape[3])):
            g[:, :, i * stride[0]:i * stride[0] + kernel[0], j * stride[1]:j * stride[1] + kernel[1]] += 1 / math.prod(kernel)
        inner = g[:, :, padding[0]:padding[0] + 20, padding[1]:padding[1] + 23]
        np.testing.assert_allclose(x.grad.double().numpy(), inner, rtol=max(TOLERANCE[d], 1e-6), atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("kernel, stride, padding, dilation, ceil", [
    ((2, 2), (2, 2), (0, 0), (1, 1), False), ((3, 3), (2, 2), (1, 1), (1, 1), False),
    ((3, 2), (2, 1), (1, 0), (1, 3), True), ((3, 3), (1, 2), (1, 1), (2, 2), False)])
def test_the_greatest_of_images_with_innermost_channels_and_their_places(dtype: str, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> None:
    rng = np.random.default_rng(0)
    least = -np.inf if dtype[0] == "f" else np.iinfo(dtype).min
    a = rng.integers(-9, 10, (2, 19, 9, 10)).astype(dtype)
    a[rng.random(a.shape) < 0.2] = least
    a[:, :, :4, :4] = least  # whole windows of nothing greater
    x = fb.from_numpy(a).contiguous(memory_format=fb.channels_last)
    values, places = F.max_pool2d(x, kernel, stride, padding, dilation, ceil, True)
    assert values.is_contiguous(memory_format=fb.channels_last) and places.is_contiguous(memory_format=fb.channels_last)
    for i, j in itertools.product(*map(range, values.shape[2:])):
        taps = [(i * stride[0] - padding[0] + u * dilation[0], j * stride[1] - padding[1] + v * dilation[1]) for u, v in itertools.product(*map(range, kernel))]
        inside = [r * 10 + c for r, c in taps if 0 <= r < 9 and 0 <= c < 10]
        window = a.reshape(2, 19, -1)[:, :, inside]
        np.testing.assert_array_equal(values[:, :, i, j].numpy(), window.max(-1))
        np.testing.assert_array_equal(places[:, :, i, j].numpy(), np.array(inside)[window.argmax(-1)])  # the first of equals
    if dtype[0] == "f":
        a[rng.random(a.shape) < 0.1] = np.nan
        by_rows, lying = (F.max_pool2d(t, kernel, stride, padding, dilation, ceil, True) for t in (
            fb.from_numpy(a), fb.from_numpy(a).contiguous(memory_format=fb.channels_last)))
        for one, other in zip(by_rows, lying, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("last", [False, True])
def test_means_of_unequal_windows_are_those_of_their_own_elements_alone(last: bool) -> None:
    a = np.random.default_rng(31).standard_normal((2, 3, 10, 23)).astype(np.float32)
    a[1, 2, 4, 11] = np.inf
    x = fb.tensor(a).contiguous(memory_format=fb.channels_last if last else fb.contiguous_format).requires_grad_()
    made = fb.nn.functional.adaptive_avg_pool2d(x, (4, 5))
    want, share = np.zeros((2, 3, 4, 5)), np.zeros((10, 23))
    for i, j in itertools.product(range(4), range(5)):
        rows, columns = slice(i * 10 // 4, -(-(i + 1) * 10 // 4)), slice(j * 23 // 5, -(-(j + 1) * 23 // 5))
        want[:, :, i, j] = a[:, :, rows, columns].mean((2, 3))
        share[rows, columns] += 1 / a[0, 0, rows, columns].size
    np.testing.assert_allclose(made.detach().numpy(), want, rtol=1e-5, atol=1e-6)
    assert made.is_contiguous(memory_format=fb.channels_last) == last
    made.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.broadcast_to(share, a.shape), rtol=1e-5)
    assert x.grad.is_contiguous(memory_format=fb.channels_last) == last


@pytest.mark.parametrize("d", [fb.float32, fb.float64, fb.bfloat16])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_of_several_that_are_no_numbers_a_window_takes_the_last(device: str, size: int, d: Any) -> None:
    """In windows of any size, in both layouts, and of adaptive ones that are not all of a size; gradients go there too."""
    rng = np.random.default_rng(size)
    a = rng.integers(-50, 50, (2, 3, 17, 16)).astype(np.float32)
    a[rng.random(a.shape) < 0.2] = np.nan
    for x in (fb.tensor(a, dtype=d, device=device), fb.tensor(a, dtype=d, device=device).to(memory_format=fb.channels_last)):
        x.requires_grad_()
        y, at = F.max_pool2d(x, size, 2, return_indices=True)
        spots = list(windows((17, 16), (size,) * 2, (2, 2), (0, 0), (1, 1), tuple(y.shape[2:])))
        want, where = greatest(a, spots, tuple(y.shape[2:]))
        np.testing.assert_array_equal(plain(y), want)
        np.testing.assert_array_equal(at.cpu().numpy(), where)
        g, = fb.autograd.grad(y, x, fb.ones_like(y))
        counts = np.zeros((6, 17 * 16))
        np.add.at(counts, (np.arange(6)[:, None], where.reshape(6, -1)), 1)
        np.testing.assert_array_equal(plain(g).reshape(6, -1), counts)
        y, at = F.adaptive_max_pool2d(x, (5, size), return_indices=True)
        cells = [((i, j), [range(i * 17 // 5, -(-(i + 1) * 17 // 5)), range(j * 16 // size, -(-(j + 1) * 16 // size))]) for i in range(5) for j in range(size)]
        want, where = greatest(a, cells, (5, size))
        np.testing.assert_array_equal(plain(y), want)
        np.testing.assert_array_equal(at.cpu().numpy(), where)


@pytest.mark.parametrize("pool", [lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.adaptive_max_pool2d(x, 2),
                                  lambda x: F.max_pool1d(x[0], 2)])
def test_places_go_with_the_pass(pool: Any) -> None:
    x = fb.randn(1, 2, 6, 6, requires_grad=True)
    y = pool(x)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()

"""Convolutions against direct sums."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau._core.runtime import caches
from flambeau.autograd import gradcheck, gradgradcheck
from tests import processes

F = fb.nn.functional


def direct(x, w, stride, padding, dilation, groups):
    """The definition, element by element."""
    n = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(p, p) for p in padding])
    out = [(x.shape[2 + i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(n)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    per, outs = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        g = o // outs
        for at in itertools.product(*map(range, out)):
            window = tuple(slice(a * s, a * s + d * (k - 1) + 1, d) for a, s, d, k in zip(at, stride, dilation, w.shape[2:], strict=True))
            part = x[(slice(None), slice(g * per, (g + 1) * per), *window)]
            y[(slice(None), o, *at)] = (part * w[o]).reshape(x.shape[0], -1).sum(1)
    return y


CASES = [((2, 3, 9), (4, 3, 3), 1, 0, 1, 1), ((2, 3, 7, 8), (4, 3, 3, 2), 1, 1, 1, 1), ((2, 4, 7, 8), (6, 2, 3, 3), 2, 1, 1, 2),
         ((1, 3, 9, 9), (2, 3, 3, 3), 1, 2, 2, 1), ((2, 4, 5, 5), (4, 1, 3, 3), 1, 1, 1, 4), ((2, 2, 5, 5), (3, 2, 1, 1), 1, 0, 1, 1),
         ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), 1, 1, 1, 1), ((2, 1, 8, 8), (5, 1, 3, 3), 3, 0, 1, 1)]


@pytest.mark.parametrize("xs,ws,stride,padding,dilation,groups", CASES)
def test_values_and_gradients(xs, ws, stride, padding, dilation, groups, device):
    rng = np.random.default_rng(0)
    n = len(xs) - 2
    x, w, b = rng.normal(size=xs), rng.normal(size=ws), rng.normal(size=ws[0])
    f = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[n]
    got = f(fb.tensor(x).to(device), fb.tensor(w).to(device), fb.tensor(b).to(device), stride, padding, dilation, groups)
    want = direct(x, w, (stride,) * n, (padding,) * n, (dilation,) * n, groups) + b.reshape(1, -1, *(1,) * n)
    np.testing.assert_allclose(got.cpu().numpy(), want, atol=1e-10)


@pytest.mark.parametrize("xs,ws,stride,padding,dilation,groups", [CASES[0], ((1, 2, 4, 4), (2, 2, 3, 3), 1, 1, 1, 1), ((1, 2, 5, 5), (2, 1, 3, 3), 2, 1, 1, 2)])
def test_gradients_of_every_order(xs, ws, stride, padding, dilation, groups):
    rng = np.random.default_rng(0)
    x, w = (fb.tensor(rng.normal(size=s), requires_grad=True) for s in (xs, ws))
    b = fb.tensor(rng.normal(size=ws[0]), requires_grad=True)
    f = {1: F.conv1d, 2: F.conv2d}[len(xs) - 2]
    g = lambda x, w, b: f(x, w, b, stride, padding, dilation, groups)  # noqa: E731
    assert gradcheck(g, (x, w, b), check_forward_ad=True) and gradgradcheck(g, (x, w, b), atol=1e-4)


def bounded(got, want, size, dtype):
    """Within what a sum of products of `size` terms may lose, the values being of the order of 1."""
    assert (np.abs(got - want) <= 8 * np.sqrt(size + 4) * np.finfo(dtype).eps * (4 + np.abs(want))).all()


@given(st.integers(1, 3), st.integers(1, 20), st.integers(1, 40), st.tuples(st.integers(1, 20), st.integers(1, 40)),
       st.tuples(st.integers(1, 5), st.integers(1, 7)), st.integers(1, 3), st.integers(0, 3), st.integers(1, 2), st.sampled_from(["float32", "float64"]),
       st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_geometry_and_its_gradients(n, c, o, image, kernel, stride, padding, dilation, dtype, sliced):
    if any(i + 2 * padding < dilation * (k - 1) + 1 for i, k in zip(image, kernel, strict=True)):
        return
    rng = np.random.default_rng(n + 10 * c + 100 * o)
    x, w, b = (rng.normal(size=s).astype(dtype) for s in ((n, c, *image), (o, c, *kernel), (o,)))
    wide = fb.full((n, c + 1, image[0] + 2, image[1] + 1), float("nan"), dtype=getattr(fb, dtype))
    wide[:, 1:, 2:, :-1] = fb.from_numpy(x)
    tx = (wide[:, 1:, 2:, :-1] if sliced else fb.from_numpy(x)).detach().requires_grad_()
    tw, tb = fb.from_numpy(w).requires_grad_(), fb.from_numpy(b).requires_grad_()
    y = F.conv2d(tx, tw, tb, stride, padding, dilation)
    d = (dilation, dilation)
    wide_x, wide_w = x.astype(np.float64), w.astype(np.float64)
    bounded(y.detach().numpy(), direct(wide_x, wide_w, (stride, stride), (padding, padding), d, 1) + b.reshape(1, -1, 1, 1), c * w[0, 0].size, dtype)
    g = rng.normal(size=tuple(y.shape)).astype(dtype)
    gx, gw, gb = fb.autograd.grad(y, (tx, tw, tb), fb.from_numpy(g))
    # the map is linear in each: <g, conv(dx, w)> = <gx, dx>
    padded = np.pad(wide_x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    want_w, want_x = np.zeros(w.shape), np.zeros(padded.shape)
    for at in itertools.product(*map(range, kernel)):
        rows, cols = (slice(a * dilation, a * dilation + stride * (s - 1) + 1, stride) for a, s in zip(at, y.shape[2:], strict=True))
        want_w[:, :, at[0], at[1]] = np.einsum("nohw,nchw->oc", g.astype(np.float64), padded[:, :, rows, cols])
        want_x[:, :, rows, cols] += np.einsum("nohw,oc->nchw", g.astype(np.float64), wide_w[:, :, at[0], at[1]])
    bounded(gw.numpy(), want_w, g[:, 0].size, dtype)
    bounded(gx.numpy(), want_x[:, :, padding:padding + image[0], padding:padding + image[1]], o * w[0, 0].size, dtype)
    bounded(gb.numpy(), g.astype(np.float64).sum((0, 2, 3)), g[:, 0].size, dtype)


@pytest.mark.parametrize("width", [3, 7, 8, 9, 31, 60])
@pytest.mark.parametrize("kernel,stride,dilation", [((3, 3), (1, 1), (1, 1)), ((7, 7), (2, 2), (1, 1)), ((3, 5), (1, 2), (2, 3)), ((5, 6), (2, 3), (1, 2)),
                                                    ((4, 9), (1, 4), (1, 1)), ((5, 5), (3, 1), (1, 4))])
def test_windows_that_overlap_at_any_step(kernel, stride, dilation, width):
    rng = np.random.default_rng(width)
    padding = (1, 2)
    wide = dilation[1] * (kernel[1] - 1) + 1 + stride[1] * (width - 1) - 2 * padding[1]  # so that an output's row is `width` long
    x, w = rng.normal(size=(3, 5, 24, max(1, wide))).astype("f"), rng.normal(size=(9, 5, *kernel)).astype("f")
    got = F.conv2d(fb.from_numpy(x), fb.from_numpy(w), None, stride, padding, dilation)
    bounded(got.numpy(), direct(x.astype(np.float64), w.astype(np.float64), stride, padding, dilation, 1), w[0].size, "float32")


@given(st.integers(1, 3), st.integers(2, 9), st.integers(1, 3), st.integers(1, 18), st.integers(1, 2), st.integers(0, 2), st.booleans())
@settings(max_examples=30, deadline=None)
def test_groups_are_convolutions_side_by_side(n, groups, c, o, stride, padding, pointwise):
    k = 1 if pointwise else 3
    x = fb.randn(n, groups * c, 9, 17, dtype=fb.float64, requires_grad=True)
    w, b = (fb.randn(*s, dtype=fb.float64, requires_grad=True) for s in ((groups * o, c, k, k), (groups * o,)))
    y = F.conv2d(x, w, b, stride, padding, 1, groups)
    parts = zip(x.chunk(groups, 1), w.chunk(groups), b.chunk(groups), strict=True)
    z = fb.cat([F.conv2d(*part, stride, padding) for part in parts], 1)
    g = fb.randn_like(y)
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), atol=1e-12)
    for a, e in zip(fb.autograd.grad(y, (x, w, b), g), fb.autograd.grad(z, (x, w, b), g), strict=True):
        np.testing.assert_allclose(a.numpy(), e.numpy(), atol=1e-11)


@pytest.mark.parametrize("shape,o,kernel,stride", [
    ((9, 20, 30, 31), 40, (3, 3), 1), ((40, 3, 7, 7), 17, (5, 3), 1), ((1, 70, 1, 900), 33, (1, 9), 1), ((1, 200, 9, 9), 250, (3, 3), 1),
    ((5, 3, 60, 61), 30, (7, 7), 2)])
def test_the_same_bits_on_any_threads(shape, o, kernel, stride):
    x, w = fb.randn(*shape, requires_grad=True), fb.randn(o, shape[1], *kernel, requires_grad=True)
    before, results = fb.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            fb.set_num_threads(threads)
            caches.forget()  # plans know how many threads there were
            y = F.conv2d(x, w, stride=stride, padding=1)
            results.append([t.detach().numpy() for t in (y, *fb.autograd.grad(y, (x, w), fb.ones_like(y)))])
    finally:
        fb.set_num_threads(before)
        caches.forget()
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_many_channels_of_few_places():
    x, w = fb.randn(2, 200, 9, 7), fb.randn(250, 200, 3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x.numpy().astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3))
    want = np.einsum("nchwij,ocij->nohw", windows, w.numpy().astype(np.float64), optimize=True)
    np.testing.assert_allclose(F.conv2d(x, w, padding=1).numpy(), want, atol=2e-3)


def test_nan_and_infinities_reach_only_their_windows():
    x, w = fb.randn(2, 5, 12, 13), fb.randn(9, 5, 3, 3)
    x[1, 2, 4, 5], x[0, 1, 11, 12] = float("nan"), float("inf")
    y = F.conv2d(x, w, padding=1).numpy()
    wrong = np.zeros(y.shape, bool)
    wrong[1, :, 3:6, 4:7] = wrong[0, :, 10:, 11:] = True
    np.testing.assert_array_equal(~np.isfinite(y), wrong)
    w[:, :, 1, 1] = 0
    assert np.isnan(F.conv2d(x, w, padding=1).numpy()[0, :, 11, 12]).all()  # infinity times 0


def test_nothing_to_do():
    w = fb.randn(4, 3, 3, 3, requires_grad=True)
    for shape in ((0, 3, 8, 8), (2, 3, 8, 8)):
        x = fb.randn(*shape, requires_grad=True)
        y = F.conv2d(x, w)
        gx, gw = fb.autograd.grad(y, (x, w), fb.ones_like(y))
        assert tuple(gx.shape) == shape and tuple(gw.shape) == (4, 3, 3, 3)
        assert shape[0] or (gw == 0).all()


def test_transposed_is_the_adjoint():
    rng = np.random.default_rng(0)
    x, w = fb.tensor(rng.normal(size=(2, 3, 8, 8))), fb.tensor(rng.normal(size=(5, 3, 3, 3)))
    y = F.conv2d(x, w, None, 2, 1)
    z = fb.tensor(rng.normal(size=tuple(y.shape)))
    back = F.conv_transpose2d(z, w, None, 2, 1, output_padding=1)
    assert tuple(back.shape) == (2, 3, 8, 8)
    np.testing.assert_allclose((y * z).sum().item(), (x * back).sum().item())
    t = fb.tensor(rng.normal(size=(1, 3, 4, 4)), requires_grad=True)
    u = fb.tensor(rng.normal(size=(3, 2, 3, 3)), requires_grad=True)
    assert gradcheck(lambda a, b: F.conv_transpose2d(a, b, None, 2, 1, 1), (t, u), check_forward_ad=True)


def test_same_padding_and_errors():
    assert tuple(F.conv1d(fb.zeros(1, 1, 7), fb.zeros(1, 1, 4), padding="same").shape) == (1, 1, 7)
    with pytest.raises(RuntimeError, match="to have 3 channels, but got 2"):
        F.conv2d(fb.zeros(1, 2, 5, 5), fb.zeros(4, 3, 3, 3))
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        F.conv2d(fb.zeros(1, 3, 2, 2), fb.zeros(4, 3, 3, 3))


FAR = """
F = torch.nn.functional
for n in (2**31, 2**33, 2**40, 2**62):
    for d in (1, 2, 3):
        x, w = torch.ones(1, 1, *[4] * d), torch.ones(1, 1, *[2] * d, requires_grad=True)
        for keywords in ({"padding": n, "stride": n}, {"padding": n, "stride": n, "dilation": n}, {"padding": n - 1, "stride": 2 * n}):
            for call in (getattr(F, f"conv{d}d"), getattr(F, f"conv_transpose{d}d")):
                try:
                    call(x, w, **keywords).sum().backward()
                except RuntimeError as error:
                    assert any(word in str(error) for word in ("out of CPU memory", "overflow", "size", "Kernel", "output")), error
"""


def test_windows_farther_away_than_a_kernel_counts_are_an_error_with_sizes_or_an_answer():
    processes.says(FAR)


@pytest.mark.parametrize("dtype", ["int64", "float64", "complex64"])
@pytest.mark.parametrize("stride, padding, extra, dilation", [(1, 0, 1, 2), (1, 1, 1, 2), (2, 1, 1, 1), (1, 2, 2, 3), (1, 0, 0, 2)])
def test_transposed_convolution_with_pixels_in_no_window(dtype, stride, padding, extra, dilation):
    """output_padding widens the image beyond what windows reach; the kernel turned round would not."""
    x, w = (fb.tensor(np.random.default_rng(i).integers(-4, 5, s).tolist(), dtype=getattr(fb, dtype)) for i, s in enumerate([(2, 3, 4), (3, 2, 3)]))
    found = fb.nn.functional.conv_transpose1d(x, w, None, stride, padding, extra, 1, dilation)
    size = (4 - 1) * stride + dilation * 2 + 1 + extra
    want = np.zeros((2, 2, size), x.numpy().dtype)
    for i, k in itertools.product(range(4), range(3)):
        want[:, :, i * stride + k * dilation] += x.numpy()[:, :, i] @ w.numpy()[:, :, k]
    np.testing.assert_array_equal(found.numpy(), want[:, :, padding:size - padding])


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_kernels_of_one_element_are_products_of_pixels(name: str, last: bool, biased: bool, device: str) -> None:
    d, rng = getattr(fb, name), np.random.default_rng(7)
    lies = fb.channels_last if last else fb.contiguous_format
    x, w, b = (fb.tensor(rng.integers(-4, 5, s) / 4, dtype=d).to(device) for s in ((3, 5, 4, 6), (7, 5, 1, 1), (7,)))
    x = x.contiguous(memory_format=lies)
    leaves = [t.requires_grad_() for t in ((x, w, b) if biased else (x, w))]
    y = F.conv2d(*leaves)
    g = fb.tensor(rng.integers(-4, 5, (3, 7, 4, 6)) / 4, dtype=d).to(device)
    grads = fb.autograd.grad(y, leaves, g.contiguous(memory_format=lies))
    xs, ws, bs, gs = (t.detach().cpu().double().numpy() for t in (x, w, b, g))
    want = direct(xs, ws, (1, 1), (0, 0), (1, 1), 1) + (bs.reshape(1, -1, 1, 1) if biased else 0)
    sums = np.einsum("nohw,oc->nchw", gs, ws[:, :, 0, 0]), np.einsum("nohw,nchw->oc", gs, xs)[..., None, None], gs.sum((0, 2, 3))
    tolerance = {"bfloat16": 8e-3, "float16": 1e-3}.get(name, 1e-6)
    for got, expected in zip((y, *grads), (want, *sums), strict=False):
        np.testing.assert_allclose(got.detach().cpu().double().numpy(), expected, rtol=tolerance, atol=tolerance)
    if last and device == "cpu":
        assert y.is_contiguous(memory_format=fb.channels_last) and grads[0].is_contiguous(memory_format=fb.channels_last)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize(("xs", "ws", "stride", "padding"), [
    ((1, 300, 5, 6), (4, 300, 3, 3), 1, 1), ((3, 5, 9, 8), (7, 5, 3, 2), 2, 1), ((2, 6, 11), (3, 6, 5), 1, 2)])
def test_16_bits_are_rounded_once_with_the_bias_among_the_sums(name: str, xs: tuple, ws: tuple, stride: int, padding: int) -> None:
    d, rng, n = getattr(fb, name), np.random.default_rng(9), len(xs) - 2
    x, w, b = (fb.tensor(rng.standard_normal(s), dtype=d) for s in (xs, ws, ws[:1]))
    b = b * 50
    leaves = [t.requires_grad_() for t in (x, w, b)]
    y = {1: F.conv1d, 2: F.conv2d}[n](*leaves, stride, padding)
    xd, wd, bd = (t.detach().double().numpy() for t in (x, w, b))
    want = direct(xd, wd, (stride,) * n, (padding,) * n, (1,) * n, 1) + bd.reshape(1, -1, *(1,) * n)
    half = 2.0 ** -(8 if name == "bfloat16" else 11)  # of a last place, at most
    np.testing.assert_allclose(y.detach().double().numpy(), want, rtol=1.05 * half, atol=1e-4)
    g = fb.tensor(rng.standard_normal(y.shape), dtype=d)
    got = fb.autograd.grad(y, leaves, g)
    wide = [t.detach().double().requires_grad_() for t in leaves]
    exact = fb.autograd.grad({1: F.conv1d, 2: F.conv2d}[n](*wide, stride, padding), wide, g.double())
    for a, e in zip(got, exact, strict=True):
        np.testing.assert_allclose(a.double().numpy(), e.numpy(), rtol=4 * half, atol=4 * half * float(e.abs().max()))

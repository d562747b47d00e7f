"""Resizing against its definition, pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.autograd import gradcheck
from flambeau.nn import functional as F

X = np.random.default_rng(0).standard_normal((1, 2, 4, 5))


def _linear(line, n_out, align):
    n_in = len(line)
    out = np.empty(n_out)
    for i in range(n_out):
        p = i * (n_in - 1) / (n_out - 1) if align else max((i + 0.5) * n_in / n_out - 0.5, 0)
        a = min(int(p), n_in - 1)
        b = min(a + 1, n_in - 1)
        out[i] = line[a] * (1 - (p - a)) + line[b] * (p - a)
    return out


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(7, 3), (8, 10), (4, 5), (2, 9)])
def test_bilinear(size, align):
    rows = np.apply_along_axis(_linear, 2, X, size[0], align)
    expected = np.apply_along_axis(_linear, 3, rows, size[1], align)
    out = F.interpolate(flambeau.from_numpy(X), size, mode="bilinear", align_corners=align)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [(8, 10), (7, 3), (4, 15)])
def test_nearest(size):
    rows, cols = (np.floor(np.arange(o) * (i / o)).astype(int) for o, i in zip(size, (4, 5)))
    out = F.interpolate(flambeau.from_numpy(X), size)
    np.testing.assert_array_equal(out.numpy(), X[:, :, rows][:, :, :, cols])


@pytest.mark.parametrize("options", [{"scale_factor": 2}, {"size": 3, "mode": "nearest-exact"},
                                     {"size": (5, 7), "mode": "bicubic"}, {"scale_factor": 1.5, "mode": "bilinear"},
                                     {"size": (3, 9), "mode": "lanczos", "antialias": True}])
def test_gradients(options):
    assert gradcheck(lambda v: F.interpolate(v, **options), (flambeau.from_numpy(X.copy()).requires_grad_(),))


def test_constants_stay_constant():
    ones = flambeau.ones(1, 1, 5, 6)
    for mode in ("nearest", "bilinear", "bicubic", "nearest-exact"):
        np.testing.assert_allclose(F.interpolate(ones, (3, 11), mode=mode).numpy(), np.ones((1, 1, 3, 11)), rtol=1e-6)
    for mode in ("bilinear", "bicubic", "lanczos"):
        np.testing.assert_allclose(F.interpolate(ones, (2, 3), mode=mode, antialias=True).numpy(), 1.0, rtol=1e-6)


@pytest.mark.parametrize("options,error", [
    ({}, ValueError), ({"size": 3, "scale_factor": 2}, ValueError), ({"size": (3,)}, ValueError),
    ({"size": 3, "align_corners": True}, ValueError), ({"size": 3, "mode": "linear"}, NotImplementedError),
    ({"size": 3, "mode": "trilinear"}, NotImplementedError), ({"size": 3, "mode": "best"}, NotImplementedError),
    ({"size": 0}, RuntimeError), ({"size": 3, "antialias": True}, ValueError), ({"scale_factor": float("inf")}, RuntimeError),
    ({"size": 3, "mode": "lanczos"}, ValueError), ({"size": 3, "mode": "lanczos", "antialias": True, "align_corners": True}, ValueError),
    ({"scale_factor": float("nan")}, RuntimeError), ({"scale_factor": -1e300, "recompute_scale_factor": True}, RuntimeError),
])
def test_bad_arguments(options, error):
    with pytest.raises(error):
        F.interpolate(flambeau.zeros(1, 1, 4, 4), **options)


def test_identity_grid_gives_the_image_back():
    theta = flambeau.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], dtype=flambeau.float64)
    for align in (False, True):
        grid = F.affine_grid(theta, (1, 2, 4, 5), align_corners=align)
        for mode in ("bilinear", "nearest", "bicubic"):
            out = F.grid_sample(flambeau.from_numpy(X), grid, mode, align_corners=align)
            np.testing.assert_allclose(out.numpy(), X, atol=1e-9)
    with pytest.raises(ValueError, match="expected mode to be"):
        F.grid_sample(flambeau.from_numpy(X), grid, "linear")


def test_bytes_are_resized_in_fixed_point_and_stay_bytes(device):
    x = flambeau.tensor([[[[0, 10, 200], [20, 30, 9], [1, 2, 3]]]], dtype=flambeau.uint8, device=device)
    cubic = F.interpolate(x, size=(5, 5), mode="bicubic")
    assert cubic.dtype is flambeau.uint8
    assert cubic.tolist() == [[[[0, 0, 8, 137, 238], [9, 11, 20, 86, 136], [19, 25, 30, 18, 7], [9, 12, 14, 1, 0], [0, 0, 0, 2, 3]]]]  # PyTorch's
    assert F.interpolate(x, size=(2, 2), mode="bilinear", antialias=True).tolist() == [[[[12, 87], [10, 8]]]]
    assert F.interpolate(x, size=(3, 3), mode="bilinear").tolist() == x.tolist()


@pytest.mark.parametrize(("mode", "filter"), [("bilinear", "BILINEAR"), ("bicubic", "BICUBIC"), ("lanczos", "LANCZOS")])
def test_antialiased_images_are_those_of_pillow(mode, filter, device):
    image = pytest.importorskip("PIL.Image")
    a = np.random.default_rng(2).uniform(0, 255, (17, 23)).astype(np.float32)
    for h, w in ((5, 9), (30, 11), (40, 50), (17, 3)):
        for values, form in ((a, "F"), (a.astype(np.uint8), "L")):
            wanted = np.asarray(image.fromarray(values, form).resize((w, h), image.Resampling[filter])).astype(np.float64)
            x = flambeau.from_numpy(values)[None, None].to(device)
            found = F.interpolate(x, size=(h, w), mode=mode, antialias=True)
            assert found.dtype is x.dtype
            np.testing.assert_allclose(found[0, 0].cpu().numpy().astype(np.float64), wanted, atol=1e-3 if form == "F" else 1)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("options", [{}, {"align_corners": True}, {"antialias": True}], ids=str)
def test_resized_bytes_are_the_rounded_values_of_floats(mode, options):
    a = np.random.default_rng(1).integers(90, 166, (2, 3, 17, 23)).astype(np.uint8)  # so that nothing is cut off at 0 or 255
    for size in ((17, 40), (5, 23), (31, 7), (1, 1)):
        x = flambeau.from_numpy(a)
        found = F.interpolate(x, size=size, mode=mode, **options)
        wanted = F.interpolate(x.double(), size=size, mode=mode, **options).clamp(0, 255)
        assert found.dtype is flambeau.uint8 and (found.double() - wanted).abs().max().item() <= 1.7  # each dimension is rounded
    with pytest.raises(NotImplementedError):
        F.interpolate(flambeau.zeros(1, 1, 4, dtype=flambeau.uint8), size=2, mode="linear")


@pytest.mark.parametrize(("mode", "padding"), [("bilinear", "zeros"), ("bilinear", "reflection"), ("bicubic", "border"), ("nearest", "zeros")])
def test_sampled_images_have_gradients_of_both_orders(mode, padding):
    rng = np.random.default_rng(3)
    x = flambeau.from_numpy(rng.standard_normal((2, 2, 3, 4))).requires_grad_()
    grid = flambeau.from_numpy(rng.uniform(-1.2, 1.2, (2, 2, 3, 2))).requires_grad_(mode != "nearest")
    call = lambda x, g: F.grid_sample(x, g, mode, padding, align_corners=False)  # noqa: E731
    inputs = (x, grid) if mode != "nearest" else (x, grid.detach())
    assert flambeau.autograd.gradcheck(call, inputs) and flambeau.autograd.gradgradcheck(call, inputs)


def test_what_lies_outside_of_images_is_zero_whatever_lies_at_their_edges():
    x = flambeau.full((1, 1, 2, 2), float("inf")).requires_grad_()
    grid = flambeau.tensor([[[[-3.0, 0.0], [float("nan"), 0.0], [5.0, 5.0]]]])
    y = F.grid_sample(x, grid, align_corners=False)
    y.backward(flambeau.full_like(y, float("inf")))
    assert y.flatten().tolist()[::2] == [0.0, 0.0] and y.shape == (1, 1, 1, 3)
    assert x.grad.flatten().tolist() == [0.0] * 4


def test_recorded_resizes_are_learned_with_their_constants() -> None:
    from flambeau._core.engine import trials

    x = flambeau.arange(16.0).reshape(1, 1, 4, 4).requires_grad_()
    wanted = None
    for _ in range(8):
        x.grad = None
        made = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
        (made * made).sum().backward()
        wanted = wanted or (made.tolist(), x.grad.tolist())
        assert (made.tolist(), x.grad.tolist()) == wanted
    assert "interpolate (recorded)" not in trials.refused


def test_grids_of_one_point_and_of_other_dimensions():
    theta = flambeau.ones(1, 2, 3)
    with pytest.warns(UserWarning, match="See the documentation of affine_grid for details."):
        F.affine_grid(theta, (1, 1, 2, 1), align_corners=True)
    with pytest.raises(RuntimeError, match="expected grid to have size 1 in last dimension"):
        F.grid_sample(flambeau.ones(1, 2, 2), flambeau.ones(1, 1, 1, 2), align_corners=False)
    with pytest.raises(RuntimeError, match="expected grid to have size 2 in last dimension"):
        F.grid_sample(flambeau.ones(1, 1, 2, 2), flambeau.ones(1, 1, 1, 1, 3), align_corners=False)
    with pytest.raises(RuntimeError, match="non-empty spatial dimensions"):
        F.grid_sample(flambeau.ones(1, 1, 0, 2), flambeau.ones(1, 1, 1, 2), align_corners=False)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("shape", [(1, 0, 4, 4), (0, 2, 4, 4)])
def test_sampling_nothing(mode, shape):
    x, grid = flambeau.ones(shape, requires_grad=True), flambeau.zeros(shape[0], 3, 5, 2, requires_grad=True)
    made = F.grid_sample(x, grid, mode=mode, align_corners=False)
    assert made.shape == (*shape[:2], 3, 5)
    made.sum().backward()
    assert x.grad.shape == shape


def test_coordinates_that_are_no_numbers_are_seen_as_pytorch_sees_them():
    x = flambeau.arange(9.0).view(1, 1, 3, 3)
    nan, inf = float("nan"), float("inf")
    grid = flambeau.tensor([[nan, 0.0], [inf, 0.0], [-inf, 1.0], [0.0, nan]]).view(1, 2, 2, 2)

    def seen(mode, padding):
        return F.grid_sample(x, grid, mode, padding, align_corners=True).flatten().tolist()
    for mode in ("bilinear", "bicubic"):
        assert all(np.isnan(seen(mode, "zeros"))), mode
    assert seen("nearest", "zeros") == [0.0] * 4
    for mode in ("bilinear", "nearest"):
        assert seen(mode, "border") == [3.0, 5.0, 6.0, 1.0], mode  # NaN is held at the first element of its axis
        assert seen(mode, "reflection") == [3.0, 3.0, 6.0, 1.0], mode  # and an infinity has no reflection
    volume = flambeau.arange(27.0).view(1, 1, 3, 3, 3)
    at = flambeau.tensor([[nan, 0.0, 0.0], [0.0, inf, 0.0], [0.0, 0.0, -inf]]).view(1, 1, 1, 3, 3)
    sample = lambda padding: F.grid_sample(volume, at, padding_mode=padding, align_corners=True).flatten().tolist()  # noqa: E731
    assert sample("zeros") == [0.0, 0.0, 0.0]
    assert sample("border") == [14.0, 16.0, 4.0]  # NaN at the last


def test_a_grid_of_nearest_elements_has_a_gradient_of_zeros():
    x, grid = flambeau.ones(1, 1, 2, 2), flambeau.zeros(1, 2, 3, 2, requires_grad=True)
    F.grid_sample(x, grid, "nearest", align_corners=False).sum().backward()
    assert grid.grad.shape == grid.shape and not grid.grad.any()


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("factor", [2, 1.5, 0.5])
def test_images_with_their_channels_innermost_stay_so(mode, factor):
    last = flambeau.channels_last
    x = flambeau.rand(2, 3, 4, 6, dtype=flambeau.float64).contiguous(memory_format=last).requires_grad_()
    y = x.detach().contiguous().requires_grad_()
    made, plain = (F.interpolate(t, scale_factor=factor, mode=mode) for t in (x, y))
    assert made.is_contiguous(memory_format=last) and plain.is_contiguous() and flambeau.allclose(made, plain)
    g = flambeau.rand(made.shape, dtype=flambeau.float64)
    (gx,), (gy,) = (flambeau.autograd.grad(r, t, g) for r, t in ((made, x), (plain, y)))
    assert gx.is_contiguous(memory_format=last) and flambeau.allclose(gx, gy)

"""Bits, histograms, sharpness, gamma, perspective and elastic: tensors against Pillow's images, and against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.vision import transforms as T
from flambeau.vision.transforms import functional as F

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
RNG = np.random.default_rng(0)
FULL = RNG.integers(0, 256, (21, 30, 3)).astype(np.uint8)
NARROW = RNG.integers(60, 200, (21, 30, 3)).astype(np.uint8)
FLAT = np.full((21, 30, 3), 9, np.uint8)
IMAGES = {"full": FULL, "narrow": NARROW, "flat": FLAT, "half": np.concatenate([FLAT[:10], FULL[10:]])}


def tensor(a: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(a.transpose(2, 0, 1).copy())


def array(t: torch.Tensor) -> np.ndarray:
    return t.numpy().transpose(1, 2, 0)


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("name, args", [("posterize", (3,)), ("posterize", (1,)), ("posterize", (8,)), ("solarize", (128,)), ("solarize", (0,)),
                                        ("autocontrast", ()), ("equalize", ()), ("adjust_sharpness", (1.7,)), ("adjust_sharpness", (0.0,)),
                                        ("invert", ()), ("adjust_gamma", (0.7, 1.2))])
def test_tensors_are_as_pillow_has_images(image, name, args):
    a = IMAGES[image]
    by_pillow = np.asarray(getattr(F, name)(Image.fromarray(a), *args)).astype(int)
    t = tensor(a)
    found = getattr(F, name)(t, *args)
    assert found.dtype is torch.uint8 and found.shape == t.shape and torch.equal(t, tensor(a))
    # Pillow's tables of autocontrast and its blending of uint8 cut off where tensors do not
    assert np.abs(array(found).astype(int) - by_pillow).max() <= (1 if name in ("autocontrast", "adjust_sharpness", "adjust_gamma") else 0)
    batch = getattr(F, name)(torch.stack([t, t]), *args)
    assert torch.equal(batch[0], found) and torch.equal(batch[1], found)


def test_floats_and_devices(sim_gpus):
    t = tensor(FULL).float() / 255
    x = t.numpy()
    np.testing.assert_array_equal(F.solarize(t, 0.5).numpy(), np.where(x >= 0.5, 1 - x, x))
    low, high = x.min((1, 2), keepdims=True), x.max((1, 2), keepdims=True)
    np.testing.assert_allclose(F.autocontrast(t).numpy(), (x - low) / (high - low), rtol=1e-5, atol=1e-6)
    assert torch.equal(F.autocontrast(torch.full((1, 4, 4), 0.3)), torch.full((1, 4, 4), 0.3))
    np.testing.assert_allclose(F.adjust_gamma(t, 2.0, 0.5).numpy(), 0.5 * x * x, rtol=1e-5, atol=1e-7)
    wide = np.pad(x, ((0, 0), (0, 0), (0, 0)))
    around = sum(wide[:, i:i + 19, j:j + 28] for i in range(3) for j in range(3)) + 4 * x[:, 1:-1, 1:-1]
    found = F.adjust_sharpness(t, 0.0).numpy()
    np.testing.assert_allclose(found[:, 1:-1, 1:-1], around / 13, rtol=1e-5)
    np.testing.assert_array_equal(found[:, 0], x[:, 0])
    for name, args in (("solarize", (0.5,)), ("autocontrast", ()), ("adjust_sharpness", (1.5,))):
        assert torch.equal(getattr(F, name)(t.cuda(), *args).cpu(), getattr(F, name)(t, *args))
    assert torch.equal(F.equalize(tensor(NARROW).cuda()).cpu(), F.equalize(tensor(NARROW)))


def test_wrong_images_are_told():
    t = tensor(FULL)
    for bad in (lambda: F.posterize(t.float(), 3), lambda: F.equalize(t.float()), lambda: F.solarize(t.float(), 2.0), lambda: F.solarize(t[0], 3),
                lambda: F.autocontrast(torch.zeros(5, 3, 3)), lambda: F.equalize([1]), lambda: F.elastic_transform(t, 3)):
        with pytest.raises(TypeError):
            bad()
    for bad in (lambda: F.posterize(t, 9), lambda: F.adjust_sharpness(t, -1), lambda: F.adjust_gamma(t, -1),
                lambda: F.elastic_transform(t, torch.zeros(1, 2, 2, 2)), lambda: T.AugMix(severity=11)):
        with pytest.raises(ValueError):
            bad()
    with pytest.raises(AttributeError, match="no attribute 'sparkle'"):
        F.sparkle  # noqa: B018


CORNERS = [[0, 0], [29, 0], [29, 20], [0, 20]]


def test_perspective():
    t = tensor(FULL).float()
    assert torch.allclose(F.perspective(t, CORNERS, CORNERS), t, atol=1e-2)
    ends = [[4, 3], [24, 1], [27, 18], [2, 16]]
    for mode, near in ((T.InterpolationMode.NEAREST, 0.02), (T.InterpolationMode.BILINEAR, 0.1)):
        mine = array(F.perspective(tensor(FULL), CORNERS, ends, mode, fill=0)).astype(int)
        theirs = np.asarray(F.perspective(Image.fromarray(FULL), CORNERS, ends, mode, fill=0)).astype(int)
        assert (np.abs(mine - theirs) > 2).mean() < near  # Pillow leaves the border out where it has no neighbours
    outside = F.perspective(tensor(FULL), CORNERS, [[10, 8], [19, 8], [19, 12], [10, 12]], T.InterpolationMode.NEAREST, fill=[1.0, 2.0, 3.0])
    assert outside[:, 0, 0].tolist() == [1, 2, 3]
    inward = T.RandomPerspective(p=1.0)
    for _ in range(20):
        start, end = inward.get_params(30, 20, 0.5)
        assert start == [[0, 0], [29, 0], [29, 19], [0, 19]]
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = end
        assert 0 <= ax <= 7 and 0 <= dx <= 7 and 22 <= bx <= 29 and 22 <= cx <= 29 and 0 <= ay <= 5 and 0 <= by <= 5 and 14 <= cy <= 19 and 14 <= dy <= 19


def test_elastic():
    t = tensor(FULL)
    assert torch.equal(F.elastic_transform(t, torch.zeros(1, 21, 30, 2), T.InterpolationMode.NEAREST), t)
    shift = torch.zeros(1, 21, 30, 2)
    shift[..., 0] = 2 * 3 / 30  # three pixels to the right are looked at
    moved = F.elastic_transform(t, shift, T.InterpolationMode.NEAREST, fill=[5.0])
    assert torch.equal(moved[..., :27], t[..., 3:]) and (moved[..., 28:] == 5).all()
    made = T.ElasticTransform(alpha=20.0)
    torch.manual_seed(1)
    a, b = made(t), made(t)
    torch.manual_seed(1)
    assert torch.equal(made(t), a) and not torch.equal(a, b) and a.shape == t.shape
    assert made(Image.fromarray(FULL)).size == (30, 21)


def test_ten_crops_and_chances():
    t = tensor(FULL)
    crops = T.TenCrop((8, 9))(t)
    assert len(crops) == 10 and torch.equal(crops[5], F.hflip(t)[:, :8, :9]) and torch.equal(crops[4], F.center_crop(t, [8, 9]))
    assert torch.equal(F.ten_crop(t, [8, 9], vertical_flip=True)[5], F.vflip(t)[:, :8, :9])
    for kind, args, function in ((T.RandomPosterize, (3,), F.posterize), (T.RandomSolarize, (100,), F.solarize), (T.RandomAutocontrast, (), F.autocontrast),
                                 (T.RandomAdjustSharpness, (2.0,), F.adjust_sharpness), (T.RandomEqualize, (), F.equalize)):
        assert torch.equal(kind(*args, p=1.0)(t), function(t, *args)) and kind(*args, p=0.0)(t) is t
        assert repr(kind(*args)).startswith(kind.__name__ + "(")

"""Transforms: against NumPy and Pillow, seeds, shapes and errors."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.vision import transforms as T
from flambeau.vision import utils
from flambeau.vision.transforms import functional as F

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
RNG = np.random.default_rng(0)
A = RNG.integers(0, 256, (20, 30, 3)).astype(np.uint8)
PIL, TENSOR = Image.fromarray(A), torch.from_numpy(A.transpose(2, 0, 1).copy())


def array(x) -> np.ndarray:
    return np.asarray(x) if not isinstance(x, torch.Tensor) else x.numpy().transpose(1, 2, 0)


def test_conversions() -> None:
    t = F.to_tensor(PIL)
    np.testing.assert_allclose(t.numpy(), A.transpose(2, 0, 1) / 255, rtol=1e-6)
    assert np.array_equal(np.asarray(F.to_pil_image(t)), A) and np.array_equal(np.asarray(F.to_pil_image(TENSOR)), A)
    assert torch.equal(F.pil_to_tensor(PIL), TENSOR) and F.to_tensor(A[:, :, 0]).shape == (1, 20, 30)
    assert F.to_tensor(Image.new("L", (4, 5))).shape == (1, 5, 4) and F.to_tensor(Image.new("I", (4, 5), 70000))[0, 0, 0].item() == 70000
    assert F.convert_image_dtype(t, torch.uint8).dtype is torch.uint8 and torch.equal(F.convert_image_dtype(TENSOR, torch.float32), t)
    with pytest.raises(TypeError, match="PIL Image or ndarray"):
        F.to_tensor([1])
    with pytest.raises(ValueError, match="2/3 dimensional"):
        F.to_tensor(A[None])
    with pytest.raises(ValueError, match="> 4 channels"):
        F.to_pil_image(torch.zeros(5, 3, 3))


def test_normalize() -> None:
    t = F.to_tensor(PIL)
    n = T.Normalize((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))(t)
    mean, std = (np.array(v)[:, None, None] for v in ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)))
    np.testing.assert_allclose(n.numpy(), (t.numpy() - mean) / std, rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match="float tensor"):
        F.normalize(TENSOR, 0, 1)
    with pytest.raises(ValueError, match="division by zero"):
        F.normalize(t, [0.0], [0.0])
    same = t.clone()
    assert F.normalize(same, [0.5], [0.5], inplace=True) is not None and not torch.equal(same, t)


@pytest.mark.parametrize("image", [PIL, TENSOR], ids=["pil", "tensor"])
def test_crops_flips_and_pads(image) -> None:
    assert np.array_equal(array(F.crop(image, 2, 3, 5, 7)), A[2:7, 3:10])
    assert np.array_equal(array(F.hflip(image)), A[:, ::-1]) and np.array_equal(array(F.vflip(image)), A[::-1])
    outside = array(F.crop(image, -2, 25, 6, 8))
    assert outside.shape == (6, 8, 3) and not outside[:2].any() and np.array_equal(outside[2:, :5], A[:4, 25:])
    assert np.array_equal(array(F.center_crop(image, [10, 12])), A[5:15, 9:21]) and array(F.center_crop(image, 40)).shape == (40, 40, 3)
    for mode, name in (("constant", "constant"), ("edge", "edge"), ("reflect", "reflect"), ("symmetric", "symmetric")):
        assert np.array_equal(array(F.pad(image, [1, 2, 3, 4], padding_mode=mode)), np.pad(A, ((2, 4), (1, 3), (0, 0)), mode=name))
    assert array(T.Pad(2)(image)).shape == (24, 34, 3)
    grey = array(F.rgb_to_grayscale(image))
    assert abs(grey.reshape(20, 30).astype(float) - A @ [0.299, 0.587, 0.114]).max() < 1.1
    assert len(T.FiveCrop(6)(image)) == 5 and array(F.invert(image))[0, 0, 0] == 255 - A[0, 0, 0]


def test_resize() -> None:
    assert F.resize(PIL, 10).size == (15, 10) and F.resize(PIL, (8, 9)).size == (9, 8) and F.resize(PIL, 15, max_size=20).size == (20, 13)
    small = F.resize(TENSOR, (10, 15))
    assert small.shape == (3, 10, 15) and small.dtype is torch.uint8
    flat = torch.full((3, 16, 16), 0.25)
    assert torch.allclose(F.resize(flat, 7), torch.full((3, 7, 7), 0.25))
    assert F.resize(TENSOR, (20, 30)) is TENSOR


def test_turning_by_right_angles() -> None:
    square = TENSOR[:, :, :20]
    for image in (F.to_pil_image(square), square):
        assert np.array_equal(array(F.rotate(image, 90)), np.rot90(array(square)))
    assert F.rotate(TENSOR, 90, expand=True).shape == (3, 30, 20)
    still = F.affine(TENSOR.float(), 0.0, (0, 0), 1.0, (0.0, 0.0))
    assert torch.allclose(still, TENSOR.float())
    moved = F.affine(TENSOR, 0.0, (3, 2), 1.0, (0.0, 0.0))
    assert torch.equal(moved[:, 2:, 3:], TENSOR[:, :-2, :-3]) and not moved[:, :2].any()


def test_colours() -> None:
    t = F.to_tensor(PIL)
    assert torch.allclose(F.adjust_brightness(t, 0.5), t * 0.5) and torch.equal(F.adjust_contrast(t, 1.0), t)
    assert torch.allclose(F.adjust_hue(t, 0.0), t, atol=1e-5) and torch.allclose(F.adjust_hue(F.adjust_hue(t, 0.3), -0.3), t, atol=1e-4)
    grey = F.adjust_saturation(t, 0.0)
    assert torch.allclose(grey[0], grey[1]) and abs(np.asarray(F.adjust_brightness(PIL, 0.5)).astype(int) - A // 2).max() <= 1
    with pytest.raises(ValueError, match="hue_factor"):
        F.adjust_hue(t, 0.7)
    with pytest.raises(ValueError, match="not non-negative"):
        F.adjust_contrast(t, -1)
    assert T.ColorJitter(0.2, 0.2, 0.2, 0.1)(PIL).size == PIL.size
    with pytest.raises(ValueError, match="non negative"):
        T.ColorJitter(-1)


def test_random_ones_repeat_with_the_seed() -> None:
    pipeline = T.Compose([T.RandomCrop(12, padding=2), T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.RandomRotation(10), T.RandomAffine(5, (0.1, 0.1)),
                          T.RandomResizedCrop(9), T.RandomGrayscale(), T.RandomApply([T.GaussianBlur(3)]), T.RandomInvert(), T.ToTensor(),
                          T.RandomErasing(), T.Lambda(lambda x: x * 2), T.RandomOrder([T.Normalize([0.5] * 3, [0.5] * 3)]),
                          T.RandomChoice([T.CenterCrop(8), T.CenterCrop(8)])])
    got = []
    for _ in range(2):
        torch.manual_seed(3)
        got.append([pipeline(PIL) for _ in range(4)])
    assert all(torch.equal(a, b) for a, b in zip(*got, strict=True)) and not torch.equal(got[0][0], got[0][1])
    assert got[0][0].shape == (3, 8, 8) and "RandomCrop(size=(12, 12), padding=2)" in repr(pipeline)
    with pytest.raises(ValueError, match="larger than input"):
        T.RandomCrop(99)(PIL)


def test_numbers_are_drawn_in_torchvisions_order(monkeypatch) -> None:
    """A script whose random numbers come from outside sees the same images: an angle before shifts, all factors before any change."""
    drawn: list[tuple[float, float]] = []
    from flambeau.vision.transforms import transforms
    monkeypatch.setattr(transforms, "_uniform", lambda low, high: drawn.append((round(low, 6), round(high, 6))) or (low + high) / 2)
    T.RandomAffine(10, (0.1, 0.2), (0.8, 1.2), 5)(PIL)
    assert drawn == [(-10, 10), (-3, 3), (-4, 4), (0.8, 1.2), (-5, 5)]
    drawn.clear()
    T.ColorJitter(0.4, 0.3, 0.2, 0.1)(PIL)
    assert drawn == [(0.6, 1.4), (0.7, 1.3), (0.8, 1.2), (-0.1, 0.1)]


def test_flip_chances() -> None:
    torch.manual_seed(0)
    flips = sum(not torch.equal(T.RandomHorizontalFlip(0.3)(TENSOR), TENSOR) for _ in range(400))
    assert 80 < flips < 160


def test_grid_and_files(tmp_path) -> None:
    images = torch.rand(5, 3, 4, 6)
    grid = utils.make_grid(images, nrow=3, padding=1)
    assert grid.shape == (3, 11, 22) and torch.equal(grid[:, 1:5, 8:14], images[1]) and not grid[:, 0].any()
    assert utils.make_grid(torch.rand(2, 1, 4, 4)).shape[0] == 3
    n = utils.make_grid(images * 7 - 3, normalize=True)
    assert 0 <= n.min().item() and n.max().item() == 1.0
    utils.save_image(images, tmp_path / "x.png", nrow=2)
    assert Image.open(tmp_path / "x.png").size == (2 * 8 + 2, 3 * 6 + 2)
    with pytest.raises(TypeError, match="tensor or list of tensors"):
        utils.make_grid(3)
    from flambeau.vision import io
    io.write_png(TENSOR, tmp_path / "y.png")
    assert torch.equal(io.read_image(tmp_path / "y.png"), TENSOR)

"""AutoAugment, RandAugment, TrivialAugment and AugMix: their tables, what they draw, and that they keep images images."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.vision import transforms as T
from flambeau.vision.transforms import functional as F
from flambeau.vision.transforms import policies as P

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
A = np.random.default_rng(0).integers(0, 256, (33, 48, 3)).astype(np.uint8)
TENSOR = torch.from_numpy(A.transpose(2, 0, 1).copy())
NAMES = {"ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness", "Posterize", "Solarize", "AutoContrast",
         "Equalize", "Invert"}


@pytest.mark.parametrize("name", list(T.AutoAugmentPolicy))
def test_the_tables(name):
    table = T.AutoAugment(name).policies
    assert len(table) == 25 and {n for pair in table for n, _, _ in pair} <= NAMES and all(len(pair) == 2 for pair in table)
    assert all(0 <= p <= 1 and (step is None) == (n in ("AutoContrast", "Equalize", "Invert")) for pair in table for n, p, step in pair)
    first, last = {"imagenet": ((("Posterize", 0.4, 8), ("Rotate", 0.6, 9)), (("Equalize", 0.8, None), ("Equalize", 0.6, None))),
                   "cifar10": ((("Invert", 0.1, None), ("Contrast", 0.2, 6)), (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None))),
                   "svhn": ((("ShearX", 0.9, 4), ("Invert", 0.2, None)), (("ShearX", 0.7, 2), ("Invert", 0.1, None)))}[name.value]
    assert table[0] == first and table[-1] == last


def test_each_operation():
    def run(name, strength):
        return P.apply(TENSOR, name, strength, T.InterpolationMode.NEAREST, None)
    assert torch.equal(run("Identity", 0.0), TENSOR) and torch.equal(run("Invert", 0.0), 255 - TENSOR)
    assert torch.equal(run("TranslateX", 5.9)[..., 5:], TENSOR[..., :-5]) and torch.equal(run("TranslateY", -4.0)[:, :-4], TENSOR[:, 4:])
    assert torch.equal(run("Rotate", 0.0), TENSOR) and torch.equal(run("Posterize", 4.0), TENSOR & 0xF0)
    assert torch.equal(run("Solarize", 128.0), torch.where(TENSOR >= 128, 255 - TENSOR, TENSOR))
    assert torch.equal(run("Brightness", -0.5), F.adjust_brightness(TENSOR, 0.5)) and torch.equal(run("Color", 0.3), F.adjust_saturation(TENSOR, 1.3))
    assert torch.equal(run("Contrast", 0.3), F.adjust_contrast(TENSOR, 1.3)) and torch.equal(run("Sharpness", 0.3), F.adjust_sharpness(TENSOR, 1.3))
    sheared = run("ShearX", 0.5)  # row r moves left by half of r
    assert torch.equal(sheared[:, 0], TENSOR[:, 0]) and torch.equal(sheared[:, 20, :38], TENSOR[:, 20, 10:])
    with pytest.raises(ValueError, match="Blur is not recognized"):
        run("Blur", 1.0)


@pytest.mark.parametrize("make", [T.AutoAugment, T.RandAugment, T.TrivialAugmentWide, T.AugMix, lambda: T.AutoAugment(T.AutoAugmentPolicy.SVHN, fill=3),
                                  lambda: T.RandAugment(3, 20, fill=[1, 2, 3]), lambda: T.AugMix(all_ops=False, chain_depth=2, mixture_width=1)])
def test_policies_keep_the_kind_of_image_and_follow_the_seed(make):
    policy = make()
    changed = 0
    for seed in range(12):
        torch.manual_seed(seed)
        found = policy(TENSOR)
        assert found.dtype is torch.uint8 and found.shape == TENSOR.shape
        torch.manual_seed(seed)
        assert torch.equal(policy(TENSOR), found)
        changed += not torch.equal(found, TENSOR)
    assert changed >= 5
    image = policy(Image.fromarray(A))
    assert image.size == (48, 33) and image.mode == "RGB"
    assert policy(torch.stack([TENSOR, TENSOR])).shape == (2, 3, 33, 48)


def test_strengths_have_both_signs_and_all_steps(monkeypatch):
    seen = []
    monkeypatch.setattr(P, "apply", lambda img, name, strength, *rest: (seen.append((name, strength)), img)[1])
    wide = T.TrivialAugmentWide()
    for _ in range(600):
        wide(TENSOR)
    assert {n for n, _ in seen} == NAMES - {"Invert"} | {"Identity"}
    turns = {s for n, s in seen if n == "Rotate"}
    assert min(turns) < -60 and max(turns) > 60 and all(abs(s) <= 135 for s in turns)
    assert {s for n, s in seen if n == "Posterize"} <= set(range(2, 9)) and all(0 <= s <= 255 for n, s in seen if n == "Solarize")
    seen.clear()
    even = T.RandAugment(num_ops=4, magnitude=15)
    for _ in range(50):
        even(TENSOR)
    assert len(seen) == 200 and {abs(round(s, 6)) for n, s in seen if n == "Rotate"} == {15.0}


def test_mixed_weights():
    w = T.AugMix._weights(1.0, (500, 3))
    assert torch.allclose(w.sum(1), torch.ones(500)) and (w >= 0).all() and abs(w.mean(0)[0].item() - 1 / 3) < 0.05

"""Augmentation policies: AutoAugment (Cubuk et al. 2018), RandAugment (Cubuk et al. 2019), TrivialAugment (Müller, Hutter 2021) and AugMix
(Hendrycks et al. 2019), as torchvision.transforms has them.  Images are PIL's, or uint8 tensors (..., C, H, W)."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

from ..._core import dtypes, ops
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor
from . import functional as F
from . import values as V
from .functional import InterpolationMode
from .transforms import _integer, _Plain, _uniform

_ops: Any = ops
Space = dict[str, tuple[list[float], bool]]  # strengths by step, and whether they go both ways


class AutoAugmentPolicy(Enum):
    """The data a policy was learnt on."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


# The paper's tables: of each pair, operation, probability in tenths and step of strength ("-": it has none).
_POLICIES = {
    "imagenet": """Posterize 4 8 Rotate 6 9; Solarize 6 5 AutoContrast 6 -; Equalize 8 - Equalize 6 -; Posterize 6 7 Posterize 6 6;
        Equalize 4 - Solarize 2 4; Equalize 4 - Rotate 8 8; Solarize 6 3 Equalize 6 -; Posterize 8 5 Equalize 10 -; Rotate 2 3 Solarize 6 8;
        Equalize 6 - Posterize 4 6; Rotate 8 8 Color 4 0; Rotate 4 9 Equalize 6 -; Equalize 0 - Equalize 8 -; Invert 6 - Equalize 10 -;
        Color 6 4 Contrast 10 8; Rotate 8 8 Color 10 2; Color 8 8 Solarize 8 7; Sharpness 4 7 Invert 6 -; ShearX 6 5 Equalize 10 -;
        Color 4 0 Equalize 6 -; Equalize 4 - Solarize 2 4; Solarize 6 5 AutoContrast 6 -; Invert 6 - Equalize 10 -; Color 6 4 Contrast 10 8;
        Equalize 8 - Equalize 6 -""",
    "cifar10": """Invert 1 - Contrast 2 6; Rotate 7 2 TranslateX 3 9; Sharpness 8 1 Sharpness 9 3; ShearY 5 8 TranslateY 7 9;
        AutoContrast 5 - Equalize 9 -; ShearY 2 7 Posterize 3 7; Color 4 3 Brightness 6 7; Sharpness 3 9 Brightness 7 9; Equalize 6 - Equalize 5 -;
        Contrast 6 7 Sharpness 6 5; Color 7 7 TranslateX 5 8; Equalize 3 - AutoContrast 4 -; TranslateY 4 3 Sharpness 2 6; Brightness 9 6 Color 2 8;
        Solarize 5 2 Invert 0 -; Equalize 2 - AutoContrast 6 -; Equalize 2 - Equalize 6 -; Color 9 9 Equalize 6 -; AutoContrast 8 - Solarize 2 8;
        Brightness 1 3 Color 7 0; Solarize 4 5 AutoContrast 9 -; TranslateY 9 9 TranslateY 7 9; AutoContrast 9 - Solarize 8 3;
        Equalize 8 - Invert 1 -; TranslateY 7 9 AutoContrast 9 -""",
    "svhn": """ShearX 9 4 Invert 2 -; ShearY 9 8 Invert 7 -; Equalize 6 - Solarize 6 6; Invert 9 - Equalize 6 -; Equalize 6 - Rotate 9 3;
        ShearX 9 4 AutoContrast 8 -; ShearY 9 8 Invert 4 -; ShearY 9 5 Solarize 2 6; Invert 9 - AutoContrast 8 -; Equalize 6 - Rotate 9 3;
        ShearX 9 4 Solarize 3 3; ShearY 8 8 Invert 7 -; Equalize 9 - TranslateY 6 6; Invert 9 - Equalize 6 -; Contrast 3 3 Rotate 8 4;
        Invert 8 - TranslateY 0 2; ShearY 7 6 Solarize 4 8; Invert 6 - Rotate 8 4; ShearY 3 7 TranslateX 9 3; ShearX 1 6 Invert 6 -;
        Solarize 7 2 TranslateY 6 7; ShearY 8 4 Invert 8 -; ShearX 7 9 TranslateY 8 3; ShearY 8 5 AutoContrast 7 -; ShearX 7 2 Invert 1 -""",
}


def _policy(name: str) -> list[tuple[tuple[str, float, int | None], ...]]:
    found = []
    for pair in _POLICIES[name].split(";"):
        w = pair.split()
        found.append(tuple((w[i], int(w[i + 1]) / 10, None if w[i + 2] == "-" else int(w[i + 2])) for i in (0, 3)))
    return found


def _line(start: float, end: float, count: int) -> list[float]:
    return [start] if count == 1 else [start + (end - start) * i / (count - 1) for i in range(count)]


def _space(count: int, shear: float, across: float, down: float, turn: float, colour: float, bits: list[float]) -> Space:
    """All operations: what they are called, their strengths in `count` steps, and whether a strength goes both ways."""
    def both(most: float) -> tuple[list[float], bool]:
        return _line(0.0, most, count), True
    nothing: tuple[list[float], bool] = [0.0], False
    return {"Identity": nothing, "ShearX": both(shear), "ShearY": both(shear), "TranslateX": both(across), "TranslateY": both(down),
            "Rotate": both(turn), "Brightness": both(colour), "Color": both(colour), "Contrast": both(colour), "Sharpness": both(colour),
            "Posterize": (bits, False), "Solarize": (_line(255.0, 0.0, count), False), "AutoContrast": nothing, "Equalize": nothing, "Invert": nothing}


def _without(space: Space, *names: str) -> Space:
    return {k: v for k, v in space.items() if k not in names}


def apply(img: Any, name: str, strength: float, interpolation: Any, fill: Any) -> Any:
    """One of the policies' operations."""
    if name in ("ShearX", "ShearY"):
        angle = math.degrees(math.atan(strength))
        return F.affine(img, 0.0, [0, 0], 1.0, [angle, 0.0] if name == "ShearX" else [0.0, angle], interpolation, fill, [0, 0])
    if name in ("TranslateX", "TranslateY"):
        by = int(strength)
        return F.affine(img, 0.0, [by, 0] if name == "TranslateX" else [0, by], 1.0, [0.0, 0.0], interpolation, fill)
    if name == "Rotate":
        return F.rotate(img, strength, interpolation, fill=fill)
    if name == "Posterize":
        return V.posterize(img, int(strength))
    if name == "Solarize":
        return V.solarize(img, strength)
    plain: Any = {"AutoContrast": V.autocontrast, "Equalize": V.equalize, "Invert": F.invert, "Identity": lambda x: x}.get(name)
    if plain is not None:
        return plain(img)
    adjust = {"Brightness": F.adjust_brightness, "Color": F.adjust_saturation, "Contrast": F.adjust_contrast, "Sharpness": V.adjust_sharpness}.get(name)
    if adjust is None:
        raise ValueError(f"The provided operator {name} is not recognized.")
    return adjust(img, 1.0 + strength)


class _Policy(_Plain):
    def __init__(self, interpolation: Any, fill: Any) -> None:
        super().__init__()
        self.interpolation, self.fill = interpolation, fill

    def _fill(self, img: Any) -> Any:
        if not isinstance(img, Tensor) or self.fill is None:
            return self.fill
        return [float(self.fill)] * F.get_image_num_channels(img) if isinstance(self.fill, (int, float)) else [float(f) for f in self.fill]

    def _one(self, img: Any, name: str, strengths: list[float], step: int, signed: bool, fill: Any) -> Any:
        strength = strengths[step] if len(strengths) > 1 else strengths[0]
        if signed and _integer(0, 1):
            strength = -strength
        return apply(img, name, strength, self.interpolation, fill)


class AutoAugment(_Policy):
    """One of the 25 learnt pairs of operations, each with its probability and strength."""

    shown = ("policy", "fill")

    def __init__(self, policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET, interpolation: Any = InterpolationMode.NEAREST, fill: Any = None) -> None:
        super().__init__(interpolation, fill)
        self.policy = AutoAugmentPolicy(policy)
        self.policies = _policy(self.policy.value)

    @staticmethod
    def get_params(transform_num: int) -> tuple[int, list[float], list[int]]:
        """Which pair, a number in [0, 1) for each of its two operations, and whether each one's strength is taken as it is (0: negative)."""
        return _integer(0, transform_num - 1), [_uniform(0.0, 1.0) for _ in range(2)], [_integer(0, 1) for _ in range(2)]

    def forward(self, img: Any) -> Any:
        width, height = F.get_image_size(img)
        space = _space(10, 0.3, 150 / 331 * width, 150 / 331 * height, 30.0, 0.9, [8 - round(i / (9 / 4)) for i in range(10)])
        which, chances, signs = self.get_params(len(self.policies))
        fill = self._fill(img)
        for (name, p, step), chance, sign in zip(self.policies[which], chances, signs, strict=True):
            if chance <= p:
                strengths, signed = space[name]
                strength = strengths[step] if step is not None else 0.0
                img = apply(img, name, -strength if signed and sign == 0 else strength, self.interpolation, fill)
        return img


class RandAugment(_Policy):
    """`num_ops` operations drawn one by one, all of strength `magnitude` of `num_magnitude_bins` steps."""

    shown = ("num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill")

    def __init__(self, num_ops: int = 2, magnitude: int = 9, num_magnitude_bins: int = 31, interpolation: Any = InterpolationMode.NEAREST,
                 fill: Any = None) -> None:
        super().__init__(interpolation, fill)
        self.num_ops, self.magnitude, self.num_magnitude_bins = num_ops, magnitude, num_magnitude_bins

    def forward(self, img: Any) -> Any:
        width, height = F.get_image_size(img)
        n = self.num_magnitude_bins
        space = _without(_space(n, 0.3, 150 / 331 * width, 150 / 331 * height, 30.0, 0.9, [8 - round(i / ((n - 1) / 4)) for i in range(n)]), "Invert")
        fill = self._fill(img)
        for _ in range(self.num_ops):
            name = list(space)[_integer(0, len(space) - 1)]
            img = self._one(img, name, space[name][0], self.magnitude, space[name][1], fill)
        return img


class TrivialAugmentWide(_Policy):
    """One operation, of a strength drawn from `num_magnitude_bins` steps of a wide range."""

    shown = ("num_magnitude_bins", "interpolation", "fill")

    def __init__(self, num_magnitude_bins: int = 31, interpolation: Any = InterpolationMode.NEAREST, fill: Any = None) -> None:
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = num_magnitude_bins

    def forward(self, img: Any) -> Any:
        n = self.num_magnitude_bins
        space = _without(_space(n, 0.99, 32.0, 32.0, 135.0, 0.99, [8 - round(i / ((n - 1) / 6)) for i in range(n)]), "Invert")
        name = list(space)[_integer(0, len(space) - 1)]
        return self._one(img, name, space[name][0], _integer(0, n - 1), space[name][1], self._fill(img))


class AugMix(_Policy):
    """The image mixed with `mixture_width` chains of operations on it, by weights from a Dirichlet distribution.

    severity: strengths are drawn from the first so many of 10 steps.  chain_depth: operations in a chain; -1: 1 to 3, drawn.  alpha: of the
    distributions of weights.  all_ops: also brightness, colour, contrast and sharpness.
    """

    shown = ("severity", "mixture_width", "chain_depth", "alpha", "all_ops", "interpolation", "fill")
    _PARAMETER_MAX = 10

    def __init__(self, severity: int = 3, mixture_width: int = 3, chain_depth: int = -1, alpha: float = 1.0, all_ops: bool = True,
                 interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None) -> None:
        super().__init__(interpolation, fill)
        if not 1 <= severity <= self._PARAMETER_MAX:
            raise ValueError(f"The severity must be between [1, {self._PARAMETER_MAX}]. Got {severity} instead.")
        self.severity, self.mixture_width, self.chain_depth, self.alpha, self.all_ops = severity, mixture_width, chain_depth, alpha, all_ops

    @staticmethod
    def _weights(alpha: float, shape: tuple[int, int]) -> Any:
        """Rows of weights that sum to 1."""
        drawn = _ops._standard_gamma(_ops.full(shape, float(alpha)))
        return drawn / drawn.sum(-1, keepdim=True)

    def forward(self, orig_img: Any) -> Any:
        width, height = F.get_image_size(orig_img)
        img: Any = orig_img if isinstance(orig_img, Tensor) else F.pil_to_tensor(orig_img)
        n = self._PARAMETER_MAX
        space = _without(_space(n, 0.3, width / 3.0, height / 3.0, 30.0, 0.9, [4 - round(i / (9 / 4)) for i in range(n)]), "Invert", "Identity")
        if not self.all_ops:
            space = _without(space, "Brightness", "Color", "Contrast", "Sharpness")
        fill = self._fill(img)
        batch = img.reshape(1, *img.shape) if img.dim() == 3 else img
        first = [batch.shape[0]] + [1] * (batch.dim() - 1)
        kept = unasked(self._weights(self.alpha, (batch.shape[0], 2)).to)(img.device)
        weights = unasked(self._weights(self.alpha, (batch.shape[0], self.mixture_width)).to)(img.device) * kept[:, 1:]
        mixed = kept[:, 0].reshape(first) * batch
        for i in range(self.mixture_width):
            chain = batch
            for _ in range(self.chain_depth if self.chain_depth > 0 else _integer(1, 3)):
                name = list(space)[_integer(0, len(space) - 1)]
                chain = self._one(chain, name, space[name][0], _integer(0, self.severity - 1), space[name][1], fill)
            mixed = mixed + weights[:, i].reshape(first) * chain
        if not img.meta.dtype.is_floating_point:
            mixed = mixed.clamp(0, dtypes.iinfo(img.meta.dtype).max)
        made = mixed.reshape(img.shape).to(img.dtype)
        return made if isinstance(orig_img, Tensor) else F.to_pil_image(made, orig_img.mode)

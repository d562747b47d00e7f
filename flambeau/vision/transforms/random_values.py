"""Random transforms of values and shapes: bits, histograms, sharpness, perspective, elastic."""

from __future__ import annotations

from typing import Any

from ..._core import ops
from . import functional as F
from . import values as V
from . import warping as W
from .functional import InterpolationMode
from .transforms import _Chance, _integer, _pair, _Plain

_ops: Any = ops


class RandomPosterize(_Chance):
    """See `functional.posterize`, with probability p."""

    shown = ("bits", "p")

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = bits

    def forward(self, img: Any) -> Any:
        return V.posterize(img, self.bits) if self.happens() else img


class RandomSolarize(_Chance):
    """See `functional.solarize`, with probability p."""

    shown = ("threshold", "p")

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = threshold

    def forward(self, img: Any) -> Any:
        return V.solarize(img, self.threshold) if self.happens() else img


class RandomAdjustSharpness(_Chance):
    """See `functional.adjust_sharpness`, with probability p."""

    shown = ("sharpness_factor", "p")

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = sharpness_factor

    def forward(self, img: Any) -> Any:
        return V.adjust_sharpness(img, self.sharpness_factor) if self.happens() else img


class RandomAutocontrast(_Chance):
    """See `functional.autocontrast`, with probability p."""

    def forward(self, img: Any) -> Any:
        return V.autocontrast(img) if self.happens() else img


class RandomEqualize(_Chance):
    """See `functional.equalize`, with probability p."""

    def forward(self, img: Any) -> Any:
        return V.equalize(img) if self.happens() else img


class RandomPerspective(_Chance):
    """Each corner moved inwards at random, by at most `distortion_scale` of half the image, with probability p."""

    def __init__(self, distortion_scale: float = 0.5, p: float = 0.5, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = 0) -> None:
        super().__init__(p)
        self.distortion_scale, self.interpolation, self.fill = distortion_scale, interpolation, fill

    @staticmethod
    def get_params(width: int, height: int, distortion_scale: float) -> tuple[list[list[int]], list[list[int]]]:
        """The corners, and where they go: top left, top right, bottom right, bottom left; [x, y] each."""
        across, down = int(distortion_scale * (width // 2)), int(distortion_scale * (height // 2))
        ends = [[_integer(0, across), _integer(0, down)], [_integer(width - across - 1, width - 1), _integer(0, down)],
                [_integer(width - across - 1, width - 1), _integer(height - down - 1, height - 1)],
                [_integer(0, across), _integer(height - down - 1, height - 1)]]
        return [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], ends

    def forward(self, img: Any) -> Any:
        if not self.happens():
            return img
        width, height = F.get_image_size(img)
        return W.perspective(img, *self.get_params(width, height, self.distortion_scale), self.interpolation, self.fill)


class ElasticTransform(_Plain):
    """Pixels moved by smoothed noise: `alpha` says how far, `sigma` how smoothly (Simard et al. 2003)."""

    shown = ("alpha", "sigma", "interpolation", "fill")

    def __init__(self, alpha: Any = 50.0, sigma: Any = 5.0, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = 0) -> None:
        super().__init__()
        self.alpha, self.sigma = ([float(v)] * 2 if isinstance(v, (int, float)) else [float(x) for x in v] for v in (alpha, sigma))
        self.interpolation, self.fill = interpolation, [float(fill)] if isinstance(fill, (int, float)) else [float(f) for f in fill]

    @staticmethod
    def get_params(alpha: list[float], sigma: list[float], size: list[int]) -> Any:
        """The displacement (1, H, W, 2) for an image of `size` [H, W]."""
        parts = []
        for far, smooth, n in zip(alpha, sigma, size, strict=True):
            d = _ops.rand((1, 1, *size)) * 2 - 1
            if smooth > 0.0:
                k = int(8 * smooth + 1) | 1
                d = F.gaussian_blur(d, [k, k], smooth)
            parts.append(d * far / n)
        return _ops.cat(parts, 1).permute(0, 2, 3, 1)

    def forward(self, tensor: Any) -> Any:
        _, height, width = F.get_dimensions(tensor)
        return W.elastic_transform(tensor, self.get_params(self.alpha, self.sigma, [height, width]), self.interpolation, self.fill)


class TenCrop(_Plain):
    """See `functional.ten_crop`."""

    shown = ("size", "vertical_flip")

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size, self.vertical_flip = _pair(size), vertical_flip

    def forward(self, img: Any) -> Any:
        return W.ten_crop(img, self.size, self.vertical_flip)

"""The transforms as objects: random ones draw from Flambeau's generator of the CPU, so `manual_seed` repeats them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

from ... import nn
from ..._core import ops
from ..._core.tensor import Tensor
from . import functional as F
from .functional import InterpolationMode

_ops: Any = ops


def _uniform(low: float, high: float) -> float:
    return float(_ops.rand((), device="cpu").item()) * (high - low) + low


def _integer(low: int, high: int) -> int:
    """From low to high, both possible."""
    return int(_ops.randint(low, high + 1, (), device="cpu").item())


def _pair(size: Any, name: str = "size") -> tuple[int, int]:
    if isinstance(size, numbers.Number):
        return int(size), int(size)  # type: ignore[call-overload, unused-ignore]
    if len(size) == 1:
        return size[0], size[0]
    if len(size) != 2:
        raise ValueError(f"Please provide only two dimensions (h, w) for {name}.")
    return size[0], size[1]


class Compose:
    """One after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        return "\n".join([f"{type(self).__name__}(", *[f"    {t}" for t in self.transforms], ")"])


class _Plain(nn.Module):
    """A transform with its arguments in its repr."""

    shown: tuple[str, ...] = ()

    def extra_repr(self) -> str:
        return ", ".join(f"{n}={getattr(self, n)}" for n in self.shown)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


class ToTensor:
    """See `functional.to_tensor`."""

    def __call__(self, pic: Any) -> Tensor:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return "ToTensor()"


class PILToTensor:
    """See `functional.pil_to_tensor`."""

    def __call__(self, pic: Any) -> Tensor:
        return F.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return "PILToTensor()"


class ToPILImage:
    """See `functional.to_pil_image`."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"ToPILImage({'' if self.mode is None else f'mode={self.mode}'})"


class ConvertImageDtype(_Plain):
    """See `functional.convert_image_dtype`."""

    shown = ("dtype",)

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image: Any) -> Any:
        return F.convert_image_dtype(image, self.dtype)


class Lambda:
    """A user's function."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return "Lambda()"


class Normalize(_Plain):
    """(image - mean) / std by channel."""

    shown = ("mean", "std")

    def __init__(self, mean: Any, std: Any, inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor: Any) -> Any:
        return F.normalize(tensor, self.mean, self.std, self.inplace)


class Resize(_Plain):
    """See `functional.resize`."""

    shown = ("size", "interpolation", "max_size", "antialias")

    def __init__(self, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None, antialias: bool = True) -> None:
        super().__init__()
        if not isinstance(size, (int, Sequence)):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        self.size, self.interpolation, self.max_size, self.antialias = size, interpolation, max_size, antialias

    def forward(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(_Plain):
    """The middle of an image."""

    shown = ("size",)

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = _pair(size)

    def forward(self, img: Any) -> Any:
        return F.center_crop(img, self.size)


class Pad(_Plain):
    """See `functional.pad`."""

    shown = ("padding", "fill", "padding_mode")

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class Grayscale(_Plain):
    """See `functional.rgb_to_grayscale`."""

    shown = ("num_output_channels",)

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)


class FiveCrop(_Plain):
    """The four corners and the middle, as a tuple."""

    shown = ("size",)

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = _pair(size)

    def forward(self, img: Any) -> Any:
        return F.five_crop(img, self.size)


class LinearTransformation(_Plain):
    """(flattened image - mean_vector) @ matrix, in the image's shape."""

    def __init__(self, transformation_matrix: Any, mean_vector: Any) -> None:
        super().__init__()
        self.transformation_matrix, self.mean_vector = transformation_matrix, mean_vector

    def forward(self, tensor: Any) -> Any:
        flat = tensor.reshape(-1, tensor.shape[-3] * tensor.shape[-2] * tensor.shape[-1]) - self.mean_vector
        return (flat @ self.transformation_matrix).reshape(tensor.shape)


# --------------------------------------------------------------------------------------------------------------- random
class _Chance(_Plain):
    """Does something with probability p."""

    shown: tuple[str, ...] = ("p",)

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def happens(self) -> bool:
        return _uniform(0.0, 1.0) < self.p


class RandomHorizontalFlip(_Chance):
    """Left and right exchanged, with probability p."""

    def forward(self, img: Any) -> Any:
        return F.hflip(img) if self.happens() else img


class RandomVerticalFlip(_Chance):
    """Top and bottom exchanged, with probability p."""

    def forward(self, img: Any) -> Any:
        return F.vflip(img) if self.happens() else img


class RandomInvert(_Chance):
    """Inverted, with probability p."""

    def forward(self, img: Any) -> Any:
        return F.invert(img) if self.happens() else img


class RandomGrayscale(_Chance):
    """Grey in as many channels, with probability p."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, F.get_image_num_channels(img)) if self.happens() else img


class RandomApply(_Chance):
    """A list of transforms, all or none."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__(p)
        self.transforms = transforms

    def forward(self, img: Any) -> Any:
        if self.happens():
            for t in self.transforms:
                img = t(img)
        return img


class RandomOrder:
    """A list of transforms in random order."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for i in _ops.randperm(len(self.transforms)).tolist():
            img = self.transforms[i](img)
        return img


class RandomChoice:
    """One of a list of transforms."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: Sequence[float] | None = None) -> None:
        self.transforms, self.p = transforms, p

    def __call__(self, img: Any) -> Any:
        weights = _ops.ones(len(self.transforms)) if self.p is None else _ops.tensor(list(self.p))
        return self.transforms[int(_ops.multinomial(weights, 1).item())](img)


class RandomCrop(_Plain):
    """A random rectangle of `size`, after padding.  Raises ValueError where the image is too small."""

    shown = ("size", "padding")

    def __init__(self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        self.size, self.padding, self.pad_if_needed, self.fill, self.padding_mode = _pair(size), padding, pad_if_needed, fill, padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """(top, left, height, width)."""
        w, h = F.get_image_size(img)
        th, tw = output_size
        if h < th or w < tw:
            raise ValueError(f"Required crop size {(th, tw)} is larger than input image size {(h, w)}")
        return (0, 0, h, w) if (w, h) == (tw, th) else (_integer(0, h - th), _integer(0, w - tw), th, tw)

    def forward(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        w, h = F.get_image_size(img)
        if self.pad_if_needed and w < self.size[1]:
            img = F.pad(img, [self.size[1] - w, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and h < self.size[0]:
            img = F.pad(img, [0, self.size[0] - h], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))


class RandomResizedCrop(_Plain):
    """A rectangle of random area (a part in `scale`) and shape (w / h in `ratio`), resized."""

    shown = ("size", "scale", "ratio", "interpolation")

    def __init__(self, size: Any, scale: Any = (0.08, 1.0), ratio: Any = (3.0 / 4.0, 4.0 / 3.0), interpolation: Any = InterpolationMode.BILINEAR,
                 antialias: bool = True) -> None:
        super().__init__()
        self.size, self.scale, self.ratio, self.interpolation, self.antialias = _pair(size), scale, ratio, interpolation, antialias

    @staticmethod
    def get_params(img: Any, scale: Any, ratio: Any) -> tuple[int, int, int, int]:
        """(top, left, height, width)."""
        width, height = F.get_image_size(img)
        for _ in range(10):
            area = height * width * _uniform(scale[0], scale[1])
            aspect = math.exp(_uniform(math.log(ratio[0]), math.log(ratio[1])))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                return _integer(0, height - h), _integer(0, width - w), h, w
        shape = width / height
        w, h = (width, round(width / ratio[0])) if shape < ratio[0] else (round(height * ratio[1]), height) if shape > ratio[1] else (width, height)
        return (height - h) // 2, (width - w) // 2, h, w

    def forward(self, img: Any) -> Any:
        return F.resized_crop(img, *self.get_params(img, self.scale, self.ratio), self.size, self.interpolation, self.antialias)


class RandomRotation(_Plain):
    """Turned by an angle in `degrees` (or from -degrees to degrees)."""

    shown = ("degrees", "interpolation", "expand")

    def __init__(self, degrees: Any, interpolation: Any = InterpolationMode.NEAREST, expand: bool = False, center: Any = None, fill: Any = 0) -> None:
        super().__init__()
        self.degrees = (-degrees, degrees) if isinstance(degrees, numbers.Number) else tuple(degrees)  # type: ignore[operator, unused-ignore]
        self.interpolation, self.expand, self.center, self.fill = interpolation, expand, center, fill

    def forward(self, img: Any) -> Any:
        return F.rotate(img, _uniform(*self.degrees), self.interpolation, self.expand, self.center, self.fill)


class RandomAffine(_Plain):
    """Turned, shifted (parts of the size), scaled and sheared at random."""

    shown = ("degrees", "translate", "scale", "shear")

    def __init__(self, degrees: Any, translate: Any = None, scale: Any = None, shear: Any = None, interpolation: Any = InterpolationMode.NEAREST,
                 fill: Any = 0, center: Any = None) -> None:
        super().__init__()
        self.degrees = (-degrees, degrees) if isinstance(degrees, numbers.Number) else tuple(degrees)  # type: ignore[operator, unused-ignore]
        self.translate, self.scale = translate, scale
        self.shear: Any = (-shear, shear) if isinstance(shear, numbers.Number) else shear  # type: ignore[operator, unused-ignore]
        self.interpolation, self.fill, self.center = interpolation, fill, center

    def forward(self, img: Any) -> Any:
        w, h = F.get_image_size(img)
        angle = _uniform(*self.degrees)
        shift = (0, 0) if self.translate is None else (round(_uniform(-self.translate[0] * w, self.translate[0] * w)),
                                                       round(_uniform(-self.translate[1] * h, self.translate[1] * h)))
        size = 1.0 if self.scale is None else _uniform(*self.scale)
        lean = (0.0, 0.0) if self.shear is None else (_uniform(self.shear[0], self.shear[1]),
                                                      _uniform(self.shear[2], self.shear[3]) if len(self.shear) == 4 else 0.0)
        return F.affine(img, angle, shift, size, lean, self.interpolation, self.fill, self.center)


class ColorJitter(_Plain):
    """Brightness, contrast, saturation and hue changed at random, in random order."""

    shown = ("brightness", "contrast", "saturation", "hue")

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> None:
        super().__init__()
        self.brightness, self.contrast, self.saturation = (self._range(v, n) for v, n in (
            (brightness, "brightness"), (contrast, "contrast"), (saturation, "saturation")))
        self.hue = self._range(hue, "hue", 0.0, (-0.5, 0.5))

    @staticmethod
    def _range(value: Any, name: str, center: float = 1.0, bound: tuple[float, float] = (0.0, math.inf)) -> tuple[float, float] | None:
        if isinstance(value, numbers.Number):
            v = float(value)  # type: ignore[arg-type, unused-ignore]
            if v < 0:
                raise ValueError(f"If {name} is a single number, it must be non negative.")
            low, high = center - v, center + v
            if name != "hue":
                low = max(low, 0.0)
        else:
            low, high = (float(v) for v in value)
        if not bound[0] <= low <= high <= bound[1]:
            raise ValueError(f"{name} values should be between {bound}, but got {(low, high)}.")
        return None if low == high == center else (low, high)

    def forward(self, img: Any) -> Any:
        steps = ((self.brightness, F.adjust_brightness), (self.contrast, F.adjust_contrast), (self.saturation, F.adjust_saturation),
                 (self.hue, F.adjust_hue))
        order = _ops.randperm(4).tolist()
        factors = [None if span is None else _uniform(*span) for span, _ in steps]
        for i in order:
            if factors[i] is not None:
                img = steps[i][1](img, factors[i])
        return img


class GaussianBlur(_Plain):
    """Smoothed by a Gaussian of random width."""

    shown = ("kernel_size", "sigma")

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = _pair(kernel_size, "kernel_size")
        self.sigma: Any = (sigma, sigma) if isinstance(sigma, numbers.Number) else tuple(sigma)

    def forward(self, img: Any) -> Any:
        return F.gaussian_blur(img, self.kernel_size, _uniform(*self.sigma))


class RandomErasing(_Chance):
    """A random rectangle filled, with probability p (Zhong et al., 2017); value "random" fills it with noise."""

    shown = ("p", "scale", "ratio", "value", "inplace")

    def __init__(self, p: float = 0.5, scale: Any = (0.02, 0.33), ratio: Any = (0.3, 3.3), value: Any = 0, inplace: bool = False) -> None:
        super().__init__(p)
        self.scale, self.ratio, self.value, self.inplace = scale, ratio, value, inplace

    def forward(self, img: Any) -> Any:
        if not self.happens():
            return img
        c, height, width = img.shape[-3:]
        for _ in range(10):
            area = height * width * _uniform(self.scale[0], self.scale[1])
            aspect = math.exp(_uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if h < height and w < width:
                v = (_ops.randn((c, h, w), device=img.device) if self.value == "random" else
                     _ops.as_tensor(self.value, dtype=img.dtype, device=img.device).reshape(-1, 1, 1))
                return F.erase(img, _integer(0, height - h), _integer(0, width - w), h, w, v, self.inplace)
        return img

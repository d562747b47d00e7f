"""The transforms as functions (torchvision.transforms.functional)."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import numpy as np

from ..._core import dtypes, ops
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor
from ...nn import functional as F

_ops: Any = ops
_F: Any = F


class InterpolationMode(Enum):
    """How values between pixels are found."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def is_pil(image: Any) -> bool:
    """Whether it is a PIL image, without loading Pillow to find out."""
    import sys
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(image, pil.Image)


def _check(image: Any) -> None:
    if not isinstance(image, Tensor) and not is_pil(image):
        raise TypeError(f"img should be PIL Image or Tensor. Got {type(image)}")


def _filter(mode: Any) -> Any:
    from PIL import Image
    name = mode.value if isinstance(mode, InterpolationMode) else mode
    if isinstance(name, int):
        return name
    return {"nearest": Image.Resampling.NEAREST, "nearest-exact": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR,
            "bicubic": Image.Resampling.BICUBIC, "box": Image.Resampling.BOX, "hamming": Image.Resampling.HAMMING,
            "lanczos": Image.Resampling.LANCZOS}[name]


def get_image_size(image: Any) -> list[int]:
    """[width, height]."""
    _check(image)
    return [int(image.shape[-1]), int(image.shape[-2])] if isinstance(image, Tensor) else list(image.size)


def get_dimensions(image: Any) -> list[int]:
    """[channels, height, width]."""
    width, height = get_image_size(image)
    return [get_image_num_channels(image), height, width]


def get_image_num_channels(image: Any) -> int:
    """How many channels."""
    _check(image)
    return int(image.shape[-3]) if isinstance(image, Tensor) else len(image.getbands())


# ----------------------------------------------------------------------------------------------------------- conversions
def to_tensor(pic: Any) -> Tensor:
    """A PIL image or (H, W[, C]) array as a (C, H, W) tensor; uint8 values become floats in [0, 1]."""
    if isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        values = pic[:, :, None] if pic.ndim == 2 else pic
    elif is_pil(pic):
        values = _pixels(pic)
    else:
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    made: Any = _ops.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))
    found: Tensor = made.to(dtypes.get_default_dtype()).div(255) if made.meta.dtype is dtypes.uint8 else made
    return found


def _pixels(pic: Any) -> np.ndarray[Any, Any]:
    kinds = {"I": np.int32, "I;16": np.int16, "F": np.float32}
    values = np.array(pic, kinds.get(pic.mode, np.uint8), copy=True)
    if pic.mode == "1":
        values = 255 * values
    return values[:, :, None] if values.ndim == 2 else values


def pil_to_tensor(pic: Any) -> Tensor:
    """A PIL image as a (C, H, W) tensor of its own type."""
    if not is_pil(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    made: Tensor = _ops.from_numpy(np.ascontiguousarray(_pixels(pic).transpose(2, 0, 1)))
    return made


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """A (C, H, W) or (H, W) tensor, or (H, W[, C]) array, as a PIL image; floats in [0, 1] become uint8."""
    from PIL import Image
    if isinstance(pic, Tensor):
        if pic.meta.dtype.is_floating_point and mode != "F":
            t: Any = pic
            pic = t.mul(255).to(dtypes.uint8)
        values = unasked(pic.detach().cpu)().numpy()  # type: ignore[attr-defined, unused-ignore]
        values = values if values.ndim == 2 else values.transpose(1, 2, 0)
    elif isinstance(pic, np.ndarray):
        values = pic
    else:
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    if values.ndim not in (2, 3):
        raise ValueError(f"pic should be 2/3 dimensional. Got {values.ndim} dimensions.")
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.ndim == 3 and values.shape[2] > 4:
        raise ValueError(f"pic should not have > 4 channels. Got {values.shape[2]} channels.")
    made = Image.fromarray(np.ascontiguousarray(values))
    return made if mode is None or made.mode == mode else made.convert(mode)


def convert_image_dtype(image: Any, dtype: Any = dtypes.float32) -> Tensor:
    """Another type, the range scaled: [0, 1] for floats, all of the type for integers."""
    source = image.meta.dtype
    if source is dtype:
        found: Tensor = image
        return found
    if source.is_floating_point:
        if dtype.is_floating_point:
            made: Tensor = image.to(dtype)
            return made
        top = float(dtypes.iinfo(dtype).max)
        made = image.mul(top + 1.0 - 1e-3).to(dtype)
        return made
    scale = dtypes.iinfo(source).max
    if dtype.is_floating_point:
        made = image.to(dtype) / scale
        return made
    target = dtypes.iinfo(dtype).max
    made = _ops.div(image, (scale + 1) // (target + 1), rounding_mode="floor").to(dtype) if scale > target else image.to(dtype) * ((target + 1) // (scale + 1))
    return made


def normalize(tensor: Any, mean: Any, std: Any, inplace: bool = False) -> Tensor:
    """(tensor - mean) / std by channel.  Raises TypeError for integers, ValueError for a zero in std."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.meta.dtype.is_floating_point:
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if len(tensor.meta.shape) < 3:
        raise ValueError(f"Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = {tensor.meta.shape}")
    x: Any = tensor if inplace else tensor.clone()  # type: ignore[attr-defined, unused-ignore]
    middle, spread = (_ops.as_tensor(v, dtype=x.dtype, device=x.device) for v in (mean, std))
    if bool((spread == 0).any()):
        raise ValueError(f"std evaluated to zero after conversion to {x.dtype}, leading to division by zero.")
    if middle.dim() == 1:
        middle = middle.view(-1, 1, 1)
    if spread.dim() == 1:
        spread = spread.view(-1, 1, 1)
    made: Tensor = x.sub_(middle).div_(spread)
    return made


# --------------------------------------------------------------------------------------------------------------- shapes
def resize(img: Any, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None, antialias: bool = True) -> Any:
    """To (h, w), or the shorter side to an int, keeping the shape (the longer at most max_size)."""
    _check(img)
    width, height = get_image_size(img)
    if isinstance(size, int) or len(size) == 1:
        wanted = size if isinstance(size, int) else size[0]
        short, long = (width, height) if width <= height else (height, width)
        new_short, new_long = wanted, int(wanted * long / short)
        if max_size is not None and new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
        w, h = (new_short, new_long) if width <= height else (new_long, new_short)
    else:
        h, w = size
    if (w, h) == (width, height):
        return img
    if not isinstance(img, Tensor):
        return img.resize((w, h), _filter(interpolation))
    mode = interpolation.value if isinstance(interpolation, InterpolationMode) else str(interpolation)
    smooth = mode in ("bilinear", "bicubic")
    x: Any = img
    flat = x.reshape(-1, *x.shape[-3:]) if x.dim() != 4 else x
    whole = not x.meta.dtype.is_floating_point
    options = {"align_corners": False} if smooth else {}
    try:
        made = _F.interpolate(flat.float() if whole else flat, size=(h, w), mode=mode, antialias=bool(antialias and smooth), **options)
    except NotImplementedError:
        made = _F.interpolate(flat.float() if whole else flat, size=(h, w), mode=mode, **options)
    if whole:
        made = made.round().clamp(0, dtypes.iinfo(x.meta.dtype).max).to(x.meta.dtype)
    return made.reshape(*x.shape[:-2], h, w)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """The rectangle; what lies outside the image is zero."""
    _check(img)
    if not isinstance(img, Tensor):
        return img.crop((left, top, left + width, top + height))
    w, h = get_image_size(img)
    right, bottom = left + width, top + height
    x: Any = img
    inner = x[..., max(top, 0):max(bottom, 0), max(left, 0):max(right, 0)]
    pads = [max(-left, 0), max(right - max(w, left), 0), max(-top, 0), max(bottom - max(h, top), 0)]
    return _F.pad(inner, pads) if any(pads) else inner


def center_crop(img: Any, output_size: Any) -> Any:
    """The middle (h, w), padded with zeros where the image is smaller."""
    h, w = (output_size, output_size) if isinstance(output_size, int) else (output_size[0], output_size[-1])
    width, height = get_image_size(img)
    if w > width or h > height:
        left, top = max((w - width) // 2, 0), max((h - height) // 2, 0)
        img = pad(img, [left, top, max((w - width + 1) // 2, 0), max((h - height + 1) // 2, 0)])
        width, height = get_image_size(img)
        if (w, h) == (width, height):
            return img
    return crop(img, round((height - h) / 2.0), round((width - w) / 2.0), h, w)


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """padding: all sides, [left/right, top/bottom], or [left, top, right, bottom]."""
    _check(img)
    p = [padding] * 4 if isinstance(padding, int) else list(padding) * (4 // len(padding)) if len(padding) in (1, 2, 4) else None
    if p is None:
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple")
    left, top, right, bottom = p
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    if not isinstance(img, Tensor):
        if padding_mode == "constant":
            from PIL import ImageOps
            return ImageOps.expand(img, (left, top, right, bottom), fill=fill)
        values = np.asarray(img)
        wide = ((top, bottom), (left, right)) + (((0, 0),) if values.ndim == 3 else ())
        from PIL import Image
        modes: Any = padding_mode
        return Image.fromarray(np.pad(values, wide, mode=modes))
    mode = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}.get(padding_mode)
    x: Any = img
    if mode is None:
        w, h = get_image_size(x)
        rows = [_mirror(i, h) for i in range(-top, h + bottom)]
        columns = [_mirror(i, w) for i in range(-left, w + right)]
        return x[..., _ops.tensor(rows), :][..., _ops.tensor(columns)]
    if mode == "constant":
        return _F.pad(x, [left, right, top, bottom], value=fill if isinstance(fill, (int, float)) else fill[0])
    flat = x.reshape(-1, *x.shape[-2:]).unsqueeze(0)
    whole = not x.meta.dtype.is_floating_point
    made = _F.pad(flat.float() if whole else flat, [left, right, top, bottom], mode=mode)
    return (made.to(x.meta.dtype) if whole else made).reshape(*x.shape[:-2], *made.shape[-2:])


def _mirror(i: int, n: int) -> int:
    i %= 2 * n
    return i if i < n else 2 * n - 1 - i


def hflip(img: Any) -> Any:
    """Left and right exchanged."""
    _check(img)
    if isinstance(img, Tensor):
        return _ops.flip(img, (-1,))
    from PIL import Image
    return img.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def vflip(img: Any) -> Any:
    """Top and bottom exchanged."""
    _check(img)
    if isinstance(img, Tensor):
        return _ops.flip(img, (-2,))
    from PIL import Image
    return img.transpose(Image.Transpose.FLIP_TOP_BOTTOM)


def affine(img: Any, angle: float, translate: Any, scale: float, shear: Any, interpolation: Any = InterpolationMode.NEAREST, fill: Any = None,
           center: Any = None) -> Any:
    """Rotated by `angle` degrees clockwise about the centre, shifted by pixels, scaled and sheared (degrees)."""
    _check(img)
    width, height = get_image_size(img)
    sx, sy = (shear, 0.0) if isinstance(shear, (int, float)) else (shear[0], shear[1] if len(shear) > 1 else 0.0)
    about = (width * 0.5, height * 0.5) if center is None else (float(center[0]), float(center[1]))
    matrix = _inverse_affine(about, angle, translate, scale, (sx, sy))
    if not isinstance(img, Tensor):
        from PIL import Image
        options = {} if fill is None else {"fillcolor": fill if isinstance(fill, (int, float)) else tuple(int(v) for v in fill)}
        return img.transform((width, height), Image.Transform.AFFINE, matrix, _filter(interpolation), **options)
    return _sample(img, matrix, width, height, width, height, interpolation, fill)


def _inverse_affine(center: tuple[float, float], angle: float, translate: Any, scale: float, shear: tuple[float, float]) -> list[float]:
    """From output pixels to input pixels: (a, b, c, d, e, f)."""
    turn, sx, sy = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    cx, cy = center
    tx, ty = float(translate[0]), float(translate[1])
    a = math.cos(turn - sy) / math.cos(sy)
    b = -math.cos(turn - sy) * math.tan(sx) / math.cos(sy) - math.sin(turn)
    c = math.sin(turn - sy) / math.cos(sy)
    d = -math.sin(turn - sy) * math.tan(sx) / math.cos(sy) + math.cos(turn)
    m = [d / scale, -b / scale, 0.0, -c / scale, a / scale, 0.0]
    m[2] = m[0] * (-cx - tx) + m[1] * (-cy - ty) + cx
    m[5] = m[3] * (-cx - tx) + m[4] * (-cy - ty) + cy
    return m


def _sample(img: Any, m: list[float], width: int, height: int, w: int, h: int, interpolation: Any, fill: Any) -> Tensor:
    """A tensor image under an affine map from output to input pixels, about pixel centres."""
    o: Any = _ops
    ys, xs = o.meshgrid(o.arange(h, dtype=dtypes.float32, device=img.device) + 0.5, o.arange(w, dtype=dtypes.float32, device=img.device) + 0.5, indexing="ij")
    u = (m[0] * xs + m[1] * ys + m[2]) * (2.0 / width) - 1.0
    v = (m[3] * xs + m[4] * ys + m[5]) * (2.0 / height) - 1.0
    return _sampled(img, o.stack([u, v], -1).unsqueeze(0), interpolation, fill)


def _sampled(img: Tensor, grid: Any, interpolation: Any, fill: Any) -> Tensor:
    """A tensor image (..., C, H, W) at the places of a grid (1, H, W, 2) from -1 to 1; outside lies `fill` (a number or one a channel)."""
    mode = interpolation.value if isinstance(interpolation, InterpolationMode) else str(interpolation)
    x: Any = img
    channels = x.shape[-3]
    flat = x.reshape(-1, channels, *x.shape[-2:])
    whole = not x.meta.dtype.is_floating_point
    values = flat.float() if whole else flat
    grid = grid.to(values.dtype).expand(flat.shape[0], -1, -1, -1)
    made = _F.grid_sample(values, grid, mode=mode, padding_mode="zeros", align_corners=False)
    if fill is not None:
        inside = _F.grid_sample(_ops.ones_like(values[:, :1]), grid, mode=mode, padding_mode="zeros", align_corners=False)
        paint = _ops.as_tensor(fill, dtype=values.dtype, device=x.device).reshape(1, -1, 1, 1)
        if mode == "nearest":
            made = _ops.where(inside < 0.5, paint, made)
        else:
            made = made * inside + (1.0 - inside) * paint
    if whole:
        made = made.round().clamp(0, dtypes.iinfo(x.meta.dtype).max).to(x.meta.dtype)
    found: Tensor = made.reshape(*x.shape[:-2], *made.shape[-2:])
    return found


def rotate(img: Any, angle: float, interpolation: Any = InterpolationMode.NEAREST, expand: bool = False, center: Any = None, fill: Any = None) -> Any:
    """Turned counterclockwise by degrees."""
    _check(img)
    width, height = get_image_size(img)
    if not isinstance(img, Tensor):
        options = {} if fill is None else {"fillcolor": fill}
        return img.rotate(angle, _filter(interpolation), expand, center, **options)
    about = (width * 0.5, height * 0.5) if center is None else (float(center[0]), float(center[1]))
    m = _inverse_affine(about, -angle, (0.0, 0.0), 1.0, (0.0, 0.0))
    w, h = width, height
    if expand:
        turn = math.radians(angle)
        w = math.ceil(abs(width * math.cos(turn)) + abs(height * math.sin(turn)) - 1e-6)
        h = math.ceil(abs(width * math.sin(turn)) + abs(height * math.cos(turn)) - 1e-6)
        m[2] += m[0] * (width - w) * 0.5 + m[1] * (height - h) * 0.5
        m[5] += m[3] * (width - w) * 0.5 + m[4] * (height - h) * 0.5
    return _sample(img, m, width, height, w, h, interpolation, fill)


# --------------------------------------------------------------------------------------------------------------- colours
def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """By the weights of ITU-R 601: 0.299, 0.587, 0.114."""
    _check(img)
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    if not isinstance(img, Tensor):
        grey = img.convert("L")
        if num_output_channels == 1:
            return grey
        from PIL import Image
        return Image.merge("RGB", (grey, grey, grey))
    x: Any = img
    if get_image_num_channels(x) == 1:
        made = x
    else:
        r, g, b = x.unbind(-3)
        made = (0.2989 * r + 0.587 * g + 0.114 * b).to(x.dtype).unsqueeze(-3)
    return made.expand(*made.shape[:-3], 3, *made.shape[-2:]) if num_output_channels == 3 else made


to_grayscale = rgb_to_grayscale


def _top(img: Any) -> float:
    """The largest value of an image's type."""
    return 1.0 if img.meta.dtype.is_floating_point else float(dtypes.iinfo(img.meta.dtype).max)


def _blend(a: Any, b: Any, ratio: float) -> Any:
    return (ratio * a + (1.0 - ratio) * b).clamp(0, _top(a)).to(a.dtype)


def _enhanced(img: Any, kind: str, factor: float) -> Any:
    from PIL import ImageEnhance
    return getattr(ImageEnhance, kind)(img).enhance(factor)


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """0: black, 1: as it is."""
    _check(img)
    if brightness_factor < 0:
        raise ValueError(f"brightness_factor ({brightness_factor}) is not non-negative.")
    return _blend(img, _ops.zeros_like(img), brightness_factor) if isinstance(img, Tensor) else _enhanced(img, "Brightness", brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """0: its mean grey, 1: as it is."""
    _check(img)
    if contrast_factor < 0:
        raise ValueError(f"contrast_factor ({contrast_factor}) is not non-negative.")
    if not isinstance(img, Tensor):
        return _enhanced(img, "Contrast", contrast_factor)
    x: Any = img
    grey = rgb_to_grayscale(x)
    return _blend(x, (grey if x.meta.dtype.is_floating_point else grey.floor()).float().mean((-3, -2, -1), keepdim=True), contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """0: grey, 1: as it is."""
    _check(img)
    if saturation_factor < 0:
        raise ValueError(f"saturation_factor ({saturation_factor}) is not non-negative.")
    return _blend(img, rgb_to_grayscale(img), saturation_factor) if isinstance(img, Tensor) else _enhanced(img, "Color", saturation_factor)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Hues turned by a fraction of the circle, -0.5 to 0.5."""
    _check(img)
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if not isinstance(img, Tensor):
        if img.mode in ("L", "1", "I", "F"):
            return img
        from PIL import Image
        h, s, v = img.convert("HSV").split()
        turned = (np.array(h, np.int16) + int(hue_factor * 255)) % 256
        return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), s, v)).convert(img.mode)
    if get_image_num_channels(img) == 1:
        return img
    x: Any = img if img.meta.dtype.is_floating_point else convert_image_dtype(img)
    return convert_image_dtype(_to_rgb(_turned(x, hue_factor)), img.meta.dtype)


def _turned(x: Any, by: float) -> tuple[Any, Any, Any]:
    r, g, b = x.unbind(-3)
    high, low = x.amax(-3), x.amin(-3)
    spread = high - low
    safe = _ops.where(spread == 0, _ops.ones_like(spread), spread)
    rc, gc, bc = (high - r) / safe, (high - g) / safe, (high - b) / safe
    h = _ops.where(high == r, bc - gc, _ops.where(high == g, 2.0 + rc - bc, 4.0 + gc - rc))
    hue = (_ops.where(spread == 0, _ops.zeros_like(h), h) / 6.0 + 1.0 + by) % 1.0
    saturation = spread / _ops.where(high == 0, _ops.ones_like(high), high)
    return hue, saturation, high


def _to_rgb(hsv: tuple[Any, Any, Any]) -> Any:
    h, s, v = hsv
    parts = []
    for n in (5.0, 3.0, 1.0):
        k = (n + h * 6.0) % 6.0
        parts.append(v - v * s * _ops.minimum(k, 4.0 - k).clamp(0.0, 1.0))
    return _ops.stack(parts, -3)


def invert(img: Any) -> Any:
    """Each value from the top."""
    _check(img)
    if isinstance(img, Tensor):
        x: Any = img
        return (1.0 if x.meta.dtype.is_floating_point else dtypes.iinfo(x.meta.dtype).max) - x
    from PIL import ImageOps
    return ImageOps.invert(img)


def gaussian_blur(img: Any, kernel_size: Any, sigma: Any = None) -> Any:
    """Smoothed by a Gaussian of `kernel_size` (odd) pixels; sigma defaults to 0.15 k + 0.35."""
    k = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if any(n % 2 == 0 or n < 0 for n in k):
        raise ValueError(f"kernel_size should have odd and positive integers. Got {kernel_size}")
    s = [0.15 * n + 0.35 for n in k] if sigma is None else [float(sigma)] * 2 if isinstance(sigma, (int, float)) else [float(v) for v in sigma]
    s = s * 2 if len(s) == 1 else s
    pil = not isinstance(img, Tensor)
    x: Any = pil_to_tensor(img) if pil else img
    values = x.float() if not x.meta.dtype.is_floating_point else x
    flat = values.reshape(-1, 1, *x.shape[-2:])
    lines = []
    for n, dev in zip(k, s, strict=True):
        t = _ops.linspace(-(n - 1) * 0.5, (n - 1) * 0.5, n, dtype=values.dtype, device=x.device)
        w = (-0.5 * (t / dev) ** 2).exp()
        lines.append(w / w.sum())
    kernel = (lines[1][:, None] * lines[0][None, :])[None, None]
    made = _F.conv2d(_F.pad(flat, [k[0] // 2, k[0] // 2, k[1] // 2, k[1] // 2], mode="reflect"), kernel).reshape(x.shape)
    if not x.meta.dtype.is_floating_point:
        made = made.round().clamp(0, dtypes.iinfo(x.meta.dtype).max).to(x.meta.dtype)
    return to_pil_image(made, img.mode) if pil else made


def erase(img: Any, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Any:
    """The rectangle filled with v."""
    x = img if inplace else img.clone()
    x[..., i:i + h, j:j + w] = v
    return x


def resized_crop(img: Any, top: int, left: int, height: int, width: int, size: Any, interpolation: Any = InterpolationMode.BILINEAR,
                 antialias: bool = True) -> Any:
    """`crop`, then `resize`."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def five_crop(img: Any, size: Any) -> tuple[Any, ...]:
    """The four corners and the middle."""
    h, w = (size, size) if isinstance(size, int) else (size[0], size[-1])
    width, height = get_image_size(img)
    if w > width or h > height:
        raise ValueError(f"Requested crop size {(h, w)} is bigger than input size {(height, width)}")
    return (crop(img, 0, 0, h, w), crop(img, 0, width - w, h, w), crop(img, height - h, 0, h, w), crop(img, height - h, width - w, h, w),
            center_crop(img, [h, w]))


def __getattr__(name: str) -> Any:
    # those of values and of shapes are built from what stands here, and are names of this module too
    from importlib import import_module
    for module in ("values", "warping"):
        found = getattr(import_module("." + module, __package__), name, None)
        if found is not None and not name.startswith("_"):
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

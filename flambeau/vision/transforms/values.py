"""Functions that change an image's values by its histogram, its bits or its neighbours (torchvision.transforms.functional)."""

from __future__ import annotations

from typing import Any

from ..._core import dtypes, ops
from ..._core.tensor import Tensor
from ...nn import functional as F
from .functional import _blend, _check, _enhanced, _top, convert_image_dtype, get_image_num_channels, invert

_ops: Any = ops
_F: Any = F


def _image(img: Tensor, *channels: int) -> None:
    if len(img.meta.shape) < 3 or channels and get_image_num_channels(img) not in channels:
        raise TypeError(f"Input image tensor should be (..., C, H, W) with C of {channels or 'any number'}, but got shape {list(img.meta.shape)}")


def posterize(img: Any, bits: int) -> Any:
    """Keeps the `bits` highest bits of each value (0 to 8); uint8.  Raises TypeError for other types."""
    _check(img)
    if not 0 <= bits <= 8:
        raise ValueError(f"The number if bits should be between 0 and 8. Got {bits}")
    if not isinstance(img, Tensor):
        from PIL import ImageOps
        return ImageOps.posterize(img, bits)
    if img.meta.dtype is not dtypes.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.meta.dtype}")
    return _ops.bitwise_and(img, 256 - (1 << 8 - bits))


def solarize(img: Any, threshold: float) -> Any:
    """Inverts the values that are at least `threshold`.  Raises TypeError where that is more than the type's largest value."""
    _check(img)
    if not isinstance(img, Tensor):
        from PIL import ImageOps
        return ImageOps.solarize(img, threshold)  # type: ignore[arg-type, unused-ignore]
    _image(img, 1, 3)
    if threshold > _top(img):
        raise TypeError("Threshold should be less than bound of img.")
    return _ops.where(img >= threshold, invert(img), img)


def adjust_sharpness(img: Any, sharpness_factor: float) -> Any:
    """0: blurred by a kernel of 3 x 3 (5 in the middle, 1 around it), 1: as it is, 2: sharper by as much."""
    if sharpness_factor < 0:
        raise ValueError(f"sharpness_factor ({sharpness_factor}) is not non-negative.")
    _check(img)
    if not isinstance(img, Tensor):
        return _enhanced(img, "Sharpness", sharpness_factor)
    _image(img, 1, 3)
    x: Any = img
    if min(x.shape[-2:]) <= 2:
        return x
    whole = not x.meta.dtype.is_floating_point
    flat = (x.float() if whole else x).reshape(-1, 1, *x.shape[-2:])
    kernel = _ops.ones(1, 1, 3, 3, dtype=flat.dtype, device=x.device)
    kernel[0, 0, 1, 1] = 5.0
    inner = _F.conv2d(flat, kernel / 13.0).reshape(*x.shape[:-2], x.shape[-2] - 2, x.shape[-1] - 2)
    blurred = x.clone()
    blurred[..., 1:-1, 1:-1] = inner.round().to(x.dtype) if whole else inner
    return _blend(x, blurred, sharpness_factor)


def autocontrast(img: Any) -> Any:
    """Each channel stretched so that its darkest value becomes 0 and its brightest the largest of the type."""
    _check(img)
    if not isinstance(img, Tensor):
        from PIL import ImageOps
        return ImageOps.autocontrast(img)
    _image(img, 1, 3)
    x: Any = img
    top = _top(x)
    values = x if x.meta.dtype.is_floating_point else x.float()
    low, high = (values.amin((-2, -1), keepdim=True), values.amax((-2, -1), keepdim=True))
    flat = high == low
    scale = top / _ops.where(flat, _ops.full_like(high, top), high - low)
    return ((values - _ops.where(flat, _ops.zeros_like(low), low)) * scale).clamp(0, top).to(x.dtype)


def equalize(img: Any) -> Any:
    """Each channel's histogram made as even as it can be; uint8.  Raises TypeError for other types."""
    _check(img)
    if not isinstance(img, Tensor):
        from PIL import ImageOps
        return ImageOps.equalize(img)
    _image(img, 1, 3)
    if img.meta.dtype is not dtypes.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.meta.dtype}")
    x: Any = img
    flat = x.reshape(-1, x.shape[-2] * x.shape[-1]).long()
    counts = _ops.zeros((flat.shape[0], 256), dtype=dtypes.int64, device=x.device).scatter_add(1, flat, _ops.ones_like(flat))
    # all but the brightest value's share of pixels goes to 255 steps
    brightest = flat.amax(1, keepdim=True)
    step = _ops.div(counts.sum(1, keepdim=True) - counts.gather(1, brightest), 255, rounding_mode="floor")
    below = counts.cumsum(1) - counts
    table = _ops.div(below + _ops.div(step, 2, rounding_mode="floor"), step.clamp(min=1), rounding_mode="floor").clamp(0, 255)
    table[:, 0] = 0
    made = _ops.where(step == 0, flat, table.gather(1, flat))
    return made.to(dtypes.uint8).reshape(x.shape)


def adjust_gamma(img: Any, gamma: float, gain: float = 1) -> Any:
    """gain * value ** gamma, of values in [0, 1].  Raises ValueError for a negative gamma."""
    _check(img)
    if gamma < 0:
        raise ValueError("Gamma should be a non-negative real number")
    if not isinstance(img, Tensor):
        mode = img.mode
        whole = img.convert("RGB")
        table = [int((255 + 1 - 1e-3) * gain * pow(v / 255.0, gamma)) for v in range(256)] * 3
        return whole.point(table).convert(mode)
    x: Any = img if img.meta.dtype.is_floating_point else convert_image_dtype(img, dtypes.float32)
    return convert_image_dtype((gain * x ** gamma).clamp(0, 1), img.meta.dtype)

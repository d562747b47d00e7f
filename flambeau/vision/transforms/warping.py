"""Functions that bend an image: perspective and elastic (torchvision.transforms.functional), and crops of ten."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._core import dtypes, ops
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor
from .functional import InterpolationMode, _check, _filter, _sampled, five_crop, get_image_size, hflip, pil_to_tensor, to_pil_image, vflip

_ops: Any = ops


def _coefficients(startpoints: Any, endpoints: Any) -> list[float]:
    """(a, ..., h) of (x, y) -> ((a x + b y + c) / (g x + h y + 1), (d x + e y + f) / (g x + h y + 1)), from each end point to its start
    point; by least squares over four points."""
    rows, wanted = [], []
    for (x, y), (u, v) in zip(endpoints, startpoints, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        wanted += [u, v]
    return [float(v) for v in np.linalg.lstsq(np.array(rows, np.float64), np.array(wanted, np.float64), rcond=None)[0]]


def perspective(img: Any, startpoints: Any, endpoints: Any, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None) -> Any:
    """What lies at four `startpoints` ([x, y] each) goes to `endpoints`."""
    _check(img)
    m = _coefficients(startpoints, endpoints)
    width, height = get_image_size(img)
    if not isinstance(img, Tensor):
        from PIL import Image
        options = {} if fill is None else {"fillcolor": fill if isinstance(fill, (int, float)) else tuple(int(v) for v in fill)}
        return img.transform((width, height), Image.Transform.PERSPECTIVE, m, _filter(interpolation), **options)
    dev = img.meta.device
    ys, xs = _ops.meshgrid(_ops.arange(height, dtype=dtypes.float32, device=dev) + 0.5, _ops.arange(width, dtype=dtypes.float32, device=dev) + 0.5,
                           indexing="ij")
    below = m[6] * xs + m[7] * ys + 1.0
    u = (m[0] * xs + m[1] * ys + m[2]) / below * (2.0 / width) - 1.0
    v = (m[3] * xs + m[4] * ys + m[5]) / below * (2.0 / height) - 1.0
    return _sampled(img, _ops.stack([u, v], -1).unsqueeze(0), interpolation, fill)


def elastic_transform(img: Any, displacement: Any, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None) -> Any:
    """Each pixel taken from `displacement` (1, H, W, 2) away, in halves of the image's size (x, then y)."""
    if not isinstance(displacement, Tensor):
        raise TypeError("Argument displacement should be a Tensor")
    _check(img)
    pil = not isinstance(img, Tensor)
    x: Any = pil_to_tensor(img) if pil else img
    height, width = x.shape[-2:]
    if tuple(displacement.meta.shape) != (1, height, width, 2):
        raise ValueError(f"Argument displacement shape should be {(1, height, width, 2)}, but given {tuple(displacement.meta.shape)}")
    ends = [((1 - n) / n, (n - 1) / n, n) for n in (height, width)]
    ys, xs = _ops.meshgrid(*[_ops.linspace(low, high, n, device=x.device) for low, high, n in ends], indexing="ij")
    where: Any = displacement
    made = _sampled(x, _ops.stack([xs, ys], -1).unsqueeze(0) + unasked(where.to)(x.device), interpolation, fill)
    return to_pil_image(made, img.mode) if pil else made


def ten_crop(img: Any, size: Any, vertical_flip: bool = False) -> tuple[Any, ...]:
    """`five_crop` of the image, then of its mirror image (from top to bottom with `vertical_flip`)."""
    return five_crop(img, size) + five_crop(vflip(img) if vertical_flip else hflip(img), size)

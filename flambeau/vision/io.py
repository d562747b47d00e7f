"""Image files as tensors (torchvision.io), through Pillow."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import ops
from .._core.runtime.asking import unasked
from .._core.tensor import Tensor

_ops: Any = ops


def read_image(path: Any, mode: Any = None) -> Tensor:
    """A file as a (C, H, W) uint8 tensor; grey images have one channel."""
    from PIL import Image
    with Image.open(path) as image:
        held = image if image.mode in ("L", "RGB", "RGBA") else image.convert("RGB")
        pixels = np.array(held)
    pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    made: Tensor = _ops.from_numpy(np.ascontiguousarray(pixels))
    return made


def write_png(input: Tensor, filename: Any, compression_level: int = 6) -> None:  # noqa: A002
    """Writes a (C, H, W) uint8 tensor."""
    _write(input, filename, "PNG", compress_level=compression_level)


def write_jpeg(input: Tensor, filename: Any, quality: int = 75) -> None:  # noqa: A002
    """Writes a (C, H, W) uint8 tensor."""
    _write(input, filename, "JPEG", quality=quality)


def _write(image: Any, filename: Any, kind: str, **options: Any) -> None:
    from PIL import Image
    pixels = unasked(image.cpu)().permute(1, 2, 0).contiguous().numpy()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(filename, kind, **options)


__all__ = ["read_image", "write_jpeg", "write_png"]

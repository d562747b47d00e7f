"""Image files and their bytes as tensors (torchvision.io), through Pillow."""

from __future__ import annotations

import io
import os
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from .._core import ops
from .._core.dtypes import uint8
from .._core.runtime.asking import unasked
from .._core.tensor import Tensor

_ops: Any = ops


class ImageReadMode(Enum):
    """What channels an image is read as; wherever a mode is taken, its name is too ("RGB")."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4
    RGBA = RGB_ALPHA


_PILLOW = {ImageReadMode.GRAY: "L", ImageReadMode.GRAY_ALPHA: "LA", ImageReadMode.RGB: "RGB", ImageReadMode.RGB_ALPHA: "RGBA"}
_AS_IT_IS = ("L", "LA", "RGB", "RGBA", "CMYK", "I;16")  # others have no channels of their own: palettes, single bits


def _mode(mode: Any) -> ImageReadMode:
    if isinstance(mode, ImageReadMode):
        return mode
    names = ImageReadMode.__members__
    if not isinstance(mode, str) or mode.upper() not in names:
        raise ValueError(f"mode: expected an ImageReadMode or one of {', '.join(names)}, got {mode!r}")
    return names[mode.upper()]


def _bytes(input: Any) -> Any:  # noqa: A002
    """What Pillow opens: a path as it is, a tensor's bytes as a file."""
    if isinstance(input, (str, Path)):
        return input
    if not isinstance(input, Tensor):
        raise ValueError(f"input: expected a path or a one-dimensional uint8 tensor, got {type(input).__name__}")
    if input.dtype is not uint8 or input.dim() != 1 or not input.numel():
        raise RuntimeError(f"input: expected a non-empty one-dimensional uint8 tensor, got {input.dtype} of shape {tuple(input.shape)}")
    return io.BytesIO(unasked(input.cpu)().numpy().tobytes())


def _tensor(pixels: Any) -> Tensor:
    """(H, W) or (H, W, C) as (C, H, W)."""
    made: Tensor = _ops.from_numpy(np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)))
    return made


def _decoded(input: Any, mode: Any, turned: bool, *kinds: str) -> Tensor:  # noqa: A002
    from PIL import Image, ImageOps, UnidentifiedImageError
    wanted = _mode(mode)
    try:
        opened = Image.open(_bytes(input), formats=kinds or None)
    except UnidentifiedImageError as error:
        what = " or ".join(kinds) or "of a kind that is known"
        raise RuntimeError(f"input: these bytes are no image {what}") from error
    with opened as image:
        if image.format == "GIF" and wanted is ImageReadMode.UNCHANGED:
            return _frames(image)
        held: Any = ImageOps.exif_transpose(image) if turned else image
        if wanted is not ImageReadMode.UNCHANGED:
            held = held.convert(_PILLOW[wanted])
        elif held.mode not in _AS_IT_IS:
            held = held.convert("RGBA" if "transparency" in held.info else "L" if held.mode == "1" else "RGB")
        pixels = np.array(held)
    return _tensor(pixels.astype(np.uint16) if pixels.dtype.kind == "u" and pixels.itemsize == 2 else pixels)


def _frames(image: Any) -> Tensor:
    """All of a GIF's: (N, 3, H, W), or (3, H, W) of one."""
    from PIL import ImageSequence
    frames = [_tensor(np.array(frame.convert("RGB"))) for frame in ImageSequence.Iterator(image)]
    made: Tensor = frames[0] if len(frames) == 1 else _ops.stack(frames)
    return made


def decode_image(input: Any, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:  # noqa: A002
    """An image as a (C, H, W) tensor.

    Args:
        input: its path, or its bytes as a one-dimensional uint8 tensor.
        mode: the channels that are wanted, an `ImageReadMode` or its name.  UNCHANGED: those of the file; a GIF of several frames gives (N, 3, H, W),
            16-bit grey uint16; all else is uint8.
        apply_exif_orientation: turn it as its EXIF data says.

    Raises:
        RuntimeError: the bytes are no image that Pillow knows.
        ValueError: `input` or `mode` is of another kind.
    """
    return _decoded(input, mode, apply_exif_orientation)


def read_image(path: Any, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """`decode_image` of a file."""
    return _decoded(os.fspath(path), mode, apply_exif_orientation)


def decode_png(input: Any, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:  # noqa: A002
    """`decode_image` of a PNG's bytes."""
    return _decoded(input, mode, apply_exif_orientation, "PNG")


def decode_jpeg(input: Any, mode: Any = ImageReadMode.UNCHANGED, device: Any = "cpu", apply_exif_orientation: bool = False) -> Any:  # noqa: A002
    """`decode_image` of a JPEG's bytes, or of a list of several, onto `device`."""
    if isinstance(input, list):
        return [decode_jpeg(each, mode, device, apply_exif_orientation) for each in input]
    return unasked(_decoded(input, mode, apply_exif_orientation, "JPEG").to)(device)


def decode_webp(input: Any, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:  # noqa: A002
    """`decode_image` of a WebP's bytes."""
    return _decoded(input, mode, False, "WEBP")


def decode_avif(input: Any, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:  # noqa: A002
    """`decode_image` of an AVIF's bytes, which Pillow 11.3 and later know."""
    return _decoded(input, mode, False, "AVIF")


def decode_gif(input: Any) -> Tensor:  # noqa: A002
    """A GIF's bytes as (3, H, W), or (N, 3, H, W) of several frames."""
    return _decoded(input, ImageReadMode.UNCHANGED, False, "GIF")


def read_file(path: Any) -> Tensor:
    """A file's bytes as a one-dimensional uint8 tensor."""
    made: Tensor = _ops.from_numpy(np.fromfile(path, np.uint8))
    return made


def write_file(filename: Any, data: Tensor) -> None:
    """Writes a one-dimensional uint8 tensor's bytes."""
    if data.dtype is not uint8 or data.dim() != 1:
        raise RuntimeError(f"data: expected a one-dimensional uint8 tensor, got {data.dtype} of shape {tuple(data.shape)}")
    Path(filename).write_bytes(unasked(data.cpu)().numpy().tobytes())


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:  # noqa: A002
    """A (C, H, W) uint8 tensor, C 1 or 3, as a PNG's bytes.  compression_level: 0 to 9."""
    if not 0 <= compression_level <= 9:
        raise RuntimeError(f"compression_level: expected a number from 0 to 9, got {compression_level}")
    return _encoded(input, "PNG", compress_level=compression_level)


def encode_jpeg(input: Any, quality: int = 75) -> Any:  # noqa: A002
    """A (C, H, W) uint8 tensor, C 1 or 3, as a JPEG's bytes, or a list of several.  quality: 1 to 100."""
    if not 1 <= quality <= 100:
        raise ValueError(f"quality: expected a number from 1 to 100, got {quality}")
    return [encode_jpeg(each, quality) for each in input] if isinstance(input, list) else _encoded(input, "JPEG", quality=quality)


def write_png(input: Tensor, filename: Any, compression_level: int = 6) -> None:  # noqa: A002
    """Writes what `encode_png` gives."""
    write_file(filename, encode_png(input, compression_level))


def write_jpeg(input: Tensor, filename: Any, quality: int = 75) -> None:  # noqa: A002
    """Writes what `encode_jpeg` gives."""
    write_file(filename, encode_jpeg(input, quality))


def _encoded(image: Any, kind: str, **options: Any) -> Tensor:
    from PIL import Image
    if image.dtype is not uint8 or image.dim() != 3 or image.shape[0] not in (1, 3):
        raise RuntimeError(f"input: expected a uint8 tensor of shape (1 or 3, H, W), got {image.dtype} of shape {tuple(image.shape)}")
    pixels, held = unasked(image.cpu)().permute(1, 2, 0).contiguous().numpy(), io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(held, kind, **options)
    made: Tensor = _ops.from_numpy(np.frombuffer(held.getvalue(), np.uint8).copy())
    return made


__all__ = ["ImageReadMode", "decode_avif", "decode_gif", "decode_image", "decode_jpeg", "decode_png", "decode_webp", "encode_jpeg", "encode_png", "read_file",
           "read_image", "write_file", "write_jpeg", "write_png"]

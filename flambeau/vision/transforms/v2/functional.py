"""Functions of the second form (torchvision.transforms.v2.functional): those of the first, and conversions by its names."""

from __future__ import annotations

from typing import Any

from ...._core.tensor import Tensor
from .. import functional as _first


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):
        return getattr(_first, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def to_image(inpt: Any) -> Any:
    """A tensor (C, H, W), or more dimensions before them, of a PIL image, an array (H, W, C) or a tensor.  Raises TypeError for anything else."""
    import numpy as np
    if isinstance(inpt, Tensor):
        return inpt if inpt.dim() > 2 else inpt.unsqueeze(0)
    if isinstance(inpt, np.ndarray):
        from ...._core import ops
        made: Any = ops
        array = inpt if inpt.ndim > 2 else inpt[:, :, None]
        return made.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))
    if _first.is_pil(inpt):
        return _first.pil_to_tensor(inpt)
    raise TypeError(f"Input can either be a pure Tensor, a numpy array, or a PIL image, but got {type(inpt)} instead.")


def to_dtype(inpt: Any, dtype: Any = None, scale: bool = False) -> Any:
    """A tensor of another type (float32 by default); scale: with the range of the type too."""
    from ...._core.dtypes import float32
    wanted = float32 if dtype is None else dtype
    return _first.convert_image_dtype(inpt, wanted) if scale else inpt.to(wanted)


to_dtype_image = to_dtype


def grayscale_to_rgb(inpt: Any) -> Any:
    """An image of one channel three times; one of three as it is."""
    if not isinstance(inpt, Tensor):
        return inpt.convert("RGB")
    return inpt if inpt.shape[-3] == 3 else inpt.expand(*inpt.shape[:-3], 3, *inpt.shape[-2:])


def horizontal_flip(inpt: Any) -> Any:
    """Left to right."""
    return _first.hflip(inpt)


def vertical_flip(inpt: Any) -> Any:
    """Top to bottom."""
    return _first.vflip(inpt)


def get_size(inpt: Any) -> list[int]:
    """[height, width]."""
    return _first.get_image_size(inpt)[::-1]

"""Images in a grid, and as files (torchvision.utils)."""

from __future__ import annotations

import math
from typing import Any

from .._core import ops
from .._core.runtime.asking import unasked
from .._core.tensor import Tensor
from ..autograd import no_grad

_ops: Any = ops


@no_grad()
def make_grid(tensor: Any, nrow: int = 8, padding: int = 2, normalize: bool = False, value_range: tuple[float, float] | None = None,
              scale_each: bool = False, pad_value: float = 0.0) -> Tensor:
    """(B, C, H, W) or a list of (C, H, W) images as one (3, H', W') image, `nrow` in a row, `padding` pixels apart.

    normalize: shift to [0, 1], by value_range or the least and largest value (of each image with scale_each).
    """
    if not isinstance(tensor, Tensor) and not (isinstance(tensor, list) and all(isinstance(t, Tensor) for t in tensor)):
        raise TypeError(f"tensor or list of tensors expected, got {type(tensor)}")
    x: Any = _ops.stack(tensor, 0) if isinstance(tensor, list) else tensor
    if x.dim() == 2:
        x = x.unsqueeze(0)
    if x.dim() == 3:
        x = (_ops.cat([x, x, x], 0) if x.size(0) == 1 else x).unsqueeze(0)
    if x.dim() == 4 and x.size(1) == 1:
        x = _ops.cat([x, x, x], 1)
    if normalize:
        x = x.clone()
        if value_range is not None and not isinstance(value_range, tuple):
            raise TypeError("value_range has to be a tuple (min, max) if specified. min and max are numbers")
        parts = list(x) if scale_each else [x]
        done = []
        for part in parts:
            low, high = value_range if value_range is not None else (float(part.min()), float(part.max()))
            done.append(part.clamp(low, high).sub(low).div(max(high - low, 1e-5)))
        x = _ops.stack(done, 0) if scale_each else done[0]
    if x.size(0) == 1:
        single: Tensor = x.squeeze(0)
        return single
    count = x.size(0)
    across = min(nrow, count)
    down = math.ceil(count / across)
    height, width = x.size(2) + padding, x.size(3) + padding
    grid = _ops.full((x.size(1), height * down + padding, width * across + padding), pad_value, dtype=x.dtype, device=x.device)
    for k in range(count):
        i, j = divmod(k, across)
        grid[:, i * height + padding:(i + 1) * height, j * width + padding:(j + 1) * width] = x[k]
    made: Tensor = grid
    return made


@no_grad()
def save_image(tensor: Any, fp: Any, format: str | None = None, **options: Any) -> None:  # noqa: A002 (torchvision's name)
    """Writes images of values in [0, 1] as one file; `options` are those of `make_grid`."""
    from PIL import Image
    grid: Any = make_grid(tensor, **options)
    pixels = unasked(grid.mul(255).add(0.5).clamp(0, 255).permute(1, 2, 0).to)("cpu", grid.new_empty(0, dtype=_uint8()).dtype).numpy()
    Image.fromarray(pixels).save(fp, format=format)


def _uint8() -> Any:
    from .._core.dtypes import uint8
    return uint8


__all__ = ["make_grid", "save_image"]

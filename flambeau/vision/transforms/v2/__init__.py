"""The second form of the transforms (torchvision.transforms.v2): those of the first, which take images and tensors alike, and a few of its own."""

from __future__ import annotations

from typing import Any

from .. import __all__ as _first
from . import functional

_own = ("Identity", "ToDtype", "ToImage", "ToPureTensor", "RGB", "functional")
__all__ = [*(name for name in _first if name != "functional"), *_own]  # noqa: PLE0605 (the first form's names)


def __getattr__(name: str) -> Any:
    import importlib
    if name in _first:
        found = globals()[name] = getattr(importlib.import_module("..", __name__), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Identity:
    """Gives an image as it came."""

    def __call__(self, img: Any) -> Any:
        return img

    def __repr__(self) -> str:
        return "Identity()"


ToPureTensor = Identity


class ToImage:
    """A tensor (C, H, W) of a PIL image, an array (H, W, C) or a tensor, of the same type."""

    def __call__(self, img: Any) -> Any:
        return functional.to_image(img)

    def __repr__(self) -> str:
        return "ToImage()"


class ToDtype:
    """An image of another type; scale: with the range of the type too (uint8's 255 is a float's 1)."""

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        self.dtype, self.scale = dtype, scale

    def __call__(self, img: Any) -> Any:
        return functional.to_dtype(img, self.dtype, self.scale)

    def __repr__(self) -> str:
        return f"ToDtype(scale={self.scale})"


class RGB:
    """An image of three channels."""

    def __call__(self, img: Any) -> Any:
        return functional.grayscale_to_rgb(img)

    def __repr__(self) -> str:
        return "RGB()"



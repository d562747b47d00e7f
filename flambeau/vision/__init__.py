"""Images: data sets on disk, transforms, a few models (torchvision's names).  `flambeau run` offers it as torchvision.

Nothing is downloaded unless `download=True` asks for it; a file that is missing says where to put it.  Image files are
read by Pillow, which is needed only for them.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.28.0+flambeau"
_MODULES = ("datasets", "io", "models", "ops", "transforms", "utils")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'flambeau.vision' has no attribute {name!r}")


def get_image_backend() -> str:
    """"PIL": the package that reads image files."""
    return "PIL"


def set_image_backend(backend: str) -> None:
    """Only "PIL" is there.  Raises ValueError for another."""
    if backend != "PIL":
        raise ValueError(f"Invalid backend '{backend}'. Options are 'PIL'")


__all__ = ["datasets", "get_image_backend", "io", "models", "ops", "set_image_backend", "transforms", "utils"]

"""Versions (torch.version)."""

from __future__ import annotations

from . import __version__

cuda: str | None = None  # kernels for GPUs are compiled when first used, for the driver found then
hip: str | None = None
rocm: str | None = None
git_version = "unknown"
debug = False

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm"]

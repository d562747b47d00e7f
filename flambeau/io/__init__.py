"""Saving and loading: `save`, `load`, and the safetensors format by itself."""

from __future__ import annotations

from .checkpoint import load, save
from .safetensors import load_file, safe_open, save_file

__all__ = ["load", "load_file", "safe_open", "save", "save_file"]

"""`flambeau run`: a PyTorch script, unmodified, with `import torch` resolving to Flambeau."""

from __future__ import annotations

from .importer import VERSION, install, installed, uninstall

__all__ = ["VERSION", "install", "installed", "uninstall"]

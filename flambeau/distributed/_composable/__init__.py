"""What is done to a module in place (torch.distributed._composable): the module stays what it is, and is not wrapped."""

from __future__ import annotations

from .replicate import replicate

__all__ = ["replicate"]

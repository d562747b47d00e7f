"""What registering a hook gives (torch.utils.hooks)."""

from __future__ import annotations

from .._core.autograd.handles import RemovableHandle

__all__ = ["RemovableHandle"]

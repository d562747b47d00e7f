"""What registering a hook gives (torch.utils.hooks)."""

from __future__ import annotations

from ..nn.hooks import RemovableHandle

__all__ = ["RemovableHandle"]

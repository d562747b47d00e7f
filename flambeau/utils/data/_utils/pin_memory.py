"""Batches in page-locked memory (torch.utils.data._utils.pin_memory)."""

from __future__ import annotations

from ....data.pinning import pin as pin_memory

__all__ = ["pin_memory"]

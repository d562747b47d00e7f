"""Memory shared with other libraries by DLPack (torch.utils.dlpack)."""

from __future__ import annotations

from ..interop.dlpack import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]

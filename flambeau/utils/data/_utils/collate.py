"""`torch.utils.data._utils.collate`."""

from __future__ import annotations

from ....data.collate import collate, default_collate, default_convert

__all__ = ["collate", "default_collate", "default_convert"]

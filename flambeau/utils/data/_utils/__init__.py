"""`torch.utils.data._utils`, which programs reach into for `collate`."""

from __future__ import annotations

from . import collate

__all__ = ["collate"]

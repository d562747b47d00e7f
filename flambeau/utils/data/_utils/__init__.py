"""`torch.utils.data._utils`, which programs reach into."""

from __future__ import annotations

from . import collate, fetch, pin_memory, worker

__all__ = ["collate", "fetch", "pin_memory", "worker"]

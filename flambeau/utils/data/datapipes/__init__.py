"""`torch.utils.data.datapipes`: the pipes that programs derive theirs from, and no ready ones."""

from __future__ import annotations

from . import datapipe

__all__ = ["datapipe"]

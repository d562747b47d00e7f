"""`torch.utils.data.distributed`: one process's share of a data set."""

from __future__ import annotations

from ...data import DistributedSampler

__all__ = ["DistributedSampler"]

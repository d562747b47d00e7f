"""What a loader's worker knows of itself (torch.utils.data._utils.worker)."""

from __future__ import annotations

from ....data.workers import WorkerInfo, get_worker_info

__all__ = ["WorkerInfo", "get_worker_info"]

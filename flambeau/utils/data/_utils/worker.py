"""What a loader's worker knows of itself (torch.utils.data._utils.worker)."""

from __future__ import annotations

from ....data.workers import WorkerInfo, get_worker_info


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four words that seed a worker's own generators: of NumPy's SeedSequence."""
    import numpy as np
    return [int(x) for x in np.random.SeedSequence([worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]).generate_state(4)]


__all__ = ["WorkerInfo", "get_worker_info"]

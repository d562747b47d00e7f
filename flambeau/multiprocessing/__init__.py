"""PyTorch's `torch.multiprocessing`: Python's `multiprocessing`, whose queues, pipes and arguments carry CPU tensors in shared memory.

Import it in place of `multiprocessing`. A tensor that is sent is moved to shared memory (`share_memory_`), and both sides see each
other's writes. With fork, what a child inherits is its own copy unless `share_memory_` was called before.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import *  # noqa: F403

from .reductions import init_reductions
from .spawning import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

init_reductions()


def get_all_sharing_strategies() -> set[str]:
    """How shared memory is found by other processes: here always by its descriptor."""
    return {"file_descriptor"}


def get_sharing_strategy() -> str:
    """How memory is shared between processes: "file_descriptor"."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepts PyTorch's names. All are served by memory without a name, which cannot be left behind and is not limited by /dev/shm."""
    if new_strategy not in ("file_descriptor", "file_system"):
        raise ValueError(f"set_sharing_strategy: expected 'file_descriptor' or 'file_system', got {new_strategy!r}")


__all__ = [*multiprocessing.__all__, "ProcessContext", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",  # noqa: PLE0604
           "get_all_sharing_strategies", "get_sharing_strategy", "init_reductions", "set_sharing_strategy", "spawn", "start_processes"]

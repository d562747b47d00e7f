"""Snapshots of GPU memory in PyTorch's format (torch.cuda.memory._snapshot), which pytorch.org/memory_viz and `torch.cuda._memory_viz` open."""

from __future__ import annotations

import os
import pickle
from typing import Any

from .._core.runtime import gpus, memory_history

_ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom", "snapshot")


def _record_memory_history(enabled: Any = "all", context: str | None = "all", stacks: str = "all", max_entries: int | None = None,
                           device: Any = None, clear_history: bool = False, compile_context: bool = False,
                           global_record_annotations: bool = False, skip_actions: list[str] | None = None) -> None:
    """Records the blocks of GPU memory that are taken and given back, with the program's lines, or stops with `enabled=None`.

    enabled: "state" (what is in use), "all" (also the history) or None.  True and False, which PyTorch once took, are "all" and None.
    context: whose lines are kept: "state" (blocks in use), "alloc" (also of the history), "all" (also of frees) or None.
    max_entries: how much of the history is kept, the latest; all by default.  clear_history: forgets what was recorded before.
    skip_actions: of "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom" and "snapshot", not recorded.
    The others are accepted; lines are always those of Python, all GPUs are recorded.

    Raises RuntimeError for other words.
    """
    enabled = {True: "all", False: None}[enabled] if isinstance(enabled, bool) else enabled
    if enabled not in (None, "state", "all"):
        raise RuntimeError(f"_record_memory_history: enabled is {enabled!r}; accepted are 'state', 'all' and None")
    if context not in (None, "state", "alloc", "all"):
        raise RuntimeError(f"_record_memory_history: context is {context!r}; accepted are 'state', 'alloc', 'all' and None")
    unknown = [a for a in skip_actions or () if a not in _ACTIONS]
    if unknown:
        raise RuntimeError(f"_record_memory_history: skip_actions has {unknown[0]!r}; accepted are {', '.join(map(repr, _ACTIONS))}")
    most = None if max_entries is None or max_entries >= 1 << 62 else max_entries
    if enabled is None:
        gpus.record_memory(None, clear_history)
        return
    gpus.record_memory(lambda index: memory_history.History(index, enabled == "all", context, most, skip_actions or ()), clear_history)


def _snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """What the allocators hold now, and the history recorded so far, as PyTorch's dictionary: `segments` with their blocks, and `device_traces`."""
    s = gpus.start()
    for g in s.gpus:
        if g.pool.history is not None:
            g.pool.history.note("snapshot", 0, 0)
    return {"segments": memory_snapshot(),
            "device_traces": [list(g.pool.history.trace) if g.pool.history is not None else [] for g in s.gpus],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""), "expandable_segments": False},
            "external_annotations": []}


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Writes `_snapshot` to a file: drop it on pytorch.org/memory_viz, or read it with `python -m torch.cuda._memory_viz`."""
    with open(filename, "wb") as f:
        pickle.dump(_snapshot(), f)


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """The segments that the allocators of all GPUs hold, those of `MemPool`s among them, each with its blocks: see `memory._snapshot`."""
    return [segment for g in gpus.start().gpus for pool in g.pool.together() for segment in memory_history.segments(pool)]

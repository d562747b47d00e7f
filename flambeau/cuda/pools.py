"""Memory that a program keeps apart from that of other tensors (torch.cuda.MemPool)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from .._core.runtime import dispatch, gpus, memory, memory_history
from .._core.runtime.gpu_memory import Pool

_numbers = itertools.count(1)


class _Own(Pool):
    """A pool whose segments go back to the driver with it: each block that is in use keeps it, and then `empty_cache` or a collection of garbage frees it."""

    def __del__(self) -> None:
        _give_back(self)


def _give_back(pool: Pool) -> None:
    try:
        pool.empty_cache()
    except Exception:  # at the end of the process, or of a simulate() block, its GPU may be gone before it
        pass


class MemPool:
    """Memory of GPUs for the tensors that are made in `use_mem_pool`: in segments of its own, which no other tensor shares. What is free of them
    goes back to the driver with the pool, the rest by `empty_cache` once its tensors are gone.

    use_on_oom: what is free in it may be given back when another request finds no room.  no_split is accepted.
    Raises NotImplementedError for an allocator: memory comes from the driver alone.
    """

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if allocator is not None:
            raise NotImplementedError("MemPool: allocator must be None; memory comes from the GPU's driver, and allocators of other libraries are not called")
        self._id = 0, next(_numbers)
        self._lends = bool(use_on_oom)
        self._pools: dict[Any, Pool] = {}
        self._uses = 1

    @property
    def id(self) -> tuple[int, int]:
        """Two numbers that no other pool has."""
        return self._id

    @property
    def allocator(self) -> None:
        """None: memory comes from the driver."""
        return None

    def use_count(self) -> int:
        """How many use it: this object, and each `use_mem_pool` that is open."""
        return self._uses

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Its segments on all GPUs, each with its blocks: see `cuda.memory_snapshot`."""
        return [segment for pool in self._pools.values() for segment in memory_history.segments(pool)]

    def __del__(self) -> None:
        for pool in getattr(self, "_pools", {}).values():
            _give_back(pool)

    def _of(self, g: gpus.Gpu) -> Pool:
        found = self._pools.get(g)
        if found is None:
            found = self._pools[g] = _Own(g.driver, g.physical, g.index, g.pool.name)
            found.lends = self._lends
            g.pool.own.add(found)
        return found


@contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """Tensors that this thread makes on a GPU (the current one by default) inside the `with` block lie in `pool`.

    Raises TypeError for what is no MemPool, RuntimeError for a device that is not there.
    """
    if not isinstance(pool, MemPool):
        raise TypeError(f"use_mem_pool: pool must be a MemPool, got {type(pool).__name__}")
    g = gpus.gpu(device)
    gpus.leave_default()  # or a stream that becomes current in the block would take the way to the pool away
    own, me, before = pool._of(g), get_ident(), memory.takes.get(g.device)

    def take(nbytes: int) -> tuple[int, Any]:
        if get_ident() != me:
            return before(nbytes) if before is not None else gpus.block(g.device, nbytes)
        return own.take(gpus.current_stream(g.device)._handle, nbytes)

    def put(taker: Any) -> None:
        if taker is None:
            memory.takes.pop(g.device, None)
        else:
            memory.takes[g.device] = taker
        dispatch.changed()  # plans of copies keep what gives them memory

    pool._uses += 1
    put(take)
    try:
        yield
    finally:
        pool._uses -= 1
        put(before)


__all__ = ["MemPool", "use_mem_pool"]

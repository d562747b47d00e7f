"""Memory of GPUs (torch.cuda.memory): sizes are in bytes, `device` is the current GPU by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core.errors import OutOfMemoryError, size
from .._core.runtime import gpus as _gpus
from .._core.runtime.gpu_memory import Pool
from .monitoring import list_gpu_processes
from .pools import MemPool, use_mem_pool
from .snapshots import _dump_snapshot, _record_memory_history, _snapshot, memory_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable


def memory_allocated(device: Any = None) -> int:
    """What living tensors hold, each in steps of 512 bytes."""
    return _sum(device, Pool.current, "allocated_bytes")


def max_memory_allocated(device: Any = None) -> int:
    """The most that tensors have held at once since the start or `reset_peak_memory_stats`."""
    return _sum(device, Pool.peak, "allocated_bytes")


def memory_reserved(device: Any = None) -> int:
    """What the allocator holds: tensors, and blocks kept for reuse."""
    return _sum(device, Pool.current, "reserved_bytes")


def max_memory_reserved(device: Any = None) -> int:
    """The most that the allocator has held at once."""
    return _sum(device, Pool.peak, "reserved_bytes")


def _sum(device: Any, ask: Callable[[Pool, str], int], name: str) -> int:
    """A statistic of a GPU: its allocator's and those of the program's own pools (`MemPool`), whose peaks are added up as if they had come at once."""
    return sum(ask(pool, name) for pool in _gpus.gpu(device).pool.together()) if _in_use() else 0


def _in_use() -> bool:
    """Whether a GPU was ever used: asking for sizes must not be the first use."""
    return _gpus._system is not None and _gpus._system.started


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved  # their older names


def device_memory_used(device: Any = None) -> int:
    """What is not free of a GPU, whoever holds it."""
    free, total = mem_get_info(device)
    return total - free


def reset_peak_memory_stats(device: Any = None) -> None:
    """The peaks start again from what is held now."""
    for pool in _gpus.gpu(device).pool.together():
        pool.reset_peaks()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """The totals (allocated, freed, retries) start again from zero."""
    _gpus.gpu(device).pool.reset_totals()


def memory_stats(device: Any = None) -> dict[str, int]:
    """Every statistic by name: "allocated_bytes.all.current", ".peak", ".allocated", ".freed", "num_ooms", ..."""
    return _gpus.gpu(device).pool.stats() if _in_use() else {}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The statistics as a table to read."""
    g = _gpus.gpu(device)
    stats = g.pool.stats()
    free, total = g.driver.memory_info(g.physical)
    lines = [f"{g.device} ({g.pool.name}): {size(free)} free of {size(total)}; {stats['num_alloc_retries']} retries, "
             f"{stats['num_ooms']} out-of-memory errors",
             f"{'':16}{'now':>14}{'peak':>14}" + ("" if abbreviated else f"{'allocated':>14}{'freed':>14}")]
    for name, label, plain in (("allocated_bytes", "tensors", False), ("reserved_bytes", "reserved", False),
                               ("allocation", "blocks", True), ("segment", "segments", True)):
        columns = ("current", "peak") if abbreviated else ("current", "peak", "allocated", "freed")
        values = [stats[f"{name}.all.{c}"] for c in columns]
        lines.append(f"{label:16}" + "".join(f"{v if plain else size(v):>14}" for v in values))
    return "\n".join(lines)


def get_allocator_backend() -> str:
    """Where the caching allocator takes memory from, as PYTORCH_CUDA_ALLOC_CONF=backend:... names it: "cudaMallocAsync" (pools of the
    driver, ordered by stream) where that is asked for, else "native" (the driver's pools too, on GPUs that have them, unless it is
    asked for by name)."""
    from .._core.drivers.nvidia.driver import backend
    return backend() or "native"


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) of a GPU, as its driver has it: what the allocator keeps for reuse is not free."""
    g = _gpus.gpu(device)
    return g.driver.memory_info(g.physical)


def empty_cache() -> None:
    """Gives what the allocators of all GPUs keep for reuse back to the driver."""
    if _in_use():
        for g in _gpus.start().gpus:
            for pool in g.pool.together():
                pool.empty_cache()


def host_memory_stats() -> dict[str, Any]:
    """Every statistic of pinned host memory by name: "allocated_bytes.current" (all that the pool holds), "active_bytes.peak"
    (with the program or its copies), "num_host_alloc", "host_alloc_time.total" (microseconds), ...; {} before first use."""
    return _gpus.start().host.stats() if _in_use() else {}


def reset_peak_host_memory_stats() -> None:
    """The peaks of pinned host memory start again from what is held now."""
    if _in_use():
        _gpus.start().host.reset_peaks()


def reset_accumulated_host_memory_stats() -> None:
    """The totals of pinned host memory ("allocated" and "freed") start again from zero."""
    if _in_use():
        _gpus.start().host.reset_totals()


def empty_host_cache() -> None:
    """Gives the pinned host memory that nobody uses back to the system; the staging buffers stay."""
    if _in_use():
        _gpus.start().host.empty_cache()


def set_host_cache_bound(nbytes: int) -> int:
    """Keeps at most `nbytes` of unused pinned host memory (at first an eighth of the machine's); gives the bound before."""
    if type(nbytes) is not int or nbytes < 0:
        raise ValueError(f"set_host_cache_bound: expected a number of bytes, 0 or more, got {nbytes!r}")
    pool = _gpus.start().host
    before, pool.bound = pool.bound, nbytes
    pool.settle()
    return before


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limits what the allocator reserves to a part (0 to 1) of the GPU's memory.  Raises TypeError, ValueError."""
    if not isinstance(fraction, float):
        raise TypeError(f"set_per_process_memory_fraction: fraction must be a float, got {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"set_per_process_memory_fraction: fraction must lie in 0 to 1, got {fraction}")
    g = _gpus.gpu(device)
    g.pool.limit = int(g.properties.total_memory * fraction)


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part of the GPU's memory that the allocator may reserve; 1 unless it was limited."""
    g = _gpus.gpu(device)
    return 1.0 if g.pool.limit is None else g.pool.limit / g.properties.total_memory


_raw: dict[int, Any] = {}


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """The address of `size` bytes from the allocator, for other libraries' use; see `caching_allocator_delete`."""
    g = _gpus.gpu(device)
    s = _gpus.current_stream(g.device) if stream is None else stream
    address, free = g.pool.take(s._handle, size)
    _raw[address] = free
    return address


def caching_allocator_delete(mem_ptr: int) -> None:
    """Gives back what `caching_allocator_alloc` gave.  Raises ValueError for another address."""
    free = _raw.pop(mem_ptr, None)
    if free is None:
        raise ValueError(f"caching_allocator_delete: {mem_ptr:#x} did not come from caching_allocator_alloc")
    free.append(mem_ptr)


__all__ = [
    "MemPool", "OutOfMemoryError", "use_mem_pool", "caching_allocator_alloc", "caching_allocator_delete", "device_memory_used",
    "empty_cache", "empty_host_cache", "get_allocator_backend", "get_per_process_memory_fraction", "host_memory_stats",
    "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_cached", "memory_reserved", "memory_stats", "memory_summary", "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_host_memory_stats", "reset_peak_memory_stats", "set_host_cache_bound",
    "set_per_process_memory_fraction", "_dump_snapshot", "_record_memory_history", "_snapshot", "list_gpu_processes", "memory_snapshot",
]

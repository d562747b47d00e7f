"""GPUs, real or simulated (torch.cuda): which there are, which is current, their memory, streams and events."""

from __future__ import annotations

from typing import Any

from .._core.drivers.interface import Properties as _Properties
from .._core.errors import AcceleratorError, OutOfMemoryError
from .._core.ops.async_copy import host_reads_wait
from .._core.runtime import gpus as _gpus
from .._core.runtime.device import device as _device
from .._core.runtime.streams import Event, ExternalStream, Stream
from .graphs import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_callables
from .memory import (
    caching_allocator_alloc,
    caching_allocator_delete,
    device_memory_used,
    empty_cache,
    empty_host_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_host_cache_bound,
    set_per_process_memory_fraction,
)
from .monitoring import (
    clock_rate,
    get_sync_debug_mode,
    list_gpu_processes,
    memory_usage,
    power_draw,
    set_sync_debug_mode,
    temperature,
    utilization,
)
from .pools import MemPool, use_mem_pool
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .snapshots import memory_snapshot


# ------------------------------------------------------------------------------------------------------------- devices
def is_available() -> bool:
    """Whether there is a GPU to use, real or simulated.  Looking does not count as use."""
    return _gpus.count() > 0


def device_count() -> int:
    """How many GPUs are visible.  Looking does not count as use."""
    return _gpus.count()


def is_initialized() -> bool:
    """Whether a GPU has been used."""
    s = _gpus._system
    return s is not None and s.started and not _gpus._forked


def _lazy_call(callable: Any, **kwargs: Any) -> None:  # noqa: A002 (PyTorch's name)
    """Calls a function now where the GPUs are ready, else when they become so."""
    if is_initialized():
        callable()
    else:
        _gpus.at_start.append(callable)


def init() -> None:
    """Makes the GPUs ready now rather than at first use.  Raises RuntimeError when there are none."""
    _gpus.start()


def is_simulated(device: Any = None) -> bool:
    """Whether a GPU (the current one by default) is simulated."""
    return _gpus.gpu(device).driver.simulated


def current_device() -> int:
    """The index of this thread's current GPU."""
    return _gpus.current_index()


def set_device(device: Any) -> None:
    """Makes a GPU current in this thread; a negative index changes nothing."""
    if type(device) is int and device < 0:
        return
    if not isinstance(device, int):
        named = device if isinstance(device, _device) else _device(device)
        if named.index is None and named.type == "cuda":
            raise ValueError(f"set_device: expected a device with an index, such as 'cuda:0', got {named}")
    _gpus.set_current(_gpus.gpu(device).index)


class device:
    """A ``with`` block in which a GPU (index, device or string) is current; None or a negative index: no change."""

    def __init__(self, device: Any) -> None:
        none = device is None or (type(device) is int and device < 0)
        self.idx = -1 if none else _gpus.gpu(device).index
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = _gpus.set_current(self.idx)

    def __exit__(self, *exc: object) -> None:
        if self.prev_idx >= 0:
            _gpus._thread.index = self.prev_idx


class device_of(device):
    """A ``with`` block in which the GPU of a tensor is current; no change for a tensor on the CPU."""

    def __init__(self, obj: Any) -> None:
        where = obj.device
        super().__init__(where if where.type == "cuda" else None)


def get_device_properties(device: Any = None) -> _Properties:
    """Name, capability, sizes and identity of a GPU."""
    return _gpus.gpu(device).properties


def get_device_name(device: Any = None) -> str:
    """The name of a GPU; that of its model when it is simulated."""
    return _gpus.gpu(device).properties.name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(major, minor) of a GPU's architecture."""
    p = _gpus.gpu(device).properties
    return p.major, p.minor


def get_arch_list() -> list[str]:
    """The architectures of the GPUs there are; kernels are made for them when first used."""
    if not is_available():
        return []
    return sorted({f"sm_{g.properties.major}{g.properties.minor}" for g in _gpus.start().gpus})


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current GPU computes in bfloat16; before architecture 8 it does so by conversion."""
    return is_available() and (including_emulation or _gpus.gpu().properties.major >= 8)


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether a GPU reaches another's memory directly."""
    a, b = _gpus.gpu(device), _gpus.gpu(peer_device)
    return a.driver.can_access_peer(a.physical, b.physical)


def synchronize(device: Any = None) -> None:
    """Waits for all work of a GPU (the current one by default).  Raises AcceleratorError when some of it failed."""
    _gpus.synchronize(device)


def ipc_collect() -> None:
    """Memory is not shared between processes here, so there is nothing to collect."""


# ------------------------------------------------------------------------------------------------------------- streams

class stream:
    """A ``with`` block in which a stream is current (and its GPU); None: no change.  `stream(s)` is `s` as a block."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *exc: object) -> None:
        if self.stream is not None:
            self.stream.__exit__()


StreamContext = stream


def current_stream(device: Any = None) -> Stream:
    """This thread's current stream of a GPU (the current one by default)."""
    return _gpus.current_stream(device)


def default_stream(device: Any = None) -> Stream:
    """The stream a GPU's work goes to when no other was chosen."""
    return _gpus.gpu(device).default


def set_stream(stream: Stream | None) -> None:
    """Makes a stream current in this thread, and its GPU; None changes nothing."""
    if stream is not None:
        _gpus.set_current(stream.device_index)
        _gpus.set_stream(stream)


# names of `runtime_api`, which few programs call
_OF_RUNTIME = frozenset("""CudaError DeferredCudaCallError caching_allocator_disabled caching_allocator_enable check_error cudaStatus cudart
 current_blas_handle current_solver_handle get_gencode_flags get_stream_from_external has_half has_magma is_tf32_supported""".split())
_MODULES = ("amp", "comm", "nccl", "nvtx", "profiler", "streams")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib
        return importlib.import_module("." + name, __name__)
    if name in _OF_RUNTIME:
        from . import runtime_api
        value = globals()[name] = getattr(runtime_api, name)
        return value
    if name == "_initialized":  # by which programs ask what `is_initialized` tells
        return is_initialized()
    if name == "default_generators":
        from .._core.runtime import generators
        return tuple(generators.default(_gpus.resolve(i)) for i in range(_gpus.count()))
    if name.endswith("Storage"):
        from .._core.ops.typed_storages import CUDA_CLASSES
        if name in CUDA_CLASSES:
            return CUDA_CLASSES[name]
    if name.endswith("Tensor"):
        from .._core.ops.legacy import CUDA_TYPES
        if name in CUDA_TYPES:
            return CUDA_TYPES[name]
    raise AttributeError(f"module 'flambeau.cuda' has no attribute {name!r}")


def __dir__() -> list[str]:
    from .._core.ops.legacy import CUDA_TYPES
    from .._core.ops.typed_storages import CUDA_CLASSES
    return sorted({*globals(), *__all__, *_OF_RUNTIME, *_MODULES, *CUDA_TYPES, *CUDA_CLASSES, "default_generators"})


__all__ = [
    "AcceleratorError", "CUDAGraph", "ExternalStream", "MemPool", "use_mem_pool", "graph", "graph_pool_handle", "make_graphed_callables",
    "Event", "OutOfMemoryError", "Stream", "StreamContext", "caching_allocator_alloc",
    "caching_allocator_delete", "can_device_access_peer", "current_device", "current_stream", "default_stream",
    "device", "device_count", "device_memory_used", "device_of", "empty_cache", "empty_host_cache",
    "get_arch_list", "get_device_capability", "get_device_name", "get_device_properties",
    "get_allocator_backend", "get_per_process_memory_fraction", "get_rng_state", "get_rng_state_all", "host_memory_stats",
    "host_reads_wait", "init", "initial_seed", "ipc_collect", "is_available", "is_bf16_supported",
    "is_current_stream_capturing", "is_initialized", "is_simulated", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_cached", "memory_reserved", "memory_stats", "memory_summary", "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_host_memory_stats", "reset_peak_memory_stats", "seed", "seed_all", "set_device",
    "set_host_cache_bound", "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all", "set_stream",
    "stream", "synchronize", "clock_rate", "get_sync_debug_mode", "list_gpu_processes", "memory_snapshot", "memory_usage", "power_draw",
    "set_sync_debug_mode", "temperature", "utilization", *sorted(_OF_RUNTIME),
]

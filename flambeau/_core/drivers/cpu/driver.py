"""The CPU as a device like others: the interface's verbs, with work done when it is asked for.

There is one stream, on which everything is done at once, so that waiting never takes time.  An event remembers the moment of its recording.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import TYPE_CHECKING, Any

from ..interface import Driver, Properties
from ..pages import map_pages, unmap_pages
from . import backend

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import Spec

_LIMITS = ("major", "minor", "L2_cache_size", "warp_size", "max_threads_per_multi_processor", "regs_per_multiprocessor", "shared_memory_per_block",
           "shared_memory_per_multiprocessor", "shared_memory_per_block_optin", "pci_bus_id", "pci_device_id", "pci_domain_id")


class _Event:
    """A moment; 0: never recorded."""

    __slots__ = ("time",)

    def __init__(self) -> None:
        self.time = 0.0


class CpuDriver(Driver):
    """The one CPU device."""

    near = True
    sorts_writes = False
    launch_bytes = 1 << 16

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}  # bytes by address; each change of it is one step, so that finalizers and forks find it whole

    # ------------------------------------------------------------------------------------------------------- devices
    def device_count(self) -> int:
        return 1

    def properties(self, device: int) -> Properties:
        import platform
        return Properties(name=platform.processor() or platform.machine(), total_memory=_memory("SC_PHYS_PAGES"), multi_processor_count=os.cpu_count() or 1,
                          uuid="", is_integrated=True, is_multi_gpu_board=False, simulated=False, **dict.fromkeys(_LIMITS, 0))

    def memory_info(self, device: int) -> tuple[int, int]:
        return _memory("SC_AVPHYS_PAGES"), _memory("SC_PHYS_PAGES")

    def can_access_peer(self, device: int, peer: int) -> bool:
        return False

    def enable_peer(self, device: int, peer: int) -> None:
        raise RuntimeError("there is one CPU device: it has no peer")

    def synchronize(self, device: int) -> None:
        pass

    # -------------------------------------------------------------------------------------------------------- memory
    def alloc(self, device: int, nbytes: int) -> int:
        address = map_pages(nbytes)
        if address:
            self._blocks[address] = nbytes
        return address

    def free(self, device: int, address: int) -> None:
        nbytes = self._blocks.pop(address, 0)
        if not nbytes:
            raise ValueError(f"free: {address:#x} is not the start of memory that is in use")
        unmap_pages(address, nbytes)

    def host_alloc(self, nbytes: int) -> int:
        return self.alloc(0, nbytes)

    def host_free(self, address: int) -> None:
        self.free(0, address)

    def is_pinned(self, address: int) -> bool:
        return False

    # ------------------------------------------------------------------------------------------------------- streams
    def stream_create(self, device: int, priority: int = 0) -> Any:
        return self

    def stream_external(self, device: int, number: int) -> Any:
        return self

    def stream_destroy(self, stream: Any) -> None:
        pass

    def stream_query(self, stream: Any) -> bool:
        return True

    def stream_synchronize(self, stream: Any) -> None:
        pass

    def prepare(self, device: int, spec: Spec) -> PreparedLaunch | None:
        return backend.prepare(spec)

    def serves(self, kind: type[Spec]) -> bool:
        return backend.serves(kind)

    def launch(self, stream: Any, prepared: PreparedLaunch, args: tuple[Any, ...]) -> None:
        prepared.entry(*args)

    def direct(self, device: int, prepared: PreparedLaunch, stream: Any) -> Callable[..., Any]:
        """The kernel's own entry: nothing stands between a caller and its code."""
        return prepared.entry

    def memcpy(self, stream: Any, dst: int, src: int, nbytes: int, keep: Any = None) -> None:
        ctypes.memmove(dst, src, nbytes)

    # -------------------------------------------------------------------------------------------------------- events
    def event_create(self, timing: bool = False, sleeps: bool = False) -> _Event:
        return _Event()

    def event_record(self, event: _Event, stream: Any) -> None:
        event.time = time.perf_counter()

    def stream_wait_event(self, stream: Any, event: _Event) -> None:
        pass

    def event_query(self, event: _Event) -> bool:
        return True

    def event_synchronize(self, event: _Event) -> None:
        pass

    def event_elapsed(self, start: _Event, end: _Event) -> float:
        return (end.time - start.time) * 1e3

    def close(self) -> None:
        pass


def _memory(pages: str) -> int:
    try:
        return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # a system that does not say
        return 0


CPU = CpuDriver()

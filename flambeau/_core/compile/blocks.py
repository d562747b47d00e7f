"""The memory that a record has for itself: blocks of its device's allocator, taken off the free lists as long as the record lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..runtime import cpu_memory, gpus

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..runtime.device import device


class Block:
    """`size` bytes at an address, held until it is dropped."""

    __slots__ = ("address", "size", "_back")

    def __init__(self, address: int, size: int, back: Callable[[], Any]) -> None:
        self.address, self.size, self._back = address, size, back

    def __del__(self) -> None:
        self._back()


class CpuBlocks:
    """Those of the CPU."""

    whole = staticmethod(cpu_memory.whole)

    @staticmethod
    def claim(address: int, size: int) -> Any:
        """A block that is nobody's; None where it is somebody's."""
        return cpu_memory.Claimed(address, size) if cpu_memory.claim(address, size) else None

    @staticmethod
    def take(nbytes: int) -> Any:
        """A block of at least so many bytes, few."""
        return cpu_memory.Claimed(cpu_memory.block(nbytes)[0], cpu_memory.size_class(nbytes).size)

    @staticmethod
    def allocated() -> int:
        """How many bytes are in use."""
        return cpu_memory.stats()["allocated_bytes"]


class GpuBlocks:
    """Those of a GPU."""

    def __init__(self, dev: device) -> None:
        self.device, self.pool = dev, gpus.gpu(dev).pool

    def whole(self, address: int) -> tuple[int, int] | None:
        """Where the block around an address begins, and its size; None where there is none."""
        return self.pool.span(address)

    def claim(self, address: int, size: int) -> Any:
        back = self.pool.claim(address)
        return None if back is None else Block(address, size, back)

    def take(self, nbytes: int) -> Any:
        address, found = gpus.block(self.device, nbytes)
        return Block(address, found.size, lambda: found.append(address))

    def allocated(self) -> int:
        return self.pool.current("allocated_bytes")


def of(dev: device) -> Any:
    """The blocks of a device."""
    return GpuBlocks(dev) if dev.type == "cuda" else CpuBlocks

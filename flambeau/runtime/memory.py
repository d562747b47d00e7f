"""Memory of any device: one question, `block`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import cpu_memory

if TYPE_CHECKING:
    from .device import device


def block(dev: device, nbytes: int) -> tuple[int, Any]:
    """The address of `nbytes` uninitialised bytes on a concrete device, and what takes it back by ``append(address)``.

    On a GPU the block belongs to this thread's current stream: given back, it is reused at once by later work of that
    stream.  Raises RuntimeError (on a GPU its subclass `OutOfMemoryError`) when there is no room.
    """
    if dev.type == "cpu":
        return cpu_memory.block(nbytes)
    return _gpu_block(dev, nbytes)


def _gpu_block(dev: device, nbytes: int) -> tuple[int, Any]:
    """The first request of a GPU: loads its runtime, which takes the place of this."""
    global _gpu_block
    from . import gpus
    _gpu_block = gpus.block
    return gpus.block(dev, nbytes)

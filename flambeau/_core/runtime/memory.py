"""Memory of any device: one question, `block`."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from .. import forks
from . import cpu_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from .device import device


NO_FREE: deque[int] = deque(maxlen=0)  # what takes back memory that is somebody else's, or nobody's: it keeps nothing
# by GPU, while every thread's current stream of it is the default one: `block` with the bytes alone
takes: dict[device, Callable[[int], tuple[int, Any]]] = {}


_reached = 1 << 60  # far from any memory: using an address of the meta device by mistake is a fault, not a wrong value
_lock = forks.lock()


def _nowhere(nbytes: int) -> int:
    """An address of the meta device: there is nothing there, but no other tensor has it."""
    global _reached
    with _lock:
        found = _reached
        _reached += -(-nbytes // 512) * 512 + 512
    return found


def block(dev: device, nbytes: int) -> tuple[int, Any]:
    """The address of `nbytes` uninitialised bytes on a concrete device, and what takes it back by ``append(address)``.

    On a GPU the block belongs to this thread's current stream: given back, it is reused at once by later work of that
    stream.  On the meta device there is no memory, only addresses.  Raises RuntimeError (on a GPU its subclass `OutOfMemoryError`) when there is no room.
    """
    if dev.type == "cpu":
        return cpu_memory.block(nbytes)
    if dev.type == "meta":
        return _nowhere(nbytes), NO_FREE
    return _gpu_block(dev, nbytes)


def _gpu_block(dev: device, nbytes: int) -> tuple[int, Any]:
    """The first request of a GPU: loads its runtime, which takes the place of this."""
    global _gpu_block
    from . import gpus
    _gpu_block = gpus.block
    return gpus.block(dev, nbytes)

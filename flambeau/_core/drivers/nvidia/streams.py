"""Streams and events of NVIDIA GPUs, as the driver's calls take them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .driver import NvidiaDriver
    from .graphs import Graph


class Stream:
    """A stream of a device: `handle` is the binding's, `raw` its number.  Both are made when first asked for, so that a GPU that
    is only seen, not used, gets no context."""

    __slots__ = ("device", "priority", "driver", "handle", "raw", "kept", "graph", "rooms", "__weakref__")
    handle: Any
    raw: int

    def __init__(self, driver: NvidiaDriver, device: int, priority: int) -> None:
        self.driver, self.device, self.priority = driver, device, priority
        self.kept: deque[tuple[Event, Any]] = deque()  # what copies read or write, until they are done
        self.graph: Graph | None = None  # into which its work is captured
        self.rooms: dict[Any, tuple[int, int]] = {}  # workspaces of libraries, by whose: address and size

    def __getattr__(self, name: str) -> Any:
        if name not in ("handle", "raw"):
            raise AttributeError(name)
        self.driver._open(self)
        return object.__getattribute__(self, name)

    @property
    def opened(self) -> bool:
        """Whether it has been made."""
        try:
            object.__getattribute__(self, "raw")
        except AttributeError:
            return False
        return True


class Event:
    """A place in a stream's work.  Its handle is made when first recorded, since it belongs to that stream's device."""

    __slots__ = ("flags", "device", "handle", "raw", "pool", "graph", "__weakref__")

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.graph: Graph | None = None  # in which it was recorded last
        self.device = -1
        self.handle: Any = None
        self.raw = 0
        self.pool: deque[tuple[Any, int]] | None = None

    def __del__(self) -> None:
        if self.pool is not None:
            self.pool.append((self.handle, self.raw))  # waits that were queued keep what they wait for

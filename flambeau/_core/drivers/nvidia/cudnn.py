"""cuDNN 9, entered through ctypes: the library, its handles, and what its statuses mean.

What it does is asked for by graphs of operations (`cudnn_graph`): convolutions (`cudnn_convolutions`) and attention (`cudnn_attention`).
Names and numbers are those of NVIDIA's cudnn_graph.h.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

from . import libraries

if TYPE_CHECKING:
    from .driver import NvidiaDriver
    from .launches import Launches
    from .streams import Stream

REFUSED = range(3000, 4000)
NO_KERNEL = (4001, 4004, 2003)  # a kernel that could not be compiled, that found no memory, or that wants addresses of a higher alignment
_STATUS = {1001: "it does not start, or a part of it is missing", 1002: "its parts are of different versions", 1008: "a part of it cannot be loaded",
           2000: "an argument is not valid", 4004: "it found no memory on the device"}


class Unsupported(NotImplementedError):
    """cuDNN has no kernel for this."""


def room(driver: NvidiaDriver, stream: Stream, whose: str, nbytes: int) -> int:
    """Workspace for what is done on a stream, one after another: `NvidiaDriver.room`.  Raises RuntimeError where there is none."""
    found = driver.room(stream, whose, nbytes)
    if not found:
        raise RuntimeError(f"cuDNN needs {nbytes} bytes of workspace, and the GPU has no room for it")
    return found


def load() -> ctypes.CDLL:
    """The library.  Raises OSError where it is not installed."""
    return _declared(libraries.load("cudnn"))


def _declared(lib: ctypes.CDLL) -> ctypes.CDLL:
    lib.cudnnGetVersion.restype = ctypes.c_size_t
    return lib


def version() -> int | None:
    """The installed library's version, as 91200 for 9.12; None where there is none."""
    try:
        return int(load().cudnnGetVersion())
    except (OSError, AttributeError):
        return None


def check(code: int, what: str) -> None:
    if code in REFUSED:
        raise Unsupported(f"cuDNN does not support {what} (status {code})")
    if code:
        raise RuntimeError(f"cuDNN, {what}: {_STATUS.get(code, 'error')} (status {code})")


class Library:
    """cuDNN for the devices of one driver: a handle for each stream, since a handle names the stream it works on."""

    def __init__(self, driver: NvidiaDriver) -> None:
        self.driver, found = driver, libraries.optional("cudnn")
        self.lib: Any = None if found is None else _declared(found)
        self.handles: dict[int | Stream, ctypes.c_void_p] = {}
        self._lock = threading.RLock()

    def handle(self, place: int | Stream) -> ctypes.c_void_p:
        """The handle for a stream, or for questions about a device."""
        with self._lock:
            found = self.handles.get(place)
            if found is None:
                self.driver._use(place if isinstance(place, int) else place.device)
                found = ctypes.c_void_p()
                check(self.lib.cudnnCreate(ctypes.byref(found)), "starting")
                if not isinstance(place, int):
                    check(self.lib.cudnnSetStream(found, ctypes.c_void_p(place.raw)), "starting")
                self.handles[place] = found
            return found

    def fault(self, device: int, stream: Stream, code: int, what: str) -> None:
        """Raises what a status other than a refusal means."""
        libraries.check(self.driver, device, stream, code, "cudnn", what, _STATUS)


def library(launches: Launches) -> Library | None:
    """cuDNN; None where it is not installed."""
    found: Library = launches.library("cudnn", Library)
    return found if found.lib is not None else None

"""What kernels find wrong with the numbers they are given, such as a position outside an axis, told when the host next waits.

A kernel that finds something writes the number of a complaint, and the bad value, into page-locked memory of its device.  It does not
stop the device: what reads by such a position stays within bounds (`ops/indexing/positions.py`).
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from ...errors import AcceleratorError, launched_at, site

if TYPE_CHECKING:
    from collections.abc import Callable

    from .driver import NvidiaDriver

_SLOT = 16  # bytes of a device: the complaint's number and the value
_SITES = 32  # the lines of so many launches are kept, the last ones


class Complaints:
    """The complaints of one driver's kernels."""

    def __init__(self, driver: NvidiaDriver) -> None:
        self.address = driver.host_alloc(_SLOT * driver.device_count())
        if not self.address:
            raise RuntimeError("there is no page-locked memory left for the GPUs' complaints")
        ctypes.memset(self.address, 0, _SLOT * driver.device_count())
        self._words = memoryview((ctypes.c_longlong * (2 * driver.device_count())).from_address(self.address)).cast("B").cast("q")
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        self._launched: deque[tuple[int, Any, tuple[str, int] | None]] = deque(maxlen=_SITES)  # numbers, streams and the program's lines
        self._lock = threading.Lock()
        driver.after_waits += (self.hear,)

    def slot(self, device: int) -> int:
        """Where a device's kernels write."""
        return self.address + _SLOT * device

    def number(self, text: str) -> int:
        """The number of a complaint; "{}" in its text is the bad value."""
        with self._lock:
            if text not in self._numbers:
                self._texts.append(text)
                self._numbers[text] = len(self._texts)
            return self._numbers[text]

    def noting(self, number: int) -> Callable[[Any], None]:
        """What keeps the program's line of a launch on a stream that may have this complaint."""
        def note(stream: Any) -> None:
            self._launched.append((number, stream, site()))
        return note

    def hear(self, device: int) -> None:
        """Raises AcceleratorError for the assertions that failed on a device, each once."""
        number = self._words[2 * device]
        if number:
            value = self._words[2 * device + 1]
            self._words[2 * device] = 0
            told = launched_at([where for n, _, where in list(self._launched) if n == number])
            raise AcceleratorError(f"CUDA error on GPU {device}: {self._texts[number - 1].format(value)}{told}. This was found after the call had returned; "
                                   "position 0 was taken in its place")

    def done(self, device: int, stream: Any = None) -> None:
        """All work of a device, or of one of its streams, is done and nothing was found: its lines are needed no more."""
        if self._launched:
            waiting = [each for each in list(self._launched) if (each[1].device != device if stream is None else each[1] is not stream)]
            self._launched.clear()
            self._launched.extend(waiting)

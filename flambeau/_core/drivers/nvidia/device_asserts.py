"""What kernels find wrong with the numbers they are given, such as a position outside an axis, told when the host next waits.

A kernel that finds something writes the number of a complaint, and the bad value, into page-locked memory of its device.  It does not
stop the device: what reads by such a position stays within bounds (`ops/indexing.py`).
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

from ...errors import AcceleratorError

if TYPE_CHECKING:
    from .driver import NvidiaDriver

_SLOT = 16  # bytes of a device: the complaint's number and the value


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

    def hear(self, device: int) -> None:
        """Raises AcceleratorError for what a device has complained of, once."""
        number = self._words[2 * device]
        if number:
            value = self._words[2 * device + 1]
            self._words[2 * device] = 0
            raise AcceleratorError(f"CUDA error on GPU {device}: {self._texts[number - 1].format(value)}. This was found after the call had returned; "
                                   "position 0 was taken in its place")

"""Files mapped into memory."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np


def mapped(filename: Any, shared: bool = False, count: int | None = None) -> Any:
    """The first `count` bytes of a file (None: all) as a NumPy array of uint8 that keeps the mapping alive.

    shared: writes go to the file, which grows to `count` if it is shorter; otherwise they stay in this process.
    Raises OSError for a file that cannot be opened, ValueError for one that is too short.
    """
    descriptor = os.open(filename, (os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        size = os.fstat(descriptor).st_size
        if count is None:
            count = size
        if size < count:
            if not shared:
                raise ValueError(f"{os.fspath(filename)!r} has {size} bytes, fewer than the {count} that are to be mapped")
            os.ftruncate(descriptor, count)
        if not count:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(descriptor, count, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY), np.uint8)
    finally:
        os.close(descriptor)

"""Memory that several processes see: files without a name, mapped.

Nothing lists them, so nothing has to be tidied up after a process that dies: the system frees the memory with the last
process that maps it or holds its descriptor open. No limit on /dev/shm applies.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from ..drivers.pages import map_file, unmap_pages


class Mapping:
    """A piece of shared memory in this process: unmapped when the last who knows it is gone."""

    __slots__ = ("address", "size", "number", "__weakref__")

    def __init__(self, descriptor: int, size: int, number: int = 0) -> None:
        self.size, self.number = size, number
        self.address = 0
        self.address = map_file(descriptor, size)

    def __del__(self, unmap: Any = unmap_pages) -> None:
        if self.address:
            unmap(self.address, self.size)


def nameless(size: int) -> int:
    """The descriptor of a new file of `size` zero bytes in memory, which no folder lists."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("flambeau-shared", os.MFD_CLOEXEC)
    else:  # POSIX wants a name, for a moment
        posix: Any = importlib.import_module("_posixshmem")  # what multiprocessing.shared_memory stands on
        name = f"/flambeau-shared-{os.getpid() & 0xFFFF:x}{os.urandom(3).hex()}"  # macOS allows 31 characters
        descriptor = posix.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600)
        posix.shm_unlink(name)
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class Shared(Mapping):
    """A mapping whose descriptor stays open, so that it can be handed to other processes."""

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        super().__init__(descriptor, size)

    def __del__(self, close: Any = os.close) -> None:
        super().__del__()
        close(self.descriptor)

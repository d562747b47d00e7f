"""Memory pages of the host, straight from the system."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

_HUGE = 2 << 20
_MOST = 1 << 57  # no address space is larger

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_ADVISE_HUGE = getattr(mmap, "MADV_HUGEPAGE", None)
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)


def map_pages(nbytes: int, reserve: bool = True) -> int:
    """The address of `nbytes` fresh zero bytes from the system, 2 MiB aligned when big; 0 when it has none.

    reserve False asks for addresses only: memory is taken as it is touched, and the total may exceed what there is.
    """
    if nbytes >= _MOST:
        return 0  # the C call would take a size modulo 2**64
    extra = _HUGE if nbytes >= _HUGE else 0
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (0 if reserve else _NO_RESERVE)
    start = _libc.mmap(None, nbytes + extra, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if start is None or start == ctypes.c_void_p(-1).value:
        return 0
    if extra:
        address = (start + _HUGE - 1) & -_HUGE
        head, tail = address - start, extra - (address - start)
        if head:
            _libc.munmap(start, head)
        if tail:
            _libc.munmap(address + nbytes, tail)
        if _ADVISE_HUGE is not None:
            _libc.madvise(address, nbytes, _ADVISE_HUGE)
        return int(address)
    return int(start)


def unmap_pages(address: int, nbytes: int, munmap: Any = _libc.munmap) -> None:
    """Gives back what `map_pages` gave (or whole pages of it), at the interpreter's end too."""
    munmap(address, nbytes)


def drop_pages(address: int, nbytes: int) -> None:
    """Lets the system take the contents of whole pages; they read as zeros when next touched."""
    _libc.madvise(address, nbytes, mmap.MADV_DONTNEED)


def map_file(descriptor: int, nbytes: int) -> int:
    """The address of the first `nbytes` of an open file, shared with all who map it; raises OSError when that fails.

    The pages are there from the start where the system can do that: no faults at first touch.
    """
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    start = _libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    if start is None or start == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot map {nbytes} bytes of shared memory: {os.strerror(code)}")
    return int(start)

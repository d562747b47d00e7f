"""What `torch.serialization` lets a program choose for all files: checksums, the byte order of files that do not tell it, how files are mapped."""

from __future__ import annotations

import enum
import mmap
from typing import Any


class LoadEndianness(enum.Enum):
    """A byte order: this machine's, or one of the two."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Chosen:
    endianness: LoadEndianness | None = None
    crc32: bool = True
    mmap: int = mmap.MAP_PRIVATE


chosen = _Chosen()


def get_default_load_endianness() -> LoadEndianness | None:
    """What `set_default_load_endianness` was told; None, at first, is little."""
    return chosen.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """The byte order of archives that do not tell theirs.  Raises TypeError for anything else."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    chosen.endianness = endianness


def get_crc32_options() -> bool:
    """Whether `save` works out a checksum for each record."""
    return chosen.crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Whether `save` works out a checksum for each record.  Without, they are 0: `load` reads the files all the same, programs that unzip may not."""
    chosen.crc32 = bool(compute_crc32)


def get_default_mmap_options() -> int:
    """The flags with which ``load(mmap=True)`` maps files, `mmap.MAP_PRIVATE` at first."""
    return chosen.mmap


class set_default_mmap_options:
    """The flags with which ``load(mmap=True)`` maps files, from now on or for a ``with`` block: `mmap.MAP_PRIVATE`, or `mmap.MAP_SHARED`, with which
    what is written to loaded tensors is written to the file.  Raises ValueError for others."""

    def __init__(self, flags: int) -> None:
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError(f"Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, but got {flags}")
        self.prev, chosen.mmap = chosen.mmap, flags

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        chosen.mmap = self.prev


def is_shared() -> bool:
    """Whether files are mapped so that what is written goes to them."""
    return chosen.mmap == mmap.MAP_SHARED


def byte_order(native: str) -> bytes:
    """The byte order of an archive that does not tell it, where this machine's is `native`."""
    order = {None: "little", LoadEndianness.LITTLE: "little", LoadEndianness.BIG: "big", LoadEndianness.NATIVE: native}[chosen.endianness]
    return order.encode()

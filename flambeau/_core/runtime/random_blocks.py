"""Blocks of memory that are streams of random numbers in PyTorch's order (`kernels.mersenne`), each drawn from by one thread at a time."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import TYPE_CHECKING, Any

from ..kernels import mersenne

if TYPE_CHECKING:
    from collections.abc import Callable

_calls: dict[str, Callable[..., Any]] = {}
_blocks: weakref.WeakSet[Block] = weakref.WeakSet()
_Memory = ctypes.c_char * mersenne.BYTES
_Two = ctypes.c_uint32 * 2


def _call(name: str) -> Callable[..., Any]:
    if name not in _calls:
        from ..drivers.cpu import draws
        _calls.update(draws.stream())
    return _calls[name]


class Block:
    """A stream: `address` is what launches are given.  It lies where it lies for good."""

    __slots__ = ("_memory", "address", "__weakref__")

    def __init__(self, seed: int | None = None) -> None:
        self._memory = _Memory()
        self.address = ctypes.addressof(self._memory)
        if seed is not None:
            self.seed(seed)
        _blocks.add(self)

    def seed(self, number: int) -> None:
        _call("seed")(self.address, number)

    def long_word(self) -> int:
        """The next 64 bits."""
        room = _Two()
        _call("words")(ctypes.addressof(room), self.address, 2)
        return room[0] << 32 | room[1]

    def copy(self) -> Block:
        """A stream that goes on from here on its own."""
        other: Block = object.__new__(Block)  # not among those that a fork must free: nobody else draws from it yet
        memory = other._memory = _Memory()
        other.address = ctypes.addressof(memory)
        _call("copy")(other.address, self.address)
        return other

    def state(self) -> bytes:
        found = self.copy()  # which must live on while its memory is read
        return mersenne.state(found.address)

    def set_state(self, raw: bytes) -> None:
        """Raises RuntimeError for bytes that are no state; the stream then goes on as it was."""
        other = Block()
        mersenne.set_state(other.address, raw)
        self.become(other)

    def become(self, other: Block) -> None:
        """Goes on from where another stream is."""
        _call("copy")(self.address, other.address)


def _in_child() -> None:
    """Another thread of the parent may have been drawing."""
    for block in list(_blocks):
        ctypes.c_int32.from_address(block.address + mersenne.LOCK).value = 0


os.register_at_fork(after_in_child=_in_child)

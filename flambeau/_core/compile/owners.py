"""Whose the memory behind an address is: a storage's that lives, or the allocator's."""

from __future__ import annotations

import gc
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from ..tensor import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator


def instances(c: type) -> list[Any]:
    """The objects of a class and of those derived from it that Python's collector knows.

    Each refers to its class, and the collector looks for that at a tenth of the price of giving all objects to Python, of which a large program has
    millions.  Nothing is asked for a `__class__` of its own.
    """
    classes: list[Any] = [c]
    for found in classes:
        classes += [d for d in type.__subclasses__(found) if d not in classes]
    return [x for x in gc.get_referrers(*classes) if issubclass(type(x), c)]


class Living:
    """The storages that live now, or these, which it keeps alive: what is allocated later is new."""

    def __init__(self, those: list[Storage] | None = None) -> None:
        # those without memory, of the meta device and of traces, have no address
        found = [s for s in (instances(Storage) if those is None else those)
                 if type(s) is Storage and type(s.ptr) is int and s.ptr and s.meta.device.type != "meta"]
        found.sort(key=lambda s: (s.ptr, s.meta.nbytes))
        self._starts = [s.ptr for s in found]
        self._ends: list[int] = []  # the highest end of this storage and all that begin before it
        self._all = found
        end = 0
        for s in found:
            end = max(end, s.ptr + s.meta.nbytes)
            self._ends.append(end)

    def __iter__(self) -> Iterator[Storage]:
        return iter(self._all)

    def meets(self, s: Storage) -> bool:
        """Whether one of them has memory in common with this one."""
        i = bisect_left(self._starts, s.ptr + s.meta.nbytes)
        return i > 0 and self._ends[i - 1] > s.ptr

    def find(self, address: int) -> Storage | None:
        """The storage around an address; of those within one another the outermost that begins last."""
        i = bisect_right(self._starts, address) - 1
        while i >= 0 and self._ends[i] > address:
            s = self._all[i]
            if address < s.ptr + s.meta.nbytes:
                return s
            i -= 1
        # a storage without elements has an address too
        i = bisect_right(self._starts, address) - 1
        return self._all[i] if i >= 0 and self._starts[i] == address else None

"""Versions of storages that are known again wherever they are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..tensor import Storage


class Version(int):
    """A version of the storage `of`, which equals the number that it is: a node that keeps it says so by its class."""

    of: Storage

    def __new__(cls, value: int, of: Storage) -> Version:
        made = super().__new__(cls, value)
        made.of = of
        return made

    def __add__(self, other: Any) -> Any:
        return Version(int(self) + other, self.of)

    def __pos__(self) -> Version:  # as it is saved
        return self


class Marked:
    """Storages whose versions are `Version`s until they are `released`.  lost: whether somebody replaced one by a plain number."""

    def __init__(self) -> None:
        self._stores: dict[int, Storage] = {}
        self.lost = False

    def mark(self, s: Storage) -> None:
        if id(s) not in self._stores and s.version >= 0:  # no node keeps inference tensors
            self._stores[id(s)] = s
            s.version = Version(s.version, s)

    def __contains__(self, s: Storage) -> bool:
        return id(s) in self._stores

    def release(self) -> None:
        for s in self._stores.values():
            self.lost = self.lost or type(s.version) is not Version
            s.version = int(s.version)

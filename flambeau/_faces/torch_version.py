"""A version that compares with strings and tuples as versions do (torch.torch_version)."""

from __future__ import annotations

import re
from typing import Any

_FORM = re.compile(r"\s*v?(\d+(?:\.\d+)*)[-_.]?([a-z]*)[-_.]?(\d*)[^+]*(?:\+(.*))?$", re.IGNORECASE)
_EARLY = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "rc": -1, "c": -1, "pre": -1, "preview": -1}

Key = tuple[tuple[int, ...], tuple[int, int], str]


def _key(version: Any) -> Key | None:
    """What versions are ordered by: the release, how far before it, the local part; None for what is no version."""
    if isinstance(version, (tuple, list)) and version and all(isinstance(p, (int, str)) for p in version):
        version = ".".join(map(str, version))
    found = _FORM.match(version) if isinstance(version, str) else None
    if found is None:
        return None
    release = [int(p) for p in found[1].split(".")]
    while len(release) > 1 and not release[-1]:
        release.pop()
    return tuple(release), (_EARLY.get(found[2].lower(), 0), int(found[3] or 0)), found[4] or ""


class TorchVersion(str):
    """A string whose order is that of versions: "2.13.0" is later than "2.9" and than (2, 9), and equals "2.13".

    A local part makes it later than the release alone.  Beside what is no version it is a plain string.
    """

    __slots__ = ()

    def _keys(self, other: Any) -> tuple[Any, Any]:
        mine, theirs = _key(str(self)), _key(other)
        return (str(self), other) if mine is None or theirs is None else (mine, theirs)

    def __lt__(self, other: Any) -> bool:
        mine, theirs = self._keys(other)
        return bool(mine < theirs)

    def __le__(self, other: Any) -> bool:
        mine, theirs = self._keys(other)
        return bool(mine <= theirs)

    def __gt__(self, other: Any) -> bool:
        mine, theirs = self._keys(other)
        return bool(mine > theirs)

    def __ge__(self, other: Any) -> bool:
        mine, theirs = self._keys(other)
        return bool(mine >= theirs)

    def __eq__(self, other: object) -> bool:
        mine, theirs = self._keys(other)
        return bool(mine == theirs)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


__all__ = ["TorchVersion"]

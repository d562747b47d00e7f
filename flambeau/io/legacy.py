"""PyTorch's format before 1.6: several pickles after each other, then the storages' bytes.

    a magic number, the version 1001, a description of the machine, the object, the storages' names     each a pickle
    for each storage: its number of elements, 8 bytes, then the elements

The object is read twice: once for where it ends and which storages it names, once with their places known.  What is read,
and what is refused, is what `io.unpickler` reads and refuses.
"""

from __future__ import annotations

from typing import IO, Any

from .._core.errors import FileFormatError
from .._core.ops.storages import UntypedStorage
from .archive import fill
from .names import STORAGES, Named
from .unpickler import Survey, Unpickler

START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the first pickle: the magic number
_VERSION = 1001


class Records:
    """The storages of an old file as an archive's records: "data/<name>"."""

    def __init__(self, stream: IO[bytes], base: int, where: str, data: bytes) -> None:
        self.stream, self.base, self.where = stream, base, where
        self.records: dict[str, tuple[int, int]] = {}
        version, at = self._plain(data, len(START))
        if version != _VERSION or type(version) is not int:
            raise self.fail("its version is not 1001")
        system, at = self._plain(data, at)
        if type(system) is not dict or system.get("little_endian") is not True:
            raise self.fail("it was not written on a little-endian machine")
        self.begin = at
        survey = _Storages(data, {}, at)
        survey.load()
        keys, at = self._plain(data, survey.at)
        if type(keys) is not list or not all(type(k) is str and k in survey.sizes for k in keys) or len(set(keys)) != len(keys):
            raise self.fail("its list of storages is not that of its object")
        for key in keys:
            size = int.from_bytes(data[at:at + 8], "little") * survey.sizes[key]
            at += 8
            if at + size > len(data):
                raise self.fail(f"storage {key[:60]!r} reaches past its end")
            self.records[f"data/{key}"] = (base + at, size)
            at += size

    def fail(self, what: str) -> FileFormatError:
        return FileFormatError(f"load: {self.where} is corrupt or cut off: {what}")

    def _plain(self, data: bytes, start: int) -> tuple[Any, int]:
        """A pickle of numbers and names, and where it ends."""
        reader = Unpickler(data, lambda pid: None, {}, start)
        return reader.load(), reader.at

    def read(self, name: str) -> bytes:
        raise self.fail(f"there is no record {name[:60]!r} in it")

    def read_into(self, name: str, space: memoryview) -> None:
        """The first bytes of a storage, as many as `space` holds."""
        self.stream.seek(self.records[name][0])
        fill(self.stream, space, lambda: self.fail("it became shorter while it was read"))


class _Storages(Survey):
    """Finds the storages that an object names, and the size of their elements."""

    def __init__(self, data: bytes, allowed: dict[tuple[str, str], Any], start: int) -> None:
        super().__init__(data, allowed, start)
        self.sizes: dict[str, int] = {}
        self.persistent = self._note

    def named(self, module: str, name: str) -> None:
        self.stack.append(Named(module, name))

    def _note(self, pid: Any) -> None:
        if type(pid) is not tuple or len(pid) not in (5, 6) or type(pid[1]) is not Named or type(pid[2]) is not str:
            raise self.fail("a persistent id means no storage")
        if len(pid) == 6 and pid[5] is not None:
            raise self.fail("a storage is a view of another, as PyTorch wrote before 0.4")
        kind = pid[1].name
        if kind not in STORAGES and kind != UntypedStorage.__name__:
            raise self.fail(f"a storage is of the type {kind[:60]}")
        size = STORAGES[kind].itemsize if kind in STORAGES else 1
        if self.sizes.setdefault(pid[2], size) != size:
            raise self.fail(f"storage {pid[2][:60]!r} has elements of two types")

"""The zip archives of PyTorch's files, read and written record by record.

All records are stored, never compressed, and begin at multiples of 64 bytes, so that a file can be mapped and used where it
lies.  Reading trusts nothing: the directory is the standard library's to parse; every record's place, size and name is
then checked against the file and against the other records before a byte of it is used.

Format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
"""

from __future__ import annotations

import struct
import zlib
from typing import IO, TYPE_CHECKING, Any

from .._core.errors import FileFormatError
from .options import chosen

if TYPE_CHECKING:
    from collections.abc import Callable

ALIGNMENT = 64
MAGIC = b"PK\x03\x04"
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_FULL = 0xFFFFFFFF  # "see the 64-bit field"
_UTF8 = 0x800
_EPOCH = 0x21  # 1 January 1980: files of the same content are the same


class Writer:
    """Writes an archive to something with `write`, front to back, without seeking."""

    def __init__(self, write: Callable[[Any], Any], folder: str = "archive") -> None:
        self._write_some = write
        self._folder = folder
        self._at = 0
        self._rows: list[bytes] = []

    def _write(self, data: Any) -> None:
        rest = memoryview(data)
        while rest:
            done = self._write_some(rest)
            if type(done) is not int or done >= len(rest):  # buffered streams and most others take all
                done = len(rest)
            self._at += done
            rest = rest[done:]

    def add(self, name: str, data: Any) -> int:
        """Adds one record; gives its checksum."""
        data = memoryview(data).cast("B") if len(data) else memoryview(b"")
        size, start = len(data), self._at
        path = f"{self._folder}/{name}".encode()
        check = zlib.crc32(data) if chosen.crc32 else 0
        wide = struct.pack("<2H2Q", 1, 16, size, size) if size >= _FULL else b""
        short = _FULL if wide else size
        padding = -(start + _LOCAL.size + len(path) + len(wide) + 4) % ALIGNMENT
        extra = wide + struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        version = 45 if wide else 20
        self._write(_LOCAL.pack(MAGIC, version, _UTF8, 0, 0, _EPOCH, check, short, short, len(path), len(extra)) + path + extra)
        self._write(data)
        far = [size, size] if wide else []
        if start >= _FULL:
            far.append(start)
        row_extra = struct.pack(f"<2H{len(far)}Q", 1, 8 * len(far), *far) if far else b""
        self._rows.append(_CENTRAL.pack(b"PK\x01\x02", 45, 45 if far else 20, _UTF8, 0, 0, _EPOCH, check, short, short, len(path), len(row_extra),
                                        0, 0, 0, 0, min(start, _FULL)) + path + row_extra)
        return check

    def close(self) -> None:
        """Writes the directory, which ends the archive."""
        start = self._at
        for row in self._rows:
            self._write(row)
        size, count = self._at - start, len(self._rows)
        end = self._at
        if start >= _FULL or size >= _FULL or count >= 0xFFFF:
            self._write(struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start)
                        + struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1))
        self._write(struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF), min(size, _FULL), min(start, _FULL), 0))


class Reader:
    """The records of an archive that fills `stream` from `base` to its end: names without their folder, sizes and places.

    Raises FileFormatError for whatever does not fit.
    """

    def __init__(self, stream: IO[bytes], base: int, where: str) -> None:
        self.stream, self.base, self.where = stream, base, where
        self.records: dict[str, tuple[int, int]] = {}  # name: (place of its bytes in the stream, size)
        infos, limit = self._directory()
        end, folder = base, ""
        for info in sorted(infos, key=lambda i: i.header_offset):
            if info.header_offset != end and not self.records:
                raise self.fail("bytes stand before its first record")
            name, start, stop = self._record(info, end, limit)
            top, _, rest = name.partition("/")
            if self.records and top != folder:
                raise self.fail(f"its records lie in two folders, {folder!r:.80} and {top!r:.80}")
            if rest in self.records:
                raise self.fail(f"record {rest!r:.80} is in it twice")
            folder, end = top, stop
            self.records[rest] = (start, info.file_size)

    def fail(self, what: str) -> FileFormatError:
        """The error of a file that does not fit."""
        return FileFormatError(f"load: {self.where} is corrupt: {what}")

    def _directory(self) -> tuple[list[Any], int]:
        import zipfile

        try:
            # not closed: the stream is the caller's, and the object holds nothing else
            archive = zipfile.ZipFile(self.stream)
            return archive.infolist(), archive.start_dir
        except (zipfile.BadZipFile, NotImplementedError, struct.error, ValueError, OverflowError, OSError, EOFError, IndexError) as error:
            if isinstance(error, OSError) and error.errno not in (None, 22):  # not what a wrong offset makes: the disk's own
                raise
            raise FileFormatError(f"load: {self.where} is corrupt or cut off: its zip directory cannot be read ({str(error):.200})") from None

    def _record(self, info: Any, after: int, limit: int) -> tuple[str, int, int]:
        """(name, place of the bytes, end) of a record that must lie between two places of the stream."""
        name = info.filename
        parts = name.split("/")
        if info.orig_filename != name or "\\" in name or ":" in name or len(parts) < 2 or any(p in ("", ".", "..") for p in parts):
            raise self.fail(f"{info.orig_filename!r:.80} is no name of a record")
        if info.flag_bits & 1:
            raise self.fail(f"record {name!r:.80} is encrypted")
        if info.compress_type != 0 or info.compress_size != info.file_size:
            raise self.fail(f"record {name!r:.80} is compressed; PyTorch's files hold their records as they are")
        at = info.header_offset
        if at < after:
            raise self.fail(f"record {name!r:.80} overlaps the one before it")
        if at + _LOCAL.size > limit:
            raise self.fail(f"record {name!r:.80} lies past the records' end")
        self.stream.seek(at)
        header = self.stream.read(_LOCAL.size)
        if len(header) < _LOCAL.size or header[:4] != MAGIC:
            raise self.fail(f"record {name!r:.80} does not begin where the directory says")
        fields = _LOCAL.unpack(header)
        path = self.stream.read(fields[9])
        try:
            same = path.decode("utf-8" if fields[2] & _UTF8 else "cp437") == name
        except UnicodeDecodeError:
            same = False
        if not same:
            raise self.fail(f"record {name!r:.80} has another name in its own header")
        start = at + _LOCAL.size + fields[9] + fields[10]
        if start + info.file_size > limit:
            raise self.fail(f"record {name!r:.80} of {info.file_size} bytes reaches past the records' end")
        return name, start, start + info.file_size

    def read(self, name: str) -> bytes:
        """A whole record."""
        start, size = self._place(name)
        self.stream.seek(start)
        data = self.stream.read(size)
        if len(data) != size:
            raise self.fail(f"it ends inside record {name!r:.80}")
        return data

    def read_into(self, name: str, space: memoryview) -> None:
        """The first bytes of a record, as many as `space` holds."""
        start, size = self._place(name)
        if len(space) > size:
            raise self.fail(f"record {name!r:.80} has {size} bytes, where {len(space)} are wanted")
        self.stream.seek(start)
        fill(self.stream, space, lambda: self.fail(f"it ends inside record {name!r:.80}"))

    def _place(self, name: str) -> tuple[int, int]:
        found = self.records.get(name)
        if found is None:
            raise self.fail(f"there is no record {name!r:.80} in it")
        return found


def fill(stream: IO[bytes], space: memoryview, failure: Callable[[], Exception]) -> None:
    """Fills `space` from a stream; raises what `failure` gives when the stream ends before."""
    into = getattr(stream, "readinto", None)
    while space:
        if into is not None:
            done = into(space) or 0
        else:
            piece = stream.read(len(space))
            done = len(piece)
            space[:done] = piece
        if not done:
            raise failure()
        space = space[done:]

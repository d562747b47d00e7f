"""Zip archives made to harm: names, doubles, overlaps, bombs, wrong places."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

import flambeau
from flambeau._core.errors import FileFormatError
from flambeau.io.archive import Reader, Writer


def _saved(value=None):
    stream = io.BytesIO()
    flambeau.save({"a": flambeau.ones(8)} if value is None else value, stream)
    return stream.getvalue()


def _records(data):
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return {name: z.read(name) for name in z.namelist()}


def _zipped(records, **options):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", **options) as z:
        for name, data in records:
            z.writestr(name, data)
    return stream.getvalue()


def _refused(data, text, tmp_path):
    path = tmp_path / "a.pt"
    path.write_bytes(data)
    for read in (lambda: flambeau.load(io.BytesIO(data)), lambda: flambeau.load(path), lambda: flambeau.load(path, mmap=True),
                 lambda: flambeau.load(io.BytesIO(data), weights_only=False)):
        with pytest.raises(FileFormatError, match=text):
            read()


def test_an_archive_of_another_zip_program_is_read():
    rows = _records(_saved()).items()
    assert flambeau.load(io.BytesIO(_zipped(rows)))["a"].tolist() == [1.0] * 8
    assert flambeau.load(io.BytesIO(_zipped([(name.replace("archive", "another name", 1), data) for name, data in rows])))["a"].sum() == 8


@pytest.mark.parametrize("name", ["archive/../../etc/passwd", "/archive/x", "archive//x", "archive/./x", "C:/archive/x", "archive\\x", "..", "x", ""])
def test_tricks_with_paths(name, tmp_path):
    rows = [*_records(_saved()).items(), (name or "archive/", b"x")]
    _refused(_zipped(rows), "is no name of a record", tmp_path)


def test_a_name_cut_by_a_zero_byte(tmp_path):
    data = _saved().replace(b"archive/version", b"archive/ver\0ion")
    _refused(data, "is no name of a record", tmp_path)


def test_doubles(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        data = _zipped([*_records(_saved()).items(), ("archive/data/0", b"\0" * 32)])
    _refused(data, "record 'data/0' is in it twice", tmp_path)


def test_two_folders(tmp_path):
    _refused(_zipped([*_records(_saved()).items(), ("other/data/0", b"\0" * 32)]), "two folders", tmp_path)


def test_zip_bombs(tmp_path):
    rows = _records(_saved({"a": flambeau.zeros(1 << 20)})).items()
    data = _zipped(rows, compression=zipfile.ZIP_DEFLATED)
    assert len(data) < 1 << 18
    _refused(data, "is compressed", tmp_path)
    _refused(_zipped(rows, compression=zipfile.ZIP_LZMA), "is compressed", tmp_path)


def _central(data):
    """The places of the directory's rows."""
    at, found = struct.unpack_from("<I", data, len(data) - 6)[0], []
    while data[at:at + 4] == b"PK\x01\x02":
        found.append(at)
        at += 46 + sum(struct.unpack_from("<3H", data, at + 28))
    return found


def test_records_that_overlap(tmp_path):
    data = bytearray(_saved([flambeau.ones(8), flambeau.zeros(8)]))
    rows = _central(data)
    first, second = (next(r for r in rows if data[r + 46:].startswith(name)) for name in (b"archive/data/0", b"archive/data/1"))
    data[second + 42:second + 46] = data[first + 42:first + 46]
    _refused(bytes(data), "overlaps the one before it|twice", tmp_path)


@pytest.mark.parametrize("at,form,value,text", [
    (24, "<I", 1 << 30, "is compressed|past the records' end"), (42, "<I", 1 << 20, "past the records' end"), (42, "<I", 1, "overlaps|begin|before"),
    (8, "<H", 1, "encrypted|no name|another name"), (10, "<H", 8, "compressed"), (28, "<H", 3, "cut off|no name|name"),
])
def test_rows_that_lie(at, form, value, text, tmp_path):
    data = bytearray(_saved())
    struct.pack_into(form, data, _central(data)[2] + at, value)
    _refused(bytes(data), text, tmp_path)


def test_a_record_that_claims_more_than_there_is(tmp_path):
    data = bytearray(_saved())
    row = _central(data)[-1]
    struct.pack_into("<2I", data, row + 20, 0x7FFFFFF0, 0x7FFFFFF0)
    _refused(bytes(data), "reaches past", tmp_path)


def test_bytes_before_the_archive_and_after(tmp_path):
    with pytest.raises(FileFormatError, match="neither a file of PyTorch's"):
        flambeau.load(io.BytesIO(b"MZ" + _saved()))
    row = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, 1, 0) + b"x"
    _refused(row + _saved(), "before its first record", tmp_path)
    with pytest.raises(FileFormatError, match="is a zip archive, but not one of PyTorch's"):
        flambeau.load(io.BytesIO(_saved() + b"PK\x05\x06" + b"\0" * 18))


def test_the_local_header_must_agree(tmp_path):
    data = _saved()
    at = data.index(b"archive/data/0")
    _refused(data[:at] + b"archive/data/9" + data[at + 14:], "another name in its own header", tmp_path)
    _refused(data[:at - 30] + b"PK\x03\x05" + data[at - 26:], "does not begin where", tmp_path)


def test_other_archives(tmp_path):
    _refused(_zipped([("archive/x", b"")]), "not one of PyTorch's", tmp_path)
    _refused(_zipped([("archive/constants.pkl", b""), ("archive/code/a.py", b"")]), "TorchScript", tmp_path)
    _refused(b"PK\x05\x06" + b"\0" * 18, "neither", tmp_path)
    rows = {k: v for k, v in _records(_saved()).items() if not k.endswith("data/0")}
    _refused(_zipped(rows.items()), "wants 32 bytes, and it is not there", tmp_path)


@pytest.mark.slow
def test_archives_past_four_gibibytes(tmp_path):
    """Sizes and places then stand in 64-bit fields; the file has holes, so that it takes no room."""
    size = (1 << 32) + 64
    path = tmp_path / "big.pt"
    with open(path, "wb") as stream:
        def write(piece):
            if len(piece) > 1 << 20:
                stream.seek(len(piece), 1)
            else:
                stream.write(piece)

        out = Writer(write)
        out.add("data.pkl", b"abc")
        out.add("data/0", np.zeros(size, np.uint8))
        out.add("data/1", b"behind")
        out.close()
    with zipfile.ZipFile(path) as z:
        assert z.read("archive/data/1") == b"behind" and z.getinfo("archive/data/0").file_size == size
        assert z.getinfo("archive/data/1").header_offset > 1 << 32
    with open(path, "rb") as stream:
        found = Reader(stream, 0, "it")
        assert found.read("data/1") == b"behind" and found.records["data/0"][1] == size
        assert all(start % 64 == 0 for start, _ in found.records.values())


def test_more_records_than_sixteen_bits_count():
    stream = io.BytesIO()
    out = Writer(stream.write)
    for n in range(66000):
        out.add(f"data/{n}", b"x")
    out.close()
    assert len(Reader(stream, 0, "it").records) == 66000


def test_reader_gives_names_without_their_folder():
    data = _saved()
    found = Reader(io.BytesIO(data), 0, "it").records
    assert "data.pkl" in found and found["data/0"][1] == 32 and found["data/0"][0] % 64 == 0

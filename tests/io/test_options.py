"""What a program chooses for all files (torch.serialization)."""

from __future__ import annotations

import io
import mmap
import types
import zipfile
from pathlib import Path

import pytest

import flambeau as torch
from flambeau import serialization


def _without_order(data: bytes) -> io.BytesIO:
    """The same archive without the record that tells its byte order."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if not name.endswith("byteorder"):
                new.writestr(name, old.read(name))
    out.seek(0)
    return out


def test_the_byte_order_of_files_that_do_not_tell() -> None:
    buffer = io.BytesIO()
    torch.save(torch.tensor([1, 256], dtype=torch.int16), buffer)
    assert serialization.get_default_load_endianness() is None
    try:
        for order, found in ((serialization.LoadEndianness.BIG, [256, 1]), (serialization.LoadEndianness.LITTLE, [1, 256]),
                             (serialization.LoadEndianness.NATIVE, [1, 256]), (None, [1, 256])):
            serialization.set_default_load_endianness(order)
            assert serialization.get_default_load_endianness() is order
            assert torch.load(_without_order(buffer.getvalue())).tolist() == found
            assert torch.load(io.BytesIO(buffer.getvalue())).tolist() == [1, 256]  # it tells
    finally:
        serialization.set_default_load_endianness(None)
    with pytest.raises(TypeError, match="Invalid argument type"):
        serialization.set_default_load_endianness("big")


def test_files_without_checksums() -> None:
    x, whole, bare = torch.arange(5.0), io.BytesIO(), io.BytesIO()
    assert serialization.get_crc32_options() is True
    torch.save(x, whole)
    serialization.set_crc32_options(False)
    try:
        torch.save(x, bare)
    finally:
        serialization.set_crc32_options(True)
    assert {i.CRC for i in zipfile.ZipFile(bare).infolist()} == {0} != {i.CRC for i in zipfile.ZipFile(whole).infolist()}
    bare.seek(0)
    assert torch.load(bare).tolist() == x.tolist()


def test_files_that_are_mapped_and_written_to(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pt")
    torch.save(torch.zeros(4), path)
    assert serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    torch.load(path, mmap=True).fill_(3)
    assert torch.load(path).tolist() == [0] * 4
    with serialization.set_default_mmap_options(mmap.MAP_SHARED):
        assert serialization.get_default_mmap_options() == mmap.MAP_SHARED
        torch.load(path, mmap=True).fill_(3)
    assert torch.load(path).tolist() == [3] * 4 and serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    with pytest.raises(ValueError, match="MAP_PRIVATE or mmap.MAP_SHARED"):
        serialization.set_default_mmap_options(77)


def test_names_for_what_files_hold() -> None:
    assert serialization.StorageType("LongStorage").dtype is torch.int64 and "torch.int64" in str(serialization.StorageType("LongStorage"))
    with pytest.raises(KeyError):
        serialization.StorageType("NoStorage")
    assert issubclass(serialization.SourceChangeWarning, Warning)
    module = types.ModuleType("thing")
    module.__version__ = "2.10.1"  # type: ignore[attr-defined]
    assert serialization.check_module_version_greater_or_equal(module, (2, 9, 5))
    assert not serialization.check_module_version_greater_or_equal(module, (3, 0))
    module.__version__ = "new"  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="malformed"):
        serialization.check_module_version_greater_or_equal(module, (2, 0))
    with pytest.warns(UserWarning, match="malformed"):
        assert serialization.check_module_version_greater_or_equal(module, (2, 0), error_if_malformed=False)

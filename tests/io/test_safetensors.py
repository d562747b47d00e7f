"""safetensors: round trips, the shape of the format's own functions, lazy reading, corrupt files."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest

import flambeau
from flambeau._core.errors import FileFormatError
from flambeau.io import safetensors
from flambeau.io.safetensors import load, load_file, safe_open, save, save_file
from tests import processes

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool", "complex64"]


@pytest.fixture(params=["package", "alone"], autouse=True)
def reader(request, monkeypatch):
    """With the format's own package, and without it."""
    if request.param == "alone":
        monkeypatch.setitem(sys.modules, "safetensors", None)
    else:
        pytest.importorskip("safetensors")
    return request.param


def _tensors():
    return {name: (flambeau.arange(6) % 2).reshape(2, 3).to(getattr(flambeau, name)) for name in DTYPES} | {
        "zero": flambeau.zeros(2, 0), "scalar": flambeau.tensor(2.5), "turned": flambeau.arange(6.0).reshape(2, 3).t()}


def test_round_trips_by_every_way(tmp_path):
    path = tmp_path / "a.safetensors"
    tensors = _tensors()
    save_file(tensors, path, {"format": "pt"})
    assert save(tensors, {"format": "pt"}) == path.read_bytes()
    with safe_open(path) as opened:
        lazily = {name: opened.get_tensor(name) for name in opened.keys()}
        assert opened.metadata() == {"format": "pt"} and set(opened.offset_keys()) == set(tensors)
    for back in (load_file(path), load_file(str(path)), load_file(path, backend="pread"), flambeau.load(path), load(path.read_bytes()), lazily):
        assert set(back) == set(tensors)
        for name, t in tensors.items():
            assert back[name].dtype is t.dtype and back[name].shape == t.shape and back[name].is_contiguous()
            assert (back[name].to(flambeau.complex128) == t.to(flambeau.complex128)).all(), name


def test_the_package_reads_what_we_write(tmp_path, reader):
    if reader == "alone":
        pytest.skip("the package is hidden")
    import safetensors as package
    path = tmp_path / "a.safetensors"
    save_file(_tensors(), path)
    with package.safe_open(path, framework="numpy") as opened:
        assert set(opened.keys()) == set(_tensors())
        np.testing.assert_array_equal(opened.get_tensor("turned"), np.arange(6, dtype=np.float32).reshape(2, 3).T)
        assert opened.get_tensor("zero").shape == (2, 0)
    raw = path.read_bytes()
    header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
    assert (8 + int.from_bytes(raw[:8], "little")) % 8 == 0
    assert all(row["data_offsets"][0] % max(1, getattr(flambeau, name, flambeau.float32).itemsize) == 0 for name, row in header.items() if name in DTYPES)


def test_reading_on_devices(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"a": flambeau.arange(6.0)}, path)
    with flambeau.simulate(gpus=2):
        assert str(load_file(path, device="cuda:1")["a"].device) == "cuda:1"
        with safe_open(path, device=1) as opened:
            assert str(opened.get_tensor("a").device) == "cuda:1" and opened.get_slice("a")[1:3].tolist() == [1.0, 2.0]
        save_file({"b": flambeau.ones(3, device="cuda")}, path)
        assert flambeau.load(path, map_location="cuda:1")["b"].device.index == 1
    assert load_file(path)["b"].tolist() == [1.0] * 3


def test_slices_read_what_is_asked_for(tmp_path):
    path = tmp_path / "a.safetensors"
    t = flambeau.arange(12, dtype=flambeau.int32).reshape(3, 4)
    save_file({"a": t}, path)
    with safe_open(path) as opened:
        part = opened.get_slice("a")
        assert part.get_shape() == [3, 4] and part.get_dtype() == "I32"
        taken = part[:, 1:3]
        assert taken.tolist() == t[:, 1:3].tolist() and part[1].tolist() == t[1].tolist()
        whole = opened.get_tensor("a")
        whole.fill_(0)
        assert opened.get_tensor("a").tolist() == t.tolist()  # a copy
        with pytest.raises(FileFormatError, match="has no tensor 'b'"):
            opened.get_tensor("b")
    with pytest.raises(FileFormatError, match="is closed"):
        opened.get_tensor("a")
    assert taken.tolist() == t[:, 1:3].tolist()
    with pytest.raises(ValueError, match="framework must be"):
        safe_open(path, framework="tf")


def test_mapped_files_stay_as_they_are(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"a": flambeau.arange(6.0)}, path)
    before = path.read_bytes()
    found = load_file(path, backend="mmap")["a"]
    found.fill_(9)
    save_file({"a": flambeau.zeros(3)}, path)
    assert found.tolist() == [9.0] * 6 and load_file(path)["a"].tolist() == [0.0] * 3
    path.write_bytes(before)
    assert load_file(path)["a"].tolist() == list(range(6))
    with pytest.raises(ValueError, match="backend must be"):
        load_file(path, backend="x")


def test_what_cannot_be_written(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"a": flambeau.ones(1)}, path)
    with pytest.raises(TypeError, match="names must be strings"):
        save_file({3: flambeau.ones(1)}, path)
    with pytest.raises(ValueError, match="expected a dict"):
        save_file([flambeau.ones(1)], path)
    with pytest.raises(ValueError, match="must be a tensor"):
        save_file({"a": 1}, path)
    with pytest.raises(TypeError, match="have no place in the format"):
        save_file({"a": flambeau.ones(1, dtype=flambeau.complex128)}, path)
    assert load_file(path)["a"].tolist() == [1.0]


def _file(header, data=b"", pad=0):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) + pad).to_bytes(8, "little") + text + data


def _row(**changes):
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


CORRUPT = [
    (b"", "empty or cut off"),
    (_file({}, pad=9), "announces a header"),
    (b"\xff" * 8, "announces a header"),
    (_file(b"{nothing}"), "its header cannot be read"),
    (_file(b"[" * 100000), "its header cannot be read"),
    (_file(b'{"a":' * 100000), "its header cannot be read"),
    (_file(b'{"a":1,"a":2}'), "stands in the header twice"),
    (_file('{"a": 1}'.encode("utf-16")), "its header cannot be read"),
    (_file([]), "must be a JSON object"),
    (_file({"__metadata__": {"a": 1}}), "__metadata__ must map strings to strings"),
    (_file({"a": 3}), "must have dtype, shape and data_offsets"),
    (_file({"a": _row(dtype="F31")}, b"0" * 8), "has the type 'F31'"),
    (_file({"a": _row(shape=[-2])}, b"0" * 8), "which is no list of at most 64 sizes"),
    (_file({"a": _row(shape=[1] * 65)}, b"0" * 8), "which is no list of at most 64 sizes"),
    (_file({"a": _row(shape=[True, 2])}, b"0" * 8), "which is no list of at most 64 sizes"),
    (_file({"a": _row(data_offsets=[0, 9])}, b"0" * 9), "takes 8 bytes, but its offsets"),
    (_file({"a": _row(data_offsets=[8, 0])}, b"0" * 8), "which are no"),
    (_file({"a": _row(shape=[2**62, 2**62])}, b"0" * 8), "takes"),
    (_file({"a": _row(shape=[10**4000, 10**4000])}, b"0" * 8), "takes"),
    (_file({"a": _row(), "b": _row()}, b"0" * 8), "begin at 0, but those before it end at 8"),
    (_file({"a": _row(data_offsets=[4, 12])}, b"0" * 12), "begin at 4"),
    (_file({"a": _row()}, b"0" * 7), "is cut off"),
    (_file({"a": _row()}, b"0" * 9), "bytes follow the last tensor"),
]


@pytest.mark.parametrize("data,text", CORRUPT)
def test_corrupt_files(data, text, tmp_path):
    with pytest.raises(FileFormatError, match=text):
        load(data)
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    for read in (load_file, safe_open, flambeau.load):
        with pytest.raises(FileFormatError):
            read(path)


def test_the_header_is_bounded():
    big = (safetensors.MOST_HEADER + 1).to_bytes(8, "little") + b"{"
    with pytest.raises(FileFormatError, match="announces a header"):
        load(big)
    with pytest.raises(FileFormatError):
        flambeau.load(io.BytesIO(big))


def test_every_truncation_is_noticed(tmp_path):
    whole = save({"a": flambeau.ones(3), "b": flambeau.zeros(2, dtype=flambeau.int64)})
    path = tmp_path / "a.safetensors"
    for n in range(len(whole)):
        with pytest.raises(FileFormatError):
            load(whole[:n])
        path.write_bytes(whole[:n])
        with pytest.raises(FileFormatError):
            load_file(path)


def test_a_file_that_is_cut_while_its_tensors_are_in_use_ends_nothing(tmp_path):
    """Unless it was to be mapped: the guide says so."""
    processes.says(f"""
import os
from flambeau.io.safetensors import load_file, safe_open, save_file
from flambeau.errors import FileFormatError
path = {str(tmp_path / "a.safetensors")!r}
save_file({{"a": torch.arange(100_000.0), "b": torch.arange(50_000.0).reshape(50, 1000)}}, path)
tensors = load_file(path)
opened = safe_open(path)
part = opened.get_slice("b")
assert part[3, 5:7].tolist() == [3005.0, 3006.0]
os.truncate(path, 1000)
assert tensors["a"][-1] == 99_999 and tensors["b"].sum() == 49_999 * 25_000
for read in (lambda: opened.get_tensor("a"), lambda: part[-1], lambda: part[:, 999]):
    try:
        read()
    except FileFormatError as error:
        assert "became shorter" in str(error)
    else:
        raise SystemExit("it was read")
""")


@pytest.mark.parametrize("at", [..., 0, -1, (slice(None), 3), (slice(1, 4), slice(2, 9, 3)), (slice(None, None, 2), 1), slice(0, 0), (None, 2, slice(5, 6)),
                                ([0, 2], slice(3)), (slice(None), slice(0, 100, 7)), (slice(3, 5), ..., 0)], ids=str)
def test_slices_are_the_elements_that_indexing_gives(at, tmp_path):
    path = tmp_path / "a.safetensors"
    for shape in ((6, 100, 3), (200, 100)):
        t = flambeau.arange(flambeau.Size(shape).numel(), dtype=flambeau.int16).reshape(shape)
        save_file({"x": flambeau.ones(3, dtype=flambeau.uint8), "a": t}, path)
        with safe_open(path) as opened:
            got = opened.get_slice("a")[at]
        assert got.shape == t[at].shape and got.tolist() == t[at].tolist()

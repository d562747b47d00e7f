"""save and load: round trips, places, and files from strangers."""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest

import flambeau
from flambeau import nn, optim, serialization

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
          "complex128"]


def _round_trip(value, **options):
    stream = io.BytesIO()
    flambeau.save(value, stream)
    stream.seek(0)
    return flambeau.load(stream, **options)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_tensors(name, shape):
    dtype = getattr(flambeau, name)
    n = int(np.prod(shape))
    t = (flambeau.arange(n) % 2).reshape(shape).to(dtype)
    back = _round_trip(t)
    assert back.dtype is dtype and tuple(back.shape) == shape
    assert back.to(flambeau.complex128).tolist() == t.to(flambeau.complex128).tolist()


def test_special_numbers_and_strided_tensors():
    t = flambeau.tensor([[1.0, float("nan"), float("inf")], [-0.0, -float("inf"), 1e-45]]).t()
    back = _round_trip(t)
    np.testing.assert_array_equal(back.numpy().view(np.uint32), np.ascontiguousarray(t.numpy()).view(np.uint32))


def test_containers():
    value = {"list": [1, 2.5, None, True, "x", -3], "tuple": (1, (2,)), 5: "five", (1, 2): {3}, "inf": float("inf"),
             "complex": 1 - 2j, "bytes": b"\x00\xff", "dtype": flambeau.float16, "size": flambeau.Size([1, 2]),
             "device": flambeau.device("cuda:1"), "range": range(1, 9, 2), "slice": slice(None,
                                                                                          3), "frozen": frozenset([1]),
             "args": argparse.Namespace(lr=0.1), "counter": Counter("aab"), "big": 10**30}
    back = _round_trip(value)
    assert back == value
    assert list(back) == list(value) and type(back["size"]) is flambeau.Size and back["list"][3] is True
    assert isinstance(back["list"][1], float) and isinstance(back["list"][0], int)
    assert np.isnan(_round_trip([float("nan")])[0])
    arrays = _round_trip({"a": np.arange(6).reshape(2, 3), "n": np.float32(1.5)})
    np.testing.assert_array_equal(arrays["a"], np.arange(6).reshape(2, 3))
    assert type(arrays["n"]) is np.float32 and arrays["n"] == 1.5


def test_model_and_optimizer_go_on_where_they_stopped():
    def made():
        net = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
        return net, optim.Adam(net.parameters(), lr=0.1)

    (one, opt1), (two, opt2) = made(), made()

    def step(net, optimizer):
        for p in net.parameters():
            p.grad = flambeau.full(p.shape, 0.5)
        optimizer.step()

    step(one, opt1)
    schedule = optim.lr_scheduler.MultiStepLR(opt1, [1, 2])
    saved = _round_trip({"model": one.state_dict(), "opt": opt1.state_dict(), "schedule": schedule.state_dict(),
                         "epoch": 3})
    assert type(saved["model"]) is OrderedDict and saved["model"]._metadata == one.state_dict()._metadata
    two.load_state_dict(saved["model"])
    opt2.load_state_dict(saved["opt"])
    optim.lr_scheduler.MultiStepLR(opt2, [5]).load_state_dict(saved["schedule"])
    step(one, opt1)
    step(two, opt2)
    for (name, p), q in zip(one.named_parameters(), two.parameters()):
        assert p.tolist() == q.tolist(), name


def test_gradients_parameters_and_sharing():
    p = nn.Parameter(flambeau.ones(3))
    back = _round_trip([p, p.detach(), flambeau.ones(2, requires_grad=True)])
    assert isinstance(back[0], nn.Parameter) and back[0].requires_grad and back[2].requires_grad and back[2].is_leaf
    assert back[0].data_ptr() == back[1].data_ptr() and not back[1].requires_grad


def test_a_stream_is_read_from_where_it_stands():
    stream = io.BytesIO(b"before")
    stream.seek(6)
    flambeau.save([1, flambeau.ones(3)], stream)
    stream.seek(6)
    back = flambeau.load(stream)
    assert back[0] == 1 and back[1].tolist() == [1.0] * 3
    with pytest.raises(flambeau.errors.FileFormatError, match="neither a file of PyTorch's"):
        stream.seek(0)
        flambeau.load(stream)


class Slow:
    """A stream without `readinto` and `flush` that takes a few bytes at a time."""

    def __init__(self):
        self.data = b""
        self.at = 0

    def write(self, piece):
        self.data += bytes(piece[:7])
        return min(7, len(piece))

    def read(self, count=-1):
        piece = self.data[self.at:] if count < 0 else self.data[self.at:self.at + count]
        self.at += len(piece)
        return piece

    def seek(self, to, whence=0):
        self.at = (0, self.at, len(self.data))[whence] + to
        return self.at

    def tell(self):
        return self.at


def test_streams_that_do_little_at_a_time():
    stream = Slow()
    flambeau.save({"a": flambeau.arange(100)}, stream)
    assert flambeau.load(stream)["a"].tolist() == list(range(100))


@pytest.mark.parametrize("location", ["cpu", flambeau.device("cpu"), {"cpu": "cpu"}, {"cuda:0": "cpu"},
                                      lambda t, where: t, lambda t, where: None])
def test_map_location(location):
    assert _round_trip(flambeau.ones(2), map_location=location, weights_only=True).device.type == "cpu"
    with pytest.raises(TypeError, match="map_location must be"):
        _round_trip(flambeau.ones(2), map_location=[1])


def test_what_cannot_be_saved_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.pt"
    flambeau.save([1], path)
    with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
        flambeau.save({"model": [lambda: 1]}, path)
    base = flambeau.zeros(8, dtype=flambeau.uint8)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        flambeau.save([base, base.view(flambeau.int32)], path)
    with pytest.raises(ValueError, match="pickle_protocol must be 2 to"):
        flambeau.save([2], path, pickle_protocol=1)
    with pytest.raises(TypeError, match="pickle_module must be"):
        flambeau.save([2], path, pickle_module=json)
    with pytest.raises(AttributeError, match="with a 'write' attribute"):
        flambeau.save([2], 5)
    assert flambeau.load(str(path)) == [1] and os.listdir(tmp_path) == ["a.pt"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.pt"
    flambeau.save([1], path)

    def fails(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="disk full"):
        flambeau.save(flambeau.ones(5), path)
    assert flambeau.load(path) == [1] and os.listdir(tmp_path) == ["a.pt"]


def test_links_and_folders(tmp_path):
    (tmp_path / "real.pt").write_bytes(b"")
    (tmp_path / "link.pt").symlink_to(tmp_path / "real.pt")
    flambeau.save([2], tmp_path / "link.pt")
    assert (tmp_path / "link.pt").is_symlink() and flambeau.load(tmp_path / "real.pt") == [2]
    with pytest.raises(RuntimeError, match="Parent directory .* does not exist"):
        flambeau.save([2], tmp_path / "no" / "a.pt")
    with pytest.raises(FileNotFoundError):
        flambeau.load(tmp_path / "nothing.pt")
    with pytest.raises(AttributeError, match="with a 'read' attribute"):
        flambeau.load(3)


def test_views_share_their_storage_and_keep_their_strides():
    base = flambeau.arange(24).reshape(2, 3, 4)
    value = {"base": base, "t": base.permute(2, 0, 1), "row": base[1, 2], "step": base[:, ::2], "wide": base[:1].expand(5, 3, 4), "none": base[:0],
             "data": base.data}
    stream = io.BytesIO()
    flambeau.save(value, stream)
    assert len(stream.getvalue()) < 24 * 8 + 4000  # one storage
    stream.seek(0)
    back = flambeau.load(stream)
    for name, t in value.items():
        assert back[name].stride() == t.stride() and back[name].tolist() == t.tolist(), name
        assert back[name].storage_offset() == t.storage_offset()
    back["base"].fill_(7)
    assert all((t == 7).all() for t in back.values())


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols(protocol):
    stream = io.BytesIO()
    value = {"a": flambeau.ones(2), "b": b"x" * 300, "set": {1}, "frozen": frozenset("a"), "array": bytearray(b"z"), "big": -(10**300), "long": "y" * 300}
    flambeau.save(value, stream, pickle_protocol=protocol)
    stream.seek(0)
    back = flambeau.load(stream)
    assert back.pop("a").tolist() == [1.0, 1.0]
    del value["a"]
    assert back == value


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int64", "bool", "uint16"])
def test_files_can_be_mapped(tmp_path, dtype):
    path = tmp_path / "a.pt"
    t = (flambeau.arange(2000) % 2).to(getattr(flambeau, dtype))
    flambeau.save({"a": t, "b": t[1000:], "empty": flambeau.zeros(0)}, path)
    before = path.read_bytes()
    for name in (path, str(path), os.fsencode(path)):
        back = flambeau.load(name, mmap=True)
        assert back["a"].dtype is t.dtype and back["a"].tolist() == t.tolist() and back["empty"].numel() == 0
        back["a"].fill_(1)
        assert back["b"].tolist() == flambeau.ones(1000, dtype=t.dtype).tolist()
    assert path.read_bytes() == before  # writes stay in the process
    del back
    with pytest.raises(ValueError, match="must be a file path"):
        flambeau.load(io.BytesIO(before), mmap=True)


def test_records_lie_at_multiples_of_64_bytes():
    stream = io.BytesIO()
    flambeau.save([flambeau.ones(n) for n in range(1, 9)], stream)
    raw = stream.getvalue()
    with zipfile.ZipFile(stream) as z:
        assert z.testzip() is None
        for info in z.infolist():
            start = info.header_offset + 30 + sum(int.from_bytes(raw[info.header_offset + at:info.header_offset + at + 2], "little") for at in (26, 28))
            assert start % 64 == 0 and info.compress_type == 0
        names = [n.split("/", 1)[1] for n in z.namelist()]
    assert names[0] == "data.pkl" and {"version", "byteorder", ".data/serialization_id", "data/0", "data/7"} <= set(names)
    other = io.BytesIO()
    flambeau.save([flambeau.ones(n) for n in range(1, 9)], other)
    assert other.getvalue() == raw  # the same file for the same content


def test_files_of_the_other_byte_order():
    stream = io.BytesIO()
    values = {"a": flambeau.tensor([1.5, -2.0]), "c": flambeau.tensor([1 + 2j]), "b": flambeau.tensor([True])}
    flambeau.save(values, stream)
    swapped = io.BytesIO()
    with zipfile.ZipFile(stream) as old, zipfile.ZipFile(swapped, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("byteorder"):
                data = b"big"
            elif "/data/" in name and len(data) > 1:
                data = np.frombuffer(data, "<f4").astype(">f4").tobytes()
            new.writestr(name, data)
    swapped.seek(0)
    back = flambeau.load(swapped)
    assert {k: v.tolist() for k, v in back.items()} == {k: v.tolist() for k, v in values.items()}


def test_tied_weights_and_buffers():
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    net[1].weight = net[0].weight
    net.steps = nn.Buffer(flambeau.arange(3))
    stream = io.BytesIO()
    flambeau.save(net.state_dict(), stream)
    with zipfile.ZipFile(stream) as z:
        assert sum("/data/" in name for name in z.namelist()) == 2
    stream.seek(0)
    back = flambeau.load(stream)
    assert back["0.weight"].data_ptr() == back["1.weight"].data_ptr() and back["steps"].tolist() == [0, 1, 2]
    again = _round_trip(net, weights_only=False)
    assert again[0].weight is again[1].weight and list(again.state_dict()) == list(net.state_dict())


def test_storages_are_saved_too():
    base = flambeau.arange(4, dtype=flambeau.int16)
    back = _round_trip([base, base.untyped_storage(), base[1:].storage()])
    back[0].fill_(3)
    assert back[1].tolist() == [3, 0] * 4 and back[2].tolist() == [3] * 4


def test_attributes_and_classes_of_tensors():
    t = flambeau.ones(2)
    t.note = "x"
    p = nn.Parameter(flambeau.ones(2))
    p.note = 4
    back = _round_trip([t, p])
    assert back[0].note == "x" and back[1].note == 4 and isinstance(back[1], nn.Parameter)
    empty = _round_trip(nn.LazyLinear(3).state_dict, weights_only=False)().keys()
    assert "weight" in empty


def test_map_location_functions_move_storages():
    seen = []

    def there(storage, location):
        seen.append((type(storage).__name__, location, storage.nbytes()))
        return storage

    base = flambeau.ones(4)
    _round_trip([base, base[1:]], map_location=there)
    assert seen == [("UntypedStorage", "cpu", 16)]
    with pytest.raises(TypeError, match="must give the storage"):
        _round_trip(base, map_location=lambda storage, location: 3)
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on CUDA device 7"):
        _round_trip(base, map_location="cuda:7")


@pytest.mark.parametrize("start,text", [
    (b"", "is empty"), (b"abc", "neither a file of PyTorch's"), (b"\x80\x02]q\x00.", "is a plain pickle"),
    (b"sys_info".ljust(257, b"\0") + b"ustar" + b"\0" * 250, "is a tar archive"),
])
def test_other_formats_are_named(start, text):
    for weights_only in (True, False):
        with pytest.raises(flambeau.errors.FileFormatError, match=text):
            flambeau.load(io.BytesIO(start), weights_only=weights_only)


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "a.pt"
    flambeau.save({"a": flambeau.ones(3), "b": [flambeau.zeros(2, dtype=flambeau.int64), 1.5, "x"]}, path)
    whole = path.read_bytes()
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        with pytest.raises(flambeau.errors.FileFormatError):
            flambeau.load(path)
    path.write_bytes(whole)
    assert flambeau.load(path)["a"].tolist() == [1.0] * 3


def test_a_pickle_module_needs_trust():
    stream = io.BytesIO()
    flambeau.save([1], stream, pickle_module=pickle)
    stream.seek(0)
    with pytest.raises(RuntimeError, match="explicit pickle_module"):
        flambeau.load(stream, pickle_module=pickle)
    assert flambeau.load(stream, pickle_module=pickle, weights_only=False) == [1]


@pytest.mark.parametrize("weights_only", [True, False])
def test_tensors_without_data_are_saved_by_their_shape(weights_only):
    net = flambeau.nn.Linear(200_000, 300_000, device="meta")
    file = io.BytesIO()
    flambeau.save([net.state_dict(), net.weight, flambeau.empty(2, 3, device="meta").t()], file)
    assert file.tell() < 10_000
    file.seek(0)
    state, weight, turned = flambeau.load(file, weights_only=weights_only)
    assert state["weight"].shape == (300_000, 200_000) and state["weight"].is_meta and state["bias"].dtype is flambeau.float32
    assert type(weight) is flambeau.nn.Parameter and weight.requires_grad and turned.stride() == (1, 3)


def test_files_without_their_numbers(tmp_path):
    model = {"w": flambeau.arange(6.0).reshape(2, 3), "n": flambeau.tensor([True]), "k": 3}
    with serialization.skip_data():
        flambeau.save(model, tmp_path / "skipped.pt")
    flambeau.save(model, tmp_path / "whole.pt")
    assert (tmp_path / "skipped.pt").stat().st_size == (tmp_path / "whole.pt").stat().st_size
    got = flambeau.load(tmp_path / "skipped.pt")
    assert got["k"] == 3 and got["w"].tolist() == [[0, 0, 0], [0, 0, 0]] and got["n"].tolist() == [False]
    with serialization.skip_data():
        unfilled = flambeau.load(tmp_path / "whole.pt")
    assert unfilled["w"].shape == (2, 3) and unfilled["n"].dtype is flambeau.bool
    assert flambeau.equal(flambeau.load(tmp_path / "whole.pt")["w"], model["w"])


def test_whether_an_archive_begins_where_a_stream_stands(tmp_path):
    from flambeau import serialization
    path = tmp_path / "t.pt"
    serialization.save(flambeau.ones(2), path)
    with path.open("rb") as f:
        assert serialization._is_zipfile(f) and f.tell() == 0
        f.seek(1)
        assert not serialization._is_zipfile(f) and f.tell() == 1

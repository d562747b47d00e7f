"""The format of PyTorch before 1.6: several pickles, then bytes."""

from __future__ import annotations

import io
import pickle

import pytest

import flambeau
from flambeau._core.errors import FileFormatError
from flambeau._core.ops.storages import host_bytes
from flambeau.io import legacy, pickler


def _file(value, version=1001, system=None, keys=None, counts=None, end=b""):
    """A file as PyTorch wrote them, of an object whose storages are all float32."""
    data, storages = pickler.dumps(value, None, 2)
    raws = [bytes(host_bytes(s, "test")) for s in storages]
    counts = counts or [len(raw) // 4 for raw in raws]
    keys = [str(n) for n in range(len(raws))] if keys is None else keys
    system = {"little_endian": True} if system is None else system
    return b"".join([legacy.START, pickle.dumps(version, 2), pickle.dumps(system, 2), data, pickle.dumps(keys, 2),
                     *[n.to_bytes(8, "little") + raw for n, raw in zip(counts, raws)], end])


def test_objects_share_their_storages():
    t = flambeau.arange(6.0).reshape(2, 3)
    for weights_only in (True, False):
        found = flambeau.load(io.BytesIO(_file({"t": t, "turned": t.t(), "row": t[1], "other": flambeau.ones(2), "n": 3})), weights_only=weights_only)
        assert found["turned"].tolist() == t.t().tolist() and found["other"].tolist() == [1, 1] and found["n"] == 3
        found["t"].fill_(5)
        assert found["row"].tolist() == [5] * 3


def test_places_and_streams():
    stream = io.BytesIO(b"before" + _file([flambeau.ones(2)]))
    stream.seek(6)
    with flambeau.simulate(gpus=1):
        assert flambeau.load(stream, map_location="cuda")[0].device.type == "cuda"


@pytest.mark.parametrize("data,text", [
    (_file([1], version=1000), "version is not 1001"), (_file([1], version=True), "version is not 1001"), (_file([1], system={}), "little-endian"),
    (_file([1], system=[1]), "little-endian"), (_file([flambeau.ones(2)], keys=["1"]), "list of storages"),
    (_file([flambeau.ones(2)], keys=["0", "0"]), "list of"),
    (_file([flambeau.ones(2)], keys=[0]), "list of storages"), (_file([flambeau.ones(2)], keys=[]), "is not there"),
    (_file([flambeau.ones(2)], counts=[1 << 60]), "reaches past its end"), (_file([flambeau.ones(2)], counts=[3]), "reaches past its end"),
    (_file([flambeau.ones(2)], counts=[1]), "wants 8 bytes, and 4 are there"), (_file([print]), "not an allowed global|not allowed"), (legacy.START, "no end"),
])
def test_corrupt_files(data, text):
    with pytest.raises(FileFormatError, match=text):
        flambeau.load(io.BytesIO(data))

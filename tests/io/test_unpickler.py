"""Pickles made to harm: what they may not name, call or claim."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import struct
import subprocess
import time

import numpy as np
import pytest

import flambeau
from flambeau._core.errors import FileFormatError
from flambeau.io.archive import Writer
from flambeau.serialization import UnsafeFileError

P = b"\x80\x02"


def _file(data, storages=(b"\0" * 64,)):
    stream = io.BytesIO()
    out = Writer(stream.write)
    out.add("data.pkl", data)
    for number, storage in enumerate(storages):
        out.add(f"data/{number}", storage)
    out.close()
    stream.seek(0)
    return stream


def _load(data, *storages):
    return flambeau.load(_file(data, storages or (b"\0" * 64,)))


def _int(n):
    raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def _text(text):
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _tuple(*parts):
    return b"(" + b"".join(parts) + b"t"


def _storage(kind=b"torch\nFloatStorage\n", key="0", place="cpu", count=16):
    return _tuple(_text("storage"), b"c" + kind, _text(key), _text(place), _int(count)) + b"Q"


def _tensor(size=(2,), stride=(1,), offset=0, storage=None, grad=b"\x89", extra=b""):
    def sizes(values):
        return _tuple(*[v if isinstance(v, bytes) else _int(v) for v in values]) if isinstance(values, tuple) else values
    return (b"ctorch._utils\n_rebuild_tensor_v2\n"
            + _tuple(storage or _storage(), _int(offset) if type(offset) is int else offset, sizes(size), sizes(stride), grad, b"N", extra) + b"R")


class Attack:
    """Pickles as a call."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def test_the_helpers_make_a_sound_tensor():
    found = _load(P + _tensor((2, 3), (3, 1), 4) + b".")
    assert found.shape == (2, 3) and found.storage_offset() == 4
    assert _load(P + _tensor((5, 7), (0, 0), 15) + b".").shape == (5, 7)  # one element, repeated
    assert _load(P + _tensor((0, 7), (7, 1), 16) + b".").numel() == 0
    assert _load(P + _tensor((), ()) + b".").ndim == 0


@pytest.mark.parametrize("attack", [
    Attack(os.system, "touch harmed"), Attack(eval, "open('harmed','w')"), Attack(exec, "open('harmed','w')"), Attack(open, "harmed", "w"),
    Attack(subprocess.Popen, ["touch", "harmed"]), Attack(getattr, (), "__class__"), Attack(builtins.__import__, "antigravity"),
    Attack(pickle.loads, pickle.dumps(1)), Attack(os.remove, "a"), Attack(np.load, "a"), Attack(type, "x", (), {}), Attack(map, print, [1]),
    Attack(flambeau.load, "a"), Attack(io.FileIO, "harmed", "w"), Attack(int, "1"), Attack(str, 1), Attack(list, "ab"),
    Attack(flambeau.ones, 3), Attack(flambeau.nn.Linear, 1, 1),
], ids=lambda a: getattr(a.call[0], "__name__", "it"))
@pytest.mark.parametrize("protocol", [2, 4])
def test_calls_that_are_not_allowed(attack, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in (attack, [{"a": attack}]):
        data = pickle.dumps(value, protocol)
        with pytest.raises(UnsafeFileError, match="Weights only load failed") as error:
            _load(data)
        assert isinstance(error.value, pickle.UnpicklingError) and isinstance(error.value, RuntimeError)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["os\nsystem", "posix\nsystem", "nt\nsystem", "builtins\neval", "__builtin__\neval", "__builtin__\nfile", "torch\nload",
                                  "torch.hub\nload", "torch._C\n_jit", "flambeau.io.checkpoint\nload", "flambeau.io.names\nfind", "sys\nmodules",
                                  "torch.storage\n_load_from_bytes", "numpy\nload", "collections\nnamedtuple", "functools\npartial", "operator\nmethodcaller",
                                  "torch.nn.modules.linear\nLinear", "\n", "torch\n__class__", "collections\nOrderedDict.fromkeys"])
def test_names_that_are_not_allowed(name):
    with pytest.raises(UnsafeFileError, match="Unsupported global"):
        _load(P + b"c" + name.encode() + b"\n.")
    module, _, last = name.partition("\n")
    with pytest.raises(UnsafeFileError, match="Unsupported global"):
        _load(b"\x80\x04" + _text(module) + _text(last) + b"\x93.")


@pytest.mark.parametrize("data,text", [
    (_tensor((17,), (1,)), "reaches element 17 of a storage of 16"), (_tensor((2, 2), (15, 1)), "reaches element 17"),
    (_tensor((1,), (1,), 16), "reaches element 17"), (_tensor((2,), (-1,), 4), "strides must be"), (_tensor((-2,), (1,)), "sizes must be"),
    (_tensor((1,), (1,), -1), "offset must be"), (_tensor((1 << 62, 1 << 62), (0, 0)), "too many elements"),
    (_tensor((1 << 70,), (0,)), "sizes must be"), (_tensor((2,), (1 << 62,)), "reaches element"), (_tensor((2,), ((1 << 64) - 1,)), "strides must be"),
    (_tensor((1 << 32, 1 << 32), (1 << 32, 1)), "too many elements"), (_tensor((1 << 31, 2), (2, 1)), "reaches element"),
    (_tensor((2,), (1, 1)), "1 sizes and 2 strides"), (_tensor((b"\x88",), (1,)), "sizes must be"), (_tensor((b"G" + b"\0" * 8,), (1,)), "sizes must be"),
    (_tensor((1,) * 65, (1,) * 65), "at most 64"), (_tensor(b"N", (1,)), "sizes must be"), (_tensor(offset=b"\x88"), "offset must be"),
    (_tensor((0,), (1,), 17), "reaches element 17"), (_tensor((0,), (1,), 1 << 62), "reaches"), (_tensor(storage=b"N"), "needs a storage"),
    (_tensor(grad=b"N"), "requires_grad"), (_tensor(storage=_storage(b"torch\nLongStorage\n", count=8), grad=b"\x88"), "requires_grad True"),
    (_tensor(storage=_storage(count=17)), "wants 68 bytes, and 64 are there"), (_tensor(storage=_storage(count=1 << 62)), "wants"),
    (_tensor(storage=_storage(count=-1)), "a storage is described by"), (_tensor(storage=_storage(key="1")), "is not there"),
    (_tensor(storage=_storage(key="../0")), "is not there"), (_tensor(storage=_storage(key="/etc/passwd")), "is not there"),
    (_tensor(storage=_storage(place="cpu:x:y")), "is no place"), (_tensor(storage=_storage(place="nowhere")), "is no place"),
    (_tensor(storage=_storage(b"torch\nSize\n")), "a storage is of the type"), (_tensor(extra=b"}" + _text("conj") + b"\x88s"), "cannot be lazily"),
    (_tensor((1 << 40,), (0,), extra=b"}" + _text("conj") + b"\x88s"), "repeats its elements"),
    (_tensor(extra=_text("x")), "metadata must be"),
    (_tensor(extra=_tensor()), "metadata must be"), (_tuple(*[_tensor()] * 5) + b"Q", "means no storage"),
    (b"c_codecs\nencode\n" + _text("x") + _tensor() + b"\x86R", "Latin-1"), (b"ccollections\ndefaultdict\n" + _tensor() + b"\x85R", "factory"),
    (b"cnumpy\ndtype\n" + _text("f4") + b"\x85R(K\x03" + _tensor() + b"tb", "byte order"),
    (b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + _tensor() + b"N\x87R", "an array is of a class"),
    (b"Nq\x00Q", "means no storage"), (_text("storage") + b"Q", "means no storage"),
    (b"ctorch._utils\n_rebuild_parameter\nN\x88N\x87R", "a parameter needs a tensor"),
    (b"ctorch._utils\n_rebuild_parameter\n" + _tuple(_tensor(storage=_storage(b"torch\nIntStorage\n")), b"\x88", b"N") + b"R", "cannot require"),
    (b"ctorch._utils\n_rebuild_tensor_v2\n)R", "cannot be made"), (b"ctorch\nSize\n" + _tuple(_tuple(_text("x"))) + b"R", "something else than integers"),
    (b"ctorch._utils\n_rebuild_qtensor\n)R", "a quantized tensor"),
])
def test_tensors_that_lie(data, text):
    start = time.perf_counter()
    with pytest.raises(FileFormatError, match=text):
        _load(P + data + b".")
    assert time.perf_counter() - start < 1


def test_a_storage_is_of_one_size_however_often_it_is_named():
    first, second = _tensor(storage=_storage(count=4)), _tensor((16,), (1,), storage=_storage(count=16))
    with pytest.raises(FileFormatError, match="storage '0' has 16 bytes, where 64 are wanted"):
        _load(P + first + second + b"\x86.")


@pytest.mark.parametrize("data,text", [
    (b"", "has no end"), (b"N", "has no end"), (b".", "stack is empty"), (b"NN.", "more than one object"), (b"(.", "stack is empty"),
    (b"X\xff\xff\xff\xff.", "announced"), (b"\x8d" + b"\xff" * 8 + b".", "announced"), (b"\x8e" + b"\x7f" * 8 + b".", "announced"),
    (b"B\xff\xff\xff\x7f.", "announced"), (b"\x96" + b"\xff" * 8 + b".", "announced"), (b"\x8b\xff\xff\xff\x7f.", "announced"),
    (b"\x8b\xff\xff\xff\xff.", "negative length"), (b"\x8a\xff.", "announced"), (b"X\x01\x00\x00\x00\xff.", "not in UTF-8"),
    (b"U\x01\xff.", "not in ASCII"), (b"h\x05.", "before it is made"), (b"j\xff\xff\xff\xff.", "before it is made"), (b"q\x00.", "stack is empty"),
    (b"t.", "a mark is missing"), (b"e.", "a mark is missing"), (b"]N(e.", "more than one|appended"), (b"N(Ne.", "appended to"), (b"NNs.", "stack is empty"),
    (b"NNNs.", "put into"), (b"}(Nu.", "a key has no value"), (b"}]Ns.", "is a key"), (b"}}Ns.", "is a key"), (b"\x86.", "stack is empty"),
    (b"N)R.", "not allowed"), (b"NNR.", "no tuple"), (b"N}b.", "not allowed"), (b"N)\x81.", "not allowed"), (b"cos\n", "no end"),
    (b"c" + b"a" * 5000, "no end"),
    (b"2.", "opcode 0x32"), (b"i" + b"os\nsystem\n.", "opcode 0x69"), (b"o.", "opcode 0x6f"), (b"P0\n.", "opcode 0x50"), (b"\x82\x01.", "opcode 0x82"),
    (b"I1\n.", "opcode 0x49"), (b"L1L\n.", "opcode 0x4c"), (b"\x97.", "opcode 0x97"), (b"\x80\x09N.", "protocol is 9"), (b"\x93.", "stack is empty"),
    (b"NN\x93.", "no name"), (b"cbuiltins\nset\n]]a\x85R.", "is a key"), (b"cbuiltins\nbytearray\n" + _int(10**12) + b"\x85R.", "Latin-1"),
    (b"cbuiltins\nbytes\n" + _int(10**12) + b"\x85R.", "something else"), (b"cbuiltins\nrange\n" + _text("x") + b"\x85R.", "than numbers"),
    (b"ccollections\ndefaultdict\ncos\nsystem\n\x85R.", "Unsupported global"), (b"ccollections\ndefaultdict\nctorch\nSize\n\x85R.", "factory"),
    (b"ccollections\nOrderedDict\n](K\x01K\x02e\x85R.", "pairs"), (b"ccollections\nOrderedDict\n)R}K\x01K\x02sb.", "have no names"),
    (b"}" + _int(1 << 70) + b"Ns.", "more than 64 bits"), (b"}cbuiltins\ncomplex\nK\x01\x85RNs.", "is a key"),
    (b"cnumpy\ndtype\n" + _text("O8") + b"\x85R.", "numbers are allowed"),
    (b"cnumpy\ndtype\n" + _text("(99999999,)f8"[:8]) + b"\x85R.", "cannot be made|numbers"),
    (b"ctorch\ndevice\n" + _text("x" * 1000) + b"\x85R.", "cannot be made"),
])
def test_pickles_that_are_no_data(data, text):
    with pytest.raises(FileFormatError, match=text):
        _load(P + data)


def _bomb(size):
    """A list that is made into sets and dictionaries again and again: quadratic in the size of the pickle."""
    items = b"".join(_int(n) for n in range(size))
    return P + b"cbuiltins\nset\nq\x00](" + items + b"eq\x01" + b"](" + b"h\x00h\x01\x85R" * size + b"e."


def test_containers_copied_again_and_again():
    start = time.process_time()
    with pytest.raises(FileFormatError, match="again and again"):
        _load(_bomb(50_000))
    assert time.process_time() - start < 10


def test_attributes_copied_again_and_again():
    names = b"".join(_text(f"a{n}") + b"N" for n in range(20_000))
    data = P + b"ccollections\nOrderedDict\nq\x00}(" + names + b"uq\x01" + b"](" + b"h\x00)Rh\x01b" * 20_000 + b"e."
    with pytest.raises(FileFormatError, match="again and again"):
        _load(data)


def test_a_key_whose_hash_takes_for_ever():
    data = P + b"}N" + b"q\x00h\x00\x86" * 100 + b"Ns."
    start = time.process_time()
    with pytest.raises(FileFormatError, match="too many parts"):
        _load(data)
    assert time.process_time() - start < 1


def test_keys_of_one_hash():
    """hash(-1) is hash(-2), so all of these tuples are looked up in one place: hours for a file of 20 MB."""
    def item(n):
        return _tuple(*[b"J" + struct.pack("<i", -1 - (n >> i & 1)) for i in range(14)])
    start = time.process_time()
    for data in (b"}(" + b"".join(item(n) + b"N" for n in range(1 << 14)) + b"u.",
                 b"cbuiltins\nset\n](" + b"".join(item(n) for n in range(1 << 14)) + b"e\x85R."):
        with pytest.raises(FileFormatError, match="many keys have one hash"):
            _load(P + data)
    assert time.process_time() - start < 2
    same = b"](" + b"".join(b"}" + item(5) + b"Ns" for _ in range(100)) + b"e."
    assert len(_load(P + same)) == 100
    assert len(_load(P + b"}(" + b"".join(_tuple(_int(n), _int(-n)) + b"N" for n in range(5000)) + b"u.")) == 5000


def test_deep_nesting_is_no_recursion():
    depth = 200_000
    found = _load(P + b"]" * depth + b"a" * (depth - 1) + b".")
    for _ in range(depth - 1):
        found = found[0]
    assert found == []
    found = _load(P + b")" + b"\x85" * depth + b".")
    assert len(found) == 1


def test_a_view_that_repeats_costs_nothing():
    found = _load(P + _tensor((1 << 40,), (0,)) + b".")
    assert found.shape == (1 << 40,) and found.untyped_storage().nbytes() == 64


def test_huge_numbers_are_numbers():
    n = 1 << 7999
    assert _load(P + b"\x8b" + struct.pack("<i", 1001) + n.to_bytes(1001, "little") + b".") == n
    with pytest.raises(FileFormatError, match="an integer of 80000 bits"):
        raw = (1 << 79999).to_bytes(10001, "little")
        _load(P + _tensor((b"\x8b" + struct.pack("<i", len(raw)) + raw,), (1,)) + b".")


def test_state_of_a_tensor_leaves_its_own_alone():
    data = P + (b"ctorch._tensor\n_rebuild_from_type_v2\n" + _tuple(
        b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nTensor\n",
        _tuple(_storage(), _int(0), _tuple(_int(2)), _tuple(_int(1)), b"\x89", b"N"),
        b"}" + _text("note") + _int(3) + b"s" + _text("_grad") + _int(4) + b"s" + _text("__class__") + _int(5) + b"s") + b"R") + b"."
    found = _load(data)
    assert found.note == 3 and found.grad is None and type(found) is flambeau.Tensor


def test_tensors_of_a_class_that_is_not_allowed():
    for kind, text in ((b"cbuiltins\nint\n", "not allowed"), (b"ccollections\nOrderedDict\n", "not allowed")):
        with pytest.raises(FileFormatError, match=text):
            _load(P + b"ctorch._tensor\n_rebuild_from_type_v2\n" + _tuple(b"ctorch._utils\n_rebuild_tensor_v2\n", kind, b")", b"}") + b"R.")
    with pytest.raises(UnsafeFileError, match="not allowed"):
        _load(P + b"ctorch._tensor\n_rebuild_from_type_v2\n" + _tuple(b"cbuiltins\nint\n", b"ctorch\nTensor\n", b")", b"}") + b"R.")


def test_arrays_that_lie():
    good = pickle.dumps(np.arange(6.0).reshape(2, 3), 2)
    np.testing.assert_array_equal(_load(good), np.arange(6.0).reshape(2, 3))
    assert _load(pickle.dumps(np.float32(2.5), 2)) == np.float32(2.5)
    with pytest.raises(FileFormatError, match="where its type and sizes want"):
        _load(good.replace(b"K\x02K\x03\x86", b"K\x02K\x04\x86"))
    with pytest.raises(FileFormatError):
        _load(pickle.dumps(np.array([os.system], object), 2))
    with pytest.raises(FileFormatError, match="byte order"):
        _load(pickle.dumps(np.arange(3, dtype=">i4"), 2))
    with pytest.raises(FileFormatError):
        _load(pickle.dumps(np.array([(1, 2)], [("a", "i4"), ("b", "i4")]), 2))


def _sparse(indices, size, kind="torch.sparse_coo", flag=b"\x88", values=(2,)):
    raw = np.array(indices, np.int64)
    strides = tuple(s // 8 for s in raw.strides)
    at = _tensor(raw.shape, strides, 0, _storage(b"torch\nLongStorage\n", "0", count=raw.size))
    data = _tuple(at, _tensor(values, (1,) * len(values), 0, _storage(key="1", count=4)), _tuple(*[_int(n) for n in size]), flag)
    found = b"ctorch._utils\n_rebuild_sparse_tensor\n" + _tuple(b"ctorch.serialization\n_get_layout\n" + _text(kind) + b"\x85R", data) + b"R."
    return flambeau.load(_file(P + found, (raw.tobytes(), np.arange(4, dtype=np.float32).tobytes())))


@pytest.mark.skipif(not hasattr(flambeau, "sparse_coo_tensor"), reason="sparse tensors are not there")
def test_sparse_tensors_that_lie():
    assert _sparse([[0, 1], [2, 0]], (2, 3)).to_dense().tolist() == [[0, 0, 0], [1, 0, 0]]
    for indices, size, text in (([[0, 2], [2, 0]], (2, 3), "reach past"), ([[0, -1], [2, 0]], (2, 3), "reach past"), ([[0, 1], [2, 0]], (2,), "do not fit"),
                                ([[1, 0], [2, 0]], (2, 3), "not in order"), ([[0, 1, 1]], (2,), "do not fit"), ([0, 1], (2,), "do not fit"),
                                ([[0, 1]], (1 << 64,), "sizes must be")):
        with pytest.raises(FileFormatError, match=text):
            _sparse(indices, size)
    with pytest.raises(FileFormatError, match="is no layout|layout"):
        _sparse([[0, 1]], (2,), kind="torch.strided")
    with pytest.raises(FileFormatError, match="is no layout"):
        _sparse([[0, 1]], (2,), kind="torch.system")
    with pytest.raises(FileFormatError, match="not described as one|must be tensors|sizes must be"):
        _sparse([[0, 1]], (2,), kind="torch.sparse_csr")


def test_the_reader_imports_nothing():
    import sys
    before = set(sys.modules)
    for name in (b"antigravity\nfly", b"this\ns", b"torch.nonsense\nx", b"flambeau.vision\nx"):
        with pytest.raises(UnsafeFileError):
            _load(P + b"c" + name + b"\n.")
    assert not {"antigravity", "this"} & (set(sys.modules) - before)

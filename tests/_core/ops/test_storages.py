"""Storages as objects."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import flambeau


def test_bytes_under_a_tensor():
    t = flambeau.arange(4, dtype=flambeau.int16)
    s = t[1:].untyped_storage()
    assert s.nbytes() == s.size() == len(s) == 8 and s.data_ptr() == t.data_ptr() and s.device == t.device and not s.is_cuda
    assert s.tolist() == list(s) == [0, 0, 1, 0, 2, 0, 3, 0] and s[2] == 1 and s.element_size() == 1 and s.get_device() == -1
    s[2] = 7
    assert t.tolist() == [0, 7, 2, 3]
    part = s[2:6]
    part.fill_(0)
    assert t.tolist() == [0, 0, 0, 3] and part.nbytes() == 4 and np.asarray(part).tolist() == [0] * 4
    assert s == t.untyped_storage() and s != part and hash(s) == hash(t.untyped_storage())
    with pytest.raises(RuntimeError, match="step of 2"):
        s[::2]
    other = s.clone()
    assert other != s and other.tolist() == s.tolist()
    other.copy_(flambeau.UntypedStorage([1] * 8))
    assert other.tolist() == [1] * 8 and flambeau.UntypedStorage(5).nbytes() == 5 and flambeau.is_storage(other)
    del t
    assert s.tolist()[:2] == [0, 0]  # it keeps the memory


def test_storages_move():
    with flambeau.simulate(gpus=2):
        s = flambeau.UntypedStorage([1, 2, 3])
        there = s.cuda(1)
        assert there.device == flambeau.device("cuda", 1) and there.is_cuda and there.tolist() == [1, 2, 3] and there.cpu().tolist() == [1, 2, 3]
        assert s.cpu() is s and there.to("cuda:1") is there and there.get_device() == 1
        typed = flambeau.ones(2).storage().cuda()
        assert typed.device.type == "cuda" and typed.tolist() == [1.0, 1.0]
        assert pickle.loads(pickle.dumps(there)).device == there.device


def test_typed_storages():
    t = flambeau.arange(6.0).reshape(2, 3)
    s = t.storage()
    assert len(s) == s.size() == 6 and s.nbytes() == 24 and s[4] == 4.0 and s[1:3] == [1.0, 2.0] and s.dtype is flambeau.float32
    s[0] = 9
    assert t[0, 0] == 9 and list(s)[0] == 9 and s.untyped() == t.untyped_storage() and s == t[1:].storage()
    assert flambeau.FloatStorage([1.5, 2]).tolist() == [1.5, 2.0] and flambeau.LongStorage(3).size() == 3
    assert flambeau.TypedStorage([1, 2], dtype=flambeau.int8).nbytes() == 2
    copied = copy.deepcopy(s)
    assert copied.tolist() == s.tolist() and copied.data_ptr() != s.data_ptr()


def test_buffers_and_files(tmp_path):
    made = flambeau.ByteTensor(flambeau.ByteStorage.from_buffer(b"\x01\x02\x03"))
    assert made.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="byte_order"):
        flambeau.ByteStorage.from_buffer(b"12", byte_order="middle")
    path = tmp_path / "a"
    path.write_bytes(bytes(range(10)))
    s = flambeau.UntypedStorage.from_file(str(path), False, 10)
    s.fill_(1)
    assert path.read_bytes() == bytes(range(10))
    s = flambeau.UntypedStorage.from_file(str(path), shared=True, nbytes=12)
    s.fill_(1)
    assert path.read_bytes() == b"\x01" * 12
    with pytest.raises(ValueError, match="fewer than the 99"):
        flambeau.UntypedStorage.from_file(str(path), nbytes=99)


def test_tensors_over_storages():
    s = flambeau.arange(6.0).storage()
    t = flambeau.empty(0).set_(s, 1, (2, 2), (2, 1))
    assert t.tolist() == [[1, 2], [3, 4]]
    t.fill_(0)
    assert s.tolist() == [0, 0, 0, 0, 0, 5]
    assert flambeau.empty(0).set_(s.untyped()).shape == (6,)
    assert flambeau.ones(3).set_().shape == (0,)
    for bad in ((5, (2,), (1,)), (-1, (1,), (1,)), (0, (7,), (1,)), (0, (2,), (6,))):
        with pytest.raises(RuntimeError, match="out of bounds"):
            flambeau.empty(0).set_(s, *bad)
    with pytest.raises(RuntimeError, match="Expected a Storage of type"):
        flambeau.empty(0, dtype=flambeau.int8).set_(s)
    with pytest.raises(TypeError, match="source must be"):
        flambeau.empty(0).set_([1])


def test_a_tensor_keeps_its_storage_object_until_its_memory_is_another(device):
    x = flambeau.ones(4, device=device)
    kept = x.untyped_storage()
    assert x.untyped_storage() is kept and x[1:].untyped_storage() == kept
    y = flambeau.zeros(8, device=device)
    x.set_(y)
    assert x.untyped_storage() is not kept and x.untyped_storage() == y.untyped_storage()
    z = flambeau.ones(2, device=device)
    before = z.untyped_storage()
    z.data = y
    assert z.untyped_storage() != before and z.untyped_storage() == y.untyped_storage()


def test_a_storage_object_keeps_no_tensor_alive():
    import weakref
    x = flambeau.ones(4)
    kept, seen = x.untyped_storage(), weakref.ref(x)
    del x
    assert seen() is None and kept.nbytes() == 16


def test_a_files_tensor_is_of_the_cpu(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(bytes(16))
    made = flambeau.from_file(str(path), shared=True, size=4, dtype=flambeau.float32, device=flambeau.device("cpu"), layout=flambeau.strided)
    made.fill_(1)
    assert flambeau.from_file(str(path), size=4, device="cpu").tolist() == [1, 1, 1, 1]
    for more in ({"device": "cuda"}, {"pin_memory": True}, {"layout": flambeau.sparse_coo}):
        with pytest.raises(RuntimeError, match="mapped as a strided tensor of the CPU"):
            flambeau.from_file(str(path), size=4, **more)

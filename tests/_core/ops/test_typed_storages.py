"""Storages of one element type: construction, casts, bytes of either order, files, what is refused, and the warning that they are deprecated."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

import flambeau as fb
from flambeau import storage as module

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
KINDS = {"Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32", "Short": "int16",
         "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128"}


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_has_a_class(name):
    kind = getattr(fb, f"{name}Storage")
    d = getattr(fb, KINDS[name])
    s = kind([0, 1, 1])
    assert type(s) is fb.TypedStorage and isinstance(s, kind) and s.dtype is d is kind.dtype and s.type() == f"torch.{name}Storage"
    assert s.tolist() == fb.tensor([0, 1, 1], dtype=d).tolist() and s.nbytes() == 3 * d.itemsize and len(kind(5)) == 5
    assert fb.zeros(2, dtype=d).storage_type() is kind and fb.storage._dtype_to_storage_type_map()[d] == f"{name}Storage"
    assert not isinstance(s, fb.LongStorage if name != "Long" else fb.IntStorage) and kind in fb._storage_classes
    assert fb.equal(fb.tensor(s, dtype=d), fb.tensor([0, 1, 1], dtype=d)) and fb.equal(fb.tensor(s.untyped(), dtype=d), fb.tensor([0, 1, 1], dtype=d))


def test_casts_are_those_of_tensors():
    s = fb.IntStorage([-1, 0, 3])
    for name in ("float", "double", "half", "bfloat16", "long", "short", "char", "byte", "bool", "complex_float", "complex_double"):
        got = getattr(s, name)()
        assert got.tolist() == fb.tensor([-1, 0, 3], dtype=fb.int32).to(got.dtype).tolist()
    assert s.type("torch.FloatStorage").dtype is fb.float32 and copy.deepcopy(s).tolist() == s.tolist() and copy.deepcopy(s) != s
    with pytest.raises(ValueError, match="storage type"):
        s.type("torch.Wrong")


@pytest.mark.parametrize("order", ["big", "little", "native"])
@pytest.mark.parametrize("name", ["Short", "Float", "Double", "ComplexFloat", "Byte"])
def test_buffers_of_either_order_are_numpys(name, order):
    raw = bytes(range(32))
    kind = getattr(fb, f"{name}Storage")
    d = kind._dtype
    want = np.frombuffer(raw, d.np.newbyteorder({"big": ">", "little": "<", "native": "="}[order]))
    assert kind.from_buffer(raw, order).tolist() == want.tolist()
    assert kind.from_buffer(raw, order, 1, d.itemsize).tolist() == want[1:2].tolist()
    with pytest.raises(ValueError, match="byte_order"):
        kind.from_buffer(raw, "middle")
    with pytest.raises(ValueError, match="buffer has"):
        kind.from_buffer(raw, order, 33)


def test_truths_are_bytes_other_than_0():
    assert fb.BoolStorage.from_buffer(bytes([0, 1, 2, 255]), "big").tolist() == [False, True, True, True]


def test_what_is_refused():
    s = fb.FloatStorage(2)
    for f, error, text in (
            (lambda: fb.FloatStorage(device="cpu"), RuntimeError, "'device' cannot be specified"),
            (lambda: fb.FloatStorage(dtype=fb.int8), RuntimeError, "'dtype' cannot"),
            (lambda: fb.FloatStorage(wrong=1), TypeError, "unexpected keyword"),
            (lambda: fb.FloatStorage(0, 0), RuntimeError, "Too many positional"),
            (lambda: fb.FloatStorage("text"), TypeError, "invalid data type"),
            (lambda: fb.FloatStorage(fb.ones(1)), TypeError, "not recognized"),
            (lambda: fb.FloatStorage(0, wrap_storage=s.untyped()), RuntimeError, "No positional"),
            (lambda: fb.FloatStorage(wrap_storage=s), TypeError, "must be Untyped"),
            (lambda: fb.TypedStorage(wrap_storage=s.untyped()), RuntimeError, "'dtype' must be specified"),
            (lambda: fb.TypedStorage(wrap_storage=s.untyped(), dtype=0), TypeError, "must be torch.dtype"),
            (lambda: fb.TypedStorage(wrap_storage=s.untyped(), dtype=fb.int8, device="cpu"), RuntimeError, "should not be specified"),
            (lambda: fb.TypedStorage(dtype=fb.int8, device="xla"), RuntimeError, "device not recognized"),
            (lambda: s.fill_(s), RuntimeError, "cannot set item"),
            (lambda: fb.tensor(s, dtype=fb.int8), RuntimeError, "Expected a Storage of type"),
            (module._LegacyStorage, RuntimeError, "Only child classes"),
            (lambda: fb.zeros(2).set_(fb.zeros(2, dtype=fb.int8)), RuntimeError, "tensor of type"),
            (lambda: fb.cuda.FloatStorage.from_buffer(), RuntimeError, "CUDA")):
        with pytest.raises(error, match=text):
            f()


def test_on_the_meta_device_there_is_nothing_to_read():
    s = fb.TypedStorage([1, 2, 3], dtype=fb.int16, device="meta")
    assert s.nbytes() == 6 and s.size() == 3 and s.data_ptr() == 0 == s.untyped().data_ptr()
    for f in (lambda: s[0], s.tolist, lambda: s.untyped()[0]):
        with pytest.raises(NotImplementedError, match="Not available"):
            f()
    for f in (s.cpu, lambda: fb.ShortStorage(3).copy_(s)):
        with pytest.raises(NotImplementedError, match="Cannot copy out"):
            f()


def test_sizes_change_and_files_are_mapped(tmp_path):
    s = fb.IntStorage([1, 2, 3])
    assert s.resize_(5).tolist()[:3] == [1, 2, 3] and s.size() == 5 and s.resize_(2).tolist() == [1, 2]
    path = tmp_path / "a"
    path.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    mapped = fb.FloatStorage.from_file(str(path), True, 4)
    assert mapped.tolist() == [0, 1, 2, 3]
    mapped[1] = 7
    assert np.fromfile(path, np.float32).tolist() == [0, 7, 2, 3]
    assert fb.from_file(str(path), size=4).tolist() == [0, 7, 2, 3]


def test_the_warning_comes_once_and_not_from_within():
    module._reset_warn_typed_storage_removal()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        s = fb.FloatStorage(_internal=True)
        assert s._size() == s._nbytes() == 0 and fb.ones(1)._typed_storage()._data_ptr() and fb.FloatStorage._dtype is fb.float32
        assert not seen
        fb.FloatStorage(1)
        fb.ones(1).storage()
        assert [str(w.message).partition(".")[0] for w in seen] == ["TypedStorage is deprecated"] and seen[0].filename == __file__
        module._set_always_warn_typed_storage_removal(True)
        try:
            for f in (lambda: len(s), lambda: s.untyped(), lambda: s.is_cuda, lambda: fb.FloatStorage.dtype):
                seen.clear()
                f()
                assert len(seen) == 1
        finally:
            module._set_always_warn_typed_storage_removal(False)

"""DLPack both ways: what is shared, what is copied, what is refused, and that memory outlives its first owner."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref

import numpy as np
import pytest

import flambeau as fb
from flambeau.interop import dlpack
from tests import processes

NAMES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128"]


class Foreign:
    """An array of another library: NumPy's, with the answers changed."""

    def __init__(self, array, change=None, where=(1, 0), old=False):
        self.array, self.change, self.where, self.old, self.asked = array, change, where, old, {}

    def __dlpack_device__(self):
        return self.where

    def __dlpack__(self, **options):
        self.asked = options
        if self.old and options:
            raise TypeError("__dlpack__() got an unexpected keyword argument")
        capsule = self.array.__dlpack__(**{k: v for k, v in options.items() if k in ("max_version", "copy")})
        if self.change is not None:
            self.change(described(capsule))
        return capsule


def described(capsule):
    if dlpack._is_valid(capsule, b"dltensor_versioned"):
        return dlpack._ManagedVersioned.from_address(dlpack._pointer(capsule, b"dltensor_versioned")).tensor
    return dlpack._Managed.from_address(dlpack._pointer(capsule, b"dltensor")).tensor


def name_of(capsule):
    return repr(capsule).split('"')[1]


@pytest.mark.parametrize("name", NAMES)
def test_every_type_is_shared_both_ways(name):
    array = np.arange(6).reshape(2, 3).astype(name)
    t = fb.from_dlpack(array)
    assert t.dtype is getattr(fb, name) and t.shape == (2, 3) and t.data_ptr() == array.ctypes.data
    assert np.array_equal(t.numpy(), array)
    back = np.from_dlpack(t)
    assert back.dtype == array.dtype and np.shares_memory(back, array)
    array[0, 1] = 0
    assert t[0, 1].item() == 0 and back[0, 1] == 0


def test_what_requires_grad_is_refused_at_any_time():
    for _ in range(6):
        assert fb.from_dlpack(fb.ones(3)).tolist() == [1, 1, 1]
    with fb.no_grad(), pytest.raises(BufferError, match="require gradient"):
        fb.from_dlpack(fb.ones(3, requires_grad=True))


def test_a_brain_float_keeps_its_type():
    t = fb.tensor([1.5, -2.0, 3.25], dtype=fb.bfloat16)
    for version in (None, (1, 1)):
        capsule = t.__dlpack__(max_version=version)
        d = described(capsule)
        assert (d.code, d.bits, d.lanes) == (4, 16, 1)
        again = fb.from_dlpack(capsule)
        assert again.dtype is fb.bfloat16 and again.data_ptr() == t.data_ptr() and again.tolist() == [1.5, -2.0, 3.25]


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x.t(), lambda x: x[:, 1:3], lambda x: x[::2, ::3], lambda x: x[1], lambda x: x[1, 2],
                                  lambda x: x[:0], lambda x: x[2:2].t(), lambda x: x[:, :1].expand(4, 7), lambda x: x[None, :, None]])
def test_any_layout(make):
    x = fb.arange(24.0).reshape(4, 6)
    t = make(x)
    array = np.from_dlpack(t)
    assert array.shape == tuple(t.shape) and np.array_equal(array, t.numpy())
    again = fb.from_dlpack(t.__dlpack__(max_version=(1, 1)))
    assert again.shape == t.shape and fb.equal(again, t)
    if t.numel():
        assert again.data_ptr() == t.data_ptr() and np.shares_memory(array, x.numpy())
    for source in (np.arange(24.0).reshape(4, 6).T, np.arange(24.0).reshape(4, 6)[::2, 1::2]):
        assert np.array_equal(fb.from_dlpack(source).numpy(), source) and fb.from_dlpack(source).data_ptr() == source.ctypes.data


def test_versions():
    t = fb.ones(2)
    assert name_of(t.__dlpack__()) == name_of(t.__dlpack__(max_version=(0, 8))) == "dltensor"
    for version in ((1, 0), (1, 1), (9, 0)):
        capsule = t.__dlpack__(max_version=version)
        assert name_of(capsule) == "dltensor_versioned"
        whole = dlpack._ManagedVersioned.from_address(dlpack._pointer(capsule, b"dltensor_versioned"))
        assert whole.major == 1 and whole.flags == 0
    copied = t.__dlpack__(max_version=(1, 1), copy=True)
    assert dlpack._ManagedVersioned.from_address(dlpack._pointer(copied, b"dltensor_versioned")).flags == dlpack.IS_COPIED
    newer = t.__dlpack__(max_version=(1, 1))
    dlpack._ManagedVersioned.from_address(dlpack._pointer(newer, b"dltensor_versioned")).major = 2
    with pytest.raises(BufferError, match="DLPack 2"):
        fb.from_dlpack(newer)


def test_a_capsule_is_used_once():
    capsule = fb.ones(3).__dlpack__()
    assert fb.from_dlpack(capsule).tolist() == [1, 1, 1] and name_of(capsule) == "used_dltensor"
    with pytest.raises(RuntimeError, match="invalid capsule"):
        fb.from_dlpack(capsule)
    versioned = fb.ones(3).__dlpack__(max_version=(1, 0))
    fb.from_dlpack(versioned)
    assert name_of(versioned) == "used_dltensor_versioned"


def test_memory_outlives_its_owner():
    t = fb.arange(1000.0)
    storage = weakref.ref(t.store)
    array = np.from_dlpack(t)
    del t
    gc.collect()
    assert storage() is not None and array.sum() == 499500
    del array
    gc.collect()
    assert storage() is None

    class Counted(np.ndarray):
        pass
    source = np.arange(1000.0).view(Counted)
    seen = weakref.ref(source)
    t = fb.from_dlpack(source)
    part = t[10:20]
    del source, t
    gc.collect()
    assert seen() is not None and part.tolist() == list(range(10, 20))
    del part
    gc.collect()
    assert seen() is None


def test_an_unused_capsule_lets_go():
    for version in (None, (1, 1)):
        t = fb.ones(8)
        storage = weakref.ref(t.store)
        capsule = t.__dlpack__(max_version=version)
        del t
        gc.collect()
        assert storage() is not None
        del capsule
        gc.collect()
        assert storage() is None


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_capsules_of_known_layouts_hold_their_own_tensor(version):
    tensors = [fb.full((2, 3), float(k)) for k in range(4)]
    for _ in range(3):
        made = [t.__dlpack__(max_version=version) for t in tensors] + [fb.utils.dlpack.to_dlpack(t.t()) for t in tensors]
        before = [sys.getrefcount(t.store) for t in tensors]
        for k, t in enumerate(tensors):
            assert fb.from_dlpack(made[k]).data_ptr() == t.data_ptr() and fb.from_dlpack(made[k + 4]).stride() == (1, 3)
        del made
        gc.collect()
        assert [sys.getrefcount(t.store) for t in tensors] == [n - 2 for n in before]
    with pytest.raises(BufferError, match="require"):
        fb.utils.dlpack.to_dlpack(fb.zeros(2, 3, requires_grad=True))
    with pytest.raises(BufferError, match="conjugate"):
        fb.utils.dlpack.to_dlpack(fb.zeros(2, 3, dtype=fb.complex64).conj())
    d = described(fb.zeros(2, 1, 3).__dlpack__(max_version=version))
    assert d.ndim == 3 and [d.shape[i] for i in range(3)] == [2, 1, 3] and [d.strides[i] for i in range(3)] == [3, 1, 1] and d.byte_offset == 0


def test_the_deleter_may_come_from_any_thread():
    kept = []
    for _ in range(50):
        t = fb.ones(64)
        kept.append((weakref.ref(t.store), [np.from_dlpack(t), fb.from_dlpack(t.__dlpack__())]))
    del t
    threads = [threading.Thread(target=lambda part=part: [x[1].clear() for x in part]) for part in (kept[:25], kept[25:])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert [ref() for ref, _ in kept] == [None] * 50


def test_copies():
    t = fb.arange(4.0)
    assert fb.from_dlpack(t).data_ptr() == t.data_ptr() == fb.from_dlpack(t, copy=False).data_ptr()
    assert fb.from_dlpack(t, copy=True).data_ptr() != t.data_ptr()
    array = np.arange(4.0)
    assert fb.from_dlpack(array, copy=False).data_ptr() == array.ctypes.data != fb.from_dlpack(array, copy=True).data_ptr()
    old = Foreign(array, old=True)
    assert fb.from_dlpack(old).data_ptr() == array.ctypes.data != fb.from_dlpack(old, copy=True).data_ptr()
    assert np.shares_memory(np.from_dlpack(t, copy=False), t.numpy()) and not np.shares_memory(np.from_dlpack(t, copy=True), t.numpy())


def test_what_is_refused():
    t = fb.ones(3)
    with pytest.raises(BufferError, match="require gradient"):
        t.clone().requires_grad_().__dlpack__()
    with pytest.raises(BufferError, match="require gradient"):
        fb.from_dlpack(fb.ones(3, requires_grad=True))
    with pytest.raises(TypeError, match="stream must be int"):
        t.__dlpack__(stream="x")
    with pytest.raises(AssertionError, match="stream should be None on cpu"):
        t.__dlpack__(stream=1)
    assert name_of(t.__dlpack__(stream=-1)) == "dltensor"
    with pytest.raises(TypeError, match="must be an object with __dlpack__.*not int"):
        fb.from_dlpack(3)
    with pytest.raises(BufferError, match=r"dl_device=\(8, 0\)"):
        t.__dlpack__(dl_device=(8, 0))
    with pytest.raises(BufferError, match="negative strides"):
        fb.from_dlpack(np.arange(4.0)[::-1])
    with pytest.raises(BufferError):
        fb.from_dlpack(np.zeros(3, "U3"))


@pytest.mark.parametrize("change, says", [
    (lambda d: setattr(d, "lanes", 4), "4 lanes"), (lambda d: setattr(d, "bits", 128), "128 bits"), (lambda d: setattr(d, "code", 3), "code 3"),
    (lambda d: setattr(d, "device_type", 8), "device type 8"), (lambda d: setattr(d, "device_type", 2), "GPU 0"),
    (lambda d: setattr(d, "ndim", -1), "-1 axes"), (lambda d: d.shape.__setitem__(0, -4), "negative size"),
    (lambda d: setattr(d, "data", None), "null")])
def test_descriptions_that_make_no_sense(change, says):
    array = np.arange(4.0)
    with pytest.raises(BufferError, match=says):
        fb.from_dlpack(Foreign(array, change))


def test_offsets_and_pinned_memory():
    array = np.arange(8.0)

    def later(d):
        d.byte_offset = 16
        d.shape[0] = 6
    assert fb.from_dlpack(Foreign(array, later)).tolist() == [2, 3, 4, 5, 6, 7]
    pinned = fb.from_dlpack(Foreign(array, lambda d: setattr(d, "device_type", 3)))
    assert pinned.device.type == "cpu" and pinned.data_ptr() == array.ctypes.data


def test_read_only_memory_is_said_to_be():
    array = np.arange(3.0)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="read-only"):
        t = fb.from_dlpack(array)
    assert t.data_ptr() == array.ctypes.data
    own = fb.from_dlpack(array, copy=True)
    own[0] = 5
    assert array[0] == 0 and own.tolist() == [5, 1, 2]


class TestGpu:
    def test_round_trip(self, sim_gpus):
        t = fb.arange(6.0, device="cuda:1").reshape(2, 3)
        assert t.__dlpack_device__() == (2, 1)
        capsule = t.t().__dlpack__(max_version=(1, 1))
        d = described(capsule)
        assert (d.device_type, d.device_id) == (2, 1)
        again = fb.from_dlpack(capsule)
        assert again.device == fb.device("cuda:1") and again.data_ptr() == t.data_ptr() and again.shape == (3, 2)
        again.add_(1)
        assert t.tolist() == [[1, 2, 3], [4, 5, 6]]

    def test_between_devices(self, sim_gpus):
        t = fb.arange(3.0, device="cuda")
        array = np.from_dlpack(t, device="cpu")
        assert array.tolist() == [0, 1, 2]
        with pytest.raises(BufferError, match="copy=False forbids"):
            t.__dlpack__(dl_device=(1, 0), copy=False)
        moved = fb.from_dlpack(np.arange(3.0), device="cuda:1")
        assert moved.device == fb.device("cuda:1") and moved.tolist() == [0, 1, 2]
        with pytest.raises(BufferError, match="copy=False forbids"):
            fb.from_dlpack(np.arange(3.0), device="cuda", copy=False)
        with pytest.raises(BufferError, match="cannot be had"):
            fb.ones(2).__dlpack__(dl_device=(2, 7))

    def test_streams(self, sim_gpus):
        side = fb.cuda.Stream()
        with fb.cuda.stream(side):
            t = fb.full((1000,), 2.0, device="cuda")
            for _ in range(20):
                t = t + 1
            capsule = t.__dlpack__(stream=1)
        assert fb.from_dlpack(capsule).sum().item() == 22000
        other = fb.cuda.Stream()
        for stream in (None, -1, 2, other.cuda_stream, 1 << 40):
            assert fb.from_dlpack(t.__dlpack__(stream=stream)).shape == (1000,)

    def test_an_address_that_is_not_the_gpus(self, sim_gpus):
        with pytest.raises(BufferError, match="not in the memory of cuda:0"):
            fb.from_dlpack(Foreign(np.arange(4.0), lambda d: setattr(d, "device_type", 2), where=(2, 0)))


def test_no_gpu_says_so():
    if fb.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BufferError, match="there is none here"):
        fb.from_dlpack(Foreign(np.arange(4.0), where=(2, 0)))
    assert ctypes.sizeof(dlpack._Description) == 48


RACE = """
import sys, threading
import numpy as np
sys.setswitchinterval(1e-6)
for i in range(300):
    a = np.arange(8.0) + i
    capsule = a.__dlpack__(max_version=(1, 1)) if i % 2 else a.__dlpack__()
    taken, refused, ready = [], [], threading.Barrier(3)
    def take():
        ready.wait()
        try:
            taken.append(torch.from_dlpack(capsule))
        except RuntimeError as error:
            refused.append(str(error))
    threads = [threading.Thread(target=take) for _ in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert len(taken) == 1 and len(refused) == 2 and "only once" in refused[0], (len(taken), refused)
    assert taken[0][0].item() == i
    del capsule, taken, refused, take, threads, t
    assert sys.getrefcount(a) == 2
"""


def test_a_capsule_is_taken_once_whoever_takes_it():
    """Twice is memory freed twice."""
    processes.says(RACE)


def test_what_cannot_be_used_stays_with_its_capsule():
    a = np.arange(6.0)[::-1]
    capsule = a.__dlpack__()
    for _ in range(2):
        with pytest.raises(BufferError, match="negative strides"):
            fb.from_dlpack(capsule)


def test_lent_memory_and_taken_capsules_that_outlive_the_modules_say_nothing():
    assert processes.run("""
import builtins
import numpy as np
builtins.kept = [torch.from_dlpack(np.arange(5.0)), torch.from_dlpack(np.arange(5.0).__dlpack__()), np.arange(4.0).__dlpack__()]
kept.append(torch.from_dlpack(kept[-1]))
import flambeau.interop.dlpack as d
class Late:
    def __init__(self, x): self.x = x
    def __del__(self): self.x = None
builtins.late = Late(torch.from_dlpack(np.arange(7.0)))
""").stderr == ""

"""Factories against NumPy: sizes, data of every kind, memory shared or copied, devices and errors."""

from __future__ import annotations

import array
import gc
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau._core import dtypes

ALL = [d for d in dtypes.ALL if d not in dtypes.BITS]


@pytest.mark.parametrize("d", dtypes.ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (2, 3)], ids=str)
def test_fills_of_every_type(d, shape):
    for t, value in ((fb.zeros(shape, dtype=d), 0), (fb.ones(shape, dtype=d), 1), (fb.full(shape, 1, dtype=d), 1),
            (fb.zeros(3, 2, dtype=d).new_ones(shape), 1),
                     (fb.ones_like(fb.empty(shape, dtype=d)), 1), (fb.full_like(fb.empty(shape, dtype=d), 1), 1)):
        assert t.dtype is d and t.shape == shape and t.is_contiguous() and (t == value).all().item()
    assert fb.empty(shape, dtype=d).shape == shape


@pytest.mark.parametrize("dev", ["cpu", "cuda"])
def test_numbers_too_large_for_the_type_are_refused(dev, sim_gpus):
    x = fb.ones(2, dtype=fb.int8, device=dev)
    at, mask = fb.tensor([0], device=dev), fb.tensor([True, False], device=dev)

    def put(where):
        x[where] = 300
    for bad in (lambda: fb.full((1,), 300, dtype=fb.int8, device=dev), lambda: x.fill_(300), lambda: x.masked_fill(mask, 300), lambda: put(0),
                lambda: put(mask), lambda: put(at), lambda: x.index_fill(0, at, 300), lambda: x.scatter(0, at, 300), lambda: fb.where(mask, x, 300),
                lambda: fb.nn.functional.pad(x, (1, 1), value=300), lambda: fb.tensor([1, 300], dtype=fb.int8, device=dev),
                lambda: fb.tensor(300, dtype=fb.int8, device=dev), lambda: fb.tensor([float("nan")], dtype=fb.int32, device=dev),
                lambda: fb.full((1,), 1e300, device=dev)):
        with pytest.raises(RuntimeError, match="cannot be converted to type .* without overflow"):
            bad()
    for bad in (lambda: fb.randint(0, 129, (2,), dtype=fb.int8, device=dev), lambda: x.random_(-129, 3)):
        with pytest.raises(RuntimeError, match="out of bounds"):
            bad()
    assert x.tolist() == [1, 1]
    assert fb.tensor([-1, 255], dtype=fb.uint8, device=dev).tolist() == [255, 255] and fb.full((1,), 2**64 - 1, dtype=fb.uint64, device=dev).item() == 2**64 - 1
    wide = fb.ones(2, dtype=fb.int64, device=dev)
    for _ in range(2):  # by the general way, then by the kept plan
        for bad in (lambda: wide + 2**70, lambda: wide * -2**70, lambda: wide == 2**64):
            with pytest.raises(OverflowError):
                bad()
        assert (wide + 2**63).tolist() == [1 - 2**63] * 2 and (wide + (-1)).tolist() == [0, 0]
        assert (wide + 5).tolist() == [6, 6]


def test_sizes_come_one_by_one_in_a_sequence_or_by_name():
    for make in (fb.zeros, fb.ones, fb.empty):
        assert make(2, 3).shape == make((2, 3)).shape == make([2, 3]).shape == make(size=(2, 3)).shape == make(fb.Size([2, 3])).shape == (2, 3)
        assert make(np.int64(2)).shape == (2,) and make(()).shape == () and make(fb.tensor(2), 1).shape == (2, 1)
        with pytest.raises(RuntimeError, match="negative dimension -1"):
            make(2, -1)
        with pytest.raises(TypeError, match="must be tuple of ints"):
            make(2.5)
        with pytest.raises((TypeError, RuntimeError)):
            make("3")


def test_types_devices_and_gradients_are_options():
    t = fb.zeros(2, dtype=fb.float64, device="cpu", requires_grad=True)
    assert t.dtype is fb.float64 and t.requires_grad and t.is_leaf
    assert fb.zeros(2, dtype=int).dtype is fb.int64 and fb.zeros(2, dtype=float).dtype is fb.float64 and fb.zeros(1, dtype=bool).dtype is fb.bool
    with pytest.raises(RuntimeError, match="floating point"):
        fb.zeros(2, dtype=fb.int64, requires_grad=True)
    with pytest.raises(TypeError, match="argument 'dtype' must be torch.dtype, not str"):
        fb.zeros(2, dtype="float32")
    with pytest.raises(RuntimeError, match="(?i)device"):
        fb.zeros(2, device="gpu")
    out = fb.empty(0)
    assert fb.ones(2, 2, out=out) is out and out.tolist() == [[1, 1], [1, 1]]
    assert fb.full((2,), 3).dtype is fb.int64 and fb.full((2,), True).dtype is fb.bool and fb.full((2,), 1j).dtype is fb.complex64
    assert fb.full((2,), 2.5).dtype is fb.float32
    assert fb.full((2,), fb.tensor(4.0)).tolist() == [4, 4] and fb.scalar_tensor(3).dtype is fb.float32


def test_likes_keep_type_device_and_layout():
    x = fb.zeros(2, 3, dtype=fb.float16).t()
    for make in (fb.zeros_like, fb.ones_like, fb.empty_like, fb.rand_like):
        assert make(x).stride() == x.stride() and make(x).dtype is fb.float16 and make(x, dtype=fb.float64).dtype is fb.float64
    assert x.new_zeros(2, 2).dtype is fb.float16 and x.new_tensor([1, 2]).dtype is fb.float16 and x.new_full((1,), 3).item() == 3
    assert x.new_empty(4).shape == (4,)
    assert fb.empty_strided((2, 3), (1, 2)).stride() == (1, 2) and fb.empty_permuted((2, 3, 4), (2, 0, 1)).stride() == (3, 1, 6)


@pytest.mark.parametrize("data,d,shape", [
    (3, fb.int64, ()), (2.5, fb.float32, ()), (True, fb.bool, ()), (1j, fb.complex64, ()), ([], fb.float32, (0,)), ([[]], fb.float32, (1, 0)),
    ([1, 2.5], fb.float32, (2,)),
    ([True, 2], fb.int64, (2,)), ([1, 2j], fb.complex64, (2,)), (((1, 2), (3, 4)), fb.int64, (2, 2)), (range(3), fb.int64, (3,)),
    ([np.float64(1), np.float64(2)], fb.float64, (2,)),
    (np.float64(3), fb.float64, ()), (np.zeros((2, 3), np.int8), fb.int8, (2, 3)), ([np.zeros(2), np.ones(2)], fb.float64, (2, 2)),
    ([np.zeros(2, np.float32)], fb.float32, (1, 2))], ids=lambda v: repr(v)[:20])
def test_data_has_the_type_and_shape_pytorch_gives_it(data, d, shape):
    t = fb.tensor(data)
    assert t.dtype is d and t.shape == shape
    np.testing.assert_array_equal(t.numpy(), np.array(data))


def test_tensors_inside_lists_and_tensors_themselves():
    assert fb.tensor([fb.tensor(1.0), fb.tensor(2.0)]).tolist() == [1, 2]
    with pytest.warns(UserWarning, match="clone"):
        copy = fb.tensor(fb.ones(2, requires_grad=True))
    assert not copy.requires_grad and copy.is_leaf
    for wrong, error in (([[1], [1, 2]], ValueError), ("abc", TypeError), ([None], RuntimeError), ([2 ** 70], ValueError), (2 ** 63, ValueError),
            (object(), RuntimeError), (["a"], ValueError),
                         (np.array(["a"]), TypeError)):
        with pytest.raises(error):
            fb.tensor(wrong)
    assert fb.tensor(2 ** 63, dtype=fb.uint64).item() == 2 ** 63 and fb.tensor([2 ** 70, 1.5]).dtype is fb.float32
    with pytest.raises(TypeError, match="can't convert np.ndarray of type"):
        fb.tensor(np.array([object()]))


@pytest.mark.parametrize("d", ALL, ids=str)
def test_numpy_arrays_share_memory_both_ways(d):
    a = np.ones((3, 4), d.np)
    t = fb.from_numpy(a)
    assert t.dtype is d and t.data_ptr() == a.__array_interface__["data"][0]
    a[1, 2] = 0
    assert t[1, 2].item() == 0
    t[0] = 0
    assert not a[0].any() and fb.from_numpy(a.T).stride() == (1, 4) and fb.from_numpy(a[::2, 1::2]).tolist() == a[::2, 1::2].tolist()
    back = t.numpy()
    assert back.dtype == d.np and np.shares_memory(back, a)
    del a, t
    assert back[1, 0] == 1


def test_what_numpy_arrays_cannot_be_shared():
    for wrong, error in ((np.arange(3)[::-1], ValueError), (np.array([1], ">i4"), ValueError), (np.array(["a"]), TypeError), ([1], TypeError),
                         (np.zeros(2, [("a", "f4"), ("b", "i1")])["a"], ValueError)):
        with pytest.raises(error):
            fb.from_numpy(wrong)
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        fb.from_numpy(frozen)
    a = np.arange(3)[::-1]
    assert fb.tensor(a).tolist() == [2, 1, 0] and fb.as_tensor(a).tolist() == [2, 1, 0]


def test_as_tensor_and_asarray_share_where_they_can():
    a, t = np.arange(3.0), fb.arange(3.0)
    assert fb.as_tensor(t) is t and fb.as_tensor(a).data_ptr() == a.__array_interface__["data"][0] and fb.as_tensor(a, dtype=fb.float32).dtype is fb.float32
    assert fb.asarray(a).data_ptr() == a.__array_interface__["data"][0] != fb.asarray(a, copy=True).data_ptr() and fb.asarray([1, 2]).tolist() == [1, 2]
    with pytest.raises(ValueError, match="can't alias"):
        fb.asarray([1, 2], copy=False)
    shared = fb.from_dlpack(a)
    assert shared.data_ptr() == a.__array_interface__["data"][0] and np.shares_memory(np.from_dlpack(t), t.numpy())
    raw = array.array("f", [1.0, 2.0, 3.0])
    b = fb.frombuffer(raw, dtype=fb.float32, offset=4)
    raw[1] = 9
    assert b.tolist() == [9, 3] and fb.frombuffer(bytearray(8), dtype=fb.int16, count=2).shape == (2,)
    for kw in ({"offset": 99}, {"count": 9}, {"offset": 1}):
        with pytest.raises(ValueError):
            fb.frombuffer(raw, dtype=fb.float32, **kw)


def test_a_default_device_and_a_device_context(sim_gpus):
    with fb.device("cuda:1"):
        assert str(fb.zeros(2).device) == "cuda:1" and str(fb.tensor([1]).device) == "cuda:1" and str(fb.zeros(2, device="cpu").device) == "cpu"
    assert str(fb.zeros(2).device) == "cpu"
    fb.set_default_device("cuda")
    try:
        assert fb.arange(3).is_cuda and fb.randn(2).is_cuda and fb.eye(2).is_cuda
    finally:
        fb.set_default_device("cpu")


def test_on_every_device(device):
    for t, want in ((fb.zeros(2, 3, device=device), np.zeros((2, 3))), (fb.arange(5, device=device), np.arange(5)),
            (fb.linspace(0, 1, 5, device=device), np.linspace(0, 1, 5)),
                    (fb.eye(3, device=device), np.eye(3)), (fb.tensor([[1, 2]], device=device), np.array([[1, 2]])),
                    (fb.full((2,), 3.5, device=device), np.full(2, 3.5)),
                    (fb.empty(2, device=device).fill_(4), np.full(2, 4)), (fb.as_tensor(np.ones(2), device=device), np.ones(2))):
        assert str(t.device) == device
        np.testing.assert_array_equal(t.cpu().numpy(), want)


def test_fill_and_zero_in_place():
    t = fb.empty(2, 3)
    assert t.fill_(2.5) is t and t.tolist() == [[2.5] * 3] * 2 and t.zero_().sum().item() == 0 and t._version == 2
    t[:, 1].fill_(fb.tensor(7.0))
    assert t.tolist() == [[0, 7, 0]] * 2 and fb.fill(t, 1).sum().item() == 6 and t.sum().item() == 14
    turned = fb.rand(3, 4).t()
    assert fb.fill(turned, 2.0).stride() == turned.stride() and fb.fill(turned, 2.0).tolist() == [[2.0] * 3] * 4
    leaf = fb.rand(2, requires_grad=True)
    fb.fill(leaf, 2.0).sum().backward()
    assert leaf.grad.tolist() == [0, 0]
    whole = fb.empty(4, 6).t()
    assert fb.eye(6, 4, out=whole) is whole and whole.stride() == (1, 6) and whole.tolist() == [[float(i == j) for j in range(4)] for i in range(6)]
    version = t._version
    assert t.conj_physical_() is t and t._version == version + 1  # a real tensor is its own conjugate
    with pytest.raises(RuntimeError, match="0-dimension value tensor"):
        t.fill_(fb.ones(2))
    assert fb.empty(2, dtype=fb.int64).fill_(3.9).tolist() == [3, 3] and fb.empty(1, dtype=fb.bool).fill_(2).item() is True


def test_a_planned_call_holds_for_its_own_arguments_only(sim_gpus):
    for _ in range(2):
        assert fb.zeros(2, 3).shape == fb.zeros((2, 3)).shape == fb.zeros([2, 3]).shape == fb.zeros(np.int64(2), fb.tensor(3)).shape == (2, 3)
        assert fb.zeros().shape == fb.zeros(()).shape == () and fb.zeros(range(2, 4)).shape == fb.zeros(size=(2, 3)).shape == (2, 3)
        assert fb.zeros(range(3, 5)).shape == (3, 4) and fb.ones(2, out=fb.empty(0)).tolist() == [1, 1]
        for wrong in ((2.0, 3), ([2, 3.0],), ("a",), (2, (3,))):
            with pytest.raises(TypeError):
                fb.zeros(*wrong)
        with pytest.raises(RuntimeError, match="negative dimension -1"):
            fb.ones(2, -1)
        x = fb.ones(2)
        assert [t.dtype for t in (fb.full_like(x, True), fb.zeros_like(x, dtype=fb.int8), fb.ones_like(x, dtype=float))] == [fb.float32, fb.int8, fb.float64]
        assert fb.full_like(x, 2).tolist() == [2, 2] and fb.full_like(x, 1).tolist() == [1, 1] and fb.full_like(x, fb.tensor(3)).tolist() == [3, 3]
        assert fb.full_like(x, 1 + 2j, dtype=fb.complex64).tolist() == [1 + 2j] * 2 and fb.zeros_like(x, device="meta").device.type == "meta"
        assert fb.ones(2, requires_grad=True).requires_grad and not fb.ones(2).requires_grad and fb.empty_like(x, requires_grad=True).is_leaf
        with pytest.raises(RuntimeError):
            fb.ones(2, dtype=fb.int64, requires_grad=True)
        with pytest.raises(TypeError, match="fill_value"):
            fb.full_like(x, None)


def test_defaults_of_the_moment_hold_in_planned_calls(sim_gpus):
    def made():
        return [fb.zeros(2, 3), fb.ones(3, dtype=None), fb.zeros(2, dtype=float), fb.full((2,), 1j), fb.zeros_like(fb.ones(1, dtype=fb.int8), dtype=float)]
    assert [t.dtype for t in made()] == [fb.float32, fb.float32, fb.float64, fb.complex64, fb.float64]
    fb.set_default_dtype(fb.float64)
    try:
        assert [t.dtype for t in made()] == [fb.float64, fb.float64, fb.float64, fb.complex128, fb.float64]
    finally:
        fb.set_default_dtype(fb.float32)
    assert [t.dtype for t in made()] == [fb.float32, fb.float32, fb.float64, fb.complex64, fb.float64]
    for index in (0, 1, 0):
        with fb.cuda.device(index):  # "cuda" means the current one
            x = fb.ones(2, device="cpu")
            assert fb.zeros(2, device="cuda").device.index == fb.zeros_like(x, device="cuda").device.index == index
        with fb.device(f"cuda:{index}"):
            assert fb.zeros(2).device.index == index and fb.zeros_like(x).device.type == "cpu"
    assert fb.zeros(2).device.type == "cpu"


def test_a_tensor_among_the_data_is_the_number_that_it_holds():
    one, two = fb.tensor([1.0]), fb.tensor([[2.0]])
    assert fb.tensor([one, two]).tolist() == [1, 2] and fb.tensor([[one, 3], [two, 4.0]]).tolist() == [[1, 3], [2, 4]]
    assert fb.as_tensor([one, two]).tolist() == [1, 2] and one.new_tensor((one, two)).tolist() == [1, 2]
    assert [fb.tensor([fb.ones(1, dtype=a), b]).dtype for a, b in ((fb.int8, True), (fb.int8, 1), (fb.int32, 1.0), (fb.float64, 1.0), (fb.float16, fb.ones(())),
            (fb.bool, True), (fb.float32, 1j))] == [fb.int8, fb.int64, fb.float32, fb.float64, fb.float32, fb.bool, fb.complex64]
    for wrong in ([fb.ones(2), fb.ones(2)], [fb.ones(0)], [[fb.ones(2)], [1]]):
        with pytest.raises(ValueError, match="only one element tensors can be converted"):
            fb.tensor(wrong)


@pytest.mark.parametrize("d", [fb.bfloat16, fb.float16, fb.float32, fb.int64, fb.bool, fb.complex64], ids=str)
def test_one_number_is_a_tensor_without_axes(d):
    x = fb.tensor(1, dtype=d)
    assert x.shape == () and x.dtype is d and fb.tensor([1], dtype=d).shape == (1,) and (x + fb.tensor(1, dtype=d)).shape == ()
    if d.is_floating_point:
        assert (x + fb.tensor(1.0, dtype=fb.float64)).dtype is fb.float64


def test_memory_of_others_becomes_an_array_of_ours():
    import array
    x = fb.arange(3.0)
    assert fb.asarray(fb.to_dlpack(x)).data_ptr() == x.data_ptr()
    held = array.array("f", [1, 2])
    y = fb.asarray(held)
    held[0] = 5
    assert y.tolist() == [5, 2] and fb.asarray(bytearray(b"\1\0\0\0"), dtype=fb.int32).tolist() == [1]
    with pytest.raises(RuntimeError, match="NumPy scalars"):
        fb.asarray(np.float32(1), dtype=fb.int64, copy=False)
    for wrong, words in (([1, 2], "arbitrary sequence"),
                         (np.ones(2, np.float32), "with dtype 'float32' into dtype 'torch.int64'")):
        with pytest.raises(ValueError, match=words):
            fb.asarray(wrong, dtype=fb.int64, copy=False)
    with pytest.raises(ValueError, match="does not implement Python buffer protocol"):
        fb.frombuffer([1], dtype=fb.int8)


@pytest.mark.parametrize(("call", "words"), [
    (lambda: fb.linspace(0, 1j, 3, dtype=fb.float32), "inferred dtype ComplexFloat"), (lambda: fb.logspace(0, 1j, 3, dtype=fb.float32), "inferred dtype"),
    (lambda: fb.complex(fb.ones(1), fb.ones(1).double()), "scalar type Float but got scalar type Double for second argument"),
    (lambda: fb.complex(fb.ones(1).bool(), fb.ones(1).bool()), "but got Bool and Bool"), (lambda: fb.normal(fb.ones(2), -fb.ones(2)), "std >= 0.0"),
    (lambda: fb.ones(2).uniform_(0, 1e39), "out of bounds"), (lambda: fb.ones(2).uniform_(-3e38, 3e38), "to-from")])
def test_numbers_that_do_not_fit(call, words):
    with pytest.raises(RuntimeError, match=words):
        call()


def test_buffers_of_known_sizes_are_still_looked_at():
    """The calls after the first, which machine code carries out."""
    fb.zeros(2) + 1  # which loads it
    raw = bytearray(16)
    for _ in range(4):
        t = fb.frombuffer(raw, dtype=fb.float32, count=3, offset=4)
    t[0] = 2.5
    assert raw[4:8] == np.float32(2.5).tobytes() and t.shape == (3,) and t.storage_offset() == 0
    with pytest.raises(BufferError):  # its memory would move
        raw.append(1)
    del t
    gc.collect()
    raw.append(1)
    assert fb.frombuffer(raw, dtype=fb.float32, count=3, offset=4).shape == (3,)  # of another size, where as many fit
    with pytest.raises(ValueError, match="requested buffer length"):
        fb.frombuffer(bytearray(12), dtype=fb.float32, count=3, offset=4)
    with pytest.raises(TypeError):
        fb.frombuffer(bytearray(16), dtype=fb.float32, count=3.0, offset=4)
    assert fb.frombuffer(bytes(16), dtype=fb.float32, count=3, offset=4).tolist() == [0, 0, 0]  # with a warning, once
    assert fb.frombuffer(bytearray(16), dtype=fb.float32, count=3, offset=4, requires_grad=True).requires_grad
    with pytest.raises((ValueError, BufferError)):
        fb.frombuffer(memoryview(bytearray(32))[::2], dtype=fb.float32, count=3, offset=4)


def test_arrays_of_known_layouts_share_their_own_memory():
    fb.zeros(2) + 1
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3) + k for k in range(4)]
    made = [fb.from_numpy(a) for a in arrays]
    before = [sys.getrefcount(x) for x in arrays]
    for a, t in zip(arrays, made):
        a[0, 0] = -1
        assert t.tolist() == a.tolist() and t.data_ptr() == a.ctypes.data
    del made, t, a
    assert [sys.getrefcount(x) for x in arrays] == [n - 1 for n in before]
    frozen = arrays[0].copy()
    frozen.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        fb.from_numpy(frozen)
    for part in (arrays[1].T, arrays[1][1:], arrays[1][:, 1:], arrays[1].view(np.recarray), arrays[1]):
        for _ in range(2):
            t = fb.from_numpy(part)
            assert t.data_ptr() == part.ctypes.data and t.tolist() == part.tolist() and t.stride() == tuple(s // 4 for s in part.strides)


def test_lists_of_numbers_are_read_alike_by_all_that_take_them() -> None:
    like = fb.zeros(1, dtype=fb.float64)
    for data in ([[1, 2], [3, 4]], [1.5, -2.0], (True, False), [[1.0], [2]], [], [[]], [1, 2.5]):
        for more in ({}, {"dtype": fb.float64}, {"dtype": fb.int32} if data != [1, 2.5] else {}, {"device": "cpu"}, {"device": "meta"}):
            wanted = fb.tensor(data, **more)
            for made in (fb.as_tensor(data, **more), fb.asarray(data, **more), fb.asarray(data, copy=True, **more)):
                assert made.dtype is wanted.dtype and made.device == wanted.device and made.shape == wanted.shape
                assert made.device.type == "meta" or made.tolist() == wanted.tolist()
        assert like.new_tensor(data).dtype is fb.float64 and like.new_tensor(data).tolist() == fb.tensor(data, dtype=fb.float64).tolist()
        assert like.new_tensor(data, requires_grad=True).requires_grad and fb.asarray(data, dtype=fb.float32, requires_grad=True).requires_grad
        with pytest.raises(ValueError):
            fb.asarray(data, copy=False)
    with pytest.raises((RuntimeError, TypeError)):
        like.new_tensor([1j])
    with pytest.raises(RuntimeError):
        fb.asarray([1, 2], requires_grad=True)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(st.floats(width=32), min_size=n, max_size=n), min_size=1, max_size=5)))
def test_lists_of_numbers_are_numpys(data) -> None:
    want = np.array(data, np.float32)
    for made in (fb.tensor(data), fb.as_tensor(data), fb.asarray(data), fb.zeros(()).new_tensor(data)):
        assert made.dtype is fb.float32 and made.numpy().tobytes() == want.tobytes()


def test_factories_of_sparse_tensors():
    for make in (fb.zeros, fb.empty):
        t = make(3, 2, layout=fb.sparse_coo, dtype=fb.float64, requires_grad=True)
        assert t.is_sparse and t._nnz() == 0 and t.shape == (3, 2) and t.dtype is fb.float64 and t.requires_grad
    for call in (lambda: fb.ones(3, layout=fb.sparse_coo), lambda: fb.zeros(3, 3, layout=fb.sparse_csr)):
        with pytest.raises(NotImplementedError, match="layout torch.sparse"):
            call()
    assert not fb.zeros(2, layout=fb.strided).is_sparse


@pytest.mark.parametrize(("data", "told"), [
    ([np.zeros((3, 3)), np.zeros((3, 0))], r"expected sequence of length 3 at dim 2 \(got 0: data\[1\]\[0\]\)"),
    ([[np.zeros((3, 3)), np.zeros((3, 2))]], r"expected sequence of length 3 at dim 3 \(got 2: data\[0\]\[1\]\[0\]\)"),
    ([np.zeros((3, 3)), [[1, 2, 3], [1, 2]]], r"expected sequence of length 3 at dim 1 \(got 2: data\[1\]\)")])
def test_arrays_of_other_lengths_are_named(data, told):
    with pytest.raises(ValueError, match=told):
        fb.tensor(data)

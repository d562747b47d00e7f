"""NumPy's protocols: sharing, ufuncs, mixed arithmetic; and the CUDA array interface."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import flambeau as fb
from flambeau.interop.numpy import cuda_array_interface


def test_asarray_shares_and_copies_when_asked():
    t = fb.arange(4.0)
    assert np.shares_memory(np.asarray(t), t.numpy()) and not np.shares_memory(np.array(t), t.numpy())
    wide = np.asarray(t, dtype=np.float64)
    assert wide.dtype == np.float64 and wide.tolist() == [0, 1, 2, 3]
    assert np.shares_memory(np.asarray(t, dtype=np.float32, copy=False), t.numpy())
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.asarray(t, dtype=np.float64, copy=False)
    with pytest.raises(RuntimeError, match="requires grad"):
        np.asarray(fb.ones(2, requires_grad=True))
    with pytest.raises(TypeError, match="BFloat16"):
        np.asarray(fb.ones(2, dtype=fb.bfloat16))


def test_a_gpu_tensor_is_not_read_unasked(sim_gpus):
    with pytest.raises(TypeError, match="Use Tensor.cpu"):
        np.asarray(fb.ones(2, device="cuda"))


@pytest.mark.parametrize("f", [np.sin, np.exp, np.sqrt, np.abs, np.round, np.floor, np.cumsum, np.squeeze])
def test_numpy_functions_of_a_tensor_give_tensors(f):
    t = fb.tensor([0.25, 1.5, 2.0])
    made = f(t)
    assert type(made) is fb.Tensor and made.dtype is fb.float32 and np.array_equal(made.numpy(), f(t.numpy()))


def test_two_operand_functions():
    t, a = fb.arange(3.0), np.arange(3.0)
    for made in (np.add(t, t), np.add(a, t), np.multiply(t, 2.0), np.maximum(t, a)):
        assert type(made) is fb.Tensor
    assert np.add(a, t).dtype is fb.float64
    greater = np.greater(t, 1.0)
    assert greater.dtype is fb.uint8 and greater.tolist() == [0, 0, 1]
    assert type(np.concatenate([t, t])) is np.ndarray
    whole, part = np.modf(fb.tensor([1.5, -2.25]))
    assert type(whole) is fb.Tensor and part.tolist() == [1.0, -2.0]
    out = np.zeros(3, np.float32)
    assert np.sqrt(t, out=out) is out and out[1] == 1


def test_operators_with_arrays_give_tensors_from_either_side():
    t, a = fb.arange(4.0), np.full(4, 2.0)
    for made, right in ((t + a, [2, 3, 4, 5]), (a + t, [2, 3, 4, 5]), (t - a, [-2, -1, 0, 1]), (a - t, [2, 1, 0, -1]), (a * t, [0, 2, 4, 6]),
                        (t / a, [0, 0.5, 1, 1.5]), (a**t, [1, 2, 4, 8])):
        assert type(made) is fb.Tensor and made.dtype is fb.float64 and made.tolist() == right
    assert (t == a).tolist() == (a == t).tolist() == [False, False, True, False]
    assert (a < t).tolist() == [False, False, False, True]
    square = np.ones((4, 4))
    assert (t.double() @ square).tolist() == (square @ t.double()).tolist() == [6.0] * 4
    assert (np.float32(2) * t).dtype is fb.float32 and (t * np.float64(2)).dtype is fb.float32
    with pytest.raises(TypeError):
        t @ "x"


def test_an_array_added_in_place_gives_a_new_tensor():
    x = before = fb.ones(3)
    x += np.ones(3)
    assert x is not before and x.dtype is fb.float64 and x.tolist() == [2, 2, 2] and before.tolist() == [1, 1, 1]
    with pytest.raises(TypeError):
        x += "y"


def test_numpy_numbers_are_sizes_and_axes():
    t = fb.arange(6.0).reshape(np.int64(2), 3)
    assert t.sum(np.int64(0)).tolist() == [3, 5, 7] and t.mean(dim=fb.tensor(1)).tolist() == [1, 4]
    assert fb.ones(np.int64(3)).shape == (3,) and t[np.array([0]), np.int64(1)].tolist() == [1.0]
    assert np.arange(4)[fb.tensor([1, 2])].tolist() == [1, 2] and np.arange(4)[fb.tensor(3)] == 3


def test_mixed_arithmetic_records():
    t = fb.arange(3.0, dtype=fb.float64).requires_grad_()
    (np.array([1.0, 2.0, 3.0]) * t).sum().backward()
    assert t.grad.tolist() == [1, 2, 3]


def test_cuda_array_interface(sim_gpus):
    with pytest.raises(AttributeError, match="non-CUDA tensor"):
        _ = fb.ones(2).__cuda_array_interface__
    assert not hasattr(fb.ones(2, device="cuda"), "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="simulated GPU"):
        cuda_array_interface(fb.ones(2, device="cuda"))


class _Real:
    simulated = False


def test_the_interface_of_a_real_gpu(sim_gpus, monkeypatch):
    from flambeau._core.runtime import gpus

    class There:
        driver = _Real
    t = fb.arange(6, device="cuda").reshape(2, 3)
    across, small, brain, taught = t.t(), t.to(fb.uint8), t.to(fb.bfloat16), t.float().requires_grad_()
    monkeypatch.setattr(gpus, "require_context", lambda: There)
    assert cuda_array_interface(t) == {"typestr": "<i8", "shape": (2, 3), "strides": None, "data": (t.data_ptr(), False), "version": 2}
    assert cuda_array_interface(across)["strides"] == (8, 24)
    assert cuda_array_interface(small)["typestr"] == "|u1"
    with pytest.raises(AttributeError, match="bfloat16"):
        cuda_array_interface(brain)
    with pytest.raises(RuntimeError, match="requires grad"):
        cuda_array_interface(taught)


def test_copies_of_views_share_as_before():
    x = fb.arange(6.0)
    pair = {"whole": x, "part": x[2:4]}
    for again in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        again["part"].fill_(-1)
        assert again["whole"].tolist() == [0, 1, -1, -1, 4, 5] and x.tolist() == [0, 1, 2, 3, 4, 5]
    same = copy.copy(x)
    same[0] = 9
    assert x[0].item() == 9


def test_copies_keep_gradients_of_leaves():
    w = fb.ones(2, requires_grad=True)
    (w * 3).sum().backward()
    deep = copy.deepcopy(w)
    assert deep.requires_grad and deep.grad.tolist() == [3, 3] and deep.grad is not w.grad
    assert pickle.loads(pickle.dumps(w)).requires_grad
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(w * 2)


def test_buffers_are_shared():
    raw = bytearray(b"\x01\x02\x03\x04")
    t = fb.frombuffer(raw, dtype=fb.uint8)
    t[0] = 255
    assert raw[0] == 255
    assert memoryview(fb.arange(3).numpy()).tolist() == [0, 1, 2]

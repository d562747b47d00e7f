"""Memory shared with PyTorch itself, and answers of protocols that both have."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch

import flambeau as fb

NAMES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
         "complex128"]
LAYOUTS = [lambda x: x, lambda x: x.t(), lambda x: x[:, 1:3], lambda x: x[::2], lambda x: x[1], lambda x: x[1, 2], lambda x: x[:0],
           lambda x: x[:, :1].expand(4, 5)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dlpack_both_ways(name, layout):
    theirs = layout(torch.arange(24).reshape(4, 6).to(getattr(torch, name)))
    ours = fb.from_dlpack(theirs)
    assert ours.dtype is getattr(fb, name) and tuple(ours.shape) == tuple(theirs.shape) and ours.tolist() == theirs.tolist()
    back = torch.from_dlpack(ours)
    assert back.dtype is theirs.dtype and back.shape == theirs.shape and torch.equal(back, theirs)
    if theirs.numel():
        assert ours.data_ptr() == theirs.data_ptr() == back.data_ptr()
    assert fb.from_dlpack(torch.utils.dlpack.to_dlpack(theirs)).tolist() == torch.utils.dlpack.from_dlpack(ours.__dlpack__()).tolist()


def test_writes_are_seen_and_memory_is_kept():
    ours = fb.zeros(8)
    storage = weakref.ref(ours.store)
    theirs = torch.from_dlpack(ours)
    theirs.add_(1)
    assert ours.tolist() == [1.0] * 8
    del ours
    gc.collect()
    assert storage() is not None and theirs.sum().item() == 8
    del theirs
    gc.collect()
    assert storage() is None
    theirs = torch.ones(8)
    ours = fb.from_dlpack(theirs)[2:]
    del theirs
    gc.collect()
    assert ours.sum().item() == 6


def test_copies_and_refusals_agree():
    for lib, other in ((fb, torch), (torch, fb)):
        x = other.arange(3.0)
        assert lib.from_dlpack(x, copy=False).data_ptr() == x.data_ptr() != lib.from_dlpack(x, copy=True).data_ptr()
        assert lib.from_dlpack(x, device="cpu").data_ptr() == x.data_ptr()
        with pytest.raises(BufferError):
            lib.from_dlpack(other.ones(2, requires_grad=True))
    for t in (torch.ones(2), fb.ones(2)):
        with pytest.raises(TypeError):
            t.__dlpack__(stream="x")
        with pytest.raises(AssertionError):
            t.__dlpack__(stream=1)
        assert tuple(int(x) for x in t.__dlpack_device__()) == (1, 0)
        assert "versioned" in repr(t.__dlpack__(max_version=(1, 0))) and "versioned" not in repr(t.__dlpack__())


@pytest.mark.parametrize("f", [
    lambda m, t: np.sin(t), lambda m, t: np.add(t, t), lambda m, t: np.greater(t, 1), lambda m, t: np.modf(t)[0], lambda m, t: t + np.arange(4.0),
    lambda m, t: np.float32(2) - t, lambda m, t: np.int64(2) ** t, lambda m, t: t * np.float64(2), lambda m, t: np.cumsum(t), lambda m, t: np.isnan(t),
    lambda m, t: np.sin(t.to(m.int32)), lambda m, t: np.exp(m.zeros(2, dtype=m.bool)), lambda m, t: np.reshape(t, (2, 2)), lambda m, t: t.double() @ np.ones(4),
    lambda m, t: np.ones(4) / t, lambda m, t: np.ones(4) == t, lambda m, t: t.sum(np.int64(0)), lambda m, t: np.transpose(m.ones(2, 3)),
    lambda m, t: np.clip(t, 0, 1)])
@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept")
def test_numpy_functions_agree(f):
    with np.errstate(all="ignore"):
        theirs, ours = f(torch, torch.arange(4.0)), f(fb, fb.arange(4.0))
    assert type(ours) is fb.Tensor and type(theirs) is torch.Tensor and ours.dtype.name == str(theirs.dtype)[6:]
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


class TheirSub(torch.Tensor):
    pass


class OurSub(fb.Tensor):
    pass


@pytest.mark.parametrize("f", [
    lambda m, s, p: s + 1, lambda m, s, p: p * s, lambda m, s, p: m.cat([p, s]), lambda m, s, p: s.max(0)[1], lambda m, s, p: s[0], lambda m, s, p: s.T,
    lambda m, s, p: m.nn.functional.mse_loss(s, p), lambda m, s, p: p.clone().add_(s), lambda m, s, p: s.split(1)[0], lambda m, s, p: s.detach(),
    lambda m, s, p: m.nn.Linear(3, 2)(s), lambda m, s, p: m.zeros_like(s), lambda m, s, p: s.shape, lambda m, s, p: s.sum().item(),
    lambda m, s, p: s.as_subclass(m.Tensor), lambda m, s, p: m.linalg.norm(s), lambda m, s, p: (s == s).all(), lambda m, s, p: m.topk(s, 1)[0],
    lambda m, s, p: s.requires_grad_().sum(), lambda m, s, p: next(iter(s)), lambda m, s, p: m.Tensor._make_subclass(type(s), p), lambda m, s, p: s.numpy()])
@pytest.mark.filterwarnings("ignore:The use of `x.T`")
def test_the_class_of_results_agrees(f):
    theirs = f(torch, torch.ones(3).as_subclass(TheirSub), torch.ones(3))
    ours = f(fb, fb.ones(3).as_subclass(OurSub), fb.ones(3))
    assert type(ours).__name__.removeprefix("Our") == type(theirs).__name__.removeprefix("Their")

"""Moving tensors between devices: values, layouts, lifetimes, gradients."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import flambeau as fb
from flambeau._core import dtypes


@pytest.mark.parametrize("d", dtypes.ALL, ids=str)
def test_every_type_makes_the_round_trip(device, d):
    t = fb.tensor([0, 1, 2, 100]).to(d)
    there = t.to(device)
    assert str(there.device) == device and there.dtype is d and (there is t) == (device == "cpu")
    assert fb.equal(there.cpu(), t) and there.cpu().dtype is d


LAYOUTS = {"dense": lambda t: t, "transposed": lambda t: t.t(), "sliced": lambda t: t[1:, ::2], "row": lambda t: t[1], "expanded": lambda t: t[:1].expand(4, 6),
           "empty": lambda t: t[:0], "zero-dim": lambda t: t[1, 2], "window": lambda t: t.unfold(1, 3, 1)}


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_every_layout_makes_the_round_trip(device, name):
    t = LAYOUTS[name](fb.arange(24.0).reshape(4, 6))
    there = t.to(device, copy=True)
    np.testing.assert_array_equal(there.cpu().numpy(), t.numpy())
    if name in ("dense", "transposed"):
        assert there.stride() == t.stride()
    back = LAYOUTS[name](fb.arange(24.0).reshape(4, 6).to(device)).cpu()
    np.testing.assert_array_equal(back.numpy(), t.numpy())


def test_a_source_may_be_overwritten_or_dropped_once_the_call_returns(device):
    t = fb.ones(100_000)
    there = t.to(device, non_blocking=True, copy=True)
    t.fill_(2.0)
    assert there.sum().item() == 100_000
    kept = [fb.full((10_000,), float(i)).to(device, non_blocking=True) for i in range(20)]
    gc.collect()
    junk = [fb.full((10_000,), -1.0) for _ in range(20)]
    assert [k[0].item() for k in kept] == list(range(20)) and junk[0][0].item() == -1


def test_between_two_gpus(sim_gpus):
    a = fb.arange(12.0).reshape(3, 4).to("cuda:0")
    b = a.t().to("cuda:1")
    assert str(b.device) == "cuda:1" and b.stride() == (1, 4) and b.cpu().tolist() == a.cpu().t().tolist()
    c = fb.zeros(4, 3, device="cuda:0")
    c.copy_(b)
    assert c.cpu().tolist() == b.cpu().tolist()
    assert a.to(b).device == b.device and a.cuda() is a and a.cuda(1).get_device() == 1 and b.cuda("cuda:0").get_device() == 0
    with pytest.raises(RuntimeError, match="must be cuda device"):
        a.cuda("cpu")


def test_memory_format_and_type_change_on_the_way(device):
    x = fb.arange(120.0).reshape(2, 3, 4, 5)
    y = x.to(device, memory_format=fb.channels_last)
    assert y.is_contiguous(memory_format=fb.channels_last) and fb.equal(y.cpu(), x)
    z = x.to(device, fb.float16)
    assert z.dtype is fb.float16 and str(z.device) == device and fb.equal(z.cpu().float(), x)
    assert fb.equal(z.to("cpu", fb.float64), x.double())


def test_gradients_travel_back(device):
    x = fb.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x.to(device)
    (y * y).sum().backward()
    assert str(x.grad.device) == "cpu" and x.grad.tolist() == [2, 4, 6]
    leaf = fb.ones(3, device=device, requires_grad=True)
    (leaf.cpu() * fb.tensor([1.0, 2.0, 3.0])).double().sum().backward()
    assert str(leaf.grad.device) == device and leaf.grad.dtype is fb.float32 and leaf.grad.cpu().tolist() == [1, 2, 3]
    if device != "cpu":
        assert y.grad_fn.name() == "ToCopyBackward0" and not y.is_leaf and y.requires_grad


def test_second_derivatives_cross_devices(device):
    x = fb.tensor([1.0, 2.0], dtype=fb.float64, requires_grad=True)
    y = (x.to(device) ** 3).sum().cpu()
    (g,) = fb.autograd.grad(y, x, create_graph=True)
    (h,) = fb.autograd.grad(g.to(device).sum(), x)
    np.testing.assert_allclose(h.numpy(), [6.0, 12.0])
    assert str(h.device) == "cpu"

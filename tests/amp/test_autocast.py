"""Autocast regions: what computes in which type, nesting, gradients, custom functions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F


def kind(device: str) -> str:
    return device.split(":")[0]


def test_products_lower_and_range_stays_full(device: str) -> None:
    low = torch.float16 if kind(device) == "cuda" else torch.bfloat16
    a, w = torch.randn(4, 8, device=device), torch.randn(8, 8, device=device, requires_grad=True)
    with torch.autocast(kind(device)):
        y = a @ w
        assert y.dtype is low
        assert F.linear(a, w).dtype is low and torch.mm(a, w).dtype is low and (a.matmul(w)).dtype is low
        assert torch.einsum("ij,jk->ik", a, w).dtype is low
        assert torch.relu(y).dtype is low and (y + a).dtype is torch.float32
        assert F.cross_entropy(y, torch.zeros(4, dtype=torch.int64, device=device)).dtype is torch.float32
        assert F.mse_loss(y, a).dtype is torch.float32
        assert (a.double() @ w.detach().double()).dtype is torch.float64
        assert torch.cat([y, a]).dtype is torch.float32
    assert (a @ w).dtype is torch.float32
    np.testing.assert_allclose(y.float().detach().cpu().numpy(), (a @ w).detach().cpu().numpy(), atol=0.2, rtol=0.05)


def test_cuda_lists() -> None:
    with torch.simulate(gpus=1):
        h = torch.rand(4, 4, device="cuda", dtype=torch.float16) + 0.5
        with torch.autocast("cuda"):
            for f in (torch.exp, torch.log, torch.rsqrt, torch.reciprocal, lambda x: x ** 2, lambda x: x.sum(), lambda x: x.softmax(-1),
                      lambda x: F.layer_norm(x, (4,)), lambda x: x.cumsum(0), lambda x: x.norm()):
                assert f(h).dtype is torch.float32
            for f in (torch.abs, torch.tanh, lambda x: x * 2, lambda x: x.max()):
                assert f(h).dtype is torch.float16
            assert torch.addcmul(h, h.float(), h).dtype is torch.float32
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                F.binary_cross_entropy(h.sigmoid(), h.sigmoid())
        assert torch.exp(h).dtype is torch.float16 and (h ** 2).dtype is torch.float16
        with torch.autocast("cuda"):  # again, with plans made before
            assert torch.exp(h).dtype is torch.float32 and (h ** 2).dtype is torch.float32
        with torch.autocast("cpu"):  # a region for another kind of device
            assert torch.exp(h).dtype is torch.float16


def test_nested_and_disabled() -> None:
    a = torch.randn(3, 3)
    assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda")
        with torch.autocast("cpu", enabled=False):
            assert not torch.is_autocast_enabled("cpu") and (a @ a).dtype is torch.float32
        with torch.autocast("cpu", dtype=torch.float16):
            assert (a @ a).dtype is torch.float16 and torch.get_autocast_dtype("cpu") is torch.float16
        assert (a @ a).dtype is torch.bfloat16
    assert (a @ a).dtype is torch.float32 and torch.get_autocast_dtype("cpu") is torch.bfloat16

    @torch.autocast("cpu")
    def f(x):
        return x @ x

    assert f(a).dtype is torch.bfloat16
    with pytest.raises(ZeroDivisionError), torch.autocast("cpu"):
        raise ZeroDivisionError
    assert (a @ a).dtype is torch.float32


def test_bad_arguments() -> None:
    with pytest.raises(RuntimeError, match="unsupported autocast device_type"):
        torch.autocast("tpu")
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        torch.autocast(torch.device("cpu"))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with torch.autocast("cpu", dtype=torch.float32):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32
    assert any("Disabling autocast" in str(w.message) for w in seen)


def test_gradients_come_back_in_the_weights_type(device: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    x, y = torch.randn(6, 8, device=device), torch.randn(6, 4, device=device)
    full = F.mse_loss(net(x), y)
    full.backward()
    want = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    with torch.autocast(kind(device)):
        loss = F.mse_loss(net(x), y)
    loss.backward()
    for p, g in zip(net.parameters(), want, strict=True):
        assert p.grad.dtype is torch.float32
        np.testing.assert_allclose(p.grad.cpu().numpy(), g.cpu().numpy(), atol=0.05, rtol=0.05)


def test_a_weight_is_cast_once_a_region() -> None:
    w = torch.randn(4, 4, requires_grad=True)
    x = torch.randn(2, 4)
    from flambeau._core.ops import autocast as lists
    with torch.autocast("cpu"):
        F.linear(x, w)
        first = lists.kept.get()[id(w)][2]
        F.linear(x, w)
        assert lists.kept.get()[id(w)][2] is first
        with torch.no_grad():
            w.add_(1)
        again = F.linear(x, w)
        assert lists.kept.get()[id(w)][2] is not first
    again.sum().backward()
    assert w.grad is not None
    with torch.autocast("cpu", cache_enabled=False):
        F.linear(x, w)
        assert lists.kept.get() is None


def test_threads_have_regions_of_their_own() -> None:
    import threading
    a = torch.randn(3, 3)
    seen = []
    with torch.autocast("cpu"):
        t = threading.Thread(target=lambda: seen.append((a @ a).dtype))
        t.start()
        t.join()
        assert (a @ a).dtype is torch.bfloat16
    assert seen == [torch.float32]


def test_custom_functions() -> None:
    with torch.simulate(gpus=1):
        class Product(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda")
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a.mm(b)

            @staticmethod
            @torch.amp.custom_bwd(device_type="cuda")
            def backward(ctx, g):
                a, b = ctx.saved_tensors
                seen.append(torch.is_autocast_enabled("cuda"))
                return g.mm(b.t()), a.t().mm(g)

        class Full(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
            def forward(ctx, a):
                seen.append((a.dtype, torch.is_autocast_enabled("cuda")))
                return a * 2

            @staticmethod
            @torch.amp.custom_bwd(device_type="cuda")
            def backward(ctx, g):
                return g * 2

        seen: list = []
        a = torch.randn(3, 3, device="cuda", requires_grad=True)
        with torch.autocast("cuda"):
            y = Product.apply(a, a)
            assert y.dtype is torch.float16
        y.sum().backward()
        assert seen == [True] and a.grad.dtype is torch.float32
        with torch.autocast("cuda"):
            Full.apply(a.detach().half())
        assert seen[1] == (torch.float32, False)


@pytest.mark.parametrize("d", [torch.float16, torch.bfloat16], ids=str)
def test_custom_functions_of_either_kind_of_device(device: str, d) -> None:
    """cast_inputs reaches into sequences, leaves other types and other devices' tensors alone, and does nothing outside a region."""
    seen: list = []

    class Sum(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=kind(device), cast_inputs=d)
        def forward(ctx, a, rest, count):
            seen.append((a.dtype, [r.dtype for r in rest], count.dtype, torch.is_autocast_enabled(kind(device))))
            return a * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type=kind(device))
        def backward(ctx, g):
            seen.append((g.dtype, torch.is_autocast_enabled(kind(device))))
            return g * 2, None, None

    a = torch.randn(3, device=device, requires_grad=True)
    rest = [torch.ones(2, device=device), torch.ones(2, device=device, dtype=torch.float64)]
    count = torch.ones(1, device=device, dtype=torch.int64)
    Sum.apply(a, rest, count)
    assert seen.pop() == (torch.float32, [torch.float32, torch.float64], torch.int64, False)
    with torch.autocast(kind(device)):
        y = Sum.apply(a, rest, count)
    assert seen.pop() == (d, [d, torch.float64], torch.int64, False) and y.dtype is d
    y.sum().backward()
    assert seen == [(d, False)] and a.grad.dtype is torch.float32 and a.grad.cpu().tolist() == [2.0] * 3


def test_a_region_in_a_region_of_the_other_kind() -> None:
    with torch.simulate(gpus=1):
        c, g = torch.ones(2, 2), torch.ones(2, 2, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16), torch.autocast("cpu", dtype=torch.float16):
            assert (g @ g).dtype is torch.bfloat16 and (c @ c).dtype is torch.float16
            with torch.autocast("cuda", enabled=False):
                assert (g @ g).dtype is torch.float32 and (c @ c).dtype is torch.float16
                with torch.autocast("cuda"):
                    assert (g @ g).dtype is torch.float16
            assert (g @ g).dtype is torch.bfloat16


def test_casts_of_weights_are_forgotten_at_the_end() -> None:
    """A region closed and opened again sees weights as they are then; an inner region shares the outer one's casts."""
    from flambeau._core.ops import autocast as lists
    w, x = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)
    with torch.autocast("cpu"):
        F.linear(x, w)
        outer = lists.kept.get()[id(w)][2]
        with torch.autocast("cpu"):
            F.linear(x, w)
            assert lists.kept.get()[id(w)][2] is outer
        assert lists.kept.get()[id(w)][2] is outer
    assert lists.kept.get() is None
    w.data.fill_(3.0)
    with torch.autocast("cpu"):
        assert F.linear(x, w)[0, 0].item() == 6.0


def test_regions_for_single_kinds() -> None:
    torch.set_autocast_cpu_enabled(True)
    try:
        assert torch.is_autocast_cpu_enabled() and (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16
    finally:
        torch.set_autocast_cpu_enabled(False)
    assert not torch.is_autocast_cpu_enabled() and not torch.is_autocast_xla_enabled() and torch.get_autocast_xla_dtype() is torch.bfloat16
    torch.set_autocast_xla_enabled(False)
    torch.set_autocast_xla_dtype(torch.float16)
    assert torch.get_autocast_xla_dtype() is torch.float16
    torch.set_autocast_xla_dtype(torch.bfloat16)
    with pytest.raises(RuntimeError, match="unsupported"):
        torch.set_autocast_xla_enabled(True)

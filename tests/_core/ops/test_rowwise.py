"""A formula with named axes is an operation: values, layouts, saved values and gradients of any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau._core import layout
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import formulas as F
from flambeau._core.ops.reductions import axes_of
from flambeau._core.ops.row_places import elements, row_values
from flambeau._core.ops.rowwise import Rowwise
from flambeau._core.runtime import caches, dispatch
from flambeau.autograd import gradcheck, gradgradcheck


def _zscore(x, eps):
    mean = F.mean(x, "c")
    scale = E.rsqrt(F.mean((x - mean) * (x - mean), "c") + eps)
    return ((x - mean) * scale,), (mean, scale)  # two values are saved that are no results


ZSCORE = Rowwise("zscore", "rc -> rc", _zscore, elements, numbers="f", like=True)
SUMSQ = Rowwise("sumsq", "rc -> r", lambda x: ((F.total(x * x, "c"),), ()), row_values)


def zscore(x, dim, eps=1e-5):
    return ZSCORE((x,), (eps,), (layout.wrap_dims(dim, x.dim()),))[0]


def sumsq(x, dim=None, keepdim=False):
    return SUMSQ((x,), where=(axes_of(x, dim), keepdim))[0]


def _as(a, device, dtype=torch.float32):
    return torch.tensor(a, dtype=dtype, device=device)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_results_are_laid_out_as_the_operand(device, dim, order):
    a = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    x = _as(a, device).permute(order)
    got = zscore(x, dim)
    assert got.stride() == x.stride()
    a = a.transpose(order)
    want = (a - a.mean(dim, keepdims=True)) / np.sqrt(a.var(dim, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got.cpu().numpy(), want, rtol=1e-4, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2, 3, 5, 17]), max_size=3), st.data())
def test_any_shape_and_order(shape, data):
    a = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    order = data.draw(st.permutations(range(len(shape))))
    x, a = torch.tensor(a).permute(tuple(order)), a.transpose(order)
    np.testing.assert_allclose(sumsq(x).numpy(), (a * a).sum(), rtol=1e-5)
    dims = data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1)) if shape else set()
    for keepdim in (False, True):
        want = (a * a).sum(tuple(dims), keepdims=keepdim)
        np.testing.assert_allclose(sumsq(x, tuple(dims), keepdim).numpy(), want, rtol=1e-5)
    for dim in dims:
        if a.shape[dim]:
            want = (a - a.mean(dim, keepdims=True)) / np.sqrt(a.var(dim, keepdims=True) + 1e-5)
            np.testing.assert_allclose(zscore(x, dim).numpy(), want, rtol=1e-4, atol=1e-4)
        assert zscore(x, dim).shape == a.shape


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1, 1), (5, 7)])
def test_any_device(device, shape):
    a = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    x = _as(a, device)
    np.testing.assert_allclose(sumsq(x).cpu().numpy(), (a * a).sum(), rtol=1e-5)
    for dim in range(len(shape)):
        np.testing.assert_allclose(sumsq(x, dim, True).cpu().numpy(), (a * a).sum(dim, keepdims=True), rtol=1e-5)
        assert zscore(x, dim).shape == shape


def test_what_is_no_number_spoils_its_row_only(device):
    x = _as([[1.0, 2.0, 6.0], [1.0, float("nan"), 2.0], [float("inf"), 1.0, 2.0]], device)
    assert zscore(x, 1).isnan().all(1).tolist() == [False, True, True]  # the deviation from an infinite mean is NaN
    assert sumsq(x, 1).cpu().isnan().tolist() == [False, True, False] and sumsq(x, 1)[2].item() == float("inf")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.complex64], ids=str)
def test_types(dtype):
    x = torch.tensor([[1, 2, 3], [4, 5, 6]]).to(dtype)
    assert sumsq(x, 1).dtype is dtype and sumsq(x, 1).tolist() == (x * x).sum(1).tolist()


def test_gradients():
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    for dim in (0, 1, 2):
        assert gradcheck(lambda x, dim=dim: zscore(x, dim), (x,)) and gradgradcheck(lambda x, dim=dim: zscore(x, dim), (x,))
    assert gradcheck(lambda x: sumsq(x, (0, 2)), (x,)) and gradgradcheck(lambda x: sumsq(x, 1, True), (x,))
    turned = x.detach().permute(2, 0, 1).requires_grad_()
    assert gradcheck(lambda x: zscore(x, 1), (turned,))


def test_saved_values_that_changed_are_noticed():
    x = torch.randn(3, 4, requires_grad=True)
    y = x * 1
    z = zscore(y, 1).sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_a_gradient_of_rows_folded_lies_as_what_it_is_the_gradient_of():
    for x in (torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), torch.rand(4, 3, 2).permute(2, 0, 1), torch.rand(3, 4)):
        for fold in (lambda x: sumsq(x, 1), lambda x: x.amax(1), lambda x: x.var(), lambda x: x.norm(dim=0)):
            t, plain = x.detach().requires_grad_(), x.contiguous().requires_grad_()
            found, want = (torch.autograd.grad(fold(t).sum(), t)[0] for t in (t, plain))
            assert found.stride() == x.stride() and want.is_contiguous() and torch.allclose(found, want)


def test_gradients_keep_their_plans_while_another_world_is_entered(monkeypatch):
    """A call that is learned on a GPU enters a world of plans of its own, as an observer does; what was bound holds until all is forgotten."""
    prepared: list[object] = []
    prepare = dispatch.prepare
    monkeypatch.setattr(dispatch, "prepare", lambda *given: prepared.append(given) or prepare(*given))
    data = np.arange(12, dtype=np.float32).reshape(3, 4) % 5
    x = torch.tensor(data, requires_grad=True)
    held = torch.softmax(x, 1)

    def gradient() -> int:
        prepared.clear()
        x.grad = None
        held[:, 0].sum().backward(retain_graph=True)
        e = np.exp(data)
        p = e / e.sum(1, keepdims=True)
        np.testing.assert_allclose(x.grad.numpy(), p[:, :1] * (np.eye(4)[0] - p), rtol=1e-5, atol=1e-6)
        return len(prepared)
    for _ in range(8):
        gradient()
    assert gradient() == 0
    for world in (caches.DRY, caches.OBSERVED):
        caches.enter(world)
        caches.enter(caches.PLAIN)
        assert gradient() == 0
    with dispatch.observe(lambda *launch: None):
        assert gradient() > 0  # bound anew, past the observer
    assert gradient() == 0
    caches.forget()
    assert gradient() > 0

"""What a row formula launches: operands that lie across the rows are copied first, and give what contiguous ones give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau.nn import functional as F

CALLS = {
    "softmax": lambda x, w: x.softmax(-1),
    "log_softmax": lambda x, w: x.log_softmax(-1),
    "layer_norm": lambda x, w: F.layer_norm(x, w.shape, w, w),
    "rms_norm": lambda x, w: F.rms_norm(x, w.shape, w),
}


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(x, w):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + w


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("shape", [(130, 120), (3, 70, 90)])
def test_rows_that_lie_across_give_what_contiguous_ones_give(name, shape, device):
    make = np.random.default_rng(0).standard_normal
    lies = torch.tensor(make(shape), dtype=torch.float32, device=device).mT.contiguous().mT  # columns are neighbours
    w = torch.tensor(make(shape[-1:]), dtype=torch.float32, device=device)
    g = torch.tensor(make(shape), dtype=torch.float32, device=device)
    found = []
    for x, up in ((lies, g), (lies.contiguous(), g), (lies, g.mT.contiguous().mT)):
        x, v = x.detach().requires_grad_(), w.clone().requires_grad_()
        made = CALLS[name](x, v)
        assert made.is_contiguous()
        used = (x, v) if "norm" in name else (x,)
        found.append([made.detach(), *torch.autograd.grad(made, used, up)])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("name, oracle", [("softmax", lambda x, w: _softmax(x)), ("layer_norm", _layer_norm)])
def test_rows_that_lie_across_against_numpy(name, oracle):
    make = np.random.default_rng(1).standard_normal
    x, w = make((64, 300)), make((300,))
    made = CALLS[name](torch.from_numpy(np.asfortranarray(x)), torch.from_numpy(w))
    np.testing.assert_allclose(made.numpy(), oracle(x, w), rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.permutations([0, 1, 2]), st.tuples(*[st.integers(1, 70)] * 3), st.integers(0, 2), st.integers(1, 3), st.sampled_from(["softmax", "layer_norm"]))
def test_rows_of_any_layout_against_numpy(order, shape, axis, step, name):
    """Permuted and sliced operands, whose rows lie across, side by side or apart."""
    whole = np.random.default_rng(3).standard_normal((shape[0] * step, *shape[1:]))
    x = np.moveaxis(whole[::step].transpose(order), axis, -1)
    w = np.random.default_rng(4).standard_normal(x.shape[-1])
    made = CALLS[name](torch.from_numpy(whole)[::step].permute(order).movedim(axis, -1), torch.from_numpy(w))
    np.testing.assert_allclose(made.numpy(), _softmax(x) if name == "softmax" else _layer_norm(x, w), rtol=1e-9, atol=1e-12)


def test_groups_of_innermost_channels_give_what_rows_give(device):
    make = np.random.default_rng(2).standard_normal
    image = torch.tensor(make((2, 24, 30, 20)), dtype=torch.float32, device=device)
    w, b = (torch.tensor(make(24), dtype=torch.float32, device=device) for _ in range(2))
    g = torch.tensor(make(image.shape), dtype=torch.float32, device=device)
    last, found = torch.channels_last, []
    for x, up in ((image, g), (image.contiguous(memory_format=last), g), (image.contiguous(memory_format=last), g.contiguous(memory_format=last))):
        x, v, c = (t.detach().clone().requires_grad_() for t in (x, w, b))
        made = F.group_norm(x, 6, v, c)
        grads = torch.autograd.grad(made, (x, v, c), up)
        assert all(t.stride() == x.stride() for t in (made, grads[0]))
        found.append([made.detach(), *grads])
    grouped = image.cpu().double().numpy().reshape(2, 6, -1)
    want = (grouped - grouped.mean(-1, keepdims=True)) / np.sqrt(grouped.var(-1, keepdims=True) + 1e-5)
    want = want.reshape(image.shape) * w.cpu().double().numpy()[:, None, None] + b.cpu().double().numpy()[:, None, None]
    np.testing.assert_allclose(found[0][0].cpu().numpy(), want, atol=1e-5)
    for other in found[1:]:
        for a, c in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a.cpu().numpy(), c.cpu().numpy(), rtol=1e-5, atol=1e-4)

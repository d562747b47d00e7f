"""What a row formula launches: operands that lie across the rows are copied first, and give what contiguous ones give."""

from __future__ import annotations

import numpy as np
import pytest

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

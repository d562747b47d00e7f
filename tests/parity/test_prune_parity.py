"""Pruning and fused layers as PyTorch's."""
# ruff: noqa: B023 (functions that are called at once)

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.utils.prune as theirs

import flambeau as fb
from flambeau.nn.utils import prune as ours

WEIGHT = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
SCORES = np.random.default_rng(1).random((6, 5)).astype(np.float32)


def layers():
    made = []
    for t in (fb, torch):
        layer = t.nn.Linear(5, 6)
        with t.no_grad():
            layer.weight.copy_(t.tensor(WEIGHT))
            layer.bias.copy_(t.tensor(WEIGHT[:, 0]))
        made.append(layer)
    return made


def same(a, b):
    assert [n for n, _ in a.named_parameters()] == [n for n, _ in b.named_parameters()]
    assert [n for n, _ in a.named_buffers()] == [n for n, _ in b.named_buffers()]
    for n, v in {**dict(b.named_parameters()), **dict(b.named_buffers()), "weight": b.weight}.items():
        np.testing.assert_array_equal(getattr(a, n).detach().numpy(), v.detach().numpy())


WAYS = {
    "share": lambda p, t, m: p.l1_unstructured(m, "weight", amount=0.4), "number": lambda p, t, m: p.l1_unstructured(m, "weight", amount=7),
    "importance": lambda p, t, m: p.l1_unstructured(m, "weight", 0.5, importance_scores=t.tensor(SCORES)),
    "rows": lambda p, t, m: p.ln_structured(m, "weight", amount=0.5, n=2, dim=0), "columns": lambda p, t, m: p.ln_structured(m, "weight", 2, n=1, dim=1),
    "mask": lambda p, t, m: p.custom_from_mask(m, "weight", t.tensor(SCORES) > 0.5), "nothing": lambda p, t, m: p.identity(m, "weight"),
    "twice": lambda p, t, m: p.l1_unstructured(p.l1_unstructured(m, "weight", 0.3), "weight", 0.5),
    "elements then rows": lambda p, t, m: p.ln_structured(p.l1_unstructured(m, "weight", 9), "weight", 0.4, n=2, dim=0),
    "rows then elements": lambda p, t, m: p.l1_unstructured(p.ln_structured(m, "weight", 2, n=2, dim=0), "weight", 0.25),
    "all": lambda p, t, m: p.global_unstructured([(m, "weight"), (m, "bias")], p.L1Unstructured, amount=0.4),
}


@pytest.mark.parametrize("way", WAYS)
def test_masks(way):
    a, b = layers()
    WAYS[way](ours, fb, a)
    WAYS[way](theirs, torch, b)
    same(a, b)
    assert ours.is_pruned(a) and theirs.is_pruned(b)
    x = np.ones((2, 5), np.float32)
    for t, m in ((fb, a), (torch, b)):
        m(t.tensor(x)).square().sum().backward()
    np.testing.assert_allclose(a.weight_orig.grad.numpy(), b.weight_orig.grad.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(copy.deepcopy(a.state_dict())["weight_mask"].numpy(), b.state_dict()["weight_mask"].numpy())
    if way != "all":
        assert ours.remove(a, "weight") is a and theirs.remove(b, "weight") is b
        same(a, b)
        assert not ours.is_pruned(a)


def test_random_ways_prune_as_many():
    a, _ = layers()
    ours.random_unstructured(a, "weight", 0.5)
    assert int((a.weight == 0).sum()) == 15
    a, _ = layers()
    ours.random_structured(a, "weight", 2, dim=1)
    assert int((a.weight == 0).all(0).sum()) == 2


def test_what_is_refused():
    for t, p in ((fb, ours), (torch, theirs)):
        layer = t.nn.Linear(5, 6)
        for call, kind in ((lambda: p.l1_unstructured(layer, "weight", 1.5), ValueError), (lambda: p.l1_unstructured(layer, "weight", "all"), TypeError),
                           (lambda: p.l1_unstructured(layer, "weight", 31), ValueError), (lambda: p.remove(layer, "bias"), ValueError),
                           (lambda: p.ln_structured(layer, "bias", 1, 2, 0), ValueError)):
            with pytest.raises(kind):
                call()


def test_fused_layers():
    rng = np.random.default_rng(2)
    for kind, shape in (("Conv2d", (2, 3, 6, 6)), ("ConvTranspose2d", (2, 3, 6, 6)), ("Linear", (4, 3))):
        made = []
        state = None
        for t in (torch, fb):
            layer = t.nn.Linear(3, 4) if kind == "Linear" else getattr(t.nn, kind)(3, 4, 3)
            norm = (t.nn.BatchNorm1d if kind == "Linear" else t.nn.BatchNorm2d)(4)
            both = t.nn.Sequential(layer, norm).eval()
            if state is None:
                norm.running_mean.copy_(t.tensor(rng.standard_normal(4)))
                norm.running_var.copy_(t.tensor(rng.random(4) + 0.5))
                state = {k: v.numpy() for k, v in both.state_dict().items()}
            both.load_state_dict({k: t.tensor(v) for k, v in state.items()})
            fuse = t.nn.utils.fusion.fuse_linear_bn_eval if kind == "Linear" else t.nn.utils.fusion.fuse_conv_bn_eval
            fused = fuse(layer, norm) if kind != "ConvTranspose2d" else fuse(layer, norm, transpose=True)
            x = t.tensor(np.ones(shape, np.float32))
            np.testing.assert_allclose(fused(x).detach().numpy(), both(x).detach().numpy(), rtol=1e-4, atol=1e-5)
            made.append(fused.weight.detach().numpy())
        np.testing.assert_allclose(made[0], made[1], rtol=1e-5, atol=1e-6)

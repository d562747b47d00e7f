"""A call whose backward pass gives each sample's gradient, held against a pass for each sample."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.nn.utils._per_sample_grad import call_for_per_sample_grads


def _one_by_one(module, x, dim=0):
    found = []
    for i in range(x.shape[dim]):
        module.zero_grad()
        module(x.narrow(dim, i, 1)).square().sum().backward()
        found.append([p.grad.clone() for p in module.parameters()])
    module.zero_grad()
    return [flambeau.stack(g) for g in zip(*found)]


CASES = {
    "linear": (lambda: nn.Linear(4, 3), (5, 4)),
    "images": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)), (3, 1, 6, 6)),
    "sequences": (lambda: nn.Sequential(nn.Conv1d(2, 3, 2, padding=1), nn.LayerNorm(8), nn.Tanh()), (3, 2, 7)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_each_sample(name, device):
    flambeau.manual_seed(0)
    make, shape = CASES[name]
    module, x = make().to(device), flambeau.randn(*shape).to(device)
    expected = _one_by_one(module, x)
    made = call_for_per_sample_grads(module)(x)
    np.testing.assert_allclose(made.detach().cpu().numpy(), module(x).detach().cpu().numpy(), atol=1e-6)
    made.square().sum().backward()
    for p, g in zip(module.parameters(), expected):
        assert p.grad is None and p.grad_sample.shape == (shape[0], *p.shape)
        np.testing.assert_allclose(p.grad_sample.cpu().numpy(), g.cpu().numpy(), rtol=1e-4, atol=1e-5)


def test_positions_of_a_table_a_mean_and_the_second_dimension():
    table = nn.Embedding(9, 4)
    at = flambeau.tensor([[1, 2, 2], [0, 8, 1]])
    call_for_per_sample_grads(table, loss_reduction="mean")(at).sum(-1).sum().div(2).backward()
    counts = np.stack([np.bincount(row, minlength=9) for row in at.numpy()])
    np.testing.assert_allclose(table.weight.grad_sample.numpy(), np.repeat(counts[:, :, None], 4, 2))
    layer, x = nn.Linear(4, 3), flambeau.randn(2, 5, 4)
    expected = _one_by_one(layer, x, 1)
    call_for_per_sample_grads(layer, batch_first=False)(x).square().sum().backward()
    np.testing.assert_allclose(layer.weight.grad_sample.numpy(), expected[0].numpy(), rtol=1e-4, atol=1e-6)


def test_frozen_parameters_and_refusals():
    layer = nn.Linear(4, 3)
    layer.bias.requires_grad_(False)
    x = flambeau.randn(2, 4)
    call = call_for_per_sample_grads(layer)
    call(x).sum().backward()
    assert not hasattr(layer.bias, "grad_sample")
    first = layer.weight.grad_sample.clone()
    call(x).sum().backward()
    np.testing.assert_allclose(layer.weight.grad_sample.numpy(), 2 * first.numpy())
    for arguments, options, text in (((layer,), {}, "Please clear out the grad_sample"), ((nn.ReLU(),), {"loss_reduction": "max"}, "to be sum or mean"),
                                     ((3,), {}, "must be nn.Module"), ((nn.ReLU(),), {"batch_size": 0}, "must be positive"),
                                     ((nn.ReLU(),), {"batch_size": 1.5}, "None or an integer")):
        with pytest.raises(RuntimeError, match=text):
            call_for_per_sample_grads(*arguments, **options)
    with pytest.raises(RuntimeError, match="found at least one input with batch size"):
        call_for_per_sample_grads(nn.Bilinear(4, 3, 2))(flambeau.randn(2, 4), flambeau.randn(5, 3))
    with pytest.raises(RuntimeError, match="Unable to find a tensor"):
        call_for_per_sample_grads(nn.ReLU())(1)

"""Layers with their activations in containers: what comes out is what the modules give one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau import nn
from flambeau.nn import pairs

F = nn.functional


@pytest.fixture(params=["none", "exact", "all"])
def switch(request: pytest.FixtureRequest) -> Iterator[str]:
    matmul = fb.backends.cuda.matmul
    before, matmul.fused_activations = matmul.fused_activations, request.param
    yield request.param
    matmul.fused_activations = before


MAKERS: list[Callable[[], list[Any]]] = [
    lambda: [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)],
    lambda: [nn.Linear(8, 16), nn.GELU("tanh"), nn.Linear(16, 8), nn.GELU("tanh")],
    lambda: [nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 8), nn.Tanh()],
    lambda: [nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 8), nn.GELU(), nn.ReLU()],
    lambda: [nn.ReLU(), nn.Linear(8, 8), nn.Dropout(0.0), nn.GELU("tanh"), nn.Linear(8, 5), nn.ReLU()],
    lambda: [nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Sequential(nn.Linear(8, 8), nn.GELU("tanh"))],
    lambda: [nn.Linear(8, 8)],
    list,
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 8), (0, 8)])
def test_sequential(device: str, switch: str, make: Callable[[], list[Any]], shape: tuple[int, ...]) -> None:
    fb.manual_seed(0)
    modules = [m.to(device) for m in make()]
    model = nn.Sequential(*modules)
    rng = np.random.default_rng(0)
    x = fb.tensor(rng.standard_normal(shape), dtype=fb.float32, device=device, requires_grad=True)
    y = model(x)
    z: Any = x
    for module in modules:
        z = module(z)
    np.testing.assert_allclose(y.detach().cpu().numpy(), z.detach().cpu().numpy(), rtol=1e-5, atol=1e-6)
    if modules and y.numel():
        wanted = [x, *model.parameters()]
        for a, b in zip(fb.autograd.grad(y.square().sum(), wanted), fb.autograd.grad(z.square().sum(), wanted), strict=True):
            np.testing.assert_allclose(a.cpu().numpy(), b.cpu().numpy(), rtol=1e-4, atol=1e-5)


def test_other_inputs(device: str, switch: str) -> None:
    """What a container is given need not be a tensor, nor what its modules give each other."""
    class Halves(nn.Module):
        def forward(self, x: Any) -> Any:
            return x, x

    class Sum(nn.Module):
        def forward(self, pair: Any) -> Any:
            return pair[0] + pair[1]
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), Halves(), Sum()).to(device)
    x = fb.ones(2, 8, device=device)
    assert fb.equal(model(x), 2 * F.relu(model[0](x)))
    assert nn.Sequential()("text") == "text" and nn.Sequential(Sum())((1, 2)) == 3
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        model(fb.ones(2, 7, device=device))
    with pytest.raises((RuntimeError, NotImplementedError)):
        model(fb.ones(2, 8, dtype=fb.int64, device=device))


def test_hooks_and_transforms(device: str, switch: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).to(device)
    x = fb.ones(2, 8, device=device)
    seen: list[str] = []
    handles = [m.register_forward_hook(lambda m, a, y: seen.append(type(m).__name__)) for m in model]
    expected = model(x)
    assert seen == ["Linear", "ReLU", "Linear"]
    for h in handles:
        h.remove()
    assert fb.equal(model(x), expected)
    parameters = {k: v.detach() * 2 for k, v in model.named_parameters()}
    got = fb.func.functional_call(model, parameters, (x,))
    np.testing.assert_allclose(got.detach().cpu().numpy(), (F.linear(F.relu(F.linear(x, parameters["0.weight"], parameters["0.bias"])),
                               parameters["2.weight"], parameters["2.bias"])).cpu().numpy(), rtol=1e-5)
    assert fb.func.vmap(model)(fb.stack([x, x])).shape == (2, 2, 8)
    jacobian = fb.func.jacrev(lambda v: model(v).sum(-1))(x)
    np.testing.assert_allclose(fb.func.jacfwd(lambda v: model(v).sum(-1))(x).detach().cpu().numpy(), jacobian.detach().cpu().numpy(), rtol=1e-4, atol=1e-6)
    loss = lambda v: model(v).square().sum()
    _, along = fb.func.jvp(loss, (x,), (fb.ones_like(x),))
    np.testing.assert_allclose(along.item(), fb.func.grad(loss)(x).sum().item(), rtol=1e-4)


@pytest.mark.parametrize("activation", ["relu", "gelu", nn.GELU("tanh"), nn.ReLU(), F.relu, fb.tanh])
def test_transformer_layers(device: str, switch: str, activation: Any) -> None:
    fb.manual_seed(0)
    x = fb.tensor(np.random.default_rng(0).standard_normal((3, 2, 8)), dtype=fb.float32, device=device)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation=activation).to(device)
    y = layer.norm1(x + layer.self_attn(x, x, x, need_weights=False)[0])
    expected = layer.norm2(y + layer.linear2(layer.activation(layer.linear1(y))))
    np.testing.assert_allclose(layer(x).detach().cpu().numpy(), expected.detach().cpu().numpy(), rtol=1e-4, atol=1e-5)
    layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, activation=activation).to(device)
    y = layer.norm1(x + layer.self_attn(x, x, x, need_weights=False)[0])
    y = layer.norm2(y + layer.multihead_attn(y, x, x, need_weights=False)[0])
    expected = layer.norm3(y + layer.linear2(layer.activation(layer.linear1(y))))
    np.testing.assert_allclose(layer(x, x).detach().cpu().numpy(), expected.detach().cpu().numpy(), rtol=1e-4, atol=1e-5)


def test_a_layer_of_the_users(device: str, switch: str) -> None:
    """Modules put in a transformer layer's places are called."""
    class Own(nn.Linear):
        def forward(self, input: Any) -> Any:
            return super().forward(input) * 0
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0).to(device)
    layer.linear1 = Own(8, 16).to(device)
    x = fb.ones(3, 2, 8, device=device)
    y = layer.norm1(x + layer.self_attn(x, x, x, need_weights=False)[0])
    expected = layer.norm2(y + layer.linear2(fb.zeros(3, 2, 16, device=device)))
    np.testing.assert_allclose(layer(x).detach().cpu().numpy(), expected.detach().cpu().numpy(), atol=1e-5)


def test_only_tensors_on_a_gpu(sim_gpus: Any) -> None:
    assert pairs.may(fb.ones(2, device="cuda")) and not pairs.may(fb.ones(2)) and not pairs.may((fb.ones(2, device="cuda"),)) and not pairs.may(None)
    assert not pairs.may(nn.Parameter(fb.ones(2, device="cuda")))

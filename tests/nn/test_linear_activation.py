"""Layers with their activations in containers: what comes out is what the modules give one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau import nn
from flambeau.nn import linear_activation

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
    may = linear_activation.may
    assert may(fb.ones(2, device="cuda")) and not may(fb.ones(2)) and not may((fb.ones(2, device="cuda"),)) and not may(None)
    assert not linear_activation.may(nn.Parameter(fb.ones(2, device="cuda")))


# ------------------------------------------------------------------------------------------------ as large as it must be to gain
@pytest.fixture
def large(device: str) -> Iterator[tuple[Any, Any]]:
    """A network and its input, large enough for the CPU's products to do ReLU too; simulated GPUs do where it is asked for."""
    if device != "cpu" and not fb.cuda.get_device_properties(0).simulated:
        pytest.skip("these are the CPU's products; cuBLASLt's are tried in tests/_core/drivers/nvidia")
    matmul = fb.backends.cuda.matmul
    matmul.fused_activations = "all"
    fb.manual_seed(0)
    yield (nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 96), nn.ReLU(inplace=True), nn.Linear(96, 64)).to(device),
           fb.randn(4, 128, 64, device=device))
    matmul.fused_activations = "exact"


def one_by_one(model: Any, x: Any) -> Any:
    for module in model:
        x = module(x)
    return x


def edges(t: Any) -> int:
    return len(t.node[3])


def test_bit_for_bit(large: tuple[Any, Any]) -> None:
    model, x = large
    model[0].weight.data[3, 5] = float("nan")
    x.requires_grad_()
    found = []
    for run in (nn.Sequential.forward, one_by_one):
        y = run(model, x)
        assert edges(y) == (4 if run is not one_by_one else 3) and y.grad_fn.next_functions[0][0].name() == "ReluBackward0"
        found.append([y, *fb.autograd.grad(y.nan_to_num().square().sum(), [x, *model.parameters()])])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a.detach().cpu().numpy(), b.detach().cpu().numpy())


def test_graphs_around(large: tuple[Any, Any]) -> None:
    model, x = large
    x.requires_grad_()

    def middle(run: Any) -> Any:
        y = run(model[:2], x)
        z = run(model[2:], y)
        seen: list[Any] = []
        if run is not one_by_one:
            assert edges(y) == 1 and len(z.grad_fn.next_functions) == 3
        got = [*fb.autograd.grad(z.sum(), [y, model[0].weight], retain_graph=True)]
        y.register_hook(lambda g: seen.append(g) or g * 2)
        y.retain_grad()
        (z.square().sum() + y.sum()).backward(retain_graph=True)
        got += [seen[0], y.grad, x.grad]
        g, = fb.autograd.grad(z.square().sum(), x, create_graph=True)
        return [*got, *fb.autograd.grad(g.square().sum(), [x, model[2].weight])]
    found = []
    for run in (lambda m, v: m(v), one_by_one):
        x.grad = None
        found.append([t.detach().cpu().numpy() for t in middle(run)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wanted", ["input", "weight", "bias", "none", "no grad"])
def test_which_gradients(large: tuple[Any, Any], wanted: str) -> None:
    model, x = large
    for p in model.parameters():
        p.requires_grad_(False)
    if wanted != "none":
        (x if wanted == "input" else model[0].bias if wanted == "bias" else model[0].weight).requires_grad_()
    with fb.set_grad_enabled(wanted != "no grad"):
        y, z = model(x), one_by_one(model, x)
    assert y.requires_grad == (wanted in ("input", "weight", "bias")) and fb.equal(y, z)
    if y.requires_grad:
        leaf = x if wanted == "input" else model[0].weight if wanted == "weight" else model[0].bias
        assert fb.equal(*[fb.autograd.grad(t.square().sum(), leaf)[0] for t in (y, z)])


def test_onlookers_and_transforms(large: tuple[Any, Any]) -> None:
    from flambeau._core.engine import interpreters
    model, x = large
    expected = one_by_one(model, x)
    told: list[str] = []

    def look(name: str, function: Any, args: Any, kwargs: Any) -> Any:
        told.append(name)
        return function(*args, **kwargs)
    with interpreters.watch(look):
        assert edges(model(x)) == 3
    assert [n for n in told if n in ("linear", "relu", "relu_")].count("linear") == 3 and sum(n.startswith("relu") for n in told) >= 2
    packed: list[Any] = []
    with fb.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = model(x)
    assert packed and edges(y) == 3
    assert fb.equal(fb.func.vmap(model)(x), expected)
    weights = {k: v.detach() for k, v in model.named_parameters()}
    assert fb.equal(fb.func.functional_call(model, weights, (x,)), expected)
    grads = fb.func.grad(lambda w: fb.func.functional_call(model, w, (x,)).square().sum())(weights)
    plain = fb.autograd.grad(expected.square().sum(), list(model.parameters()))
    for a, b in zip(grads.values(), plain, strict=True):
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.cpu().numpy(), rtol=1e-4, atol=1e-4)
    with fb.inference_mode():
        assert fb.equal(model(x), expected)
    with fb.autocast(x.device.type, dtype=fb.bfloat16):
        assert model(x).dtype is fb.bfloat16


def test_large_transformer_layers(large: tuple[Any, Any]) -> None:
    x = large[1]
    for make, count in ((nn.TransformerEncoderLayer, 1), (nn.TransformerDecoderLayer, 2)):
        layer = make(64, 4, 128, dropout=0.0, batch_first=True).to(x.device)
        found = []
        for value in ("all", "none"):
            fb.backends.cuda.matmul.fused_activations = value
            y = layer(*[x] * count)
            found.append([y, *fb.autograd.grad(y.square().sum(), list(layer.parameters()))])
        for a, b in zip(*found, strict=True):
            np.testing.assert_array_equal(a.detach().cpu().numpy(), b.detach().cpu().numpy())


def test_joined_layers_train_what_their_parts_did():
    from flambeau.nn.utils.fusion import fuse_conv_bn_weights
    conv, norm = nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)
    for weight, bias in ((True, False), (False, True)):
        conv.weight.requires_grad_(weight)
        conv.bias.requires_grad_(bias)
        made = fuse_conv_bn_weights(conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
        assert [p.requires_grad for p in made] == [weight, bias]

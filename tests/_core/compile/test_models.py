"""Training steps of common models are replayed, and are the steps of eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau._core.compile.replay import HalfWay
from flambeau._core.runtime import dispatch
from flambeau.nn import functional as F

pytestmark = pytest.mark.usefixtures("always_kept")


class Recurrent(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.table, self.layer, self.out = nn.Embedding(9, 8), kind(8, 8, batch_first=True), nn.Linear(8, 9)

    def forward(self, x: Any) -> Any:
        return self.out(self.layer(self.table(x))[0]).mean(1)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(9, 8), nn.Linear(8, 9)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2)

    def forward(self, x: Any) -> Any:
        return self.out(self.layers(self.table(x))).mean(1)


def convolutional(pooled: bool) -> nn.Module:
    parts: list[nn.Module] = []
    for c, d in ((3, 4), (4, 8)):
        parts += [nn.Conv2d(c, d, 3, padding=1, bias=not pooled), nn.BatchNorm2d(d), nn.ReLU(), *([nn.MaxPool2d(2)] if pooled else [])]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 9))


def images() -> Any:
    return torch.randn(4, 3, 8, 8)


def words() -> Any:
    return torch.randint(0, 9, (4, 6))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "max pooling": (lambda: convolutional(True), images), "convolutions": (lambda: convolutional(False), images),
    "lstm": (lambda: Recurrent(nn.LSTM), words), "gru": (lambda: Recurrent(nn.GRU), words), "rnn": (lambda: Recurrent(nn.RNN), words),
    "encoder": (Encoder, words)}


def trained(name: str, form: str) -> tuple[Any, list[Any]]:
    """Losses, parameters, buffers and gradients of some steps, and the compiled function."""
    torch.manual_seed(0)
    make, batch = MODELS[name]
    net, xs, y = make(), [batch() for _ in range(8)], torch.randint(0, 9, (4,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)  # which does not enlarge gradients that are nothing but rounding

    def loss(x: Any) -> Any:
        return F.cross_entropy(net(x), y)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        made = (f if form == "usual" else loss)(x)
        made.backward()
        optimizer.step()
        return made.detach()
    f = torch.compile(loss if form == "usual" else step)
    losses = [(step if form in ("usual", "eager") else f)(x) for x in xs]
    return f, [*losses, *net.state_dict().values(), *[p.grad for p in net.parameters()]]


@pytest.mark.parametrize("form", ["whole", "usual"])
@pytest.mark.parametrize("name", MODELS)
def test_steps_are_replayed(name: str, form: str) -> None:
    trained(name, "eager")  # the first calls of operations may group sums otherwise than those that are learned
    _, wanted = trained(name, "eager")
    f, found = trained(name, form)
    assert f.__compiled__.records, [k.why for k in f.__compiled__.kinds.values()]
    for a, b in zip(found, wanted, strict=True):
        if name == "encoder":  # learned gradients group sums in a way of their own
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        else:
            assert torch.equal(a, b)


@pytest.mark.parametrize("make", [
    lambda ps: torch.optim.RMSprop(ps, lr=0.01, momentum=0.5, centered=True), lambda ps: torch.optim.RMSprop(ps), lambda ps: torch.optim.Adadelta(ps),
    lambda ps: torch.optim.Adagrad(ps, lr_decay=0.1), lambda ps: torch.optim.Rprop(ps), lambda ps: torch.optim.Adagrad(ps, maximize=True, weight_decay=0.1),
    lambda ps: torch.optim.Adamax(ps, weight_decay=0.1)])
def test_steps_of_each_optimizer_are_replayed(make: Any) -> None:
    def run(compiles: bool) -> tuple[Any, Any]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        optimizer = make(net.parameters())

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        f: Any = torch.compile(step) if compiles else step
        found = []
        for k in range(12):
            if k == 9:
                optimizer.param_groups[0]["lr"] = 0.5
            found.append(f(torch.linspace(-1, k / 4.0, 12).view(3, 4)).item())
        return f, (found, [p.tolist() for p in net.parameters()], [[float(s["step"]) for s in optimizer.state.values()]])
    run(False)
    f, found = run(True)
    assert f.__compiled__.records
    assert found == run(False)[1]


def test_autocast_inside_a_step_is_replayed() -> None:
    def run(compiles: bool) -> tuple[Any, Any]:
        torch.manual_seed(0)
        net, options = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), {"on": True}
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options["on"]):
                y = net(x)
            loss = y.float().square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach(), y.dtype == torch.bfloat16
        f: Any = torch.compile(step) if compiles else step
        found = []
        for k in range(12):
            options["on"] = k < 9
            found.append([str(v) for v in f(torch.full((3, 4), k / 8.0))])
        return f, (found, [p.tolist() for p in net.parameters()])
    f, found = run(True)
    assert f.__compiled__.records
    assert found == run(False)[1]


def test_memory_that_is_wanting_half_way_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay that has changed something is not done once more by Python."""
    short: list[bool] = []
    direct = dispatch.direct

    def binding(device: Any, prepared: Any) -> Any:
        launch = direct(device, prepared)
        if not prepared.name.startswith("convolution_weights"):
            return launch

        def carried_out(*args: Any) -> None:
            if short:
                raise MemoryError("no more")
            launch(*args)
        return carried_out
    net = convolutional(False)

    def step(x: Any) -> Any:
        net.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss.detach()
    f = torch.compile(step)
    x = torch.randn(4, 3, 8, 8)
    monkeypatch.setattr("flambeau._core.compile.replay.dispatch.direct", binding)
    for _ in range(6):
        f(x)
    (kept,) = f.__compiled__.records
    assert kept.late
    before = net[1].num_batches_tracked.item()
    short.append(True)
    with pytest.raises(MemoryError, match="no more") as told:
        f(x)
    assert not isinstance(told.value, HalfWay)
    assert net[1].num_batches_tracked.item() == before + 1
    short.clear()
    assert f(x).isfinite()

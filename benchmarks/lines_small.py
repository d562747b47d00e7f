"""Tiny tensors: what an operation costs beside its arithmetic."""

from __future__ import annotations

from typing import Any

from line import Line, Work


def add_without_grad(lib: Any) -> Work:
    a, b = lib.rand(4, 4), lib.rand(4, 4)
    return lambda: a + b


def add_with_grad(lib: Any) -> Work:
    a, b = lib.rand(4, 4, requires_grad=True), lib.rand(4, 4)
    return lambda: a + b


def mlp_step(lib: Any) -> Work:
    nn = lib.nn
    lib.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = lib.optim.SGD(net.parameters(), lr=0.01)
    x, y = lib.rand(4, 8), lib.rand(4, 4)

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()

    return step


LINES = [
    Line("a + b, 4x4, no grad", 1.5, add_without_grad),
    Line("a + b, 4x4, with grad", 1.5, add_with_grad),
    Line("tiny MLP (8-8-8-4, batch 4) training step", 2.0, mlp_step),
]

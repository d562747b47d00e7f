"""Tiny tensors: what an operation costs beside its arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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


def _adamw_step(lib: Any) -> tuple[Callable[..., Any], Any, Any]:
    nn = lib.nn
    lib.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = lib.optim.AdamW(net.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, lib.rand(4, 8), lib.rand(4, 4)


def adamw_step(lib: Any) -> Work:
    step, x, y = _adamw_step(lib)
    return partial(step, x, y)


def adamw_captured(lib: Any) -> Work:
    step, x, y = _adamw_step(lib)
    return partial(lib.capture(step), x, y)


def adamw_compiled(lib: Any) -> Work:
    step, x, y = _adamw_step(lib)
    return partial(lib.compile(step), x, y)


def adamw_of_compiled_loss(compiles: bool) -> Callable[[Any], Work]:
    """The usual form: the loss is compiled, the pass and the step are the program's."""
    def setup(lib: Any) -> Work:
        nn = lib.nn
        lib.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
        optimizer = lib.optim.AdamW(net.parameters(), lr=0.01)
        x, y = lib.rand(4, 8), lib.rand(4, 4)

        def loss_of(x: Any, y: Any) -> Any:
            return nn.functional.mse_loss(net(x), y)
        call = lib.compile(loss_of) if compiles else loss_of

        def step() -> None:
            optimizer.zero_grad()
            call(x, y).backward()
            optimizer.step()

        return step

    return setup


def many(lib: Any) -> list[Any]:
    """Calls of many operations, made once: a mode must reach each of them."""
    a, F = lib.rand(4, 4), lib.nn.functional
    names = "exp log sin cos tanh sigmoid relu abs neg sqrt sum mean t clone softmax tril cumsum sort amax unsqueeze".split()
    needs = {"softmax", "cumsum", "unsqueeze"}
    calls: list[Callable[[], Any]] = [partial(getattr(a, n), *([1] if n in needs else [])) for n in names]
    calls += [lambda: a + a, lambda: a * a, lambda: a @ a, lambda: a / a, lambda: a - a, lambda: a[0], lambda: F.linear(a, a), lambda: F.gelu(a)]
    for call in calls:
        call()
    return calls


def mode_of_functions(lib: Any) -> Work:
    from importlib import import_module

    many(lib)
    base = import_module(f"{lib.__name__}.overrides").TorchFunctionMode

    class Mode(base):  # type: ignore[misc, valid-type]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    def work() -> None:
        with Mode():
            pass

    return work


def mode_of_autocast(lib: Any) -> Work:
    many(lib)

    def work() -> None:
        with lib.autocast("cpu"):
            pass

    return work


def mode_with_calls(lib: Any) -> Work:
    calls = many(lib)

    def work() -> None:
        with lib.autocast("cpu"):
            for call in calls:
                call()
        for call in calls:
            call()

    return work


LINES = [
    Line("a + b, 4x4, no grad", 1.5, add_without_grad),
    Line("a + b, 4x4, with grad", 1.5, add_with_grad),
    Line("tiny MLP (8-8-8-4, batch 4) training step", 2.0, mlp_step),
    Line("tiny MLP (8-8-8-4, batch 4) AdamW step: torch eager, ours captured", 40.0, adamw_step, ours=adamw_captured),
    Line("the same step: torch eager, ours compiled", 12.0, adamw_step, ours=adamw_compiled),
    Line("the same, loss = compiled(x): torch eager, ours compiled", 6.0, adamw_of_compiled_loss(False), ours=adamw_of_compiled_loss(True)),
    Line("the same, loss = compiled(x): both compiled (torch needs a C++ compiler)", 6.0, adamw_of_compiled_loss(True)),
    Line("entering and leaving a TorchFunctionMode", 0.1, mode_of_functions),
    Line("entering and leaving autocast", 0.5, mode_of_autocast),
    Line("28 calls under autocast, and 28 after it", 1.0, mode_with_calls),
]

"""Steps of all optimizers that say what they read: compiled they are replayed, and are Python's, whatever of an optimizer is changed between calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from flambeau import nn, optim
from flambeau.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.usefixtures("always_kept")


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9), "Adam": lambda p: optim.Adam(p, lr=0.01), "NAdam": lambda p: optim.NAdam(p, lr=0.01),
    "NAdam decoupled": lambda p: optim.NAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True), "RAdam": lambda p: optim.RAdam(p, lr=0.01),
    "ASGD": lambda p: optim.ASGD(p, lr=0.1, t0=8), "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1), "Adadelta": optim.Adadelta,
    "Rprop": optim.Rprop, "RMSprop": optim.RMSprop, "Adamax": optim.Adamax}


def _state(o: Any) -> None:
    """The first parameter's counts are others than those of the rest."""
    state = next(iter(o.state.values()))
    for k, v in state.items():
        if type(v) is float:
            state[k] = v * 0.5 + (1.0 if k == "step" else 0.0)


def _group(o: Any) -> None:
    p = o.param_groups[0]["params"].pop()
    o.add_param_group({"params": [p], "lr": 0.5})


CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda o: None, "rate": lambda o: o.param_groups[0].update(lr=0.3), "counts of one": _state, "group": _group,
    "options": lambda o: o.param_groups[0].update({k: (0.5, 0.6) for k in ("betas",) if k in o.param_groups[0]}, weight_decay=0.2, maximize=True),
    "loaded": lambda o: o.load_state_dict(o.state_dict()), "no state": lambda o: o.state.clear(), "hook": lambda o: o.register_step_pre_hook(_halved),
    "a float of another name": lambda o: next(iter(o.state.values())).update(other=1.0), "a whole number of steps": lambda o: _whole(o)}


def _whole(o: Any) -> None:
    for state in o.state.values():
        if "step" in state:
            state["step"] = int(state["step"])


def _halved(o: Any, args: Any, kwargs: Any) -> None:
    for p in o.param_groups[0]["params"]:
        p.grad.mul_(0.5)


def lived(name: str, change: Any, compiles: bool) -> tuple[Any, list[Any]]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    optimizer = OPTIMIZERS[name](net.parameters())

    def f(x: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), x[:, :3])
        loss.backward()
        optimizer.step()
        return loss.item()
    g: Any = torch.compile(f) if compiles else f
    found: list[Any] = []
    for k in range(22):
        if k == 14:
            change(optimizer)
        found.append(g(torch.linspace(-1, 1, 20).view(5, 4) * (k + 1)))
        found.append([[(n, v.tolist() if isinstance(v, torch.Tensor) else v) for n, v in s.items()] for s in optimizer.state.values()])
        found.append([p.tolist() for p in net.parameters()])
    return g, found


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_replayed_and_are_pythons(name: str, kind: str) -> None:
    f, found = lived(name, CHANGES[kind], True)
    assert f.__compiled__.records, [k.why for k in f.__compiled__.kinds.values()]
    assert found == lived(name, CHANGES[kind], False)[1]

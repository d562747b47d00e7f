"""What training scripts do in a step besides the step: averages of weights, scaled losses, other parameters for a call, draws from distributions, looks at
the loss.  Compiled they are replayed, and do what they do by Python, whatever is changed between calls."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F
from flambeau.optim import swa_utils

pytestmark = pytest.mark.usefixtures("always_kept")
_CALLS = 19


class Twice:
    """A context that says in Python what it does."""

    def __init__(self, w: World) -> None:
        self.w = w

    def __enter__(self) -> float:
        self.w.depth += 1
        return self.w.factor

    def __exit__(self, *error: object) -> None:
        self.w.depth -= 1


class Lazy:
    """A descriptor that keeps what it works out."""

    def __init__(self, f: Callable[[Any], Any]) -> None:
        self.f = f

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, o: Any, owner: Any = None) -> Any:
        made = o.__dict__[self.name] = self.f(o)
        return made


class Pair:
    def __init__(self, x: Any) -> None:
        super().__init__()
        self.x = x

    @Lazy
    def square(self) -> Any:
        return self.x * self.x


class World:
    def __init__(self, norm: Any) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), norm, nn.Linear(6, 4))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.average = swa_utils.AveragedModel(self.net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.8))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=5)
        self.others = {k: v.detach().clone().requires_grad_() for k, v in self.net.named_parameters()}
        self.best, self.bad, self.factor, self.depth = math.inf, 0, 1.5, 0
        self.leaky = partial(F.leaky_relu, negative_slope=0.2)
        self.table: Any = defaultdict(list)
        self.limit = 100.0
        self.sigma = torch.tensor(0.5)

    @contextlib.contextmanager
    def around(self, by: float) -> Iterator[float]:
        self.depth += 1
        try:
            yield by * self.factor
        finally:
            self.depth -= 1

    def learned(self, loss: Any) -> Any:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def seen(self) -> Any:
        tensors = [*self.net.state_dict().values(), *self.average.state_dict().values(), *self.others.values()]
        return ([t.tolist() for t in tensors], [None if p.grad is None else p.grad.tolist() for p in self.net.parameters()], self.scaler.state_dict(),
                self.best, self.bad, self.depth, [(k, len(v)) for k, v in self.table.items()], list(self.net[0]._parameters))


def averaged(w: World, x: Any) -> Any:
    loss = w.learned(w.net(x).square().mean())
    w.average.update_parameters(w.net)
    return loss


def scaled(w: World, x: Any) -> Any:
    w.optimizer.zero_grad()
    loss = w.net(x).square().mean()
    w.scaler.scale(loss).backward()
    w.scaler.step(w.optimizer)
    w.scaler.update()
    return loss.detach()


def called_with(w: World, x: Any) -> Any:
    loss = torch.func.functional_call(w.net, w.others, (x,)).square().mean()
    grads = torch.autograd.grad(loss, list(w.others.values()))
    with torch.no_grad():
        for p, g in zip(w.others.values(), grads, strict=True):
            p.sub_(g, alpha=0.1)
    return loss.detach()


def drawn(w: World, x: Any) -> Any:
    w.optimizer.zero_grad()  # before the looks at values
    d = torch.distributions.Normal(w.net(x), w.sigma)
    z = d.rsample()
    loss = w.learned(z.square().mean() - 0.1 * d.log_prob(z.detach()).mean())
    return loss, z.detach(), torch.distributions.kl_divergence(d, torch.distributions.Normal(0.0, 1.0)).sum().detach()


def chosen(w: World, x: Any) -> Any:
    w.optimizer.zero_grad()
    d = torch.distributions.Categorical(logits=w.net(x))
    a = d.sample()
    return w.learned(-(d.log_prob(a) * x[:, 0]).mean() - 0.01 * d.entropy().mean()), a


def best(w: World, x: Any) -> Any:
    loss = w.learned(w.net(x).square().mean())
    value = loss.item()
    if value < w.best:
        w.best = value
    else:
        w.bad += 1
    return loss


def raised(w: World, x: Any) -> Any:
    loss = w.learned(w.net(x).square().mean())
    if torch.isnan(loss):
        raise RuntimeError("the loss is nan")
    if loss.item() > w.limit:
        raise RuntimeError(f"the loss is above {w.limit}")
    return loss


def counted(w: World, x: Any) -> Any:
    """A look at what the step has changed."""
    loss = w.learned(w.net(x).square().mean())
    if int(w.net[2].num_batches_tracked) == 12 or w.net[0].weight.max().item() > w.limit:
        loss = loss * 2
    return loss


def within(w: World, x: Any) -> Any:
    with w.around(0.5) as a, Twice(w) as b, contextlib.nullcontext(2.0) as c:
        y = w.leaky(w.net(x)) * a * b * c + w.depth
    p = Pair(y)
    return w.learned((p.square + p.square * p.x).mean())


def kept(w: World, x: Any) -> Any:
    y = w.net(x)
    w.table["a"].append(1)
    if "b" not in w.table:
        w.table["b"] = [2.0, w.factor]
    w.table.pop("a")
    return y.detach() * w.table["b"][1]


def recursive(w: World, x: Any) -> Any:
    return _tower(w.net(x), 3, w.factor).detach()


def _tower(y: Any, n: int, by: float) -> Any:
    return y if n == 0 else _tower(y * by, n - 1, by)


def _set(name: str, value: Any) -> Callable[[World], None]:
    return lambda w: setattr(w, name, value)


def _nan(w: World) -> None:
    w.net[0].weight.data[0, 0] = math.nan


def _large(w: World) -> None:
    w.net[3].weight.data.fill_(3e38)


CHANGES: dict[str, Callable[[World], Any]] = {
    "nothing": lambda w: None, "factor": _set("factor", 2.5), "limit": _set("limit", 0.0), "best": _set("best", -1.0), "nan": _nan, "large": _large,
    "sigma": lambda w: w.sigma.fill_(1.5), "another sigma": _set("sigma", torch.tensor(0.25)), "bad sigma": lambda w: w.sigma.fill_(-1.0),
    "begun again": lambda w: w.average.n_averaged.zero_(), "buffers too": lambda w: setattr(w.average, "use_buffers", True),
    "another average": lambda w: setattr(w.average, "multi_avg_fn", None), "scale": lambda w: w.scaler.load_state_dict({**w.scaler.state_dict(), "scale": 2.0}),
    "growth": lambda w: w.scaler.set_growth_interval(2), "other parameters": lambda w: w.others.update({"0.bias": torch.ones(6, requires_grad=True)}),
    "fewer": lambda w: w.others.pop("3.bias"), "partial": _set("leaky", partial(F.leaky_relu, negative_slope=0.7)),
    "keywords": lambda w: w.leaky.keywords.update(negative_slope=0.5), "depth": _set("depth", 3), "table": lambda w: w.table.update(b=[1.0, 3.0]),
    "cleared": lambda w: w.table.clear(), "eval": lambda w: w.net.eval(), "rate": lambda w: w.optimizer.param_groups[0].update(lr=0.01),
    "tied": lambda w: setattr(w.net, "4", w.net[0]), "hook": lambda w: w.net[0].register_forward_hook(lambda m, a, out: out * 2)}
COUNTING = [averaged, called_with, counted, within]  # these look at no value behind a change of the batch norm's running means
STEPS = [averaged, scaled, called_with, drawn, chosen, best, raised, counted, within, kept, recursive]


def lived(step: Any, change: Callable[[World], Any], compiles: bool) -> tuple[Any, Any]:
    w = World(nn.BatchNorm1d(6) if step in COUNTING else nn.LayerNorm(6))

    def f(x: Any) -> Any:
        return step(w, x)
    g: Any = torch.compile(f) if compiles else f
    found: list[Any] = []
    for k in range(_CALLS):
        if k == 10:
            change(w)
        x = torch.linspace(-1, 1, 12).view(3, 4) * (1 + k % 4) + 0.1
        try:
            made = g(x)
            found.append([t.tolist() for t in (made if isinstance(made, tuple) else (made,))])
        except (RuntimeError, ValueError) as error:
            found.append(str(error))
        found.append(w.seen())
    return g, repr((found, torch.rand(1).item()))


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.__name__)
def test_steps_are_replayed_and_do_what_they_do(step: Any) -> None:
    for name, change in CHANGES.items():
        g, found = lived(step, change, True)
        assert found == lived(step, change, False)[1], name
        if name == "nothing" and step is not counted:  # it looks at what it has changed
            assert g.__compiled__.records, [k.why for k in g.__compiled__.kinds.values()]

"""What steps do beside their launches: numbers that Python takes from tensors, counters, lists, dicts and attributes.  Compiled they do it all the same,
whatever is changed between calls."""

from __future__ import annotations

import math
from collections import OrderedDict, UserDict, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import flambeau as torch
from flambeau import nn
from flambeau._core.compile.later_numbers import LATER
from flambeau.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.usefixtures("always_kept")


class Meter:
    """A running mean, as programs have them."""

    def __init__(self) -> None:
        self.total, self.count, self.average = 0.0, 0, 0.0

    def update(self, value: Any, n: int = 1) -> None:
        self.total += value * n
        self.count += n
        self.average = self.total / self.count


@dataclass
class Output:
    loss: Any
    logits: Any = None
    hidden: Any = None
    scale: float = 1.0


@dataclass
class Own:
    """An `__init__` of a program's own, which a dataclass leaves."""

    loss: Any

    def __init__(self, loss: Any) -> None:
        self.loss = loss * SCALE[0]


SCALE = [2.0]
COUNT, LAST = 0, 0.0


class Slotted:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        self.calls, self.last = 0, 0.0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return super().forward(x)


class World:
    """A model and all that its steps read and change."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = Net()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.steps_down = torch.optim.lr_scheduler.StepLR(self.optimizer, 4, 0.5)
        self.wave = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20)
        self.warm = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda k: min(1.0, (k + 1) / 10))
        self.total, self.steps, self.every, self.best = 0.0, 0, 3, math.inf
        self.losses: list[Any] = []
        self.others: list[Any] = []
        self.metrics: dict[str, Any] = {"n": 0, "loss": 0.0, "right": 0, "last": None}
        self.sums: defaultdict[str, float] = defaultdict(float, loss=0.0)
        self.meter, self.slotted = Meter(), Slotted()
        self.flag = False
        self.held: Any = None

    def learn(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def seen(self) -> Any:
        return ([p.tolist() for p in self.net.parameters()], [None if p.grad is None else p.grad.tolist() for p in self.net.parameters()],
                known(self.total), known(self.steps), known(self.losses), known(self.others), known(self.metrics), known(dict(self.sums)),
                known(self.meter.__dict__), known(self.slotted.count), known(self.best), known(self.held), self.flag, self.net.calls, known(self.net.last),
                [m.training for m in self.net.modules()], known([COUNT, LAST]), known(self.optimizer.param_groups[0]["lr"]),
                [known([s.last_epoch, s._step_count, s.get_last_lr()]) for s in (self.steps_down, self.wave, self.warm)])


def known(x: Any) -> Any:
    """A value as text with its type: numbers are plain ones."""
    assert type(x) not in LATER
    if isinstance(x, torch.Tensor):
        return "tensor", repr(x.tolist()), x.requires_grad, x._version
    if isinstance(x, (list, tuple)):
        return type(x).__name__, [known(part) for part in x]
    if isinstance(x, dict):
        return type(x).__name__, [(k, known(v)) for k, v in x.items()]
    return type(x).__name__, repr(x)


def number(w: World, x: Any, y: Any) -> Any:
    return w.learn(x, y).item()


def floated(w: World, x: Any, y: Any) -> Any:
    first = float(w.learn(x, y))
    return first, -w.net[0].bias.sum().item(), round(w.learn(x, y).item(), 3)


def several(w: World, x: Any, y: Any) -> Any:
    out = w.net(x)
    loss = w.learn(x, y).detach()
    right = (out.argmax(1) == y).sum().item()
    return {"loss": loss.item(), "accuracy": right / len(y), "right": [right, int((out > 0).sum())]}, (loss.item() * 2 + 1, "text")


def appended(w: World, x: Any, y: Any) -> Any:
    loss = w.learn(x, y)
    w.losses.append(loss.item())
    w.others.append({"loss": loss.detach(), "step": (w.steps, loss.item())})


def local(w: World, x: Any, y: Any) -> Any:
    total = 0.0
    for k in range(3):
        total += w.learn(x + k, y).item()
    return total / 3


def added(w: World, x: Any, y: Any) -> Any:
    loss = w.learn(x, y)
    w.total += loss.item()
    w.metrics["loss"] += loss.item() * x.shape[0]
    w.metrics["n"] += x.shape[0]
    w.metrics["last"] = loss.detach()
    w.sums["loss"] += loss.item()
    return loss.detach()


def metered(w: World, x: Any, y: Any) -> Any:
    loss = w.learn(x, y)
    w.meter.update(loss.item(), x.size(0))
    return w.meter.average


def counted(w: World, x: Any, y: Any) -> Any:
    w.steps += 1
    if w.steps % w.every == 0:
        w.losses.append(w.steps)
    return w.learn(x, y).detach()


def counted_before(w: World, x: Any, y: Any) -> Any:
    """The counter is looked at before it is moved on."""
    if w.steps % w.every == 0:
        w.flag = not w.flag
    loss = w.learn(x, y)
    w.steps += 1
    return loss.item(), w.steps


def accumulated(w: World, x: Any, y: Any) -> Any:
    loss = F.cross_entropy(w.net(x), y) / w.every
    loss.backward()
    w.steps += 1
    if w.steps % w.every == 0:
        nn.utils.clip_grad_norm_(w.net.parameters(), 0.1)
        w.optimizer.step()
        w.optimizer.zero_grad()
    return loss.item() * w.every


def zeroed(w: World, x: Any, y: Any) -> Any:
    w.optimizer.zero_grad(set_to_none=False)
    loss = F.cross_entropy(w.net(x), y)
    loss.backward()
    w.optimizer.step()
    return loss.item()


def grown(w: World, x: Any, y: Any) -> Any:
    """Gradients are kept over calls, and looked at."""
    loss = F.cross_entropy(w.net(x), y)
    loss.backward()
    with torch.no_grad():
        for p in w.net.parameters():
            p.grad.mul_(0.5)
            p.sub_(p.grad, alpha=0.1)
    return loss.item()


def logged(w: World, x: Any, y: Any) -> Any:
    loss = w.learn(x, y)
    w.losses.append(loss.item())
    if len(w.losses) % 4 == 0:
        w.held = len(w.losses)
    return len(w.losses)


def best(w: World, x: Any, y: Any) -> Any:
    """A comparison of what is known only afterwards is Python's."""
    loss = w.learn(x, y).item()
    if loss < w.best:
        w.best = loss
    return w.best


def perplexity(w: World, x: Any, y: Any) -> Any:
    loss = w.learn(x, y)
    w.steps += 1
    return w.steps ** 2 / loss.item(), int(loss.item() * 1000)


def switched(w: World, x: Any, y: Any) -> Any:
    w.net.train()
    loss = w.learn(x, y)
    w.net.eval()
    with torch.no_grad():
        return loss.item(), w.net(x).mean().item()


def kept(w: World, x: Any, y: Any) -> Any:
    """Tensors that objects keep: the argument itself, a result, one and the same twice."""
    loss = w.learn(x, y).detach()
    w.held = loss, x
    w.metrics["last"] = loss
    w.net.last = loss.item()
    return loss


def of_output(w: World, x: Any, y: Any) -> Any:
    """A model's output as an object, as many models give it."""
    logits = w.net(x)
    out = Output(loss=F.cross_entropy(logits, y), logits=logits)
    w.optimizer.zero_grad()
    out.loss.backward()
    w.optimizer.step()
    return out.loss.item(), out.logits.detach(), out.hidden, out.scale


def slots(w: World, x: Any, y: Any) -> Any:
    w.slotted.count += 1
    return w.learn(x, y).item()


def given_on(w: World, x: Any, y: Any) -> Any:
    """What nobody looks through is given plain numbers."""
    loss = w.learn(x, y).item()
    parts = {"loss": loss, "pair": (loss, [loss])}
    assert type(json_like(loss, parts, *parts["pair"])) is str
    return parts, sorted([loss, 0.0])


def json_like(*parts: Any) -> str:
    exec("for part in parts: known(part)", {"parts": parts, "known": known})  # noqa: S102
    return "told"


def texted(w: World, x: Any, y: Any) -> Any:
    w.steps += 1
    return f"{w.steps}: {w.learn(x, y).item():.3f}", "{:d}".format(w.steps)  # noqa: UP032


def raising(w: World, x: Any, y: Any) -> Any:
    loss = w.learn(x, y)
    w.steps += 1
    w.total += 1.0 / (w.every - 3 if w.flag else w.every)
    return loss.item() / w.every


def lowest(w: World, x: Any, y: Any) -> Any:
    loss = w.learn(x, y).item()
    w.best = min(w.best, loss)
    w.total = max(w.total, math.exp(-loss), 0.5)
    return w.best, math.ceil(loss), math.log2(loss + 2.0)


def globally(w: World, x: Any, y: Any) -> Any:
    global COUNT, LAST
    COUNT += 1
    LAST = w.learn(x, y).item() * COUNT
    return COUNT, LAST


def enclosed(w: World, x: Any, y: Any) -> Any:
    seen, total = 0, 0.0

    def note(value: float) -> int:
        nonlocal seen, total
        seen += 1
        total = total + value
        return seen
    return note(w.learn(x, y).item()), note(w.learn(x, y).item()), seen, total


def lengthened(w: World, x: Any, y: Any) -> Any:
    loss = w.learn(x, y)
    w.losses.extend([loss.item(), w.steps])
    w.others += (loss.detach(), "text")


def stepped_down(w: World, x: Any, y: Any) -> Any:
    loss = w.learn(x, y)
    w.steps_down.step()
    return loss.item(), w.steps_down.get_last_lr()[0]


def waved(w: World, x: Any, y: Any) -> Any:
    loss = w.learn(x, y).item()
    w.wave.step()
    return loss


def warmed(w: World, x: Any, y: Any) -> Any:
    loss = w.learn(x, y).item()
    w.warm.step()
    return loss


REPLAYED: list[Callable[..., Any]] = [number, floated, several, appended, local, added, metered, counted, counted_before, accumulated, zeroed, grown, logged,
                                      perplexity, switched, kept, of_output, raising, lowest, globally, enclosed, lengthened, stepped_down, waved, warmed]
LEFT: list[Callable[..., Any]] = [best, slots, given_on, texted]


def _hold(w: World) -> None:
    w.held = [p.grad for p in w.net.parameters()]


def _share(w: World) -> None:
    w.held = [None if p.grad is None else p.grad.numpy() for p in w.net.parameters()] and None


def _count(w: World, value: Any = 40) -> None:
    global COUNT
    COUNT = value


def _tenth(k: int) -> float:
    return 0.1 * k


def _swap(w: World) -> None:
    w.net[2] = nn.Linear(8, 3)
    w.optimizer = torch.optim.SGD(w.net.parameters(), lr=0.2)


CHANGES: dict[str, Callable[[World], Any]] = {
    "nothing": lambda w: None, "counter": lambda w: setattr(w, "steps", 7), "a float counter": lambda w: setattr(w, "steps", 7.0),
    "a large counter": lambda w: setattr(w, "steps", 1 << 70), "a true counter": lambda w: setattr(w, "steps", True),
    "total": lambda w: setattr(w, "total", math.nan), "a whole total": lambda w: setattr(w, "total", 3), "negative zero": lambda w: setattr(w, "total", -0.0),
    "every": lambda w: setattr(w, "every", 2), "list": lambda w: setattr(w, "losses", []), "longer list": lambda w: w.losses.extend([1.0, 2.0]),
    "a list of its own": lambda w: setattr(w, "losses", type("Own", (list,), {})()), "dict": lambda w: setattr(w, "metrics", dict(w.metrics)),
    "entry": lambda w: w.metrics.update(n=100, loss=1), "entry gone": lambda w: w.metrics.pop("last"), "flag": lambda w: setattr(w, "flag", True),
    "meter": lambda w: setattr(w, "meter", Meter()), "meter's count": lambda w: setattr(w.meter, "count", 5),
    "property": lambda w: setattr(World, "total", property(lambda w: w.__dict__.get("total", 0.0), lambda w, v: w.__dict__.__setitem__("total", v * 2))),
    "setattr": lambda w: setattr(Meter, "__setattr__", lambda m, k, v: object.__setattr__(m, k, v)),
    "class": lambda w: setattr(w.meter, "__class__", type("Other", (Meter,), {"update": lambda m, v, n=1: setattr(m, "total", 5.0)})),
    "no gradients": lambda w: w.optimizer.zero_grad(), "zero gradients": lambda w: w.optimizer.zero_grad(False), "held gradients": _hold,
    "other gradients": lambda w: [setattr(p, "grad", torch.ones_like(p)) for p in w.net.parameters()], "shared gradients": _share,
    "one gradient less": lambda w: setattr(w.net[0].bias, "grad", None), "recorded gradient": lambda w: setattr(w.net[0].bias, "grad", (w.net[0].bias * 2)),
    "two gradients on one memory": lambda w: [setattr(p, "grad", torch.ones(40)[:p.numel()].view_as(p)) for p in w.net.parameters()],
    "eval": lambda w: w.net.eval(), "frozen": lambda w: w.net[0].requires_grad_(False), "rate": lambda w: w.optimizer.param_groups[0].update(lr=0.5),
    "global": _count, "a float global": lambda w: _count(w, 2.5), "epoch": lambda w: [setattr(s, "last_epoch", 3) for s in (w.steps_down, w.wave, w.warm)],
    "lengths": lambda w: [setattr(w.steps_down, "step_size", 2), setattr(w.wave, "T_max", 7)], "factor": lambda w: setattr(w.warm, "lr_lambdas", [_tenth]),
    "module": _swap, "method of tensors": lambda w: setattr(torch.Tensor, "item", _other_item), "best": lambda w: setattr(w, "best", -1.0)}
_item = torch.Tensor.item


def _other_item(t: Any) -> Any:
    return _item(t) + 1


def batch(k: int) -> tuple[Any, Any]:
    g = torch.Generator().manual_seed(k)
    return torch.randn(5, 4, generator=g), torch.randint(0, 3, (5,), generator=g)


def lived(step: Any, change: Any, compiles: bool, before: int = 18) -> tuple[Any, list[Any]]:
    global COUNT, LAST
    COUNT, LAST = 0, 0.0
    w = World()

    def f(x: Any, y: Any) -> Any:
        return step(w, x, y)
    g: Any = torch.compile(f) if compiles else f
    found: list[Any] = []

    def once(k: int) -> None:
        try:
            found.append(known(g(*batch(k))))
        except (RuntimeError, TypeError, AttributeError, KeyError, ZeroDivisionError, OverflowError, ValueError) as error:
            found.append(f"{type(error).__name__}: {error}")
        found.append(w.seen())
    own = {c: dict(vars(c)) for c in (World, Meter, torch.Tensor)}
    try:
        for k in range(before):
            once(k)
        change(w)
        for k in range(before, before + 9):
            once(k)
    finally:
        for c, space in own.items():
            for name in set(vars(c)) - set(space):
                delattr(c, name)
        torch.Tensor.item = _item  # type: ignore[method-assign]
    return g, found


# each change with a fifth of the steps, and with those that it may concern most
PAIRS = [(kind, step) for i, kind in enumerate(CHANGES) for k, step in enumerate(REPLAYED) if kind == "nothing" or (i + k) % 5 == 0
         or ("gradient" in kind and step in (accumulated, grown, zeroed)) or (step is added and kind in ("entry", "dict", "total", "property"))
         or (step is metered and kind in ("meter", "class", "setattr")) or (step is counted_before and "counter" in kind)
         or (step in (logged, lengthened) and "list" in kind) or (step is globally and "global" in kind) or (step is lowest and kind in ("best", "total"))
         or (step in (stepped_down, waved, warmed) and kind in ("epoch", "lengths", "factor", "rate"))]


@pytest.mark.parametrize(("kind", "step"), PAIRS)
def test_each_change_has_its_effect(kind: str, step: Any) -> None:
    f, found = lived(step, CHANGES[kind], True)
    assert f.__compiled__.records, [k.why for k in f.__compiled__.kinds.values()]
    wanted = lived(step, CHANGES[kind], False)[1]
    assert found == wanted


@pytest.mark.parametrize("step", LEFT)
@pytest.mark.parametrize("kind", ["nothing", "counter", "best"])
def test_what_is_left_to_python_is_right_too(step: Any, kind: str) -> None:
    assert lived(step, CHANGES[kind], True)[1] == lived(step, CHANGES[kind], False)[1]


# ------------------------------------------------------------------------------------------------------------- containers
class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Batch:
    x: Any
    y: Any
    weight: float = 1.0


class Encoding(UserDict[str, Any]):
    pass


def of_pair(w: World, b: Any) -> Any:
    x, y = b
    return w.learn(x, y).item()


def of_dict(w: World, b: Any) -> Any:
    loss = w.learn(b["x"], b["y"]) * b.get("weight", 1.0)
    for name, value in b.items():
        if name not in ("x", "y", "weight") and isinstance(value, torch.Tensor):
            loss = loss + value.sum()
    return loss.item(), len(b), "more" in b


def of_keywords(w: World, b: Any) -> Any:
    def learn(x: Any, y: Any, **rest: Any) -> Any:
        return w.learn(x, y).detach() * len(rest)
    return learn(**b)


def of_object(w: World, b: Any) -> Any:
    return w.learn(b.x, b.y).detach() * b.weight


def of_encoding(w: World, b: Any) -> Any:
    return w.learn(b["x"], b["y"]).item()


def of_nested(w: World, b: Any) -> Any:
    return w.learn(b["in"][0], b["in"][1]["y"]).item()


def mutated(w: World, b: Any) -> Any:
    b["loss"] = w.learn(b["x"], b["y"]).item()
    return b


MAKERS: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "tuple": (of_pair, lambda x, y: (x, y)), "list": (of_pair, lambda x, y: [x, y]), "named": (of_pair, Pair), "dict": (of_dict, lambda x, y: {"x": x, "y": y}),
    "ordered": (of_dict, lambda x, y: OrderedDict(x=x, y=y)), "keywords": (of_keywords, lambda x, y: {"x": x, "y": y, "more": 1}),
    "object": (of_object, Batch), "encoding": (of_encoding, lambda x, y: Encoding(x=x, y=y)), "nested": (of_nested, lambda x, y: {"in": (x, {"y": y})}),
    "mutated": (mutated, lambda x, y: {"x": x, "y": y})}


def _spoilt(name: str, b: Any, w: World, x: Any, y: Any, k: int) -> Any:
    """Another batch than the usual one."""
    if name in ("dict", "ordered", "keywords"):
        return [{"y": y, "x": x, **({"more": 1} if name == "keywords" else {})}, {**b, "weight": 2.0}, {**b, "more": torch.ones(2)}, {**b, "weight": 2},
                {"x": x, "y": y.int().long()}, {"x": w.net[0].weight.detach()[:5], "y": y}, b][k]
    if name == "object":
        b.weight = [1.0, 2.0, 1, -0.0, math.nan, torch.ones(2), 1.0][k]
        return b
    if name in ("tuple", "list", "named"):
        return [(x, y), [x, y], Pair(x, y), (x[:3], y[:3]), (x.double().float(), y), (x, y, y), b][k]
    return b


@pytest.mark.parametrize("name", MAKERS)
def test_tensors_in_containers(name: str) -> None:
    step, make = MAKERS[name]

    def run(compiles: bool) -> Any:
        w = World()

        def f(b: Any) -> Any:
            return step(w, b)
        g: Any = torch.compile(f) if compiles else f
        found: list[Any] = []
        for k in range(24):
            x, y = batch(k)
            b = make(x, y)
            if 8 <= k < 15:
                b = _spoilt(name, b, w, x, y, k - 8)
            try:
                made = g(b)
                assert name != "mutated" or made is b
                found.append(known(made) if name != "mutated" else known(made["loss"]))
            except (ValueError, RuntimeError) as error:
                found.append(str(error))
            found.append(w.seen())
        return g, found
    f, found = run(True)
    assert bool(f.__compiled__.records) is (name != "mutated"), [k.why for k in f.__compiled__.kinds.values()]
    assert found == run(False)[1]


def test_containers_that_are_read_elsewhere_too() -> None:
    w = World()
    kept: dict[str, Any] = {}

    def f(b: Any) -> Any:
        w.held = None
        return b["x"] * 2 if b is kept.get("b") else b["x"] * 3
    g = torch.compile(f)
    for k in range(12):
        b = {"x": torch.full((2,), float(k))}
        if k > 6:
            kept["b"] = b if k % 2 else {}
        assert g(b).tolist() == f(b).tolist()


def test_the_init_of_a_programs_own_is_looked_through() -> None:
    def f(x: Any) -> Any:
        return Own(x).loss * Output(x * 3).loss
    g = torch.compile(f)
    for k in range(10):
        SCALE[0] = 2.0 if k < 6 else float(k)
        x = torch.ones(2) * k
        assert g(x).tolist() == f(x).tolist() == [SCALE[0] * 3.0 * k * k] * 2
    assert g.__compiled__.records, [k.why for k in g.__compiled__.kinds.values()]
    SCALE[0] = 2.0


def test_a_dataclass_with_other_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        return x * Output(x).scale
    g = torch.compile(f)
    for _ in range(6):
        assert g(torch.ones(1)).item() == 1.0
    assert g.__compiled__.records
    monkeypatch.setattr(Output.__init__, "__defaults__", (None, None, 5.0))
    assert g(torch.ones(1)).item() == 5.0


def test_one_container_twice() -> None:
    def f(a: Any, b: Any) -> Any:
        return a["x"] * (2 if a is b else 3)
    g = torch.compile(f)
    for k in range(12):
        a, b = {"x": torch.ones(2) * k}, {"x": torch.ones(2)}
        assert g(a, b).tolist() == [3.0 * k] * 2
        assert g(a, a).tolist() == [2.0 * k] * 2


def test_a_list_of_parameters_is_the_same_at_each_call() -> None:
    ps = [torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)]

    def f(ps: Any, x: Any) -> Any:
        loss = ((ps[0] * x + ps[1]) ** 2).sum()
        loss.backward()
        with torch.no_grad():
            for p in ps:
                p.sub_(p.grad, alpha=0.01)
                p.grad = None
        return loss.item()
    g = torch.compile(f)
    found = [g(ps, torch.full((3,), float(k))) for k in range(12)]
    assert g.__compiled__.records
    ps = [torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)]
    assert found == [f(ps, torch.full((3,), float(k))) for k in range(12)]


def test_whole_arguments_that_are_others_at_each_call() -> None:
    def run(compiles: bool) -> Any:
        w = World()

        def f(x: Any, y: Any, k: int, scale: float = 1.0) -> Any:
            loss = F.cross_entropy(w.net(x), y)
            loss.backward()
            if (k + 1) % 3 == 0:
                w.optimizer.step()
                w.optimizer.zero_grad()
            w.metrics["n"] = k
            return loss.item() * scale, k
        g: Any = torch.compile(f) if compiles else f
        numbers = [*range(40), 7.0, True, 1 << 80, -1]
        return g, [(known(g(*batch(k % 40), k, *([0.5 + k] if k % 2 else []))), w.seen()) for k in numbers]
    f, found = run(True)
    assert len(f.__compiled__.records) >= 2, [k.why for k in f.__compiled__.kinds.values()]
    assert found == run(False)[1]

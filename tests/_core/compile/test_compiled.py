"""What `compile` gives is what the function does, whatever of all that it depends on is changed between calls."""

from __future__ import annotations

import contextlib
import io
import re
import threading
import time
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau._core.compile import compiled

SCALE = 2.0


class World:
    """A model and all else that its function reads."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.1)
        self.numbers = [1.0, 2.0]
        self.options: dict[str, Any] = {"add": 0.0, "loud": False, "fail": False}
        self.calls = 0
        self.x = torch.linspace(-1, 1, 12).view(4, 3)

    def function(self) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            self.calls += 1
            y = self.net(x) * SCALE + self.options["add"]
            for n in self.numbers:
                y = y * n
            if self.options["loud"]:
                print("called", self.calls)
            if self.options["fail"]:
                raise ValueError(f"failed at {self.calls}")
            if x.sum() > 3:
                y = -y
            loss = y.square().mean() + torch.zeros(1).sum()
            self.optimizer.zero_grad()
            if loss.requires_grad:
                loss.backward()
                self.optimizer.step()
            return loss.detach(), torch.rand(2), torch.ones(1).dtype
        return f


def _seed(w: World) -> None:
    torch.manual_seed(7)


def _hook(w: World) -> None:
    w.net[0].register_forward_hook(lambda m, args, out: out * 2)


def _replace(w: World) -> None:
    w.net[3] = nn.Linear(4, 2, bias=False)


def _bigger(w: World) -> None:
    w.x = torch.linspace(0, 3, 18).view(6, 3)


CHANGES: dict[str, Callable[[World], Any]] = {
    "nothing": lambda w: None, "eval": lambda w: w.net.eval(), "schedule": lambda w: w.schedule.step(), "frozen": lambda w: w.net.requires_grad_(False),
    "one frozen": lambda w: w.net[0].weight.requires_grad_(False), "module": _replace, "list": lambda w: w.numbers.append(3.0),
    "element": lambda w: w.numbers.__setitem__(0, 5.0), "dict": lambda w: w.options.update(add=1.0), "hook": _hook, "shape": _bigger,
    "branch": lambda w: setattr(w, "x", w.x + 5), "seed": _seed, "printing": lambda w: w.options.update(loud=True),
    "exception": lambda w: w.options.update(fail=True), "weight in place": lambda w: w.net[0].weight.data.mul_(2),
    "weight data": lambda w: setattr(w.net[0].weight, "data", torch.ones(4, 3)), "p of dropout": lambda w: setattr(w.net[2], "p", 0.0),
    "momentum": lambda w: setattr(w.net[1], "momentum", 0.9), "strides": lambda w: setattr(w, "x", w.x.t().contiguous().t()),
    "attribute": lambda w: setattr(w, "numbers", [4.0]), "betas": lambda w: w.optimizer.param_groups[0].update(betas=(0.5, 0.5))}


def told(call: Callable[[], Any]) -> Any:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        try:
            loss, draw, dtype = call()
            found: Any = loss.tolist(), draw.tolist(), dtype
        except ValueError as error:
            found = str(error)
    return found, text.getvalue()


def lived(change: Callable[[World], Any], compiled: bool, around: Callable[[], Any] = contextlib.nullcontext) -> Any:
    w = World()
    f: Callable[[Any], Any] = torch.compile(w.function()) if compiled else w.function()
    seen = [told(lambda: f(w.x)) for _ in range(3)]
    change(w)
    with around():
        seen += [told(lambda: f(w.x)) for _ in range(2)]
    seen.append(told(lambda: f(w.x)))
    return seen, w.calls, [p.tolist() for p in w.net.parameters()], [None if p.grad is None else p.grad.tolist() for p in w.net.parameters()]


@pytest.mark.parametrize("kind", CHANGES)
def test_each_change_has_its_effect(kind: str) -> None:
    assert lived(CHANGES[kind], True) == lived(CHANGES[kind], False)


def test_a_global_has_its_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(w: World) -> None:
        monkeypatch.setitem(globals(), "SCALE", 3.0)
    found = lived(change, True)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert found == lived(change, False)
    assert found != lived(lambda w: None, False)


@contextlib.contextmanager
def _doubles() -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("around", [torch.no_grad, lambda: torch.autocast("cpu"), _doubles, lambda: torch.random.fork_rng()])
def test_modes_around_the_call_have_their_effect(around: Any) -> None:
    found = lived(lambda w: None, True, around)
    assert found == lived(lambda w: None, False, around)


# ------------------------------------------------------------------------------------------------- calls that leave Python out
pytestmark = pytest.mark.usefixtures("always_kept")  # of all in this file


class Layer(nn.Module):
    """A module of a program's own, with all that such modules read."""

    factor = 1.5

    def __init__(self, add: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 0.5]))
        self.register_buffer("mean", torch.zeros(2))
        self.add = add
        self.names = ["scale"]
        self.table = {"power": 2}

    @property
    def half(self) -> float:
        return self.add / 2

    def forward(self, x: Any) -> Any:
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        for name in self.names:
            x = x * getattr(self, name)
        return (x - self.mean) ** self.table["power"] * self.factor + self.half


def doubled(x: Any, by: float = 2.0) -> Any:
    return x * by


class Clean:
    """A training step that may be replayed, and all that it reads."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.25), nn.Linear(4, 2), Layer(0.5))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.1)
        self.numbers = [1.0, 2.0]
        self.options: dict[str, Any] = {"add": 0.0}
        self.constant = torch.ones(2)
        self.x = torch.linspace(-1, 1, 12).view(4, 3)
        self.held: list[Any] = []
        self.do = doubled

    def function(self) -> Callable[..., Any]:
        net, optimizer = self.net, self.optimizer

        def f(x: Any, times: float = 1.0) -> Any:
            y = net(x) * SCALE + self.options["add"] + self.constant
            for n in self.numbers:
                y = y * n
            loss = self.do(y).square().mean() * times + torch.zeros(1).sum()
            optimizer.zero_grad()
            if loss.requires_grad:
                loss.backward()
                optimizer.step()
            return loss, {"draw": torch.rand(2), "sum": y.detach().sum(0)}, (1, "a")
        return f

    def after(self, made: Any) -> Any:
        """What the program does with what is given."""
        return made


class Usual(Clean):
    """The same, whose pass and optimizer's step are the program's own."""

    def function(self) -> Callable[..., Any]:
        net = self.net

        def f(x: Any, times: float = 1.0) -> Any:
            y = net(x) * SCALE + self.options["add"] + self.constant
            for n in self.numbers:
                y = y * n
            return self.do(y).square().mean() * times + torch.zeros(1).sum(), {"draw": torch.rand(2), "sum": y.detach().sum(0)}, (1, "a")
        return f

    def after(self, made: Any) -> Any:
        self.optimizer.zero_grad()
        if made[0].requires_grad:
            made[0].backward(retain_graph=True)
            made[0].backward()
            self.optimizer.step()
        return made


def _own_hook(w: Clean) -> None:
    w.net[0].register_forward_hook(lambda m, args, out: out * 2)


def _backward_hook(w: Clean) -> None:
    w.net[0].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,) if gi[0] is not None else None)


def _swap(w: Clean) -> None:
    w.net[4] = nn.Linear(4, 2, bias=False)


def _swap_parameter(w: Clean) -> None:
    w.net[0].weight = nn.Parameter(torch.ones(4, 3))


def _shape(w: Clean) -> None:
    w.x = torch.linspace(0, 3, 18).view(6, 3)


def _hold(w: Clean) -> None:
    w.held = [p.grad for p in w.net.parameters()]


def _hold_views(w: Clean) -> None:
    w.held = [p.grad.numpy() for p in w.net.parameters()]


def _forward(w: Clean) -> None:
    w.net[5].forward = lambda x: x * 3


def _new_class(w: Clean) -> None:
    w.net[5].__class__ = type("Other", (Layer,), {"forward": lambda self, x: x * self.scale})


def _defaults(w: Clean) -> None:
    def other(x: Any, by: float = 5.0) -> Any:
        return x * by
    w.do = other


def _alias(w: Clean) -> None:
    w.x = w.net[0].weight.data


def _gradient(w: Clean) -> None:
    w.x = w.net[0].weight.grad


def _recorded(w: Clean) -> None:
    w.x = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_()


def _spoil(w: Clean) -> None:
    for p in w.net.parameters():
        p.grad.fill_(float("nan"))


def _state(w: Clean) -> None:
    w.optimizer.load_state_dict(w.optimizer.state_dict())


def _group(w: Clean) -> None:
    w.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})


CLEAN: dict[str, Callable[[Clean], Any]] = {
    "nothing": lambda w: None, "eval": lambda w: w.net.eval(), "one eval": lambda w: w.net[3].eval(), "schedule": lambda w: w.schedule.step(),
    "frozen": lambda w: w.net.requires_grad_(False), "one frozen": lambda w: w.net[0].weight.requires_grad_(False), "module": _swap,
    "parameter": _swap_parameter, "list": lambda w: w.numbers.append(3.0), "element": lambda w: w.numbers.__setitem__(0, 5.0),
    "shorter": lambda w: w.numbers.pop(), "other list": lambda w: setattr(w, "numbers", [4.0]), "dict": lambda w: w.options.update(add=1.0),
    "other dict": lambda w: setattr(w, "options", {"add": 2.0}), "hook": _own_hook, "backward hook": _backward_hook, "shape": _shape,
    "tensor hook": lambda w: w.net[0].weight.register_hook(lambda g: g * 2), "seed": lambda w: torch.manual_seed(7),
    "weight in place": lambda w: w.net[0].weight.data.mul_(2), "weight data": lambda w: setattr(w.net[0].weight, "data", torch.ones(4, 3)),
    "p of dropout": lambda w: setattr(w.net[3], "p", 0.0), "momentum": lambda w: setattr(w.net[1], "momentum", 0.9),
    "strides": lambda w: setattr(w, "x", w.x.t().contiguous().t()), "type": lambda w: setattr(w, "x", w.x.double()),
    "values": lambda w: setattr(w, "x", w.x * 3), "betas": lambda w: w.optimizer.param_groups[0].update(betas=(0.5, 0.5)),
    "decay": lambda w: w.optimizer.param_groups[0].update(weight_decay=0.0), "maximize": lambda w: w.optimizer.param_groups[0].update(maximize=True),
    "rate": lambda w: w.optimizer.param_groups[0].update(lr=0.5), "state": _state, "group": _group, "class attribute": lambda w: None,
    "constant in place": lambda w: w.constant.fill_(2), "other constant": lambda w: setattr(w, "constant", torch.zeros(2)),
    "larger constant": lambda w: setattr(w, "constant", torch.zeros(1, 2)), "constant recorded": lambda w: w.constant.requires_grad_(),
    "held gradients": _hold, "shared gradients": _hold_views, "no gradients": lambda w: w.optimizer.zero_grad(), "spoilt gradients": _spoil,
    "forward of an instance": _forward, "class": _new_class, "other function": _defaults, "alias": _alias, "gradient as argument": _gradient,
    "recorded argument": _recorded, "property": lambda w: setattr(w.net[5], "add", 3.0), "name": lambda w: w.net[5].names.append("scale"),
    "table": lambda w: w.net[5].table.update(power=3), "buffer": lambda w: w.net[5].mean.fill_(4.0),
    "other buffer": lambda w: setattr(w.net[5], "mean", torch.ones(2)), "attribute in the instance": lambda w: setattr(w.net[5], "factor", 2.0),
    "one step more of one": lambda w: w.optimizer.state[w.net[0].weight].update(step=9.0),
    "stepped by hand": lambda w: w.optimizer.step(), "numpy argument": lambda w: setattr(w, "x", torch.from_numpy(w.x.numpy()))}


def seen_of(w: Clean, made: Any) -> Any:
    loss, parts, rest = made
    states = [{k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in w.optimizer.state[p].items()} for p in w.net.parameters()]
    return (loss.tolist(), loss.requires_grad, loss._version, None if loss.grad_fn is None else loss.grad_fn.name(), parts["draw"].tolist(),
            parts["sum"].tolist(),
            rest, [p.tolist() for p in w.net.parameters()], [p._version for p in w.net.parameters()], states, [b.tolist() for b in w.net.buffers()],
            [None if p.grad is None else p.grad.tolist() for p in w.net.parameters()], [h.tolist() for h in w.held if h is not None], w.x._version,
            torch.get_rng_state().sum().item())


def lived_clean(change: Callable[[Clean], Any], compiles: bool, around: Callable[[], Any] = contextlib.nullcontext, world: type[Clean] = Clean) -> list[Any]:
    """What is seen of calls before and after a change; those of the compiled function are replays by then."""
    w = world()
    f: Any = torch.compile(w.function()) if compiles else w.function()
    seen = []
    for _ in range(6):
        seen.append(seen_of(w, w.after(f(w.x))))
    if compiles:
        (record,) = f.__compiled__.records
        made = record.call((w.x,), {})
        assert made is not compiled.MISS
    else:
        made = f(w.x)
    seen.append(seen_of(w, w.after(made)))
    del made
    change(w)

    def once() -> None:
        try:
            seen.append(seen_of(w, w.after(f(w.x))))
        except (RuntimeError, ValueError, TypeError) as error:
            seen.append(str(error))
    with around():
        for _ in range(5):
            once()
    once()
    return seen


@pytest.mark.parametrize("kind", CLEAN)
def test_each_change_has_its_effect_on_what_is_replayed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change = CLEAN[kind]
    if kind == "class attribute":
        def change(w: Clean) -> None:
            monkeypatch.setattr(Layer, "factor", 7.0)
    found = lived_clean(change, True)
    monkeypatch.undo()
    assert found == lived_clean(change, False)


@pytest.mark.parametrize("kind", CLEAN)
def test_each_change_has_its_effect_where_the_pass_comes_later(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change = CLEAN[kind]
    if kind == "class attribute":
        def change(w: Clean) -> None:
            monkeypatch.setattr(Layer, "factor", 7.0)
    found = lived_clean(change, True, world=Usual)
    monkeypatch.undo()
    assert found == lived_clean(change, False, world=Usual)


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu"), _doubles, lambda: torch.random.fork_rng(),
                                    torch.autograd.detect_anomaly, lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x * 2)])
def test_modes_around_a_replay_have_their_effect(around: Any) -> None:
    assert lived_clean(lambda w: None, True, around) == lived_clean(lambda w: None, False, around)


def replayed(f: Any, *args: Any, calls: int = 6, **kwargs: Any) -> Any:
    """The compiled function, once it replays calls with these arguments."""
    made = torch.compile(f)
    for _ in range(calls):
        made(*args, **kwargs)
    assert made.__compiled__.records, [k.why for k in made.__compiled__.kinds.values()]
    return made


def left_to_python(f: Any, *args: Any) -> str:
    """Why nothing is kept of a function that gives what Python's run gives."""
    made = torch.compile(f)
    for _ in range(6):
        made(*args)
    state = made.__compiled__
    assert not state.records
    (kind,) = state.kinds.values()
    return kind.why[-1]


def test_what_is_not_known_is_left_to_python(capsys: pytest.CaptureFixture[str]) -> None:
    counted: list[int] = []
    w = Clean()

    def prints(x: Any) -> Any:
        print("called")
        return x * 2

    def counts(x: Any) -> Any:
        counted.insert(0, 1)
        return x * 2

    def looks(x: Any) -> Any:
        return x * 2 if max(x.tolist()) > 0 else x * 3

    def reads(x: Any) -> Any:
        w.x.add_(1.0)  # what comes behind a change cannot be a condition
        return x * w.x.sum().item()

    def clocks(x: Any) -> Any:
        return x * (time.time() > 0)

    def gives(x: Any) -> Any:
        return w.numbers

    def sets(x: Any) -> Any:
        w.options[f"add {len(w.options)}"] = 3.0
        return x + 1

    def warns(x: Any) -> Any:
        warnings.warn("once more", stacklevel=1)
        return x + 1

    def numpys(x: Any) -> Any:
        return x + float(x.numpy()[0])

    def address(x: Any) -> Any:
        return x + (x * 2).data_ptr() * 0

    def identity(x: Any) -> Any:
        return x * (id(x * 2) > 0)
    x = torch.ones(3)
    for f, why in ((prints, "print"), (counts, "insert"), (looks, "values"), (reads, "changed something|leaves memory"), (clocks, "time"),
                   (gives, "lives on"), (sets, "gives a container that lives on"), (numpys, "numpy|values|NumPy"), (address, "data_ptr"), (identity, "id of")):
        assert re.search(why, left_to_python(f, x)), f
    assert capsys.readouterr().out == "called\n" * 6
    assert len(counted) == 6
    with pytest.warns(UserWarning, match="once more") as seen:
        left_to_python(warns, x)
    assert {(r.filename, r.lineno) for r in seen} == {(__file__, warns.__code__.co_firstlineno + 1)}


def test_exceptions_are_those_of_the_function() -> None:
    def f(x: Any, rows: Any) -> Any:
        return torch.nn.functional.embedding(rows, x) * 2
    x = torch.rand(4, 3)
    g = replayed(f, x, torch.tensor([0, 1]))
    assert torch.equal(g(x, torch.tensor([3, 2])), f(x, torch.tensor([3, 2])))
    for call in (f, g):
        with pytest.raises(IndexError, match="out of bounds|out of range"):
            call(x, torch.tensor([0, 4]))
    assert torch.equal(g(x, torch.tensor([3, 2])), f(x, torch.tensor([3, 2])))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        g(x)


def test_a_check_behind_a_change_is_done_before_it() -> None:
    state = torch.zeros(1)

    def f(rows: Any) -> Any:
        state.add_(1)
        return torch.nn.functional.embedding(rows, state.reshape(1, 1))
    g = replayed(f, torch.tensor([0]))
    assert g(torch.tensor([0])).tolist() == [[7.0]]
    with pytest.raises(IndexError):
        g(torch.tensor([1]))
    assert state.tolist() == [8.0]


def test_a_check_of_what_was_changed_is_left_to_python() -> None:
    state, table = torch.zeros(1, dtype=torch.int64), torch.rand(9, 2)

    def f(rows: Any) -> Any:
        state.add_(rows)
        return torch.nn.functional.embedding(state, table)
    assert "checks arguments" in left_to_python(f, torch.tensor([1]))
    with pytest.raises(IndexError):
        f(torch.tensor([3]))
    assert state.tolist() == [9]


def test_arguments_that_share_memory() -> None:
    state = torch.zeros(4)

    def f(x: Any, y: Any) -> Any:
        x.mul_(2)
        state.add_(y)
        return x + y + state
    g = replayed(f, torch.ones(4), torch.ones(4))
    whole, one = torch.ones(5), torch.ones(4)
    pairs = [(torch.ones(4), torch.ones(4)), (state, torch.ones(4)), (torch.ones(4), state), (one, one), (whole[1:], whole[:4])]
    for a, b in pairs * 2:
        held = [state, *[t if t._base is None else t._base for t in (a, b)]]
        before = [t.clone() for t in held]
        wanted = f(a, b)
        after = [t.clone() for t in held]
        for t, value in zip(held, before, strict=True):
            t.copy_(value)
        assert torch.equal(g(a, b), wanted)
        assert all(map(torch.equal, held, after))


@pytest.mark.parametrize("where", ["closure", "tuple"])
def test_an_argument_that_is_read_elsewhere_too(where: str) -> None:
    state = torch.zeros(4)
    pair = (state, 1)

    def f(x: Any) -> Any:
        (state if where == "closure" else pair[0]).add_(1)
        return x * 2
    assert "elsewhere" in left_to_python(f, state)
    g = torch.compile(f)
    for k in range(4):
        assert g(state)[0] == 2 * (state[0])
        assert g(torch.full((4,), float(k))).tolist() == [2.0 * k] * 4


def test_an_argument_that_is_an_object_it_is_compared_with() -> None:
    special, pair = torch.ones(3), (torch.ones(3), 1)

    def f(x: Any) -> Any:
        return x * 100 if x is special or x is pair[0] else x + 1
    g = replayed(f, torch.ones(3))
    assert [g(x)[0] for x in (special, pair[0], torch.ones(3))] == [100, 100, 2]


@pytest.mark.parametrize("name", ["relu", "__add__", "__radd__", "__neg__", "__getitem__", "__iadd__", "T"])
def test_a_method_of_tensors_that_a_program_puts_elsewhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        y = 1 + -(x.relu() + x)[1:].T
        y += 1
        return y
    x = torch.ones(3, 3)
    g = replayed(f, x)
    monkeypatch.setattr(torch.Tensor, name, property(lambda x: x * 7) if name == "T" else lambda x, *args: x * 7)
    assert all(torch.equal(g(x), f(x)) for _ in range(4))


def test_versions_of_storages_on_the_same_memory() -> None:
    def versions(compiles: bool) -> Any:
        a, b = torch.zeros(3), torch.zeros(3)
        b.data = a.data

        def f(x: Any) -> Any:
            a.add_(x)
            b.mul_(2)
            return a + b
        g = replayed(f, torch.ones(3)) if compiles else f
        for _ in range(2 if compiles else 8):
            y = g(torch.ones(3))
        return y.tolist(), a._version, b._version
    assert versions(True) == versions(False)


def test_writes_through_data() -> None:
    """While a run marks versions, `data` of what it met is memory like any other."""
    def run(compiles: bool) -> tuple[Any, Any]:
        torch.manual_seed(0)
        a, b = nn.Linear(3, 2), nn.Linear(3, 2)

        def f(x: Any) -> Any:
            for p, q in zip(a.parameters(), b.parameters(), strict=True):
                p.data.copy_(0.25 * q.data + 0.75 * p.data)
            return a(x).detach()
        g: Any = torch.compile(f) if compiles else f
        return g, [g(torch.full((2, 3), float(k))).tolist() for k in range(8)] + [p.tolist() for p in a.parameters()]
    f, found = run(True)
    assert f.__compiled__.records
    assert found == run(False)[1]


def test_keywords_and_constants() -> None:
    def f(x: Any, *, by: Any = 2, name: str = "a") -> Any:
        return {name: x * by}
    x = torch.ones(2)
    g = replayed(f, x, by=3.0, name="b")
    for options in ({"by": 3.0, "name": "b"}, {"by": 3, "name": "b"}, {"by": True}, {}, {"by": -0.0}, {"by": 0.0}, {"name": "b", "by": 3.0}):
        found, wanted = g(x, **options), f(x, **options)
        assert found.keys() == wanted.keys()
        assert all(str(found[k]) == str(wanted[k]) for k in found)


def test_results_are_the_objects_that_the_function_gives() -> None:
    state = torch.zeros(2)

    def f(x: Any) -> Any:
        state.add_(1)
        y = x + state
        return x, state, y, [y, y]
    x = torch.ones(2)
    g = replayed(f, x)
    a, b, c, (d, e) = g(x)
    assert a is x
    assert b is state
    assert c is d is e
    assert c.tolist() == [8.0, 8.0]


def test_methods_and_generators() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])

        def parts(self, x: Any) -> Any:
            for i, layer in enumerate(self.layers):
                x = layer(x)
                yield i, x

        @torch.compile
        def both(self, x: Any) -> Any:
            with torch.no_grad():
                return sum(y * i for i, y in self.parts(x))
    torch.manual_seed(0)
    m = Model()
    x = torch.rand(3, 2)
    found = [m.both(x) for _ in range(7)]
    assert Model.both.__compiled__.records
    assert all(torch.equal(y, found[0]) for y in found)
    m.layers.append(nn.Linear(2, 2))
    assert not torch.equal(m.both(x), found[0])


def test_more_that_is_known() -> None:
    options, table, limits = OrderedDict(a=1.0), defaultdict(float, b=2.0), [0, 3]

    @torch.no_grad()
    def inner(x: Any) -> Any:
        return x * table["b"] * table.get("c", 1.0)

    def f(x: Any, k: int) -> Any:
        first, last = limits
        if first <= k < last <= 9:
            x = x + k
        for name, value in options.items():
            x = x * value if name != "z" else -x
        y = inner(x).requires_grad_()
        return torch.autograd.grad((y * y).sum(), y)[0].detach()
    x = torch.ones(2)
    g = replayed(f, x, 1)
    changes: list[Callable[[], Any]] = [lambda: None, lambda: limits.__setitem__(1, 1), lambda: options.update(z=3.0), lambda: options.move_to_end("a"),
                                        lambda: table.update(b=5.0), lambda: table.update(c=7.0)]
    for change in changes:
        change()
        assert torch.equal(g(x, 1), f(x, 1))


def test_threads_call_one_compiled_function() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def f(x: Any) -> Any:
        with torch.no_grad():
            return net(x) + net(x * 2).exp()
    xs = [torch.rand(3, 4) for _ in range(40)]
    wanted = [f(x) for x in xs]
    g = torch.compile(f)
    found: dict[int, Any] = {}

    def work(start: int) -> None:
        for i in range(start, len(xs), 2):
            found[i] = g(xs[i])
    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(torch.equal(found[i], w) for i, w in enumerate(wanted))


def test_where_python_is_as_fast_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "pays", lambda *times: False)
    assert left_to_python(lambda x: x + 1, torch.ones(2)) == "Python is as fast"


def test_forms() -> None:
    @torch.compile
    def f(x: Any) -> Any:
        return x * 2

    @torch.compile(mode="reduce-overhead", fullgraph=True, dynamic=True)
    def g(x: Any) -> Any:
        return x * 3
    x = torch.ones(2)
    assert (f(x) + g(x)).tolist() == [5.0, 5.0]
    assert torch.compile(f, backend="eager")(x).tolist() == [2.0, 2.0]
    net = nn.Linear(2, 2)
    assert net.compile(backend="eager") is None
    assert torch.equal(torch.compile(net)(x), net(x))


def test_bad_input() -> None:
    with pytest.raises(RuntimeError, match="Unrecognized mode=fast"):
        torch.compile(nn.ReLU(), mode="fast")
    with pytest.raises(RuntimeError, match="Either mode or options"):
        torch.compile(nn.ReLU(), mode="default", options={})
    with pytest.raises(RuntimeError, match="Invalid backend: 'nope'"):
        torch.compile(nn.ReLU(), backend="nope")
    with pytest.raises(AssertionError, match="callable"):
        torch.compile(3)


@pytest.mark.usefixtures("always_kept")
@pytest.mark.parametrize("f", [
    lambda x: x.data,
    lambda x: (x.data, x * 2),
    lambda x: (y := x * 2).data + y,
    lambda x: ((y := x * 2).data, y),
    lambda x: ((y := torch.empty_like(x).copy_(x))[0], y),
    lambda x: ((y := (x * 2).add_(1)), y[1:], y[:1]),
], ids=range(6))
def test_results_that_share_memory_do_so_at_each_call(f: Any) -> None:
    compiled = torch.compile(f)
    for i in range(6):
        x, other = torch.arange(3.0) + i, torch.arange(3.0) + i
        found, wanted = compiled(x), f(other)
        found, wanted = (r if isinstance(r, tuple) else (r,) for r in (found, wanted))
        for part in (*found, *wanted):
            part.mul_(3)
        assert [r.tolist() for r in found] == [r.tolist() for r in wanted]
        assert [r._version for r in found] == [r._version for r in wanted]
        assert x.tolist() == other.tolist()
        assert x._version == other._version


@pytest.mark.usefixtures("always_kept")
def test_a_rate_that_the_step_gives_is_the_present_one() -> None:
    p = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=0.1)

    def f(x: Any) -> Any:
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()
        return optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["dampening"]
    compiled = torch.compile(f)
    for k in range(20):
        optimizer.param_groups[0]["lr"] = rate = 0.1 / (1 + k // 6)
        optimizer.param_groups[0]["dampening"] = damp = -0.0 if k > 12 else 0
        found = compiled(torch.ones(3))
        assert [repr(x) for x in found] == [repr(rate), repr(damp)]


def test_the_backend_where_none_is_named() -> None:
    from types import SimpleNamespace

    from flambeau import compiler

    def f(x):
        return x + 1
    assert compiler.get_default_backend() == "inductor" and set(compiler.list_backends()) < set(compiler.list_backends(None))
    assert "eager" in compiler.list_backends(()) and "eager" not in compiler.list_backends()
    try:
        compiler.set_default_backend("eager")
        assert compiler.get_default_backend() == "eager" and torch.compile(f) is f and torch.compile(f, backend="inductor") is not f
        compiler.set_default_backend("nobody's")
        with pytest.raises(RuntimeError, match="Invalid backend"):
            torch.compile(f)
    finally:
        compiler.set_default_backend(None)
    assert compiler.get_default_backend() == "inductor" and torch.compile(f) is not f

    def entry(kind, is_global, value, builtin, own):
        source = SimpleNamespace(is_unspecialized_builtin_nn_module=lambda: builtin, is_unspecialized_nn_module=lambda: own)
        return SimpleNamespace(guard_type=kind, is_global=is_global, value=value, orig_guard=SimpleNamespace(source=source))
    entries = [entry("TENSOR_MATCH", False, torch.ones(1), False, False), entry("TENSOR_MATCH", False, torch.nn.Parameter(torch.ones(1)), True, True),
               entry("TYPE_MATCH", True, 3, False, True)]
    assert compiler.skip_all_guards_unsafe(entries) == [False] * 3 and compiler.skip_guard_on_globals_unsafe(entries) == [True, True, False]
    assert compiler.keep_tensor_guards_unsafe(entries) == [True, False, False]
    assert compiler.keep_tensor_guards_unsafe(entries, keep_parameters=True) == [True, True, False]
    assert compiler.skip_guard_on_inbuilt_nn_modules_unsafe(entries) == [True, False, True]
    assert compiler.skip_guard_on_all_nn_modules_unsafe(entries) == [True, False, False]

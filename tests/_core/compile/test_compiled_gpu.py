"""Compiled functions on GPUs: what is replayed is what Python would do, whichever order the GPU's queues are worked off in."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau._core.compile import compiled
from flambeau.nn import functional as F
from tests._core.compile import test_compiled, test_conditions, test_optimizers, test_training_steps

pytestmark = pytest.mark.usefixtures("always_kept")


def _used(queue: str) -> Iterator[Any]:
    with torch.simulate(gpus=2, model="T4", queue=queue):
        torch.set_default_device("cuda")
        try:
            yield torch.device("cuda")
        finally:
            torch.set_default_device(None)


@pytest.fixture(params=["eager", "lazy", "random"])
def gpu(request: Any) -> Any:
    yield from _used(request.param)


@pytest.fixture
def disorderly() -> Any:
    """A GPU whose queues are worked off in an order that is drawn."""
    yield from _used("random")


def kept(f: Any) -> int:
    return len(f.__compiled__.records)


def why(f: Any) -> list[str]:
    return [w for k in f.__compiled__.kinds.values() for w in k.why]


_HOSTS = ("shared gradients", "numpy argument", "class attribute")  # NumPy shares no memory with a GPU


@pytest.mark.parametrize("kind", [k for k in test_compiled.CLEAN if k not in _HOSTS])
def test_each_change_has_its_effect(disorderly: Any, kind: str) -> None:
    change = test_compiled.CLEAN[kind]
    assert repr(test_compiled.lived_clean(change, True)) == repr(test_compiled.lived_clean(change, False))


_LATER = ("nothing", "eval", "p of dropout", "seed", "held gradients", "no gradients", "hook", "tensor hook",
          "weight in place", "recorded argument", "values", "shape")


@pytest.mark.parametrize("kind", _LATER)
def test_each_change_has_its_effect_where_the_pass_comes_later(disorderly: Any, kind: str) -> None:
    change, world = test_compiled.CLEAN[kind], test_compiled.Usual
    assert repr(test_compiled.lived_clean(change, True, world=world)) == repr(test_compiled.lived_clean(change, False, world=world))


def test_a_node_that_keeps_what_was_drawn_is_left_to_python(gpu: Any) -> None:
    mix = nn.Linear(8, 24)

    def f(x: Any) -> Any:
        q, k, v = mix(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    def run(g: Any) -> list[Any]:
        torch.manual_seed(0)
        found = []
        for k in range(8):
            mix.weight.grad = None
            g(torch.full((2, 5, 8), 1.0 + k)).square().sum().backward()
            found.append(mix.weight.grad.tolist())
        return found
    g: Any = torch.compile(f)
    assert run(g) == run(f)
    assert not kept(g) and "a number that is another one" in why(g)[-1]


@pytest.mark.parametrize("step", test_training_steps.STEPS, ids=lambda s: s.__name__)
def test_steps_do_what_they_do(disorderly: Any, step: Any) -> None:
    for name in ("nothing", "rate", "eval", "hook"):
        change = test_training_steps.CHANGES[name]
        g, found = test_training_steps.lived(step, change, True)
        assert found == test_training_steps.lived(step, change, False)[1], name
        # a scale that is divided by looks at what comes later; categories are held against their list; what was changed is looked at
        if name == "nothing" and step.__name__ not in ("scaled", "chosen", "counted"):
            assert kept(g), why(g)


@pytest.mark.parametrize("name", test_optimizers.OPTIMIZERS)
def test_what_optimizers_do(disorderly: Any, name: str) -> None:
    for change in ("nothing", "rate", "counts of one", "loaded"):
        found = test_optimizers.lived(name, test_optimizers.CHANGES[change], True)[1]
        assert repr(found) == repr(test_optimizers.lived(name, test_optimizers.CHANGES[change], False)[1])


@pytest.mark.parametrize("case", [c for c in test_conditions.CASES if c.__name__ != "codes"], ids=lambda c: c.__name__)
def test_values_are_conditions(disorderly: Any, case: Any) -> None:
    f, found = test_conditions.lived(case, True)
    assert repr(found) == repr(test_conditions.lived(case, False)[1])
    assert kept(f), why(f)


# ------------------------------------------------------------------------------------------------ what is a GPU's own
class Around:
    """What the functions below find around them."""

    def __init__(self) -> None:
        self.stream, self.other, self.event = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Event()
        self.table, self.found = torch.arange(4.0) ** 2, list[float]()


def waits(a: Around, x: Any) -> Any:
    y = x * 2
    torch.cuda.synchronize()
    return y + 1


def waits_for_a_stream(a: Around, x: Any) -> Any:
    y = x * 2
    a.stream.synchronize()
    return y + 1


def marks(a: Around, x: Any) -> Any:
    y = x * 2
    a.event.record()
    return y + 1


def elsewhere(a: Around, x: Any) -> Any:
    a.other.wait_stream(a.stream)
    with torch.cuda.stream(a.other):
        y = x * 2
    a.stream.wait_stream(a.other)
    return y


def shared(a: Around, x: Any) -> Any:
    y = x + 1
    y.record_stream(a.other)
    return y


def on_another(a: Around, x: Any) -> Any:
    return x + 1, torch.ones(4, device="cuda:1") * 2


def here_and_there(a: Around, x: Any) -> Any:
    return x * 2, torch.ones(3, device="cpu") + 1


def brought(a: Around, x: Any) -> Any:
    return x + torch.arange(4.0, device="cpu").to(x.device)


def taken_away(a: Around, x: Any) -> Any:
    return (x * 2).cpu()


def how_much(a: Around, x: Any) -> Any:
    return x * 2 + (torch.cuda.memory_allocated() > 0)


def chosen(a: Around, x: Any) -> Any:
    return x[x > 0]


def an_element(a: Around, x: Any) -> Any:
    a.found.append((x.sum() * 2).item())
    return x + 1


def a_branch(a: Around, x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x - 1


def drawn(a: Around, x: Any) -> Any:
    return F.dropout(x, 0.5) + torch.rand(4) + torch.randn_like(x)


def looked_up(a: Around, x: Any) -> Any:
    return a.table[x.long().clamp(0, 3)]


def left(a: Around, x: Any) -> Any:
    a.table.mul_(0.5).add_(x)
    return a.table[1:]


_LEFT = [waits, waits_for_a_stream, marks, elsewhere, shared, on_another, here_and_there, brought, taken_away, how_much, chosen, left]
_KEPT = [an_element, a_branch, drawn, looked_up]


def lived(case: Callable[[Around, Any], Any], compiles: bool) -> tuple[Any, Any]:
    torch.manual_seed(0)
    a = Around()

    def f(x: Any) -> Any:
        return case(a, x)
    g: Any = torch.compile(f) if compiles else f
    found: list[Any] = []
    for k in range(16):
        made = g(torch.arange(4.0) * (1 if k % 3 else -1) + k)
        found += [(t.tolist(), str(t.device)) for t in (made if isinstance(made, tuple) else (made,))]
    return g, (found, a.found, a.table.tolist())


@pytest.mark.parametrize("case", [*_KEPT, *_LEFT], ids=lambda c: c.__name__)
def test_what_a_gpu_is_asked_for(gpu: Any, case: Any) -> None:
    g, found = lived(case, True)
    assert found == lived(case, False)[1]
    assert bool(kept(g)) == (case in _KEPT), why(g)


def test_a_step_that_keeps_its_losses(gpu: Any) -> None:
    def run(compiles: bool) -> tuple[Any, Any]:
        torch.manual_seed(0)
        net, losses = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 3)), list[float]()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> None:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        g: Any = torch.compile(step) if compiles else step
        for k in range(12):
            g(torch.full((4, 6), 0.1 * k), torch.tensor([0, 1, 2, k % 3], device="cuda"))
        return g, (losses, [p.tolist() for p in net.parameters()])
    g, found = run(True)
    assert found == run(False)[1] and len(found[0]) == 12
    assert kept(g), why(g)


def test_replays_are_of_one_stream_and_one_current_device(gpu: Any) -> None:
    w = torch.ones(1000, requires_grad=True)

    def f(x: Any) -> Any:
        return (x * w).sum(), torch.zeros(2, device="cuda")
    g: Any = torch.compile(f)
    x = torch.ones(1000)
    for _ in range(8):
        g(x)
    (record,) = g.__compiled__.records
    assert record.call((x,), {}) is not compiled.MISS
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        assert record.call((x,), {}) is compiled.MISS
        assert g(x)[0].item() == 1000
    with torch.cuda.device(1):
        assert record.call((x,), {}) is compiled.MISS
        assert g(x)[1].device.index == 1


def test_what_a_replay_gives_is_its_own(gpu: Any) -> None:
    g: Any = torch.compile(lambda x: (x.exp().sum(), (x * 2)[1:]))
    found = [(k, g(torch.full((300,), float(k)))) for k in range(12)]
    assert kept(g)
    for k, (total, part) in found:
        assert torch.equal(total, torch.full((300,), float(k)).exp().sum()) and (part == 2 * k).all() and part.shape == (299,)


def test_a_step_takes_no_more_memory_than_pythons(gpu: Any) -> None:
    net = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))])

    def f(x: Any) -> Any:
        net.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss
    x = torch.randn(4096, 64)

    def peak(g: Any) -> int:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        g(x)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    f(x)
    eager = peak(f)
    g: Any = torch.compile(f)
    for _ in range(8):
        g(x)
    assert kept(g), why(g)
    assert peak(g) <= eager + (1 << 16)  # the pool is one block, of whole 64 bytes


def test_memory_that_is_wanting_leaves_everything_whole() -> None:
    with torch.simulate(gpus=1, model="T4", memory=64 << 20):
        counter = torch.zeros(1, device="cuda")

        def f(x: Any) -> Any:
            y = x.exp()
            counter.add_(1)
            return y.cumsum(0) * 2
        g: Any = torch.compile(f)
        x = torch.zeros(1 << 20, device="cuda")
        for _ in range(8):
            g(x)
        assert kept(g), why(g)
        filled = []
        with pytest.raises(torch.OutOfMemoryError):
            while True:
                filled.append(torch.empty(1 << 19, device="cuda"))
        with pytest.raises(torch.OutOfMemoryError):
            g(x)
        assert counter.item() == 8
        filled.clear()
        assert g(x)[2].item() == 6 and counter.item() == 9


def _in_turns(make: Callable[[Callable[[Any], Any]], list[Any]]) -> tuple[list[Any], list[Any]]:
    """What a program finds with its functions as they are, and compiled, some of which are replayed."""
    made: list[Any] = []

    def compiles(f: Any) -> Any:
        made.append(torch.compile(f))
        return made[-1]
    found = make(lambda f: f), make(compiles)
    assert any(map(kept, made)) or any(why(g) for g in made)
    return found


def test_a_gradient_is_left_alone_while_another_stream_uses_it(gpu: Any) -> None:
    def program(compiles: Any) -> list[Any]:
        p, other, found = torch.ones(1 << 12, requires_grad=True), torch.cuda.Stream(), []

        def f(x: Any) -> None:
            p.grad = None
            (p * x).sum().backward()
        g = compiles(f)
        for k in range(24):
            g(torch.full((1 << 12,), float(k)))
            if k > 7:
                other.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(other):
                    copy = p.grad * 1
                    for _ in range(10):
                        copy = copy + 0
                p.grad.record_stream(other)
                found.append(copy)
        torch.cuda.synchronize()
        return [(copy[0].item(), copy[-1].item()) for copy in found]
    expected, found = _in_turns(program)
    assert found == expected == [(float(k), float(k)) for k in range(8, 24)]


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_a_gradient_that_a_graph_keeps_is_left_alone(gpu: Any, where: str) -> None:
    def program(compiles: Any) -> list[Any]:
        w, v = (torch.ones(4, device=where, requires_grad=True) for _ in range(2))

        def f(x: Any) -> None:
            w.grad = None
            (w * x).sum().backward()
        g = compiles(f)
        losses = []
        for k in range(12):
            g(torch.full((4,), float(k), device=where))
            losses.append((v * w.grad).sum())
        return [torch.autograd.grad(loss, v)[0].tolist() for loss in losses]
    expected, found = _in_turns(program)
    assert found == expected == [[float(k)] * 4 for k in range(12)]


def test_a_new_gradient_has_no_attributes_of_an_older_one(gpu: Any) -> None:
    p = torch.ones(4, requires_grad=True)

    def f(x: Any) -> None:
        p.grad = None
        (p * x).sum().backward()
    g: Any = torch.compile(f)
    for k in range(12):
        g(torch.ones(4))
        assert not hasattr(p.grad, "note")
        if k > 6:
            p.grad.note = k


def test_the_current_device_counts_where_nothing_is_launched(gpu: Any) -> None:
    g: Any = torch.compile(lambda x: (torch.empty(2, device="cuda"), x + 1))
    h: Any = torch.compile(lambda x: torch.empty(2, device="cuda"))
    for x in (torch.ones(4, device="cpu"), torch.ones(4)):
        for _ in range(6):
            assert g(x)[0].device.index == h(x).device.index == 0
        with torch.cuda.device(1):
            for _ in range(6):
                assert g(torch.ones(4, device="cpu"))[0].device.index == h(x).device.index == 1
    assert kept(g) and kept(h), (why(g), why(h))


def test_pinned_results_are_pinned(gpu: Any) -> None:
    g: Any = torch.compile(lambda x: (x * 2, torch.ones(4, device="cpu").pin_memory()))
    for x in (torch.ones(4, device="cpu"), torch.ones(4)):
        for _ in range(8):
            doubled, pinned = g(x)
            assert pinned.is_pinned() and not doubled.is_pinned()


def test_a_dropped_function_gives_its_memory_back_at_once(gpu: Any) -> None:
    def program() -> None:
        w = torch.ones(1000, requires_grad=True)

        def step(x: Any) -> None:
            w.grad = None
            (w * x).square().mean().backward()

        def result(x: Any) -> Any:
            return (w * x).exp().cumsum(0).sum()
        g, h = map(torch.compile, (step, result))
        for _ in range(12):
            g(torch.ones(1000))
            h(torch.ones(1000)).backward()
        assert kept(g) and kept(h), (why(g), why(h))
    program()  # what operations keep for themselves is there now
    before = torch.cuda.memory_allocated()
    gc.collect()
    gc.disable()
    try:
        program()
        assert torch.cuda.memory_allocated() == before
    finally:
        gc.enable()


def test_explain_leaves_versions_as_two_calls_do(gpu: Any) -> None:
    w = torch.zeros(3)

    def f(x: Any) -> Any:
        w.add_(x)
        return w.exp()
    torch.explain(f)(torch.ones(3))
    assert w._version == 2 and w.tolist() == [2.0] * 3


@pytest.mark.parametrize("forbid", ["guard", "debug mode"])
def test_an_element_that_may_not_be_taken_is_refused_where_it_is_taken(gpu: Any, forbid: str) -> None:
    counter, found = torch.zeros(1), []

    def f(x: Any) -> Any:
        found.append(x.sum().item())
        counter.add_(1)
        return x * 2
    g: Any = torch.compile(f)
    for k in range(12):
        g(torch.full((3,), float(k)))
    assert kept(g), why(g)
    if forbid == "guard":
        with torch.transfer_guard("disallow"), pytest.raises(torch.TransferError):
            g(torch.ones(3))
    else:
        torch.cuda.set_sync_debug_mode("error")
        try:
            with pytest.raises(RuntimeError, match=f"at .*:{f.__code__.co_firstlineno + 1}"):
                g(torch.ones(3))
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert counter.item() == len(found) == counter._version == 12


def _gives_its_gradient(w: Any, x: Any, seen: list[Any]) -> Any:
    w.grad = None
    (x * w).square().sum().backward()
    return w.grad


def _gives_a_view_of_its_gradient(w: Any, x: Any, seen: list[Any]) -> Any:
    w.grad = None
    (x * w).square().sum().backward()
    return w.grad[1:]


def _notes_its_gradient(w: Any, x: Any, seen: list[Any]) -> Any:
    w.grad = None
    (x * w).square().sum().backward()
    seen.append(w.grad)
    return x + 1


def _sets_what_it_gives(w: Any, x: Any, seen: list[Any]) -> Any:
    (gradient,) = torch.autograd.grad((x * w).square().sum(), w)
    w.grad = gradient
    return gradient, gradient.sum()


@pytest.mark.parametrize("where", ["cpu", "cuda"])
@pytest.mark.parametrize("case", [_gives_its_gradient, _gives_a_view_of_its_gradient, _notes_its_gradient, _sets_what_it_gives], ids=lambda c: c.__name__)
def test_a_gradient_that_is_given_is_the_leafs_own(disorderly: Any, where: str, case: Any) -> None:
    w, seen = torch.ones(4, device=where, requires_grad=True), list[Any]()

    def f(x: Any) -> Any:
        return case(w, x, seen)
    g: Any = torch.compile(f)
    for k in range(12):
        made = g(torch.full((4,), float(k), device=where))
        assert w.grad.tolist() == [2.0 * k * k] * 4
        given = seen[-1] if seen else made[0] if isinstance(made, tuple) else made
        given.add_(1)
        assert w.grad.tolist()[1:] == [2.0 * k * k + 1] * 3
        assert given is w.grad or given.shape == (3,)


def test_one_gradient_of_two_leaves_is_left_alone_by_whoever_is_left(disorderly: Any) -> None:
    a, b = (torch.ones(4, requires_grad=True) for _ in range(2))

    def f(x: Any) -> None:
        a.grad = b.grad = x * 2
    g: Any = torch.compile(f)
    held = []
    for k in range(16):
        g(torch.full((4,), float(k)))
        assert a.grad is b.grad
        held.append(b.grad)
        if k % 2:
            a.grad = None
    assert [t.tolist() for t in held] == [[2.0 * k] * 4 for k in range(16)]

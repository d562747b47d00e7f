"""A call that is replayed leaves a history that is the call's own, whatever is done before and while a pass goes through it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import flambeau as torch
from flambeau import nn
from flambeau._core.compile import compiled
from flambeau._core.runtime import dispatch
from tests._core.compile.test_passes import _STEP as STEP
from tests._core.compile.test_passes import program

pytestmark = pytest.mark.usefixtures("always_kept")


class World:
    """A model whose loss is compiled, and whose pass and step are the program's."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.GELU(), nn.Dropout(0.25), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
        self.scale = nn.Parameter(torch.tensor([1.0, 0.5]))
        self.optimizer = torch.optim.SGD([*self.net.parameters(), self.scale], lr=0.1, momentum=0.9)
        self.constant = torch.ones(2)
        self.x = torch.linspace(-1, 1, 12).view(4, 3)
        self.held: list[Any] = []
        self.found: list[Any] = []

    def function(self) -> Callable[..., Any]:
        net, scale = self.net, self.scale

        def f(x: Any, power: float = 2.0) -> Any:
            y = net(x) * scale + self.constant * scale
            return (y ** power).mean() + (scale * scale).sum(), y
        return f

    def parameters(self) -> list[Any]:
        return [*self.net.parameters(), self.scale]


def _values(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.tolist(), str(x.dtype), x.requires_grad, x._version, None if x.grad_fn is None else x.grad_fn.name()
    if isinstance(x, (list, tuple)):
        return [_values(part) for part in x]
    return x


def seen_of(w: World) -> Any:
    return (_values(w.found), _values(w.held), _values(w.x), [_values(p) for p in w.parameters()], [_values(p.grad) for p in w.parameters()],
            [_values(b) for b in w.net.buffers()], torch.get_rng_state().sum().item())


def _backward(w: World, loss: Any, y: Any) -> None:
    loss.backward()


def _in_place(w: World, loss: Any, y: Any) -> None:
    with torch.no_grad():
        w.net[6].weight.mul_(2)
    loss.backward()


def _bias_in_place(w: World, loss: Any, y: Any) -> None:
    with torch.no_grad():
        w.net[6].bias.mul_(2)
    loss.backward()


def _data(w: World, loss: Any, y: Any) -> None:
    w.net[6].weight.data = torch.full((2, 4), 3.0)
    loss.backward()


def _input_in_place(w: World, loss: Any, y: Any) -> None:
    w.x.mul_(2)
    loss.backward()


def _input_data(w: World, loss: Any, y: Any) -> None:
    w.x.data = torch.ones(4, 3)
    loss.backward()


def _result_in_place(w: World, loss: Any, y: Any) -> None:
    y.mul_(2)
    (loss + y.sum()).backward()


def _result_data(w: World, loss: Any, y: Any) -> None:
    with torch.no_grad():
        y.mul_(2)
    loss.backward()


def _recorded(w: World, loss: Any, y: Any) -> None:
    gs = torch.autograd.grad(loss, w.parameters(), create_graph=True)
    w.found += [g.detach().clone() for g in gs]
    sum((g * g).sum() for g in gs).backward()
    w.found += [p.grad.clone() for p in w.parameters()]
    w.optimizer.zero_grad()


def _twice(w: World, loss: Any, y: Any) -> None:
    loss.backward(retain_graph=True)
    loss.backward()


def _too_often(w: World, loss: Any, y: Any) -> None:
    loss.backward()
    loss.backward()


def _some(w: World, loss: Any, y: Any) -> None:
    w.found += torch.autograd.grad(loss, [w.scale, w.net[0].weight])


def _other(w: World, loss: Any, y: Any) -> None:
    y.square().sum().backward()


def _both(w: World, loss: Any, y: Any) -> None:
    (loss * 3 + y.square().sum()).backward()


def _one_after_another(w: World, loss: Any, y: Any) -> None:
    y.sum().backward(retain_graph=True)
    loss.backward()


def _gradient(w: World, loss: Any, y: Any) -> None:
    torch.autograd.backward([loss, y], [torch.tensor(2.0), torch.linspace(0, 1, 8).view(4, 2)])


def _strange_gradient(w: World, loss: Any, y: Any) -> None:
    y.backward(torch.linspace(0, 1, 8).view(2, 4).t())


def _own_gradient(w: World, loss: Any, y: Any) -> None:
    y.backward(y.detach())


def _hook(w: World, loss: Any, y: Any) -> None:
    y.register_hook(lambda g: g * 2)
    loss.register_hook(lambda g: w.found.append(g.clone()))
    (loss + y.sum()).backward()


def _leaf_hook(w: World, loss: Any, y: Any) -> None:
    handle = w.scale.register_hook(lambda g: g * 2)
    loss.backward()
    handle.remove()


def _accumulated(w: World, loss: Any, y: Any) -> None:
    handle = w.scale.register_post_accumulate_grad_hook(lambda p: w.found.append(p.grad.clone()))
    loss.backward()
    handle.remove()


def _retained(w: World, loss: Any, y: Any) -> None:
    y.retain_grad()
    (loss + y.square().sum()).backward()
    w.found.append(y.grad)


def _inputs(w: World, loss: Any, y: Any) -> None:
    loss.backward(inputs=[w.scale])


def _accumulate(w: World, loss: Any, y: Any) -> None:
    for p in w.parameters():
        p.grad = torch.full_like(p, 1.25)
    loss.backward()


def _frozen(w: World, loss: Any, y: Any) -> None:
    w.net[4].weight.requires_grad_(False)
    loss.backward()
    w.net[4].weight.requires_grad_(True)


def _eval(w: World, loss: Any, y: Any) -> None:
    w.net.eval()
    loss.backward()


def _anomaly(w: World, loss: Any, y: Any) -> None:
    with torch.autograd.set_detect_anomaly(True):
        loss.backward()


def _watched(w: World, loss: Any, y: Any) -> None:
    launches: list[Any] = []
    with dispatch.observe(launches=lambda *args: launches.append(args)):
        loss.backward()
    w.found.append(len(launches) > 5)


def _double(w: World, loss: Any, y: Any) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        loss.backward()
    finally:
        torch.set_default_dtype(torch.float32)


def _thread(w: World, loss: Any, y: Any) -> None:
    t = threading.Thread(target=loss.backward)
    t.start()
    t.join()


def _dropped(w: World, loss: Any, y: Any) -> None:
    del loss
    y.sum().backward()


def _detached(w: World, loss: Any, y: Any) -> None:
    loss.detach_()
    y.sum().backward()


def _nothing(w: World, loss: Any, y: Any) -> None:
    w.held = [loss, y]


def _hessian(w: World, loss: Any, y: Any) -> None:
    (g,) = torch.autograd.grad(loss, [w.scale], create_graph=True)
    w.found.append([torch.autograd.grad(g[i], [w.scale], retain_graph=True)[0] for i in range(2)])


def _batched(w: World, loss: Any, y: Any) -> None:
    w.found += torch.autograd.grad(y, [w.scale], torch.eye(8).view(8, 4, 2), is_grads_batched=True)


def _unused(w: World, loss: Any, y: Any) -> None:
    other = torch.ones(1, requires_grad=True)
    w.found += torch.autograd.grad(loss, [other, w.scale], allow_unused=True)


def _view_of_result(w: World, loss: Any, y: Any) -> None:
    y[0].mul_(3)
    y.sum().backward()


def _saved_hooks(w: World, loss: Any, y: Any) -> None:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * 2):
        (loss * y.sum()).backward()


PASSES: list[Callable[[World, Any, Any], None]] = [
    _backward, _in_place, _bias_in_place, _data, _input_in_place, _input_data, _result_in_place, _result_data, _recorded, _twice, _too_often, _some, _other,
    _both, _one_after_another, _gradient, _strange_gradient, _own_gradient, _hook, _leaf_hook, _accumulated, _retained, _inputs, _accumulate, _frozen, _eval,
    _anomaly, _watched, _double, _thread, _dropped, _detached, _nothing, _hessian, _batched, _unused, _view_of_result, _saved_hooks]


def lived(act: Callable[[World, Any, Any], None], first: Callable[[World, Any, Any], None], compiles: bool) -> list[Any]:
    """What is seen of steps: some with a usual pass, then some with an odd one, then a usual one."""
    w = World()
    f: Any = torch.compile(w.function()) if compiles else w.function()
    seen = []
    for i, how in enumerate((*[first] * 5, act, act, first)):
        w.found = []
        for p in w.parameters():
            p.grad = None
        if compiles and i == 5:
            assert f.__compiled__.records, [k.why for k in f.__compiled__.kinds.values()]
        loss, y = f(w.x)
        seen.append(_values([loss, y]))
        try:
            how(w, loss, y)
        except (RuntimeError, ValueError, TypeError) as error:
            w.found.append(str(error))
        del loss, y
        seen.append(seen_of(w))
        w.optimizer.step()
    return seen


def close(a: Any, b: Any) -> bool:
    """Whether all that was seen is the same, numbers to rounding."""
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(close, a, b))
    return a == b or (type(a) is type(b) is float and abs(a - b) <= 1e-5 + 1e-4 * abs(b))


@pytest.mark.parametrize("act", PASSES, ids=lambda f: f.__name__)
def test_each_way_through_a_replayed_call_is_that_through_the_call(act: Any) -> None:
    # a second derivative's sums come in another order where two results have each their own node
    same: Any = close if act is _recorded else (lambda a, b: a == b)
    assert same(lived(act, _backward, True), lived(act, _backward, False))


@pytest.mark.parametrize("act", [_backward, _in_place, _hook, _recorded], ids=lambda f: f.__name__)
def test_where_both_results_are_passed_through(act: Any) -> None:
    same: Any = close if act is _recorded else (lambda a, b: a == b)
    assert same(lived(act, _both, True), lived(act, _both, False))


def test_passes_are_replayed() -> None:
    w = World()
    f: Any = torch.compile(w.function())
    for _ in range(10):
        loss, _ = f(w.x)
        loss.backward()
    (record,) = f.__compiled__.records
    assert (record.pasts[-1][1].slow, record.pasts[-1][1].failed) == (1, 0)
    assert record.pasts[-1][1].fast >= 4


def test_several_histories_live_at_once() -> None:
    def steps(compiles: bool) -> Any:
        w = World()
        f: Any = torch.compile(w.function()) if compiles else w.function()
        for _ in range(5):
            f(w.x)[0].backward()
        kept = [f(w.x + i)[0] for i in range(4)]
        kept[2].backward()
        kept[0].backward()
        (kept[1] * kept[3]).backward()
        return seen_of(w)
    assert steps(True) == steps(False)


def test_threads() -> None:
    def run(compiles: bool) -> Any:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

        def loss(x: Any) -> Any:
            return net(x).square().sum()
        f: Any = torch.compile(loss) if compiles else loss
        for _ in range(6):
            f(torch.ones(4, 3)).backward()
        found: dict[int, Any] = {}

        def work(k: int) -> None:
            for i in range(k, 40, 2):
                found[i] = [g.tolist() for g in torch.autograd.grad(f(torch.full((4, 3), i / 8)), list(net.parameters()))]
        threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return found
    assert run(True) == run(False)




def _block(w: World) -> Callable[..., Any]:
    net, scale = w.net, w.scale

    def f(x: Any, y: Any) -> Any:
        return net(x).mul(scale).sum(1) + (x * x).sum(1) * y.sum() + x[:, 0]
    return f


def _leaf(w: World) -> Any:
    return w.x.clone().requires_grad_()


def _computed(w: World) -> Any:
    return torch.relu(w.x * w.scale[0])


def _shared(w: World) -> Any:
    return (w.x.clone().requires_grad_() * 2).view(4, 3)


def _hooked(w: World) -> Any:
    x = w.x * w.scale[0]
    x.register_hook(lambda g: g * 2)
    return x


def _gradients_of_gradients(f: Any, x: Any, y: Any, w: World) -> None:
    (g,) = torch.autograd.grad(f(x, y).sum(), [x], create_graph=True)
    (g * g).sum().backward()


def _plain(f: Any, x: Any, y: Any, w: World) -> None:
    if x.requires_grad and not x.is_leaf:
        x.retain_grad()
    (f(x, y) * 2).sum().backward()
    w.found.append(x.grad)


def _argument_in_place(f: Any, x: Any, y: Any, w: World) -> None:
    out = f(x, y)
    with torch.no_grad():
        x.mul_(2)
    out.sum().backward()


def _other_in_place(f: Any, x: Any, y: Any, w: World) -> None:
    y = y.clone()
    out = f(x, y)
    y.mul_(2)
    out.sum().backward()


def _no_grad(f: Any, x: Any, y: Any, w: World) -> None:
    with torch.no_grad():
        w.found.append(f(x, y))


def _detached_argument(f: Any, x: Any, y: Any, w: World) -> None:
    _plain(f, x.detach(), y, w)


def _with_constant(f: Any, x: Any, y: Any, w: World) -> None:
    _plain(f, x, y.clone().requires_grad_(), w)


@pytest.mark.parametrize("argument", [_leaf, _computed, _shared, _hooked], ids=lambda f: f.__name__)
def test_arguments_that_require_grad(argument: Any) -> None:
    acts = [_gradients_of_gradients, _plain, _argument_in_place, _other_in_place, _no_grad, _detached_argument, _with_constant, _plain]

    def lived_block(compiles: bool) -> Any:
        w = World()
        w.net[3].p = 0.0
        f: Any = torch.compile(_block(w)) if compiles else _block(w)
        seen = []
        for k, act in enumerate([_plain] * 5 + acts):
            w.found = []
            for p in w.parameters():
                p.grad = None
            if compiles and k == 5:
                assert f.__compiled__.records, [kind.why for kind in f.__compiled__.kinds.values()]
            try:
                act(f, argument(w), torch.ones(2), w)
            except RuntimeError as error:
                w.found.append(str(error))
            seen.append(([x.tolist() if isinstance(x, torch.Tensor) else x for x in w.found],
                         [None if p.grad is None else p.grad.tolist() for p in w.parameters()], [b.tolist() for b in w.net.buffers()]))
        return seen
    assert close(lived_block(True), lived_block(False))


def test_an_argument_that_is_written_is_left_to_python() -> None:
    def f(x: Any) -> Any:
        x.mul_(2)
        return x.sum()
    g: Any = torch.compile(f)
    for _ in range(6):
        x = torch.ones(2, requires_grad=True)
        h = x * 1
        g(h).backward()
        assert x.grad.tolist() == [2.0, 2.0]
    assert not g.__compiled__.records


def _views(w: World) -> Callable[..., Any]:
    net = w.net

    def f(x: Any) -> Any:
        y = net(x)
        first, second = y.split(1, 1)
        return y.t(), y.view(2, 4)[0], first, x.mul(2).view(-1), torch.ones(4).view(2, 2)
    return f


def _write(i: int) -> Callable[[Any], None]:
    def write(found: Any) -> None:
        found[i].mul_(3)
    return write


def _write_base(found: Any) -> None:
    found[0]._base.mul_(3)


@pytest.mark.parametrize("write", [lambda found: None, _write(0), _write(1), _write(2), _write(3), _write_base], ids=range(6))
def test_results_that_are_views(write: Any) -> None:
    def run(compiles: bool) -> Any:
        w = World()
        f: Any = torch.compile(_views(w)) if compiles else _views(w)
        seen: list[Any] = []
        for k in range(8):
            for p in w.parameters():
                p.grad = None
            found = f(w.x)
            if compiles and k == 5:
                assert f.__compiled__.records, [kind.why for kind in f.__compiled__.kinds.values()]
            try:
                if k > 4:
                    write(found)
                seen.append([(y.tolist(), y._base is None or y._base.tolist(), y.is_leaf) for y in found])
                (found[0].sum() + found[1].square().sum() + found[2].exp().sum()).backward()
            except RuntimeError as error:
                seen.append(str(error))
            seen.append([None if p.grad is None else p.grad.tolist() for p in w.parameters()])
        return seen
    assert run(True) == run(False)


class Words(nn.Module):
    """Indices that are checked, forward and backward, in a step that changes what lives on."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places, self.norm, self.head = nn.Embedding(7, 4), nn.Embedding(3, 4), nn.LayerNorm(4), nn.Linear(4, 7)

    def forward(self, words: Any, wanted: Any) -> Any:
        y = self.head(self.norm(self.table(words) + self.places(torch.arange(words.shape[1]))))
        return y, nn.functional.cross_entropy(y.view(-1, 7), wanted.view(-1))


@pytest.mark.parametrize("whole", [True, False])
def test_indices_are_checked_with_the_function_s_error_and_line(whole: bool) -> None:
    def run(compiles: bool) -> Any:
        torch.manual_seed(0)
        net = Words()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)

        def step(words: Any, wanted: Any) -> Any:
            optimizer.zero_grad()
            y, loss = net(words, wanted)
            loss.backward()
            optimizer.step()
            return loss

        def forward(words: Any, wanted: Any) -> Any:
            return net(words, wanted)
        inner = step if whole else forward
        f: Any = torch.compile(inner) if compiles else inner
        g = torch.Generator().manual_seed(1)
        seen: list[Any] = []
        for k in range(12):
            words, wanted = torch.randint(0, 7, (2, 3), generator=g), torch.randint(0, 7, (2, 3), generator=g)
            if k in (7, 9):
                (words if k == 7 else wanted)[1, 1] = 7
            if compiles and k == 6:
                assert f.__compiled__.records, [kind.why for kind in f.__compiled__.kinds.values()]
            try:
                found = f(words, wanted)
                if not whole:
                    optimizer.zero_grad()
                    found[1].backward()
                    optimizer.step()
                seen.append((found if whole else found[1]).item())
            except IndexError as error:
                lines, trace = [], error.__traceback__
                while trace is not None:
                    if trace.tb_frame.f_code.co_filename == __file__:
                        lines.append(trace.tb_lineno)
                    trace = trace.tb_next
                seen.append((str(error), lines))
            seen.append([p.tolist() for p in net.parameters()])
        return seen
    assert run(True) == run(False)


def test_the_same_argument_again_and_again() -> None:
    net = nn.Linear(3, 5)

    def f(x: Any, wanted: Any) -> Any:
        return nn.functional.cross_entropy(net(x[:, :3]), wanted)
    x, wanted = torch.ones(4, 6), torch.tensor([1, 2, 3, 4])
    g: Any = torch.compile(f)
    for _ in range(8):
        assert g(x, wanted).item() == f(x, wanted).item()
    assert g.__compiled__.records
    assert g.__compiled__.records[0].call((x, wanted), {}) is not compiled.MISS


def _gradients_of(steps: list[tuple[str, int, int, int]], shape: tuple[int, int], seed: int) -> bool:
    """Holds a random program's gradients, through its compiled calls, against Python's. Gives whether a record was kept."""
    def made(compiles: bool) -> tuple[Any, Any]:
        state = (torch.arange(4.0) / 4).requires_grad_()

        def f(x: Any) -> Any:
            inner = program(steps, state * 1)
            return [y for y in inner(x * 1) if y.requires_grad]
        return torch.compile(f) if compiles else f, state
    (eager, a), (compiles, b) = made(False), made(True)
    g = torch.Generator().manual_seed(seed)
    for k in range(8):
        x = torch.rand(*shape, generator=g) - 0.5
        seen: list[Any] = []
        for f, state in ((eager, a), (compiles, b)):
            torch.manual_seed(seed + k)
            y = x.clone().requires_grad_()
            state.grad = None
            try:
                outs = f(y)
                if k == 6 and outs:  # a recorded pass
                    gs = torch.autograd.grad(sum(out.float().sum() for out in outs), [y, state], create_graph=True, allow_unused=True)
                    sum(((t * t).sum() for t in gs if t is not None and t.requires_grad), y.sum() * 0).backward()
                elif outs:
                    sum(out.float().square().sum() for out in outs).backward()
            except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
                seen.append(str(error))
                continue
            seen.append([None if t is None else t.contiguous().numpy().tobytes() for t in (y.grad, state.grad)])
            seen[-1] += [(out.dtype, tuple(out.shape), out._version, out.grad_fn.name()) for out in outs]
        if k == 6:  # the sums of second derivatives come in an order of their own
            continue
        assert seen[0] == seen[1], (k, steps)
    return bool(compiles.__compiled__.records)


def test_gradients_of_random_programs_are_those_of_python() -> None:
    kept = []

    @settings(max_examples=25, deadline=None)
    @given(st.lists(STEP, min_size=2, max_size=12), st.sampled_from([(3, 4), (5, 8), (1, 7)]), st.integers(0, 99))
    def check(steps: list[tuple[str, int, int, int]], shape: tuple[int, int], seed: int) -> None:
        kept.append(_gradients_of(steps, shape, seed))
    check()
    assert any(kept)


def test_a_gradient_that_a_leaf_borrows() -> None:
    def run(compiles: bool) -> Any:
        p, q = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_(), torch.ones(2, requires_grad=True)

        def plus(x: Any) -> Any:
            return x + p.t() + (q * q).sum()
        f: Any = torch.compile(plus) if compiles else plus
        seen = []
        for k in range(8):
            p.grad = q.grad = None
            g = torch.arange(12.0).view(3, 4).t()
            f(torch.ones(4, 3)).backward(g)
            if compiles and k == 6:
                assert f.__compiled__.records, [kind.why for kind in f.__compiled__.kinds.values()]
                assert f.__compiled__.records[0].pasts[0][1].fast
            g.mul_(2)  # PyTorch's leaf has the memory of what came in
            seen.append((p.grad.tolist(), k))
        return seen
    assert run(True) == run(False)

"""What a captured function gives and leaves behind is, to the bit, what the function itself does."""

from __future__ import annotations

import gc
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau._core.runtime import cpu_memory
from flambeau.nn import functional as F


def mlp(optimizer: Callable[..., Any], **options: Any) -> tuple[Any, Any, Callable[..., Any]]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    steps = optimizer(net.parameters(), **options)

    def step(x: Any, y: Any) -> Any:
        steps.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        steps.step()
        return loss
    return net, steps, step


def batches(n: int) -> list[tuple[Any, Any]]:
    g = torch.Generator().manual_seed(3)
    return [(torch.rand(4, 8, generator=g), torch.rand(4, 4, generator=g)) for _ in range(n)]


def same(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype and a.shape == b.shape and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)))


def rows(f: Callable[..., Any], *inputs: tuple[Any, ...]) -> None:
    """A captured function gives what the function does, for inputs one after another."""
    captured = torch.capture(f)
    for args in inputs:
        state = torch.get_rng_state()
        wanted = f(*args)
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        found = captured(*args)
        assert same(wanted, found)
        assert same(after, torch.get_rng_state())
    assert len(captured.records) == 1


@pytest.mark.parametrize(("optimizer", "options"), [
    (torch.optim.AdamW, {"lr": 0.01}), (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}), (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}), (torch.optim.NAdam, {}), (torch.optim.ASGD, {"lr": 0.01}),
    (torch.optim.Adagrad, {"lr": 0.1}), (torch.optim.Rprop, {"lr": 0.01}), (torch.optim.Adadelta, {}), (torch.optim.Adamax, {}),
    (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5})])
def test_training_steps_are_those_of_the_function(optimizer: Any, options: dict[str, Any]) -> None:
    net, steps, step = mlp(optimizer, **options)
    other, others, plain = mlp(optimizer, **options)
    captured = torch.capture(step)
    losses = []
    for i, (x, y) in enumerate(batches(8)):
        if i == 5:
            for o in (steps, others):
                o.param_groups[0]["lr"] = 0.003
        losses.append((captured(x, y), plain(x, y)))
    for a, b in losses:
        assert a.item() == b.item()
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)
        assert torch.equal(p.grad, q.grad)
    a, b = steps.state_dict(), others.state_dict()
    assert a["param_groups"] == b["param_groups"]
    for k, state in a["state"].items():
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(b["state"][k][name]))


def test_eager_goes_on_where_the_replay_stopped() -> None:
    net, steps, step = mlp(torch.optim.AdamW)
    other, others, plain = mlp(torch.optim.AdamW)
    captured = torch.capture(step)
    for i, (x, y) in enumerate(batches(9)):
        (step if i in (4, 7) else captured)(x, y)
        plain(x, y)
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)


def test_results_are_new_at_each_call() -> None:
    double = torch.capture(lambda x: (x * 2, {"sum": x.sum(), "none": None, "three": 3}))
    found = [double(torch.full((3,), float(i))) for i in range(5)]
    assert [a.tolist() for a, _ in found] == [[2.0 * i] * 3 for i in range(5)]
    assert [b["sum"].item() for _, b in found] == [3.0 * i for i in range(5)]
    assert found[4][1]["none"] is None
    assert found[4][1]["three"] == 3


def test_a_result_may_be_an_argument_a_view_of_it_or_kept_state() -> None:
    state = torch.zeros(3)

    def f(x: Any) -> Any:
        state.add_(x)
        return x, x[1:], state
    g = torch.capture(f)
    for i in range(4):
        x = torch.full((3,), float(i))
        a, b, c = g(x)
    assert a.data_ptr() == x.data_ptr()
    assert b.data_ptr() == x.data_ptr() + 4
    assert c.data_ptr() == state.data_ptr()
    assert state.tolist() == [6.0] * 3


def test_data_of_tensors_is_their_memory() -> None:
    weight = torch.ones(3, requires_grad=True)
    array = np.ones(3, dtype=np.float32)

    def f(x: Any) -> Any:
        y = x * 2
        z = y[1:]
        return x.data, y.data, y, z.data, weight.data, torch.from_numpy(array), x.data[1:]
    g = torch.capture(f)
    for i in range(5):
        x = torch.arange(3.0) + i
        with torch.no_grad():
            weight.add_(1)
        array += 1
        found = g(x)
        for a, b in zip(found, f(x), strict=True):
            assert torch.equal(a, b)
        assert found[0].data_ptr() == x.data_ptr()
        assert found[1].data_ptr() == found[2].data_ptr() == found[3].data_ptr() - 4
        assert found[4].data_ptr() == weight.data_ptr()
        found[1].fill_(9.0)
        assert found[2].tolist() == [9.0, 9.0, 9.0]


def test_draws_are_those_of_the_generator() -> None:
    torch.manual_seed(1)
    rows(lambda x: F.dropout(x, 0.5) + torch.rand(5) + torch.randn(5), *[(torch.ones(5) * i,) for i in range(5)])
    rows(lambda x: torch.normal(x, 1.0) + torch.randperm(5), *[(torch.full((5,), 0.3),)] * 4)


def test_draws_of_a_generator_of_ones_own() -> None:
    ours, theirs = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    g = torch.capture(lambda: torch.rand(4, generator=ours))
    assert [g().tolist() for _ in range(4)] == [torch.rand(4, generator=theirs).tolist() for _ in range(4)]


def test_what_python_writes_is_written_again() -> None:
    rows(lambda x: (x + torch.tensor([1.0, 2.0, 3.0])).cumsum(0), *[(torch.full((3,), float(i)),) for i in range(4)])


def test_buffers_and_counters_are_state() -> None:
    a, b = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    g = torch.capture(a)
    for i in range(5):
        x = torch.arange(12.0).view(3, 4) * i
        assert same(g(x), b(x))
    assert same(a.running_mean, b.running_mean)
    assert a.num_batches_tracked.item() == 5


def test_gradients_that_add_up() -> None:
    a, b = nn.Linear(3, 2), nn.Linear(3, 2)
    b.load_state_dict(a.state_dict())

    def step(net: Any, x: Any) -> None:
        net(x).square().sum().backward()
    g = torch.capture(lambda x: step(a, x))
    for i in range(5):
        x = torch.full((2, 3), float(i))
        g(x)
        step(b, x)
    assert same(a.weight.grad, b.weight.grad)


def test_gradients_of_gradients() -> None:
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def f(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (dx,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        (dxx,) = torch.autograd.grad(dx.sum(), x)
        return dxx
    rows(f, *[(torch.linspace(-1, 1, 5).view(5, 1) * i,) for i in range(4)])


def test_checks_of_indices_are_kept() -> None:
    table = torch.arange(12.0).view(4, 3)
    g = torch.capture(lambda i: table[i])
    for k in range(4):
        assert same(g(torch.tensor([k, 0])), table[torch.tensor([k, 0])])
    with pytest.raises((IndexError, RuntimeError)):
        g(torch.tensor([7, 0]))
    assert same(g(torch.tensor([3, 0])), table[torch.tensor([3, 0])])


def test_checks_of_classes_are_kept() -> None:
    torch.manual_seed(0)
    rows(lambda x, t: F.cross_entropy(x, t), *[(torch.randn(4, 5), torch.tensor([0, 1, 2, k])) for k in range(4)])
    g = torch.capture(lambda x, t: F.cross_entropy(x, t))
    x, t = torch.randn(4, 5), torch.tensor([0, 1, 2, 3])
    for _ in range(3):
        g(x, t)  # the same targets: that they are in range is not remembered
    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        g(x, torch.tensor([0, 9, 2, 3]))


def test_work_that_threads_share_and_large_blocks() -> None:
    w = torch.rand(600, 600)
    rows(lambda x: torch.tanh(x @ w).softmax(1).sort(1).values + w.t(), *[(torch.rand(600, 600),) for _ in range(3)])


def test_layouts_and_constants_have_records_of_their_own() -> None:
    g = torch.capture(lambda x, scale=1.0: x * scale)
    for _ in range(3):
        assert g(torch.ones(2), scale=3.0).tolist() == [3.0, 3.0]
        assert g(torch.ones(2), scale=4.0).tolist() == [4.0, 4.0]
        assert g(torch.ones(3)).tolist() == [1.0] * 3
        assert g(torch.ones(3, dtype=torch.int64)).tolist() == [1.0] * 3
    assert len(g.records) == 4
    g.reset()
    assert not g.records


def test_arguments_in_containers() -> None:
    g = torch.capture(lambda xs, more: xs[0] + xs[1] * more["k"])
    for i in range(4):
        assert g([torch.ones(2), torch.ones(2) * i], {"k": torch.full((2,), 2.0)}).tolist() == [1.0 + 2 * i] * 2


def test_a_write_is_seen_by_what_was_saved() -> None:
    w = torch.ones(3)
    g = torch.capture(lambda: w.mul_(2))
    for _ in range(3):
        g()
    x = torch.ones(3, requires_grad=True)
    y = x * w
    g()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_gradient_of_the_last_call_may_be_an_argument(wrapped: bool) -> None:
    def steps(compiles: Any) -> list[Any]:
        w, v = torch.linspace(-1, 1, 32, requires_grad=True), torch.linspace(0, 1, 32, requires_grad=True)

        def f(x: Any, g: Any) -> Any:
            w.grad = v.grad = None
            y = (x * 2).exp() + (x * 3).tanh()  # scratch before the gradients are there
            loss = (w * y + v * v * x).tanh().sum()
            loss.backward()
            return loss * g.sum(), g * 2
        call, g, seen = compiles(f), torch.ones(32), []
        for k in range(6):
            seen.append([t.tolist() for t in call(torch.linspace(0, k + 1, 32), g)])
            assert w.grad is not None
            assert v.grad is not None
            g = torch.from_numpy(w.grad.numpy()) if wrapped else (w.grad if k % 2 else v.grad)
            seen.append(g.tolist())
        return seen
    assert steps(torch.capture) == steps(lambda f: f)


def test_an_argument_that_numpy_shows_is_the_argument() -> None:
    """Its memory belongs to two storages that live, of which either may be found first."""
    base = torch.arange(8.0)
    turns = [torch.from_numpy(base.numpy()), base]
    for first in (turns, turns[::-1]):
        f = torch.capture(lambda x: x * 2)
        for x in (*first, torch.ones(8), torch.full((8,), 3.0)):
            assert f(x).tolist() == [2 * v for v in x.tolist()]


def test_an_argument_that_was_left_behind_is_not_written_to() -> None:
    w = torch.ones(8, requires_grad=True)

    def f(x: Any, g: Any) -> Any:
        w.grad = None
        (w * x).sum().backward()
        g.mul_(2)
        return w.grad * 1
    captured = torch.capture(f)
    for _ in range(3):
        captured(torch.ones(8), torch.ones(8))
    with pytest.raises(RuntimeError, match="argument 1 lies in memory that an earlier call left behind"):
        captured(torch.ones(8), w.grad)


def test_memory_is_the_records_own_until_it_goes() -> None:
    f = lambda x: (((x * 2).cumsum(0) - 1).cumsum(0)).sqrt()  # noqa: E731
    g = torch.capture(f)
    for i in range(3):
        g(torch.full((16,), float(i)))
    blocks = {block.address: block.size for plan in g.records for block in plan.claimed}
    held = set(blocks)
    assert held
    others = [torch.full((16,), 7.0) for _ in range(200)]
    assert held.isdisjoint(t.data_ptr() for t in others)
    wanted = f(torch.full((16,), 3.0))
    assert same(g(torch.full((16,), 3.0)), wanted)
    assert all(t.tolist() == [7.0] * 16 for t in others)
    g.reset()
    gc.collect()
    free = [cpu_memory.claim(address, size) for address, size in blocks.items()]
    assert all(free)  # the allocator has them again
    assert [cpu_memory.Claimed(address, size).size for address, size in blocks.items()] == list(blocks.values())


def test_memory_that_fusion_leaves_unused_is_given_back() -> None:
    g, checked = (torch.capture(lambda x: ((x * 2).exp() - 1).sqrt(), check=check) for check in (False, True))
    for i in range(3):
        x = torch.full((16,), float(i))
        assert same(g(x), checked(x))
    assert not g.records[0].claimed
    assert checked.records[0].claimed  # the record itself is carried out there


def test_threads_call_one_capture() -> None:
    w = torch.rand(300, 300)
    f = lambda x: torch.tanh(x @ w).sum(1)  # noqa: E731
    g = torch.capture(f)
    inputs = [torch.rand(300, 300) for _ in range(4)]
    for x in inputs[:3]:
        g(x)
    wanted = [f(x) for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        wrong.extend(k for _ in range(10) if not same(g(inputs[k]), wanted[k]))
    threads = [Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ------------------------------------------------------------------------------------------------------ what is refused
def refused(f: Callable[..., Any], *args: Any) -> str:
    g = torch.capture(f)
    g(*args)
    with pytest.raises(RuntimeError, match="capture: ") as error:
        g(*args)
    return str(error.value)


def test_a_look_at_values_is_refused_with_its_line() -> None:
    x = torch.ones(3)
    for f in (lambda: x.sum().item(), lambda: x.tolist(), lambda: 1 if x.sum() > 0 else 2, lambda: x.nonzero(), lambda: x.numpy()):
        text = refused(f)
        assert "test_captured.py:" in text, text


def test_seeding_is_refused() -> None:
    assert "seeded" in refused(lambda: torch.manual_seed(1))


def test_optimizers_whose_numbers_are_not_renewed_are_refused() -> None:
    class Own(torch.optim.SGD):
        renews = False
    _, _, step = mlp(Own, lr=0.1)
    assert "Own" in refused(step, *batches(1)[0])
    _, _, step = mlp(torch.optim.Adafactor)
    assert "values" in refused(step, *batches(1)[0])


def test_a_step_of_another_kind_is_refused() -> None:
    """RAdam's first steps are not rectified."""
    _, _, step = mlp(torch.optim.RAdam)
    g, data = torch.capture(step), batches(12)
    with pytest.raises(RuntimeError, match="capture it again"):
        for batch in data:
            g(*batch)


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="expected a function"):
        torch.capture(3)
    g = torch.capture(lambda x: x * 2)
    with pytest.raises(RuntimeError, match="requires grad"):
        g(torch.ones(2, requires_grad=True))
    h = torch.capture(lambda x, y: x + y)
    x = torch.ones(4)
    h(x, x)
    with pytest.raises(RuntimeError, match="share memory"):
        h(x, x)


def test_an_exception_passes_and_nothing_stays_behind() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("second")
        return x + 1
    g = torch.capture(f)
    g(torch.ones(2))
    with pytest.raises(KeyError):
        g(torch.ones(2))
    assert gc.isenabled()
    assert g(torch.ones(2)).tolist() == [2.0, 2.0]
    assert g(torch.zeros(2)).tolist() == [1.0, 1.0]
    assert len(calls) == 3


def test_as_a_decorator() -> None:
    @torch.capture
    def f(x: Any) -> Any:
        """Twice."""
        return x * 2
    assert f.__name__ == "f"
    assert f.__doc__ == "Twice."
    assert [f(torch.ones(1) * i).item() for i in range(4)] == [0.0, 2.0, 4.0, 6.0]


# ---------------------------------------------------------------------------------------------------------------- check
def test_a_check_passes_where_the_contract_is_kept() -> None:
    net, steps, step = mlp(torch.optim.AdamW)
    other, others, plain = mlp(torch.optim.AdamW)
    checked = torch.capture(step, check=True)
    for x, y in batches(6):
        assert checked(x, y).item() == plain(x, y).item()
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_check_follows_draws() -> None:
    torch.manual_seed(2)
    f = lambda x: F.dropout(x, 0.5) + torch.rand(5)  # noqa: E731
    g = torch.capture(f, check=True)
    state = torch.get_rng_state()
    found = [g(torch.ones(5)).tolist() for _ in range(5)]
    torch.set_rng_state(state)
    assert found == [f(torch.ones(5)).tolist() for _ in range(5)]


def broken(f: Callable[..., Any]) -> str:
    g = torch.capture(f, check=True)
    with pytest.raises(RuntimeError, match="capture: ") as error:
        for _ in range(4):
            g(torch.ones(3))
    return str(error.value)


def test_a_check_names_the_launch_that_differs() -> None:
    holder = {"h": torch.zeros(3), "n": 0}

    def replaced(x: Any) -> Any:
        y = x * 3
        holder["h"] = holder["h"] + y
        return holder["h"].sin()

    def counted(x: Any) -> Any:
        holder["n"] += 1
        return x * float(holder["n"])

    def branched(x: Any) -> Any:
        holder["n"] += 1
        return x.cos() if holder["n"] % 2 else x.tanh()

    def more(x: Any) -> Any:
        holder["n"] += 1
        for _ in range(holder["n"]):
            x = x * 2
        return x
    for f, wanted in ((replaced, "launch 1 (add"), (counted, "as number 0"), (branched, "launch 0"), (more, "launches more")):
        holder["n"] = 0
        text = broken(f)
        assert wanted in text, text
        assert "test_captured.py:" in text

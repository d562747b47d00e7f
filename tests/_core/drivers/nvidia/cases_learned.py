"""Calls on an NVIDIA GPU that are learned, on a fake libcuda: without Python between their launches, and what they were."""

from __future__ import annotations

import gc
from typing import Any

import cases

OFTEN = 8  # calls, the first of which go the ordinary way


def start() -> None:
    """As soon as calls on the CPU are."""
    from flambeau._core.engine import learning
    learning.AFTER_ON_GPU = learning.AFTER
    learning.budget.share = 1e9


def _lines(torch: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """By name: a call, and its operands (sizes, or what makes one)."""
    f, index = torch.nn.functional, lambda: torch.randint(0, 6, (5,))
    return {
        "flip": (lambda x: x.flip(0), ((6, 4),)), "roll": (lambda x: x.roll(2, 1), ((6, 4),)), "triu": (lambda x: x.triu(1), ((6, 6),)),
        "index": (lambda x, at: x[:, at], ((3, 6), index)), "take": (lambda x, at: torch.take(x, at), ((3, 6), index)),
        "put": (lambda x, at, v: x.clone().index_put_((at,), v, accumulate=True), ((6, 3), index, (5, 3))),
        "vstack": (lambda x, y: torch.vstack((x, y)), ((6, 4), (2, 4))), "split": (lambda x: x.split(2), ((6, 4),)), "last": (lambda x: x[-1], ((6, 4),)),
        "embedding": (lambda at, w: f.embedding(at, w), (index, (6, 7))), "nll_loss": (lambda x, at: f.nll_loss(x, at), ((5, 6), index)),
        "cross_entropy": (lambda x, at: f.cross_entropy(x, at, label_smoothing=0.1), ((5, 6), index)), "var": (lambda x: x.var(1), ((6, 4),)),
        "mean": (lambda x: x.mean((0, 2)), ((6, 4, 3),)), "mv": (lambda x, v: x.mv(v), ((6, 4), (4,))), "einsum": (
            lambda x, y: torch.einsum("bij,bjk->bik", x, y), ((2, 3, 4), (2, 4, 5))), "min": (lambda x: x.min(1), ((6, 4),)),
        "tile": (lambda x: x.tile(2, 3), ((6, 4),)), "cat": (lambda x, y: torch.cat([x, y], 1), ((6, 4), (6, 2))),
        "linear": (lambda x, w, b: f.linear(x, w, b), ((6, 4), (5, 4), (5,))), "softmax": (lambda x: x.softmax(1), ((6, 4),)),
        "layer_norm": (lambda x, w, b: f.layer_norm(x, (4,), w, b), ((6, 4), (4,), (4,))), "cumsum": (lambda x: x.cumsum(0), ((6, 4),)),
        "sort": (lambda x: x.sort(1, descending=True), ((6, 4),)), "topk": (lambda x: x.topk(2), ((6, 4),)),
        "setitem": (lambda x, v: _set(x.clone(), v), ((6, 4), (6,))), "masked": (lambda x: x.masked_fill(x > 0, 2.0), ((6, 4),)),
        "pad": (lambda x: f.pad(x, (1, 2), value=3.0), ((6, 4),)), "interpolate": (lambda x: f.interpolate(x, scale_factor=2), ((2, 3, 4, 4),)),
        "max_pool2d": (lambda x: f.max_pool2d(x, 2), ((2, 3, 4, 4),)), "where": (lambda x, y: torch.where(x > y, x, y), ((6, 4), (4,))),
        "norm": (lambda x: torch.linalg.vector_norm(x, dim=1), ((6, 4),)), "attention": (
            lambda q, k, v: f.scaled_dot_product_attention(q, k, v), ((1, 2, 5, 8),) * 3), "group_norm": (lambda x: f.group_norm(x, 2), ((2, 4, 3),)),
        "empty": (lambda x: x.flip(0).roll(1, 0), ((0, 4),)), "column": (lambda x: x.t().contiguous().mean(1), ((6, 4),)),
    }


def _set(x: Any, v: Any) -> Any:
    x[:, 1] = v
    return x


def _close(torch: Any, name: str, a: Any, b: Any) -> None:
    """Results of a GPU and of the CPU."""
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b), name
        for x, y in zip(a, b, strict=True):
            _close(torch, name, x, y)
        return
    assert a.device.type == "cuda" and a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride(), (name, a.stride(), b.stride())
    assert torch.allclose(a.cpu().float(), b.float(), rtol=1e-5, atol=1e-6), (name, a.cpu(), b)


def case_calls_are_what_they_were() -> None:
    """With other values each time: the ordinary ones, the one that is learned, and those after it."""
    import flambeau as torch
    from flambeau._core.engine import learning
    learning.learned.clear()
    torch.manual_seed(0)
    for name, (call, operands) in _lines(torch).items():
        for k in range(OFTEN):
            here = [torch.randn(o) if isinstance(o, tuple) else o() for o in operands]
            _close(torch, f"{name}, call {k}", call(*[t.cuda() for t in here]), call(*here))
    missing = {"flip", "roll", "triu", "index", "take", "vstack", "split", "embedding", "nll_loss", "cross_entropy", "var", "mean", "einsum", "cat",
               "linear", "softmax", "layer_norm", "cumsum", "tile"} - set(learning.learned)
    assert not missing, (missing, learning.learned)


def case_no_python_between_launches() -> None:
    """A learned call runs nothing of the body; it launches what the body does."""
    import sys

    import flambeau as torch
    from flambeau._core.runtime import dispatch
    x = torch.randn(6, 4).cuda()

    def launched() -> list[str]:
        found: list[str] = []
        with dispatch.observe(lambda dev, stream, prepared, args: found.append(prepared.name)):
            x.roll(1, 0)
        return found
    before = launched()
    for _ in range(OFTEN):
        x.roll(1, 0)
    names: list[str] = []

    def called(frame: Any, event: str, _: Any) -> None:
        if event == "call" and "/_core/ops/" in frame.f_code.co_filename:
            names.append(frame.f_code.co_name)
    sys.setprofile(called)
    try:
        x.roll(1, 0)
    finally:
        sys.setprofile(None)
    assert not names, names
    assert launched() == before and before


def case_draws_go_on() -> None:
    """Random numbers are the CPU's, and each call has others."""
    import flambeau as torch
    x = torch.zeros(7, 5)
    on = x.cuda()
    torch.manual_seed(3)
    right = [torch.randn_like(x) for _ in range(OFTEN)]
    torch.manual_seed(3)
    torch.cuda.manual_seed(3)
    found = [torch.randn_like(on).cpu() for _ in range(OFTEN)]
    assert all(not torch.equal(a, b) for a, b in zip(found, found[1:], strict=False))
    torch.cuda.manual_seed(3)
    again = [torch.randn_like(on).cpu() for _ in range(OFTEN)]
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True)), (found[0], right[0])


def case_gradients_are_what_they_were() -> None:
    """Of recorded calls, with other values and gradients of several layouts each time, beside the CPU's."""
    import flambeau as torch
    from flambeau._core.engine import learning
    learning.learned.clear()
    torch.manual_seed(0)
    for name, (call, operands) in _lines(torch).items():
        for k in range(OFTEN + 4):
            here = [torch.randn(o) if isinstance(o, tuple) else o() for o in operands]
            there = [t.cuda() for t in here]
            for t in (*here, *there):
                t.requires_grad_(t.is_floating_point())
            made = [call(*here), call(*there)]
            for m in made:
                torch.manual_seed(k)
                outs = [t for t in (m if isinstance(m, (tuple, list)) else [m]) if t.requires_grad]
                gs = [torch.randn(t.shape).to(t.device) for t in outs]
                if k % 3 == 2:  # repeated along all axes, as a sum's
                    gs = [torch.tensor(0.5 + k).to(t.device).expand(t.shape) for t in outs]
                torch.autograd.backward(outs, gs)
            for a, b in zip(there, here, strict=True):
                if a.requires_grad:
                    assert a.grad is not None and torch.allclose(a.grad.cpu(), b.grad, rtol=1e-4, atol=1e-5), (name, k, a.grad.cpu(), b.grad)
    missing = {"roll", "index", "vstack", "embedding", "nll_loss", "cross_entropy", "var", "mean", "einsum", "cat", "linear", "softmax",
               "layer_norm", "cumsum"} - {n for n in learning.learned if learning.learned.count(n) > 1}
    assert not missing, (missing, learning.learned)


def case_a_network_learns() -> None:
    """Convolutions, batch norms with their running statistics, pooling and a loss: all steps are the CPU's."""
    import flambeau as torch
    nn = torch.nn
    nets = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 5)).to(device)
        steps = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for k in range(2 * OFTEN):
            torch.manual_seed(k)
            x, y = torch.randn(6, 3, 6, 6).to(device), torch.arange(6).remainder(5).to(device)
            loss = nn.functional.cross_entropy(net(x), y)
            steps.zero_grad()
            loss.backward()
            steps.step()
            losses.append(loss.item())
        nets.append((losses, {name: t.cpu() for name, t in net.state_dict().items()}))
    (a, left), (b, right) = nets
    assert all(abs(x - y) < 1e-4 for x, y in zip(a, b, strict=True)), (a, b)
    assert all(torch.allclose(left[name].float(), right[name].float(), rtol=1e-3, atol=1e-4) for name in left)


def case_second_derivatives() -> None:
    """A pass that is recorded makes the call again, from the values that there were, also where one has changed since that no first derivative reads."""
    import flambeau as torch
    f = torch.nn.functional
    for k in range(OFTEN):
        found = []
        for device in ("cpu", "cuda"):
            torch.manual_seed(k)
            x, w, b = (torch.randn(*s).to(device).requires_grad_() for s in ((6, 4), (4,), (4,)))
            y = f.layer_norm(x, (4,), w, b)
            with torch.no_grad():
                b.add_(1.0)
            (g,) = torch.autograd.grad((y ** 3).sum(), x, create_graph=True)
            (g ** 2).sum().backward()
            found.append((x.grad.cpu(), w.grad.cpu()))
        assert all(torch.allclose(p, q, rtol=1e-3, atol=1e-3) for p, q in zip(*found, strict=True)), k


def case_what_was_changed_is_told() -> None:
    """A backward pass that needs what has been written since."""
    import flambeau as torch
    for k in range(OFTEN):
        x, w = torch.randn(6, 4).cuda().requires_grad_(), torch.randn(5, 4).cuda().requires_grad_()
        y = torch.nn.functional.linear(x, w)
        with torch.no_grad():
            x.mul_(2)
        try:
            y.sum().backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
        else:
            raise AssertionError(f"nothing was raised, call {k}")


def case_no_memory_is_kept() -> None:
    """By what was learned of recorded calls."""
    import flambeau as torch
    f = torch.nn.functional

    def work() -> None:
        x, w = torch.randn(64, 256).cuda().requires_grad_(), torch.randn(128, 256).cuda().requires_grad_()
        f.layer_norm(f.linear(x, w), (128,)).var(1).sum().backward()
    for _ in range(2):
        work()
    gc.collect()
    torch.cuda.synchronize()
    before, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    for _ in range(3 * OFTEN):
        work()
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before, (before, torch.cuda.memory_allocated())
    # one result more lives for a moment; the copies that calls were learned from count for nothing
    assert torch.cuda.max_memory_allocated() <= peak + 4 * 64 * 128, (peak, torch.cuda.max_memory_allocated())


def case_it_takes_a_share_of_the_time() -> None:
    """What would take more is learned later."""
    import time

    import flambeau as torch
    from flambeau._core.engine import learning, trials
    x = torch.randn(7, 3).cuda()
    before, learning.budget = learning.budget, trials.Budget()
    try:
        learning.budget.left()
        learning.budget.spent = 1e6
        learning.learned.clear()
        for _ in range(OFTEN):
            x.roll(1, 0)
        assert "roll" not in learning.learned
        learning.budget.spent = 0.0
        time.sleep(0.001)
        for _ in range(3):
            x.roll(1, 0)
        assert "roll" in learning.learned
    finally:
        learning.budget = before


def case_a_pause_saves_nothing_up() -> None:
    """After one all calls are not learned at once."""
    import flambeau as torch
    from flambeau._core.engine import learning, trials
    x = torch.randn(7, 3).cuda()
    before = learning.budget
    learning.budget = trials.budget = trials.Budget()
    learning.budget._asked -= 1e6
    try:
        learning.learned.clear()
        for _ in range(OFTEN):
            for shift in range(1, 7):
                x.roll(shift, 0)
        assert len(learning.learned) == 1, learning.learned
        learning.budget._asked -= 1e6
        for _ in range(2):
            for shift in range(1, 7):
                x.roll(shift, 0)
        assert len(learning.learned) == 2, learning.learned
    finally:
        learning.budget = trials.budget = before


def case_in_place() -> None:
    """What a call writes has its version, and views see it."""
    import flambeau as torch
    x = torch.zeros(6, 4, device="cuda")
    row = x[2]
    for k in range(OFTEN):
        version = x._version
        x[:, 1] = torch.full((6,), float(k), device="cuda")
        x.index_fill_(0, torch.tensor([2], device="cuda"), 2.0 * k)
        assert x._version == version + 2 and row.cpu().tolist() == [2.0 * k] * 4 and x[0].cpu().tolist() == [0.0, float(k), 0.0, 0.0]
    leaf = torch.zeros(6, 4, device="cuda", requires_grad=True)
    try:
        leaf[:, 1] = torch.ones(6, device="cuda")
    except RuntimeError as error:
        assert "leaf" in str(error)
    else:
        raise AssertionError("a leaf was written")


def case_positions_outside_are_told() -> None:
    """As before the call was learned: when the host next waits, with the program's line."""
    import flambeau as torch
    x, at = torch.randn(3, 6).cuda(), torch.tensor([1, 5, 0]).cuda()
    for _ in range(OFTEN):
        x[:, at]
    torch.cuda.synchronize()
    x[:, torch.tensor([1, 6, 0]).cuda()]
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        assert "6" in str(error) and "cases_learned.py" in str(error), error
    else:
        raise AssertionError("nothing was raised")
    torch.cuda.synchronize()


def case_streams_devices_and_memory() -> None:
    """A learned call works on the stream and the device of its caller, and keeps nothing."""
    import flambeau as torch
    x = torch.randn(6, 4)
    on = x.cuda()
    for _ in range(OFTEN):
        on.roll(1, 0)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        made = [on.roll(1, 0) for _ in range(3)]
    stream.synchronize()
    assert all(torch.equal(t.cpu(), x.roll(1, 0)) for t in made)
    del made
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(4):
        on.roll(1, 0)
    assert torch.cuda.memory_allocated() == before
    if torch.cuda.device_count() > 1:
        other = x.to("cuda:1")
        found = [other.roll(1, 0) for _ in range(OFTEN)]
        assert all(t.device == other.device and torch.equal(t.cpu(), x.roll(1, 0)) for t in found)


def case_what_the_host_reads_is_not_learned() -> None:
    """A call whose launches depend on values goes the ordinary way each time."""
    import flambeau as torch
    for k in range(OFTEN):
        x = torch.tensor([0, 1, 0, 1, 1]).cuda() if k % 2 else torch.tensor([1, 0, 0, 0, 0]).cuda()
        assert x.nonzero().cpu().flatten().tolist() == ([1, 3, 4] if k % 2 else [0])
        assert torch.equal(torch.repeat_interleave(torch.arange(5, device="cuda"), x).cpu(), torch.arange(5)[x.cpu().bool()])
        assert torch.bincount(x).cpu().tolist() == ([2, 3] if k % 2 else [4, 1])


def case_while_others_look_on() -> None:
    """A thread that observes begins while calls are learned: what it sees and what it computes is right."""
    import threading

    import flambeau as torch
    from flambeau._core.runtime import dispatch
    x = torch.randn(6, 4)
    stop, wrong = threading.Event(), []

    def look() -> None:
        on = x.cuda()
        while not stop.is_set():
            seen: list[str] = []
            with dispatch.observe(lambda dev, stream, prepared, args, seen=seen: seen.append(prepared.name)):  # type: ignore[misc]
                made = (on + 1).sum(0)
            if not torch.allclose(made.cpu(), (x + 1).sum(0), atol=1e-5) or len(seen) < 2:
                wrong.append(seen)
    thread = threading.Thread(target=look)
    thread.start()
    try:
        for n in range(1, 12):
            on = torch.randn(n, 4)
            for _ in range(OFTEN):
                made = on.cuda().roll(1, 0).flip(1)
            assert torch.equal(made.cpu(), on.roll(1, 0).flip(1)), n
    finally:
        stop.set()
        thread.join()
    assert not wrong, wrong[:3]


def case_public_operations() -> None:
    """A tenth of all public operations and of their gradients: the same bits when they are replayed."""
    import flambeau as torch
    from flambeau._core.engine import learning
    from tests._core.engine.public_operations import ANYTHING, bits, lines, ops_timing, ops_values
    case = ops_timing.SMALL._replace(device="cuda")

    def on_host(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return (x if x.layout is torch.strided else x.to_dense()).cpu()
        return [on_host(y) for y in x] if isinstance(x, (tuple, list)) else x

    def once(line: Any, seed: int) -> Any:
        torch.manual_seed(seed)
        values = ops_values.Values(torch, case)
        try:
            made = ops_timing._call(torch, line, values, ())
        except Exception as error:
            made = type(error).__name__
        return bits(on_host(made)), [bits(on_host(values[k])) for k in ops_timing.written(line)]

    def back(line: Any, gradient: Any) -> Any:
        torch.manual_seed(0)
        values = ops_values.Values(torch, case)
        outs = dict(ops_timing._outputs(torch.Tensor, ops_timing._call(torch, line, values, gradient.inputs)))
        torch.autograd.backward([outs[at] for at in gradient.outputs], [torch.ones_like(outs[at]) for at in gradient.outputs])
        return bits(on_host(list(outs.values()))), [bits(on_host(values[n].grad)) for n in gradient.inputs]
    learning.learned.clear()
    for line in lines()[::10]:
        if line.name in ANYTHING:
            continue
        torch.set_grad_enabled(False)
        learning.on = False
        expected = [once(line, seed) for seed in range(2)]
        learning.on = True
        for n in range(OFTEN):
            assert once(line, n % 2) == expected[n % 2], line.name
        torch.set_grad_enabled(True)
        learning.on = False
        gradient = ops_timing.gradient_of(torch, line, case)
        slopes = None if gradient is None else back(line, gradient)
        learning.on = True
        for _ in range(OFTEN if gradient is not None else 0):
            assert back(line, gradient) == slopes, line.name
    assert len(learning.learned) > 200


if __name__ == "__main__":
    cases.main(globals(), start)

"""Captured functions on a GPU give and leave behind what the function itself does."""

from __future__ import annotations

import gc
from threading import Thread
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F


@pytest.fixture(params=["eager", "lazy", "random"])
def gpu(request: Any) -> Any:
    with torch.simulate(gpus=2, model="T4", queue=request.param):
        yield torch.device("cuda")


def training(gpu: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4)).to(gpu)
    steps = torch.optim.AdamW(net.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        steps.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        steps.step()
        return {"loss": loss, "parts": [loss * 2, loss.view(1)]}
    return net, step


def test_training_steps_are_the_functions(gpu: Any) -> None:
    batches = [(torch.randn(6, 8).to(gpu), torch.randint(0, 4, (6,)).to(gpu)) for _ in range(6)]
    net, step = training(gpu)
    torch.cuda.manual_seed(1)
    wanted = [step(*b)["loss"].item() for b in batches]
    parameters = [p.detach().clone() for p in net.parameters()]
    net, step = training(gpu)
    captured = torch.capture(step)
    torch.cuda.manual_seed(1)
    found = [captured(*b) for b in batches]
    assert [f["loss"].item() for f in found] == wanted  # each call's results are its own
    assert [f["parts"][0].item() for f in found] == [2 * w for w in wanted]
    assert all(torch.equal(p, w) for p, w in zip(net.parameters(), parameters, strict=True))
    assert found[-1]["parts"][1]._version == 0 and not found[-1]["loss"].requires_grad
    assert found[-1]["parts"][1].data_ptr() == found[-1]["loss"].data_ptr() != found[-2]["loss"].data_ptr()


def test_arguments_may_be_written_and_given_back(gpu: Any) -> None:
    counter = torch.zeros(3, device=gpu)

    @torch.capture
    def work(x: Any, k: float, *, y: Any) -> Any:
        x.mul_(k)
        counter.add_(x)
        return x, x[1:], y.t(), counter
    for n in range(1, 5):
        x, y = torch.full((3,), float(n), device=gpu), torch.arange(6.0, device=gpu).view(3, 2)[:, :1]
        version, counted = x._version, counter._version
        a, b, c, d = work(x, 2.0, y=y)
        assert a is x or a.data_ptr() == x.data_ptr()
        assert x.tolist() == [2.0 * n] * 3 and b.tolist() == [2.0 * n] * 2 and c.tolist() == [[0.0, 2.0, 4.0]]
        assert b.data_ptr() == x.data_ptr() + 4 and d.data_ptr() == counter.data_ptr()
        assert x._version > version and counter._version > counted
        assert counter.tolist() == [n * (n + 1.0)] * 3
    assert work(torch.ones(3, device=gpu), 5.0, y=y)[0].tolist() == [5.0] * 3  # another constant is another capture


def test_what_it_touches_lives_on(gpu: Any) -> None:
    def made() -> Any:
        table = torch.arange(1000.0, device=gpu)
        return torch.capture(lambda x: table + x)
    work = made()
    x = torch.ones(1000, device=gpu)
    for _ in range(3):
        work(x)
    gc.collect()
    others = [torch.full((1000,), -1.0, device=gpu) for _ in range(30)]
    assert torch.equal(work(x).cpu(), torch.arange(1000.0) + 1)
    assert all(t.eq(-1).all().item() for t in others)


def test_streams_and_threads(gpu: Any) -> None:
    work = torch.capture(lambda x: (x * 2 + 1).sum())
    for _ in range(2):
        work(torch.zeros(500, device=gpu))
    wrong: list[Any] = []

    def run(k: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(20):
                x = torch.full((500,), float(k * 100 + i), device=gpu)
                got = work(x).item()
                if got != (2 * (k * 100 + i) + 1) * 500:
                    wrong.append((k, i, got))
    threads = [Thread(target=run, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_what_is_refused(gpu: Any) -> None:
    x = torch.ones(4, device=gpu)
    looks = torch.capture(lambda x: x * x.sum().item())
    looks(x)
    with pytest.raises(torch.AcceleratorError, match="not permitted when stream is capturing"):
        looks(x)
    assert (x + 1).tolist() == [2.0] * 4
    both = torch.capture(lambda x, y: x + y)
    with pytest.raises(RuntimeError, match="all on one GPU"):
        both(x, torch.ones(4))
    with pytest.raises(RuntimeError, match="share memory"):
        for _ in range(2):
            both(x, torch.ones(1, device=gpu).expand(4))
    with pytest.raises(RuntimeError, match="check=True"):
        held = torch.capture(lambda x: x + 1, check=True)
        for _ in range(2):
            held(x)
    with pytest.raises(RuntimeError, match="requires grad"):
        both(x, x.clone().requires_grad_() * 2)
    assert torch.capture(lambda x: x[:0])(x).tolist() == []


def test_other_layouts(gpu: Any) -> None:
    work = torch.capture(lambda x: x.cumsum(0))
    for shape in ((0, 3), (), (4,), (3, 5)):
        for k in range(4):
            x = torch.full(shape, float(k), device=gpu) if shape else torch.tensor(float(k), device=gpu)
            assert torch.equal(work(x).cpu(), x.cpu().cumsum(0))
            if len(shape) == 2 and shape[0]:
                assert torch.equal(work(x.t()).cpu(), x.t().cpu().cumsum(0))


def test_without_arguments(gpu: Any) -> None:
    """Where it works shows at the first call."""
    counter, total = torch.zeros(4, device=gpu), torch.zeros(4, device=gpu)

    @torch.capture
    def step() -> Any:
        counter.add_(1)
        total.add_((counter * 2).exp().log())
        return (counter + 1).sum()
    found = [step().item() for _ in range(5)]
    assert found == [8.0, 12.0, 16.0, 20.0, 24.0] and counter.tolist() == [5.0] * 4
    assert torch.allclose(total.cpu(), torch.full((4,), 30.0))


def test_arguments_that_share_memory_with_what_is_written(gpu: Any) -> None:
    """A graph works on copies of its arguments: where the function would see the difference, the call is refused and nothing is done."""
    buffer = torch.zeros(4, device=gpu)
    other = torch.zeros(4, device=gpu)

    def counts(x: Any) -> Any:
        buffer.add_(1)
        return x * 2

    def writes(x: Any) -> Any:
        x.add_(1)
        return buffer * 2
    for f in (counts, writes):
        work = torch.capture(f)
        for _ in range(3):
            work(other)
        held = buffer.tolist()
        with pytest.raises(RuntimeError, match="shares memory with a tensor that the function uses"):
            work(buffer[:4])
        assert buffer.tolist() == held
    both = torch.capture(lambda a, b: (a.add_(1), b * 2)[1])
    for _ in range(3):
        both(other, buffer)
    with pytest.raises(RuntimeError, match="share memory"):
        both(other, other)
    assert torch.capture(lambda a: a + buffer)(buffer).tolist() == (buffer * 2).tolist()  # nothing is written


def test_work_elsewhere_is_refused(gpu: Any) -> None:
    """Neither is silently left out of the calls that follow: writes on other devices, results made there, values that Python looks at."""
    here, there = torch.zeros(2), torch.zeros(2, device="cuda:1")
    x = torch.ones(2, device=gpu)
    for f, words in ((lambda x: (here.add_(1), x * 2)[1], "written on cpu"), (lambda x: (there.add_(1), x * 2)[1], "written on cuda:1"),
                     (lambda x: (x * 2, torch.ones(2)), "made on cpu"), (lambda x: x + here.sum().item(), "looks at a tensor's values")):
        work = torch.capture(f)
        work(x)
        with pytest.raises(RuntimeError, match=words):
            work(x)
    assert torch.capture(lambda x: (x * 2, here))(x)[1] is here


def test_an_error_leaves_what_was_done_before_it(gpu: Any) -> None:
    found = []
    for captured in (False, True):
        total, calls, seen = torch.zeros(2, device=gpu), [], []

        def work(x: Any, total: Any = total, calls: Any = calls) -> Any:
            total.add_(x)
            x.mul_(3)
            calls.append(None)
            if len(calls) == 2:
                raise KeyError("the program's own")
            return x + total
        step = torch.capture(work) if captured else work
        for i in range(4):
            x = torch.full((2,), float(i + 1), device=gpu)
            try:
                seen.append(step(x).tolist())
            except KeyError:
                seen.append(None)
            seen += [x.tolist(), total.tolist()]
        found.append(seen)
    assert found[0] == found[1]


def test_versions_are_moved_on_once_a_call(gpu: Any) -> None:
    total, x = torch.zeros(2, device=gpu), torch.ones(2, device=gpu)
    work = torch.capture(lambda x: (total.add_(x), x.add_(1))[0])
    for _ in range(4):
        before = total._version, x._version
        work(x)
        assert (total._version - before[0], x._version - before[1]) == (1, 1)


def test_constants_are_told_apart_by_their_bits(gpu: Any) -> None:
    for place in ("cpu", gpu):
        work, x = torch.capture(lambda x, k: x * k), torch.ones(2, device=place)
        signs = [torch.signbit(work(x, k)).tolist() for k in (0.0, 0.0, 0.0, -0.0, -0.0)]
        assert signs == [[False] * 2] * 3 + [[True] * 2] * 2
        for _ in range(5):
            assert work(x, float("nan")).isnan().all().item()
        assert len(work._found) == 3

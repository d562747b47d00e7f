"""Graphs on simulated GPUs: nothing is done while they are captured, and a replay does what the code would."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F


@pytest.fixture(params=["eager", "lazy", "random"])
def gpu(request: Any) -> Any:
    with torch.simulate(gpus=1, model="T4", queue=request.param):
        yield torch.device("cuda")


def test_nothing_is_done_until_the_replay(gpu: Any) -> None:
    x, y = torch.zeros(8, device=gpu), torch.zeros(8, device=gpu)
    g = torch.cuda.CUDAGraph()
    assert not torch.cuda.is_current_stream_capturing()
    with torch.cuda.graph(g):
        assert torch.cuda.is_current_stream_capturing()
        z = (x * 2 + 1).exp().log()
        y.add_(z)
    assert not torch.cuda.is_current_stream_capturing()
    assert y.tolist() == [0.0] * 8
    for i in range(1, 4):
        x.fill_(float(i))
        g.replay()
        assert torch.allclose(z.cpu(), torch.full((8,), 2.0 * i + 1))
    assert torch.allclose(y.cpu(), torch.full((8,), 3.0 + 5 + 7))


def test_memory_is_the_graphs_own(gpu: Any) -> None:
    x = torch.ones(1000, device=gpu)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = ((x + 1) * 2).sqrt()
    others = [torch.full((1000,), 5.0, device=gpu) for _ in range(20)]
    g.replay()
    assert torch.equal(y.cpu(), torch.full((1000,), 2.0))
    assert all(t.eq(5).all().item() for t in others)
    before = torch.cuda.memory_allocated()
    del y
    g.reset()
    assert torch.cuda.memory_allocated() < before


def test_graphs_share_memory_by_a_handle(gpu: Any) -> None:
    pool = torch.cuda.graph_pool_handle()
    x = torch.ones(1000, device=gpu)
    a, b = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(a, pool=pool):
        y = x + 1
    with torch.cuda.graph(b, pool=a.pool()):
        z = y + 1
    assert a.pool() == b.pool() == pool
    a.replay()
    b.replay()
    assert z.tolist() == [3.0] * 1000


def training(optimizer: str, gpu: Any) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4)).to(gpu)
    steps = getattr(torch.optim, optimizer)(net.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        steps.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        steps.step()
        return loss
    return net, steps, step


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_training_steps_are_those_of_the_code(gpu: Any, optimizer: str) -> None:
    data = [(torch.randn(6, 8), torch.randint(4, (6,))) for _ in range(6)]
    net, _, step = training(optimizer, gpu)
    torch.cuda.manual_seed(1)
    wanted = [step(x.to(gpu), y.to(gpu)).item() for x, y in data]
    other, _, step = training(optimizer, gpu)
    torch.cuda.manual_seed(1)
    found = [step(x.to(gpu), y.to(gpu)).item() for x, y in data[:2]]
    g, x, y = torch.cuda.CUDAGraph(), data[2][0].to(gpu), data[2][1].to(gpu)
    with torch.cuda.graph(g):
        loss = step(x, y)
    for a, b in data[2:]:
        x.copy_(a)
        y.copy_(b)
        g.replay()
        found.append(loss.item())
    assert found == wanted
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(p.cpu(), q.cpu())


def test_draws_are_new_at_each_replay(gpu: Any) -> None:
    x = torch.ones(64, device=gpu)
    g = torch.cuda.CUDAGraph()
    torch.cuda.manual_seed(3)
    wanted = [F.dropout(x, 0.5).tolist() for _ in range(3)]
    torch.cuda.manual_seed(3)
    with torch.cuda.graph(g):
        y = F.dropout(x, 0.5)
    found = []
    for _ in range(3):
        g.replay()
        found.append(y.tolist())
    assert found == wanted
    assert found[0] != found[1]


def test_streams_that_wait_for_the_capture_join_it(gpu: Any) -> None:
    x = torch.ones(64, device=gpu)
    side, g = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x + 1
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            z = y * 3
        torch.cuda.current_stream().wait_stream(side)
        w = z + y
    assert not torch.cuda.is_current_stream_capturing()
    x.fill_(2)
    g.replay()
    assert w.tolist() == [12.0] * 64


def test_checks_of_indices_stay(gpu: Any) -> None:
    table, i = torch.arange(5.0, device=gpu), torch.zeros(2, dtype=torch.int64, device=gpu)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = table[i]
    i.fill_(4)
    g.replay()
    assert y.tolist() == [4.0, 4.0]
    i.fill_(9)
    g.replay()
    with pytest.raises(RuntimeError, match="index"):
        torch.cuda.synchronize()


def test_what_may_not_be_captured_says_where(gpu: Any) -> None:
    x = torch.ones(4, device=gpu)

    def looks() -> Any:
        return x.sum().item()

    def copies() -> Any:
        return x + torch.ones(4).to(gpu)

    def waits() -> Any:
        torch.cuda.synchronize()
    for work in (looks, copies, waits):
        g = torch.cuda.CUDAGraph()
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing") as error, torch.cuda.graph(g):
            work()
        if work is not waits:
            assert "test_graphs.py:" in str(error.value)
        assert not torch.cuda.is_current_stream_capturing()
        assert (x + 1).tolist() == [2.0] * 4


def test_misuse(gpu: Any) -> None:
    g = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        g.replay()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        g.pool()
    with pytest.raises(RuntimeError, match="non-default stream"):
        g.capture_begin()
    with pytest.raises(TypeError, match="CUDAGraph"), torch.cuda.graph(3):
        pass
    with torch.cuda.graph(g):
        torch.ones(2, device=gpu)
    with pytest.raises(RuntimeError, match="already owns"), torch.cuda.graph(g):
        pass
    assert not torch.cuda.is_current_stream_capturing()


def test_graphed_callables_have_gradients(gpu: Any) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(gpu)
    plain = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(gpu)
    plain.load_state_dict(net.state_dict())
    graphed = torch.cuda.make_graphed_callables(net, (torch.randn(3, 4, device=gpu, requires_grad=True),))
    assert graphed is net
    for _ in range(3):
        x = torch.randn(3, 4, device=gpu, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        graphed(x).square().sum().backward()
        plain(y).square().sum().backward()
        assert torch.equal(x.grad.cpu(), y.grad.cpu())
    for p, q in zip(net.parameters(), plain.parameters(), strict=True):
        assert torch.equal(p.grad.cpu(), q.grad.cpu())
    net.eval()
    assert torch.equal(graphed(x).detach().cpu(), plain(x).detach().cpu())


def test_graphed_functions_in_a_row(gpu: Any) -> None:
    a, b = torch.cuda.make_graphed_callables((lambda x: x * 2, lambda x: (x.sin(), x.cos())),
                                             ((torch.ones(4, device=gpu, requires_grad=True),), (torch.ones(4, device=gpu, requires_grad=True),)))
    x = torch.arange(4.0, device=gpu).requires_grad_()
    s, c = b(a(x))
    (s + c).sum().backward()
    assert torch.allclose(x.grad.cpu(), 2 * (torch.cos(2 * torch.arange(4.0)) - torch.sin(2 * torch.arange(4.0))))
    with pytest.raises(TypeError, match="2 callables and 1"):
        torch.cuda.make_graphed_callables((a, b), ((x,),))


def test_a_stream_that_does_not_come_back_is_told(gpu: Any) -> None:
    x, other, g = torch.ones(8, device=gpu), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with pytest.raises(torch.AcceleratorError, match="unjoined"), torch.cuda.graph(g):
        y = x * 2
        other.wait_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(other)  # of nothing yet
        with torch.cuda.stream(other):
            y + 1
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        g.replay()
    with torch.cuda.stream(other):
        assert (x + 1).sum().item() == 16
    with torch.cuda.graph(g):  # the graph may be captured again
        third = torch.cuda.Stream()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            y = x * 3
        third.wait_stream(other)
        with torch.cuda.stream(third):
            z = y + 1
        torch.cuda.current_stream().wait_stream(third)  # which waited for the other
    g.replay()
    assert z.tolist() == [4.0] * 8


def test_a_graph_of_a_scaled_pass_reads_the_present_scale(gpu: Any) -> None:
    """Forward and backward captured, the scaler's step outside: PyTorch's "partial-network" example with mixed precision."""
    def trained(captured: bool) -> Any:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(gpu)
        steps = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=2)
        x, y = torch.randn(6, 8, device=gpu), torch.randn(6, 4, device=gpu)
        batches = [torch.rand_like(x) for _ in range(7)]
        batches[3][0, 0] = float("inf")

        def both(x: Any) -> Any:
            with torch.autocast("cuda", torch.float16):
                loss = nn.functional.mse_loss(net(x), y.half())
            scaler.scale(loss).backward()
            return loss
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            both(x)
            scaler.step(steps)
            scaler.update()
        torch.cuda.current_stream().wait_stream(side)
        steps.zero_grad()
        g = torch.cuda.CUDAGraph()
        if captured:
            with torch.cuda.graph(g):
                loss = both(x)
        found = []
        for b in batches:
            if captured:
                x.copy_(b)
                g.replay()
            else:
                steps.zero_grad()
                loss = both(b)
            scaler.step(steps)
            scaler.update()
            found += [str(loss.item()), scaler.get_scale()]
        return found, [p.tolist() for p in net.parameters()]
    plain = trained(False)
    assert trained(True) == plain and set(plain[0][1::2]) == {2048.0, 4096.0}

"""Graphs of NVIDIA GPUs: captured by the driver (here the fake libcuda), replayed as the code would run."""

from __future__ import annotations

from typing import Any

from cases import array


def _refused(call: Any, *words: str) -> None:
    import flambeau as torch
    try:
        call()
    except torch.AcceleratorError as error:
        assert all(w in str(error) for w in words), error
    else:
        raise AssertionError(f"not refused: {words}")


def case_nothing_is_done_until_the_replay() -> None:
    import flambeau as torch
    x, y = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        assert torch.cuda.is_current_stream_capturing()
        z = (x * 2 + 1).exp().log()
        y.add_(z)
    assert not torch.cuda.is_current_stream_capturing()
    assert (array(y) == 0).all()
    others = [torch.full((1000,), 5.0, device="cuda") for _ in range(20)]  # the graph's memory is nobody else's
    for i in range(1, 4):
        x.fill_(float(i))
        g.replay()
        assert abs(array(z) - (2 * i + 1)).max() < 1e-5
    assert abs(array(y) - 15).max() < 1e-4 and all((array(t) == 5).all() for t in others)


def case_libraries() -> None:
    """Products, convolutions, attention and transforms are captured with workspaces of the graph's own."""
    import numpy as np

    import flambeau as torch
    torch.manual_seed(0)
    a, b = torch.randn(64, 48, device="cuda"), torch.randn(48, 80, device="cuda")
    image, weight = torch.randn(2, 3, 12, 12, device="cuda"), torch.randn(4, 3, 3, 3, device="cuda")
    q = torch.randn(1, 2, 16, 8, device="cuda")
    f = torch.nn.functional

    def work() -> tuple[Any, ...]:
        return (a @ b, f.relu(f.linear(a, b.t())), f.conv2d(image, weight, padding=1), f.scaled_dot_product_attention(q, q, q), torch.fft.rfft(a),
                torch.linalg.solve_triangular(torch.tril(a[:40, :40]) + 9 * torch.eye(40, device="cuda"), a[:40, :3], upper=False))
    work()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        made = work()
    for _ in range(2):
        for t in (a, b, image, weight, q):
            t.normal_()
        wanted = [array(t) for t in work()]
        for t in made:
            t.zero_()
        g.replay()
        for got, want in zip(made, wanted, strict=True):
            np.testing.assert_allclose(array(got), want, rtol=1e-5, atol=1e-5)


def _training(optimizer: str) -> tuple[Any, Any]:
    import flambeau as torch
    nn = torch.nn
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(20, 40), nn.LayerNorm(40), nn.GELU(), nn.Dropout(0.3), nn.Linear(40, 7)).cuda()
    steps = getattr(torch.optim, optimizer)(net.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        steps.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        steps.step()
        return loss
    return net, step


def case_training_steps() -> None:
    """Numbers that are others at each replay (draws, what optimizers count) are what eager steps would have, to the bit."""
    import flambeau as torch
    batches = [(torch.randn(30, 20).cuda(), torch.randint(0, 7, (30,)).cuda()) for _ in range(6)]
    for optimizer in ("AdamW", "SGD", "RMSprop"):
        net, step = _training(optimizer)
        torch.cuda.manual_seed(5)
        losses = [float(step(x, y)) for x, y in batches]
        wanted = [array(p) for p in net.parameters()]

        net, step = _training(optimizer)
        torch.cuda.manual_seed(5)
        x, y = batches[0][0].clone(), batches[0][1].clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            found = [float(step(x, y))]
        torch.cuda.current_stream().wait_stream(side)
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            loss = step(x, y)
        for a, b in batches[1:]:
            x.copy_(a)
            y.copy_(b)
            g.replay()
            found.append(float(loss))
        assert found == losses, (optimizer, found, losses)
        assert all((array(p) == w).all() for p, w in zip(net.parameters(), wanted, strict=True)), optimizer


def case_replays_under_way_keep_their_numbers() -> None:
    """The numbers of a later replay do not reach one that has been queued."""
    import flambeau as torch
    x = torch.zeros(4000, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        x.copy_(torch.nn.functional.dropout(torch.ones_like(x)))
    torch.cuda.manual_seed(11)
    kept = []
    for _ in range(5):
        g.replay()
        kept.append(x.clone())
    torch.cuda.manual_seed(11)
    for k in kept:
        assert (array(torch.nn.functional.dropout(torch.ones_like(x))) == array(k)).all()
    assert len({array(k).tobytes() for k in kept}) == 5


def case_streams_join() -> None:
    import flambeau as torch
    x = torch.ones(5000, device="cuda")
    other = torch.cuda.Stream()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x * 2
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            z = y + 1
            p = y[:64, None] @ y[None, :64]
        w = y * 10
        torch.cuda.current_stream().wait_stream(other)
        total = z + w
    x.fill_(3.0)
    third = torch.cuda.Stream()
    third.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(third):
        g.replay()
    third.synchronize()
    assert (array(total) == 67).all() and (array(p) == 36).all()


def case_what_may_not_be_captured() -> None:
    """What makes the host wait is refused with the program's line before the driver hears of it, and the stream works on."""
    import flambeau as torch
    x = torch.ones(8, device="cuda")
    for work, words in ((lambda: x.sum().item(), ("operation not permitted when stream is capturing",)), (lambda: x.cpu(), ("not permitted", "cases_graphs")),
                        (lambda: torch.ones(4).cuda(), ("not permitted",)), (lambda: torch.cuda.synchronize(), ("not permitted",)),
                        (lambda: torch.cuda.current_stream().synchronize(), ("not permitted",)), (lambda: x.nonzero(), ("not permitted",))):
        stream = torch.cuda.Stream()

        def captured(work: Any = work, stream: Any = stream) -> None:
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                y = x + 1
                work()
                y.add_(1)
        _refused(captured, *words)
        with torch.cuda.stream(stream):
            assert (x * 3).sum().item() == 24
    event = torch.cuda.Event()
    event.record()

    def late() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.cuda.current_stream().wait_event(event)
    _refused(late, "uncaptured work")
    assert x.sum().item() == 8


def case_wrong_indices_are_told() -> None:
    import flambeau as torch
    table, at = torch.arange(10.0, device="cuda"), torch.tensor([1, 2]).cuda()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        got = table[at]
    g.replay()
    assert array(got).tolist() == [1, 2]
    at.fill_(99)
    g.replay()
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        assert "99" in str(error), error
    else:
        raise AssertionError("a wrong index was not told")
    at.fill_(4)
    g.replay()
    assert array(got).tolist() == [4, 4]


def case_graphs_go() -> None:
    """What a graph had goes with it: its memory, the driver's graphs, workspaces."""
    import ctypes
    import gc

    import flambeau as torch
    count: Any = getattr(ctypes.CDLL(None), "fake_graphs", None)
    x = torch.ones(256, 256, device="cuda")
    x @ x
    torch.cuda.synchronize()
    gc.collect()
    before, lived = torch.cuda.memory_allocated(), None if count is None else (count(2), count(3))
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x @ x
        z = y * 2
    g.replay()
    assert (array(z) == 512).all()
    if count is not None:
        assert (count(2), count(3)) == (lived[0] + 1, lived[1] + 1)
    del y, z
    g.reset()
    gc.collect()
    assert torch.cuda.memory_allocated() == before
    if count is not None:
        assert (count(2), count(3)) == lived


def case_graphed_callables() -> None:
    import flambeau as torch
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).cuda()
    x = torch.randn(5, 8, device="cuda", requires_grad=True)
    wanted = net(x)
    wanted.square().sum().backward()
    grads = [array(x.grad), *[array(p.grad) for p in net.parameters()]]
    x.grad = None
    net.zero_grad()
    graphed = torch.cuda.make_graphed_callables(net, (torch.randn(5, 8, device="cuda", requires_grad=True),))
    for _ in range(2):
        x.grad = None
        graphed.zero_grad()
        out = graphed(x)
        out.square().sum().backward()
        assert abs(array(out) - array(wanted)).max() < 1e-6
        for got, want in zip([x.grad, *[p.grad for p in net.parameters()]], grads, strict=True):
            assert abs(array(got) - want).max() < 1e-5


def case_captured_functions() -> None:
    """`capture` of a training step: a graph on arguments of its own, with results that are each call's own."""
    import flambeau as torch
    batches = [(torch.randn(30, 20).cuda(), torch.randint(0, 7, (30,)).cuda()) for _ in range(5)]
    net, step = _training("AdamW")
    torch.cuda.manual_seed(5)
    losses = [float(step(x, y)) for x, y in batches]
    wanted = [array(p) for p in net.parameters()]
    net, step = _training("AdamW")
    captured = torch.capture(step)
    torch.cuda.manual_seed(5)
    found = [captured(x, y) for x, y in batches]
    assert [float(f) for f in found] == losses
    assert all((array(p) == w).all() for p, w in zip(net.parameters(), wanted, strict=True))


def case_running_statistics() -> None:
    """A captured step of convolutions and batch norms leaves the statistics and weights of an eager one."""
    import flambeau as torch
    nn = torch.nn
    images, labels = [torch.randn(4, 3, 12, 12).cuda() for _ in range(4)], torch.randint(0, 4, (4,)).cuda()

    def trained(captured: bool) -> tuple[Any, ...]:
        torch.manual_seed(1)
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(200, 4)).cuda()
        steps = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x: Any) -> Any:
            steps.zero_grad()
            loss = nn.functional.cross_entropy(net(x), labels)
            loss.backward()
            steps.step()
            return loss
        work = torch.capture(step) if captured else step
        losses = [float(work(x)) for x in images]
        return losses, [array(v).tolist() for v in net.state_dict().values()]
    assert trained(True) == trained(False)


def case_pinned_copies() -> None:
    """Copies of pinned memory are captured, and read and write what lies there at each replay."""
    import flambeau as torch
    source, out, there = torch.ones(100).pin_memory(), torch.empty(100).pin_memory(), torch.zeros(100, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        there.copy_(source, non_blocking=True)
        out.copy_(there * 3, non_blocking=True)
    for k in range(3):
        source.fill_(float(k))
        g.replay()
        torch.cuda.synchronize()
        assert (out.numpy() == 3 * k).all()


def case_after_an_error() -> None:
    """A capture that the program's own error ended leaves the GPU as it was."""
    import flambeau as torch
    x = torch.ones(10, device="cuda")
    for _ in range(3):
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                x + 1
                raise KeyError("the program's")
        except KeyError:
            pass
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            y = x * 7
        g.replay()
        assert (array(y) == 7).all()


def case_several_graphs_of_devices() -> None:
    import flambeau as torch
    work = torch.capture(lambda x: (x * 2).softmax(0))
    for k in range(3):
        for i in range(torch.cuda.device_count()):
            assert abs(array(work(torch.full((100,), float(k), device=f"cuda:{i}"))) - 0.01).max() < 1e-6


def case_a_stream_that_does_not_come_back() -> None:
    """It is told, nothing can be replayed, and the graph may be captured again."""
    import flambeau as torch
    x, other, g = torch.ones(8, device="cuda"), torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def forked() -> None:
        with torch.cuda.graph(g):
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                x + 1
    _refused(forked, "UNJOINED")
    try:
        g.replay()
    except RuntimeError as error:
        assert "without a preceding successful capture" in str(error), error
    else:
        raise AssertionError("a failed capture was replayed")
    with torch.cuda.graph(g):
        y = x * 3
    g.replay()
    assert (array(y) == 3).all()


def case_the_present_scale_of_a_scaler() -> None:
    """A captured forward and backward reads what the scaler's updates outside made of its scale."""
    import flambeau as torch
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
    w = torch.ones(4, device="cuda", requires_grad=True)
    scaler.scale((w * w).sum()).backward()
    g = torch.cuda.CUDAGraph()
    w.grad = None
    with torch.cuda.graph(g):
        scaled = scaler.scale((w * w).sum())
        scaled.backward()
    for scale in (8.0, 2.0, 64.0):
        scaler.update(scale)
        g.replay()
        assert float(scaled) == 4 * scale and (array(w.grad) == 2 * scale).all()


if __name__ == "__main__":
    import cases
    cases.main(globals())

"""Copies between devices: which path each takes, what crosses, and who waits."""

from __future__ import annotations

import copy
import itertools
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.ops.async_copy import host_reads_wait, pending_copy
from flambeau._core.runtime import cpu_memory, dispatch, staging

QUEUES = ["eager", "lazy", "random"]


@pytest.fixture(params=QUEUES)
def gpus(request: pytest.FixtureRequest) -> Iterator[str]:
    with torch.simulate(gpus=2, memory="128MiB", queue=request.param):
        yield request.param


@pytest.fixture
def lazy() -> Iterator[None]:
    with torch.simulate(gpus=2, memory="128MiB", queue="lazy"):
        yield


def seen(work: Callable[[], Any]) -> list[tuple[str, str, int, bool]]:
    records: list[dispatch.Copy] = []
    with dispatch.observe(copies=records.append):
        work()
    assert all(r.seconds is not None and r.seconds >= 0 for r in records)
    return [(r.direction, r.path, r.nbytes, r.blocking) for r in records]


# ------------------------------------------------------------------------------------------------------------ the table
def test_the_path_of_every_copy(gpus: str) -> None:
    small, big = torch.rand(100), torch.rand(200, 300)
    pinned, big_pinned = small.pin_memory(), big.pin_memory()
    there, big_there = small.cuda(), big.cuda()
    table: list[tuple[Callable[[], Any], tuple[str, str, int, bool]]] = [
        (lambda: small.cuda(), ("h2d", "pageable", 400, True)),
        (lambda: small.cuda(non_blocking=True), ("h2d", "staged", 400, False)),
        (lambda: big.cuda(), ("h2d", "staged", 240000, True)),
        (lambda: big.cuda(non_blocking=True), ("h2d", "staged", 240000, False)),
        (lambda: pinned.cuda(), ("h2d", "pinned", 400, True)),
        (lambda: big_pinned.cuda(non_blocking=True), ("h2d", "pinned", 240000, False)),
        (lambda: big_pinned.t()[::2].cuda(non_blocking=True), ("h2d", "staged", 120000, False)),
        (lambda: big.t().cuda(), ("h2d", "staged", 240000, True)),
        (lambda: big.to("cuda", torch.float16), ("h2d", "staged", 120000, True)),
        (lambda: big.to("cuda", torch.float64), ("h2d", "staged", 240000, True)),
        (lambda: big_pinned.to("cuda", torch.float64, non_blocking=True), ("h2d", "pinned", 240000, False)),
        (lambda: there.cpu(), ("d2h", "pageable", 400, True)),
        (lambda: big_there.cpu(), ("d2h", "staged", 240000, True)),
        (lambda: big_there.to("cpu", non_blocking=True), ("d2h", "pinned", 240000, False)),
        (lambda: big_there.to("cpu", torch.bfloat16), ("d2h", "staged", 120000, True)),
        (lambda: big_there.to("cpu", torch.float64), ("d2h", "staged", 240000, True)),
        (lambda: big_there.to("cpu", torch.float64, non_blocking=True), ("d2h", "pinned", 480000, False)),
        (lambda: big_pinned.copy_(big_there), ("d2h", "pinned", 240000, True)),
        (lambda: big_pinned.copy_(big_there, non_blocking=True), ("d2h", "pinned", 240000, False)),
        (lambda: big.copy_(big_there, non_blocking=True), ("d2h", "staged", 240000, True)),
        (lambda: small.copy_(there, non_blocking=True), ("d2h", "pageable", 400, True)),
        (lambda: big_there.copy_(big_pinned, non_blocking=True), ("h2d", "pinned", 240000, False)),
        (lambda: big_there.to("cuda:1"), ("peer", "peer", 240000, False)),
        (lambda: big_there.to("cuda:1", torch.float16), ("peer", "peer", 120000, False)),
        (lambda: torch.tensor([1.0, 2.0], device="cuda"), ("h2d", "staged", 8, False)),
    ]
    for k, (work, expected) in enumerate(table):
        assert seen(work) == [expected], k
    assert seen(lambda: torch.empty(0).cuda()) == []


def test_gpus_without_peer_access_go_through_the_host() -> None:
    with torch.simulate(gpus=2, model="RTX 4090", memory="64MiB", queue="lazy"):
        x = torch.rand(1000, device="cuda:0")
        assert seen(lambda: x.to("cuda:1")) == [("peer", "host", 4000, False)]
        assert x.to("cuda:1").cpu().equal(x.cpu())


def test_a_record_says_who_and_where(lazy: None) -> None:
    records: list[dispatch.Copy] = []
    x = torch.rand(10)
    s = torch.cuda.Stream()
    with dispatch.observe(copies=records.append), torch.cuda.stream(s):
        y = x.cuda()
    r = records[0]
    assert (r.source, r.target, r.stream, r.pinned) == (torch.device("cpu"), torch.device("cuda:0"), s, False)
    assert r.owners == (x.store, y.store)
    del y
    assert r.owners == (x.store, None)


def test_observers_are_told_of_hidden_waits(lazy: None) -> None:
    waits: list[dispatch.Wait] = []
    x = torch.tensor([1.0, 0.0], device="cuda:1")
    one = torch.ones((), device="cuda")
    host = torch.ones(3)
    with dispatch.observe(waits=waits.append):
        one.item()
        x.tolist()
        bool(one)
        repr(x)
        x.nonzero()
        x.numpy(force=True)
        float(one)
        host.tolist(), host[0].item(), repr(host), host.nonzero(), x.cpu()
    assert [w.reason for w in waits] == ["item", "tolist", "bool", "print", "nonzero", "numpy", "item"]
    assert str(waits[1].device) == "cuda:1" and repr(waits[0]) == "Wait(cuda:0, item)"


# ----------------------------------------------------------------------------------------------------------------- values
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "dense": lambda x: x,
    "transposed": lambda x: x.t(),
    "permuted": lambda x: x.reshape(20, 3, -1).permute(1, 2, 0),
    "gaps": lambda x: x[1::2, ::3],
    "expanded": lambda x: x[:, :1].expand(-1, 50),
    "scalar": lambda x: x[3, 4],
    "channels_last": lambda x: x.reshape(2, 3, 10, -1).contiguous(memory_format=torch.channels_last),
}


def numbers(d: Any, rows: int = 60, columns: int = 40) -> Any:
    x = torch.arange(rows * columns).reshape(rows, columns) % 251 - 7
    if d.is_complex:
        return torch.complex(x.double(), -x.double()).to(d)
    return x.to(d) if d is not torch.uint8 else (x + 7).to(d)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("columns", [40, 3000])
def test_any_layout_both_ways(lazy: None, layout: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_LEAST", 4096)
    for d in (torch.float32, torch.bfloat16, torch.int8):
        x = LAYOUTS[layout](numbers(d, columns=columns))
        there = x.cuda()
        assert there.stride() == torch.empty_like(x).stride() and there.dtype is d
        assert there.cpu().equal(x) and there.cpu().stride() == there.stride()
        again = LAYOUTS[layout](numbers(d, columns=columns).cuda())  # packed on the GPU
        assert again.cpu().equal(x)
        assert there.to("cuda:1").cpu().equal(x) and again.to("cuda:1").cpu().equal(x)


@pytest.mark.parametrize(("a", "b"), list(itertools.permutations(
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64], 2)))
def test_any_change_of_type_crosses_in_the_narrower(lazy: None, a: Any, b: Any) -> None:
    for columns in (40, 900):
        x = numbers(a, columns=columns)
        expected = x.to(b)
        nbytes = min(a.itemsize, b.itemsize) * x.numel()
        for source in (x, x.t()):
            for to, back in (("cuda", "cpu"), ("cpu", "cuda")):
                y = source.to(back)
                records: list[dispatch.Copy] = []
                with dispatch.observe(copies=records.append):
                    z = y.to(to, b)
                assert [r.nbytes for r in records] == [nbytes]
                assert z.dtype is b and str(z.device).startswith(to)
                assert z.cpu().equal(expected if source is x else expected.t())


def test_copy_in_place_between_devices(lazy: None) -> None:
    base = torch.zeros(6, 8, device="cuda")
    base[1:5, ::2].copy_(torch.arange(4))  # broadcast, cast, strided
    assert base.cpu()[2].tolist() == [0, 0, 1, 0, 2, 0, 3, 0] and base.sum().item() == 24
    host = torch.zeros(6, 8, dtype=torch.float64)
    host.t()[::2, 1:5].copy_(base[1:2, ::2].t())  # likewise to the host
    assert host[3].tolist() == [0, 0, 1, 0, 2, 0, 3, 0]
    host.t().copy_(torch.arange(48, device="cuda", dtype=torch.float16).reshape(8, 6))
    assert host.t().reshape(-1).tolist() == list(range(48))
    far = torch.zeros(3, 4, device="cuda:1")
    far.copy_(base[1, ::2], non_blocking=True)
    assert far.tolist() == [[0, 1, 2, 3]] * 3


def test_strided_sources_are_packed_without_a_copy_of_the_whole(lazy: None) -> None:
    x = torch.rand(2000, 3000)
    x.t().cuda(), x.double()
    for view in (x.t(), x[:, ::2], x[::3]):
        for d in (torch.float32, torch.float16):
            cpu_memory.empty_cache()
            before = cpu_memory.stats()["allocated_bytes"] + cpu_memory.stats()["cached_bytes"]
            there = view.to("cuda", d)
            stats = cpu_memory.stats()
            assert stats["allocated_bytes"] + stats["cached_bytes"] - before < 100_000
            assert there.cpu().equal(view.to(d))


def test_gradients_travel_back_in_their_own_type(gpus: str) -> None:
    for d in (torch.float16, torch.float64, torch.float32):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        y = x.t().to("cuda", d).to("cuda:1").to("cpu", torch.float64, non_blocking=True)
        (y * y).sum().backward()
        assert x.grad.dtype is torch.float32 and x.grad.device.type == "cpu" and x.grad.equal(2 * x.detach())
        (g,) = torch.autograd.grad((x.to("cuda", d) ** 3).sum(), x, create_graph=True)
        (gg,) = torch.autograd.grad(g.sum(), x)
        assert gg.tolist() == (6 * x).tolist()
    assert not torch.ones(2, requires_grad=True).to("cuda", torch.int64).requires_grad


# ------------------------------------------------------------------------------------------------------------- who waits
def late(n: int = 1000) -> tuple[Any, list[float]]:
    x = torch.arange(float(n)).cuda() * 2
    return x, [2.0 * i for i in range(n)]


READS: dict[str, Callable[[Any], Any]] = {
    "tolist": lambda y: y.tolist(),
    "numpy": lambda y: y.numpy().tolist(),
    "array": lambda y: np.asarray(y).tolist(),
    "an operation": lambda y: (y + 0).tolist(),
    "in place": lambda y: y.add_(0).tolist(),
    "out": lambda y: torch.add(y, 0, out=torch.empty(0)).tolist(),
    "a view": lambda y: y[:].tolist(),
    "iteration": lambda y: [float(v) for v in y],
    "a reduction": lambda y: [float(y.sum())] and y.cumsum(0).diff(prepend=torch.zeros(1)).tolist(),
    "stack": lambda y: torch.stack([y, y])[1].tolist(),
    "pickle": lambda y: pickle.loads(pickle.dumps(y)).tolist(),
    "deepcopy": lambda y: copy.deepcopy(y).tolist(),
    "detach": lambda y: y.detach().tolist(),
    "data": lambda y: y.data.tolist(),
    "to another type": lambda y: y.double().tolist(),
    "to a gpu": lambda y: y.cuda().tolist(),
    "to a gpu, later": lambda y: y.to("cuda:1", non_blocking=True).tolist(),
    "to a gpu in half": lambda y: y.to("cuda", torch.float64).tolist(),
    "with a scalar on a gpu": lambda y: (torch.zeros(1000, device="cuda") + y[999]).sub(y.cuda()).neg().add(y[-1].item()).tolist(),
    "as an index": lambda y: torch.arange(0.0, 4000.0)[y.long()].tolist(),
    "from dlpack": lambda y: np.from_dlpack(y).tolist() if hasattr(y, "__dlpack__") else y.tolist(),
    "equal": lambda y: y.tolist() if y.equal(torch.arange(1000.0) * 2) else [],
    "matmul": lambda y: (y.reshape(1, 1000).mul(1.0)).t().mm(torch.ones(1, 1)).reshape(-1).tolist(),
}


@pytest.mark.parametrize("read", READS)
def test_the_first_host_read_waits(lazy: None, read: str) -> None:
    for again in range(2):
        x, expected = late()
        y = x.to("cpu", non_blocking=True)
        assert pending_copy(y) is not None and y.shape == (1000,) and y.is_pinned() and y.dtype is torch.float32
        assert isinstance(y, torch.Tensor) and not x.device.type == "cpu"
        assert READS[read](y) == expected, again
        assert y.tolist() == expected and type(y) is torch.Tensor and pending_copy(y) is None


def test_printing_and_single_values_wait(lazy: None) -> None:
    y = (torch.ones((), device="cuda") + 4).to("cpu", non_blocking=True)
    assert y.item() == 5.0
    y = (torch.ones((), device="cuda") + 4).to("cpu", non_blocking=True)
    assert f"{y:.1f}" == "5.0" and bool(y)
    y = (torch.ones(2, device="cuda") + 4).to("cpu", non_blocking=True)
    assert repr(y) == "tensor([5., 5.])"
    y = (torch.ones(2, device="cuda") + 4).to("cpu", non_blocking=True)
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'nothing'"):
        _ = y.nothing
    assert pending_copy(y) is not None


def test_copy_into_a_pinned_buffer_waits_for_every_tensor_that_shows_it(lazy: None) -> None:
    buffer = torch.zeros(4, 250, pin_memory=True)
    rows = list(buffer)
    for k, row in enumerate(rows):
        x, _ = late(250)
        row.copy_(x + k, non_blocking=True)
    assert pending_copy(buffer) is not None and pending_copy(rows[0]) is not None
    assert buffer[:, 1].tolist() == [2.0, 3.0, 4.0, 5.0] and rows[3][0].item() == 3.0
    x, expected = late(1000)
    buffer.view(-1).copy_(x, non_blocking=True)
    assert pending_copy(buffer) is not None  # the view is gone, its base is not
    assert buffer.reshape(-1).tolist() == expected
    array = buffer.numpy()
    buffer.view(-1).copy_(x + 1, non_blocking=True)  # NumPy cannot wait: the copy does
    assert array[0, 1] == 3.0


def test_memory_that_others_hold_is_filled_when_the_call_returns(lazy: None) -> None:
    x, expected = late()
    buffer = torch.zeros(1000, pin_memory=True)
    ways: list[Callable[[], Any]] = [lambda: buffer.data, lambda: torch.from_numpy(buffer.numpy()), lambda: torch.asarray(buffer.numpy()),
                                     lambda: buffer.detach()[:], lambda: buffer.view(10, 100).view(torch.int32).view(torch.float32)]
    for k, way in enumerate(ways):
        other = way()
        other.copy_((x + k).view(other.shape), non_blocking=True)
        assert buffer.tolist() == [v + k for v in expected], k
        held = way(), buffer.view(500, 2)
        buffer.copy_(x - k, non_blocking=True)
        assert held[0].reshape(-1).tolist() == held[1].reshape(-1).tolist() == [v - k for v in expected], k
    int_rows = list(torch.zeros(3, 100, dtype=torch.int64, pin_memory=True))
    for k, row in enumerate(int_rows):
        row.copy_(torch.full((100,), k, device="cuda"), non_blocking=True)
    assert [r[7].item() for r in int_rows] == [0, 1, 2]


def test_a_buffer_filled_again_and_again_is_not_waited_for_in_between(lazy: None) -> None:
    buffer = torch.zeros(1000, pin_memory=True)
    x, expected = late()
    main, side = torch.cuda.default_stream(), torch.cuda.Stream()
    for k in range(3):
        buffer.copy_(x + k, non_blocking=True)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            buffer.copy_(x + k + 10, non_blocking=True)
        main.wait_stream(side)
        pending = pending_copy(buffer)
        # a copy stands for those before it on its stream: what is kept does not grow
        assert pending is not None and len(pending.waits) == 2 and not torch.cuda.default_stream().query()
    assert buffer.tolist() == [v + 12 for v in expected]


def test_a_captured_copy_does_not_stand_for_one_that_is_on_its_way(lazy: None) -> None:
    buffer, (x, expected), other = torch.zeros(1000, pin_memory=True), late(), torch.ones(1000, device="cuda")
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.default_stream())
    with torch.cuda.stream(stream):
        buffer.copy_(x, non_blocking=True)
        graph.capture_begin()
        buffer.copy_(other, non_blocking=True)
        graph.capture_end()
    assert buffer.tolist() == expected


def test_a_reader_waits_for_what_is_queued_while_it_waits(lazy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, (x, expected) = torch.zeros(1000, pin_memory=True), late()
    buffer.copy_(x, non_blocking=True)
    pending = pending_copy(buffer)
    assert pending is not None
    first, = pending.waits.values()
    plain = type(first).__call__

    def meanwhile(self: Any, *args: Any) -> None:
        plain(self, *args)
        if self is first:
            buffer.copy_(x + 1, non_blocking=True)
    monkeypatch.setattr(type(first), "__call__", meanwhile)
    assert buffer.tolist() == [v + 1 for v in expected] and pending_copy(buffer) is None


def test_a_tensor_on_its_way_goes_on_to_a_gpu_without_the_host(lazy: None) -> None:
    x, expected = late()
    y = x.to("cpu", non_blocking=True)
    z = y.to("cuda:1", non_blocking=True)
    assert pending_copy(y) is not None and not torch.cuda.default_stream(0).query()
    assert z.tolist() == expected and y.tolist() == expected


def test_a_tensor_that_takes_other_data_meanwhile(lazy: None) -> None:
    x, _ = late(3)
    y = x.to("cpu", non_blocking=True)
    y.data = torch.ones(2)
    torch.cuda.synchronize()
    assert y.tolist() == [1.0, 1.0]


def test_threads_that_read_the_same_tensor(gpus: str) -> None:
    for _ in range(20):
        x, expected = late()
        y = x.to("cpu", non_blocking=True)
        found: list[Any] = []
        threads = [threading.Thread(target=lambda y=y, found=found: found.append(y.tolist())) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert found == [expected] * 4


def test_a_parameter_waits_and_stays_one(lazy: None) -> None:
    p = torch.nn.Parameter(torch.zeros(1000).pin_memory(), requires_grad=False)
    p.data = p.data.pin_memory()
    x, expected = late()
    p.copy_(x, non_blocking=True)
    assert isinstance(p, torch.nn.Parameter) and p.tolist() == expected and type(p) is torch.nn.Parameter


def test_a_copy_that_fails_is_an_error_for_every_reader(lazy: None) -> None:
    from flambeau._core.ops import launch

    def fail(address: int) -> None:
        raise OverflowError("too much")
    x = torch.ones(5, device="cuda")
    launch.routine("factorise", fail, [x], [])
    y = x.to("cpu", non_blocking=True)
    with pytest.raises(torch.cuda.AcceleratorError, match="'factorise' failed"):
        y.tolist()
    with pytest.raises(RuntimeError, match="the copy that was to fill this tensor failed"):
        y.tolist()
    assert x.shape == (5,) and (torch.ones(2, device="cuda") + 1).tolist() == [2.0, 2.0]


def test_dropping_a_tensor_on_its_way(gpus: str) -> None:
    x, expected = late()
    for _ in range(5):
        x.to("cpu", non_blocking=True)
    assert x.to("cpu", non_blocking=True).tolist() == expected
    torch.cuda.synchronize()
    assert torch.cuda.host_memory_stats()["active_requests.current"] == 0


def test_pytorchs_own_behaviour_is_a_switch_away(lazy: None) -> None:
    x, expected = late()
    with host_reads_wait(False):
        assert not host_reads_wait.enabled()
        y = x.to("cpu", non_blocking=True)
        assert pending_copy(y) is None and y.tolist() != expected  # nothing has run yet
        torch.cuda.synchronize()
        assert y.tolist() == expected
    assert host_reads_wait.enabled()


def test_pageable_memory_is_free_when_the_call_returns(lazy: None) -> None:
    for shape in ((50,), (300, 400), (3, 1 << 20)):
        for d in (torch.float32, torch.float16, torch.float64):
            x = torch.ones(shape)
            there = x.to("cuda", d, non_blocking=True)
            strided = x.t() if x.dim() > 1 else x[::2]
            also = strided.to("cuda", d, non_blocking=True)
            x.zero_()
            assert float(there.min()) == float(also.min()) == 1.0


def test_out_of_memory_leaves_every_tensor_usable() -> None:
    with torch.simulate(gpus=2, memory="16MiB", queue="lazy"):
        x, y = torch.rand(1 << 20), torch.ones(1 << 20, device="cuda:1")
        kept = x.cuda()
        for where in ("cuda:0", "cuda:1"):
            held = []
            with pytest.raises(torch.cuda.OutOfMemoryError):
                while True:
                    held.append(x.to(where))
            assert all(h.cpu().equal(x) for h in held) and kept.cpu().equal(x) and float(y.cpu().sum()) == 1 << 20
            with pytest.raises(torch.cuda.OutOfMemoryError):
                torch.rand(1 << 22, pin_memory=True).to(where, torch.float64, non_blocking=True)
            assert (held[0] + 0 if len(held) > 9 else held[0]).cpu().equal(x)
            del held
            assert x.to(where).cpu().equal(x)

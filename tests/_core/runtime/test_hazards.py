"""What hardware punishes is punished here: each missing wait, planted, gives a wrong value in a lazy queue; the correct form
is right in every queue mode and under a thousand seeded schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.runtime import gpus
from flambeau._core.runtime.gpu_memory import Pool
from flambeau._core.runtime.pinned_memory import HostPool
from flambeau.cuda import Event, Stream, host_reads_wait

N = 64


def stale(value: float) -> None:
    """Leaves `value` in the pinned block and the device blocks that come next, where wrong reads will find it."""
    torch.cuda.synchronize()
    torch.full((N,), value, pin_memory=True)
    torch.full((N,), value, device="cuda")
    torch.cuda.synchronize()


# Each gives (what the program read, what it must read); `right` says whether it waits where it must.
def read_before_the_copy_ends(right: bool) -> tuple[Any, float]:
    stale(-1.0)
    with host_reads_wait(False):  # as in PyTorch
        x = torch.ones(N, device="cuda") * 3
        y = x.to("cpu", non_blocking=True)
        if right:
            torch.cuda.current_stream().synchronize()
        return y.clone(), 3.0


def read_before_an_event(right: bool) -> tuple[Any, float]:
    stale(-1.0)
    with host_reads_wait(False):
        buffer = torch.zeros(N, pin_memory=True)
        done, copies = Event(), Stream()
        x = torch.ones(N, device="cuda") * 3
        copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copies):
            buffer.copy_(x, non_blocking=True)
            done.record()
        if right:
            done.synchronize()
        seen = buffer.clone()
        torch.cuda.synchronize()
        return seen, 3.0


def refill_a_pinned_buffer(right: bool) -> tuple[Any, float]:
    buffer = torch.full((N,), 5.0, pin_memory=True)
    done = Event()
    there = buffer.to("cuda", non_blocking=True)
    done.record()
    if right:
        done.synchronize()
    buffer.fill_(6.0)
    return there.cpu(), 5.0


def another_stream_without_waiting(right: bool) -> tuple[Any, float]:
    stale(-1.0)
    side = Stream()
    x = torch.ones(N, device="cuda") * 4
    if right:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = (x + 1).cpu()
    torch.cuda.synchronize()
    return y, 5.0


def back_without_waiting(right: bool) -> tuple[Any, float]:
    stale(-1.0)
    side = Stream()
    with torch.cuda.stream(side):
        x = torch.ones(N, device="cuda") * 4
    if right:
        torch.cuda.current_stream().wait_stream(side)
    y = (x + 1).cpu()
    torch.cuda.synchronize()
    return y, 5.0


def copy_up_on_a_side_stream(right: bool) -> tuple[Any, float]:
    stale(-1.0)
    source = torch.full((N,), 2.0, pin_memory=True)
    copies = Stream()
    with torch.cuda.stream(copies):
        x = source.to("cuda", non_blocking=True)
        ready = copies.record_event()
    if right:
        ready.wait()
    y = (x * 2).cpu()
    torch.cuda.synchronize()
    return y, 4.0


def freed_while_another_stream_uses_it(right: bool) -> tuple[Any, float]:
    side = Stream()
    x = torch.full((N,), 7.0, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        y = x + 1
    if right:
        x.record_stream(side)
    del x  # the main stream may have the block again at once
    z = torch.full((N,), -9.0, device="cuda")
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(side):
        found = y.cpu()
    del z
    return found, 8.0


def written_while_another_stream_reads(right: bool) -> tuple[Any, float]:
    side = Stream()
    x = torch.full((N,), 7.0, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        y = x + 1
    if right:
        torch.cuda.current_stream().wait_stream(side)
    x.fill_(-1.0)
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(side):
        return y.cpu(), 8.0


def gradient_of_a_side_stream(right: bool) -> tuple[Any, float]:
    stale(-1.0)
    side = Stream()
    w = torch.full((N,), 3.0, device="cuda", requires_grad=True)
    if right:
        side.wait_stream(torch.cuda.current_stream())
    else:
        w = (w.detach() + 0).requires_grad_()
    with torch.cuda.stream(side):
        (g,) = torch.autograd.grad((w * w).sum(), w)
        found = g.cpu()
    torch.cuda.synchronize()
    return found, 6.0


def event_recorded_too_early(right: bool) -> tuple[Any, float]:
    stale(-1.0)
    side, ready = Stream(), Event()
    x = torch.ones(N, device="cuda") * 2
    if not right:
        ready.record()
    x = x * 5
    if right:
        ready.record()
    with torch.cuda.stream(side):
        ready.wait()
        y = x.cpu()
    torch.cuda.synchronize()
    return y, 10.0


HAZARDS = [read_before_the_copy_ends, read_before_an_event, refill_a_pinned_buffer, another_stream_without_waiting,
           back_without_waiting, copy_up_on_a_side_stream, freed_while_another_stream_uses_it,
           written_while_another_stream_reads, gradient_of_a_side_stream, event_recorded_too_early]


def right(hazard: Callable[[bool], tuple[Any, float]], waits: bool) -> bool:
    found, expected = hazard(waits)
    return bool(found.eq(expected).all())


@pytest.mark.parametrize("hazard", HAZARDS)
def test_a_missing_wait_shows_in_a_lazy_queue(hazard: Any) -> None:
    with torch.simulate(gpus=1, memory="16MiB", queue="lazy"):
        assert not right(hazard, False)
        assert right(hazard, True)


@pytest.mark.parametrize("hazard", HAZARDS)
def test_a_missing_wait_shows_under_some_schedules(hazard: Any) -> None:
    found = set()
    for seed in range(60):
        with torch.simulate(gpus=1, memory="16MiB", queue="random", seed=seed):
            found.add(right(hazard, False))
            if False in found:
                return
    raise AssertionError("no schedule shows it")


@pytest.mark.parametrize("hazard", HAZARDS)
def test_the_correct_form_in_eager_queues(hazard: Any) -> None:
    with torch.simulate(gpus=1, memory="16MiB", queue="eager"):
        assert all(right(hazard, True) for _ in range(20))


@pytest.mark.parametrize("hazard", HAZARDS)
def test_the_correct_form_under_a_thousand_schedules(hazard: Any) -> None:
    for seed in range(1000):
        with torch.simulate(gpus=1, memory="16MiB", queue="random", seed=seed):
            assert right(hazard, True), seed


# ------------------------------------------------------- what the runtime itself waits for: with its waits taken away
def pipeline() -> tuple[Any, Any]:
    """Buffers dropped while copies still use them, several streams, both directions."""
    copies = Stream()
    found, expected = [], []
    for k in range(6):
        with torch.cuda.stream(copies):
            x = torch.full((N,), float(k), pin_memory=True).to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        x.record_stream(torch.cuda.current_stream())
        y = x * 2
        del x
        found.append(y)
        expected.append([2.0 * k] * N)
    copies.synchronize()
    there = [y.to("cpu", non_blocking=True) for y in found]
    return [f.tolist() for f in there], expected


def test_without_events_pinned_blocks_come_back_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.simulate(gpus=1, memory="16MiB", queue="lazy"):
        found, expected = pipeline()
        assert found == expected
        monkeypatch.setattr(HostPool, "used", lambda self, address, stream: None)
        found, expected = pipeline()
        assert found != expected


def test_without_record_stream_device_blocks_come_back_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.simulate(gpus=1, memory="16MiB", queue="lazy"):
        monkeypatch.setattr(Pool, "record_stream", lambda self, address, stream: None)
        found, expected = pipeline()
        assert found != expected


@pytest.mark.parametrize("queue", ["eager", "lazy"])
def test_the_pipeline_in_order(queue: str) -> None:
    with torch.simulate(gpus=1, memory="16MiB", queue=queue):
        for _ in range(20):
            found, expected = pipeline()
            assert found == expected


def test_the_pipeline_under_a_thousand_schedules() -> None:
    for seed in range(1000):
        with torch.simulate(gpus=1, memory="16MiB", queue="random", seed=seed):
            found, expected = pipeline()
            assert found == expected, seed


def test_staging_and_peers_under_a_thousand_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau._core.runtime import staging, transfers
    monkeypatch.setattr(transfers, "SMALL", 1000)
    monkeypatch.setattr(staging, "_LEAST", 4096)
    source = torch.arange(6000.0).reshape(60, 100)
    for seed in range(1000):
        with torch.simulate(gpus=2, memory="16MiB", queue="random", seed=seed):
            gpus.start()._ring = staging.Ring(gpus.start().driver, 4096, 3)
            x = source.t().to("cuda:0", torch.float64, non_blocking=True) + 1
            side = Stream(device="cuda:1")
            with torch.cuda.stream(side):
                y = x.to("cuda:1")
                z = (y * 2).to("cpu", torch.float32)
            assert z.equal((source.t() + 1) * 2), seed


def test_host_reads_wait_under_a_thousand_schedules() -> None:
    for seed in range(1000):
        with torch.simulate(gpus=1, memory="16MiB", queue="random", seed=seed):
            x = torch.ones(N, device="cuda") * 3
            y, z = x.to("cpu", non_blocking=True), (x + 1).to("cpu", non_blocking=True)
            assert float((y + z).sum()) == 7.0 * N, seed


def test_memory_of_another_gpu_is_an_error_not_a_wrong_value() -> None:
    with torch.simulate(gpus=2, model="RTX 4090", memory="16MiB", queue="lazy"):
        from flambeau._core.kernels.programs import PreparedLaunch
        from flambeau._core.runtime import dispatch
        far = torch.ones(4, device="cuda:1")
        dispatch.bind(torch.device("cuda:0"), PreparedLaunch("reads", lambda a: None))(far.ptr)
        with pytest.raises(torch.cuda.AcceleratorError, match="illegal memory access"):
            torch.cuda.synchronize(0)

"""The staging ring: cutting, packing, slots and their copies."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau._core.drivers.simulated.driver import SimulatedDriver
from flambeau._core.kernels.programs import PreparedLaunch, size_of
from flambeau._core.ops.copies import cast_program
from flambeau._core.runtime import gpus, staging, transfers
from flambeau._core.runtime.staging import Ring
from flambeau.simulated import clock

CPU = torch.device("cpu")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=0, max_size=4), st.integers(1, 60), st.data())
def test_blocks_cover_a_walk_in_order(shape: list[int], most: int, data: st.DataObject) -> None:
    strides = tuple(data.draw(st.integers(-3, 50)) for _ in shape)
    places: list[int] = []
    for sizes, offset, steps in staging.blocks(tuple(shape), strides, most):
        assert 1 <= size_of(sizes) <= most and len(sizes) == len(steps)
        grid = np.full(sizes, offset)
        for axis, step in enumerate(steps):
            grid += (np.arange(sizes[axis]) * step).reshape([-1 if k == axis else 1 for k in range(len(sizes))])
        places += grid.reshape(-1).tolist()
    whole = np.zeros(shape, dtype=int)
    for axis, step in enumerate(strides):
        whole += (np.arange(shape[axis]) * step).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    assert places == whole.reshape(-1).tolist()


def test_blocks_are_few() -> None:
    assert len(list(staging.blocks((4, 1 << 20), (1 << 20, 1), 1 << 20))) == 4
    assert len(list(staging.blocks((1 << 20, 4), (4, 1), 1 << 20))) == 4
    assert len(list(staging.blocks((1000, 1000), (1, 1000), 1 << 20))) == 1


@pytest.mark.parametrize("n", [0, 1, 7, 1000, staging._BY_THREADS - 1, staging._BY_THREADS, staging._BY_THREADS + 13, 3 << 20])
def test_move_is_memcpy(n: int) -> None:
    source = np.random.default_rng(n).integers(0, 256, n + 64, np.uint8)
    for a, b in ((0, 0), (8, 16), (1, 3), (5, 0)):
        target = np.zeros(n + 64, np.uint8)
        staging.move(target.ctypes.data + a, source.ctypes.data + b, n)
        assert (target[a:a + n] == source[b:b + n]).all() and not target[:a].any() and not target[a + n:].any()


def ring(slot: int = 4096, most: int = 3, queue: str = "lazy") -> tuple[Ring, SimulatedDriver, Any, int]:
    driver = SimulatedDriver(["H200"], 64 << 20, queue)
    return Ring(driver, slot, most), driver, driver.stream_create(0), driver.alloc(0, 16 << 20)


def test_slots_are_made_when_needed_kept_and_bounded() -> None:
    r, driver, stream, there = ring()
    assert r.made == 0
    data = np.arange(100_000, dtype=np.uint8)
    r.send(stream, there, staging.bytes_out(data.ctypes.data, 4096, 4096))
    assert r.made == 1
    r.send(stream, there, staging.bytes_out(data.ctypes.data, 100_000, 4096))
    assert r.made == r.pinned == 3
    assert staging.SLOT * staging.MOST_SLOTS == 64 << 20
    back = np.zeros_like(data)
    r.fetch(stream, there, staging.bytes_in(back.ctypes.data, 100_000, 4096))
    assert (back == data).all() and r.made == 3 and all(driver.is_pinned(a) for a, _ in r._free)


def test_a_slot_is_not_filled_again_before_its_copy_is_done() -> None:
    r, driver, stream, there = ring(most=1)
    ran: list[int] = []

    def fill(k: int) -> Any:
        def work(slot: int) -> None:
            ran.append(k)
            ctypes.memset(slot, k, 4096)
        return 4096, work
    r.send(stream, there, [fill(k) for k in (1, 2, 3)])
    assert not driver.stream_query(stream) and ran == [1, 2, 3]  # the last copy is still queued
    back = np.zeros(3 * 4096, np.uint8)
    r.fetch(stream, there, staging.bytes_in(back.ctypes.data, back.size, 4096))
    assert back.reshape(3, -1).tolist() == [[k] * 4096 for k in (1, 2, 3)]


def test_with_the_event_taken_away_the_copy_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    r, driver, stream, there = ring(most=1)
    give = r.give
    monkeypatch.setattr(r, "give", lambda address, event: give(address, None))
    data = np.repeat(np.arange(3, dtype=np.uint8), 4096)
    r.send(stream, there, staging.bytes_out(data.ctypes.data, data.size, 4096))
    back = np.zeros_like(data)
    driver.memcpy(stream, back.ctypes.data, there, back.size)
    driver.stream_synchronize(stream)
    assert not (back == data).all()


@pytest.mark.parametrize("where", ["fill", "empty", "queue"])
def test_a_failure_gives_the_slots_back(where: str) -> None:
    r, driver, stream, there = ring(most=2)

    def fail(slot: int) -> None:
        raise OverflowError("no")
    good = (4096, lambda slot: None)
    if where == "queue":
        def broken() -> None:
            raise OverflowError("no")
        driver.launch(stream, PreparedLaunch("broken", broken), ())
        with pytest.raises(RuntimeError, match="'broken' failed with OverflowError"):
            r.fetch(stream, there, [good] * 5)
    else:
        with pytest.raises(OverflowError):
            (r.send if where == "fill" else r.fetch)(stream, there, [good, good, (4096, fail), good])
    assert r.made <= 2 and len(r._free) == r.made
    data = np.arange(9000, dtype=np.uint8)
    back = np.zeros_like(data)
    r.send(stream, there, staging.bytes_out(data.ctypes.data, 9000, 4096))
    r.fetch(stream, there, staging.bytes_in(back.ctypes.data, 9000, 4096))
    assert (back == data).all()


def test_where_nothing_can_be_pinned_copies_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    r, driver, stream, there = ring()
    monkeypatch.setattr(driver, "host_alloc", lambda nbytes: 0)
    data = np.arange(50_000, dtype=np.uint8)
    back = np.zeros_like(data)
    r.send(stream, there, staging.bytes_out(data.ctypes.data, data.size, 4096))
    r.fetch(stream, there, staging.bytes_in(back.ctypes.data, back.size, 4096))
    assert (back == data).all() and (r.made, r.pinned) == (1, 0)


@pytest.mark.parametrize("queue", ["eager", "lazy", "random"])
def test_threads_share_few_slots(queue: str) -> None:
    r, driver, stream, there = ring(most=3, queue=queue)
    wrong: list[int] = []

    def work(k: int) -> None:
        own = driver.stream_create(0)
        rng = random.Random(k)
        for _ in range(20):
            n = rng.randrange(1, 60_000)
            data = np.random.default_rng(n).integers(0, 256, n, np.uint8)
            back = np.zeros_like(data)
            at = there + k * 65536
            r.send(own, at, staging.bytes_out(data.ctypes.data, n, 4096))
            r.fetch(own, at, staging.bytes_in(back.ctypes.data, n, 4096))
            if not (back == data).all():
                wrong.append(k)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    assert not wrong and r.made == 3 and len(r._free) == 3


def test_packing_and_casting_while_staging() -> None:
    r, _, stream, there = ring(slot=1000 * 4, most=2)
    x = torch.rand(70, 50)
    for view in (x, x.t(), x[::2, 5:], x[:1].expand(40, 50)):
        for d in (torch.float32, torch.float16, torch.bfloat16):
            shape = tuple(view.shape)
            r.send(stream, there, staging.elements_out(cast_program(torch.float32, d), shape, view.stride(), view.ptr, r.slot))
            back = torch.zeros(tuple(reversed(shape)), dtype=torch.float64).t()
            r.fetch(stream, there, staging.elements_in(cast_program(d, torch.float64), shape, back.stride(), back.ptr, r.slot))
            assert back.equal(view.to(d).double())


def test_pieces_overlap_and_are_not_tiny() -> None:
    r = Ring(SimulatedDriver(["H200"], 1 << 20))
    assert r.piece(1 << 30) == staging.SLOT and r.piece(100_000) == 256 << 10 and r.piece(4 << 20) == 1 << 20
    assert all(r.piece(n) % 4096 == 0 for n in (1, 300_001, 5_000_001))


def test_filling_overlaps_the_link_on_the_clock() -> None:
    """Staged copies take about what the link takes; plain ones what the driver's own single-threaded staging does."""
    with torch.simulate(gpus=1, memory="512MiB", queue="lazy"):
        n = 64 << 20
        x = torch.zeros(n // 4)
        g = gpus.gpu()

        def seconds(work: Any) -> float:
            torch.cuda.synchronize()
            before = clock()
            work()
            torch.cuda.synchronize()
            return clock() - before
        there = torch.empty(n // 4, device="cuda")
        pinned = x.pin_memory()
        plain = seconds(lambda: g.driver.memcpy(g.default_handle, there.ptr, x.ptr, n))
        staged = seconds(lambda: there.copy_(x))
        straight = seconds(lambda: there.copy_(pinned))
        assert straight < staged < plain / 2
        back = seconds(lambda: there.cpu())
        assert straight < back < plain / 2


def test_a_big_copy_takes_no_more_slots_than_there_may_be() -> None:
    with torch.simulate(gpus=1, memory="256MiB", queue="lazy"):
        x = torch.arange(20 << 20, dtype=torch.int32)
        there = x.to("cuda", non_blocking=True)
        r = gpus.start().ring
        assert r.made * r.slot == 64 << 20 and r.pinned == r.made
        back = there.cpu()
        assert back.equal(x) and r.made * r.slot == 64 << 20 and len(r._free) == r.made


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="this system does not show its mappings")
def test_a_simulation_gives_its_pinned_memory_back() -> None:
    def maps() -> int:
        gc.collect()
        with open("/proc/self/maps") as f:
            return sum(1 for _ in f)
    x = torch.rand(1 << 20)
    counts = []
    for _ in range(6):
        with torch.simulate(gpus=1, memory="16MiB", queue="lazy"):
            assert x.pin_memory().to("cuda", non_blocking=True).to("cpu", non_blocking=True).equal(x.cuda().cpu())
        counts.append(maps())
    assert max(counts[3:]) <= counts[2] + 2


def test_small_copies_skip_the_ring() -> None:
    with torch.simulate(gpus=1, memory="16MiB", queue="lazy"):
        for work in (lambda: torch.zeros(100).cuda(), lambda: torch.zeros(100, 100).t().to("cuda", torch.float16).cpu(),
                     lambda: torch.zeros(100).to("cuda", non_blocking=True).cpu()):
            work()
        assert gpus.start()._ring is None
        torch.zeros(transfers.SMALL).cuda()
        assert gpus.start()._ring is not None and gpus.start().ring.made > 0

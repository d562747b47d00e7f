"""Simulated GPUs below the runtime: memory, queues, errors, the clock."""

from __future__ import annotations

import ctypes
import gc
import random
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.drivers.interface import Driver
from flambeau._core.drivers.simulated import clock
from flambeau._core.drivers.simulated.arena import Arena
from flambeau._core.drivers.simulated.driver import SimulatedDriver
from flambeau._core.drivers.simulated.models import MODELS, model
from flambeau._core.drivers.simulated.reached import COPY, KERNEL, LAUNCH
from flambeau._core.errors import AcceleratorError
from flambeau._core.kernels.programs import PreparedLaunch
from flambeau.simulated import clock as simulated_clock

MIB = 1 << 20


def make(queue: str = "eager", gpus: int = 2, name: str = "H200", **options: Any) -> SimulatedDriver:
    return SimulatedDriver([name] * gpus, options.pop("memory", 64 * MIB), queue, **options)


def view(address: int, count: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def add_one(count: int) -> PreparedLaunch:
    def entry(out: int, x: int) -> None:
        np.add(view(x, count), 1, out=view(out, count))
    return PreparedLaunch("add_one", entry, nbytes=8 * count, flops=count)


def read(driver: Driver, stream: Any, address: int, count: int) -> Any:
    host = np.zeros(count, np.float32)
    driver.memcpy(stream, host.ctypes.data, address, host.nbytes)
    driver.stream_synchronize(stream)
    return host


@pytest.mark.parametrize("queue", ["eager", "lazy", "random"])
def test_work_of_a_stream_runs_in_order(queue: str) -> None:
    d = make(queue)
    s, n = d.stream_create(0), 1000
    a = d.alloc(0, 4 * n)
    host = np.arange(n, dtype=np.float32)
    d.memcpy(s, a, host.ctypes.data, host.nbytes)
    for _ in range(50):
        d.launch(s, add_one(n), (a, a))
    assert np.array_equal(read(d, s, a, n), host + 50)
    d.close()


def test_lazy_work_waits_for_somebody_to_wait() -> None:
    d = make("lazy")
    s = d.stream_create(0)
    ran: list[int] = []
    d.launch(s, PreparedLaunch("mark", lambda: ran.append(1)), ())
    time.sleep(0.02)
    assert ran == [] and not d.stream_query(s)
    d.stream_synchronize(s)
    assert ran == [1] and d.stream_query(s)


def test_lazy_queues_show_a_missing_wait_and_events_mend_it() -> None:
    for waits in (False, True):
        d = make("lazy")
        produce, consume, n = d.stream_create(0), d.stream_create(0), 16
        a, b = d.alloc(0, 4 * n), d.alloc(0, 4 * n)
        d.launch(produce, add_one(n), (a, a))
        if waits:
            e = d.event_create()
            d.event_record(e, produce)
            d.stream_wait_event(consume, e)
        d.launch(consume, add_one(n), (b, a))
        assert read(d, consume, b, n)[0] == (2 if waits else 1)


def test_random_schedules_repeat_by_seed_and_differ() -> None:
    def order(seed: int) -> list[int]:
        d = make("random", seed=seed)
        streams = [d.stream_create(0) for _ in range(3)]
        ran: list[int] = []
        for k in range(30):
            d.launch(streams[k % 3], PreparedLaunch("k", lambda k=k: ran.append(k)), ())
        d.synchronize(0)
        assert sorted(ran) == list(range(30))
        for r in range(3):
            assert [k for k in ran if k % 3 == r] == list(range(r, 30, 3))
        return ran
    runs = [order(seed) for seed in range(6)]
    assert runs == [order(seed) for seed in range(6)]
    assert len({tuple(r) for r in runs}) > 1


@pytest.mark.parametrize("queue", ["eager", "lazy", "random"])
def test_long_chains_of_waits_between_streams(queue: str) -> None:
    d = make(queue)
    a, b = d.stream_create(0), d.stream_create(1)
    x = d.alloc(0, 4)
    d.enable_peer(1, 0)
    for k in range(3000):
        here, other = (a, b) if k % 2 else (b, a)
        d.launch(here, add_one(1), (x, x))
        e = d.event_create()
        d.event_record(e, here)
        d.stream_wait_event(other, e)
    assert read(d, a, x, 1)[0] == 3000
    d.close()


def test_the_host_does_not_wait_for_eager_work() -> None:
    d = make()
    s, go = d.stream_create(0), threading.Event()
    d.launch(s, PreparedLaunch("slow", lambda: go.wait(10)), ())
    e = d.event_create()
    d.event_record(e, s)
    assert not d.event_query(e)
    go.set()
    d.event_synchronize(e)
    assert d.event_query(e)
    d.close()


def test_waiting_from_many_threads() -> None:
    d = make()
    s = d.stream_create(0)
    counts: list[int] = []

    def work() -> None:
        for _ in range(200):
            d.launch(s, PreparedLaunch("count", lambda: counts.append(len(counts))), ())
            d.stream_synchronize(s)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert counts == list(range(800))  # never two at a time, none lost
    d.close()


@pytest.mark.parametrize("queue", ["eager", "lazy"])
def test_an_error_shows_at_the_next_synchronisation_with_its_name(queue: str) -> None:
    d = make(queue)
    s = d.stream_create(0)
    ran: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError("by nought")
    d.launch(s, PreparedLaunch("divide", fail), ())
    d.launch(s, PreparedLaunch("after", lambda: ran.append(1)), ())
    with pytest.raises(AcceleratorError, match="'divide' failed with ZeroDivisionError: by nought") as caught:
        d.stream_synchronize(s)
    assert isinstance(caught.value.__cause__, ZeroDivisionError) and ran == []
    d.stream_synchronize(s)  # told once
    d.launch(s, PreparedLaunch("after", lambda: ran.append(2)), ())
    d.synchronize(0)
    assert ran == [2]
    d.close()


@pytest.mark.parametrize("where", ["host", "other"])
def test_memory_that_is_not_the_devices_own_kills_it(where: str) -> None:
    d = make("lazy")
    s, mine = d.stream_create(0), d.alloc(0, 64)
    host = np.zeros(16, np.float32)
    foreign = host.ctypes.data if where == "host" else d.alloc(1, 64)
    d.launch(s, add_one(16), (foreign, mine))
    for _ in range(2):  # sticky, as on hardware
        with pytest.raises(AcceleratorError, match="illegal memory access.*argument 0"):
            d.synchronize(0)
    assert host[0] == 0
    d.synchronize(1)


def test_pinned_memory_and_peers_are_reachable() -> None:
    d = make("lazy")
    s, mine = d.stream_create(0), d.alloc(0, 64)
    pinned, other = d.host_alloc(64), d.alloc(1, 64)
    d.enable_peer(0, 1)
    d.launch(s, add_one(16), (pinned, mine))
    d.launch(s, add_one(16), (other, pinned))
    assert read(d, s, other, 16)[0] == 2 and view(pinned, 16)[0] == 1
    assert d.is_pinned(pinned) and d.is_pinned(pinned + 63) and not d.is_pinned(other)
    d.host_free(pinned)
    assert not d.is_pinned(pinned)
    with pytest.raises(ValueError, match="host_free"):
        d.host_free(pinned)


def test_peer_access_is_a_matter_of_the_model() -> None:
    assert make(name="A100").can_access_peer(0, 1) and not make(name="A100").can_access_peer(1, 1)
    cards = make(name="RTX 4090")
    assert not cards.can_access_peer(0, 1)
    with pytest.raises(RuntimeError, match="peer access is not supported"):
        cards.enable_peer(0, 1)


def test_queues_end_with_their_driver() -> None:
    before = threading.active_count()
    for _ in range(5):
        d = make()
        s = d.stream_create(0)
        d.launch(s, PreparedLaunch("nothing", lambda: None), ())
        d.stream_synchronize(s)
    del d, s
    gc.collect()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_nothing_is_queued_after_the_end() -> None:
    d = make()
    s = d.stream_create(0)
    d.close()
    with pytest.raises(RuntimeError, match="simulate\\(\\) block has ended"):
        d.launch(s, PreparedLaunch("late", lambda: None), ())


# -------------------------------------------------------------------------------------------------------------- memory
def test_arena_against_a_model_of_it() -> None:
    rng, arena = random.Random(3), Arena(8 * MIB)
    blocks: dict[int, int] = {}
    for _ in range(2000):
        if blocks and rng.random() < 0.5:
            address = rng.choice(list(blocks))
            arena.free(address)
            del blocks[address]
        else:
            size = rng.choice([1, 100, 4096, 5000, 70_000, 2 * MIB])
            address = arena.alloc(size)
            taken = (size + 4095) & -4096
            if not address:
                assert arena.used + taken > arena.capacity
                continue
            assert address in arena and address % (2 * MIB if taken >= 2 * MIB else 4096) == 0
            assert all(address + taken <= a or a + n <= address for a, n in blocks.items())
            blocks[address] = taken
        assert arena.used == sum(blocks.values()) <= arena.capacity
    for address in blocks:
        arena.free(address)
    assert arena.used == 0 and arena._holes == [(arena.low, arena.high - arena.low)]
    with pytest.raises(ValueError, match="not the start of a block"):
        arena.free(arena.low)


def test_capacity_is_the_models_unless_told() -> None:
    d = SimulatedDriver(["H200", "T4"])
    assert d.memory_info(0) == (143771 * MIB, 143771 * MIB) and d.properties(1).total_memory == 15360 * MIB
    assert d.alloc(1, 15361 * MIB) == 0
    a = d.alloc(1, 15000 * MIB)  # only what is touched costs host memory
    assert a and d.memory_info(1)[0] == 360 * MIB
    d.free(1, a)
    assert d.memory_info(1)[0] == 15360 * MIB


# --------------------------------------------------------------------------------------------------------------- clock
def test_kernels_cost_the_longer_of_bytes_and_arithmetic() -> None:
    h = MODELS["H200"]
    assert clock.kernel_seconds(h, PreparedLaunch("add", print, nbytes=4_800_000_000)) == pytest.approx(1e-3 * 3.35 / 2.97)
    assert clock.kernel_seconds(h, PreparedLaunch("add", print)) == KERNEL
    assert clock.kernel_seconds(h, PreparedLaunch("matmul_float32", print, flops=67 * 10**9)) == pytest.approx(1e-3 / 0.830)
    half = clock.kernel_seconds(h, PreparedLaunch("matmul_bfloat16", print, flops=67 * 10**9))
    assert half == pytest.approx(67e9 / 989.5e12 / 0.830)
    assert clock.kernel_seconds(h, PreparedLaunch("matmul_float64", print, flops=67 * 10**9)) == pytest.approx(1e-3 / 0.830)


def test_copies_cost_their_path() -> None:
    h, card = MODELS["H200"], MODELS["RTX 4090"]
    gb = 10**9
    assert clock.copy_seconds(h, "h2d", gb, True) == pytest.approx(1 / 51 + COPY)
    assert clock.copy_seconds(h, "h2d", gb, False) == pytest.approx(1 / 8 + COPY)
    assert clock.copy_seconds(h, "d2d", gb, True) == pytest.approx(2 / 4800 * 3.35 / 2.90)
    assert clock.copy_seconds(h, "peer", gb, True, h) == pytest.approx(1 / 376 + COPY)
    assert clock.copy_seconds(card, "host", gb, True, card) == pytest.approx(1 / 25.5 + 1 / 26 + 2 * COPY)


def test_elapsed_time_is_the_work_between_two_events_whoever_runs_it() -> None:
    for queue in ("eager", "lazy"):
        d = make(queue)
        s = d.stream_create(0)
        start, end = d.event_create(True), d.event_create(True)
        d.event_record(start, s)
        for _ in range(10):
            d.launch(s, PreparedLaunch("big", lambda: None, nbytes=round(4_800_000_000 * 2.97 / 3.35)), ())
        d.event_record(end, s)
        d.event_synchronize(end)
        # ten milliseconds, and the host's first call
        assert d.event_elapsed(start, end) == pytest.approx(10 + LAUNCH * 1e3, rel=1e-6)
        assert d.host_time() >= 0.01
        d.close()


def test_devices_overlap_on_the_clock_and_waits_order_them() -> None:
    d = make("lazy")
    a, b = d.stream_create(0), d.stream_create(0)
    big = PreparedLaunch("big", lambda: None, nbytes=round(4_800_000_000 * 2.97 / 3.35))
    d.launch(a, big, ())
    d.launch(b, big, ())
    assert d.device_time(0) == pytest.approx(2e-3, abs=2e-5)  # each fills the GPU
    other = d.stream_create(1)
    d.launch(other, big, ())
    assert d.device_time(1) == pytest.approx(1e-3, abs=5e-5)  # another GPU is idle
    e = d.event_create(True)
    d.event_record(e, b)
    d.stream_wait_event(other, e)
    d.launch(other, big, ())
    assert d.device_time(1) == pytest.approx(3e-3, abs=5e-5)


def test_models_are_found_by_any_spelling() -> None:
    assert model("rtx4090") is model("NVIDIA GeForce RTX 4090") is model("4090") is MODELS["RTX 4090"]
    assert {model(name).name for name in MODELS} == set(MODELS)
    with pytest.raises(ValueError, match="choose one of T4, A100"):
        model("V9000")
    with pytest.raises(ValueError, match="queue: expected one of 'eager', 'lazy', 'random', got 'busy'"):
        make("busy")


# -------------------------------------------------------------------------------------------------- products of 16 bits
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_products_of_halves_are_one_launch_with_the_price_of_their_type(name: str) -> None:
    """Whatever the CPU has for them: the numbers of a CPU tensor's product, the time of a GPU's."""
    from flambeau._core.runtime import dispatch
    d = getattr(torch, name)
    torch.manual_seed(0)
    x, w, b = (torch.randn(*shape).to(d) for shape in ((40, 64), (24, 64), (24,)))
    batch, other = torch.randn(3, 20, 32).to(d), torch.randn(3, 32, 8).to(d)
    want = torch.nn.functional.linear(x, w, b), x @ w.t(), batch @ other, torch.addmm(b.expand(40, 24), x, w.t())
    with torch.simulate(1, "H200"):
        seen: list[str] = []
        given = [t.cuda() for t in (x, w, b, batch, other)]
        with dispatch.observe(lambda dev, stream, prepared, args: seen.append(prepared.name), lambda copy: None, lambda wait: None):
            p, q, r, left, right = given
            found = torch.nn.functional.linear(p, q, r), p @ q.t(), left @ right, torch.addmm(r.expand(40, 24), p, q.t())
        assert all(s in (f"matmul_{name}", "to", "bias", "clone", "copy") or "map" in s for s in seen) and seen.count(f"matmul_{name}") == 4, seen
        for f, t in zip(found, want, strict=True):
            torch.testing.assert_close(f.cpu(), t, rtol=2 ** -7, atol=2 ** -7)
        large = torch.empty(2048, 2048, device="cuda", dtype=d)
        torch.cuda.synchronize()
        begun = simulated_clock()
        large @ large
        torch.cuda.synchronize()
        # 128 tiles of 128 x 256 on 132 multiprocessors
        turn = 2 * 128 * 256 * 2048 / (989.5e12 * 0.830 / 132)
        assert simulated_clock() - begun == pytest.approx(turn + 5.8e-6 + LAUNCH, rel=1e-6)


def test_a_finalizer_that_waits_for_the_item_it_interrupts_is_told() -> None:
    from flambeau._core.drivers.simulated.queues import Queue
    told: list[str] = []

    def carry_out(device: int, item: Any) -> None:
        try:
            queue.step()  # as a finalizer that reads a value of this stream would
        except RuntimeError as error:
            told.append(str(error))
    queue = Queue(0, 0, carry_out)
    queue.items.append(SimpleNamespace(queue=None, ticket=0))
    assert queue.step() is None and queue.done == 1 and "finalizer" in told[0]
    assert queue.step() is None and not queue.items

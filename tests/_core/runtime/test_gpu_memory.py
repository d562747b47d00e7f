"""The caching allocator of a GPU, its out-of-memory ladder, and memory shared between streams."""

from __future__ import annotations

import ctypes
import gc
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.drivers.simulated.driver import SimulatedDriver
from flambeau._core.errors import OutOfMemoryError
from flambeau._core.kernels.programs import PreparedLaunch
from flambeau._core.runtime.gpu_memory import Pool, block_size, rounded

MIB = 1 << 20


def make(memory: int = 32 * MIB, queue: str = "lazy") -> tuple[Pool, Any, Any]:
    driver = SimulatedDriver(["H200"], memory, queue)
    return Pool(driver, 0, 0, "test"), driver.stream_create(0), driver.stream_create(0)


def test_sizes() -> None:
    assert [rounded(n) for n in (0, 1, 512, 513, 4_000_000)] == [512, 512, 512, 1024, 4_000_256]
    for n in (*range(1, 5000, 7), *(2 ** k + d for k in range(9, 34) for d in (-1, 0, 1))):
        assert rounded(n) <= block_size(n) <= (rounded(n) * 1.26 if n <= MIB else n * 1.13 + 2 * MIB)
        assert block_size(n) % (512 if n <= MIB else 2 * MIB) == 0


def test_a_block_is_used_again_on_its_stream_at_once() -> None:
    pool, a, b = make()
    for n in (0, 100, 3000, 5 * MIB):
        address, free = pool.take(a, n)
        free.append(address)
        assert pool.take(a, n)[0] == address
    address, free = pool.take(a, 100)
    free.append(address)
    assert pool.take(b, 100)[0] != address


@pytest.mark.parametrize("seed", range(4))
def test_against_a_model_of_it(seed: int) -> None:
    pool, *streams = make(64 * MIB)
    rng = random.Random(seed)
    living: dict[int, tuple[int, Any]] = {}
    peak = total = 0
    for _ in range(3000):
        if living and rng.random() < 0.52:
            address = rng.choice(list(living))
            n, free = living.pop(address)
            free.append(address)
            total -= rounded(n)
        else:
            n = rng.choice([0, 1, 600, 5000, 100_000, MIB, 3 * MIB, 5 * MIB])
            try:
                address, free = pool.take(rng.choice(streams), n)
            except OutOfMemoryError:
                assert total > 16 * MIB  # rounding and stream ownership cost, but not this much
                continue
            assert address not in living and address % 512 == 0
            living[address] = n, free
            total += rounded(n)
            peak = max(peak, total)
        if rng.random() < 0.02:
            pool.empty_cache()
    spans = sorted((a, a + block_size(n)) for a, (n, _) in living.items())
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    assert pool.current("allocated_bytes") == total and pool.peak("allocated_bytes") == peak
    assert pool.current("reserved_bytes") == pool.driver._devices[0].memory.used  # type: ignore[attr-defined]
    for address, (_, free) in living.items():
        free.append(address)
    pool.empty_cache()
    assert pool.current("allocated_bytes") == 0 == pool.current("reserved_bytes") == pool.current("segment")


def test_the_ladder_gives_the_cache_back_before_it_fails() -> None:
    pool, a, _ = make(16 * MIB)
    address, free = pool.take(a, 10 * MIB)
    free.append(address)
    pool.take(a, 14 * MIB)
    assert pool.stats()["num_alloc_retries"] == 1 and pool.stats()["num_ooms"] == 0


def test_the_ladder_takes_another_streams_block_behind_its_work() -> None:
    pool, a, b = make(16 * MIB)
    address, free = pool.take(a, 10 * MIB)
    ran: list[str] = []
    pool.driver.launch(a, PreparedLaunch("first", lambda: ran.append("a")), ())
    free.append(address)
    again, _ = pool.take(b, 10 * MIB)
    assert again == address and ran == []  # nobody waited on the host
    pool.driver.launch(b, PreparedLaunch("second", lambda: ran.append("b")), ())
    pool.driver.stream_synchronize(b)
    assert ran == ["a", "b"]


def test_the_ladder_collects_garbage() -> None:
    pool, a, _ = make(16 * MIB)

    class Holder:
        def __init__(self) -> None:
            self.me = self
            self.address, self.free = pool.take(a, 14 * MIB)

        def __del__(self) -> None:
            self.free.append(self.address)
    gc.disable()
    try:
        Holder()
        pool.take(a, 14 * MIB)
    finally:
        gc.enable()


def test_the_ladder_waits_for_streams_that_still_use_a_block() -> None:
    pool, a, b = make(16 * MIB)
    address, free = pool.take(a, 14 * MIB)
    ran: list[int] = []
    pool.driver.launch(b, PreparedLaunch("reader", lambda: ran.append(1)), ())
    pool.record_stream(address, b)
    free.append(address)
    assert pool.take(a, 14 * MIB)[0] == address and ran == [1]


def test_record_stream_keeps_a_block_until_that_streams_work_is_done() -> None:
    pool, a, b = make()
    address, free = pool.take(a, 5 * MIB)
    pool.driver.launch(b, PreparedLaunch("reader", lambda: None), ())
    pool.record_stream(address, b)
    free.append(address)
    other, back = pool.take(a, 5 * MIB)
    assert other != address and pool.stats()["pending_bytes.all.current"] == 6 * MIB
    back.append(other)
    pool.driver.stream_synchronize(b)
    assert {pool.take(a, 5 * MIB)[0], pool.take(a, 5 * MIB)[0]} == {address, other}


@pytest.mark.parametrize("queue", ["eager", "lazy"])
def test_threads_and_streams_to_the_limit(queue: str) -> None:
    """A quarter of a million operations (as many in the other queue mode, and by `test_pinned_memory`): marks are written
    and checked by work on the streams themselves, now and then on another stream than the block's own."""
    limit = 48 * MIB
    pool, *_ = make(limit, queue)
    driver = pool.driver
    wrong: list[str] = []
    ooms = [0]

    def write(address: int, n: int, mark: int) -> None:
        ctypes.c_uint32.from_address(address).value = mark
        ctypes.c_uint32.from_address(address + n - 4).value = mark

    def check(address: int, n: int, mark: int) -> None:
        if not ctypes.c_uint32.from_address(address).value == mark == ctypes.c_uint32.from_address(address + n - 4).value:
            wrong.append("overwritten")
    put, look = PreparedLaunch("write", write), PreparedLaunch("check", check)
    side = driver.stream_create(0)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        stream = driver.stream_create(0)
        held: list[tuple[int, int, int, Any]] = []
        full = 0
        for k in range(62_500):
            if k % 2500 == 0:
                full = 30 if full > 30 else 250
            if held and (len(held) > full or rng.random() < 0.5):
                address, n, mark, b = held.pop(rng.randrange(len(held)))
                if k % 50 == 0:
                    event = driver.event_create()
                    driver.event_record(event, stream)
                    driver.stream_wait_event(side, event)
                    driver.launch(side, look, (address, n, mark))
                    pool.record_stream(address, side)
                elif k % 5 == 0:
                    driver.launch(stream, look, (address, n, mark))
                b.append(address)
            else:
                n = rng.choice((4, 100, 512, 3000, 20_000)) if k % 20 else rng.choice((MIB, 3 * MIB, 5 * MIB))
                try:
                    address, b = pool.take(stream, n)
                except OutOfMemoryError:
                    ooms[0] += 1
                    full = len(held) // 2
                    continue
                mark = seed << 24 | k
                driver.launch(stream, put, (address, n, mark))
                held.append((address, n, mark, b))
        for address, n, mark, b in held:
            driver.launch(stream, look, (address, n, mark))
            b.append(address)
        driver.stream_synchronize(stream)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    driver.synchronize(0)
    assert not wrong and ooms[0] == pool.ooms > 0 and pool.meters["reserved_bytes"].peak > 0.9 * limit
    stats = pool.stats()
    assert stats["allocation.all.current"] == stats["allocated_bytes.all.current"] == stats["pending_bytes.all.current"] == 0
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] > 100_000
    pool.empty_cache()
    assert pool.current("reserved_bytes") == 0 == driver._devices[0].memory.used  # type: ignore[attr-defined]


@pytest.fixture
def gpu() -> Iterator[None]:
    with torch.simulate(gpus=2, memory="64MiB"):
        yield


def test_out_of_memory_is_an_error_with_sizes_and_can_be_recovered_from(gpu: None) -> None:
    kept = torch.ones(8 * MIB // 4, device="cuda")
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        torch.ones(100 * MIB // 4, device="cuda")
    e = caught.value
    assert isinstance(e, RuntimeError) and (e.requested, e.total, e.allocated) == (100 * MIB, 64 * MIB, 8 * MIB)
    assert "Tried to allocate 100.00 MiB" in str(e) and "Tensors hold 8.00 MiB" in str(e) and "simulated" in str(e)
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    more = torch.ones(20 * MIB // 4, device="cuda")
    assert (more + 1).narrow(0, 0, 2).tolist() == [2.0, 2.0] == (kept + 1).narrow(0, 5, 2).tolist()
    assert torch.ones(50 * MIB // 4, device="cuda:1").device.index == 1  # each has its own


def test_statistics_of_tensors(gpu: None) -> None:
    c = torch.cuda
    assert c.memory_allocated() == 0
    x = torch.empty(1000, device="cuda")
    assert c.memory_allocated() == 4096 == c.max_memory_allocated() and c.memory_reserved() == 2 * MIB
    y = x + 1
    del x, y
    assert c.memory_allocated() == 0 and c.max_memory_allocated() == 8192 and c.memory_reserved() == 2 * MIB
    c.reset_peak_memory_stats()
    assert c.max_memory_allocated() == 0
    c.empty_cache()
    assert c.memory_reserved() == 0 and c.mem_get_info() == (64 * MIB, 64 * MIB) and c.max_memory_reserved() == 2 * MIB
    assert "64.00 MiB free of 64.00 MiB" in c.memory_summary() and c.memory_allocated(1) == 0


def test_the_fraction_limits(gpu: None) -> None:
    torch.cuda.set_per_process_memory_fraction(0.25)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(20 * MIB, device="cuda", dtype=torch.uint8)
    torch.empty(16 * MIB, device="cuda", dtype=torch.uint8)
    with pytest.raises(TypeError):
        torch.cuda.set_per_process_memory_fraction(1)
    with pytest.raises(ValueError, match="0 to 1"):
        torch.cuda.set_per_process_memory_fraction(1.5)


def test_many_threads(gpu: None) -> None:
    wrong: list[Any] = []

    def work(k: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(100):
                x = torch.full((1000 * (i % 5) + 1,), float(k), device="cuda")
                y = x + 1
                if y.tolist() != [k + 1.0] * len(y.tolist()):
                    wrong.append((k, i))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert wrong == [] and torch.cuda.memory_allocated() == 0


def test_what_has_been_done_before_is_served_by_the_bins_own_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, a, _ = make(64 * MIB)
    slow: list[int] = []
    take = pool._take

    def counted(stream: Any, nbytes: int) -> Any:
        slow.append(nbytes)
        return take(stream, nbytes)
    monkeypatch.setattr(pool, "_take", counted)

    def step() -> int:
        slow.clear()
        held = [pool.take(a, n) for n in (100, 5000, 3 * MIB, 100, 600)]
        for _ in range(3):
            address, back = pool.take(a, MIB)
            held.append(pool.take(a, 513))
            back.append(address)
        while held:
            address, back = held.pop(0)
            back.append(address)
        return len(slow)
    for _ in range(6):
        step()
    assert step() == 0


def test_peaks_of_what_goes_out_again() -> None:
    pool, a, _ = make(64 * MIB)
    address, back = pool.take(a, 10 * MIB)
    back.append(address)
    held = pool.take(a, 5 * MIB)
    assert pool.peak("allocated_bytes") == 10 * MIB and pool.current("allocated_bytes") == 5 * MIB
    again = pool.take(a, 10 * MIB)  # from the bin's own list
    assert again[0] == address and pool.peak("allocated_bytes") == 15 * MIB and pool.peak("allocation") == 2
    back.append(address)
    pool.reset_peaks()
    assert pool.peak("allocated_bytes") == 5 * MIB
    for _ in range(3):
        one, two = pool.take(a, 4 * MIB), pool.take(a, 3 * MIB)
        one[1].append(one[0])
        two[1].append(two[0])
    assert pool.peak("allocated_bytes") == 12 * MIB
    stats = pool.stats()
    assert stats["allocation.all.allocated"] == 9 and stats["allocation.all.freed"] == 8
    assert stats["allocated_bytes.all.allocated"] == (10 + 5 + 10 + 3 * 7) * MIB
    held[1].append(held[0])
    assert pool.current("allocation") == 0

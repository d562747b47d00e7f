"""The pool of page-locked host memory: reuse behind events, its bound, its statistics."""

from __future__ import annotations

import ctypes
import random
import threading
import time
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.drivers.simulated.driver import SimulatedDriver
from flambeau._core.kernels.programs import PreparedLaunch
from flambeau._core.runtime.gpu_memory import block_size
from flambeau._core.runtime.pinned_memory import HostPool

MIB = 1 << 20


def make(queue: str = "lazy") -> tuple[HostPool, SimulatedDriver, Any]:
    driver = SimulatedDriver(["H200"], 32 * MIB, queue)
    return HostPool(driver), driver, driver.stream_create(0)


def test_blocks_are_pinned_aligned_and_used_again() -> None:
    pool, driver, _ = make()
    for n in (0, 1, 4000, 100_000, MIB, 5 * MIB):
        address, b = pool.block(n)
        assert address % 512 == 0 and driver.is_pinned(address) and driver.is_pinned(address + max(n, 1) - 1)
        b.append(address)
        assert pool.block(n)[0] == address


def test_a_block_waits_for_the_copies_that_use_it() -> None:
    pool, driver, stream = make()
    there = driver.alloc(0, 4096)
    address, b = pool.block(4096)
    driver.memcpy(stream, there, address, 4096)
    pool.used(address + 100, stream)  # any address of it
    b.append(address)
    other, c = pool.block(4096)
    assert other != address and pool.stats()["active_requests.current"] == 2
    driver.stream_synchronize(stream)
    assert pool.stats()["active_requests.current"] == 1
    assert pool.block(4096)[0] == address
    c.append(other)
    assert pool.block(4096)[0] == other  # nothing used it
    pool.used(0x10, stream)  # no block of this pool's: nothing to remember
    assert not pool.used_by


def test_work_of_several_streams_and_later_work_of_them() -> None:
    pool, driver, a = make()
    b = driver.stream_create(0)
    address, where = pool.block(64)
    for s in (a, b, a):
        pool.used(address, s)
    ran: list[str] = []
    for s in (a, b):
        driver.launch(s, PreparedLaunch("work", lambda: ran.append("x")), ())
    where.append(address)
    assert pool.block(64)[0] != address
    driver.stream_synchronize(a)
    assert pool.block(64)[0] != address and ran == ["x"]
    driver.stream_synchronize(b)
    assert pool.block(64)[0] == address


def test_the_bound_keeps_what_was_used_last() -> None:
    pool, _, _ = make()
    pool.bound = 20 * MIB
    blocks = [pool.block(6 * MIB) for _ in range(5)]
    for address, b in blocks:
        b.append(address)
    pool.settle()
    assert pool.unused() == 18 * MIB and pool.stats()["num_host_free"] == 2
    assert {pool.block(6 * MIB)[0] for _ in range(3)} == {a for a, _ in blocks[2:]}
    pool.bound = 0
    address, b = pool.block(100)
    b.append(address)
    pool.settle()
    assert pool.unused() == 0


def test_the_ladder_when_the_system_gives_no_more() -> None:
    pool, driver, stream = make()
    pool.limit = 16 * MIB
    first, b = pool.block(10 * MIB)
    there = driver.alloc(0, 10 * MIB)
    driver.memcpy(stream, there, first, 10 * MIB)
    pool.used(first, stream)
    b.append(first)
    assert pool.block(10 * MIB)[0] == first  # waited for the copy
    with pytest.raises(RuntimeError, match=r"cannot pin 8.00 MiB of host memory.*10.00 MiB of pinned memory are in use"):
        pool.block(8 * MIB)
    b.append(first)
    assert pool.block(14 * MIB)[0] and pool.meters["reserved_bytes"].current == 14 * MIB  # gave the first back


def test_statistics_by_name() -> None:
    with torch.simulate(gpus=1, memory="16MiB", queue="lazy"):
        assert torch.cuda.host_memory_stats() == {}
        torch.cuda.init()
        assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == 0
        x, y = torch.empty(100, pin_memory=True), torch.empty(MIB, pin_memory=True)
        stats = torch.cuda.host_memory_stats()
        assert (stats["active_requests.current"], stats["active_bytes.current"]) == (2, 512 + 4 * MIB)
        assert (stats["allocations.current"], stats["allocated_bytes.current"]) == (2, 6 * MIB)
        assert stats["num_host_alloc"] == stats["host_alloc_time.count"] == 2 and stats["num_host_free"] == 0
        assert stats["host_alloc_time.max"] >= stats["host_alloc_time.avg"] >= stats["host_alloc_time.min"] >= 0
        del x, y
        stats = torch.cuda.host_memory_stats()
        assert (stats["active_bytes.current"], stats["active_bytes.peak"]) == (0, 512 + 4 * MIB)
        assert stats["allocated_bytes.current"] == 6 * MIB
        torch.accelerator.empty_host_cache()
        torch.cuda.reset_peak_host_memory_stats()
        stats = torch.cuda.host_memory_stats()
        assert stats["allocated_bytes.current"] == stats["active_bytes.peak"] == 0 and stats["num_host_free"] == 2
        assert stats["active_requests.allocated"] == stats["active_requests.freed"] == 2
        torch.cuda.reset_accumulated_host_memory_stats()
        stats = torch.cuda.host_memory_stats()
        assert stats["active_requests.allocated"] == stats["allocations.freed"] == stats["num_host_alloc"] == 0
        assert torch.cuda.set_host_cache_bound(0) > MIB
        torch.empty(100, pin_memory=True)
        assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == 0
        with pytest.raises(ValueError, match="set_host_cache_bound: expected a number of bytes"):
            torch.cuda.set_host_cache_bound(-1)


def test_every_factory_takes_pin_memory() -> None:
    like = torch.zeros(2, 3)
    made = {
        "empty": lambda **k: torch.empty(2, 3, **k), "zeros": lambda **k: torch.zeros(2, 3, **k),
        "ones": lambda **k: torch.ones(2, 3, **k), "full": lambda **k: torch.full((2, 3), 7.0, **k),
        "rand": lambda **k: torch.rand(2, 3, **k), "randn": lambda **k: torch.randn(2, 3, **k),
        "randint": lambda **k: torch.randint(3, (2, 3), dtype=torch.float32, **k),
        "randperm": lambda **k: torch.randperm(6, dtype=torch.float32, **k), "normal": lambda **k: torch.normal(0.0, 1.0, (2, 3), **k),
        "arange": lambda **k: torch.arange(6.0, **k), "linspace": lambda **k: torch.linspace(0, 1, 6, **k),
        "tensor": lambda **k: torch.tensor([1.0, 2.0], **k), "scalar_tensor": lambda **k: torch.scalar_tensor(3.0, **k),
        "empty_strided": lambda **k: torch.empty_strided((2, 3), (1, 2), **k),
        "empty_permuted": lambda **k: torch.empty_permuted((2, 3), (1, 0), **k),
        "empty_like": lambda **k: torch.empty_like(like, **k), "zeros_like": lambda **k: torch.zeros_like(like, **k),
        "ones_like": lambda **k: torch.ones_like(like, **k), "full_like": lambda **k: torch.full_like(like, 2.0, **k),
        "rand_like": lambda **k: torch.rand_like(like, **k), "randn_like": lambda **k: torch.randn_like(like, **k),
        "randint_like": lambda **k: torch.randint_like(like, 5, **k), "new_empty": lambda **k: like.new_empty(2, 3, **k),
        "new_zeros": lambda **k: like.new_zeros(2, 3, **k), "new_ones": lambda **k: like.new_ones(2, 3, **k),
        "new_full": lambda **k: like.new_full((2, 3), 1.0, **k),
        "new_empty_strided": lambda **k: like.new_empty_strided((2, 3), (3, 1), **k),
    }
    with torch.simulate(gpus=1, memory="16MiB"):
        for name, factory in made.items():
            t = factory(pin_memory=True, requires_grad=True)
            assert t.is_pinned() and t.is_leaf and t.requires_grad and not factory().is_pinned(), name
            if not name.startswith(("empty", "new_empty", "rand", "normal")):
                assert t.equal(factory()), name
            with pytest.raises(RuntimeError, match="cannot pin 'cuda:0' memory"):
                factory(pin_memory=True, device="cuda")
    with torch.simulate(gpus=0):
        for factory in made.values():
            with pytest.raises(RuntimeError, match="no CUDA GPU"):
                factory(pin_memory=True)


def test_pinned_tensors_outlive_their_simulation() -> None:
    with torch.simulate(gpus=1, memory="16MiB"):
        x = torch.arange(100.0).pin_memory()
        a = x.numpy()
    assert x.tolist() == list(range(100)) and not x.is_pinned()
    del x
    assert a.tolist() == list(range(100))


def stamp(address: int, nbytes: int, mark: int) -> None:
    ctypes.c_uint32.from_address(address).value = mark
    ctypes.c_uint32.from_address(address + nbytes - 4).value = mark


def stamped(address: int, nbytes: int, mark: int) -> bool:
    return ctypes.c_uint32.from_address(address).value == mark == ctypes.c_uint32.from_address(address + nbytes - 4).value


@pytest.mark.parametrize("queue", ["eager", "lazy"])
def test_threads_and_streams_to_the_limit(queue: str) -> None:
    """A quarter of a million operations (as many in the other queue mode, and by `test_gpu_memory`): each block keeps its
    holder's mark, whoever else takes and gives meanwhile, and a copy that was queued before its block went back brings what the block held then."""
    pool, driver, _ = make(queue)
    limit = pool.limit = 48 * MIB
    wrong: list[str] = []
    ooms = [0]

    def work(seed: int) -> None:
        rng = random.Random(seed)
        stream = driver.stream_create(0)
        there = driver.alloc(0, 4096)
        held: list[tuple[int, int, int, Any]] = []
        full = 0
        for k in range(62_500):
            if k % 2500 == 0:
                full = 30 if full > 30 else 250
            if held and (len(held) > full or rng.random() < 0.5):
                address, n, mark, b = held.pop(rng.randrange(len(held)))
                if not stamped(address, n, mark):
                    wrong.append("overwritten")
                if k % 50 == 0:
                    driver.memcpy(stream, there, address, 4)
                    pool.used(address, stream)
                    b.append(address)
                    if k % 500 == 0:
                        seen = ctypes.c_uint32()
                        driver.memcpy(stream, ctypes.addressof(seen), there, 4)
                        driver.stream_synchronize(stream)
                        if seen.value != mark:
                            wrong.append("read late")
                else:
                    b.append(address)
            else:
                n = rng.choice((4, 100, 512, 3000, 20_000)) if k % 20 else rng.choice((MIB, 3 * MIB, 5 * MIB))
                try:
                    address, b = pool.block(n)
                except RuntimeError:
                    ooms[0] += 1
                    full = len(held) // 2
                    continue
                mark = seed << 24 | k
                stamp(address, n, mark)
                held.append((address, n, mark, b))
        for address, _, _, b in held:
            b.append(address)
        driver.stream_synchronize(stream)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not wrong and ooms[0] and pool.meters["reserved_bytes"].peak > 0.9 * limit
    stats = pool.stats()
    assert stats["active_requests.current"] == stats["active_bytes.current"] == 0 and stats["allocated_bytes.peak"] <= limit
    assert stats["active_requests.allocated"] == stats["active_requests.freed"] > 100_000
    pool.empty_cache()
    assert pool.stats()["allocated_bytes.current"] == 0 == len(driver._pinned)


@pytest.mark.parametrize("seed", range(3))
def test_against_a_model_of_it(seed: int) -> None:
    pool, driver, stream = make()
    rng = random.Random(seed)
    living: dict[int, tuple[int, Any]] = {}
    total = peak = 0
    for _ in range(3000):
        if living and rng.random() < 0.5:
            address = rng.choice(list(living))
            n, b = living.pop(address)
            b.append(address)
            total -= block_size(n)
        else:
            n = rng.choice([0, 1, 600, 5000, 100_000, MIB, 3 * MIB])
            address, b = pool.block(n)
            assert address not in living
            living[address] = n, b
            total += block_size(n)
            peak = max(peak, total)
    spans = sorted((a, a + block_size(n)) for a, (n, _) in living.items())
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    stats = pool.stats()
    assert (stats["active_bytes.current"], stats["active_bytes.peak"]) == (total, peak)
    assert stats["active_requests.current"] == len(living)
    assert stats["allocated_bytes.current"] == sum(end - start for start, end in driver._pinned)


def test_pinning_is_not_slow() -> None:
    pool, _, _ = make()
    address, b = pool.block(1000)
    b.append(address)
    since = time.perf_counter()
    for _ in range(10_000):
        address, b = pool.block(1000)
        b.append(address)
    assert time.perf_counter() - since < 1.0

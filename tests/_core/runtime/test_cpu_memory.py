"""The CPU's caching allocator."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
import threading
from typing import Any

import pytest

from flambeau._core.runtime import cpu_memory as memory


def test_classes_fit_tightly() -> None:
    sizes = [c.size for c in memory._small]
    assert sizes == sorted(set(sizes)) and sizes[0] == 64 and sizes[-1] == memory.SMALL
    assert all(s % 64 == 0 for s in sizes)
    for n in (*range(20000), *range(memory.SMALL - 3000, memory.SMALL + 1),
              *(2 ** k + d for k in range(20) for d in (-1, 0, 1))):
        if n > memory.SMALL:
            continue
        got = memory.size_class(n).size
        assert got == min(s for s in sizes if s >= n)
    for n in (memory.SMALL + 1, 10**7, 2**30, 2**30 + 1, 12345678901):
        assert n <= memory.large_size(n) <= n * 1.13 + 4096 and memory.large_size(n) % 4096 == 0


@pytest.mark.parametrize("seed", range(4))
def test_living_blocks_are_aligned_and_never_overlap(seed: int) -> None:
    rng = random.Random(seed)
    living: dict[int, tuple[int, Any, int]] = {}
    for step in range(3000):
        if living and rng.random() < 0.5:
            address = rng.choice(list(living))
            n, free, mark = living.pop(address)
            for at in (0, n - 1):
                assert ctypes.c_ubyte.from_address(address + at).value == mark  # nobody else wrote here
            free.append(address)
        else:
            n = rng.choice([1, 8, 64, 65, 1000, 4097, 100_000, memory.SMALL, memory.SMALL + 1, 3_000_000])
            address, free = memory.block(n)
            assert address % memory.ALIGN == 0 and address not in living
            mark = step % 256
            for at in (0, n - 1):
                ctypes.c_ubyte.from_address(address + at).value = mark
            living[address] = n, free, mark
    spans = sorted((a, a + n) for a, (n, _, _) in living.items())
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    for address, (_, free, _) in living.items():
        free.append(address)


@pytest.mark.parametrize("n", [0, 1, 4096, 5_000_000])
def test_what_is_given_back_is_used_again(n: int) -> None:
    address, free = memory.block(n)
    assert address
    free.append(address)
    again, free = memory.block(n)
    assert again == address
    free.append(again)


@pytest.mark.parametrize("one", [8 << 20, 32 << 20])
def test_large_blocks_are_kept_up_to_a_bound(one: int) -> None:
    memory.empty_cache()
    before = memory.set_cache_bound(one * 5 // 2)
    try:
        start = memory.stats()["reserved_bytes"]
        blocks = [memory.block(one) for _ in range(5)]
        assert memory.stats()["reserved_bytes"] == start + 5 * one
        for address, free in blocks:
            free.append(address)
        assert memory.stats()["reserved_bytes"] == start + 2 * one
        memory.empty_cache()
        assert memory.stats()["reserved_bytes"] == start
    finally:
        memory.set_cache_bound(before)


def test_a_block_that_is_mapped_makes_room_within_the_bound() -> None:
    memory.empty_cache()
    before = memory.set_cache_bound(10 << 20)
    try:
        mapped = len(memory.CPU._blocks)
        blocks = [memory.block(n) for n in (3 << 20, 3 << 20, 3 << 20, 5 << 20)]
        for address, free in blocks:
            free.append(address)
        kept = memory.block(7 << 20)
        assert len(memory.CPU._blocks) == mapped + 3  # two of 3 MiB went, of which there was most; 3 and 5 and the new one are left
        kept[1].append(kept[0])
    finally:
        memory.set_cache_bound(before)
        memory.empty_cache()


def test_statistics_follow_the_blocks() -> None:
    start = memory.stats()["allocated_bytes"]
    blocks = [memory.block(n) for n in (64, 5000, 2 << 20)]
    assert memory.stats()["allocated_bytes"] == start + 64 + 5120 + (2 << 20)
    for address, free in blocks:
        free.append(address)
    assert memory.stats()["allocated_bytes"] == start


def test_threads_never_share_a_block() -> None:
    wrong: list[int] = []

    def work(mark: int) -> None:
        rng = random.Random(mark)
        for _ in range(2000):
            n = rng.choice([64, 700, 40_000, 1_500_000])
            address, free = memory.block(n)
            ctypes.memset(address, mark, min(n, 64))
            if ctypes.c_ubyte.from_address(address + 63).value != mark:
                wrong.append(mark)
            free.append(address)
    threads = [threading.Thread(target=work, args=(m,)) for m in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_no_room_is_an_error_with_sizes_and_not_the_end() -> None:
    with pytest.raises(RuntimeError, match=r"out of CPU memory: tried to allocate \d+ bytes.*bytes in living tensors"):
        memory.block(1 << 60)
    address, free = memory.block(100)
    free.append(address)


def test_it_works_in_a_forked_child() -> None:
    script = """
import os, threading
from flambeau._core.runtime import cpu_memory as m
m._large.lock.acquire()     # as another thread might hold it
pid = os.fork()
if pid == 0:
    a, f = m.block(5 << 20); f.append(a); b, g = m.block(100)
    os._exit(0 if a and b and m.stats()["allocated_bytes"] else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0

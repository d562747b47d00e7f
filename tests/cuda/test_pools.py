"""Memory that a program keeps apart: its tensors lie in segments of their own, which come back with the pool."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import flambeau as torch
from flambeau import cuda


@pytest.fixture(params=["eager", "random"])
def gpus(request: pytest.FixtureRequest) -> Iterator[None]:
    with torch.simulate(gpus=2, model="A100", memory="64MiB", queue=request.param):
        yield


def segments(pool: cuda.MemPool) -> list[tuple[int, int]]:
    return [(s["address"], s["address"] + s["total_size"]) for s in pool.snapshot()]


def inside(t: torch.Tensor, pool: cuda.MemPool) -> bool:
    return any(low <= t.data_ptr() < high for low, high in segments(pool))


def test_tensors_lie_in_segments_of_their_own(gpus: None) -> None:
    before = torch.ones(100, device="cuda")
    host = torch.arange(100.0)
    host.to("cuda")  # its plan is there already, with other memory
    pool, other = cuda.MemPool(), cuda.MemPool()
    assert pool.id != other.id and pool.allocator is None and pool.use_count() == 1 and pool.snapshot() == []
    with cuda.use_mem_pool(pool):
        assert pool.use_count() == 2
        within = [torch.ones(100, device="cuda"), host.to("cuda"), before + 1, torch.zeros(1 << 20, device="cuda")]
        with cuda.use_mem_pool(other):
            nested = before * 3
        again = before * 4
        elsewhere = torch.ones(3, device="cuda:1")
    after = [before + 1, host.to("cuda")]
    assert all(inside(t, pool) for t in [*within, again]) and inside(nested, other)
    assert not any(inside(t, pool) or inside(t, other) for t in [before, elsewhere, *after])
    assert within[1].tolist() == list(range(100)) and nested.tolist() == [3.0] * 100 and after[0].tolist() == [2.0] * 100


def test_statistics_count_all_pools_and_memory_comes_back(gpus: None) -> None:
    pool = cuda.MemPool()
    outside = torch.ones(1 << 10, device="cuda")
    held, reserved = cuda.memory_allocated(), cuda.memory_reserved()
    with cuda.use_mem_pool(pool):
        within = torch.ones(4 << 20, dtype=torch.uint8, device="cuda")
    assert cuda.memory_allocated() == held + (4 << 20) and cuda.memory_reserved() == reserved + (4 << 20)
    assert cuda.max_memory_allocated() >= held + (4 << 20) and len(cuda.memory_snapshot()) == 2
    cuda.reset_peak_memory_stats()
    address = within.data_ptr()
    del within
    assert cuda.memory_allocated() == held and cuda.memory_reserved() == reserved + (4 << 20)
    with cuda.use_mem_pool(pool):  # kept for the pool's next tensors
        within = torch.ones(4 << 20, dtype=torch.uint8, device="cuda")
    assert within.data_ptr() == address
    del pool
    assert within.sum().item() == (4 << 20)  # a tensor keeps its memory
    del within
    cuda.empty_cache()
    assert cuda.memory_reserved() == reserved and outside.sum().item() == 1024


def test_streams_keep_their_blocks_apart(gpus: None) -> None:
    pool, stream = cuda.MemPool(), cuda.Stream()
    with cuda.use_mem_pool(pool):
        a = torch.ones(1000, device="cuda")
        address = a.data_ptr()
        del a
        with cuda.stream(stream):
            b = torch.ones(1000, device="cuda")
            assert b.data_ptr() != address and inside(b, pool)
        c = torch.ones(1000, device="cuda")
        assert inside(c, pool)
    assert not inside(torch.ones(1000, device="cuda"), pool)
    cuda.current_stream().wait_stream(stream)
    assert (b + c).tolist() == [2.0] * 1000


def test_only_the_thread_that_asked(gpus: None) -> None:
    pool, made = cuda.MemPool(), []
    with cuda.use_mem_pool(pool):
        thread = threading.Thread(target=lambda: made.append(torch.ones(10, device="cuda")))
        thread.start()
        thread.join()
    assert not inside(made[0], pool)


@pytest.mark.parametrize("lends", [False, True])
def test_what_is_free_is_lent_where_that_was_said(lends: bool, gpus: None) -> None:
    pool = cuda.MemPool(use_on_oom=lends)
    with cuda.use_mem_pool(pool):
        torch.ones(40 << 20, dtype=torch.uint8, device="cuda")
    if lends:
        assert torch.ones(40 << 20, dtype=torch.uint8, device="cuda").numel() == 40 << 20
    else:
        with pytest.raises(cuda.OutOfMemoryError):
            torch.ones(40 << 20, dtype=torch.uint8, device="cuda")
    del pool


def test_wrong_use(gpus: None) -> None:
    with pytest.raises(NotImplementedError, match="allocator must be None"):
        cuda.MemPool(object())
    with pytest.raises(TypeError, match="pool must be a MemPool, got tuple"), cuda.use_mem_pool((0, 1)):
        pass
    with pytest.raises(RuntimeError, match="cuda:7 is not there"), cuda.use_mem_pool(cuda.MemPool(), 7):
        pass
    with pytest.raises(ValueError, match="planted"), cuda.use_mem_pool(cuda.MemPool()) as nothing:
        assert nothing is None
        raise ValueError("planted")

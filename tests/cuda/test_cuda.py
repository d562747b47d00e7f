"""The public names of torch.cuda."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import cuda


@pytest.fixture
def gpus() -> Iterator[None]:
    with torch.simulate(gpus=3, model="A100", memory="64MiB"):
        yield


def test_every_public_name_is_there() -> None:
    assert [n for n in cuda.__all__ if not hasattr(cuda, n)] == []
    assert issubclass(cuda.OutOfMemoryError, RuntimeError) and issubclass(cuda.AcceleratorError, RuntimeError)


def test_looking_is_not_using(gpus: None) -> None:
    assert cuda.is_available() and cuda.device_count() == 3 and not cuda.is_initialized()
    assert cuda.memory_allocated() == 0 and cuda.memory_stats() == {} and not cuda.is_initialized()
    cuda.init()
    assert cuda.is_initialized() and cuda._initialized


def test_the_current_device(gpus: None) -> None:
    assert cuda.current_device() == 0
    cuda.set_device("cuda:2")
    assert cuda.current_device() == 2 and torch.ones(1, device="cuda").device.index == 2
    cuda.set_device(-1)
    seen: list[int] = []
    t = threading.Thread(target=lambda: seen.append(cuda.current_device()))
    t.start()
    t.join()
    assert seen == [0]
    with cuda.device(1):
        assert cuda.current_device() == 1
        with cuda.device(None), cuda.device(-1):
            assert cuda.current_device() == 1
        with cuda.device_of(torch.ones(1, device="cuda:0")):
            assert cuda.current_device() == 0
        with cuda.device_of(torch.ones(1)):
            assert cuda.current_device() == 1
    assert cuda.current_device() == 2
    cuda.set_device(torch.device("cuda", 0))


@pytest.mark.parametrize(("use", "error"), [
    (lambda: cuda.set_device(3), RuntimeError), (lambda: cuda.set_device("cpu"), ValueError),
    (lambda: cuda.set_device("cuda"), ValueError),
    (lambda: cuda.get_device_name("cpu"), ValueError), (lambda: cuda.get_device_name(7), RuntimeError),
    (lambda: cuda.synchronize("cuda:9"), RuntimeError), (lambda: cuda.device("tpu"), RuntimeError),
    (lambda: torch.ones(1, device="cuda:3"), RuntimeError),
])
def test_devices_that_are_not_there(gpus: None, use: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        use()


def test_properties(gpus: None) -> None:
    p = cuda.get_device_properties("cuda:1")
    assert p.name == cuda.get_device_name(1) == "NVIDIA A100-SXM4-80GB" and cuda.get_device_capability() == (8, 0)
    assert p.total_memory == 64 << 20 and p.multi_processor_count == 108 and p.warp_size == 32 and "A100" in repr(p)
    assert cuda.get_arch_list() == ["sm_80"] and cuda.is_bf16_supported() and cuda.is_simulated(0)
    assert cuda.can_device_access_peer(0, 1) and not cuda.can_device_access_peer(1, 1)
    with torch.simulate(gpus=1, model="T4", memory="16MiB"):
        assert cuda.is_bf16_supported() and not cuda.is_bf16_supported(including_emulation=False)


def test_random_numbers_per_device(gpus: None) -> None:
    cuda.manual_seed_all(5)
    state = cuda.get_rng_state("cuda:1")
    a = torch.rand(4, device="cuda:1").tolist()
    assert a == torch.rand(4, device="cuda:0").tolist()
    cuda.set_rng_state(state, 1)
    assert torch.rand(4, device="cuda:1").tolist() == a and len(cuda.get_rng_state_all()) == 3
    cuda.manual_seed(9)
    assert cuda.initial_seed() == 9


def test_blocks_for_other_libraries(gpus: None) -> None:
    address = cuda.caching_allocator_alloc(1000)
    assert cuda.memory_allocated() == 1024
    cuda.caching_allocator_delete(address)
    assert cuda.memory_allocated() == 0
    with pytest.raises(ValueError, match="did not come from"):
        cuda.caching_allocator_delete(address)


def test_without_a_gpu_nothing_breaks_that_need_not() -> None:
    with torch.simulate(gpus=0):
        assert not cuda.is_available() and not cuda.is_bf16_supported() and cuda.get_arch_list() == []
        assert cuda.memory_allocated() == 0 and cuda.get_rng_state_all() == []
        cuda.manual_seed_all(1)
        cuda.empty_cache()
        with pytest.raises(RuntimeError, match="no CUDA GPU is available"):
            cuda.init()


def test_older_and_rarer_names(gpus: None) -> None:
    x = torch.ones(1000, device="cuda:1")
    assert cuda.memory_cached(1) == cuda.memory_reserved(1) > 0 and cuda.max_memory_cached(1) == cuda.max_memory_reserved(1)
    assert cuda.device_memory_used(1) >= x.numel() * 4 and cuda.get_per_process_memory_fraction(1) == 1.0
    cuda.set_per_process_memory_fraction(0.5, 1)
    assert cuda.get_per_process_memory_fraction("cuda:1") == 0.5 and cuda.get_per_process_memory_fraction(0) == 1.0
    with pytest.raises(cuda.OutOfMemoryError):
        torch.empty(40 << 20, dtype=torch.uint8, device="cuda:1")
    assert not cuda.is_current_stream_capturing() and cuda.streams.Stream is cuda.Stream
    assert [g.device.index for g in cuda.default_generators] == [0, 1, 2]
    assert torch.get_device_module("cuda:1") is cuda is torch.get_device_module() and torch.get_device_module("cpu") is torch.cpu
    with torch.simulate(gpus=0):
        assert torch.get_device_module() is torch.cpu and cuda.default_generators == ()


def test_named_ranges_nest() -> None:
    nvtx = cuda.nvtx
    assert (nvtx.range_push("a"), nvtx.range_push("b"), nvtx.range_pop(), nvtx.range_pop(), nvtx.range_pop()) == (0, 1, 1, 0, -1)
    with nvtx.range("step {}", 3):
        assert nvtx.range_push("inner") == 1 and nvtx.range_pop() == 1
    assert nvtx.range("whole")(lambda: nvtx.range_push("x"))() == 1 and nvtx.range_pop() == 0 and nvtx.range_pop() == -1
    nvtx.range_end(nvtx.range_start("other"))
    nvtx.mark("here")
    with pytest.raises(TypeError, match="msg must be a str"):
        nvtx.range_push(3)


def test_what_nvidias_libraries_are_asked() -> None:
    with torch.simulate(gpus=2):
        assert cuda.nccl.version() >= (2, 18, 0)
        a, b = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
        assert cuda.nccl.is_available([a, b]) and not cuda.nccl.is_available([a, a]) and not cuda.nccl.is_available([a, torch.ones(2)])
        with cuda.profiler.profile():
            assert (a + 1).tolist() == [2, 2]

"""What programs reach of CUDA's own interface."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import cuda


def test_codes_are_errors() -> None:
    cuda.check_error(0)
    with pytest.raises(cuda.CudaError, match=r"out of memory \(2\)"):
        cuda.check_error(2)
    assert issubclass(cuda.CudaError, RuntimeError) and str(cuda.CudaError(12345)) == "unrecognized error code (12345)"
    assert cuda.has_half is True and cuda.has_magma is False and issubclass(cuda.DeferredCudaCallError, Exception)


def test_the_runtime_of_gpus() -> None:
    with torch.simulate(gpus=1, model="A100", memory="64MiB"):
        free, total = cuda.cudart().cudaMemGetInfo(0)
        assert (free, total) == cuda.mem_get_info(0) and total == 64 << 20
        assert cuda.cudart().cudaProfilerStart() == cuda.cudart().cudaProfilerStop() == cuda.cudart().cudaError.SUCCESS == 0
        with pytest.raises(AttributeError, match="no 'cudaMalloc' here"):
            cuda.cudart().cudaMalloc  # noqa: B018
        assert cuda.is_tf32_supported() and cuda.get_gencode_flags() == "-gencode compute=compute_80,code=sm_80"
        stream = cuda.Stream()
        assert cuda.get_stream_from_external(stream.cuda_stream, "cuda:0").cuda_stream == stream.cuda_stream
        cuda.caching_allocator_enable(True)
        with pytest.raises(NotImplementedError, match="goes through the allocator"):
            with cuda.caching_allocator_disabled():
                pass
        for handle in (cuda.current_blas_handle, cuda.current_solver_handle):
            with pytest.raises(NotImplementedError, match="handles stay inside"):
                handle()


def test_without_gpus() -> None:
    with torch.simulate(gpus=0):
        assert not cuda.is_tf32_supported() and cuda.get_gencode_flags() == ""
        with cuda.caching_allocator_disabled():
            cuda.caching_allocator_enable(False)
        for call in (cuda.cudart, cuda.current_blas_handle):
            with pytest.raises((RuntimeError, AssertionError)):
                call()


def test_the_accelerator_tells_of_its_memory() -> None:
    from flambeau import accelerator
    with torch.simulate(gpus=1, model="A100", memory="64MiB"):
        assert accelerator.get_memory_info() == cuda.mem_get_info()
        assert {torch.float32, torch.int64, torch.bool} <= accelerator.get_device_capability("cuda:0")["supported_dtypes"]
        torch.ones(1000, device="cuda")
        accelerator.reset_accumulated_memory_stats()
        assert accelerator.memory_stats()["allocated_bytes.all.allocated"] == 0
    with torch.simulate(gpus=0):
        for call in (accelerator.get_memory_info, accelerator.get_device_capability, accelerator.reset_accumulated_memory_stats):
            with pytest.raises(RuntimeError, match="none is available"):
                call()

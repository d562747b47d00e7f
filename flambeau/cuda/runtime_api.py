"""CUDA's own interface as programs reach it through torch.cuda: `cudart`, its errors, streams and handles of other libraries."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .._core.runtime import gpus as _gpus
from .._core.runtime.streams import ExternalStream
from . import profiler as _profiler

has_half = True  # float16 is always there
has_magma = False  # of MAGMA nothing is used

_TEXTS = {0: "no error", 1: "invalid argument", 2: "out of memory", 3: "initialization error",
          35: "CUDA driver version is insufficient for CUDA runtime version",
          100: "no CUDA-capable device is detected", 101: "invalid device ordinal", 209: "no kernel image is available for execution on the device",
          304: "OS call failed or operation not supported on this OS", 400: "invalid resource handle", 600: "device not ready",
          700: "an illegal memory access was encountered", 702: "the launch timed out and was terminated", 719: "unspecified launch failure",
          999: "unknown error"}


class cudaStatus:
    """Codes that CUDA's functions give."""

    SUCCESS = 0
    ERROR_NOT_READY = 34


class _Runtime:
    """The few functions of CUDA's runtime that programs call through `cudart()`."""

    cudaError = cudaStatus  # noqa: N815 (CUDA's names)

    @staticmethod
    def cudaGetErrorString(code: int) -> str:  # noqa: N802
        """What a code means."""
        return _TEXTS.get(int(code), "unrecognized error code")

    @staticmethod
    def cudaMemGetInfo(device: int) -> tuple[int, int]:  # noqa: N802
        """(free, total) bytes of a GPU."""
        g = _gpus.gpu(device)
        return g.driver.memory_info(g.physical)

    @staticmethod
    def cudaProfilerStart() -> int:  # noqa: N802
        """`cuda.profiler.start`."""
        _profiler.start()
        return 0

    @staticmethod
    def cudaProfilerStop() -> int:  # noqa: N802
        """`cuda.profiler.stop`."""
        _profiler.stop()
        return 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"cudart() has no {name!r} here: memory, streams and events are those of torch.cuda, pinned memory is Tensor.pin_memory()")


def cudart() -> Any:
    """What programs call of CUDA's runtime: cudaMemGetInfo, cudaProfilerStart and its end, cudaGetErrorString.  Raises AssertionError or RuntimeError
    where there are no GPUs."""
    _gpus.start()
    return _Runtime()


class CudaError(RuntimeError):
    """A code that a function of CUDA gave."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{_Runtime.cudaGetErrorString(code)} ({code})")


class DeferredCudaCallError(Exception):
    """A call that waited for the GPUs failed when they were ready."""


def check_error(res: int) -> None:
    """Raises CudaError for a code that is not 0."""
    if int(res) != cudaStatus.SUCCESS:
        raise CudaError(int(res))


def is_tf32_supported() -> bool:
    """Whether the current GPU computes products in TF32, which those of architecture 8 and later do."""
    return _gpus.count() > 0 and _gpus.gpu().properties.major >= 8


def get_gencode_flags() -> str:
    """What NVCC would be told for the GPUs there are; "" for none."""
    if not _gpus.count():
        return ""
    found = sorted({f"{g.properties.major}{g.properties.minor}" for g in _gpus.start().gpus})
    return " ".join(f"-gencode compute=compute_{a},code=sm_{a}" for a in found)


def get_stream_from_external(data_ptr: int, device: Any = None) -> ExternalStream:
    """A stream that another library made, by its number: see `ExternalStream`."""
    return ExternalStream(data_ptr, device)


def caching_allocator_enable(value: bool = True) -> None:
    """Nothing to do.  Raises NotImplementedError where there are GPUs and `value` is False: their memory always goes through the allocator, which
    `empty_cache` has give back what nobody uses."""
    if not value and _gpus.count():
        raise NotImplementedError("caching_allocator_enable(False): GPU memory always goes through the allocator here; empty_cache() gives back what nobody "
                                  "uses")


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """A block without the allocator: raises NotImplementedError where there are GPUs, see `caching_allocator_enable`."""
    caching_allocator_enable(False)
    yield


def _no_handle(name: str, library: str) -> Any:
    _gpus.start()
    raise NotImplementedError(f"{name}(): {library}'s handles stay inside; make one of your own, with torch.cuda.current_stream().cuda_stream as its stream")


def current_blas_handle() -> int:
    """Raises NotImplementedError: no handle of cuBLAS is given away."""
    handle: int = _no_handle("current_blas_handle", "cuBLASLt")
    return handle


def current_solver_handle() -> int:
    """Raises NotImplementedError: no handle of cuSOLVER is given away."""
    handle: int = _no_handle("current_solver_handle", "cuSOLVER")
    return handle

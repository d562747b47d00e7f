"""A pytest plugin: the kernels' own tests (`tests/_core/kernels/cuda_c`) on a GPU, where `GpuBatch` takes the place of `host.Batch`.

Every operand is copied to memory of its own between two guards, the kernel is launched through the driver, and all of it is
copied back: a guard that changed is an access outside of the operand.  "Orders of threads" are the GPU's own, twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flambeau._core.kernels.cuda_c import Kernel

# the files whose tests are about what kernels give, not about the checks of the CPU harness
FILES = ("test_map", "test_reduce", "test_rows", "test_scan", "test_scatter", "test_sorting", "test_topk", "test_nonzero", "test_attention",
         "test_functions")
LEFT_OUT = ("test_what_is_out_of_range_is_told",)  # its kernel holds an address of the host
_GUARD = 4096


class GpuBatch:
    def __init__(self, kernels: list[Kernel], checked: bool = True) -> None:
        from flambeau._core.runtime import gpus
        self.gpu = gpus.gpu(0)

    def launch(self, kernel: Kernel, memory: list[np.ndarray], args: list[Any], order: int = 0) -> None:
        driver, stream, device = self.gpu.driver, self.gpu.default_handle, self.gpu.physical
        memory = list(memory)
        if kernel.workspace:
            work = np.full(kernel.workspace + 256, 0xFF, np.uint8)
            start = -work.ctypes.data % 256
            memory.append(work[start:start + kernel.workspace])
            at = kernel.arguments.index("P", 0) + kernel.arguments.count("P") - 1
            args = [*args[:at], memory[-1].ctypes.data, *args[at:]]
        call = driver.bind(device, driver._programs().kernel(kernel.entry or "nothing", kernel))
        spans, there = [], []
        try:
            for m in memory:
                low, nbytes = m.ctypes.data, m.nbytes
                image = np.full(nbytes + 2 * _GUARD + 512, 0xA5, np.uint8)
                first = _GUARD + low % 512  # as aligned as it was
                image[first:first + nbytes] = np.frombuffer((np.ctypeslib.as_array(_bytes(low, nbytes)) if nbytes else np.empty(0, np.uint8)), np.uint8)
                base = driver.alloc(device, image.nbytes)
                assert base, "there is no room on the GPU"
                there.append(base)
                driver.memcpy(stream, base, image.ctypes.data, image.nbytes, image)
                spans.append((low, nbytes, base, first, image.nbytes))
            moved = [self._there(a, spans) if code == "P" else a for code, a in zip(kernel.arguments, args, strict=True)]
            call(stream, tuple(moved))
            driver.stream_synchronize(stream)
            for low, nbytes, base, first, size in spans:
                image = np.empty(size, np.uint8)
                driver.memcpy(stream, image.ctypes.data, base, size, image)
                driver.stream_synchronize(stream)
                outside = np.flatnonzero(np.concatenate([image[:first], image[first + nbytes:]]) != 0xA5)
                assert not outside.size, f"{kernel.entry} wrote {outside.size} bytes outside of an operand of {nbytes}, the first at {outside[0] - first}"
                if nbytes:
                    np.ctypeslib.as_array(_bytes(low, nbytes))[...] = image[first:first + nbytes]
        finally:
            for base in there:
                driver.free(device, base)

    @staticmethod
    def _there(address: int, spans: list[tuple[int, int, int, int, int]]) -> int:
        for low, nbytes, base, first, _ in spans:
            if low <= address < low + nbytes or address == low:
                return base + first + address - low
        raise AssertionError(f"the operand at {address:#x} lies in none of the memory that was named")


def _bytes(address: int, nbytes: int) -> Any:
    import ctypes
    return (ctypes.c_ubyte * nbytes).from_address(address)


def pytest_configure(config: pytest.Config) -> None:
    """Puts `GpuBatch` in place, before the tests are collected."""
    from tests._core.kernels.cuda_c import host
    host.Batch = GpuBatch  # type: ignore[assignment, misc]
    host.missing = lambda: ""  # type: ignore[assignment]
    host.ORDERS = (0, 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "cuda_c" and item.path.stem in FILES and item.name not in LEFT_OUT:
            item.add_marker(pytest.mark.gpu)

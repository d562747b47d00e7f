"""Generated CUDA C carried out on the CPU: built with g++, run by `host.cc`, its memory accesses checked.

Many kernels are built at once (`Batch`), since starting the compiler is what costs; what was built is kept by content.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from flambeau._core.kernels.cuda_c import Kernel

from . import build
from .build import missing

__all__ = ["ORDERS", "Batch", "LaunchError", "missing"]
ORDERS = (0, 1, 7)  # ascending, descending, random


class LaunchError(AssertionError):
    """A kernel did what no kernel may; the message says what."""


def flags() -> list[str]:
    """How kernels are compiled."""
    try:
        fma = " fma " in Path("/proc/cpuinfo").read_text()
    except OSError:
        fma = False
    # as on the device, products and additions are fused wherever the text allows it
    return [*build.KERNEL, "-ffp-contract=fast", *(["-mfma", "-fexpensive-optimizations"] if fma else [])]  # GCC does so from -O2 on


class Batch:
    """Kernels built together."""

    def __init__(self, kernels: list[Kernel], checked: bool = True) -> None:
        self.checked = checked
        sources = {k.key: k.source for k in kernels if k.source}
        text = '#include "host.h"\n' + "".join(f"namespace k{key} {{\n#line 1\n{build.adapted(source)}}}\n" for key, source in sources.items())
        # linked apart: with the flag the linker would bring the sanitizer's own run-time library
        part = build.build(text, [*flags(), *(["-fsanitize=thread"] if checked else [])])
        self.library = ctypes.CDLL(str(build.build("", flags(), ".so", (part, build.runtime()))))
        self.library.host_launch.restype = ctypes.c_char_p

    def launch(self, kernel: Kernel, memory: list[np.ndarray], args: list[Any], order: int = 0) -> None:
        """Carries out the kernel; `memory` holds every byte it may touch.  Raises LaunchError for what it may not do."""
        memory = list(memory)
        if kernel.workspace:
            work = np.full(kernel.workspace + 256, 0xFF, np.uint8)  # NaN bytes
            start = -work.ctypes.data % 256
            work = work[start:start + kernel.workspace]
            memory.append(work)
            at = kernel.arguments.index("P", 0) + kernel.arguments.count("P") - 1
            args = [*args[:at], work.ctypes.data, *args[at:]]
        words = np.frombuffer(kernel.pack(*args), np.uint64)
        spans = np.array([[m.ctypes.data, m.nbytes] for m in memory if m.nbytes] or [[0, 0]], np.uint64)
        for name, grid, block, shared in kernel.launches:
            function = getattr(self.library, "host_" + name)
            error = self.library.host_launch(function, words.ctypes.data_as(ctypes.c_void_p), (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block),
                                             spans.ctypes.data_as(ctypes.c_void_p), len(spans), order, int(self.checked), shared, 0)
            if error:
                raise LaunchError(f"{name}: {error.decode()}")

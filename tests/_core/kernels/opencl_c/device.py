"""OpenCL C carried out by whatever device pyopencl finds: in CI PoCL's, which is the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau._core.kernels.kernel import Kernel


def missing() -> str:
    """Why nothing can be carried out here; empty if all is there."""
    try:
        import pyopencl as cl
    except ImportError:
        return "pyopencl is not installed"
    try:
        return "" if any(map(_serves, _devices())) else "no OpenCL device has doubles"
    except cl.Error as e:
        return f"no OpenCL platform: {e}"


def _devices() -> list[Any]:
    import pyopencl as cl
    return [d for p in cl.get_platforms() for d in p.get_devices()]


def _serves(d: Any) -> bool:
    return "cl_khr_fp64" in d.extensions


class Device:
    def __init__(self) -> None:
        import pyopencl as cl
        self.cl = cl
        self.context = cl.Context([next(filter(_serves, _devices()))])
        self.queue = cl.CommandQueue(self.context)
        self.built: dict[tuple[str, str], Any] = {}

    def _functions(self, kernel: Kernel) -> list[Any]:
        names = {name for name, *_ in kernel.launches}
        if any((kernel.key, name) not in self.built for name in names):
            program = self.cl.Program(self.context, kernel.source).build("-cl-opt-disable")
            self.built.update({(kernel.key, name): self.cl.Kernel(program, name) for name in names})
        return [self.built[kernel.key, name] for name, *_ in kernel.launches]

    def launch(self, kernel: Kernel, memory: list[np.ndarray], args: list[Any]) -> None:
        """Carries the kernel out on addresses within `memory` and numbers; the memory is copied there and back."""
        memory = list(memory)
        addresses = kernel.arguments.count("P")
        if kernel.workspace:
            memory.append(np.full(kernel.workspace, 0xFF, np.uint8))  # NaN bytes
            args = [*args[:addresses - 1], memory[-1].ctypes.data, *args[addresses - 1:]]
        flags = self.cl.mem_flags.READ_WRITE | self.cl.mem_flags.COPY_HOST_PTR
        buffers = [self.cl.Buffer(self.context, flags, hostbuf=m if m.nbytes else np.zeros(1, np.uint8)) for m in memory]
        words = np.frombuffer(bytearray(kernel.pack(*args)), np.uint64)
        given = []
        for k in range(addresses):  # an address becomes a buffer and an offset
            address = int(words[k])
            at = next(i for i, m in enumerate(memory) if m.ctypes.data <= address < m.ctypes.data + max(m.nbytes, 1))
            words[k] = address - memory[at].ctypes.data
            given.append(buffers[at])
        given.append(self.cl.Buffer(self.context, flags, hostbuf=words))
        for function, (_, grid, block, _) in zip(self._functions(kernel), kernel.launches):
            for k, b in enumerate(given):
                function.set_arg(k, b)
            self.cl.enqueue_nd_range_kernel(self.queue, function, tuple(g * b for g, b in zip(grid, block)), block)
        for m, b in zip(memory, buffers):
            if m.nbytes:
                self.cl.enqueue_copy(self.queue, m, b)
        self.queue.finish()

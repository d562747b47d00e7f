"""Launches on NVIDIA GPUs: loop programs as CUDA C kernels, and the devices' library for matrix products.

A program is rendered when its launch is prepared, which says its workspace; it is compiled and loaded when it is bound, once for
each device and text.  A bound launch keeps its parameter buffers, so that a call packs its arguments and nothing else.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...kernels.programs import Prepared, price
from . import faults

if TYPE_CHECKING:
    from ...dtypes import dtype
    from ...kernels.programs import Program
    from .driver import NvidiaDriver, Stream

    Call = Callable[[Any, tuple[Any, ...]], None]

_PLAIN_SHARED = 48 << 10  # more dynamic shared memory than this must be asked for


class Routine:
    """What a library does: ``call(stream, args)`` for the device it was made for."""

    __slots__ = ("device", "call")

    def __init__(self, device: int, call: Call) -> None:
        self.device, self.call = device, call


class _Refusal:
    """The entry of a launch that only a GPU carries out."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any) -> None:
        raise RuntimeError(f"launch '{self.name}' was prepared for an NVIDIA GPU; the CPU cannot carry it out")


class Slot:
    """One parameter block and the array of pointers that names it."""

    __slots__ = ("buffer", "pointers", "address")

    def __init__(self, tail: bytes, head: int) -> None:
        self.buffer = ctypes.create_string_buffer(head + len(tail))
        ctypes.memmove(ctypes.addressof(self.buffer) + head, tail, len(tail))
        self.pointers = (ctypes.c_void_p * 1)(ctypes.addressof(self.buffer))
        self.address = ctypes.addressof(self.pointers)


class Launches:
    """The kernels of one driver, loaded on its devices."""

    def __init__(self, driver: NvidiaDriver) -> None:
        self.driver = driver
        self._modules: dict[tuple[int, str], Any] = {}
        self._functions: dict[tuple[int, str, str], Any] = {}
        self._lock = threading.RLock()
        self._blas: Any = None

    # ------------------------------------------------------------------------------------------------------ preparing
    def prepare(self, program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Prepared | None:
        """A launch of `program`; None where the renderer has no form for it."""
        from ...kernels import cuda_c
        try:
            kernel = cuda_c.render(program, domain, strides)
        except NotImplementedError:
            return None
        nbytes, flops = price(program, domain, strides)
        return Prepared(program.kind, _Refusal(program.kind), outputs=len(program.out_types), workspace=kernel.workspace, nbytes=nbytes,
                        flops=flops, program=program, domain=domain, strides=strides, keep=kernel)

    def product(self, device: int, d: dtype, *what: Any) -> Prepared | None:
        """See `runtime.door.product`."""
        from . import blaslt
        with self._lock:
            if self._blas is None:
                self._blas = blaslt.Library(self.driver)
        made = self._blas.product(device, d, *what)
        if made is None:
            return None
        m, n, k, batch = what[0], what[1], what[2], what[6]
        return Prepared(f"matmul_{d.name}", _Refusal("matmul"), nbytes=(m * k + k * n + m * n) * batch * d.itemsize, flops=2 * m * n * k * batch,
                        keep=Routine(device, made))

    # -------------------------------------------------------------------------------------------------------- binding
    def bind(self, device: int, prepared: Prepared) -> Call | None:
        """``call(stream, args)``; None for what only the host can do."""
        keep = prepared.keep
        if type(keep) is Routine:
            return keep.call
        if type(prepared.entry) is not _Refusal:
            return None
        if not keep.launches:
            return _nothing
        self.driver._use(device)
        steps = [(self._function(device, keep, name, shared), *grid, *block, shared) for name, grid, block, shared in keep.launches]
        return self._call(device, keep, prepared, steps)

    def _call(self, device: int, kernel: Any, prepared: Prepared, steps: list[tuple[Any, ...]]) -> Call:
        driver, what, pack = self.driver, prepared, kernel.pack
        cu, current, use, state = driver._cu, driver._current, driver._use, driver._devices[device].state
        launch = cu.cuLaunchKernel
        simple = "c" not in kernel.arguments
        form = struct.Struct("<" + kernel.arguments.replace("P", "Q")) if simple else struct.Struct("")
        head = form.size
        into, whole = form.pack_into, 8 * kernel.words
        free: list[Slot] = []

        def slot_for(args: tuple[Any, ...]) -> Slot:
            """The rarer arguments: complex numbers, numbers of more than 63 bits, a first call."""
            data = pack(*args)
            assert len(data) == whole
            slot = Slot(data[head:], head)
            ctypes.memmove(slot.buffer, data, len(data))
            return slot

        def failed(code: Any) -> None:
            if int(code) in (faults.INVALID_CONTEXT, faults.INVALID_HANDLE, faults.CONTEXT_DESTROYED):
                current.device = -1  # another library may have made its own current: the next call puts ours back
            raise state.fail(code, f"launching '{what.name}'")

        if simple and len(steps) == 1:
            function, gx, gy, gz, bx, by, bz, shared = steps[0]

            def call(stream: Stream, args: tuple[Any, ...]) -> None:
                if current.device != device or state.first or driver._gone:
                    use(device)
                try:
                    slot = free.pop()
                    into(slot.buffer, 0, *args)
                except (IndexError, struct.error):
                    slot = slot_for(args)
                code = launch(function, gx, gy, gz, bx, by, bz, shared, stream.handle, slot.address, 0)[0]
                free.append(slot)
                if code:
                    failed(code)
            return call

        def several(stream: Stream, args: tuple[Any, ...]) -> None:
            use(device)
            slot = slot_for(args)
            for function, gx, gy, gz, bx, by, bz, shared in steps:
                code = launch(function, gx, gy, gz, bx, by, bz, shared, stream.handle, slot.address, 0)[0]
                if code:
                    failed(code)
        return several

    def _function(self, device: int, kernel: Any, name: str, shared: int) -> Any:
        key = device, kernel.key, name
        with self._lock:
            found = self._functions.get(key)
            if found is None:
                module = self._module(device, kernel)
                cu = self.driver._cu
                state = self.driver._devices[device].state
                code, found = cu.cuModuleGetFunction(module, name.encode())
                if code:
                    raise state.fail(code, f"looking for kernel '{name}'")
                self._functions[key] = found
            if shared > _PLAIN_SHARED:
                cu = self.driver._cu
                attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                code, = cu.cuFuncSetAttribute(found, attribute, shared)
                if code:
                    raise self.driver._devices[device].state.fail(code, f"asking for {shared} bytes of shared memory for '{name}'")
            return found

    def _module(self, device: int, kernel: Any) -> Any:
        module = self._modules.get((device, kernel.key))
        if module is None:
            compiler = self.driver.compiler
            if compiler is None:
                from ...kernels import cuda_c
                compiler = cuda_c.compile
            image = compiler(kernel.source, self.driver.architecture(device))
            code, module = self.driver._cu.cuModuleLoadData(image)
            if code:
                raise self.driver._devices[device].state.fail(code, f"loading the kernel of '{kernel.program.kind}'")
            self._modules[device, kernel.key] = module
        return module


def _nothing(stream: Any, args: tuple[Any, ...]) -> None:
    pass

"""Launches on NVIDIA GPUs: CUDA C kernels, of loop programs and others, and what libraries do (`routines`).

A program is rendered when its launch is prepared, which says its workspace; it is compiled and loaded when it is bound, once for
each device and text.  A bound launch is a builtin (`native_launch`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...kernels.programs import PreparedLaunch, price
from . import copies, cuda_errors, native_launch
from .direct import Streams, launcher

if TYPE_CHECKING:
    from ...kernels.cuda_c import Kernel
    from ...kernels.programs import Program
    from .driver import NvidiaDriver
    from .streams import Stream

    Call = Callable[[Any, tuple[Any, ...]], None]
    Copy = Callable[[int, int, int, int], int]

_COPIES = {"h2d": b"cuMemcpyHtoDAsync", "d2h": b"cuMemcpyDtoHAsync", "d2d": b"cuMemcpyDtoDAsync", "any": b"cuMemcpyAsync"}
_PLAIN_SHARED = 32 << 10  # more dynamic shared memory must be asked for, if with what is static it is more than 48 KiB


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


class Launches:
    """The kernels of one driver, loaded on its devices."""

    def __init__(self, driver: NvidiaDriver) -> None:
        self.driver = driver
        self._modules: dict[tuple[int, str], Any] = {}
        self._functions: dict[tuple[int, str, str], Any] = {}
        self._shared: dict[tuple[int, str, str], int] = {}
        self._lock = threading.RLock()
        self._libraries: dict[str, Any] = {}
        self._addresses: dict[bytes, int] = {}
        self._stagers: dict[tuple[int, str], list[Any]] = {}
        self._copiers: dict[tuple[int, str, bool], Copy] = {}
        self._streams: dict[int, Streams] = {}

    def library(self, name: str, load: Callable[[NvidiaDriver], Any]) -> Any:
        """What `load` gives for this driver, once."""
        with self._lock:
            if name not in self._libraries:
                self._libraries[name] = load(self.driver)
            return self._libraries[name]

    # ------------------------------------------------------------------------------------------------------ preparing
    def prepare(self, program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> PreparedLaunch | None:
        """A launch of `program`; None where the renderer has no form for it."""
        from ...kernels import cuda_c
        try:
            kernel = cuda_c.render(program, domain, strides)
        except NotImplementedError:
            return None
        nbytes, flops = price(program, domain, strides)
        return PreparedLaunch(program.kind, _Refusal(program.kind), outputs=len(program.out_types), workspace=kernel.workspace, nbytes=nbytes,
                        flops=flops, program=program, domain=domain, strides=strides, keep=kernel)

    def kernel(self, name: str, kernel: Kernel) -> PreparedLaunch:
        """A launch of CUDA C that no loop program describes."""
        return PreparedLaunch(name, _Refusal(name), outputs=0, workspace=kernel.workspace, nbytes=kernel.nbytes, flops=kernel.flops, keep=kernel)

    def call(self, name: str, device: int, call: Call, outputs: int = 1, workspace: int = 0, nbytes: int = 0, flops: int = 0) -> PreparedLaunch:
        """A launch that a library carries out: ``call(stream, args)`` for this device."""
        return PreparedLaunch(name, _Refusal(name), outputs=outputs, workspace=workspace, nbytes=nbytes, flops=flops, keep=Routine(device, call))

    # -------------------------------------------------------------------------------------------------------- binding
    def bind(self, device: int, prepared: PreparedLaunch) -> Call | None:
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

    def _call(self, device: int, kernel: Any, prepared: PreparedLaunch, steps: list[tuple[Any, ...]]) -> Call:
        """One call for all of a kernel's functions, which run in order."""
        driver = self.driver
        current, use, state = driver._current, driver._use, driver._devices[device].state
        if "c" in kernel.arguments:  # complex numbers take two words
            return self._packed(device, kernel, prepared, steps)
        result = ctypes.c_int(0)
        address = self.address(b"cuLaunchKernel")
        builtins = [native_launch.launcher(address, int(function), (gx, gy, gz), (bx, by, bz), shared, ctypes.addressof(result),
                                           kernel.arguments, kernel.block) for function, gx, gy, gz, bx, by, bz, shared in steps]
        codes = memoryview(result).cast("B").cast("i")

        def failed() -> None:
            code = codes[0]
            codes[0] = 0
            raise self._failure(device, code, prepared.name)

        if len(builtins) == 1:
            launch = builtins[0]

            def call(stream: Stream, args: tuple[Any, ...]) -> None:
                if current.device != device or state.first or driver._gone:
                    use(device)
                launch(*args, stream.raw)
                if codes[0]:
                    failed()
            return call

        def several(stream: Stream, args: tuple[Any, ...]) -> None:
            use(device)
            for launch in builtins:
                launch(*args, stream.raw)
                if codes[0]:
                    failed()
        return several

    def direct(self, device: int, prepared: PreparedLaunch, stream: Stream) -> Callable[..., None] | None:
        """What launches when called with the arguments, on this stream or on what the thread has chosen since; None for what `bind` must serve."""
        kernel = prepared.keep
        if type(kernel) is Routine or type(prepared.entry) is not _Refusal or not kernel.launches or "c" in kernel.arguments:
            return None
        self.driver._use(device)
        steps = [(int(self._function(device, kernel, name, shared)), *grid, *block, shared) for name, grid, block, shared in kernel.launches]
        result = ctypes.c_int(0)
        driver, name = self.driver, prepared.name

        def again() -> None:
            if driver._gone or result.value in cuda_errors.ELSEWHERE:
                driver._current.device = -1  # this thread has not used the device yet, or another library made its own context current
                driver._use(device)
            else:
                failed()

        def failed() -> None:
            raise self._failure(device, result.value, name)
        return launcher(self.address(b"cuLaunchKernel"), steps, stream.raw, kernel.arguments, kernel.block, result, again, failed, self.streams(device))

    def streams(self, device: int) -> Streams:
        """What direct launches read of a device's streams."""
        with self._lock:
            found = self._streams.get(device)
            if found is None:
                found = self._streams[device] = Streams()
            return found

    def waited(self, device: int) -> None:
        """The host has waited for a device, or for one of its streams."""
        found = self._streams.get(device)
        if found is not None:
            found.waited()

    def _packed(self, device: int, kernel: Any, prepared: PreparedLaunch, steps: list[tuple[Any, ...]]) -> Call:
        """By the bindings' own call."""
        driver, launch, pack = self.driver, self.driver._cu.cuLaunchKernel, kernel.pack

        def call(stream: Stream, args: tuple[Any, ...]) -> None:
            driver._use(device)
            data = ctypes.create_string_buffer(pack(*args))
            pointers = (ctypes.c_void_p * 1)(ctypes.addressof(data))
            for step in steps:
                code, = launch(*step, stream.handle, ctypes.addressof(pointers), 0)
                if code:
                    raise self._failure(device, int(code), prepared.name)
        return call

    def _failure(self, device: int, code: int, name: str) -> Exception:
        if code in cuda_errors.ELSEWHERE:
            self.driver._current.device = -1  # another library may have made its own current: the next call puts ours back
        return self.driver._devices[device].state.fail(code, f"launching '{name}'")

    def copier(self, device: int, direction: str, wait: bool) -> Copy:
        """The builtin that copies "h2d", "d2h", "d2d" (within the device) or "any" way, on a stream of the device: see `copies`."""
        key = device, direction, wait
        found = self._copiers.get(key)
        if found is None:
            found = self._copiers[key] = copies.copier(self.copy_address(direction), wait and self.address(b"cuStreamSynchronize"),
                                                       self.streams(device).queued)
        return found

    def recorder(self) -> Callable[[int, int], int]:
        """The builtin that records an event on a stream: see `copies`."""
        return copies.recorder(self.address(b"cuEventRecord"))

    def copy_address(self, direction: str) -> int:
        """Where the function is that copies in a direction."""
        return self.address(_COPIES[direction])

    def stagers(self, device: int, direction: str) -> list[Any]:
        """Those of a device that nobody uses: see `staged`."""
        return self._stagers.setdefault((device, direction), [])

    def address(self, name: bytes) -> int:
        """Where a function of the driver's is."""
        found = self._addresses.get(name)
        if found is None:
            code, address, _ = self.driver._cu.cuGetProcAddress(name, 12000, 0)
            if code or not address:
                raise RuntimeError(f"the NVIDIA driver has no {name.decode()}: {cuda_errors.describe(int(code))}")
            found = self._addresses[name] = int(address)
        return found

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
            if shared > max(_PLAIN_SHARED, self._shared.get(key, 0)):  # never less than before: launches of other sizes are kept
                cu = self.driver._cu
                attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                code, = cu.cuFuncSetAttribute(found, attribute, shared)
                if code:
                    raise self.driver._devices[device].state.fail(code, f"asking for {shared} bytes of shared memory for '{name}'")
                self._shared[key] = shared
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
                raise self.driver._devices[device].state.fail(code, f"loading kernel '{kernel.entry}'")
            self._modules[device, kernel.key] = module
        return module


def _nothing(stream: Any, args: tuple[Any, ...]) -> None:
    pass

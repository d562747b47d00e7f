"""Fourier transforms by cuFFT, entered through ctypes.

A plan serves one shape on one device; plans are kept, the least lately used going first.  Work areas are the caller's, from the
caching allocator, so that plans hold no memory to speak of.  Names and numbers are those of NVIDIA's cufft.h.
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ...kernels.specs import RealFft
from ...layout import numel
from . import libraries

if TYPE_CHECKING:
    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import Fft
    from .driver import NvidiaDriver
    from .launches import Launches
    from .streams import Stream

_TYPES = {("r2c", "complex64"): 0x2a, ("c2r", "complex64"): 0x2c, ("c2c", "complex64"): 0x29,
          ("r2c", "complex128"): 0x6a, ("c2r", "complex128"): 0x6c, ("c2c", "complex128"): 0x69}
_EXEC = {0x2a: "R2C", 0x2c: "C2R", 0x29: "C2C", 0x6a: "D2Z", 0x6c: "Z2D", 0x69: "Z2Z"}
_FORWARD, _INVERSE = -1, 1
_NOT_SERVED = (0x8, 0xE, 0x10)  # invalid size, not implemented, not supported
_STATUS = {1: "the plan is not valid", 2: "it could not allocate memory", 4: "an argument is not valid", 5: "an internal error",
           6: "the transform could not be started", 7: "it does not start", 8: "it does not take this size", 0xD: "it has no work area",
           0x11: "a library that it needs is missing"}
_MOST = 4096  # PyTorch's


class Plan:
    """What the library keeps for one shape.  `lock`: stream and work area are set before each use."""

    __slots__ = ("library", "device", "number", "workspace", "lock")

    def __init__(self, library: Library, device: int) -> None:
        self.library, self.device, self.number, self.workspace, self.lock = library, device, -1, 0, threading.Lock()

    def __del__(self) -> None:
        lib = self.library.lib
        if lib is not None and self.number >= 0 and not self.library.driver._gone and not self.library.driver._devices[self.device].state.first:
            self.library.driver._use(self.device)
            lib.cufftDestroy(self.number)


class Cache:
    """The plans of one device by shape."""

    def __init__(self) -> None:
        self.plans: OrderedDict[Any, Plan | None] = OrderedDict()
        self.most = _MOST
        self.lock = threading.RLock()

    def resize(self, most: int) -> None:
        """At most so many are kept."""
        with self.lock:
            self.most = most
            while len(self.plans) > most:
                self.plans.popitem(last=False)

    def find(self, key: Any) -> tuple[bool, Plan | None]:
        """Whether it is known, and the plan; None is for what the library does not serve."""
        with self.lock:
            if key not in self.plans:
                return False, None
            self.plans.move_to_end(key)
            return True, self.plans[key]

    def keep(self, key: Any, plan: Plan | None) -> None:
        with self.lock:
            self.plans[key] = plan
            self.resize(self.most)


caches: dict[int, Cache] = {}


def cache(device: int) -> Cache:
    """The plans of a device, by its physical number."""
    return caches.setdefault(device, Cache())


class Library:
    """cuFFT for the devices of one driver; `lib` is None where it is not installed."""

    def __init__(self, driver: NvidiaDriver) -> None:
        self.driver, self.lib = driver, libraries.optional("cufft")
        if self.lib is not None:
            p, n, i = ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int
            self.lib.cufftMakePlanMany64.argtypes = (i, i, p, p, n, n, p, n, n, i, n, p)
            self.lib.cufftSetStream.argtypes = self.lib.cufftSetWorkArea.argtypes = (i, p)
            for kind in _EXEC.values():
                getattr(self.lib, "cufftExec" + kind).argtypes = (i, p, p, i) if kind in ("C2C", "Z2Z") else (i, p, p)

    def plan(self, device: int, kind: int, lengths: tuple[int, ...], batch: int) -> Plan | None:
        """None for sizes that the library does not take."""
        kept, key = cache(device), (kind, lengths, batch)
        known, found = kept.find(key)
        if not known:
            kept.keep(key, found := self._plan(device, kind, lengths, batch))
        return found

    def _plan(self, device: int, kind: int, lengths: tuple[int, ...], batch: int) -> Plan | None:
        lib: Any = self.lib
        self.driver._use(device)
        made, number, size = Plan(self, device), ctypes.c_int(-1), ctypes.c_size_t(0)
        what = f"planning {batch} transforms of {lengths}"
        libraries.check(self.driver, device, None, lib.cufftCreate(ctypes.byref(number)), "cufft", what, _STATUS)
        made.number = number.value
        libraries.check(self.driver, device, None, lib.cufftSetAutoAllocation(made.number, 0), "cufft", what, _STATUS)
        code = lib.cufftMakePlanMany64(made.number, len(lengths), libraries.numbers(ctypes.c_longlong, lengths), None, 1, 0, None, 1, 0, kind,
                                       batch, ctypes.byref(size))
        if code in _NOT_SERVED:
            return None
        libraries.check(self.driver, device, None, code, "cufft", what, _STATUS)
        made.workspace = size.value
        return made


def transform(launches: Launches, device: int, spec: Fft | RealFft) -> PreparedLaunch | None:
    """None where the library is absent or does not take this: other axes than the last ones, more than three, a scale, or real numbers in a way
    of our own."""
    d, count, n = spec.dtype, numel(spec.shape), len(spec.axes)
    kind = spec.kind if type(spec) is RealFft else "c2c"
    if type(spec) is RealFft and (spec.kept or spec.adjoint or spec.whole or spec.inverse != (kind == "c2r")):
        return None
    if spec.scale != 1.0 or not 1 <= n <= 3 or not count or spec.axes != tuple(range(len(spec.shape) - n, len(spec.shape))):
        return None
    lengths = spec.shape[-n:]
    batch = count // numel(lengths)
    library: Library = launches.library("cufft", Library)
    number = _TYPES.get((kind, d.name))
    if library.lib is None or number is None:
        return None
    plan = library.plan(device, number, lengths, batch)
    if plan is None:
        return None
    driver, lib = library.driver, library.lib
    enter = getattr(lib, "cufftExec" + _EXEC[number])
    way = () if kind != "c2c" else (_INVERSE if spec.inverse else _FORWARD,)

    def call(stream: Stream, args: tuple[Any, ...]) -> None:
        driver._use(device)
        to, source, *work = args
        with plan.lock:
            code = lib.cufftSetStream(plan.number, stream.raw) or (lib.cufftSetWorkArea(plan.number, work[0]) if work else 0) \
                or enter(plan.number, source, to, *way)
        libraries.check(driver, device, stream, code, "cufft", f"{batch} transforms of {lengths}", _STATUS)
    size = d.itemsize * count
    made = launches.call("fft", device, call, workspace=plan.workspace, nbytes=2 * size if kind == "c2c" else size,
                         flops=5 * count * max((count // batch).bit_length() - 1, 1))
    made.lasting = False  # a plan is the cache's to drop, which programs may clear
    return made

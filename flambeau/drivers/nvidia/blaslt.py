"""Matrix products by cuBLASLt, entered through ctypes.

cuBLASLt reads matrices by columns; a matrix by rows is the transposed one by columns, so C = A B is asked for as C' = B' A'.
Descriptors and the choice of an algorithm are made once for each shape, and again only for addresses of lower alignment.
Names and numbers are those of NVIDIA's cublasLt.h.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, Any

from . import faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype
    from ...kernels.programs import Prepared
    from .driver import NvidiaDriver, Stream
    from .launches import Launches

    Steps = tuple[int, int, int]

_SONAMES = ("libcublasLt.so.13", "libcublasLt.so.12")
_WORKSPACE = 32 << 20
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_TF32 = 68, 70, 77
_TRANS_A, _TRANS_B = 3, 4
_BATCH, _BATCH_STEP = 5, 6
_MOST_WORKSPACE, _ALIGN_A, _ALIGN_B, _ALIGN_C, _ALIGN_D = 1, 5, 6, 7, 8
_FULL = 256  # bytes: what the library takes addresses to be aligned to unless told otherwise
_STATUS = {1: "it is not initialised", 3: "it could not allocate", 7: "an argument is not valid", 8: "the GPU's architecture is not supported",
           13: "its kernel failed", 14: "an internal error", 15: "it does not support this"}


class _Algorithm(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64 * 8),)


class _Heuristic(ctypes.Structure):
    _fields_ = (("algorithm", _Algorithm), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float),
                ("reserved", ctypes.c_int * 4))


def find() -> str:
    """The path of the library among the installed packages, or its bare name for the system to find."""
    from importlib import util
    spec = util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for part in ("cu13/lib", "cublas/lib"):
            for name in _SONAMES:
                path = os.path.join(folder, part, name)
                if os.path.exists(path):
                    return path
    return _SONAMES[0]


def orient(rows: int, cols: int, row_step: int, col_step: int) -> tuple[bool, int] | None:
    """(whether the library must transpose it, leading dimension) for a matrix by rows; None when it cannot be read."""
    if (cols == 1 or col_step == 1) and (rows == 1 or row_step >= max(1, cols)):
        return False, row_step if rows > 1 else max(cols, 1)
    if (rows == 1 or row_step == 1) and (cols == 1 or col_step >= max(1, rows)):
        return True, col_step if cols > 1 else max(rows, 1)
    return None


class Description:
    """One product: the library's descriptors for it.  None of this needs a GPU."""

    def __init__(self, lib: ctypes.CDLL, d: dtype, m: int, n: int, k: int, a: Steps, b: Steps, c: Steps, batch: int, tf32: bool) -> None:
        at, bt = orient(m, k, *a[:2]), orient(k, n, *b[:2])
        if at is None or bt is None or c[1] != 1:
            raise NotImplementedError("strides")
        self.lib = lib
        kind = _TYPES[d.name]
        double = d.name == "float64"
        compute = _COMPUTE_64F if double else _COMPUTE_TF32 if tf32 and d.name == "float32" else _COMPUTE_32F
        self.number = ctypes.c_double if double else ctypes.c_float
        self.matmul, self.first, self.second, self.third = (ctypes.c_void_p() for _ in range(4))
        check(lib.cublasLtMatmulDescCreate(ctypes.byref(self.matmul), compute, 1 if double else 0), "describing a product")
        for attribute, turned in ((_TRANS_A, bt[0]), (_TRANS_B, at[0])):
            flag = ctypes.c_int32(int(turned))
            check(lib.cublasLtMatmulDescSetAttribute(self.matmul, attribute, ctypes.byref(flag), 4), "describing a product")
        # by columns, and turned round: B' first
        for layout, (rows, cols), (turned, lead), step in (
                (self.first, (n, k), bt, b[2]), (self.second, (k, m), at, a[2]), (self.third, (n, m), (False, max(c[0], n)), c[2])):
            if turned:
                rows, cols = cols, rows
            check(lib.cublasLtMatrixLayoutCreate(ctypes.byref(layout), kind, ctypes.c_uint64(rows), ctypes.c_uint64(cols),
                                                 ctypes.c_int64(lead)), "describing a matrix")
            if batch > 1:
                count, offset = ctypes.c_int32(batch), ctypes.c_int64(step)
                check(lib.cublasLtMatrixLayoutSetAttribute(layout, _BATCH, ctypes.byref(count), 4), "describing a batch")
                check(lib.cublasLtMatrixLayoutSetAttribute(layout, _BATCH_STEP, ctypes.byref(offset), 8), "describing a batch")

    def __del__(self) -> None:
        lib = getattr(self, "lib", None)
        if lib is not None and lib.cublasLtMatmulDescDestroy is not None:
            if self.matmul:
                lib.cublasLtMatmulDescDestroy(self.matmul)
            for layout in (self.first, self.second, self.third):
                if layout:
                    lib.cublasLtMatrixLayoutDestroy(layout)

    def choose(self, handle: ctypes.c_void_p, alignment: int) -> _Heuristic | None:
        """The library's first choice for addresses of this alignment; None where it has no kernel."""
        lib, preference = self.lib, ctypes.c_void_p()
        check(lib.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "choosing a kernel")
        try:
            size = ctypes.c_uint64(_WORKSPACE)
            check(lib.cublasLtMatmulPreferenceSetAttribute(preference, _MOST_WORKSPACE, ctypes.byref(size), 8), "choosing a kernel")
            least = ctypes.c_uint32(alignment)
            for which in (_ALIGN_A, _ALIGN_B, _ALIGN_C, _ALIGN_D):
                check(lib.cublasLtMatmulPreferenceSetAttribute(preference, which, ctypes.byref(least), 4), "choosing a kernel")
            found, count = _Heuristic(), ctypes.c_int(0)
            code = lib.cublasLtMatmulAlgoGetHeuristic(handle, self.matmul, self.first, self.second, self.third, self.third, preference, 1,
                                                      ctypes.byref(found), ctypes.byref(count))
        finally:
            lib.cublasLtMatmulPreferenceDestroy(preference)
        return found if not code and count.value and not found.state else None


def check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"cuBLASLt, {what}: {_STATUS.get(code, 'error')} (status {code})")


def load() -> ctypes.CDLL:
    """The library.  Raises RuntimeError that says what to install."""
    path = find()
    try:
        lib = ctypes.CDLL(path)
    except OSError as error:
        raise RuntimeError("matrix products on NVIDIA GPUs are cuBLASLt's, which is not installed: pip install 'flambeau[cuda]' "
                           f"({error})") from None
    p, size = ctypes.c_void_p, ctypes.c_size_t
    lib.cublasLtMatmul.argtypes = (p, p, p, p, p, p, p, p, p, p, p, p, p, p, size, p)
    for name in ("cublasLtMatmulDescDestroy", "cublasLtMatrixLayoutDestroy", "cublasLtMatmulPreferenceDestroy", "cublasLtDestroy"):
        getattr(lib, name).argtypes = (p,)
    return lib


class Library:
    """cuBLASLt for the devices of one driver: a handle for each, and for each stream a workspace."""

    def __init__(self, driver: NvidiaDriver) -> None:
        self.driver, self.lib = driver, load()
        self._handles: dict[int, ctypes.c_void_p] = {}
        self._workspaces: dict[Stream, int] = {}
        self._lock = threading.RLock()

    def handle(self, device: int) -> ctypes.c_void_p:
        with self._lock:
            found = self._handles.get(device)
            if found is None:
                self.driver._use(device)
                found = ctypes.c_void_p()
                check(self.lib.cublasLtCreate(ctypes.byref(found)), "starting")
                self._handles[device] = found
            return found

    def workspace(self, stream: Stream) -> int:
        """Memory for work of one stream, which runs in order.  0: there is no room, and kernels without must do."""
        with self._lock:
            found = self._workspaces.get(stream)
            if found is None:
                found = self._workspaces[stream] = self.driver.alloc(stream.device, _WORKSPACE)
            return found

    def product(self, device: int, d: dtype, m: int, n: int, k: int, a: Steps, b: Steps, c: Steps, batch: int, alpha: float, beta: float,
                tf32: bool = False) -> Callable[[Any, tuple[Any, ...]], None] | None:
        """``call(stream, (C, A, B))``: C = alpha A B + beta C.  None for types or strides that the library cannot read."""
        if d.name not in _TYPES:
            return None
        try:
            made = Description(self.lib, d, m, n, k, a, b, c, batch, tf32)
        except NotImplementedError:
            return None
        handle, driver, matmul = self.handle(device), self.driver, self.lib.cublasLtMatmul
        first, second, third = made.first, made.second, made.third
        scale, keep = made.number(alpha), made.number(beta)
        scale_at, keep_at = ctypes.byref(scale), ctypes.byref(keep)  # which keep what they name alive
        chosen: dict[int, tuple[_Heuristic, int]] = {}
        workspaces = self._workspaces

        def choose(alignment: int) -> tuple[_Heuristic, int]:
            found = made.choose(handle, alignment)
            if found is None:
                raise RuntimeError(f"cuBLASLt has no kernel for a product of {d} matrices ({m}, {k}) and ({k}, {n})")
            chosen[alignment] = found, ctypes.addressof(found)  # the algorithm is the first thing in it
            return chosen[alignment]

        def call(stream: Stream, args: tuple[Any, ...]) -> None:
            driver._use(device)
            to, left, right = args
            low = (to | left | right) & (_FULL - 1)
            alignment = low & -low if low else _FULL
            found, algorithm = chosen.get(alignment) or choose(alignment)
            room = workspaces.get(stream)
            if room is None and found.workspace:
                room = self.workspace(stream)
            if found.workspace and not room:
                raise RuntimeError(f"cuBLASLt needs {found.workspace} bytes of workspace, and the GPU has no room for it")
            code = matmul(handle, made.matmul, scale_at, right, first, left, second, keep_at, to, third, to, third, algorithm, room or 0,
                          found.workspace, stream.raw)
            if code:
                driver._use(device)
                state = driver._devices[device].state
                last, = driver._cu.cuStreamQuery(stream.handle)
                if int(last) in faults.STICKY:
                    raise state.fail(last, "a matrix product")
                check(code, f"a product of {d} matrices ({m}, {k}) and ({k}, {n})")
        return call


def product(launches: Launches, device: int, d: dtype, m: int, n: int, k: int, a: Steps, b: Steps, c: Steps, batch: int = 1, alpha: float = 1.0,
            beta: float = 0.0, tf32: bool = False) -> Prepared | None:
    """``entry(C, A, B)``; see `runtime.door.product`."""
    call = launches.library("cublasLt", Library).product(device, d, m, n, k, a, b, c, batch, alpha, beta, tf32)
    return None if call is None else launches.call(f"matmul_{d.name}", device, call, nbytes=(m * k + k * n + m * n) * batch * d.itemsize,
                                                   flops=2 * m * n * k * batch)

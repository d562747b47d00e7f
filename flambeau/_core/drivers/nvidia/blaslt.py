"""Matrix products by cuBLASLt, entered through ctypes.

cuBLASLt reads matrices by columns; a matrix by rows is the transposed one by columns, so C = A B is asked for as C' = B' A'.
Descriptors and the choice of an algorithm are made once for each shape, and again only for addresses of lower alignment; the product
itself is entered through a builtin (`native_launch.product`).  The library proposes several; where one refuses when it is run, the next serves.
Where algorithms may be timed (`Product.timed`), those of large products are, once for a shape, and the disk keeps the fastest, for the same GPU and
version of the library.
Names and numbers are those of NVIDIA's cublasLt.h.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

from ...kernels import cache
from . import cuda_errors, libraries, native_launch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype
    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import Product
    from .driver import NvidiaDriver
    from .launches import Launches
    from .streams import Stream

    Steps = tuple[int, int, int]

_WORKSPACE = 32 << 20
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14, "complex64": 4, "complex128": 5}
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_TF32 = 68, 70, 77
_TRANS_A, _TRANS_B, _EPILOGUE, _BIAS, _AUX, _AUX_LEAD = 3, 4, 7, 8, 11, 12
# what is done to the product on its way out, or with what it reads: `kernels.specs.Product` says what each is
_EPILOGUES = {"": 1, "bias": 4, "row sums": 512, "bias relu": 6, "bias relu signs": 134, "bias gelu": 36, "bias gelu input": 164, "relu gradient": 136,
              "gelu gradient": 192}
_WITH_ROW, _WITH_BESIDE = 4 | 512, 128  # bits of those that take a row, and another matrix
_BATCH, _BATCH_STEP = 5, 6
_MOST_WORKSPACE, _REDUCTIONS, _ALIGN_A, _ALIGN_B, _ALIGN_C, _ALIGN_D = 1, 3, 5, 6, 7, 8
_IN_COMPUTE_TYPE = 2  # partial sums are added in float32, not in the 16 bits of the result
_PROPOSED = 8  # algorithms that are asked for
_ELSEWHERE = (3, 7, 8, 15)  # statuses that say that another algorithm may do it
_WORTH_TIMING = 1 << 30  # operations of a product
_TIMES = 4  # that an algorithm is run to be timed
_MOST_PRODUCTS = 1 << 13
_MOST_BATCH = 65535  # a grid's third axis: larger batches are not served by all kernels
_ROW = 16  # bytes: what an epilogue's operands must be aligned to
_GELU_STEP, _SIGNS_STEP = 8, 128  # what elements from row to row of the matrix beside must be a multiple of
_FULL = 256  # bytes: what the library takes addresses to be aligned to unless told otherwise
_STATUS = {1: "it is not initialised", 3: "it could not allocate", 7: "an argument is not valid", 8: "the GPU's architecture is not supported",
           13: "its kernel failed", 14: "an internal error", 15: "it does not support this"}


class _Algorithm(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64 * 8),)


class _Heuristic(ctypes.Structure):
    _fields_ = (("algorithm", _Algorithm), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float),
                ("reserved", ctypes.c_int * 4))


def orient(rows: int, cols: int, row_step: int, col_step: int) -> tuple[bool, int] | None:
    """(whether the library must transpose it, leading dimension) for a matrix by rows; None when it cannot be read."""
    if (cols == 1 or col_step == 1) and (rows == 1 or row_step >= max(1, cols)):
        return False, row_step if rows > 1 else max(cols, 1)
    if (rows == 1 or row_step == 1) and (cols == 1 or col_step >= max(1, rows)):
        return True, col_step if cols > 1 else max(rows, 1)
    return None


def signs_lead(columns: int) -> int:
    """Bits from row to row of what "bias relu signs" writes."""
    return -(-columns // _SIGNS_STEP) * _SIGNS_STEP


class Description:
    """One product: the library's descriptors for it.  None of this needs a GPU."""

    def __init__(self, lib: ctypes.CDLL, d: dtype, m: int, n: int, k: int, a: Steps, b: Steps, c: Steps, batch: int, tf32: bool,
                 wide: bool = False, epilogue: str = "") -> None:
        at, bt = orient(m, k, *a[:2]), orient(k, n, *b[:2])
        if at is None or bt is None or c[1] != 1:
            raise NotImplementedError("strides")
        self.lib = lib
        kind = _TYPES[d.name]
        double = d.name in ("float64", "complex128")
        self.wide = wide and d.itemsize == 2
        compute = _COMPUTE_64F if double else _COMPUTE_TF32 if tf32 and d.name in ("float32", "complex64") else _COMPUTE_32F
        self.scale = kind if d.kind == "c" else 1 if double else 0
        self.matmul, self.first, self.second, self.third = (ctypes.c_void_p() for _ in range(4))
        check(lib.cublasLtMatmulDescCreate(ctypes.byref(self.matmul), compute, self.scale), "describing a product")
        for attribute, value in ((_TRANS_A, bt[0]), (_TRANS_B, at[0]), *(((_EPILOGUE, _EPILOGUES[epilogue]),) if epilogue else ())):
            flag = ctypes.c_int32(int(value))
            check(lib.cublasLtMatmulDescSetAttribute(self.matmul, attribute, ctypes.byref(flag), 4), "describing a product")
        code = _EPILOGUES[epilogue]
        if batch > 1 and (code & _WITH_BESIDE or epilogue == "row sums"):
            raise NotImplementedError("one row, or one matrix beside it, for a batch")
        self.places = (_BIAS,) * bool(code & _WITH_ROW) + (_AUX,) * bool(code & _WITH_BESIDE)  # attributes that hold addresses
        if _AUX in self.places:
            if "gelu" in epilogue and n % _GELU_STEP:
                raise NotImplementedError("a matrix beside it whose rows are apart")
            beside = ctypes.c_int64(n if "gelu" in epilogue else signs_lead(n))
            check(lib.cublasLtMatmulDescSetAttribute(self.matmul, _AUX_LEAD, ctypes.byref(beside), 8), "describing what lies beside a product")
        # by columns, and turned round: B' first
        for layout, (rows, cols), (turned, lead), step in (
                (self.first, (n, k), bt, b[2]), (self.second, (k, m), at, a[2]), (self.third, (n, m), (False, max(c[0], n)), c[2])):
            if turned:
                rows, cols = cols, rows
            check(lib.cublasLtMatrixLayoutCreate(ctypes.byref(layout), kind, rows, cols, lead), "describing a matrix")
            if batch > 1:
                count, offset = ctypes.c_int32(batch), ctypes.c_int64(step)
                check(lib.cublasLtMatrixLayoutSetAttribute(layout, _BATCH, ctypes.byref(count), 4), "describing a batch")
                check(lib.cublasLtMatrixLayoutSetAttribute(layout, _BATCH_STEP, ctypes.byref(offset), 8), "describing a batch")

    def number(self, value: complex) -> Any:
        """alpha or beta, as the library reads it."""
        part: Any = ctypes.c_double if self.scale in (1, 5) else ctypes.c_float
        return (part * 2)(value.real, value.imag) if self.scale in (4, 5) else part(value.real)

    def put(self, address: int) -> None:
        """Where the epilogue's operands lie; what the address is aligned to counts in the choice of a kernel."""
        where = ctypes.c_void_p(address)
        for place in self.places:
            check(self.lib.cublasLtMatmulDescSetAttribute(self.matmul, place, ctypes.byref(where), 8), "naming an epilogue's operand")

    def __del__(self) -> None:
        lib = getattr(self, "lib", None)
        if lib is not None and lib.cublasLtMatmulDescDestroy is not None:
            if self.matmul:
                lib.cublasLtMatmulDescDestroy(self.matmul)
            for layout in (self.first, self.second, self.third):
                if layout:
                    lib.cublasLtMatrixLayoutDestroy(layout)

    def choices(self, handle: ctypes.c_void_p, alignment: int, room: int = _WORKSPACE) -> list[_Heuristic]:
        """What the library proposes for addresses of this alignment and so many bytes of workspace, best first; none where it has no kernel."""
        lib, preference = self.lib, ctypes.c_void_p()
        check(lib.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "choosing a kernel")
        try:
            size = ctypes.c_uint64(room)
            check(lib.cublasLtMatmulPreferenceSetAttribute(preference, _MOST_WORKSPACE, ctypes.byref(size), 8), "choosing a kernel")
            if self.wide:
                schemes = ctypes.c_uint32(_IN_COMPUTE_TYPE)
                check(lib.cublasLtMatmulPreferenceSetAttribute(preference, _REDUCTIONS, ctypes.byref(schemes), 4), "choosing a kernel")
            least = ctypes.c_uint32(alignment)
            for which in (_ALIGN_A, _ALIGN_B, _ALIGN_C, _ALIGN_D):
                check(lib.cublasLtMatmulPreferenceSetAttribute(preference, which, ctypes.byref(least), 4), "choosing a kernel")
            found, count = (_Heuristic * _PROPOSED)(), ctypes.c_int(0)
            code = lib.cublasLtMatmulAlgoGetHeuristic(handle, self.matmul, self.first, self.second, self.third, self.third, preference, _PROPOSED,
                                                      found, ctypes.byref(count))
        finally:
            lib.cublasLtMatmulPreferenceDestroy(preference)
        return [] if code else [h for h in found[:count.value] if not h.state]


def check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"cuBLASLt, {what}: {_STATUS.get(code, 'error')} (status {code})")


def load() -> ctypes.CDLL:
    """The library.  Raises RuntimeError that says what to install."""
    try:
        lib = libraries.load("cublasLt")
    except OSError as error:
        raise RuntimeError("matrix products on NVIDIA GPUs are cuBLASLt's, which is not installed: pip install 'flambeau[cuda]' "
                           f"({error})") from None
    p, i, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    for name in ("Create", "Destroy", "MatmulPreferenceCreate", "MatmulPreferenceDestroy", "MatmulDescDestroy", "MatrixLayoutDestroy"):
        getattr(lib, "cublasLt" + name).argtypes = (p,)
    for name in ("MatmulDesc", "MatrixLayout", "MatmulPreference"):
        getattr(lib, f"cublasLt{name}SetAttribute").argtypes = (p, i, p, size)
    lib.cublasLtMatmulDescCreate.argtypes = (p, i, i)
    lib.cublasLtMatrixLayoutCreate.argtypes = (p, i, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64)
    lib.cublasLtGetVersion.restype = size
    lib.cublasLtMatmulAlgoGetHeuristic.argtypes = (p, p, p, p, p, p, p, i, p, p)
    return lib


class Library:
    """cuBLASLt for the devices of one driver: a handle for each, and for each stream a workspace."""

    def __init__(self, driver: NvidiaDriver) -> None:
        self.driver, self.lib = driver, load()
        self._handles: dict[int, ctypes.c_void_p] = {}
        self._made: dict[Any, Callable[[Any, tuple[Any, ...]], None] | None] = {}
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

    def product(self, device: int, *what: Any) -> Callable[[Any, tuple[Any, ...]], None] | None:
        """`_make`'s result for these operands, kept: choosing among the library's kernels takes a while."""
        key = (device, *what)
        try:
            return self._made[key]
        except KeyError:
            pass
        made = self._make(device, *what)
        with self._lock:
            if len(self._made) >= _MOST_PRODUCTS:
                self._made.clear()
            self._made[key] = made
        return made

    def _make(self, device: int, d: dtype, m: int, n: int, k: int, a: Steps, b: Steps, c: Steps, batch: int, alpha: complex, beta: complex,
              tf32: bool, wide: bool, epilogue: str, timed: bool) -> Callable[[Any, tuple[Any, ...]], None] | None:
        """``call(stream, (C, A, B))``, with what an epilogue takes after these: C = alpha A B + beta C.  None for types, strides or
        epilogues that the library does not serve."""
        if d.name not in _TYPES:
            return None
        try:
            made = Description(self.lib, d, m, n, k, a, b, c, batch, tf32, wide, epilogue)
        except NotImplementedError:
            return None
        handle, driver = self.handle(device), self.driver
        scale, keep = made.number(alpha), made.number(beta)
        result = ctypes.c_int(0)
        codes = memoryview(result).cast("B").cast("i")
        enter = native_launch.product([ctypes.cast(self.lib.cublasLtMatmul, ctypes.c_void_p).value or 0, *[int(x.value or 0) for x in (
            handle, made.matmul)], ctypes.addressof(scale), made.first.value or 0, made.second.value or 0, ctypes.addressof(keep),
            made.third.value or 0, ctypes.addressof(result), ctypes.cast(self.lib.cublasLtMatmulDescSetAttribute, ctypes.c_void_p).value or 0],
            made.places)
        chosen: dict[int, list[_Heuristic]] = {}  # by alignment, negative without a workspace: what is left of the proposals, best first
        timed = timed and not beta and 2 * m * n * k * batch >= _WORTH_TIMING  # what is added to the result may be done but once
        name = cache.key("cublaslt product", str(self.lib.cublasLtGetVersion()), driver.properties(device).name, repr(
            (d.name, m, n, k, a, b, c, batch, tf32, wide, epilogue))) if timed else ""
        untimed: set[int] = set()
        lock = self._lock
        current, state, addressof = driver._current, driver._devices[device].state, ctypes.addressof

        def choose(alignment: int, room: int = _WORKSPACE) -> list[_Heuristic]:
            made.put(_ROW)
            found = made.choices(handle, alignment, room)
            if not found:
                raise RuntimeError(f"cuBLASLt has no kernel for a product of {d} matrices ({m}, {k}) and ({k}, {n})"
                                   + ("" if room else " that needs no workspace, and the GPU has no room for one"))
            if timed and room:
                kept = cache.load(f"{name}-{alignment}") or b""
                if len(kept) == ctypes.sizeof(_Heuristic):
                    found.insert(0, _Heuristic.from_buffer_copy(kept))
                else:
                    untimed.add(alignment)
            chosen[alignment if room else -alignment] = found
            return found

        def time(those: list[_Heuristic], stream: Stream, args: tuple[Any, ...], room: int) -> None:
            """Puts the fastest first; those that fail are left out, unless all do."""
            to, left, right, *beside = args
            took: list[tuple[float, int]] = []
            start, end = driver.event_create(True), driver.event_create(True)
            for at, one in enumerate(those):
                for turn in range(_TIMES + 1):  # the first is not counted
                    if turn == 1:
                        driver.event_record(start, stream)
                    enter(to, left, right, addressof(one), room, one.workspace, stream.raw, *beside)
                    if codes[0]:
                        break
                driver.event_record(end, stream)
                driver.event_synchronize(end)
                if not codes[0]:
                    took.append((driver.event_elapsed(start, end), at))
                codes[0] = 0
            if took:
                those[:] = [those[at] for _, at in sorted(took)]

        def failed(stream: Stream) -> None:
            code, codes[0] = codes[0], 0
            driver._use(device)
            last, = driver._cu.cuStreamQuery(stream.handle)
            if int(last) in cuda_errors.STICKY:
                raise state.fail(last, "a matrix product")
            check(code, f"a product of {d} matrices ({m}, {k}) and ({k}, {n})")

        def call(stream: Stream, args: tuple[Any, ...]) -> None:
            if current.device != device or state.first or driver._gone:
                driver._use(device)
            to, left, right, *beside = args
            low = (to | left | right) & (_FULL - 1)
            alignment = low & -low if low else _FULL
            those = chosen.get(alignment) or choose(alignment)
            room = 0
            if those[0].workspace:
                room = driver.room(stream, "cublaslt", _WORKSPACE)  # where there is none, kernels without must do
                if not room:
                    those = chosen.get(-alignment) or choose(alignment, 0)
            if alignment in untimed and room and stream.graph is None:  # what is captured cannot be timed
                untimed.discard(alignment)
                time(those, stream, args, room)
                cache.store(f"{name}-{alignment}", bytes(those[0]))
            one = those[0]
            enter(to, left, right, addressof(one), room, one.workspace, stream.raw, *beside)  # the algorithm lies first in it
            while codes[0] in _ELSEWHERE and len(those) > 1:
                codes[0] = 0
                with lock:
                    if those[0] is one and len(those) > 1:
                        del those[0]
                    one = those[0]
                enter(to, left, right, addressof(one), room, one.workspace, stream.raw, *beside)
            if codes[0]:
                failed(stream)
        call.keep = made, scale, keep, result  # type: ignore[attr-defined]  # the builtin knows their addresses only
        try:
            for alignment in (_FULL, _ROW) if epilogue else (_FULL,):
                choose(alignment)
        except RuntimeError:
            if epilogue or batch <= _MOST_BATCH:
                return None
            return self._parts(device, d, m, n, k, a, b, c, batch, alpha, beta, tf32, wide, epilogue, timed)
        return call

    def _parts(self, device: int, d: dtype, m: int, n: int, k: int, a: Steps, b: Steps, c: Steps, batch: int,
               *more: Any) -> Callable[[Any, tuple[Any, ...]], None] | None:
        """A batch in parts that every kernel serves."""
        parts = []
        for at in range(0, batch, _MOST_BATCH):
            part = self.product(device, d, m, n, k, a, b, c, min(_MOST_BATCH, batch - at), *more)
            if part is None:
                return None
            parts.append((part, [at * operand[2] * d.itemsize for operand in (c, a, b)]))

        def call(stream: Stream, args: tuple[Any, ...]) -> None:
            for part, beyond in parts:
                part(stream, tuple([address + past for address, past in zip(args, beyond, strict=True)]))
        return call


def signs_bytes(m: int, n: int) -> int:
    """How many bytes "bias relu signs" writes for an (m, n) result: rows are whole times 128 bits."""
    return m * -(-n // 128) * 16


def product(launches: Launches, device: int, spec: Product) -> PreparedLaunch | None:
    """None for strides, types and epilogues that the library does not serve.  What it does beside a product wants operands aligned to 16 bytes;
    its max(x, 0) is 0 for NaN, and its GELU of float32 differs from ours in the last bits."""
    d, m, n, k, epilogue = spec.dtype, spec.m, spec.n, spec.k, spec.epilogue
    if d.kind not in "fc" or not k:
        return None
    beside = 0
    if spec.recorded and epilogue == "bias relu":
        epilogue, beside = "bias relu signs", signs_bytes(m, n)
    elif spec.recorded and epilogue == "bias gelu":
        epilogue, beside = "bias gelu input", m * n * d.itemsize
    call = launches.library("cublasLt", Library).product(device, d, m, n, k, spec.a, spec.b, spec.c, spec.batch, spec.alpha, spec.beta, spec.tf32,
                                                         spec.wide, epilogue, spec.timed)
    if call is None:
        return None
    after = epilogue.removeprefix("bias").strip().replace(" ", "_")
    made = launches.call(f"matmul_{d.name}" + (f"_{after}" if after and epilogue != "row sums" else ""), device, call,
                         nbytes=(m * k + k * n + m * n) * spec.batch * d.itemsize + _more_bytes(epilogue, m, n, d.itemsize),
                         flops=(8 if d.kind == "c" else 2) * m * n * k * spec.batch)
    made.beside, made.aligned, made.exact = beside, _ROW - 1 if epilogue else 0, not epilogue or "gelu" in epilogue and d.itemsize == 2
    return made


def _more_bytes(epilogue: str, m: int, n: int, itemsize: int) -> int:
    if epilogue in ("bias relu signs", "relu gradient"):
        return signs_bytes(m, n)
    return m * n * itemsize if epilogue in ("bias gelu input", "gelu gradient") else 0

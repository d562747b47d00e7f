"""Factorizations of matrices by cuSOLVER's dense routines, and triangular equations by cuBLAS, entered through ctypes.

Matrices lie packed one after another, column by column, as LAPACK has them.  Batches of small ones go by the libraries' batched
routines, which want the matrices' addresses in the GPU's memory; other batches are a loop.  Each stream has handles of its own, since
a handle's memory serves one stream at a time.  Names and numbers are those of NVIDIA's cusolverDn.h and cublas_api.h.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

from . import libraries

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import Lapack
    from .driver import NvidiaDriver
    from .launches import Launches
    from .streams import Stream

    # the operands' addresses for one matrix, the work area, where a code goes that nobody asked for -> the routine's arguments
    Arrange = Callable[[list[int], int, int], tuple[Any, ...]]

_LETTERS = {"float32": "S", "float64": "D", "complex64": "C", "complex128": "Z"}
_LOWER, _UPPER, _LEFT = 0, 1, 0
_PLAIN, _ADJOINT = 0, 2
_STATUS = {1: "it does not start", 2: "it could not allocate memory", 3: "an argument is not valid", 4: "the GPU's architecture is not supported",
           6: "its kernel could not be started", 7: "an internal error", 9: "it does not support this"}
_BLAS_STATUS = {1: "it does not start", 3: "it could not allocate memory", 7: "an argument is not valid", 8: "the GPU's architecture is not supported",
                13: "its kernel could not be started", 14: "an internal error"}
_HEAD = 256  # bytes before the work area, for codes
_MOST = (1 << 31) - 1  # the routines count in 32 bits
_SMALL = 256  # rows of a matrix up to which a batch goes by one call: a larger one keeps the GPU busy by itself
P = ctypes.c_void_p


class Library:
    """One of the two for the devices of a driver; `lib` is None where it is not installed."""

    def __init__(self, driver: NvidiaDriver, name: str) -> None:
        self.driver, self.name, self.lib = driver, name, libraries.optional(name)
        self.status, self.prefix = (_STATUS, "cusolverDn") if name == "cusolver" else (_BLAS_STATUS, "cublas")
        self._handles: dict[Stream | int, ctypes.c_void_p] = {}
        self._lock = threading.RLock()

    def handle(self, where: Stream | int) -> ctypes.c_void_p:
        """The handle of a stream, or of a device for questions."""
        found = self._handles.get(where)
        if found is None:
            lib: Any = self.lib
            with self._lock:
                device = where if isinstance(where, int) else where.device
                self.driver._use(device)
                found, tail = ctypes.c_void_p(), "" if self.name == "cusolver" else "_v2"
                self.check(device, None, getattr(lib, f"{self.prefix}Create{tail}")(ctypes.byref(found)), "starting")
                if not isinstance(where, int):
                    self.check(device, None, getattr(lib, f"{self.prefix}SetStream{tail}")(found, P(where.raw)), "starting")
                found = self._handles.setdefault(where, found)
        return found

    def check(self, device: int, stream: Stream | None, code: int, what: str) -> None:
        libraries.check(self.driver, device, stream, code, self.name, what, self.status)


class Routine:
    """One routine for matrices of one size: its C name, how many elements of work it wants, the bytes from matrix to matrix of each
    operand, and its arguments."""

    def __init__(self, name: str, work: int, steps: tuple[int, ...], arrange: Arrange, flops: int) -> None:
        self.name, self.work, self.steps, self.arrange, self.flops = name, work, steps, arrange, flops


def lapack(launches: Launches, device: int, spec: Lapack) -> PreparedLaunch | None:
    """``entry(*operands, work)`` for `batch` matrices; the functions below say the operands of each `name`.  None where the library is
    absent, or counts no further than the sizes, where there is nothing to do, and for whole jobs, which are made of several of these."""
    name, d, batch, sizes = spec
    if name not in _ROUTINES or not batch or not all(sizes[:2]):
        return None
    letter = _LETTERS.get(d.name)
    if letter is not None and batch > 1 and max(sizes[:2]) <= _SMALL:
        together = _batched(launches, device, name, letter, d.itemsize, batch, *sizes)
        if together is not None:
            return together
    which = "cublas" if name == "trsm" else "cusolver"
    library = _library(launches, which)
    if letter is None or library.lib is None or any(n * m > _MOST for n in sizes for m in sizes):
        return None
    lib: Any = library.lib

    def ask(routine: str, *args: Any) -> int:
        length = ctypes.c_int(0)
        launches.driver._use(device)
        library.check(device, None, getattr(lib, f"cusolverDn{letter}{routine}_bufferSize")(library.handle(device), *args, ctypes.byref(length)),
                      f"asking for the work area of {routine}")
        return length.value
    made: Routine = _ROUTINES[name](ask, letter, d.itemsize, *sizes)
    enter, what = getattr(lib, made.name), f"{made.name} of {batch} matrices ({', '.join(map(str, sizes))})"
    lock = library._lock

    def call(stream: Stream, args: tuple[Any, ...]) -> None:
        *operands, work = args
        library.driver._use(device)
        handle = library.handle(stream)
        code = 0
        with lock:
            for i in range(batch):
                code = code or enter(handle, *made.arrange([a and a + i * step for a, step in zip(operands, made.steps, strict=True)],
                                                           work + _HEAD, work))
        library.check(device, stream, code, what)
    return launches.call(name, device, call, workspace=_HEAD + made.work * d.itemsize + 8 * max((*sizes, 1)),
                         nbytes=batch * sum(made.steps), flops=batch * made.flops)


def _library(launches: Launches, which: str) -> Library:
    found: Library = launches.library(which, lambda driver: Library(driver, which))
    return found


def _batched(launches: Launches, device: int, name: str, letter: str, item: int, batch: int, *sizes: int) -> PreparedLaunch | None:
    """`lapack` by one call for the whole batch; None where there is none for it.

    Below: the library, its routine, the bytes from matrix to matrix of each operand (0: the routine takes them all as one), and the
    arguments from the operands' addresses, or those of the lists of their matrices' addresses.
    """
    n = sizes[0]
    steps: tuple[int, ...]
    if name == "potrf":
        which, routine, steps = "cusolver", f"cusolverDn{letter}potrfBatched", (n * n * item, 0)
        arrange: Any = lambda a: (_LOWER, n, P(a[0]), n, P(a[1]), batch)
    elif name == "getrf" and sizes[1] == n:
        which, routine, steps = "cublas", f"cublas{letter}getrfBatched", (n * n * item, 0, 0)
        arrange = lambda a: (n, P(a[0]), n, P(a[1]), P(a[2]), batch)
    elif name == "getrs":
        _, k, adjoint = sizes
        told = ctypes.c_int(0)  # of the arguments, and the host's
        which, routine, steps = "cublas", f"cublas{letter}getrsBatched", (n * k * item, n * n * item, 0)
        arrange = lambda a: (_ADJOINT if adjoint else _PLAIN, n, k, P(a[1]), n, P(a[2]), P(a[0]), n, ctypes.byref(told), batch)
    elif name == "trsm":
        _, k, upper, unit = sizes
        one = ((ctypes.c_double if letter in "DZ" else ctypes.c_float) * 2)(1.0, 0.0)
        which, routine, steps = "cublas", f"cublas{letter}trsmBatched", (n * k * item, n * n * item)
        arrange = lambda a: (_LEFT, _UPPER if upper else _LOWER, _PLAIN, unit, n, k, ctypes.byref(one), P(a[1]), n, P(a[0]), n, batch)
    else:
        return None
    library = _library(launches, which)
    if library.lib is None:
        return None
    enter, driver = getattr(library.lib, routine), library.driver
    what = f"{routine} of {batch} matrices ({', '.join(map(str, sizes))})"
    lists = sum(1 for step in steps if step)

    def call(stream: Stream, args: tuple[Any, ...]) -> None:
        *operands, work = args
        driver._use(device)
        table = (ctypes.c_uint64 * (lists * batch))(*[a + i * step for a, step in zip(operands, steps, strict=True) if step for i in range(batch)])
        driver.memcpy(stream, work, ctypes.addressof(table), ctypes.sizeof(table))  # of pageable memory: read when the call returns
        places = iter(range(work, work + 8 * lists * batch, 8 * batch))
        with library._lock:
            code = enter(library.handle(stream), *arrange([next(places) if step else a for a, step in zip(operands, steps, strict=True)]))
        library.check(device, stream, code, what)
    return launches.call(name, device, call, workspace=8 * lists * batch, nbytes=batch * sum(steps), flops=batch * n ** 3)


def _potrf(ask: Any, letter: str, item: int, n: int) -> Routine:
    """(A, info): the lower triangle of A becomes L."""
    size = ask("potrf", _LOWER, n, None, n)
    return Routine(f"cusolverDn{letter}potrf", size, (n * n * item, 4),
                   lambda a, work, _: (_LOWER, n, P(a[0]), n, P(work), size, P(a[1])), n ** 3 // 3)


def _getrf(ask: Any, letter: str, item: int, m: int, n: int) -> Routine:
    """(A, pivots, info): A becomes L and U; without exchanges where pivots is 0."""
    size = ask("getrf", m, n, None, m)
    return Routine(f"cusolverDn{letter}getrf", size, (m * n * item, min(m, n) * 4, 4),
                   lambda a, work, _: (m, n, P(a[0]), m, P(work), P(a[1]), P(a[2])), m * n * min(m, n))


def _getrs(ask: Any, letter: str, item: int, n: int, k: int, adjoint: int) -> Routine:
    """(X, LU, pivots): X holds B."""
    return Routine(f"cusolverDn{letter}getrs", 0, (n * k * item, n * n * item, n * 4),
                   lambda a, _, code: (_ADJOINT if adjoint else _PLAIN, n, k, P(a[1]), n, P(a[2]), P(a[0]), n, P(code)), 2 * n * n * k)


def _geqrf(ask: Any, letter: str, item: int, m: int, n: int) -> Routine:
    """(A, tau)"""
    size = ask("geqrf", m, n, None, m)
    return Routine(f"cusolverDn{letter}geqrf", size, (m * n * item, min(m, n) * item),
                   lambda a, work, code: (m, n, P(a[0]), m, P(a[1]), P(work), size, P(code)), 2 * m * n * min(m, n))


def _orgqr(ask: Any, letter: str, item: int, m: int, n: int, k: int) -> Routine:
    """(A, tau): the first n columns of the product of k reflectors."""
    name = "ungqr" if letter in "CZ" else "orgqr"
    size = ask(name, m, n, k, None, m, None)
    return Routine(f"cusolverDn{letter}{name}", size, (m * n * item, k * item),
                   lambda a, work, code: (m, n, k, P(a[0]), m, P(a[1]), P(work), size, P(code)), 4 * m * n * k)


def _syevd(ask: Any, letter: str, item: int, n: int, _: int, vectors: int, lower: int) -> Routine:
    """(w, A, info): A, of n rows and as many columns, becomes the eigenvectors where they are asked for."""
    name, side = "heevd" if letter in "CZ" else "syevd", _LOWER if lower else _UPPER
    size = ask(name, vectors, side, n, None, n, None)
    real = item // 2 if letter in "CZ" else item
    return Routine(f"cusolverDn{letter}{name}", size, (n * real, n * n * item, 4),
                   lambda a, work, _: (vectors, side, n, P(a[1]), n, P(a[0]), P(work), size, P(a[2])), 4 * n ** 3)


def _gesvd(ask: Any, letter: str, item: int, m: int, n: int, job: int) -> Routine:
    """(U, s, V^H, info, A) for m >= n; A is lost.  job: the letter's code, "N", "S" or "A"."""
    size = ask("gesvd", m, n)
    real = item // 2 if letter in "CZ" else item
    columns = {ord("A"): m, ord("S"): n}.get(job, 0)
    return Routine(f"cusolverDn{letter}gesvd", size, (m * columns * item, n * real, n * n * item if columns else 0, 4, m * n * item),
                   lambda a, work, _: (job, job, m, n, P(a[4]), m, P(a[1]), P(a[0]), m, P(a[2]), n, P(work), size,
                                       P((work + size * item + 7) & -8), P(a[3])), 8 * m * n * n)


def _trsm(ask: Any, letter: str, item: int, n: int, k: int, upper: int, unit: int) -> Routine:
    """(X, A): X holds B."""
    one = (ctypes.c_double if letter in "DZ" else ctypes.c_float) * 2
    number = one(1.0, 0.0)

    def arrange(a: list[int], _: int, code: int) -> tuple[Any, ...]:
        return _LEFT, _UPPER if upper else _LOWER, _PLAIN, unit, n, k, ctypes.byref(number), P(a[1]), n, P(a[0]), n
    return Routine(f"cublas{letter}trsm_v2", 0, (n * k * item, n * n * item), arrange, n * n * k)


_ROUTINES: dict[str, Any] = {"potrf": _potrf, "getrf": _getrf, "getrs": _getrs, "geqrf": _geqrf, "orgqr": _orgqr, "syevd": _syevd,
                             "gesvd": _gesvd, "trsm": _trsm}

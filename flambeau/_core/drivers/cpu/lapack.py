"""LAPACK over batches of matrices, in the precision of their elements.

The library is the CPU's OpenBLAS (64-bit integers); its routines take every argument by address and matrices column by
column.  Each function here runs one routine over a batch: matrices lie one after another, packed (leading dimension =
rows), at the address given; `pivots` and `info` are NumPy arrays of int64.  They run on a device's queue, never touch a
tensor, and release the interpreter lock inside the library.  A batch is one call of a small generated function that goes
through it; batches of large matrices are shared out over threads, each with its own workspace; one very large matrix is
left to the library's own threads.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels import native
from . import blas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LETTER = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
REAL = {"s": np.float32, "d": np.float64, "c": np.float32, "z": np.float64}
TYPE: dict[str, Any] = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
SIZE = {"s": 4, "d": 8, "c": 8, "z": 16}
_SHARED = 1 << 20  # operations in a batch from which it is worth several threads
_LARGE = 1 << 27  # operations in one matrix from which the library's own threads are worth waking
_MOST = 16  # arguments a routine here has at most, lengths of its letters included
_functions: dict[str, Any] = {}
_letters: dict[bytes, Any] = {}
_sizes: dict[Any, int] = {}
_through: Any = None
_alone = threading.Lock()


def _after_fork() -> None:
    """The thread that held the lock is not in the child."""
    global _alone
    _alone = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def function(name: str) -> Any:
    """The library's routine `name`, callable with addresses.  It is called with more arguments than it has: C's calling
    conventions leave those to the caller."""
    found = _functions.get(name)
    if found is None:
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * _MOST)
        found = _functions[name] = kind(blas.address(name + "_"))
    return found


def at(array: Any) -> int:
    """Where an array's elements are."""
    where: int = array.__array_interface__["data"][0]
    return where


def _loop() -> Any:
    """A function that calls a routine for matrices begin ... end of a batch: block holds the routine, then for each argument its
    address for the first matrix and the bytes from matrix to matrix."""
    global _through
    if _through is None:
        from ...kernels.llvm import compile as compiler
        lines = ["define void @lapack_each(i64 %begin, i64 %end, ptr %args, ptr %block) #0 {", "entry:", "  %fn = load ptr, ptr %block"]
        for k in range(_MOST):
            for part, word in (("base", 2 * k + 1), ("step", 2 * k + 2)):
                lines += [f"  %{part}{k}.p = getelementptr i64, ptr %block, i64 {word}", f"  %{part}{k} = load i64, ptr %{part}{k}.p"]
        lines += ["  %some = icmp slt i64 %begin, %end", "  br i1 %some, label %loop, label %done", "loop:",
                  "  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]"]
        for k in range(_MOST):
            lines += [f"  %far{k} = mul i64 %i, %step{k}", f"  %sum{k} = add i64 %base{k}, %far{k}", f"  %a{k} = inttoptr i64 %sum{k} to ptr"]
        lines += [f"  call void %fn({', '.join(f'ptr %a{k}' for k in range(_MOST))})", "  %next = add i64 %i, 1",
                  "  %more = icmp slt i64 %next, %end", "  br i1 %more, label %loop, label %done", "done:", "  ret void", "}"]
        text = "\n".join(lines) + "\n"
        found = compiler.functions(("lapack loop", text), ("lapack_each",), lambda: text)["lapack_each"]
        _through = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(found)
    return _through


def _addresses(args: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Where each argument is for the first matrix, and how far on for the next.  An argument is an address, (address, bytes from
    matrix to matrix), a letter, a boxed number or an array."""
    bases, steps = [0] * _MOST, [0] * _MOST
    for k, x in enumerate(args):
        kind = type(x)
        if kind is tuple:
            bases[k], steps[k] = x
        elif kind is int:
            bases[k] = x
        elif kind is bytes:
            letter = _letters.get(x)
            if letter is None:
                letter = _letters.setdefault(x, ctypes.create_string_buffer(x))
            bases[k] = ctypes.addressof(letter)
        else:
            bases[k] = ctypes.addressof(x) if kind is box else at(x)
    return bases, steps


box = ctypes.c_int64


def call(name: str, *args: Any) -> None:
    """One call, for the first matrix."""
    function(name)(*_addresses(args)[0])


def sweep(name: str, batch: int, flops: float, build: Callable[[], Sequence[Any]]) -> None:
    """Calls a routine for each matrix of a batch, which takes `flops` operations; `build` gives arguments, with a workspace of its
    own for each thread that asks."""
    threads = native.get_num_threads()
    if batch == 1:
        args = build()
        if threads > 1 and flops > _LARGE:
            with _alone:  # the setting is the library's, not the thread's
                count = blas.library().scipy_openblas_set_num_threads64_
                count(threads)
                try:
                    call(name, *args)
                finally:
                    count(1)
        else:
            call(name, *args)
        return
    if batch * flops < _SHARED:
        threads = 1
    share(batch, threads, lambda first, last: _part(name, first, last, build()))


def _part(name: str, first: int, last: int, args: Sequence[Any]) -> None:
    bases, steps = _addresses(args)
    words = [blas.address(name + "_")]
    for base, step in zip(bases, steps, strict=True):
        words += (base, step)
    block = (ctypes.c_int64 * len(words))(*words)
    _loop()(first, last, 0, ctypes.addressof(block))


def share(batch: int, threads: int, some: Callable[[int, int], None]) -> None:
    """Runs `some(first, last)` over a batch on several threads.  An exception of any part is raised here."""
    threads = min(threads, batch)
    if threads <= 1:
        some(0, batch)
        return
    errors: list[BaseException] = []

    def part(k: int) -> None:
        try:
            some(batch * k // threads, batch * (k + 1) // threads)
        except BaseException as error:  # noqa: BLE001 (handed to the caller's thread)
            errors.append(error)
    others = [threading.Thread(target=part, args=(k,)) for k in range(1, threads)]
    for t in others:
        t.start()
    part(0)
    for t in others:
        t.join()
    if errors:
        raise errors[0]


def _asked(letter: str, ask: Callable[[Any, Any], None]) -> int:
    """The workspace a routine asks for when called with length -1."""
    answer = np.zeros(1, TYPE[letter])
    ask(answer, box(-1))
    # float32 cannot hold every length: a little more than it says
    return max(1, int(answer[0].real * (1 + 1e-6)) + 1)


# ------------------------------------------------------------------------------------------------------------ LU, solving
def getrf(letter: str, batch: int, m: int, n: int, a: int, pivots: Any, info: Any) -> None:
    """A = P L U in place; pivots (batch, min(m, n)) from 1; info > 0: U has a zero on its diagonal there."""
    args = (box(m), box(n), (a, m * n * SIZE[letter]), box(max(m, 1)), (at(pivots), min(m, n) * 8), (at(info), 8))
    sweep(letter + "getrf", batch, m * n * min(m, n), lambda: args)


def getrs(letter: str, batch: int, n: int, columns: int, lu: int, pivots: Any, b: int, adjoint: bool = False) -> None:
    """X of A X = B (or A^H X = B) over B (n, columns), from getrf's results."""
    args = (b"C" if adjoint else b"N", box(n), box(columns), (lu, n * n * SIZE[letter]), box(max(n, 1)), (at(pivots), n * 8),
            (b, n * columns * SIZE[letter]), box(max(n, 1)), np.zeros(1, np.int64), 1)
    sweep(letter + "getrs", batch, 2 * n * n * columns, lambda: args)


def getri(letter: str, batch: int, n: int, lu: int, pivots: Any, info: Any) -> None:
    """The inverse over getrf's result; info as there."""
    def build(work: Any, length: Any) -> Sequence[Any]:
        return (box(n), (lu, n * n * SIZE[letter]), box(max(n, 1)), (at(pivots), n * 8), work, length, (at(info), 8))
    _with_work(letter, "getri", (n,), batch, 4 * n * n * n / 3, build)


def _with_work(letter: str, name: str, dims: tuple[Any, ...], batch: int, flops: float, build: Callable[[Any, Any], Sequence[Any]]) -> None:
    """`sweep` for a routine whose workspace `work` has the length it asks for, which depends on `dims`."""
    size = _sizes.get((letter, name, dims))
    if size is None:
        if len(_sizes) > 1 << 12:
            _sizes.clear()
        size = _sizes[letter, name, dims] = _asked(letter, lambda work, length: call(letter + name, *build(work, length)))
    sweep(letter + name, batch, flops, lambda: build(np.empty(size, TYPE[letter]), box(size)))


def trsm(letter: str, batch: int, n: int, columns: int, a: int, b: int, upper: bool, unit: bool) -> None:
    """X of A X = B over B (n, columns), with one triangle of A."""
    item = SIZE[letter]
    args = (b"L", b"U" if upper else b"L", b"N", b"U" if unit else b"N", box(n), box(columns), np.ones(1, TYPE[letter]), (a, n * n * item),
            box(max(n, 1)), (b, n * columns * item), box(max(n, 1)), 1, 1, 1, 1)
    sweep(letter + "trsm", batch, n * n * columns, lambda: args)


def potrf(letter: str, batch: int, n: int, a: int, info: Any) -> None:
    """A = L L^H over the lower triangle; info > 0: the leading minor of that order is not positive."""
    args = (b"L", box(n), (a, n * n * SIZE[letter]), box(max(n, 1)), (at(info), 8), 1)
    sweep(letter + "potrf", batch, n * n * n / 3, lambda: args)


def sytrf(letter: str, batch: int, n: int, a: int, pivots: Any, info: Any, hermitian: bool) -> None:
    """A = L D L^T (L D L^H when hermitian) over the lower triangle, D in blocks of 1 and 2 (Bunch and Kaufman)."""
    def build(work: Any, length: Any) -> Sequence[Any]:
        return (b"L", box(n), (a, n * n * SIZE[letter]), box(max(n, 1)), (at(pivots), n * 8), work, length, (at(info), 8), 1)
    _with_work(letter, "hetrf" if hermitian and letter in "cz" else "sytrf", (n,), batch, n * n * n / 3, build)


def sytrs(letter: str, batch: int, n: int, columns: int, ld: int, pivots: Any, b: int, hermitian: bool) -> None:
    """X of A X = B over B (n, columns), from sytrf's results."""
    args = (b"L", box(n), box(columns), (ld, n * n * SIZE[letter]), box(max(n, 1)), (at(pivots), n * 8), (b, n * columns * SIZE[letter]),
            box(max(n, 1)), np.zeros(1, np.int64), 1)
    sweep(letter + ("hetrs" if hermitian and letter in "cz" else "sytrs"), batch, 2 * n * n * columns, lambda: args)


# --------------------------------------------------------------------------------------------------------- orthogonal
def geqrf(letter: str, batch: int, m: int, n: int, a: int, tau: int) -> None:
    """Householder's A = Q R in place: R above, the reflectors below the diagonal, their factors in tau (min(m, n))."""
    item = SIZE[letter]

    def build(work: Any, length: Any) -> Sequence[Any]:
        return (box(m), box(n), (a, m * n * item), box(max(m, 1)), (tau, min(m, n) * item), work, length, np.zeros(1, np.int64))
    _with_work(letter, "geqrf", (m, n), batch, 2 * m * n * min(m, n), build)


def orgqr(letter: str, batch: int, m: int, n: int, k: int, a: int, tau: int, tau_step: int) -> None:
    """The first n columns of the product of k reflectors, over them; tau_step: elements from one tau to the next."""
    item = SIZE[letter]

    def build(work: Any, length: Any) -> Sequence[Any]:
        return (box(m), box(n), box(k), (a, m * n * item), box(max(m, 1)), (tau, tau_step * item), work, length, np.zeros(1, np.int64))
    _with_work(letter, "ungqr" if letter in "cz" else "orgqr", (m, n, k), batch, 4 * m * n * k, build)


# ------------------------------------------------------------------------------------------------ eigenvalues, SVD
def syevd(letter: str, batch: int, n: int, vectors: bool, lower: bool, a: int, w: int, info: Any) -> None:
    """Eigenvalues, rising, of Hermitian matrices into w (real); eigenvectors over A when asked for."""
    is_complex = letter in "cz"
    real: Any = REAL[letter]
    # the least sizes the routine documents, and room for its blocked form
    if is_complex:
        size, real_size = (2 * n + n * n, 1 + 5 * n + 2 * n * n) if vectors else (n + 1, n + 1)
    else:
        size, real_size = (1 + 6 * n + 2 * n * n if vectors else 2 * n + 1), 0
    size, whole = size + 64 * n, 3 + 5 * n if vectors else 1

    def build() -> Sequence[Any]:
        more = (np.empty(real_size, real), box(real_size)) if is_complex else ()
        return (b"V" if vectors else b"N", b"L" if lower else b"U", box(n), (a, n * n * SIZE[letter]), box(max(n, 1)),
                (w, n * np.dtype(real).itemsize), np.empty(size, TYPE[letter]), box(size), *more, np.empty(whole, np.int64), box(whole),
                (at(info), 8), 1, 1)
    sweep(letter + ("heevd" if is_complex else "syevd"), batch, 4 * n * n * n, build)


def geev(letter: str, batch: int, n: int, vectors: bool, a: int, values: Any, right: Any, info: Any) -> None:
    """Eigenvalues (batch, n) and right eigenvectors (batch, n, n; column by column in memory: [b, j] is vector j), both
    complex arrays; A is overwritten."""
    is_complex, item, kind = letter in "cz", SIZE[letter], TYPE[letter]
    if is_complex:
        w, v = values, right
        places: tuple[Any, ...] = ((at(w), n * item),)
    else:
        w, v = np.empty((2, batch, n), kind), np.empty((batch, n, n) if vectors else (1,), kind)
        places = ((at(w), n * item), (at(w) + batch * n * item, n * item))

    def build(work: Any, length: Any) -> Sequence[Any]:
        more = (np.empty(2 * n + 1, REAL[letter]),) if is_complex else ()
        return (b"N", b"V" if vectors else b"N", box(n), (a, n * n * item), box(max(n, 1)), *places, 0, box(1),
                (at(v), n * n * item if vectors else 0), box(max(n, 1)), work, length, *more, (at(info), 8), 1, 1)
    _with_work(letter, "geev", (n, vectors), batch, 10 * n * n * n, build)
    if not is_complex:
        values.real, values.imag = w[0], w[1]
        if vectors:
            _pairs(v, w[1], right)


def _pairs(v: Any, imaginary: Any, right: Any) -> None:
    """The complex eigenvectors from real ones: a conjugate pair of eigenvalues shares two rows, real and imaginary parts."""
    right[...] = v
    b, j = np.nonzero(imaginary > 0)
    right[b, j] = v[b, j] + 1j * v[b, j + 1]
    right[b, j + 1] = right[b, j].conj()


def gesdd(letter: str, batch: int, m: int, n: int, job: str, a: int, s: int, u: int, vt: int, info: Any) -> None:
    """A = U diag(S) V^H, A overwritten.  job: "N" S only, "S" the thin U (m, k) and V^H (k, n), "A" all of them."""
    is_complex, k, item = letter in "cz", min(m, n), SIZE[letter]
    real: Any = REAL[letter]
    columns, rows = (m, n) if job == "A" else (k, k)
    big = max(m, n)
    real_size = max(5 * k * k + 5 * k, 2 * big * k + 2 * k * k + k) if job != "N" else 7 * k

    def build(work: Any, length: Any) -> Sequence[Any]:
        more = (np.empty(real_size, real),) if is_complex else ()
        return (job.encode(), box(m), box(n), (a, m * n * item), box(max(m, 1)), (s, k * np.dtype(real).itemsize), (u, m * columns * item),
                box(max(m, 1)), (vt, rows * n * item), box(max(rows, 1)), work, length, *more, np.empty(8 * k, np.int64), (at(info), 8), 1)
    _with_work(letter, "gesdd", (m, n, job), batch, 8 * m * n * k, build)


# ------------------------------------------------------------------------------------------------------- least squares
def least_squares(letter: str, driver: str, batch: int, m: int, n: int, columns: int, a: int, b: int, rank: Any, s: Any, rcond: float,
                  info: Any) -> None:
    """The least-norm X of min |A X - B| into the first n rows of B, which has max(m, n) rows; A is overwritten.

    driver: "gels" (full rank, QR), "gelsy" (rank by a pivoted QR), "gelsd", "gelss" (SVD; singular values into s).
    """
    is_complex, k, tall = letter in "cz", min(m, n), max(m, n, 1)
    real: Any = REAL[letter]
    item = SIZE[letter]
    tolerance = np.array([rcond], real)
    levels = max(0, int(np.log2(max(k, 1) / 26)) + 1)
    real_size = max(1, 10 * tall + 2 * tall * 25 + 8 * tall * (levels + 1) + 3 * 25 * columns + max(26 * 26, tall * (1 + columns) + 2 * columns))
    whole = max(1, 3 * k * levels + 11 * k)
    # columns a pivoted QR may move: all, which zeros say
    free = np.zeros((batch, max(n, 1)), np.int64)

    def build(work: Any, length: Any) -> Sequence[Any]:
        system = (box(m), box(n), box(columns), (a, m * n * item), box(max(m, 1)), (b, tall * columns * item), box(tall))
        if driver == "gels":
            return (b"N", *system, work, length, (at(info), 8), 1)
        extra = (np.empty(real_size, real),) if is_complex else ()
        if driver == "gelsy":
            return (*system, (at(free), max(n, 1) * 8), tolerance, (at(rank), 8), work, length, *extra, (at(info), 8))
        last = (np.empty(whole, np.int64),) if driver == "gelsd" else ()
        return (*system, (at(s), k * np.dtype(real).itemsize), tolerance, (at(rank), 8), work, length, *extra, *last, (at(info), 8))
    _with_work(letter, driver, (m, n, columns), batch, 4 * m * n * k, build)

"""LAPACK over batches of matrices, in the precision of their elements.

The library is the CPU's OpenBLAS (64-bit integers); its routines take every argument by address and matrices column by
column.  Each function here runs one routine over a batch: matrices lie one after another, packed (leading dimension =
rows), at the address given; `pivots` and `info` are NumPy arrays of int64.  They run on a device's queue, never touch a
tensor, and release the interpreter lock inside the library.  Large batches are shared out over threads; each thread has its
own workspace.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ...drivers.cpu import blas
from ...kernels import native

if TYPE_CHECKING:
    from collections.abc import Callable

LETTER = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
REAL = {"s": np.float32, "d": np.float64, "c": np.float32, "z": np.float64}
TYPE: dict[str, Any] = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
SIZE = {"s": 4, "d": 8, "c": 8, "z": 16}
_SHARED = 1 << 17  # operations in one matrix from which a batch is worth several threads
_functions: dict[tuple[str, int], Any] = {}


def function(name: str, count: int) -> Any:
    """The library's routine `name` of `count` arguments, callable with addresses, bytes and boxed numbers."""
    found = _functions.get((name, count))
    if found is None:
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)
        found = _functions[name, count] = kind(blas.address(name + "_"))
    return found


def box(value: int) -> Any:
    """A number as an argument."""
    return ctypes.byref(ctypes.c_int64(value))


def at(array: Any) -> int:
    """Where an array's elements are."""
    where: int = array.__array_interface__["data"][0]
    return where


def share(batch: int, flops: float, some: Callable[[int, int], None]) -> None:
    """Runs `some(first, last)` over the batch, on several threads when one matrix takes `flops` operations and that is much.
    An exception of any part is raised here."""
    threads = min(native.get_num_threads(), batch)
    if threads <= 1 or flops < _SHARED:
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


def _scalar(letter: str, value: float) -> Any:
    return np.array([value], TYPE[letter])


# ------------------------------------------------------------------------------------------------------------ LU, solving
def getrf(letter: str, batch: int, m: int, n: int, a: int, pivots: Any, info: Any) -> None:
    """A = P L U in place; pivots (batch, min(m, n)) from 1; info > 0: U has a zero on its diagonal there."""
    run, rows, cols, lead = function(letter + "getrf", 6), box(m), box(n), box(max(m, 1))
    step, p, k, i0 = m * n * SIZE[letter], at(pivots), min(m, n) * 8, at(info)

    def some(first: int, last: int) -> None:
        for i in range(first, last):
            run(rows, cols, a + i * step, lead, p + i * k, i0 + i * 8)
    share(batch, m * n * min(m, n), some)


def getrs(letter: str, batch: int, n: int, columns: int, lu: int, pivots: Any, b: int, adjoint: bool = False) -> None:
    """X of A X = B (or A^H X = B) over B (n, columns), from getrf's results."""
    run, order, rhs, lead, info = function(letter + "getrs", 10), box(n), box(columns), box(max(n, 1)), np.zeros(1, np.int64)
    step, p, b_step, i0 = n * n * SIZE[letter], at(pivots), n * columns * SIZE[letter], at(info)
    how = b"C" if adjoint else b"N"

    def some(first: int, last: int) -> None:
        for i in range(first, last):
            run(how, order, rhs, lu + i * step, lead, p + i * n * 8, b + i * b_step, lead, i0, 1)
    share(batch, 2 * n * n * columns, some)


def trsm(letter: str, batch: int, n: int, columns: int, a: int, b: int, upper: bool, unit: bool) -> None:
    """X of A X = B over B (n, columns), with one triangle of A."""
    one = _scalar(letter, 1)
    run, order, rhs, lead, alpha = function(letter + "trsm", 15), box(n), box(columns), box(max(n, 1)), at(one)
    step, b_step = n * n * SIZE[letter], n * columns * SIZE[letter]
    which, diagonal = b"U" if upper else b"L", b"U" if unit else b"N"

    def some(first: int, last: int) -> None:
        for i in range(first, last):
            run(b"L", which, b"N", diagonal, order, rhs, alpha, a + i * step, lead, b + i * b_step, lead, 1, 1, 1, 1)
    share(batch, n * n * columns, some)


def potrf(letter: str, batch: int, n: int, a: int, info: Any) -> None:
    """A = L L^H over the lower triangle; info > 0: the leading minor of that order is not positive."""
    run, order, lead = function(letter + "potrf", 6), box(n), box(max(n, 1))
    step, i0 = n * n * SIZE[letter], at(info)

    def some(first: int, last: int) -> None:
        for i in range(first, last):
            run(b"L", order, a + i * step, lead, i0 + i * 8, 1)
    share(batch, n * n * n / 3, some)


def sytrf(letter: str, batch: int, n: int, a: int, pivots: Any, info: Any, hermitian: bool) -> None:
    """A = L D L^T (L D L^H when hermitian) over the lower triangle, D in blocks of 1 and 2 (Bunch and Kaufman)."""
    name = letter + ("hetrf" if hermitian and letter in "cz" else "sytrf")
    run, order, lead = function(name, 9), box(n), box(max(n, 1))
    step, p, i0 = n * n * SIZE[letter], at(pivots), at(info)
    size = _asked(letter, lambda w, none: run(b"L", order, a, lead, p, w, none, i0, 1))

    def some(first: int, last: int) -> None:
        work = np.empty(size, TYPE[letter])
        w, length = at(work), box(size)
        for i in range(first, last):
            run(b"L", order, a + i * step, lead, p + i * n * 8, w, length, i0 + i * 8, 1)
    share(batch, n * n * n / 3, some)


def sytrs(letter: str, batch: int, n: int, columns: int, ld: int, pivots: Any, b: int, hermitian: bool) -> None:
    """X of A X = B over B (n, columns), from sytrf's results."""
    run = function(letter + ("hetrs" if hermitian and letter in "cz" else "sytrs"), 10)
    order, rhs, lead, info = box(n), box(columns), box(max(n, 1)), np.zeros(1, np.int64)
    step, b_step, p, i0 = n * n * SIZE[letter], n * columns * SIZE[letter], at(pivots), at(info)

    def some(first: int, last: int) -> None:
        for i in range(first, last):
            run(b"L", order, rhs, ld + i * step, lead, p + i * n * 8, b + i * b_step, lead, i0, 1)
    share(batch, 2 * n * n * columns, some)


def _asked(letter: str, ask: Callable[[int, Any], None]) -> int:
    """The workspace a routine asks for when called with length -1."""
    answer = np.zeros(1, TYPE[letter])
    ask(at(answer), box(-1))
    # float32 cannot hold every length: a little more than it says
    return max(1, int(answer[0].real * (1 + 1e-6)) + 1)


# --------------------------------------------------------------------------------------------------------- orthogonal
def geqrf(letter: str, batch: int, m: int, n: int, a: int, tau: int) -> None:
    """Householder's A = Q R in place: R above, the reflectors below the diagonal, their factors in tau (min(m, n))."""
    run, rows, cols, lead, info = function(letter + "geqrf", 8), box(m), box(n), box(max(m, 1)), np.zeros(1, np.int64)
    step, t_step, i0 = m * n * SIZE[letter], min(m, n) * SIZE[letter], at(info)
    size = _asked(letter, lambda w, none: run(rows, cols, a, lead, tau, w, none, i0))

    def some(first: int, last: int) -> None:
        work = np.empty(size, TYPE[letter])
        w, length = at(work), box(size)
        for i in range(first, last):
            run(rows, cols, a + i * step, lead, tau + i * t_step, w, length, i0)
    share(batch, 2 * m * n * min(m, n), some)


def orgqr(letter: str, batch: int, m: int, n: int, k: int, a: int, tau: int, tau_step: int) -> None:
    """The first n columns of the product of k reflectors, over them; tau_step: elements from one tau to the next."""
    run = function(letter + ("ungqr" if letter in "cz" else "orgqr"), 9)
    rows, cols, count, lead, info = box(m), box(n), box(k), box(max(m, 1)), np.zeros(1, np.int64)
    step, t_step, i0 = m * n * SIZE[letter], tau_step * SIZE[letter], at(info)
    size = _asked(letter, lambda w, none: run(rows, cols, count, a, lead, tau, w, none, i0))

    def some(first: int, last: int) -> None:
        work = np.empty(size, TYPE[letter])
        w, length = at(work), box(size)
        for i in range(first, last):
            run(rows, cols, count, a + i * step, lead, tau + i * t_step, w, length, i0)
    share(batch, 4 * m * n * k, some)


# ------------------------------------------------------------------------------------------------ eigenvalues, SVD
def syevd(letter: str, batch: int, n: int, vectors: bool, lower: bool, a: int, w: int, info: Any) -> None:
    """Eigenvalues, rising, of Hermitian matrices into w (real); eigenvectors over A when asked for."""
    is_complex = letter in "cz"
    real: Any = REAL[letter]
    run, order, lead = function(letter + ("heevd" if is_complex else "syevd"), 15 if is_complex else 13), box(n), box(max(n, 1))
    step, w_step, i0 = n * n * SIZE[letter], n * np.dtype(real).itemsize, at(info)
    job, which = b"V" if vectors else b"N", b"L" if lower else b"U"
    # the least sizes the routine documents, and room for its blocked form
    block = 64
    if is_complex:
        size, real_size = (2 * n + n * n, 1 + 5 * n + 2 * n * n) if vectors else (n + 1, n + 1)
    else:
        size, real_size = (1 + 6 * n + 2 * n * n if vectors else 2 * n + 1), 0
    size, whole = size + block * n, 3 + 5 * n if vectors else 1

    def some(first: int, last: int) -> None:
        work, real_work, int_work = np.empty(size, TYPE[letter]), np.empty(real_size, real), np.empty(whole, np.int64)
        p, length, q, real_length, r, whole_length = at(work), box(size), at(real_work), box(real_size), at(int_work), box(whole)
        for i in range(first, last):
            if is_complex:
                run(job, which, order, a + i * step, lead, w + i * w_step, p, length, q, real_length, r, whole_length, i0 + i * 8, 1, 1)
            else:
                run(job, which, order, a + i * step, lead, w + i * w_step, p, length, r, whole_length, i0 + i * 8, 1, 1)
    share(batch, 4 * n * n * n, some)


def geev(letter: str, batch: int, n: int, vectors: bool, a: int, values: Any, right: Any, info: Any) -> None:
    """Eigenvalues (batch, n) and right eigenvectors (batch, n, n; column by column in memory: [b, j] is vector j), both
    complex arrays; A is overwritten."""
    is_complex = letter in "cz"
    run, order, lead, one = function(letter + "geev", 16), box(n), box(max(n, 1)), box(1)
    step, i0, job = n * n * SIZE[letter], at(info), b"V" if vectors else b"N"
    kind, real = TYPE[letter], REAL[letter]
    if is_complex:
        w, v, real_work0 = values, right, np.empty(2 * n + 1, real)

        def ask(p: int, none: Any) -> None:
            run(b"N", job, order, a, lead, at(w), 0, one, at(v), lead, p, none, at(real_work0), i0, 1, 1)
    else:
        w, v = np.empty((2, batch, n), kind), np.empty((batch, n, n) if vectors else (1,), kind)

        def ask(p: int, none: Any) -> None:
            run(b"N", job, order, a, lead, at(w), at(w), 0, one, at(v), lead, p, none, i0, 1, 1)
    size = _asked(letter, ask)
    wp, vp, item = at(w), at(v), SIZE[letter]

    def some(first: int, last: int) -> None:
        work, real_work = np.empty(size, kind), np.empty(2 * n + 1, real)
        p, length, q = at(work), box(size), at(real_work)
        for i in range(first, last):
            at_v = vp + i * n * n * item if vectors else vp
            if is_complex:
                run(b"N", job, order, a + i * step, lead, wp + i * n * item, 0, one, at_v, lead, p, length, q, i0 + i * 8, 1, 1)
            else:
                run(b"N", job, order, a + i * step, lead, wp + i * n * item, wp + (batch + i) * n * item, 0, one, at_v, lead, p, length,
                    i0 + i * 8, 1, 1)
    share(batch, 10 * n * n * n, some)
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
    is_complex, k = letter in "cz", min(m, n)
    real: Any = REAL[letter]
    run = function(letter + "gesdd", 16 if is_complex else 15)
    columns, rows = (m, n) if job == "A" else (k, k)
    how, m_, n_, lead, lead_v = job.encode(), box(m), box(n), box(max(m, 1)), box(max(rows, 1))
    item = SIZE[letter]
    step, s_step, u_step, v_step, i0 = m * n * item, k * np.dtype(real).itemsize, m * columns * item, rows * n * item, at(info)
    big = max(m, n)
    real_size = (max(5 * k * k + 5 * k, 2 * big * k + 2 * k * k + k) if job != "N" else 7 * k) if is_complex else 0
    whole0 = np.empty(8 * k, np.int64)
    real0 = np.empty(real_size, real)

    def call(at_a: int, at_s: int, at_u: int, at_v: int, p: int, length: Any, q: int, r: int, at_info: int) -> None:
        if is_complex:
            run(how, m_, n_, at_a, lead, at_s, at_u, lead, at_v, lead_v, p, length, q, r, at_info, 1)
        else:
            run(how, m_, n_, at_a, lead, at_s, at_u, lead, at_v, lead_v, p, length, r, at_info, 1)
    size = _asked(letter, lambda w, none: call(a, s, u, vt, w, none, at(real0), at(whole0), i0))

    def some(first: int, last: int) -> None:
        work, real_work, int_work = np.empty(size, TYPE[letter]), np.empty(real_size, real), np.empty(8 * k, np.int64)
        p, length, q, r = at(work), box(size), at(real_work), at(int_work)
        for i in range(first, last):
            call(a + i * step, s + i * s_step, u + i * u_step, vt + i * v_step, p, length, q, r, i0 + i * 8)
    share(batch, 8 * m * n * k, some)


# ------------------------------------------------------------------------------------------------------- least squares
def least_squares(letter: str, driver: str, batch: int, m: int, n: int, columns: int, a: int, b: int, rank: Any, s: Any, rcond: float,
                  info: Any) -> None:
    """The least-norm X of min |A X - B| into the first n rows of B, which has max(m, n) rows; A is overwritten.

    driver: "gels" (full rank, QR), "gelsy" (rank by a pivoted QR), "gelsd", "gelss" (SVD; singular values into s).
    """
    is_complex, k, tall = letter in "cz", min(m, n), max(m, n, 1)
    real: Any = REAL[letter]
    kind, item = TYPE[letter], SIZE[letter]
    tolerance = np.array([rcond], real)
    m_, n_, rhs, lead, lead_b = box(m), box(n), box(columns), box(max(m, 1)), box(tall)
    step, b_step, i0, r0, c = m * n * item, tall * columns * item, at(info), at(rank), at(tolerance)
    s0, s_step = at(s), k * np.dtype(real).itemsize
    count = {"gels": 12, "gelsy": 13 + is_complex, "gelss": 13 + is_complex, "gelsd": 14 + is_complex}[driver]
    run = function(letter + driver, count)
    levels = max(0, int(np.log2(max(k, 1) / 26)) + 1)
    real_size = max(1, 10 * tall + 2 * tall * 25 + 8 * tall * (levels + 1) + 3 * 25 * columns + max(26 * 26, tall * (1 + columns) + 2 * columns))
    whole = max(1, 3 * k * levels + 11 * k)

    def call(i: int, p: int, length: Any, q: int, r: int, pivots: Any) -> None:
        at_a, at_b, at_rank, at_info = a + i * step, b + i * b_step, r0 + i * 8, i0 + i * 8
        if driver == "gels":
            run(b"N", m_, n_, rhs, at_a, lead, at_b, lead_b, p, length, at_info, 1)
        elif driver == "gelsy":
            pivots[...] = 0
            extra = (q,) if is_complex else ()
            run(m_, n_, rhs, at_a, lead, at_b, lead_b, at(pivots), c, at_rank, p, length, *extra, at_info)
        else:
            extra = (q,) if is_complex else ()
            last = (r,) if driver == "gelsd" else ()
            run(m_, n_, rhs, at_a, lead, at_b, lead_b, s0 + i * s_step, c, at_rank, p, length, *extra, *last, at_info)
    real0, whole0, pivots0 = np.empty(real_size, real), np.empty(whole, np.int64), np.zeros(max(n, 1), np.int64)
    size = _asked(letter, lambda w, none: call(0, w, none, at(real0), at(whole0), pivots0))

    def some(first: int, last: int) -> None:
        work, real_work, int_work, pivots = np.empty(size, kind), np.empty(real_size, real), np.empty(whole, np.int64), np.zeros(max(n, 1), np.int64)
        p, length, q, r = at(work), box(size), at(real_work), at(int_work)
        for i in range(first, last):
            call(i, p, length, q, r, pivots)
    share(batch, 4 * m * n * k, some)

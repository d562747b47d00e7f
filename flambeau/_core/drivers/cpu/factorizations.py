"""Linear algebra on the CPU: whole jobs on batches of packed matrices, column by column, by LAPACK (`jobs`), two of them by NumPy.

Each function is told the sizes that its name is told in `specs.Lapack`, and lists what is done for one matrix, whose operands are those its
docstring names, in that order. It gives how many operations that is. `info` is int32, one a matrix: 0, or what LAPACK says failed.
A job whose name ends in "laid" reads a matrix where it lies: its last three sizes are whether that is row by row, how many elements there are
from a column (row) to the next, and from matrix to matrix. Where it cannot, there is no such job. Of a job whose name ends in "of", the matrices
that it is about ("over" and "lost" below) are further operands at the end, which lie as the last sizes say: each a tuple of the elements from one
downwards, to the right and from matrix to matrix. It copies them itself.
"""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import int32
from ...kernels.interpret import memory
from ...kernels.programs import PreparedLaunch
from . import exponentials, small_factorizations
from .jobs import LENGTH, WORK, Job, Place, When

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype
    from ...kernels.specs import Lapack


def prepare(spec: Lapack) -> PreparedLaunch | None:
    """None for a name that is another backend's."""
    numbers = [n for n in spec.sizes[:3] if type(n) is int]
    nbytes = 2 * spec.batch * max(numbers) ** 2 * spec.dtype.itemsize
    if spec.name == "matrix_exp" or (spec.name == "lu_factor" and not spec.sizes[2]):
        make = _exponential if spec.name == "matrix_exp" else _lu_as_it_stands
        entry, flops = make(spec.dtype, spec.batch, *spec.sizes)
        return PreparedLaunch(spec.name, entry, nbytes=nbytes, flops=spec.batch * flops)
    name = spec.name.removesuffix(" of")
    steps = _JOBS.get(name)
    if steps is None:
        return None
    sources = [x for x in spec.sizes if type(x) is tuple]
    sizes = [x for x in spec.sizes if type(x) is not tuple]
    for lanes, listed in ((small_factorizations.lanes(spec), small_factorizations.find(name, spec)), (1, steps)):
        if listed is not None:
            job = Job(spec.dtype, spec.batch, lanes, sources)
            count = listed(job, *sizes)
            if count is not None:
                return job.prepared(spec.name, nbytes, spec.batch * count)
    return None


# ------------------------------------------------------------------------------------------------------------ pieces
def _clear(job: Job, part: bytes, m: int, n: int, a: Place, lead: int) -> None:
    """Zeros in the triangle of A (m, n) that is strictly above ("U") or below ("L") the diagonal, where there is one."""
    if part == b"U" and n > 1:
        job.call("?laset", part, min(m, n - 1), n - 1, 0.0, 0.0, a + lead * job.item, lead)
    if part == b"L" and m > 1:
        job.call("?laset", part, m - 1, min(m - 1, n), 0.0, 0.0, a + job.item, lead)


def _nothing(job: Job, info: Place) -> int:
    """There is nothing to do, and it did not fail."""
    job.tell(0, info)
    return 0


def _identity(job: Job, m: int, n: int, a: Place) -> None:
    if m and n:
        job.call("?laset", b"A", m, n, 0.0, 1.0, a, m)


def _check(job: Job, part: bytes, m: int, n: int, a: Place, nan: int, inf: int, when: When = None) -> Place:
    """Where it says `nan` if numbers of A are NaN, else `inf` if any is infinite, else 0."""
    code = job.room(8)
    job.call("check" + job.real, part, m, n, job.parts, a, m, nan, inf, code, when=when)
    return code


def _not_numbers(job: Job, count: int, to: Place, when: When) -> None:
    """NaN in so many real numbers."""
    nan = job.constant(float("nan"), job.real)
    job.call(job.real + "laset", b"A", count, 1, nan, nan, to, count, when=when)


def _factor(job: Job, m: int, n: int, a: Place) -> tuple[Place, Place]:
    """A = P L U over A; the pivots from 1 and info, both int64. info > 0: U has a zero on its diagonal there."""
    pivots, code = job.room(8 * min(m, n)), job.room(8)
    job.call("?getrf", m, n, a, m, pivots, code, flops=m * n * min(m, n))
    return pivots, code


def _wide(job: Job, n: int, pivots: Place) -> Place:
    """Pivots as LAPACK reads them."""
    wide = job.room(8 * n)
    job.call("widen", n, pivots, wide)
    return wide


def _substitute(job: Job, n: int, k: int, lu: Place, lead: int, pivots: Place, x: Place, adjoint: bool = False) -> None:
    job.call("?getrs", b"C" if adjoint else b"N", n, k, lu, lead, pivots, x, n, job.room(8), flops=2 * n * n * k)


# ------------------------------------------------------------------------------------------------------- factorizations
def _cholesky(job: Job, n: int) -> int:
    """L, info: A = L L^H over A; info: the order of the first leading minor that is not positive."""
    a, info, code = job.over(n, n), job.operand(4), job.room(8)
    if not n:
        return _nothing(job, info)
    job.call("?potrf", b"L", n, a, n, code, flops=n ** 3 / 3)
    _clear(job, b"U", n, n, a, n)
    job.tell(code, info)
    return n ** 3 // 3


def _lu(job: Job, m: int, n: int, exchange: bool) -> int:
    """LU, pivots, info: L and U over A; pivots int32, from 1."""
    k = min(m, n)
    a, order, info = job.over(m, n), job.operand(4 * k), job.operand(4)
    if not k:
        return _nothing(job, info)
    pivots, code = _factor(job, m, n, a)
    job.call("narrow", k, pivots, order)
    job.tell(code, info)
    return m * n * k


def _lu_parity(job: Job, n: int) -> int:
    """LU, pivots, parity: L and U over A; pivots int32; parity of the exchanges, +1 or -1, real."""
    a, order, parity, pivots = job.over(n, n), job.operand(4 * n), job.operand(job.item // job.parts), job.room(0)
    if n:
        pivots, _ = _factor(job, n, n, a)
        job.call("narrow", n, pivots, order)
    job.call("parity" + job.real, n, pivots, parity)
    return 2 * n ** 3 // 3


def _determinant(job: Job, n: int) -> int:
    """LU, pivots, det: L and U over A; pivots int32."""
    a, order, det, pivots, parity = job.over(n, n), job.operand(4 * n), job.operand(job.item), job.room(0), job.room(8)
    if n:
        pivots, _ = _factor(job, n, n, a)
        job.call("narrow", n, pivots, order)
    job.call("parity" + job.real, n, pivots, parity)
    job.call("product" + job.letter, n, a, parity, det)
    return 2 * n ** 3 // 3


def _cofactors(job: Job, n: int) -> int:
    """out, LU, pivots, of `lu`'s results: conj(det) A^-H. LU is lost: zeros on U's diagonal are moved by a rounding error."""
    out, lu, order = job.matrix(n, n), job.matrix(n, n), job.operand(4 * n)
    pivots, parity, det = _wide(job, n, order), job.room(job.item), job.values(1)
    job.call("parity" + job.real, n, pivots, parity)
    job.call("regular" + job.letter, n, lu)
    job.call("product" + job.letter, n, lu, parity, det)
    if job.parts == 2:
        job.call("?lacgv", 1, det, 1)
    _identity(job, n, n, out)
    _substitute(job, n, n, lu, n, pivots, out, adjoint=True)
    job.call("?scal", n * n, det, out, 1)
    return 2 * n ** 3


def _permutation(job: Job, m: int, k: int) -> int:
    """there, back (int64), pivots (int32), info: k row exchanges as orders of m rows, and their inverses; info: the first pivot that is no row,
    from 1."""
    there, back, pivots, info = job.operand(8 * m), job.operand(8 * m), job.operand(4 * k), job.operand(4)
    job.call("permutation", m, k, pivots, there, back, info)
    return 0


def _qr(job: Job, m: int, n: int, mode: str) -> int:
    """Q, R, A: A is lost, Q is not written in mode "r"."""
    k, wide = min(m, n), m if mode == "complete" else min(m, n)
    q, r, a, tau = job.matrix(m, wide if mode != "r" else 0), job.matrix(wide, n), job.lost(m, n), job.values(k)
    if k:
        _reflect(job, m, n, a, tau)
    if wide and n:
        job.call("?lacpy", b"A", wide, n, a, m, r, wide)
        _clear(job, b"L", wide, n, r, wide)
    if mode != "r" and m and wide:
        if k:
            job.call("?lacpy", b"A", m, k, a, m, q, m)
            if wide > k:
                job.call("?laset", b"A", m, wide - k, 0.0, 0.0, q + m * k * job.item, m)
            job.call("?ungqr" if job.parts == 2 else "?orgqr", m, wide, k, q, m, tau, WORK, LENGTH, job.room(8), flops=4 * m * wide * k)
        else:
            _identity(job, m, wide, q)
    return 4 * m * n * k


def _reflect(job: Job, m: int, n: int, a: Place, tau: Place) -> None:
    job.call("?geqrf", m, n, a, m, tau, WORK, LENGTH, job.room(8), flops=2 * m * n * min(m, n))


def _reflectors(job: Job, m: int, n: int) -> int:
    """A, tau: Householder's A = Q R over A: R above, the reflectors below the diagonal, their factors in tau."""
    _reflect(job, m, n, job.over(m, n), job.matrix(min(m, n), 1))
    return 2 * m * n * min(m, n)


def _orthogonal(job: Job, m: int, n: int, k: int) -> int:
    """Q, tau: the first n columns of the product of k reflectors over them."""
    q, tau = job.over(m, n), job.matrix(k, 1)
    job.call("?ungqr" if job.parts == 2 else "?orgqr", m, n, k, q, m, tau, WORK, LENGTH, job.room(8), flops=4 * m * n * k)
    return 4 * m * n * k


def _by_reflectors(job: Job, m: int, n: int, k: int, left: bool, adjoint: bool, by_rows: bool, lead: int, step: int) -> int | None:
    """C, A, tau: Q C (C Q when not left) over C (m, n), for the product Q of the k reflectors in A; Q^H when adjoint."""
    c, a, tau = job.matrix(m, n), job.laid(m if left else n, k, step), job.matrix(k, 1)
    if by_rows:
        return None
    job.call("?unmqr" if job.parts == 2 else "?ormqr", b"L" if left else b"R", (b"C" if job.parts == 2 else b"T") if adjoint else b"N", m, n, k,
             a, lead, tau, c, m, WORK, LENGTH, job.room(8), flops=4 * m * n * k)
    return 4 * m * n * k


def _ldl_factor(job: Job, n: int, hermitian: bool) -> int:
    """LD, pivots, info: L and D over A, D in blocks of 1 and 2 (Bunch and Kaufman); pivots int32."""
    a, order, info, pivots, code = job.over(n, n), job.operand(4 * n), job.operand(4), job.room(8 * n), job.room(8)
    if not n:
        return _nothing(job, info)
    job.call("?hetrf" if hermitian and job.parts == 2 else "?sytrf", b"L", n, a, n, pivots, WORK, LENGTH, code, flops=n ** 3 / 3)
    job.call("narrow", n, pivots, order)
    _clear(job, b"U", n, n, a, n)
    job.tell(code, info)
    return n ** 3 // 3


# -------------------------------------------------------------------------------------------------------------- solving
def _solve(job: Job, n: int, k: int) -> int:
    """X, LU, pivots, info: X over B, L and U over A; pivots int32."""
    x, a, order, info = job.over(n, k), job.over(n, n), job.operand(4 * n), job.operand(4)
    if not n:
        return _nothing(job, info)
    pivots, code = _factor(job, n, n, a)
    job.call("narrow", n, pivots, order)
    if k:
        _substitute(job, n, k, a, n, pivots, x)
    job.tell(code, info)
    return 2 * n ** 3 // 3 + 2 * n * n * k


def _lu_solve(job: Job, n: int, k: int, adjoint: bool, by_rows: bool = False, lead: int = 0, step: int | None = None) -> int | None:
    """X, LU, pivots (int32): X over B."""
    x, lu, order = job.matrix(n, k), job.laid(n, n, step), job.operand(4 * n)
    if by_rows:
        return None
    _substitute(job, n, k, lu, lead or n, _wide(job, n, order), x, adjoint)
    return 2 * n * n * k


def _cholesky_solve(job: Job, n: int, k: int, upper: bool, by_rows: bool, lead: int, step: int) -> int | None:
    """X, L: X over B, for A = L L^H (U^H U when upper)."""
    x, factor = job.matrix(n, k), job.laid(n, n, step)
    if by_rows and job.parts == 2:  # what a routine reads there is the transpose, and its A another one
        return None
    triangle = b"U" if upper != by_rows else b"L"
    if k == 1:
        for turned in (b"C", b"N") if triangle == b"U" else (b"N", b"C"):
            job.call("?trsv", triangle, turned, b"N", n, factor, lead, x, 1, flops=n * n)
    else:
        job.call("?potrs", triangle, n, k, factor, lead, x, n, job.room(8), flops=2 * n * n * k)
    return 2 * n * n * k


def _inverse(job: Job, n: int) -> int:
    """A, info: the inverse over A; infinities all through where it is singular."""
    a, info = job.over(n, n), job.operand(4)
    if not n:
        return _nothing(job, info)
    pivots, code = _factor(job, n, n, a)
    job.call("?getri", n, a, n, pivots, WORK, LENGTH, job.room(8), flops=4 * n ** 3 / 3)
    job.call("?laset", b"A", n, n, float("inf"), float("inf"), a, n, when=(code, True))  # there the routine leaves LU
    job.tell(code, info)
    return 2 * n ** 3


def _triangular(job: Job, n: int, k: int, upper: int, unit: int, by_rows: bool = False, lead: int = 0, step: int | None = None) -> int:
    """X, A: X over B, by one triangle of A."""
    x, a = job.matrix(n, k), job.laid(n, n, step)
    triangle, turned, ones = b"U" if upper != by_rows else b"L", b"T" if by_rows else b"N", b"U" if unit else b"N"
    if k == 1:  # several times as fast for large n
        job.call("?trsv", triangle, turned, ones, n, a, lead or n, x, 1, flops=n * n)
    else:
        job.call("?trsm", b"L", triangle, turned, ones, n, k, 1.0, a, lead or n, x, n, flops=n * n * k)
    return n * n * k


def _ldl_solve(job: Job, n: int, k: int, hermitian: bool, by_rows: bool = False, lead: int = 0, step: int | None = None) -> int | None:
    """X, LD, pivots (int32), info: X over B; info 1 and nothing done for pivots that no factorization gives."""
    x, ld, order, info = job.matrix(n, k), job.laid(n, n, step), job.operand(4 * n), job.operand(4)
    if by_rows:
        return None
    pivots, bad = job.room(8 * n), job.room(8)
    job.call("blocks", n, order, pivots, bad)
    job.call("?hetrs" if hermitian and job.parts == 2 else "?sytrs", b"L", n, k, ld, lead or n, pivots, x, n, job.room(8), flops=2 * n * n * k,
             when=(bad, False))
    job.tell(bad, info)
    return 2 * n * n * k


def _least_squares(job: Job, m: int, n: int, k: int, driver: str, rcond: float) -> int:
    """X, rank, s, info, A: X over B of max(m, n) rows; rank int64; A is lost.

    driver: "gels" (full rank, QR), "gelsy" (rank by a pivoted QR), "gelsd", "gelss" (SVD, of which s is; info -4 where A is not finite, with
    which they may not end).
    """
    tall, least, real_item = max(m, n), min(m, n), job.item // job.parts
    x, rank, s, info, a = job.matrix(tall, k), job.operand(8), job.operand(least * real_item), job.operand(4), job.lost(m, n)
    job.call("dcopy", 1, 0, 1, rank, 1)
    if not (least and k):
        if n and k:
            job.call("?laset", b"A", n, k, 0.0, 0.0, x, tall)
        return _nothing(job, info)
    system: tuple[Any, ...] = (m, n, k, a, m, x, tall)
    code = job.room(8)
    flops = 4 * m * n * least
    levels = max(0, int(log2(max(least, 1) / 26)) + 1)
    real_size = max(1, 10 * tall + 2 * tall * 25 + 8 * tall * (levels + 1) + 3 * 25 * k + max(26 * 26, tall * (1 + k) + 2 * k))
    reals = (job.room(real_size * real_item),) if job.parts == 2 else ()
    tolerance = job.constant(rcond, job.real)
    if driver == "gels":
        job.call("?gels", b"N", *system, WORK, LENGTH, code, flops=flops)
    elif driver == "gelsy":
        free = job.room(8 * n)  # columns that may be moved: all, which zeros say
        job.call("dcopy", n, 0, 0, free, 1)
        job.call("?gelsy", *system, free, tolerance, rank, WORK, LENGTH, *reals, code, flops=flops)
    else:
        code = _check(job, b"A", m, n, a, -4, -4)
        wholes = (job.room(8 * max(1, 3 * least * levels + 11 * least)),) if driver == "gelsd" else ()
        job.call(f"?{driver}", *system, s, tolerance, rank, WORK, LENGTH, *reals, *wholes, code, flops=flops, when=(code, False))
    job.tell(code, info)
    return flops


# ---------------------------------------------------------------------------------------------------------- eigenvalues
def _hermitian(job: Job, n: int, vectors: bool, lower: bool) -> int:
    """w, V, info: eigenvalues, rising, and eigenvectors over A; or w, info, A where vectors are not asked for, and A is lost. NaN all through
    where the triangle that is read is not finite, with which the iteration may not end."""
    real_item, triangle = job.item // job.parts, b"L" if lower else b"U"
    w = job.operand(n * real_item)
    if vectors:
        a, info = job.over(n, n), job.operand(4)
    else:
        info, a = job.operand(4), job.lost(n, n)
    if not n:
        return _nothing(job, info)
    code, bad = job.room(8), _check(job, triangle, n, n, a, 1, 1)
    # the least sizes the routine documents, and room for its blocked form
    if job.parts == 2:
        size, real_size = (2 * n + n * n, 1 + 5 * n + 2 * n * n) if vectors else (n + 1, n + 1)
        reals: tuple[Any, ...] = (job.room(real_size * real_item), real_size)
    else:
        size, reals = 1 + 6 * n + 2 * n * n if vectors else 2 * n + 1, ()
    size, whole = size + 64 * n, 3 + 5 * n if vectors else 1
    job.call("?laset", b"A", n, n, 0.0, 0.0, a, n, when=(bad, True))
    job.call("?heevd" if job.parts == 2 else "?syevd", b"V" if vectors else b"N", triangle, n, a, n, w, job.values(size), size, *reals,
             job.room(8 * whole), whole, code, flops=4 * n ** 3)
    _not_numbers(job, n * n * job.parts, a, (bad, True))
    _not_numbers(job, n, w, (bad, True))
    job.tell(code, info)
    return 4 * n ** 3


def _general(job: Job, n: int, vectors: bool) -> int:
    """w, V, info, A: eigenvalues and, where they are asked for, eigenvectors, complex; info -1 for what is not finite. A is lost."""
    pair = 2 * job.item // job.parts
    w, v, info, a = job.operand(n * pair), job.operand(n * n * pair if vectors else 0), job.operand(4), job.lost(n, n)
    if not n:
        return _nothing(job, info)
    code = _check(job, b"A", n, n, a, -1, -1)
    finite = (code, False)
    want, flops = b"V" if vectors else b"N", 10 * n ** 3
    if job.parts == 2:
        job.call("?geev", b"N", want, n, a, n, w, Place(0, 0), 1, v if vectors else job.room(8), n, WORK, LENGTH, job.values(2 * n + 1), code,
                 flops=flops, when=finite)
    else:
        real, imaginary, own = job.values(n), job.values(n), job.values(n * n if vectors else 1)
        job.call("?geev", b"N", want, n, a, n, real, imaginary, Place(0, 0), 1, own, n, WORK, LENGTH, code, flops=flops, when=finite)
        for part, at in ((real, w), (imaginary, w + job.item)):
            job.call("?copy", n, part, 1, at, 2)
        if vectors:
            job.call("pairs" + job.letter, n, imaginary, own, v)
    job.tell(code, info)
    return flops


def _singular(job: Job, m: int, n: int, how: str) -> int:
    """U, s, V^H, info, A: A = U diag(s) V^H; A is lost. how: "N" (values alone), "S" (reduced) or "A" (complete). Where A is infinite, with which
    the iteration may not end, s is NaN; where it is NaN, info is -4."""
    k, real_item = min(m, n), job.item // job.parts
    columns, rows = (0, 0) if how == "N" else (m, n) if how == "A" else (k, k)
    u, s, vh, info, a = job.matrix(m, columns), job.operand(k * real_item), job.matrix(rows, n), job.operand(4), job.lost(m, n)
    flops = 8 * m * n * k
    if not k:
        _identity(job, m, columns, u)
        _identity(job, rows, n, vh)
        return _nothing(job, info)
    code, bad = job.room(8), _check(job, b"A", m, n, a, 1, 1)
    nan = _check(job, b"A", m, n, a, -4, 0, (bad, True))
    job.call("?laset", b"A", m, n, 0.0, 0.0, a, m, when=(bad, True))
    big = max(m, n)
    real_size = max(5 * k * k + 5 * k, 2 * big * k + 2 * k * k + k) if how != "N" else 7 * k
    reals = (job.room(real_size * real_item),) if job.parts == 2 else ()
    none = job.room(8)
    job.call("?gesdd", how.encode(), m, n, a, m, s, u if columns else none, m, vh if rows else none, max(rows, 1), WORK, LENGTH, *reals,
             job.room(8 * 8 * k), code, flops=flops)
    job.tell(code, info)
    _not_numbers(job, k, s, (bad, True))
    job.tell(nan, info, (bad, True))
    return flops


_JOBS: dict[str, Callable[..., int | None]] = {
    "cholesky": _cholesky, "lu_factor": _lu, "lu": _lu_parity, "det": _determinant, "cofactors": _cofactors,
    "permutation": _permutation, "qr": _qr, "geqrf": _reflectors,
    "ldl_factor": _ldl_factor, "solve": _solve, "lu_solve": _lu_solve, "inv": _inverse, "trsm": _triangular, "ldl_solve": _ldl_solve,
    "lstsq": _least_squares, "eigh": _hermitian, "eig": _general, "svd": _singular, "orgqr": _orthogonal, "ormqr laid": _by_reflectors,
    "trsm laid": _triangular, "lu_solve laid": _lu_solve, "ldl_solve laid": _ldl_solve, "cholesky_solve laid": _cholesky_solve,
}


# -------------------------------------------------------------------------------------------------------------- by NumPy
def _lu_as_it_stands(d: dtype, batch: int, m: int, n: int, exchange: bool) -> tuple[Callable[..., None], int]:
    """``entry(LU, pivots, info)``: Gauss's elimination without exchanges over A, all of the batch at once; pivots int32, from 1."""
    k = min(m, n)

    def entry(to: int, at_pivots: int, failed: int) -> None:
        codes = memory(failed, (batch,), (1,), int32)
        codes[...] = 0
        memory(at_pivots, (batch, k), (k, 1), int32)[...] = np.arange(1, k + 1)
        values = memory(to, (batch, m, n), (m * n, 1, m), d)
        with np.errstate(all="ignore"):
            for j in range(k):
                pivot = values[:, j, j]
                codes[(pivot == 0) & (codes == 0)] = j + 1
                values[:, j + 1:, j] /= np.where(pivot == 0, np.ones_like(pivot), pivot)[:, None]
                values[:, j + 1:, j + 1:] -= values[:, j + 1:, j, None] * values[:, None, j, j + 1:]
    return entry, m * n * k


def _exponential(d: dtype, batch: int, n: int) -> tuple[Callable[..., None], int]:
    """``entry(out, A)``, rows one behind the other."""
    def entry(to: int, at_a: int) -> None:
        shape, strides = (batch, n, n), (n * n, n, 1)
        memory(to, shape, strides, d)[...] = exponentials.exponential(memory(at_a, shape, strides, d))
    return entry, 24 * n ** 3

"""Linear algebra on the CPU: whole jobs on batches of packed matrices, column by column, by LAPACK (`lapack`) and NumPy.

Each function is given the type, the number of matrices and the sizes that its name is told in `specs.Lapack`, and gives what is called with the
operands' addresses, and how many operations that is.  `info` is int32, one a matrix: 0, or what LAPACK says failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import int32, int64
from ...kernels.interpret import memory
from ...kernels.programs import Prepared
from . import exponentials, lapack

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype
    from ...kernels.specs import Lapack

    Made = tuple[Callable[..., None], int]


def prepare(spec: Lapack) -> Prepared | None:
    """None for a name that is another backend's."""
    make = _JOBS.get(spec.name)
    if make is None:
        return None
    entry, flops = make(spec.dtype, spec.batch, *spec.sizes)
    numbers = [n for n in spec.sizes if type(n) is int]
    return Prepared(spec.name, entry, nbytes=2 * spec.batch * max(numbers) ** 2 * spec.dtype.itemsize, flops=spec.batch * flops)


def _matrices(address: int, d: dtype, batch: int, m: int, n: int) -> Any:
    """The matrices at an address, column by column."""
    return memory(address, (batch, m, n), (m * n, 1, m), d)


def _rows(address: int, d: dtype, batch: int, n: int) -> Any:
    return memory(address, (batch, n), (n, 1), d)


def _tell(address: int, codes: Any) -> None:
    memory(address, (len(codes),), (1,), int32)[...] = codes


# ------------------------------------------------------------------------------------------------------- factorizations
def _cholesky(d: dtype, batch: int, n: int) -> Made:
    """``entry(L, info)``: L over A."""
    letter = lapack.LETTER[d.name]
    above = (slice(None), *np.triu_indices(n, 1))

    def entry(to: int, failed: int) -> None:
        codes = np.zeros(batch, np.int64)
        if n:
            lapack.potrf(letter, batch, n, to, codes)
            _matrices(to, d, batch, n, n)[above] = 0
        _tell(failed, codes)
    return entry, n ** 3 // 3


def _lu(d: dtype, batch: int, m: int, n: int, exchange: bool) -> Made:
    """``entry(LU, pivots, info)``: L and U over A; pivots int32, from 1."""
    letter, k = lapack.LETTER[d.name], min(m, n)

    def entry(to: int, at_pivots: int, failed: int) -> None:
        codes, order = np.zeros(batch, np.int64), np.zeros((batch, k), np.int64)
        if k and exchange:
            lapack.getrf(letter, batch, m, n, to, order, codes)
        elif k:
            order[...] = np.arange(1, k + 1)
            _eliminate(_matrices(to, d, batch, m, n), codes)
        _rows(at_pivots, int32, batch, k)[...] = order
        _tell(failed, codes)
    return entry, m * n * k


def _eliminate(values: Any, codes: Any) -> None:
    """Gauss's elimination without exchanges over NumPy matrices, in place, all of the batch at once."""
    m, n = values.shape[-2:]
    with np.errstate(all="ignore"):
        for j in range(min(m, n)):
            pivot = values[:, j, j]
            codes[(pivot == 0) & (codes == 0)] = j + 1
            values[:, j + 1:, j] /= np.where(pivot == 0, np.ones_like(pivot), pivot)[:, None]
            values[:, j + 1:, j + 1:] -= values[:, j + 1:, j, None] * values[:, None, j, j + 1:]


def _lu_parity(d: dtype, batch: int, n: int) -> Made:
    """``entry(LU, pivots, parity)``: L and U over A; pivots int64, from 1; parity of the exchanges, +1 or -1, real."""
    letter, real = lapack.LETTER[d.name], d.to_real()

    def entry(to: int, at_pivots: int, to_parity: int) -> None:
        order = _rows(at_pivots, int64, batch, n)
        if n:
            lapack.getrf(letter, batch, n, n, to, order, np.zeros(batch, np.int64))
        memory(to_parity, (batch,), (1,), real)[...] = 1 - 2 * ((order != np.arange(1, n + 1)).sum(-1) % 2)
    return entry, 2 * n ** 3 // 3


def _cofactors(d: dtype, batch: int, n: int) -> Made:
    """``entry(out, LU, pivots)`` of `lu_parity`'s results: conj(det) A^-H.  LU is lost: zeros on U's diagonal are moved by a rounding error."""
    letter, eps, tiny = lapack.LETTER[d.name], np.finfo(d.np).eps, np.finfo(d.np).tiny

    def entry(to: int, at_lu: int, at_pivots: int) -> None:
        order = _rows(at_pivots, int64, batch, n)
        u = _rows(at_lu, d, batch, n * n)[:, ::n + 1]
        small = eps * np.maximum(np.abs(u).max(-1, keepdims=True), tiny)
        u[...] = np.where(u == 0, np.where(small > tiny, small, eps), u)
        det = np.prod(u, -1) * (1 - 2 * ((order != np.arange(1, n + 1)).sum(-1) % 2)).astype(u.real.dtype)
        values = _matrices(to, d, batch, n, n)
        values[...] = np.eye(n, dtype=d.np)
        lapack.getrs(letter, batch, n, n, at_lu, order, to, adjoint=True)
        values *= det.conj()[:, None, None]
    return entry, 2 * n ** 3


def _permutation(d: dtype, batch: int, m: int, k: int) -> Made:
    """``entry(there, back, pivots)``, all int64: k row exchanges as orders of m rows, and their inverses."""
    def entry(at_there: int, at_back: int, at_pivots: int) -> None:
        swaps = _rows(at_pivots, int64, batch, k) - 1
        order = np.tile(np.arange(m), (batch, 1))
        each = np.arange(batch)
        for j in range(k):
            other = swaps[:, j]
            order[:, j], order[each, other] = order[each, other], order[:, j].copy()
        _rows(at_there, int64, batch, m)[...] = order
        _rows(at_back, int64, batch, m)[...] = np.argsort(order, axis=-1)
    return entry, 0


def _qr(d: dtype, batch: int, m: int, n: int, mode: str) -> Made:
    """``entry(Q, R, A)``: A is lost, Q is not written in mode "r"."""
    letter, k, wide = lapack.LETTER[d.name], min(m, n), m if mode == "complete" else min(m, n)

    def entry(to_q: int, to_r: int, at_a: int) -> None:
        tau = np.zeros((batch, max(k, 1)), d.np)
        if k:
            lapack.geqrf(letter, batch, m, n, at_a, lapack.at(tau))
        values = _matrices(at_a, d, batch, m, n)
        if wide * n:
            _matrices(to_r, d, batch, wide, n)[...] = np.triu(values[:, :wide])
        if mode != "r" and m * wide:
            vectors = _matrices(to_q, d, batch, m, wide)
            vectors[..., :k] = values[..., :k]
            vectors[..., k:] = 0
            if k:
                lapack.orgqr(letter, batch, m, wide, k, to_q, lapack.at(tau), k)
            else:
                vectors[...] = np.eye(m, wide, dtype=d.np)
    return entry, 4 * m * n * k


def _reflectors(d: dtype, batch: int, m: int, n: int) -> Made:
    """``entry(A, tau)``: Householder's A = Q R over A."""
    letter = lapack.LETTER[d.name]

    def entry(to: int, to_tau: int) -> None:
        lapack.geqrf(letter, batch, m, n, to, to_tau)
    return entry, 2 * m * n * min(m, n)


def _ldl_factor(d: dtype, batch: int, n: int, hermitian: bool) -> Made:
    """``entry(LD, pivots, info)``: L and D over A; pivots int32."""
    letter = lapack.LETTER[d.name]

    def entry(to: int, at_pivots: int, failed: int) -> None:
        codes, order = np.zeros(batch, np.int64), np.zeros((batch, n), np.int64)
        if n:
            lapack.sytrf(letter, batch, n, to, order, codes, hermitian)
        _rows(at_pivots, int32, batch, n)[...] = order
        _tell(failed, codes)
    return entry, n ** 3 // 3


# -------------------------------------------------------------------------------------------------------------- solving
def _solve(d: dtype, batch: int, n: int, k: int) -> Made:
    """``entry(X, LU, pivots, info)``: X over B, L and U over A; pivots int32."""
    letter = lapack.LETTER[d.name]

    def entry(to: int, at_lu: int, at_pivots: int, failed: int) -> None:
        codes, order = np.zeros(batch, np.int64), np.zeros((batch, n), np.int64)
        if n:
            lapack.getrf(letter, batch, n, n, at_lu, order, codes)
            if k:
                lapack.getrs(letter, batch, n, k, at_lu, order, to)
        _rows(at_pivots, int32, batch, n)[...] = order
        _tell(failed, codes)
    return entry, 2 * n ** 3 // 3 + 2 * n * n * k


def _lu_solve(d: dtype, batch: int, n: int, k: int, adjoint: bool) -> Made:
    """``entry(X, LU, pivots)``: X over B; pivots int64."""
    letter = lapack.LETTER[d.name]

    def entry(to: int, at_lu: int, at_pivots: int) -> None:
        lapack.getrs(letter, batch, n, k, at_lu, _rows(at_pivots, int64, batch, n), to, adjoint)
    return entry, 2 * n * n * k


def _inverse(d: dtype, batch: int, n: int) -> Made:
    """``entry(A, info)``: the inverse over A."""
    letter = lapack.LETTER[d.name]

    def entry(to: int, failed: int) -> None:
        codes, order = np.zeros(batch, np.int64), np.empty((batch, n), np.int64)
        if n:
            lapack.getrf(letter, batch, n, n, to, order, codes)
            lapack.getri(letter, batch, n, to, order, np.zeros(batch, np.int64))
            if codes.any():  # there the routine leaves LU
                _matrices(to, d, batch, n, n)[codes > 0] = np.inf
        _tell(failed, codes)
    return entry, 2 * n ** 3


def _triangular(d: dtype, batch: int, n: int, k: int, upper: int, unit: int) -> Made:
    """``entry(X, A)``: X over B, by one triangle of A."""
    letter = lapack.LETTER[d.name]

    def entry(to: int, at_a: int) -> None:
        lapack.trsm(letter, batch, n, k, at_a, to, bool(upper), bool(unit))
    return entry, n * n * k


def _ldl_solve(d: dtype, batch: int, n: int, k: int, hermitian: bool) -> Made:
    """``entry(X, LD, pivots)``: X over B; pivots int64."""
    letter = lapack.LETTER[d.name]

    def entry(to: int, at_ld: int, at_pivots: int) -> None:
        lapack.sytrs(letter, batch, n, k, at_ld, _rows(at_pivots, int64, batch, n), to, hermitian)
    return entry, 2 * n * n * k


def _least_squares(d: dtype, batch: int, m: int, n: int, k: int, driver: str, rcond: float) -> Made:
    """``entry(X, rank, s, info, A)``: X over B of max(m, n) rows; rank int64; A is lost."""
    letter, real, tall, least = lapack.LETTER[d.name], d.to_real(), max(m, n), min(m, n)

    def entry(to: int, to_rank: int, to_s: int, failed: int, at_a: int) -> None:
        codes, found = np.zeros(batch, np.int64), np.zeros(batch, np.int64)
        values = _rows(to_s, real, batch, least)
        if least and k:
            lapack.least_squares(letter, driver, batch, m, n, k, at_a, to, found, values, rcond, codes)
        elif tall * k:
            _matrices(to, d, batch, tall, k)[:, :n] = 0
        memory(to_rank, (batch,), (1,), int64)[...] = found
        _tell(failed, codes)
    return entry, 4 * m * n * least


# ---------------------------------------------------------------------------------------------------------- eigenvalues
def _hermitian(d: dtype, batch: int, n: int, vectors: bool, lower: bool) -> Made:
    """``entry(w, V, info)``: eigenvalues, and eigenvectors over A where they are asked for; NaN all through a matrix that is not finite."""
    letter, real = lapack.LETTER[d.name], d.to_real()

    def entry(to_w: int, to_v: int, failed: int) -> None:
        codes = np.zeros(batch, np.int64)
        if n:
            values = _matrices(to_v, d, batch, n, n)
            finite = np.isfinite(values).all((-2, -1))
            if not finite.all():  # NaN all through, as the iteration would make them
                values[~finite] = 0
            lapack.syevd(letter, batch, n, vectors, lower, to_v, to_w, codes)
            values[~finite] = np.nan
            _rows(to_w, real, batch, n)[~finite] = np.nan
        _tell(failed, codes)
    return entry, 4 * n ** 3


def _general(d: dtype, batch: int, n: int, vectors: bool) -> Made:
    """``entry(w, V, info, A)``: eigenvalues and, where they are asked for, eigenvectors, complex; info -1 for what is not finite."""
    letter, wide = lapack.LETTER[d.name], d.to_complex()

    def entry(to_w: int, to_v: int, failed: int, at_a: int) -> None:
        codes = np.zeros(batch, np.int64)
        if n and np.isfinite(_matrices(at_a, d, batch, n, n)).all():
            values = _rows(to_w, wide, batch, n)
            right = memory(to_v, (batch, n, n), (n * n, n, 1), wide) if vectors else np.empty(1, wide.np)
            lapack.geev(letter, batch, n, vectors, at_a, values, right, codes)
        elif n:
            codes[...] = -1
        _tell(failed, codes)
    return entry, 10 * n ** 3


def _singular(d: dtype, batch: int, m: int, n: int, job: str) -> Made:
    """``entry(U, s, V^H, info, A)``: A = U diag(s) V^H; A is lost.  job: "N" (values alone), "S" (reduced) or "A" (complete)."""
    letter, k = lapack.LETTER[d.name], min(m, n)

    def entry(to_u: int, to_s: int, to_v: int, failed: int, at_a: int) -> None:
        codes = np.zeros(batch, np.int64)
        if k:
            lapack.gesdd(letter, batch, m, n, job, at_a, to_s, to_u, to_v, codes)
        elif job == "A":
            for to, size in ((to_u, m), (to_v, n)):
                if size:
                    _matrices(to, d, batch, size, size)[...] = np.eye(size, dtype=d.np)
        _tell(failed, codes)
    return entry, 8 * m * n * k


def _exponential(d: dtype, batch: int, n: int) -> Made:
    """``entry(out, A)``, rows one behind the other."""
    def entry(to: int, at_a: int) -> None:
        shape, strides = (batch, n, n), (n * n, n, 1)
        memory(to, shape, strides, d)[...] = exponentials.exponential(memory(at_a, shape, strides, d))
    return entry, 24 * n ** 3


_JOBS: dict[str, Callable[..., Made]] = {
    "cholesky": _cholesky, "lu_factor": _lu, "lu": _lu_parity, "cofactors": _cofactors, "permutation": _permutation, "qr": _qr, "geqrf": _reflectors,
    "ldl_factor": _ldl_factor, "solve": _solve, "lu_solve": _lu_solve, "inv": _inverse, "trsm": _triangular, "ldl_solve": _ldl_solve,
    "lstsq": _least_squares, "eigh": _hermitian, "eig": _general, "svd": _singular, "matrix_exp": _exponential,
}

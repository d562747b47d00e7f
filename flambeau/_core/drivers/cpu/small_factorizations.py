"""Linear algebra on batches of small real matrices: the jobs of `factorizations` by `lane_code`, for a vector's worth of matrices at once.

At these sizes a routine of LAPACK is mostly overhead. Operands and results are those of the jobs there; a function gives None for what it does
not do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .jobs import LETTER, Job, Place
from .lane_code import BYTES, LANES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels.specs import Lapack

_SIZE, _WIDE = 16, 32  # rows and columns up to which this was measured faster: factorizations, and what solves from factors
_SOLVING = frozenset(("lu_solve", "lu_solve laid", "trsm", "trsm laid", "cholesky_solve laid"))
_MANY = 8  # matrices from which it is


def lanes(spec: Lapack) -> int:
    """How many matrices of a type a vector has lanes for."""
    return LANES.get(LETTER.get(spec.dtype.name, ""), 1)


def find(name: str, spec: Lapack) -> Callable[..., int | None] | None:
    """The steps of a job; None where the batch or its type is not for this."""
    sizes = [n for n in spec.sizes[:2] if type(n) is int]
    most = _WIDE if name in _SOLVING else _SIZE
    if lanes(spec) == 1 or spec.batch < _MANY or not 0 < min(sizes) <= max(sizes) <= most:
        return None
    return _JOBS.get(name)


class _Group:
    """Matrices of a job that is done in lanes."""

    def __init__(self, job: Job) -> None:
        self.job, self.letter = job, job.real

    def room(self, count: int) -> Place:
        return self.job.room(count * BYTES)

    def call(self, name: str, *args: Any, flops: float = 0) -> None:
        self.job.call(name + self.letter, *args, flops=flops)

    def bring(self, count: int, a: Place, to: Place | None = None, what: str = "gather") -> Place:
        """So many values of each matrix, in lanes."""
        to = self.room(count) if to is None else to
        self.call(what, self.job.left, count, count, a, to)
        return to

    def take(self, m: int, n: int, to: Place | None = None, lost: bool = False) -> tuple[Place, Place]:
        """A matrix that the job is about, in lanes, and the operand that it is over."""
        job = self.job
        operand = Place(0, 0) if lost and job.sources else job.matrix(m, n)
        to = self.room(m * n) if to is None else to
        if not job.sources:
            return self.bring(m * n, operand, to), operand
        source, (down, right, step) = job.source()
        self.call("gather_laid", job.left, b"A", m, n, down, right, step, source, to)
        return to, operand

    def triangle(self, upper: bool, n: int, by_rows: bool, lead: int, step: int | None, a: Place) -> Place:
        """A triangle of a matrix that lies as `factorizations` tells a job whose name ends in "laid"."""
        to, lead = self.room(n * n), lead or n
        down, right = (lead, 1) if by_rows else (1, lead)
        self.call("gather_laid", self.job.left, b"U" if upper else b"L", n, n, down, right, n * n if step is None else step, a, to)
        return to

    def substitute(self, upper: bool, unit: bool, n: int, k: int, a: Place, x: Place, turned: bool = False) -> None:
        """X of A X = B by a triangle in lanes (of the transpose of A, when turned)."""
        steps = (n, 1) if turned else (1, n)
        self.call("lanes_back" if upper else "lanes_lower", n, k, int(unit), *steps, a, x, flops=n * n * k)

    def give(self, count: int, lanes: Place, to: Place, what: str = "scatter") -> None:
        self.call(what, self.job.left, count, count, lanes, to)

    def factor(self, m: int, n: int, a: Place) -> tuple[Place, Place, Place]:
        """P L U of the first columns of A (m, n), in lanes, all columns taken along: pivots, info, the sign of the exchanges."""
        k = min(m, n)
        pivots, info, sign = self.room(k), self.room(1), self.room(1)
        self.call("lanes_lu", m, n, k, a, pivots, info, sign, flops=m * n * k)
        return pivots, info, sign


def _cholesky(job: Job, n: int) -> int:
    group, code = _Group(job), job.room(BYTES)
    values, a = group.take(n, n)
    info = job.operand(4)
    group.call("lanes_cholesky", n, values, code, flops=n ** 3 / 3)
    group.give(n * n, values, a)
    group.give(1, code, info, "scatter_whole")
    return n ** 3 // 3


def _lu(job: Job, m: int, n: int, exchange: bool) -> int:
    k = min(m, n)
    group = _Group(job)
    values, a = group.take(m, n)
    order, info = job.operand(4 * k), job.operand(4)
    pivots, code, _ = group.factor(m, n, values)
    group.give(m * n, values, a)
    group.give(k, pivots, order, "scatter_whole")
    group.give(1, code, info, "scatter_whole")
    return m * n * k


def _determinant(job: Job, n: int) -> int:
    group = _Group(job)
    values, a = group.take(n, n)
    order, det, found = job.operand(4 * n), job.operand(job.item), group.room(1)
    pivots, _, sign = group.factor(n, n, values)
    group.call("lanes_product", n, values, sign, found)
    group.give(n * n, values, a)
    group.give(n, pivots, order, "scatter_whole")
    group.give(1, found, det)
    return 2 * n ** 3 // 3


def _lu_parity(job: Job, n: int) -> int:
    group = _Group(job)
    values, a = group.take(n, n)
    order, parity = job.operand(4 * n), job.operand(job.item)
    pivots, _, sign = group.factor(n, n, values)
    group.give(n * n, values, a)
    group.give(n, pivots, order, "scatter_whole")
    group.give(1, sign, parity)
    return 2 * n ** 3 // 3


def _solve(job: Job, n: int, k: int) -> int:
    group = _Group(job)
    values = group.room(n * n + n * k)  # A and B side by side: what makes U of A makes L^-1 P B of B
    right, x = group.take(n, k, values + n * n * BYTES)
    _, a = group.take(n, n, values)
    order, info = job.operand(4 * n), job.operand(4)
    pivots, code, _ = group.factor(n, n + k, values)
    group.substitute(True, False, n, k, values, right)
    group.give(n * n, values, a)
    group.give(n * k, right, x)
    group.give(n, pivots, order, "scatter_whole")
    group.give(1, code, info, "scatter_whole")
    return 2 * n ** 3 // 3 + 2 * n * n * k


def _lu_solve(job: Job, n: int, k: int, adjoint: bool, by_rows: bool = False, lead: int = 0, step: int | None = None) -> int | None:
    group, x, lu, order = _Group(job), job.matrix(n, k), job.laid(n, n, step), job.operand(4 * n)
    if adjoint or by_rows:
        return None
    values, right, pivots = group.room(n * n), group.bring(n * k, x), group.bring(n, order, what="gather_whole")
    group.call("gather_laid", job.left, b"A", n, n, 1, lead or n, n * n if step is None else step, lu, values)
    group.call("lanes_exchange", n, k, pivots, right)
    group.substitute(False, True, n, k, values, right)
    group.substitute(True, False, n, k, values, right)
    group.give(n * k, right, x)
    return 2 * n * n * k


def _triangular(job: Job, n: int, k: int, upper: int, unit: int, by_rows: bool = False, lead: int = 0, step: int | None = None) -> int:
    group, x, a = _Group(job), job.matrix(n, k), job.laid(n, n, step)
    right = group.bring(n * k, x)
    group.substitute(bool(upper), bool(unit), n, k, group.triangle(bool(upper), n, by_rows, lead, step, a), right)
    group.give(n * k, right, x)
    return n * n * k


def _cholesky_solve(job: Job, n: int, k: int, upper: bool, by_rows: bool, lead: int, step: int) -> int:
    group, x, a = _Group(job), job.matrix(n, k), job.laid(n, n, step)
    right, values = group.bring(n * k, x), group.triangle(upper, n, by_rows, lead, step, a)
    group.substitute(False, False, n, k, values, right, turned=upper)
    group.substitute(True, False, n, k, values, right, turned=not upper)
    group.give(n * k, right, x)
    return 2 * n * n * k


def _inverse(job: Job, n: int) -> int:
    group = _Group(job)
    values = group.room(2 * n * n)
    _, a = group.take(n, n, values)
    info = job.operand(4)
    right = values + n * n * BYTES
    group.call("lanes_identity", n, right)
    _, code, _ = group.factor(n, 2 * n, values)
    group.substitute(True, False, n, n, values, right)
    group.call("lanes_spoil", n * n, code, right)
    group.give(n * n, right, a)
    group.give(1, code, info, "scatter_whole")
    return 2 * n ** 3


def _qr(job: Job, m: int, n: int, mode: str) -> int:
    k, wide = min(m, n), m if mode == "complete" else min(m, n)
    group, q, r = _Group(job), job.matrix(m, wide if mode != "r" else 0), job.matrix(wide, n)
    values, upper, tau = group.room(m * max(n, wide)), group.room(wide * n), group.room(k)
    group.take(m, n, values, lost=True)
    group.call("lanes_reflect", m, n, k, values, tau, flops=2 * m * n * k)
    group.call("lanes_upper", m, wide, n, values, upper)
    group.give(wide * n, upper, r)
    if mode != "r":
        group.call("lanes_orthogonal", m, wide, k, values, tau, flops=2 * m * wide * k)
        group.give(m * wide, values, q)
    return 4 * m * n * k


def _reflectors(job: Job, m: int, n: int) -> int:
    k = min(m, n)
    group = _Group(job)
    values, a = group.take(m, n)
    tau, factors = job.matrix(k, 1), group.room(k)
    group.call("lanes_reflect", m, n, k, values, factors, flops=2 * m * n * k)
    group.give(m * n, values, a)
    group.give(k, factors, tau)
    return 2 * m * n * k


def _orthogonal(job: Job, m: int, n: int, k: int) -> int:
    group = _Group(job)
    values, q = group.take(m, n)
    tau = job.matrix(k, 1)
    factors = group.bring(k, tau)
    group.call("lanes_orthogonal", m, n, k, values, factors, flops=4 * m * n * k)
    group.give(m * n, values, q)
    return 4 * m * n * k


_JOBS: dict[str, Callable[..., int | None]] = {
    "cholesky": _cholesky, "lu_factor": _lu, "lu": _lu_parity, "det": _determinant, "solve": _solve, "inv": _inverse,
    "lu_solve": _lu_solve, "lu_solve laid": _lu_solve, "trsm": _triangular, "trsm laid": _triangular, "cholesky_solve laid": _cholesky_solve,
    "qr": _qr, "geqrf": _reflectors, "orgqr": _orthogonal,
}

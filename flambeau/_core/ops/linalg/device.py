"""Linear algebra by the library of a device that has one.

Each function does what an operation's own entry does on the host, on operands of the same layout, and says whether it did: it does
not where the device has no library, or there is nothing to do.  Outside the tape.
"""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd.mode import no_recording
from ...kernels.specs import Lapack
from ...tensor import Tensor, empty
from .. import launch, routines
from ..copies import cast_program
from . import matrices
from .matrices import adjoint


def _made(like: Tensor, name: str, batch: int, *sizes: int) -> Any:
    """The launch, or None."""
    return routines.find(like.meta.device, Lapack(name, like.meta.dtype, batch, sizes)) if batch and all(sizes[:2]) else None


def _run(made: Any, like: Tensor, *operands: Tensor | None) -> bool:
    if made is not None:
        routines.call(made, [0 if t is None else t.ptr for t in operands])
    return made is not None


def put(to: Tensor, source: Tensor) -> None:
    """Copies numbers of one type into a place."""
    if to.meta.numel:
        launch.run(cast_program(source.meta.dtype, to.meta.dtype), tuple(to.meta.shape), [to], [source], name="copy")


def cholesky(out: Tensor, info: Tensor) -> bool:
    """L over A (packed by columns)."""
    n = out.meta.shape[-1]
    if not _run(_made(out, "potrf", matrices.batch_of(out), n), out, out, info):
        return False
    with no_recording():
        put(out, out.tril())
    return True


def lu(packed: Tensor, pivots: Tensor, info: Tensor, exchange: bool = True) -> bool:
    """L and U over A, pivots (int32) from 1."""
    m, n = packed.meta.shape[-2:]
    if not _run(_made(packed, "getrf", matrices.batch_of(packed), m, n), packed, packed, pivots if exchange else None, info):
        return False
    if not exchange:
        from ..ranges import arange
        put(pivots, arange(1, min(m, n) + 1, dtype=dtypes.int32, device=pivots.meta.device))
    return True


def lu_solve(x: Tensor, packed: Tensor, pivots: Tensor, adjoint: bool = False) -> bool:
    """X over B, from `lu`'s results; pivots of any integer type."""
    n, k = x.meta.shape[-2:]
    made = _made(packed, "getrs", matrices.batch_of(packed), n, k, int(adjoint))
    if made is not None:
        with no_recording():
            pivots = matrices.ready(pivots.to(dtypes.int32))
    return _run(made, packed, x, packed, pivots)


def solve(x: Tensor, packed: Tensor, pivots: Tensor, info: Tensor) -> bool:
    """X over B, L and U over A."""
    if not lu(packed, pivots, info):
        return False
    if x.meta.numel and not lu_solve(x, packed, pivots):
        raise RuntimeError("linalg.solve: the library that factorized the matrix cannot solve with it")
    return True


def invert(out: Tensor, info: Tensor) -> bool:
    """The inverse over A."""
    n = out.meta.shape[-1]
    packed = matrices.columns(out)
    pivots = empty((*out.meta.shape[:-2], n), dtypes.int32, out.meta.device)
    if not lu(packed, pivots, info):
        return False
    with no_recording():
        put(out, matrices.identity(out, n).expand(*out.meta.shape))
    return lu_solve(out, packed, pivots)


def triangular(x: Tensor, a: Tensor, upper: bool, unit: bool) -> bool:
    """X of A X = B over B, by one triangle of A."""
    n, k = x.meta.shape[-2:]
    return _run(_made(a, "trsm", matrices.batch_of(a), n, k, int(upper), int(unit)), a, x, a)


def reflectors(a: Tensor, tau: Tensor) -> bool:
    """Householder's A = Q R over A."""
    m, n = a.meta.shape[-2:]
    return _run(_made(a, "geqrf", matrices.batch_of(a), m, n), a, a, tau)


def qr(q: Tensor, r: Tensor, work: Tensor, mode: str) -> bool:
    """Q (not in mode "r") and R of A, which is lost."""
    m, n = work.meta.shape[-2:]
    k, wide = min(m, n), r.meta.shape[-2]
    tau = empty((*work.meta.shape[:-2], k), work.meta.dtype, work.meta.device)
    if not reflectors(work, tau):
        return False
    with no_recording():
        put(r, work.narrow(-2, 0, wide).triu())
        if mode != "r":
            put(q.narrow(-1, 0, k), work.narrow(-1, 0, k))
            if wide > k:
                launch.fill(q.narrow(-1, k, wide - k), 0)
    if mode != "r":
        made = _made(work, "orgqr", matrices.batch_of(work), m, wide, k)
        if not _run(made, work, q, tau):
            raise RuntimeError("linalg.qr: the library that factorized the matrix cannot make Q of it")
    return True


def hermitian(w: Tensor, v: Tensor, info: Tensor, vectors: bool, lower: bool) -> bool:
    """Eigenvalues, and eigenvectors over A where they are asked for."""
    n = v.meta.shape[-1]
    return _run(_made(v, "syevd", matrices.batch_of(v), n, n, int(vectors), int(lower)), v, w, v, info)


def singular(u: Tensor, s: Tensor, vh: Tensor, info: Tensor, work: Tensor, job: str) -> bool:
    """A = U diag(s) V^H; A is lost.  A wide matrix goes by its adjoint."""
    m, n = work.meta.shape[-2:]
    batch = matrices.batch_of(work)
    made = _made(work, "gesvd", batch, max(m, n), min(m, n), ord(job))
    if made is None:
        return False
    if m >= n:
        return _run(made, work, u if job != "N" else None, s, vh if job != "N" else None, info, work)
    with no_recording():
        turned = matrices.columns(adjoint(work))
        if job == "N":
            return _run(made, work, None, s, None, info, turned)
        right, left = (matrices.fresh((*t.meta.shape[:-2], t.meta.shape[-1], t.meta.shape[-2]), t.meta.dtype, t.meta.device) for t in (vh, u))
        _run(made, work, right, s, left, info, turned)
        put(u, matrices.columns(adjoint(left)))
        put(vh, matrices.columns(adjoint(right)))
    return True

"""Singular values and vectors.

Gradient: Townsend, "Differentiating the singular value decomposition" (2016), for complex matrices after Wan and Zhang,
"Automatic differentiation for complex valued SVD" (2019).
"""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd import tape
from ...tensor import Tensor, empty
from ..table import op
from . import device, matrices
from .matrices import adjoint

_DRIVERS = ("gesvd", "gesvdj", "gesvda")


def decomposed(a: Tensor, vectors: bool, full: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """U, S, V^H, info, outside the tape; U and V^H are empty without `vectors`."""
    m, n = a.meta.shape[-2:]
    k, batch, d = min(m, n), matrices.batch_of(a), a.meta.dtype
    lead, dev = tuple(a.meta.shape[:-2]), a.meta.device
    rows = n if full else k
    s = empty((*lead, k), d.to_real(), dev)
    u = matrices.fresh((*lead, m, m if full else k), d, dev) if vectors else empty((0,), d, dev)
    vh = matrices.fresh((*lead, rows, n), d, dev) if vectors else empty((0,), d, dev)
    info = empty(lead, dtypes.int32, dev)
    job = "N" if not vectors else "A" if full else "S"
    if batch:
        matrices.job("svd", a, (m, n, job), u, s, vh, info, lost=a, otherwise=lambda work: device.singular(u, s, vh, info, work, job))
    return u, s, vh, info


def recorded(name: str, a: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U, S, V^H with their history.  Raises LinAlgError where the iteration fails."""
    u, s, vh, info = decomposed(a, True, full)
    matrices.require(name, "svd", info)
    tape.record_many((u, s, vh), _back, (a,), matrices.keep_outputs(u, s, vh), "LinalgSvdBackward0")
    return u, s, vh


def _back(node: Any, gs: Any) -> Any:
    u, s, vh = matrices.kept_outputs(node, node[tape.SAVED])
    g_u, g_s, g_vh = gs
    m, n, k = u.meta.shape[-2], vh.meta.shape[-1], s.meta.shape[-1]
    if g_u is None and g_vh is None:
        return ((u.narrow(-1, 0, k) * g_s.unsqueeze(-2)) @ vh.narrow(-2, 0, k),)
    if k < max(u.meta.shape[-1], vh.meta.shape[-2]):
        # the vectors that complete a basis are free: only the first k have gradients
        u, vh = u.narrow(-1, 0, k), vh.narrow(-2, 0, k)
        g_u, g_vh = None if g_u is None else g_u.narrow(-1, 0, k), None if g_vh is None else g_vh.narrow(-2, 0, k)
    is_complex, d = u.meta.dtype.is_complex, u.meta.dtype
    square = s * s
    gaps = square.unsqueeze(-2) - square.unsqueeze(-1) + matrices.identity(s, k)
    one, other = s.unsqueeze(-2), s.unsqueeze(-1)
    inner: Any = 0 if g_s is None else matrices.diagonal_matrix(g_s.to(d))
    if g_u is not None:
        uu = adjoint(u) @ g_u
        inner = inner + (uu - adjoint(uu)) / gaps * one
        if is_complex:
            from ..complexes import complex_, imag
            phase = imag(uu.diagonal(0, -2, -1)) / s
            inner = inner + matrices.diagonal_matrix(complex_(s - s, phase))
    if g_vh is not None:
        vv = vh @ adjoint(g_vh)
        inner = inner + other * ((vv - adjoint(vv)) / gaps)
    found = u @ (inner @ vh)
    if m > k and g_u is not None:
        found = found + ((g_u - u @ uu) / one) @ vh
    if n > k and g_vh is not None:
        found = found + (u / one) @ (g_vh - (g_vh @ adjoint(vh)) @ vh)
    return (found,)


def _check_driver(name: str, driver: Any, a: Tensor) -> None:
    if driver is None:
        return
    if a.meta.device.type == "cpu":
        raise RuntimeError(f"{name}: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend.")
    if driver not in _DRIVERS:
        raise RuntimeError(f"{name}: unknown svd driver {driver}: expected one of {', '.join(_DRIVERS)}")


def values_of(name: str, a: Tensor) -> Tensor:
    """Singular values, falling, recorded."""
    if tape.recording(a):
        return recorded(name, a, False)[1]
    _, s, _, info = decomposed(a, False)
    matrices.require(name, "svd", info)
    return s


@op(method=False, out=True, spaces=("linalg",), name="svd", batch="trailing")
def linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """U, S, Vh with A = U diag(S) Vh for A (..., m, n): singular values S real and falling, orthonormal U and Vh, square when
    `full_matrices`, else (..., m, k) and (..., k, n), k = min(m, n).

    Gradients need distinct singular values (and, with A not square or complex, positive ones).  Raises LinAlgError where the
    iteration does not converge.  `driver` is for GPUs and chooses nothing here.
    """
    matrices.matrix("linalg.svd", A)
    _check_driver("linalg.svd", driver, A)
    return matrices.result("linalg_svd", "U S Vh", *recorded("linalg.svd", A, bool(full_matrices)))


@op(method=False, out=True, spaces=("linalg",), batch="trailing")
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values of A (..., m, n), real and falling; differentiable everywhere but at zero values."""
    matrices.matrix("linalg.svdvals", A)
    _check_driver("linalg.svdvals", driver, A)
    return values_of("linalg.svdvals", A)


@op(out=True, batch="trailing")
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:  # noqa: A002 (PyTorch's name)
    """U, S, V with A = U diag(S) V^H: `linalg.svd` in its older form.  Without `compute_uv`, U and V are zeros."""
    matrices.matrix("linalg.svd", input)
    if compute_uv:
        u, s, vh = recorded("linalg.svd", input, not some)
        return matrices.result("svd", "U S V", u, s, adjoint(vh))
    m, n = input.meta.shape[-2:]
    lead = tuple(input.meta.shape[:-2])
    zeros: Any = input.new_zeros
    return matrices.result("svd", "U S V", zeros((*lead, m, m)), values_of("linalg.svd", input), zeros((*lead, n, n)))


# ------------------------------------------------------------------------------------------------------ low rank
def _range_of(a: Tensor, q: int, iterations: int) -> Tensor:
    """An orthonormal basis near the range of A: Halko, Martinsson and Tropp (2011), algorithm 4.4."""
    from ..random import randn
    from .householder import factors
    start = randn(a.meta.shape[-1], q, dtype=a.meta.dtype, device=a.meta.device)
    turned = adjoint(a)
    basis = factors(a @ start, "reduced")[0]
    for _ in range(iterations):
        basis = factors(turned @ basis, "reduced")[0]
        basis = factors(a @ basis, "reduced")[0]
    return basis


def _low_rank(a: Tensor, q: int, iterations: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same paper's algorithm 5.1, on the side where the smaller matrix is decomposed."""
    m, n = a.meta.shape[-2:]
    if m < n:
        basis = _range_of(adjoint(a), q, iterations)
        u, s, vh = recorded("linalg.svd", a @ basis, False)
        return u, s, basis @ adjoint(vh)
    basis = _range_of(a, q, iterations)
    u, s, vh = recorded("linalg.svd", adjoint(basis) @ a, False)
    return basis @ u, s, adjoint(vh)


@op(method=False)
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """U, S, V of a random rank-q approximation of A - M (..., m, n), by `niter` subspace iterations."""
    matrices.matrix("svd_lowrank", A)
    return _low_rank(A if M is None else A - M, 6 if q is None else q, 2 if niter is None else niter)


@op(method=False)
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """U, S, V of the principal components of the rows of A (..., m, n): `svd_lowrank` of A, its columns' means taken off when `center`."""
    matrices.matrix("pca_lowrank", A)
    m, n = A.meta.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    a = A - A.mean(-2, keepdim=True) if center else A
    return _low_rank(a, q, niter)

"""Eigenvalues and eigenvectors.

Gradients: Giles, "An extended collection of matrix derivative results" (2008), 3.1; the part that keeps general eigenvectors at length 1
after Boeddeker et al., "On the computation of complex-valued gradients" (2019).
"""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd import tape
from ...errors import LinAlgError
from ...tensor import Tensor, empty
from ..table import op
from . import device, matrices
from .matrices import adjoint


# ---------------------------------------------------------------------------------------------------------- Hermitian
def hermitian(a: Tensor, vectors: bool, lower: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues, eigenvectors (empty unless asked for), info; outside the tape."""
    n, batch, d = a.meta.shape[-1], matrices.batch_of(a), a.meta.dtype
    lead, dev = tuple(a.meta.shape[:-2]), a.meta.device
    v = matrices.like(a) if vectors else empty((0,), d, dev)
    w, info = empty((*lead, n), d.to_real(), dev), empty(lead, dtypes.int32, dev)
    if batch and vectors:
        matrices.job("eigh", a, (n, True, lower), w, v, info, over=((v, a),), otherwise=lambda: device.hermitian(w, v, info, True, lower))
    elif batch:
        matrices.job("eigh", a, (n, False, lower), w, info, lost=a, otherwise=lambda work: device.hermitian(w, work, info, False, lower))
    return w, v, info


def hermitian_factors(name: str, a: Tensor, lower: bool) -> tuple[Tensor, Tensor]:
    w, v, info = hermitian(a, True, lower)
    matrices.require(name, "eig", info)
    tape.record_many((w, v), _hermitian_back, (a,), matrices.keep_outputs(w, v), "LinalgEighBackward0")
    return w, v


def _hermitian_back(node: Any, gs: Any) -> Any:
    w, v = matrices.kept_outputs(node, node[tape.SAVED])
    g_w, g_v = gs
    d = v.meta.dtype
    if g_v is None:
        return ((v * g_w.unsqueeze(-2)) @ adjoint(v),)
    n = w.meta.shape[-1]
    unit = matrices.identity(w, n)
    gaps = w.unsqueeze(-2) - w.unsqueeze(-1) + unit
    moved = adjoint(v) @ g_v
    inner = (moved - adjoint(moved)) * 0.5 / gaps * (1 - unit)
    if g_w is not None:
        inner = inner + matrices.diagonal_matrix(g_w.to(d))
    return (v @ (inner @ adjoint(v)),)


def _lower(name: str, UPLO: str) -> bool:
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return UPLO.upper() == "L"


@op(method=False, out=True, spaces=("linalg",), batch="trailing")
def eigh(input: Tensor, UPLO: str = "L") -> Any:  # noqa: A002
    """Eigenvalues (real, rising) and orthonormal eigenvectors, as columns, of Hermitian A = `input` (..., n, n); one triangle is read.

    Gradients of the eigenvectors need distinct eigenvalues.  Raises LinAlgError where the iteration does not converge.
    """
    matrices.square("linalg.eigh", input)
    return matrices.result("linalg_eigh", "eigenvalues eigenvectors", *hermitian_factors("linalg.eigh", input, _lower("linalg.eigh", UPLO)))


@op(method=False, out=True, spaces=("linalg",), batch="trailing")
def eigvalsh(input: Tensor, UPLO: str = "L") -> Tensor:  # noqa: A002
    """The eigenvalues, real and rising, of Hermitian A = `input` (..., n, n); one triangle is read."""
    matrices.square("linalg.eigvalsh", input)
    return hermitian_values("linalg.eigvalsh", input, _lower("linalg.eigvalsh", UPLO))


def hermitian_values(name: str, a: Tensor, lower: bool = True) -> Tensor:
    if tape.recording(a):
        return hermitian_factors(name, a, lower)[0]
    w, _, info = hermitian(a, False, lower)
    matrices.require(name, "eig", info)
    return w


# ------------------------------------------------------------------------------------------------------------- general
def _general(name: str, a: Tensor, vectors: bool) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors, complex, outside the tape."""
    n, batch = a.meta.shape[-1], matrices.batch_of(a)
    d, lead, dev = a.meta.dtype.to_complex(), tuple(a.meta.shape[:-2]), a.meta.device
    w, info = empty((*lead, n), d, dev), empty(lead, dtypes.int32, dev)
    v = matrices.fresh((*lead, n, n), d, dev) if vectors else empty((0,), d, dev)
    if batch:
        matrices.job("eig", a, (n, vectors), w, v, info, lost=a)
        if batch and info.meta.device.type != "meta" and bool((info == -1).any()):
            raise LinAlgError(f"torch.{name}: input tensor should not contain infs or NaNs.")
        matrices.require(name, "eig", info)
    return w, v


def _general_recorded(name: str, a: Tensor) -> tuple[Tensor, Tensor]:
    w, v = _general(name, a, True)
    tape.record_many((w, v), _general_back, (a,), (matrices.keep_outputs(w, v), a.meta.dtype.is_complex), "LinalgEigBackward0")
    return w, v


def _general_back(node: Any, gs: Any) -> Any:
    from .solving import solve_ex
    outputs, is_complex = node[tape.SAVED]
    w, v = matrices.kept_outputs(node, outputs)
    g_w, g_v = gs
    turned = adjoint(v)
    if g_v is None:
        inner = g_w.unsqueeze(-1) * turned
    else:
        n = w.meta.shape[-1]
        unit = matrices.identity(w, n)
        vg = turned @ g_v
        # a change of an eigenvector along itself changes its length, which is held at 1
        lengths = matrices.real_part(vg.diagonal(0, -2, -1)).unsqueeze(-2)
        gaps = (w.unsqueeze(-2) - w.unsqueeze(-1)).conj_physical() + unit
        inner = (vg - (turned @ v) * lengths) / gaps * (1 - unit)
        if g_w is not None:
            inner = inner + matrices.diagonal_matrix(g_w)
        inner = inner @ turned
    found = solve_ex(turned, inner)[0]
    return (found if is_complex else matrices.real_part(found),)


@op(method=False, out=True, spaces=("linalg",), batch="trailing")
def eig(input: Tensor) -> Any:  # noqa: A002
    """Eigenvalues and eigenvectors (columns of length 1) of square A = `input` (..., n, n), complex also for real A.

    Gradients need distinct eigenvalues.  Raises LinAlgError for NaN or infinities, or where the iteration does not converge.
    """
    matrices.square("linalg.eig", input)
    return matrices.result("linalg_eig", "eigenvalues eigenvectors", *_general_recorded("linalg.eig", input))


@op(method=False, out=True, spaces=("linalg",), batch="trailing")
def eigvals(input: Tensor) -> Tensor:  # noqa: A002
    """The eigenvalues of square A = `input` (..., n, n), complex, in no order."""
    matrices.square("linalg.eigvals", input)
    return (_general_recorded if tape.recording(input) else lambda name, a: _general(name, a, False))("linalg.eigvals", input)[0]

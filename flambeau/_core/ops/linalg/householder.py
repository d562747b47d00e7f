"""QR and products of Householder reflectors.

Gradient of QR: Walter and Lehmann, "Algorithmic differentiation of linear algebra functions" (2018); wide matrices after Roberts and
Roberts, "QR and LQ decomposition matrix backpropagation algorithms" (2020).  Products of reflectors are computed as I - V T V^H
(Schreiber and Van Loan 1989), which operations with gradients express.
"""

from __future__ import annotations

from typing import Any

from ...autograd import tape
from ...tensor import Tensor, empty
from ..table import op
from . import device, matrices
from .matrices import adjoint
from .solving import solve_triangular


def _factored(a: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """Q and R, outside the tape; Q is empty in mode "r"."""
    m, n = a.meta.shape[-2:]
    k, batch, d = min(m, n), matrices.batch_of(a), a.meta.dtype
    lead, dev = tuple(a.meta.shape[:-2]), a.meta.device
    wide = m if mode == "complete" else k
    q = empty((0,), d, dev) if mode == "r" else matrices.fresh((*lead, m, wide), d, dev)
    r = matrices.fresh((*lead, wide, n), d, dev)
    if batch and (m or n):
        matrices.job("qr", a, (m, n, mode), q, r, lost=a, otherwise=lambda work: device.qr(q, r, work, mode))
    return q, r


def factors(a: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """Q and R, recorded."""
    q, r = _factored(a, mode)
    tape.record_many((q, r), _qr_back, (a,), (matrices.keep_outputs(q, r), mode), "LinalgQrBackward0")
    return q, r


def _qr_back(node: Any, gs: Any) -> Any:
    outputs, mode = node[tape.SAVED]
    if mode == "r":
        raise RuntimeError("The derivative of linalg_qr depends on Q, which is not computed when mode='r'. Please use linalg.qr(A, mode='reduced') if "
                           "you are going to differentiate through linalg.qr.")
    q, r = matrices.kept_outputs(node, outputs)
    m, n = q.meta.shape[-2], r.meta.shape[-1]
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
    g_q, g_r = gs
    if g_q is None:
        g_q = q.new_zeros(tuple(q.meta.shape))
    if g_r is None:
        g_r = r.new_zeros(tuple(r.meta.shape))
    if m >= n:
        return (_tall(q, r, g_q, g_r),)
    # A = [A1 | A2], A1 = Q R1: R2 = Q^H A2 adds to what arrives at Q
    from ..concat import cat
    g2 = g_r.narrow(-1, m, n - m)
    a2 = q @ r.narrow(-1, m, n - m)
    first = _tall(q, r.narrow(-1, 0, m), g_q + a2 @ adjoint(g2), g_r.narrow(-1, 0, m))
    return (cat([first, q @ g2], -1),)


def _tall(q: Tensor, r: Tensor, g_q: Tensor, g_r: Tensor) -> Tensor:
    inner = matrices.half_diagonal((g_r @ adjoint(r) - adjoint(q) @ g_q).triu())
    return solve_triangular(adjoint(r), g_q + q @ inner, upper=False, left=False)


@op(method=False, out=True, spaces=("linalg",), name="qr", batch="trailing")
def linalg_qr(A: Tensor, mode: str = "reduced") -> Any:
    """Q, R with A = Q R for A (..., m, n), k = min(m, n): "reduced" Q (..., m, k) and R (..., k, n), "complete" Q (..., m, m) and
    R (..., m, n), "r" an empty Q and the reduced R.

    Differentiable in mode "reduced" when the first k columns are independent, and in "complete" when m <= n.
    """
    matrices.matrix("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
    return matrices.result("linalg_qr", "Q R", *factors(A, mode))


@op(out=True, batch="trailing")
def qr(input: Tensor, some: bool = True) -> Any:  # noqa: A002 (PyTorch's name)
    """`linalg.qr` under its older name: reduced when `some`, else complete."""
    matrices.matrix("linalg.qr", input)
    return matrices.result("qr", "Q R", *factors(input, "reduced" if some else "complete"))


@op(out=True, out_type="castable")
def geqrf(input: Tensor) -> Any:  # noqa: A002
    """QR as LAPACK gives it: R on and above the diagonal, the reflectors below it, their factors tau (..., min(m, n))."""
    matrices.matrix("geqrf", input, "input")
    m, n = input.meta.shape[-2:]
    a = matrices.like(input)
    tau = empty((*input.meta.shape[:-2], min(m, n)), input.meta.dtype, input.meta.device)
    if a.meta.numel:
        matrices.job("geqrf", input, (m, n), a, tau, over=((a, input),))
    tape.record_many((a, tau), _no_gradient, (input,), None, "GeqrfBackward0")
    return matrices.result("geqrf", "a tau", a, tau)


def _no_gradient(node: Any, gs: Any) -> Any:
    raise RuntimeError("derivative for geqrf is not implemented")


# ------------------------------------------------------------------------------------------------------------- products
def _compact(a: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """V and T of the product of reflectors I - V T V^H: (I + D N) T = D for D = diag(tau), N the strict upper triangle of V^H V."""
    from ..ranges import eye
    m, k = a.meta.shape[-2], tau.meta.shape[-1]
    v = a.narrow(-1, 0, k).tril(-1) + eye(m, k, dtype=a.meta.dtype, device=a.meta.device)
    n = (adjoint(v) @ v).triu(1)
    d = matrices.diagonal_matrix(tau)
    return v, solve_triangular(tau.unsqueeze(-1) * n, d, upper=True, unitriangular=True)


def _check_product(name: str, A: Tensor, tau: Tensor) -> None:
    matrices.matrix(name, A)
    m, n = A.meta.shape[-2:]
    if m < n:
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if n < tau.meta.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    if len(A.meta.shape) - len(tau.meta.shape) != 1:
        raise RuntimeError(f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to {len(tau.meta.shape)} and input.ndim "
                           f"is equal to {len(A.meta.shape)}")
    if tuple(A.meta.shape[:-2]) != tuple(tau.meta.shape[:-1]):
        raise RuntimeError(f"{name}: Expected batch of tau to be equal to batch of input, but got {list(tau.meta.shape)}")
    if tau.meta.dtype is not A.meta.dtype:
        raise RuntimeError(f"{name}: tau dtype {matrices.type_name(tau)} does not match input dtype {matrices.type_name(A)}")


@op(method=False, out=True, spaces=("linalg",), out_type="castable")
def householder_product(input: Tensor, tau: Tensor) -> Tensor:  # noqa: A002
    """The first n columns of the product of k reflectors: A = `input` (..., m, n) holds their vectors below its diagonal, tau (..., k) their factors."""
    _check_product("linalg.householder_product", input, tau)
    if not tape.recording(input, tau) and input.meta.numel and tau.meta.numel:
        q = matrices.like(input)
        matrices.job("orgqr", input, (*input.meta.shape[-2:], tau.meta.shape[-1]), q, matrices.ready(tau), over=((q, input),))
        return q
    v, t = _compact(input, tau)
    m, n = input.meta.shape[-2:]
    from ..ranges import eye
    made: Tensor = eye(m, n, dtype=input.meta.dtype, device=input.meta.device) - v @ (t @ adjoint(v.narrow(-2, 0, n)))
    return made


@op(out=True, autocast="cpu full")
def orgqr(input: Tensor, input2: Tensor) -> Tensor:  # noqa: A002
    """`linalg.householder_product` under LAPACK's name."""
    return householder_product(input, input2)


def _by_library(c: Tensor, a: Tensor, tau: Tensor, left: bool, transpose: bool) -> bool:
    """Q C or C Q over `c`, if the device's backend can; whether it did."""
    sizes = (*c.meta.shape[-2:], tau.meta.shape[-1], left, transpose)
    return matrices.solve("ormqr", sizes, c, a, tau, copied=False) or matrices.solve("ormqr", sizes, c, matrices.columns(a), tau, copied=False)


@op(out=True, autocast="cpu full")
def ormqr(input: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False) -> Tensor:  # noqa: A002
    """Q C (C Q when not `left`) for Q the full product of the reflectors of `input`, tau = `input2`, C = `input3`; Q^H when `transpose`."""
    a, tau, c = input, input2, input3
    matrices.matrix("ormqr", a, "input")
    matrices.matrix("ormqr", c, "other")
    side = -2 if left else -1
    if c.meta.shape[side] < tau.meta.shape[-1]:
        raise RuntimeError(f"torch.ormqr: other.shape[{side}] must be greater than or equal to tau.shape[-1]")
    if tau.meta.shape[-1] > a.meta.shape[-1]:
        raise RuntimeError("torch.ormqr: tau.shape[-1] must be less than or equal to input.shape[-1]")
    if c.meta.shape[side] != a.meta.shape[-2]:
        raise RuntimeError(f"torch.ormqr: other.shape[{side}] must be equal to input.shape[-2]")
    if len(a.meta.shape) - len(tau.meta.shape) != 1 or len(a.meta.shape) != len(c.meta.shape):
        raise RuntimeError(f"torch.ormqr: Expected tau to have one dimension less than input and other as many, but got tau.ndim equal to "
                           f"{len(tau.meta.shape)}, input.ndim {len(a.meta.shape)} and other.ndim {len(c.meta.shape)}")
    if tau.meta.dtype is not a.meta.dtype or c.meta.dtype is not a.meta.dtype:
        raise RuntimeError("torch.ormqr: Expected input, tau and other to have the same dtype")
    if not tape.recording(a, tau, c) and tuple(c.meta.shape[:-2]) == tuple(a.meta.shape[:-2]) and c.meta.numel and tau.meta.numel:
        x, k = matrices.columns(c), tau.meta.shape[-1]
        if _by_library(x, a.narrow(-1, 0, k), matrices.ready(tau), bool(left), bool(transpose)):
            return x
    v, t = _compact(a, tau)
    if transpose:
        t = adjoint(t)
    return c - v @ (t @ (adjoint(v) @ c)) if left else c - ((c @ v) @ t) @ adjoint(v)

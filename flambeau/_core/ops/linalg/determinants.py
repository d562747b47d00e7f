"""Determinants, from the LU factorization.

Gradients: d det(A) = det(A) tr(A^-1 dA), d log det(A) = tr(A^-1 dA) (Giles 2008, 2.2).
"""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd import tape
from ...autograd.mode import no_recording
from ...tensor import Tensor, empty
from ..table import op
from . import device, matrices
from .matrices import adjoint
from .solving import inverted


def _diagonal(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """LU, pivots (int32) and the parity of the exchanges (+1 or -1, real), outside the tape."""
    n, batch = a.meta.shape[-1], matrices.batch_of(a)
    lead, dev, real = tuple(a.meta.shape[:-2]), a.meta.device, a.meta.dtype.to_real()
    lu, pivots, parity = matrices.like(a), empty((*lead, n), dtypes.int32, dev), empty(lead, real, dev)
    if batch:
        matrices.job("lu", a, (n,), lu, pivots, parity, over=((lu, a),), otherwise=lambda: _on_device(lu, pivots, parity))
    return lu, pivots, parity


def _on_device(lu: Tensor, pivots: Tensor, parity: Tensor) -> bool:
    """`_diagonal`'s work by the device's library, where it has one."""
    from ..ranges import arange
    n = lu.meta.shape[-1]
    lead, dev = tuple(lu.meta.shape[:-2]), lu.meta.device
    info = empty(lead, dtypes.int32, dev)
    if not device.lu(lu, pivots, info):
        return False
    with no_recording():
        odd = (pivots != arange(1, n + 1, dtype=dtypes.int32, device=dev)).sum(-1) % 2
        device.put(parity, (1 - 2 * odd).to(parity.meta.dtype))
    return True


def _det(a: Tensor) -> Tensor:
    n, lead, dev = a.meta.shape[-1], tuple(a.meta.shape[:-2]), a.meta.device
    lu, pivots, out = matrices.like(a), empty((*lead, n), dtypes.int32, dev), empty(lead, a.meta.dtype, dev)

    def by_library() -> bool:
        parity = empty(lead, a.meta.dtype.to_real(), dev)
        if not _on_device(lu, pivots, parity):
            return False
        with no_recording():
            device.put(out, lu.diagonal(0, -2, -1).prod(-1) * parity)
        return True
    if matrices.batch_of(a):
        matrices.job("det", a, (n,), lu, pivots, out, over=((lu, a),), otherwise=by_library)
    return tape.record(out, _det_back, (a,), (matrices.keep(a), matrices.keep_outputs(out), lu, pivots), "LinalgDetBackward0")


def _det_back(node: Any, g: Tensor) -> Any:
    inputs, outputs, lu, pivots = node[tape.SAVED]
    (a,), (det,) = matrices.kept(node, inputs), matrices.kept_outputs(node, outputs)
    if tape.recording(a, g):
        return ((g * det.conj_physical()).unsqueeze(-1).unsqueeze(-1) * adjoint(inverted(a)[0]),)
    return (g.unsqueeze(-1).unsqueeze(-1) * _cofactors(lu, pivots),)


def _cofactors(lu: Tensor, pivots: Tensor) -> Tensor:
    """conj(det) A^-H.  Zeros on U's diagonal are moved by a rounding error, which changes the result by as much and gives
    singular matrices their gradient."""
    out = matrices.fresh(lu.meta.shape, lu.meta.dtype, lu.meta.device)
    work = matrices.columns(lu)
    if out.meta.numel:
        matrices.job("cofactors", lu, (lu.meta.shape[-1],), out, work, pivots)
    return out


def _slogdet(a: Tensor) -> tuple[Tensor, Tensor]:
    lu, _, parity = _diagonal(a)
    with no_recording():
        u = lu.diagonal(0, -2, -1)
        sign, size = u.sgn().prod(-1) * parity, u.abs().log().sum(-1)
    tape.record_many((sign, size), _slogdet_back, (a,), (matrices.keep(a), matrices.keep_outputs(sign, size)), "LinalgSlogdetBackward0")
    return sign, size


def _slogdet_back(node: Any, gs: Any) -> Any:
    inputs, outputs = node[tape.SAVED]
    (a,), (sign, _) = matrices.kept(node, inputs), matrices.kept_outputs(node, outputs)
    g_sign, g = gs
    if a.meta.dtype.is_complex:
        from ..complexes import complex_, imag
        # sign = exp(i Im(log det)), log|det| = Re(log det)
        turn = None if g_sign is None else -imag(g_sign.conj_physical() * sign)
        if turn is None:
            g = g.to(a.meta.dtype)
        else:
            g = complex_(turn - turn if g is None else g, turn)
    elif g is None:
        return (a.new_zeros(tuple(a.meta.shape)),)
    return (g.unsqueeze(-1).unsqueeze(-1) * adjoint(inverted(a)[0]),)


# --------------------------------------------------------------------------------------------------------------- names
@op(method=False, out=True, spaces=("linalg",), name="det", batch="trailing")
def linalg_det(A: Tensor) -> Tensor:
    """The determinant of square matrices (..., n, n); differentiable, also where it is zero."""
    matrices.square("linalg.det", A)
    return _det(A)


@op(batch="trailing")
def det(input: Tensor) -> Tensor:  # noqa: A002 (PyTorch's name)
    """`linalg.det` under its older name."""
    return linalg_det(input)


@op(method=False, out=True, spaces=("linalg",), name="slogdet", batch="trailing")
def linalg_slogdet(A: Tensor) -> Any:
    """(sign, logabsdet) with det = sign exp(logabsdet), for (..., n, n); a singular matrix gives 0 and -inf."""
    matrices.square("linalg.slogdet", A)
    return matrices.result("linalg_slogdet", "sign logabsdet", *_slogdet(A))


@op(out=True, batch="trailing")
def slogdet(input: Tensor) -> Any:  # noqa: A002
    """`linalg.slogdet` under its older name."""
    matrices.square("linalg.slogdet", input)
    return matrices.result("slogdet", "sign logabsdet", *_slogdet(input))


@op(batch="trailing")
def logdet(input: Tensor) -> Tensor:  # noqa: A002
    """The logarithm of the determinant: NaN where a real one is negative, -inf where it is zero."""
    matrices.square("logdet", input)
    sign, size = _slogdet(input)
    if sign.meta.dtype.is_complex:
        return sign.log() + size
    return size.masked_fill(sign == -1, float("nan"))

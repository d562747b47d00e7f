"""LDL factorization of symmetric and Hermitian matrices that need not be definite (Bunch and Kaufman)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...autograd import tape
from ...tensor import Tensor, empty
from ..checks import same_device
from ..reading import values
from ..table import op
from . import matrices
from .solving import broadcast


def _factored(a: Tensor, hermitian: bool) -> tuple[Tensor, Tensor, Tensor]:
    n, batch = a.meta.shape[-1], matrices.batch_of(a)
    lead, dev = tuple(a.meta.shape[:-2]), a.meta.device
    ld = matrices.like(a)
    pivots, info = empty((*lead, n), dtypes.int32, dev), empty(lead, dtypes.int32, dev)
    if batch:
        matrices.job("ldl_factor", a, (n, hermitian), ld, pivots, info, over=((ld, a),))
    return tape.record(ld, _no_gradient, (a,), None, "LinalgLdlFactorExBackward0"), pivots, info


def _no_gradient(node: Any, g: Tensor) -> Any:
    raise RuntimeError("derivative for linalg_ldl_factor_ex is not implemented")


@op(method=False, out=True, spaces=("linalg",))
def ldl_factor_ex(input: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:  # noqa: A002
    """`ldl_factor` with `info` (int32, one a matrix): 0, or the place of a zero block of D.  Nothing is raised unless `check_errors`."""
    matrices.square("torch.linalg.ldl_factor_ex", input)
    ld, pivots, info = _factored(input, hermitian)
    if check_errors:
        matrices.require("torch.linalg.ldl_factor_ex", "ldl", info)
    return matrices.result("linalg_ldl_factor_ex", "LD pivots info", ld, pivots, info)


@op(method=False, out=True, spaces=("linalg",))
def ldl_factor(input: Tensor, *, hermitian: bool = False) -> Any:  # noqa: A002
    """L and D with A = L D L^T (L D L^H when `hermitian`) in one matrix, and pivots as LAPACK's sytrf gives them (int32; negative for
    blocks of 2).  Raises LinAlgError when D is singular."""
    matrices.square("torch.linalg.ldl_factor", input)
    ld, pivots, info = _factored(input, hermitian)
    matrices.require("torch.linalg.ldl_factor", "ldl", info)
    return matrices.result("linalg_ldl_factor", "LD pivots", ld, pivots)


@op(method=False, out=True, spaces=("linalg",))
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X of A X = B from `ldl_factor`'s results; batch axes broadcast.  Gradients flow to B."""
    matrices.square("torch.linalg.ldl_solve", LD, "LD")
    matrices.matrix("torch.linalg.ldl_solve", B, "B")
    matrices.alike("torch.linalg.ldl_solve", LD, B, "LD", "B")
    same_device("linalg.ldl_solve", LD, pivots, B)
    if pivots.meta.dtype.kind not in "iu":
        raise RuntimeError(f"torch.linalg.ldl_solve: Expected pivots to be integers. Got {matrices.type_name(pivots)}")
    if tuple(pivots.meta.shape) != tuple(LD.meta.shape[:-1]):
        raise RuntimeError(f"torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
                           f"{list(pivots.meta.shape)} instead")
    matrices.compatible("torch.linalg.ldl_solve", LD, B)
    ld, b = broadcast(LD, B)
    return _solved(ld, pivots.expand(*ld.meta.shape[:-1]), b, hermitian)


def _look_at(pivots: Tensor) -> None:
    """Raises RuntimeError for pivots that no factorization gives, and with which nothing was done."""
    n = pivots.meta.shape[-1]
    p = values(pivots).astype(np.int64).reshape(-1, n)
    wrong = p[(p == 0) | (p < -n) | (p > n)]
    if wrong.size:
        raise RuntimeError(f"torch.linalg.ldl_solve: pivots must lie between 1 and LD.size(-2), which is {n}, or be their negatives, got {wrong[0]}: pass what "
                           "torch.linalg.ldl_factor gives")
    # the lengths of runs of negative ones, which stand for blocks of two, are the distances between where they begin and end
    edges = np.flatnonzero(np.diff(np.pad(p < 0, ((0, 0), (1, 1))).reshape(-1).astype(np.int8)))
    if ((edges[1::2] - edges[::2]) % 2).any():
        raise RuntimeError("torch.linalg.ldl_solve: negative pivots stand for blocks of two and come in pairs: pass what torch.linalg.ldl_factor gives")


def _solved(ld: Tensor, pivots: Tensor, b: Tensor, hermitian: bool) -> Tensor:
    x = matrices.columns(b)
    order = matrices.ready(pivots.to(dtypes.int32))
    if x.meta.numel:
        info = empty(tuple(ld.meta.shape[:-2]), dtypes.int32, ld.meta.device)
        matrices.solve("ldl_solve", (ld.meta.shape[-1], b.meta.shape[-1], hermitian), x, ld, order, info)
        if matrices.failed(info):
            _look_at(pivots)
    return tape.record(x, _solved_back, (ld, b), (matrices.keep(ld), pivots, hermitian), "LinalgLdlSolveBackward0")


def _solved_back(node: Any, g: Tensor) -> Any:
    inputs, pivots, hermitian = node[tape.SAVED]
    (ld,) = matrices.kept(node, inputs)
    if node[tape.EDGES][0] is not None:
        raise RuntimeError("derivative for linalg_ldl_solve with respect to LD is not implemented")
    # A^-H: A itself is Hermitian, or symmetric
    if hermitian or not ld.meta.dtype.is_complex:
        return (None, _solved(ld, pivots, g, hermitian))
    return (None, _solved(ld, pivots, g.conj_physical(), hermitian).conj_physical())

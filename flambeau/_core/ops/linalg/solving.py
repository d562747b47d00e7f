"""Systems of linear equations and inverses.

Gradients of X = A^-1 B: G_B = A^-H G_X, G_A = -G_B X^H (Giles, "An extended collection of matrix derivative results", 2008, 2.3);
triangular systems keep the triangle of G_A.
"""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd import tape
from ...layout import broadcast_shapes
from ...tensor import Tensor, empty
from ..table import op
from . import device, matrices
from .matrices import adjoint


def broadcast(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The two operands with one batch shape."""
    lead = broadcast_shapes(a.meta.shape[:-2], b.meta.shape[:-2])
    return a.expand(*lead, *a.meta.shape[-2:]), b.expand(*lead, *b.meta.shape[-2:])


# ---------------------------------------------------------------------------------------------------------- triangular
def _triangular(a: Tensor, b: Tensor, upper: bool, unit: bool) -> Tensor:
    """X of A X = B for operands with one batch shape, recorded."""
    x = matrices.columns(b)
    if x.meta.numel:
        matrices.solve("trsm", (a.meta.shape[-1], b.meta.shape[-1], int(upper), int(unit)), x, a)
    return tape.record(x, _triangular_back, (a, b), (matrices.keep(a), matrices.keep_outputs(x), upper, unit), "LinalgSolveTriangularBackward0")


def _triangular_back(node: Any, g: Tensor) -> Any:
    inputs, outputs, upper, unit = node[tape.SAVED]
    (a,), (x,) = matrices.kept(node, inputs), matrices.kept_outputs(node, outputs)
    to_b = _triangular(adjoint(a), g, not upper, unit)
    to_a = None
    if node[tape.EDGES][0] is not None:
        to_a = -(to_b @ adjoint(x))
        to_a = to_a.triu(int(unit)) if upper else to_a.tril(-int(unit))
    return (to_a, to_b)


@op(method=False, out=True, spaces=("linalg",), batch="solved")
def solve_triangular(input: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:  # noqa: A002
    """X of A X = B (X A = B when not `left`), reading one triangle of A = `input` (..., n, n), its diagonal taken as ones when `unitriangular`.

    B is (..., n, k) ((..., k, n) when not `left`); batch axes broadcast.  A singular A gives infinities and NaN.
    """
    matrices.square("linalg.solve_triangular", input)
    matrices.matrix("linalg.solve_triangular", B, "B")
    matrices.alike("linalg.solve_triangular", input, B)
    matrices.compatible("linalg.solve_triangular", input, B, left)
    a, b = broadcast(input, B)
    if left:
        return _triangular(a, b, bool(upper), bool(unitriangular))
    return _triangular(a.transpose(-2, -1), b.transpose(-2, -1), not upper, bool(unitriangular)).transpose(-2, -1)


@op(out=True)
def triangular_solve(input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:  # noqa: A002
    """(X, A) with X of A X = B (A^T X = B when `transpose`) for B = `input`; the older form of `linalg.solve_triangular`."""
    matrices.square("triangular_solve", A)
    matrices.matrix("triangular_solve", input, "b")
    matrices.alike("triangular_solve", A, input, "A", "b")
    matrices.compatible("triangular_solve", A, input)
    a, b = broadcast(A, input)
    x = _triangular(a.transpose(-2, -1), b, not upper, unitriangular) if transpose else _triangular(a, b, upper, unitriangular)
    return matrices.result("triangular_solve", "solution cloned_coefficient", x, a.clone())


# ---------------------------------------------------------------------------------------------------------- general
def _general(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X of A X = B, recorded; then LU, its pivots and info, which are not.  One batch shape."""
    n, k, batch = a.meta.shape[-1], b.meta.shape[-1], matrices.batch_of(a)
    lead, dev = tuple(a.meta.shape[:-2]), a.meta.device
    x, lu = matrices.like(b), matrices.like(a)
    pivots, info = empty((*lead, n), dtypes.int32, dev), empty(lead, dtypes.int32, dev)
    if batch:
        matrices.job("solve", a, (n, k), x, lu, pivots, info, over=((x, b), (lu, a)), otherwise=lambda: device.solve(x, lu, pivots, info))
    saved = (matrices.keep(a), matrices.keep_outputs(x), lu, pivots)
    return tape.record(x, _general_back, (a, b), saved, "LinalgSolveExBackward0"), lu, pivots, info


def _general_back(node: Any, g: Tensor) -> Any:
    from .lu import solve_factored
    inputs, outputs, lu, pivots = node[tape.SAVED]
    (a,), (x,) = matrices.kept(node, inputs), matrices.kept_outputs(node, outputs)
    to_b = _general(adjoint(a), g)[0] if tape.recording(a, g) else solve_factored(lu, pivots, g, adjoint=True)
    return (-(to_b @ adjoint(x)) if node[tape.EDGES][0] is not None else None, to_b)


def _solve(name: str, A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    matrices.square(name, A)
    matrices.alike(name, A, B)
    # one vector a matrix: B is one axis, or has the shape of A without its last
    vector = len(B.meta.shape) == 1 or (len(B.meta.shape) == len(A.meta.shape) - 1 and tuple(B.meta.shape) == tuple(A.meta.shape[:-1]))
    if vector and not left:
        raise RuntimeError(f"{name}: Vector broadcasting of the left hand side is not supported for left=False. In this case {name} is equivalent to "
                           "B / A.squeeze(-1)")
    b = B.unsqueeze(-1) if vector else B
    matrices.matrix(name, b, "B")
    matrices.compatible(name, A, b, left)
    a, b = broadcast(A, b)
    if left:
        x, lu, pivots, info = _general(a, b)
    else:
        x, lu, pivots, info = _general(a.transpose(-2, -1), b.transpose(-2, -1))
        x = x.transpose(-2, -1)
    return x.squeeze(-1) if vector else x, lu, pivots, info


@op(method=False, out=True, spaces=("linalg",))
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """`solve` with `info` (int32, one a matrix): 0, or the place of the zero on U's diagonal.  Nothing is raised unless `check_errors`."""
    x, _, _, info = _solve("linalg.solve_ex", A, B, left)
    if check_errors:
        matrices.require("torch.linalg.solve_ex", "solve", info)
    return matrices.result("linalg_solve_ex", "result info", x, info)


@op(method=False, out=True, spaces=("linalg",), batch="solved")
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X of A X = B (X A = B when not `left`) for square A (..., n, n) and B (..., n, k), or (..., n) for one column a matrix.

    Batch axes broadcast.  Raises LinAlgError when a matrix is singular.
    """
    x, _, _, info = _solve("linalg.solve", A, B, left)
    matrices.require("torch.linalg.solve", "solve", info)
    return x


# ---------------------------------------------------------------------------------------------------------- inverse
def inverted(a: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse, recorded, and info."""
    n, batch = a.meta.shape[-1], matrices.batch_of(a)
    out = matrices.like(a)
    info = empty(tuple(a.meta.shape[:-2]), dtypes.int32, a.meta.device)
    if batch:
        matrices.job("inv", a, (n,), out, info, over=((out, a),), otherwise=lambda: device.invert(out, info))
    return tape.record(out, _inverse_back, (a,), matrices.keep_outputs(out), "LinalgInvExBackward0"), info


def _inverse_back(node: Any, g: Tensor) -> Any:
    (x,) = matrices.kept_outputs(node, node[tape.SAVED])
    turned = adjoint(x)
    return (-(turned @ (g @ turned)),)


@op(method=False, out=True, spaces=("linalg",), batch="trailing")
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """`inv` with `info` (int32, one a matrix): 0, or the place of the zero on U's diagonal.  Nothing is raised unless `check_errors`."""
    matrices.square("linalg.inv_ex", A)
    x, info = inverted(A)
    if check_errors:
        matrices.require("linalg.inv_ex", "inv", info)
    return matrices.result("linalg_inv_ex", "inverse info", x, info)


@op(method=False, out=True, spaces=("linalg",), batch="trailing")
def inv(A: Tensor) -> Tensor:
    """The inverse of square matrices (..., n, n).  Raises LinAlgError when a matrix is singular."""
    matrices.square("linalg.inv", A)
    x, info = inverted(A)
    matrices.require("linalg.inv", "inv", info)
    return x


@op(out=True, autocast="cpu full", batch="trailing")
def inverse(input: Tensor) -> Tensor:  # noqa: A002
    """`linalg.inv` under its older name."""
    return inv(input)

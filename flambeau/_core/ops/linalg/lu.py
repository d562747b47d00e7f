"""LU factorization with row exchanges, and what it solves.

Gradient: de Hoog, Anderssen, Lukas, "Differentiation of matrix functionals using triangular factorization" (2011), extended to
rectangular matrices by splitting off the square block.
"""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd import tape
from ...tensor import Tensor, alias, empty
from ..checks import same_device, within
from ..table import op
from . import device, matrices
from .matrices import adjoint
from .solving import broadcast, solve_triangular


def factored(a: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
    """L and U in one matrix (recorded), pivots from 1, info."""
    m, n = a.meta.shape[-2:]
    k, batch = min(m, n), matrices.batch_of(a)
    lead, dev = tuple(a.meta.shape[:-2]), a.meta.device
    lu = matrices.like(a)
    pivots, info = empty((*lead, k), dtypes.int32, dev), empty(lead, dtypes.int32, dev)
    if batch:
        matrices.job("lu_factor", a, (m, n, pivot), lu, pivots, info, over=((lu, a),), otherwise=lambda: device.lu(lu, pivots, info, pivot))
    tape.record(lu, _factored_back, (a,), (matrices.keep_outputs(lu), alias(pivots, pivots.meta, pivots.ptr)), "LinalgLuFactorExBackward0")
    return lu, pivots, info


def _factored_back(node: Any, g: Tensor) -> Any:
    outputs, pivots = node[tape.SAVED]
    (lu,) = matrices.kept_outputs(node, outputs)
    m, n = lu.meta.shape[-2:]
    k = min(m, n)
    g_l, g_u = g.tril(-1), g.triu()
    l, u = lu.narrow(-1, 0, k).tril(-1), lu.narrow(-2, 0, k).triu()
    l1, u1 = lu.narrow(-2, 0, k).narrow(-1, 0, k), u.narrow(-1, 0, k)
    unit = l.narrow(-2, 0, k) + matrices.identity(l, k)
    lower = adjoint(unit) @ g_l.narrow(-2, 0, k).narrow(-1, 0, k)
    upper = g_u.narrow(-2, 0, k).narrow(-1, 0, k) @ adjoint(u1)
    rest = None
    if m < n:
        g2 = g_u.narrow(-1, k, n - k)
        lower = lower - g2 @ adjoint(u.narrow(-1, k, n - k))
    elif m > n:
        g2 = g_l.narrow(-2, k, m - k)
        upper = upper - adjoint(l.narrow(-2, k, m - k)) @ g2
    inner = lower.tril(-1) + upper.triu()

    def from_left(t: Tensor) -> Tensor:  # L1^-H t
        return solve_triangular(adjoint(l1), t, upper=True, unitriangular=True)

    def from_right(t: Tensor) -> Tensor:  # t U1^-H
        return solve_triangular(adjoint(u1), t, upper=False, left=False)
    from ..concat import cat
    found = from_right(from_left(inner))
    if m < n:
        rest = from_left(g2)
        found = cat([found, rest], -1)
    elif m > n:
        rest = from_right(g2)
        found = cat([found, rest], -2)
    return (permuted(found, permutation(pivots, m)[1]),)


# ------------------------------------------------------------------------------------------------------- permutations
def permutation(pivots: Tensor, m: int, name: str = "") -> tuple[Tensor, Tensor]:
    """Row exchanges as orders of m rows (int64): the rows of A in the order of L U, and its inverse. name: the operation whose caller gave the
    pivots (int32), which raises RuntimeError for one that is no row."""
    k = pivots.meta.shape[-1]
    lead, batch = tuple(pivots.meta.shape[:-1]), matrices.batch_of(pivots, 1)
    dev = pivots.meta.device
    there, back = empty((*lead, m), dtypes.int64, dev), empty((*lead, m), dtypes.int64, dev)
    if batch and m:
        info = empty(lead, dtypes.int32, dev)
        matrices.job("permutation", pivots, (m, k), there, back, matrices.ready(pivots), info, axes=1)
        if name and matrices.failed(info):
            raise RuntimeError(f"{name}: LU_pivots must lie between 1 and LU_data.size(-2), which is {m}: pass what torch.linalg.lu_factor gives")
    return there, back


def permuted(t: Tensor, order: Tensor) -> Tensor:
    """The rows of `t` in this order."""
    from ..indexing.along_axis import gather
    index = order.unsqueeze(-1).expand(*t.meta.shape)
    made: Tensor = gather(t, -2, index)
    return made


def _matrix_of(back: Tensor, like: Tensor) -> Tensor:
    """P with A = P L U."""
    from ..ranges import arange
    m = back.meta.shape[-1]
    made: Tensor = (back.unsqueeze(-1) == arange(m, device=back.meta.device)).to(like.meta.dtype)
    return made


# ------------------------------------------------------------------------------------------------------- factorization
def _not_on_cpu(name: str, pivot: bool, t: Tensor) -> None:
    if not pivot and t.meta.device.type == "cpu":
        raise RuntimeError(f"{name}: LU without pivoting is not implemented on the CPU")


@op(method=False, out=True, spaces=("linalg",))
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """`lu_factor` with `info` (int32, one a matrix): 0, or the place of the first zero on U's diagonal."""
    matrices.matrix("linalg.lu_factor_ex", A)
    _not_on_cpu("linalg.lu_factor", pivot, A)
    lu, pivots, info = factored(A, pivot)
    if check_errors:
        matrices.require("torch.linalg.lu_factor_ex", "lu", info)
    return matrices.result("linalg_lu_factor_ex", "LU pivots info", lu, pivots, info)


@op(method=False, out=True, spaces=("linalg",), batch="trailing")
def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """L (below the diagonal, ones on it) and U in one matrix (..., m, n), and pivots (int32, from 1): row i was exchanged with pivots[i].

    Raises LinAlgError when U has a zero on its diagonal.
    """
    matrices.matrix("linalg.lu_factor", A)
    _not_on_cpu("linalg.lu_factor", pivot, A)
    lu, pivots, info = factored(A, pivot)
    matrices.require("torch.linalg.lu_factor", "lu", info)
    return matrices.result("linalg_lu_factor", "LU pivots", lu, pivots)


@op(method=False, out=True, spaces=("linalg",), batch="trailing")
def lu(A: Tensor, *, pivot: bool = True) -> Any:
    """P, L, U with A = P L U for A (..., m, n): L (..., m, k) unit lower, U (..., k, n) upper triangular, k = min(m, n)."""
    matrices.matrix("linalg.lu", A)
    _not_on_cpu("linalg.lu", pivot, A)
    packed, pivots, _ = factored(A, pivot)
    p, l, u = lu_unpack(packed, pivots)
    return matrices.result("linalg_lu", "P L U", p, l, u)


@op(method=False, out=True)
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """P, L, U from `linalg.lu_factor`'s results; what is not asked for is empty."""
    if unpack_pivots and LU_pivots.meta.dtype is not dtypes.int32:
        raise RuntimeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\nNote: this function is "
                           "intended to be used with the output produced by torch.linalg.lu_factor")
    same_device("lu_unpack", LU_data, LU_pivots)
    m, n = LU_data.meta.shape[-2:]
    k = min(m, n)
    if unpack_pivots and tuple(LU_pivots.meta.shape) != (*LU_data.meta.shape[:-2], k):
        raise RuntimeError(f"torch.lu_unpack: LU_pivots is expected to have the shape {[*LU_data.meta.shape[:-2], k]}, as lu_factor gives it for a matrix of "
                           f"{[m, n]}, but got {list(LU_pivots.meta.shape)}")
    p = l = u = LU_data.new_empty((0,))
    if unpack_pivots:
        p = _matrix_of(permutation(LU_pivots, m, "torch.lu_unpack")[1], LU_data)
    if unpack_data:
        l = LU_data.narrow(-1, 0, k).tril(-1) + _eye(LU_data, m, k)
        u = LU_data.narrow(-2, 0, k).triu()
    return matrices.result("lu_unpack", "P L U", p, l, u)


def _eye(t: Tensor, m: int, n: int) -> Tensor:
    from ..ranges import eye
    made: Tensor = eye(m, n, dtype=t.meta.dtype, device=t.meta.device)
    return made


@op(name="lu", out=True, renames=False, batch="trailing")
def torch_lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """(LU, pivots), and info when `get_infos`; the older form of `linalg.lu_factor_ex`: nothing is raised for
    singular matrices."""
    matrices.matrix("lu", A)
    _not_on_cpu("lu", pivot, A)
    packed, pivots, info = factored(A, pivot)
    return matrices.result("_lu_with_info", "LU pivots info", packed, pivots, info) if get_infos else (packed, pivots)


# ------------------------------------------------------------------------------------------------------------- solving
def solve_factored(lu: Tensor, pivots: Tensor, b: Tensor, adjoint: bool = False) -> Tensor:
    """X of A X = B (A^H X = B), outside the tape; operands with one batch shape."""
    x = matrices.columns(b)
    if x.meta.numel:
        sizes, order = (lu.meta.shape[-1], b.meta.shape[-1], adjoint), matrices.ready(pivots)
        if not matrices.solve("lu_solve", sizes, x, lu, order, copied=False):
            packed = matrices.columns(lu)
            if not device.lu_solve(x, packed, pivots, adjoint):
                matrices.job("lu_solve", lu, sizes, x, packed, order)
    return x


@op(method=False, out=True, spaces=("linalg",), name="lu_solve", autocast="cpu full")
def linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X of A X = B from `lu_factor`'s results; X A = B when not `left`, A^H for A when `adjoint`.  Batch axes broadcast."""
    matrices.square("linalg.lu_solve", LU, "LU")
    matrices.matrix("linalg.lu_solve", B, "B")
    matrices.alike("linalg.lu_solve", LU, B, "LU", "B")
    same_device("linalg.lu_solve", LU, pivots, B)
    if pivots.meta.dtype is not dtypes.int32:
        raise RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    if tuple(pivots.meta.shape) != tuple(LU.meta.shape[:-1]):
        raise RuntimeError(f"linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix: pivots {list(pivots.meta.shape)}, "
                           f"LU {list(LU.meta.shape)}")
    matrices.compatible("linalg.lu_solve", LU, B, left)
    return _lu_solve(LU, _rows(pivots, LU.meta.shape[-1]), B, left, adjoint)


def _rows(pivots: Tensor, n: int) -> Tensor:
    """The pivots (int32), each of them a row.  Raises RuntimeError for one that is not, on a GPU when the host next waits: libraries do not look."""
    if not pivots.meta.numel or pivots.meta.device.type == "meta":
        return pivots
    wide = matrices.ready(pivots.to(dtypes.int64))
    within(wide, 1, n + 1, f"linalg.lu_solve: pivots must lie between 1 and LU.size(-2), which is {n}, got {{}}: pass what torch.linalg.lu_factor gives",
           "pivots check")
    return wide.clamp(1, n).to(dtypes.int32)  # a GPU goes on until then


def _lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, left: bool, flipped: bool) -> Tensor:
    if not left:
        return adjoint(_lu_solve(LU, pivots, adjoint(B), True, not flipped))
    lu, b = broadcast(LU, B)
    order = pivots.expand(*lu.meta.shape[:-1])
    if not tape.recording(lu, b):
        return solve_factored(lu, order, b, flipped)
    there, back = permutation(order, lu.meta.shape[-1])
    if not flipped:
        y = solve_triangular(lu, permuted(b, there), upper=False, unitriangular=True)
        return solve_triangular(lu, y, upper=True)
    y = solve_triangular(adjoint(lu), b, upper=False)
    return permuted(solve_triangular(adjoint(lu), y, upper=True, unitriangular=True), back)


@op(out=True, autocast="cpu full")
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:  # noqa: A002
    """`linalg.lu_solve` in its older order of arguments."""
    return linalg_lu_solve(LU_data, LU_pivots, input)

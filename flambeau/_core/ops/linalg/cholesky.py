"""Cholesky's factorization and what it solves.

Gradient: Murray, "Differentiation of the Cholesky decomposition" (2016), eq. 10, symmetrized.
"""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd import tape
from ...autograd.mode import no_recording
from ...tensor import Tensor, alias, empty
from ..table import op
from . import device, matrices
from .matrices import adjoint
from .solving import broadcast, solve_triangular


def _factor(a: Tensor, upper: bool = False) -> tuple[Tensor, Tensor]:
    """L with A = L L^H from the lower triangle, recorded, and info.  upper: `a` is the adjoint of what was given."""
    n, batch = a.meta.shape[-1], matrices.batch_of(a)
    out = matrices.like(a)
    info = empty(tuple(a.meta.shape[:-2]), dtypes.int32, a.meta.device)
    if batch:
        matrices.job("cholesky", a, (n,), out, info, over=((out, a),), otherwise=lambda: device.cholesky(out, info))
    return tape.record(out, _factor_back, (a,), (matrices.keep_outputs(out), upper), "LinalgCholeskyExBackward0"), info


def _factor_back(node: Any, g: Tensor) -> Any:
    kept, upper = node[tape.SAVED]
    (l,) = matrices.kept_outputs(node, kept)
    inner = (adjoint(l) @ g).tril()
    strict = inner.tril(-1)
    inner = (adjoint(inner) if upper else inner) + (strict if upper else adjoint(strict))
    left = solve_triangular(adjoint(l), inner, upper=True)
    return (solve_triangular(l, left, upper=False, left=False) * 0.5,)


def _side(a: Tensor, upper: bool) -> tuple[Tensor, Tensor]:
    if not upper:
        return _factor(a)
    l, info = _factor(adjoint(a), True)
    return adjoint(l), info


@op(method=False, out=True, spaces=("linalg",), batch="trailing")
def cholesky_ex(input: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:  # noqa: A002
    """`cholesky` with `info` (int32, one a matrix): 0, or the order of the first leading minor that is not positive.

    Nothing is raised unless `check_errors`, and the device is not waited for.
    """
    matrices.square("linalg.cholesky_ex", input)
    l, info = _side(input, upper)
    if check_errors:
        matrices.require("linalg.cholesky_ex", "cholesky", info)
    return matrices.result("linalg_cholesky_ex", "L info", l, info)


@op(method=False, out=True, spaces=("linalg",), name="cholesky", autocast="cpu full", batch="trailing")
def linalg_cholesky(input: Tensor, *, upper: bool = False) -> Tensor:  # noqa: A002
    """L with A = L L^H for Hermitian positive-definite A = `input` (..., n, n), or U = L^H when `upper`.

    Only one triangle is read (the upper one when `upper`).  Raises LinAlgError when a matrix is not positive-definite.
    """
    matrices.square("linalg.cholesky", input)
    l, info = _side(input, upper)
    matrices.require("linalg.cholesky", "cholesky", info)
    return l


@op(out=True, autocast="cpu full", batch="trailing")
def cholesky(input: Tensor, upper: bool = False) -> Tensor:  # noqa: A002 (PyTorch's name)
    """`linalg.cholesky` under its older name."""
    matrices.square("cholesky", input)
    l, info = _side(input, upper)
    matrices.require("cholesky", "cholesky", info)
    return l


@op(out=True, autocast="cpu full", batch="solved")
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:  # noqa: A002
    """X of A X = B for B = `input` (..., n, k), where A = L L^H (U^H U when `upper`); batch axes broadcast."""
    matrices.matrix("cholesky_solve", input, "b")
    matrices.square("cholesky_solve", input2, "A")
    matrices.compatible("cholesky_solve", input2, input)
    matrices.alike("cholesky_solve", input, input2, "b", "A")
    l, b = broadcast(input2, input)
    return _solved(l, b, upper)


def _solved(l: Tensor, b: Tensor, upper: bool) -> Tensor:
    x, sizes = matrices.columns(b), (l.meta.shape[-1], b.meta.shape[-1], bool(upper))
    with no_recording():
        if x.meta.numel and not any(matrices.solve("cholesky_solve", sizes, x, source(l), copied=False) for source in (Tensor.detach, matrices.columns)):
            first, second = (adjoint(l), l) if upper else (l, adjoint(l))
            x = solve_triangular(second, solve_triangular(first, b, upper=False), upper=True)
            x = alias(x, x.meta, x.ptr)
    return tape.record(x, _solved_back, (l, b), (matrices.keep(l), matrices.keep_outputs(x), upper), "CholeskySolveBackward0")


def _solved_back(node: Any, g: Tensor) -> Any:
    inputs, outputs, upper = node[tape.SAVED]
    (l,), (x,) = matrices.kept(node, inputs), matrices.kept_outputs(node, outputs)
    l = l.triu() if upper else l.tril()
    to_b = _solved(l, g, upper)
    if node[tape.EDGES][0] is None:
        return (None, to_b)
    both = to_b @ adjoint(x)
    both = both + adjoint(both)
    # the gradient of L L^H, all of it, as PyTorch has it: the other triangle of a factor is zero, not unread
    return (-(l @ both) if upper else -(both @ l), to_b)


@op(out=True, autocast="cpu full", batch="trailing")
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:  # noqa: A002
    """The inverse of A = L L^H (U^H U when `upper`) from its factor (..., n, n)."""
    matrices.square("cholesky_inverse", input, "A")
    return cholesky_solve(matrices.identity(input, input.meta.shape[-1]), input, upper)

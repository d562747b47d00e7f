"""Functions of a matrix: powers and the exponential.

Exponential: scaling and squaring of a truncated Taylor series (Higham, "Functions of Matrices" (2008), 10.3; bounds from Al-Mohy and Higham
2011, table 3.1), its gradient by the exponential of a block matrix (Mathias 1996; Higham 2008, 10.6).
"""

from __future__ import annotations

from typing import Any

from ...autograd import tape
from ...engine.fields import has
from ...tensor import Tensor, empty
from ..table import op
from . import matrices
from .matrices import adjoint
from .solving import inverted


def _exp(a: Tensor) -> Tensor:
    out = empty(tuple(a.meta.shape), a.meta.dtype, a.meta.device)
    source = matrices.ready(a.detach())
    if out.meta.numel:
        matrices.job("matrix_exp", a, (a.meta.shape[-1],), out, source)
    return tape.record(out, _exp_back, (a,), matrices.keep(a), "LinalgMatrixExpBackward0")


def _exp_back(node: Any, g: Tensor) -> Any:
    from ..concat import cat
    (a,) = matrices.kept(node, node[tape.SAVED])
    turned = adjoint(a)
    n = a.meta.shape[-1]
    nothing = turned.detach().mul(0)
    block = cat([cat([turned, g], -1), cat([nothing, turned], -1)], -2)
    return (_exp(block).narrow(-2, 0, n).narrow(-1, n, n),)


def _matrix_exp(name: str, a: Tensor) -> Tensor:
    if a.meta.dtype.kind in "f" and a.meta.dtype.itemsize == 2:
        from ... import dtypes
        from ..casts import to_dtype
        return to_dtype(_matrix_exp(name, to_dtype(a, dtypes.float32)), a.meta.dtype)
    matrices.square(name, a)
    return _exp(a)


@op(method=False, spaces=("linalg",), name="matrix_exp", batch="trailing")
def linalg_matrix_exp(input: Tensor) -> Tensor:  # noqa: A002
    """The sum of A^k / k! for square A = `input` (..., n, n)."""
    return _matrix_exp("linalg.matrix_exp", input)


@op(batch="trailing")
def matrix_exp(input: Tensor) -> Tensor:  # noqa: A002 (PyTorch's name)
    """`linalg.matrix_exp` under its older name."""
    return _matrix_exp("linalg.matrix_exp", input)


def _power(name: str, a: Tensor, n: int) -> Tensor:
    if not isinstance(a, Tensor):
        raise TypeError(f"{name}(): argument 'A' (position 1) must be Tensor, not {type(a).__name__}")
    if len(a.meta.shape) < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    rows, cols = a.meta.shape[-2:]
    if rows != cols:
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {rows} by {cols} matrices")
    if n == 0:
        unit: Tensor = matrices.identity(a, rows).expand(*a.meta.shape).clone()
        return unit if a.node is None else a.clone().copy_(unit)
    if n < 0:
        matrices.square(name, a)
        inverse, info = inverted(a)
        matrices.require(name, "inv", info)
        return _power(name, inverse, -n)
    # squares of A, and the product of those the binary digits of n ask for
    made: Tensor | None = None
    square = a
    while True:
        if n & 1:
            made = square if made is None else made @ square
        n >>= 1
        if not n:
            break
        square = square @ square
    assert made is not None
    return made.clone() if made is a else made


@op(method=False, out=True, spaces=("linalg",), name="matrix_power", batch="trailing")
def linalg_matrix_power(input: Tensor, n: int) -> Tensor:  # noqa: A002
    """A to the integer power n, for square A = `input` (..., k, k): negative powers are those of the inverse.  Raises LinAlgError for a negative
    power of a singular matrix."""
    return _power("linalg.matrix_power", input, n)


@op(out=True, batch="trailing")
def matrix_power(input: Tensor, n: int) -> Tensor:  # noqa: A002
    """`linalg.matrix_power` under its older name."""
    return _power("linalg.matrix_power", input, n)

has("matrix_power", sparse="composite")

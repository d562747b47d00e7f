"""Products of vectors, Vandermonde matrices, and equations of tensors."""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...engine.fields import has
from ...errors import warn_once
from ...layout import numel, wrap_dim
from ...tensor import Tensor
from ..checks import of_kinds, one_type
from ..table import op
from . import matrices
from .solving import inv, solve


def _cross(name: str, a: Tensor, b: Tensor, dim: int) -> Tensor:
    if len(a.meta.shape) != len(b.meta.shape):
        raise RuntimeError(f"{name}: inputs must have the same number of dimensions.")
    at = wrap_dim(dim, len(a.meta.shape))
    if a.meta.shape[at] != 3 or b.meta.shape[at] != 3:
        raise RuntimeError(f"{name}: inputs dimension {dim} must have length 3. Got {a.meta.shape[at]} and {b.meta.shape[at]}")
    of_kinds(name, a, "uifc")
    one_type(name, a, b)
    a1, a2, a3 = (a.narrow(at, i, 1) for i in range(3))
    b1, b2, b3 = (b.narrow(at, i, 1) for i in range(3))
    from ..concat import cat
    made: Tensor = cat([a2 * b3 - a3 * b2, a3 * b1 - a1 * b3, a1 * b2 - a2 * b1], at)
    return made


@op(method=False, out=True, spaces=("linalg",), name="cross", autocast="cuda widest", tangent="product")
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:  # noqa: A002 (PyTorch's name)
    """The cross products of vectors of 3 along `dim`; other axes broadcast."""
    return _cross("linalg.cross", input, other, dim)


@op(out=True, autocast="cuda widest", tangent="product")
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:  # noqa: A002
    """The cross products of vectors of 3 along `dim`, by default the first axis of size 3."""
    if dim is None:
        warn_once("Using torch.cross without specifying the dim arg is deprecated.\nPlease either pass the dim explicitly or simply use "
                  "torch.linalg.cross.\nThe default value of dim will change to agree with that of linalg.cross in a future release.")
        dim = next((i for i, n in enumerate(input.meta.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError("no dimension of size 3 in input")
    return _cross("linalg.cross", input, other, dim)


@op(method=False, out=True, spaces=("linalg",), tangent="product")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sums of conj(x) y along `dim`; other axes broadcast."""
    for t in (x, y):
        if t.meta.dtype.kind not in "fc":
            raise RuntimeError(f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {matrices.type_name(t)}")
    if dim == -1 and x.meta.dtype is y.meta.dtype and x.meta.shape and y.meta.shape and x.meta.shape[-1] == y.meta.shape[-1]:
        row = x.conj_physical() if x.meta.dtype.is_complex else x
        return (row.unsqueeze(-2) @ y.unsqueeze(-1)).squeeze(-1).squeeze(-1)
    row = x.conj_physical() if x.meta.dtype.is_complex else x
    return (row * y).sum(dim)


@op(method=False, spaces=("linalg",), name="vander")
def linalg_vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 ... N - 1 of the elements of x (..., n) along a new last axis; N is n by default."""
    count = (x.meta.shape[-1] if x.meta.shape else 1) if N is None else N
    if count <= 1:
        raise RuntimeError(f"N must be greater than 1. Got {count}")
    from ..concat import cat
    from ..creation import ones
    d = dtypes.int64 if x.meta.dtype.kind in "bui" else x.meta.dtype
    x = x.to(d) if x.meta.shape else x.to(d).unsqueeze(0)
    first = ones((*x.meta.shape, 1), dtype=d, device=x.meta.device)
    made: Tensor = cat([first, x.unsqueeze(-1).expand(*x.meta.shape, count - 1).cumprod(-1)], -1)
    return made


@op(method=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers N - 1 ... 0 of the elements of x (n) along a new last axis, rising when `increasing`."""
    if len(x.meta.shape) != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = x.meta.shape[0] if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    from ..concat import cat
    from ..creation import ones
    d = dtypes.int64 if x.meta.dtype.kind in "bui" else x.meta.dtype
    x = x.to(d)
    made: Tensor = ones((x.meta.shape[0], min(count, 1)), dtype=d, device=x.meta.device)
    if count > 1:
        made = cat([made, x.unsqueeze(-1).expand(x.meta.shape[0], count - 1).cumprod(-1)], -1)
    return made if increasing else made.flip(-1)


@op(method=False, out=True, spaces=("linalg",))
def tensorinv(input: Tensor, ind: int = 2) -> Tensor:  # noqa: A002
    """The tensor B with tensordot(A, B, ind) the identity: A's first `ind` axes have as many elements as the others.  Raises LinAlgError
    when there is none."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    shape = tuple(input.meta.shape)
    first, last = shape[:ind], shape[ind:]
    rows, cols = numel(first), numel(last)
    if rows != cols:
        raise RuntimeError(f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {cols} != {rows}")
    made: Tensor = inv(input.reshape(rows, cols)).reshape(*last, *first)
    return made


@op(method=False, out=True, spaces=("linalg",))
def tensorsolve(input: Tensor, other: Tensor, dims: Any = None) -> Tensor:  # noqa: A002
    """The tensor X with tensordot(A, X, X.ndim) = B; `dims` are axes of A to be moved to its end first.  Raises LinAlgError when there is
    none."""
    a = input
    if dims is not None:
        axes = [wrap_dim(d, len(a.meta.shape)) for d in dims]
        a = a.permute([i for i in range(len(a.meta.shape)) if i not in axes] + axes)
    rest = tuple(a.meta.shape[len(other.meta.shape):])
    count = numel(rest)
    if count != numel(other.meta.shape):
        raise RuntimeError(f"Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got "
                           f"{count} != {numel(other.meta.shape)}")
    made: Tensor = solve(a.reshape(count, count), other.reshape(count)).reshape(*rest)
    return made

has("vecdot", batch="composite", sparse="composite")
has("cross tensorinv tensorsolve torch.cross vander", batch="composite")

"""Differences along an axis: finite differences, numerical derivatives, and the trapezoidal rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..engine.fields import has
from ..layout import wrap_dim
from ..tensor import Tensor
from .casts import to_dtype
from .table import op

if TYPE_CHECKING:
    from collections.abc import Sequence


def _steps(t: Tensor, at: int) -> Tensor:
    n = t.meta.shape[at]
    after, before = t.narrow(at, 1, max(n - 1, 0)) if n else t, t.narrow(at, 0, max(n - 1, 0))
    made: Tensor = after ^ before if t.meta.dtype.kind == "b" else after - before
    return made


@op(out=True, batch="along -1", tangent="linear", out_type="castable")
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:  # noqa: A002
    """The n-th differences input[i + 1] - input[i] along `dim` (exclusive or of truths); `prepend` and `append` are joined to the input
    first (not when n is 0)."""
    if not input.meta.shape:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    at = wrap_dim(dim, len(input.meta.shape))
    parts = [t for t in (prepend, input, append) if t is not None]
    for t in parts:
        if len(t.meta.shape) != len(input.meta.shape):
            raise RuntimeError("diff expects prepend or append to be the same dimension as input")
        if any(i != at and a != b for i, (a, b) in enumerate(zip(t.meta.shape, input.meta.shape, strict=True))):
            raise RuntimeError("diff expects the shape of tensor to prepend or append to match that of input except along the differencing "
                               f"dimension; input.size() = {list(input.meta.shape)}, but got {list(t.meta.shape)}")
    if n == 0:
        return input.clone()
    if len(parts) > 1:
        from .concat import cat
        input = cat(parts, at)  # noqa: A001
    for _ in range(min(n, input.meta.shape[at])):  # of nothing there are no differences: it is returned itself
        input = _steps(input, at)  # noqa: A001
    return input


# -------------------------------------------------------------------------------------------------- trapezoidal rule
def _trapezoids(name: str, y: Tensor, x: Tensor | None, dx: Any, dim: int, samples: bool = False) -> tuple[Tensor, int]:
    """The areas between neighbours along an axis; or, with `samples` and neighbours equally far apart, y in the type of such areas."""
    if not y.meta.shape:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    at = wrap_dim(dim, len(y.meta.shape))
    n = y.meta.shape[at]
    if any(t is not None and t.meta.dtype.kind == "b" for t in (y, x)):
        raise RuntimeError(f"{name}: received a bool input for {'`y`' if x is None else '`x` or `y`'}, but bool is not supported")
    if y.meta.dtype.kind in "bui" and not isinstance(dx, Tensor):
        y = to_dtype(y, dtypes.get_default_dtype())
    if samples and x is None:
        return y, at
    count = max(n - 1, 0)
    left, right = y.narrow(at, 0, count), y.narrow(at, min(1, n), count)
    if x is None:
        return (left + right) * (dx / 2), at
    if not x.meta.shape or (len(x.meta.shape) == 1 and x.meta.shape[0] != n) or (len(x.meta.shape) > 1 and x.meta.shape[at - len(y.meta.shape)] != n):
        raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
    if len(x.meta.shape) == 1:
        width = _steps(x, 0)
        width = width.reshape([count if i == at else 1 for i in range(len(y.meta.shape))])
    else:
        place = at - len(y.meta.shape) + len(x.meta.shape)
        width = _steps(x, place)
    return (left + right) * width / 2.0, at


@op(method=False, aliases=("trapz",))
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The integral of samples `y` along `dim` by the trapezoidal rule, taken at points `x` or `dx` apart."""
    if y.meta.shape and not y.meta.shape[wrap_dim(dim, len(y.meta.shape))]:  # of no samples: zeros that follow from nothing
        at = wrap_dim(dim, len(y.meta.shape))
        nothing: Tensor = y.detach().new_zeros([*y.meta.shape[:at], *y.meta.shape[at + 1:]])
        return nothing
    areas, at = _trapezoids("trapezoid", y, x, dx, dim, True)
    if x is None:  # all samples, less half of the first and the last
        ends = areas.select(at, 0) + areas.select(at, y.meta.shape[at] - 1)
        whole: Tensor = (areas.sum(at) - ends * 0.5) * dx
        return whole
    made: Tensor = areas.sum(at)
    return made


@op(method=False)
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The integrals of samples `y` along `dim` up to each point but the first, by the trapezoidal rule."""
    areas, at = _trapezoids("cumulative_trapezoid", y, x, dx, dim)
    made: Tensor = areas.cumsum(at)
    return made


# -------------------------------------------------------------------------------------------------------- gradient
def _spacings(t: Tensor, spacing: Any, dims: Sequence[int], given: bool) -> list[Any]:
    if spacing is None:
        return [1.0] * len(dims)
    if isinstance(spacing, Tensor) and spacing.meta.shape:
        raise TypeError("gradient(): spacing must be a number or a sequence of numbers or one-dimensional tensors")
    if not isinstance(spacing, (list, tuple)):
        return [spacing.item() if isinstance(spacing, Tensor) else spacing] * len(dims)
    if len(spacing) != len(dims):
        if given:
            raise RuntimeError("torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to have the same "
                               f"length, but got a spacing argument of length {len(spacing)} and a dim argument of length {len(dims)}.")
        raise RuntimeError("torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = "
                           f"{len(t.meta.shape)}', since dim argument was not given, but got a list of length {len(spacing)}")
    return list(spacing)


@op(method=False)
def gradient(input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:  # noqa: A002
    """Numerical derivatives along each axis of `dim` (all by default): second-order central differences inside, one-sided differences of
    order `edge_order` (1 or 2) at the ends.

    spacing: the distance of neighbours, or one an axis: a number, or a tensor of coordinates.
    """
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    ndim = len(input.meta.shape)
    dims = list(range(ndim)) if dim is None else [wrap_dim(d, ndim) for d in ([dim] if isinstance(dim, int) else dim)]
    for d in dims:
        if dims.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        if input.meta.shape[d] < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    x = to_dtype(input, dtypes.get_default_dtype()) if input.meta.dtype.kind in "bui" else input
    return tuple(_derivative(x, d, h, edge_order) for d, h in zip(dims, _spacings(input, spacing, dims, dim is not None), strict=True))


def _derivative(x: Tensor, at: int, spacing: Any, order: int) -> Tensor:
    from .concat import cat
    n = x.meta.shape[at]

    def part(i: int, count: int = 1) -> Tensor:
        made: Tensor = x.narrow(at, i if i >= 0 else n + i, count)
        return made
    if not isinstance(spacing, Tensor):
        h = spacing
        middle = (part(2, n - 2) - part(0, n - 2)) / (2 * h) if n > 2 else None
        if order == 1:
            first, last = (part(1) - part(0)) / h, (part(-1) - part(-2)) / h
        else:
            first = (part(0) * -1.5 + part(1) * 2 - part(2) * 0.5) / h
            last = (part(-1) * 1.5 - part(-2) * 2 + part(-3) * 0.5) / h
        return cat([t for t in (first, middle, last) if t is not None], at)
    # unequal steps a, b: the weights that are exact for quadratics
    steps = _steps(spacing, 0)
    shape = [-1 if i == at else 1 for i in range(len(x.meta.shape))]

    def step(i: int, count: int = 1) -> Tensor:
        made: Tensor = steps.narrow(0, i if i >= 0 else n - 1 + i, count).reshape(shape)
        return made
    middle = None
    if n > 2:
        a, b = step(0, n - 2), step(1, n - 2)
        middle = part(0, n - 2) * (-b / (a * (a + b))) + part(1, n - 2) * ((b - a) / (a * b)) + part(2, n - 2) * (a / (b * (a + b)))
    if order == 1:
        first, last = (part(1) - part(0)) / step(0), (part(-1) - part(-2)) / step(-1)
    else:
        a, b = step(0), step(1)
        first = part(0) * (-(2 * a + b) / (a * (a + b))) + part(1) * ((a + b) / (a * b)) - part(2) * (a / (b * (a + b)))
        a, b = step(-2), step(-1)
        last = part(-3) * (b / (a * (a + b))) - part(-2) * ((a + b) / (a * b)) + part(-1) * ((a + 2 * b) / (b * (a + b)))
    return cat([t for t in (first, middle, last) if t is not None], at)

has("diff trapezoid", sparse="composite")

"""What every operation on matrices shares: checks of arguments, column-by-column copies, failures, and history.

Matrices are the last two axes; the axes before them are a batch.  LAPACK wants them column by column, so operands are
copied into that order (`columns`) and results have it.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from ... import dtypes, layout
from ...autograd import tape
from ...errors import LinAlgError
from ...kernels.specs import Lapack
from ...tensor import Tensor, alias, empty, meta
from .. import checks, launch, routines
from ..copies import cast_program, contiguous

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...dtypes import dtype
    from ...runtime.device import device


def type_name(t: Tensor) -> str:
    """The name PyTorch's messages give a type."""
    return dtypes.title(t.meta.dtype)


# ------------------------------------------------------------------------------------------------------------- checks
def matrix(name: str, t: Any, which: str = "A") -> Tensor:
    """`t`, known to be a tensor of matrices.  Raises TypeError, or RuntimeError for fewer than two axes or another type."""
    if not isinstance(t, Tensor):
        raise TypeError(f"{name}(): argument '{which}' (position 1) must be Tensor, not {type(t).__name__}")
    numeric(name, t)
    if len(t.meta.shape) < 2:
        raise RuntimeError(f"{name}: The input tensor {which} must have at least 2 dimensions.")
    return t


def numeric(name: str, t: Tensor, low: bool = False) -> None:
    """Raises RuntimeError unless `t` is floating point or complex; half types pass only when `low`."""
    if t.meta.dtype.kind not in "fc":
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {type_name(t)}")
    if not low and t.meta.dtype.name not in ("float32", "float64", "complex64", "complex128"):
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {type_name(t)}")


def square(name: str, t: Any, which: str = "A") -> Tensor:
    """`matrix`, and square."""
    x: Tensor = matrix(name, t, which)
    m, n = x.meta.shape[-2:]
    if m != n:
        raise RuntimeError(f"{name}: {which} must be batches of square matrices, but they are {m} by {n} matrices")
    return x


def alike(name: str, a: Tensor, b: Tensor, first: str = "A", second: str = "B") -> None:
    """Raises RuntimeError unless two operands have one type and one device."""
    checks.same_device(name, a, b)
    if a.meta.dtype is not b.meta.dtype:
        raise RuntimeError(f"{name}: Expected {first} and {second} to have the same dtype, but found {first} of type {type_name(a)} and {second} "
                           f"of type {type_name(b)} instead")


def compatible(name: str, a: Tensor, b: Tensor, left: bool = True) -> None:
    """Raises RuntimeError unless A X = B (X A = B) makes sense for square A."""
    side = -2 if left else -1
    if a.meta.shape[-1] != b.meta.shape[side]:
        x = "AX = B" if left else "XA = B"
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation {x} ({a.meta.shape[-2]}x{a.meta.shape[-1]} and "
                           f"{b.meta.shape[-2]}x{b.meta.shape[-1]})")


# ------------------------------------------------------------------------------------------------------------- memory
@lru_cache(4096)
def column_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of packed matrices whose columns lie one after another."""
    *lead, m, n = shape
    swapped = layout.contiguous_strides((*lead, n, m))
    return (*swapped[:-2], swapped[-1], swapped[-2])


def fresh(shape: Sequence[int], d: dtype, dev: device) -> Tensor:
    """An uninitialised tensor of matrices, column by column."""
    return empty(tuple(shape), d, dev, column_strides(tuple(shape)))


def like(t: Tensor) -> Tensor:
    """An uninitialised tensor of the shape of `t`, column by column."""
    return fresh(t.meta.shape, t.meta.dtype, t.meta.device)


def columns(t: Tensor, rows: int | None = None) -> Tensor:
    """A copy of `t`, column by column, outside the tape; with more rows (of zeros below) when asked."""
    shape = tuple(t.meta.shape)
    if rows is None or rows == shape[-2]:
        out = fresh(shape, t.meta.dtype, t.meta.device)
        place = out
    else:
        out = fresh((*shape[:-2], rows, shape[-1]), t.meta.dtype, t.meta.device)
        launch.fill(out, 0)
        place = alias(out, meta(shape, out.meta.strides, t.meta.dtype, t.meta.device), out.ptr)
    if t.meta.numel:
        launch.run(cast_program(t.meta.dtype, t.meta.dtype), shape, [place], [t], name="copy")
    return out


def batch_of(t: Tensor, axes: int = 2) -> int:
    """How many matrices."""
    return layout.numel(t.meta.shape[:len(t.meta.shape) - axes])


def job(name: str, like: Tensor, sizes: tuple[Any, ...], *operands: Tensor, over: Sequence[tuple[Tensor, Tensor]] = (), lost: Tensor | None = None,
        otherwise: Callable[..., bool] | None = None, axes: int = 2) -> None:
    """Carries out a job of `specs.Lapack` on the batch that `like` is: by the device's backend, else by `otherwise`, which says whether it did,
    else by the host.

    over: operands that results go to, each with the matrices that it must hold before: the backend brings small ones there itself.  lost: the
    matrices of the last operand, which is not among `operands` since nobody wants it afterwards; `otherwise` is given it.
    """
    checks.same_device(name, like, *operands)
    dev, d, batch = like.meta.device, like.meta.dtype, batch_of(like, axes)
    sources = [*[source for _, source in over], *(() if lost is None else (lost,))]
    laid = [strewn(t) for t in sources]
    if sources and None not in laid:
        bound = routines.find(dev, Lapack(name + " of", d, batch, (*sizes, *laid)))
        if bound is not None:
            routines.call(bound, [t.ptr for t in (*operands, *sources)])
            return
    for to, source in over:
        if source.meta.numel:
            launch.run(cast_program(d, d), tuple(source.meta.shape), [to], [source], name="copy")
    copies = () if lost is None else (columns(lost),)
    spec = Lapack(name, d, batch, sizes)
    bound = routines.find(dev, spec)
    if bound is None:
        if otherwise is not None and otherwise(*copies):
            return
        bound = routines.needed(dev, spec)
    routines.call(bound, [t.ptr for t in (*operands, *copies)])


_SMALL = 256  # elements of a matrix up to which a launch that copies costs more than the copying


def strewn(t: Tensor) -> tuple[int, int, int] | None:
    """The elements from one element of small matrices to the one below, to the right, and from matrix to matrix; None where that is not one step,
    and for others."""
    *_, m, n = t.meta.shape
    *_, down, right = t.meta.strides
    step = _step(t) if 0 < m * n <= _SMALL else None
    return None if step is None else (down, right, step)


def _step(t: Tensor) -> int | None:
    """The elements from matrix to matrix, where that is one number."""
    step = span = 0
    for size, stride in zip(reversed(t.meta.shape[:-2]), reversed(t.meta.strides[:-2]), strict=True):
        if size == 1:
            continue
        if span and stride != step * span:
            return None
        step, span = (step, span * size) if span else (stride, size)
    return step


def lies(t: Tensor) -> tuple[bool, int, int] | None:
    """Whether matrices lie row by row (else column by column), the elements from a row (column) to the next, and from matrix to matrix; None
    where no such numbers say it."""
    *_, m, n = t.meta.shape
    *_, down, right = t.meta.strides
    rows = not ((m == 1 or down == 1) and (n == 1 or right >= max(m, 1)))
    if rows and not ((n == 1 or right == 1) and (m == 1 or down >= max(n, 1))):
        return None
    along, short, many = (down, n, m) if rows else (right, m, n)
    step = _step(t)
    if step is None:
        return None
    return rows, max(along if many > 1 else short, 1), step


def solve(name: str, sizes: tuple[Any, ...], x: Tensor, a: Tensor, *operands: Tensor, copied: bool = True) -> bool:
    """Carries out a job over `x` that reads `a`: where it lies, if the device's backend can, else on a copy, if it may be `copied`. Whether it
    did."""
    checks.same_device(name, x, a, *operands)
    laid = lies(a)
    if laid is not None:
        spec = Lapack(name + " laid", a.meta.dtype, batch_of(a), (*sizes, *laid))
        bound = routines.find(a.meta.device, spec)
        if bound is not None:
            routines.call(bound, [t.ptr for t in (x, a, *operands)])
            return True
    if copied:
        job(name, a, sizes, x, columns(a), *operands)
    return copied


def identity(t: Tensor, n: int) -> Tensor:
    """The identity matrix of t's type and device."""
    from ..ranges import eye
    made: Tensor = eye(n, dtype=t.meta.dtype, device=t.meta.device)
    return made


# ------------------------------------------------------------------------------------------------------------- failures
_REASONS = {
    "inv": "The diagonal element {info} is zero, the inversion could not be completed because the input matrix is singular.",
    "solve": "The solver failed because the input matrix is singular.",
    "cholesky": "The factorization could not be completed because the input is not positive-definite (the leading minor of order {info} is not "
                "positive-definite).",
    "svd": "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated singular values (error code: "
           "{info}).",
    "eig": "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated eigenvalues (error code: "
           "{info}).",
    "lstsq": "The least squares solution could not be computed because the input matrix does not have full rank (error code: {info}).",
    "lu": "U[{info},{info}] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the factorization, "
          "consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
    "ldl": "The factorization could not be completed because the diagonal block D[{info},{info}] is exactly zero: the matrix is singular.",
}


_FEW = 64  # numbers that Python may look at in a call that is learned


def failed(info: Tensor) -> bool:
    """Waits for `info`, and says whether any is not zero."""
    from ..reading import values
    if info.meta.device.type == "meta":
        return False
    if info.meta.numel > _FEW:  # one value to look at instead
        return bool(info.any().item())
    return bool(values(info).any())


def require(name: str, reason: str, info: Tensor) -> None:
    """Waits for `info` (int32, one a matrix) and raises LinAlgError for the first that is not zero."""
    from ..reading import values
    if not failed(info):
        return
    codes = values(info)
    place = int(codes.reshape(-1).nonzero()[0][0])
    code = int(codes.reshape(-1)[place])
    where = f"{name}: " + (f"(Batch element {place}): " if info.meta.shape else "")
    if code < 0:
        raise LinAlgError(f"{where}The algorithm failed to converge because the input matrix contained non-finite values.")
    raise LinAlgError(where + _REASONS[reason].format(info=code))


# ------------------------------------------------------------------------------------------------------------- results
@cache
def _result(name: str, fields: str) -> Any:
    from ..results import named
    return named(name, fields)


def result(name: str, fields: str, *values: Any) -> Any:
    """Values as PyTorch's named tuple; the class is made at its first use."""
    return _result(name, fields)(*values)


# ------------------------------------------------------------------------------------------------------------- history
keep, kept, keep_outputs, kept_outputs = tape.keep, tape.kept, tape.keep_outputs, tape.kept_outputs


def adjoint(t: Tensor) -> Tensor:
    """The conjugate transpose."""
    x = t.transpose(-2, -1)
    return x.conj_physical() if t.meta.dtype.is_complex else x


def real_part(t: Tensor) -> Tensor:
    from ..complexes import real
    return real(t)


def half_diagonal(t: Tensor) -> Tensor:
    """X + X^H with half its diagonal, for a triangular X: the Hermitian matrix of that triangle."""
    return t + adjoint(t) - diagonal_matrix(real_part(t.diagonal(0, -2, -1)).to(t.meta.dtype))


def diagonal_matrix(t: Tensor) -> Tensor:
    """Vectors as diagonal matrices."""
    made: Tensor = t.diag_embed()
    return made


def ready(t: Tensor) -> Tensor:
    return contiguous(t)

"""Matrix products on the CPU: generated kernels, many small matrices in the lanes of vectors, reductions where one side is a vector, OpenBLAS where it
was measured faster and for complex matrices; for 16-bit floats oneDNN, where it is installed, or for bfloat16 a generated kernel of CPUs that have
instructions for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels import expr as E
from ...kernels import routines, target
from ...kernels.programs import Map, PreparedLaunch, Reduce

if TYPE_CHECKING:
    from ...dtypes import dtype
    from ...kernels.specs import Product, RowsProduct

FEW_SUMS, LONG = 4, 256  # elements of a result, and of rows and columns, where sums are better than blocks though both sides are matrices
SMALL, MANY = 8, 32  # rows and columns of matrices that lie in the lanes of vectors, and how many there are at least
MOST_SMALL = 1 << 8  # products of numbers of one, where blocks serve floats of 32 and 64 bits better
LEAST = 1 << 10  # products of numbers, below which a library's call costs less
_BLAS = frozenset(("float32", "float64", "complex64", "complex128"))
_AFTER = {"": "", "bias": "", "bias relu": "relu", "relu gradient": "relu gradient"}  # what generated products do on the way out


def product(spec: Product) -> PreparedLaunch | None:
    """None for types, epilogues and strides that no kernel here takes."""
    d = spec.dtype
    if not spec.k or spec.epilogue not in _AFTER:
        return None
    small = _in_lanes(spec)
    if small is not None:
        return small
    alone = min(spec.m, spec.n, spec.k) == 1 or (spec.m * spec.n <= FEW_SUMS and spec.k >= LONG)
    many = spec.batch if d.kind == "f" or spec.m == spec.n == 1 else 1  # small matrices of complex numbers fill no vectors
    if alone and d.kind in "fc" and spec.m * spec.n * spec.k * many >= LEAST:
        made = _by_sums(spec)
        if made is not None:
            return made
    if d.name not in _BLAS and d.kind not in "ui":
        return _narrow(spec)
    if spec.alpha == 1 and spec.beta in (0, 1):
        made = routines.product(d, spec.m, spec.n, spec.k, spec.a, spec.b, spec.c, spec.batch, spec.beta == 1, spec.epilogue.startswith("bias"),
                                _AFTER[spec.epilogue])
        if made is not None:
            return made
    return None if spec.epilogue or d.kind in "ui" else _by_openblas(spec)


def _in_lanes(spec: Product) -> PreparedLaunch | None:
    """The product of many small matrices, or of many rows and a small matrix, each in a lane of a vector; None where there are few, or they are larger."""
    d, (m, n, k), many = spec.dtype, (spec.m, spec.n, spec.k), spec.batch
    a, b, c = spec.a, spec.b, spec.c
    if many == 1 and d.name not in ("float32", "float64") and n * k <= (SMALL ** 2 // 4 if d.is_complex else SMALL ** 2):  # else vectors lie along rows
        m, many, a, b, c = 1, m, (0, a[1], a[0]), (*b[:2], 0), (0, c[1], c[0])
    if d.name in ("float32", "float64") and m * n * k > MOST_SMALL:
        return None
    if many < MANY or max(m, n, k) > SMALL or d.kind not in "fc" or d.itemsize < 2 or spec.epilogue or spec.alpha != 1 or spec.beta not in (0, 1):
        return None
    return routines.lane_product(d, m, n, k, a, b, c, many, spec.beta == 1)


def _by_sums(spec: Product) -> PreparedLaunch | None:
    """The product as sums, each of its own: every element of a large operand is read once (or twice), so that memory is the limit, whatever the strides;
    16-bit elements are widened on the way.  None with `alpha` or `beta`, and for a bias where sums are joined from pieces."""
    if spec.alpha != 1 or spec.beta or spec.epilogue not in ("", "bias"):
        return None
    d, (m, n, k), biased = spec.dtype, (spec.m, spec.n, spec.k), spec.epilogue == "bias"
    key = d, biased, k == 1
    program = _sums.get(key)
    if program is None:
        wide, types = d.opmath, (d,) * (3 if biased else 2)
        x = E.cast(E.input(0, d), wide) * E.cast(E.input(1, d), wide)
        total = x if k == 1 else E.acc(0, wide)
        result = E.cast(total + E.cast(E.input(2, d), wide) if biased else total, d)
        program = _sums[key] = Map((result,), types) if k == 1 else Reduce((x,), ("sum",), (result,), types)
    a, b, c = spec.a, spec.b, spec.c
    strides = ((c[2], c[0], c[1]), (a[2], a[0], 0, a[1]), (b[2], 0, b[1], b[0]), *([(0, 0, 1, 0)] if biased else []))
    made = target.prepare(program, (spec.batch, m, n, k), ((*strides[0], 0), *strides[1:]) if k == 1 else strides)
    made.name = f"matmul_{d.name}"
    return None if biased and made.workspace else made


_sums: dict[tuple[dtype, bool, bool], Map | Reduce] = {}


def _by_openblas(spec: Product) -> PreparedLaunch | None:
    left, right = _orient(spec.m, spec.k, *spec.a[:2]), _orient(spec.k, spec.n, *spec.b[:2])
    if left is None or right is None or spec.c[1] != 1:
        return None
    from . import blas
    entry = blas.gemm(spec.dtype.name, spec.m, spec.n, spec.k, (*left, spec.a[2]), (*right, spec.b[2]), (spec.c[0], spec.c[2]), spec.batch,
                      spec.alpha, spec.beta)
    return _priced(spec, entry)


def _orient(rows: int, columns: int, row_step: int, column_step: int) -> tuple[bool, int] | None:
    """(transposed, leading dimension) for a matrix of these strides, or None when the library cannot read it."""
    if (columns == 1 or column_step == 1) and (rows == 1 or row_step >= max(1, columns)):
        return False, max(row_step if rows > 1 else columns, columns, 1)
    if (rows == 1 or row_step == 1) and (columns == 1 or column_step >= max(1, rows)):
        return True, max(column_step if columns > 1 else rows, rows, 1)
    return None


def _narrow(spec: Product) -> PreparedLaunch | None:
    """Of 16-bit floats."""
    made = _by_onednn(spec)
    if made is not None or spec.dtype.name != "bfloat16" or spec.alpha != 1 or spec.beta not in (0, 1) or _AFTER[spec.epilogue]:
        return made
    from . import onednn
    if onednn.why() is None:  # its sums, for every product
        return None
    return routines.product_of_pairs(spec.m, spec.n, spec.k, spec.a, spec.b, spec.c, spec.batch, spec.beta == 1, spec.epilogue == "bias")


def _by_onednn(spec: Product) -> PreparedLaunch | None:
    d, (a, b, c) = spec.dtype, (spec.a, spec.b, spec.c)
    if d.kind != "f" or spec.alpha != 1 or spec.beta or spec.epilogue or 1 not in a[:2] or 1 not in b[:2]:
        return None
    from . import onednn
    entry = onednn.matmul(d.name, spec.batch, spec.m, spec.n, spec.k, (a[2], *a[:2]), (b[2], *b[:2]), (c[2], *c[:2]))
    return None if entry is None else _priced(spec, entry)


def _priced(spec: Product, entry: object) -> PreparedLaunch:
    m, n, k, batch = spec.m, spec.n, spec.k, spec.batch
    return PreparedLaunch(f"matmul_{spec.dtype.name}", entry, nbytes=(m * k + k * n + m * n) * batch * spec.dtype.itemsize,  # type: ignore[arg-type]
                    flops=2 * batch * m * n * k)


def rows_product(spec: RowsProduct) -> PreparedLaunch | None:
    """None for integers, complex numbers and floats of 8 bits."""
    d = spec.dtype
    if d.kind != "f" or d.itemsize < 2 or not routines.generated():
        return None
    entry = routines.rows_product(*spec)
    return PreparedLaunch("rows_product", entry, nbytes=2 * spec.rows * spec.columns * d.itemsize, flops=2 * spec.columns * spec.entries)

"""Products of 16-bit floats on simulated GPUs, where the CPU has none: one launch, as on a GPU, whose price is that of its type.

The operands are widened to float32, multiplied, and the result is rounded: the numbers are those of a CPU tensor's product, which does the same in
launches of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import dtypes
from ...kernels import expr as E
from ...kernels import target
from ...kernels.programs import Map, PreparedLaunch
from ...kernels.specs import Product
from ..cpu import backend

if TYPE_CHECKING:
    from ...dtypes import dtype

_ALIGNED = 64


def product(spec: Product) -> PreparedLaunch | None:
    """None for other types, and where the CPU has no product of float32 for it."""
    d = spec.dtype
    if d.kind != "f" or d.itemsize != 2 or spec.alpha != 1 or spec.beta not in (0, 1) or spec.epilogue not in ("", "bias"):
        return None
    batch, m, n, k, biased = spec.batch, spec.m, spec.n, spec.k, spec.epilogue == "bias"
    inner = backend.prepare(Product(dtypes.float32, m, n, k, (k, 1, m * k), (n, 1, k * n), (n, 1, m * n), batch, beta=spec.beta, epilogue=spec.epilogue))
    if inner is None:
        return None
    wide = dtypes.float32
    first = _cast(d, wide, (batch, m, k), _order(spec.a), (m * k, k, 1))
    second = _cast(d, wide, (batch, k, n), _order(spec.b), (k * n, n, 1))
    row = _cast(d, wide, (n,), (1,), (1,))
    last = _cast(wide, d, (batch, m, n), (m * n, n, 1), _order(spec.c))
    before = _cast(d, wide, (batch, m, n), _order(spec.c), (m * n, n, 1)) if spec.beta else None
    sizes = [-(-4 * size // _ALIGNED) * _ALIGNED for size in (batch * m * k, batch * k * n, batch * m * n, n)] + [inner.workspace]
    whole, extra = sum(sizes) + _ALIGNED, bool(inner.workspace)
    carry_out = inner.entry

    def entry(c: int, a: int, b: int, bias: int = 0) -> None:
        room = np.empty(whole, np.uint8)
        x = -(-room.ctypes.data // _ALIGNED) * _ALIGNED
        y = x + sizes[0]
        z = y + sizes[1]
        r = z + sizes[2]
        first(x, a)
        second(y, b)
        if before is not None:
            before(z, c)
        more: tuple[Any, ...] = ()
        if biased:
            row(r, bias)
            more = (r,)
        carry_out(z, x, y, *more, *((r + sizes[3],) if extra else ()))
        last(c, z)
    return PreparedLaunch(f"matmul_{d.name}", entry, nbytes=2 * (m * k + k * n + m * n) * batch, flops=2 * m * n * k * batch)


def _order(steps: tuple[int, int, int]) -> tuple[int, int, int]:
    """From matrix to matrix, from row to row, from column to column."""
    return steps[2], steps[0], steps[1]


def _cast(source: dtype, to: dtype, domain: tuple[int, ...], read: tuple[int, ...], written: tuple[int, ...]) -> Any:
    return target.prepare(Map((E.cast(E.input(0, source), to),), (source,)), domain, (written, read)).entry

"""Which elements a library's routine reads and writes, operand by operand, by the spec that it was prepared for.

Of a routine that is not in the table nothing is known but its addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..kernels.specs import Attention, AttentionGradient, Convolution, Product
from ..layout import contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..kernels.programs import PreparedLaunch

Extent = tuple[tuple[int, ...], tuple[int, ...], int]  # domain, strides in elements, bytes of an element


class Written:
    """The operands of a routine, by their places among its arguments: `outputs`, each element of which it writes and none of which it reads; `inputs`;
    `workspace`, in which it reads only what it has written (None: it has none).  Of any other it may read all, and writes nothing."""

    __slots__ = ("outputs", "inputs", "workspace")

    def __init__(self, outputs: dict[int, Extent], inputs: dict[int, Extent], workspace: int | None = None) -> None:
        self.outputs, self.inputs, self.workspace = outputs, inputs, workspace


def of(p: PreparedLaunch) -> Written | None:
    """None where nothing is known."""
    found = _TABLE.get(type(p.spec))
    return None if found is None else found(p.spec)


def _product(s: Product) -> Written | None:
    size = s.dtype.itemsize

    def matrix(rows: int, columns: int, steps: tuple[int, int, int]) -> Extent:
        return (s.batch, rows, columns), (steps[2], steps[0], steps[1]), size
    c = matrix(s.m, s.n, s.c)
    inputs = {1: matrix(s.m, s.k, s.a), 2: matrix(s.k, s.n, s.b)}
    if s.beta or s.recorded or s.epilogue not in ("", "bias", "bias relu", "bias gelu", "relu gradient"):
        return None
    if s.epilogue.startswith("bias"):
        inputs[3] = (s.n,), (1,), size
    elif s.epilogue:
        inputs[3] = c
    return Written({0: c}, inputs)


def _convolution(s: Convolution) -> Written:
    places = {"forward": (s.y, s.x, s.w), "images": (s.x, s.w, s.y), "weights": (s.w, s.x, s.y)}[s.kind]
    out = (*places[0], s.dtype.itemsize)
    return Written({0: out}, {}, 3 + s.bias)  # which of the two others comes first is the routine's own


def _steps(s: Any, name: str, *sizes: int) -> Extent:
    steps = dict(s.steps)[name]
    return sizes, (*steps, 1)[:len(sizes)], s.dtype.itemsize


def _sums(s: Any) -> Extent:
    batch, heads, _, rows, *_ = s.sizes
    return (batch, heads, rows), contiguous_strides((batch, heads, rows)), (dtypes.float64 if s.dtype is dtypes.float64 else dtypes.float32).itemsize


def _attention(s: Attention) -> Written:
    batch, heads, _, rows, _, depth, value_depth = s.sizes
    return Written({0: _steps(s, "o", batch, heads, rows, value_depth), 1: _sums(s)},
                   {2: _steps(s, "q", batch, heads, rows, depth), **_keys(s, 3)}, 5 + (s.mask is not None))


def _keys(s: Any, at: int) -> dict[int, Extent]:
    batch, heads, group, _, keys, depth, value_depth = s.sizes
    return {at: _steps(s, "k", batch, heads // group, keys, depth), at + 1: _steps(s, "v", batch, heads // group, keys, value_depth)}


def _attention_gradient(s: AttentionGradient) -> Written:
    batch, heads, group, rows, keys, depth, value_depth = s.sizes
    return Written({0: _steps(s, "dq", batch, heads, rows, depth), 1: _steps(s, "dk", batch, heads // group, keys, depth),
                    2: _steps(s, "dv", batch, heads // group, keys, value_depth)},
                   {3: _steps(s, "g", batch, heads, rows, value_depth), 4: _steps(s, "o", batch, heads, rows, value_depth), 5: _sums(s),
                    6: _steps(s, "q", batch, heads, rows, depth), **_keys(s, 7)}, 9 + (s.mask is not None))


_TABLE: dict[Any, Callable[[Any], Written | None]] = {
    Product: _product, Convolution: _convolution, Attention: _attention, AttentionGradient: _attention_gradient}

"""Gradients that arrive in parts: what views of one tensor give back, written into one tensor like it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import layout
from ..autograd import tape
from ..kernels import expr as E
from ..kernels.programs import Map
from ..tensor import Meta, Tensor, alias, meta, new
from . import launch
from .copies import cast_program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..dtypes import dtype

    # a gradient, the strides of the view it belongs to, and the bytes from the first element of the whole to the view's
    Piece = tuple[Tensor, tuple[int, ...], int]

_MOST = 64  # pieces that are compared with each other
_sums: dict[dtype, Map] = {}


def dense(m: Meta) -> bool:
    """Whether a gradient of a tensor like this can be laid out as it is."""
    return m.contiguous or layout.is_dense(m.shape, m.strides)


class Parts(tape.Parts):
    """Pieces of the gradient of a dense tensor like `m`, and perhaps a gradient of all of it."""

    __slots__ = ("meta", "pieces", "whole", "own")

    def __init__(self, m: Meta, piece: Piece) -> None:
        self.meta, self.pieces, self.own = m, [piece], False
        self.whole: Tensor | None = None

    def __add__(self, other: Any) -> Parts:
        if type(other) is Parts:
            self.pieces += other.pieces
            other = other.whole
        if other is not None:
            self.own = self.whole is not None
            self.whole = other if self.whole is None else self.whole + other
        return self

    def joined(self) -> Tensor:
        return assemble(self.meta, self.pieces, self.whole, self.own)


def assemble(m: Meta, pieces: Sequence[Piece], whole: Tensor | None = None, own: bool = False) -> Tensor:
    """The sum of the pieces in their places and of the whole, outside the tape.  own: nobody else has the whole.

    Pieces that are already together in one memory laid out like `m` are left there.
    """
    d = m.dtype
    pieces = [p for p in pieces if p[0].meta.numel]
    alone = len(pieces) == 1 and pieces[0][0].meta.numel < m.numel
    apart, covered = (True, False) if alone else _boxes(m, pieces)
    if covered and whole is None:
        g, _, offset = pieces[0]
        at = g.ptr - offset
        if all(h.store is g.store and h.ptr - by == at and h.meta.strides == strides for h, strides, by in pieces):
            return alias(g, m, at)  # they lie where they belong
    out = whole
    if out is None or not own or out.meta is not m:
        out = new(m)
        if whole is not None:
            launch.run(cast_program(whole.meta.dtype, d), tuple(m.shape), [out], [whole], name="put")
        elif not covered and m.numel:
            launch.fill(out, 0)
    put = whole is None and (apart or len(pieces) == 1)
    program = cast_program(d, d) if put else _sum_program(d)
    for g, strides, offset in pieces:
        here = alias(out, meta(g.meta.shape, strides, d, m.device), out.ptr + offset)
        launch.run(program, tuple(g.meta.shape), [here], [g] if put else [here, g], name="put")
    return out


def _sum_program(d: dtype) -> Map:
    found = _sums.get(d)
    if found is None:
        wide = d.opmath
        found = _sums[d] = Map((E.cast(E.cast(E.input(0, d), wide) + E.cast(E.input(1, d), wide), d),), (d, d))
    return found


def _boxes(m: Meta, pieces: Sequence[Piece]) -> tuple[bool, bool]:
    """Whether the pieces are known to be apart from each other, and whether they are then all of a tensor like `m`."""
    if not 1 <= len(pieces) <= _MOST:
        return False, False
    axes = sorted([(s, n) for s, n in zip(m.strides, m.shape, strict=True) if n > 1], reverse=True)
    boxes: list[list[tuple[int, int]]] = []
    total = 0
    for g, strides, offset in pieces:
        lengths = dict(zip(strides, g.meta.shape, strict=True)) if len(set(strides)) == len(strides) else {
            s: n for s, n in zip(strides, g.meta.shape, strict=True) if n > 1}
        rest, box, seen = offset // m.dtype.itemsize, [], 1
        for s, n in axes:
            at, rest = divmod(rest, s)
            length = lengths.get(s, 1)
            if at + length > n:
                return False, False
            box.append((at, at + length))
            seen *= length
        if seen != g.meta.numel:  # no box: steps, diagonals
            return False, False
        total += seen
        boxes.append(box)
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            if all(a < d and c < b for (a, b), (c, d) in zip(one, other, strict=True)):
                return False, False
    return True, total == m.numel

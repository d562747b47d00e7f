"""The loops of a machine of vectors: one stage's axes, the units of work it is handed out in, and how large they are.

A stage has a *vector axis*, along which its vectors lie, and may have a *line axis*, which it steps along within a unit.  The remaining
axes of the walk are the *outer* ones, counted like an odometer from unit to unit, and (for reductions) the *middle* ones, counted within a
unit.  With the vector axis among the outer ones a unit is a tile of it; where short rows are joined side by side, a unit is a stretch of
lines.
"""

from __future__ import annotations

from math import trunc
from typing import TYPE_CHECKING

from ..expr import walk
from .walk import Axis, step_class

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ..expr import Expr

REGISTER = 64  # bytes
PARALLEL_NS = 20_000.0  # below this, handing over costs more than it gains
CHUNK_NS = 8_000.0


class Stage:
    """vector, line: their axes, of size 1 where there is none; outer, middle: outermost first; width: elements of a tile; by_lines: tiles are
    stretches of the line axis, not of the vector axis."""

    __slots__ = ("vector", "line", "outer", "middle", "width", "by_lines")

    def __init__(self, operands: int, vector: Axis | None, line: Axis | None, outer: list[Axis],
                 middle: Sequence[Axis] = (), width: int = 0, by_lines: bool = False) -> None:
        none = (0,) * operands
        self.vector, self.line = vector or Axis(1, none, None), line or Axis(1, none, None)
        self.outer, self.middle, self.width, self.by_lines = outer, list(middle), width or self.vector.size, by_lines

    @property
    def tiles(self) -> int:
        return -(-(self.line if self.by_lines else self.vector).size // self.width)

    @property
    def units(self) -> int:
        n = self.tiles
        for a in self.outer:
            n *= a.size
        return n

    def turned(self) -> Stage:
        """With vectors along the lines."""
        return Stage(0, self.line, self.vector, self.outer, self.middle, self.width)

    def classes(self, itemsizes: Sequence[int]) -> tuple[str, ...]:
        """For each operand how it steps along the vector axis (see `step_class`) and whether along the line ("." or "l")."""
        return tuple(step_class(v, b) + ("l" if s else ".")
                     for v, s, b in zip(self.vector.strides, self.line.strides, itemsizes))

    def places(self, coords: Collection[int]) -> tuple[tuple[int, str, int], ...]:
        """For each domain axis whose coordinate is asked for: which kind of axis of the stage it is, and its number."""
        found = []
        for d in sorted(coords):
            where = ("none", 0)
            for kind, axes in (("vector", [self.vector]), ("line", [self.line]), ("outer", self.outer[::-1]),
                               ("middle", self.middle[::-1])):
                where = next(((kind, k) for k, a in enumerate(axes) if a.source == d), where)
            found.append((d, *where))
        return tuple(found)


BLOCK_LANES = 16  # of vectors at most, where so many rows are joined side by side
BLOCK_ROWS = 256  # of a unit of them


def by_blocks(operands: int, inner: Axis, outer: Sequence[Axis], lanes: int, longest: int) -> Stage | None:
    """The stage that joins as many rows along `inner` side by side as a vector has lanes; None where rows are longer than `longest`, or few."""
    if not outer or lanes > BLOCK_LANES or outer[-1].size < lanes or inner.size > longest:
        return None
    return Stage(operands, inner, outer[-1], list(outer[:-1]), width=even_width(outer[-1].size, BLOCK_ROWS, lanes), by_lines=True)


def even_width(size: int, most: int, lanes: int) -> int:
    """The width of tiles that cut `size` evenly, in whole vectors, where a tile has at most `most` elements."""
    tiles = -(-size // most)
    width = -(-size // tiles)
    return -(-width // lanes) * lanes


def chunk_of(total: int, nanoseconds: float, multiple: int = 1) -> int:
    """How many of `total` units make a chunk worth handing over; at most 512 chunks, whatever the number of threads."""
    pieces = max(1, min(512, trunc(nanoseconds / CHUNK_NS)))
    chunk = -(-total // pieces)
    return min(-(-chunk // multiple) * multiple, max(total, 1))


_lanes: dict[tuple[Expr, ...], int] = {}


def lanes_of(roots: tuple[Expr, ...]) -> int:
    """How many elements fill a register in the widest type of the expressions."""
    found = _lanes.get(roots)
    if found is None:
        found = _lanes[roots] = lanes_among(walk(roots))
    return found


def lanes_among(nodes: Iterable[Expr]) -> int:
    """How many elements fill a register in the widest type of these nodes."""
    return REGISTER // max(1, min(max(e.dtype.itemsize for e in nodes), 8))

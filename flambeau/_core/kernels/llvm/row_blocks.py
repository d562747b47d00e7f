"""Blocks of short rows: as many rows as a vector has lanes, whose partial results are joined side by side.

The lanes of one vector are joined in steps that each use half of what is left of it.  The vectors of a block share these steps: two vectors'
lower halves beside their upper halves are one vector's work for two rows, and so on until each lane has a row.  What joins what, and in which
order, is what `Partials.across` does for one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .emit import base_memory, ty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .accumulators import Partials
    from .emit import Emitter


def row_ends(em: Emitter, size: str, lanes: int) -> tuple[str, str]:
    """For rows of `size` elements: where their last vector begins, and the mask of what it has."""
    last = em.op(f"and i64 {em.sub(size, '1')}, {-lanes}")
    return last, em.first_lanes(em.sub(size, last), lanes)


class RowBlock:
    """The partial results of a block of rows, one vector a row and accumulator."""

    def __init__(self, em: Emitter, partials: Partials, lanes: int) -> None:
        self.em, self.partials, self.lanes = em, partials, lanes
        self.rooms = [em.op(f"alloca [{lanes * lanes} x {base_memory(d)}], align 64", "a") for d in partials.dtypes]
        for d, start, room in zip(partials.dtypes, partials.start(lanes), self.rooms, strict=True):
            for row in range(lanes):  # the last block of a stretch may have fewer rows
                em.store(d, lanes, start, em.at(room, str(row * lanes * d.itemsize)))

    def put(self, row: str, values: Sequence[str]) -> None:
        """Keeps the partial results of the row with that number in the block."""
        for d, room, v in zip(self.partials.dtypes, self.rooms, values, strict=True):
            self.em.store(d, self.lanes, v, self.em.at(room, self.em.mul(row, str(self.lanes * d.itemsize))))

    def joined(self) -> list[str]:
        """For each accumulator a vector, whose lanes are the rows."""
        em, lanes, dtypes = self.em, self.lanes, self.partials.dtypes
        parts = [[em.load(d, lanes, em.at(room, str(row * lanes * d.itemsize))) for d, room in zip(dtypes, self.rooms, strict=True)] for row in range(lanes)]
        width = lanes  # of what a row has in a vector
        while width > 1:
            width //= 2
            firsts = [at for at in range(2 * lanes) if at // width % 2 == 0]
            pairs = zip(parts[::2], parts[1::2], strict=True)
            halves = [[self._picked(one, other, [at + shift for at in firsts]) for shift in (0, width)] for one, other in pairs]
            parts = [self.partials.join(low, high, lanes) for low, high in halves]
        return parts[0]

    def _picked(self, one: Sequence[str], other: Sequence[str], places: Sequence[int]) -> list[str]:
        numbers = ", ".join(f"i32 {p}" for p in places)
        types = [ty(d, self.lanes) for d in self.partials.dtypes]
        return [self.em.op(f"shufflevector {t} {a}, {t} {b}, <{self.lanes} x i32> <{numbers}>") for t, a, b in zip(types, one, other, strict=True)]

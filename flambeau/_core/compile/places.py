"""Where the elements of one loop lie in another's: how a reader walks what a writer made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dtypes import int64
from ..kernels import expr as E
from ..kernels.programs import size_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..kernels.expr import Expr


class Piece:
    """An axis of the reader's domain, or a part of one that was split.

    axis: which it was; size: its elements; times: how far one step along it goes on that axis.
    made, steps: the writer's axis that it walks, and how far; made is None where every step finds the same element.
    """

    __slots__ = ("axis", "size", "times", "made", "steps")

    def __init__(self, axis: int, size: int, times: int, made: int | None, steps: int) -> None:
        self.axis, self.size, self.times, self.made, self.steps = axis, size, times, made, steps


class Walk:
    """How a reader walks a writer's domain: `pieces` in the order of the reader's axes, from the writer's element `first` on."""

    def __init__(self, pieces: list[Piece], first: list[int], made: tuple[int, ...]) -> None:
        self.pieces, self.first, self.made = pieces, first, made
        self.domain = tuple([p.size for p in pieces])

    @property
    def split(self) -> bool:
        """Whether any axis of the reader was split."""
        return any(p.times != 1 for p in self.pieces)

    def of_reader(self, strides: Sequence[int]) -> tuple[int, ...]:
        """Strides of one of the reader's operands, over the pieces; those of its first axes where there are fewer."""
        return tuple([strides[p.axis] * p.times for p in self.pieces if p.axis < len(strides)])

    def of_writer(self, strides: Sequence[int]) -> tuple[int, ...]:
        """Strides of one of the writer's operands, over the pieces."""
        return tuple([0 if p.made is None else strides[p.made] * p.steps for p in self.pieces])

    def offset(self, strides: Sequence[int]) -> int:
        """Elements between the writer's first element and the reader's."""
        return sum(a * s for a, s in zip(self.first, strides, strict=True))

    def readers_coord(self, axis: int) -> Expr:
        """The coordinate along an axis that the reader had, by those of the pieces."""
        return _linear(0, [(k, p.times) for k, p in enumerate(self.pieces) if p.axis == axis])

    def writers_coord(self, axis: int) -> Expr:
        """The coordinate along the writer's axis, by those of the pieces."""
        return _linear(self.first[axis], [(k, p.steps) for k, p in enumerate(self.pieces) if p.made == axis])

    @property
    def once(self) -> bool:
        """Whether it finds every element of the writer's domain, and each once."""
        if any(p.made is None and p.size > 1 for p in self.pieces) or any(self.first) or size_of(self.domain) != size_of(self.made):
            return False
        for axis in range(len(self.made)):
            covered = 1
            for steps, size in sorted((p.steps, p.size) for p in self.pieces if p.made == axis):
                if steps != covered:
                    return False
                covered = steps * size
        return True

    @property
    def repeats(self) -> bool:
        """Whether it finds elements more than once."""
        return any(p.made is None and p.size > 1 for p in self.pieces) or not _apart(self)


def _apart(w: Walk) -> bool:
    for axis in range(len(w.made)):
        reached = 1
        for steps, size in sorted((p.steps, p.size) for p in w.pieces if p.made == axis):
            if steps < reached:
                return False
            reached = steps * size
    return True


def _linear(first: int, parts: list[tuple[int, int]]) -> Expr:
    found = E.const(first, int64)
    for k, times in parts:
        x = E.coord(k) * E.const(times, int64)
        found = x if E.is_const(found, 0) else found + x
    return found


def walk(made: Sequence[int], made_strides: Sequence[int], read: Sequence[int], read_strides: Sequence[int], start: int) -> Walk | None:
    """How what was written over the domain `made` is read over the domain `read`, strides in elements; start: how many elements behind the first
    written element the first read one lies.  None where the reader goes elsewhere, or in no way that axes can say."""
    dims = sorted([(s, n, k) for k, (n, s) in enumerate(zip(made, made_strides, strict=True)) if n > 1], reverse=True)
    reached = 1
    for s, n, _ in reversed(dims):
        if s < reached:  # elements that share a place
            return None
        reached = s * n
    first = [0] * len(made)
    for s, n, k in dims:
        first[k] = min(start // s, n - 1) if start > 0 else 0
        start -= first[k] * s
    if start:
        return None
    pieces: list[Piece] = []
    for axis, (n, s) in enumerate(zip(read, read_strides, strict=True)):
        found = _pieces(axis, n, s, dims)
        if found is None:
            return None
        pieces += found
    last = list(first)
    for p in pieces:
        if p.made is not None:
            last[p.made] += (p.size - 1) * p.steps
    return Walk(pieces, first, tuple(made)) if all(a < n for a, n in zip(last, made, strict=True)) else None


def _pieces(axis: int, n: int, s: int, dims: list[tuple[int, int, int]]) -> list[Piece] | None:
    if n == 1 or s == 0:
        return [Piece(axis, n, 1, None, 0)]
    found: list[Piece] = []
    times = 1
    while n > 1:
        dim = next((d for d in dims if d[0] <= s), None)
        if dim is None or s % dim[0]:
            return None
        steps, size = s // dim[0], dim[1]
        if (n - 1) * steps < size:
            found.append(Piece(axis, n, times, dim[2], steps))
            break
        count = size // steps
        if count < 2 or size % steps or n % count:
            return None
        found.append(Piece(axis, count, times, dim[2], steps))
        n, s, times = n // count, s * count, times * count
    return found[::-1]

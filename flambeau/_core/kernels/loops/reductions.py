"""The loops of a reduction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..programs import size_of
from .groups import Group
from .operands import Operands
from .partials import arrays, flat_types, has_position, held_in
from .walk import Axis, facts

if TYPE_CHECKING:
    from ..programs import Reduce
    from .machine import Machine

SHORT = 16  # elements that one thread reduces alone
WANTED_BLOCKS = 1024  # of 256 threads: 8 for each multiprocessor, whose 2048 threads have four reads on their way, 32 KB of float32
LEAST = 1 << 12  # elements of a piece that is cut for the sake of filling the machine,
LEAST_ACROSS = 1 << 7  # where neighbours are of different outputs: 16 for each thread
LONGEST = 1 << 17  # elements of a piece: more rounding errors would add up


class ReduceLoops(Operands):
    """kept, reduced: their axes, outermost first; count: outputs; length: elements of one; ordered: which element comes first matters."""

    def __init__(self, program: Reduce, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> None:
        super().__init__(program, domain, strides)
        kept = len(strides[0])
        self.facts = facts(program)
        self.ordered = any(map(has_position, program.combine))
        self.kept = self.walk(range(kept))
        self.reduced = self.walk(range(kept, self.rank), reorder=not self.ordered)
        self.count, self.length = size_of(tuple(a.size for a in self.kept)), size_of(domain[kept:])

    def lies_across(self, lanes: int) -> bool:
        """Whether lanes side by side are of different outputs, since memory's neighbours are; lanes: of a vector, which should be filled
        (0: of threads)."""
        if not self.kept or not self.reduced:
            return bool(self.kept)
        kept, reduced = self.score(self.kept[-1], self.used), self.score(self.reduced[-1], self.used)
        if kept != reduced:
            return kept > reduced or (self.length < 2 * lanes and self.kept[-1].size >= lanes)
        return lanes > 0 and self.kept[-1].size >= self.reduced[-1].size


class ByThreads(ReduceLoops):
    """A group of threads for each output, and for each piece of it; each thread reads v neighbours at once.  joining: the group that joins
    the pieces of an output; rooms: where in the workspace the arrays of (piece, output) of the accumulators' parts begin."""

    def __init__(self, program: Reduce, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], machine: Machine) -> None:
        super().__init__(program, domain, strides)
        along = not self.lies_across(0)
        self.v = 1
        if self.length <= SHORT:
            self.group = Group("across", 256, 1)
        elif along:
            self.v = self._width(machine)
            self.group = Group("block", 256, 1) if self.length > 1024 else Group("warp", 32, 8)
        else:
            x = min(32, 1 << (self.count - 1).bit_length())  # few outputs leave more threads for each
            self.group = Group("across", x, 256 // x if self.length >= 1024 // x else 128 // x)
        self.blocks = -(-self.count // self.group.rows)
        least = LEAST if along else max(LEAST_ACROSS, 16 * self.group.size)
        pieces = max(1, -(-self.length // LONGEST), min(WANTED_BLOCKS // self.blocks, self.length // least))
        step, share = self.group.size * self.v, -(-self.length // pieces)
        self.piece = -(-share // step) * step
        self.pieces = -(-self.length // self.piece) if self.length else 1
        while self.pieces > 65535:  # a grid's second size
            self.piece *= 2
            self.pieces = -(-self.length // self.piece)
        # a warp would read many partial results of one output in turn
        self.joining = Group("block", 256, 1) if self.pieces > 64 else Group("warp", 32, 8)
        sizes = [held_in(d).itemsize for d in flat_types([e.dtype for e in program.elems], program.combine)]
        self.rooms, room = arrays(sizes, self.count * self.pieces, 256)
        self.workspace = room if self.pieces > 1 else 0
        self.moving = [k for k in self.used if any(a.strides[k] for a in self.reduced)]
        self.wide = self.is_wide(self.kept + self.reduced, 1 << 20)

    def _width(self, machine: Machine) -> int:
        """How many neighbours a thread reads at once."""
        if not self.reduced or self.facts.operations > 60:
            return 1
        *outer, inner = self.reduced
        moving = [k for k in self.used if any(a.strides[k] for a in self.reduced)]
        if not moving or any(inner.strides[k] != self.sizes[k] for k in moving):
            return 1
        v = max(1, machine.vector // max(self.sizes[k] for k in moving))
        while v > 1 and outer and not self.divides(v, inner.size, outer, moving):
            v //= 2
        return v

    def packed(self) -> list[Axis]:
        """The reduced axes with one index for v neighbours."""
        *outer, inner = self.reduced
        return [*outer, Axis(inner.size // self.v, tuple(s * self.v for s in inner.strides), inner.source)]

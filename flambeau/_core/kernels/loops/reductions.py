"""The loops of a reduction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..expr import walk
from ..programs import price, size_of
from .accumulators import arrays, flat_types, has_position, held_in
from .operands import Operands
from .stages import PARALLEL_NS, Stage, by_blocks, chunk_of, even_width, lanes_of
from .thread_groups import Group
from .walk import Axis, walk_axes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype
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
        self.ordered = any(map(has_position, program.combine))
        self.kept = self.walk(range(kept))
        self.reduced = self.walk(range(kept, self.rank), reorder=not self.ordered)
        self.domain_reduced = domain[kept:]
        self.count, self.length = size_of(tuple(a.size for a in self.kept)), size_of(domain[kept:])

    def axes_in_order(self) -> tuple[int | None, ...]:
        """The reduced axes of the domain as they are walked, outermost first, before any are merged."""
        kept, sizes = self.rank - len(self.domain_reduced), self.sizes[:len(self.types)]
        steps = [list(s[kept:]) for s in (*self.steps[self.outs:], *self.steps[:self.outs])]
        axes = walk_axes(self.domain_reduced, steps, sizes[self.outs:] + sizes[:self.outs], range(len(self.domain_reduced)), not self.ordered)
        return tuple([a.source for a in axes])

    def lies_across(self, lanes: int) -> bool:
        """Whether lanes side by side are of different outputs, since memory's neighbours are; lanes: of a vector, which should be filled
        (0: of threads)."""
        if not self.kept or not self.reduced:
            return bool(self.kept)
        nearer = self._nearer() if lanes else 0
        if nearer:
            return nearer > 0
        kept, reduced = self.score(self.kept[-1], self.used), self.score(self.reduced[-1], self.used)
        if kept != reduced:
            # elements far apart are read one by one, which joining the lanes of a vector outweighs; places cost more to join
            short = self.length < 2 * lanes if self.ordered else 2 * self.length <= min(lanes, 16)
            return kept > reduced or (short and self.kept[-1].size >= lanes)
        return lanes > 0 and self.kept[-1].size >= self.reduced[-1].size

    def _nearer(self) -> int:
        """Above 0 where no operand has neighbours along either axis (the parts of complex numbers), and along the kept one they are less far apart;
        below 0 where along the reduced one."""
        steps = [(abs(self.kept[-1].strides[k]), abs(self.reduced[-1].strides[k]), self.sizes[k]) for k in self.used]
        if any(size in (a, b) for a, b, size in steps):
            return 0
        return sum((a < b) - (a > b) for a, b, _ in steps if a and b)


class ByThreads(ReduceLoops):
    """A group of threads for each output, and for each piece of it; each thread reads v neighbours at once.  joining: the group that joins
    the pieces of an output; rooms: where in the workspace the arrays of (piece, output) of the accumulators' parts begin."""

    def __init__(self, program: Reduce, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], machine: Machine) -> None:
        super().__init__(program, domain, strides)
        along = not self.lies_across(0)
        self.v, self.combine = 1, program.combine
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

    def order(self) -> tuple[object, ...]:
        """What the order of its sums follows from: two that sum the same elements and agree in it give the same bits."""
        return self.group.key, self.joining.key, self.v, self.length, self.piece, self.pieces, self.combine

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


# ------------------------------------------------------------------------------------------------------------ by vectors
TILE_BYTES = 8192  # of accumulators in the first cache
LONGEST_ALONG = 1 << 17  # elements that one unit sums along: more are cut into pieces
PIECE_ALONG = 1 << 16
MOST_LINES = 1 << 12  # lines that one unit sums across
PIECE_LINES = 1 << 10  # so few that their rounding errors stay those of a pairwise sum
WANTED_UNITS = 16  # so many can be shared out evenly
LEAST_ELEMENTS = 1 << 15  # a piece for the sake of sharing out


class ByVectors(ReduceLoops):
    """across: vectors lie along a kept axis, a unit is a tile of it, whose accumulators stay in the first cache while the reduced lines
    stream past; else along the innermost reduced axis, a unit is one output.

    blocks: of rows shorter than that, as many as a vector has lanes are joined side by side, and a unit is a stretch of them.
    first: the stage over all elements; join: the one that joins the pieces of an output, None where there is but one.  A piece is `piece`
    steps of the outermost reduced axis, which has `outermost` of them; passes: how often the innermost reduced axis is walked for one of them.  The
    partial results are further operands, of types `accs`, in arrays of the workspace that begin at `rooms`.
    chunk, joins: units that a thread is handed of either stage; parallel: whether to use threads.
    """

    def __init__(self, program: Reduce, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> None:
        super().__init__(program, domain, strides)
        nbytes, _ = price(program, domain, strides)
        ns = self.facts.cost(nbytes, size_of(domain))
        self.accs, self.lanes = flat_types([e.dtype for e in program.elems], program.combine), reduce_lanes(program)
        self.across, self.parallel = self.lies_across(self.lanes), ns > PARALLEL_NS
        self.first = self._stage(self.kept, self.reduced, [])
        self.outermost = self.reduced[0].size if self.reduced else 1
        self.passes = self.length // self.outermost // (self.reduced[-1].size if self.first.middle else 1)
        self.piece = self.outermost
        if all(a.source is None for a in self.reduced):
            self.piece = self._piece(self.first.units, ns)
        self.pieces = -(-self.outermost // self.piece)
        self.blocks = False
        if not self.across and self.pieces == 1 and len(self.reduced) == 1:
            stage = by_blocks(len(self.sizes), self.reduced[0], self.kept, self.lanes, side_by_side(program, len(self.accs))[0] * self.lanes - 1)
            self.blocks, self.first = stage is not None, stage or self.first
        self.join: Stage | None = None
        self.rooms: list[int] = []
        if self.pieces > 1:
            self._cut()
        self.chunk = chunk_of(self.first.units, ns)
        self.joins = chunk_of(self.join.units, self.count * self.pieces * 0.5) if self.join is not None else 0

    def _stage(self, kept: list[Axis], reduced: list[Axis], cut: list[Axis]) -> Stage:
        """The stage over all elements; cut: the axis of the pieces."""
        operands = len(self.sizes)
        if self.across:
            width = even_width(kept[-1].size, tile_of(self.accs, self.lanes), self.lanes)
            return Stage(operands, kept[-1], reduced[-1] if reduced else None, [*cut, *kept[:-1]], reduced[:-1], width)
        return Stage(operands, reduced[-1] if reduced else None, None, [*cut, *kept], reduced[:-1])

    def _piece(self, units: int, ns: float) -> int:
        """How many steps of the outermost reduced axis a piece has."""
        longest, size = (MOST_LINES, PIECE_LINES) if self.across else (LONGEST_ALONG, PIECE_ALONG)
        pieces = -(-self.length // size) if self.length >= longest else 1
        if ns > PARALLEL_NS and units < WANTED_UNITS:
            pieces = max(pieces, min(-(-WANTED_UNITS // units), self.count * self.length // (units * LEAST_ELEMENTS)))
        return -(-self.outermost // max(1, min(pieces, self.outermost)))

    def _cut(self) -> None:
        """Pieces, whose partial results are operands in the order of the kept axes, piece by piece."""
        sizes = [d.itemsize for d in self.accs]
        self.rooms, self.workspace = arrays(sizes, self.count * self.pieces, 64)
        step, kept = sizes, list[Axis]()
        for a in reversed(self.kept):
            kept.insert(0, Axis(a.size, (*a.strides, *step), a.source))
            step = [s * a.size for s in step]
        none = (0,) * len(self.accs)
        reduced = [Axis(a.size, (*a.strides, *none), a.source) for a in self.reduced]
        cut = Axis(self.pieces, (*(self.piece * s for s in reduced[0].strides[:len(self.sizes)]), *step), None)
        operands = len(self.sizes)
        self.sizes = self.sizes + sizes
        self.first = self._stage(kept, reduced, [cut])
        vector = kept[-1] if kept else None
        width = even_width(vector.size, tile_of(self.accs, self.lanes), self.lanes) if vector else 0
        self.join = Stage(len(self.sizes), vector, Axis(self.pieces, ((0,) * operands + tuple(step)), None), kept[:-1], (), width)


def reduce_lanes(program: Reduce) -> int:
    """The lanes of its vectors."""
    lanes = lanes_of(program.elems)
    return min(lanes, 16) if any(map(has_position, program.combine)) else lanes


def side_by_side(program: Reduce, accs: int) -> tuple[int, int]:
    """How many vectors are summed side by side along the row, and how many lines across it."""
    ordered, nodes = any(map(has_position, program.combine)), sum(1 for e in walk(program.elems) if e.args)
    group = 2 if ordered else 8 if nodes <= 8 and accs == 1 else 4
    return 2 if ordered or nodes * accs > 16 or accs > 2 else 8 if nodes * accs <= 1 else 4, group


def tile_of(accs: Sequence[dtype], lanes: int) -> int:
    """How many elements of the vector axis a tile has at most."""
    return max(TILE_BYTES // sum(d.itemsize for d in accs) // lanes, 1) * lanes

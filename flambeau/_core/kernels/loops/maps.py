"""The loops of a map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...layout import is_contiguous
from ..expr import walk
from ..programs import price, size_of
from .operands import Operands
from .stages import PARALLEL_NS, chunk_of
from .walk import FUNCTIONS, Axis, facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...dtypes import dtype
    from ..expr import Expr
    from ..programs import Map
    from .machine import Machine
    from .walk import Facts

THREADS = 256  # of a block
BIG = 1 << 20  # elements of a map whose threads do more
WANTED = 16  # bytes that a thread has on their way
CACHED = 8  # an operand read this often for each of its elements comes from a cache
LONGEST = 160  # operations for all neighbours together: more would take too many registers, and long to compile
SIDE = 32  # of a tile
SHORTEST = 16  # axes shorter than this fill too little of a tile


class Across:
    """Inputs whose neighbours lie along another axis than the outputs': `axis` of the walk, the operands, the side of the tiles by which
    they are read along it and written along the innermost."""

    __slots__ = ("axis", "operands", "side")

    def __init__(self, axis: int, operands: list[int], side: int) -> None:
        self.axis, self.operands, self.side = axis, operands, side


class MapLoops(Operands):
    """axes: outermost first, at least one; ordered: elements must be met in the domain's order (values go to offsets of their own)."""

    def __init__(self, program: Map, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> None:
        super().__init__(program, domain, strides)
        self.ordered = any(t is not None for t in program.targets)
        found = self.walk(range(self.rank), reorder=not self.ordered, outputs_first=True)
        self.single = not found  # one element
        self.axes = found or [Axis(1, (0,) * len(self.types), None)]
        self.inner = self.axes[-1]
        self.elements = size_of(domain)

    def lying_across(self, shortest: int, reach: int) -> tuple[int, list[int]] | None:
        """The axis, of at least `shortest` elements, along which inputs have their neighbours that have none along the innermost, and those
        inputs; reach: how many elements off, either way, still is a neighbour (0: only the next)."""
        def near(a: Axis, k: int) -> bool:
            return 0 < abs(a.strides[k]) <= reach * self.sizes[k] if reach else a.strides[k] == self.sizes[k]
        for at in range(len(self.axes) - 2, -1, -1):
            turned = [k for k in self.used if near(self.axes[at], k) and self.inner.strides[k] and not near(self.inner, k)]
            if turned and self.axes[at].size >= shortest:
                if reach and any(near(self.axes[at], k) for k in range(self.outs)):
                    return None
                return at, turned
        return None


class ByThreads(MapLoops):
    """Threads take `v` neighbours along the innermost axis, `rounds` times; or tiles, where inputs lie `across`."""

    def __init__(self, program: Map, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], machine: Machine) -> None:
        super().__init__(program, domain, strides)
        self.moved = [*range(self.outs), *self.used]
        self.across = self._tiles(machine) if not self.ordered else None
        self.v = self._width(machine)
        self.rounds = self._rounds()
        self.wide = self.is_wide(self.axes, self.across.side if self.across is not None else THREADS * self.v * 8)

    def packed(self) -> list[Axis]:
        """The axes with one index for v neighbours."""
        inner = self.inner
        return [*self.axes[:-1], Axis(-(-inner.size // self.v), tuple(s * self.v for s in inner.strides), inner.source)]

    def tiled(self) -> list[Axis]:
        """The axes with one index for each tile; those of the tiles come last, as sources -1 (across) and -2 (innermost)."""
        assert self.across is not None
        a, n = self.across.axis, self.across.side
        tiles = [Axis(-(-x.size // n), tuple(s * n for s in x.strides), number) for x, number in ((self.axes[a], -1), (self.inner, -2))]
        return [*self.axes[:a], *self.axes[a + 1:-1], *tiles]

    def _tiles(self, machine: Machine) -> Across | None:
        if self.inner.size < SHORTEST or (found := self.lying_across(SHORTEST, 2)) is None:
            return None
        at, turned = found
        small = max(self.sizes[k] for k in turned) <= 2 and min(self.axes[at].size, self.inner.size) >= 2 * SIDE
        side = 2 * SIDE if small else SIDE
        return Across(at, turned, side) if sum(self.sizes[k] for k in turned) * side ** 2 * 9 // 8 <= machine.tile else None

    @property
    def _operations(self) -> int:
        return self.facts.operations + 7 * self.facts.functions

    def _width(self, machine: Machine) -> int:
        """How many neighbours a thread computes."""
        inner, alone = self.inner, len(self.axes) == 1
        if any(inner.strides[k] not in (0, self.sizes[k]) for k in self.moved):
            return 1
        moving = [k for k in self.moved if inner.strides[k]]
        v = max(1, machine.vector // max(self.sizes[k] for k in moving)) if moving else 1
        while v > 1 and (v * self._operations > LONGEST or (not alone and not self.divides(v, inner.size, self.axes[:-1], moving))):
            v //= 2
        return 1 if alone and inner.size < v else v

    def _rounds(self) -> int:
        """How many times a thread computes neighbours: a machine's memory is busy when enough is on its way at once."""
        v, size, read = self.v, size_of(tuple(a.size for a in self.axes)), 0
        for k in range(self.outs, len(self.sizes)):
            if k in self.gathered:
                read += v * self.sizes[k]
            elif k in self.used and size_of(tuple(a.size for a in self.axes if a.strides[k])) * CACHED >= size:
                read += v * self.sizes[k] if self.inner.strides[k] else self.sizes[k]
        if size < BIG or not read or self.outs > 2 or (v > 1 and (self.outs > 1 or len(self.axes) > 3)):
            return 1
        u = 1
        while u < (4 if v > 1 else 8) and u * read < WANTED * (2 if v > 1 else 1) and 2 * u * v * self._operations <= LONGEST:
            u *= 2
        return u


# ------------------------------------------------------------------------------------------------------------ by vectors
SEGMENT = 1 << 15  # the longest stretch of a row in one unit
BAND = 64  # places along the inputs' axis that a unit of tiles has
MOST_NODES = 24  # every tile holds the whole formula once for each of its lines
STREAM_BYTES = 16 << 20  # outputs from this size on go past the caches
FEW_ROWS = 8  # along an axis
NEAR_BYTES = 1 << 14  # of memory that an axis lies over, half of the first cache
FLAT_MULTIPLE = 64  # of elements, in a unit of one axis
LONGEST_KEPT = 1 << 12  # elements of a row whose values are kept for the rows after it, of which a thread should have
ROWS_KEPT = 4  # at least,
STEPS_KEPT = 3  # where they take so many operations,
MOST_KEPT = 4  # of them: they lie on the thread's stack


class Dense:
    """The loop of a map over memory whose elements lie one after another, for all operands: what `ByVectors` finds there, from the number of elements."""

    __slots__ = ("elements", "sizes", "streams", "chunk", "parallel")

    def __init__(self, elements: int, sizes: tuple[int, ...], found: Facts, outs: int) -> None:
        self.elements, self.sizes = elements, sizes
        ns = found.cost(elements * sum(sizes), elements)
        self.streams = elements * max(sizes[:outs]) >= STREAM_BYTES
        self.chunk, self.parallel = chunk_of(elements, ns, FLAT_MULTIPLE), ns > PARALLEL_NS


def most_alone(program: Map) -> int:
    """How many elements such a loop may have that one thread does, and that stays in the caches."""
    sizes = [d.itemsize for d in program.out_types + program.inputs]
    return min(int(PARALLEL_NS / max(facts(program).cost(sum(sizes), 1), 1e-3)), STREAM_BYTES // max(sizes) - 1)


def dense_of(program: Map, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Dense | None:
    """None where some operand has another layout, or elements are not met at their own places."""
    first, found = strides[0], facts(program)
    if found.coords or False in found.placed or not all(s is first or s == first for s in strides) or not is_contiguous(domain, first):
        return None
    elements = size_of(domain)
    outs = len(program.out_types)
    return None if elements == 1 else Dense(elements, tuple([d.itemsize for d in program.out_types + program.inputs]), found, outs)


class ByVectors(MapLoops):
    """Vectors along the innermost axis.

    form: "flat", one axis, a unit is an element; "row", "rows", one or several outer axes, a unit is a stretch of `length` elements of the
    innermost, which has `segments` of them; "tiles", squares that are turned in registers, a unit is a band of BAND places along the
    inputs' axis over all of the innermost.
    classes: how each operand steps along the innermost axis ("t": it is turned); outer: the other axes, innermost first; places: where
    the coordinates asked for are (axis, its number from the innermost; None: it has one place); streams: whether outputs go past the
    caches; units, chunk: how many there are, and how many a thread is handed; parallel: whether to use threads.
    """

    def __init__(self, program: Map, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> None:
        super().__init__(program, domain, strides)
        nbytes, _ = price(program, domain, tuple(self.steps))
        self.ns = self.facts.cost(nbytes, self.elements)
        self.parallel = self.ns > PARALLEL_NS
        self.outer, self.segments, self.length = self.axes[-2::-1], 1, self.inner.size
        self.across: Across | None = None
        if not self._turns(program):
            if len(self.axes) > 2 and not self.ordered:
                self._lengthen()
            self._lines()
        self.places = tuple((d, next((k for k, a in enumerate(reversed(self.axes)) if a.source == d), None)) for d in self.coords)
        self.still: tuple[bool, ...] = ()
        if self.across is None and self.outer and self.segments == 1:
            self._repeats(program)

    def _repeats(self, program: Map) -> None:
        """Has what each row works out alike kept from row to row."""
        if not SHORTEST <= self.inner.size <= LONGEST_KEPT or self.chunk < ROWS_KEPT:
            return
        still = tuple([not any(a.strides[k] for a in self.outer) for k in range(len(self.types))])
        if any(still[self.outs:]) and repeated(program.roots(), self.types, self.outs, still, dict(self.places), self.rank, self.ordered):
            self.still = still

    def _lengthen(self) -> None:
        """Has the longer of the two axes outside of the innermost walked first, where that stays in the first cache: along it a row costs the least."""
        *rest, far, near, inner = self.axes
        if near.size < FEW_ROWS and far.size >= 2 * near.size and all(abs(s) * far.size <= NEAR_BYTES for s in far.strides):
            self.axes = [*rest, near, far, inner]
            self.outer = self.axes[-2::-1]

    def _lines(self) -> None:
        elements, inner, outer = self.elements, self.inner, self.outer
        self.classes = ("1",) * len(self.types) if self.single else self.step_classes(inner)
        large = any(c == "1" and elements * size >= STREAM_BYTES for c, size in zip(self.classes[:self.outs], self.sizes))
        self.form, self.units, multiple = "flat", elements, FLAT_MULTIPLE
        if outer:
            self.form, multiple = "row" if len(outer) == 1 else "rows", 1
            segments = -(-inner.size // SEGMENT)
            self.length = -(-inner.size // (segments * 64)) * 64 if segments > 1 else inner.size
            self.segments = -(-inner.size // self.length)
            large = large and all(s % 64 == 0 for a in outer for s, c in zip(a.strides, self.classes[:self.outs]) if c == "1")
            self.units = elements // inner.size * self.segments
        self.streams = large and not self.ordered
        self.chunk = self.units if self.ordered else chunk_of(self.units, self.ns, multiple)

    def _turns(self, program: Map) -> bool:
        """Whether tiles are better, which it then plans."""
        inner, outs, sizes = self.inner, self.outs, self.sizes
        if self.ordered or self.coords or len(self.axes) < 2 or self.facts.operations > MOST_NODES or self.facts.gathers:
            return False
        side = side_of(program)
        if inner.size < side or any(s != b for s, b in zip(inner.strides[:outs], sizes)) or (found := self.lying_across(side, 0)) is None:
            return False
        self.across = Across(*found, side)
        line = self.axes[self.across.axis]
        self.classes = tuple("t" if k in self.across.operands else c for k, c in enumerate(self.step_classes(inner)))
        self.outer = [a for a in self.outer if a is not line]
        self.form, self.units, elements = "tiles", -(-line.size // BAND), inner.size * line.size
        for a in self.outer:
            self.units, elements = self.units * a.size, elements * a.size
        self.streams = (all(s % 64 == 0 for a in self.axes[:-1] for s in a.strides[:outs]) and side * min(sizes[:outs]) >= 64
                        and any(elements * b >= STREAM_BYTES for b in sizes[:outs]))
        self.chunk, self.parallel = chunk_of(self.units, 2 * self.ns), 2 * self.ns > PARALLEL_NS
        return True


def repeated(roots: tuple[Expr, ...], types: Sequence[dtype], outs: int, still: Sequence[bool], places: Mapping[int, int | None], rank: int,
             ordered: bool) -> list[Expr]:
    """The expressions whose values change along a row but are those of every row, and which take more than a few operations; still: whether operands
    lie in each row where they lie in the first; ordered: what is written may be read."""
    steps: dict[Expr, int] = {}  # of those that are the same in each row, -1: of others
    moves: set[Expr] = set()
    for e in walk(roots):
        if e.op == "input":
            known = still[outs + e.value] and not (ordered and types[outs + e.value] in types[:outs])
        elif e.op == "coord":
            known = not places.get(e.value % rank)
        else:
            known = e.op != "gather" and all(steps[a] >= 0 for a in e.args)
        steps[e] = sum(steps[a] for a in e.args) + bool(e.args) + STEPS_KEPT * (e.op in FUNCTIONS) if known else -1
        if e.op == "input" or e.op == "coord" and places.get(e.value % rank) == 0 or any(a in moves for a in e.args):
            moves.add(e)
    tops = dict.fromkeys([*(a for e in walk(roots) if steps[e] < 0 for a in e.args), *roots])
    return [e for e in tops if steps[e] >= STEPS_KEPT and e in moves][:MOST_KEPT]


def side_of(program: Map) -> int:
    """Of the tiles that are turned in registers."""
    widest = max([e.dtype.itemsize for e in walk(program.roots())] + [d.itemsize for d in program.inputs])
    return 8 if widest >= 8 else 16

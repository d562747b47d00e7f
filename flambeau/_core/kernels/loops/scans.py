"""The loops of a scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import int64
from ..complexes import PairScan
from ..programs import price, size_of
from .accumulators import arrays, held_in
from .operands import Operands
from .stages import PARALLEL_NS, Stage, chunk_of, even_width, lanes_of

if TYPE_CHECKING:
    from ...dtypes import dtype
    from ..programs import Scan
    from .machine import Machine

BLOCK = 128  # threads of a block that has several rows
BATCH = 8  # elements that a thread with a row of its own reads before it goes on
SHORTEST = 4 * BATCH  # elements of a piece of such a row
MOST = 4096  # pieces of such a row
WAIT = 1.0  # microseconds for a batch to arrive and be written
SECTOR = 32  # bytes that memory brings at least
STRIP = 32  # rows that lie side by side of which a block has all elements
WARPS = 16  # of such a block
VARIABLES = 16  # registers for the running values of a thread's elements


class Shape:
    """Who scans a row of n elements: lanes of a warp, or several warps; each thread has `rounds` times v neighbours of a tile."""

    __slots__ = ("lanes", "warps", "rounds", "v")

    def __init__(self, n: int, v: int, itemsize: int, variables: int) -> None:
        self.v = v
        need, most = -(-n // v), max(1, min(4, VARIABLES // (v * variables)))
        most = 1 << most.bit_length() - 1
        self.lanes, self.warps = 1, 1
        # few rounds, and lanes that read whole sectors
        while self.lanes < 32 and (self.lanes * most < need or (self.lanes < need and self.lanes * v * itemsize < SECTOR)):
            self.lanes *= 2
        while self.warps < 8 and self.warps * 32 * most < need and 2 * self.warps * most <= 32:
            self.warps *= 2
        rounds = -(-need // (self.lanes * self.warps))
        self.rounds = min(most, 1 << (rounds - 1).bit_length())  # a power of two, so that few different kernels are made

    @property
    def members(self) -> int:
        return self.lanes * self.warps

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps if self.warps > 1 else BLOCK

    @property
    def rows(self) -> int:
        """Of a block."""
        return 1 if self.warps > 1 else BLOCK // self.lanes

    @property
    def tile(self) -> int:
        return self.members * self.rounds * self.v


class ScanLoops(Operands):
    """outer: the axes from row to row; inner: the scanned one; parts: how many values an element brings; how: they combine."""

    def __init__(self, program: Scan, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> None:
        if not domain:
            domain, strides = (1,), tuple((0,) for _ in strides)
        super().__init__(program, domain, strides)
        self.outer, self.inner = self.walk(range(self.rank - 1)), self.along(self.rank - 1)
        self.rows, self.length = size_of(domain[:-1]), domain[-1]
        self.parts = 2 if isinstance(program, PairScan) else 1
        self.how = program.combine[self.parts - 1:]
        self.positions = self.how in ("max", "min")  # the running value has a position behind it


class ByThreads(ScanLoops):
    """across: a thread for each row, or piece of one; else lanes along the row, by the tiles of `shape`.  strips: a block for each `STRIP` rows that lie
    across, whose warps share their elements.

    state: bytes of the running value's parts; pieces: a row is cut into so many, of `piece` elements, whose totals go through the
    workspace, whose arrays begin at `rooms`; middle: who turns the totals of a row into what comes before each piece, where threads have rows of their own.
    """

    def __init__(self, program: Scan, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], machine: Machine) -> None:
        super().__init__(program, domain, strides)
        n, m, self.machine = self.length, machine, machine
        self.wide = self.is_wide([*self.outer, self.inner], 1 << 20)
        self.state = [held_in(program.elem.dtype).itemsize] * self.parts + [8 if self.wide else 4] * self.positions
        self.variables = sum(max(1, size // 4) for size in self.state) * (4 if self.how == "logsumexp" else 1)  # its joins are long
        self.piece = n
        moves = n * sum(size for k, size in enumerate(self.sizes) if self.inner.strides[k])
        reads = n * sum(self.sizes[k] for k in self.used if self.inner.strides[k])
        self.across = self.rows_across(self.outer, self.inner)
        self.shape: Shape | None = None
        self.strips = False
        if self.across:
            pieces = min(m.cores * 1024 // self.rows, n // SHORTEST, MOST)
            whole = max(n / BATCH * WAIT, self.rows * moves / m.together)
            if pieces > 1 and max(2 * n / pieces / BATCH * WAIT, self.rows * (moves + reads) / m.together) + 2 * m.launch < whole:
                # blocks enough for the machine need no pieces, whose elements are read twice
                self.strips = self.rows >= STRIP * m.cores
                self.piece = n if self.strips else -(-n // pieces)
        else:
            self.shape = Shape(n, self._width(), max(self.sizes), self.variables)
            blocks = -(-self.rows // self.shape.rows)
            pieces = min(4 * m.cores // blocks, n // self.shape.tile)
            if self.shape.warps > 1 and pieces > 1 and (
                    self.rows * (moves + reads) / m.together + m.launch < -(-blocks // m.cores) * self.shape.rows * moves / m.alone):
                tiles = -(-n // self.shape.tile)
                self.piece = -(-tiles // pieces) * self.shape.tile
        self.pieces = -(-n // self.piece) if n else 1
        self.rooms, room = arrays(self.state, self.rows * self.pieces, 256)
        self.workspace = room if self.pieces > 1 else 0
        if self.across and self.pieces > 1:
            self.middle = Shape(self.pieces, 1, 4, self.variables)

    def _width(self) -> int:
        """How many neighbours a thread reads at once."""
        moving = [k for k in (*self.used, *range(self.outs)) if self.inner.strides[k]]
        if not moving:  # a single element: a scalar's, or a row of one
            return 1
        if any(self.inner.strides[k] != self.sizes[k] for k in moving):
            return 1
        v: int = max(1, self.machine.vector // max(self.sizes[k] for k in ([k for k in moving if k >= self.outs] or moving)))
        while v > 1 and (self.length < v or v * self.variables > VARIABLES or not self.begins(v, self.outer, moving)):
            v //= 2
        return v


# ------------------------------------------------------------------------------------------------------------ by vectors
TILE = 2  # vectors side by side where every lane has a row
PIECE = 1 << 15  # elements of a piece of a long row
FEW_ROWS = 8


class ByVectors(ScanLoops):
    """across: every lane has a row of its own; else vectors lie along the row.

    stage: its axes; where rows are cut into pieces, those are its tiles, and their totals lie in arrays of (row, piece) of the workspace
    that begin at `rooms`, one for each part of the running value.  chunk: units that a thread is handed; parallel: whether to use threads.
    """

    def __init__(self, program: Scan, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> None:
        super().__init__(program, domain, strides)
        elements, operands, outer, inner = size_of(self.domain), len(self.types), self.outer, self.inner
        nbytes, _ = price(program, self.domain, tuple(self.steps))
        ns, lanes = self.facts.cost(nbytes, elements) + elements, scan_lanes(program)
        # a vector along the row joins its own lanes, which takes more steps than a row in every lane, whose elements are read one by one; where each
        # is an exponential and a logarithm, that is worth any rows
        short = inner.size if program.combine == "logsumexp" else 2 * lanes - 1
        self.across = self.rows_across(self.outer, self.inner, lanes, short)
        self.rooms: list[int] = []
        rows = size_of(tuple(a.size for a in outer))
        if self.across:
            self.stage = Stage(operands, outer[-1], inner, outer[:-1], width=even_width(outer[-1].size, TILE * lanes, lanes))
        elif rows > FEW_ROWS or inner.size < 4 * PIECE:
            self.stage = Stage(operands, inner, None, outer)
        else:
            self.stage = Stage(operands, inner, None, outer, width=PIECE)
            self.pieces = self.stage.tiles
            self.rooms, self.workspace = arrays([d.itemsize for d in state_types(program)], self.stage.units, 64)
        self.chunk, self.parallel = chunk_of(self.stage.units, ns), ns > PARALLEL_NS


def scan_lanes(program: Scan) -> int:
    """The lanes of its vectors."""
    return min(lanes_of((program.elem,)), 16)


def state_types(program: Scan) -> list[dtype]:
    """The type of the running value, and of its position for max and min."""
    return [program.elem.dtype, int64] if program.combine in ("max", "min") else [program.elem.dtype]

"""The loops of a row program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import expr as E
from ..c_forms import half
from ..expr import make, rebuild, walk
from ..programs import price, size_of
from .accumulators import EXPSUM, arrays, flat_types, held_in
from .operands import Operands
from .stages import PARALLEL_NS, Stage, by_blocks, chunk_of, even_width, lanes_of
from .thread_groups import Group
from .walk import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..expr import Expr
    from ..programs import Rows
    from .machine import Machine

    Part = tuple[str, Any, Expr]

KEPT = 16  # elements of a row a thread keeps of each operand
THREADS = 512  # of a block that has a piece of a row


def passes_of(stages: Sequence[Part], mixed: bool) -> list[list[Part]]:
    """The stages that one pass over the row can do together: reductions that need none of each other's results, or what follows them;
    mixed: whether maps and values a row may be one pass."""
    out: list[list[Part]] = []
    accs = first = 0
    for stage in stages:
        kind = stage[0]
        before = out[-1][-1][0] if out else ""
        if kind == "reduce":
            needs = max((e.value for e in walk((stage[2],)) if e.op == "acc"), default=-1)
            # "" is the second part of the one before, a complex number's
            if before != "reduce" or (stage[1] and needs >= first):
                out.append([])
                first = accs
            accs += 1
        elif before == "reduce" or not out or (before != kind and not mixed):
            out.append([])
        out[-1].append(stage)
    return out


def in_one_pass(stages: Sequence[Part]) -> Sequence[Part]:
    """The stages where a maximum and the sum of exp(x - maximum) are one accumulator of two parts, of elements x; others as they are."""
    reduces = [at for at, s in enumerate(stages) if s[0] == "reduce"]
    for number, at in enumerate(reduces):
        x = stages[at][2]
        wanted = E.exp(x - E.acc(number, x.dtype)) if stages[at][1] == "max" and x.dtype.kind == "f" and not half(x.dtype) else None
        later = next((k for k in reduces[number + 1:] if stages[k][1] == "sum" and stages[k][2] is wanted), None)
        if later is None:
            continue
        # the second part stands behind the first, so accumulators between have other numbers
        order = [*reduces[:number + 1], later, *(k for k in reduces[number + 1:] if k != later)]
        names = {E.acc(old, stages[k][2].dtype): E.acc(order.index(k), stages[k][2].dtype) for old, k in enumerate(reduces)}
        out: list[Part] = []
        for k, (kind, how, e) in enumerate(stages):
            if k == at:
                out += [(kind, EXPSUM, x), (kind, "", x)]
            elif k != later:
                out.append((kind, how, rebuild((e,), names.get)[0]))
        return out
    return stages


class RowLoops(Operands):
    """outer: the axes from row to row; inner: the row's; rows, length: how many and how long."""

    def __init__(self, program: Rows, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> None:
        super().__init__(program, domain, strides)
        for kind, k, _ in program.stages:
            if kind == "row":
                self.steps[k] = (*self.steps[k][:self.rank - 1], 0)
        self.outer, self.inner = self.walk(range(self.rank - 1)), self.along(self.rank - 1)
        self.rows, self.length = size_of(domain[:-1]), domain[-1]


class ByThreads(RowLoops):
    """A group of threads for each row.

    passes: see `passes_of`.
    way: how the row is held: "registers", "shared" memory, or it is read "again" by each pass; "pieces": blocks have a piece of it each,
    a launch for each pass, whose accumulators go through the workspace (`states`: where, for each pass and accumulator part).
    each: elements of the row per thread that are kept; v: neighbours read at once; rounds: how often a thread does so where the row is in
    registers; cached: the operands kept; shared: bytes of shared memory; piece, pieces: elements of a piece, and how many.
    """

    def __init__(self, program: Rows, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], machine: Machine) -> None:
        super().__init__(program, domain, strides)
        self.machine = machine
        self.wide = self.is_wide([*self.outer, self.inner], 1 << 20)
        self.moves = [k for k in range(len(self.sizes)) if self.inner.strides[k]]
        self._pass_by(program.stages)
        self.registers = max((2 if e.dtype.itemsize == 8 else 1) for e in walk(program.roots()))
        self.piece = self.length
        self.states: list[list[int]] = []
        self._whole()
        self._cut()
        # a row that is kept is read once in any case
        if machine.expsums and self.way in ("again", "pieces"):
            self._pass_by(in_one_pass(program.stages))
        if self.way == "pieces":
            self._hold()

    def _pass_by(self, stages: Sequence[Part]) -> None:
        self.passes = passes_of(stages, mixed=True)
        self.uses = [{self.outs + e.value for s in p for e in walk((s[2],)) if e.op == "input" and self.inner.strides[self.outs + e.value]}
                     for p in self.passes]

    def _whole(self) -> None:
        """The plan for rows that are not cut."""
        n, most = self.length, self.machine.values
        asked = [k for k in self.used if sum(k in u for u in self.uses) > 1]
        self.each = KEPT
        while self.each > 1 and self.each * self.registers * max(2, len(asked)) > most:
            self.each //= 2
        if self.rows_across(self.outer, self.inner):
            y = 1
            while y < 32 and y * 4 < n:
                y *= 2
            self.group = Group("across", 32 if y > 1 else 128, y)
        elif n <= 32 * self.each:
            self.group = Group("warp", 32, 4)
        else:
            x = 128
            while x < self.machine.block and x * self.each < n:
                x *= 2
            self.group = Group("block", x, 1)
        self.v = self._width()
        step = self.group.size * self.v
        rounds = -(-n // step) if n else 0
        room = sum(-(-n * self.sizes[k] // 16) * 16 for k in asked)
        self.rounds, self.shared, self.cached = rounds, 0, []
        if n <= self.group.size * self.each:
            self.way, self.cached = "registers", asked
            self.rounds = 1 << (rounds - 1).bit_length() if rounds else 0  # a power of two, so that few different kernels are made
        elif self.group.kind == "block" and 0 < room <= self.machine.shared:
            self.way, self.cached, self.shared = "shared", asked, room
        else:
            self.way = "again"
            if self.group.kind == "block":
                self.v = self._width(ragged=True)

    def _cut(self) -> None:
        """Pieces instead, where those are faster."""
        if not any(p[0][0] == "reduce" for p in self.passes):
            return
        m = self.machine
        x = min(32, 1 << (self.rows - 1).bit_length())
        group = Group("across", x, THREADS // x) if self.rows_across(self.outer, self.inner) else Group("block", THREADS, 1)
        blocks, together = -(-self.rows // group.rows), 2 * m.cores  # blocks that run at once, with up to 64 registers a thread
        before = self.group, self.each, self.v
        self.group, self.each = group, KEPT
        self.v = self._width(ragged=True)
        step = group.size * self.v
        most = min(-(-self.length // step), max(1, 16 * together // blocks))

        def rounds(pieces: int) -> float:
            n = -(-blocks * pieces // together)
            return n * (1 + n / 50) / pieces
        pieces = min(range(1, most + 1), key=rounds, default=1)
        share, alone = -(-self.length // pieces), -(-self.rows // before[0].rows)
        piece = max(1, -(-share // step)) * step
        pieces = -(-self.length // piece) if self.length else 1
        whole = -(-alone // m.cores) * before[0].rows * self.moved(self.cached) / m.alone
        if pieces < 2 or self.rows * self.moved([]) / m.together + m.launch * len(self.passes) >= whole:
            self.group, self.each, self.v = before
            return
        self.way, self.rounds, self.shared, self.cached = "pieces", 1, 0, []
        self.piece, self.pieces = piece, pieces

    def _hold(self) -> None:
        """Room in the workspace for what the pieces accumulate."""
        for p in self.passes:
            hows = [s[1] for s in p if s[0] == "reduce"]
            sizes = [held_in(d).itemsize for d in flat_types([s[2].dtype for s in p if s[0] == "reduce"], hows)]
            places, room = arrays(sizes, self.rows * self.pieces, 256)
            self.states.append([self.workspace + at for at in places])
            self.workspace += room

    def order(self) -> tuple[Any, ...] | None:
        """What the order of its sums follows from: two that sum the same elements and agree in it give the same bits. None where it is not known."""
        if self.way == "pieces":
            return None
        sums = tuple([tuple([part[1] for part in p if part[0] == "reduce"]) for p in self.passes])
        return self.way, self.group.key, self.v, self.length, self.rounds, tuple([s for s in sums if s])

    def _width(self, ragged: bool = False) -> int:
        """How many neighbours a thread reads and writes at once; ragged: rows may begin and end between them."""
        if self.group.kind == "across" or not self.moves or any(self.inner.strides[k] != self.sizes[k] for k in self.moves):
            return 1
        v = max(1, self.machine.vector // max(self.sizes[k] for k in self.moves))
        while v > 1 and (self.length < v * self.group.size or v > self.each
                         or not ragged and not self.divides(v, self.length, self.outer, self.moves)):
            v //= 2
        return v

    def moved(self, once: Sequence[int]) -> int:
        """Bytes that a row moves; once: the operands that are read once, not by each pass."""
        read = sum(self.sizes[k] * (1 if k in once else sum(k in u for u in self.uses)) for k in self.used if self.inner.strides[k])
        return self.length * (read + sum(self.sizes[k] for k in range(self.outs) if self.inner.strides[k]))


# ------------------------------------------------------------------------------------------------------------ by vectors
STREAM_BYTES = 32 << 20  # outputs from this size on go past the caches
TILE = 4  # vectors side by side where every lane has a row
SHORTEST = 8  # rows up to here have a lane each though they are read element by element: it costs less than joining the lanes of vectors
BLOCK_VECTORS = 16  # of the longest rows that are joined side by side


class ByVectors(RowLoops):
    """across: every lane has a row of its own, a unit is a tile of such rows; else vectors lie along the row, a unit is a row, which stays
    in the cache from pass to pass; blocks: rows are short, and as many as a vector has lanes are joined side by side, a unit is a stretch of
    rows.  stage: its axes; streams: the outputs that go past the caches; chunk: units that a thread is handed;
    parallel: whether to use threads."""

    def __init__(self, program: Rows, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> None:
        super().__init__(program, domain, strides)
        nbytes, _ = price(program, domain, tuple(self.steps))
        ns, lanes = self.facts.cost(nbytes, size_of(domain)), lanes_of(program.roots())
        operands, outer, inner = len(self.types), self.outer, self.inner
        self.across = self.rows_across(self.outer, self.inner, lanes, min(SHORTEST, lanes * 3 // 4))
        self.streams: tuple[int, ...] = ()
        found = None if self.across else by_blocks(operands, inner, outer, lanes, BLOCK_VECTORS * lanes)
        self.blocks = found is not None
        if found is not None:
            self.stage = found
        elif self.across:
            self.stage = Stage(operands, outer[-1], inner, outer[:-1], width=even_width(outer[-1].size, TILE * lanes, lanes))
        else:
            self.stage = Stage(operands, inner, None, outer)
            self.streams = tuple(
                k for k, size in enumerate(self.sizes[:self.outs])
                if inner.strides[k] == size and size_of(domain) * size >= STREAM_BYTES and inner.size % lanes == 0
                and all(a.strides[k] % 64 == 0 for a in outer))
        self.chunk, self.parallel = chunk_of(self.stage.units, ns), ns > PARALLEL_NS


def kept_value(passes: Sequence[Sequence[Part]], outs: int, contiguous: Sequence[bool]) -> tuple[int, int, Expr, Expr] | None:
    """A costly value that a reduction needs and the final map needs again, to be kept in the map's output meanwhile.

    contiguous: the outputs that are so along the lanes.
    Gives (the reduction's pass, the output, the value, the map's expression over that output, read as the input number
    output - outs).  None where there is no such value, or where the map needs other elements of the row besides: those
    may share memory with the output.
    """
    if not passes or passes[-1][0][0] != "map" or len(passes[-1]) != 1:
        return None
    _, out, result = passes[-1][0]
    if not contiguous[out]:
        return None
    costly: set[Expr] = set()
    for e in walk((result,)):
        if e.op in FUNCTIONS or any(a in costly for a in e.args):
            costly.add(e)
    for at in range(len(passes) - 2, -1, -1):
        kind, roots = passes[at][0][0], tuple(s[2] for s in passes[at])
        if kind == "map":
            return None
        if kind == "row":
            if any(e.op in ("input", "gather") for e in walk(roots)):
                return None
            continue
        shared = [e for e in walk(roots) if e in costly and e.dtype is result.dtype]
        for value in reversed(shared):
            spot = make("input", value.dtype, (), out - outs)
            (rest,) = rebuild((result,), {value: spot}.get)
            if all(e is spot for e in walk((rest,)) if e.op in ("input", "gather")):
                return at, out, value, rest
        return None  # this reduction reads the row, which the kept values may have overwritten
    return None

"""Maps whose values go to rows at offsets of their own, as the gradient of a table of rows does.

Where the program knows axes along which offsets never meet (`Map.apart`), and offsets are a part that depends on the other axes plus
a part of coordinates along those, only the first parts are sorted: one for each row, not for each element.  Threads side by side
then take elements side by side of all rows of one offset, in the domain's order, computing their values as they go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...expr import walk
from ...loops.operands import NARROW
from ...programs import size_of
from ..lower import from_stored, leaves, to_stored
from ..types import stored, value
from ..writer import Walk
from .scatter import FEW, THREADS, Sorting, bring

if TYPE_CHECKING:
    from ...expr import Expr
    from ...kernel import Launch
    from ...loops.maps import MapLoops
    from ...programs import Map
    from ..lower import Leaf
    from ..writer import Writer

FEW_ROWS = 64  # rows that are not sorted
PIECE = 32  # rows of one offset that a thread takes one after another


def fits(program: Map, loops: MapLoops) -> bool:
    """Whether all outputs go by rows."""
    rank, outs, domain = loops.rank, loops.outs, loops.domain
    apart = {a % rank for a in program.apart} if rank else set()
    if not apart or size_of(tuple(domain[a] for a in apart)) < 2:
        return False
    offsets = {t[1] if t is not None else None for t in program.targets}
    if len(offsets) != 1 or None in offsets:
        return False
    (offset,) = offsets
    assert offset is not None
    depends: dict[Expr, set[int]] = {}
    for e in walk((offset,)):
        found = {x for a in e.args for x in depends[a]}
        if e.op == "input":
            found = {k for k, (n, s) in enumerate(zip(domain, loops.steps[outs + e.value])) if n > 1 and s}
        elif e.op == "coord":
            found = {e.value % rank}
        depends[e] = found

    def splits(e: Expr) -> bool:
        """Whether it is a sum of parts along the rows, and parts of their coordinates."""
        if not depends[e] & apart or depends[e] <= apart and all(x.op not in ("input", "gather") for x in walk((e,))):
            return True
        if e.op == "add":
            return splits(e.args[0]) and splits(e.args[1])
        if e.op == "mul":
            return any(not depends[a] and splits(b) for a, b in (e.args, e.args[::-1]))
        return False
    return splits(offset)


class ScatterRows(Sorting):
    def __init__(self, w: Writer, program: Map, loops: MapLoops, numbers: int) -> None:
        self.w, self.program, self.numbers = w, program, numbers
        self.rank, self.outs, self.sizes, domain = loops.rank, loops.outs, loops.sizes, loops.domain
        apart = sorted({a % self.rank for a in program.apart})
        kept = [a for a in range(self.rank) if a not in apart]
        self.rows, self.along = (loops.walk(axes, reorder=False, outputs_first=True) for axes in (kept, apart))
        self.n, self.width = size_of(tuple(domain[a] for a in kept)), size_of(tuple(domain[a] for a in apart))
        self.wide = loops.is_wide(self.rows + self.along, THREADS)
        self.place = "long long" if self.n >= NARROW // 2 else "int"
        self.sizeof = 8 if self.place == "long long" else 4
        self.at: dict[str, int] = {}
        self.workspace = 0
        self.plan_keys(w.unit)
        self.sorted = self.n > FEW_ROWS or self.n * self.width > FEW * FEW_ROWS
        self.room("keys0", self.key_size)
        if self.sorted:
            self.room_to_sort()
        self.plan_joins(PIECE, self.width)
        target = program.targets[0]
        assert target is not None
        self.offset = target[1]

        # each thread has several elements of a row, a block apart; narrow rows share a block
        self.rounds = 4 if self.width > 64 else 2 if self.width > 32 else 1
        self.x = min(THREADS, 1 << (-(-self.width // self.rounds) - 1).bit_length())
        self.parts = -(-self.width // (self.x * self.rounds))

    def write(self) -> tuple[str, tuple[Launch, ...], int]:
        w, blocks = self.w, -(-self.n // THREADS)
        functions, launches = [("scatter_keys", THREADS, self._keys())], [("scatter_keys", blocks, THREADS)]
        last = "a"
        if self.sorted:
            more, sorts, last = self.sort(0)
            functions += more
            launches += sorts
        for level, (count, _) in enumerate([(self.n, 1), *self.joins]):
            w.lines = []
            name = f"scatter_join_{level}" if level else "scatter_rows"
            functions.append((name, THREADS, self._apply(last, level)))
            launches.append((name, -(-count // (THREADS // self.x)) * self.parts, THREADS))
        return *self.source(functions, launches), self.workspace

    def _leaf(self, pointers: dict[int, str], names: dict[int, str], rows: dict[int, str], along: dict[int, str], coords: dict[int, str]) -> Leaf:
        w = self.w

        def read(k: int) -> str:
            return w.load(pointers[k], " + ".join(x[k] for x in (rows, along) if k in x) or "0", w.types[k])
        return leaves(w, self.outs, self.rank, read, coords, names, pointers)

    def _keys(self) -> list[str]:
        """The offset of each row's first element."""
        w = self.w
        used = list(range(self.outs, len(self.sizes)))
        pointers, names = {k: w.pointer(k) for k in used}, w.numbers(self.numbers)
        i, _ = self.element()
        rows, coords = Walk(w, self.rows, self.wide).places(i, used)
        (key,) = w.lower((self.offset,), self._leaf(pointers, names, rows, {}, coords), {})
        self.write_key(0, i, key)
        return w.lines

    def _apply(self, last: str, level: int) -> list[str]:
        w, p, program, x, rounds = self.w, self.place, self.program, self.x, self.rounds
        used = list(range(self.outs, len(self.sizes)))
        pointers, names = {k: w.pointer(k) for k in range(len(self.sizes))}, w.numbers(self.numbers)
        n = w.let(p, f"({p}){w.word(self.joins[level - 1][0] if level else self.n)}", "n")
        width = w.let("int", f"(int){w.word(self.width)}", "width")
        parts = w.let("int", f"(int){w.word(self.parts)}", "parts")
        block = w.let("int", f"(int)blockIdx.x / {parts}", "block")
        i = w.let(p, f"({p}){block} * {THREADS // x} + (int)threadIdx.x / {x}", "i")
        w.line(f"if ({i} >= {n}) return;")
        t = "long long" if self.wide else "int"
        run = self.begin(0, i, n, last, level)
        first = w.let("int", f"((int)blockIdx.x - {block} * {parts}) * {x * rounds} + ((int)threadIdx.x & {x - 1})", "first")

        def each_round(own_only: bool = False) -> tuple[str, dict[int, str], dict[int, str]]:
            """Opens a loop over the thread's columns: their numbers, where they are, and their coordinates."""
            w.line("#pragma unroll")
            w.line(f"for (int r = 0; r < {rounds}; r++) {{")
            own = w.let("int", f"{first} + r * {x}", "own")
            if own_only:
                w.line(f"if ({own} < {width}) {{")
            # those beyond the end take the last column's values along, and have none of their own
            column = w.let(t, f"{own} < {width} ? {own} : {width} - 1", "column")
            return column, *Walk(w, self.along, self.wide).places(column, used)

        def row(j: str) -> tuple[dict[int, str], dict[int, str]]:
            """Of an element; of pieces any element of the offset will do."""
            at = f"{j} * {self.joins[level - 1][1]}" if level else j
            return Walk(w, self.rows, self.wide).places(w.let(t, f"({t}){f'{run.order}[{at}]' if run.order else at}", "row"), used)

        start, coords = row(i)
        outs = list(range(self.outs))
        joined = {(k, of): self.array(f"joined{k}_{of}", value(w.types[k])) for k in outs for of in (level, level + 1) if 0 < of <= len(self.joins)}
        totals = {k: w.fresh("s") for k in outs}
        nothing = self.nothing(outs)
        for k, name in totals.items():
            w.line(f"{value(w.types[k])} {name}[{rounds}];")

        def offset(along: dict[int, str], columns: dict[int, str]) -> str:
            (text,) = w.lower((self.offset,), self._leaf(pointers, names, start, along, {**coords, **columns}), {})
            return text
        w.line("#pragma unroll")
        w.line(f"for (int r = 0; r < {rounds}; r++) {{")
        for k, name in totals.items():
            w.line(f"{name}[r] = {nothing[k]};")
        w.line("}")
        reads = [k for k in totals if self.mode(k) != "set"] if not level else []
        if reads:
            if run.inner:
                w.line(f"if (!{run.inner}) {{")
            _, along, columns = each_round(True)
            at = offset(along, columns)
            for k in reads:
                d = w.types[k]
                w.line(f"{totals[k]}[r] = {from_stored(w, f'(({stored(d)}*){pointers[k]})[{at}]', d)};")
            for _ in range(3 if run.inner else 2):
                w.line("}")

        def take(j: str) -> None:
            if level:
                column, _, _ = each_round()
                values = [w.let(value(w.types[k]), f"{joined[k, level]}[(long long)({j}) * {width} + {column}]", "x") for k in outs]
            else:
                rows, row_at = row(j)
                _, along, columns = each_round()
                values = w.lower(program.outs, self._leaf(pointers, names, rows, along, {**row_at, **columns}), {}, exact=True)
            for k in outs:
                bring(w, self.mode(k), w.types[k], [f"{totals[o]}[r]" for o in range(k, self.outs)], values[k:])
            w.line("}")
        behind = self.each(i, run, take)
        if run.inner:
            slot = self.part(i, n, run, behind)
            column, _, _ = each_round(True)
            for k, name in totals.items():
                w.line(f"{joined[k, level + 1]}[(long long){slot} * {width} + {column}] = {name}[r];")
            w.line("}")
            w.line("}")
            w.line("} else {")
        _, along, columns = each_round(True)
        at = offset(along, columns)
        for k, name in totals.items():
            d = w.types[k]
            w.line(f"(({stored(d)}*){pointers[k]})[{at}] = {to_stored(w, f'{name}[r]', d)};")
        for _ in range(3 if run.inner else 2):
            w.line("}")
        return w.lines

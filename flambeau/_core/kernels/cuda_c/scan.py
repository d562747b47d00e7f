"""Scans: lanes side by side along a row, or, where neighbours in memory are of different rows, a thread for each row.

A tile of a row is read as vectors of neighbours, several rounds of them on their way at once.  A thread runs over its neighbours,
lanes scan their totals in their warp, and every warp scans the totals of all warps and rounds, so that a tile takes one barrier.
Few long rows are cut into pieces: one launch finds the pieces' totals, the next scans the pieces, each behind the totals of those
before it (threads of their own rows have those summed by a launch between).  So such rows are read twice, others once, and all
are written once.  Where many long rows lie side by side, a block has a strip of them, and all its warps go along it together: they
are read once.  The order depends on the domain alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..loops.scans import BATCH, BLOCK, STRIP, WARPS
from .scan_state import Running
from .thread_groups import Group
from .types import stored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..kernel import Launch
    from ..loops.scans import ByThreads, Shape
    from ..programs import Scan
    from .writer import Writer


def write(w: Writer, program: Scan, loops: ByThreads, numbers: int) -> tuple[str, tuple[Launch, ...], int]:
    """The source, the launches and the bytes of workspace."""
    return _Scan(w, program, loops, numbers).write()


class _Scan(Running):
    def __init__(self, w: Writer, program: Scan, loops: ByThreads, numbers: int) -> None:
        super().__init__(w, program, loops, numbers)
        self.piece, self.pieces, self.columns = loops.piece, loops.pieces, loops.across
        if loops.shape is not None:
            self.shape = loops.shape

    # --------------------------------------------------------------------------------------------------------- writing
    def write(self) -> tuple[str, tuple[Launch, ...], int]:
        parts: list[tuple[str, Callable[[], None], int, tuple[int, int, int]]] = []
        cut = self.pieces > 1
        if self.loops.strips:
            parts.append(("scan", self._by_strips, 32 * WARPS, (-(-self.rows // STRIP), 1, 1)))
        elif self.columns:
            if cut:
                middle = self.loops.middle
                blocks = -(-self.rows // middle.rows)
                parts.append(("scan_totals", lambda: self._by_threads(True), BLOCK, (-(-self.rows * (self.pieces - 1) // BLOCK), 1, 1)))
                parts.append(("scan_starts", self._starts, middle.threads, (blocks, 1, 1)))
            parts.append(("scan", lambda: self._by_threads(False), BLOCK, (-(-self.rows * self.pieces // BLOCK), 1, 1)))
        else:
            blocks = -(-self.rows // self.shape.rows)
            if cut:
                parts.append(("scan_totals", self._totals, self.shape.threads, (blocks, self.pieces - 1, 1)))
            parts.append(("scan", self._by_lanes, self.shape.threads, (blocks, self.pieces, 1)))
        w = self.w
        functions: list[tuple[str, int, Sequence[str]]] = []
        for stem, make, threads, _ in parts:
            w.lines = []
            make()
            functions.append((stem, threads, w.lines))
        source, names = w.source(functions)
        launches = tuple((name, grid, (threads, 1, 1), 0) for name, (_, _, threads, grid) in zip(names, parts))
        return source, launches, self.loops.workspace

    def _arrays(self) -> list[str]:
        """The pieces' totals, or what comes before them; rows that are neighbours are so here."""
        w = self.w
        work = w.let("unsigned char* const", f"(unsigned char*)a.w[{self.numbers - 1}]", "work")
        return [w.let(f"{t}* const", f"({t}*)({work} + {w.word(at)})", "a") for t, at in zip(self.types, self.loops.rooms)]

    def _at(self, row: str, piece: str) -> str:
        w = self.w
        if self.columns:
            return w.let("long long", f"(long long){piece} * {w.word(self.rows)} + {row}", "at")
        return w.let("long long", f"(long long){row} * {w.word(self.pieces)} + {piece}", "at")

    def _bounds(self, number: str) -> tuple[str, str]:
        """Where a piece begins and ends, as the scan meets them."""
        w, t = self.w, self.t
        if self.pieces == 1:
            return "0", self.n
        piece = w.let(t, f"({t}){w.word(self.piece)}", "piece")
        begin = w.let(t, f"({t}){number} * {piece}", "begin")
        return begin, w.let(t, f"{self.n} - {begin} < {piece} ? {self.n} : {begin} + {piece}", "end")

    # --------------------------------------------------------------------------------------------- a thread for each row
    def _by_threads(self, totals: bool) -> None:
        """A row, or a piece of one, for each thread; totals: only what the piece adds up to."""
        w, t = self.w, self.t
        self.pointers_and_numbers()
        count = w.let("long long", f"{w.word(self.rows)} * {w.word(self.pieces - totals)}", "count")
        me = w.let("long long", f"(long long)blockIdx.x * {BLOCK} + threadIdx.x", "me")
        w.line(f"if ({me} >= {count}) return;")
        piece = w.let("long long", f"{me} / {w.word(self.rows)}", "piece") if self.pieces > 1 else "0"
        row = w.let(t, f"({t})({me} - {piece} * {w.word(self.rows)})", "row")
        self.begin_row(row)
        begin, end = self._bounds(piece)
        arrays, at = (self._arrays(), self._at(row, piece)) if self.pieces > 1 else ([], "")
        state = self.declare([f"{a}[{at}]" for a in arrays] if arrays and not totals else self.start())
        i = w.fresh("i")
        w.line(f"for ({t} {i} = {begin}; {i} < {end}; {i} += {BATCH}) {{")
        held = {k: w.fresh("r") for k in self.moving}
        for k, name in held.items():
            w.line(f"{stored(w.types[k])} {name}[{BATCH}];")
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {BATCH}; k++) {{")
        e = self.where(w.let(t, f"{end} - {i} > k ? {i} + k : {end} - 1", "i"))
        for k, name in held.items():
            w.line(f"{name}[k] = *(const {stored(w.types[k])}*)({self.place(k, e)});")
        w.line("}")
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {BATCH}; k++) {{")
        w.line(f"if ({end} - {i} > k) {{")
        elements, e = {k: f"{name}[k]" for k, name in held.items()}, self.where(f"({i} + k)")
        self.join(state, self.brings(elements, e))
        if not totals:
            for k, text in enumerate(self.results(state, elements, e)):
                self.put(k, e, text)
        w.line("}")
        w.line("}")
        w.line("}")
        if totals:
            for a, n in zip(arrays, state):
                w.line(f"{a}[{at}] = {n};")

    def _by_strips(self) -> None:
        """A row for each lane of a block's warps, which have its elements in turn, `BATCH` at a time."""
        w, t = self.w, self.t
        self.pointers_and_numbers()
        lane, warp = (w.let("int", f"(int)threadIdx.x {how}", stem) for how, stem in ((f"& {STRIP - 1}", "lane"), (f"/ {STRIP}", "warp")))
        mine = w.let("long long", f"(long long)blockIdx.x * {STRIP} + {lane}", "mine")
        count = w.let("long long", w.word(self.rows), "count")
        row = w.let(t, f"({t})({mine} < {count} ? {mine} : {count} - 1)", "row")
        self.begin_row(row)
        shared = [w.fresh("m") for _ in self.types]
        for m, kind in zip(shared, self.types):
            w.line(f"__shared__ {kind} {m}[2][{WARPS}][{STRIP}];")
        carry = self.declare(self.start(), "carry")
        side, base = w.fresh("side"), w.fresh("base")
        w.line(f"int {side} = 0;")  # the arrays are written in turn: nobody writes what others may still read
        w.line(f"for ({t} {base} = 0; {base} < {self.n}; {base} += {WARPS * BATCH}, {side} ^= 1) {{")
        i = w.let(t, f"{base} + {warp} * {BATCH}", "i")
        held = {k: w.fresh("r") for k in self.moving}
        for k, name in held.items():
            w.line(f"{stored(w.types[k])} {name}[{BATCH}];")

        def each() -> None:
            w.line("#pragma unroll")
            w.line(f"for (int k = 0; k < {BATCH}; k++) {{")
        each()
        e = self.where(w.let(t, f"{self.n} - {i} > k ? {i} + k : {self.n} - 1", "i"))
        for k, name in held.items():
            w.line(f"{name}[k] = *(const {stored(w.types[k])}*)({self.place(k, e)});")
        w.line("}")
        elements = {k: f"{name}[k]" for k, name in held.items()}
        own = self.declare(self.start(), "own")
        each()
        w.line(f"if ({self.n} - {i} > k) {{")
        self.join(own, self.brings(elements, self.where(f"({i} + k)")))
        w.line("}")
        w.line("}")
        for m, x in zip(shared, own):
            w.line(f"{m}[{side}][{warp}][{lane}] = {x};")
        w.line("__syncthreads();")
        state = self.declare(carry, "first")
        w.line("#pragma unroll")
        w.line(f"for (int g = 0; g < {WARPS}; g++) {{")
        w.line(f"if (g == {warp}) {{")
        for s, c in zip(state, carry):
            w.line(f"{s} = {c};")
        w.line("}")
        self.join(carry, [w.let(kind, f"{m}[{side}][g][{lane}]", "x") for m, kind in zip(shared, self.types)])
        w.line("}")
        each()
        w.line(f"if ({self.n} - {i} > k && {mine} < {count}) {{")
        e = self.where(f"({i} + k)")
        self.join(state, self.brings(elements, e))
        for k, text in enumerate(self.results(state, elements, e)):
            self.put(k, e, text)
        w.line("}")
        w.line("}")
        w.line("}")

    def _starts(self) -> None:
        """Each piece's total gives way to what comes before the piece."""
        w, shape = self.w, self.loops.middle
        row, count = self._row(shape, w.word(self.pieces))
        arrays = self._arrays()
        held = [w.fresh("r") for _ in self.types]

        def read(r: str, i: str, end: str) -> None:
            w.line(f"if ({end} > {i}) {{")
            at = self._at(row, i)
            for h, a in zip(held, arrays):
                w.line(f"{h}[{r}] = {a}[{at}];")
            w.line("}")

        def keep(state: Sequence[str], ahead: Sequence[str], r: str, i: str, k: str) -> None:
            at = self._at(row, i)
            for a, n in zip(arrays, ahead):
                w.line(f"{a}[{at}] = {n};")
        for h, t in zip(held, self.types):
            w.line(f"{t} {h}[{shape.rounds}];")
        end = w.let(self.t, f"{count} - 1", "end")  # of the last, nobody has the total, nor asks for it
        self._tiles(shape, self.pieces, "0", count, self.declare(self.start(), "carry"), lambda r, i: read(r, i, end),
                    lambda r, i, k: [f"{end} > {i} ? {h}[{r}] : {s}" for h, s in zip(held, self.start())], keep, None)

    # -------------------------------------------------------------------------------------------------- lanes along a row
    def _row(self, shape: Shape, length: str) -> tuple[str, str]:
        """The row of this thread and its length: for threads beyond the end the last row, of nothing."""
        w, t = self.w, self.t
        if shape.warps > 1:
            return w.let(t, f"({t})blockIdx.x", "row"), w.let(t, f"({t}){length}", "n")
        n = w.let(t, f"({t}){w.word(self.rows)}", "count")
        mine = w.let(t, f"({t})blockIdx.x * {shape.rows} + ({t})((int)threadIdx.x / {shape.lanes})", "row")
        return w.let(t, f"{mine} < {n} ? {mine} : {n} - 1", "row"), w.let(t, f"{mine} < {n} ? ({t}){length} : 0", "n")

    def _aligned(self) -> str:
        """Whether vectors may be read and written; from the end they begin where whole ones do from there."""
        w, v = self.w, self.shape.v
        if v == 1:
            return ""
        w.need("vec")
        tests = []
        for k in (*self.moving, *range(self.outs)):
            if k in self.by:
                first = f"{self.q[k]} + ({self.n} & {v - 1}) * {self.sizes[k]}" if self.program.reverse else self.q[k]
                tests.append(f"((unsigned long long)({first}) & {v * self.sizes[k] - 1}) == 0")
        return w.let("bool", " && ".join(tests), "aligned")

    def _vector(self, k: int, i: str) -> str:
        """The address of the v neighbours from i on, as the scan meets them."""
        first = f"({self.n} - {self.shape.v} - {i})" if self.program.reverse else i
        return self.place(k, first)

    def _component(self, k: str) -> str:
        return f".v[{self.shape.v - 1} - {k}]" if self.program.reverse else f".v[{k}]"

    def _by_lanes(self) -> None:
        w, shape, v = self.w, self.shape, self.shape.v
        self.pointers_and_numbers()
        row, own = self._row(shape, w.word(self.length))
        self.begin_row(row)
        begin, end = self._bounds("blockIdx.y")
        end = own if self.pieces == 1 else end
        carry = self._before(row) if self.pieces > 1 else self.start()
        aligned = self._aligned()
        held = {k: w.fresh("r") for k in self.moving}
        for k, name in held.items():
            s = stored(w.types[k])
            w.line(f"{s if v == 1 else f'Vec<{s}, {v}>'} {name}[{shape.rounds}];")
        made: dict[int, str] = {}

        def elements(r: str, k: str) -> dict[int, str]:
            return {o: f"{name}[{r}]{self._component(k) if v > 1 else ''}" for o, name in held.items()}

        def read(r: str, i: str) -> None:
            if v > 1 and held:
                w.line(f"if ({aligned} && {end} - {i} >= {v}) {{")
                for o, name in held.items():
                    w.line(f"{name}[{r}] = *(const Vec<{stored(w.types[o])}, {v}>*)({self._vector(o, i)});")
                w.line("} else {")
            w.line("#pragma unroll")
            w.line(f"for (int k = 0; k < {v}; k++) {{")
            w.line(f"if ({end} - {i} > k) {{")
            e = self.where(f"({i} + k)")
            for o, text in elements(r, "k").items():
                w.line(f"{text} = *(const {stored(w.types[o])}*)({self.place(o, e)});")
            w.line("}")
            w.line("}")
            if v > 1 and held:
                w.line("}")

        def bring(r: str, i: str, k: str) -> list[str]:
            return self.brings(elements(r, k), self.where(f"({i} + {k})"))

        def keep(state: Sequence[str], ahead: Sequence[str], r: str, i: str, k: str) -> None:
            e = self.where(f"({i} + {k})")
            for o, text in enumerate(self.results(state, elements(r, k), e)):
                if v > 1 and o in self.by:
                    w.line(f"{made[o]}{self._component(k)} = {text};")
                else:
                    self.put(o, e, text)

        def store(i: str | None) -> None:
            """Room for a round's results, and, with the place of the first, their way to memory."""
            if v == 1:
                return
            outs = [o for o in range(self.outs) if o in self.by]
            if i is None:
                for o in outs:
                    made[o] = w.fresh("y")
                    w.line(f"Vec<{stored(w.types[o])}, {v}> {made[o]};")
                return
            w.line(f"if ({aligned} && {end} - {i} >= {v}) {{")
            for o in outs:
                w.line(f"*(Vec<{stored(w.types[o])}, {v}>*)({self._vector(o, i)}) = {made[o]};")
            w.line("} else {")
            w.line("#pragma unroll")
            w.line(f"for (int k = 0; k < {v}; k++) {{")
            w.line(f"if ({end} - {i} > k) {{")
            e = self.where(f"({i} + k)")
            for o in outs:
                w.line(f"*({stored(w.types[o])}*)({self.place(o, e)}) = {made[o]}{self._component('k')};")
            w.line("}")
            w.line("}")
            w.line("}")
        self._tiles(shape, self.piece, begin, end, self.declare(carry, "carry"), read, bring, keep, store)

    def _tiles(self, shape: Shape, longest: int, begin: str, end: str, carry: list[str], read: Callable[[str, str], None],
               bring: Callable[[str, str, str], list[str]], keep: Callable[[Sequence[str], Sequence[str], str, str, str], None],
               store: Callable[[str | None], None] | None) -> None:
        """Scans from begin to end, tile by tile.

        read(round, place) reads the neighbours of a round; bring(round, place, k) is what its k-th brings; keep(running value with
        it, that before it, round, place, k) takes the result; store(None) and store(place) stand around a round's."""
        w, t, v, lanes, warps, rounds = self.w, self.t, shape.v, shape.lanes, shape.warps, shape.rounds
        member = w.let("int", f"(int)threadIdx.x{f' & {lanes - 1}' if warps == 1 else ''}", "member")
        lane, warp = (w.let("int", f"(int)threadIdx.x {how}", stem) for how, stem in ((f"& {lanes - 1}", "lane"), (">> 5", "warp")))
        shared = [w.fresh("m") for _ in self.types] if warps > 1 else []
        for m, kind in zip(shared, self.types):
            w.line(f"__shared__ {kind} {m}[2][{rounds * warps}];")
        again = longest > shape.tile
        side, base = w.fresh("side"), w.fresh("base")
        if again:
            w.line(f"int {side} = 0;")  # the arrays are written in turn: nobody writes what others may still read
            w.line(f"for ({t} {base} = {begin}; {base} < {end}; {base} += {shape.tile}, {side} ^= 1) {{")
        else:
            w.line("{")
            w.line(f"const {t} {base} = {begin};")
            w.line(f"const int {side} = 0;")

        def each_round() -> str:
            w.line("#pragma unroll")
            w.line(f"for (int r = 0; r < {rounds}; r++) {{")
            return w.let(t, f"{base} + r * {shape.members * v} + {member}{f' * {v}' if v > 1 else ''}", "i")
        held = [w.fresh("v") for _ in self.types]
        run, ahead = ([w.fresh(stem) for _ in self.types] for stem in ("run", "ahead"))
        for names, size in ((held, rounds * v), (run, rounds), (ahead, rounds)):
            for name, kind in zip(names, self.types):
                w.line(f"{kind} {name}[{size}];")
        i = each_round()
        read("r", i)
        w.line("}")
        i = each_round()
        own = self.declare(self.start(), "own")
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {v}; k++) {{")
        w.line(f"if ({end} - {i} > k) {{")
        self.join(own, bring("r", i, "k"))
        w.line("}")
        for h, o in zip(held, own):
            w.line(f"{h}[r * {v} + k] = {o};")
        w.line("}")
        self._lanes(own, lane, lanes)
        for name, x in zip(run, own):
            w.line(f"{name}[r] = {x};")
        for name, x in zip(ahead, own):
            w.line(f"{name}[r] = {w.need('before')}({x}, 1);")
        if warps > 1:
            w.line(f"if ({lane} == 31) {{")
            for m, x in zip(shared, own):
                w.line(f"{m}[{side}][r * {warps} + {warp}] = {x};")
            w.line("}")
        w.line("}")
        if warps > 1:
            w.line("__syncthreads();")
            count = rounds * warps
            total = self.declare([f"{lane} < {count} ? {m}[{side}][{lane}] : {s}" for m, s in zip(shared, self.start())], "total")
            self._lanes(total, lane, count)
        i = each_round()
        # what comes before this thread: the tiles, rounds, warps and lanes before
        state = self.declare(carry, "first")
        if warps > 1:
            at = w.let("int", f"r * {warps} + {warp}", "at")
            earlier = [w.let(kind, self._of_lane(n, kind, f"({at} + 31) & 31", 32), "x") for n, kind in zip(total, self.types)]
            w.line(f"if ({at} > 0) {{")
            self.join(state, earlier)
            w.line("}")
        else:
            everything = [w.let(kind, self._of_lane(f"{n}[r]", kind, str(lanes - 1), lanes), "x") for n, kind in zip(run, self.types)]
            self.join(carry, everything)
        w.line(f"if ({lane} > 0) {{")
        self.join(state, [f"{a}[r]" for a in ahead])
        w.line("}")
        if store is not None:
            store(None)
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {v}; k++) {{")
        w.line(f"if ({end} - {i} > k) {{")
        with_it = self.declare(state)
        self.join(with_it, [f"{h}[r * {v} + k]" for h in held])
        keep(with_it, state, "r", i, "k")
        w.line("}")
        w.line("}")
        if store is not None:
            store(i)
        w.line("}")
        if warps > 1 and again:
            self.join(carry, [w.let(kind, self._of_lane(n, kind, str(rounds * warps - 1), 32), "x") for n, kind in zip(total, self.types)])
        w.line("}")

    def _lanes(self, names: Sequence[str], lane: str, count: int) -> None:
        """Every lane's value behind those of the lanes before, of `count` lanes side by side."""
        w, by = self.w, 1
        while by < count:
            earlier = [w.let(kind, f"{w.need('before')}({n}, {by})", "x") for n, kind in zip(names, self.types)]
            w.line(f"if ({lane} >= {by}) {{")
            self.join(names, earlier, order=False)
            w.line("}")
            by *= 2

    @staticmethod
    def _of_lane(name: str, kind: str, lane: str, width: int) -> str:
        narrow = kind in ("bool", "signed char", "unsigned char", "short", "unsigned short")
        return f"({kind})__shfl_sync(0xffffffffu, {'(int)' if narrow else ''}{name}, {lane}{f', {width}' if width < 32 else ''})"

    # ------------------------------------------------------------------------------------------------------------ pieces
    def _totals(self) -> None:
        """What a piece adds up to.  It is read from its end, so that the scan finds its beginning in the GPU's cache."""
        w, t, shape, v = self.w, self.t, self.shape, self.shape.v
        self.pointers_and_numbers()
        row = w.let(t, f"({t})blockIdx.x", "row")
        self.begin_row(row)
        begin, end = self._bounds("blockIdx.y")
        aligned = self._aligned()
        states = self.totals()
        for s in states:
            s.declare(w)
        step = shape.threads * v
        i = w.fresh("i")
        # pieces but the last are whole tiles
        w.line(f"#pragma unroll {4 if self.how in ('sum', 'prod') else 2}")
        w.line(f"for ({t} {i} = {end} - {step} + (int)threadIdx.x{f' * {v}' if v > 1 else ''}; {i} >= {begin}; {i} -= {step}) {{")
        held = {k: w.fresh("r") for k in self.moving}
        for k, name in held.items():
            kind = stored(w.types[k])
            w.line(f"{kind if v == 1 else f'Vec<{kind}, {v}>'} {name};")
        if v > 1 and held:
            w.line(f"if ({aligned}) {{")
            for k, name in held.items():
                w.line(f"{name} = *(const Vec<{stored(w.types[k])}, {v}>*)({self._vector(k, i)});")
            w.line("} else {")
        elements = {k: f"{name}{self._component('k') if v > 1 else ''}" for k, name in held.items()}
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {v}; k++) {{")
        e = self.where(f"({i} + k)")
        for k, text in elements.items():
            w.line(f"{text} = *(const {stored(w.types[k])}*)({self.place(k, e)});")
        w.line("}")
        if v > 1 and held:
            w.line("}")
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {v}; k++) {{")
        self.join_total(states, self.brings(elements, self.where(f"({i} + k)")))
        w.line("}")
        w.line("}")
        Group("block", shape.threads, 1).gather(w, states, everyone=False)
        w.line("if (threadIdx.x == 0) {")
        at = self._at(row, "blockIdx.y")
        for a, text in zip(self._arrays(), self.values_of(states)):
            w.line(f"{a}[{at}] = {text};")
        w.line("}")

    def _before(self, row: str) -> list[str]:
        """What comes before this block's piece."""
        w = self.w
        arrays, states = self._arrays(), self.totals()
        for s in states:
            s.declare(w)
        c = w.fresh("c")
        w.line(f"for (int {c} = (int)threadIdx.x; {c} < (int)blockIdx.y; {c} += {self.shape.threads}) {{")
        at = self._at(row, c)
        self.join_total(states, [w.let(t, f"{a}[{at}]", "x") for t, a in zip(self.types, arrays)])
        w.line("}")
        Group("block", self.shape.threads, 1).gather(w, states, everyone=True)
        return self.values_of(states)

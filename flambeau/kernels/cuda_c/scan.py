"""Scans: a group of threads walks a row tile by tile with what came before, or every thread has a row of its own.

In a tile each thread runs over a few neighbours, the threads' totals are scanned in their warp, and the warps' totals
by all.  Few long rows are cut into pieces: one launch finds each piece's total, a second what comes before each piece, a
third scans the pieces.  The order depends on the domain alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..complexes import PairScan
from .along import Along
from .groups import Group, multiply
from .lower import apply, from_stored, identity, round_half, to_stored
from .types import half, literal, stored, value
from .writer import Walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..expr import Expr
    from ..programs import Scan
    from .kernel import Launch
    from .lower import Leaf
    from .writer import Writer

EACH = 4  # neighbours a thread runs over
PIECE = 1 << 13  # elements of a piece of a long row
FEW_ROWS = 256
SERIAL = 64  # rows this short are left to a thread each


def write(w: Writer, program: Scan, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...],
          numbers: int) -> tuple[str, tuple[Launch, ...], int]:
    """The source, the launches and the bytes of workspace."""
    return _Scan(w, program, domain, strides, numbers).write()


class _Scan(Along):
    program: Scan

    def __init__(self, w: Writer, program: Scan, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], numbers: int) -> None:
        super().__init__(w, program, domain, strides, numbers)
        self.d = program.elem.dtype
        self.parts = 2 if isinstance(program, PairScan) else 1
        self.how = program.combine[self.parts - 1:]
        self.types = [value(self.d)] * self.parts + ["long long"] * (self.how in ("max", "min"))
        n = self.length
        neighbours = bool(self.outer) and self.score(self.outer[-1]) > self.score(self.inner)
        if (neighbours and (self.rows >= 4096 or n <= SERIAL)) or (n <= SERIAL and self.rows >= 1024) or n == 1:
            self.group = Group("across", 128, 1)
        else:
            self.group = Group("warp", 32, 4) if n <= 32 * EACH else Group("block", 256 if n <= 4096 else 512, 1)
        step = self.group.size * EACH
        self.piece, self.pieces = n, 1
        if self.group.kind == "block" and self.rows < FEW_ROWS and n >= 4 * PIECE:
            self.piece = max(PIECE, -(-n // (64 * 1024)) // step * step + step)
            self.pieces = -(-n // self.piece)

    # --------------------------------------------------------------------------------------------------------- writing
    def write(self) -> tuple[str, tuple[Launch, ...], int]:
        w, g = self.w, self.group
        grid = (-(-self.rows // g.rows), self.pieces, 1)
        launches: list[Launch] = []
        functions: list[tuple[str, int, Sequence[str]]] = []
        if self.pieces > 1:
            for stem, make, threads in (("scan_totals", self._totals, g.threads), ("scan_starts", self._starts, 256)):
                w.lines = []
                make()
                functions.append((stem, threads, w.lines))
        w.lines = []
        if g.size == 1:
            self._serial()
        else:
            self._tiles()
        functions.append(("scan", g.threads, w.lines))
        source, names = w.source(functions)
        if self.pieces > 1:
            launches.append((names[0], grid, (g.x, g.y, 1), 0))
            launches.append((names[1], (-(-self.rows // 256), 1, 1), (256, 1, 1), 0))
        launches.append((names[-1], grid, (g.x, g.y, 1), 0))
        workspace = sum(self._part_bytes(k) for k in range(len(self.types))) if self.pieces > 1 else 0
        return source, tuple(launches), workspace

    def _part_bytes(self, k: int) -> int:
        size = 8 if k >= self.parts or self.d.itemsize == 8 else 4 if half(self.d) else self.d.itemsize
        return -(-size * self.rows * self.pieces // 256) * 256

    def _arrays(self) -> list[str]:
        w = self.w
        work = w.let("unsigned char* const", f"(unsigned char*)a.w[{self.numbers - 1}]", "work")
        out, at = [], 0
        for k, t in enumerate(self.types):
            out.append(w.let(f"{t}* const", f"({t}*)({work} + {w.word(at)})", "a"))
            at += self._part_bytes(k)
        return out

    def _open(self) -> str:
        """Pointers, numbers, the row and where it begins."""
        w = self.w
        everything = range(len(self.sizes))
        self.pointers = {k: w.pointer(k) for k in everything}
        self.names = w.numbers(self.numbers)
        row, self.live = self.group.start(w, self.t, self.rows)
        places, self.coords = Walk(w, self.outer, self.wide).places(row, list(everything))
        self.q = {k: w.let("unsigned char* const", f"{self.pointers[k]} + {places[k]}" if k in places else self.pointers[k], "q") for k in everything}
        self.by = {k: f"{self.sizes[k]}" if self.inner.strides[k] == self.sizes[k] else w.let(self.t, f"({self.t}){w.word(self.inner.strides[k])}", "by")
                   for k in everything if self.inner.strides[k]}
        self.n = w.let(self.t, f"({self.t}){w.word(self.length)}", "n")
        return row

    def _place(self, k: int, i: str) -> str:
        return f"{self.q[k]} + {i} * {self.by[k]}" if k in self.by else self.q[k]

    def _where(self, i: str) -> str:
        """The element the scan meets as its i-th."""
        return self.w.let(self.t, f"{self.n} - 1 - {i}", "e") if self.program.reverse else i

    def _leaf(self, i: str, accs: list[str]) -> Leaf:
        w = self.w
        elements: dict[int, str] = {}

        def leaf(e: Expr, args: list[str]) -> str:
            if e.op == "input":
                k = self.outs + e.value
                if k not in elements:
                    elements[k] = w.let(value(w.types[k]), from_stored(w, f"*(const {stored(w.types[k])}*)({self._place(k, i)})", w.types[k]), "x")
                return elements[k]
            if e.op == "scalar":
                return self.names[e.value]
            if e.op == "coord":
                d = e.value % self.rank
                return f"(long long){i}" if d == self.rank - 1 else f"(long long){self.coords[d]}" if d in self.coords else "0LL"
            if e.op == "gather":
                return w.gather(self.pointers[self.outs + e.value], args[0], e.dtype)
            return accs[int(e.value)]
        return leaf

    def _element(self, i: str) -> list[str]:
        """What the element brings: its value and its position."""
        w = self.w
        values = w.lower(self.program.roots()[:self.parts], self._leaf(i, []), {})
        return [*values, f"(long long){i}"][:len(self.types)]

    def _join(self, into: Sequence[str], later: Sequence[str], order: bool = True) -> None:
        """`into` = `into` followed by `later`; order: False for `later` followed by `into`."""
        w, how, n = self.w, self.how, self.parts
        if how == "prod" and n == 2:
            multiply(w, self.types[0], into, later)
            return
        if len(into) == n:
            for x, y in zip(into, later):
                first, second = (x, y) if order else (y, x)
                w.line(f"{x} = {self._combined(first, second)};")
            return
        take = w.need("complex_later" if n == 2 else f"later_{how}")
        sign = "-" if n == 2 and how == "min" else ""

        def takes(a: Sequence[str], b: Sequence[str]) -> str:
            return f"{take}({', '.join(sign + x for x in (*a[:n], *b[:n]))})"
        w.line(f"if ({takes(into, later) if order else '!' + takes(later, into)}) {{")
        for x, y in zip(into, later):
            w.line(f"{x} = {y};")
        w.line("}")

    def _combined(self, a: str, b: str) -> str:
        w, how = self.w, self.how
        if how == "logsumexp":
            return f"{w.need('logaddexp')}({a}, {b})"
        from ...dtypes import float32
        return apply(w, {"sum": "add", "prod": "mul"}[how], float32 if half(self.d) else self.d, [a, b])

    def _start(self) -> list[str]:
        first = identity({"logsumexp": "max"}.get(self.how, self.how), self.d)
        return [first, literal(0, self.d) if self.how == "prod" else first][:self.parts] + ["-1LL"] * (len(self.types) - self.parts)

    def _declare(self, values: Sequence[str], stem: str = "s") -> list[str]:
        names = [self.w.fresh(stem) for _ in self.types]
        for n, t, v in zip(names, self.types, values):
            self.w.line(f"{t} {n} = {v};")
        return names

    def _store(self, state: Sequence[str], i: str) -> None:
        w = self.w
        accs = [*(w.let(self.types[0], round_half(w, x, self.d) if half(self.d) else x, "acc") for x in state[:self.parts]), *state[self.parts:]]
        values = w.lower(self.program.posts, self._leaf(i, accs), {})
        for k, (x, e) in enumerate(zip(values, self.program.posts)):
            w.line(f"*({stored(e.dtype)}*)({self._place(k, i)}) = {to_stored(w, x, e.dtype)};")

    def _serial(self) -> None:
        """A row for each thread."""
        w, t = self.w, self.t
        self._open()
        state = self._declare(self._start())
        i = w.fresh("i")
        w.line(f"for ({t} {i} = 0; {i} < {self.n}; {i}++) {{")
        e = self._where(i)
        self._join(state, self._element(e))
        self._store(state, e)
        w.line("}")

    def _bounds(self) -> tuple[str, str]:
        """Where this block's piece begins and ends, as the scan meets them."""
        w, t = self.w, self.t
        if self.pieces == 1:
            return "0", self.n
        piece = w.let(t, f"({t}){w.word(self.piece)}", "piece")
        begin = w.let(t, f"({t})blockIdx.y * {piece}", "begin")
        return begin, w.let(t, f"{self.n} - {begin} < {piece} ? {self.n} : {begin} + {piece}", "end")

    def _tiles(self, totals: bool = False) -> list[str]:
        """The pieces, a tile at a time; totals: only find their totals, which are left in the names given back."""
        w, g, t = self.w, self.group, self.t
        row = self._open()
        begin, end = self._bounds()
        warps = g.size // 32
        if self.pieces > 1 and not totals:
            at = w.let("long long", f"(long long){row} * {w.word(self.pieces)} + blockIdx.y", "at")
            carry = self._declare([f"{a}[{at}]" for a in self._arrays()], "carry")
        else:
            carry = self._declare(self._start(), "carry")
        shared = [w.fresh("m") for _ in self.types] if warps > 1 else []
        for m, kind in zip(shared, self.types):
            w.line(f"__shared__ {kind} {m}[{warps}];")
        lane = w.let("int", "(int)threadIdx.x & 31", "lane")
        base = w.fresh("base")
        w.line(f"for ({t} {base} = {begin}; {base} < {end}; {base} += {g.size * EACH}) {{")
        i = w.let(t, f"{base} + (int)threadIdx.x * {EACH}", "i")
        # the thread's own neighbours
        held = [w.fresh("v") for _ in self.types]
        for h, kind in zip(held, self.types):
            w.line(f"{kind} {h}[{EACH}];")
        own = self._declare(self._start(), "own")
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {EACH}; k++) {{")
        w.line(f"if ({i} + k < {end}) {{")
        self._join(own, self._element(self._where(f"({i} + k)")))
        w.line("}")
        for h, o in zip(held, own):
            w.line(f"{h}[k] = {o};")
        w.line("}")
        # the warp's threads
        for by in (1, 2, 4, 8, 16):
            earlier = [w.let(kind, f"{w.need('before')}({n}, {by})", "x") for n, kind in zip(own, self.types)]
            w.line(f"if ({lane} >= {by}) {{")
            self._join(own, earlier, order=False)
            w.line("}")
        # what comes before this thread: the tiles before, the warps before, the lanes before
        ahead = self._declare(carry, "ahead")
        if warps > 1:
            w.line(f"if ({lane} == 31) {{")
            for m, n in zip(shared, own):
                w.line(f"{m}[threadIdx.x >> 5] = {n};")
            w.line("}")
            w.line("__syncthreads();")
            w.line(f"for (int k = 0; k < {warps}; k++) {{")
            w.line("if (k < (int)(threadIdx.x >> 5)) {")
            self._join(ahead, [f"{m}[k]" for m in shared])
            w.line("}")
            self._join(carry, [f"{m}[k]" for m in shared])
            w.line("}")
        else:
            all_of = [w.let(kind, self._lane(n, kind, "31"), "x") for n, kind in zip(own, self.types)]
            self._join(carry, all_of)
        earlier = [w.let(kind, f"{w.need('before')}({n}, 1)", "x") for n, kind in zip(own, self.types)]
        w.line(f"if ({lane} > 0) {{")
        self._join(ahead, earlier)
        w.line("}")
        if not totals:
            w.line("#pragma unroll")
            w.line(f"for (int k = 0; k < {EACH}; k++) {{")
            w.line(f"if ({i} + k < {end}) {{")
            state = self._declare(ahead)
            self._join(state, [f"{h}[k]" for h in held])
            self._store(state, self._where(f"({i} + k)"))
            w.line("}")
            w.line("}")
        if warps > 1:
            w.line("__syncthreads();")  # before the next tile's totals
        w.line("}")
        self.row = row
        return carry

    @staticmethod
    def _lane(name: str, kind: str, lane: str) -> str:
        narrow = kind in ("bool", "signed char", "unsigned char", "short", "unsigned short")
        return f"({kind})__shfl_sync(0xffffffffu, {'(int)' if narrow else ''}{name}, {lane})"

    def _totals(self) -> None:
        w = self.w
        carry = self._tiles(totals=True)
        arrays = self._arrays()
        w.line("if (threadIdx.x == 0) {")
        at = w.let("long long", f"(long long){self.row} * {w.word(self.pieces)} + blockIdx.y", "at")
        for a, n in zip(arrays, carry):
            w.line(f"{a}[{at}] = {n};")
        w.line("}")

    def _starts(self) -> None:
        """Each piece's total gives way to what comes before the piece: a thread for each row."""
        w = self.w
        row = w.let("long long", "(long long)blockIdx.x * 256 + threadIdx.x", "row")
        w.line(f"if ({row} >= {w.word(self.rows)}) return;")
        arrays = self._arrays()
        state = self._declare(self._start())
        k = w.fresh("k")
        w.line(f"for (long long {k} = {row} * {w.word(self.pieces)}; {k} < ({row} + 1) * {w.word(self.pieces)}; {k}++) {{")
        total = self._declare([f"{a}[{k}]" for a in arrays], "total")
        for a, n in zip(arrays, state):
            w.line(f"{a}[{k}] = {n};")
        self._join(state, total)
        w.line("}")

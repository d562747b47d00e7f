"""Maps whose values go to offsets of their own: colliding ones in the domain's order, with no atomics.

The first launch computes every element's value and offset.  A stable sort then brings the elements of one offset
together, in their order, and the next one applies them one after another, a thread for each offset.  So the result is
that of a loop over the domain, whatever the threads do.  Few elements are not sorted: each looks through all others.

An offset that many elements go to would keep one thread busy while all others wait.  What lies sorted is therefore cut at multiples of
`PIECE`, but never within the first `PIECE` elements of an offset; a thread adds up each piece, and further launches join the pieces'
results, in order and in pieces again.  So an offset of at most `PIECE` elements has the sum of a loop to the bit, and a longer one
always the same sum.

Where it is known how far offsets reach, they are sorted by as many digits of 8 bits as that takes, few of them by one block; else,
and beyond 2**30 elements, by merging.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ...loops.operands import NARROW
from ..lower import combine, from_stored, leaves, to_stored
from ..thread_groups import State
from ..types import stored, value
from ..writer import Walk
from . import blocks, sorting
from .templates import Room, Within

if TYPE_CHECKING:
    from ....dtypes import dtype
    from ...expr import Expr
    from ...kernel import Launch
    from ...loops.maps import MapLoops
    from ...programs import Map
    from ..writer import Writer

THREADS = 256
TILE = 1024  # elements that a block sorts in shared memory
FEW = 1024  # elements that are not sorted at all
TOGETHER = 4  # elements of one offset that are read before the first is brought in
PIECE = 64  # elements of one offset that a thread takes one after another
_HOW = {"add": "sum", "mul": "prod", "max": "max", "min": "min", "cmul": "cprod"}


class Run(NamedTuple):
    """What a thread takes.  keys: the offset of an element; key: this one's; order: the sorted elements' numbers, where they are sorted;
    inner: whether it is not its offset's first piece, "" where there are no pieces; end: where it ends at the latest."""

    keys: Callable[[str], str]
    key: str
    order: str
    inner: str
    end: str


def write(w: Writer, program: Map, loops: MapLoops, numbers: int) -> tuple[str, tuple[Launch, ...], int]:
    """The source, the launches and the bytes of workspace."""
    from . import scatter_rows
    if scatter_rows.fits(program, loops):
        return scatter_rows.ScatterRows(w, program, loops, numbers).write()
    return _Scatter(w, program, loops, numbers).write()


class Sorting:
    """Brings keys together: a stable sort of `n` of them, and the arrays of the workspace for that.

    A key is an offset divided by `unit`; key: its type; bits: how many it has, 0 where that is not known.
    """

    w: Writer
    program: Map
    numbers: int
    n: int
    sizes: list[int]
    place: str  # the type of the elements' numbers, and its size
    sizeof: int
    sorted: bool
    at: dict[str, int]
    workspace: int
    piece: int
    joins: list[tuple[int, int]]  # launches that join pieces: how many places they have, and how many elements lie between those

    def plan_joins(self, piece: int, width: int = 1) -> None:
        """Room for the pieces' results, `width` for each output."""
        self.piece, self.joins = piece, []
        count = self.n if self.sorted else 0
        while count > piece:
            count = -(-count // piece)
            self.joins.append((count, piece * (self.joins[-1][1] if self.joins else 1)))
            for k, target in enumerate(self.program.targets):
                if target is not None:
                    self.room(f"joined{k}_{len(self.joins)}", max(4, self.sizes[k]), count * width)

    def plan_keys(self, unit: int) -> None:
        self.bits, self.unit, self.key, self.key_size = 0, 1, "long long", 8
        if self.w.extent and self.place == "int":
            self.unit = unit
            self.bits = max(1, ((self.w.extent - 1) // unit).bit_length())
            self.key, self.key_size = ("unsigned int", 4) if self.bits <= 32 else ("unsigned long long", 8)

    def room_to_sort(self) -> None:
        for side in "a" if self.bits else "ab":
            self.room("keys_" + side, self.key_size)
            self.room("order_" + side, self.sizeof)

    def write_key(self, g: int, i: str, offset: str) -> None:
        w = self.w
        by = f" / {w.word(self.unit)}" if self.unit > 1 else ""
        w.line(f"{self.array(f'keys{g}', self.key)}[{i}] = ({self.key})({offset}{by});")

    def sort(self, g: int) -> tuple[list[tuple[str, int, list[str]]], list[tuple[str, int, int]], str]:
        """The functions that sort the keys of group g, their launches (name, blocks, threads), and which arrays then have the result."""
        w, last = self.w, "a"
        w.lines = []
        if self.bits:
            return [], self._by_digits(g), last
        functions, launches = [(f"scatter_tiles{g}", THREADS, self._tiles(g))], [(f"scatter_tiles{g}", -(-self.n // TILE), THREADS)]
        run = TILE
        while run < self.n:
            w.lines = []
            functions.append((f"scatter_merge{g}_{run}", THREADS, self._merge(run, last)))
            launches.append((f"scatter_merge{g}_{run}", -(-self.n // THREADS), THREADS))
            last = "b" if last == "a" else "a"
            run *= 2
        return functions, launches, last

    def _by_digits(self, g: int) -> list[tuple[str, int, int]]:
        w = Within(self.w)
        w.constants(all=f"({self.key})-1", digits=sorting.DIGITS)
        if g == 0:
            w.add(f"typedef {self.key} Key;")
            w.add(blocks.SUMS)
            w.add(blocks.DIGIT)
        work = f"a.w[{self.numbers - 1}]"
        for name, array, kind in (("given", f"keys{g}", "Key"), ("sorted", "keys_a", "Key"), ("order", "order_a", "int")):
            w.constants(**{name: f"(({kind}*)((unsigned char*){work} + {w.word(self.at[array], 'long long')}))"})
        read, write = "$given[begin + i]", "$sorted[place] = k;\n    $order[place] = position;"
        if self.n <= sorting.alone(self.key_size):
            sorting.by_a_block(w, self.bits, self.key_size, self.n, read, write, str(g))
        else:
            room = Room(self.workspace)
            sorting.by_digits(w, self.bits, self.key_size, self.n, 1, work, room, read, write, str(g))
            self.workspace = room.size
        self.w.parts += w.parts
        return w.launches

    def source(self, functions: list[tuple[str, int, list[str]]], launches: list[tuple[str, int, int]]) -> tuple[str, tuple[Launch, ...]]:
        """The text and the launches by their whole names."""
        source, names = self.w.source(functions)
        tag = names[0].rsplit("_", 1)[1]
        return source, tuple((f"{stem}_{tag}", (blocks, 1, 1), (threads, 1, 1), 0) for stem, blocks, threads in launches)

    def room(self, name: str, size: int, count: int = 0) -> None:
        self.at[name] = self.workspace
        self.workspace += -(-size * (count or self.n) // 256) * 256

    def array(self, name: str, t: str) -> str:
        w = self.w
        return w.let(f"{t}* const", f"({t}*)((unsigned char*)a.w[{self.numbers - 1}] + {w.word(self.at[name])})", "a")

    def _tiles(self, g: int) -> list[str]:
        """A block sorts the offsets of a tile, and the elements' numbers with them."""
        w, each, p = self.w, TILE // THREADS, self.place
        w.need("merged_place")
        source, keys, order = self.array(f"keys{g}", "long long"), self.array("keys_a", "long long"), self.array("order_a", p)
        base = w.let(p, f"({p})blockIdx.x * {TILE}", "base")
        left = w.let(p, f"({p}){w.word(self.n)} - {base}", "left")
        n = w.let("int", f"{left} < {TILE} ? (int){left} : {TILE}", "n")
        w.line(f"__shared__ long long key[{TILE}];")
        w.line(f"__shared__ {p} from[{TILE}];")
        w.line(f"for (int i = (int)threadIdx.x; i < {n}; i += {THREADS}) {{")
        w.line(f"key[i] = {source}[{base} + i];")
        w.line(f"from[i] = {base} + i;")
        w.line("}")
        w.line(f"for (int run = 1; run < {TILE}; run *= 2) {{")
        w.line("__syncthreads();")
        w.line(f"long long k[{each}];")
        w.line(f"{p} f[{each}];")
        w.line(f"int place[{each}];")
        w.line("#pragma unroll")
        w.line(f"for (int e = 0; e < {each}; e++) {{")
        w.line(f"const int i = (int)threadIdx.x + e * {THREADS};")
        w.line(f"if (i < {n}) {{")
        w.line("k[e] = key[i];")
        w.line("f[e] = from[i];")
        w.line(f"place[e] = merged_place(key, {n}, run, i);")
        w.line("}")
        w.line("}")
        w.line("__syncthreads();")
        w.line("#pragma unroll")
        w.line(f"for (int e = 0; e < {each}; e++) {{")
        w.line(f"if ((int)threadIdx.x + e * {THREADS} < {n}) {{")
        w.line("key[place[e]] = k[e];")
        w.line("from[place[e]] = f[e];")
        w.line("}")
        w.line("}")
        w.line("}")
        w.line("__syncthreads();")
        w.line(f"for (int i = (int)threadIdx.x; i < {n}; i += {THREADS}) {{")
        w.line(f"{keys}[{base} + i] = key[i];")
        w.line(f"{order}[{base} + i] = from[i];")
        w.line("}")
        return w.lines

    def element(self, level: int = 0) -> tuple[str, str]:
        """The number of this thread's element, and of all; or of its piece at a level of joining."""
        w, p = self.w, self.place
        n = w.let(p, f"({p}){w.word(self.joins[level - 1][0] if level else self.n)}", "n")
        i = w.let(p, f"({p})blockIdx.x * {THREADS} + ({p})threadIdx.x", "i")
        w.line(f"if ({i} >= {n}) return;")
        return i, n

    def begin(self, g: int, i: str, n: str, last: str, level: int = 0) -> Run:
        """Threads end whose element i is not the first of its offset, nor of a piece; when pieces are joined, those of one piece too."""
        w, p = self.w, self.place
        array = self.array(f"keys_{last}" if self.sorted else f"keys{g}", self.key)
        step = self.joins[level - 1][1] if level else 1

        def keys(j: str) -> str:
            return f"{array}[{j}]" if level == 0 else f"{array}[(long long)({j}) * {step}]"
        key = w.let(self.key, keys(i), "key")
        if not self.sorted:
            w.line(f"for (int j = 0; j < {i}; j++) {{")
            w.line(f"if ({array}[j] == {key}) return;")
            w.line("}")
            return Run(keys, key, "", "", n)
        order = self.array("order_" + last, p)
        if level == len(self.joins):  # too few for a piece to end
            w.line(f"if ({i} > 0 && {keys(f'{i} - 1')} == {key}) return;")
            inner, end = "", n
        else:
            inner = w.let("bool", f"{i} >= {self.piece} && {i} % {self.piece} == 0 && {keys(f'{i} - {self.piece}')} == {key}", "inner")
            w.line(f"if ({i} > 0 && !{inner} && {keys(f'{i} - 1')} == {key}) return;")
            stop = w.let(p, f"({i} + {2 * self.piece - 1}) / {self.piece} * {self.piece}", "stop")
            end = w.let(p, f"{stop} < {n} ? {stop} : {n}", "end")
        if level:
            w.line(f"if ({f'!{inner} && ' if inner else ''}({i} + 1 >= {n} || {keys(f'{i} + 1')} != {key})) return;")
        return Run(keys, key, order, inner, end)

    def each(self, i: str, run: Run, take: Callable[[str], None]) -> str:
        """Takes all elements of a piece in their order, the first at i; several reads on their way at once where it has many.  Gives the
        place behind the last."""
        w, p, keys, key, end = self.w, self.place, run.keys, run.key, run.end
        if not self.sorted:
            w.line(f"for ({p} j = {i}; j < {end}; j++) {{")
            w.line(f"if ({keys('j')} == {key}) {{")
            take("j")
            w.line("}")
            w.line("}")
            return end
        j = w.fresh("j")
        w.line(f"{p} {j} = {i};")
        w.line(f"for (; {end} - {j} >= {TOGETHER} && {keys(f'{j} + {TOGETHER - 1}')} == {key}; {j} += {TOGETHER}) {{")
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {TOGETHER}; k++) {{")
        take(f"{j} + k")
        w.line("}")
        w.line("}")
        w.line(f"for (; {j} < {end} && {keys(j)} == {key}; {j}++) {{")
        take(j)
        w.line("}")
        return j

    def part(self, i: str, n: str, run: Run, behind: str) -> str:
        """Opens a block for what is but a piece, and gives the place of its result among those to be joined; a block for whole offsets
        is to follow as an `else`."""
        w, p = self.w, self.place
        # places of pieces that follow a cut are their own; that of an offset's first piece lies a piece before its end
        cut = w.let("bool", f"{behind} < {n} && {run.keys(behind)} == {run.key}", "cut")
        w.line(f"if ({run.inner} || {cut}) {{")
        return w.let(p, f"{run.inner} ? {i} / {self.piece} : {behind} / {self.piece} - 1", "slot")

    def nothing(self, outs: list[int]) -> list[str]:
        """For each output what changes nothing when it is combined."""
        found: list[str] = []
        for k in outs:
            mode, d = self.mode(k), self.w.types[k]
            found += [] if not mode else ["0"] if mode == "set" else State(_HOW.get(mode, mode), d).start()
        return found

    def _merge(self, run: int, last: str) -> list[str]:
        w, p, other = self.w, self.place, "b" if last == "a" else "a"
        i, n = self.element()
        keys, order = self.array("keys_" + last, "long long"), self.array("order_" + last, p)
        to_keys, to_order = self.array("keys_" + other, "long long"), self.array("order_" + other, p)
        place = w.let(p, f"{w.need('merged_place')}({keys}, {n}, ({p}){run}, {i})", "place")
        w.line(f"{to_keys}[{place}] = {keys}[{i}];")
        w.line(f"{to_order}[{place}] = {order}[{i}];")
        return w.lines

    def mode(self, k: int) -> str:
        target = self.program.targets[k]
        assert target is not None
        return target[0]


class _Scatter(Sorting):
    def __init__(self, w: Writer, program: Map, loops: MapLoops, numbers: int) -> None:
        self.w, self.program, self.loops, self.numbers = w, program, loops, numbers
        self.rank, self.outs, self.sizes, self.axes = loops.rank, loops.outs, loops.sizes, loops.axes
        self.wide = loops.is_wide(self.axes, THREADS)
        self.n = Walk(w, self.axes, self.wide).size
        self.place = "long long" if self.n >= NARROW // 2 else "int"  # numbers of elements in the sort
        # outputs that go to the same offsets are sorted together
        self.groups: dict[Expr, list[int]] = {}
        for k, target in enumerate(program.targets):
            if target is not None:
                self.groups.setdefault(target[1], []).append(k)
        self.at: dict[str, int] = {}
        self.workspace = 0
        self.plan_keys(1)
        for g in range(len(self.groups)):
            self.room(f"keys{g}", self.key_size)
        for k, target in enumerate(program.targets):
            if target is not None:
                self.room(f"values{k}", max(4, self.sizes[k]))
        self.sorted = self.n > FEW
        self.sizeof = 8 if self.place == "long long" else 4
        if self.sorted:
            self.room_to_sort()
        self.plan_joins(PIECE)

    def write(self) -> tuple[str, tuple[Launch, ...], int]:
        w, blocks = self.w, -(-self.n // THREADS)
        functions, launches = [("scatter_values", THREADS, self._values())], [("scatter_values", blocks, THREADS)]
        for g, outs in enumerate(self.groups.values()):
            last = "a"
            if self.sorted:
                more, sorts, last = self.sort(g)
                functions += more
                launches += sorts
            for level, (count, _) in enumerate([(self.n, 1), *self.joins]):
                w.lines = []
                name = f"scatter_join{g}_{level}" if level else f"scatter_apply{g}"
                functions.append((name, THREADS, self._apply(g, outs, last, level)))
                launches.append((name, -(-count // THREADS), THREADS))
        return *self.source(functions, launches), self.workspace

    def _values(self) -> list[str]:
        """Every element's value and offset."""
        w, program = self.w, self.program
        used = [*(k for k in range(self.outs) if program.targets[k] is None), *self.loops.used]
        pointers = {k: w.pointer(k) for k in range(len(self.sizes))}
        names = w.numbers(self.numbers)
        walk = Walk(w, self.axes, self.wide)
        i = w.let(walk.t, f"({walk.t})blockIdx.x * {THREADS} + ({walk.t})threadIdx.x", "i")
        w.line(f"if ({i} >= {walk.count()}) return;")
        places, coords = walk.places(i, used)
        leaf = leaves(w, self.outs, self.rank, lambda k: w.load(pointers[k], places.get(k, "0"), w.types[k]), coords, names, pointers)
        found = w.lower((*program.outs, *self.groups), leaf, {}, exact=True)
        for g, offset in enumerate(found[self.outs:]):
            self.write_key(g, i, offset)
        for k, x in enumerate(found[:self.outs]):
            d = w.types[k]
            if program.targets[k] is None:
                w.line(f"*({stored(d)}*)({pointers[k]} + {places.get(k, '0')}) = {to_stored(w, x, d)};")
            else:
                w.line(f"{self.array(f'values{k}', value(d))}[{i}] = {x};")
        return w.lines

    def _apply(self, g: int, outs: list[int], last: str, level: int) -> list[str]:
        """The first element of each offset, and of each piece, brings in all of it."""
        w = self.w
        i, n = self.element(level)
        run = self.begin(g, i, n, last, level)
        values = {k: self.array(f"joined{k}_{level}" if level else f"values{k}", value(w.types[k])) for k in outs}
        pointers = {k: w.pointer(k) for k in outs}
        totals = {}
        for k, nothing in zip(outs, self.nothing(outs), strict=True):
            d = w.types[k]
            totals[k] = w.fresh("s")
            start = nothing
            if not level and self.mode(k) != "set":
                given = from_stored(w, f"(({stored(d)}*){pointers[k]})[{run.key}]", d)
                start = f"{run.inner} ? {nothing} : {given}" if run.inner else given
            w.line(f"{value(d)} {totals[k]} = {start};")

        def take(j: str) -> None:
            place = f"{run.order}[{j}]" if self.sorted and not level else j
            found = [w.let(value(w.types[k]), f"{values[k]}[{place}]", "x") for k in outs]
            for at, k in enumerate(outs):
                bring(w, self.mode(k), w.types[k], list(totals.values())[at:], found[at:])
        behind = self.each(i, run, take)
        if run.inner:
            slot = self.part(i, n, run, behind)
            for k in outs:
                w.line(f"{self.array(f'joined{k}_{level + 1}', value(w.types[k]))}[{slot}] = {totals[k]};")
            w.line("} else {")
        for k in outs:
            d = w.types[k]
            # a half adds up in float and is rounded once
            w.line(f"(({stored(d)}*){pointers[k]})[{run.key}] = {to_stored(w, totals[k], d)};")
        if run.inner:
            w.line("}")
        return w.lines


def bring(w: Writer, mode: str, d: dtype, totals: list[str], found: list[str]) -> None:
    """Takes an element's value into what its place has; the imaginary part with the real one, where they combine."""
    if mode in ("cmul", "cmax", "cmin"):
        state = State(_HOW.get(mode, mode), d)
        state.names = totals[:2]
        state.join(w, found[:2])
    elif mode:
        w.line(f"{totals[0]} = {found[0] if mode == 'set' else combine(w, _HOW[mode], d, totals[0], found[0])};")

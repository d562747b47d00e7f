"""Reductions: a group of threads for each output, or, where the outputs are neighbours in memory, threads side by side.

Long reductions, and those with too few outputs to fill a GPU, are cut into chunks whose partial results go to the
workspace; a second launch joins them.  The cuts depend on the domain alone and nothing is accumulated by atomics, so
equal inputs give equal bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import axes as walks
from ..axes import Axis
from ..programs import size_of
from .groups import Group, State, finished, join_all, states_of
from .lower import from_stored, leaves, round_half, to_stored
from .types import half, stored, value
from .writer import Walk, coordinates, is_wide, seen

if TYPE_CHECKING:
    from ..programs import Reduce
    from .kernel import Launch
    from .lower import Leaf
    from .writer import Writer

SHORT = 16  # elements that one thread reduces alone
WANTED_BLOCKS = 1024  # of 256 threads: 8 for each multiprocessor, whose 2048 threads have four reads on their way, 32 KB of float32
LEAST = 1 << 12  # elements of a chunk that is cut for the sake of filling the GPU,
LEAST_ACROSS = 1 << 7  # where neighbours are of different outputs: 16 for each thread
LONGEST = 1 << 17  # elements of a chunk: more rounding errors would add up


def write(w: Writer, program: Reduce, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...],
          numbers: int) -> tuple[str, tuple[Launch, ...], int]:
    """The source, the launches and the bytes of workspace."""
    return _Reduction(w, program, domain, strides, numbers).write()


class _Reduction:
    def __init__(self, w: Writer, program: Reduce, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], numbers: int) -> None:
        self.w, self.program, self.numbers = w, program, numbers
        self.rank, self.outs, kept = len(domain), len(program.posts), len(strides[0])
        self.sizes = [d.itemsize for d in w.types]
        coords = coordinates(program, self.rank)
        whole = [tuple(s) + (0,) * (self.rank - kept) for s in strides[:self.outs]] + list(strides[self.outs:])
        own = seen(program, whole, self.rank)
        self.used = [k for k in range(self.outs, len(self.sizes)) if walks.facts(program).read[k - self.outs]]
        order = [*range(self.outs, len(own)), *range(self.outs)]  # the inputs decide the order of the kept axes: they are bigger
        turned = [own[k] for k in order]
        back = [order.index(k) for k in range(len(own))]
        found = walks.walk_axes(domain[:kept], [s[:kept] for s in turned], [self.sizes[k] for k in order], [d for d in coords if d < kept])
        self.kept = [Axis(x.size, tuple(x.strides[k] for k in back), x.source) for x in found]
        ordered = any(how.endswith(("argmax", "argmin")) for how in program.combine)
        found = walks.walk_axes(domain[kept:], [s[kept:] for s in turned], [self.sizes[k] for k in order],
                                  [d - kept for d in coords if d >= kept], reorder=not ordered)
        self.reduced = [Axis(x.size, tuple(x.strides[k] for k in back), None if x.source is None else x.source + kept) for x in found]
        self.count, self.length = size_of(tuple(x.size for x in self.kept)), size_of(domain[kept:])
        self.wide = is_wide(self.kept + self.reduced, self.sizes, 1 << 20)
        self.t = "long long" if self.wide else "int"
        self._plan()

    def _score(self, axes: list[Axis]) -> int:
        return sum(1 if axes[-1].strides[k] == self.sizes[k] else -1 if axes[-1].strides[k] else 0 for k in self.used) if axes else 0

    def _plan(self) -> None:
        along = not self.kept or (bool(self.reduced) and self._score(self.reduced) >= self._score(self.kept))
        self.v = 1
        if self.length <= SHORT:
            self.group = Group("across", 256, 1)
        elif along:
            self.v = self._width()
            self.group = Group("block", 256, 1) if self.length > 1024 else Group("warp", 32, 8)
        else:
            x = min(32, 1 << (self.count - 1).bit_length())  # few outputs leave more threads for each
            self.group = Group("across", x, 256 // x if self.length >= 1024 // x else 128 // x)
        blocks = -(-self.count // self.group.rows)
        least = LEAST if along else max(LEAST_ACROSS, 16 * self.group.size)
        pieces = max(1, -(-self.length // LONGEST), min(WANTED_BLOCKS // blocks, self.length // least))
        step = self.group.size * self.v
        wanted = -(-self.length // pieces)
        self.chunk = -(-wanted // step) * step
        self.chunks = -(-self.length // self.chunk) if self.length else 1
        while self.chunks > 65535:  # a grid's second size
            self.chunk *= 2
            self.chunks = -(-self.length // self.chunk)
        self.blocks = blocks
        # a warp would read many partial results of one output in turn
        self.joining = Group("block", 256, 1) if self.chunks > 64 else Group("warp", 32, 8)

    def _width(self) -> int:
        """How many neighbours a thread loads at once."""
        if not self.reduced or walks.facts(self.program).operations > 60:
            return 1
        *outer, inner = self.reduced
        moving = [k for k in self.used if any(x.strides[k] for x in self.reduced)]
        if not moving or any(inner.strides[k] != self.sizes[k] for k in moving):
            return 1
        v = max(1, 16 // max(self.sizes[k] for k in moving))
        while v > 1 and outer and (inner.size % v or any(x.strides[k] % (v * self.sizes[k]) for x in outer for k in moving)):
            v //= 2
        return v

    # --------------------------------------------------------------------------------------------------------- writing
    def write(self) -> tuple[str, tuple[Launch, ...], int]:
        w, g = self.w, self.group
        first = self._first()
        functions = [("reduce", g.threads, first)]
        if self.chunks > 1:
            w.lines = []
            functions.append(("reduce_join", 256, self._second()))
        source, names = w.source(functions)
        launches: list[Launch] = [(names[0], (self.blocks, self.chunks, 1), (g.x, g.y, 1), 0)]
        if self.chunks > 1:
            g = self.joining
            launches.append((names[1], (-(-self.count // g.rows), 1, 1), (g.x, g.y, 1), 0))
        workspace = sum(-(-size * self.count * self.chunks // 256) * 256 for size in self._state_sizes()) if self.chunks > 1 else 0
        return source, tuple(launches), workspace

    def _states(self) -> list[State]:
        return states_of(self.program.combine, [e.dtype for e in self.program.elems])

    def _state_sizes(self) -> list[int]:
        return [size for s in self._states() for size in s.sizes]

    def _start(self, operands: list[int], g: Group) -> tuple[str, str, dict[int, str], dict[int, str]]:
        """The row of this thread (the last one for those beyond the end), whether it is one, and what is at its place."""
        w, t = self.w, self.t
        row, live = g.start(w, t, self.count)
        places, coords = Walk(w, self.kept, self.wide).places(row, operands)
        return row, live, places, coords

    def _first(self) -> list[str]:
        w, g = self.w, self.group
        single = self.chunks == 1
        pointers = {k: w.pointer(k) for k in range(0 if single else self.outs, len(self.sizes))}
        names = w.numbers(self.numbers)
        row, live, places, kept_at = self._start(list(range(0 if single else self.outs, len(self.sizes))), g)
        states = self._states()
        for s in states:
            s.declare(w)
        if self.length:
            self._loop(states, pointers, places, kept_at, names, single)
        g.gather(w, states, everyone=False)
        first = f"{live}{f' && {g.member} == 0' if g.size > 1 else ''}"
        w.line(f"if ({first}) {{")
        if single:
            self._finish(states, pointers, places, kept_at, names)
        else:
            self._keep(states, row)
        w.line("}")
        return w.lines

    def _loop(self, states: list[State], pointers: dict[int, str], places: dict[int, str], kept_at: dict[int, str], names: dict[int, str],
              single: bool) -> None:
        """The thread's share of the elements."""
        w, g, t, v = self.w, self.group, self.t, self.v
        q = {k: w.let("unsigned char* const", f"{pointers[k]} + {places[k]}" if k in places else pointers[k], "q") for k in self.used}
        n, step = w.let(t, f"({t}){w.word(self.length)}", "n"), g.size * v
        begin, end = "0", n
        if not single:
            chunk = w.let(t, f"({t}){w.word(self.chunk)}", "chunk")
            begin = w.let(t, f"({t})blockIdx.y * {chunk}", "begin")
            end = w.let(t, f"{n} - {begin} < {chunk} ? {n} : {begin} + {chunk}", "end")
        walk = Walk(w, self.reduced, self.wide)
        moving = [k for k in self.used if self.reduced and any(x.strides[k] for x in self.reduced)]
        fixed = {k: w.let(value(w.types[k]), from_stored(w, f"*(const {stored(w.types[k])}*){q[k]}", w.types[k]), "f")
                 for k in self.used if k not in moving}
        if v > 1:
            w.need("vec")
            aligned = w.let("bool", " && ".join(f"((unsigned long long){q[k]} & {v * self.sizes[k] - 1}) == 0" for k in moving), "aligned")
        r = w.fresh("r")
        if v > 1:
            self._vectors(states, q, moving, fixed, kept_at, names, pointers, r, begin, end, aligned)
            return
        # several reads on their way at once, more of small elements
        w.line(f"#pragma unroll {8 if moving and max(self.sizes[k] for k in moving) < 4 else 4}")
        w.line(f"for ({t} {r} = {begin} + {g.member}; {r} < {end}; {r} += {step}) {{")
        at, coords = walk.places(r, moving)
        elements = {**fixed, **{k: w.let(value(w.types[k]), w.load(q[k], at.get(k, "0"), w.types[k]), "x") for k in moving}}
        self._accumulate(states, elements, {**kept_at, **coords}, names, pointers, r)
        w.line("}")

    def _vectors(self, states: list[State], q: dict[int, str], moving: list[int], fixed: dict[int, str], kept_at: dict[int, str],
                 names: dict[int, str], pointers: dict[int, str], r: str, begin: str, end: str, aligned: str) -> None:
        """The thread's share, v neighbours at a time while they are whole, then one by one."""
        w, v, t, g = self.w, self.v, self.t, self.group
        held = {k: w.fresh("h") for k in moving}
        w.line(f"{t} {r} = {begin} + {g.member} * {v};")
        w.line(f"if ({aligned}) {{")
        several = walks.facts(self.program).operations <= 8 and not any(len(s.types) > 1 for s in states)
        w.line(f"#pragma unroll {4 if several else 1}")
        w.line(f"for (; {end} - {r} >= {v}; {r} += {g.size * v}) {{")
        first, coords = self._first_of(q, moving, r)
        for k in moving:
            w.line(f"const Vec<{stored(w.types[k])}, {v}> {held[k]} = *(const Vec<{stored(w.types[k])}, {v}>*)({first[k]});")
        self._neighbours(states, {k: f"{held[k]}.v[k]" for k in moving}, fixed, {**kept_at, **coords}, names, pointers, r, "")
        w.line("}")
        w.line("}")
        w.line(f"for (; {r} < {end}; {r} += {g.size * v}) {{")
        inside = f"if ({end} - {r} > k) {{"
        first, coords = self._first_of(q, moving, r)
        texts = {k: f"((const {stored(w.types[k])}*)({first[k]}))[k]" for k in moving}
        self._neighbours(states, texts, fixed, {**kept_at, **coords}, names, pointers, r, inside)
        w.line("}")

    def _first_of(self, q: dict[int, str], moving: list[int], r: str) -> tuple[dict[int, str], dict[int, str]]:
        """The addresses of the v neighbours at r, and their coordinates along the outer axes and the first's along the inner one."""
        *outer, inner = self.reduced
        if not outer:
            return {k: f"{q[k]} + {r} * {self.sizes[k]}" for k in moving}, {} if inner.source is None else {inner.source: r}
        packed = [*outer, Axis(inner.size // self.v, tuple(s * self.v for s in inner.strides), inner.source)]
        at, coords = Walk(self.w, packed, self.wide).places(f"({r} / {self.v})", moving)
        if inner.source is not None:
            coords[inner.source] = f"({coords[inner.source]} * {self.v})"
        return {k: f"{q[k]} + {at.get(k, '0')}" for k in moving}, coords

    def _neighbours(self, states: list[State], texts: dict[int, str], fixed: dict[int, str], at: dict[int, str], names: dict[int, str],
                    pointers: dict[int, str], r: str, inside: str) -> None:
        w = self.w
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {self.v}; k++) {{")
        if inside:
            w.line(inside)
        coords, source = dict(at), self.reduced[-1].source
        if source is not None:
            coords[source] = f"({at[source]} + k)"
        elements = {**fixed, **{k: w.let(value(w.types[k]), from_stored(w, text, w.types[k]), "x") for k, text in texts.items()}}
        self._accumulate(states, elements, coords, names, pointers, f"({r} + k)")
        if inside:
            w.line("}")
        w.line("}")

    def _accumulate(self, states: list[State], elements: dict[int, str], coords: dict[int, str], names: dict[int, str],
                    pointers: dict[int, str], r: str) -> None:
        w = self.w
        values = w.lower(self.program.elems, self._leaf(elements, coords, names, pointers, []), {})
        join_all(w, states, values, f"(long long){r}")

    def _leaf(self, elements: dict[int, str], coords: dict[int, str], names: dict[int, str], pointers: dict[int, str],
              accs: list[str]) -> Leaf:
        return leaves(self.w, self.outs, self.rank, lambda k: elements[k], coords, names, pointers, accs)

    def _finish(self, states: list[State], pointers: dict[int, str], places: dict[int, str], coords: dict[int, str],
                names: dict[int, str]) -> None:
        """Writes the outputs."""
        w = self.w
        accs: list[str] = []
        for s in states:
            for text, t in zip(finished(s), s.types):
                if half(s.dtype) and t == "float":
                    text = round_half(w, text, s.dtype)
                accs.append(w.let(t, text, "acc"))
        values = w.lower(self.program.posts, self._leaf({}, coords, names, pointers, accs), {})
        for k, (x, e) in enumerate(zip(values, self.program.posts)):
            where = f"{pointers[k]} + {places[k]}" if k in places else pointers[k]
            w.line(f"*({stored(e.dtype)}*)({where}) = {to_stored(w, x, e.dtype)};")

    # ------------------------------------------------------------------------------------------------------- workspace
    def _arrays(self, states: list[State]) -> list[list[str]]:
        """The workspace's arrays of (chunk, output) for each accumulator's parts."""
        w = self.w
        work = w.let("unsigned char* const", f"(unsigned char*)a.w[{self.numbers - 1}]", "work")
        at, sizes, out = 0, iter(self._state_sizes()), []
        for s in states:
            row = []
            for t in s.types:
                row.append(w.let(f"{t}* const", f"({t}*)({work} + {w.word(at)})", "a"))
                at += -(-next(sizes) * self.count * self.chunks // 256) * 256
            out.append(row)
        return out

    def _keep(self, states: list[State], row: str) -> None:
        w = self.w
        at = w.let("long long", f"(long long)blockIdx.y * {w.word(self.count)} + {row}", "at")
        for s, arrays in zip(states, self._arrays(states)):
            for name, array in zip(s.names, arrays):
                w.line(f"{array}[{at}] = {name};")

    def _second(self) -> list[str]:
        """A warp or a block joins the chunks of an output."""
        w, g = self.w, self.joining
        pointers = {k: w.pointer(k) for k in range(len(self.sizes))}
        names = w.numbers(self.numbers)
        row, live, places, coords = self._start(list(range(self.outs)), g)
        states = self._states()
        arrays = self._arrays(states)
        for s in states:
            s.declare(w)
        c = w.fresh("c")
        w.line(f"for (int {c} = (int)threadIdx.x; {c} < (int){w.word(self.chunks)}; {c} += {g.x}) {{")
        at = w.let("long long", f"(long long){c} * {w.word(self.count)} + {row}", "at")
        for s, parts in zip(states, arrays):
            s.join(w, [f"{a}[{at}]" for a in parts])
        w.line("}")
        g.gather(w, states, everyone=False)
        w.line(f"if ({live} && threadIdx.x == 0) {{")
        self._finish(states, pointers, places, coords, names)
        w.line("}")
        return w.lines

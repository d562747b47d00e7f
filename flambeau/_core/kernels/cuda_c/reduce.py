"""Reductions: a group of threads for each output, or, where the outputs are neighbours in memory, threads side by side.

Long reductions, and those with too few outputs to fill a GPU, are cut into chunks whose partial results go to the
workspace; a second launch joins them.  The cuts depend on the domain alone and nothing is accumulated by atomics, so
equal inputs give equal bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..c_forms import half
from .lower import from_stored, leaves, round_half, to_stored
from .thread_groups import Group, State, finished, join_all, states_of
from .types import stored, value
from .writer import Walk

if TYPE_CHECKING:
    from ..kernel import Launch
    from ..loops.reductions import ByThreads
    from ..programs import Reduce
    from .lower import Leaf
    from .writer import Writer


def write(w: Writer, program: Reduce, loops: ByThreads, numbers: int) -> tuple[str, tuple[Launch, ...], int]:
    """The source, the launches and the bytes of workspace."""
    return _Reduction(w, program, loops, numbers).write()


class _Reduction:
    def __init__(self, w: Writer, program: Reduce, loops: ByThreads, numbers: int) -> None:
        self.w, self.program, self.loops, self.numbers = w, program, loops, numbers
        self.rank, self.outs, self.sizes, self.used, self.wide = loops.rank, loops.outs, loops.sizes, loops.used, loops.wide
        self.kept, self.reduced, self.count, self.length = loops.kept, loops.reduced, loops.count, loops.length
        self.v, self.piece, self.pieces = loops.v, loops.piece, loops.pieces
        self.group, self.joining = Group(*loops.group.key), Group(*loops.joining.key)
        self.t = "long long" if self.wide else "int"

    # --------------------------------------------------------------------------------------------------------- writing
    def write(self) -> tuple[str, tuple[Launch, ...], int]:
        w, g = self.w, self.group
        first = self._first()
        functions = [("reduce", g.threads, first)]
        if self.pieces > 1:
            w.lines = []
            functions.append(("reduce_join", 256, self._second()))
        source, names = w.source(functions)
        launches: list[Launch] = [(names[0], (self.loops.blocks, self.pieces, 1), (g.x, g.y, 1), 0)]
        if self.pieces > 1:
            g = self.joining
            launches.append((names[1], (-(-self.count // g.rows), 1, 1), (g.x, g.y, 1), 0))
        return source, tuple(launches), self.loops.workspace

    def _states(self) -> list[State]:
        return states_of(self.program.combine, [e.dtype for e in self.program.elems])

    def _start(self, operands: list[int], g: Group) -> tuple[str, str, dict[int, str], dict[int, str]]:
        """The row of this thread (the last one for those beyond the end), whether it is one, and what is at its place."""
        w, t = self.w, self.t
        row, live = g.start(w, t, self.count)
        places, coords = Walk(w, self.kept, self.wide).places(row, operands)
        return row, live, places, coords

    def _first(self) -> list[str]:
        w, g = self.w, self.group
        single = self.pieces == 1
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
            chunk = w.let(t, f"({t}){w.word(self.piece)}", "chunk")
            begin = w.let(t, f"({t})blockIdx.y * {chunk}", "begin")
            end = w.let(t, f"{n} - {begin} < {chunk} ? {n} : {begin} + {chunk}", "end")
        walk = Walk(w, self.reduced, self.wide)
        moving = self.loops.moving
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
        several = self.loops.facts.operations <= 8 and not any(len(s.types) > 1 for s in states)
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
        at, coords = Walk(self.w, self.loops.packed(), self.wide).places(f"({r} / {self.v})", moving)
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
        rooms = iter(self.loops.rooms)
        return [[w.let(f"{t}* const", f"({t}*)({work} + {w.word(next(rooms))})", "a") for t in s.types] for s in states]

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
        w.line(f"for (int {c} = (int)threadIdx.x; {c} < (int){w.word(self.pieces)}; {c} += {g.x}) {{")
        at = w.let("long long", f"(long long){c} * {w.word(self.count)} + {row}", "at")
        for s, parts in zip(states, arrays):
            s.join(w, [f"{a}[{at}]" for a in parts])
        w.line("}")
        g.gather(w, states, everyone=False)
        w.line(f"if ({live} && threadIdx.x == 0) {{")
        self._finish(states, pointers, places, coords, names)
        w.line("}")
        return w.lines

"""Row programs: a group of threads for each row, in one kernel.

An operand that several stages read is loaded once and kept: in registers, or in shared memory where the row is too long for
those (each thread keeps its own elements there, so nobody waits).  Longer rows still are read again by each stage
(`rows_streaming`); where those are too few to fill a GPU, each goes to many blocks (`long_rows`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..c_forms import half
from ..expr import walk
from ..loops.accumulators import EXPSUM
from ..loops.operands import moving
from ..loops.walk import FUNCTIONS
from .lower import from_stored, leaves, round_half, to_stored
from .thread_groups import Group, State, finished, join_all, states_of
from .types import stored, value
from .writer import Walk

if TYPE_CHECKING:
    from ..expr import Expr
    from ..kernel import Launch
    from ..loops.rows import ByThreads, Part
    from ..programs import Rows
    from .lower import Leaf
    from .writer import Writer


def write(w: Writer, program: Rows, loops: ByThreads, numbers: int) -> tuple[str, tuple[Launch, ...], int]:
    """The source, the launches and the bytes of workspace."""
    from .long_rows import LongRows
    from .rows_streaming import StreamingRows
    kinds = {"pieces": LongRows, "again": StreamingRows if loops.group.kind == "block" else RowProgram}
    return kinds.get(loops.way, RowProgram)(w, program, loops, numbers).write()


class RowProgram:
    once = ""  # what more holds for the threads that write a row's values

    def __init__(self, w: Writer, program: Rows, loops: ByThreads, numbers: int) -> None:
        self.w, self.program, self.loops, self.numbers = w, program, loops, numbers
        self.rank, self.outs, self.sizes, self.used, self.wide = loops.rank, loops.outs, loops.sizes, loops.used, loops.wide
        self.outer, self.inner, self.rows, self.length = loops.outer, loops.inner, loops.rows, loops.length
        self.group, self.v, self.rounds, self.cached = Group(*loops.group.key), loops.v, loops.rounds, loops.cached
        self.whole = loops.way == "registers"
        self.t = "long long" if self.wide else "int"

    # --------------------------------------------------------------------------------------------------------- writing
    def write(self) -> tuple[str, tuple[Launch, ...], int]:
        w, g, v = self.w, self.group, self.v
        self._open()
        if self.loops.shared:
            w.line("extern __shared__ __align__(16) unsigned char kept[];")
            at = 0
            for k in self.cached:
                kind = stored(w.types[k]) if v == 1 else f"Vec<{stored(w.types[k])}, {v}>"
                w.line(f"{kind}* const {self.held[k]} = ({kind}*)(kept + {w.word(at)});")
                at += -(-self.length * self.sizes[k] // 16) * 16
            self._fill_shared()
        elif self.cached and self.rounds:
            for k in self.cached:
                w.line(f"{stored(w.types[k]) if v == 1 else f'Vec<{stored(w.types[k])}, {v}>'} {self.held[k]}[{self.rounds}];")
            self._pass(lambda p, i, inside: self._fill(p, i, inside), guard=False)
        for at, step in enumerate(self.loops.passes):
            self._step(at, step)
        source, found = w.source([("rows", g.threads, w.lines)])
        return source, ((found[0], (-(-self.rows // g.rows), 1, 1), (g.x, g.y, 1), self.loops.shared),), 0

    def _open(self) -> str:
        """Pointers, numbers, the row, and what is the same for all of it."""
        w, g, t, v = self.w, self.group, self.t, self.v
        everything = range(len(self.sizes))
        self.pointers = {k: w.pointer(k) for k in everything}
        self.names = w.numbers(self.numbers)
        row, self.live = g.start(w, t, self.rows)
        places, self.coords = Walk(w, self.outer, self.wide).places(row, list(everything))
        self.q = {k: w.let("unsigned char* const", f"{self.pointers[k]} + {places[k]}" if k in places else self.pointers[k], "q") for k in everything}
        self.n = w.let(t, f"({t}){w.word(self.length)}", "n")
        self.steps_by = {k: w.let(t, f"({t}){w.word(self.inner.strides[k])}", "by") for k in everything
                         if self.inner.strides[k] and self.inner.strides[k] != self.sizes[k]}
        self.aligned = ""
        if v > 1:
            w.need("vec")
            self.aligned = self._aligned([k for k in everything if self.inner.strides[k]])
        # a number a row; a row without elements has none to read
        fixed = [k for k in self.used if not self.inner.strides[k]]
        self.fixed = {k: w.let(value(w.types[k]), w.load(self.q[k], "0", w.types[k]), "f") for k in fixed} if self.length else dict.fromkeys(self.used, "0")
        self.known: dict[Expr, str] = {}
        self.accs: list[str] = []
        self.held = {k: w.fresh("h") for k in self.cached}
        self.saved: dict[Expr, str] = {}
        return row

    def _aligned(self, moving: list[int]) -> str:
        """Whether neighbours may be read at once."""
        return self.w.let("bool", " && ".join(f"((unsigned long long){self.q[k]} & {self.v * self.sizes[k] - 1}) == 0" for k in moving), "aligned")

    def _pass(self, body: Any, guard: bool = True, together: int = 0) -> None:
        """The thread's elements: body(pass, index of the first of v neighbours, whether it is one of the row).

        v divides the row's length, so neighbours are all of the row, or none is."""
        if not self.rounds:
            return
        w, t, step = self.w, self.t, self.group.size * self.v
        p = w.fresh("p")
        if self.whole:
            w.line("#pragma unroll")
            w.line(f"for (int {p} = 0; {p} < {self.rounds}; {p}++) {{")
            i = w.let(t, f"{p} * {step} + {self.group.member}{f' * {self.v}' if self.v > 1 else ''}", "i")
        else:
            i = w.fresh("i")
            if together:
                w.line(f"#pragma unroll {together}")
            w.line(f"for ({t} {i} = {self.group.member}{f' * {self.v}' if self.v > 1 else ''}; {i} < {self.n}; {i} += {step}) {{")
        if guard and self.whole:
            w.line(f"if ({i} < {self.n}) {{")
        body(p, i, f"{i} < {self.n}")
        if guard and self.whole:
            w.line("}")
        w.line("}")

    def _fill(self, p: str, i: str, inside: str) -> None:
        """Keeps the row's operands."""
        w = self.w
        if self.whole:
            w.line(f"if ({inside}) {{")
        for k in self.cached:
            self._load(k, self._held(k, p, i), i)
        if self.whole:
            w.line("}")

    def _fill_shared(self) -> None:
        """Keeps the row's operands, all on their way at once where the copies are of a size that needs no registers."""
        w, v = self.w, self.v
        straight = all(v * self.sizes[k] in (4, 8, 16) for k in self.cached)
        if straight:
            w.need("copy_async")
            if self.aligned:
                w.line(f"if ({self.aligned}) {{")

            def copy(p: str, i: str, inside: str) -> None:
                for k in self.cached:
                    w.line(f"copy_async_{v * self.sizes[k]}(&{self._held(k, p, i)}, {self._place(k, i)});")
            self._pass(copy)
            w.line("copy_async_commit();")
            w.line("copy_async_wait<0>();")
            if self.aligned:
                w.line("} else {")
        if self.aligned or not straight:
            self._pass(lambda p, i, inside: self._fill(p, i, inside), together=8)
        if straight and self.aligned:
            w.line("}")

    def _held(self, k: int, p: str, i: str) -> str:
        """Where a kept operand's neighbours at i are."""
        return f"{self.held[k]}[{p if self.whole else f'{i} / {self.v}' if self.v > 1 else i}]"

    def _place(self, k: int, i: str) -> str:
        return f"{self.q[k]} + {i} * {self.steps_by.get(k, self.sizes[k])}"

    def _load(self, k: int, into: str, i: str) -> None:
        w, s = self.w, stored(self.w.types[k])
        if self.v == 1:
            w.line(f"{into} = *(const {s}*)({self._place(k, i)});")
            return
        if self.aligned == "true":
            w.line(f"{into} = *(const Vec<{s}, {self.v}>*)({self._place(k, i)});")
            return
        w.line(f"if ({self.aligned}) {into} = *(const Vec<{s}, {self.v}>*)({self._place(k, i)});")
        w.line("else {")
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {self.v}; k++) {into}.v[k] = ((const {s}*)({self._place(k, i)}))[k];")
        w.line("}")

    def _varying(self, roots: tuple[Expr, ...]) -> set[Expr]:
        """The nodes whose value is not the same for a whole row."""
        return moving(roots, self.rank, (self.rank - 1,), {k - self.outs for k in self.loops.moves})

    def _step(self, at: int, step: list[Part]) -> None:
        w = self.w
        roots = tuple(s[2] for s in step)
        varying = self._varying(roots)
        self._constant(roots, varying)
        if step[0][0] == "reduce":
            self._finish(self._states(at, step, roots, varying))
            return
        maps = [s for s in step if s[0] == "map"]
        if maps:
            self._pass(lambda p, i, inside: self._elements(at, step, tuple(s[2] for s in maps), varying, p, i, []))
        for _, out, e in (s for s in step if s[0] == "row"):
            w.line(f"if ({self.live}{f' && {self.group.member} == 0' if self.group.size > 1 else ''}{self.once}) {{")
            if e not in self.known and self.length:  # it differs along the row: that of the first element
                read = {self.outs + x.value for x in walk((e,)) if x.op == "input" and self.inner.strides[self.outs + x.value]}
                elements = {k: w.let(value(w.types[k]), w.load(self.q[k], "0", w.types[k]), "r") for k in read}
                (x,) = w.lower((e,), self._leaf(elements, "0"), dict(self.known))
            else:
                x = self.known.get(e, "0")
            w.line(f"*({stored(e.dtype)}*){self.q[out]} = {to_stored(w, x, e.dtype)};")
            w.line("}")

    def _constant(self, roots: tuple[Expr, ...], varying: set[Expr]) -> None:
        """What is the same for the whole row is computed once."""
        ready = [e for e in walk(roots) if e not in varying]
        if self.length or not any(e.op in ("input", "gather") for e in ready):
            self.w.lower(tuple(ready), self._leaf({}, ""), self.known)

    def _states(self, at: int, step: list[Part], roots: tuple[Expr, ...], varying: set[Expr]) -> list[State]:
        """The thread's own accumulators."""
        states = states_of([s[1] for s in step], [s[2].dtype for s in step])
        for s in states:
            s.declare(self.w)
            s.open(self.w)
        self._keep_functions(at, varying)
        self._pass(lambda p, i, inside: self._elements(at, step, roots, varying, p, i, states))
        for s in states:
            s.close(self.w)
        return states

    def _finish(self, states: list[State]) -> None:
        """The row's accumulators, known to all of its threads."""
        w = self.w
        self.group.gather(w, states, everyone=True)
        for s in states:
            for text in finished(s):
                self.accs.append(w.let(s.types[0], round_half(w, text, s.dtype) if half(s.dtype) else text, "acc"))

    def _keep_functions(self, at: int, varying: set[Expr]) -> None:
        """Room for the values of functions that a later step needs again."""
        if not self.whole or not self.rounds:
            return
        later = {e for step in self.loops.passes[at + 1:] for e in walk(tuple(s[2] for s in step))}
        for e in sorted((e for e in varying if e.op in FUNCTIONS and e in later and e not in self.saved), key=lambda e: e.id):
            if (len(self.saved) + len(self.cached) + 1) * self.rounds * self.v * self.loops.registers > self.loops.machine.values:
                return
            self.saved[e] = w_name = self.w.fresh("z")
            self.w.line(f"{value(e.dtype)} {w_name}[{self.rounds * self.v}];")

    def _elements(self, at: int, step: list[Part], roots: tuple[Expr, ...], varying: set[Expr], p: str, i: str, states: list[State]) -> None:
        self._compute(at, step, roots, varying, p, i, states, self._read(roots, p, i))

    def _read(self, roots: tuple[Expr, ...], p: str, i: str) -> dict[int, str]:
        """The neighbours at i of each operand, or where they are kept."""
        w, v = self.w, self.v
        need = sorted({self.outs + e.value for e in walk(roots) if e.op == "input" and self.inner.strides[self.outs + e.value]})
        source = {}
        for k in need:
            if k in self.cached:
                source[k] = self._held(k, p, i)
            else:
                source[k] = w.fresh("r")
                w.line(f"{stored(w.types[k]) if v == 1 else f'Vec<{stored(w.types[k])}, {v}>'} {source[k]};")
                self._load(k, source[k], i)
        return source

    def _compute(self, at: int, step: list[Part], roots: tuple[Expr, ...], varying: set[Expr], p: str, i: str, states: list[State],
                 source: dict[int, str]) -> None:
        """Takes the neighbours into the accumulators, or writes what they give."""
        w, v = self.w, self.v
        maps = [] if states else [s for s in step if s[0] == "map"]
        results = {}
        gathered = {number: w.fresh("u") for number, s in enumerate(states) if s.how == EXPSUM and v > 1}
        for number, array in gathered.items():
            w.line(f"{states[number].types[0]} {array}[{v}];")
        if v > 1:
            for s in maps:
                results[s[1]] = w.fresh("y")
                w.line(f"Vec<{stored(s[2].dtype)}, {v}> {results[s[1]]};")
            w.line("#pragma unroll")
            w.line(f"for (int k = 0; k < {v}; k++) {{")
        known = dict(self.known)
        for e, array in self.saved.items():
            if e in varying and self._made(e, at):
                known[e] = f"{array}[{p} * {v} + k]" if v > 1 else f"{array}[{p}]"
        before = set(known)
        elements = {k: from_stored(w, text + (".v[k]" if v > 1 else ""), w.types[k]) for k, text in source.items()}
        values = w.lower(roots, self._leaf(elements, f"({i} + k)" if v > 1 else i), known)
        for e, array in self.saved.items():
            if e not in before and e in known:
                w.line(f"{array}[{f'{p} * {v} + k' if v > 1 else p}] = {known[e]};")
        join_all(w, states, values, later={number: f"{array}[k]" for number, array in gathered.items()})
        for s, x in zip(maps, values):
            t = stored(s[2].dtype)
            if v > 1:
                w.line(f"{results[s[1]]}.v[k] = {to_stored(w, x, s[2].dtype)};")
            else:
                w.line(f"if ({self.live}) *({t}*)({self._place(s[1], i)}) = {to_stored(w, x, s[2].dtype)};")
        if v > 1:
            w.line("}")
            for number, array in gathered.items():
                states[number].add(w, [f"{array}[{k}]" for k in range(v)])
            for s in maps:
                t, place = stored(s[2].dtype), self._place(s[1], i)
                if self.aligned == "true":
                    w.line(f"if ({self.live}) *(Vec<{t}, {v}>*)({place}) = {results[s[1]]};")
                    continue
                w.line(f"if ({self.live} && {self.aligned}) *(Vec<{t}, {v}>*)({place}) = {results[s[1]]};")
                w.line(f"else if ({self.live}) {{")
                w.line("#pragma unroll")
                w.line(f"for (int k = 0; k < {v}; k++) (({t}*)({place}))[k] = {results[s[1]]}.v[k];")
                w.line("}")

    def _made(self, e: Expr, at: int) -> bool:
        """Whether a step before this one has kept the value."""
        return any(e in set(walk(tuple(s[2] for s in step))) for step in self.loops.passes[:at] if step[0][0] == "reduce")

    def _leaf(self, elements: dict[int, str], i: str) -> Leaf:
        coords = {**self.coords, self.rank - 1: i}
        return leaves(self.w, self.outs, self.rank, lambda k: elements[k] if k in elements else self.fixed[k], coords, self.names, self.pointers, self.accs)

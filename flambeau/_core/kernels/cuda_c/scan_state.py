"""The state of a scan in C: its variables, how two states combine, and how an element enters one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..c_forms import half
from ..loops.accumulators import start_of
from .lower import apply, from_stored, leaves, round_half, to_stored
from .thread_groups import NOWHERE, State, multiply
from .types import literal, stored, value
from .writer import Walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..loops.scans import ByThreads
    from ..programs import Scan
    from .lower import Leaf
    from .writer import Writer


class Running:
    """parts: how many values an element brings; types: of the running value's variables, the position of an extreme last."""

    def __init__(self, w: Writer, program: Scan, loops: ByThreads, numbers: int) -> None:
        self.w, self.program, self.loops, self.numbers = w, program, loops, numbers
        self.rank, self.outs, self.sizes, self.used, self.wide = loops.rank, loops.outs, loops.sizes, loops.used, loops.wide
        self.outer, self.inner, self.rows, self.length = loops.outer, loops.inner, loops.rows, loops.length
        self.d, self.parts, self.how = program.elem.dtype, loops.parts, loops.how
        self.t = "long long" if self.wide else "int"
        self.types = [value(self.d)] * self.parts + [self.t] * loops.positions

    # ---------------------------------------------------------------------------------------------------------- operands
    def pointers_and_numbers(self) -> None:
        self.pointers = {k: self.w.pointer(k) for k in range(len(self.sizes))}
        self.names = self.w.numbers(self.numbers)

    def begin_row(self, row: str) -> None:
        """Where the row's operands begin, and what is the same for all of it."""
        w = self.w
        everything = range(len(self.sizes))
        places, self.coords = Walk(w, self.outer, self.wide).places(row, list(everything))
        self.q = {k: w.let("unsigned char* const", f"{self.pointers[k]} + {places[k]}" if k in places else self.pointers[k], "q") for k in everything}
        self.by = {k: f"{self.sizes[k]}" if self.inner.strides[k] == self.sizes[k] else w.let(self.t, f"({self.t}){w.word(self.inner.strides[k])}", "by")
                   for k in everything if self.inner.strides[k]}
        self.n = w.let(self.t, f"({self.t}){w.word(self.length)}", "n")
        self.fixed = {k: w.let(value(w.types[k]), w.load(self.q[k], "0", w.types[k]), "f") for k in self.used if k not in self.by}
        self.moving = [k for k in self.used if k in self.by]

    def place(self, k: int, i: str) -> str:
        return f"{self.q[k]} + {i} * {self.by[k]}" if k in self.by else self.q[k]

    def where(self, i: str) -> str:
        """The index of the i-th element in the direction of the scan."""
        return self.w.let(self.t, f"{self.n} - 1 - {i}", "e") if self.program.reverse else i

    def _leaf(self, elements: dict[int, str], e: str, accs: Sequence[str]) -> Leaf:
        w = self.w
        found: dict[int, str] = dict(self.fixed)

        def read(k: int) -> str:
            if k not in found:
                found[k] = w.let(value(w.types[k]), from_stored(w, elements[k], w.types[k]), "x")
            return found[k]
        return leaves(w, self.outs, self.rank, read, {**self.coords, self.rank - 1: e}, self.names, self.pointers, accs)

    def brings(self, elements: dict[int, str], e: str) -> list[str]:
        """The value and the position of the element e, whose operands stand at `elements`."""
        values = self.w.lower(self.program.roots()[:self.parts], self._leaf(elements, e, []), {})
        return [*values, e][:len(self.types)]

    def results(self, state: Sequence[str], elements: dict[int, str], e: str) -> list[str]:
        """The values that the outputs get at element e."""
        w = self.w
        accs = [w.let(self.types[0], round_half(w, x, self.d) if half(self.d) else x, "acc") for x in state[:self.parts]]
        accs += [f"(long long){x}" for x in state[self.parts:]]
        values = w.lower(self.program.posts, self._leaf(elements, e, accs), {})
        return [to_stored(w, x, p.dtype) for x, p in zip(values, self.program.posts)]

    def put(self, k: int, e: str, text: str) -> None:
        self.w.line(f"*({stored(self.program.posts[k].dtype)}*)({self.place(k, e)}) = {text};")

    # ------------------------------------------------------------------------------------------------------ accumulation
    def start(self) -> list[str]:
        first = literal(start_of(self.how, self.d), self.d)
        return [first, literal(0, self.d) if self.how == "prod" else first][:self.parts] + ["-1"] * (len(self.types) - self.parts)

    def declare(self, values: Sequence[str], stem: str = "s") -> list[str]:
        names = [self.w.fresh(stem) for _ in self.types]
        for n, t, v in zip(names, self.types, values):
            self.w.line(f"{t} {n} = {v};")
        return names

    def join(self, into: Sequence[str], later: Sequence[str], order: bool = True) -> None:
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

    # Totals may be combined in any order: of equal extremes, the position decides which one the scan meets last.
    def totals(self) -> list[State]:
        if self.how in ("max", "min"):
            return [State(f"{'c' * (self.parts - 1)}arg{self.how}", self.d)]
        if self.how == "prod":
            return [State(f"{'c' * (self.parts - 1)}prod", self.d)]
        return [State(self.how, self.d) for _ in range(self.parts)]

    def join_total(self, states: Sequence[State], values: Sequence[str]) -> None:
        at = 0
        for s in states:
            size = len(s.types)
            s.join(self.w, [*values[at:at + s.parts], *(self._position(v) for v in values[at + s.parts:at + size])])
            at += size

    def _position(self, text: str) -> str:
        """Extremes go to the lowest position; the scan meets the highest last, or, from the end, the lowest."""
        return f"(long long){text}" if self.program.reverse else f"-(long long){text}"

    def values_of(self, states: Sequence[State]) -> list[str]:
        """A total as the scan's state; the total of no elements is the start."""
        names = [n for s in states for n in s.names]
        return [f"({self.t})({n} == {NOWHERE} ? -1 : {self._position(n)})" if k >= self.parts else n for k, n in enumerate(names)]

"""Row programs over rows that do not fit into registers: each stage reads its operands again.

Vector loads begin at the row's first aligned element, so rows of any length are read by vectors; the elements before and after
them are read one by one.  Every second stage walks backwards, because the elements that the stage before read last are still in a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..expr import walk
from .rows import RowProgram

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..expr import Expr
    from ..loops.rows import Part
    from .thread_groups import State

SIMPLE = 96  # up to so many operations for a vector, four vector loads are in flight at once


class StreamingRows(RowProgram):
    next: tuple[str, str] | None = None  # whether there is a second place to go with the first, and which

    def _open(self) -> str:
        row = super()._open()
        self.begin, self.end = self._piece()
        if self.v > 1:
            self._bounds()
        return row

    def _piece(self) -> tuple[str, str]:
        """The part of the row that the block takes."""
        return "0", self.n

    def _aligned(self, moving: list[int]) -> str:
        w, v = self.w, self.v
        # operands that move from row to row tell where vectors begin
        first = min(moving, key=lambda k: not any(x.strides[k] for x in self.outer))
        self.head = w.let(self.t, f"({self.t})(0 - (unsigned long long){self.q[first]} / {self.sizes[first]} & {v - 1})", "head")
        tests = [f"((unsigned long long)({self.q[k]} + {self.head} * {self.sizes[k]}) & {v * self.sizes[k] - 1}) == 0" for k in moving]
        return w.let("bool", " && ".join(tests), "aligned")

    def _bounds(self) -> None:
        """Vectors go from `first` to `last`; elements from `start` to `first`, and from `last` to `stop`."""
        w, t, v, n, begin, end = self.w, self.t, self.v, self.n, self.begin, self.end

        def shifted(i: str) -> str:
            return f"{n} - {i} > {self.head} ? {i} + {self.head} : {n}"
        self.stop = w.let(t, f"{self.aligned} ? ({shifted(end)}) : {end}", "stop")
        self.first = w.let(t, f"{self.aligned} ? ({shifted(begin)}) : {end}", "first")
        self.last = w.let(t, f"{self.first} + ({self.stop} - {self.first}) / {v} * {v}", "last")
        self.before = w.let(t, f"{begin} == 0 || !{self.aligned} ? {self.first} - {begin} : 0", "before")

    def prepare(self, at: int, step: list[Part]) -> None:
        """How the step walks the row."""
        self.backwards, self.maps = at % 2 == 1, step[0][0] != "reduce"
        made = [e for e in walk(tuple(s[2] for s in step)) if e.args]
        few = len(made) * self.v <= SIMPLE and all(e.dtype.itemsize < 8 for e in made)
        self.several = 4 if few else 1 if self.v > 1 else 2

    def _step(self, at: int, step: list[Part]) -> None:
        self.prepare(at, step)
        super()._step(at, step)

    def _pass(self, body: Any, guard: bool = True, together: int = 0) -> None:
        if not self.length:
            return
        if self.v == 1:
            self._loop(body, self.begin, self.end)
            return
        w, v, aligned = self.w, self.v, self.aligned
        self.aligned = "true"
        self._loop(body, self.first, self.last)
        self.v = 1
        count = w.let(self.t, f"{self.before} + {self.stop} - {self.last}", "count")
        self._loop(body, "0", count, lambda i: w.let(self.t, f"{i} < {self.before} ? {self.begin} + {i} : {self.last} + {i} - {self.before}", "i"))
        self.v, self.aligned = v, aligned

    def _loop(self, body: Any, begin: str, end: str, place: Callable[[str], str] = lambda i: i) -> None:
        """The thread's elements from begin to end; place: where the i-th is."""
        w, t, v = self.w, self.t, self.v
        step = self.group.size * v
        first = w.let(t, f"{begin} + {self.group.member}{f' * {v}' if v > 1 else ''}", "first")
        i = w.fresh("i")
        by = 2 * step if self.maps else step
        loop = f"for ({t} {i} = {first}; {i} < {end}; {i} += {by}) {{"
        if self.backwards:
            last = w.let(t, f"{end} > {first} ? {first} + ({end} - {first} - 1) / {step} * {step} : {begin} - 1", "last")
            loop = f"for ({t} {i} = {last}; {i} >= {begin}; {i} -= {by}) {{"
        if not self.maps:
            w.line(f"#pragma unroll {self.several}")
        w.line(loop)
        self.next = None
        if self.maps:
            more = w.let("bool", f"{i} - {begin} >= {step}" if self.backwards else f"{end} - {i} > {step}", "more")
            self.next = more, place(w.let(t, f"{more} ? {i} {'-' if self.backwards else '+'} {step} : {i}", "i"))
        body("0", place(i), "true")
        w.line("}")

    def _elements(self, at: int, step: list[Part], roots: tuple[Expr, ...], varying: set[Expr], p: str, i: str, states: list[State]) -> None:
        """Two loads before both stores, so that enough bytes are in flight to keep memory busy."""
        here = self._read(roots, p, i)
        if self.next is None:
            self._compute(at, step, roots, varying, p, i, states, here)
            return
        more, j = self.next
        there = self._read(roots, p, j)
        self._compute(at, step, roots, varying, p, i, states, here)
        self.w.line(f"if ({more}) {{")
        self._compute(at, step, roots, varying, p, j, states, there)
        self.w.line("}")

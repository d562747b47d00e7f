"""Row programs over few and long rows: each row is cut into pieces and each piece goes to a block, so that all multiprocessors work.

Each step is a launch.  A block accumulates over its piece and writes its partial result to the workspace.  In the next step each block
first combines the partial results of all pieces, always in the same order: no atomics are used, and equal inputs give equal bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..expr import walk
from .rows_streaming import StreamingRows
from .thread_groups import states_of

if TYPE_CHECKING:
    from ..kernel import Launch
    from ..loops.rows import ByThreads, Part
    from ..programs import Rows
    from .writer import Writer


class LongRows(StreamingRows):
    def __init__(self, w: Writer, program: Rows, loops: ByThreads, numbers: int) -> None:
        super().__init__(w, program, loops, numbers)
        self.reductions = [states_of([s[1] for s in step], [s[2].dtype for s in step]) if step[0][0] == "reduce" else [] for step in loops.passes]

    # --------------------------------------------------------------------------------------------------------- writing
    def write(self) -> tuple[str, tuple[Launch, ...], int]:
        w, g, loops = self.w, self.group, self.loops
        functions, grids = [], []
        for at, step in enumerate(loops.passes):
            w.lines = []
            whole = all(s[0] == "row" for s in step)
            self.once = "" if whole else " && blockIdx.y == 0"
            row = self._open()
            self._join(at, step, row)
            if self.reductions[at]:
                self._part(at, step, row)
            else:
                self._step(at, step)
            functions.append((f"rows_part{at}" if self.reductions[at] else f"rows{at}", g.threads, w.lines))
            grids.append((-(-self.rows // g.rows), 1 if whole else loops.pieces, 1))
        source, names = w.source(functions)
        return source, tuple((name, grid, (g.x, g.y, 1), 0) for name, grid in zip(names, grids)), loops.workspace

    def _piece(self) -> tuple[str, str]:
        w, t = self.w, self.t
        piece = w.let(t, f"({t}){w.word(self.loops.piece)}", "piece")
        begin = w.let(t, f"({t})blockIdx.y * {piece}", "begin")
        return begin, w.let(t, f"{self.n} - {begin} < {piece} ? {self.n} : {begin} + {piece}", "end")

    def _arrays(self, at: int) -> list[list[str]]:
        """Where step `at` keeps its partial results: one for each row and piece."""
        w, rooms = self.w, iter(self.loops.states[at])
        work = w.let("unsigned char* const", f"(unsigned char*)a.w[{self.numbers - 1}]", "work")
        return [[w.let(f"{t}* const", f"({t}*)({work} + {w.word(next(rooms))})", "a") for t in s.types] for s in self.reductions[at]]

    def _place_of(self, row: str, piece: str) -> str:
        """The partial result's place: rows of adjacent threads are adjacent in the workspace."""
        w = self.w
        if self.group.kind == "across":
            return w.let("long long", f"(long long){piece} * {w.word(self.rows)} + {row}", "at")
        return w.let("long long", f"(long long){row} * {w.word(self.loops.pieces)} + {piece}", "at")

    def _part(self, at: int, step: list[Part], row: str) -> None:
        """The accumulators of this piece."""
        w = self.w
        roots = tuple(s[2] for s in step)
        varying = self._varying(roots)
        self.prepare(at, step)
        self._constant(roots, varying)
        states = self._states(at, step, roots, varying)
        self.group.gather(w, states, everyone=False)
        w.line(f"if ({self.live} && {self.group.member} == 0) {{")
        place = self._place_of(row, "blockIdx.y")
        for s, arrays in zip(states, self._arrays(at)):
            for name, array in zip(s.names, arrays):
                w.line(f"{array}[{place}] = {name};")
        w.line("}")

    def _join(self, at: int, step: list[Part], row: str) -> None:
        """The accumulators of earlier steps that this step reads."""
        w = self.w
        asked = {int(e.value) for e in walk(tuple(s[2] for s in step)) if e.op == "acc"}
        number, found, arrays = 0, [], []
        for earlier in range(at):
            for s, own in zip(self.reductions[earlier], self._arrays(earlier)):
                if asked & set(range(number, number + s.parts)):
                    found.append((number, s))
                    arrays.append(own)
                number += s.parts
        if not found:
            return
        for _, s in found:
            s.declare(w)
        c = w.fresh("c")
        w.line(f"for (int {c} = {self.group.member}; {c} < (int){w.word(self.loops.pieces)}; {c} += {self.group.size}) {{")
        place = self._place_of(row, c)
        for (_, s), own in zip(found, arrays):
            s.join(w, [f"{a}[{place}]" for a in own])
        w.line("}")
        self._finish([s for _, s in found])
        made, self.accs = iter(self.accs), ["0"] * number
        for first, s in found:
            for k in range(s.parts):
                self.accs[first + k] = next(made)

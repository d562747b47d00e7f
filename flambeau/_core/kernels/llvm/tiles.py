"""Maps that turn rows into columns: an input's neighbours lie along another axis than the outputs'.

Walked along the outputs' innermost axis i, such an input is read one element a cache line.  Here squares of T x T
elements are read along the input's own axis j and transposed in registers, so that both sides move whole lines.  A unit
of work is a band of BAND places along j over all of i; what is left at the edges goes element by element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..loops.maps import BAND, side_of
from .launches import Plan

if TYPE_CHECKING:
    from ..expr import Expr
    from ..loops.maps import Across, ByVectors
    from ..programs import Map
    from .emit import Emitter, Module

NAME = "flambeau_map"
WORD_I, WORD_J, WORD_BANDS, WORD_OUTER, WORD_STRIDES = 0, 1, 2, 3, 4  # strides along i, along j, outer axes


def plan(loops: ByVectors, across: Across) -> Plan:
    """The launch by squares."""
    inner, line = loops.inner, loops.axes[across.axis]
    params = [inner.size, line.size, -(-line.size // BAND), len(loops.outer), *inner.strides, *line.strides]
    for a in loops.outer:
        params.append(a.size)
        params.extend(a.strides)
    return Plan(("tiles", loops.classes, loops.streams), (NAME,), [(NAME, loops.units, loops.chunk)], params, parallel=loops.parallel)


def write(program: Map, key: tuple[Any, ...], module: Module) -> None:
    """Adds the kernel for a plan's key to `module`."""
    from .emit import Emitter
    em = Emitter(module, f"void @{NAME}(i64 %begin, i64 %end, ptr %args, ptr %block)")
    _Tiles(em, program, key).write()
    em.line("ret void")
    em.finish()


class _Tiles:
    def __init__(self, em: Emitter, program: Map, key: tuple[Any, ...]) -> None:
        self.em, self.program = em, program
        _, self.classes, self.streams = key
        self.types, self.outs = program.out_types + program.inputs, len(program.outs)
        self.t = side_of(program)

    def write(self) -> None:
        em, n = self.em, len(self.types)
        bases = [em.pointer("%args", k) for k in range(n)]
        self.along_i = [em.word("%block", WORD_STRIDES + k) for k in range(n)]
        self.along_j = [em.word("%block", WORD_STRIDES + n + k) for k in range(n)]
        size_i, size_j = em.word("%block", WORD_I), em.word("%block", WORD_J)
        bands, outer = em.word("%block", WORD_BANDS), em.word("%block", WORD_OUTER)
        tables = em.at("%block", str(8 * (WORD_STRIDES + 2 * n)))
        aligned = self._aligned(bases)
        with em.loop("%begin", "%end") as unit:
            rest = em.op(f"sdiv i64 {unit.i}, {bands}")
            first = em.mul(em.sub(unit.i, em.mul(rest, bands)), str(BAND))
            last = em.smaller(em.add(first, str(BAND)), size_j)
            with em.loop("0", outer, carried=[("i64", rest)] + [("ptr", p) for p in bases]) as axis:
                table = em.at(tables, em.mul(axis.i, str(8 * (n + 1))))
                size = em.word(table, 0)
                left = em.op(f"sdiv i64 {axis.vars[0]}, {size}")
                digit = em.sub(axis.vars[0], em.mul(left, size))
                axis.next = [left] + [em.at(p, em.mul(digit, em.word(table, 1 + k)))
                                      for k, p in enumerate(axis.vars[1:])]
            at = axis.vars[1:]
            with em.loop("0", size_i, str(self.t)) as i, em.loop(first, last, str(self.t)) as j:
                self._square_or_edge(at, i.i, j.i, size_i, last, aligned)
        if self.streams:
            em.fence_streams()

    def _aligned(self, bases: list[str]) -> str:
        """Whether the outputs may be written past the caches (i1)."""
        em = self.em
        if not self.streams:
            return "false"
        bits = [em.op(f"ptrtoint ptr {p} to i64") for p in bases[:self.outs]]
        for other in bits[1:]:
            bits[0] = em.op(f"or i64 {bits[0]}, {other}")
        return em.op(f"icmp eq i64 {em.op(f'and i64 {bits[0]}, 63')}, 0")

    def _square_or_edge(self, at: list[str], i: str, j: str, end_i: str, end_j: str, aligned: str) -> None:
        em = self.em
        far_i, far_j = em.add(i, str(self.t)), em.add(j, str(self.t))
        whole = em.op(f"and i1 {em.op(f'icmp sle i64 {far_i}, {end_i}')}, {em.op(f'icmp sle i64 {far_j}, {end_j}')}")
        square, edge, done = em.label("square"), em.label("edge"), em.label("after")
        em.branch(whole, square, edge)
        em.start(square)
        if self.streams:
            past, plain = em.label("streamed"), em.label("cached")
            em.branch(aligned, past, plain)
            em.start(past)
            self._square(at, i, j, True)
            em.jump(done)
            em.start(plain)
        self._square(at, i, j, False)
        em.jump(done)
        em.start(edge)
        with em.loop(j, em.smaller(far_j, end_j)) as row, em.loop(i, em.smaller(far_i, end_i)) as column:
            self._elements(at, column.i, row.i, 1, {}, False)
        em.jump(done)
        em.start(done)

    def _place(self, at: list[str], k: int, i: str, j: str) -> str:
        em = self.em
        return em.at(em.at(at[k], em.mul(j, self.along_j[k])), em.mul(i, self.along_i[k]))

    def _square(self, at: list[str], i: str, j: str, streaming: bool) -> None:
        em, columns = self.em, {}
        for k, c in enumerate(self.classes):
            if c == "t":
                columns[k] = self._columns(k, at, i, j)
        for row in range(self.t):
            given = {k: v[row] for k, v in columns.items()}
            self._elements(at, i, em.add(j, str(row)), self.t, given, streaming)

    def _columns(self, k: int, at: list[str], i: str, j: str) -> list[str]:
        """The square of operand k as vectors along i, one for each place along j."""
        from .emit import base_memory, vec
        em, t, d = self.em, self.t, self.types[k]
        kind = vec(base_memory(d), t)
        lines = []
        for r in range(t):
            place = self._place(at, k, em.add(i, str(r)), j)
            lines.append(em.op(f"load {kind}, ptr {place}, align {d.itemsize}"))
        half = t // 2
        while half:
            # swap the off-diagonal blocks of every pair of lines that are `half` apart
            upper = ", ".join(f"i32 {n if not n & half else t + n - half}" for n in range(t))
            lower = ", ".join(f"i32 {n + half if not n & half else t + n}" for n in range(t))
            for r in range(t):
                if not r & half:
                    pair = f"{kind} {lines[r]}, {kind} {lines[r + half]}, <{t} x i32>"
                    lines[r], lines[r + half] = (em.op(f"shufflevector {pair} <{upper}>"),
                                                 em.op(f"shufflevector {pair} <{lower}>"))
            half //= 2
        return [em.from_memory(v, d, t) for v in lines]

    def _elements(self, at: list[str], i: str, j: str, lanes: int, given: dict[int, str], streaming: bool) -> None:
        """Computes and stores `lanes` elements along i at one place along j."""
        from .lower import lower
        em = self.em

        def leaf(e: Expr, args: list[str]) -> str:
            del args
            if e.op == "scalar":
                return em.parameter(e.dtype, "%args", len(self.types) + e.value, lanes)
            k = self.outs + e.value
            if k in given:
                return given[k]
            place = self._place(at, k, i, j)
            if lanes == 1 or self.classes[k] == "1":
                return em.load(e.dtype, lanes, place)
            if self.classes[k] == "0":
                from .emit import base
                return em.broadcast(em.load(e.dtype, 1, place), base(e.dtype), lanes)
            return em.load_apart(e.dtype, lanes, place, self.along_i[k])
        values = lower(em, self.program.outs, lanes, leaf)
        for k, v in enumerate(values):
            em.store(self.types[k], lanes, v, self._place(at, k, i, j), None, streaming)

"""Products of many small matrices: each lane of a vector has a matrix of its own.

A matrix of a few rows and columns fills no vector, and what is said for each by itself costs more than its sums.  The numbers of as many B as there
are lanes are brought into vectors; then row after row of A is, and its sums, which are written out, with every column.  16-bit elements are added up
in float32, and rounded once.  The order of a sum depends on its length alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import native
from ..casts import cast
from ..emit import Emitter, Module, base, suffix, vec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....dtypes import dtype

    Steps = tuple[int, int, int]
    Number = tuple[str, ...]  # the parts of a number: one, or two of a complex one

NAME = "flambeau_lane_product"
CHUNK = 1 << 13  # products of numbers that a thread is handed
LARGEST = 64  # numbers of B


def entry(d: dtype, m: int, n: int, k: int, a: Steps, b: Steps, c: Steps, batch: int, add: bool) -> Callable[..., None]:
    """A native launch ``entry(C, A, B)``: C = A B, or C += A B where `add`, for `batch` matrices.

    a, b, c: elements from row to row, from column to column, from matrix to matrix, any numbers; d: a floating or complex type; k n is at most `LARGEST`.
    """
    from .. import compile as compiler
    shared = b[2] == 0
    code: Any = compiler.functions(("lane_product", d.name, f"{k} {add} {shared}"), (NAME,), lambda: text(d, k, add, shared))[NAME]
    chunk = max(64, CHUNK // (m * n * k) & -64)
    params = [*(s * d.itemsize for s in (*c, *a, *b)), m, n]
    return native.make_entry([(code, batch, chunk)], params, 3, parallel=batch > 2 * chunk)


def text(d: dtype, k: int, add: bool, shared: bool) -> str:
    """The IR of the function for one type and length of sums; shared: whether all have one B."""
    module = Module()
    em = Emitter(module, f"void @{NAME}(i64 %begin, i64 %end, ptr %args, ptr %block)")
    _Writer(em, d, k, add, shared).write()
    em.line("ret void")
    em.finish()
    return module.text()


class _Writer:
    def __init__(self, em: Emitter, d: dtype, k: int, add: bool, shared: bool) -> None:
        self.em, self.part = em, d.to_real() if d.is_complex else d
        self.parts, self.k, self.add, self.shared = 2 if d.is_complex else 1, k, add, shared
        self.wide = self.part.opmath
        self.lanes = (64 if em.module.masks else 32) // self.wide.itemsize
        self.pointers = [em.pointer("%args", p) for p in range(3)]
        self.steps = [[em.word("%block", 3 * p + s) for s in range(3)] for p in range(3)]
        self.m, self.n = em.word("%block", 9), em.word("%block", 10)
        self.room = em.op(f"alloca [{LARGEST * self.parts * self.lanes} x {base(self.wide)}], align 64", "a")  # of the vectors of B, column by column

    def write(self) -> None:
        em = self.em
        main = em.add("%begin", em.op(f"and i64 {em.sub('%end', '%begin')}, {-self.lanes}"))
        for begin, end, width in (("%begin", main, self.lanes), (main, "%end", 1)):
            with em.loop(begin, end, str(width)) as loop:
                self._matrices(loop.i, width)

    def _matrices(self, first: str, lanes: int) -> None:
        """As many as there are lanes, from the one with the number `first` on."""
        em, k = self.em, self.k
        c, a, b = [em.at(p, em.mul(first, s[2])) for p, s in zip(self.pointers, self.steps, strict=True)]
        with em.loop("0", self.n) as columns:
            for p in range(k):
                spot = em.at(em.at(b, em.mul(columns.i, self.steps[2][1])), em.mul(str(p), self.steps[2][0]))
                for at, v in enumerate(self._read(spot, self.steps[2][2], 1 if self.shared else lanes, lanes)):
                    em.store(self.wide, lanes, v, self._kept(columns.i, p, at))
        with em.loop("0", self.m) as rows:
            row = em.at(a, em.mul(rows.i, self.steps[1][0]))
            left = [self._read(em.at(row, em.mul(str(p), self.steps[1][1])), self.steps[1][2], lanes, lanes) for p in range(k)]
            with em.loop("0", self.n) as columns:
                spot = em.at(em.at(c, em.mul(rows.i, self.steps[0][0])), em.mul(columns.i, self.steps[0][1]))
                total = self._read(spot, self.steps[0][2], lanes, lanes) if self.add else None
                for p in range(k):
                    right = tuple([em.load(self.wide, lanes, self._kept(columns.i, p, at)) for at in range(self.parts)])
                    total = self._added(total, left[p], right, lanes)
                assert total is not None
                for at, v in enumerate(total):
                    place = em.at(spot, str(at * self.part.itemsize))
                    em.store_apart(self.part, lanes, cast(em, v, self.wide, self.part, lanes), place, self.steps[0][2])

    def _kept(self, column: str, p: int, part: int) -> str:
        """Where a vector of B lies."""
        em, vector = self.em, self.lanes * self.wide.itemsize
        return em.at(em.at(self.room, em.mul(column, str(self.k * self.parts * vector))), str((p * self.parts + part) * vector))

    def _read(self, place: str, step: str, own: int, lanes: int) -> Number:
        """A number of each matrix; own: how many there are of it."""
        em, found = self.em, []
        for at in range(self.parts):
            v = em.load_apart(self.part, own, em.at(place, str(at * self.part.itemsize)), step if own > 1 else "0")
            v = cast(em, v, self.part, self.wide, own)
            found.append(em.broadcast(v, base(self.wide), lanes) if own < lanes else v)
        return tuple(found)

    def _added(self, total: Number | None, x: Number, y: Number, lanes: int) -> Number:
        """total + x y."""
        if self.parts == 1:
            return (self._fused(None if total is None else total[0], x[0], y[0], lanes),)
        one, other = total if total is not None else (None, None)
        minus = self.em.op(f"fneg {vec(base(self.wide), lanes)} {x[1]}")
        return (self._fused(self._fused(one, x[0], y[0], lanes), minus, y[1], lanes), self._fused(self._fused(other, x[0], y[1], lanes), x[1], y[0], lanes))

    def _fused(self, total: str | None, x: str, y: str, lanes: int) -> str:
        t = vec(base(self.wide), lanes)
        if total is None:
            return self.em.op(f"fmul {t} {x}, {y}")
        return self.em.call(f"llvm.fmuladd.{suffix(base(self.wide), lanes)}", t, (t, x), (t, y), (t, total))

"""Scans as vector code.

Two forms.  "along": vectors lie along the scanned axis; each is scanned in its register, by doubling steps, and joined
to what came before.  "across": every lane has a row of its own.

Few long rows are cut into pieces: one stage finds each piece's total, a second what comes before each piece, a third
scans the pieces.  Where the cuts are depends on the domain alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..loops.accumulators import start_of
from ..loops.scans import TILE, ByVectors, scan_lanes, state_types
from . import vector_loops
from .launches import Plan
from .vector_loops import Frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype
    from ..expr import Expr
    from ..programs import Scan
    from .emit import Emitter
    from .vector_loops import Unit

NAMES = ("flambeau_scan_totals", "flambeau_scan_starts", "flambeau_scan")


# ------------------------------------------------------------------------------------------------------------ planning
def plan(program: Scan, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Plan:
    """How `program` is launched over `domain`; the domain has elements."""
    loops = ByVectors(program, domain, strides)
    stage, cut = loops.stage, loops.pieces > 1
    key = ("across" if loops.across else "along", stage.classes(loops.sizes), stage.places(loops.coords), loops.rank, cut)
    stages = [(NAMES[2], stage.units, loops.chunk)]
    params = vector_loops.block(stage)
    if cut:
        stages = [(NAMES[0], stage.units, loops.chunk), (NAMES[1], loops.rows, loops.rows), *stages]
        params = [*loops.rooms, loops.pieces, *params]
    return Plan(key, NAMES if cut else NAMES[2:], stages, params, loops.workspace, loops.parallel)


# ------------------------------------------------------------------------------------------------------------- writing
def write(program: Scan, key: tuple[Any, ...]) -> str:
    """The IR text of the kernels for a plan's key."""
    from .emit import Emitter, Module
    module = Module()
    for name in NAMES if key[4] else NAMES[2:]:
        em = Emitter(module, f"void @{name}(i64 %begin, i64 %end, ptr %args, ptr %block)")
        kernel = _Kernel(em, program, key, name)
        if name == NAMES[1]:
            kernel.starts()
        else:
            kernel.write()
        em.line("ret void")
        em.finish()
    return module.text()


class _Kernel:
    def __init__(self, em: Emitter, program: Scan, key: tuple[Any, ...], name: str) -> None:
        form, classes, places, rank, self.pieces = key
        types = program.out_types + program.inputs
        self.em, self.program, self.across, self.totals = em, program, form == "across", name == NAMES[0]
        self.state = state_types(program)
        self.lanes = scan_lanes(program)
        block, first_number = "%block", len(types)
        pointers = [em.pointer("%args", k) for k in range(len(types))]
        if self.pieces:
            work = em.pointer("%args", len(types))
            self.work = [em.at(work, em.word("%block", k)) for k in range(len(self.state))]
            self.each = em.word("%block", len(self.state))
            block, first_number = em.at("%block", str(8 * (len(self.state) + 1))), len(types) + 1
        self.frame = Frame(em, types, pointers, classes, places, len(program.posts), first_number, rank, block)
        self.frame.read_numbers(program.roots(), self.lanes)

    def write(self) -> None:
        em, frame, lanes = self.em, self.frame, self.lanes
        line = frame.word("line")
        with frame.units() as unit:
            if self.across:
                block = TILE * lanes
                main = em.add(unit.begin, em.op(f"and i64 {em.sub(unit.end, unit.begin)}, {-block}"))
                with em.loop(unit.begin, main, str(block)) as loop:
                    self._across(unit, [em.add(loop.i, str(k * lanes)) for k in range(TILE)], None, line)
                with em.loop(main, unit.end, str(lanes)) as loop:
                    self._across(unit, [loop.i], em.first_lanes(em.sub(unit.end, loop.i), lanes), line)
            else:
                self._along(unit)

    # the running value ---------------------------------------------------------------------------------------------
    def _start(self, lanes: int) -> list[str]:
        """The state before the first element: joined to a value it changes nothing, not even the sign of a zero."""
        from .emit import constant, splat
        how, d = self.program.combine, self.program.elem.dtype
        first = -math.inf if how == "logsumexp" else -0.0 if how == "sum" and d.kind == "f" else start_of(how, d)
        values = [constant(first, d, lanes)]
        return [*values, splat("0", "i64", lanes)] if len(self.state) == 2 else values

    def _join(self, a: Sequence[str], b: Sequence[str], lanes: int) -> list[str]:
        """The state after `a` and then `b`."""
        from .emit import splat, ty, vec
        from .lower import apply, combine
        em, how, d = self.em, self.program.combine, self.program.elem.dtype
        if how == "logsumexp":
            return [self._log_add(a[0], b[0], lanes)]
        if len(self.state) == 1:
            return [combine(em, how, d, lanes, a[0], b[0])]
        mask = vec("i1", lanes)
        if d.kind == "f":  # what was before stays unless it is passed or met, or b is NaN: what is NaN is passed by NaN alone
            passed = apply(em, "ge" if how == "max" else "le", d, lanes, [b[0], a[0]])
            known = apply(em, "eq", d, lanes, [b[0], b[0]])
            below = em.op(f"xor {mask} {passed}, {'true' if lanes == 1 else splat('true', 'i1', lanes)}")
            keep = em.op(f"and {mask} {below}, {known}")
        else:
            keep = apply(em, "gt" if how == "max" else "lt", d, lanes, [a[0], b[0]])
        return [em.op(f"select {mask} {keep}, {ty(t, lanes)} {x}, {ty(t, lanes)} {y}")
                for t, x, y in zip(self.state, a, b, strict=True)]

    def _log_add(self, a: str, b: str, lanes: int) -> str:
        """log(exp(a) + exp(b)) = max + log1p(exp(-|a - b|)); equal infinities have no difference."""
        from .emit import constant, ty, vec
        from .lower import apply
        em, d = self.em, self.program.elem.dtype
        most = apply(em, "maximum", d, lanes, [a, b])
        apart = apply(em, "neg", d, lanes, [apply(em, "abs", d, lanes, [apply(em, "sub", d, lanes, [a, b])])])
        same = apply(em, "eq", d, lanes, [a, b])
        t = ty(d, lanes)
        apart = em.op(f"select {vec('i1', lanes)} {same}, {t} {constant(0.0, d, lanes)}, {t} {apart}")
        more = apply(em, "log1p", d, lanes, [apply(em, "exp", d, lanes, [apart])])
        return apply(em, "add", d, lanes, [most, more])

    def _values(self, roots: tuple[Expr, ...], at: list[str], places: dict[int, str], i: str, mask: str | None,
                accs: Sequence[str] = ()) -> list[str]:
        from .lower import lower
        return lower(self.em, roots, self.lanes,
                     lambda e, args: self.frame.leaf(e, args, at, i, places, self.lanes, mask, accs))

    def _posts(self, at: list[str], places: dict[int, str], i: str, mask: str | None, state: Sequence[str]) -> None:
        for k, v in enumerate(self._values(self.program.posts, at, places, i, mask, state)):
            self.frame.store(k, v, at, i, self.lanes, mask)

    def _shuffle(self, v: str, other: str, d: dtype, picks: Sequence[int]) -> str:
        from .emit import ty
        if self.lanes == 1:
            return v
        t = ty(d, self.lanes)
        order = ", ".join(f"i32 {p}" for p in picks)
        return self.em.op(f"shufflevector {t} {v}, {t} {other}, <{self.lanes} x i32> <{order}>")

    # vectors along the scanned axis --------------------------------------------------------------------------------
    def _along(self, unit: Unit) -> None:
        em, lanes, reverse = self.em, self.lanes, self.program.reverse
        from .emit import base, ty
        carry = self._start(lanes)
        if self.pieces and not self.totals:
            number = self._piece(unit)
            carry = [em.broadcast(em.load(d, 1, em.at(w, em.mul(number, str(d.itemsize)))), base(d), lanes)
                     for d, w in zip(self.state, self.work, strict=True)]
        types = [ty(d, lanes) for d in self.state]
        count = em.sub(unit.end, unit.begin)
        main = em.op(f"and i64 {count}, {-lanes}")
        top = em.sub(unit.end, str(lanes))
        with em.loop("0", main, str(lanes), list(zip(types, carry, strict=True))) as loop:
            i = em.sub(top, loop.i) if reverse else em.add(unit.begin, loop.i)
            loop.next = self._vector(unit, i, None, loop.vars)
        after = loop.vars
        if lanes > 1:
            with em.loop(main, count, str(lanes), list(zip(types, after, strict=True))) as tail:
                rest = em.sub(count, main)
                i = unit.begin if reverse else em.add(unit.begin, main)
                tail.next = self._vector(unit, i, em.first_lanes(rest, lanes), tail.vars)
            after = tail.vars
        if self.totals:
            number = self._piece(unit)
            for d, w, v in zip(self.state, self.work, after, strict=True):
                last = v if lanes == 1 else em.op(f"extractelement {ty(d, lanes)} {v}, i64 {lanes - 1}")
                em.store(d, 1, last, em.at(w, em.mul(number, str(d.itemsize))))

    def _piece(self, unit: Unit) -> str:
        """The piece's number in the order of the scan."""
        em = self.em
        if not self.program.reverse:
            return unit.number
        row = em.op(f"sdiv i64 {unit.number}, {self.each}")
        within = em.sub(unit.number, em.mul(row, self.each))
        return em.add(em.mul(row, self.each), em.sub(em.sub(self.each, "1"), within))

    def _vector(self, unit: Unit, i: str, mask: str | None, carry: list[str]) -> list[str]:
        """One vector from place `i`; gives the state after it, in every lane."""
        em, lanes, reverse = self.em, self.lanes, self.program.reverse
        from .emit import ty, vec
        state = self._values((self.program.elem,), unit.at, unit.places, i, mask)
        if len(self.state) == 2:
            state.append(em.ramp(i, lanes))
        start = self._start(lanes)
        if mask is not None:
            state = [em.op(f"select {vec('i1', lanes)} {mask}, {ty(d, lanes)} {v}, {ty(d, lanes)} {s}")
                     for d, v, s in zip(self.state, state, start, strict=True)]
        backwards = list(range(lanes - 1, -1, -1))
        if reverse:
            state = [self._shuffle(v, "poison", d, backwards) for d, v in zip(self.state, state, strict=True)]
        step = 1
        while step < lanes:
            # lane k of the earlier part is lane k - step, or the start
            picks = [lanes + k if k < step else k - step for k in range(lanes)]
            earlier = [self._shuffle(v, s, d, picks) for d, v, s in zip(self.state, state, start, strict=True)]
            state = self._join(earlier, state, lanes)
            step *= 2
        state = self._join(carry, state, lanes)
        # in the last, short vector the lanes past its end hold the state after it too
        after = [self._shuffle(v, "poison", d, [lanes - 1] * lanes) for d, v in zip(self.state, state, strict=True)]
        if not self.totals:
            if reverse:
                state = [self._shuffle(v, "poison", d, backwards) for d, v in zip(self.state, state, strict=True)]
            self._posts(unit.at, unit.places, i, mask, state)
        return after

    def starts(self) -> None:
        """Each row's totals of pieces turned, in place, into the state before each piece."""
        em = self.em
        with em.loop("%begin", "%end") as rows:
            first = em.mul(rows.i, self.each)
            from .emit import base
            start = list(zip([base(d) for d in self.state], self._start(1), strict=True))
            with em.loop("0", self.each, carried=start) as loop:
                spot = em.add(first, loop.i)
                at = [em.at(w, em.mul(spot, str(d.itemsize))) for d, w in zip(self.state, self.work, strict=True)]
                own = [em.load(d, 1, p) for d, p in zip(self.state, at, strict=True)]
                loop.next = self._join(loop.vars, own, 1)
                for d, p, v in zip(self.state, at, loop.vars, strict=True):
                    em.store(d, 1, v, p)

    # a row in every lane -------------------------------------------------------------------------------------------
    def _across(self, unit: Unit, spots: list[str], mask: str | None, size: str) -> None:
        from .emit import ty
        em, lanes, frame = self.em, self.lanes, self.frame
        n, types = len(self.state), [ty(d, lanes) for d in self.state]
        start = list(zip(types, self._start(lanes), strict=True)) * len(spots)
        with em.loop("0", size, "1", start) as loop:
            r = em.sub(em.sub(size, "1"), loop.i) if self.program.reverse else loop.i
            at = [em.at(p, em.mul(r, s)) for p, s in zip(unit.at, frame.line_steps, strict=True)]
            places = unit.places | {d: r for d, what, _ in frame.places if what == "line"}
            new: list[str] = []
            for u, i in enumerate(spots):
                state = self._values((self.program.elem,), at, places, i, mask)
                if n == 2:
                    state.append(em.broadcast(r, "i64", lanes))
                new += self._join(loop.vars[u * n:u * n + n], state, lanes)
            for u, i in enumerate(spots):
                self._posts(at, places, i, mask, new[u * n:u * n + n])
            loop.next = new

"""Maps: every output element from the input elements at its place.

Kernels come in three forms.  "flat": one axis (everything merged); a unit is an element.  "rows": several axes; a unit
is a stretch of the innermost one, the others are counted like an odometer.  "tiles" (see `tiles`): where an input's
neighbours lie along another axis than the outputs'.  A short innermost axis becomes outputs side by side first (`loops.short_axes`).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ...dtypes import int64
from ..expr import const, make, rebuild, walk
from ..loops.maps import LONGEST_KEPT, ByVectors, dense_of, repeated
from ..loops.operands import moving
from ..loops.short_axes import spread as spread_axis
from ..loops.short_axes import spread_of
from ..loops.stages import lanes_among
from ..loops.walk import facts
from . import tiles
from .launches import Plan

if TYPE_CHECKING:
    from ..expr import Expr
    from ..programs import Map
    from .emit import Emitter

NAME = "flambeau_map"
HEAD = f"void @{NAME}(i64 %begin, i64 %end, ptr %args, ptr %block)"
MOST_NODES = 40  # of a formula that is written several times
AHEAD = 2048  # bytes: costly formulas fill the window in which the CPU looks ahead in memory by itself
NONE, ONE = const(0, int64), const(1, int64)  # slopes
WORD_INNER, WORD_SEGMENTS, WORD_LENGTH, WORD_OUTER, WORD_STRIDES = 0, 1, 2, 3, 4


# ------------------------------------------------------------------------------------------------------------ planning
def plan(program: Map, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Plan:
    """How `program` is launched over `domain`; the domain has elements."""
    key: tuple[Any, ...]
    dense = dense_of(program, domain, strides)
    if dense is not None:
        n, sizes = dense.elements, dense.sizes
        key = ("flat", ("1",) * len(sizes), dense.streams, (), 0, (), False, ())
        return Plan(key, (NAME,), [(NAME, n, dense.chunk)], [n, 1, n, 0, *sizes], parallel=dense.parallel)
    loops = ByVectors(program, domain, strides)
    spread = spread_of(program, loops)
    if spread is not None:
        loops = ByVectors(spread.program, spread.domain, spread.strides)
    if loops.across is not None:
        return tiles.plan(loops, loops.across)
    key = (loops.form, loops.classes, loops.streams, loops.places, loops.rank if loops.coords else 0,
           () if spread is None else (spread.times, spread.moves), loops.segments > 1, loops.still)
    inner = loops.inner
    params = [inner.size, loops.segments, loops.length, len(loops.outer), *inner.strides, *([] if spread is None else spread.shifts)]
    for a in loops.outer:
        params.append(a.size)
        params.extend(a.strides)
    return Plan(key, (NAME,), [(NAME, loops.units, loops.chunk)], params, parallel=loops.parallel)


# ------------------------------------------------------------------------------------------------------------- writing
def write(program: Map, key: tuple[Any, ...]) -> str:
    """The IR text of the kernel for a plan's key."""
    from .emit import Emitter, Module
    module = Module()
    if key[0] == "tiles":
        tiles.write(program, key, module)
        return module.text()
    em = Emitter(module, HEAD)
    kernel = _Kernel(em, program, key)
    if key[0] == "flat":
        kernel.flat()
    else:
        kernel.rows(odometer=key[0] == "rows")
    em.line("ret void")
    em.finish()
    return module.text()


class _Kernel:
    def __init__(self, em: Emitter, program: Map, key: tuple[Any, ...]) -> None:
        self.form, self.classes, self.streams, self.coords, self.rank, short, self.cut, still = key  # cut: rows are several units
        self.numbers = len(program.outs) + len(program.inputs)  # the first number's slot
        sources: list[int] = list(range(self.numbers))
        if short:
            program, sources, _ = spread_axis(program, *short)
        self.em, self.program = em, program
        self.types = program.out_types + program.inputs
        self.tables = WORD_STRIDES + len(self.types) * (2 if short else 1)  # where the outer axes are
        self.outs = len(program.outs)
        self.ordered = any(t is not None for t in program.targets)
        # a row of targets next to one another cannot collide, so it may go by vectors
        self.alone = self.ordered and not all(t is not None and self._slope(t[1]) is ONE for t in program.targets)
        self.roots = self._by_rows()
        self.changing = self._changing()
        self.lanes = 1 if self.alone else lanes_among((*program.outs, *self.changing))
        self.nodes = sum(1 for e in walk(program.roots()) if e.args)
        self.unroll = 1 if self.alone or self.nodes > MOST_NODES else 2
        self.row: dict[Expr, str] = {}  # the values of `_invariants`
        self.kept: dict[Expr, str] = {}  # where what each row works out alike is kept
        self.repeated = repeated(self.roots, self.types, self.outs, still, dict(self.coords), self.rank, self.ordered) if still else []
        self.pointers = [em.pointer("%args", k) for k in sources]
        if short:
            self.pointers = [em.at(p, em.word("%block", WORD_STRIDES + len(self.types) + k)) for k, p in enumerate(self.pointers)]
        self.scalars: dict[tuple[Any, int], str] = {}
        for e in walk(self.roots):
            if e.op == "scalar":
                for lanes in {self.lanes, 1}:
                    self.scalars[e.value, lanes] = em.parameter(e.dtype, "%args", self.numbers + e.value, lanes)

    # the two walks ---------------------------------------------------------------------------------------------------
    def flat(self) -> None:
        self.either(self._aligned(), self.pointers, self._inner_strides(), "%begin", "%end", {})
        if self.streams:
            self.em.fence_streams()

    def _aligned(self) -> str:
        """Whether the outputs may be written past the caches (i1): units begin at multiples of 64 elements."""
        em, bits = self.em, "0"
        if not self.streams:
            return "false"
        for k in range(self.outs):
            if self.classes[k] == "1":
                address = em.op(f"ptrtoint ptr {self.pointers[k]} to i64")
                bits = address if bits == "0" else em.op(f"or i64 {bits}, {address}")
        return em.op(f"icmp eq i64 {em.op(f'and i64 {bits}, 63')}, 0")

    def either(self, aligned: str, at: list[str], steps: list[str], begin: str, end: str,
               places: dict[int, str]) -> None:
        """A span, past the caches if they may be."""
        em = self.em
        if not self.streams:
            self.span(at, steps, begin, end, places)
            return
        yes, no, done = em.label("aligned"), em.label("anywhere"), em.label("joined")
        em.branch(aligned, yes, no)
        em.start(yes)
        self.span(at, steps, begin, end, places, streaming=True)
        em.jump(done)
        em.start(no)
        self.span(at, steps, begin, end, places)
        em.jump(done)
        em.start(done)

    def rows(self, odometer: bool) -> None:
        em, n = self.em, len(self.types)
        steps = self._inner_strides()
        inner, segments = em.word("%block", WORD_INNER), em.word("%block", WORD_SEGMENTS) if self.cut else "1"
        length, outer = em.word("%block", WORD_LENGTH), em.word("%block", WORD_OUTER)
        tables = em.at("%block", str(8 * self.tables))
        self._keep(steps, inner)
        aligned = self._aligned()
        row, segment = "%begin", "0"
        if self.cut:
            row = em.op(f"sdiv i64 %begin, {segments}")
            segment = em.sub("%begin", em.mul(row, segments))
        outer_steps = [em.word(tables, 1 + k) for k in range(n)]

        def run(units: str, number: str, s: str, starts: list[str], counter: str | None) -> None:
            """Units one behind the other along the innermost of the outer axes, from its place `number` and the row's part `s` on."""
            with em.loop("0", units, carried=[*[("i64", offset) for offset in starts], *([("i64", number), ("i64", s)] if self.cut else [])]) as loop:
                offsets = loop.vars[:n]
                r, part = loop.vars[n:] if self.cut else (em.add(number, loop.i), "0")
                at = [em.at(p, offset) for p, offset in zip(self.pointers, offsets, strict=True)]
                places = {k: r if k == 1 or counter is None else em.word(counter, k - 1) for _, k in self.coords if k}
                if self.cut:
                    first = em.mul(part, length)
                    self.either(aligned, at, steps, first, em.smaller(em.add(first, length), inner), places)
                    following = em.add(part, "1")
                    ends = em.op(f"icmp eq i64 {following}, {segments}")
                    moved = [em.op(f"select i1 {ends}, i64 {step}, i64 0") for step in outer_steps]
                    place = [em.add(r, em.op(f"zext i1 {ends} to i64")), em.op(f"select i1 {ends}, i64 0, i64 {following}")]
                else:  # most rows: short ones must cost little
                    self.either(aligned, at, steps, "0", inner, places)
                    moved, place = outer_steps, []
                loop.next = [*[em.add(offset, step) for offset, step in zip(offsets, moved, strict=True)], *place]
        if not odometer:
            run(em.sub("%end", "%begin"), row, segment, [em.mul(row, step) for step in outer_steps], None)
        else:
            counter = em.op(f"alloca i64, i64 {outer}, align 8", "a")
            offsets = em.op(f"alloca [{n} x i64], align 8", "a")
            self._set_odometer(counter, offsets, tables, outer, row)
            size = em.word(tables, 0)
            with em.loop("%begin", "%end", carried=[("i64", segment)]) as loop:
                digit, starts = em.word(counter, 0), [em.word(offsets, k) for k in range(n)]
                left = em.sub(size, digit)
                loop.step = em.smaller(em.sub("%end", loop.i), em.sub(em.mul(left, segments), loop.vars[0]))
                run(loop.step, digit, loop.vars[0], starts, counter)
                # the last place along that axis, from which the odometer counts on
                far = em.sub(left, "1")
                em.line(f"store i64 {em.sub(size, '1')}, ptr {counter}, align 8")
                for k, step in enumerate(outer_steps):
                    em.line(f"store i64 {em.add(starts[k], em.mul(far, step))}, ptr {em.at(offsets, str(8 * k))}, align 8")
                self._advance(counter, offsets, tables, outer)
                loop.next = ["0"]
        if self.streams:
            em.fence_streams()

    def _keep(self, steps: list[str], inner: str) -> None:
        """Works out what is the same in each row, for as many rows as there are."""
        if not self.repeated:
            return
        from .emit import base_memory
        from .lower import lower
        em, nodes = self.em, tuple(self.repeated)
        rooms = [em.op(f"alloca [{LONGEST_KEPT} x {base_memory(e.dtype)}], align 64", "a") for e in nodes]
        main = em.op(f"and i64 {inner}, {-self.lanes}")

        def part(i: str, lanes: int) -> None:
            values = lower(em, nodes, lanes, lambda e, args: self.leaf(e, args, self.pointers, steps, i, {}, lanes, None))
            for e, room, v in zip(nodes, rooms, values, strict=True):
                em.store(e.dtype, lanes, v, em.at(room, em.mul(i, str(e.dtype.itemsize))))
        for begin, end, lanes in (("0", main, self.lanes), (main, inner, 1)):
            with em.loop(begin, end, str(lanes)) as loop:
                part(loop.i, lanes)
        self.kept = dict(zip(nodes, rooms, strict=True))

    def _inner_strides(self) -> list[str]:
        em = self.em
        return [em.word("%block", WORD_STRIDES + k) if c == "s" else str((-1 if c == "r" else int(c)) * d.itemsize)
                for k, (c, d) in enumerate(zip(self.classes, self.types, strict=True))]

    def _set_odometer(self, counter: str, offsets: str, tables: str, outer: str, row: str) -> None:
        em, n = self.em, len(self.types)
        starts = [("i64", "0")] * n
        with em.loop("0", outer, carried=[("i64", row), *starts]) as loop:
            table = em.at(tables, em.mul(loop.i, str(8 * (n + 1))))
            size = em.word(table, 0)
            rest = em.op(f"sdiv i64 {loop.vars[0]}, {size}")
            digit = em.sub(loop.vars[0], em.mul(rest, size))
            em.line(f"store i64 {digit}, ptr {em.at(counter, em.mul(loop.i, '8'))}, align 8")
            loop.next = [rest] + [em.add(loop.vars[1 + k], em.mul(digit, em.word(table, 1 + k))) for k in range(n)]
        for k in range(n):
            em.line(f"store i64 {loop.vars[1 + k]}, ptr {em.at(offsets, str(8 * k))}, align 8")

    def _advance(self, counter: str, offsets: str, tables: str, outer: str) -> None:
        """Counts one row on: the first digit that does not overflow ends it."""
        em, n = self.em, len(self.types)
        test, turn, over, done = em.label("digit"), em.label("turn"), em.label("over"), em.label("counted")
        before = em.current
        em.jump(test)
        em.start(test)
        at = len(em.lines)
        d = em.fresh("d")
        em.lines.append("")
        more = em.op(f"icmp slt i64 {d}, {outer}")
        em.branch(more, turn, done)
        em.start(turn)
        table = em.at(tables, em.mul(d, str(8 * (n + 1))))
        size, cell = em.word(table, 0), em.at(counter, em.mul(d, "8"))
        digit = em.add(em.op(f"load i64, ptr {cell}, align 8"), "1")
        full = em.op(f"icmp eq i64 {digit}, {size}")
        kept = em.op(f"select i1 {full}, i64 0, i64 {digit}")
        em.line(f"store i64 {kept}, ptr {cell}, align 8")
        # one step on, or all the way back
        back = em.op(f"sub i64 1, {size}")
        times = em.op(f"select i1 {full}, i64 {back}, i64 1")
        for k in range(n):
            if self.classes[k] == "0" and not self._moves(k):
                continue
            place = em.at(offsets, str(8 * k))
            moved = em.add(em.op(f"load i64, ptr {place}, align 8"), em.mul(times, em.word(table, 1 + k)))
            em.line(f"store i64 {moved}, ptr {place}, align 8")
        em.branch(full, over, done)
        em.start(over)
        following = em.add(d, "1")
        em.jump(test)
        em.lines[at] = f"  {d} = phi i64 [ 0, %{before} ], [ {following}, %{over} ]"
        em.start(done)

    def _moves(self, operand: int) -> bool:
        return facts(self.program).placed[operand]

    # one stretch of the innermost axis -------------------------------------------------------------------------------
    def span(self, at: list[str], steps: list[str], begin: str, end: str, places: dict[int, str],
             streaming: bool = False) -> None:
        """Elements begin..end of the row that starts at the addresses `at`; places: the outer axes' coordinates."""
        em, lanes = self.em, self.lanes
        self.row, alike = self._invariants(at, steps, places)
        single = self.row
        if lanes == 1:
            with em.loop(begin, end) as loop:
                self.element(at, steps, loop.i, places, 1, dict(single), None, False)
            return

        def spread(width: int) -> dict[Expr, str]:
            return {e: em.broadcast(single[e], _base(e), width) for e in alike}
        known = spread(lanes)
        block = lanes * self.unroll
        count = em.sub(end, begin)
        main = em.add(begin, em.op(f"and i64 {count}, {-block}"))
        with em.loop(begin, main, str(block)) as loop:
            self.unrolled(at, steps, loop.i, places, known, streaming)
        if em.module.masks and not self._costs_masked():
            with em.loop(main, end, str(lanes)) as loop:
                mask = em.first_lanes(em.sub(end, loop.i), lanes)
                self.element(at, steps, loop.i, places, lanes, dict(known), mask, False)
            return
        narrower = self._narrower()
        with em.only_if(em.op(f"icmp slt i64 {main}, {end}")) if narrower else nullcontext():  # rows of whole blocks are done
            for width in narrower:
                few = known if width == lanes else spread(width)
                stop = em.add(begin, em.op(f"and i64 {count}, {-width}"))
                with em.loop(main, stop, str(width)) as loop:
                    self.element(at, steps, loop.i, places, width, dict(few), None, False)
                main = stop
            with em.loop(main, end) as loop:
                self.element(at, steps, loop.i, places, 1, dict(single), None, False)

    def _costs_masked(self) -> bool:
        """Whether lanes that are switched off would take single elements where whole vectors are put together from neighbours, or are read from
        anywhere, which a mask makes several times as long: rows may be short."""
        apart = any(e.op == "gather" and (e.value >= 0 or len(e.args) > 1) for e in self.changing)
        return self.form != "flat" and self.nodes <= MOST_NODES and (
            apart or bool(self._joined()) or any(c not in "01s" for c in self.classes[self.outs:]))

    def _narrower(self) -> list[int]:
        """Of vectors that do what is left of a row behind whole blocks, where masks do not: rows may be short."""
        if self.form == "flat" or self.nodes > MOST_NODES:
            return []
        return [w for w in (self.lanes, self.lanes // 2, self.lanes // 4) if 4 <= w < self.lanes * self.unroll]

    def unrolled(self, at: list[str], steps: list[str], i: str, places: dict[int, str], known: dict[Expr, str],
                 streaming: bool) -> None:
        """Several vectors at once: all are computed before any is stored, so that their work overlaps."""
        em, pending = self.em, []
        if streaming:
            for k in range(self.outs, len(self.types)):
                if self.classes[k] == "1":
                    ahead = em.at(at[k], em.mul(em.add(i, str(AHEAD // self.types[k].itemsize)), steps[k]))
                    for line in range(0, self.unroll * self.lanes * self.types[k].itemsize, 64):
                        em.call("llvm.prefetch.p0", "void", ("ptr", em.at(ahead, str(line))), ("i32 immarg", "0"),
                                ("i32 immarg", "3"), ("i32 immarg", "1"))
        for k in range(self.unroll):
            here = em.add(i, str(k * self.lanes)) if k else i
            pending.append((here, self.values(at, steps, here, places, self.lanes, dict(known), None)))
        if streaming:
            self.put_line(at, pending)
            return
        for here, values in pending:
            self.put(at, steps, here, values, self.lanes, None, streaming)

    def put_line(self, at: list[str], pending: list[tuple[str, list[str]]]) -> None:
        """Neighbouring vectors past the caches, joined: half a cache line at a time would cost a read of the line."""
        from .emit import ty
        em, steps = self.em, self._inner_strides()
        joined = self._joined()
        for k, e in enumerate(self.program.outs):
            if k in joined:
                if joined[k]:
                    for here, values in pending:
                        em.store_joined(e.dtype, self.lanes, values[k:k + joined[k]], em.at(at[k], em.mul(here, steps[k])))
                continue
            if self.classes[k] != "1" or self.lanes * e.dtype.itemsize >= 64 or len(pending) == 1:
                for here, values in pending:
                    self.put_one(at, steps, k, here, values[k], self.lanes, None, self.classes[k] == "1")
                continue
            lanes, parts = self.lanes, [values[k] for _, values in pending]
            while len(parts) > 1:
                t, numbers = ty(e.dtype, lanes), ", ".join(f"i32 {n}" for n in range(2 * lanes))
                parts = [em.op(f"shufflevector {t} {a}, {t} {b}, <{2 * lanes} x i32> <{numbers}>")
                         for a, b in zip(parts[::2], parts[1::2])]
                lanes *= 2
            self.put_one(at, steps, k, pending[0][0], parts[0], lanes, None, True)

    def element(self, at: list[str], steps: list[str], i: str, places: dict[int, str], lanes: int,
                known: dict[Expr, str], mask: str | None, streaming: bool) -> None:
        self.put(at, steps, i, self.values(at, steps, i, places, lanes, known, mask), lanes, mask, streaming)

    def values(self, at: list[str], steps: list[str], i: str, places: dict[int, str], lanes: int,
               known: dict[Expr, str], mask: str | None) -> list[str]:
        from .lower import lower
        em = self.em
        for e, room in self.kept.items():
            known[e] = em.load(e.dtype, lanes, em.at(room, em.mul(i, str(e.dtype.itemsize))), mask)
        return lower(em, self.roots, lanes, lambda e, args: self.leaf(e, args, at, steps, i, places, lanes, mask), known)

    def leaf(self, e: Expr, args: list[str], at: list[str], steps: list[str], i: str, places: dict[int, str],
             lanes: int, mask: str | None) -> str:
        em = self.em
        if e.op == "input":
            k = self.outs + e.value
            if self.classes[k] == "0":
                return em.broadcast(em.load(e.dtype, 1, at[k]), _base(e), lanes)
            here = em.at(at[k], em.mul(i, steps[k]))
            if self.classes[k] == "1":
                return em.load(e.dtype, lanes, here, mask)
            if self.classes[k] != "s" and lanes > 1 and mask is None:
                return em.load_stepping(e.dtype, lanes, here, self.classes[k])
            return em.load_apart(e.dtype, lanes, here, steps[k], mask)
        if e.op == "scalar":
            return self.scalars.get((e.value, lanes)) or em.broadcast(self.scalars[e.value, 1], _base(e), lanes)
        if e.op == "coord":
            place = dict(self.coords)[e.value % self.rank]
            if place is None:
                return em.broadcast("0", "i64", lanes)
            return em.ramp(i, lanes) if place == 0 else em.broadcast(places[place], "i64", lanes)
        if e.op == "gather":
            if e.value < 0:
                step = self._once(e.args[1], args[1], lanes) if len(e.args) > 1 else "1"
                here = self._in_row(self.outs + ~e.value, e.args[0], args[0], lanes, em.mul(i, step), e)
                return em.load(e.dtype, lanes, here, mask) if step == "1" else em.load_apart(e.dtype, lanes, here, em.mul(step, str(e.dtype.itemsize)), mask)
            return em.load_each(e.dtype, lanes, self.pointers[self.outs + e.value], self._bytes(args[0], e, lanes), mask)
        raise ValueError(f"a map has no {e.op}")

    def _bytes(self, offset: str, e: Expr, lanes: int) -> str:
        from .emit import splat, vec
        return self.em.op(f"mul {vec('i64', lanes)} {offset}, {splat(str(e.dtype.itemsize), 'i64', lanes)}")

    def _in_row(self, operand: int, first: Expr, value: str, lanes: int, i: str, e: Expr) -> str:
        """The address of element i of a row of an operand; first: the offset of the row's first, `value` in each lane."""
        em = self.em
        return em.at(self.pointers[operand], em.mul(em.add(self._once(first, value, lanes), i), str(e.dtype.itemsize)))

    def _once(self, number: Expr, value: str, lanes: int) -> str:
        """A number that a row has once, `value` in each lane."""
        known = self.row.get(number)
        if known is None:  # positions are read again where they may be written
            known = value if lanes == 1 else self.em.op(f"extractelement <{lanes} x i64> {value}, i64 0")
        return known

    def _by_rows(self) -> tuple[Expr, ...]:
        """The program's expressions, in which what is read or written at neighbours has the offset of the row's first, which is worked out once a
        row.  A gather that reads so has ~k for input k; one that reads elements evenly apart has how far as its second argument."""
        def first(offset: Expr) -> Expr:
            return rebuild((offset,), lambda e: const(0, e.dtype) if e.op == "coord" and dict(self.coords)[e.value % self.rank] == 0 else None)[0]

        def by_row(e: Expr) -> Expr | None:
            slope = self._slope(e.args[0]) if e.op == "gather" else None
            if slope is None or slope is NONE:
                return None
            return make("gather", e.dtype, (first(e.args[0]),) if slope is ONE else (first(e.args[0]), slope), ~e.value)
        outs, offsets = self.program.outs, [t[1] for t in self.program.targets if t is not None]
        return rebuild((*outs, *(offsets if self.alone else map(first, offsets))), by_row)

    def _slope(self, offset: Expr) -> Expr | None:
        """By how much an offset grows along the innermost axis, where that is plain to see: `NONE`, `ONE`, or what a row has once; else None."""
        slopes: dict[Expr, Expr | None] = {}
        for e in walk((offset,)):
            parts = [slopes[a] for a in e.args]
            moving = [k for k, p in enumerate(parts) if p is not NONE]
            found: Expr | None = None
            if e.op == "coord":
                found = ONE if dict(self.coords)[e.value % self.rank] == 0 else NONE
            elif e.op == "input":
                found = NONE if self.classes[self.outs + e.value] == "0" else None
            elif e.op != "gather" and not moving:
                found = NONE
            elif e.op in ("add", "sub") and e.dtype is int64 and moving == [0]:
                found = parts[0]
            elif e.op == "add" and e.dtype is int64 and moving == [1]:
                found = parts[1]
            elif e.op == "mul" and e.dtype is int64 and len(moving) == 1 and parts[moving[0]] is ONE:
                found = e.args[1 - moving[0]]
            slopes[e] = found
        return slopes[offset]

    def put(self, at: list[str], steps: list[str], i: str, values: list[str], lanes: int, mask: str | None,
            streaming: bool) -> None:
        em, offsets = self.em, zip(self.roots[self.outs:], values[self.outs:], strict=True)
        joined = self._joined() if lanes > 1 and mask is None else {}
        for k, e in enumerate(self.program.outs):
            if k in joined:
                if joined[k]:
                    em.store_joined(e.dtype, lanes, values[k:k + joined[k]], em.at(at[k], em.mul(i, steps[k])))
                continue
            target = self.program.targets[k]
            if target is not None:
                first, offset = next(offsets)
                here = em.at(self.pointers[k], self._bytes(offset, e, 1)) if self.alone else self._in_row(k, first, offset, lanes, i, e)
                self.scatter(e, target[0], here, values[k], lanes, mask)
                continue
            self.put_one(at, steps, k, i, values[k], lanes, mask, streaming and self.classes[k] == "1")

    def _joined(self) -> dict[int, int]:
        """By output, of those whose lanes together fill what they are written to: how many from this one on, 0 for the others of them."""
        found: dict[int, int] = {}
        for first, count in self.program.joined:
            if all(c == str(count) for c in self.classes[first:first + count]) and count in (2, 4):
                found |= {first: count, **dict.fromkeys(range(first + 1, first + count), 0)}
        return found

    def put_one(self, at: list[str], steps: list[str], k: int, i: str, value: str, lanes: int, mask: str | None,
                streaming: bool) -> None:
        em, d = self.em, self.types[k]
        here = em.at(at[k], em.mul(i, steps[k]))
        if self.classes[k] == "1":
            em.store(d, lanes, value, here, mask, streaming)
        else:
            em.store_apart(d, lanes, value, here, steps[k], mask)

    def scatter(self, e: Expr, mode: str, here: str, value: str, lanes: int, mask: str | None) -> None:
        em = self.em
        if mode != "set":
            from .lower import apply
            op = {"max": "maximum", "min": "minimum"}.get(mode, mode)
            value = apply(em, op, e.dtype, lanes, [em.load(e.dtype, lanes, here, mask), value])
        em.store(e.dtype, lanes, value, here, mask)

    def _changing(self) -> set[Expr]:
        """The nodes whose value changes along a row."""
        along = {d for d, place in self.coords if place == 0}
        # with targets an input may be the very memory that is being written; positions are of another type
        written = self.types[:self.outs] if self.ordered else ()
        read = {k - self.outs for k in range(self.outs, len(self.types)) if self.types[k] in written or self.classes[k] != "0"}
        return moving(self.roots, self.rank, along, read, gathers=True)

    def _invariants(self, at: list[str], steps: list[str], places: dict[int, str]) -> tuple[dict[Expr, str], list[Expr]]:
        """Values that do not change along the row, made once ahead of its loops, as single elements; and which of them the loops use."""
        known: dict[Expr, str] = {}
        kept = [e for e in walk(self.roots) if e not in self.changing]
        if kept:
            from .lower import lower
            lower(self.em, tuple(kept), 1, lambda e, args: self.leaf(e, args, at, steps, "0", places, 1, None), known)
        used = {*self.roots, *[a for e in walk(self.roots) if e in self.changing for a in e.args]}
        return known, [e for e in kept if e in used]


def _base(e: Expr) -> str:
    from .emit import base
    return base(e.dtype)



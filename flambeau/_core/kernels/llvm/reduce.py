"""Reductions as vector code.

Three forms.  "along": vectors lie along the innermost reduced axis; a unit is one output element.  "blocks": the same for short rows, whose
vectors are joined side by side (`row_blocks.py`); a unit is a stretch of rows.  "across": vectors lie along a kept axis; a unit is a tile of it,
whose accumulators stay in the first cache while the reduced lines stream past.

Long reductions, and those with too few units to share out, are cut into chunks whose partial results go to the
workspace; a second stage joins them.  Where the cuts are depends on the domain alone, so results do too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..loops.accumulators import flat_types, has_position
from ..loops.reductions import ByVectors, reduce_lanes, side_by_side, tile_of
from . import vector_loops
from .launches import Plan
from .vector_loops import Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...dtypes import dtype
    from ..programs import Reduce
    from .accumulators import Partials
    from .emit import Emitter
    from .row_blocks import RowBlock
    from .vector_loops import Unit

NAMES = ("flambeau_reduce", "flambeau_join")
RUN = 32  # vectors that are summed up before they join the total, for the same reason


# ------------------------------------------------------------------------------------------------------------ planning
def plan(program: Reduce, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Plan:
    """How `program` is launched over `domain`; the domain has elements."""
    loops = ByVectors(program, domain, strides)
    first, join, sizes = loops.first, loops.join, loops.sizes
    form = "across" if loops.across else "blocks" if loops.blocks else "along"
    key = (form, first.classes(sizes), first.places(loops.coords), loops.rank, bool(first.middle),
           join.classes(sizes) if join is not None else None,
           (first.turned().classes(sizes), first.turned().places(loops.coords)) if loops.blocks else None)
    stages = [(NAMES[0], first.units, loops.chunk)]
    params = [*loops.rooms, *vector_loops.block(first, loops.piece, loops.outermost, loops.passes)]
    if join is not None:
        stages.append((NAMES[1], join.units, loops.joins))
        params += vector_loops.block(join, loops.pieces, loops.pieces)
    return Plan(key, NAMES[:len(stages)], stages, params, loops.workspace, loops.parallel)


# ------------------------------------------------------------------------------------------------------------- writing
def write(program: Reduce, key: tuple[Any, ...]) -> str:
    """The IR text of the kernels for a plan's key."""
    from .emit import Emitter, Module
    module = Module()
    accs = flat_types([e.dtype for e in program.elems], program.combine)
    for stage, name in enumerate(NAMES[:1 if key[5] is None else 2]):
        em = Emitter(module, f"void @{name}(i64 %begin, i64 %end, ptr %args, ptr %block)")
        _Kernel(em, program, key, accs, stage).write()
        em.line("ret void")
        em.finish()
    return module.text()


def order(program: Reduce, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[Any, ...]:
    """What the order of its sums follows from: programs that agree in it and in their elements give the same bits."""
    loops = ByVectors(program, domain, strides)
    reduced = tuple([a.size for a in loops.reduced])
    return (loops.across, loops.lanes, loops.piece, loops.pieces, loops.passes, bool(loops.first.middle), reduced, loops.axes_in_order(),
            side_by_side(program, len(loops.accs)))


class _Kernel:
    def __init__(self, em: Emitter, program: Reduce, key: tuple[Any, ...], accs: Sequence[dtype], stage: int) -> None:
        from .accumulators import Partials
        form, classes, places, rank, middle, joins, turned = key
        self.em, self.program, self.accs = em, program, accs
        self.join, self.cut = stage == 1, stage == 0 and joins is not None
        types = program.out_types + program.inputs
        self.operands, pointers = len(types), [em.pointer("%args", k) for k in range(len(types))]
        block, numbers = "%block", len(types)
        if joins is not None:
            work = em.pointer("%args", len(types))
            pointers += [em.at(work, em.word("%block", k)) for k in range(len(accs))]
            types, numbers = types + tuple(accs), numbers + 1
            block = em.at("%block", str(8 * len(accs)))
        if self.join:
            block, form, classes, middle = em.at(block, em.word(block, 0)), "across", joins, False
        self.across, self.classes, self.middle = form == "across", classes, middle
        self.lanes = reduce_lanes(program)
        self.frame = Frame(em, types, pointers, classes, places, len(program.posts), numbers, rank, block)
        self.partials: Partials = Partials(em, program.elems, program.combine)
        self.frame.read_numbers(program.roots(), self.lanes)
        self.ordered = any(map(has_position, program.combine))
        self.rounds = not self.ordered and any(how == "sum" and e.dtype.kind == "f"
                                               for how, e in zip(program.combine, program.elems, strict=True))
        self.odometer = self.frame.middle() if middle else None
        self.unroll, self.group = side_by_side(program, len(accs))
        if self.join and not self.ordered:
            self.group = 8
        self.buffers: list[str] = []
        if self.across:
            from .emit import base_memory
            width = tile_of(accs, self.lanes)
            self.buffers = [em.op(f"alloca [{width} x {base_memory(d)}], align 64", "a") for d in accs]
        self.block: RowBlock | None = None
        if turned is not None:
            from .row_blocks import RowBlock
            self.block = RowBlock(em, self.partials, self.lanes)
            self.turned = Frame(em, types, pointers, turned[0], turned[1], len(program.posts), numbers, rank, block, turned=True)
            self.turned.numbers = self.frame.numbers

    def write(self) -> None:
        em, frame = self.em, self.frame
        if self.block is not None:
            from .row_blocks import row_ends
            ends = row_ends(em, frame.word("vector"), self.lanes)
            with frame.units(by_lines=True) as unit, em.loop(unit.begin, unit.end, str(self.lanes)) as loop:
                self._blocks(unit, self.block, ends, loop.i, em.smaller(em.sub(unit.end, loop.i), str(self.lanes)))
            return
        split, split_size, passes = frame.word("split"), frame.word("split_size"), frame.word("passes")
        inner = frame.word("line" if self.across else "vector")
        with frame.units() as unit:
            start, length = "0", split_size
            if self.cut:
                start = em.mul(unit.outermost(), split)
                length = em.smaller(split, em.sub(split_size, start))
            if self.odometer is None:
                unit_passes, end, place = "1", length, start
            else:
                unit_passes, end = em.mul(length, passes), inner
                place = em.mul(em.mul(start, passes), inner)
                self.odometer.set("0")
            (self._across if self.across else self._along)(unit, unit_passes, end, inner, place)

    # vectors along the reduced axis --------------------------------------------------------------------------------
    def _along(self, unit: Unit, passes: str, end: str, inner: str, place: str) -> None:
        em, partials = self.em, self.partials
        types = partials.types(self.lanes)
        start = list(zip(types * self.unroll, partials.start(self.lanes) * self.unroll, strict=True))
        block = self.lanes * self.unroll
        main = em.op(f"and i64 {end}, {-block}")
        n = len(types)

        def span(at: list[str], place: str, places: dict[int, str], carried: list[str]) -> list[str]:
            def blocks(begin: str, stop: str, first: list[str]) -> list[str]:
                with em.loop(begin, stop, str(block), list(zip(types * self.unroll, first, strict=True))) as loop:
                    new: list[str] = []
                    for u in range(self.unroll):
                        i = em.add(loop.i, str(u * self.lanes))
                        values = self._elements(at, i, places, None)
                        new += partials.take(loop.vars[u * n:u * n + n], values, self._ramp(place, i), self.lanes)
                    loop.next = new
                return loop.vars

            if self.rounds:
                with em.loop("0", main, str(block * RUN), list(zip(types * self.unroll, carried, strict=True))) as runs:
                    stop = em.smaller(em.add(runs.i, str(block * RUN)), main)
                    run = blocks(runs.i, stop, [v for _, v in start])
                    runs.next = [v for u in range(self.unroll) for v in partials.join(
                        runs.vars[u * n:u * n + n], run[u * n:u * n + n], self.lanes)]
                groups = runs.vars
            else:
                groups = blocks("0", main, carried)
            whole = main
            if self.unroll > 1 and not em.module.masks:  # where a mask costs more than the elements it hides
                whole = em.op(f"and i64 {end}, {-self.lanes}")
                with em.loop(main, whole, str(self.lanes), list(zip(types, groups[:n], strict=True))) as single:
                    single.next = partials.take(single.vars, self._elements(at, single.i, places, None), self._ramp(place, single.i), self.lanes)
                groups = single.vars + groups[n:]
            with em.loop(whole, end, str(self.lanes), list(zip(types, groups[:n], strict=True))) as tail:
                mask = em.first_lanes(em.sub(end, tail.i), self.lanes)
                values = partials.masked(self._elements(at, tail.i, places, mask), self.lanes, mask)
                tail.next = partials.take(tail.vars, values, self._ramp(place, tail.i), self.lanes)
            return tail.vars + groups[n:]

        if self.odometer is None:
            # a row of few vectors: nothing is summed side by side
            short, long, on = em.label("short"), em.label("long"), em.label("on")
            em.branch(em.op(f"icmp slt i64 {end}, {block}"), short, long)
            em.start(short)

            def part(i: str, before: list[str]) -> list[str]:
                mask = em.first_lanes(em.sub(end, i), self.lanes)
                values = partials.masked(self._elements(unit.at, i, unit.places, mask), self.lanes, mask)
                return partials.take(before, values, self._ramp(place, i), self.lanes)
            first = part("0", [v for _, v in start[:n]])
            with em.loop(str(self.lanes), end, str(self.lanes), list(zip(types, first, strict=True))) as few:
                few.next = part(few.i, few.vars)
            one = few.vars
            after_short = em.current
            em.jump(on)
            em.start(long)
            groups = span(unit.at, place, unit.places, [v for _, v in start])
            many = partials.tree([groups[u * n:u * n + n] for u in range(self.unroll)], self.lanes)
            after_long = em.current
            em.jump(on)
            em.start(on)
            lanes = [em.phi(t, (a, after_short), (b, after_long)) for t, a, b in zip(types, one, many, strict=True)]
        else:
            with em.loop("0", passes, carried=start) as loop:
                at, places = self._in_middle(unit)
                loop.next = span(at, em.add(place, em.mul(loop.i, inner)), places, loop.vars)
                self.odometer.advance()
            lanes = partials.tree([loop.vars[u * n:u * n + n] for u in range(self.unroll)], self.lanes)
        total = partials.across(lanes, self.lanes)
        self._finish(unit, "0", total, 1, None)

    # vectors along short rows, joined side by side -------------------------------------------------------------------
    def _blocks(self, unit: Unit, block: RowBlock, ends: tuple[str, str], begin: str, count: str) -> None:
        """`count` rows from the one with the number `begin`; ends: see `row_ends`."""
        em, frame, partials, lanes = self.em, self.frame, self.partials, self.lanes
        types, (last, mask) = partials.types(lanes), ends
        with em.loop("0", count) as rows:
            row = em.add(begin, rows.i)
            at = [em.at(p, em.mul(row, s)) for p, s in zip(unit.at, frame.line_steps, strict=True)]
            places = unit.places | {d: row for d, kind, _ in frame.places if kind == "line"}
            with em.loop("0", last, str(lanes), list(zip(types, partials.start(lanes), strict=True))) as whole:
                whole.next = partials.take(whole.vars, self._elements(at, whole.i, places, None), self._ramp("0", whole.i), lanes)
            values = partials.masked(self._elements(at, last, places, mask), lanes, mask)
            block.put(rows.i, partials.take(whole.vars, values, self._ramp("0", last), lanes))
        self._finish(unit, begin, block.joined(), lanes, em.first_lanes(count, lanes), self.turned)

    def _ramp(self, place: str, i: str) -> str:
        return self.em.ramp(self.em.add(place, i), self.lanes) if self.ordered else "0"

    def _in_middle(self, unit: Unit) -> tuple[list[str], dict[int, str]]:
        em = self.em
        assert self.odometer is not None
        at = [em.at(p, self.odometer.offset(k)) for k, p in enumerate(unit.at)]
        return at, unit.places | {d: self.odometer.digit(k) for d, kind, k in self.frame.places if kind == "middle"}

    def _elements(self, at: list[str], i: str, places: dict[int, str], mask: str | None) -> list[str]:
        from .lower import lower
        frame = self.frame
        if self.join:
            return [frame.load(self.operands + k, at, i, self.lanes, mask) for k in range(len(self.accs))]
        return lower(self.em, self.program.elems, self.lanes,
                     lambda e, args: frame.leaf(e, args, at, i, places, self.lanes, mask))

    def _finish(self, unit: Unit, i: str, values: list[str], lanes: int, mask: str | None, frame: Frame | None = None) -> None:
        """Stores what became of place `i` of the vector axis: partial results, or the outputs; frame: another that says which axis that is."""
        from .lower import lower
        frame = frame or self.frame
        if self.cut:
            for k, v in enumerate(values):
                frame.store(self.operands + k, v, unit.at, i, lanes, mask)
            return
        values = self.partials.finish(values, lanes)
        posts = lower(self.em, self.program.posts, lanes,
                      lambda e, args: frame.leaf(e, args, unit.at, i, unit.places, lanes, mask, values))
        for k, v in enumerate(posts):
            frame.store(k, v, unit.at, i, lanes, mask)

    # vectors along a kept axis -------------------------------------------------------------------------------------
    def _across(self, unit: Unit, passes: str, end: str, inner: str, place: str) -> None:
        em, partials, lanes = self.em, self.partials, self.lanes

        def fill(i: str, cell: list[str], mask: str | None) -> None:
            for d, v, c in zip(self.accs, partials.start(lanes), cell, strict=True):
                em.store(d, lanes, v, c)

        def read(cell: list[str]) -> list[str]:
            return [em.load(d, lanes, c) for d, c in zip(self.accs, cell, strict=True)]

        def lines(at: list[str], places: dict[int, str], place: str) -> None:
            grouped = em.op(f"and i64 {end}, {-self.group}")
            for begin, stop, count in (("0", grouped, self.group), (grouped, end, 1)):
                with em.loop(begin, stop, str(count)) as loop:
                    rows = []
                    for g in range(count):
                        r = em.add(loop.i, str(g))
                        here = [em.at(p, em.mul(r, s)) for p, s in zip(at, self.frame.line_steps, strict=True)]
                        coords = places | {d: r for d, kind, _ in self.frame.places if kind == "line"}
                        spot = em.broadcast(em.add(place, r), "i64", lanes) if self.ordered else "0"
                        rows.append((here, coords, spot))

                    def add(i: str, cell: list[str], mask: str | None, rows: list[Any] = rows) -> None:
                        values = [self._elements(here, i, coords, mask) for here, coords, _ in rows]
                        accs = read(cell)
                        if self.ordered and self.join:
                            for v in values:
                                accs = partials.join(accs, v, lanes)
                        elif self.ordered:
                            for (_, _, spot), v in zip(rows, values, strict=True):
                                accs = partials.take(accs, v, spot, lanes)
                        else:
                            accs = partials.join(accs, partials.tree(values, lanes), lanes)
                        for d, total, c in zip(self.accs, accs, cell, strict=True):
                            em.store(d, lanes, total, c)
                    self._tile_loop(unit, add)

        self._tile_loop(unit, fill)
        if self.odometer is None:
            lines(unit.at, unit.places, place)
        else:
            with em.loop("0", passes) as loop:
                at, places = self._in_middle(unit)
                lines(at, places, em.add(place, em.mul(loop.i, inner)))
                self.odometer.advance()
        self._tile_loop(unit, lambda i, cell, mask: self._finish(unit, i, read(cell), lanes, mask))

    def _tile_loop(self, unit: Unit, body: Callable[[str, list[str], str | None], None]) -> None:
        """`body(place, cells of the buffers, mask)` for every vector of the tile."""
        em, lanes = self.em, self.lanes
        whole = em.add(unit.begin, em.op(f"and i64 {em.sub(unit.end, unit.begin)}, {-lanes}"))
        for begin, stop, masked in ((unit.begin, whole, False), (whole, unit.end, True)):
            with em.loop(begin, stop, str(lanes)) as loop:
                mask = em.first_lanes(em.sub(stop, loop.i), lanes) if masked else None
                spot = em.sub(loop.i, unit.begin)
                cell = [em.at(b, em.mul(spot, str(d.itemsize))) for b, d in zip(self.buffers, self.accs, strict=True)]
                body(loop.i, cell, mask)

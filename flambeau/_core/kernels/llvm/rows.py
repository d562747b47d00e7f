"""Row programs as vector code: softmax, norms, cross-entropy and their like.

Three forms.  "along": vectors lie along the row; a unit is one row, which stays in the cache from stage to stage.  "blocks": the same for short
rows: as many as a vector has lanes go from stage to stage, are joined side by side (`row_blocks.py`), and what a row has once is done in the
lanes; a unit is a stretch of rows.  "across": every lane has a row of its own, for rows shorter than a vector and for rows whose elements are far
apart while their neighbours' are not (a softmax over channels); a unit is a tile of such rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..loops.rows import TILE, ByVectors, kept_value, passes_of
from ..loops.stages import lanes_of
from . import vector_loops
from .launches import Plan
from .vector_loops import Frame, Unit, nodes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype
    from ..expr import Expr
    from ..programs import Rows
    from .accumulators import Partials
    from .emit import Emitter
    from .vector_loops import Accumulators

NAME = "flambeau_rows"


# ------------------------------------------------------------------------------------------------------------ planning
def plan(program: Rows, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Plan:
    """How `program` is launched over `domain`; the domain has elements."""
    loops = ByVectors(program, domain, strides)
    stage = loops.stage
    turned = (stage.turned().classes(loops.sizes), stage.turned().places(loops.coords)) if loops.blocks else None
    key = ("across" if loops.across else "blocks" if loops.blocks else "along", stage.classes(loops.sizes), stage.places(loops.coords), loops.rank,
           loops.streams, turned)
    return Plan(key, (NAME,), [(NAME, stage.units, loops.chunk)], vector_loops.block(stage), parallel=loops.parallel)


# ------------------------------------------------------------------------------------------------------------- writing
def write(program: Rows, key: tuple[Any, ...]) -> str:
    """The IR text of the kernel for a plan's key."""
    from .emit import Emitter, Module
    module = Module()
    em = Emitter(module, f"void @{NAME}(i64 %begin, i64 %end, ptr %args, ptr %block)")
    _Kernel(em, program, key).write()
    em.line("ret void")
    em.finish()
    return module.text()


def order(program: Rows, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[Any, ...]:
    """What the order of its sums follows from: programs that agree in it and in what they sum give the same bits."""
    passes = passes_of(program.stages, mixed=False)
    loops = ByVectors(program, domain, strides)
    return (loops.across, loops.blocks, lanes_of(program.roots()),
            tuple([(len(p), _unroll(tuple([e for _, _, e in p]))) for p in passes if p[0][0] == "reduce"]))


def _unroll(roots: tuple[Expr, ...]) -> int:
    nodes = nodes_of(roots)
    return 4 if nodes <= 4 else 2 if nodes <= 40 else 1


class _Kernel:
    def __init__(self, em: Emitter, program: Rows, key: tuple[Any, ...]) -> None:
        form, classes, places, rank, streams, turned = key
        types = program.out_types + program.inputs
        self.em, self.program, self.streams = em, program, streams
        self.across = form == "across"
        self.lanes = lanes_of(program.roots())
        pointers = [em.pointer("%args", k) for k in range(len(types))]
        self.frame = Frame(em, types, pointers, classes, places, len(program.out_types), len(types), rank, "%block")
        self.frame.read_numbers(program.roots(), self.lanes)
        self.turned: Frame | None = None
        if turned is not None:
            self.turned = Frame(em, types, pointers, turned[0], turned[1], len(program.out_types), len(types), rank, "%block", turned=True)
            self.turned.numbers = self.frame.numbers
        passes = passes_of(program.stages, mixed=False)
        self.groups = [(p[0][0], [(what, e) for _, what, e in p]) for p in passes]
        self.keep: tuple[int, int, Expr] | None = None  # a group, and the value it leaves in an output
        found = kept_value(passes, len(program.out_types), [c[0] == "1" for c in classes])
        if found is not None:
            at, out, value, rest = found
            self.keep, self.groups[-1] = (at, out, value), ("map", [(out, rest)])
            self.streams = ()  # its lines are in the cache already, where streaming stores are slow
        self.aligned = ""
        if self.streams:
            bits = "0"
            for k in self.streams:
                address = em.op(f"ptrtoint ptr {pointers[k]} to i64")
                bits = address if bits == "0" else em.op(f"or i64 {bits}, {address}")
            self.aligned = em.op(f"icmp eq i64 {em.op(f'and i64 {bits}, 63')}, 0")

    def write(self) -> None:
        em, frame, lanes = self.em, self.frame, self.lanes
        vector, line = frame.word("vector"), frame.word("line")
        block = TILE * lanes
        if self.turned is not None:
            self._blocks(self.turned, vector)
            return
        with frame.units() as unit:
            if self.across:
                main = em.add(unit.begin, em.op(f"and i64 {em.sub(unit.end, unit.begin)}, {-block}"))
                with em.loop(unit.begin, main, str(block)) as loop:
                    self._across(unit, [em.add(loop.i, str(k * lanes)) for k in range(TILE)], None, line)
                with em.loop(main, unit.end, str(lanes)) as loop:
                    self._across(unit, [loop.i], em.first_lanes(em.sub(unit.end, loop.i), lanes), line)
            else:
                self._along(unit, vector)
        if self.streams:
            em.fence_streams()

    def _kept(self, group: int) -> tuple[int, Expr] | None:
        """The output and the value the group `group` leaves in it."""
        return None if self.keep is None or self.keep[0] != group else self.keep[1:]

    # vectors along the row -----------------------------------------------------------------------------------------
    def _along(self, unit: Unit, size: str) -> None:
        singles: list[str] = []  # the finished accumulators
        for at, (kind, members) in enumerate(self.groups):
            roots = tuple(e for _, e in members)
            if kind == "reduce":
                singles += self._reduce_along(unit, size, roots, [how for how, _ in members], singles, self._kept(at))
            elif kind == "row":
                values = self._values(unit.at, unit.places, roots, "0", 1, None, singles, {})
                for (k, _), v in zip(members, values, strict=True):
                    self.frame.store(k, v, unit.at, "0", 1, None)
            else:
                self._map_along(unit, size, members, singles)

    def _values(self, at: list[str], places: dict[int, str], roots: tuple[Expr, ...], i: str, lanes: int,
                mask: str | None, accs: Sequence[str], known: dict[Expr, str]) -> list[str]:
        from .lower import lower

        def leaf(e: Expr, args: list[str]) -> str:
            return self.frame.leaf(e, args, at, i, places, lanes, mask, accs)
        return lower(self.em, roots, lanes, leaf, known)

    def _still(self, unit: Unit, roots: tuple[Expr, ...], singles: Accumulators) -> dict[Expr, str]:
        """What does not change along the row, in every lane."""
        frame, lanes = self.frame, self.lanes
        wide = _Broadcasts(self.em, self.program, singles, lanes)
        return frame.invariants(roots, "vector", lanes,
                                lambda e, args: frame.leaf(e, args, unit.at, "0", unit.places, lanes, None, wide))

    def _reduce_along(self, unit: Unit, size: str, roots: tuple[Expr, ...], how: list[str], singles: list[str],
                      keep: tuple[int, Expr] | None) -> list[str]:
        from .accumulators import Partials
        em, lanes, at, places = self.em, self.lanes, unit.at, unit.places
        partials = Partials(em, roots, how)
        types, unroll, n = partials.types(lanes), _unroll(roots), len(roots)
        still = self._still(unit, roots, singles)
        wanted = roots if keep is None else (*roots, keep[1])
        main = em.op(f"and i64 {size}, {-lanes * unroll}")
        start = list(zip(types * unroll, partials.start(lanes) * unroll, strict=True))

        def part(i: str, before: list[str]) -> list[str]:
            mask = em.first_lanes(em.sub(size, i), lanes)
            values = self._values(at, places, wanted, i, lanes, mask, (), dict(still))
            if keep is not None:
                self.frame.store(keep[0], values[n], at, i, lanes, mask)
            return partials.take(before, partials.masked(values[:n], lanes, mask), "0", lanes)
        short, long, on = em.label("short"), em.label("long"), em.label("on")
        em.branch(em.op(f"icmp slt i64 {size}, {lanes * unroll}"), short, long)
        em.start(short)  # a row of few vectors: nothing is summed side by side
        with em.loop(str(lanes), size, str(lanes), list(zip(types, part("0", partials.start(lanes)), strict=True))) as few:
            few.next = part(few.i, few.vars)
        after_short = em.current
        em.jump(on)
        em.start(long)
        with em.loop("0", main, str(lanes * unroll), start) as loop:
            new: list[str] = []
            for u in range(unroll):
                i = em.add(loop.i, str(u * lanes))
                values = self._values(at, places, wanted, i, lanes, None, (), dict(still))
                new += partials.take(loop.vars[u * n:u * n + n], values[:n], "0", lanes)
                if keep is not None:
                    self.frame.store(keep[0], values[n], at, i, lanes, None)
            loop.next = new
        with em.loop(main, size, str(lanes), list(zip(types, loop.vars[:n], strict=True))) as tail:
            tail.next = part(tail.i, tail.vars)
        many = partials.tree([tail.vars] + [loop.vars[u * n:u * n + n] for u in range(1, unroll)], lanes)
        after_long = em.current
        em.jump(on)
        em.start(on)
        found = [em.phi(t, (a, after_short), (b, after_long)) for t, a, b in zip(types, few.vars, many, strict=True)]
        return partials.across(found, lanes)

    def _map_along(self, unit: Unit, size: str, members: list[tuple[Any, Expr]], singles: list[str]) -> None:
        em, lanes = self.em, self.lanes
        roots = tuple(e for _, e in members)
        still = self._still(unit, roots, singles)
        unroll = _unroll(roots)
        block = lanes * unroll
        main = em.op(f"and i64 {size}, {-block}")

        def blocks(streaming: bool) -> None:
            with em.loop("0", main, str(block)) as loop:
                pending = []
                for u in range(unroll):
                    i = em.add(loop.i, str(u * lanes))
                    pending.append((i, self._values(unit.at, unit.places, roots, i, lanes, None, (), dict(still))))
                for i, values in pending:
                    for (k, _), v in zip(members, values, strict=True):
                        self.frame.store(k, v, unit.at, i, lanes, None, streaming and k in self.streams)

        if self.streams:
            yes, no, on = em.label("aligned"), em.label("anywhere"), em.label("on")
            em.branch(self.aligned, yes, no)
            for label, streaming in ((yes, True), (no, False)):
                em.start(label)
                blocks(streaming)
                em.jump(on)
            em.start(on)
        else:
            blocks(False)
        with em.loop(main, size, str(lanes)) as loop:
            mask = em.first_lanes(em.sub(size, loop.i), lanes)
            values = self._values(unit.at, unit.places, roots, loop.i, lanes, mask, (), dict(still))
            for (k, _), v in zip(members, values, strict=True):
                self.frame.store(k, v, unit.at, loop.i, lanes, mask)

    # vectors along short rows, joined side by side -------------------------------------------------------------------
    def _blocks(self, turned: Frame, size: str) -> None:
        from .accumulators import Partials
        from .emit import base_memory
        from .lower import lower
        from .row_blocks import RowBlock, row_ends
        em, frame, lanes = self.em, self.frame, self.lanes
        ends = row_ends(em, size, lanes)
        reductions = [Partials(em, [e for _, e in members], [how for how, _ in members]) if kind == "reduce" else None for kind, members in self.groups]
        blocks = [None if p is None else RowBlock(em, p, lanes) for p in reductions]
        types = [d for p in reductions if p is not None for d in p.dtypes]
        rooms = [em.op(f"alloca [{lanes} x {base_memory(d)}], align 64", "a") for d in types]  # of the finished accumulators
        with frame.units(by_lines=True) as unit, em.loop(unit.begin, unit.end, str(lanes)) as loop:
            count, finished = em.smaller(em.sub(unit.end, loop.i), str(lanes)), list[str]()
            mask = em.first_lanes(count, lanes)

            def leaf(e: Expr, args: list[str]) -> str:
                return turned.leaf(e, args, unit.at, loop.i, unit.places, lanes, mask, finished)
            for group, (kind, members) in enumerate(self.groups):
                if kind == "row":
                    for (k, _), v in zip(members, lower(em, tuple(e for _, e in members), lanes, leaf), strict=True):
                        turned.store(k, v, unit.at, loop.i, lanes, mask)
                    continue
                block = blocks[group]
                with em.loop("0", count) as rows:
                    row = em.add(loop.i, rows.i)
                    at = [em.at(p, em.mul(row, s)) for p, s in zip(unit.at, frame.line_steps, strict=True)]
                    places = unit.places | {d: row for d, what, _ in frame.places if what == "line"}
                    singles = _Kept(em, types[:len(finished)], rooms, rows.i)
                    found = self._short_row(Unit(at, places, unit.begin, unit.end, unit.number, unit.outermost), group, reductions[group], ends, singles)
                    if block is not None:
                        block.put(rows.i, found)
                for v in block.joined() if block is not None else ():
                    em.store(types[len(finished)], lanes, v, rooms[len(finished)])
                    finished.append(v)

    def _short_row(self, unit: Unit, group: int, partials: Partials | None, ends: tuple[str, str], singles: Accumulators) -> list[str]:
        """One row of a block through a group of stages: what it accumulates, or nothing where the group is a map; ends: see `row_ends`."""
        em, frame, lanes, (last, mask) = self.em, self.frame, self.lanes, ends
        members, keep = self.groups[group][1], self._kept(group)
        roots = tuple(e for _, e in members)
        wanted, still = roots if keep is None else (*roots, keep[1]), self._still(unit, roots, singles)

        def part(i: str, among: str | None, before: list[str]) -> list[str]:
            values = self._values(unit.at, unit.places, wanted, i, lanes, among, (), dict(still))
            if partials is None:
                for (k, _), v in zip(members, values, strict=True):
                    frame.store(k, v, unit.at, i, lanes, among)
                return []
            if keep is not None:
                frame.store(keep[0], values[-1], unit.at, i, lanes, among)
            return partials.take(before, partials.masked(values[:len(roots)], lanes, among), "0", lanes)
        start = list(zip(partials.types(lanes), partials.start(lanes), strict=True)) if partials is not None else []
        with em.loop("0", last, str(lanes), start) as whole:
            whole.next = part(whole.i, None, whole.vars)
        return part(last, mask, whole.vars)

    # a row in every lane -------------------------------------------------------------------------------------------
    def _across(self, unit: Unit, spots: list[str], mask: str | None, size: str) -> None:
        """The rows at the vectors that begin at `spots` of the vector axis."""
        from .accumulators import Partials
        em, frame, lanes = self.em, self.frame, self.lanes
        accs: list[list[str]] = [[] for _ in spots]
        for group, (kind, members) in enumerate(self.groups):
            roots, keep = tuple(e for _, e in members), self._kept(group)
            wanted = roots if keep is None else (*roots, keep[1])
            if kind == "row":
                for i, own in zip(spots, accs, strict=True):
                    values = self._values(unit.at, unit.places, roots, i, lanes, mask, own, {})
                    for (k, _), v in zip(members, values, strict=True):
                        frame.store(k, v, unit.at, i, lanes, mask)
                continue
            still = [self._still_across(unit, roots, i, mask, own) for i, own in zip(spots, accs, strict=True)]
            partials: Partials | None = None
            start: list[tuple[str, str]] = []
            if kind == "reduce":
                partials = Partials(em, roots, [how for how, _ in members])
                start = list(zip(partials.types(lanes), partials.start(lanes), strict=True)) * len(spots)
            with em.loop("0", size, "1", start) as loop:
                at = [em.at(p, em.mul(loop.i, s)) for p, s in zip(unit.at, frame.line_steps, strict=True)]
                places = unit.places | {d: loop.i for d, what, _ in frame.places if what == "line"}
                new: list[str] = []
                for u, i in enumerate(spots):
                    values = self._values(at, places, wanted, i, lanes, mask, (), dict(still[u]))
                    if partials is not None:
                        n = len(roots)
                        new += partials.take(loop.vars[u * n:u * n + n], values[:n], "0", lanes)
                        if keep is not None:
                            frame.store(keep[0], values[n], at, i, lanes, mask)
                        continue
                    for (k, _), v in zip(members, values, strict=True):
                        frame.store(k, v, at, i, lanes, mask)
                loop.next = new
            if partials is not None:
                for u in range(len(spots)):
                    accs[u] += loop.vars[u * len(roots):(u + 1) * len(roots)]

    def _still_across(self, unit: Unit, roots: tuple[Expr, ...], i: str, mask: str | None,
                      accs: Sequence[str]) -> dict[Expr, str]:
        frame, lanes = self.frame, self.lanes
        return frame.invariants(roots, "line", lanes,
                                lambda e, args: frame.leaf(e, args, unit.at, i, unit.places, lanes, mask, accs))


class _Kept:
    """The finished accumulators of a row of a block."""

    def __init__(self, em: Emitter, types: Sequence[dtype], rooms: Sequence[str], row: str) -> None:
        self.em, self.types, self.rooms, self.row = em, types, rooms, row

    def __getitem__(self, k: int) -> str:
        d = self.types[k]
        return self.em.load(d, 1, self.em.at(self.rooms[k], self.em.mul(self.row, str(d.itemsize))))


class _Broadcasts:
    """Finished accumulators in every lane, made when first asked for."""

    def __init__(self, em: Emitter, program: Rows, singles: Accumulators, lanes: int) -> None:
        self.em, self.singles, self.lanes = em, singles, lanes
        self.types = [e.dtype for kind, _, e in program.stages if kind == "reduce"]

    def __getitem__(self, k: int) -> str:
        from .emit import base
        return self.em.broadcast(self.singles[k], base(self.types[k]), self.lanes)

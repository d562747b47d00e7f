"""The loops reductions, rows and scans share: units of work, where their operands lie, vectors along one axis.

Which axis is which of a stage's is said in `loops.stages`.

A kernel's parameter block, in 64-bit words: the header (`WORDS`), each operand's step along the vector axis, its step
along the line axis, then a table of the outer and one of the middle axes, innermost first: size, each operand's step.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..expr import walk
from ..loops.operands import moving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    from ...dtypes import dtype
    from ..expr import Expr
    from ..loops.stages import Stage
    from .emit import Emitter

    class Accumulators(Protocol):
        """Finished accumulators by number."""

        def __getitem__(self, k: int, /) -> str: ...

# next: bytes from this block to the next stage's; tiles: units a step of the outer axes; width: elements a tile;
# vector, line: the axes' sizes; outer, middle: how many such axes; split: elements of the split axis a chunk;
# split_size: all its elements; passes: how often the innermost reduced axis is walked a unit of the split axis
WORDS = ("next", "tiles", "width", "vector", "line", "outer", "middle", "split", "split_size", "passes")
HEADER = len(WORDS)


def block(stage: Stage, split: int = 0, split_size: int = 0, passes: int = 1) -> list[int]:
    """A stage's parameter block."""
    words = [0, stage.tiles, stage.width, stage.vector.size, stage.line.size, len(stage.outer), len(stage.middle), split,
             split_size, passes, *stage.vector.strides, *stage.line.strides]
    for axes in (stage.outer, stage.middle):
        for a in reversed(axes):
            words += [a.size, *a.strides]
    words[0] = 8 * len(words)
    return words


def nodes_of(roots: tuple[Expr, ...]) -> int:
    return sum(1 for e in walk(roots) if e.args)


class Odometer:
    """Counts along a table of axes, innermost first, and keeps every operand's offset."""

    def __init__(self, em: Emitter, table: str, axes: str, operands: int) -> None:
        self.em, self.table, self.axes, self.operands = em, table, axes, operands
        self.counter = em.op(f"alloca i64, i64 {em.op(f'add i64 {axes}, 1')}, align 8", "a")  # one place at least
        self.offsets = em.op(f"alloca [{max(operands, 1)} x i64], align 8", "a")

    def set(self, index: str) -> None:
        """Puts it at the step `index`; "0" is the start."""
        em, n = self.em, self.operands
        with em.loop("0", self.axes, carried=[("i64", index)] + [("i64", "0")] * n) as loop:
            row = em.at(self.table, em.mul(loop.i, str(8 * (n + 1))))
            size = em.word(row, 0)
            rest = em.op(f"sdiv i64 {loop.vars[0]}, {size}")
            digit = em.sub(loop.vars[0], em.mul(rest, size))
            em.line(f"store i64 {digit}, ptr {em.at(self.counter, em.mul(loop.i, '8'))}, align 8")
            loop.next = [rest] + [em.add(loop.vars[1 + k], em.mul(digit, em.word(row, 1 + k))) for k in range(n)]
        for k in range(n):
            em.line(f"store i64 {loop.vars[1 + k]}, ptr {em.at(self.offsets, str(8 * k))}, align 8")

    def advance(self) -> None:
        """Counts one step on; from the last step back to the start."""
        em, n = self.em, self.operands
        with em.loop("0", self.axes, carried=[("i64", "1")]) as loop:
            with em.only_if(em.op(f"icmp ne i64 {loop.vars[0]}, 0")):
                row = em.at(self.table, em.mul(loop.i, str(8 * (n + 1))))
                cell = em.at(self.counter, em.mul(loop.i, "8"))
                up = em.add(em.op(f"load i64, ptr {cell}, align 8"), "1")
                full = em.op(f"icmp eq i64 {up}, {em.word(row, 0)}")
                em.line(f"store i64 {em.op(f'select i1 {full}, i64 0, i64 {up}')}, ptr {cell}, align 8")
                # on a full turn the operand goes back by all the steps but the last, which it did not take
                turns = em.op(f"select i1 {full}, i64 {em.sub('1', up)}, i64 1")
                for k in range(n):
                    place = em.at(self.offsets, str(8 * k))
                    moved = em.add(em.op(f"load i64, ptr {place}, align 8"), em.mul(turns, em.word(row, 1 + k)))
                    em.line(f"store i64 {moved}, ptr {place}, align 8")
            cell = em.at(self.counter, em.mul(loop.i, "8"))
            zero = em.op(f"icmp eq i64 {em.op(f'load i64, ptr {cell}, align 8')}, 0")
            carry = em.op(f"select i1 {zero}, i64 {loop.vars[0]}, i64 0")
            loop.next = [carry]

    def put(self, digit: str, offsets: list[str]) -> None:
        """Puts it at the place `digit` along the innermost axis, where the operands lie at `offsets`."""
        for place, v in ((self.counter, digit), *((self.em.at(self.offsets, str(8 * k)), v) for k, v in enumerate(offsets))):
            self.em.line(f"store i64 {v}, ptr {place}, align 8")

    def offset(self, k: int) -> str:
        return self.em.word(self.offsets, k)

    def digit(self, axis: int) -> str:
        return self.em.word(self.counter, axis)


class Unit:
    """One unit of work: the operands' addresses, the outer coordinates, its range of the vector axis, its number, and its place along the
    outermost axis."""

    __slots__ = ("at", "places", "begin", "end", "number", "_outermost")

    def __init__(self, at: list[str], places: dict[int, str], begin: str, end: str, number: str, outermost: Callable[[], str]) -> None:
        self.at, self.places, self.begin, self.end = at, places, begin, end
        self.number, self._outermost = number, outermost

    def outermost(self) -> str:
        return self._outermost()


class Frame:
    """A kernel being written: its operands, its units, and the values of leaves.

    types: the operands' types; classes, places: see `loops.stages.Stage`; first_number: the slot of the first Python number;
    outs: how many operands come before the inputs; rank: the domain's; turned: the frame of `Stage.turned`, over the stage's own block.
    """

    def __init__(self, em: Emitter, types: Sequence[dtype], pointers: list[str], classes: tuple[str, ...],
                 places: tuple[tuple[int, str, int], ...], outs: int, first_number: int, rank: int, block: str, turned: bool = False) -> None:
        self.em, self.types, self.pointers, self.classes = em, types, pointers, classes
        self.places, self.outs, self.first_number, self.rank = places, outs, first_number, rank
        self.block, n = block, len(types)
        vectors, lines = (HEADER + n, HEADER) if turned else (HEADER, HEADER + n)
        self.vector_steps = [{"0": "0", "1": str(d.itemsize)}.get(c[0]) or em.word(block, vectors + k)
                             for k, (c, d) in enumerate(zip(classes, types, strict=True))]
        self.line_steps = ["0" if c[1] == "." else em.word(block, lines + k) for k, c in enumerate(classes)]
        self.tables = em.at(block, str(8 * (HEADER + 2 * n)))
        self.numbers: dict[tuple[int, int], str] = {}

    def word(self, name: str) -> str:
        return self.em.word(self.block, WORDS.index(name))

    def read_numbers(self, roots: tuple[Expr, ...], lanes: int) -> None:
        """Reads the Python numbers the expressions use, for vectors and for single elements."""
        for e in walk(roots):
            if e.op == "scalar":
                for n in {1, lanes}:
                    if (e.value, n) not in self.numbers:
                        self.numbers[e.value, n] = self.em.parameter(e.dtype, "%args", self.first_number + e.value, n)

    def middle(self) -> Odometer:
        """The odometer of the middle axes; call it before any loop."""
        em, n = self.em, len(self.types)
        skip = em.mul(self.word("outer"), str(8 * (n + 1)))
        return Odometer(em, em.at(self.tables, skip), self.word("middle"), n)

    @contextmanager
    def units(self, by_lines: bool = False) -> Iterator[Unit]:
        """The loop over the units %begin .. %end; call it before any other loop.  by_lines: tiles are of the line axis.

        Places along the innermost of the outer axes stay in registers, so that short rows cost little; the odometer counts the others.
        """
        em, n = self.em, len(self.types)
        tiles, width, size = self.word("tiles"), self.word("width"), self.word("line" if by_lines else "vector")
        outer = self.word("outer")
        odometer = Odometer(em, self.tables, outer, n)
        step = em.op(f"sdiv i64 %begin, {tiles}")
        tile = em.sub("%begin", em.mul(step, tiles))
        odometer.set(step)
        # without outer axes there is one step, which none follows: any numbers do
        row = em.op(f"select i1 {em.op(f'icmp ne i64 {outer}, 0')}, ptr {self.tables}, ptr {self.block}")
        turns, steps = em.word(row, 0), [em.word(row, 1 + k) for k in range(n)]
        start = [tile, odometer.digit(0), *[odometer.offset(k) for k in range(n)]]
        with em.loop("%begin", "%end", carried=[("i64", v) for v in start]) as loop:
            here, digit, *offsets = loop.vars

            def outermost() -> str:
                last = em.sub(outer, "1")
                found = em.word(em.at(odometer.counter, em.mul(last, "8")), 0)
                return em.op(f"select i1 {em.op(f'icmp eq i64 {last}, 0')}, i64 {digit}, i64 {found}")
            begin = em.mul(here, width)
            end = em.smaller(em.add(begin, width), size)
            at = [em.at(p, offset) for p, offset in zip(self.pointers, offsets, strict=True)]
            places = {d: odometer.digit(k) if k else digit for d, kind, k in self.places if kind == "outer"}
            yield Unit(at, places, begin, end, loop.i, outermost)
            after = em.add(here, "1")
            turn = em.op(f"icmp eq i64 {after}, {tiles}")
            moved = [em.add(digit, em.op(f"zext i1 {turn} to i64"))]
            moved += [em.add(v, em.op(f"select i1 {turn}, i64 {s}, i64 0")) for v, s in zip(offsets, steps, strict=True)]
            full, on, before = em.label("full"), em.label("on"), em.current
            em.branch(em.op(f"icmp slt i64 {moved[0]}, {turns}"), on, full)
            em.start(full)
            odometer.put(digit, offsets)
            odometer.advance()
            counted = [odometer.digit(0), *[odometer.offset(k) for k in range(n)]]
            last = em.current
            em.jump(on)
            em.start(on)
            following = [em.phi("i64", (a, before), (b, last)) for a, b in zip(moved, counted, strict=True)]
            loop.next = [em.op(f"select i1 {turn}, i64 0, i64 {after}"), *following]

    # values --------------------------------------------------------------------------------------------------------
    def leaf(self, e: Expr, args: list[str], at: list[str], i: str, places: dict[int, str], lanes: int,
             mask: str | None, accs: Accumulators = ()) -> str:
        """The value of a leaf for `lanes` elements from place `i` of the vector axis; `at`: the operands' addresses at
        its place 0; places: the other coordinates; accs: finished accumulators, of this many lanes."""
        em = self.em
        if e.op == "input":
            return self.load(self.outs + e.value, at, i, lanes, mask)
        if e.op == "scalar":
            return self.numbers[e.value, lanes]
        if e.op == "acc":
            return accs[e.value]
        if e.op == "coord":
            d = e.value % self.rank
            kind = next((kind for x, kind, _ in self.places if x == d), "none")
            if kind == "vector":
                return em.ramp(i, lanes)
            return em.broadcast(places.get(d, "0"), "i64", lanes)
        if e.op == "gather":
            from .emit import splat, vec
            offset = em.op(f"mul {vec('i64', lanes)} {args[0]}, {splat(str(e.dtype.itemsize), 'i64', lanes)}")
            return em.load_each(e.dtype, lanes, self.pointers[self.outs + e.value], offset, mask)
        raise ValueError(f"no leaf {e.op}")

    def load(self, k: int, at: list[str], i: str, lanes: int, mask: str | None) -> str:
        em, d = self.em, self.types[k]
        from .emit import base
        kind = self.classes[k][0]
        if kind == "0":
            return em.broadcast(em.load(d, 1, at[k]), base(d), lanes)
        here = em.at(at[k], em.mul(i, self.vector_steps[k]))
        if kind == "1":
            return em.load(d, lanes, here, mask)
        if kind != "s" and lanes > 1 and (mask is None or em.steps_masked(d, kind, mask)):
            return em.load_stepping(d, lanes, here, kind, mask)
        return em.load_apart(d, lanes, here, self.vector_steps[k], mask)

    def store(self, k: int, value: str, at: list[str], i: str, lanes: int, mask: str | None,
              streaming: bool = False) -> None:
        """Elements to operand `k`; along a vector axis it does not step along, the first lane's."""
        em, d = self.em, self.types[k]
        here = em.at(at[k], em.mul(i, self.vector_steps[k]))
        if self.classes[k][0] == "1":
            em.store(d, lanes, value, here, mask, streaming)
        elif self.classes[k][0] == "0" and lanes > 1:
            from .emit import ty
            em.store(d, 1, em.op(f"extractelement {ty(d, lanes)} {value}, i64 0"), here)
        else:
            em.store_apart(d, lanes, value, here, self.vector_steps[k], mask)

    def invariants(self, roots: tuple[Expr, ...], along: str, lanes: int,
                   leaf: Callable[[Expr, list[str]], str]) -> dict[Expr, str]:
        """The values within `roots` that do not change along an axis ("vector" or "line"), made here and now."""
        from .lower import lower
        letter = 0 if along == "vector" else 1
        # an output read again has a number below 0
        read = {k - self.outs for k in range(len(self.types)) if self.classes[k][letter] not in "0."}
        changing = moving(roots, self.rank, {d for d, kind, _ in self.places if kind == along}, read, gathers=True)
        fixed = [e for e in walk(roots) if e not in changing]
        known: dict[Expr, str] = {}
        if fixed:
            lower(self.em, tuple(sorted(fixed, key=lambda e: e.id)), lanes, leaf, known)
        return known

"""Convolutions of one channel a group: sums over the kernel's places, which follow tables of where each place lies.

A plane (a channel of an image) is copied into a border of zeros once, its columns sorted by their remainder by the steps, so that what one place of
the kernel adds to all of the result is one run of neighbours: the result is summed flat, gaps between its rows included, and its rows are then copied out.
The gradient of weights sums, for each place, that run times the gradients, with zeros in the gaps.  Who calls works the tables out
(`drivers/cpu/depthwise.py`); here there are no sizes, axes or steps but those of copies.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from ... import native
from .. import compile as compiler
from .. import scratch
from ..emit import Module
from .code import Code, Value
from .gemm_tile import Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ....dtypes import dtype

NAMES = ("flambeau_channelwise", "flambeau_channelwise_weights")
BLOCKS = (8, 2, 1)  # vectors summed side by side
FEW = 8  # places of the kernel whose sums stay in registers
Run = tuple[int, int, int]  # elements from the start of what is read and of what is written; how many


class Rows(NamedTuple):
    """How a plane's rows are copied: each of `starts` (elements in what is read, in what is written) with each of `parts`; `step` elements apart
    where they lie spread, which is in what is read or in what is written."""

    starts: Sequence[tuple[int, int]]
    parts: Sequence[Run]
    step: int


class Phase(NamedTuple):
    """A part of the result: from (elements in the plane's copy, number of the weight) of each place; its length, and where it begins among the sums."""

    places: Sequence[tuple[int, int]]
    length: int
    start: int


# the parameter block; sizes in bytes, tables by their place in the block
(ARG_IN, ARG_WEIGHT, ARG_BIAS, CHANNELS, EACH, IMAGE, CHANNEL, PLANE, KERNEL, ROOM, ROWS, ROWS_AT, PARTS, PARTS_AT, STEP, PHASES, PHASES_AT, SUMS,
 OUT_ROWS, OUT_ROWS_AT, OUT_PARTS, OUT_PARTS_AT, OUT_STEP, IMAGES) = range(24)
WORDS = 24


def room(d: dtype) -> int:
    """How many elements beyond its end a plane's copy is read."""
    return max(BLOCKS) * Tile(d).lanes


def apply(d: dtype, order: tuple[int, int, int], planes: tuple[int, int, int], steps: tuple[int, int, int], weights: int, copy: int, rows: Rows,
          phases: Sequence[Phase], sums: int, out: Rows) -> Callable[..., None]:
    """A native launch that writes `planes[0] planes[1]` planes of the result.

    order: which arguments (the result is the first, number 0) are the images, the weights and the bias, 0 where there is none.  planes: images, planes of
    the result an image, and of these how many for each channel that is read.  steps: elements from image to image, channel to channel, and from plane to
    plane of the result.  weights: how many a plane.  copy, sums: elements of the plane's copy and of the sums, `room` not counted.
    """
    head, tables = _tables(d, order, planes, steps, weights, copy, rows, phases, out)
    head[SUMS] = (sums + room(d)) * d.itemsize
    total = planes[0] * planes[1]
    work = total * (copy + sum([p.length * len(p.places) for p in phases]))
    nargs = 5 if order[2] else 4
    return native.make_entry([(_functions(d)[NAMES[0]], total, max(1, total // (8 * native.get_num_threads())))], head + tables, nargs,
                             parallel=work > 1 << 17)


def weights(d: dtype, order: tuple[int, int, int], planes: tuple[int, int, int], steps: tuple[int, int, int], copy: int, rows: Rows, phase: Phase,
            gradients: Rows) -> Callable[..., None]:
    """A native launch that writes `planes[1]` rows of weights' gradients; as `apply`, where `order` names images and gradients and `gradients` says how a
    plane of those becomes as long as `phase`."""
    head, tables = _tables(d, order, planes, steps, len(phase.places), copy, rows, [phase], gradients)
    head[SUMS] = (phase.length + room(d)) * d.itemsize
    channels = planes[1] // planes[2]
    work = planes[0] * planes[1] * (copy + phase.length * len(phase.places))
    return native.make_entry([(_functions(d)[NAMES[1]], channels, max(1, channels // (8 * native.get_num_threads())))], head + tables, 4,
                             parallel=work > 1 << 17)


def _tables(d: dtype, order: tuple[int, int, int], planes: tuple[int, int, int], steps: tuple[int, int, int], weights: int, copy: int, rows: Rows,
            phases: Sequence[Phase], out: Rows) -> tuple[list[int], list[int]]:
    item = d.itemsize
    head, tables = [0] * WORDS, list[int]()

    def table(numbers: list[int]) -> int:
        place = 8 * (WORDS + len(tables))
        tables.extend(numbers)
        return place
    head[:SUMS] = [*order, planes[1], planes[2], *[s * item for s in steps], weights * item, (copy + room(d)) * item,
                   len(rows.starts), table([item * n for pair in rows.starts for n in pair]),
                   len(rows.parts), table([n for a, b, c in rows.parts for n in (a * item, b * item, c)]), rows.step, len(phases), 0]
    places = [table([item * n for pair in p.places for n in pair]) for p in phases]
    head[PHASES_AT] = table([n for p, at in zip(phases, places, strict=True) for n in (at, len(p.places), p.length, p.start * item)])
    head[OUT_ROWS:] = [len(out.starts), table([item * n for pair in out.starts for n in pair]),
                       len(out.parts), table([n for a, b, c in out.parts for n in (a * item, b * item, c)]), out.step, planes[0]]
    return head, tables


@functools.cache
def _functions(d: dtype) -> dict[str, int]:
    return compiler.functions(("channelwise", d.name), NAMES, lambda: text(d))


def text(d: dtype) -> str:
    """The IR of both kernels for one element type."""
    module = Module()
    kernels = _Kernels(module, d)
    kernels.gather_rows()
    kernels.scatter_rows()
    kernels.clear()
    kernels.sum_places()
    kernels.apply()
    kernels.weights()
    return module.text()


class _Kernels:
    def __init__(self, module: Module, d: dtype) -> None:
        self.module, self.d, self.lanes, self.item = module, d, Tile(d).lanes, d.itemsize
        self.real = "float" if d.itemsize == 4 else "double"
        self.vector = f"<{self.lanes} x {self.real}>"

    def wide(self, lanes: int) -> str:
        return self.real if lanes == 1 else f"<{lanes} x {self.real}>"

    def zero(self, c: Code) -> Value:
        return Value(c, self.vector, "zeroinitializer")

    def run(self, c: Code, source: Value, target: Value, count: Value) -> None:
        """Copies `count` neighbours: whole vectors, then half as many at most each time."""
        lanes = self.lanes
        whole = count & -lanes
        with c.span(0, whole, step=lanes) as k:
            (target + k.i * self.item).store((source + k.i * self.item).load(self.vector))
        done = whole
        while lanes > 1:
            lanes //= 2
            with c.when((count & lanes).differs(0), done) as more:
                (target + done * self.item).store((source + done * self.item).load(self.wide(lanes)))
                more.next = [done + lanes]
            done, = more.vars

    def each(self, c: Code, block: Value, count: int, at: int, width: int) -> tuple[Value, Value]:
        """A table's length and first byte."""
        return c.number(block, count), block + c.number(block, at)

    def rows(self, name: str, row_words: tuple[int, int], part_words: tuple[int, int], step_word: int, spread: bool) -> None:
        """Adds @name(from, to, block), which copies the rows of a plane; spread: the step is one of what is written."""
        c = Code(self.module, "internal void", name, "ptr", "ptr", "ptr")
        source, target, block = c.given
        rows, row_at = self.each(c, block, *row_words, 2)
        parts, part_at = self.each(c, block, *part_words, 3)
        step = c.number(block, step_word)
        beside, two, other, done = (c.label(n) for n in ("beside", "two", "other", "copied"))
        apart = c.label("apart")
        c.branch(step.equals(1).name, beside, apart)
        c.start(apart)
        c.branch(step.equals(2).name, two, other)
        for label in (beside, two, other):
            c.start(label)
            with c.span(0, rows) as r:
                row = row_at + r.i * 16
                a, b = source + c.number(row, 0), target + c.number(row, 1)
                if label == two and spread:
                    self.joined(c, a, b, parts, part_at)
                else:
                    with c.span(0, parts) as p:
                        part = part_at + p.i * 24
                        x, y, n = a + c.number(part, 0), b + c.number(part, 1), c.number(part, 2)
                        if label == beside:
                            self.run(c, x, y, n)
                        elif label == two:
                            self.single(c, x, y, self.halved(c, x, y, n), n, 2 * self.item, self.item)
                        else:
                            far = step * self.item
                            self.single(c, x, y, c.ints(0), n, *((self.item, far) if spread else (far, self.item)))
            c.jump(done)
        c.start(done)
        c.back()
        c.finish()

    def single(self, c: Code, x: Value, y: Value, begin: Value, count: Value, from_: Value | int, to: Value | int) -> None:
        with c.span(begin, count) as k:
            (y + k.i * to).store((x + k.i * from_).load(self.real))

    def halved(self, c: Code, x: Value, y: Value, count: Value) -> Value:
        """Every second element by vectors; how many are done."""
        with c.span(0, count & -self.lanes, step=self.lanes) as k:
            taken = c.load_stepping(self.d, self.lanes, (x + k.i * (2 * self.item)).name, "2")
            (y + k.i * self.item).store(Value(c, self.vector, taken))
        return count & -self.lanes

    def joined(self, c: Code, a: Value, b: Value, parts: Value, part_at: Value) -> None:
        """Two parts whose elements lie in turn, or one whose elements lie at every second place."""
        both = parts.equals(2)
        other = part_at + c.pick(both, c.ints(24), c.ints(0))
        x0, y0, n0 = a + c.number(part_at, 0), b + c.number(part_at, 1), c.number(part_at, 2)
        x1, n1 = a + c.number(other, 0), c.number(other, 2)
        whole = c.pick(both, c.least(n0, n1) & -self.lanes, c.ints(0))
        with c.span(0, whole, step=self.lanes) as k:
            values = [(x + k.i * self.item).load(self.vector).name for x in (x0, x1)]
            c.store_joined(self.d, self.lanes, values, (y0 + k.i * (2 * self.item)).name)
        with c.span(0, parts) as p:
            part = part_at + p.i * 24
            self.single(c, a + c.number(part, 0), b + c.number(part, 1), whole, c.number(part, 2), self.item, 2 * self.item)

    def gather_rows(self) -> None:
        self.rows("gather_rows", (ROWS, ROWS_AT), (PARTS, PARTS_AT), STEP, spread=False)

    def scatter_rows(self) -> None:
        self.rows("scatter_rows", (OUT_ROWS, OUT_ROWS_AT), (OUT_PARTS, OUT_PARTS_AT), OUT_STEP, spread=True)

    def clear(self) -> None:
        """Adds @clear(to, bytes); bytes: of whole vectors."""
        c = Code(self.module, "internal void", "clear", "ptr", "i64")
        target, count = c.given
        with c.span(0, count, step=self.lanes * self.item) as k:
            (target + k.i).store(self.zero(c))
        c.back()
        c.finish()

    def sum_places(self) -> None:
        """Adds @sum_places(copy, weights, first, to, places, count, length): to = first + the sum over places of the copy's run times a weight."""
        c = Code(self.module, "internal void", "sum_places", "ptr", "ptr", self.real, "ptr", "ptr", "i64", "i64")
        copy, weight, first, target, places, count, length = c.given
        begin, begun = c.ints(0), first.spread(self.lanes)
        for vectors in BLOCKS:
            step = vectors * self.lanes
            end = length if vectors == 1 else begin + (length - begin).over(step) * step  # the last vector reaches beyond the end
            with c.span(begin, end, step=step) as q:
                here = copy + q.i * self.item
                with c.span(0, count, *[begun] * vectors) as k:
                    place = places + k.i * 16
                    run, w = here + c.number(place, 0), (weight + c.number(place, 1)).load(self.real).spread(self.lanes)
                    k.next = [self.fma(c, (run + v * self.lanes * self.item).load(self.vector), w, s) for v, s in enumerate(k.vars)]
                for v, s in enumerate(k.vars):
                    (target + (q.i + v * self.lanes) * self.item).store(s)
            begin = end
        c.back()
        c.finish()

    def fma(self, c: Code, a: Value, b: Value, s: Value) -> Value:
        return Value(c, self.vector, c.intrinsic("fma", self.d, self.lanes, a.name, b.name, s.name))

    def argument(self, c: Code, args: Value, block: Value, word: int) -> Value:
        return (args + c.number(block, word) * 8).load("ptr")

    def apply(self) -> None:
        c = Code(self.module, "void", NAMES[0], "i64", "i64", "ptr", "ptr")
        begin, end, args, block = c.given
        y, x, w = c.address(args, 0), self.argument(c, args, block, ARG_IN), self.argument(c, args, block, ARG_WEIGHT)
        biased = c.number(block, ARG_BIAS).differs(0)
        bias = self.argument(c, args, block, ARG_BIAS)
        size = c.number(block, ROOM)
        memory, index = scratch.take(c, (size + c.number(block, SUMS) + 64).name)
        copy = Value(c, "ptr", memory)
        sums = copy + ((size + 63) & -64)
        c.function("void", "clear", copy, size)
        channels, each = c.number(block, CHANNELS), c.number(block, EACH)
        phases, table = self.each(c, block, PHASES, PHASES_AT, 4)
        with c.span(begin, end) as p:
            image = p.i.over(channels)
            m = p.i - image * channels
            channel = m.over(each)
            fresh = p.i.equals(begin) | (m - channel * each).equals(0)
            with c.when(fresh):
                c.function("void", "gather_rows", x + image * c.number(block, IMAGE) + channel * c.number(block, CHANNEL), copy, block)
            own = w + m * c.number(block, KERNEL)
            with c.when(biased, Value(c, self.real, "0.0")) as b:
                b.next = [(bias + m * self.item).load(self.real)]
            with c.span(0, phases) as f:
                phase = table + f.i * 32
                c.function("void", "sum_places", copy, own, b.vars[0], sums + c.number(phase, 3), block + c.number(phase, 0), c.number(phase, 1),
                           c.number(phase, 2))
            c.function("void", "scatter_rows", sums, y + p.i * c.number(block, PLANE), block)
        scratch.give(c, index)
        c.back()
        c.finish()

    def weights(self) -> None:
        """A channel's images after one another, each with the gradients of its planes; a place's sum is kept by lanes until the end."""
        c = Code(self.module, "void", NAMES[1], "i64", "i64", "ptr", "ptr")
        begin, end, args, block = c.given
        gw, x, g = c.address(args, 0), self.argument(c, args, block, ARG_IN), self.argument(c, args, block, ARG_WEIGHT)
        size, flat, kernel = c.number(block, ROOM), (c.number(block, SUMS) + 63) & -64, c.number(block, KERNEL)
        each, line = c.number(block, EACH), self.lanes * self.item
        own = kernel * self.lanes
        memory, index = scratch.take(c, (size + flat * 2 + own * each + 256).name)
        copy = Value(c, "ptr", memory)
        gradients = copy + ((size + 63) & -64)
        kept = gradients + flat
        sums = kept + flat
        c.function("void", "clear", copy, size)
        c.function("void", "clear", gradients, c.number(block, SUMS))
        self.mark(c, block, kept)
        table = block + c.number(block, PHASES_AT)
        places, count, length = block + c.number(table, 0), c.number(table, 1), c.number(table, 2)
        with c.span(begin, end) as p:
            c.function("void", "clear", sums, own * each)
            with c.span(0, c.number(block, IMAGES)) as n:
                c.function("void", "gather_rows", x + n.i * c.number(block, IMAGE) + p.i * c.number(block, CHANNEL), copy, block)
                with c.span(0, each) as e:
                    plane = n.i * c.number(block, CHANNELS) + p.i * each + e.i
                    c.function("void", "scatter_rows", g + plane * c.number(block, PLANE), gradients, block)
                    self.add_places(c, copy, gradients, kept, sums + own * e.i, places, count, length)
            with c.span(0, each * count) as k:
                total = self.total(c, (sums + k.i * line).load(self.vector))
                (gw + p.i * each * kernel + k.i * self.item).store(total)
        scratch.give(c, index)
        c.back()
        c.finish()

    def mark(self, c: Code, block: Value, kept: Value) -> None:
        """All bits where the gradients have a row, none in the gaps: what lies there of the images may be no number, whose product with 0 is none."""
        c.function("void", "clear", kept, c.number(block, SUMS))
        bits = f"i{8 * self.item}"
        rows, row_at = self.each(c, block, OUT_ROWS, OUT_ROWS_AT, 2)
        part = block + c.number(block, OUT_PARTS_AT)
        with c.span(0, rows) as r, c.span(0, c.number(part, 2)) as k:
            (kept + c.number(row_at + r.i * 16, 1) + k.i * self.item).store(-1, bits)

    def add_places(self, c: Code, copy: Value, gradients: Value, kept: Value, sums: Value, places: Value, count: Value, length: Value) -> None:
        """Adds one plane's products to the sums of all places, a few places at a time."""
        line, bits = self.lanes * self.item, f"<{self.lanes} x i{8 * self.item}>"
        begin = c.ints(0)
        for few in (FEW, 1):
            end = count.over(few) * few
            with c.span(begin, end, step=few) as k:
                place = places + k.i * 16
                runs = [copy + c.number(place, 2 * t) for t in range(few)]
                at = [sums + (k.i + t) * line for t in range(few)]
                with c.span(0, length, *[a.load(self.vector) for a in at], step=self.lanes) as q:
                    here = q.i * self.item
                    mask, g = (kept + here).load(bits), (gradients + here).load(self.vector)
                    q.next = [self.fma(c, ((run + here).load(bits) & mask).bits(self.vector), g, s) for run, s in zip(runs, q.vars, strict=True)]
                for a, s in zip(at, q.vars, strict=True):
                    a.store(s)
            begin = end

    def total(self, c: Code, value: Value) -> Value:
        """The sum of the lanes, halves added to halves."""
        name, lanes = value.name, self.lanes
        while lanes > 1:
            lanes //= 2
            t = f"<{2 * lanes} x {self.real}>"
            halves = [c.op(f"shufflevector {t} {name}, {t} poison, <{lanes} x i32> <{', '.join(f'i32 {h * lanes + k}' for k in range(lanes))}>")
                      for h in (0, 1)]
            name = c.op(f"fadd <{lanes} x {self.real}> {halves[0]}, {halves[1]}")
        return Value(c, self.real, c.op(f"extractelement <1 x {self.real}> {name}, i64 0"))

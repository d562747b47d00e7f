"""The passes of Fourier transforms: each combines `radix` elements at a time of as many transforms as a vector has lanes.

A pass reads and writes a column of elements, each of them one complex number of every lane:

  "S"  split: a vector of real parts, then one of imaginary parts, in memory of our own
  "I"  interleaved, as tensors hold them: the lanes' numbers are neighbours; the first `lanes` of them are there
  "R"  real numbers, the lanes' neighbours: element k is number 2 k and, as its imaginary part, number 2 k + 1
  "N"  (written) split, without twiddle factors: the last pass of a column
  "T"  (written) split, the last pass of a column, each lane times a twiddle factor of its own, from a table laid out as what is written

What is read from or written to tensors is multiplied by factors: -1 for imaginary parts makes an inverse transform of a forward one, since
that is the conjugate of the forward transform of conjugates; scales come in the same way.

The algorithm is Stockham's, which leaves the elements in order (Cochran et al., "What is the Fast Fourier Transform?", 1967):
for q < s, p < m: out[q + s (r p + j)] = w(p j) sum over k of in[q + s (p + m k)] exp(-2 pi i j k / r), with r s m the length of the column.

A pass is a function ``(source, target, operation, context)``: see `program`, whose words an operation's numbers are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import compile as compiler
from ...emit import base, splat, vec
from . import functions
from .butterflies import Vectors

if TYPE_CHECKING:
    from collections.abc import Callable

    from .....dtypes import dtype
    from ...emit import Emitter
    from .butterflies import Complex

RADICES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12)
LARGEST = 127  # primes above are left to Bluestein's algorithm
OWN = 6  # the first word of an operation that is its function's own
M, S, TWIDDLES, STEP, TO_STEP, SIGN, SCALE, SCALE_IMAGINARY, AHEAD, RADIX, ROOTS = range(OWN, OWN + 11)
TABLE, LANES = 6, 8  # words of the context


def lanes_of(item: int) -> int:
    """How many elements of `item` bytes a vector of the CPU compiled for has."""
    return (64 if compiler.has_masks() else 32 if compiler.is_x86() else 16) // item


def address(d: dtype, radix: int, source: str, target: str) -> int:
    """The function of a pass; any odd number up to LARGEST is a radix."""
    def write(em: Emitter) -> None:
        column = Column(em, d, source, target)
        if radix in RADICES:
            _fixed(column, radix)
        else:
            _odd(column)
    return functions.address(d, f"{radix if radix in RADICES else 'odd'}_{source}{target}", write)


class Column:
    """How the elements of a pass are read and written."""

    def __init__(self, em: Emitter, d: dtype, source: str, target: str) -> None:
        self.em, self.d, self.source, self.target = em, d, source, target
        self.item, self.lanes = d.itemsize, lanes_of(d.itemsize)
        self.bytes = self.item * self.lanes
        self.v = Vectors(em, d, self.lanes)
        self.step, self.to_step = em.word("%op", STEP), em.word("%op", TO_STEP)
        if "I" in (source, target) or "R" in (source, target):
            here = em.word("%context", LANES)
            twice = em.add(here, here)
            self.whole = em.first_lanes(here, self.lanes)
            self.masks = (em.first_lanes(twice, self.lanes), em.first_lanes(em.sub(twice, str(self.lanes)), self.lanes))
        if source == "I":
            self.ahead = em.word("%op", AHEAD)
            self.across = em.op(f"select i1 {em.op(f'icmp eq i64 {self.ahead}, 0')}, i64 0, i64 {across(em)}")
        if source in "IR":
            self.sign = self.number(SIGN)
        if target in "IR":
            self.scale = self.number(SCALE), self.number(SCALE_IMAGINARY)
        if target == "T":
            self.table = em.pointer("%context", TABLE)

    def number(self, word: int) -> str:
        """A number of the operation, in every lane."""
        value = self.em.op(f"load {base(self.d)}, ptr {self.em.at('%op', str(8 * word))}, align 8")
        return self.em.broadcast(value, base(self.d), self.lanes)

    def load(self, offset: str) -> Complex:
        """The element `offset` bytes on.  Of real numbers the step is from one to the next but one."""
        em, place = self.em, self.em.at("%source", offset)
        if self.source == "S":
            return em.load(self.d, self.lanes, place), em.load(self.d, self.lanes, em.at(place, str(self.bytes)))
        if self.source == "R":
            second = em.at(place, em.op(f"ashr i64 {self.step}, 1"))
            re, im = (em.load(self.d, self.lanes, x, self.whole) for x in (place, second))
        else:
            re, im = deinterleaved(em, self.d, self.lanes, *(em.load(self.d, self.lanes, em.at(place, str(k * self.bytes)), self.masks[k]) for k in (0, 1)))
            fetch(em, em.at(place, self.ahead), 2 * self.bytes)
            fetch(em, em.at(place, self.across), 2 * self.bytes, True)
        return re, self.v.times(im, self.sign)

    def store(self, offset: str, value: Complex) -> None:
        """Writes the element `offset` bytes on."""
        em, place = self.em, self.em.at("%target", offset)
        if self.target in "IR":
            value = self.v.times(value[0], self.scale[0]), self.v.times(value[1], self.scale[1])
        if self.target == "R":
            em.store(self.d, self.lanes, value[0], place, self.whole)
            em.store(self.d, self.lanes, value[1], em.at(place, em.op(f"ashr i64 {self.to_step}, 1")), self.whole)
            return
        if self.target == "I":
            for k, part in enumerate(interleaved(em, self.d, self.lanes, *value)):
                em.store(self.d, self.lanes, part, em.at(place, str(k * self.bytes)), self.masks[k])
            return
        if self.target == "T":
            at = em.at(self.table, offset)
            value = self.v.mul(value, (em.load(self.d, self.lanes, at), em.load(self.d, self.lanes, em.at(at, str(self.bytes)))))
        em.store(self.d, self.lanes, value[0], place)
        em.store(self.d, self.lanes, value[1], em.at(place, str(self.bytes)))

    def scalar(self, place: str, offset: int) -> str:
        """The number `offset` elements on, in every lane."""
        em = self.em
        value = em.op(f"load {base(self.d)}, ptr {em.at(place, str(offset * self.item))}, align {self.item}")
        return em.broadcast(value, base(self.d), self.lanes)

    def pair(self, place: str, index: int) -> Complex:
        """The complex number `index` of a table, in every lane."""
        return self.scalar(place, 2 * index), self.scalar(place, 2 * index + 1)


def across(em: Emitter) -> str:
    """How far a task's target is from its source, in bytes."""
    ends = [em.word("%context", k) for k in (0, 1)]
    return em.sub(ends[1], ends[0])


def fetch(em: Emitter, place: str, size: int, write: bool = False) -> None:
    """Begins to bring so many bytes from `place` on into the cache; write: to be written, which spares the wait for each line then."""
    for k in range(0, size, 64):
        how = ("1", "3") if write else ("0", "2")
        em.call("llvm.prefetch.p0", "void", ("ptr", em.at(place, str(k))), *(("i32 immarg", x) for x in (*how, "1")))


def deinterleaved(em: Emitter, d: dtype, lanes: int, low: str, high: str) -> Complex:
    """Real and imaginary parts of neighbouring complex numbers."""
    return shuffled(em, d, lanes, low, high, range(0, 2 * lanes, 2)), shuffled(em, d, lanes, low, high, range(1, 2 * lanes, 2))


def interleaved(em: Emitter, d: dtype, lanes: int, re: str, im: str) -> Complex:
    """The opposite: the first half of the complex numbers, and the second."""
    places = [k // 2 + lanes * (k % 2) for k in range(2 * lanes)]
    return shuffled(em, d, lanes, re, im, places[:lanes]), shuffled(em, d, lanes, re, im, places[lanes:])


def shuffled(em: Emitter, d: dtype, lanes: int, a: str, b: str, places: range | list[int]) -> str:
    """The vector of these lanes of a and b, put one after another."""
    t = vec(base(d), lanes)
    mask = ", ".join(f"i32 {k}" for k in places)
    return em.op(f"shufflevector {t} {a}, {t} {b}, <{len(places)} x i32> <{mask}>")


def _walk(column: Column, radix: str, body: Callable[[str, str, str, str, str], None]) -> None:
    """Calls `body` in loops over p and q with the offset of the first element to read, the step to the next, the same for those to be written,
    and p's twiddle factors."""
    em = column.em
    m, s = em.word("%op", M), em.word("%op", S)
    apart = em.mul(column.step, em.mul(s, m))
    to_apart = em.mul(column.to_step, s)
    per_p = em.mul(em.sub(radix, "1"), str(2 * column.item))
    with em.loop("0", m, carried=[("i64", "0"), ("i64", "0"), ("ptr", em.pointer("%op", TWIDDLES))]) as p:
        with em.loop("0", s, carried=[("i64", p.vars[0]), ("i64", p.vars[1])]) as q:
            body(q.vars[0], apart, q.vars[1], to_apart, p.vars[2])
            q.next = [em.add(q.vars[0], column.step), em.add(q.vars[1], column.to_step)]
        p.next = [em.add(p.vars[0], em.mul(column.step, s)), em.add(p.vars[1], em.mul(to_apart, radix)), em.at(p.vars[2], per_p)]


def _fixed(column: Column, radix: int) -> None:
    em, v = column.em, column.v

    def body(first: str, apart: str, to: str, to_apart: str, twiddles: str) -> None:
        x = []
        for _ in range(radix):
            x.append(column.load(first))
            first = em.add(first, apart)
        for j, value in enumerate(v.transform(x)):
            if column.target == "S" and j:
                value = v.mul(value, column.pair(twiddles, j - 1))
            column.store(to, value)
            to = em.add(to, to_apart)
    _walk(column, str(radix), body)


def _odd(column: Column) -> None:
    """Any odd radix, by cosines and sines from a table: for each j the pairs of k = 1, 2, ... (r - 1) / 2."""
    em, v = column.em, column.v
    radix, roots = em.word("%op", RADIX), em.pointer("%op", ROOTS)
    half = em.op(f"lshr i64 {radix}, 1")
    t, wide = v.t, column.bytes
    # sums and differences of elements that lie symmetrically: four vectors for each k
    held = em.op(f"alloca [{4 * wide * (LARGEST // 2)} x i8], align {wide}", "a")
    zero = splat("0.0", base(column.d), column.lanes)

    def twiddled(twiddles: str, j: str, value: Complex) -> Complex:
        if column.target != "S":
            return value
        place = em.at(twiddles, em.mul(em.sub(j, "1"), str(2 * column.item)))
        return v.mul(value, column.pair(place, 0))

    def body(first: str, apart: str, to: str, to_apart: str, twiddles: str) -> None:
        x0 = column.load(first)
        last = em.add(first, em.mul(apart, radix))
        with em.loop("0", half, carried=[("i64", first), ("i64", last), ("ptr", held), (t, x0[0]), (t, x0[1])]) as all_:
            low, high = em.add(all_.vars[0], apart), em.sub(all_.vars[1], apart)
            a, b = column.load(low), column.load(high)
            even, odd = v.add(a, b), v.sub(a, b)
            for i, part in enumerate((*even, *odd)):
                em.store(column.d, column.lanes, part, em.at(all_.vars[2], str(i * wide)))
            all_.next = [low, high, em.at(all_.vars[2], str(4 * wide)), v.plus(all_.vars[3], even[0]), v.plus(all_.vars[4], even[1])]
        column.store(to, (all_.vars[3], all_.vars[4]))
        row = em.mul(half, str(2 * column.item))
        with em.loop("0", half, "2") as j:
            # two j at a time, so that what is loaded is used twice; the last one may be done twice
            js = [j.i, em.smaller(em.add(j.i, "1"), em.sub(half, "1"))]
            tables = [em.at(roots, em.mul(x, row)) for x in js]
            start = [(t, x) for _ in js for x in (*x0, zero, zero)]
            with em.loop("0", half, carried=[("ptr", held), *[("ptr", x) for x in tables], *start]) as each:
                parts = [em.load(column.d, column.lanes, em.at(each.vars[0], str(i * wide))) for i in range(4)]
                each.next = [em.at(each.vars[0], str(4 * wide)), *[em.at(x, str(2 * column.item)) for x in each.vars[1:3]]]
                for i in range(2):
                    c, s = column.pair(each.vars[1 + i], 0)
                    sums = each.vars[3 + 4 * i:7 + 4 * i]
                    each.next += [v.fused(part, by, acc) for part, by, acc in zip(parts, (c, c, s, s), sums, strict=True)]
            for i in range(2):
                p_re, p_im, q_re, q_im = each.vars[3 + 4 * i:7 + 4 * i]
                here = em.add(js[i], "1")
                there = em.sub(radix, here)
                column.store(em.add(to, em.mul(here, to_apart)), twiddled(twiddles, here, (v.plus(p_re, q_im), v.minus(p_im, q_re))))
                column.store(em.add(to, em.mul(there, to_apart)), twiddled(twiddles, there, (v.minus(p_re, q_im), v.plus(p_im, q_re))))
    _walk(column, radix, body)

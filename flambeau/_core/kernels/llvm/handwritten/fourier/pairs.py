"""Transforms of two rows of n real numbers by a complex one of n: for odd n, which has no half.

With Z the transform of a + i b, that of a is (Z[k] + conj Z[n - k]) / 2 and that of b is (Z[k] - conj Z[n - k]) / 2 i.

Functions of operations: see `program`.  "widen" makes a row of complex numbers of two of real ones, "separate" makes the halves of their spectra
of its transform ("mirror": the whole spectra), "join" such a transform of two halves, "narrow" two real rows of a complex one.  The second row
of a pair is the first one again where the task has one lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import functions
from .passes import LANES, OWN, Column, deinterleaved, interleaved, shuffled

if TYPE_CHECKING:
    from collections.abc import Callable

    from .....dtypes import dtype
    from .butterflies import Complex

COUNT, ROW, WEIGHT, SIGN, SCALE, SCALE_IMAGINARY = range(OWN, OWN + 6)  # n; bytes from row to row; what elements besides 0 count


def address(d: dtype, name: str) -> int:
    """The function of an operation, for the real type d."""
    write = {"widen": _widen, "narrow": _narrow, "separate": _separate, "mirror": lambda c: _separate(c, True), "join": _join}[name]
    return functions.address(d, name, lambda em: write(Column(em, d, "S", "S")))


def _second(c: Column) -> str:
    """How far on the second row is."""
    em = c.em
    alone = em.op(f"icmp eq i64 {em.word('%context', LANES)}, 1")
    return em.op(f"select i1 {alone}, i64 0, i64 {em.word('%op', ROW)}")


def _halves(c: Column, left: str) -> list[str]:
    """The masks of so many complex numbers."""
    twice = c.em.add(left, left)
    return [c.em.first_lanes(twice, c.lanes), c.em.first_lanes(c.em.sub(twice, str(c.lanes)), c.lanes)]


def _widen(c: Column) -> None:
    em, second = c.em, _second(c)
    count = em.word("%op", COUNT)
    with em.loop("0", count, str(c.lanes), [("ptr", "%source"), ("ptr", "%target")]) as k:
        left = em.sub(count, k.i)
        mask = em.first_lanes(left, c.lanes)
        rows = [em.load(c.d, c.lanes, place, mask) for place in (k.vars[0], em.at(k.vars[0], second))]
        for i, (part, there) in enumerate(zip(interleaved(em, c.d, c.lanes, *rows), _halves(c, left), strict=True)):
            em.store(c.d, c.lanes, part, em.at(k.vars[1], str(i * c.bytes)), there)
        k.next = [em.at(k.vars[0], str(c.bytes)), em.at(k.vars[1], str(2 * c.bytes))]


def _narrow(c: Column) -> None:
    em, second, scale = c.em, _second(c), c.number(SCALE)
    count = em.word("%op", COUNT)
    with em.loop("0", count, str(c.lanes), [("ptr", "%source"), ("ptr", "%target")]) as k:
        left = em.sub(count, k.i)
        mask = em.first_lanes(left, c.lanes)
        parts = deinterleaved(em, c.d, c.lanes, *[em.load(c.d, c.lanes, em.at(k.vars[0], str(i * c.bytes)), m) for i, m in enumerate(_halves(c, left))])
        for part, place in ((parts[1], em.at(k.vars[1], second)), (parts[0], k.vars[1])):
            em.store(c.d, c.lanes, c.v.times(part, scale), place, mask)
        k.next = [em.at(k.vars[0], str(2 * c.bytes)), em.at(k.vars[1], str(c.bytes))]


class _Row:
    """Blocks of lanes of a row of complex numbers: of elements k ... forwards, and of n - k ... backwards."""

    def __init__(self, c: Column, start: str) -> None:
        self.c, self.start = c, start

    def load(self, offset: str, masks: list[str], backwards: bool = False) -> Complex:
        em, d, lanes = self.c.em, self.c.d, self.c.lanes
        low, high = (em.load(d, lanes, em.at(self.start, em.add(offset, str(i * self.c.bytes))), mask) for i, mask in enumerate(masks))
        if not backwards:
            return deinterleaved(em, d, lanes, low, high)
        return shuffled(em, d, lanes, low, high, range(2 * lanes - 2, -1, -2)), shuffled(em, d, lanes, low, high, range(2 * lanes - 1, 0, -2))

    def store(self, offset: str, value: Complex, masks: list[str], backwards: bool = False) -> None:
        em, d, lanes = self.c.em, self.c.d, self.c.lanes
        if backwards:
            places = [lanes - 1 - i // 2 + lanes * (i % 2) for i in range(2 * lanes)]
            parts = shuffled(em, d, lanes, *value, places[:lanes]), shuffled(em, d, lanes, *value, places[lanes:])
        else:
            parts = interleaved(em, d, lanes, *value)
        for i, (part, mask) in enumerate(zip(parts, masks, strict=True)):
            em.store(d, lanes, part, em.at(self.start, em.add(offset, str(i * self.c.bytes))), mask)


def _mirrored(c: Column, body: Callable[[str, str, list[str], list[str]], None]) -> None:
    """Calls `body` for blocks of k = 1, 2, ... n / 2 with the offset of element k, that of the least element of the block that ends with n - k, and
    the masks of both."""
    em, lanes, item = c.em, c.lanes, 2 * c.item
    count = em.word("%op", COUNT)
    half = em.op(f"lshr i64 {count}, 1")
    with em.loop("0", half, str(lanes), [("i64", str(item)), ("i64", em.mul(em.sub(count, str(lanes)), str(item)))]) as k:
        left = em.smaller(em.sub(half, k.i), str(lanes))
        missing = em.sub(str(lanes), left)
        high = [em.op(f"xor <{lanes} x i1> {mask}, splat (i1 true)") for mask in _halves(c, missing)]
        body(k.vars[0], k.vars[1], _halves(c, left), high)
        k.next = [em.add(k.vars[0], str(item * lanes)), em.sub(k.vars[1], str(item * lanes))]


def _first(c: Column, start: str) -> Complex:
    """A row's element 0, in every lane."""
    return c.pair(start, 0)


def _separate(c: Column, whole: bool = False) -> None:
    em, v, second = c.em, c.v, _second(c)
    scale, weight = (c.number(SCALE), c.number(SCALE_IMAGINARY)), c.number(WEIGHT)
    half = v.times(weight, v.const(0.5))
    factors = v.times(scale[0], half), v.times(scale[1], half)
    source, rows = _Row(c, "%source"), (_Row(c, em.at("%target", second)), _Row(c, "%target"))

    def block(near: str, far: str, low: list[str], high: list[str]) -> None:
        x, y = source.load(near, low), source.load(far, high, True)
        made = (v.plus(x[1], y[1]), v.minus(y[0], x[0])), (v.plus(x[0], y[0]), v.minus(x[1], y[1]))
        for row, (re, im) in zip(rows, made, strict=True):
            value = v.times(re, factors[0]), v.times(im, factors[1])
            row.store(near, value, low)
            if whole:
                row.store(far, (value[0], v.negative(value[1])), high, True)
    _mirrored(c, block)
    one = _halves(c, "1")
    re, im = _first(c, "%source")
    zero = v.const(0.0)
    for row, value in zip(rows, (im, re), strict=True):
        row.store("0", (v.times(value, scale[0]), zero), one)


def _join(c: Column) -> None:
    em, v, second = c.em, c.v, _second(c)
    weight, sign = c.number(WEIGHT), c.number(SIGN)
    by = weight, v.times(weight, sign)
    rows, target = (_Row(c, "%source"), _Row(c, em.at("%source", second))), _Row(c, "%target")

    def block(near: str, far: str, low: list[str], high: list[str]) -> None:
        a, b = ((v.times(re, by[0]), v.times(im, by[1])) for re, im in (row.load(near, low) for row in rows))
        target.store(near, (v.minus(a[0], b[1]), v.plus(a[1], b[0])), low)
        target.store(far, (v.plus(a[0], b[1]), v.minus(b[0], a[1])), high, True)
    _mirrored(c, block)
    target.store("0", (_first(c, rows[0].start)[0], _first(c, rows[1].start)[0]), _halves(c, "1"))

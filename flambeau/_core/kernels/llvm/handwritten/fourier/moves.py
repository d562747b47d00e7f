"""How Fourier transforms bring numbers from where they lie into columns of lanes and back: transposes, and rows made of what lies apart.

Functions of operations: see `program`.  "pack" makes columns of the lanes' rows of complex numbers, "unpack" rows of columns, times a scale;
"turn" makes columns of rows that are split by blocks of lanes (what passes of target "T" write).
"gather" and "scatter" copy elements that lie apart to a row and back.  "times" multiplies a row by a table's and fills up with zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emit import base, splat
from . import functions
from .passes import LANES, OWN, Column, across, deinterleaved, fetch, interleaved, shuffled

if TYPE_CHECKING:
    from .....dtypes import dtype
    from ...emit import Emitter

COUNT, ROW, STEP, SIGN, SCALE, SCALE_IMAGINARY, FILL, FACTORS = range(OWN, OWN + 8)
WORDS = OWN + 8


def address(d: dtype, name: str) -> int:
    """The function of an operation, for the real type d."""
    return functions.address(d, name, lambda em: _WRITERS[name](Column(em, d, "S", "S")))


def transposed(em: Emitter, d: dtype, rows: list[str]) -> list[str]:
    """As many vectors as they have lanes, lane i of vector k becoming lane k of vector i."""
    lanes, half = len(rows), len(rows) // 2
    while half:
        made = list(rows)
        for k in range(lanes):
            if not k & half:
                a, b = rows[k], rows[k + half]
                made[k] = shuffled(em, d, lanes, a, b, [i if not i & half else i - half + lanes for i in range(lanes)])
                made[k + half] = shuffled(em, d, lanes, a, b, [i + half if not i & half else i + lanes for i in range(lanes)])
        rows, half = made, half // 2
    return rows


def _row_addresses(column: Column, start: str) -> list[str]:
    """The address of each lane's row, kept in memory; lanes that are not there have the last one's."""
    em = column.em
    step, last = em.word("%op", ROW), em.sub(em.word("%context", LANES), "1")
    return [em.at(start, em.mul(em.smaller(str(k), last), step)) for k in range(column.lanes)]


def _pack(c: Column) -> None:
    em, d, lanes = c.em, c.d, c.lanes
    count, sign = em.word("%op", COUNT), c.number(SIGN)
    rows = _row_addresses(c, "%source")
    half = lanes // 2  # complex numbers of a vector
    ahead, to = em.mul(em.word("%op", ROW), str(lanes)), across(em)
    with em.loop("0", count, str(half), [("i64", "0"), ("ptr", "%target")]) as k:
        left = em.sub(count, k.i)
        mask = em.first_lanes(em.add(left, left), lanes)
        vectors = transposed(em, d, [em.load(d, lanes, em.at(row, k.vars[0]), mask) for row in rows])
        for row in rows:
            place = em.at(row, k.vars[0])
            fetch(em, em.at(place, ahead), c.bytes)
            fetch(em, em.at(place, to), c.bytes, True)
        for i, value in enumerate(vectors):
            em.store(d, lanes, c.v.times(value, sign) if i % 2 else value, em.at(k.vars[1], str(i * c.bytes)))
        k.next = [em.add(k.vars[0], str(c.bytes)), em.at(k.vars[1], str(lanes * c.bytes))]


def _unpack(c: Column) -> None:
    em, d, lanes = c.em, c.d, c.lanes
    count, scale = em.word("%op", COUNT), (c.number(SCALE), c.number(SCALE_IMAGINARY))
    rows = _row_addresses(c, "%target")
    half = lanes // 2
    with em.loop("0", count, str(half), [("i64", "0"), ("ptr", "%source")]) as k:
        left = em.sub(count, k.i)
        mask = em.first_lanes(em.add(left, left), lanes)
        # elements that are not there are others again: what lies there may be slow to multiply
        places = [em.at(k.vars[1], em.mul(em.smaller(str(i), em.sub(left, "1")), str(2 * c.bytes))) for i in range(half)]
        vectors = transposed(em, d, [c.v.times(em.load(d, lanes, em.at(place, str(i * c.bytes))), scale[i]) for place in places for i in (0, 1)])
        # the last first: rows that are not there write what the last one then writes over
        for row, value in reversed(list(zip(rows, vectors, strict=True))):
            em.store(d, lanes, value, em.at(row, k.vars[0]), mask)
        k.next = [em.add(k.vars[0], str(c.bytes)), em.at(k.vars[1], str(lanes * c.bytes))]


def _turn(c: Column) -> None:
    em, d, lanes = c.em, c.d, c.lanes
    rows = _row_addresses(c, "%source")
    with em.loop("0", em.word("%op", COUNT), str(lanes), [("i64", "0"), ("ptr", "%target")]) as k:
        for part in range(2):
            vectors = transposed(em, d, [em.load(d, lanes, em.at(em.at(row, k.vars[0]), str(part * c.bytes))) for row in rows])
            for i, value in enumerate(vectors):
                em.store(d, lanes, value, em.at(k.vars[1], str((2 * i + part) * c.bytes)))
        k.next = [em.add(k.vars[0], str(2 * c.bytes)), em.at(k.vars[1], str(2 * lanes * c.bytes))]


def _gather(c: Column) -> None:
    _copy(c, c.em.word("%op", STEP), str(2 * c.item))


def _scatter(c: Column) -> None:
    _copy(c, str(2 * c.item), c.em.word("%op", STEP))


def _copy(c: Column, step: str, to_step: str) -> None:
    """Complex numbers, one by one."""
    em = c.em
    t = f"i{16 * c.item}"
    with em.loop("0", em.word("%op", COUNT), carried=[("ptr", "%source"), ("ptr", "%target")]) as k:
        value = em.op(f"load {t}, ptr {k.vars[0]}, align {c.item}")
        em.line(f"store {t} {value}, ptr {k.vars[1]}, align {c.item}")
        k.next = [em.at(k.vars[0], step), em.at(k.vars[1], to_step)]


def _times(c: Column) -> None:
    em, d, lanes = c.em, c.d, c.lanes
    count, fill = em.word("%op", COUNT), em.word("%op", FILL)
    sign, scale = c.number(SIGN), (c.number(SCALE), c.number(SCALE_IMAGINARY))
    factors = em.pointer("%op", FACTORS)

    def read(place: str, masks: list[str]) -> tuple[str, str]:
        return deinterleaved(em, d, lanes, *[em.load(d, lanes, em.at(place, str(i * c.bytes)), mask) for i, mask in enumerate(masks)])

    def masks_of(left: str) -> list[str]:
        twice = em.add(left, left)
        return [em.first_lanes(twice, lanes), em.first_lanes(em.sub(twice, str(lanes)), lanes)]
    with em.loop("0", count, str(lanes), [("i64", "0")]) as k:
        masks = masks_of(em.sub(count, k.i))
        a, w = read(em.at("%source", k.vars[0]), masks), read(em.at(factors, k.vars[0]), masks)
        value = c.v.mul((a[0], c.v.times(a[1], sign)), w)
        value = c.v.times(value[0], scale[0]), c.v.times(value[1], scale[1])
        for i, part in enumerate(interleaved(em, d, lanes, *value)):
            em.store(d, lanes, part, em.at(em.at("%target", k.vars[0]), str(i * c.bytes)), masks[i])
        k.next = [em.add(k.vars[0], str(2 * c.bytes))]
    zero = splat("0.0", base(d), lanes)
    with em.loop(count, fill, str(lanes), [("i64", em.mul(count, str(2 * c.item)))]) as k:
        for i, mask in enumerate(masks_of(em.sub(fill, k.i))):
            em.store(d, lanes, zero, em.at(em.at("%target", k.vars[0]), str(i * c.bytes)), mask)
        k.next = [em.add(k.vars[0], str(2 * c.bytes))]


_WRITERS = {"pack": _pack, "unpack": _unpack, "turn": _turn, "gather": _gather, "scatter": _scatter, "times": _times}

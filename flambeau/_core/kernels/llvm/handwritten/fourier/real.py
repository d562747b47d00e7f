"""Transforms of real numbers by complex ones of half the length.

Real numbers x of even length n are taken as h = n / 2 complex ones, x[2 k] + i x[2 k + 1].  With z their transform and w = exp(-2 pi i / n), the
transform of x is X[k] = E + w^k O, X[h - k] = conj(E - w^k O), where E = (z[k] + conj z[h - k]) / 2 and O = (z[k] - conj z[h - k]) / 2 i are
those of the even and of the odd elements (Sorensen et al., "Real-valued fast Fourier transform algorithms", 1987).  Where x are the real
numbers whose spectrum's conjugate has the half X, the forward transform of z[k] = E + i w^k O, z[h - k] = conj(E) + i conj(w^k O), with
E = X[k] + conj X[h - k] and O = X[k] - conj X[h - k], is n x in pairs.

Functions of operations: see `program`.  "after" makes X of z, "before" makes z of X, in columns ("after" from split
ones, kinds of `passes` for the other side) or in a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emit import base, splat
from . import functions
from .passes import OWN, Column, deinterleaved, interleaved, shuffled

if TYPE_CHECKING:
    from collections.abc import Callable

    from .....dtypes import dtype
    from ...emit import Emitter
    from .butterflies import Complex

# h; the address of factors w^k for k = 1, 2, ... h / 2 ("after": their halves); what elements besides 0 and h count
HALF, FACTORS, WEIGHT = OWN, OWN + 1, OWN + 2


def address(d: dtype, name: str) -> int:
    """The function of an operation, for the real type d: "after", "whole" (which adds the mirror image) or "before", then " row", or the kind of the
    column on the tensor's side."""
    what, kind = name.split()

    def write(em: Emitter) -> None:
        if what == "before" and kind == "row":
            _before_row(Column(em, d, "I", "S"))
        elif what == "before":
            _before(Column(em, d, kind, "S"))
        elif kind == "row":
            _after_row(Column(em, d, "S", "I"), what == "whole")
        else:
            _after(Column(em, d, "S", kind), what == "whole")
    return functions.address(d, f"{what}_{kind}", write)


def _weighted(c: Column, *pair: Complex) -> tuple[Complex, ...]:
    weight = c.number(WEIGHT)
    return tuple((c.v.times(re, weight), c.v.times(im, weight)) for re, im in pair)


def _spectrum(c: Column, a: Complex, b: Complex, w: Complex) -> tuple[Complex, ...]:
    """X[k] and X[h - k] of z[k], z[h - k] and w^k / 2."""
    v, half = c.v, c.v.const(0.5)
    even = v.plus(a[0], b[0]), v.minus(a[1], b[1])
    odd = v.mul((v.plus(a[1], b[1]), v.minus(b[0], a[0])), w)
    first = v.fused(even[0], half, odd[0]), v.fused(even[1], half, odd[1])
    return _weighted(c, first, (v.fused(even[0], half, v.negative(odd[0])), v.minus(odd[1], v.times(even[1], half))))


def _signal(c: Column, a: Complex, b: Complex, w: Complex) -> tuple[Complex, ...]:
    """z[k] and z[h - k] of X[k], X[h - k] and w^k."""
    v = c.v
    even = v.plus(a[0], b[0]), v.minus(a[1], b[1])
    odd = v.mul((v.minus(a[0], b[0]), v.plus(a[1], b[1])), w)
    return _weighted(c, (v.minus(even[0], odd[1]), v.plus(even[1], odd[0])), (v.plus(even[0], odd[1]), v.minus(odd[0], even[1])))


def _conjugate(c: Column, x: Complex) -> Complex:
    return x[0], c.v.negative(x[1])


def _columns(c: Column, made: Callable[[Complex, Complex, Complex], tuple[Complex, ...]], whole: bool = False) -> None:
    """The pairs of k and h - k in columns; whole: their mirror images lie h elements further on, the one's where the other's element lies."""
    em = c.em
    half = em.word("%op", HALF)
    stop = em.add(em.op(f"lshr i64 {half}, 1"), "1")
    ends = em.mul(half, c.step), em.mul(half, c.to_step)
    with em.loop("1", stop, carried=[("i64", c.step), ("i64", em.sub(ends[0], c.step)), ("i64", c.to_step), ("i64", em.sub(ends[1], c.to_step)),
                                     ("ptr", em.pointer("%op", FACTORS))]) as k:
        low, high, to_low, to_high, factors = k.vars
        first, second = made(c.load(low), c.load(high), c.pair(factors, 0))
        c.store(to_low, first)
        c.store(to_high, second)
        if whole:
            c.store(em.add(to_low, ends[1]), _conjugate(c, second))
            c.store(em.add(to_high, ends[1]), _conjugate(c, first))
        k.next = [em.add(low, c.step), em.sub(high, c.step), em.add(to_low, c.to_step), em.sub(to_high, c.to_step), em.at(factors, str(2 * c.item))]


def _after(c: Column, whole: bool) -> None:
    zero = splat("0.0", base(c.d), c.lanes)
    re, im = c.load("0")
    _columns(c, lambda a, b, w: _spectrum(c, a, b, w), whole)
    c.store("0", (c.v.plus(re, im), zero))
    c.store(c.em.mul(c.em.word("%op", HALF), c.to_step), (c.v.minus(re, im), zero))


def _before(c: Column) -> None:
    first, last = c.load("0")[0], c.load(c.em.mul(c.em.word("%op", HALF), c.step))[0]
    _columns(c, lambda a, b, w: _signal(c, a, b, w))
    c.store("0", (c.v.plus(first, last), c.v.minus(first, last)))


def _row(c: Column, made: Callable[[Complex, Complex, Complex], tuple[Complex, ...]], sign: str | None, scale: tuple[str, str] | None,
         whole: bool = False) -> None:
    """The pairs of k and h - k in a row, a lane for each."""
    em, d, lanes, item = c.em, c.d, c.lanes, 2 * c.item
    half = em.word("%op", HALF)
    pairs = em.op(f"lshr i64 {half}, 1")
    backwards = [*range(2 * lanes - 2, -1, -2)], [*range(2 * lanes - 1, 0, -2)]
    begin = em.mul(em.sub(half, str(lanes)), str(item))  # the least of `lanes` elements before the one h - k, for k = 0
    everything = splat("true", "i1", lanes)
    with em.loop("0", pairs, str(lanes), [("i64", str(item)), ("i64", begin), ("ptr", em.pointer("%op", FACTORS))]) as k:
        left = em.sub(pairs, k.i)
        twice = em.smaller(em.add(left, left), str(2 * lanes))
        missing = em.sub(str(2 * lanes), twice)
        low = [em.first_lanes(twice, lanes), em.first_lanes(em.sub(twice, str(lanes)), lanes)]
        high = [em.op(f"xor <{lanes} x i1> {em.first_lanes(n, lanes)}, {everything}") for n in (missing, em.sub(missing, str(lanes)))]

        def read(offset: str, masks: list[str]) -> list[str]:
            return [em.load(d, lanes, em.at("%source", em.add(offset, str(i * c.bytes))), mask) for i, mask in enumerate(masks)]

        def write(offset: str, masks: list[str], parts: tuple[str, ...]) -> None:
            for i, (mask, part) in enumerate(zip(masks, parts, strict=True)):
                em.store(d, lanes, part, em.at("%target", em.add(offset, str(i * c.bytes))), mask)
        x = deinterleaved(em, d, lanes, *read(k.vars[0], low))
        near, far = read(k.vars[1], high)
        y = shuffled(em, d, lanes, near, far, backwards[0]), shuffled(em, d, lanes, near, far, backwards[1])
        if sign is not None:
            x, y = (x[0], c.v.times(x[1], sign)), (y[0], c.v.times(y[1], sign))
        w = em.load(d, lanes, k.vars[2]), em.load(d, lanes, em.at(k.vars[2], str(c.bytes)))
        first, second = made(x, y, w)
        if scale is not None:
            first, second = ((c.v.times(z[0], scale[0]), c.v.times(z[1], scale[1])) for z in (first, second))
        places = [lanes - 1 - i // 2 + lanes * (i % 2) for i in range(2 * lanes)]

        def backward(z: Complex) -> tuple[str, str]:
            return shuffled(em, d, lanes, z[0], z[1], places[:lanes]), shuffled(em, d, lanes, z[0], z[1], places[lanes:])
        write(k.vars[0], low, interleaved(em, d, lanes, *first))
        write(k.vars[1], high, backward(second))
        if whole:
            end = em.mul(half, str(item))
            write(em.add(k.vars[0], end), low, interleaved(em, d, lanes, *_conjugate(c, second)))
            write(em.add(k.vars[1], end), high, backward(_conjugate(c, first)))
        k.next = [em.add(k.vars[0], str(item * lanes)), em.sub(k.vars[1], str(item * lanes)), em.at(k.vars[2], str(2 * c.bytes))]


def _ends(c: Column) -> tuple[Callable[[str], str], Callable[[str, str], None], str]:
    """Reading and writing single numbers of a row, by their place in bytes; and the place of element h."""
    em, d = c.em, c.d
    return (lambda at: em.load(d, 1, em.at("%source", at)), lambda at, x: em.store(d, 1, x, em.at("%target", at)),
            em.mul(em.word("%op", HALF), str(2 * c.item)))


def _one(c: Column, name: str, a: str, b: str) -> str:
    return c.em.op(f"{name} {base(c.d)} {a}, {b}")


def _after_row(c: Column, whole: bool) -> None:
    read, write, end = _ends(c)
    re, im = read("0"), read(str(c.item))
    _row(c, lambda a, b, w: _spectrum(c, a, b, w), None, c.scale, whole)
    scale = c.em.op(f"extractelement {c.v.t} {c.scale[0]}, i64 0")
    for at, value in (("0", _one(c, "fadd", re, im)), (end, _one(c, "fsub", re, im))):
        write(at, _one(c, "fmul", value, scale))
        write(c.em.add(at, str(c.item)), "0.0")


def _before_row(c: Column) -> None:
    read, write, end = _ends(c)
    first, last = read("0"), read(end)
    _row(c, lambda a, b, w: _signal(c, a, b, w), c.sign, None)
    write("0", _one(c, "fadd", first, last))
    write(str(c.item), _one(c, "fsub", first, last))

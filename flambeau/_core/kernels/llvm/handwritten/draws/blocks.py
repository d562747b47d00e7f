"""Normal numbers by blocks of 16, as PyTorch fills 16 and more neighbours: of each block the first 8 numbers of [0, 1) give radii, the last 8
angles.  Where the size is no multiple of 16, the last 16 elements are drawn once more at the end.

float32 (in which the 16-bit types are computed too) has its logarithm, sine and cosine by the polynomials of S. L. Moshier's Cephes, whose
coefficients these are, rounded where PyTorch's vector code rounds; float64 has the C library's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .....dtypes import float32, float64, int32
from .... import native
from ...casts import cast
from ...emit import Module
from ...values import Value as Number
from ..code import Value
from .elements import CHUNK, LONG, Draws
from .engine import functions

if TYPE_CHECKING:
    from collections.abc import Callable

    from .....dtypes import dtype

BLOCK = 16
_HALF = 8
_LOG = (3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1, -1.2420140846e-1, 1.1676998740e-1,
        -1.1514610310e-1, 7.0376836292e-2)
_LN2 = (0.693359375, -2.12194440e-4)
_QUARTER = (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)  # of -pi, in parts
_COS = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
_SIN = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)


def entry(d: dtype, n: int) -> Callable[..., None]:
    """``entry(out, stream, mean, deviation)`` for n >= 16 neighbours."""
    code = functions(f"normal blocks {d.name}", ("flambeau_draw",), lambda module: _write(module, d))["flambeau_draw"]
    return native.make_entry([(code, 1, 1)], (n,), 4, (2, 3), parallel=n >= LONG)


def _write(module: Module, d: dtype) -> None:
    each = 2 if d is float64 else 1
    w = Draws(module, d, (), each)
    c, out, n, size = w.code, w.operands[0], w.code.number(w.block, 0), d.itemsize
    write = _doubles if d is float64 else _singles
    whole = n & -BLOCK
    with c.span(0, whole, step=CHUNK) as part:
        many = c.least(whole - part.i, CHUNK)
        c.function("void", "words", w.stream, w.words, many * each)
        with c.span(0, many, step=BLOCK) as v:
            write(w, w.words + v.i * (4 * each), out + (part.i + v.i) * size)
    with c.when(whole < n):
        if size >= 4:  # drawn and not used
            c.function("void", "words", w.stream, w.words, (n - whole) * each)
        c.function("void", "words", w.stream, w.words, c.ints(BLOCK * each))
        write(w, w.words, out + (n - BLOCK) * size)
    w.finish()


def _doubles(w: Draws, words: Value, to: Value) -> None:
    c = w.code
    with c.span(0, c.ints(_HALF)) as v:
        u, angle = w.fraction53(words + v.i * 8), w.fraction53(words + (v.i + _HALF) * 8) * (2.0 * math.pi)
        radius = (w.library("log", 1.0 - u) * -2.0).sqrt()
        for k, name in enumerate(("cos", "sin")):
            z = (radius * w.library(name, angle)).fma(w.number(1), w.number(0))
            (to + (v.i + _HALF * k) * 8).store(Value(c, "double", z.v))


def _singles(w: Draws, words: Value, to: Value) -> None:
    c, lanes = w.code, _HALF
    mean, deviation = (Number(c, c.broadcast(w.number(k).to(float32).v, "float", lanes), float32, lanes) for k in range(2))
    u, v = (w.fraction24(words + 4 * _HALF * k, lanes) for k in range(2))
    radius = (_log(1.0 - u) * -2.0).sqrt()
    sine, cosine = _sine_and_cosine(v * (2.0 * math.pi))
    for k, x in enumerate((cosine, sine)):
        z = (radius * x).fma(deviation, mean)
        c.store(w.d, lanes, cast(c, z.v, float32, w.d, lanes), (to + _HALF * k * w.d.itemsize).name)


def _log(x: Number) -> Number:
    """Of positive normal numbers."""
    bits = x.bits()
    exponent = ((bits >> 23) - 127).to(float32) + 1.0
    m = (bits & ~0x7F800000 | 0x3F000000).floats()
    small = m < 0.707106781186547524
    f = (m - 1.0) + small.pick(m, x.of(_zero(x)))
    exponent = exponent - small.pick(1.0, x.of(_zero(x)))
    square = f * f
    y = (f.polynomial(_LOG) * f).fma(square, exponent * _LN2[1])
    return exponent.fma(_LN2[0], f + square.fma(-0.5, y))


def _zero(x: Number) -> str:
    return x.lift(0.0)


def _sine_and_cosine(x: Number) -> tuple[Number, Number]:
    """Of numbers that are not negative."""
    c, lanes = x.em, x.lanes
    eighth = (x * 1.27323954473516).trunc()
    octant = Number(c, c.op(f"fptosi <{lanes} x float> {eighth.v} to <{lanes} x i32>"), int32, lanes)
    octant = (octant + 1) & ~1
    y = octant.to(float32)
    for part in _QUARTER:
        x = y.fma(part, x)
    square = x * x
    cosine = (square.polynomial(_COS) * square).fma(square, -(square * 0.5)) + 1.0
    sine = (square.polynomial(_SIN) * square).fma(x, x)
    near = (octant & 2).equals(0)
    sign_of_sine = (octant & 4) << 29
    sign_of_cosine = ((octant - 2) ^ -1) & 4
    return ((near.pick(sine, cosine).bits() ^ sign_of_sine).floats(), (near.pick(cosine, sine).bits() ^ (sign_of_cosine << 29)).floats())

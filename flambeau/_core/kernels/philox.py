"""Random numbers as formulas: Philox4x32-10, counter based, so the same seed gives the same numbers everywhere.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011: four 32-bit words
of counter and two of key, ten rounds of two multiplications.  Element i of a draw uses the counter `offset + i`, so a
draw of n numbers uses n counters, whatever the device, the number of threads or the shape.
"""

from __future__ import annotations

import math

from ..dtypes import bfloat16, dtype, float16, float32, float64, int64, uint32, uint64
from . import expr as E
from .expr import Expr, cast, const, make

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85


def _low(x: Expr) -> Expr:
    return cast(x, uint32)


def _high(x: Expr) -> Expr:
    return cast(make("shr", uint64, (x, const(32, uint64))), uint32)


def _product(a: Expr, m: int) -> tuple[Expr, Expr]:
    """High and low words of a 32 by 32 bit product."""
    p = make("mul", uint64, (cast(a, uint64), const(m, uint64)))
    return _high(p), _low(p)


def _xor(a: Expr, b: Expr) -> Expr:
    return make("xor", uint32, (a, b))


def words(counter: Expr, seed: Expr, subsequence: Expr | None = None) -> tuple[Expr, Expr, Expr, Expr]:
    """Four random 32-bit words from a counter, of a subsequence, and a seed (uint64 expressions)."""
    c0, c1 = _low(counter), _high(counter)
    c2, c3 = (const(0, uint32), const(0, uint32)) if subsequence is None else (_low(subsequence), _high(subsequence))
    k0, k1 = _low(seed), _high(seed)
    for _ in range(10):
        h0, l0 = _product(c0, _M0)
        h1, l1 = _product(c2, _M1)
        c0, c1, c2, c3 = _xor(_xor(h1, c1), k0), l1, _xor(_xor(h0, c3), k1), l0
        k0 = make("add", uint32, (k0, const(_W0, uint32)))
        k1 = make("add", uint32, (k1, const(_W1, uint32)))
    return c0, c1, c2, c3


def counter_at(index: Expr, offset: Expr) -> Expr:
    return make("add", uint64, (cast(index, uint64), offset))


def position(rank: int, first: int) -> Expr:
    """The row-major number of an element.  Its strides come as numbers, from scalar `first` on, so that one kernel serves every shape of a rank."""
    found: Expr = const(0, int64)
    for axis in range(rank):
        found = found + E.coord(axis) * E.scalar(first + axis, int64)
    return found


def _bits(word: Expr, keep: int, d: dtype) -> Expr:
    """The top `keep` bits of a word as a number in [0, 1)."""
    return cast(make("shr", uint32, (word, const(32 - keep, uint32))), d) * 2.0 ** -keep


def uniform(w: tuple[Expr, ...], d: dtype, first: int = 0) -> Expr:
    """A number in [0, 1) in the type `d` computes in, of as many bits as `d` can hold below 1."""
    if d is float64:
        high = cast(make("shr", uint32, (w[first], const(5, uint32))), float64)
        low = cast(make("shr", uint32, (w[first + 1], const(6, uint32))), float64)
        return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0)
    keep = {float16: 11, bfloat16: 8}.get(d, 24)
    return _bits(w[first], keep, float32)


def normal(w: tuple[Expr, ...], d: dtype) -> Expr:
    """A standard normal number by Box and Muller's transformation."""
    wide = float64 if d is float64 else float32
    u = 1.0 - uniform(w, wide, 0)
    v = uniform(w, wide, 2)
    return E.sqrt(E.log(u) * -2.0) * E.cos(v * (2.0 * math.pi))

"""What each kind of draw from a stream is, in NumPy: the oracle of its machine code, and its stand-in where there is none.

The kinds, with the words that an element takes and the numbers that a call gives, are those of PyTorch's CPU kernels:

=================  ===============================  ==================================================================================
kind               numbers                          an element
=================  ===============================  ==================================================================================
unit               none                             24 bits of a word over 2**24; float64: 53 bits of two words over 2**53
uniform            from, to - from, to              that, times the width, and from
integers           range; base in halves            base + a word modulo the range
long integers      range and base in halves         base + two words modulo the range
bits               none                             two words
bernoulli          p                                whether 53 bits over 2**53 lie below p
bernoulli each     none                             the same of 24 bits (float64: 53) and an operand
dropout            q, scale                         scale where 53 bits over 2**53 lie below q, else 0
exponential        -1 / rate                        log1p(-u) times that, u of 53 bits
geometric          log1p(-p)                        log(u) over that, rounded up
cauchy             median, sigma                    median + sigma tan(pi (u - 1/2))
slopes             from, to - from                  1, or of an operand of 0 or less from + u of 53 bits times the width
normal             mean, deviation                  a pair from four words, its second number kept for the next element
log normal         mean, deviation                  exp of that
normal blocks      mean, deviation                  of 16 and more neighbours: eight pairs from 16 numbers
permutation        none                             a shuffle from the front
poisson            none                             `rejection`, of one operand; so also gamma, and binomial of two
=================  ===============================  ==================================================================================
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import bfloat16, float16, float64
from . import mersenne, rejection
from .interpret import narrow_bfloat16, widen_bfloat16

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtypes import dtype
    from .specs import Draw

Array = Any
BLOCK = 16


def long_words(block: int, n: int) -> Array:
    """n numbers of 64 bits, the upper half first."""
    w = mersenne.words(block, 2 * n).astype(np.uint64)
    return w[::2] << np.uint64(32) | w[1::2]


def fractions(block: int, n: int, double: bool) -> Array:
    """Numbers of [0, 1): float64 of 53 bits, else float32 of 24."""
    if double:
        return (long_words(block, n) & np.uint64((1 << 53) - 1)).astype(np.float64) * 2.0 ** -53
    return (mersenne.words(block, n) & np.uint32((1 << 24) - 1)).astype(np.float32) * np.float32(2.0 ** -24)


def _whole(high: float, low: float) -> int:
    return (int(high) << 32) + int(low)


def _short(x: Array, d: dtype) -> Array:
    return x.astype(np.float16).astype(np.float32) if d is float16 else widen_bfloat16(narrow_bfloat16(x))


def _uniform(block: int, n: int, d: dtype, low: float, span: float, high: float) -> Array:
    x = fractions(block, n, d is float64).astype(np.float64) * span + low
    if d in (float16, bfloat16):
        x = _short(x.astype(np.float32), d)
        return np.where(x >= np.float32(high), np.float32(low), x)
    return x


def _modulo(words: Array, size: int, base: int) -> Array:
    rest = words if not size else words % np.uint64(size & mersenne.MASK64)
    return (rest + np.uint64(base & mersenne.MASK64)).astype(np.int64)


def normals(block: int, n: int) -> Array:
    """Standard normal numbers in pairs."""
    made: list[float] = []
    first = mersenne.kept(block)
    if first is not None and n:
        made.append(first)
        mersenne.keep(block, None)
    while len(made) < n:
        u, v = fractions(block, 2, True).tolist()
        radius, angle = math.sqrt(-2.0 * math.log1p(-v)), 2.0 * math.pi * u
        made.append(radius * math.cos(angle))
        other = radius * math.sin(angle)
        if len(made) < n:
            made.append(other)
        else:
            mersenne.keep(block, other)
    return np.array(made)


def _pairs(x: Array, mean: float, deviation: float) -> Array:
    """Rows of 16 numbers of [0, 1) as normal ones."""
    half = BLOCK // 2
    radius, angle = np.sqrt(-2 * np.log(1 - x[:, :half])), x.dtype.type(2 * math.pi) * x[:, half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], 1) * x.dtype.type(deviation) + x.dtype.type(mean)


def _blocks(block: int, n: int, d: dtype, mean: float, deviation: float) -> Array:
    double, whole = d is float64, n // BLOCK * BLOCK
    made = np.empty(n, np.float64 if double else np.float32)
    made[:whole] = _pairs(fractions(block, whole, double).reshape(-1, BLOCK), mean, deviation).reshape(-1)
    if whole < n:
        if d.itemsize >= 4:
            fractions(block, n - whole, double)
        made[n - BLOCK:] = _pairs(fractions(block, BLOCK, double).reshape(1, BLOCK), mean, deviation)[0]
    return made


def _permutation(block: int, n: int) -> Array:
    wide = n >= 0xFFFFFFFF // 20
    words = (long_words(block, max(n - 1, 0)) if wide else mersenne.words(block, max(n - 1, 0))).tolist()
    order = list(range(n))
    for i, w in enumerate(words):
        k = i + w % (n - i)
        order[i], order[k] = order[k], order[i]
    return np.array(order, np.int64)


def _chances(block: int, n: int, p: Array) -> Array:
    if p.dtype == np.float64:
        return fractions(block, n, True) < p
    return fractions(block, n, False) < p.astype(np.float32)


def _u(block: int, n: int) -> Array:
    return fractions(block, n, True)


_KINDS: dict[str, Callable[..., Array]] = {
    "unit": lambda b, n, d: _uniform(b, n, d, 0.0, 1.0, 1.0), "uniform": _uniform,
    "integers": lambda b, n, d, size, *base: _modulo(mersenne.words(b, n).astype(np.uint64), int(size), _whole(*base)),
    "long integers": lambda b, n, d, h, s, *base: _modulo(long_words(b, n), _whole(h, s), _whole(*base)),
    "bits": lambda b, n, d: _modulo(long_words(b, n), 0, 0), "bernoulli": lambda b, n, d, p: _u(b, n) < p,
    "dropout": lambda b, n, d, q, scale: np.where(_u(b, n) < q, scale, 0.0), "exponential": lambda b, n, d, k: np.log1p(-_u(b, n)) * k,
    "geometric": lambda b, n, d, k: np.ceil(np.log(_u(b, n)) / k), "cauchy": lambda b, n, d, m, s: m + s * np.tan(math.pi * (_u(b, n) - 0.5)),
    "normal": lambda b, n, d, m, s: normals(b, n) * s + m, "log normal": lambda b, n, d, m, s: np.exp(normals(b, n) * s + m),
    "normal blocks": _blocks, "permutation": lambda b, n, d: _permutation(b, n),
}


def drawn(spec: Draw, block: int, given: Sequence[Array], numbers: Sequence[float]) -> Array:
    """The elements, in the spec's shape."""
    n = math.prod(spec.shape)
    if spec.kind == "bernoulli each":
        return _chances(block, n, np.broadcast_to(given[0], spec.shape).reshape(-1)).reshape(spec.shape)
    if spec.kind in rejection.KINDS:
        flat = [np.broadcast_to(x, spec.shape).reshape(-1) for x in given]
        made = rejection.drawn(spec.kind, lambda: float(_u(block, 1)[0]), lambda: float(normals(block, 1)[0]), flat, spec.dtype)
        return made.reshape(spec.shape)
    if spec.kind == "slopes":
        made = np.ones(n)
        below = np.broadcast_to(given[0], spec.shape).reshape(-1) <= 0
        made[below] = _u(block, int(below.sum())) * numbers[1] + numbers[0]
        return made.reshape(spec.shape)
    with np.errstate(all="ignore"):
        made = _KINDS[spec.kind](block, n, spec.dtype, *numbers)
        if made.dtype == np.float64 and spec.dtype in (float16, bfloat16):
            made = made.astype(np.float32)
        return made.reshape(spec.shape)


__all__ = ["BLOCK", "drawn", "fractions", "long_words", "normals"]

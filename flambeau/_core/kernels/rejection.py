"""Poisson, binomial and gamma numbers of a stream, one after the other, in Python: the oracle of their machine code.

Poisson: below a rate of 10, products of uniform numbers (D. Knuth, "The art of computer programming", vol. 2, 3.4.1); else the transformed
rejection PTRS of W. Hörmann, "The transformed rejection method for generating Poisson random variables", Insurance: Mathematics and Economics
12 (1993), 39-45.  Binomial: where fewer than 10 are expected, sums of geometric numbers (L. Devroye, "Non-uniform random variate generation",
1986, X.4.3); else BTRS of W. Hörmann, "The generation of binomial random variates", J. Statistical Computation and Simulation 46 (1993), 101-110.
Gamma: G. Marsaglia, W. W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000), 363-372.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dtypes import dtype

# log(k!) less Stirling's approximation, for k = 0 .. 9
TAILS = (0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211, 0.0138761288230707,
         0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287)
# PyTorch has these two in float32
THIRD, SQUEEZE = float(np.float32(1) / np.float32(3)), float(np.float32(0.0331))


def tiny(d: dtype) -> float:
    """The least normal number of a type."""
    return float(dtypes.finfo(d).tiny)


def poisson(uniform: Callable[[], float], normal: Callable[[], float], rate: float) -> float:
    if rate < 10.0:
        least, product, count = math.exp(-rate), 1.0, -1
        while count < 0 or product > least:
            if not rate:
                return 0.0
            product *= uniform()
            count += 1
        return float(count)
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse, most = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u, v = uniform() - 0.5, uniform()
        us = 0.5 - abs(u)
        k = float(math.floor((2.0 * a / us + b) * u + rate + 0.43)) if us else -1.0
        if us >= 0.07 and v <= most:
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        if _log(v) + math.log(inverse) - math.log(a / (us * us) + b) <= -rate + k * math.log(rate) - math.lgamma(k + 1.0):
            return k


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _tail(k: float) -> float:
    if k <= 9:
        return TAILS[int(k)]
    square = (k + 1.0) * (k + 1.0)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1.0)


def binomial(uniform: Callable[[], float], normal: Callable[[], float], count: float, p: float) -> float:
    if count <= 0 or p <= 0:
        return 0.0
    if count != count or p != p:
        return math.nan
    if p >= 1:
        return count
    if p > 0.5:
        return count - _likely(uniform, count, 1.0 - p)
    return _likely(uniform, count, p)


def _likely(uniform: Callable[[], float], count: float, p: float) -> float:
    """For p up to 1/2."""
    if count * p < 10.0:
        total, times, log_q = 0.0, -1, math.log1p(-p)
        while total <= count:
            total += math.ceil(_log(u) / log_q) if (u := uniform()) else math.inf
            times += 1
        return float(times)
    deviation = math.sqrt(count * p * (1.0 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    middle, most, odds, alpha, m = count * p + 0.5, 0.92 - 4.2 / b, p / (1.0 - p), (2.83 + 5.1 / b) * deviation, math.floor((count + 1.0) * p)
    while True:
        u, v = uniform() - 0.5, uniform()
        us = 0.5 - abs(u)
        k = float(math.floor((2.0 * a / us + b) * u + middle)) if us else -1.0
        if k < 0 or k > count:
            continue
        if us >= 0.07 and v <= most:
            return k
        right = (m + 0.5) * math.log((m + 1.0) / (odds * (count - m + 1.0))) + (count + 1.0) * math.log((count - m + 1.0) / (count - k + 1.0))
        right += (k + 0.5) * math.log(odds * (count - k + 1.0) / (k + 1.0)) + _tail(m) + _tail(count - m) - _tail(k) - _tail(count - k)
        if _log(v * alpha / (a / (us * us) + b)) <= right:
            return k


def gamma(uniform: Callable[[], float], normal: Callable[[], float], shape: float, real: Any = np.float64) -> float:
    """real: the type in which PyTorch takes the shape at first, float32 for all but float64."""
    if not shape >= 0:
        return math.nan
    if not shape:
        return 0.0
    scale, first = 1.0, real(shape)
    if shape < 1.0:
        scale, first = (1.0 - uniform()) ** float(1 / first), first + real(1.0)
    d = float(first - real(THIRD))
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        y = 0.0
        while y <= 0:
            x = normal()
            y = 1.0 + c * x
        v, u, square = y * y * y, 1.0 - uniform(), x * x
        if u < 1.0 - SQUEEZE * square * square or math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
            return scale * d * v


KINDS: dict[str, Callable[..., float]] = {"poisson": poisson, "binomial": binomial, "gamma": gamma}


def drawn(kind: str, uniform: Callable[[], float], normal: Callable[[], float], given: list[Any], d: dtype) -> Any:
    """The elements for flat operands."""
    more = [np.float64 if d is dtypes.float64 else np.float32] if kind == "gamma" else []
    made = np.array([KINDS[kind](uniform, normal, *[float(x) for x in each], *more) for each in zip(*given, strict=True)], np.float64)
    return np.maximum(made, tiny(d)) if kind == "gamma" else made

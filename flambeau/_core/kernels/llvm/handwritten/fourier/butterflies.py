"""Small discrete Fourier transforms on registers: the arithmetic of the passes of `passes`.

A complex number is a pair of vectors, real and imaginary parts, with a transform a lane.  All are forward transforms (exp(-2 pi i j k / r)).
Composite sizes are transforms of transforms (Cooley and Tukey, 1965); odd primes use that cosines are even and sines odd, so that half of
the products suffice.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from ...emit import base, constant, suffix, vec

if TYPE_CHECKING:
    from .....dtypes import dtype
    from ...emit import Emitter

    Complex = tuple[str, str]


def root(k: int, n: int) -> tuple[float, float]:
    """(cos, sin) of -2 pi k / n, worked out in the first eighth of the circle, so that symmetric ones are symmetric to the last bit."""
    from math import cos, pi, sin
    k %= n
    eighth, rest = divmod(8 * k, n)
    # the angle to the nearest multiple of a quarter, as a fraction of n: exact in integers
    quarter = (eighth + 1) // 2
    off = 8 * k - 2 * quarter * n
    a = pi * off / (4 * n)
    c, s = cos(a), sin(a)
    x, y = ((c, s), (-s, c), (-c, -s), (s, -c))[quarter % 4]
    return x, -y


class Vectors:
    """Complex arithmetic on vectors of `lanes` elements of type `d`."""

    def __init__(self, em: Emitter, d: dtype, lanes: int) -> None:
        self.em, self.d, self.lanes = em, d, lanes
        self.t = vec(base(d), lanes)

    def _two(self, name: str, a: str, b: str) -> str:
        return self.em.op(f"{name} {self.t} {a}, {b}")

    def plus(self, a: str, b: str) -> str: return self._two("fadd", a, b)
    def minus(self, a: str, b: str) -> str: return self._two("fsub", a, b)
    def times(self, a: str, b: str) -> str: return self._two("fmul", a, b)

    def negative(self, a: str) -> str:
        return self.em.op(f"fneg {self.t} {a}")

    def fused(self, a: str, b: str, c: str) -> str:
        """a b + c."""
        return self.em.call(f"llvm.fmuladd.{suffix(base(self.d), self.lanes)}", self.t, (self.t, a), (self.t, b), (self.t, c))

    def const(self, x: float) -> str:
        return constant(x, self.d, self.lanes)

    def add(self, a: Complex, b: Complex) -> Complex:
        return self.plus(a[0], b[0]), self.plus(a[1], b[1])

    def sub(self, a: Complex, b: Complex) -> Complex:
        return self.minus(a[0], b[0]), self.minus(a[1], b[1])

    def mul(self, a: Complex, w: Complex) -> Complex:
        """a w."""
        re = self.fused(a[0], w[0], self.negative(self.times(a[1], w[1])))
        return re, self.fused(a[0], w[1], self.times(a[1], w[0]))

    def turned(self, a: Complex, k: int, n: int) -> Complex:
        """a times exp(-2 pi i k / n), which is known now: quarters and eighths of a turn are cheaper."""
        k %= n
        if 4 * k % n == 0:
            for _ in range(4 * k // n):
                a = a[1], self.negative(a[0])
            return a
        c, s = root(k, n)
        if 8 * k % n == 0:
            quarters = (8 * k // n - 1) // 2
            half = self.const(root(1, 8)[0])
            a = self.times(self.plus(a[0], a[1]), half), self.times(self.minus(a[1], a[0]), half)
            return self.turned(a, quarters, 4)
        return self.mul(a, (self.const(c), self.const(s)))

    def transform(self, x: list[Complex]) -> list[Complex]:
        """The transform of all of x."""
        r = len(x)
        if r == 1:
            return x
        if r == 2:
            return [self.add(x[0], x[1]), self.sub(x[0], x[1])]
        first = _factor(r)
        if first == r:
            return self._prime(x)
        second = r // first
        rows = [self.transform(x[k::second]) for k in range(second)]  # [k][j]: over the elements k, k + second, ...
        out: list[Complex] = [("", "")] * r
        for j in range(first):
            made = self.transform([self.turned(rows[k][j], k * j, r) for k in range(second)])
            for i, value in enumerate(made):
                out[j + first * i] = value
        return out

    def _prime(self, x: list[Complex]) -> list[Complex]:
        r, half = len(x), len(x) // 2
        even = [self.add(x[k], x[r - k]) for k in range(1, half + 1)]
        odd = [self.sub(x[k], x[r - k]) for k in range(1, half + 1)]
        total = x[0]
        for e in even:
            total = self.add(total, e)
        out = [total] * r
        for j in range(1, half + 1):
            p, q = x[0], None
            for k in range(1, half + 1):
                c, s = root(j * k, r)
                c_, s_ = self.const(c), self.const(-s)
                e, o = even[k - 1], odd[k - 1]
                p = self.fused(e[0], c_, p[0]), self.fused(e[1], c_, p[1])
                q = (self.times(o[0], s_), self.times(o[1], s_)) if q is None else (self.fused(o[0], s_, q[0]), self.fused(o[1], s_, q[1]))
            assert q is not None
            out[j] = self.plus(p[0], q[1]), self.minus(p[1], q[0])
            out[r - j] = self.minus(p[0], q[1]), self.plus(p[1], q[0])
        return out


def _factor(r: int) -> int:
    """The first factor that a transform of size r is split by: itself where it is a prime."""
    if r > 4 and r % 4 == 0:
        return 4
    return next((p for p in (2, 3, 5, 7) if gcd(p, r) > 1 and p < r), r)

"""Bessel, Airy and error functions and the Hurwitz zeta as formulas over the primitives.

Chebyshev series on ranges (tables by tools/fit_special.py), with the exact leading behaviour taken out. Most are worked out in
double for all types; of the others, what singles do not need of a series is left out for them.  Large arguments: Hankel's
expansions (Abramowitz and Stegun 9.2, 9.7, 10.4).
"""

from __future__ import annotations

import math

from . import bessel_tables as T
from . import expr as E
from .expr import Expr, const, where
from .special import in_double


def series(table: tuple[float, ...], t: Expr) -> Expr:
    """The Chebyshev series at t, by Clenshaw's recurrence."""
    if t.dtype.name != "float64":
        top = max(abs(c) for c in table)
        table = table[:max(j for j, c in enumerate(table) if abs(c) > 2e-9 * top) + 1]
    twice = t + t
    b1, b2 = const(0, t.dtype), const(0, t.dtype)
    for c in reversed(table[1:]):
        b1, b2 = twice * b1 - b2 + c, b1
    return t * b1 - b2 + table[0]


@in_double
def i0e(x: Expr) -> Expr:
    """exp(-|x|) I0(x)."""
    a = abs(x)
    return where(a <= 8.0, series(T.I0E_LOW, a * 0.25 - 1.0), series(T.I0E_HIGH, 16.0 / a - 1.0) / E.sqrt(a))


@in_double
def i1e(x: Expr) -> Expr:
    """exp(-|x|) I1(x)."""
    a = abs(x)
    high = series(T.I1E_HIGH, 16.0 / a - 1.0) / E.sqrt(a)
    return where(a <= 8.0, x * series(T.I1E_LOW, a * 0.25 - 1.0), E.copysign(high, x))


@in_double
def i0(x: Expr) -> Expr:
    return _grown(i0e(x), abs(x))


@in_double
def i1(x: Expr) -> Expr:
    return _grown(i1e(x), abs(x))


def _grown(scaled: Expr, a: Expr) -> Expr:
    """scaled exp(a), in two factors where exp(a) alone would overflow."""
    half = E.exp(a * 0.5)
    return scaled * half * half


def _k(order: int, x: Expr, scaled: bool) -> Expr:
    low_table, high_table = (T.K0_LOW, T.K0_HIGH) if order == 0 else (T.K1_LOW, T.K1_HIGH)
    u = series(low_table, x * x * 0.5 - 1.0)
    near = u - E.log(x * 0.5) * i0(x) if order == 0 else E.log(x * 0.5) * i1(x) + u / x
    far = series(high_table, 4.0 / x - 1.0) / E.sqrt(x)
    near, far = (near * E.exp(x), far) if scaled else (near, far * E.exp(-x))
    out = where(x <= 2.0, near, far)
    return where(x == 0.0, const(math.inf, x.dtype), where(x < 0.0, const(math.nan, x.dtype), out))


@in_double
def k0(x: Expr) -> Expr:
    return _k(0, x, False)


@in_double
def k1(x: Expr) -> Expr:
    return _k(1, x, False)


@in_double
def k0_scaled(x: Expr) -> Expr:
    """exp(x) K0(x)."""
    return _k(0, x, True)


@in_double
def k1_scaled(x: Expr) -> Expr:
    """exp(x) K1(x)."""
    return _k(1, x, True)


def _hankel(order: int, a: Expr) -> tuple[Expr, Expr]:
    """J and Y of order 0 or 1 for a >= 8."""
    p_table, q_table = (T.HANKEL0_P, T.HANKEL0_Q) if order == 0 else (T.HANKEL1_P, T.HANKEL1_Q)
    t = 128.0 / (a * a) - 1.0
    p, q = series(p_table, t), series(q_table, t) / a
    s, c = E.sin(a), E.cos(a)
    # cos and sin of a - pi/4 or a - 3 pi/4, each times sqrt(2)
    cos_c, sin_c = (c + s, s - c) if order == 0 else (s - c, -(s + c))
    k = math.sqrt(1.0 / math.pi) / E.sqrt(a)
    return k * (p * cos_c - q * sin_c), k * (p * sin_c + q * cos_c)


def _ended(a: Expr, out: Expr) -> Expr:
    """0 at infinity."""
    return where(a == math.inf, const(0, a.dtype), out)


@in_double
def j0(x: Expr) -> Expr:
    a = abs(x)
    return _ended(a, where(a < 8.0, series(T.J0_LOW, a * a * (1 / 32) - 1.0), _hankel(0, a)[0]))


@in_double
def j1(x: Expr) -> Expr:
    a = abs(x)
    high = _hankel(1, a)[0]
    return _ended(a, where(a < 8.0, x * series(T.J1_LOW, a * a * (1 / 32) - 1.0), where(x < 0.0, -high, high)))


def _y(order: int, x: Expr) -> Expr:
    t = x * x * (1 / 32) - 1.0
    two = 2.0 / math.pi
    if order == 0:
        near = series(T.Y0_LOW, t) + two * E.log(x) * series(T.J0_LOW, t)
    else:
        near = x * series(T.Y1_LOW, t) + two * (E.log(x) * x * series(T.J1_LOW, t) - 1.0 / x)
    out = _ended(x, where(x < 8.0, near, _hankel(order, x)[1]))
    return where(x == 0.0, const(-math.inf, x.dtype), where(x < 0.0, const(math.nan, x.dtype), out))


@in_double
def y0(x: Expr) -> Expr:
    return _y(0, x)


@in_double
def y1(x: Expr) -> Expr:
    return _y(1, x)


def spherical_j0(x: Expr) -> Expr:
    """sin(x) / x."""
    u = x * x
    near = 1.0 - u * (1 / 6) * (1.0 - u * (1 / 20) * (1.0 - u * (1 / 42) * (1.0 - u * (1 / 72))))
    return _ended(abs(x), where(abs(x) < 0.5, near, E.sin(x) / x))


@in_double
def airy_ai(x: Expr) -> Expr:
    a = abs(x)
    root = E.sqrt(a)
    zeta = (2 / 3) * a * root
    fourth = E.sqrt(root)
    high, low = 2 / 3 * 2 ** 1.5, 2 / 3 * 3 ** 1.5
    decay = series(T.AIRY_HIGH, 2.0 * high / zeta - 1.0) * E.exp(-zeta) / (2.0 * math.sqrt(math.pi) * fourth)
    t = 2.0 * low * low / (zeta * zeta) - 1.0
    s, c = E.sin(zeta), E.cos(zeta)
    wave = (series(T.AIRY_LOW_P, t) * (c + s) + series(T.AIRY_LOW_Q, t) / zeta * (s - c)) / (math.sqrt(2.0 * math.pi) * fourth)
    middle = series(T.AIRY_MIDDLE, (x + 0.5) * 0.4)
    out = where(x > 2.0, decay, where(x < -3.0, wave, middle))
    return where(x == math.inf, const(0, x.dtype), where(x == -math.inf, const(0, x.dtype), out))


def erfcx(x: Expr) -> Expr:
    """exp(x²) erfc(x): Shepherd and Laframboise's series in (x - k) / (x + k), k = 3.75 (1981), of (1 + 2 x) erfcx(x)."""
    a = abs(x)
    far = a > 1e6
    safe = where(far, const(1, x.dtype), a)
    out = where(far, (1.0 / math.sqrt(math.pi)) / a, series(T.ERFCX, (safe - 3.75) / (safe + 3.75)) / (1.0 + 2.0 * safe))
    return where(x < 0.0, 2.0 * E.exp(x * x) - out, out)


def ndtr(x: Expr) -> Expr:
    """The standard normal distribution function."""
    return 0.5 * E.erfc(x * -math.sqrt(0.5))


def log_ndtr(x: Expr) -> Expr:
    """log of `ndtr`, exact in both tails."""
    z = x * -math.sqrt(0.5)
    return where(x < -1.0, E.log(0.5 * erfcx(z)) - z * z, E.log1p(-0.5 * E.erfc(-z)))


def ndtri(p: Expr) -> Expr:
    """The inverse of `ndtr`."""
    steps = 3 if p.dtype.name == "float64" else 2  # each cubes the error of the start
    return in_double(lambda q: _ndtri(q, steps))(p)


def _ndtri(p: Expr, steps: int) -> Expr:
    """A start of the tail's asymptotic form (Abramowitz and Stegun 26.2.23), then Halley steps on erfc."""
    low = p < 0.5
    q = where(low, p, 1.0 - p)  # the nearer tail
    t = E.sqrt(-2.0 * E.log(q))
    x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    for _ in range(steps):
        # the relative error of the tail, whose slope is -phi: erfcx keeps both sides from vanishing
        w = x * math.sqrt(0.5)
        mass = 0.5 * erfcx(w)
        error = (mass - q * E.exp(w * w)) * math.sqrt(2.0 * math.pi)
        x = x + error / (1.0 + 0.5 * x * error)
    x = where(low, -x, x)
    x = where(p == 0.5, const(0, p.dtype), x)
    x = where(p == 0.0, const(-math.inf, p.dtype), where(p == 1.0, const(math.inf, p.dtype), x))
    return where((p < 0.0) | (p > 1.0), const(math.nan, p.dtype), x)


_BERNOULLI = (12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
              1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18)
"""(2k)! / B_2k for k = 1 ... 12."""


def zeta(s: Expr, q: Expr) -> Expr:
    """Hurwitz's zeta, the sum over k >= 0 of (k + q)^-s, by Euler and Maclaurin's formula after 12 terms."""
    total = const(0, s.dtype)
    a = q
    for _ in range(12):
        total = total + E.pow_(a, -s)
        a = a + 1.0
    power = E.pow_(a, -s)
    total = total + power * a / (s - 1.0) + 0.5 * power
    factor, shrink = s, power / a
    k = 0.0
    for b in _BERNOULLI:
        total = total + factor * shrink / b
        k += 1.0
        factor = factor * (s + k)
        k += 1.0
        factor = factor * (s + k)
        shrink = shrink / (a * a)
    whole = q == E.floor(q)
    nan, inf = const(math.nan, s.dtype), const(math.inf, s.dtype)
    out = where(q <= 0.0, where(whole, inf, where(s == E.floor(s), total, nan)), total)
    return where(s == 1.0, inf, where(s < 1.0, nan, out))

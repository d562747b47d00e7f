"""Bessel, Airy and error functions and the Hurwitz zeta as formulas over the primitives.

Chebyshev series on ranges (tables by tools/fit_special.py), with the exact leading behaviour taken out. Most are worked out in
double for all types; of the others, what singles do not need of a series is left out for them.  Large arguments: Hankel's
expansions (Abramowitz and Stegun 9.2, 9.7, 10.4).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..dtypes import float64
from . import bessel_tables as T
from . import coefficients
from . import expr as E
from .expr import Expr, const, where
from .special import in_double, polynomial, series, short

if TYPE_CHECKING:
    from collections.abc import Callable


def _growing(order: int, a: Expr) -> Expr:
    """I of order 0 or 1 for a <= 8: sums of what is positive, which lose nothing."""
    table = {(0, False): T.I0_POWERS, (0, True): T.I0_POWERS_SHORT, (1, False): T.I1_POWERS, (1, True): T.I1_POWERS_SHORT}[order, short()]
    v = a * a * 0.25
    made = v * polynomial(v, table) + 1.0
    return made if order == 0 else a * 0.5 * made


def _grown(order: int, a: Expr) -> Expr:
    """exp(-a) I for a > 8."""
    return series(_cut(T.I0E_HIGH if order == 0 else T.I1E_HIGH), 16.0 / a - 1.0) / E.sqrt(a)


def _shorter(table: tuple[float, ...], error: float = 1e-11) -> tuple[float, ...]:
    """As much of a series as this relative error needs."""
    least = error * max(abs(c) for c in table)
    return table[:max(j for j, c in enumerate(table) if abs(c) > least) + 1]


def _cut(table: tuple[float, ...]) -> tuple[float, ...]:
    """As much of a series without zeros as the result's type needs."""
    return _shorter(table) if short() else table


@in_double
def i0e(x: Expr) -> Expr:
    """exp(-|x|) I0(x)."""
    a = abs(x)
    return where(a <= 8.0, _growing(0, a) * E.exp(-a), _grown(0, a))


@in_double
def i1e(x: Expr) -> Expr:
    """exp(-|x|) I1(x)."""
    a = abs(x)
    return where(a <= 8.0, _growing(1, x) * E.exp(-a), E.copysign(_grown(1, a), x))


@in_double
def i0(x: Expr) -> Expr:
    return _i(0, abs(x))


@in_double
def i1(x: Expr) -> Expr:
    return where(abs(x) <= 8.0, _growing(1, x), E.copysign(_i(1, abs(x)), x))  # near 0 without |x|, which has no slope there


def _i(order: int, a: Expr) -> Expr:
    beyond = E.exp(E.maximum(a - 700.0, const(0, a.dtype)))  # as exp(a) overflows earlier than the result
    return where(a <= 8.0, _growing(order, a), _grown(order, a) * E.exp(E.minimum(a, const(700, a.dtype))) * beyond)


def _k(order: int, x: Expr, scaled: bool) -> Expr:
    low_table, high_table = (T.K0_LOW, T.K0_HIGH) if order == 0 else (T.K1_LOW, T.K1_HIGH)
    u = series(low_table, x * x * 0.5 - 1.0)
    near = u - E.log(x * 0.5) * _growing(0, x) if order == 0 else E.log(x * 0.5) * _growing(1, x) + u / x
    if order == 0 and not short():
        v = x * x * 0.25  # below 1 by what does not cancel
        near = where(x <= 1.0, polynomial(v, T.K0_POWERS) - E.log(x) * _growing(0, x), near)
    far = series(_cut(high_table), 4.0 / x - 1.0) / E.sqrt(x)
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


def _j_low(order: int, x: Expr) -> Expr:
    """J0(x), or J1(x) / x, for |x| < 8."""
    u = x * x
    made = series(T.J0_LOW if order == 0 else T.J1_LOW, u * (1 / 32) - 1.0)
    if short():
        return made
    v = u * 0.25
    near = v * polynomial(v, T.J0_POWERS if order == 0 else T.J1_POWERS) + 1.0
    return where(v <= 1.0, near if order == 0 else 0.5 * near, made)


@in_double
def j0(x: Expr) -> Expr:
    a = abs(x)
    return _ended(a, where(a < 8.0, _j_low(0, a), _hankel(0, a)[0]))


@in_double
def j1(x: Expr) -> Expr:
    a = abs(x)
    high = _hankel(1, a)[0]
    return _ended(a, where(a < 8.0, x * _j_low(1, a), where(x < 0.0, -high, high)))


def _y(order: int, x: Expr) -> Expr:
    t = x * x * (1 / 32) - 1.0
    two = 2.0 / math.pi
    if order == 0:
        low = series(T.Y0_LOW, t)
        if not short():
            low = where(x <= 1.0, polynomial(x * x * 0.25, T.Y0_POWERS), low)
        near = low + two * E.log(x) * _j_low(0, x)
    else:
        near = x * series(T.Y1_LOW, t) + two * (E.log(x) * x * _j_low(1, x) - 1.0 / x)
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
    near: Expr = const(1, x.dtype)
    for k in range(8 if x.dtype.name == "float64" else 4, 0, -1):
        near = 1.0 - u * (1 / (2 * k * (2 * k + 1))) * near
    return _ended(abs(x), where(abs(x) < 0.5, near, E.sin(x) / x))


@in_double
def airy_ai(x: Expr) -> Expr:
    a = abs(x)
    root = E.sqrt(a)
    zeta = (2 / 3) * a * root
    fourth = E.sqrt(root)
    high, low = 2 / 3 * 2 ** 1.5, 2 / 3 * 3 ** 1.5
    decay = series(_cut(T.AIRY_HIGH), 2.0 * high / zeta - 1.0) * E.exp(-zeta) / (2.0 * math.sqrt(math.pi) * fourth)
    t = 2.0 * low * low / (zeta * zeta) - 1.0
    s, c = E.sin(zeta), E.cos(zeta)
    wave = (series(T.AIRY_LOW_P, t) * (c + s) + series(T.AIRY_LOW_Q, t) / zeta * (s - c)) / (math.sqrt(2.0 * math.pi) * fourth)
    middle = series(T.AIRY_MIDDLE, (x + 0.5) * 0.4)
    out = where(x > 2.0, decay, where(x < -3.0, wave, middle))
    return where(x == math.inf, const(0, x.dtype), where(x == -math.inf, const(0, x.dtype), out))


def erfcx(x: Expr) -> Expr:
    """exp(x²) erfc(x): Shepherd and Laframboise's series in (x - k) / (x + k), k = 3.75 (1981), of (1 + 2 x) erfcx(x)."""
    out = _erfcx_above(abs(x))
    return where(x < 0.0, 2.0 * E.exp(x * x) - out, out)


def _erfcx_above(x: Expr) -> Expr:
    """erfcx for x >= 0."""
    far = x > 1e6
    safe = where(far, const(1, x.dtype), x)
    return where(far, (1.0 / math.sqrt(math.pi)) / x, series(T.ERFCX, (safe - 3.75) / (safe + 3.75)) / (1.0 + 2.0 * safe))


def ndtr(x: Expr) -> Expr:
    """The standard normal distribution function."""
    return 0.5 * E.erfc(x * -math.sqrt(0.5))


def log_ndtr(x: Expr) -> Expr:
    """log of `ndtr`, exact in both tails."""
    z = x * -math.sqrt(0.5)
    return where(x < -1.0, E.log(0.5 * erfcx(z)) - z * z, E.log1p(-0.5 * E.erfc(-z)))


@in_double
def ndtri(p: Expr) -> Expr:
    """The inverse of `ndtr`: by its odd series about 1/2, and in the tails by one in t = sqrt(-2 log(q)), where doubles need one step of Halley's
    beside, which cubes its error."""
    low = p < 0.5
    q = where(low, p, 1.0 - p)  # the nearer tail
    w, more = _ndtri_tail(q)
    root_2 = math.floor(math.sqrt(2.0) * 2.0 ** 25) / 2.0 ** 25  # of few bits, so that its product is exact
    left = math.sqrt(2.0) - root_2 - 9.667293313452913e-17
    x = w * root_2 + (w * left + math.sqrt(2.0) * more)
    x = where(q > 0.1, _ndtri_middle(p - 0.5), where(low, -x, x))
    x = where(p == 0.0, const(-math.inf, p.dtype), where(p == 1.0, const(math.inf, p.dtype), x))
    return where((p < 0.0) | (p > 1.0), const(math.nan, p.dtype), x)


def _ndtri_middle(y: Expr) -> Expr:
    """`ndtri` of y + 1/2, for |y| <= 0.4."""
    return y * series(_cut(T.NDTRI_MIDDLE), y * y * 12.5 - 1.0)


def _ndtri_tail(q: Expr) -> tuple[Expr, Expr]:
    """Minus `ndtri` of q over the root of 2, for 0 < q <= 1/2, as a number of 26 bits and what is to be added."""
    t = E.sqrt(-2.0 * E.log(q))
    first, last = -0.304, 0.814  # between which (t - 4) / (t + 4) lies
    place = ((t - 4.0) / (t + 4.0) * 2.0 - (last + first)) * (1.0 / (last - first))
    w = math.sqrt(0.5) * (t - series(_shorter(T.NDTRI_TAIL, 1e-11 if short() else 1e-9), place))
    if short():
        return w, const(0, q.dtype)
    # the relative error of the tail, whose slope is -phi: erfcx keeps both sides from vanishing. w is cut to 26 bits, so that its square is exact.
    split = w * (2.0 ** 27 + 1.0)
    w = split - (split - w)
    half = E.exp(w * w * 0.5)  # as exp(w * w) may lie beyond all doubles
    error = (0.5 * _erfcx_above(w) - q * half * half) * math.sqrt(math.pi)
    return w, error / (1.0 - w * error)


def erfinv(y: Expr) -> Expr:
    """The inverse of erf: in float64 by what `ndtri` is made of; otherwise y times a polynomial in log(1 - y^2) (Giles, "Approximating the erfinv
    function")."""
    if y.dtype.name != "float64":
        return _erfinv_single(y)
    size = abs(y)
    w, more = _ndtri_tail(0.5 - 0.5 * size)
    x = where(size < 0.8, _ndtri_middle(0.5 * size) * math.sqrt(0.5), where(size == 1.0, const(math.inf, y.dtype), w + more))
    return where(y == 0.0, y, where(size > 1.0, const(math.nan, y.dtype), E.copysign(x, y)))


def _erfinv_single(y: Expr) -> Expr:
    low = -E.log((1.0 - y) * (1.0 + y))
    w, far = E.cast(low, float64), E.cast(E.sqrt(low) - 3.0, float64)  # the sums in double, as each of their roundings would show
    made = where(w < 5.0, polynomial(w, coefficients.ERFINV_NEAR_32), polynomial(far, coefficients.ERFINV_FAR_32))
    made = E.cast(E.cast(y, float64) * made, y.dtype)
    size = abs(y)
    made = where(size < 1.0, made, where(size == 1.0, E.copysign(const(math.inf, y.dtype), y), const(math.nan, y.dtype)))
    return where(y == 0.0, y, made)


_BERNOULLI = (12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
              1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18)
"""(2k)! / B_2k for k = 1 ... 12."""


def _zeta_above(s: Expr, q: Expr, power: Callable[..., Expr]) -> Expr:
    """zeta for q > 0, by Euler and Maclaurin's formula after 12 terms; `power` takes a to a ** -s, and with 1 to a ** (1 - s), which is there where
    a ** -s has vanished."""
    total = power(q) if short() else E.pow_(q, -s)  # the largest term
    a = q + 1.0
    for _ in range(11):
        total = total + power(a)
        a = a + 1.0
    last = power(a)
    total = total + power(a, 1) / (s - 1.0) + 0.5 * last
    factor, shrink = s, last / a
    k = 0.0
    for b in _BERNOULLI:
        total = total + factor * shrink / b
        k += 1.0
        factor = factor * (s + k)
        k += 1.0
        factor = factor * (s + k)
        shrink = shrink / (a * a)
    return total


def _zeta_everywhere(s: Expr, q: Expr, power: Callable[..., Expr], odd: Expr) -> Expr:
    """With the sum's terms below 0 put together from those of their sizes: q = r - m for a whole m, 0 < r < 1."""
    below = q < 0.0
    turn = q - E.round_(q)  # exact, and so is what is near a pole
    one = const(1, q.dtype)
    rest = where(turn < 0.0, -turn, 1.0 - turn)  # 1 - r
    beside = _zeta_above(s, where(below, rest, one), power) - _zeta_above(s, where(below, 1.0 - q, one), power)
    out = _zeta_above(s, where(below, where(turn < 0.0, 1.0 + turn, turn), q), power)
    out = where(below, out + where(odd == 0.0, beside, -beside), out)
    return where(q < math.inf, out, const(math.nan, q.dtype))  # PyTorch has no limit there


@in_double
def zeta(s: Expr, q: Expr) -> Expr:
    """Hurwitz's zeta, the sum over k >= 0 of (k + q)^-s; for q < 0 where s is whole."""
    out = _zeta_everywhere(s, q, lambda a, less=0: E.exp((less - s) * E.log(a)) if short() else E.pow_(a, less - s), s - 2.0 * E.floor(s * 0.5))
    nan, inf = const(math.nan, s.dtype), const(math.inf, s.dtype)
    out = where(q <= 0.0, where(q == E.floor(q), inf, where(s == E.floor(s), out, nan)), out)
    return where(s == 1.0, inf, where(s < 1.0, nan, out))


def polygamma(n: int, x: Expr) -> Expr:
    """The derivative of digamma of order n >= 2."""
    return in_double(lambda y: _polygamma(n, y))(x)


def _polygamma(n: int, x: Expr) -> Expr:
    size = float(math.factorial(n)) if n < 170 else math.inf
    s = const(n + 1.0, x.dtype)

    def power(a: Expr, less: int = 0) -> Expr:
        made, factor, left = None, a, n + 1 - less
        while left:
            if left & 1:
                made = factor if made is None else made * factor
            factor, left = factor * factor, left >> 1
        assert made is not None
        return 1.0 / made
    total = _zeta_everywhere(s, x, power, const((n + 1) % 2, x.dtype))
    return where((x <= 0.0) & (x == E.floor(x)), const(math.inf, x.dtype), total) * (size if n % 2 else -size)

"""Transcendental functions as formulas: argument reduction and polynomials (`coefficients`), no table and no call.

Each renderer writes them in its own language (`values.Value`), so that all renderers give the same bits.  All functions of float32 are
written so; the less frequent ones are computed in float64 and rounded, which makes them nearly correctly rounded.  All of float64 but
lgamma are written so too; that and nextafter call the target's library.

The reductions are the classical ones: Cody and Waite's with fused multiply-adds (J.-M. Muller, "Elementary Functions",
3rd ed., chapters 9 to 11), and for the logarithm in double the symmetric form in f / (2 + f).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..dtypes import float32, float64
from . import coefficients as table

if TYPE_CHECKING:
    from collections.abc import Callable

    from .values import Mask, Value


class _Constants:
    """What differs between the two types.

    magic: adding it rounds to a whole number, found in the sum's low bits; *_hi + *_lo: a number in two parts, of which
    the first has zeros enough at its end that its product with an exponent is exact; half_pi: three parts;
    angles: pi/2 in two parts, the second
    the nearest; exp_range, exp2_range: outside, the function is 0 or overflows; whole: below it 1 + x is 1.
    """

    def __init__(self, double: bool) -> None:
        self.magic = 1.5 * 2.0 ** (52 if double else 23)
        self.magic_bits = 0x4338000000000000 if double else 0x4B400000
        self.mantissa, self.bias = (52, 1023) if double else (23, 127)
        self.least_normal = 2.0 ** (1 - self.bias)
        self.root_half_bits = 0x3FE6A09E667F3BCD if double else 0x3F3504F3
        self.exp_range = (-746.0, 710.0) if double else (-104.0, 89.0)
        self.exp2_range = (-1076.0, 1025.0) if double else (-151.0, 129.0)
        self.expm1_least = -40.0 if double else -20.0
        self.whole = 2.0 ** -54 if double else 2.0 ** -25
        self.tanh_most, self.erf_most = (20.0, 6.0) if double else (10.0, 4.0)
        self.trig_most = 1e6 if double else 30000.0
        if double:
            self.ln2_hi, self.ln2_lo = 0.6931471805598903, 5.497923018708371e-14
            self.log2e_lo, self.log10e_lo = 2.0355273740931033e-17, 6.649434773342547e-17
            self.lg2_hi, self.lg2_lo = 0.30102999566395283, 2.8363394551044964e-14
            self.half_pi = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
            self.angles = self.half_pi[:2]
        else:
            self.ln2_hi, self.ln2_lo = 0.693145751953125, 1.428606765330187e-06
            self.log2e_lo, self.log10e_lo = 1.925963033500011e-08, -1.0103049952192578e-08
            self.lg2_hi, self.lg2_lo = 0.30103302001953125, -3.024355464731343e-06
            self.half_pi = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
            self.angles = (1.5707963705062866, -4.371139000186241e-08)


_OF_DOUBLE, _OF_SINGLE = _Constants(True), _Constants(False)


def _of(x: Value) -> _Constants:
    return _OF_DOUBLE if x.d is float64 else _OF_SINGLE


def _poly(x: Value, name: str) -> Value:
    coefficients: tuple[float, ...] = getattr(table, f"{name}_{8 * x.d.itemsize}")
    return x.polynomial(coefficients)


def own(op: str, values: list[Value]) -> Value | None:
    """The function by a formula in the values' own precision; None where there is none."""
    formula = _BOTH.get(op) or (_SINGLE if values[0].d is float32 else _DOUBLE).get(op)
    return None if formula is None else formula(*values)


def in_double(op: str, values: list[Value]) -> Value | None:
    """The function of singles by a formula in double; None where there is none."""
    formula = _SINGLE_ONLY.get(op)
    if formula is None or values[0].d is float64:
        return None
    return formula(*(v.to(float64) for v in values)).to(float32)


# ------------------------------------------------------------------------------------------------------- exponentials
def _reduced(x: Value) -> tuple[Value, Value, Value]:
    """n, its integer and r of x = n log(2) + r."""
    k = _of(x)
    t = x.fma(1 / math.log(2.0), k.magic)
    n = t - k.magic
    return n, t.bits() - k.magic_bits, n.fma(-k.ln2_lo, n.fma(-k.ln2_hi, x))


def _exp(x: Value) -> Value:
    low, high = _of(x).exp_range
    n, bits, r = _reduced(x.at_least(low).at_most(high))
    return ((r * r).fma(_poly(r, "EXP"), r) + 1.0).times_power(n, bits)


def _exp_near(x: Value) -> Value:
    """The same to the bit for |x| <= 87, or 700 in double, where the result is a normal number."""
    _, bits, r = _reduced(x)
    return ((r * r).fma(_poly(r, "EXP"), r) + 1.0).times_near_power(bits)


def _exp2(x: Value) -> Value:
    k = _of(x)
    x = x.at_least(k.exp2_range[0]).at_most(k.exp2_range[1])
    t = x + k.magic
    n = t - k.magic
    r = x - n
    return r.fma(_poly(r, "EXP2"), 1.0).times_power(n, t.bits() - k.magic_bits)


def _expm1(x: Value) -> Value:
    k = _of(x)
    x = x.at_least(k.expm1_least).at_most(k.exp_range[1])
    t = x.fma(1 / math.log(2.0), k.magic)
    n, bits = t - k.magic, t.bits() - k.magic_bits
    first = n.fma(-k.ln2_hi, x)
    r = n.fma(-k.ln2_lo, first)
    lost = n.fma(-k.ln2_lo, first - r)  # by rounding r, which would count twice where the sum below cancels
    rest = (r * r).fma(_poly(r, "EXPM1"), lost)
    # half of the result, as 2**n itself may be out of range
    power = ((bits + (k.bias - 1)) << k.mantissa).floats()
    whole = power - 0.5
    near = r.fma(power, whole)
    off = r.fma(power, whole - near) + (power - whole - 0.5)  # what rounding took from both: exact, as `whole` is 0 or the larger part
    result = (rest.fma(power, off) + near) * 2.0
    return (abs(x) < k.whole).pick(x, result)


def _tanh(x: Value) -> Value:
    a, k = abs(x), _of(x)
    z = a * a
    near = (a * z).fma(_poly(z, "TANH"), a)
    far = 1.0 - 2.0 / (_exp_near((a + a).at_most(2 * k.tanh_most)) + 1.0)
    return (a < 0.625).pick(near, far).sign_of(x)


def _half_exp(a: Value) -> tuple[Value, Value, Value]:
    """exp(a) / 2 in two parts, and exp(-a) / 2; for an a that is not negative."""
    n, bits, r = _reduced(a.at_most(711.0))  # whose half overflows
    w = (r * r).fma(_poly(r, "EXP"), r)
    e = w + 1.0
    low = (1.0 - e) + w
    high = e.times_power(n - 1.0, bits - 1)
    return high, (high < math.inf).pick(low.times_power(n - 1.0, bits - 1), 0.0), 0.25 / high


def _sinh_double(x: Value) -> Value:
    a = abs(x)
    z = a * a
    near = (a * z).fma(_poly(z, "SINH"), a)
    high, low, inverse = _half_exp(a)
    far = high - inverse
    far = far + ((high < math.inf).pick((high - far) - inverse, 0.0) + low)
    return (a < 1.0).pick(near, far).sign_of(x)


def _cosh_double(x: Value) -> Value:
    high, low, inverse = _half_exp(abs(x))
    return high + (inverse + low)


def _sinh(x: Value) -> Value:
    a = abs(x)
    e, z = _exp(a), a * a
    near = (a * z).fma(z.fma(1 / 120, 1 / 6), a)
    return (a < 0.01).pick(near, (e - 1.0 / e) * 0.5).sign_of(x)


def _cosh(x: Value) -> Value:
    e = _exp(abs(x))
    return (e + 1.0 / e) * 0.5


# --------------------------------------------------------------------------------------------------------- logarithms
def _log_parts(x: Value) -> tuple[Value, Value, Value]:
    """k, f, y with log(x) = k log(2) + f + y, y being small against f; for positive finite x."""
    c = _of(x)
    small = x < c.least_normal
    bits = small.pick(x * 2.0 ** c.mantissa, x).bits()
    k = (bits - c.root_half_bits) >> c.mantissa
    f = (bits - (k << c.mantissa)).floats() - 1.0
    exponent = k.to(x.d) + small.pick(x.of(x.lift(-float(c.mantissa))), 0.0)
    z = f * f
    if x.d is float32:
        return exponent, f, z.fma(-0.5, (z * f) * _poly(f, "LOG"))
    s = f / (f + 2.0)
    w, half = s * s, z * 0.5
    return exponent, f, s * (half + w * _poly(w, "LOG_SYMMETRIC")) - half


def _checked(x: Value, zero: float, result: Value) -> Value:
    """A logarithm's result where x is beyond `zero` and finite; there -inf, below NaN, and x where it is inf or NaN."""
    odd = x.equals(zero).pick(x.of(x.lift(-math.inf)), (x < zero).pick(x.of(x.lift(math.nan)), x))
    return ((x > zero) & (x < math.inf)).pick(result, odd)


def _log(x: Value) -> Value:
    c = _of(x)
    k, f, y = _log_parts(x)
    return _checked(x, 0.0, k.fma(c.ln2_hi, f + k.fma(c.ln2_lo, y)))


def _log1p(x: Value) -> Value:
    c = _of(x)
    u = x + 1.0
    back = u - 1.0
    lost = (1.0 - (u - back)) + (x - back)
    k, f, y = _log_parts(u)
    result = k.fma(c.ln2_hi, f + k.fma(c.ln2_lo, y + lost / u))
    return (abs(x) < c.whole).pick(x, _checked(x, -1.0, result))


_WIDE = 2.0 ** 28  # from there on the square of a double is the same with 1 added


def _log1p_or_log2x(t: Value, low: Value, far: Mask, x: Value) -> Value:
    """log(1 + t + low), where low is small against t; where `far`, log(2 x). Of finite doubles that are not negative."""
    c = _OF_DOUBLE
    u = t + 1.0
    back = u - 1.0
    lost = far.pick(0.0, ((1.0 - (u - back)) + (t - back) + low) / u)
    k, f, y = _log_parts(far.pick(x, u))
    k = k + far.pick(x.of(x.lift(1.0)), 0.0)
    return k.fma(c.ln2_hi, f + k.fma(c.ln2_lo, y + lost))


def _asinh_double(x: Value) -> Value:
    a = abs(x)
    far = a > _WIDE
    near = a.at_most(_WIDE)
    z = near * near
    more = z / ((z + 1.0).sqrt() + 1.0)
    t = near + more
    result = _log1p_or_log2x(t, (near - t) + more, far, a)
    # where a is small, of log(1 + t) what both roundings leave would show: t - t^2/2 is a, but for a^3/6
    result = (a < 0.125).pick((a * z).fma(_poly(z, "ASINH"), a), result)
    return (a < math.inf).pick(result, a).sign_of(x)


def _acosh_double(x: Value) -> Value:
    far = x > _WIDE
    t = x.at_most(_WIDE) - 1.0
    root = (t * (t + 2.0)).sqrt()
    total = t + root
    result = _log1p_or_log2x(total, (root - total) + t, far, x)
    return ((x >= 1.0) & (x < math.inf)).pick(result, x.equals(math.inf).pick(x, x.of(x.lift(math.nan))))


def _atanh_double(x: Value) -> Value:
    """Half of log((1 + a) / (1 - a)): with 2**k near that quotient it is k log(2)/2 and atanh(s) for the quotient s of 1 + a less
    2**k (1 - a) by their sum, which is a itself where k is 0."""
    a = abs(x)
    usual = a < 1.0
    n, d = a + 1.0, 1.0 - a
    n_low, d_low = a - (n - 1.0), (1.0 - d) - a
    # the difference of the bits is that of the logarithms but for a twelfth
    bits = (n.bits() - d.bits() + (0x3FF0000000000000 - _OF_DOUBLE.root_half_bits)) >> 52
    power, k = ((bits + 1023) << 52).floats(), bits.to(x.d)
    first, second = (-d).fma(power, n), (-d_low).fma(power, n_low)
    over = first + second
    over_low = (first - over) + second
    first, second = d.fma(power, n), d_low.fma(power, n_low)
    under = first + second
    under_low = (first - under) + second
    s = over / under
    low = ((-s).fma(under, over) + (-s).fma(under_low, over_low)) / under
    z = s * s
    whole = k * (_OF_DOUBLE.ln2_hi / 2)
    total = whole + s
    rest = (whole - total) + s
    total = total + (rest + (s * z).fma(_poly(z, "ATANH"), k.fma(_OF_DOUBLE.ln2_lo / 2, low)))
    return usual.pick(total, a.equals(1.0).pick(math.inf, x.of(x.lift(math.nan)))).sign_of(x)


def _in_base(x: Value, per_e: float, per_e_lo: float, per_2: float, per_2_lo: float) -> Value:
    k, f, y = _log_parts(x)
    r = f + y
    rest = (f - r) + y
    p = r * per_e
    error = rest.fma(per_e, r.fma(per_e_lo, r.fma(per_e, -p)))
    whole = k * per_2
    total = whole + p
    return _checked(x, 0.0, total + (((whole - total) + p) + k.fma(per_2_lo, error)))


def _log2(x: Value) -> Value:
    return _in_base(x, 1 / math.log(2.0), _of(x).log2e_lo, 1.0, 0.0)


def _log10(x: Value) -> Value:
    c = _of(x)
    return _in_base(x, 1 / math.log(10.0), c.log10e_lo, c.lg2_hi, c.lg2_lo)


def _asinh(x: Value) -> Value:
    a = abs(x)
    z = a * a
    near = (a * z).fma(z.fma(3 / 40, -1 / 6), a)
    return (a < 0.01).pick(near, _short_log(a + (z + 1.0).sqrt())).sign_of(x)


def _acosh(x: Value) -> Value:
    return (x < 1.0).pick(x.of(x.lift(math.nan)), _short_log(x + ((x - 1.0) * (x + 1.0)).sqrt()))


def _atanh(x: Value) -> Value:
    z = x * x
    near = (x * z).fma(z.fma(1 / 5, 1 / 3), x)
    a = abs(x)
    # both sums are exact, and the logarithms add up
    far = (_short_log2(a + 1.0) - _short_log2(1.0 - a)) * (math.log(2.0) / 2)
    far = (a < 1.0).pick(far, a.equals(1.0).pick(math.inf, x.of(x.lift(math.nan))))
    return (a < 0.001).pick(near, far).sign_of(x)


def _short_log2(x: Value) -> Value:
    """log2 of a positive finite number that comes from a single, in double, to 41 bits: no division, and no number is too small to be normal."""
    c, bits = _OF_DOUBLE, x.bits()
    k = (bits - c.root_half_bits) >> c.mantissa
    f = (bits - (k << c.mantissa)).floats() - 1.0
    return f.fma(_poly(f, "SHORT_LOG2"), k.to(x.d))


def _short_log(x: Value) -> Value:
    """The logarithm of a number that is not negative, of 41 bits as `_short_log2`."""
    value = (x < math.inf).pick(_short_log2(x) * math.log(2.0), x)
    return x.equals(0.0).pick(x.of(x.lift(-math.inf)), value)


def _short_exp2(x: Value) -> Value:
    """2**x in double, to 40 bits, where it is in the range of singles, and there only."""
    c = _OF_DOUBLE
    x = x.at_least(-152.0).at_most(130.0)
    t = x + c.magic
    return _poly(x - (t - c.magic), "SHORT_EXP2") * (((t.bits() - c.magic_bits) + c.bias) << c.mantissa).floats()


def _power(x: Value, y: Value, size: Callable[[Value], Value]) -> Value:
    """x**y by `size`, |x|**y for an |x| that is neither 1 nor of a y of 0."""
    a = abs(x)
    whole = y.nearest().equals(y)
    half = y * 0.5
    odd = whole & half.nearest().differs(half)
    made = (a.equals(1.0) & y.equals(y)).pick(1.0, size(a))
    made = odd.pick(made.sign_of(x), made)
    made = ((x < 0.0) & y.nearest().differs(y) & (a < math.inf)).pick(x.of(x.lift(math.nan)), made)
    return (y.equals(0.0) | x.equals(1.0)).pick(1.0, made)


def _pow_single(x: Value, y: Value) -> Value:
    def size(a: Value) -> Value:
        # in double: y log2|x| has 41 bits, of which a float32 result needs 24 after at most 8 before the point
        log = a.equals(0.0).pick(a.of(a.lift(-math.inf)), (a < math.inf).pick(_short_log2(a), a))
        return _short_exp2(log * y)
    return _power(x, y, size)


_LN2 = (0.6931471805599453, 2.3190468138462996e-17)
_TWO_BY_LN2 = (2.8853900817779268, 4.0710547481862066e-17)
_TWO_BY_3_LN2 = (0.9617966939259756, 5.0577616648125907e-17)


def _log2_in_two(x: Value) -> tuple[Value, Value]:
    """log2 of a number that is not negative, in double, in two parts which together have 64 bits."""
    c = _OF_DOUBLE
    small = x < c.least_normal
    bits = small.pick(x * 2.0 ** c.mantissa, x).bits()
    whole = (bits - c.root_half_bits) >> c.mantissa
    f = (bits - (whole << c.mantissa)).floats() - 1.0
    k = whole.to(x.d) + small.pick(x.of(x.lift(-float(c.mantissa))), 0.0)
    d = f + 2.0
    inverse = 1.0 / d
    s = f * inverse
    s_low = ((-s).fma(d, f) - s * (f - (d - 2.0))) * inverse
    z = s * s
    z_low = s.fma(s, -z) + (s + s) * s_low
    cube = z * s
    cube_low = z.fma(s, -cube) + (z * s_low + z_low * s)
    t, u = s * _TWO_BY_LN2[0], cube * _TWO_BY_3_LN2[0]
    low = s.fma(_TWO_BY_LN2[0], -t) + s_low.fma(_TWO_BY_LN2[0], s * _TWO_BY_LN2[1])
    low = low + (cube.fma(_TWO_BY_3_LN2[0], -u) + cube_low.fma(_TWO_BY_3_LN2[0], cube * _TWO_BY_3_LN2[1]) + cube * z * _poly(z, "LOG2_TAIL"))
    near = t + u
    high = k + near
    low = (near - (high - k)) + ((u - (near - t)) + low)
    total = high + low
    low = low - (total - high)
    odd = x.equals(0.0).pick(x.of(x.lift(-math.inf)), x)
    usual = (x > 0.0) & (x < math.inf)
    return usual.pick(total, odd), usual.pick(low, 0.0)


def _pow(x: Value, y: Value) -> Value:
    def size(a: Value) -> Value:
        high, low = _log2_in_two(a)
        p = y * high
        rest = (abs(p) < 1100.0).pick(y.fma(high, -p) + y * low, 0.0)
        c = _OF_DOUBLE
        p = p.at_least(c.exp2_range[0]).at_most(c.exp2_range[1])
        t = p + c.magic
        n = t - c.magic
        exact = p - n
        part = exact + rest
        r = part * _LN2[0]
        low = part.fma(_LN2[0], -r) + (part * _LN2[1] + (rest - (part - exact)) * _LN2[0])
        return (((r * r).fma(_poly(r, "EXP"), low) + r) + 1.0).times_power(n, t.bits() - c.magic_bits)
    return _power(x, y, size)


# ------------------------------------------------------------------------------------------------------ error function
def _erf(x: Value) -> Value:
    a = abs(x)
    z = a * a
    near = a.fma(_poly(z, "ERF"), a)
    far = a.at_most(_of(x).erf_most)
    tail = _erfc_far(far) if x.d is float64 else _exp_near(_poly(far, "LOG_ERFC"))
    return (a < (1.0 if x.d is float64 else 0.93)).pick(near, 1.0 - tail).sign_of(x)


def _erfc_far(a: Value, name: str = "SCALED_ERFC") -> Value:
    """erfc of a number that is at least 0 and at most 26; relatively, the exponential's argument costs a**2 units of the last place."""
    t = (a - 4.0) / (a + 4.0)
    return _poly(t, name) / a.fma(2.0, 1.0) * _exp_near(-(a * a))


def _erfc(x: Value) -> Value:
    a = abs(x)
    far = a.at_most(28.0)  # 0 from 27.3 on
    t = (far - 4.0) / (far + 4.0)
    first, *rest = table.SCALED_ERFC_64
    rest_of = t.polynomial(rest)
    p, q = t.fma(rest_of, first), far.fma(2.0, 1.0)
    quotient = p / q
    # each sum's, quotient's and square's rounding, which the exponential would multiply by the argument's size
    rest_lost = t.fma(rest_of, first - p) - quotient * far.fma(2.0, 1.0 - q) + (-quotient).fma(q, p)
    z = far * far
    n, bits, r = _reduced(-z)
    w = (r * r).fma(_poly(r, "EXP"), r)
    e = w + 1.0
    low = (w - (e - 1.0)) - e * far.fma(far, -z)
    high = quotient * e
    tail = (high + (quotient.fma(e, -high) + quotient.fma(low, rest_lost / q * e))).times_power(n, bits)
    near = 1.0 - x.fma(_poly(x * x, "ERF"), x)
    return (a < 0.5).pick(near, (x < 0.0).pick(2.0 - tail, tail))


def _erfc_single(x: Value) -> Value:
    # in double, for results in single: those are 0 from 10.2 on
    tail = _erfc_far(abs(x).at_most(10.5), "SHORT_ERFC")
    return (x < 0.0).pick(2.0 - tail, tail)


def lgamma_for_single(x: Value) -> Value:
    """log |gamma(x)| in double, for results in single: Stirling's formula from 4 on, the recurrence below, the reflection for negative x; what these
    multiply is one logarithm's argument."""
    a = abs(x)
    below = a < 4.0
    product = below.pick(a * (a + 1.0) * ((a + 2.0) * (a + 3.0)), 1.0)
    y = below.pick(a + 4.0, a)
    u = 1.0 / y
    # (y - 1/2) (log(y) - 1) + log(2 pi) / 2 - 1/2 + p(1 / y**2) / y: infinity stays
    stirling = (y - 0.5) * (_log(y) - 1.0) + (_poly(u * u, "STIRLING") * u + 0.4189385332046727418)
    turn = a - a.nearest()
    z = turn * turn
    factor = (turn * z).fma(_poly(z, "SIN_PI"), turn * math.pi) * a  # a sin(pi a), up to its sign
    left = x < 0.0
    front = _log(left.pick(abs(product * math.pi / factor), 1.0 / product))
    value = left.pick(front - stirling, front + stirling)
    value = (x.equals(1.0) | x.equals(2.0)).pick(0.0, value)
    return a.equals(math.inf).pick(math.inf, value)


# -------------------------------------------------------------------------------------------------------- trigonometry
def _circle(x: Value) -> tuple[Value, Value, Value]:
    """sin and cos of x less a multiple of pi/2, and the multiple's integer."""
    k = _of(x)
    t = x.fma(2 / math.pi, k.magic)
    n = t - k.magic
    r = x
    for part in k.half_pi:
        r = n.fma(-part, r)
    z = r * r
    sine = (r * z).fma(_poly(z, "SIN"), r)
    return sine, (z * z).fma(_poly(z, "COS"), z.fma(-0.5, 1.0)), t.bits()


def _turned(value: Value, quadrant: Value) -> Value:
    """The value, with the other sign where bit 1 of the quadrant is set."""
    return (value.bits() ^ ((quadrant & 2) << (8 * value.d.itemsize - 2))).floats()


def _sin(x: Value) -> Value:
    sine, cosine, quadrant = _circle(x)
    value = _turned((quadrant & 1).equals(0).pick(sine, cosine), quadrant)
    return _unless_huge(x, "sin", x.equals(0.0).pick(x, value))  # the reduction loses the sign of -0


def _cos(x: Value) -> Value:
    sine, cosine, quadrant = _circle(x)
    return _unless_huge(x, "cos", _turned((quadrant & 1).equals(0).pick(cosine, sine), quadrant + 1))


def _tan(x: Value) -> Value:
    """With what the reduction and the polynomial's sum lose carried along, as the quotient doubles it."""
    k = _of(x)
    t = x.fma(2 / math.pi, k.magic)
    n = k.magic - t
    first = n.fma(k.half_pi[0], x)  # exact
    second = n * k.half_pi[1]
    near = first + second
    part = near - first
    # what that sum and that product lost (Knuth's two-sum), and the third part of pi / 2
    lost = (first - (near - part)) + (second - part) + n.fma(k.half_pi[1], -second) + n * k.half_pi[2]
    r = near + lost
    low = (near - r) + lost
    z = r * r
    rest = r * z * _poly(z, "TAN")
    tangent = r + rest
    low = (r - tangent) + rest + low * tangent.fma(tangent, 1.0)
    q = -1.0 / tangent
    turned = q.fma(q.fma(tangent, 1.0) + q * low, q)
    value = (t.bits() & 1).equals(0).pick(tangent + low, turned)
    return _unless_huge(x, "tan", x.equals(0.0).pick(x, value))


def _unless_huge(x: Value, name: str, fast: Value) -> Value:
    """The library's result where the argument is too far out for the reduction."""
    a = abs(x)
    return fast.rescued((a > _of(x).trig_most) & (a < math.inf), name, [x])


def _atan2(y: Value, x: Value) -> Value:
    # in double, for results in single: the polynomial is good to 2e-13
    a, b = abs(y), abs(x)
    steep = a > b
    low, high = steep.pick(b, a), steep.pick(a, b)
    q = low.equals(high).pick(high.equals(0.0).pick(0.0, x.of(x.lift(1.0))), low / high)
    z = q * q
    angle = (q * z).fma(_poly(z, "ATAN"), q)
    angle = steep.pick(math.pi / 2 - angle, angle)
    left = (x.bits() >> 63).differs(0)
    return left.pick(math.pi - angle, angle).sign_of(y)


def _angle(low: Value, high: Value) -> tuple[Mask, Value, Value]:
    """atan(low / high) of doubles, 0 <= low <= high, in two parts, and whether pi/4 is to be added."""
    # from 1/2 on by the tangent's sum: atan(q) - pi/4 = atan((q - 1) / (q + 1)); a quarter is enough that the sum is finite
    same = low.equals(high)
    far = (low > high * 0.5) | (same & (high > 0.0))  # of two infinities the first is false
    part = (high > 1.0).pick(low.of(low.lift(0.25)), 1.0)
    low, high = far.pick(low * part, low), far.pick(high * part, high)
    over, under = far.pick(low - high, low), far.pick(low + high, high)
    under_low = far.pick((high - under) + low, 0.0)
    over, under = same.pick(0.0, over), same.pick(1.0, under)
    t = over / under
    lost = ((-t).fma(under, over) - t * under_low) / under
    lost = ((high < math.inf) & (under > _OF_DOUBLE.least_normal)).pick(lost, 0.0)
    z = t * t
    return far, t, (t * z).fma(_poly(z, "ARC"), lost)


def _atan2_double(y: Value, x: Value) -> Value:
    a, b = abs(y), abs(x)
    steep = a > b
    far, t, low = _angle(steep.pick(b, a), steep.pick(a, b))
    left = (x.bits() >> 63).differs(0)
    return _quarters(steep, left, far, t, low).sign_of(y)


def _atan_double(x: Value) -> Value:
    a = abs(x)
    steep = a > 1.0
    one = x.of(x.lift(1.0))
    far, t, low = _angle(steep.pick(one, a), steep.pick(a, one))
    return _quarters(steep, None, far, t, low).sign_of(x)


def _quarters(steep: Mask, left: Mask | None, far: Mask, t: Value, low: Value) -> Value:
    """The angle whose distance from the nearest axis is t + low, and pi/4 where `far`; `steep`: that is the second axis; `left`: of the other half."""
    turn = steep.pick(-t, t), steep.pick(-low, low)
    high_pi, low_pi = (part / 2 for part in _OF_DOUBLE.angles)

    def of(k: int, part: int) -> float:
        return k * (high_pi, low_pi)[part] if k != 3 else (2.356194490192345, 9.184850993605148e-17)[part]

    def base(part: int) -> Value:
        def side(x: tuple[int, int]) -> Value:
            return far.pick(t.of(t.lift(of(x[1], part))), of(x[0], part))
        right = steep.pick(side((2, 1)), side((0, 1)))
        return right if left is None else left.pick(steep.pick(side((2, 3)), side((4, 3))), right)

    if left is not None:
        turn = left.pick(-turn[0], turn[0]), left.pick(-turn[1], turn[1])
    start = base(0)
    total = start + turn[0]
    return total + (((start - total) + turn[0]) + (turn[1] + base(1)))


def _less(base: Value, base_low: Value | float, x: Value, low: Value) -> Value:
    """base + base_low - (x + low), where |x| <= |base| or base is 0, rounded about once."""
    d = base - x
    return d + ((base - d) - x + base_low - low)


def _from_half_pi(x: Value, low: Value, times: int = 1) -> Value:
    high, rest = _of(x).angles
    return _less(x.of(x.lift(times * high)), times * rest, x, low)


def _atan(x: Value) -> Value:
    a = abs(x).at_most(2.0 ** 100)  # from there on pi / 2
    steep = a > 1.0
    q = steep.pick(-1.0 / a, a)
    lost = steep.pick(q.fma(a, 1.0) * q, 0.0)  # by the division
    z = q * q
    zero = x.of(x.lift(0.0))
    low = (q * z).fma(_poly(z, "ATAN"), lost)
    far = _from_half_pi(-q, -low)
    return steep.pick(far, _less(zero, 0.0, -q, -low)).sign_of(x)


def _half_asin(a: Value) -> tuple[Mask, Value, Value]:
    """Whether a > 1/2; s and the rest of asin(a), or there of asin(sqrt((1 - a) / 2)), of which acos(a) is twice."""
    far = a > 0.5
    z = far.pick((1.0 - a) * 0.5, a * a)
    s = far.pick(z.sqrt(), a)
    lost = (far & (a < 1.0)).pick((-s).fma(s, z) / (s + s), 0.0)  # by the root
    return far, s, (s * z).fma(_poly(z, "ASIN"), lost)


def _asin(x: Value) -> Value:
    far, s, low = _half_asin(abs(x))
    from_end = _from_half_pi(s + s, low + low)
    return far.pick(from_end, s + low).sign_of(x)


def _acos(x: Value) -> Value:
    far, s, low = _half_asin(abs(x))
    left = x < 0.0
    near = _from_half_pi(left.pick(-s, s), left.pick(-low, low))
    below = _from_half_pi(s + s, low + low, 2)
    return far.pick(left.pick(below, (s + low) * 2.0), near)


def _hypot(x: Value, y: Value) -> Value:
    a, b = abs(x), abs(y)
    return (a.equals(math.inf) | b.equals(math.inf)).pick(math.inf, (a * a + b * b).sqrt())


def _hypot_double(x: Value, y: Value) -> Value:
    a, b = abs(x), abs(y)
    swapped = a < b
    high, low = swapped.pick(b, a), swapped.pick(a, b)
    # powers of two that keep the squares in range: as far from both ends as the smaller one could matter
    small, large = high < 2.0 ** -500, high > 2.0 ** 500
    scale = small.pick(x.of(x.lift(2.0 ** 600)), large.pick(x.of(x.lift(2.0 ** -600)), 1.0))
    back = small.pick(x.of(x.lift(2.0 ** -600)), large.pick(x.of(x.lift(2.0 ** 600)), 1.0))
    high, low = high * scale, low * scale
    result = high.fma(high, low * low).sqrt() * back
    return (a.equals(math.inf) | b.equals(math.inf)).pick(math.inf, result)


def _fmod(x: Value, y: Value) -> Value:
    """Exact: the remainder of a quotient that is rounded to a whole number is a number of the type, so that the fused product is exact.

    A quotient with more digits than the type has is taken off from its first digits down, as many at a time as the type has.
    """
    a, b = abs(x), abs(y)
    most = 2.0 ** (52 if x.d is float64 else 23)
    bias, digits = _of(x).bias, _of(x).mantissa

    def leading(r: Value) -> Value:
        # where the quotient overflows, that by the divisor times a power of two, whose multiples are multiples of the divisor too; a second
        # power for subnormal ones
        d = b
        for power in (bias, digits + 20):
            d = abs(r / d).equals(math.inf).pick(d * 2.0 ** power, d)
        return (-(r / d).nearest()).fma(d, r)

    far = a.repeated(leading, lambda r: (abs(r / b) >= most) & (a < math.inf) & (b > 0.0))
    # of the last quotient, cut, which rounding may have made one too big
    r = (-(far / b).trunc()).fma(b, far)
    r = (r < 0.0).pick(r + b, r)
    return (a < b).pick(a, r).sign_of(x)


_BOTH: dict[str, Callable[..., Value]] = {
    "exp": _exp, "exp2": _exp2, "expm1": _expm1, "log": _log, "log2": _log2, "log10": _log10, "log1p": _log1p,
    "tanh": _tanh, "fmod": _fmod, "erf": _erf, "sin": _sin, "cos": _cos, "tan": _tan, "asin": _asin, "acos": _acos}
_DOUBLE: dict[str, Callable[..., Value]] = {
    "erfc": _erfc, "pow": _pow, "sinh": _sinh_double, "cosh": _cosh_double, "asinh": _asinh_double, "acosh": _acosh_double, "atanh": _atanh_double,
    "atan": _atan_double, "atan2": _atan2_double, "hypot": _hypot_double}
_SINGLE: dict[str, Callable[..., Value]] = {"atan": _atan}
# these get doubles that came from singles
_SINGLE_ONLY: dict[str, Callable[..., Value]] = {
    "sinh": _sinh, "cosh": _cosh, "asinh": _asinh, "acosh": _acosh, "atanh": _atanh, "pow": _pow_single, "erfc": _erfc_single,
    "lgamma": lgamma_for_single, "atan2": _atan2, "hypot": _hypot}

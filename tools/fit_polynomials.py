"""Fits the polynomials of flambeau/_core/kernels/coefficients.py: minimax, by Remez's exchange algorithm in high precision.

    python tools/fit_polynomials.py > flambeau/_core/kernels/coefficients.py

Needs mpmath.  Each table approximates the unknown factor of a form whose leading terms are exact, so that small arguments
keep their relative accuracy; the error is weighted so that it counts in units of the whole function's last place.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import mpmath as mp

if TYPE_CHECKING:
    from collections.abc import Callable

mp.mp.dps = 60
TINY = mp.mpf(10) ** -25


def remez(f: Callable[[Any], Any], weight: Callable[[Any], Any], low: Any, high: Any, degree: int) -> tuple[list[Any], Any]:
    """Coefficients (lowest first) of the polynomial p with the least maximum of |f - p| * weight, and that maximum."""
    n = degree + 2
    middle, half = (mp.mpf(high) + low) / 2, (mp.mpf(high) - low) / 2
    points = [middle - half * mp.cos(mp.pi * k / (n - 1)) for k in range(n)]
    grid = [middle - half * mp.cos(mp.pi * k / (24 * n)) for k in range(24 * n + 1)]
    values = [(x, f(x), weight(x)) for x in grid]
    scaled: list[Any] = []
    error = mp.mpf(0)
    for _ in range(12):
        rows = mp.matrix(n, n)
        right = mp.matrix(n, 1)
        for i, x in enumerate(points):
            t = (x - middle) / half
            for k in range(degree + 1):
                rows[i, k] = t ** k
            rows[i, degree + 1] = (-1) ** i / weight(x)
            right[i] = f(x)
        solved = mp.lu_solve(rows, right)
        scaled = [solved[k] for k in range(degree + 1)]
        wrong = [(mp.polyval(scaled[::-1], (x - middle) / half) - y) * w for x, y, w in values]
        extremes: list[int] = []
        for k, e in enumerate(wrong):
            if extremes and (e > 0) == (wrong[extremes[-1]] > 0):
                if abs(e) > abs(wrong[extremes[-1]]):
                    extremes[-1] = k
            else:
                extremes.append(k)
        while len(extremes) > n:
            extremes.pop(0 if abs(wrong[extremes[0]]) < abs(wrong[extremes[-1]]) else -1)
        error = max(abs(wrong[k]) for k in extremes)
        if len(extremes) < n:
            break
        points = [grid[k] for k in extremes]
        if error <= min(abs(wrong[k]) for k in extremes) * mp.mpf("1.01"):
            break
    return _shifted(scaled, middle, half), error


def _shifted(scaled: list[Any], middle: Any, half: Any) -> list[Any]:
    """The coefficients in x of a polynomial in (x - middle) / half."""
    out = [mp.mpf(0)]
    for c in reversed(scaled):
        by_x = [mp.mpf(0), *(v / half for v in out)]
        for k, v in enumerate(out):
            by_x[k] -= v * middle / half
        by_x[0] += c
        out = by_x
    return out[:len(scaled)]


def single(v: Any) -> float:
    return float(struct.unpack("<f", struct.pack("<f", float(v)))[0])


def safe(f: Callable[[Any], Any], at_zero: Any) -> Callable[[Any], Any]:
    return lambda x: at_zero if abs(x) < TINY else f(x)


def root(x: Any) -> Any:
    return mp.sqrt(x)


# name: (comment, f, weight, low, high, degree in single, degree in double); a degree of None: no such table
HALF_LN2 = mp.log(2) / 2 + mp.mpf("1e-6")
LOW, HIGH = mp.sqrt(mp.mpf(1) / 2) - 1 - mp.mpf("1e-6"), mp.sqrt(2) - 1 + mp.mpf("1e-6")
QUARTER_PI = mp.pi / 4 + mp.mpf("1e-4")


def _exp_rest(r: Any) -> Any:
    return (mp.exp(r) - 1 - r) / r ** 2


def _log_rest(f: Any) -> Any:
    return (mp.log(1 + f) - f + f ** 2 / 2) / f ** 3


def _log_symmetric(z: Any) -> Any:
    # log(1 + f) = 2 s + s z g(z) with s = f / (2 + f), z = s * s
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s) / (s * z)


def _log2_tail(z: Any) -> Any:
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s - 2 * s * z / 3) / (s * z ** 2) / mp.log(2)


def _scaled_erfc(t: Any) -> Any:
    x = 4 * (1 + t) / (1 - t)
    return mp.erfc(x) * mp.exp(x * x) * (1 + 2 * x)


def _stirling(w: Any) -> Any:
    y = 1 / mp.sqrt(max(w, mp.mpf(10) ** -12))
    return (mp.loggamma(y) - (y - mp.mpf(1) / 2) * (mp.log(y) - 1) - (mp.log(2 * mp.pi) - 1) / 2) * y


def _erfinv_by(w: Any) -> Any:
    """erfinv(y) / y by w = -log(1 - y^2), as Giles proposes ("Approximating the erfinv function", GPU Computing Gems, 2011)."""
    if w < mp.mpf(10) ** -20:
        return mp.sqrt(mp.pi) / 2
    y = mp.sqrt(-mp.expm1(-w))
    return _inverse_erfc(1 - y) / y if w > 3 else mp.erfinv(y) / y


def _inverse_erfc(c: Any) -> Any:
    """By Newton's steps; 1 - y would lose digits in erfinv."""
    x = mp.sqrt(-mp.log(c))
    for _ in range(60):
        step = (mp.erfc(x) - c) / (-2 / mp.sqrt(mp.pi) * mp.exp(-x * x))
        x -= step
        if abs(step) < mp.mpf(10) ** -45:
            break
    return x


TABLES: list[tuple[str, str, Any, Any, Any, Any, int | None, int | None]] = [
    ("EXP", "exp(r) = 1 + r + r^2 p(r), |r| <= log(2) / 2", safe(_exp_rest, mp.mpf(1) / 2), lambda r: r ** 2 / mp.exp(r) + TINY,
     -HALF_LN2, HALF_LN2, 4, 9),
    ("EXPM1", "exp(r) - 1 = r + r^2 p(r), |r| <= log(2) / 2", safe(_exp_rest, mp.mpf(1) / 2),
     safe(lambda r: abs(r ** 2 / mp.expm1(r)) + TINY, TINY), -HALF_LN2, HALF_LN2, 5, 10),
    ("EXP2", "2^r = 1 + r p(r), |r| <= 1/2", safe(lambda r: (mp.mpf(2) ** r - 1) / r, mp.log(2)),
     lambda r: abs(r) / mp.mpf(2) ** r + TINY, mp.mpf(-1) / 2, mp.mpf(1) / 2, 5, 11),
    ("LOG", "log(1 + f) = f - f^2/2 + f^3 p(f), sqrt(1/2) <= 1 + f <= sqrt(2)", safe(_log_rest, mp.mpf(1) / 3),
     safe(lambda f: abs(f ** 3 / mp.log(1 + f)) + TINY, TINY), LOW, HIGH, 7, None),
    ("LOG_SYMMETRIC", "log(1 + f) = 2 s + s z p(z), s = f / (2 + f), z = s^2", safe(_log_symmetric, mp.mpf(2) / 3),
     safe(lambda z: z * mp.sqrt(z) / (2 * mp.atanh(mp.sqrt(z))) + TINY, TINY), mp.mpf(0), mp.mpf("0.02945"), None, 6),
    ("SHORT_LOG2", "log2(1 + f) = f p(f), sqrt(1/2) <= 1 + f <= sqrt(2); for results in single", safe(lambda f: mp.log(1 + f, 2) / f, 1 / mp.log(2)),
     safe(lambda f: f / mp.log(1 + f, 2), mp.log(2)), LOW, HIGH, None, 14),
    ("SHORT_EXP2", "2^r = p(r), |r| <= 1/2; for results in single", lambda r: mp.mpf(2) ** r, lambda r: mp.mpf(2) ** -r, mp.mpf(-1) / 2,
     mp.mpf(1) / 2, None, 8),
    ("LOG2_TAIL", "log2(1 + f) = (2 s + 2/3 s^3) / log(2) + s^5 p(z), s = f / (2 + f), z = s^2", safe(_log2_tail, mp.mpf(2) / 5 / mp.log(2)),
     safe(lambda z: z ** 2 * mp.sqrt(z) * mp.log(2) / (2 * mp.atanh(mp.sqrt(z))) + TINY, TINY), mp.mpf(0), mp.mpf("0.02945"), None, 6),
    ("TANH", "tanh(x) = x + x z p(z), z = x^2, |x| <= 0.625", safe(lambda z: (mp.tanh(root(z)) / root(z) - 1) / z, mp.mpf(-1) / 3),
     safe(lambda z: z * root(z) / mp.tanh(root(z)) + TINY, TINY), mp.mpf(0), mp.mpf("0.391"), 4, 11),
    ("ERF", "erf(x) = x + x p(z), z = x^2, |x| <= 0.93 (1 in double)",
     safe(lambda z: mp.erf(root(z)) / root(z) - 1, 2 / mp.sqrt(mp.pi) - 1),
     safe(lambda z: root(z) / mp.erf(root(z)), mp.sqrt(mp.pi) / 2), mp.mpf(0), mp.mpf("1.001"), 6, 12),
    ("LOG_ERFC", "log(erfc(x)) = p(x), 0.93 <= x <= 4", lambda x: mp.log(mp.erfc(x)), lambda x: mp.erfc(x), mp.mpf("0.92"),
     mp.mpf("4.01"), 6, None),
    ("SCALED_ERFC", "erfc(x) exp(x^2) (1 + 2 x) = p(t), t = (x - 4) / (x + 4), x >= 0", _scaled_erfc,
     lambda t: 1 / _scaled_erfc(t), mp.mpf(-1), mp.mpf("0.77"), None, 22),
    ("SHORT_ERFC", "the same for results in single, x <= 10.5", _scaled_erfc, lambda t: 1 / _scaled_erfc(t), mp.mpf(-1),
     mp.mpf("0.45"), None, 11),
    ("SIN", "sin(r) = r + r z p(z), z = r^2, |r| <= pi / 4", safe(lambda z: (mp.sin(root(z)) / root(z) - 1) / z, mp.mpf(-1) / 6),
     lambda z: z + TINY, mp.mpf(0), QUARTER_PI ** 2, 2, 6),
    ("COS", "cos(r) = 1 - z/2 + z^2 p(z), z = r^2, |r| <= pi / 4",
     safe(lambda z: (mp.cos(root(z)) - 1 + z / 2) / z ** 2, mp.mpf(1) / 24), lambda z: z ** 2 + TINY, mp.mpf(0),
     QUARTER_PI ** 2, 2, 6),
    ("ATAN", "atan(x) = x + x z p(z), z = x^2, |x| <= 1", safe(lambda z: (mp.atan(root(z)) / root(z) - 1) / z, mp.mpf(-1) / 3),
     lambda z: z + TINY, mp.mpf(0), mp.mpf(1), 8, 13),
    ("ASIN", "asin(x) = x + x z p(z), z = x^2, |x| <= 1/2", safe(lambda z: (mp.asin(root(z)) / root(z) - 1) / z, mp.mpf(1) / 6),
     lambda z: z + TINY, mp.mpf(0), mp.mpf(1) / 4, 5, 12),
    ("ARC", "atan(x) = x + x z p(z), z = x^2, |x| <= 1/2", safe(lambda z: (mp.atan(root(z)) / root(z) - 1) / z, mp.mpf(-1) / 3),
     lambda z: z + TINY, mp.mpf(0), mp.mpf("0.2501"), None, 12),
    ("SINH", "sinh(x) = x + x z p(z), z = x^2, |x| <= 1", safe(lambda z: (mp.sinh(root(z)) / root(z) - 1) / z, mp.mpf(1) / 6),
     lambda z: z + TINY, mp.mpf(0), mp.mpf(1), None, 6),
    ("ASINH", "asinh(x) = x + x z p(z), z = x^2, |x| <= 1/8", safe(lambda z: (mp.asinh(root(z)) / root(z) - 1) / z, mp.mpf(-1) / 6),
     lambda z: z + TINY, mp.mpf(0), mp.mpf(1) / 64, None, 6),
    ("ATANH", "atanh(x) = x + x z p(z), z = x^2 <= 0.0515", safe(lambda z: (mp.atanh(root(z)) / root(z) - 1) / z, mp.mpf(1) / 3),
     lambda z: z + TINY, mp.mpf(0), mp.mpf("0.0515"), None, 7),
    ("TAN", "tan(r) = r + r z p(z), z = r^2, |r| <= pi / 4", safe(lambda z: (mp.tan(root(z)) / root(z) - 1) / z, mp.mpf(1) / 3),
     safe(lambda z: z * root(z) / mp.tan(root(z)) + TINY, TINY), mp.mpf(0), QUARTER_PI ** 2, 6, 14),
    ("STIRLING", "lgamma(y) = (y - 1/2) (log(y) - 1) + (log(2 pi) - 1) / 2 + u p(u^2), u = 1 / y, y >= 4; for results in single", _stirling,
     lambda w: mp.mpf(1), mp.mpf(0), mp.mpf(1) / 16, None, 7),
    ("SIN_PI", "sin(pi r) = pi r + r z p(z), z = r^2, |r| <= 1/2; for results in single", safe(lambda z: (mp.sinpi(root(z)) / root(z) - mp.pi) / z,
     -mp.pi ** 3 / 6), lambda z: z + TINY, mp.mpf(0), mp.mpf(1) / 4, None, 5),
    ("ERFINV_NEAR", "erfinv(y) = y p(w), w = -log(1 - y^2) <= 5", _erfinv_by, lambda w: 1 / _erfinv_by(w), mp.mpf(0), mp.mpf("5.01"), 9, None),
    ("ERFINV_FAR", "the same by p(sqrt(w) - 3), 5 <= w <= 17", lambda t: _erfinv_by((t + 3) ** 2), lambda t: 1 / _erfinv_by((t + 3) ** 2),
     mp.sqrt(5) - mp.mpf("3.001"), mp.sqrt(17) - 3, 11, None),
]


def main() -> None:
    print('"""Coefficients of the polynomials in `transcendental`, made by tools/fit_polynomials.py.  Lowest first."""\n')
    print("from __future__ import annotations\n")
    for name, comment, f, weight, low, high, narrow, wide in TABLES:
        print(f"# {comment}")
        for kind, degree, rounded in (("32", narrow, single), ("64", wide, float)):
            if degree is None:
                continue
            coefficients, error = remez(f, weight, low, high, degree)
            print(f"{name}_{kind} = (  # error {mp.nstr(error, 2)}")
            for c in coefficients:
                print(f"    {rounded(c)!r},")
            print(")")


if __name__ == "__main__":
    main()

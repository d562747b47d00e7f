"""Chebyshev tables of the special functions in flambeau/_core/kernels/bessel.py, from mpmath's values in high precision.

    python tools/fit_special.py > flambeau/_core/kernels/bessel_tables.py

Each table is a series in Chebyshev polynomials of t in [-1, 1] (the first coefficient halved already), interpolated at
Chebyshev points and cut where its terms fall below the last place of a double.  Tables named *_POWERS are polynomials of the variable
itself, lowest first, for ranges where their sums do not cancel; *_SHORT are those for results in single.  Needs mpmath.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp

mp.mp.dps = 40


def _terms(f: Callable[[Any], Any], points: int) -> list[Any]:
    """Coefficients of the interpolating series of f on [-1, 1], all of them."""
    nodes = [mp.cos(mp.pi * (k + mp.mpf(1) / 2) / points) for k in range(points)]
    values = [f(t) for t in nodes]
    out = []
    for j in range(points):
        c = 2 * mp.fsum(v * mp.cos(j * mp.pi * (k + mp.mpf(1) / 2) / points) for k, v in enumerate(values)) / points
        out.append(c / 2 if j == 0 else c)
    return out


def series(f: Callable[[Any], Any], points: int = 80) -> list[float]:
    """Coefficients of the interpolating series of f on [-1, 1], as far as they count in double."""
    out = _terms(f, points)
    top = max(abs(c) for c in out)
    last = max(j for j, c in enumerate(out) if abs(c) > top * mp.mpf("2e-17"))
    return [float(c) for c in out[:last + 1]]


def powers(f: Callable[[Any], Any], high: Any, least: str = "2e-17") -> list[float]:
    """Coefficients, lowest first, of the polynomial of u in [0, high] whose Chebyshev series is cut at `least` of its largest term."""
    exact = _terms(over(0, high, f), 60)
    top = max(abs(c) for c in exact)
    kept = exact[:max(j for j, c in enumerate(exact) if abs(c) > top * mp.mpf(least)) + 1]
    line = [mp.mpf(-1), 2 / mp.mpf(high)]  # t, by u
    before, now = [mp.mpf(1)], line
    out = [mp.mpf(0)] * (len(kept) + 1)
    for c in kept:
        for k, v in enumerate(before):
            out[k] += c * v
        after = [mp.mpf(0)] * (len(now) + 1)
        for k, v in enumerate(now):
            after[k] += 2 * line[0] * v
            after[k + 1] += 2 * line[1] * v
        for k, v in enumerate(before):
            after[k] -= v
        before, now = now, after
    return [float(c) for c in out[:len(kept)]]


def over(low: Any, high: Any, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """f of a variable in [low, high], as a function of t in [-1, 1]."""
    return lambda t: f((mp.mpf(high) + low) / 2 + (mp.mpf(high) - low) / 2 * t)


def tail(f: Callable[[Any], Any], limit: Any) -> Callable[[Any], Any]:
    """f(1 / u), with its limit where u is 0."""
    return lambda u: limit if u < mp.mpf(10) ** -12 else f(1 / u)


def root_tail(f: Callable[[Any], Any], limit: Any) -> Callable[[Any], Any]:
    """f(1 / sqrt(u)), with its limit where u is 0."""
    return lambda u: limit if u < mp.mpf(10) ** -10 else f(1 / mp.sqrt(u))


def scaled_i(order: int) -> Callable[[Any], Any]:
    """sqrt(x) exp(-x) I_n(x)."""
    return lambda x: mp.sqrt(x) * mp.exp(-x) * mp.besseli(order, x)


def scaled_k(order: int) -> Callable[[Any], Any]:
    """sqrt(x) exp(x) K_n(x)."""
    return lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(order, x)


def hankel(order: int, which: str) -> Callable[[Any], Any]:
    """P or Q of J_n(x) = sqrt(2 / (pi x)) (P cos c - Q sin c), Y_n = sqrt(2 / (pi x)) (P sin c + Q cos c), c = x - (n/2 + 1/4) pi; Q
    times x."""
    def f(x: Any) -> Any:
        c = x - (mp.mpf(order) / 2 + mp.mpf(1) / 4) * mp.pi
        j, y, k = mp.besselj(order, x), mp.bessely(order, x), mp.sqrt(mp.pi * x / 2)
        return k * (j * mp.cos(c) + y * mp.sin(c)) if which == "P" else x * k * (y * mp.cos(c) - j * mp.sin(c))
    return f


def airy_modulus(which: str) -> Callable[[Any], Any]:
    """For x = -z: Ai = pi^(-1/2) z^(-1/4) (P cos c + Q sin c / zeta), zeta = 2/3 z^(3/2), c = zeta - pi/4; of zeta."""
    def f(zeta: Any) -> Any:
        z = (mp.mpf(3) / 2 * zeta) ** (mp.mpf(2) / 3)
        c = zeta - mp.pi / 4
        a, b, k = mp.airyai(-z), mp.airybi(-z), mp.sqrt(mp.pi) * z ** (mp.mpf(1) / 4)
        return k * (a * mp.cos(c) - b * mp.sin(c)) if which == "P" else zeta * k * (a * mp.sin(c) + b * mp.cos(c))
    return f


def airy_decay(zeta: Any) -> Any:
    x = (mp.mpf(3) / 2 * zeta) ** (mp.mpf(2) / 3)
    return mp.airyai(x) * mp.exp(zeta) * 2 * mp.sqrt(mp.pi) * x ** (mp.mpf(1) / 4)


def mapped(k: Any, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """f on [0, inf) as a function of t = (x - k) / (x + k)."""
    return lambda t: f(k * (1 + t) / (1 - t)) if t < 1 else mp.mpf(0)


def erfcx(x: Any) -> Any:
    return mp.exp(x * x) * mp.erfc(x) if x < 25 else (1 / (x * mp.sqrt(mp.pi))) * mp.hyp2f0(1, mp.mpf(1) / 2, -1 / (x * x))


def bessel_rest(function: Any, order: int) -> Callable[[Any], Any]:
    """p of I or J of 2 x = x^order (1 + x^2 p), for order 0 or 1."""
    return lambda x: (function(order, 2 * x) / x ** order - 1) / (x * x)


def ndtri(log_q: Any) -> Any:
    """x with log(ndtr(-x)) = log_q, by Newton's steps on the logarithm."""
    x = mp.sqrt(-2 * log_q) if log_q < -2 else mp.mpf(1)
    for _ in range(60):
        tail = mp.erfc(x / mp.sqrt(2)) / 2
        step = (mp.log(tail) - log_q) * tail * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
        x += step
        if abs(step) < mp.mpf(10) ** -32:
            break
    return x


def main() -> None:
    root_i = [scaled_i(0), scaled_i(1)]
    root_k = [scaled_k(0), scaled_k(1)]
    inverse_root = 1 / mp.sqrt(2 * mp.pi)
    half_root = mp.sqrt(mp.pi / 2)

    def small(f: Callable[[Any], Any], at_zero: Any) -> Callable[[Any], Any]:
        return lambda u: at_zero if u < mp.mpf(10) ** -20 else f(mp.sqrt(u))

    tables: dict[str, list[float]] = {
        "I0E_HIGH": series(over(0, mp.mpf(1) / 8, tail(root_i[0], inverse_root))),
        "I1E_HIGH": series(over(0, mp.mpf(1) / 8, tail(root_i[1], inverse_root))),
        # of u = x * x
        "K0_LOW": series(over(0, 4, small(lambda x: mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x), -mp.euler))),
        "K0_HIGH": series(over(0, mp.mpf(1) / 2, tail(root_k[0], half_root))),
        "K1_LOW": series(over(0, 4, small(lambda x: (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x)) * x, mp.mpf(1)))),
        "K1_HIGH": series(over(0, mp.mpf(1) / 2, tail(root_k[1], half_root))),
        "J0_LOW": series(over(0, 64, small(lambda x: mp.besselj(0, x), mp.mpf(1)))),
        "J1_LOW": series(over(0, 64, small(lambda x: mp.besselj(1, x) / x, mp.mpf(1) / 2))),
        "Y0_LOW": series(over(0, 64, small(lambda x: mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x),
                                           2 / mp.pi * (mp.euler - mp.log(2))))),
        "Y1_LOW": series(over(0, 64, small(lambda x: (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x,
                                           (mp.euler - mp.log(2) - mp.mpf(1) / 2) / mp.pi))),
    }
    # of v = x**2 / 4
    for order in (0, 1):
        growing = small(bessel_rest(mp.besseli, order), mp.mpf(1) / (order + 1))
        tables[f"I{order}_POWERS"], tables[f"I{order}_POWERS_SHORT"] = powers(growing, 16), powers(growing, 16, "1e-11")
        tables[f"J{order}_POWERS"] = powers(small(bessel_rest(mp.besselj, order), mp.mpf(-1) / (order + 1)), 1)
    tables["K0_POWERS"] = powers(small(lambda x: mp.besselk(0, 2 * x) + mp.log(2 * x) * mp.besseli(0, 2 * x), mp.log(2) - mp.euler), mp.mpf(1) / 4)
    tables["Y0_POWERS"] = powers(small(lambda x: mp.bessely(0, 2 * x) - 2 / mp.pi * mp.log(2 * x) * mp.besselj(0, 2 * x),
                                       2 / mp.pi * (mp.euler - mp.log(2))), mp.mpf(1) / 4)
    # of x less the zero at 1.46: digamma divided by that
    where_0 = mp.findroot(mp.digamma, 1.46)
    quotient = lambda h: mp.digamma(where_0 + h) / h if h else mp.psi(1, where_0)  # noqa: E731
    tables["DIGAMMA_ZERO"] = [float(where_0), float(where_0 - mp.mpf(float(where_0)))]
    tables["DIGAMMA"] = series(over(mp.mpf("-0.25"), mp.mpf("0.25"), quotient))
    # of u = 1 / x**2
    for order in (0, 1):
        for which in "PQ":
            limit = mp.mpf(1) if which == "P" else mp.mpf(4 * order * order - 1) / 8
            tables[f"HANKEL{order}_{which}"] = series(over(0, mp.mpf(1) / 64, root_tail(hankel(order, which), limit)))
    tables["AIRY_MIDDLE"] = series(over(-3, 2, mp.airyai))
    zeta_high = mp.mpf(2) / 3 * mp.mpf(2) ** (mp.mpf(3) / 2)
    tables["AIRY_HIGH"] = series(over(0, 1 / zeta_high, tail(airy_decay, mp.mpf(1))))
    zeta_low = mp.mpf(2) / 3 * mp.mpf(3) ** (mp.mpf(3) / 2)
    for which, limit in (("P", mp.mpf(1)), ("Q", mp.mpf(5) / 72)):
        tables[f"AIRY_LOW_{which}"] = series(over(0, 1 / zeta_low ** 2, root_tail(airy_modulus(which), limit)))
    # the inverse of the normal distribution at 1/2 + y, divided by y, of u = y * y; and, at the small probability q, what it is less than
    # t = sqrt(-2 log(q)), of v = (t - 4) / (t + 4)
    tables["NDTRI_MIDDLE"] = series(over(0, mp.mpf("0.16"), small(lambda y: ndtri(mp.log(mp.mpf(1) / 2 - y)) / y, mp.sqrt(2 * mp.pi))))
    tables["NDTRI_TAIL"] = series(over(mp.mpf("-0.304"), mp.mpf("0.814"), lambda v: (lambda t: t - ndtri(-t * t / 2))(4 * (1 + v) / (1 - v))), 60)
    tables["ERFCX"] = series(mapped(mp.mpf("3.75"), lambda x: (1 + 2 * x) * erfcx(x)))
    print('"""Chebyshev series of special functions, made by tools/fit_special.py: do not edit."""\n\nfrom __future__ import annotations\n')
    for name, values in tables.items():
        lines, line = [], "   "
        for v in values:
            text = f" {v!r},"
            if len(line) + len(text) > 140:
                lines.append(line)
                line = "   "
            line += text
        print(f"{name} = (\n" + "\n".join([*lines, line]) + "\n)")


if __name__ == "__main__":
    main()

"""The regularized incomplete gamma functions on NumPy arrays of doubles.

The series of P for x < a + 1, Lentz's continued fraction of Q beyond (Abramowitz and Stegun 6.5.29, 6.5.31), and for large
a near x Temme's uniform expansion (1979), each run until every element has converged.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_EPS = 2.0 ** -53


def regularized(a: Any, x: Any, upper: bool) -> Any:
    """P(a, x), or Q(a, x) for `upper`; NaN for negative arguments."""
    a, x = np.broadcast_arrays(a, x)
    p = np.empty(a.shape)
    q = np.empty(a.shape)
    bad = np.isnan(a) | np.isnan(x) | (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | (np.isinf(a) & np.isinf(x))
    zero = ~bad & ((x == 0) | np.isinf(a))
    one = ~bad & ~zero & ((a == 0) | np.isinf(x))
    rest = ~(bad | zero | one)
    p[bad], q[bad] = np.nan, np.nan
    p[zero], q[zero] = 0.0, 1.0
    p[one], q[one] = 1.0, 0.0
    uniform = rest & (a > 1e6) & (np.abs(x - a) < 6.0 * np.sqrt(a))  # where the others would take thousands of terms
    low = rest & ~uniform & (x < a + 1)
    high = rest & ~uniform & ~low
    p[low] = _series(a[low], x[low])
    q[low] = 1.0 - p[low]
    q[high] = _fraction(a[high], x[high])
    p[high] = 1.0 - q[high]
    q[uniform] = _temme(a[uniform], x[uniform])
    p[uniform] = 1.0 - q[uniform]
    return q if upper else p


def _front(a: Any, x: Any) -> Any:
    """x^a exp(-x) / Gamma(a)."""
    return np.exp(a * np.log(x) - x - _lgamma(a))


_lgamma = np.vectorize(math.lgamma, otypes=[np.float64])


def _series(a: Any, x: Any) -> Any:
    if not a.size:
        return a
    term = 1.0 / a
    total = term.copy()
    for k in range(1, 10000):
        term = term * x / (a + k)
        total += term
        if np.all(np.abs(term) < np.abs(total) * _EPS):
            break
    return total * _front(a, x)


def _fraction(a: Any, x: Any) -> Any:
    if not a.size:
        return a
    tiny = 1e-300
    b = x + 1.0 - a
    c = np.full(a.shape, 1.0 / tiny)
    d = 1.0 / np.where(b == 0, tiny, b)
    h = d.copy()
    for k in range(1, 10000):
        an = -k * (k - a)
        b = b + 2.0
        d = an * d + b
        d = 1.0 / np.where(np.abs(d) < tiny, tiny, d)
        c = b + an / c
        c = np.where(np.abs(c) < tiny, tiny, c)
        step = c * d
        h = h * step
        if np.all(np.abs(step - 1.0) < 4 * _EPS):
            break
    return h * _front(a, x)


def _temme(a: Any, x: Any) -> Any:
    """Q by its expansion in 1/a with the first coefficients as series in eta."""
    if not a.size:
        return a
    mu = (x - a) / a
    phi = mu - np.log1p(mu)
    near = np.abs(mu) < 0.02
    phi = np.where(near, mu * mu * (0.5 - mu * (1 / 3 - mu * (0.25 - mu * (0.2 - mu * (1 / 6 - mu * (1 / 7 - mu / 8)))))), phi)
    eta = np.sign(mu) * np.sqrt(2.0 * phi)
    erfc = np.vectorize(math.erfc, otypes=[np.float64])
    # Temme (1979), table of the coefficients of C0 and C1 in powers of eta
    c0 = (-1 / 3, 1 / 12, -1 / 135, -1 / 864, 1 / 2835, 139 / 777600, -1 / 25515, -571 / 261273600)
    c1 = (-1 / 540, -1 / 288, 1 / 378, -77 / 77760, 1 / 4860)
    s0 = sum(c * eta ** i for i, c in enumerate(c0))
    s1 = sum(c * eta ** i for i, c in enumerate(c1))
    return 0.5 * erfc(eta * np.sqrt(a / 2)) + np.exp(-0.5 * a * eta * eta) / np.sqrt(2 * np.pi * a) * (s0 + s1 / a)

"""Derivatives of samples in their distribution's parameters, with the rank of the sample held fixed.

For a sample x of distribution function F(x; a) and density f, dx/da = -(dF/da) / f (Figurnov, Mohamed & Mnih, "Implicit
reparameterization gradients", 2018).  F is the incomplete gamma or beta function, by its series or continued fraction
(NIST DLMF 8.11.4, 8.9.2, 8.17.22), differentiated step by step; the factors that F and f share cancel, so that nothing
underflows.  NumPy arrays of doubles; `psi` arguments are digamma functions, which the caller has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_STEPS = 20000
_EPS = 1e-15


def gamma_slope(a: Any, x: Any, psi: Any) -> Any:
    """dx/da of x ~ Gamma(a, 1); psi = digamma(a)."""
    a, x, psi = (np.ascontiguousarray(v, dtype=np.float64).ravel() for v in (a, x, psi))
    out = np.full(a.shape, np.nan)
    fine = (a > 0) & (x >= 0) & np.isfinite(a) & np.isfinite(x)
    out[fine & (x == 0)] = 0.0
    big = fine & (a > 1e5)
    w = np.cbrt(x[big] / a[big])
    r = a[big]
    # Wilson & Hilferty: (x / a)^(1/3) is close to normal, of mean 1 - 1 / (9 a) and variance 1 / (9 a)
    z = 3.0 * np.sqrt(r) * (w - 1.0 + 1.0 / (9.0 * r))
    out[big] = w ** 3 + 3.0 * r * w ** 2 * (1.0 / (9.0 * r * r) - z / (6.0 * r ** 1.5))
    rest = fine & (x > 0) & ~big
    low = rest & (x <= a + 1.0)
    out[low] = _series_slope(a[low], x[low], psi[low])
    high = rest & ~low
    out[high] = _fraction_slope(a[high], x[high], psi[high])
    return out


def _series_slope(a: Any, x: Any, psi: Any) -> Any:
    """From P = x f T with T = sum of x^k / (a (a + 1) ... (a + k))."""
    term = 1.0 / a
    slope = -term / a
    total, total_slope = term.copy(), slope.copy()
    for k in range(1, _STEPS):
        if not a.size:
            break
        d = a + k
        slope = (slope - term / d) * (x / d)
        term = term * (x / d)
        total += term
        total_slope += slope
        if np.all(np.abs(slope) <= _EPS * np.abs(total_slope)) and np.all(term <= _EPS * total):
            break
    return -x * (total * (np.log(x) - psi) + total_slope)


def _fraction_slope(a: Any, x: Any, psi: Any) -> Any:
    """From Q = x f h with h a continued fraction, run by Lentz's method with derivatives."""
    tiny = 1e-300
    b = x + 1.0 - a
    b = np.where(b == 0, tiny, b)
    c, c_slope = np.full_like(x, 1.0 / tiny), np.zeros_like(x)
    d = 1.0 / b
    d_slope = d * d
    h, h_slope = d.copy(), d_slope.copy()
    for k in range(1, _STEPS):
        if not a.size:
            break
        n, n_slope = -k * (k - a), float(k)
        b = b + 2.0
        v = n * d + b
        v = np.where(np.abs(v) < tiny, tiny, v)
        v_slope = n_slope * d + n * d_slope - 1.0
        d = 1.0 / v
        d_slope = -v_slope * d * d
        u = b + n / c
        u = np.where(np.abs(u) < tiny, tiny, u)
        c_slope = -1.0 + n_slope / c - n * c_slope / (c * c)
        c = u
        step = c * d
        step_slope = c_slope * d + c * d_slope
        h_slope = h_slope * step + h * step_slope
        h = h * step
        if np.all(np.abs(step - 1.0) < _EPS) and np.all(np.abs(h * step_slope) <= 1e-13 * np.abs(h_slope) + 1e-300):
            break
    return x * (h * (np.log(x) - psi) + h_slope)


def beta_slope(x: Any, a: Any, b: Any, psi_a: Any, psi_ab: Any) -> Any:
    """dx/da of x ~ Beta(a, b); psi_a = digamma(a), psi_ab = digamma(a + b)."""
    x, a, b, psi_a, psi_ab = (np.ascontiguousarray(v, dtype=np.float64).ravel() for v in (x, a, b, psi_a, psi_ab))
    out = np.full(x.shape, np.nan)
    out[(x <= 0) | (x >= 1)] = 0.0
    inside = (x > 0) & (x < 1) & (a > 0) & (b > 0)
    left = inside & (x < (a + 1.0) / (a + b + 2.0))
    xl, al, bl = x[left], a[left], b[left]
    h, h_slope = _beta_fraction(xl, al, bl, True)
    out[left] = -(xl * (1.0 - xl) / al) * ((np.log(xl) - 1.0 / al - psi_a[left] + psi_ab[left]) * h + h_slope)
    right = inside & ~left
    xr, ar, br = x[right], a[right], b[right]
    h, h_slope = _beta_fraction(1.0 - xr, br, ar, False)
    out[right] = (xr * (1.0 - xr) / br) * ((np.log(xr) - psi_a[right] + psi_ab[right]) * h + h_slope)
    return out


def _beta_fraction(x: Any, a: Any, b: Any, first: bool) -> tuple[Any, Any]:
    """The continued fraction of I_x(a, b) and its derivative in a (`first`) or in b."""
    tiny = 1e-300
    one, zero = np.ones_like(x), np.zeros_like(x)

    def clear(v: Any) -> Any:
        return np.where(np.abs(v) < tiny, tiny, v)
    da, db = (1.0, 0.0) if first else (0.0, 1.0)
    c, c_slope = one.copy(), zero.copy()
    v = clear(1.0 - (a + b) * x / (a + 1.0))
    v_slope = -x * ((da + db) / (a + 1.0) - (a + b) * da / (a + 1.0) ** 2)
    d = 1.0 / v
    d_slope = -v_slope * d * d
    h, h_slope = d.copy(), d_slope.copy()
    for m in range(1, _STEPS):
        if not x.size:
            break
        done = True
        e = a + 2.0 * m
        even = m * (b - m) * x / ((e - 1.0) * e)
        even_slope = m * x * (db / ((e - 1.0) * e) - (b - m) * da * (2.0 * e - 1.0) / ((e - 1.0) * e) ** 2)
        odd = -(a + m) * (a + b + m) * x / (e * (e + 1.0))
        odd_slope = -x * ((da * (a + b + m) + (a + m) * (da + db)) / (e * (e + 1.0))
                          - (a + m) * (a + b + m) * da * (2.0 * e + 1.0) / (e * (e + 1.0)) ** 2)
        for n, n_slope in ((even, even_slope), (odd, odd_slope)):
            v = clear(1.0 + n * d)
            v_slope = n_slope * d + n * d_slope
            d = 1.0 / v
            d_slope = -v_slope * d * d
            u = clear(1.0 + n / c)
            c_slope = n_slope / c - n * c_slope / (c * c)
            c = u
            step, step_slope = c * d, c_slope * d + c * d_slope
            h_slope = h_slope * step + h * step_slope
            h = h * step
            done = done and bool(np.all(np.abs(step - 1.0) < _EPS) and np.all(np.abs(h * step_slope) <= 1e-13 * np.abs(h_slope) + 1e-300))
        if done:
            break
    return h, h_slope

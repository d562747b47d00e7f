"""Exponentials of matrices by NumPy: scaling and squaring of a truncated Taylor series.

Higham, "Functions of Matrices" (2008), 10.3; bounds from Al-Mohy and Higham 2011, table 3.1.
"""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np

_BOUND = {"float32": 2.2, "complex64": 2.2, "float64": 0.64, "complex128": 0.64}
_DEGREE, _STEP = 16, 4


def exponential(values: Any) -> Any:
    """The exponentials of NumPy matrices (b, n, n)."""
    norms = np.abs(values).sum(-2).max(-1)
    with np.errstate(all="ignore"):
        return _series(values, norms, _BOUND[values.dtype.name])


def _series(values: Any, norms: Any, bound: float) -> Any:
    halvings = np.where(np.isfinite(norms) & (norms > bound), np.ceil(np.log2(norms / bound)), 0).astype(np.int64)
    x = values * np.exp2(-halvings.astype(norms.dtype))[:, None, None]
    unit = np.eye(x.shape[-1], dtype=x.dtype)
    powers = [np.broadcast_to(unit, x.shape), x]
    for _ in range(_STEP - 1):
        powers.append(powers[-1] @ x)
    # Paterson and Stockmeyer: a polynomial in x^4 whose coefficients are polynomials of degree 3
    one = x.real.dtype.type
    total = powers[0] * one(1 / factorial(_DEGREE))
    for block in range(_DEGREE // _STEP - 1, -1, -1):
        total = total @ powers[_STEP]
        for i in range(_STEP):
            total = total + powers[i] * one(1 / factorial(block * _STEP + i))
    for k in range(int(halvings.max(initial=0))):
        some = halvings > k
        total = total @ total if some.all() else np.where(some[:, None, None], total @ total, total)
    return total

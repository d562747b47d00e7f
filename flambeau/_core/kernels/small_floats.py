"""Floating-point numbers of 8 bits: what their codes mean, and the nearest code to a number, by NumPy.

Codes are a sign, an exponent and a mantissa, as in P. Micikevicius et al., "FP8 formats for deep learning", 2022; the kinds ending in "fnuz"
have no negative zero, whose code is the NaN; "e8m0fnu" is a power of 2 alone, as in the OCP's "Microscaling formats", 2023.  Rounding is to the
nearest, ties to even.  What is too large becomes the largest number in e4m3fn, infinity in e5m2, NaN in the others.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import SMALL
from .expr import walk

if TYPE_CHECKING:
    from ..dtypes import dtype
    from .programs import Program

Array = np.ndarray[Any, Any]


@cache
def meanings(d: dtype) -> Array:
    """The numbers that the 256 codes stand for, as float32."""
    _, mantissa, bias, most = SMALL[d]
    codes = np.arange(256)
    if not mantissa:
        made = np.ldexp(np.float64(1), codes - bias)
        made[255] = np.nan
        return made.astype(np.float32)
    low = codes & 127
    exponent, rest = low >> mantissa, low & (1 << mantissa) - 1
    size = np.where(exponent > 0, np.ldexp(1 + rest / (1 << mantissa), exponent - bias), np.ldexp(rest / (1 << mantissa), 1 - bias))
    size[low > most] = np.nan
    if d.name == "float8_e5m2":
        size[low == most + 1] = np.inf
    made = np.where(codes < 128, size, -size)
    if d.name.endswith("fnuz"):
        made[128] = np.nan
    return made.astype(np.float32)


@cache
def _borders(d: dtype) -> Array:
    """The smallest sizes that round to codes 1, 2, ... and past the largest: midpoints, which go to the even code."""
    most = SMALL[d][3]
    sizes = meanings(d)[: most + 1].astype(np.float64)
    middles = (np.append(sizes, 2 * sizes[-1] - sizes[-2])[1:] + sizes) / 2
    return np.where(np.arange(most + 1) % 2 == 1, middles, np.nextafter(middles, np.inf))


def widen(codes: Array, d: dtype) -> Array:
    """The numbers of codes, as float32."""
    made: Array = meanings(d)[np.asarray(codes)]
    return made


def narrow(values: Array, d: dtype) -> Array:
    """The codes of the nearest numbers, of values as float32."""
    with np.errstate(over="ignore"):
        v = np.asarray(values).astype(np.float32)
    _, mantissa, bias, most = SMALL[d]
    nan = np.isnan(v)
    if not mantissa:
        return _powers(v, nan)
    size = np.where(nan, 0, np.abs(v)).astype(np.float64)
    codes = np.searchsorted(_borders(d), size, side="right")
    negative = np.signbit(v)
    if d.name.endswith("fnuz"):
        made = np.where((codes > most) | nan, 128, codes + np.where(negative & (codes > 0), 128, 0))
        return made.astype(np.uint8)
    codes = np.minimum(codes, most) if d.name == "float8_e4m3fn" else codes
    return (np.where(nan, 127, codes) + np.where(negative, 128, 0)).astype(np.uint8)


def _powers(v: Array, nan: Array) -> Array:
    """The exponents of the nearest powers of 2 to sizes, halves upward but below the smallest normal number; no sign; 255 past the largest."""
    bits = np.abs(v).astype(np.float32).view(np.uint32).reshape(np.shape(v))
    exponent, rest = bits >> np.uint32(23), bits & np.uint32(0x7FFFFF)
    up = np.where(exponent > 0, rest >= 1 << 22, rest > 1 << 22)
    return np.where(nan | (exponent == 255), 255, np.minimum(exponent + up, 255)).astype(np.uint8)


def computes(program: Program) -> bool:
    """Whether a program does more with elements of 8 bits than to carry them from place to place."""
    types = {*program.out_types, *program.inputs, *program.scalars}
    if not any(d in SMALL for d in types):
        return False
    if len(types) > 1 or program.scalars or program.kind != "map":
        return True
    return any(e.op == "cast" and e.args[0].dtype in SMALL for e in walk(program.roots()))

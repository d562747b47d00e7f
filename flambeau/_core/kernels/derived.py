"""Primitives that are formulas of others, for targets that have no shorter way to say them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from . import expr as E

if TYPE_CHECKING:
    from ..dtypes import dtype


@functools.cache
def formula(op: str, d: dtype) -> E.Expr | None:
    """`op` of acc(0) and acc(1), of real type `d`, without that primitive; None where it has no formula here."""
    if d.kind == "b" or op not in ("floordiv", "rem"):
        return None
    a, b = E.acc(0, d), E.acc(1, d)
    zero, one = E.const(0, d), E.const(1, d)
    r = E.fmod(a, b)
    turned = E.compare("ne", r, zero) & E.compare("ne", r < zero, b < zero)  # towards zero is not downwards here
    if op == "rem":
        return E.where(turned, r + b, r)
    if d.kind != "f":
        q = E.truncdiv(a, b)
        return E.where(turned, q - one, q)
    q = (a - r) / b
    q = E.where(turned, q - one, q)
    whole = E.floor(q)
    whole = E.where(q - whole > E.const(0.5, d), whole + one, whole)
    return E.where(E.compare("eq", b, zero), a / b, E.where(E.compare("eq", q, zero), E.copysign(zero, a / b), whole))

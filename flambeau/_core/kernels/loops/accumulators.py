"""Accumulators: their parts, their initial values, how two combine, and where partial results lie in a workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import float32, int64
from .. import expr as E
from ..c_forms import half

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...dtypes import dtype
    from ..expr import Expr, Number

PAIRS = ("cprod", "cmax", "cmin", "cargmax", "cargmin")
NOWHERE = (1 << 63) - 1  # the position of an extreme of nothing
# max(x) and the sum of exp(x - max(x)) in one pass: its parts are the largest element so far and the sum by that.  An element brings x, and
# has a second, combined by "", as complex ones have.
EXPSUM = "expsum"


def start_of(how: str, d: dtype) -> Number:
    """What changes nothing when combined by `how` in type `d`."""
    if how in ("sum", "or"):
        return 0
    if how == "prod":
        return 1
    if how == "and":
        return -1 if d.kind == "i" else (1 << 8 * d.itemsize) - 1 if d.kind == "u" else 1
    low = how in ("max", "argmax", "logsumexp")
    if d.kind == "b":
        return not low
    if d.kind == "f":
        return float("-inf") if low else float("inf")
    bits = 8 * d.itemsize
    if d.kind == "u":
        return 0 if low else (1 << bits) - 1
    return -(1 << bits - 1) if low else (1 << bits - 1) - 1


def starts(how: str, d: dtype, parts: int = 1) -> list[Number]:
    """What an accumulator's parts begin with: its values, then its position; parts: of a number that `how` says nothing of."""
    if how == EXPSUM:
        return [float("-inf"), 0]
    parts, how = (2, how[1:]) if how in PAIRS else (parts, how)
    first = start_of(how, d)
    return [first, 0 if how == "prod" else first][:parts] + [NOWHERE] * has_position(how)


def has_position(how: str) -> bool:
    """Whether an accumulator has, behind its value, the int64 position of it."""
    return how.endswith(("argmax", "argmin"))


def flat_types(types: Iterable[dtype], combine: Sequence[str]) -> list[dtype]:
    """The type of every part of the accumulators of elements of `types`: a value (two of a complex number, whose second element
    combines by ""), then its position."""
    out = []
    for how, d in zip(combine, types, strict=True):
        if how:
            out += [d] * (2 if how in PAIRS or how == EXPSUM else 1) + [int64] * has_position(how)
    return out


def held_in(d: dtype) -> dtype:
    """The type of an accumulator's part where halves add up in float."""
    return float32 if half(d) else d


def arrays(sizes: Iterable[int], count: int, align: int) -> tuple[list[int], int]:
    """Where arrays of `count` elements of these sizes begin in a workspace, and its bytes."""
    at, places = 0, []
    for size in sizes:
        places.append(at)
        at += -(-size * count // align) * align
    return places, at


# --------------------------------------------------------------------------------------------------------------- formulas
def leaves(types: Sequence[dtype]) -> tuple[list[Expr], list[Expr]]:
    """Two lists of parts of such types, as acc(0), acc(1), ..."""
    return [E.acc(k, t) for k, t in enumerate(types)], [E.acc(len(types) + k, t) for k, t in enumerate(types)]


def finished(how: str, d: dtype, parts: Sequence[Expr]) -> list[Expr]:
    """An accumulator of elements of type `d` as programs see it: the position of an extreme of nothing is 0."""
    if not has_position(how):
        return [E.cast(x, d) for x in parts]
    nowhere = E.compare("eq", parts[-1], E.const(NOWHERE, int64))
    return [*(E.cast(x, d) for x in parts[:-1]), E.where(nowhere, E.const(0, int64), parts[-1])]


def joined(how: str, a: Sequence[Expr], b: Sequence[Expr]) -> list[Expr]:
    """Two partial results as one, each a value (two of a complex number, whose `how` begins with "c") and, for arg..., its position.
    Of equal extremes the one at the lower position counts; NaN is extreme."""
    if how == "cprod":
        return [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
    if how == "logsumexp":
        near = E.where(E.compare("eq", a[0], b[0]), E.const(0, a[0].dtype), -abs(a[0] - b[0]))
        return [E.maximum(a[0], b[0]) + E.log1p(E.exp(near))]
    if how not in PAIRS and not has_position(how):
        return [E.binary({"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}.get(how, how), a[0], b[0])]
    parts = 2 if how in PAIRS else 1
    better, equal = _better("gt" if how.endswith("max") else "lt", a[:parts], b[:parts])
    sooner = b[-1] < a[-1] if has_position(how) else E.to_bool(False)
    takes = E.where(_nan(a[:parts]), _nan(b[:parts]) & sooner, _nan(b[:parts]) | better | (equal & sooner))
    return [E.where(takes, y, x) for x, y in zip(a, b)]


def follows(how: str, a: Sequence[Expr], b: Sequence[Expr], parts: int = 1) -> list[Expr]:
    """A scan's running value `a`, of so many parts, followed by `b`.  Of equal extremes the later counts, with its position; NaN stays."""
    if how not in ("max", "min"):
        return joined("cprod", a, b) if parts == 2 and how == "prod" else [joined(how, (x,), (y,))[0] for x, y in zip(a, b)]
    better, equal = _better("gt" if how == "max" else "lt", a[:parts], b[:parts])
    takes = _nan(b[:parts]) | ((better | equal) & ~_nan(a[:parts]))
    return [E.where(takes, y, x) for x, y in zip(a, b)]


def _better(op: str, a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, Expr]:
    """Whether `b` comes before `a` in the order of their parts, and whether they are equal."""
    better, equal = E.compare(op, b[-1], a[-1]), E.compare("eq", b[-1], a[-1])
    for x, y in list(zip(a, b))[-2::-1]:
        same = E.compare("eq", y, x)
        better, equal = E.compare(op, y, x) | (same & better), same & equal
    return better, equal


def _nan(parts: Sequence[Expr]) -> Expr:
    found = E.isnan(parts[0])
    return found if len(parts) == 1 else found | E.isnan(parts[1])

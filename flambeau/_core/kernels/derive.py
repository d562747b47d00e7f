"""Derivatives of formulas, as formulas: reverse accumulation over the expression DAG.

One rule a primitive: from the node, its operands and the gradient arriving at it, the gradients of its operands.
A branch of `where` is differentiated as if it were chosen everywhere, and the choice is made between the derivatives (`Arrived`): a branch that is
not chosen may have an infinite derivative, which a gradient of 0 would make NaN.  A value with a rule of its own (``ruled``, see `formulas`) goes by that.
For complex values the gradient is the conjugate Wirtinger one, PyTorch's convention: a step along -grad descends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from . import expr as E
from .expr import Expr, const, where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Rule = Callable[[Expr, Sequence[Expr], Expr], tuple[Expr | None, ...]]

_LN2, _LN10, _TWO_OVER_SQRT_PI = math.log(2.0), math.log(10.0), 2.0 / math.sqrt(math.pi)
_ZERO_GRADIENT = frozenset("floor ceil round trunc lt le gt ge eq ne and or xor not shl shr floordiv truncdiv nextafter bitcast".split())


def _mul(a: Expr, b: Expr) -> Expr:
    """A product in a gradient; conjugates are placed by the caller."""
    return E.mul(a, b)


def _c(a: Expr) -> Expr:
    return E.conj(a)


def _pow(e: Expr, a: Sequence[Expr], g: Expr) -> tuple[Expr | None, ...]:
    x, y = a
    zero, one = const(0, x.dtype), const(1, x.dtype)
    base = x if y.op == "const" else where(y == zero, one, x)
    dx = where(y == zero, zero, g * _c(y * E.pow_(base, y - one)))
    if y.op == "const":
        return dx, None
    # 0**y has derivative 0 in y (for real y >= 0), where log(0) * 0 would be NaN
    level = (x == zero) & (E.real(y) >= 0.0)
    dy = g * _c(where(level & (E.imag(y) == 0.0) if y.dtype.is_complex else level, zero, e * E.log(x)))
    return dx, dy


def _extreme(e: Expr, a: Sequence[Expr], g: Expr) -> tuple[Expr | None, ...]:
    """maximum and minimum share the gradient equally between equal operands."""
    x, y = a
    zero, half = const(0, g.dtype), g * 0.5
    x_wins = x > y if e.op == "maximum" else x < y
    y_wins = x < y if e.op == "maximum" else x > y
    tie = x == y
    return where(tie, half, where(y_wins, zero, g)), where(tie, half, where(x_wins, zero, g))


def _abs(e: Expr, a: Sequence[Expr], g: Expr) -> tuple[Expr | None, ...]:
    x = a[0]
    if x.dtype.is_complex:
        # what is masked must be finite too, since a derivative by g has the mask on the other factor
        unit = where(e == 0.0, const(0, e.dtype), g / where(e == 0.0, const(1, e.dtype), e))
        return (E.complex_(unit * E.real(x), unit * E.imag(x)),)
    zero = const(0, x.dtype)
    return (where(x > zero, g, where(x < zero, -g, zero * g)),)


def _cast(e: Expr, a: Sequence[Expr], g: Expr) -> tuple[Expr | None, ...]:
    source = a[0].dtype
    if source.kind not in "fc":
        return (None,)
    return (E.cast(E.real(g) if g.dtype.is_complex and not source.is_complex else g, source),)


def _digamma(x: Expr) -> Expr:
    from .special import polygamma
    return polygamma(0, x)


def _hypot(e: Expr, a: Sequence[Expr], g: Expr) -> tuple[Expr | None, ...]:
    zero, one = const(0, e.dtype), const(1, e.dtype)
    length = where(e == zero, one, e)
    return where(e == zero, zero, g * (a[0] / length)), where(e == zero, zero, g * (a[1] / length))


_RULES: dict[str, Rule] = {
    "add": lambda e, a, g: (g, g),
    "sub": lambda e, a, g: (g, -g),
    "mul": lambda e, a, g: (_mul(g, _c(a[1])), _mul(g, _c(a[0]))),
    "div": lambda e, a, g: (g / _c(a[1]), -g * _c((a[0] / a[1]) / a[1])),
    "neg": lambda e, a, g: (-g,),
    "abs": _abs,
    "pow": _pow,
    "maximum": _extreme,
    "minimum": _extreme,
    "cast": _cast,
    "rem": lambda e, a, g: (g, -g * E.floordiv(a[0], a[1])),
    "fmod": lambda e, a, g: (g, -g * E.truncdiv(a[0], a[1])),
    "sqrt": lambda e, a, g: (g / _c(e * 2.0),),
    "rsqrt": lambda e, a, g: (g * _c(e * e * e * -0.5),),
    "exp": lambda e, a, g: (g * _c(e),),
    "exp2": lambda e, a, g: (g * _c(e * _LN2),),
    "expm1": lambda e, a, g: (g * _c(e + 1.0),),
    "log": lambda e, a, g: (g / _c(a[0]),),
    "log2": lambda e, a, g: (g / _c(a[0] * _LN2),),
    "log10": lambda e, a, g: (g / _c(a[0] * _LN10),),
    "log1p": lambda e, a, g: (g / _c(a[0] + 1.0),),
    "sin": lambda e, a, g: (g * _c(E.cos(a[0])),),
    "cos": lambda e, a, g: (-g * _c(E.sin(a[0])),),
    "tan": lambda e, a, g: (g * _c(e * e + 1.0),),
    "asin": lambda e, a, g: (g * _c(E.rsqrt(1.0 - a[0] * a[0])),),
    "acos": lambda e, a, g: (-g * _c(E.rsqrt(1.0 - a[0] * a[0])),),
    "atan": lambda e, a, g: (g / _c(a[0] * a[0] + 1.0),),
    "sinh": lambda e, a, g: (g * _c(E.cosh(a[0])),),
    "cosh": lambda e, a, g: (g * _c(E.sinh(a[0])),),
    "tanh": lambda e, a, g: (g * _c(1.0 - e * e),),
    "asinh": lambda e, a, g: (g * _c(E.rsqrt(a[0] * a[0] + 1.0)),),
    "acosh": lambda e, a, g: (g * _c(E.rsqrt((a[0] - 1.0) * (a[0] + 1.0)) if a[0].dtype.kind == "f" else
                                     E.rsqrt(a[0] - 1.0) * E.rsqrt(a[0] + 1.0)),),
    "atanh": lambda e, a, g: (g / _c(1.0 - a[0] * a[0]),),
    "erf": lambda e, a, g: (g * E.exp(-(a[0] * a[0])) * _TWO_OVER_SQRT_PI,),
    "erfc": lambda e, a, g: (g * E.exp(-(a[0] * a[0])) * -_TWO_OVER_SQRT_PI,),
    "lgamma": lambda e, a, g: (g * _digamma(a[0]),),
    "atan2": lambda e, a, g: (g * (a[1] / (a[0] * a[0] + a[1] * a[1])), g * (-a[0] / (a[0] * a[0] + a[1] * a[1]))),
    "hypot": _hypot,
    "copysign": lambda e, a, g: (where(a[0] == 0.0, const(0, g.dtype), g * E.copysign(const(1, g.dtype), a[0]) *
                                       E.copysign(const(1, g.dtype), a[1])), const(0, g.dtype)),
    "real": lambda e, a, g: (E.complex_(g, const(0, g.dtype)),),
    "imag": lambda e, a, g: (E.complex_(const(0, g.dtype), g),),
    "complex": lambda e, a, g: (E.real(g), E.imag(g)),
}


def _past_exp(e: Expr, g: Expr) -> tuple[tuple[Expr, Expr], ...] | None:
    """Gradients of n / (1 + exp(u)) at n and u; None for another quotient.  By the rules one after the other the infinite exp of a large u would be
    multiplied by the 0 that arrives there."""
    n, b = e.args
    if b.op != "add" or b.dtype.kind != "f":
        return None
    one, power = b.args if b.args[0].op == "const" else b.args[::-1]
    if one.op != "const" or one.value != 1.0 or power.op != "exp":
        return None
    return (n, g / b), (power.args[0], -g * (e * (1.0 - 1.0 / b)))


class Arrived:
    """A gradient that has come to a value: `g` where all of `cases` hold, conditions with whether each is true or false, and 0 elsewhere."""

    __slots__ = ("g", "cases")
    g: Expr
    cases: frozenset[tuple[Expr, bool]]

    def __init__(self, g: Expr, cases: frozenset[tuple[Expr, bool]] = frozenset()) -> None:
        self.g, self.cases = g, cases

    def chosen(self, but: frozenset[tuple[Expr, bool]] = frozenset()) -> Expr:
        """The gradient as an expression that holds everywhere, or where `but` holds."""
        made = self.g
        for c, holds in sorted(self.cases - but, key=lambda case: case[0].id, reverse=True):
            zero = const(0, made.dtype)
            made = where(c, made, zero) if holds else where(c, zero, made)
        return made

    def branches(self, e: Expr) -> Iterator[tuple[Expr, Arrived | None]]:
        """The two branches of a `where`, with what comes to each; None: nothing, as its case holds nowhere."""
        condition, *ways = e.args
        for way, holds in zip(ways, (True, False), strict=True):
            yield way, None if (condition, not holds) in self.cases else Arrived(self.g, self.cases | {(condition, holds)})

    def plus(self, o: Arrived) -> Arrived:
        """Both gradients."""
        both = self.cases & o.cases
        mine, others = self.cases - both, o.cases - both
        if not mine and not others:
            return Arrived(self.g + o.g, both)
        if len(mine) == len(others) == 1:
            ((c, holds),), ((d, _),) = mine, others
            if c is d:
                return Arrived(where(c, self.g, o.g) if holds else where(c, o.g, self.g), both)
        either = frozenset({(_all(mine) | _all(others), True)}) if mine and others else frozenset()
        return Arrived(self.chosen(both) + o.chosen(both), both | either)


def _all(cases: frozenset[tuple[Expr, bool]]) -> Expr:
    """Whether all of them hold."""
    first, *more = [c if holds else ~c for c, holds in sorted(cases, key=lambda case: case[0].id)]
    for c in more:
        first = first & c
    return first


def gradients(roots: Sequence[Expr], upstream: Sequence[Expr | None], wanted: Sequence[Expr]) -> list[Expr | None]:
    """For each wanted leaf, the sum over roots of upstream * d root / d leaf, or None where it is zero everywhere.

    Raises NotImplementedError for a primitive without a derivative on the path.
    """
    order = list(E.walk(tuple(roots)))
    needed: set[Expr] = set(wanted)
    for e in order:
        if any(a in needed for a in ways(e)):
            needed.add(e)
    total: dict[Expr, Arrived] = {}
    for root, g in zip(roots, upstream, strict=True):
        if g is not None and root.dtype.kind in "fc":
            total[root] = Arrived(g) if root not in total else total[root].plus(Arrived(g))
    for e in reversed(order):
        arrived = total.get(e)
        if arrived is None or not e.args or e not in needed or e.op in _ZERO_GRADIENT:
            continue
        for a, came in _passed(e, arrived, wanted):
            if came is None or a not in needed or a.dtype.kind not in "fc":
                continue
            if came.g.dtype is not a.dtype:
                came = Arrived(E.cast(E.real(came.g) if came.g.dtype.is_complex and not a.dtype.is_complex else came.g, a.dtype), came.cases)
            total[a] = total[a].plus(came) if a in total else came
    return [total[w].chosen() if w in total else None for w in wanted]


def _passed(e: Expr, arrived: Arrived, wanted: Sequence[Expr]) -> Iterator[tuple[Expr, Arrived | None]]:
    """What of the gradient of `e` goes to which of its operands, or to operands of these."""
    if e.op == "where":
        yield from arrived.branches(e)
        return
    passed = _past_exp(e, arrived.g) if e.op == "div" and all(e.args[1] is not w for w in wanted) else None
    for a, g in passed or zip(ways(e), by_rule(e, arrived.g), strict=True):
        yield a, None if g is None else Arrived(g, arrived.cases)


def ways(e: Expr) -> tuple[Expr, ...]:
    """The operands that a gradient goes to."""
    return e.args[1:] if e.op == "ruled" else e.args


def by_rule(e: Expr, g: Expr) -> Sequence[Expr | None]:
    """What goes to each of them, by the rule of a primitive other than `where`, or by the value's own."""
    if e.op == "ruled":
        made = e.value(g, e, *ways(e))
        return made if isinstance(made, tuple) else (made,)
    found = _RULES.get(e.op)
    if found is None:
        raise NotImplementedError(f"the primitive {e.op!r} has no derivative")
    return found(e, e.args, g)

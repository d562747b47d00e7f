"""Derivatives of formulas, as formulas: reverse accumulation over the expression DAG.

One rule a primitive: from the node, its operands and the gradient arriving at it, the gradients of its operands.
For complex values the gradient is the conjugate Wirtinger one, PyTorch's convention: a step along -grad descends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from . import expr as E
from .expr import Expr, const, where

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    from .special import digamma
    return digamma(x)


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
    "where": lambda e, a, g: (None, where(a[0], g, const(0, g.dtype)), where(a[0], const(0, g.dtype), g)),
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


def gradients(roots: Sequence[Expr], upstream: Sequence[Expr | None], wanted: Sequence[Expr]) -> list[Expr | None]:
    """For each wanted leaf, the sum over roots of upstream * d root / d leaf, or None where it is zero everywhere.

    Raises NotImplementedError for a primitive without a derivative on the path.
    """
    order = list(E.walk(tuple(roots)))
    needed: set[Expr] = set(wanted)
    for e in order:
        if any(a in needed for a in e.args):
            needed.add(e)
    total: dict[Expr, Expr] = {}
    for root, g in zip(roots, upstream, strict=True):
        if g is not None and root.dtype.kind in "fc":
            total[root] = g if root not in total else total[root] + g
    for e in reversed(order):
        g = total.get(e)
        if g is None or not e.args or e not in needed or e.op in _ZERO_GRADIENT:
            continue
        rule = _RULES.get(e.op)
        if rule is None:
            raise NotImplementedError(f"the primitive {e.op!r} has no derivative")
        passed = _past_exp(e, g) if e.op == "div" and all(e.args[1] is not w for w in wanted) else None
        for a, ga in passed or zip(e.args, rule(e, e.args, g), strict=True):
            if ga is None or a not in needed or a.dtype.kind not in "fc":
                continue
            if ga.dtype is not a.dtype:
                ga = E.cast(E.real(ga) if ga.dtype.is_complex and not a.dtype.is_complex else ga, a.dtype)
            total[a] = total[a] + ga if a in total else ga
    return [total.get(w) for w in wanted]

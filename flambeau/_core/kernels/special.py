"""Special functions as formulas over the primitives, so that every target has them."""

from __future__ import annotations

import functools
import math
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..dtypes import float64
from . import bessel_tables as T
from . import expr as E
from .expr import Expr, const, where
from .formulas import ruled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def in_double(formula: Callable[..., Expr]) -> Callable[..., Expr]:
    """The formula, worked out in float64 for narrower types too and rounded once: for what cancels near zeros and poles, and for arguments
    that a function has to reduce."""
    @functools.wraps(formula)
    def call(*xs: Expr) -> Expr:
        d = xs[0].dtype
        if d is float64:
            return formula(*xs)
        before = _SHORT.set(True)
        try:
            return E.cast(formula(*(E.cast(x, float64) for x in xs)), d)
        finally:
            _SHORT.reset(before)
    return call


_SHORT: ContextVar[bool] = ContextVar("short", default=False)


def short() -> bool:
    """Whether the formula in double that is being written is for a result in single, for which ten digits will do."""
    return _SHORT.get()


SPLIT = 8  # coefficients from which on a series is summed as two


def series(table: tuple[float, ...], t: Expr) -> Expr:
    """The Chebyshev series at t, by Clenshaw's recurrence."""
    if t.dtype.name != "float64":
        top = max(abs(c) for c in table)
        table = table[:max(j for j, c in enumerate(table) if abs(c) > 2e-9 * top) + 1]
    if len(table) < SPLIT:
        first, second = _clenshaw(table, t)
        return t * first - second + table[0]
    z = t * t * 2.0 - 1.0  # T_2: the even polynomials are T_k(z), the odd ones follow the same recurrence; two short ones need not wait for one another
    first, second = _clenshaw(table[::2], z)
    even = z * first - second + table[0]
    first, second = _clenshaw(table[1::2], z)
    return even + t * ((z + z - 1.0) * first - second + table[1])


def _clenshaw(table: Sequence[float], t: Expr) -> tuple[Expr, Expr]:
    """The recurrence down to the second coefficient, and one before it."""
    twice = t + t
    b1, b2 = const(0, t.dtype), const(0, t.dtype)
    for c in reversed(table[1:]):
        b1, b2 = twice * b1 - b2 + c, b1
    return b1, b2


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x)), without overflow in a gradient: callers give its derivative as y (1 - y)."""
    return 1.0 / (1.0 + E.exp(-x))


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|))."""
    return E.maximum(x, const(0, x.dtype)) + E.log1p(E.exp(-abs(x)))


def _of_order(n: int) -> Callable[..., Expr]:
    def slope(g: Expr, y: Expr, x: Expr) -> Expr:
        return g * polygamma(n, x)
    return slope


_slope_of_order = functools.cache(_of_order)  # formulas are compared by their rules


def polygamma(n: int, x: Expr) -> Expr:
    """The derivative of digamma of order n, each order the derivative of the one before: formulas would lose what the steps of the recurrence cancel."""
    if n > 1:
        from .bessel import polygamma as formula
        return ruled(formula(n, x), (x,), _slope_of_order(n + 1))
    return ruled(_trigamma(x) if n else _digamma(x), (x,), _slope_of_order(n + 1))


@in_double
def _digamma(x: Expr) -> Expr:
    """The logarithmic derivative of gamma: reflection below 0, recurrence up to 10, then the asymptotic series (Abramowitz and Stegun
    6.3.5-7, 6.3.18)."""
    steps = 10
    low = x < 0.5
    z = where(low, 1.0 - x, x)
    shift = const(0, x.dtype)
    for _ in range(steps):
        small = z < float(steps)
        shift = shift + where(small, 1.0 / z, const(0, x.dtype))
        z = where(small, z + 1.0, z)
    w = 1.0 / (z * z)
    rest = w * (1 / 12 - w * (1 / 120 - w * (1 / 252 - w * (1 / 240 - w * (1 / 132 - w * (691 / 32760 - w * (1 / 12)))))))
    psi = E.log(z) - 0.5 / z - rest - shift
    from_zero = (x - T.DIGAMMA_ZERO[0]) - T.DIGAMMA_ZERO[1]
    psi = where(abs(from_zero) < 0.25, from_zero * series(T.DIGAMMA, from_zero * 4.0), psi)
    turn = x - E.round_(x)  # of the nearest pole, exact
    reflected = psi - math.pi / E.tan(math.pi * turn)
    out = where(low, reflected, psi)
    pole = (x <= 0.0) & (x == E.floor(x))
    at_zero = E.copysign(const(math.inf, x.dtype), -x)
    return where(pole, where(x == 0.0, at_zero, const(math.nan, x.dtype)), out)


@in_double
def _trigamma(x: Expr) -> Expr:
    """The derivative of digamma, in the same way (Abramowitz and Stegun 6.4.6, 6.4.7, 6.4.12)."""
    steps = 10
    low = x < 0.5
    z = where(low, 1.0 - x, x)
    total = const(0, x.dtype)
    for _ in range(steps):
        small = z < float(steps)
        total = total + where(small, 1.0 / (z * z), const(0, x.dtype))
        z = where(small, z + 1.0, z)
    w = 1.0 / (z * z)
    rest = (1.0 + (0.5 + (1 / 6 - w * (1 / 30 - w * (1 / 42 - w * (1 / 30 - w * (5 / 66 - w * 691 / 2730))))) / z) / z) / z
    out = total + rest
    s = E.sin(math.pi * (x - E.round_(x)))
    return where(low, math.pi ** 2 / (s * s) - out, out)


def polynomial(x: Expr, lowest_first: Sequence[float]) -> Expr:
    """By Horner's rule."""
    made: Expr = const(lowest_first[-1], x.dtype)
    for c in lowest_first[-2::-1]:
        made = made * x + c
    return made

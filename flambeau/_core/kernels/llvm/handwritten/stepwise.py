"""Functions of two elements that take as many steps as their values ask for: common divisors, and the incomplete gamma functions.

The incomplete gamma functions of singles go by eight in a vector, each element for as long as it would by itself, so that it does not see its neighbours.
Each entry is called with the addresses of the result and of both operands, vectors of one type.  How the incomplete gamma functions are worked out:
`kernels/incomplete_gamma.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....dtypes import float64
from ... import native
from ...incomplete_gamma import C0, C1, EPS, EPS_OF_FLOAT, LOG_GAMMA, MOST, SMALL
from ...transcendental import lgamma_for_single, own
from ..emit import Module, base, vec
from ..values import Value as Number
from .code import Code, Turn, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....dtypes import dtype

LANES = 8  # of functions of singles, which are worked out in double; each goes on for as long as it would by itself
_SHARED = 1 << 11  # elements from which the threads share the work


def entry(name: str, d: dtype, count: int) -> Callable[..., None]:
    """``entry(out, first, second)`` of the function `name`, for `count` elements."""
    from .. import compile as compiler
    symbol = f"flambeau_{name}_{d.name}"
    code: Any = compiler.functions(("stepwise", name, d.name), (symbol,), lambda: text(symbol, name, d))[symbol]
    return native.make_entry([(code, count, _SHARED)], (), 3, parallel=count > _SHARED)


def text(symbol: str, name: str, d: dtype) -> str:
    """The IR of one function for one type."""
    module = Module()
    code = Code(module, "void", symbol, "i64", "i64", "ptr", "ptr")
    begin, end, args, _ = code.given
    out, first, second = (code.address(args, k) for k in range(3))
    def elements(begin: Value, end: Value, lanes: int) -> None:
        with code.span(begin, end, step=lanes) as turn:
            at, kind = turn.i * d.itemsize, vec(base(d), lanes)
            made = _FUNCTIONS[name](code, (first + at).load(kind), (second + at).load(kind), d)
            (out + at).store(made)
    lanes = LANES if d.kind == "f" and d.itemsize < 8 else 1  # those whose functions are formulas
    whole = begin + ((end - begin) & -lanes)
    elements(begin, whole, lanes)
    if lanes > 1:
        elements(whole, end, 1)
    code.back()
    code.finish()
    return module.text()


# ---------------------------------------------------------------------------------------------------------------- integers
def _size(code: Code, x: Value, d: dtype) -> Value:
    return code.pick(x < 0, code.constant(x.type, 0) - x, x) if d.kind == "i" else x


def _divisor(code: Code, a: Value, b: Value) -> Value:
    """Euclid's algorithm, of unsigned numbers, from the smaller on: one step where it divides the other."""
    less = a.below(b)
    a, b = code.pick(less, b, a), code.pick(less, a, b)
    with code.repeat(a, b) as turn:
        a, b = turn.vars
        last = b.equals(0)
        rest = a.remainder(code.pick(last, code.constant(b.type, 1), b))
        turn.next = [code.pick(last, a, b), code.pick(last, b, rest)]
        turn.more = turn.next[1].differs(0)
    return turn.vars[0]


def _gcd(code: Code, a: Value, b: Value, d: dtype) -> Value:
    return _divisor(code, _size(code, a, d), _size(code, b, d))


def _lcm(code: Code, a: Value, b: Value, d: dtype) -> Value:
    a, b = _size(code, a, d), _size(code, b, d)
    common = _divisor(code, a, b)
    return a.over(code.pick(common.equals(0), code.constant(a.type, 1), common)) * b


# ------------------------------------------------------------------------------------------------------- incomplete gamma
def _real(code: Code, like: Value, number: float) -> Value:
    """A constant in the lanes of another value."""
    return Value(code, like.type, code.named(number, like))


def _any(code: Code, mask: Value) -> Value:
    return mask if mask.lanes == 1 else mask.bits(f"i{mask.lanes}").differs(0)


def _function(code: Code, name: str, x: Value, single: bool) -> Value:
    """The C library's, or for results in single the formula of `transcendental`."""
    if not single:
        return code.libm(name, x)
    number = Number(code, x.name, float64, x.lanes)
    found = lgamma_for_single(number) if name == "lgamma" else own(name, [number])
    assert found is not None
    return Value(code, x.type, found.v)


def _summed(code: Code, turn: Turn, made: list[Value], near: Value) -> None:
    """Ends a step of a loop that carries its number, some values and which lanes are not done: those that are keep what they have."""
    k, *before, active = turn.vars
    more = active & (near ^ 1) & ((k + 1.0) < MOST)
    turn.next = [k + 1.0, *[code.pick(active, new, old) for new, old in zip(made, before, strict=True)], more]
    turn.more = _any(code, more)


def _series(code: Code, a: Value, x: Value, near: float, used: Value) -> Value:
    """The sum whose product with x^a exp(-x) / Gamma(a) is P."""
    one = _real(code, a, 1.0)
    first = one / a
    with code.repeat(one, first, first, used) as turn:
        k, term, total, _ = turn.vars
        term = term * (x / (a + k))  # the quotient waits for no other term
        total = total + term
        _summed(code, turn, [term, total], code.built_in("fabs", term) < code.built_in("fabs", total) * near)
    return turn.vars[2]


def _fraction(code: Code, a: Value, x: Value, near: float, used: Value) -> Value:
    """The continued fraction whose product with x^a exp(-x) / Gamma(a) is Q."""
    tiny, one = _real(code, a, 1e-300), _real(code, a, 1.0)

    def away(v: Value) -> Value:
        return code.pick(code.built_in("fabs", v) < tiny, tiny, v)
    b = x + 1.0 - a
    first = one / code.pick(b.compare("oeq", 0.0), tiny, b)
    with code.repeat(one, b, _real(code, a, 1e300), first, first, used) as turn:
        k, b, c, d, h, _ = turn.vars
        an = (a - k) * k
        b = b + 2.0
        d = one / away(an * d + b)
        c = away(b + an / c)
        step = c * d
        _summed(code, turn, [b, c, d, h * step], code.built_in("fabs", step - 1.0) < 4 * near)
    return turn.vars[4]


def _small(code: Code, a: Value, x: Value, used: Value, single: bool) -> Value:
    """Q for a < SMALL and x < a + 1: 1 - exp(u) of u = a log(x) - log(Gamma(1 + a)), less the terms of P beyond the first."""
    beyond, zero, one = (_real(code, a, v) for v in (0.0, 0.0, 1.0))
    for c in reversed(LOG_GAMMA):
        beyond = beyond * a + c
    u = a * (_function(code, "log", x, single) - beyond)
    with code.repeat(one, one, zero, used) as turn:
        k, term, total, _ = turn.vars
        term = zero - term * (x / k)
        part = term / (a + k)
        total = total + part
        _summed(code, turn, [term, total], code.built_in("fabs", part).compare("ole", code.built_in("fabs", total) * EPS))
    grown = _function(code, "expm1", u, single)
    return zero - grown - (grown + 1.0) * a * turn.vars[2]


def _temme(code: Code, a: Value, x: Value, single: bool) -> Value:
    """Q by its expansion in 1/a with the first coefficients as series in eta."""
    mu, zero = (x - a) / a, _real(code, a, 0.0)
    phi = mu - _function(code, "log1p", mu, single)
    short = zero
    for c in (1 / 8, 1 / 7, 1 / 6, 1 / 5, 1 / 4, 1 / 3, 1 / 2):
        short = _real(code, a, c) - mu * short
    phi = code.pick(code.built_in("fabs", mu) < 0.02, mu * mu * short, phi)
    eta = code.built_in("sqrt", phi * 2.0)
    eta = code.pick(mu < 0.0, zero - eta, eta)

    def sum_of(coefficients: tuple[float, ...]) -> Value:
        total = zero
        for c in reversed(coefficients):
            total = total * eta + c
        return total
    tail = _function(code, "exp", a * eta * eta * -0.5, single) / code.built_in("sqrt", a * 6.283185307179586)
    return _function(code, "erfc", eta * code.built_in("sqrt", a * 0.5), single) * 0.5 + tail * (sum_of(C0) + sum_of(C1) / a)


def _incomplete(code: Code, a: Value, x: Value, d: dtype, upper: bool) -> Value:
    single = d.itemsize < 8
    enough = EPS_OF_FLOAT if single else EPS  # where x < a + 1, Q is what P leaves of 1, and may be far smaller than P
    if single:
        a, x = (v.cast("fpext", "double") for v in (a, x))
    infinite = float("inf")
    none, all_of = (_real(code, a, 1.0 if upper == q else 0.0) for q in (True, False))  # where P is 0, and where it is 1
    a_is, x_is = (v.compare("oeq", infinite) for v in (a, x))
    a_none, x_none = (v.compare("oeq", 0.0) for v in (a, x))
    bad = a.compare("uno", a) | x.compare("uno", x) | (a < 0.0) | (x < 0.0) | (a_none & x_none) | (a_is & x_is)
    zero, one = x_none | a_is, a_none | x_is
    made = code.pick(bad, _real(code, a, float("nan")), code.pick(zero, none, all_of))
    known = bad | zero | one
    usual = known ^ 1
    with code.when(_any(code, usual), made) as done:
        uniform = usual & a.compare("ogt", 1e6) & (code.built_in("fabs", x - a) < code.built_in("sqrt", a) * 6.0)
        rest = usual & (uniform ^ 1)
        low = rest & (x < a + 1.0)
        high = rest & (low ^ 1)
        with code.when(_any(code, uniform), made) as near:
            near.next = [_temme(code, a, x, single)]
        with code.when(_any(code, rest), near.vars[0]) as far:
            exponent = a * _function(code, "log", x, single) - x - _function(code, "lgamma", a, single)
            front = _function(code, "exp", exponent, single)
            with code.when(_any(code, low), near.vars[0]) as below:
                below.next = [code.pick(low, _series(code, a, x, EPS if upper else enough, low) * front, near.vars[0])]
            with code.when(_any(code, high), below.vars[0]) as above:
                above.next = [code.pick(high, _fraction(code, a, x, enough, high) * front, below.vars[0])]
            far.next = [above.vars[0]]
        found = far.vars[0]
        other = _real(code, a, 1.0) - found  # low: P was found, else Q
        found = code.pick(low, other, found) if upper else code.pick(low, found, other)
        if upper:
            little = low & a.compare("olt", SMALL)
            with code.when(_any(code, little), found) as last:
                last.next = [code.pick(little, _small(code, a, x, little, single), found)]
            found = last.vars[0]
        done.next = [code.pick(known, made, found)]
    return done.vars[0].cast("fptrunc", base(d)) if single else done.vars[0]


_FUNCTIONS: dict[str, Callable[[Code, Value, Value, dtype], Value]] = {
    "gcd": _gcd, "lcm": _lcm, "igamma": lambda code, a, x, d: _incomplete(code, a, x, d, False),
    "igammac": lambda code, a, x, d: _incomplete(code, a, x, d, True)}

"""Functions of two elements that take as many steps as their values ask for: common divisors, and the incomplete gamma functions.

Each entry is called with the addresses of the result and of both operands, vectors of one type.  The incomplete gamma functions are worked out in
double: the series of P for x < a + 1, Lentz's continued fraction of Q beyond (Abramowitz and Stegun 6.5.29, 6.5.31), and for large a near x
Temme's uniform expansion (1979); Q for small a and x by what is left of 1, term by term (6.5.29 with 6.1.33).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import native
from ..emit import Module, base
from .code import Code, Turn, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....dtypes import dtype

EPS, EPS_OF_FLOAT = 2.0 ** -53, 2.0 ** -34  # terms of less than these parts of a sum are left out
MOST = 10000.0  # steps of a series
# Temme (1979), table of the coefficients of C0 and C1 in powers of eta
C0 = (-1 / 3, 1 / 12, -1 / 135, -1 / 864, 1 / 2835, 139 / 777600, -1 / 25515, -571 / 261273600)
C1 = (-1 / 540, -1 / 288, 1 / 378, -77 / 77760, 1 / 4860)
# log(Gamma(1 + a)) = a times these in powers of a: -gamma, and zeta(k) (-1)^k / k
_LOG_GAMMA = (
    -0.5772156649015329, 0.8224670334241132, -0.40068563438653143, 0.27058080842778454, -0.20738555102867398, 0.1695571769974082,
    -0.1440498967688461, 0.12550966952474304, -0.11133426586956469, 0.1000994575127818, -0.09095401714582904, 0.083353840546109,
    -0.0769325164113522, 0.07143294629536133, -0.06666870588242046, 0.06250095514121304, -0.058823978658684585, 0.055555767627403614,
    -0.05263167937961666, 0.05000004769810169, -0.047619070330142226, 0.04545455629320467, -0.04347826605304026,
)
SMALL = 0.2  # a, below which 1 - P would lose Q's digits
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
    kind, size = base(d), d.itemsize
    with code.span(begin, end) as turn:
        at = turn.i * size
        made = _FUNCTIONS[name](code, (first + at).load(kind), (second + at).load(kind), d)
        (out + at).store(made)
    code.back()
    code.finish()
    return module.text()


# ---------------------------------------------------------------------------------------------------------------- integers
def _size(code: Code, x: Value, d: dtype) -> Value:
    return code.pick(x < 0, code.constant(x.type, 0) - x, x) if d.kind == "i" else x


def _divisor(code: Code, a: Value, b: Value) -> Value:
    """Euclid's algorithm, of unsigned numbers."""
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
def _series(code: Code, a: Value, x: Value, near: float) -> Value:
    """The sum whose product with x^a exp(-x) / Gamma(a) is P."""
    first = code.real(1.0) / a
    with code.repeat(code.real(1.0), first, first) as turn:
        k, term, total = turn.vars
        term = term * x / (a + k)
        total = total + term
        turn.next = [k + 1.0, term, total]
        turn.more = _goes_on(code, turn, code.built_in("fabs", term) < code.built_in("fabs", total) * near)
    return turn.vars[2]


def _fraction(code: Code, a: Value, x: Value, near: float) -> Value:
    """The continued fraction whose product with x^a exp(-x) / Gamma(a) is Q."""
    tiny = code.real(1e-300)

    def away(v: Value) -> Value:
        return code.pick(code.built_in("fabs", v) < tiny, tiny, v)
    b = x + 1.0 - a
    first = code.real(1.0) / code.pick(b.compare("oeq", 0.0), tiny, b)
    with code.repeat(code.real(1.0), b, code.real(1e300), first, first) as turn:
        k, b, c, d, h = turn.vars
        an = (a - k) * k
        b = b + 2.0
        d = code.real(1.0) / away(an * d + b)
        c = away(b + an / c)
        step = c * d
        turn.next = [k + 1.0, b, c, d, h * step]
        turn.more = _goes_on(code, turn, code.built_in("fabs", step - 1.0) < 4 * near)
    return turn.vars[4]


def _goes_on(code: Code, turn: Turn, near: Value) -> Value:
    return (turn.next[0] < MOST) & (near ^ 1)


def _small(code: Code, a: Value, x: Value) -> Value:
    """Q for a < SMALL and x < a + 1: 1 - exp(u) of u = a log(x) - log(Gamma(1 + a)), less the terms of P beyond the first."""
    beyond = code.real(0.0)
    for c in reversed(_LOG_GAMMA):
        beyond = beyond * a + c
    u = a * (code.libm("log", x) - beyond)
    with code.repeat(code.real(1.0), code.real(1.0), code.real(0.0)) as turn:
        k, term, total = turn.vars
        term = code.real(0.0) - term * x / k
        part = term / (a + k)
        total = total + part
        turn.next = [k + 1.0, term, total]
        turn.more = _goes_on(code, turn, code.built_in("fabs", part).compare("ole", code.built_in("fabs", total) * EPS))
    grown = code.libm("expm1", u)
    return code.real(0.0) - grown - (grown + 1.0) * a * turn.vars[2]


def _temme(code: Code, a: Value, x: Value) -> Value:
    """Q by its expansion in 1/a with the first coefficients as series in eta."""
    mu = (x - a) / a
    phi = mu - code.libm("log1p", mu)
    short = code.real(0.0)
    for c in (1 / 8, 1 / 7, 1 / 6, 1 / 5, 1 / 4, 1 / 3, 1 / 2):
        short = code.real(c) - mu * short
    phi = code.pick(code.built_in("fabs", mu) < 0.02, mu * mu * short, phi)
    eta = code.built_in("sqrt", phi * 2.0)
    eta = code.pick(mu < 0.0, code.real(0.0) - eta, eta)

    def sum_of(coefficients: tuple[float, ...]) -> Value:
        total = code.real(0.0)
        for c in reversed(coefficients):
            total = total * eta + c
        return total
    tail = code.libm("exp", a * eta * eta * -0.5) / code.built_in("sqrt", a * 6.283185307179586)
    return code.libm("erfc", eta * code.built_in("sqrt", a * 0.5)) * 0.5 + tail * (sum_of(C0) + sum_of(C1) / a)


def _incomplete(code: Code, a: Value, x: Value, d: dtype, upper: bool) -> Value:
    enough = EPS if d.itemsize == 8 else EPS_OF_FLOAT  # where x < a + 1, Q is what P leaves of 1, and may be far smaller than P
    if d.itemsize < 8:
        a, x = (v.cast("fpext", "double") for v in (a, x))
    infinite = float("inf")
    none, all_of = (code.real(1.0 if upper == q else 0.0) for q in (True, False))  # where P is 0, and where it is 1
    a_is, x_is = (v.compare("oeq", infinite) for v in (a, x))
    a_none, x_none = (v.compare("oeq", 0.0) for v in (a, x))
    bad = a.compare("uno", a) | x.compare("uno", x) | (a < 0.0) | (x < 0.0) | (a_none & x_none) | (a_is & x_is)
    zero, one = x_none | a_is, a_none | x_is
    made = code.pick(bad, code.real(float("nan")), code.pick(zero, none, all_of))
    with code.when((bad | zero | one) ^ 1, made) as usual:
        uniform = a.compare("ogt", 1e6) & (code.built_in("fabs", x - a) < code.built_in("sqrt", a) * 6.0)
        low = (x < a + 1.0) & (uniform ^ 1)
        found = usual.vars[0]
        with code.when(uniform, found) as near:
            near.next = [_temme(code, a, x)]
        with code.when(uniform ^ 1, near.vars[0]) as rest:
            front = code.libm("exp", a * code.libm("log", x) - x - code.libm("lgamma", a))
            with code.when(low, rest.vars[0]) as below:
                below.next = [_series(code, a, x, EPS if upper else enough) * front]
            with code.when(low ^ 1, below.vars[0]) as above:
                above.next = [_fraction(code, a, x, enough) * front]
            rest.next = [above.vars[0]]
        other = code.real(1.0) - rest.vars[0]  # low: P was found, else Q
        made = code.pick(low, other, rest.vars[0]) if upper else code.pick(low, rest.vars[0], other)
        if upper:
            with code.when(low & a.compare("olt", SMALL), made) as little:
                little.next = [_small(code, a, x)]
            made = little.vars[0]
        usual.next = [made]
    return usual.vars[0] if d.itemsize == 8 else usual.vars[0].cast("fptrunc", base(d))


_FUNCTIONS: dict[str, Callable[[Code, Value, Value, dtype], Value]] = {
    "gcd": _gcd, "lcm": _lcm, "igamma": lambda code, a, x, d: _incomplete(code, a, x, d, False),
    "igammac": lambda code, a, x, d: _incomplete(code, a, x, d, True)}

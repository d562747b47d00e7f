"""Numbers that stand for sizes which are not known: plans made with them hold for all shapes that take the same turns.

Planning is arithmetic with sizes and strides, and questions about them.  A `Trace` hands out an `Unknown` for each size of an example; arithmetic
with them is written down as lines of Python, and each question that is answered by the example's value becomes a condition.  What was made is then
true of every shape that meets the conditions, with the lines' values in the place of the example's.

Whoever needs the number itself (an index, a length, a text) has it, upon the condition that it is this one.  It has no hash, so that nothing is
kept by it and found again; but where a trace says that what is kept meanwhile is dropped (`Trace.hashes`), it is found as the object that it is.
"""

from __future__ import annotations

import operator
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Number = int | float


class Unknown:
    """A number in a trace.

    name: the variable that has it in the trace's lines.  value: the example's.  low: it is never less.  factors: of what product, as a number and
    sorted names, it is.
    """

    __slots__ = ("of", "name", "value", "low", "times", "factors")

    def __hash__(self) -> int:
        if not self.of.hashes:
            raise TypeError("an unknown number has no hash")
        return id(self) >> 4

    def __init__(self, of: Trace, name: str, value: Number, low: float, times: int = 1, factors: tuple[str, ...] = ()) -> None:
        self.of, self.name, self.value, self.low, self.times, self.factors = of, name, value, low, times, factors or (name,)

    def __repr__(self) -> str:
        return f"Unknown({self.name}: {self.value})"

    # arithmetic
    def __add__(self, other: Any) -> Any:
        if other.__class__ is int and not other:
            return self
        return self.of.sum(self, other, 1)

    def __radd__(self, other: Any) -> Any:
        return self.__add__(other)

    def __sub__(self, other: Any) -> Any:
        if other.__class__ is int and not other:
            return self
        return self.of.sum(self, other, -1)

    def __rsub__(self, other: Any) -> Any:
        return self.of.sum(-self, other, 1)

    def __mul__(self, other: Any) -> Any:
        return self.of.product(self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.of.product(self, other)

    def __neg__(self) -> Any:
        return self.of.product(self, -1)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __floordiv__(self, other: Any) -> Any:
        return self.of.quotient(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self.of.quotient(other, self)

    def __mod__(self, other: Any) -> Any:
        return self.of.rest(self, other)

    def __rmod__(self, other: Any) -> Any:
        return self.of.rest(other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return self.of.ratio(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.of.ratio(other, self)

    def __rshift__(self, other: Any) -> Any:
        return self.of.made(">>", self, other)

    def __and__(self, other: Any) -> Any:
        return self.of.made("&", self, other, 0.0 if self.low >= 0 else float("-inf")) if other.__class__ is int else NotImplemented

    def __rand__(self, other: Any) -> Any:
        return self.__and__(other)

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << other) if other.__class__ is int and 0 <= other < 62 else NotImplemented

    def __trunc__(self) -> Any:
        return self.of.whole(self)

    # questions
    def __eq__(self, other: Any) -> Any:
        return self.of.ask("==", self, other)

    def __ne__(self, other: Any) -> Any:
        return not self.of.ask("==", self, other)

    def __lt__(self, other: Any) -> Any:
        return self.of.ask("<", self, other)

    def __le__(self, other: Any) -> Any:
        return self.of.ask("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return not self.of.ask("<=", self, other)

    def __ge__(self, other: Any) -> Any:
        return not self.of.ask("<", self, other)

    def __bool__(self) -> bool:
        return bool(self != 0)

    # the number itself
    def __index__(self) -> int:
        return self.of.fixed(self)  # type: ignore[no-any-return]

    def __int__(self) -> int:
        return int(self.of.fixed(self))

    def __float__(self) -> float:
        return float(self.of.fixed(self))

    def __str__(self) -> str:
        return str(self.of.fixed(self))

    def __format__(self, how: str) -> str:
        return format(self.of.fixed(self), how)


class NoTrace(Exception):
    """What was traced depends on more than sizes, or asks too much of them."""


_DO: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
                                             "/": operator.truediv, ">>": operator.rshift, "&": operator.and_,
                                             "==": operator.eq, "<": operator.lt, "<=": operator.le}
_MOST = 400  # lines


class Trace:
    """lines: assignments and conditions, in order: (text, the name assigned or "", the names read).  stuck: how many numbers had to be the example's.
    rooms: what was allocated, each a meta; the first has the `Address` of the number FIRST_ROOM.  metas: by sizes, strides and type, those of unknown
    sizes, of which there is one each.  hashes: whether numbers and metas have a hash."""

    __slots__ = ("lines", "stuck", "rooms", "metas", "hashes", "_known", "_asked", "_names")

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, tuple[str, ...]]] = []
        self.stuck = 0
        self.rooms: list[Any] = []
        self.metas: dict[Any, Any] = {}
        self.hashes = False
        self._known: dict[Any, Unknown] = {}
        self._asked: dict[str, bool] = {}
        self._names: dict[str, Unknown] = {}

    def given(self, name: str, value: int, low: int) -> Unknown:
        """The number that a call gives under a name."""
        made = self._names[name] = Unknown(self, name, value, low)
        return made

    def made(self, op: str, a: Any, b: Any, low: float = float("-inf")) -> Any:
        """The number that an operator gives."""
        key = op, _text(a), _text(b)
        found = self._known.get(key)
        if found is None:
            value = _DO[op](_value(a), _value(b))
            found = self._known[key] = self._line(f"{key[1]} {op} {key[2]}", value, low, a, b)
        return found

    def whole(self, a: Unknown) -> Unknown:
        """A number without what is behind the point."""
        if a.value.__class__ is int:
            return a
        key = "int", a.name, ""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._line(f"int({a.name})", int(a.value), int(a.low) if a.low > 0 else float("-inf"), a)
        return found

    def _line(self, text: str, value: Any, low: float, *reads: Any) -> Unknown:
        if len(self.lines) > _MOST:
            raise NoTrace("too long")
        name = f"t{len(self.lines)}"
        self.lines.append((f"{name} = {text}", name, tuple([x.name for x in reads if x.__class__ is Unknown])))
        made = self._names[name] = Unknown(self, name, value, low)
        return made

    def sum(self, a: Unknown, b: Any, sign: int) -> Any:
        """``a + sign * b``."""
        b = int(b) if b.__class__ is bool else b
        if b.__class__ is Unknown:
            if a.name == b.name:
                return 0 if sign < 0 else self.product(a, 2)
            if a.factors == b.factors and _whole(a) and _whole(b):
                return self._of_factors(a.times + sign * b.times, a.factors)
            if sign > 0:
                a, b = (a, b) if a.name < b.name else (b, a)
                return self.made("+", a, b, a.low + b.low)
            return self.made("-", a, b)
        if b.__class__ is not int and b.__class__ is not float:
            return NotImplemented
        return self.made("+", a, sign * b, a.low + sign * b)

    def product(self, a: Unknown, b: Any) -> Any:
        b = int(b) if b.__class__ is bool else b
        if b.__class__ is int and _whole(a):
            return self._of_factors(a.times * b, a.factors)
        if b.__class__ is Unknown and _whole(a) and _whole(b):
            return self._of_factors(a.times * b.times, tuple(sorted((*a.factors, *b.factors))))
        if b.__class__ not in (int, float, Unknown):
            return NotImplemented
        low = a.low * _low(b) if a.low >= 0 and _low(b) >= 0 else float("-inf")
        return self.made("*", a, b, low)

    def _of_factors(self, times: int, factors: tuple[str, ...]) -> Any:
        if not times or not factors:
            return times
        if times == 1 and len(factors) == 1:
            return self._names[factors[0]]
        key = "product", times, factors
        found = self._known.get(key)
        if found is None:
            atoms = [self._names[f] for f in factors]
            value, low = times, float(times)
            for x in atoms:
                value *= x.value  # type: ignore[assignment]
                low *= x.low
            if times < 0 or any(x.low < 0 for x in atoms):
                low = float("-inf")
            text = " * ".join([*([str(times)] if times != 1 else []), *factors])
            found = self._known[key] = self._line(text, value, low, *atoms)
            found.times, found.factors = times, factors
        return found

    def _cancelled(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Two numbers without the factors, of at least 1, that both have."""
        (ta, fa), (tb, fb) = _factored(a), _factored(b)
        left = list(fb)
        rest = []
        for f in fa:
            if f in left and self._names[f].low >= 1:
                left.remove(f)
            else:
                rest.append(f)
        if len(left) == len(fb):
            return a, b
        return self._of_factors(ta, tuple(rest)), self._of_factors(tb, tuple(left))

    def quotient(self, a: Any, b: Any) -> Any:
        if b.__class__ is int and b == 1 and _whole(a):
            return a
        if _whole(a) and _whole(b):
            if a.__class__ is Unknown and b.__class__ is int and b and a.times % b == 0:
                return self._of_factors(a.times // b, a.factors)
            a, b = self._cancelled(a, b)
            if b.__class__ is int and b and (a.__class__ is int or a.times % b == 0):
                return a // b if a.__class__ is int else self._of_factors(a.times // b, a.factors)
        if not (b != 0):
            raise ZeroDivisionError
        low = 0.0 if _low(a) >= 0 and _low(b) > 0 else float("-inf")
        if b.__class__ is int and b > 0 and a.low > 0:
            low = a.low // b
        return self.made("//", a, b, low)

    def ratio(self, a: Any, b: Any) -> Any:
        if not (b != 0):
            raise ZeroDivisionError
        return self.made("/", a, b)

    def rest(self, a: Any, b: Any) -> Any:
        if _whole(a) and _whole(b):
            if a.__class__ is Unknown and b.__class__ is int and b and a.times % b == 0:
                return 0
            short, by = self._cancelled(a, b)
            if by.__class__ is int and by and (short % by if short.__class__ is int else short.times % by) == 0:
                return 0
        if not (b != 0):
            raise ZeroDivisionError
        return self.made("%", a, b, 0.0 if _low(b) > 0 else float("-inf"))

    def ask(self, op: str, a: Any, b: Any) -> Any:
        """The answer to a question, a condition from now on where it does not follow from what is known."""
        if b.__class__ not in (Unknown, int, float, bool):
            return NotImplemented if op != "==" else False
        if b.__class__ is Unknown and a.name == b.name:
            return op != "<"
        if _whole(a) and _whole(b):
            a, b = self._cancelled(a, b)
        if a.__class__ is not Unknown:
            if b.__class__ is not Unknown:
                return _DO[op](a, b)
            if a < b.low:
                return op != "=="
        elif b.__class__ is not Unknown and a.low > b or a.low == b and op == "<":
            return False
        elif b.__class__ is not Unknown and a.low == b and op == "<=":
            op = "=="
        x, y = _text(a), _text(b)
        if op == "==" and b.__class__ is Unknown and y < x:
            x, y = y, x
        text = f"{x} {op} {y}"
        answer = self._asked.get(text)
        if answer is None:
            answer = self._asked[text] = bool(_DO[op](_value(a), _value(b)))
            self._condition(text if answer else f"not {text}", a, b)
        return answer

    def fixed(self, a: Unknown) -> Any:
        """The example's number, from now on the only one."""
        text = f"{a.name} == {a.value!r}"
        if text not in self._asked:
            self._asked[text] = True
            self._condition(text, a)
            self.stuck += 1
        return a.value

    def _condition(self, text: str, *reads: Any) -> None:
        if len(self.lines) > _MOST:
            raise NoTrace("too long")
        self.lines.append((text, "", tuple([x.name for x in reads if x.__class__ is Unknown])))

    def kept(self, needed: set[str], conditions: bool = True) -> list[tuple[str, str]]:
        """The lines that conditions and these names need, in order: each with the name that it assigns, "" for a condition.  conditions: whether those are
        wanted."""
        needed, kept = set(needed), []
        for text, name, reads in reversed(self.lines):
            if name in needed if name else conditions:
                needed.update(reads)
                kept.append((text, name))
        return kept[::-1]

    def written(self, needed: set[str], conditions: bool = True) -> list[str]:
        """The same as the text of a function that gives NotImplemented where a condition does not hold."""
        return [text if name else f"if not ({text}): return NotImplemented" for text, name in self.kept(needed, conditions)]


def _text(x: Any) -> str:
    return x.name if x.__class__ is Unknown else f"float({str(x)!r})" if x.__class__ is float and not isfinite(x) else repr(x)


def _value(x: Any) -> Any:
    return x.value if x.__class__ is Unknown else x


def _low(x: Any) -> Any:
    return x.low if x.__class__ is Unknown else x


def _whole(x: Any) -> bool:
    return x.__class__ is int or x.__class__ is Unknown and x.value.__class__ is int


def _factored(x: Any) -> tuple[int, tuple[str, ...]]:
    return (x.times, x.factors) if x.__class__ is Unknown else (x, ())


def index(x: Any) -> Any:
    """`operator.index`, which leaves an unknown number as it is."""
    return x if x.__class__ is Unknown else int(operator.index(x))


def settled(x: Any) -> Any:
    """Tuples in which each unknown number is the example's."""
    if x.__class__ is tuple:
        return tuple([settled(v) for v in x])
    return x.of.fixed(x) if x.__class__ is Unknown else x


FIRST_ROOM = 1000


class Address:
    """The address of an operand in a plan that is traced, or, from FIRST_ROOM on, of what was allocated (`Trace.rooms`), and some bytes: nothing can be read
    there."""

    __slots__ = ("number", "offset")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, number: int, offset: Any = 0) -> None:
        self.number, self.offset = number, offset

    def __add__(self, other: Any) -> Address:
        return Address(self.number, self.offset + other)

    def __or__(self, other: Any) -> Address:
        return self  # of several addresses only the bits that none may have are asked for

    def __and__(self, bits: Any) -> int:
        if bits.__class__ is not int or bits:
            raise NoTrace("how an address is aligned")
        return 0

    def __sub__(self, other: Any) -> Any:
        if other.__class__ is Address:
            if other.number != self.number:
                raise NoTrace("addresses of two operands")
            return self.offset - other.offset
        return Address(self.number, self.offset - other)

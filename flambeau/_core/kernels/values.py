"""Values in generated code, with Python's operators: a formula of them writes the code that computes it.

`transcendental` writes its formulas over these; each renderer says in its own subclass what an operation looks like there.
Every operation rounds once, and nothing is fused but `fma`, so that all renderers give the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from ..dtypes import float32, float64, int32, int64

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from ..dtypes import dtype


class Mask(ABC):
    """Whether something is true."""

    @abstractmethod
    def __and__(self, o: Mask) -> Mask: ...

    @abstractmethod
    def __or__(self, o: Mask) -> Mask: ...

    @abstractmethod
    def pick(self, yes: Value | float, no: Value | float) -> Value:
        """`yes` where true, else `no`; at least one is no Python number."""


class Value(ABC):
    """A number: float32 or float64, or, as its bits, int32 or int64."""

    __slots__ = ("v", "d")

    def __init__(self, v: str, d: dtype) -> None:
        self.v, self.d = v, d

    # ------------------------------------------------------------------------------------------- what a renderer says
    @abstractmethod
    def of(self, v: str, d: dtype | None = None) -> Self:
        """The value of this name, of the same type if none is said."""

    @abstractmethod
    def lift(self, o: Value | float) -> str:
        """The name of a value of this type, or a constant."""

    @abstractmethod
    def binary(self, op: str, a: Value | float, b: Value | float) -> Self:
        """add, sub, mul, div; of integers also and, or, xor, shl and ashr."""

    @abstractmethod
    def test(self, op: str, o: Value | float) -> Mask:
        """lt, gt, le, ge, eq: false where one is NaN; ne: true there."""

    @abstractmethod
    def function(self, op: str, *more: Value | float) -> Self:
        """Exact functions of this and more floats: neg, abs, sqrt, round (to even), trunc, copysign, fma (rounded once)."""

    @abstractmethod
    def reinterpret(self, d: dtype) -> Self:
        """The same bits as another type of the same size."""

    @abstractmethod
    def to(self, d: dtype) -> Self:
        """Converted to a float type."""

    @abstractmethod
    def rescued(self, when: Mask, name: str, args: Sequence[Value]) -> Self:
        """This, but the target's library's function of `args` where `when`, which rarely is anywhere."""

    def repeated(self, step: Callable[[Any], Value], where: Callable[[Any], Mask]) -> Self:
        """`step` of this, and of what it gives, as long as `where` is true of it."""
        raise NotImplementedError("a renderer whose own library has the functions that need it (fmod) writes no loops")

    # --------------------------------------------------------------------------------------------------- the same for all
    def __add__(self, o: Value | float) -> Self: return self.binary("add", self, o)
    def __radd__(self, o: float) -> Self: return self.binary("add", self, o)
    def __sub__(self, o: Value | float) -> Self: return self.binary("sub", self, o)
    def __rsub__(self, o: float) -> Self: return self.binary("sub", o, self)
    def __mul__(self, o: Value | float) -> Self: return self.binary("mul", self, o)
    def __rmul__(self, o: float) -> Self: return self.binary("mul", self, o)
    def __truediv__(self, o: Value | float) -> Self: return self.binary("div", self, o)
    def __rtruediv__(self, o: float) -> Self: return self.binary("div", o, self)
    def __and__(self, o: Value | int) -> Self: return self.binary("and", self, o)
    def __or__(self, o: Value | int) -> Self: return self.binary("or", self, o)
    def __xor__(self, o: Value | int) -> Self: return self.binary("xor", self, o)
    def __lshift__(self, n: int) -> Self: return self.binary("shl", self, n)
    def __rshift__(self, n: int) -> Self: return self.binary("ashr", self, n)

    def __lt__(self, o: Value | float) -> Mask: return self.test("lt", o)
    def __gt__(self, o: Value | float) -> Mask: return self.test("gt", o)
    def __le__(self, o: Value | float) -> Mask: return self.test("le", o)
    def __ge__(self, o: Value | float) -> Mask: return self.test("ge", o)
    def equals(self, o: Value | float) -> Mask: return self.test("eq", o)

    def differs(self, o: Value | float) -> Mask:
        """True for NaN too."""
        return self.test("ne", o)

    def __neg__(self) -> Self: return self.function("neg")
    def __abs__(self) -> Self: return self.function("abs")
    def sqrt(self) -> Self: return self.function("sqrt")
    def nearest(self) -> Self: return self.function("round")
    def trunc(self) -> Self: return self.function("trunc")
    def sign_of(self, o: Value) -> Self: return self.function("copysign", o)

    def fma(self, b: Value | float, c: Value | float) -> Self:
        """self * b + c, rounded once."""
        return self.function("fma", b, c)

    def at_most(self, limit: float) -> Self:
        """The smaller; NaN stays."""
        return (self > limit).pick(limit, self)  # type: ignore[return-value]

    def at_least(self, limit: float) -> Self:
        return (self < limit).pick(limit, self)  # type: ignore[return-value]

    def polynomial(self, coefficients: Sequence[float]) -> Self:
        """By Horner's rule; coefficients lowest first."""
        value: Self | float = coefficients[-1]
        for c in coefficients[-2::-1]:
            value = self.fma(value, c)
        assert not isinstance(value, float)
        return value

    def bits(self) -> Self:
        """The bits as integers of the same size."""
        return self.reinterpret(int32 if self.d is float32 else int64)

    def floats(self) -> Self:
        """The number whose bits these are."""
        return self.reinterpret(float32 if self.d is int32 else float64)

    def times_power(self, n: Value, bits: Value) -> Self:
        """self * 2**n, rounded once; n: whole; bits: the same as an integer."""
        bias, at = (1023, 52) if self.d is float64 else (127, 23)
        # in two steps, as 2**n itself may be out of range; only the second can round
        half = bits >> 1
        first, second = ((half + bias) << at).floats(), ((bits - half + bias) << at).floats()
        return self * first * second

    def times_near_power(self, bits: Value) -> Value:
        """The same, where 2**n is a normal number."""
        bias, at = (1023, 52) if self.d is float64 else (127, 23)
        return self * ((bits + bias) << at).floats()

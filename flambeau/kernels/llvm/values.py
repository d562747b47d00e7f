"""Vectors of IR with Python's operators, so that a function's formula reads as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import float32, float64, int32, int64
from .emit import constant, ty, vec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype
    from .emit import Emitter


class Mask:
    """A truth value a lane."""

    __slots__ = ("em", "v", "lanes")

    def __init__(self, em: Emitter, v: str, lanes: int) -> None:
        self.em, self.v, self.lanes = em, v, lanes

    def __and__(self, o: Mask) -> Mask:
        return Mask(self.em, self.em.op(f"and {vec('i1', self.lanes)} {self.v}, {o.v}"), self.lanes)

    def __or__(self, o: Mask) -> Mask:
        return Mask(self.em, self.em.op(f"or {vec('i1', self.lanes)} {self.v}, {o.v}"), self.lanes)

    def pick(self, yes: Value | float, no: Value | float) -> Value:
        """`yes` where true, else `no`; at least one is a vector."""
        like = yes if isinstance(yes, Value) else no
        assert isinstance(like, Value)
        t = like.type
        a, b = like.lift(yes), like.lift(no)
        return like.of(self.em.op(f"select {vec('i1', self.lanes)} {self.v}, {t} {a}, {t} {b}"))

    def any(self) -> str:
        """Whether any lane is true, as an i1."""
        if self.lanes == 1:
            return self.v
        bits = self.em.op(f"bitcast {vec('i1', self.lanes)} {self.v} to i{self.lanes}")
        return self.em.op(f"icmp ne i{self.lanes} {bits}, 0")


class Value:
    """A number a lane: float32 or float64, or, as its bits, int32 or int64."""

    __slots__ = ("em", "v", "d", "lanes")

    def __init__(self, em: Emitter, v: str, d: dtype, lanes: int) -> None:
        self.em, self.v, self.d, self.lanes = em, v, d, lanes

    @property
    def type(self) -> str:
        return ty(self.d, self.lanes)

    def of(self, v: str, d: dtype | None = None) -> Value:
        return Value(self.em, v, d or self.d, self.lanes)

    def lift(self, o: Value | float) -> str:
        return o.v if isinstance(o, Value) else constant(o, self.d, self.lanes)

    def _op(self, name: str, a: Value | float, b: Value | float) -> Value:
        return self.of(self.em.op(f"{name} {self.type} {self.lift(a)}, {self.lift(b)}"))

    def _arithmetic(self, name: str, a: Value | float, b: Value | float) -> Value:
        return self._op(("f" if self.d.kind == "f" else "") + name, a, b)

    def __add__(self, o: Value | float) -> Value: return self._arithmetic("add", self, o)
    def __radd__(self, o: float) -> Value: return self._arithmetic("add", self, o)
    def __sub__(self, o: Value | float) -> Value: return self._arithmetic("sub", self, o)
    def __rsub__(self, o: float) -> Value: return self._arithmetic("sub", o, self)
    def __mul__(self, o: Value | float) -> Value: return self._arithmetic("mul", self, o)
    def __rmul__(self, o: float) -> Value: return self._arithmetic("mul", self, o)
    def __truediv__(self, o: Value | float) -> Value: return self._op("fdiv", self, o)
    def __rtruediv__(self, o: float) -> Value: return self._op("fdiv", o, self)
    def __and__(self, o: Value | int) -> Value: return self._op("and", self, o)
    def __or__(self, o: Value | int) -> Value: return self._op("or", self, o)
    def __xor__(self, o: Value | int) -> Value: return self._op("xor", self, o)
    def __lshift__(self, n: int) -> Value: return self._op("shl", self, n)
    def __rshift__(self, n: int) -> Value: return self._op("ashr", self, n)
    def __neg__(self) -> Value: return self.of(self.em.op(f"fneg {self.type} {self.v}"))

    def _test(self, name: str, o: Value | float) -> Mask:
        return Mask(self.em, self.em.op(f"{name} {self.type} {self.v}, {self.lift(o)}"), self.lanes)

    def __lt__(self, o: Value | float) -> Mask: return self._test("fcmp olt" if self.d.kind == "f" else "icmp slt", o)
    def __gt__(self, o: Value | float) -> Mask: return self._test("fcmp ogt" if self.d.kind == "f" else "icmp sgt", o)
    def __le__(self, o: Value | float) -> Mask: return self._test("fcmp ole" if self.d.kind == "f" else "icmp sle", o)
    def __ge__(self, o: Value | float) -> Mask: return self._test("fcmp oge" if self.d.kind == "f" else "icmp sge", o)

    def equals(self, o: Value | float) -> Mask:
        return self._test("fcmp oeq" if self.d.kind == "f" else "icmp eq", o)

    def differs(self, o: Value | float) -> Mask:
        """True for NaN too."""
        return self._test("fcmp une" if self.d.kind == "f" else "icmp ne", o)

    def isnan(self) -> Mask:
        return self._test("fcmp uno", self)

    def _intrinsic(self, name: str, *args: Value | float) -> Value:
        return self.of(self.em.intrinsic(name, self.d, self.lanes, *(self.lift(a) for a in args)))

    def __abs__(self) -> Value: return self._intrinsic("fabs", self)
    def sqrt(self) -> Value: return self._intrinsic("sqrt", self)
    def nearest(self) -> Value: return self._intrinsic("roundeven", self)
    def trunc(self) -> Value: return self._intrinsic("trunc", self)
    def sign_of(self, o: Value) -> Value: return self._intrinsic("copysign", self, o)

    def fma(self, b: Value | float, c: Value | float) -> Value:
        """self * b + c, rounded once."""
        return self._intrinsic("fma", self, b, c)

    def at_most(self, limit: float) -> Value:
        """The smaller; NaN stays.  One instruction where the compare and select are recognised."""
        t, c = self.type, constant(limit, self.d, self.lanes)
        less = self.em.op(f"fcmp olt {t} {c}, {self.v}")
        return self.of(self.em.op(f"select {vec('i1', self.lanes)} {less}, {t} {c}, {t} {self.v}"))

    def at_least(self, limit: float) -> Value:
        t, c = self.type, constant(limit, self.d, self.lanes)
        more = self.em.op(f"fcmp ogt {t} {c}, {self.v}")
        return self.of(self.em.op(f"select {vec('i1', self.lanes)} {more}, {t} {c}, {t} {self.v}"))

    def polynomial(self, coefficients: Sequence[float]) -> Value:
        """By Horner's rule; coefficients lowest first."""
        value: Value | float = coefficients[-1]
        for c in coefficients[-2::-1]:
            value = self.fma(value, c)
        assert isinstance(value, Value)
        return value

    def bits(self) -> Value:
        """The bits as integers of the same size."""
        d = int32 if self.d is float32 else int64
        return self.of(self.em.op(f"bitcast {self.type} {self.v} to {ty(d, self.lanes)}"), d)

    def floats(self) -> Value:
        """The number whose bits these are."""
        d = float32 if self.d is int32 else float64
        return self.of(self.em.op(f"bitcast {self.type} {self.v} to {ty(d, self.lanes)}"), d)

    def to(self, d: dtype) -> Value:
        """Converted to a float type."""
        if d is self.d:
            return self
        op = "sitofp" if self.d.kind != "f" else "fpext" if d is float64 else "fptrunc"
        return self.of(self.em.op(f"{op} {self.type} {self.v} to {ty(d, self.lanes)}"), d)

    def times_power(self, n: Value, bits: Value) -> Value:
        """self * 2**n, rounded once; n: whole; bits: the same as an integer."""
        double = self.d is float64
        bias, at = (1023, 52) if double else (127, 23)
        if self.em.module.masks and self.lanes * self.d.itemsize == 64:
            mask, suffix = ("i8", "pd") if double else ("i16", "ps")
            t = self.type
            return self.of(self.em.call(f"llvm.x86.avx512.mask.scalef.{suffix}.512", t, (t, self.v), (t, n.v),
                                        (t, "zeroinitializer"), (mask, "-1"), ("i32 immarg", "4")))
        # in two steps, as 2**n itself may be out of range; only the second can round
        half = bits >> 1
        first, second = ((half + bias) << at).floats(), ((bits - half + bias) << at).floats()
        return self * first * second

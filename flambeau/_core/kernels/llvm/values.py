"""`kernels.values` as vectors of IR, a number a lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dtypes import float64
from .. import values
from . import libm
from .emit import constant, ty, vec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...dtypes import dtype
    from .emit import Emitter

_INTRINSIC = {"abs": "fabs", "round": "roundeven"}


class Mask(values.Mask):
    """A truth value a lane."""

    __slots__ = ("em", "v", "lanes")

    def __init__(self, em: Emitter, v: str, lanes: int) -> None:
        self.em, self.v, self.lanes = em, v, lanes

    def _op(self, name: str, o: values.Mask) -> Mask:
        assert isinstance(o, Mask)
        return Mask(self.em, self.em.op(f"{name} {vec('i1', self.lanes)} {self.v}, {o.v}"), self.lanes)

    def __and__(self, o: values.Mask) -> Mask: return self._op("and", o)
    def __or__(self, o: values.Mask) -> Mask: return self._op("or", o)

    def pick(self, yes: values.Value | float, no: values.Value | float) -> Value:
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


class Value(values.Value):
    """A number a lane."""

    __slots__ = ("em", "lanes")

    def __init__(self, em: Emitter, v: str, d: dtype, lanes: int) -> None:
        super().__init__(v, d)
        self.em, self.lanes = em, lanes

    @property
    def type(self) -> str:
        return ty(self.d, self.lanes)

    def of(self, v: str, d: dtype | None = None) -> Value:
        return Value(self.em, v, d or self.d, self.lanes)

    def lift(self, o: values.Value | float) -> str:
        return o.v if isinstance(o, values.Value) else constant(o, self.d, self.lanes)

    def binary(self, op: str, a: values.Value | float, b: values.Value | float) -> Value:
        return self.of(self.em.op(f"{'f' if self.d.kind == 'f' else ''}{op} {self.type} {self.lift(a)}, {self.lift(b)}"))

    def _mask(self, a: str, op: str, b: str) -> Mask:
        if self.d.kind == "f":
            name = "fcmp une" if op == "ne" else f"fcmp o{op}"
        else:
            name = f"icmp {op}" if op in ("eq", "ne") else f"icmp s{op}"
        return Mask(self.em, self.em.op(f"{name} {self.type} {a}, {b}"), self.lanes)

    def test(self, op: str, o: values.Value | float) -> Mask:
        return self._mask(self.v, op, self.lift(o))

    # the constant first: one instruction where compare and select are recognised
    def at_most(self, limit: float) -> Value:
        c = self.lift(limit)
        return self._mask(c, "lt", self.v).pick(limit, self)

    def at_least(self, limit: float) -> Value:
        c = self.lift(limit)
        return self._mask(c, "gt", self.v).pick(limit, self)

    def function(self, op: str, *more: values.Value | float) -> Value:
        if op == "neg":
            return self.of(self.em.op(f"fneg {self.type} {self.v}"))
        return self.of(self.em.intrinsic(_INTRINSIC.get(op, op), self.d, self.lanes, self.v, *(self.lift(a) for a in more)))

    def reinterpret(self, d: dtype) -> Value:
        return self.of(self.em.op(f"bitcast {self.type} {self.v} to {ty(d, self.lanes)}"), d)

    def to(self, d: dtype) -> Value:
        if d is self.d:
            return self
        op = "sitofp" if self.d.kind != "f" else "fpext" if d is float64 else "fptrunc"
        return self.of(self.em.op(f"{op} {self.type} {self.v} to {ty(d, self.lanes)}"), d)

    def rescued(self, when: values.Mask, name: str, args: Sequence[values.Value]) -> Value:
        assert isinstance(when, Mask)
        em = self.em
        slow, on, before = em.label("huge"), em.label("on"), em.current
        em.branch(when.any(), slow, on)
        em.start(slow)
        exact = when.pick(self.of(libm.emit_each(name, self.d, self.lanes, em, [a.v for a in args])), self)
        after = em.current
        em.jump(on)
        em.start(on)
        return self.of(em.phi(self.type, (self.v, before), (exact.v, after)))

    def repeated(self, step: Callable[[Any], values.Value], where: Callable[[Any], values.Mask]) -> Value:
        em = self.em
        head, body, done, before = em.label("head"), em.label("body"), em.label("done"), em.current
        em.jump(head)
        em.start(head)
        at, name = len(em.lines), em.fresh()
        em.lines.append("")  # the phi, once the block that the loop comes back from is known
        here = self.of(name)
        on = where(here)
        assert isinstance(on, Mask)
        em.branch(on.any(), body, done)
        em.start(body)
        after, last = on.pick(step(here), here), em.current
        em.jump(head)
        em.lines[at] = f"  {name} = phi {self.type} [ {self.v}, %{before} ], [ {after.v}, %{last} ]"
        em.start(done)
        return here

    def times_power(self, n: values.Value, bits: values.Value) -> Value:
        double = self.d is float64
        if self.em.module.masks and self.lanes * self.d.itemsize == 64:
            mask, suffix = ("i8", "pd") if double else ("i16", "ps")
            t = self.type
            return self.of(self.em.call(f"llvm.x86.avx512.mask.scalef.{suffix}.512", t, (t, self.v), (t, n.v),
                                        (t, "zeroinitializer"), (mask, "-1"), ("i32 immarg", "4")))
        return super().times_power(n, bits)

    if TYPE_CHECKING:
        def __lt__(self, o: values.Value | float) -> Mask: ...
        def __gt__(self, o: values.Value | float) -> Mask: ...
        def __le__(self, o: values.Value | float) -> Mask: ...
        def __ge__(self, o: values.Value | float) -> Mask: ...
        def equals(self, o: values.Value | float) -> Mask: ...
        def differs(self, o: values.Value | float) -> Mask: ...

"""Handwritten kernels in Python's own operators: a `Code` is a function being written, a `Value` what an instruction gives.

``a + b``, ``a & 255``, ``a < b`` (signed), ``a.below(b)`` (unsigned) each write an instruction, of floating point numbers too;
``p + n`` of a pointer is n bytes further.  A Python number beside a value is a constant of its type, in each lane.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ....dtypes import float64
from ..emit import Emitter, Module, number, splat, suffix, vec

if TYPE_CHECKING:
    from collections.abc import Iterator


class Value:
    """What an instruction gives: its LLVM type and its name."""

    __slots__ = ("code", "type", "name")

    def __init__(self, code: Code, kind: str, name: str) -> None:
        self.code, self.type, self.name = code, kind, name

    @property
    def lanes(self) -> int:
        return int(self.type[1:].split(" ")[0]) if self.type[0] == "<" else 1

    @property
    def element(self) -> str:
        return self.type.split(" ")[-1].rstrip(">")

    def _two(self, op: str, other: Value | float, kind: str | None = None) -> Value:
        if self.element in _FLOATS and kind is None:
            op = "f" + op
        return Value(self.code, kind or self.type, self.code.op(f"{op} {self.type} {self.name}, {self.code.named(other, self)}"))

    def __add__(self, other: Value | float) -> Value:
        if self.type == "ptr":
            step = self.code.named(other, self.code.constant("i64", 0))
            return self if step == "0" else Value(self.code, "ptr", self.code.op(f"getelementptr i8, ptr {self.name}, i64 {step}"))
        return self._two("add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._two("sub", other)

    def __mul__(self, other: Value | float) -> Value:
        return self._two("mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._two("div", other)

    def __and__(self, other: Value | int) -> Value:
        return self._two("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._two("or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._two("xor", other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._two("shl", other)

    def __rshift__(self, other: Value | int) -> Value:
        return self._two("lshr", other)

    def arithmetic_shift(self, other: Value | int) -> Value:
        return self._two("ashr", other)

    def over(self, other: Value | int) -> Value:
        """The unsigned quotient."""
        return self._two("udiv", other)

    def remainder(self, other: Value | int) -> Value:
        """What an unsigned division leaves."""
        return self._two("urem", other)

    def compare(self, how: str, other: Value | float) -> Value:
        return self._two(f"{'fcmp' if self.element in _FLOATS else 'icmp'} {how}", other, vec("i1", self.lanes))

    def __lt__(self, other: Value | float) -> Value:
        return self.compare("olt" if self.element in _FLOATS else "slt", other)

    def below(self, other: Value | int) -> Value:
        return self.compare("ult", other)

    def above(self, other: Value | int) -> Value:
        return self.compare("ugt", other)

    def equals(self, other: Value | int) -> Value:
        return self.compare("eq", other)

    def differs(self, other: Value | int) -> Value:
        return self.compare("ne", other)

    def to(self, kind: str) -> Value:
        """Widened with zeros or cut to the integer type of an element."""
        have, want = int(self.element[1:]), int(kind[1:])
        if have == want:
            return self
        target = vec(kind, self.lanes)
        return Value(self.code, target, self.code.op(f"{'zext' if want > have else 'trunc'} {self.type} {self.name} to {target}"))

    def cast(self, how: str, kind: str) -> Value:
        """By LLVM's instruction `how`; kind: the type of an element."""
        target = vec(kind, self.lanes)
        return Value(self.code, target, self.code.op(f"{how} {self.type} {self.name} to {target}"))

    def bits(self, kind: str) -> Value:
        """The same bits as another type."""
        return Value(self.code, kind, self.code.op(f"bitcast {self.type} {self.name} to {kind}"))

    def spread(self, lanes: int) -> Value:
        return Value(self.code, vec(self.type, lanes), self.code.broadcast(self.name, self.type, lanes))

    # memory, of a pointer
    def load(self, kind: str) -> Value:
        return Value(self.code, kind, self.code.op(f"load {kind}, ptr {self.name}, align {_align(kind)}"))

    def store(self, value: Value | int, kind: str = "i64") -> None:
        if isinstance(value, int):
            value = self.code.constant(kind, value)
        self.code.line(f"store {value.type} {value.name}, ptr {self.name}, align {_align(value.type)}")

    def masked_load(self, kind: str, mask: Value) -> Value:
        """Neighbours; lanes outside `mask` are 0 and not read."""
        element, lanes = kind.split(" ")[-1].rstrip(">"), mask.lanes
        return Value(self.code, kind, self.code.call(f"llvm.masked.load.{suffix(element, lanes)}.p0", kind, ("ptr", self.name),
                                                     ("i32 immarg", str(_align(kind))), (mask.type, mask.name), (kind, "zeroinitializer")))

    def masked_store(self, value: Value, mask: Value) -> None:
        """Neighbours; what lies at lanes outside `mask` stays."""
        self.code.call(f"llvm.masked.store.{suffix(value.element, mask.lanes)}.p0", "void", (value.type, value.name), ("ptr", self.name),
                       ("i32 immarg", str(_align(value.type))), (mask.type, mask.name))

    def gather(self, element: str, index: Value) -> Value:
        """The elements number `index` of an array that begins here."""
        lanes = index.lanes
        where = self.code.op(f"getelementptr {element}, ptr {self.name}, {index.type} {index.name}")
        kind = vec(element, lanes)
        return Value(self.code, kind, self.code.call(f"llvm.masked.gather.{suffix(element, lanes)}.v{lanes}p0", kind, (vec("ptr", lanes), where),
                                                     ("i32 immarg", str(_align(element))), (vec("i1", lanes), splat("true", "i1", lanes)),
                                                     (kind, "zeroinitializer")))


_FLOATS = ("half", "float", "double")
_BYTES = {"half": 2, "float": 4, "double": 8, "ptr": 8}


def _align(kind: str) -> int:
    element = kind.split(" ")[-1].rstrip(">")
    return _BYTES.get(element) or max(1, int(element[1:]) // 8)


class Turn:
    """What a loop or a condition carries: `vars` in, `next` on; afterwards `vars` are the last."""

    __slots__ = ("i", "vars", "next", "more")

    def __init__(self, i: Any, carried: list[Value]) -> None:
        self.i, self.vars, self.next = i, carried, list(carried)
        self.more: Any = None


class Code(Emitter):
    """A function being written; `given` are its parameters."""

    def __init__(self, module: Module, result: str, name: str, *params: str) -> None:
        """params: types, such as "ptr" or "i64"."""
        super().__init__(module, f"{result} @{name}({', '.join(f'{t} %a{k}' for k, t in enumerate(params))})")
        self.given = [Value(self, t, f"%a{k}") for k, t in enumerate(params)]

    def constant(self, kind: str, number: int) -> Value:
        lanes = int(kind[1:].split(" ")[0]) if kind[0] == "<" else 1
        return Value(self, kind, splat(str(number), kind.split(" ")[-1].rstrip(">"), lanes))

    def named(self, x: Value | float, like: Value) -> str:
        if isinstance(x, Value):
            return x.name
        return splat(number(x, float64) if like.element in _FLOATS else str(x), like.element, like.lanes)

    def real(self, number_: float) -> Value:
        """A constant of type double."""
        return Value(self, "double", number(number_, float64))

    def libm(self, name: str, x: Value) -> Value:
        """A function of the C library, of a double."""
        self.module.declare(name, "double (double)")
        return self.function("double", name, x)

    def lane_count(self, element: str, lanes: int) -> Value:
        """<0, 1, 2, ...>."""
        return Value(self, vec(element, lanes), "<" + ", ".join(f"{element} {k}" for k in range(lanes)) + ">")

    def ints(self, n: int) -> Value:
        return self.constant("i64", n)

    def number(self, block: Value, index: int, kind: str = "i64") -> Value:
        """The number `index` of a packed block, cut to a type."""
        return (block + 8 * index).load("i64").to(kind)

    def address(self, args: Value, index: int) -> Value:
        return (args + 8 * index).load("ptr")

    def pick(self, condition: Value, yes: Value | int, no: Value | int) -> Value:
        like = yes if isinstance(yes, Value) else no
        assert isinstance(like, Value)
        return Value(self, like.type, self.op(f"select {condition.type} {condition.name}, {like.type} {self.named(yes, like)}, "
                                              f"{like.type} {self.named(no, like)}"))

    def least(self, a: Value, b: Value | int) -> Value:
        return self.pick(a < b, a, b)

    def function(self, result: str, name: str, *args: Value) -> Value:
        """A call of a function of this module."""
        given = ", ".join(f"{v.type} {v.name}" for v in args)
        if result == "void":
            self.line(f"call void @{name}({given})")
            return args[0]
        return Value(self, result, self.op(f"call {result} @{name}({given})"))

    def built_in(self, name: str, value: Value, *flags: str) -> Value:
        """An intrinsic of one operand, such as ctpop."""
        more = [("i1 immarg", f) for f in flags]
        return Value(self, value.type, self.call(f"llvm.{name}.{suffix(value.element, value.lanes)}", value.type, (value.type, value.name), *more))

    def array(self, kind: str, count: int) -> Value:
        """Memory of the stack, for the whole function: asked for at its beginning."""
        return Value(self, "ptr", self.op(f"alloca [{count} x {kind}], align 64"))

    def back(self, value: Value | None = None) -> None:
        self.line("ret void" if value is None else f"ret {value.type} {value.name}")

    @contextmanager
    def span(self, begin: Value | int, end: Value, *carried: Value, step: Value | int = 1) -> Iterator[Turn]:
        """``for i in range(begin, end, step)``."""
        like = self.ints(0)
        with self.loop(self.named(begin, like), end.name, self.named(step, like), [(v.type, v.name) for v in carried]) as inner:
            turn = Turn(Value(self, "i64", inner.i), [Value(self, v.type, n) for v, n in zip(carried, inner.vars, strict=True)])
            yield turn
            inner.next = [v.name for v in turn.next]
        turn.vars = [Value(self, v.type, n) for v, n in zip(carried, inner.vars, strict=True)]

    @contextmanager
    def repeat(self, *carried: Value) -> Iterator[Turn]:
        """``do ... while more``: the block sets `next` and `more` (i1)."""
        head, done, before = self.label("again"), self.label("past"), self.current
        self.jump(head)
        self.start(head)
        at = len(self.lines)
        names = [self.fresh("c") for _ in carried]
        self.lines.extend([""] * len(names))
        turn = Turn(None, [Value(self, v.type, n) for v, n in zip(carried, names, strict=True)])
        yield turn
        last = self.current
        self.branch(turn.more.name, head, done)
        for k, (v, n) in enumerate(zip(carried, names, strict=True)):
            self.lines[at + k] = f"  {n} = phi {v.type} [ {v.name}, %{before} ], [ {turn.next[k].name}, %{last} ]"
        self.start(done)
        turn.vars = turn.next

    @contextmanager
    def when(self, condition: Value, *carried: Value) -> Iterator[Turn]:
        """What is done where a condition holds; `vars` afterwards are `next`, or `carried` where it does not."""
        yes, on, before = self.label("then"), self.label("on"), self.current
        self.branch(condition.name, yes, on)
        self.start(yes)
        turn = Turn(None, list(carried))
        yield turn
        last = self.current
        self.jump(on)
        self.start(on)
        turn.vars = [Value(self, a.type, self.phi(a.type, (b.name, last), (a.name, before))) for a, b in zip(carried, turn.next, strict=True)]

    @contextmanager
    def leave_if(self, condition: Value) -> Iterator[None]:
        """What is done before the function returns, where a condition holds; the block ends in `back`."""
        yes, on = self.label("leave"), self.label("on")
        self.branch(condition.name, yes, on)
        self.start(yes)
        yield
        self.start(on)

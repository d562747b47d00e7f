"""`kernels.values` as CUDA C, and the device functions made of its formulas.

Products are rounded on their own (the compiler fuses none of them), so that a function gives the CPU's bits.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...dtypes import float32
from .. import transcendental, values
from .types import literal, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^", "shl": "<<", "ashr": ">>"}
_TEST = {"lt": "<", "gt": ">", "le": "<=", "ge": ">=", "eq": "==", "ne": "!="}
_NAME = {"abs": "fabs", "round": "rint"}
_UNSIGNED = {"int32": "unsigned int", "int64": "unsigned long long"}


class Text:
    """The lines of a function."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def let(self, t: str, text: str) -> str:
        name = f"t{len(self.lines)}"
        self.lines.append(f"  const {t} {name} = {text};")
        return name


class Mask(values.Mask):
    __slots__ = ("text", "v")

    def __init__(self, text: Text, v: str) -> None:
        self.text, self.v = text, v

    def _op(self, sign: str, o: values.Mask) -> Mask:
        assert isinstance(o, Mask)
        return Mask(self.text, self.text.let("bool", f"{self.v} {sign} {o.v}"))

    def __and__(self, o: values.Mask) -> Mask: return self._op("&&", o)
    def __or__(self, o: values.Mask) -> Mask: return self._op("||", o)

    def pick(self, yes: values.Value | float, no: values.Value | float) -> Value:
        like = yes if isinstance(yes, Value) else no
        assert isinstance(like, Value)
        return like.let(f"{self.v} ? {like.lift(yes)} : {like.lift(no)}")


class Value(values.Value):
    __slots__ = ("text",)

    def __init__(self, text: Text, v: str, d: dtype) -> None:
        super().__init__(v, d)
        self.text = text

    def of(self, v: str, d: dtype | None = None) -> Value:
        return Value(self.text, v, d or self.d)

    def let(self, expression: str, d: dtype | None = None) -> Value:
        d = d or self.d
        return Value(self.text, self.text.let(value(d), expression), d)

    def lift(self, o: values.Value | float) -> str:
        return o.v if isinstance(o, values.Value) else literal(o, self.d)

    def binary(self, op: str, a: values.Value | float, b: values.Value | float) -> Value:
        x, y = self.lift(a), self.lift(b)
        if self.d.kind == "f":
            return self.let(f"__{'f' if self.d is float32 else 'd'}mul_rn({x}, {y})" if op == "mul" else f"{x} {_INFIX[op]} {y}")
        if op == "ashr":
            return self.let(f"{x} >> {y}")
        u = _UNSIGNED[self.d.name]  # overflow wraps
        return self.let(f"({value(self.d)})(({u}){x} {_INFIX[op]} ({u}){y})")

    def test(self, op: str, o: values.Value | float) -> Mask:
        return Mask(self.text, self.text.let("bool", f"{self.v} {_TEST[op]} {self.lift(o)}"))

    def function(self, op: str, *more: values.Value | float) -> Value:
        if op == "neg":
            return self.let(f"-{self.v}")
        name = _NAME.get(op, op) + ("f" if self.d is float32 else "")
        return self.let(f"{name}({', '.join([self.v, *map(self.lift, more)])})")

    def reinterpret(self, d: dtype) -> Value:
        return self.let(f"bits_of<{value(d)}>({self.v})", d)

    def to(self, d: dtype) -> Value:
        return self if d is self.d else self.let(f"({value(d)}){self.v}", d)

    def rescued(self, when: values.Mask, name: str, args: Sequence[values.Value]) -> Value:
        assert isinstance(when, Mask)
        return self.let(f"{when.v} ? {name}{'f' if self.d is float32 else ''}({', '.join(a.v for a in args)}) : {self.v}")


@functools.cache
def device_function(op: str, d: dtype) -> tuple[str, str] | None:
    """(name, text) of a device function that is `op` of floats of type `d` by its formula; None where the library's serves:
    what singles have in double would be slow on a GPU."""
    if op in ("fmod", "pow", "atan2", "hypot"):  # of two operands; the library's are within a unit or two of the last place
        return None
    text = Text()
    made = transcendental.own(op, [Value(text, "x", d)])
    if made is None:
        return None
    t, name = value(d), f"{op}_of_{d.name}"
    return name, "\n".join([f"__device__ __forceinline__ {t} {name}({t} x) {{", *text.lines, f"  return {made.v};", "}"])

"""Element types and expressions in OpenCL C: one constant for each node.

Values of bool are bools, of float16 and bfloat16 floats that hold exactly a value of the type, rounded after every operation.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import bool_, float16, float32, float64
from .. import c_forms, interpret
from ..c_forms import half
from ..derived import formula
from ..expr import walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype
    from ..expr import Expr
    from .writer import Writer

    Leaf = Callable[[Expr, list[str]], str]

_NAMES = {"int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int", "uint32": "uint", "int64": "long",
          "uint64": "ulong", "bool": "bool", "float64": "double"}
# by zero gives 0, the lowest by -1 wraps; counts outside a type's bits shift everything out
_INTEGER = c_forms.INTEGER | {
    "truncdiv": "{1} == 0 ? ({t})0 : {overflows} ? ({t})(({u})0 - ({u}){0}) : ({t})({0} / {1})",
    "fmod": "{1} == 0 || {overflows} ? ({t})0 : ({t})({0} % {1})",
    "shl": "{1} >= 0 && {1} < {bits} ? ({t})(({u}){0} << (int){1}) : ({t})0",
    "shr": "{1} >= 0 && {1} < {bits} ? ({t})({0} >> (int){1}) : {0} < 0 ? ({t})-1 : ({t})0",
    "pow": "{power}({0}, {1})"}
_FLOAT = {op: f"{name}({{0}}, {{1}})" if op in ("pow", "atan2", "hypot", "copysign", "nextafter", "fmod") else f"{name}({{0}})"
          for op, name in c_forms.FUNCTIONS.items()} | c_forms.FLOAT | {
    "rsqrt": "({t})1 / sqrt({0})", "truncdiv": "trunc({0} / {1})",
    "maximum": "{0} != {0} || {0} > {1} ? {0} : {1}", "minimum": "{0} != {0} || {0} < {1} ? {0} : {1}"}


def value(d: dtype) -> str:
    """The type of a value in a register."""
    return _NAMES.get(d.name, "float")


def stored(d: dtype) -> str:
    """The type of an element in memory; any byte of a bool but 0 is true."""
    return "uchar" if d.kind == "b" else "ushort" if half(d) else value(d)


def literal(v: Any, d: dtype) -> str:
    """The number `v` of type `d`, exactly."""
    if d.kind in "bui":
        return f"(({value(d)}){int(v) % (1 << 64):#x}UL)"
    if d is float64:
        return f"as_double(0x{struct.pack('>d', v).hex()}UL)"
    return f"as_float({int(np.asarray(interpret.convert(np.float64(v), float64, d), np.float32).view(np.uint32)):#010x}U)"


def lower(w: Writer, roots: tuple[Expr, ...], leaf: Leaf) -> list[str]:
    """Names (or literals) of the values of `roots`; leaf: the text of an input, scalar, coord, acc or gather."""
    known: dict[Expr, str] = {}
    for e in walk(roots):
        args = [known[a] for a in e.args]
        text = literal(e.value, e.dtype) if e.op == "const" else leaf(e, args) if e.op in c_forms.LEAVES else _node(w, e, args)
        known[e] = text if text.isidentifier() or e.op == "const" else w.let(value(e.dtype), text)
    return [known[r] for r in roots]


def _node(w: Writer, e: Expr, args: list[str]) -> str:
    source = e.args[-1].dtype
    if e.op == "cast":
        return cast(w, args[0], source, e.dtype)
    if e.op == "where":
        return "{} ? {} : {}".format(*args)
    if e.op == "bitcast":
        return from_stored(w, f"as_{stored(e.dtype)}(({stored(source)}){to_stored(w, args[0], source)})", e.dtype)
    return _primitive(w, e.op, source, args)


def _primitive(w: Writer, op: str, d: dtype, args: list[str]) -> str:
    """A primitive of operands of type `d`."""
    if half(d) and op not in c_forms.COMPARE:
        return round_half(w, _primitive(w, op, float32, args), d)
    derived = formula(op, d)
    if derived is not None:
        return lower(w, (derived,), lambda e, _: args[e.value])[0]
    form = (c_forms.COMPARE | {"f": _FLOAT, "b": c_forms.BOOL}.get(d.kind, _INTEGER)).get(op)
    if form is None:
        raise NotImplementedError(f"{op} of {d}")
    u = "ulong" if d.itemsize == 8 else "uint"
    power = w.need("power", T=value(d), U=u) if op == "pow" and d.kind in "ui" else ""
    return form.format(*args, t=value(d), u=u, bits=8 * d.itemsize, power=power, overflows=f"{args[-1]} == -1" if d.kind == "i" else "false")


def cast(w: Writer, v: str, source: dtype, target: dtype) -> str:
    if target is bool_:
        return f"{v} != 0"
    if half(target):
        wide = target is float16 and source is float64
        return round_half(w, v if wide else f"(float){v}", target, "double" if wide else "float")
    if target.kind in "ui" and source.kind == "f":  # what does not fit gives the lowest int64
        whole = f"{v} >= -0x1p63f && {v} < 0x1p63f ? (long){v} : LONG_MIN"
        return f"{v} >= 0x1p63f && {v} < 0x1p64f ? (ulong){v} : (ulong)({whole})" if target.name == "uint64" else f"({value(target)})({whole})"
    return f"({value(target)}){v}"


def round_half(w: Writer, v: str, d: dtype, wide: str = "float") -> str:
    """The float rounded to a value of the 16-bit type."""
    return f"{w.need(f'from_{d.name}')}({w.need(f'to_{d.name}', W=wide)}({v}))"


def from_stored(w: Writer, v: str, d: dtype) -> str:
    """The value of what stands in memory."""
    return f"{w.need(f'from_{d.name}')}({v})" if half(d) else f"{v} != 0" if d.kind == "b" else v


def to_stored(w: Writer, v: str, d: dtype) -> str:
    """What is to stand in memory for a value."""
    return f"{w.need(f'to_{d.name}', W='float')}({v})" if half(d) else f"(uchar){v}" if d.kind == "b" else v

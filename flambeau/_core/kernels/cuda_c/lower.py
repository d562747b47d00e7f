"""Expressions as C statements: one constant for each node.

`lower` walks expressions of real types and asks its caller for the leaves.  Values of bool are C bools, of float16 and
bfloat16 floats that hold exactly a value of the type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import bool_, float16, float32, float64
from .. import c_forms
from ..c_forms import half
from ..expr import walk
from .rough import ROUGH
from .types import literal, stored, value, wide_unsigned
from .values import device_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...dtypes import dtype
    from ..expr import Expr
    from .writer import Writer

    Leaf = Callable[[Expr, list[str]], str]


def lower(w: Writer, roots: tuple[Expr, ...], leaf: Leaf, known: dict[Expr, str], exact: bool) -> list[str]:
    """C names (or literals) of the values of `roots`.

    leaf(node, args): the text of an input, scalar, coord, acc or gather node (args: the gather's offset, in a list).
    known: names made before that are in scope; those made here are added.
    exact: round every product on its own; else the compiler may fuse it with an addition.
    """
    for e in walk(roots):
        if e in known:
            continue
        args = [known[a] for a in e.args]
        if e.op == "const":
            known[e] = literal(e.value, e.dtype)
            continue
        text = leaf(e, args) if e.op in c_forms.LEAVES else _node(w, e, args, exact)
        known[e] = text if text.isidentifier() else w.let(value(e.dtype), text)
    return [known[r] for r in roots]


def leaves(w: Writer, outs: int, rank: int, read: Callable[[int], str], coords: Mapping[int, str], names: Mapping[int, str],
           pointers: Mapping[int, str], accs: Sequence[str] = ()) -> Leaf:
    """The leaves of a program with so many outputs over a domain of so many axes.

    read: the text of an operand at the element.  coords: C's names of coordinates, by axis; those of other axes are 0.  names: of the
    numbers.  pointers: to the operands' memory, for gathers.  accs: what steps before have reduced; no such leaf is known without.
    """
    def leaf(e: Expr, args: list[str]) -> str:
        if e.op == "input":
            return read(outs + e.value)
        if e.op == "scalar":
            return names[e.value]
        if e.op == "coord":
            axis = e.value % rank if rank else -1
            return f"(long long){coords[axis]}" if axis in coords else "0LL"
        if e.op == "gather":
            return w.gather(pointers[outs + e.value], args[0], e.dtype)
        if not accs:
            raise NotImplementedError(f"{e.op} in a program without steps")
        return accs[int(e.value)]
    return leaf


def _node(w: Writer, e: Expr, args: list[str], exact: bool) -> str:
    source = e.args[-1].dtype
    if e.op == "cast":
        return cast(w, args[0], source, e.dtype)
    if e.op == "where":
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if e.op == "bitcast":
        w.need("bits")
        bits = to_stored(w, args[0], source)
        return from_stored(w, f"bits_of<{stored(e.dtype)}>(({stored(source)}){bits})", e.dtype)
    if e.dtype.is_complex or source.is_complex:
        raise ValueError(f"{e.op} of {source}: complex values must be rewritten by complexes.split first")
    return apply(w, e.op, source, args, exact)


def apply(w: Writer, op: str, d: dtype, args: list[str], exact: bool = False) -> str:
    """One primitive of operands of type `d`, as an expression (comparisons give a bool)."""
    if op in c_forms.COMPARE:
        return c_forms.COMPARE[op].format(*args)
    if half(d):
        return round_half(w, apply(w, op, float32, args, exact), d)
    if d.kind == "b":
        form = c_forms.BOOL.get(op)
        if form is None:
            raise NotImplementedError(f"{op} of bool")
        return form.format(*args)
    return _floating(w, op, d, args, exact) if d.kind == "f" else _integer(w, op, d, args)


def combine(w: Writer, how: str, d: dtype, a: str, b: str) -> str:
    """Two partial results as one: sum, prod, max, min (NaN wins), and, or, logsumexp.  Halves are not rounded: they add up in float."""
    if how == "logsumexp":
        return f"{w.need('logaddexp')}({a}, {b})"
    op = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}.get(how, how)
    return apply(w, op, float32 if half(d) else d, [a, b])


def _floating(w: Writer, op: str, d: dtype, args: list[str], exact: bool) -> str:
    single, t = d.itemsize == 4, value(d)
    a, b = args[0], args[-1]
    if single and w.rough and op in ROUGH:
        return f"{w.need(ROUGH[op])}({', '.join(args)})"
    if op == "mul" and exact:
        return f"{'__fmul_rn' if single else '__dmul_rn'}({a}, {b})"
    if op in c_forms.FLOAT:
        return c_forms.FLOAT[op].format(*args, t=t)
    if op == "rsqrt":
        return f"({t})1 / {'sqrtf' if single else 'sqrt'}({a})"
    if op in ("maximum", "minimum"):
        return f"{w.need(op)}({a}, {b})"
    if op in ("floordiv", "rem"):
        return f"{w.need('float_' + op)}({a}, {b})"
    if op == "truncdiv":
        return f"{'truncf' if single else 'trunc'}({a} / {b})"
    name = c_forms.FUNCTIONS.get(op)
    if name is None:
        raise NotImplementedError(f"{op} of {d}")
    made = device_function(op, d)  # the CPU's formula, so that both give the same bits
    if made is not None:
        return f"{w.need(made[0])}({a})"
    return f"{name}{'f' if single else ''}({', '.join(args)})"


def _integer(w: Writer, op: str, d: dtype, args: list[str]) -> str:
    t, u = value(d), wide_unsigned(d)
    a, b = args[0], args[-1]
    if op == "abs" and d.kind == "u":
        return a
    if op in c_forms.INTEGER:
        return c_forms.INTEGER[op].format(*args, t=t, u=u)
    if op in ("truncdiv", "floordiv"):
        return f"{w.need(op)}<{t}, {u}>({a}, {b})"
    if op in ("fmod", "rem"):
        return f"{w.need('int_' + op)}<{t}>({a}, {b})"
    if op == "pow":
        return f"{w.need('int_pow')}<{t}, {u}>({a}, {b})"
    if op == "shl":
        return f"{w.need('shl')}<{t}, {u}>({a}, {b})"
    if op == "shr":
        return f"{w.need('shr')}<{t}>({a}, {b})"
    raise NotImplementedError(f"{op} of {d}")


# --------------------------------------------------------------------------------------------------------- conversions
def cast(w: Writer, v: str, source: dtype, target: dtype) -> str:
    if target is bool_:
        return f"{v} != 0" if source.kind != "b" else v
    if half(target):
        if target is float16 and source is float64:
            return f"from_float16({to_stored(w, v, target)})"
        return round_half(w, v if value(source) == "float" else f"(float){v}", target)
    if target.kind in "ui" and source.kind == "f":
        if target.name == "uint64":
            return f"{w.need('to_uint64')}({v})"
        return f"({value(target)}){w.need('to_int')}({v})"
    return f"({value(target)}){v}"


def round_half(w: Writer, v: str, d: dtype) -> str:
    """The float rounded to a value of the 16-bit type."""
    name = _half_name(w, d)
    return f"from_{name}(to_{name}({v}))"


def from_stored(w: Writer, v: str, d: dtype) -> str:
    """The value of what stands in memory."""
    if half(d):
        return f"from_{_half_name(w, d)}({v})"
    return f"{v} != 0" if d.kind == "b" else v


def to_stored(w: Writer, v: str, d: dtype) -> str:
    """What is to stand in memory for a value."""
    if half(d):
        return f"to_{_half_name(w, d)}({v})"
    return f"(unsigned char){v}" if d.kind == "b" else v


def _half_name(w: Writer, d: dtype) -> str:
    w.need("half" if d is float16 else "bfloat")
    return d.name

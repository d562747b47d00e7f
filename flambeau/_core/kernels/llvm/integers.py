"""Integer and bool arithmetic, defined for every value: it wraps, and division by zero gives 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import bool_, float32, float64
from .emit import base, constant, suffix, ty, vec

if TYPE_CHECKING:
    from ...dtypes import dtype
    from .emit import Emitter

_COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_PLAIN = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_BOOL = {"add": "or", "mul": "and", "sub": "xor", "maximum": "or", "minimum": "and", "and": "and", "or": "or",
         "xor": "xor", "floordiv": "and", "truncdiv": "and"}


def integer(em: Emitter, op: str, d: dtype, lanes: int, args: list[str]) -> str:
    """One primitive of operands of the integer type or bool `d`."""
    t, mask, a = ty(d, lanes), vec("i1", lanes), args[0]
    b = args[1] if len(args) > 1 else ""
    signed = "s" if d.kind == "i" else "u"
    if op in ("eq", "ne"):
        return em.op(f"icmp {op} {t} {a}, {b}")
    if op in _COMPARE:
        return em.op(f"icmp {signed}{_COMPARE[op]} {t} {a}, {b}")
    if d is bool_:
        return _boolean(em, op, lanes, a, b)
    if op in _PLAIN:
        return em.op(f"{_PLAIN[op]} {t} {a}, {b}")
    if op == "neg":
        return em.op(f"sub {t} {constant(0, d, lanes)}, {a}")
    if op == "not":
        return em.op(f"xor {t} {a}, {constant(-1, d, lanes)}")
    if op == "abs":
        if signed == "u":
            return a
        return em.call(f"llvm.abs.{suffix(base(d), lanes)}", t, (t, a), ("i1 immarg", "false"))
    if op in ("maximum", "minimum"):
        keep = em.op(f"icmp {signed}{'gt' if op == 'maximum' else 'lt'} {t} {a}, {b}")
        return em.op(f"select {mask} {keep}, {t} {a}, {t} {b}")
    if op in ("floordiv", "truncdiv", "rem", "fmod"):
        return _division(em, op, d, lanes, a, b)
    if op in ("shl", "shr"):
        return _shift(em, op, d, lanes, a, b)
    if op == "pow":
        return _power(em, d, lanes, a, b)
    raise NotImplementedError(f"{op} of {d}")


def _boolean(em: Emitter, op: str, lanes: int, a: str, b: str) -> str:
    t = vec("i1", lanes)
    if op in _BOOL:
        return em.op(f"{_BOOL[op]} {t} {a}, {b}")
    if op in ("neg", "abs"):
        return a
    ones = constant(True, bool_, lanes)
    if op == "not":
        return em.op(f"xor {t} {a}, {ones}")
    if op == "pow":
        return em.op(f"or {t} {a}, {em.op(f'xor {t} {b}, {ones}')}")
    if op in ("shl", "shr"):
        return em.op(f"and {t} {a}, {em.op(f'xor {t} {b}, {ones}')}")
    if op in ("rem", "fmod"):
        return constant(False, bool_, lanes)
    raise NotImplementedError(f"{op} of bool")


def _division(em: Emitter, op: str, d: dtype, lanes: int, a: str, b: str) -> str:
    t, mask = ty(d, lanes), vec("i1", lanes)
    zero, signed = constant(0, d, lanes), d.kind == "i"
    by_zero = em.op(f"icmp eq {t} {b}, {zero}")
    q = _quotient(em, d, lanes, a, b, by_zero)
    r = em.op(f"sub {t} {a}, {em.op(f'mul {t} {q}, {b}')}")
    if op in ("floordiv", "rem") and signed:
        opposite = em.op(f"icmp slt {t} {em.op(f'xor {t} {r}, {b}')}, {zero}")
        fix = em.op(f"and {mask} {em.op(f'icmp ne {t} {r}, {zero}')}, {opposite}")
        if op == "floordiv":
            q = em.op(f"add {t} {q}, {em.op(f'sext {mask} {fix} to {t}')}")
        else:
            r = em.op(f"add {t} {r}, {em.op(f'select {mask} {fix}, {t} {b}, {t} {zero}')}")
    return em.op(f"select {mask} {by_zero}, {t} {zero}, {t} {q if op in ('floordiv', 'truncdiv') else r}")


def _quotient(em: Emitter, d: dtype, lanes: int, a: str, b: str, by_zero: str) -> str:
    """a / b towards zero; anything where b is 0, and a for the lowest number by -1."""
    t, mask, signed = ty(d, lanes), vec("i1", lanes), d.kind == "i"
    if d.itemsize < 8 and lanes > 1:
        # there is no vector division of integers; in a float type with enough bits the quotient truncates exactly
        f = float32 if d.itemsize < 4 else float64
        ft, wide = ty(f, lanes), vec("i64" if d.itemsize == 4 else "i32", lanes)
        to = "sitofp" if signed else "uitofp"
        divisor = em.op(f"select {mask} {by_zero}, {t} {constant(1, d, lanes)}, {t} {b}")
        x, y = em.op(f"{to} {t} {a} to {ft}"), em.op(f"{to} {t} {divisor} to {ft}")
        return em.op(f"trunc {wide} {em.op(f'fptosi {ft} ' + em.op(f'fdiv {ft} {x}, {y}') + f' to {wide}')} to {t}")
    trap = by_zero
    if signed:
        lowest = em.op(f"icmp eq {t} {a}, {constant(-(1 << 8 * d.itemsize - 1), d, lanes)}")
        minus = em.op(f"icmp eq {t} {b}, {constant(-1, d, lanes)}")
        trap = em.op(f"or {mask} {by_zero}, {em.op(f'and {mask} {lowest}, {minus}')}")
    divisor = em.op(f"select {mask} {trap}, {t} {constant(1, d, lanes)}, {t} {b}")
    return em.op(f"{'sdiv' if signed else 'udiv'} {t} {a}, {divisor}")


def _shift(em: Emitter, op: str, d: dtype, lanes: int, a: str, b: str) -> str:
    """Counts outside 0 .. bits - 1 shift everything out."""
    t, mask, bits = ty(d, lanes), vec("i1", lanes), 8 * d.itemsize
    inside = em.op(f"icmp ult {t} {b}, {constant(bits, d, lanes)}")
    arithmetic = op == "shr" and d.kind == "i"
    count = em.op(f"select {mask} {inside}, {t} {b}, {t} {constant(bits - 1 if arithmetic else 0, d, lanes)}")
    shifted = em.op(f"{'shl' if op == 'shl' else 'ashr' if arithmetic else 'lshr'} {t} {a}, {count}")
    if arithmetic:
        return shifted
    return em.op(f"select {mask} {inside}, {t} {shifted}, {t} {constant(0, d, lanes)}")


def _power(em: Emitter, d: dtype, lanes: int, a: str, b: str) -> str:
    """By repeated squaring; a negative exponent gives 0 but for the bases 1 and -1."""
    t = ty(d, lanes)
    name = em.module.helper(f"flambeau.pow.{suffix(base(d), lanes)}", _power_function(d, lanes))
    power = em.op(f"call {t} @{name}({t} {a}, {t} {b})")
    if d.kind == "u":
        return power
    mask, zero, one = vec("i1", lanes), constant(0, d, lanes), constant(1, d, lanes)
    is_one = em.op(f"icmp eq {t} {a}, {one}")
    is_minus = em.op(f"icmp eq {t} {a}, {constant(-1, d, lanes)}")
    odd = em.op(f"icmp ne {t} {em.op(f'and {t} {b}, {one}')}, {zero}")
    sign = em.op(f"select {mask} {odd}, {t} {constant(-1, d, lanes)}, {t} {one}")
    inverse = em.op(f"select {mask} {is_minus}, {t} {sign}, {t} {zero}")
    inverse = em.op(f"select {mask} {is_one}, {t} {one}, {t} {inverse}")
    return em.op(f"select {mask} {em.op(f'icmp slt {t} {b}, {zero}')}, {t} {inverse}, {t} {power}")


def _power_function(d: dtype, lanes: int) -> str:
    t, mask = ty(d, lanes), vec("i1", lanes)
    zero, one = constant(0, d, lanes), constant(1, d, lanes)
    some = f"bitcast {mask} %left to i{lanes}"
    return f"""define internal {t} @flambeau.pow.{suffix(base(d), lanes)}({t} %a, {t} %b) #0 {{
entry:
  br label %loop
loop:
  %x = phi {t} [ %a, %entry ], [ %xx, %loop ]
  %n = phi {t} [ %b, %entry ], [ %half, %loop ]
  %p = phi {t} [ {one}, %entry ], [ %p1, %loop ]
  %bit = and {t} %n, {one}
  %odd = icmp ne {t} %bit, {zero}
  %px = mul {t} %p, %x
  %p1 = select {mask} %odd, {t} %px, {t} %p
  %xx = mul {t} %x, %x
  %half = lshr {t} %n, {one}
  %left = icmp ne {t} %half, {zero}
  %flags = {some if lanes > 1 else "zext i1 %left to i8"}
  %more = icmp ne {f"i{lanes}" if lanes > 1 else "i8"} %flags, 0
  br i1 %more, label %loop, label %done
done:
  ret {t} %p1
}}"""

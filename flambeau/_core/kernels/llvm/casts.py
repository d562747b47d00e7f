"""Conversions between element types, defined for every value (LLVM's own are undefined out of range).

Float to integer truncates; a NaN or a value out of range gives what x86's conversion to int32 (for types up to 32 bits)
or int64 gives, cut to the type's width.  Rounding to bfloat16 and float16 is to nearest, ties to even.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import bfloat16, bool_, float16, float32, float64, int32, int64, uint64
from .emit import base, constant, splat, ty, vec

if TYPE_CHECKING:
    from ...dtypes import dtype
    from .emit import Emitter


def cast(em: Emitter, v: str, source: dtype, target: dtype, lanes: int) -> str:
    """The value converted to `target`."""
    if source is target:
        return v
    if source is bfloat16:
        return cast(em, _from_bfloat16(em, v, lanes), float32, target, lanes)
    if target is bool_:
        zero = constant(0, source, lanes)
        if source is float16:
            v, source, zero = cast(em, v, float16, float32, lanes), float32, constant(0, float32, lanes)
        return em.op(f"{'fcmp une' if source.kind == 'f' else 'icmp ne'} {ty(source, lanes)} {v}, {zero}")
    if target is bfloat16 and source is bool_:
        one, zero = (constant(n, bfloat16, lanes) for n in (1, 0))
        return em.op(f"select {vec('i1', lanes)} {v}, {vec('i16', lanes)} {one}, {vec('i16', lanes)} {zero}")
    if target is bfloat16:
        wide = cast(em, v, source, float32, lanes)
        return cut(em, wide, lanes) if source.kind in "ui" and source.itemsize == 1 else _to_bfloat16(em, wide, lanes)
    a, b = ty(source, lanes), ty(target, lanes)
    if source.kind == "f":
        if target.kind == "f":
            if target is float16 and source is float64:
                return cast(em, cast(em, v, float64, float32, lanes), float32, float16, lanes)
            return em.op(f"{'fpext' if target.itemsize > source.itemsize else 'fptrunc'} {a} {v} to {b}")
        return _float_to_integer(em, v, source, target, lanes)
    unsigned = source.kind in "ub"
    if target.kind == "f":
        if target is float16:
            return cast(em, cast(em, v, source, float32, lanes), float32, float16, lanes)
        return em.op(f"{'uitofp' if unsigned else 'sitofp'} {a} {v} to {b}")
    if source is not bool_ and target.itemsize == source.itemsize:
        return v
    if source is not bool_ and target.itemsize < source.itemsize:
        return em.op(f"trunc {a} {v} to {b}")
    return em.op(f"{'zext' if unsigned else 'sext'} {a} {v} to {b}")


def _from_bfloat16(em: Emitter, v: str, lanes: int) -> str:
    wide = em.op(f"zext {vec('i16', lanes)} {v} to {vec('i32', lanes)}")
    high = em.op(f"shl {vec('i32', lanes)} {wide}, {splat('16', 'i32', lanes)}")
    return em.op(f"bitcast {vec('i32', lanes)} {high} to {vec('float', lanes)}")


def cut(em: Emitter, v: str, lanes: int) -> str:
    """A float32 value that bfloat16 holds as it is, in bfloat16; NaN keeps its sign."""
    bits = em.op(f"bitcast {vec('float', lanes)} {v} to {vec('i32', lanes)}")
    top = em.op(f"lshr {vec('i32', lanes)} {bits}, {splat('16', 'i32', lanes)}")
    return em.op(f"trunc {vec('i32', lanes)} {top} to {vec('i16', lanes)}")


def _to_bfloat16(em: Emitter, v: str, lanes: int) -> str:
    # in integers: the conversion instruction of AVX512-BF16 flushes denormals
    t, half = vec("i32", lanes), vec("i16", lanes)
    bits = em.op(f"bitcast {vec('float', lanes)} {v} to {t}")
    top = em.op(f"lshr {t} {bits}, {splat('16', 'i32', lanes)}")
    odd = em.op(f"and {t} {top}, {splat('1', 'i32', lanes)}")
    bias = em.op(f"add {t} {odd}, {splat('32767', 'i32', lanes)}")
    rounded = em.op(f"lshr {t} {em.op(f'add {t} {bits}, {bias}')}, {splat('16', 'i32', lanes)}")
    nan = em.op(f"fcmp uno {vec('float', lanes)} {v}, {constant(0.0, float32, lanes)}")
    kept = em.op(f"select {vec('i1', lanes)} {nan}, {t} {splat('32704', 'i32', lanes)}, {t} {rounded}")
    return em.op(f"trunc {t} {kept} to {half}")


def _float_to_integer(em: Emitter, v: str, source: dtype, target: dtype, lanes: int) -> str:
    if source is float16:
        v, source = cast(em, v, float16, float32, lanes), float32
    through = int32 if target.itemsize < 4 or target is int32 else int64
    limit = 2.0 ** (8 * through.itemsize - 1)
    a, t, mask = ty(source, lanes), ty(through, lanes), vec("i1", lanes)
    # float64 just below -2**31 still truncates into range, which the open bound admits
    low = constant(-limit - 1 if source is float64 and through is int32 else -limit, source, lanes)
    above = em.op(f"fcmp {'ogt' if source is float64 and through is int32 else 'oge'} {a} {v}, {low}")
    below = em.op(f"fcmp olt {a} {v}, {constant(limit, source, lanes)}")
    inside = em.op(f"and {mask} {above}, {below}")
    whole = em.op(f"fptosi {a} {v} to {t}")
    wrong = constant(-(1 << 8 * through.itemsize - 1), through, lanes)
    if target is uint64:
        big = em.op(f"fcmp olt {a} {v}, {constant(2.0 * limit, source, lanes)}")
        big = em.op(f"and {mask} {above}, {big}")
        wrong = em.op(f"select {mask} {big}, {t} {em.op(f'fptoui {a} {v} to {t}')}, {t} {wrong}")
    got = em.op(f"select {mask} {inside}, {t} {whole}, {t} {wrong}")
    return got if target.itemsize == through.itemsize else em.op(f"trunc {t} {got} to {vec(base(target), lanes)}")

"""Loop programs carried out by NumPy: the oracle every renderer is tested against, and a slow target of its own."""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import BITS, SMALL, bfloat16, complex32, float64
from . import small_floats
from .expr import Expr, walk
from .programs import Map, PreparedLaunch, Program, Reduce, Rows, Scan, price, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtypes import dtype

Array = Any  # an ndarray or a NumPy scalar


class _At:
    """Memory at an address, for `numpy.asarray`."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], np_dtype: np.dtype[Any],
                 owner: Any) -> None:
        self.owner = owner  # the array keeps this object alive, and so the memory
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": np_dtype.str, "version": 3,
                                    "strides": tuple(s * np_dtype.itemsize for s in strides)}


def memory(address: int, shape: tuple[int, ...], strides: tuple[int, ...], d: dtype, owner: Any = None) -> Array:
    """The elements at `address` as an array that shares them and keeps `owner` alive (bfloat16 and complex32 as unsigned integers); strides in
    elements."""
    extent, steps = _extent(shape, strides, d.np)
    if extent is not None:
        held = extent.from_address(address)
        if owner is not None:
            held.owner = owner
        return np.ndarray(shape, d.np, held, 0, steps)
    if size_of(shape) == 0:
        return np.empty(shape, d.np)
    return np.asarray(_At(address, shape, strides, d.np, owner))


@lru_cache(4096)
def _extent(shape: tuple[int, ...], strides: tuple[int, ...], np_dtype: np.dtype[Any]) -> tuple[Any, tuple[int, ...]]:
    """The class of the bytes that elements lie in, None for no elements or some before the first; and the bytes from one to the next."""
    steps = tuple([s * np_dtype.itemsize for s in strides])
    if size_of(shape) == 0 or any(s < 0 for s in steps):
        return None, steps
    return ctypes.c_char * (np_dtype.itemsize + sum([(n - 1) * s for n, s in zip(shape, steps, strict=True)])), steps


def widen_bfloat16(bits: Array) -> Array:
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow_bfloat16(values: Array) -> Array:
    """Rounds float32 to the nearest bfloat16, ties to even, and gives its bits; NaN stays NaN."""
    v = np.ascontiguousarray(values, np.float32)
    bits = v.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(v), np.uint32(0x7FC0), rounded).astype(np.uint16).reshape(np.shape(values))


def widen_complex32(bits: Array) -> Array:
    """The two float16 side by side in each of `bits`, as complex64."""
    parts = np.ascontiguousarray(bits).view(np.float16).astype(np.float32)
    return parts.view(np.complex64).reshape(np.shape(bits))


def narrow_complex32(values: Array) -> Array:
    """Rounds both parts of complex numbers to float16, and gives these side by side as bits."""
    v = np.ascontiguousarray(values, np.complex64)
    with np.errstate(over="ignore"):
        return v.view(np.float32).astype(np.float16).view(np.uint32).reshape(np.shape(values))


def load(array: Array, d: dtype) -> Array:
    """Stored elements as values: the bits of bfloat16 and of types of 8 bits become float32, those of complex32 complex64."""
    if d not in BITS:
        return array
    return widen_bfloat16(array) if d is bfloat16 else widen_complex32(array) if d is complex32 else small_floats.widen(array, d)


def bits_of(value: Array, d: dtype) -> Array:
    """Values as what stores them, the inverse of `load`."""
    if d not in BITS:
        return value
    return narrow_bfloat16(value) if d is bfloat16 else narrow_complex32(value) if d is complex32 else small_floats.narrow(value, d)


def store(target: Array, value: Array, d: dtype) -> None:
    target[...] = bits_of(value, d)


# ------------------------------------------------------------------------------------------------------------- values
def _np_of(d: dtype) -> np.dtype[Any]:
    return d.opmath.np if d in BITS else d.np


def _wrap_int(v: Array, d: dtype) -> Array:
    """Floats to an integer type: truncated; what does not fit becomes the most negative int64, then wraps."""
    f = np.trunc(np.asarray(v, np.float64))
    ok = np.isfinite(f) & (f >= -(2.0 ** 63)) & (f < 2.0 ** 63)
    as_int = np.where(ok, f, -(2.0 ** 63)).astype(np.int64)
    if d.name == "uint64":
        big = np.isfinite(f) & (f >= 2.0 ** 63) & (f < 2.0 ** 64)
        return np.where(big, np.where(big, f, 0).astype(np.uint64), as_int.astype(np.uint64))
    return as_int.astype(d.np)


def convert(v: Array, source: dtype, target: dtype) -> Array:
    """`cast` on values."""
    if target is bfloat16:
        if source.kind == "c":
            v = np.real(v)
        return widen_bfloat16(narrow_bfloat16(np.asarray(v, np.float32)))
    if target in SMALL:
        return small_floats.widen(small_floats.narrow(np.real(v) if source.kind == "c" else v, target), target)
    if source in SMALL:
        source = source.opmath
    if target is complex32:
        return widen_complex32(narrow_complex32(v))
    if target.kind == "b":
        return np.asarray(v) != 0
    if source.kind == "c" and target.kind != "c":
        v, source = np.real(v), source.to_real()
    if target.kind in "ui" and source.kind == "f":
        return _wrap_int(v, target)
    return np.asarray(v).astype(_np_of(target))


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(np.asarray(x, np.float64)) if np.size(x) else np.asarray(x, np.float64)


def _erfc(x: Array) -> Array:
    return np.vectorize(math.erfc, otypes=[np.float64])(np.asarray(x, np.float64)) if np.size(x) else np.asarray(x, np.float64)


def _lgamma_one(x: float) -> float:
    if math.isinf(x):
        return math.inf
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return math.inf


def _lgamma(x: Array) -> Array:
    return np.vectorize(_lgamma_one, otypes=[np.float64])(np.asarray(x, np.float64)) if np.size(x) else np.asarray(x, np.float64)


def _int_div(rounding: str) -> Callable[[Array, Array], Array]:
    def divide(a: Array, b: Array) -> Array:
        a, b = np.asarray(a), np.asarray(b)
        safe = np.where(b == 0, np.ones((), b.dtype), b)
        if rounding == "floor":
            q = a // safe
        else:
            q = np.where((a % safe != 0) & ((a < 0) != (safe < 0)), a // safe + a.dtype.type(1), a // safe).astype(a.dtype)
        return np.where(b == 0, np.zeros((), a.dtype), q)
    return divide


def _int_rem(rounding: str) -> Callable[[Array, Array], Array]:
    def remainder(a: Array, b: Array) -> Array:
        a, b = np.asarray(a), np.asarray(b)
        safe = np.where(b == 0, np.ones((), b.dtype), b)
        r = a % safe if rounding == "floor" else np.fmod(a, safe)
        return np.where(b == 0, np.zeros((), a.dtype), r)
    return remainder


def _float_floordiv(a: Array, b: Array) -> Array:
    mod = np.fmod(a, b)
    div = (a - mod) / b
    div = np.where((mod != 0) & ((b < 0) != (mod < 0)), div - 1, div)
    floored = np.floor(div)
    floored = np.where(div - floored > 0.5, floored + 1, floored)
    out = np.where(div != 0, floored, np.copysign(0.0, a / b))
    return np.where(b == 0, a / b, out).astype(np.result_type(a))


def _float_rem(a: Array, b: Array) -> Array:
    mod = np.fmod(a, b)
    return np.where((mod != 0) & ((b < 0) != (mod < 0)), mod + b, mod).astype(np.result_type(a))


def _int_pow(a: Array, b: Array) -> Array:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "b":
        return a | ~b
    positive = np.power(a, np.where(b < 0, np.zeros((), b.dtype), b))
    negative = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0)) if a.dtype.kind == "i" else positive
    return np.where(b < 0, negative, positive).astype(a.dtype)


_UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": _erf, "erfc": _erfc,
    "lgamma": _lgamma, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "not": np.invert,
    "real": np.real, "imag": np.imag,
}
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": np.maximum, "minimum": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "atan2": np.arctan2, "hypot": np.hypot,
    "copysign": np.copysign, "nextafter": np.nextafter, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "shl": np.left_shift, "shr": np.right_shift,
    "complex": lambda re, im: _make_complex(re, im),
}
_FLOAT_DIV = {"floordiv": _float_floordiv, "truncdiv": lambda a, b: np.trunc(a / b), "rem": _float_rem, "fmod": np.fmod,
              "pow": np.power}
_INT_DIV = {"floordiv": _int_div("floor"), "truncdiv": _int_div("trunc"), "rem": _int_rem("floor"), "fmod": _int_rem("trunc"),
            "pow": _int_pow}


def _make_complex(re: Array, im: Array) -> Array:
    out = np.empty(np.broadcast(re, im).shape, np.complex128 if np.result_type(re) == np.float64 else np.complex64)
    out.real, out.imag = re, im
    return out


def apply(e: Expr, args: Sequence[Array]) -> Array:
    """The value of one primitive node on the values of its children."""
    op, d = e.op, e.dtype
    if op == "cast":
        return convert(args[0], e.args[0].dtype, d)
    if op == "bitcast":
        return np.asarray(args[0]).view(d.np)
    if op == "where":
        return np.where(args[0], args[1], args[2])
    if op in _FLOAT_DIV:
        table = _FLOAT_DIV if e.args[0].dtype.kind in "fc" else _INT_DIV
        out = table[op](*args)  # type: ignore[operator]
    elif op == "sub" and d.kind == "b":
        out = np.logical_xor(*args)
    elif op in _UNARY:
        out = np.negative(args[0]) if op == "neg" and d.kind != "b" else _UNARY[op](*args) if op != "neg" else args[0]
    elif op in _BINARY:
        out = _BINARY[op](*args)
    else:
        raise NotImplementedError(f"the interpreter has no primitive {op!r}")
    if d in BITS:
        return load(bits_of(out, d), d)
    return np.asarray(out).astype(_np_of(d), copy=False)


def evaluate(roots: tuple[Expr, ...], leaf: Callable[[Expr, Sequence[Array]], Array]) -> list[Array]:
    """The values of expressions; `leaf` gives those of input, scalar, coord, acc and (from the offset) gather nodes."""
    done: dict[Expr, Array] = {}
    with np.errstate(all="ignore"):
        for e in walk(roots):
            if e.op == "const":
                done[e] = np.asarray(e.value, _np_of(e.dtype))
            elif e.args and e.op != "gather":
                done[e] = apply(e, [done[a] for a in e.args])
            else:
                done[e] = leaf(e, [done[a] for a in e.args])
    return [done[r] for r in roots]


# ----------------------------------------------------------------------------------------------------------- programs
def _lowest(d: dtype, sign: int) -> Any:
    """The identity of max (sign -1) or min (sign +1)."""
    if d.kind == "f":
        return sign * math.inf
    if d.kind == "b":
        return sign > 0
    info = np.iinfo(d.np)
    return info.min if sign < 0 else info.max


def combine_all(how: str, values: Array, d: dtype) -> list[Array]:
    """The last axis of `values` reduced: one array, or value and position for argmax/argmin."""
    n = values.shape[-1]
    if how in ("argmax", "argmin"):
        if n == 0:
            return [np.full(values.shape[:-1], _lowest(d, -1 if how == "argmax" else 1), _np_of(d)),
                    np.zeros(values.shape[:-1], np.int64)]
        at = np.argmax(values, -1) if how == "argmax" else np.argmin(values, -1)
        return [np.take_along_axis(values, at[..., None], -1)[..., 0], at.astype(np.int64)]
    if how in ("max", "min"):
        f = np.maximum if how == "max" else np.minimum
        return [f.reduce(values, -1, initial=None if n else _lowest(d, -1 if how == "max" else 1))] if n else [
            np.full(values.shape[:-1], _lowest(d, -1 if how == "max" else 1), _np_of(d))]
    if how == "sum":
        return [np.sum(values, -1, dtype=_np_of(d)) if d.kind != "b" else np.any(values, -1)]
    if how == "prod":
        return [np.prod(values, -1, dtype=_np_of(d)) if d.kind != "b" else np.all(values, -1)]
    if d.kind == "b":
        return [np.all(values, -1) if how == "and" else np.any(values, -1)]
    return [(np.bitwise_and if how == "and" else np.bitwise_or).reduce(values, -1).astype(_np_of(d))]


class _Operands:
    """The operands of one launch, as arrays over the domain, and the leaves they give."""

    def __init__(self, program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...],
                 args: Sequence[Any], outs: int) -> None:
        self.domain = domain
        types = program.inputs
        self.addresses = args[outs:outs + len(types)]
        self.types = types
        self.arrays = [None if st == () and domain != () else load(memory(a, domain, st, d), d)
                       for a, st, d in zip(self.addresses, strides[outs:], types, strict=True)]
        # inputs may share memory with outputs: read everything before anything is written
        self.arrays = [None if a is None else np.array(a) for a in self.arrays]
        self.numbers = args[outs + len(types):]

    def leaf(self, e: Expr, args: Sequence[Array], accs: Sequence[Array] = ()) -> Array:
        if e.op == "input":
            return self.arrays[e.value]
        if e.op == "scalar":
            v = self.numbers[e.value]
            if e.dtype.kind in "ui":
                v = (int(v) + (1 << 63)) % (1 << 64) - (1 << 63)
                return np.asarray(v, np.int64).astype(e.dtype.np)
            if e.dtype.kind == "c":
                return np.asarray(complex(v), e.dtype.np)
            return convert(np.asarray(v, np.float64), float64, e.dtype) if e.dtype.kind != "b" else np.asarray(bool(v))
        if e.op == "coord":
            axis = e.value % len(self.domain) if self.domain else 0
            shape = [1] * len(self.domain)
            if self.domain:
                shape[axis] = self.domain[axis]
                return np.broadcast_to(np.arange(self.domain[axis], dtype=np.int64).reshape(shape), self.domain)
            return np.zeros((), np.int64)
        if e.op == "acc":
            return accs[e.value]
        if e.op == "gather":
            return self._gather(e, args[0])
        raise NotImplementedError(f"the interpreter has no leaf {e.op!r}")

    def _gather(self, e: Expr, offset: Array) -> Array:
        d = e.dtype
        off = np.asarray(offset, np.int64)
        if off.size == 0:
            return np.empty(off.shape, _np_of(d))
        low, high = int(off.min()), int(off.max())
        flat = memory(self.addresses[e.value] + low * d.itemsize, (high - low + 1,), (1,), d)
        return load(flat[off - low], d)


def _run_map(p: Map, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], args: Sequence[Any]) -> None:
    ops = _Operands(p, domain, strides, args, len(p.outs))
    values = evaluate(p.roots(), ops.leaf)
    offsets = iter(values[len(p.outs):])
    for k, (e, target) in enumerate(zip(p.outs, p.targets, strict=True)):
        value = np.broadcast_to(values[k], domain)
        if target is None:
            store(memory(args[k], domain, strides[k], e.dtype), value, e.dtype)
        else:
            _scatter(args[k], target[0], np.broadcast_to(next(offsets), domain), value, e.dtype)


def _scatter(address: int, mode: str, offset: Array, value: Array, d: dtype) -> None:
    if offset.size == 0:
        return
    low, high = int(offset.min()), int(offset.max())
    flat = memory(address + low * d.itemsize, (high - low + 1,), (1,), d)
    work = load(flat, d)
    work = np.array(work)
    at, v = (offset - low).reshape(-1), value.reshape(-1)
    if mode == "set":
        for i, x in zip(at, v, strict=True):
            work[i] = x
    else:
        f: Any = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[mode]
        if d.kind == "b":
            f = np.logical_or if mode in ("add", "max") else np.logical_and
        f.at(work, at, v)
    store(flat, work, d)


def _run_reduce(p: Reduce, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], args: Sequence[Any]) -> None:
    outs = len(p.posts)
    kept = len(strides[0])
    ops = _Operands(p, domain, strides, args, outs)
    accs: list[Array] = []
    for value, e, how in zip(evaluate(p.elems, ops.leaf), p.elems, p.combine, strict=True):
        full = np.broadcast_to(value, domain).reshape(*domain[:kept], size_of(domain[kept:]))
        accs += combine_all(how, full, e.dtype)
    for k, (e, value) in enumerate(zip(p.posts, evaluate(p.posts, lambda x, a: ops.leaf(x, a, accs)), strict=True)):
        store(memory(args[k], domain[:kept], strides[k], e.dtype), np.broadcast_to(value, domain[:kept]), e.dtype)


def _run_rows(p: Rows, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], args: Sequence[Any]) -> None:
    outs = len(p.out_types)
    ops = _Operands(p, domain, strides, args, outs)
    accs: list[Array] = []
    for what, which, e in p.stages:
        (value,) = evaluate((e,), lambda x, a: ops.leaf(x, a, accs))
        if what == "reduce":
            (total,) = combine_all(which, np.broadcast_to(value, domain), e.dtype)
            accs.append(total[..., None])
        elif what == "row":
            if domain[-1] == 0 and np.ndim(value):
                value = np.broadcast_to(value, (*domain[:-1], 1)) if np.shape(value)[-1] == 1 else np.zeros((*domain[:-1], 1))
            value = np.broadcast_to(value, np.broadcast_shapes(np.shape(value), (*domain[:-1], 1)))[..., 0]
            store(memory(args[which], domain[:-1], strides[which][:len(domain) - 1], e.dtype), value, e.dtype)
        else:
            store(memory(args[which], domain, strides[which], e.dtype), np.broadcast_to(value, domain), e.dtype)


def _run_scan(p: Scan, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], args: Sequence[Any]) -> None:
    outs = len(p.posts)
    ops = _Operands(p, domain, strides, args, outs)
    (value,) = evaluate((p.elem,), ops.leaf)
    value = np.broadcast_to(value, domain)
    if p.reverse:
        value = value[..., ::-1]
    accs = _scan(p.combine, value, p.elem.dtype)
    if p.reverse:
        accs = [a[..., ::-1] for a in accs]
        accs[1:] = [domain[-1] - 1 - a for a in accs[1:]]
    for k, (e, v) in enumerate(zip(p.posts, evaluate(p.posts, lambda x, a: ops.leaf(x, a, accs)), strict=True)):
        store(memory(args[k], domain, strides[k], e.dtype), np.broadcast_to(v, domain), e.dtype)


def _scan(how: str, v: Array, d: dtype) -> list[Array]:
    if how == "sum":
        return [np.cumsum(v, -1, dtype=_np_of(d))]
    if how == "prod":
        return [np.cumprod(v, -1, dtype=_np_of(d))]
    if how == "logsumexp":
        out = np.array(v)
        for i in range(1, v.shape[-1]):
            out[..., i] = np.logaddexp(out[..., i - 1], v[..., i])
        return [out]
    best, at = np.array(v), np.zeros(v.shape, np.int64)
    for i in range(1, v.shape[-1]):
        old, new = best[..., i - 1], v[..., i]
        take = new >= old if how == "max" else new <= old
        take = take | (new != new) if d.kind in "fc" else take
        take = take & ~((old != old) & (new == new))
        best[..., i] = np.where(take, new, old)
        at[..., i] = np.where(take, i, at[..., i - 1])
    return [best, at]


_RUN: dict[str, Callable[[Any, tuple[int, ...], tuple[tuple[int, ...], ...], Sequence[Any]], None]] = {
    "map": _run_map, "reduce": _run_reduce, "rows": _run_rows, "scan": _run_scan}


def run(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], *args: Any) -> None:
    """Carries out one launch on memory: addresses of outputs and inputs, then numbers."""
    if size_of(domain) == 0 and program.kind in ("map", "scan"):
        return
    with np.errstate(all="ignore"):
        _RUN[program.kind](program, domain, strides, args)


def prepare(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> PreparedLaunch:
    """See `target.prepare`."""
    nbytes, flops = price(program, domain, strides)

    def entry(*args: Any) -> None:
        run(program, domain, strides, *args)
    return PreparedLaunch(program.kind, entry, outputs=len(program.out_types), nbytes=nbytes, flops=flops, program=program,
                    domain=domain, strides=strides)


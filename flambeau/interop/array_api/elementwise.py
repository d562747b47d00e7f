"""Element by element: names of the standard over the operations of the same meaning."""

from __future__ import annotations

from typing import Any

from ..._core import ops
from ..._core.tensor import Tensor
from .promotion import number, together

_UNARY = """abs acos acosh asin asinh atan atanh cos cosh exp expm1 imag isnan log log1p log2 log10 logical_not neg:negative
 positive real reciprocal signbit sin sinh square sqrt tan tanh bitwise_not:bitwise_invert isfinite isinf""".split()
_BINARY = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign div:divide eq:equal floor_divide
 gt:greater ge:greater_equal hypot lt:less le:less_equal logaddexp logical_and logical_or logical_xor maximum minimum mul:multiply nextafter
 ne:not_equal pow remainder sub:subtract""".split()
_WHOLE = "ceil floor trunc".split()  # integers are returned as they are


def _unary(f: Any, name: str, whole: bool) -> Any:
    def call(x: Tensor, /) -> Tensor:
        if whole and x.meta.dtype.kind in "bui":
            return x.clone()
        return f(x)  # type: ignore[no-any-return]
    return _named(call, name)


def _binary(f: Any, name: str) -> Any:
    def call(x1: Any, x2: Any, /) -> Tensor:
        return f(*together(x1, x2))  # type: ignore[no-any-return]
    return _named(call, name)


def _named(call: Any, name: str) -> Any:
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` of the array API standard, element by element."
    call.__module__ = __name__
    return call


for _entry in (*_UNARY, *_WHOLE):
    _ours, _, _name = _entry.partition(":")
    globals()[_name or _ours] = _unary(getattr(ops, _ours), _name or _ours, _entry in _WHOLE)
for _entry in _BINARY:
    _ours, _, _name = _entry.partition(":")
    globals()[_name or _ours] = _binary(getattr(ops, _ours), _name or _ours)


def conj(x: Tensor, /) -> Tensor:
    """The complex conjugate; real arrays as they are."""
    return ops.conj_physical(x) if x.meta.dtype.is_complex else x


def round(x: Tensor, /) -> Tensor:  # noqa: A001 (the standard's name)
    """The nearest integers, halves to even; of complex numbers, part by part."""
    if x.meta.dtype.is_complex:
        return ops.complex(ops.round(x.real), ops.round(x.imag))  # type: ignore[no-any-return]
    return x.clone() if x.meta.dtype.kind in "bui" else ops.round(x)


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1, and NaN for NaN; of a complex number, what it is divided by its size."""
    if x.meta.dtype.kind in "bui":
        return ops.sign(x)  # type: ignore[no-any-return]
    made: Tensor = ops.sgn(x)
    return ops.where(ops.isnan(x), x, made)  # type: ignore[no-any-return]


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:  # noqa: A002 (the standard's names)
    """x between `min` and `max` (numbers, arrays or None), in the type of x."""
    if min is None and max is None:
        return x.clone()
    bounds = [b.to(x.meta.dtype) if isinstance(b, Tensor) else None if b is None else number(b, x.meta.dtype, x) for b in (min, max)]
    made = x
    if bounds[0] is not None:
        made = ops.maximum(made, bounds[0])
    if bounds[1] is not None:
        made = ops.minimum(made, bounds[1])
    return made.to(x.meta.dtype)


NAMES = [e.partition(":")[2] or e for e in (*_UNARY, *_WHOLE, *_BINARY)] + ["conj", "round", "sign", "clip"]

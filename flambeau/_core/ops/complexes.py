"""Complex numbers: parts, conjugates, angles, and building them from reals."""

from __future__ import annotations

import math
from typing import Any

from .. import hooks
from ..dtypes import title
from ..engine.fields import has
from ..kernels import expr as E
from ..kernels.expr import Expr, where
from ..tensor import Tensor, _new, meta
from .elementwise import Pointwise
from .table import op, pointwise

IMAG_BACK = "ImagBackward0"


def _part(t: Tensor, which: int) -> Tensor:
    """The real or imaginary parts, a view."""
    from ..autograd import inplace, tape
    from ..autograd.mode import _grad
    m = t.meta
    real = m.dtype.to_real()
    r = _new(Tensor)
    r.meta = meta(m.shape, tuple(s * 2 for s in m.strides), real, m.device)
    r.store, r.ptr, r.node = t.store, t.ptr + which * real.itemsize, None
    inplace.note_view(t if t.base is None else t.base, r)
    if t.node is not None and _grad.get():
        made = _REAL_BACK if which == 0 else _IMAG_BACK
        r.node = tape.node(lambda node, g: (made((g,)),), (t.node,), None, "RealBackward0" if which == 0 else IMAG_BACK)
    return r  # type: ignore[no-any-return]


_REAL_BACK = Pointwise("real_backward", lambda g: E.complex_(g, E.const(0, g.dtype)), 1)
_IMAG_BACK = Pointwise("imag_backward", lambda g: E.complex_(E.const(0, g.dtype), g), 1)


@op(method=False, batch="pointwise", tangent="linear")
def real(input: Tensor) -> Tensor:  # noqa: A002 (PyTorch's name)
    """The real parts, a view (a real tensor is its own)."""
    if isinstance(input, Expr):  # type: ignore[unreachable]  # in a formula
        return E.real(input)  # type: ignore[unreachable]
    return _part(input, 0) if input.meta.dtype.is_complex else input


@op(method=False, batch="pointwise", tangent="linear")
def imag(input: Tensor) -> Tensor:  # noqa: A002
    """The imaginary parts, a view.  Raises RuntimeError for a real tensor."""
    if isinstance(input, Expr):  # type: ignore[unreachable]
        return E.imag(input)  # type: ignore[unreachable]
    if not input.meta.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return _part(input, 1)


CONJ = Pointwise("conj", E.conj, 1)
CONJ.grad_name = "ConjBackward0"


@op(inplace=True, out=True, batch="pointwise", tangent="linear")
def conj_physical(input: Tensor) -> Tensor:  # noqa: A002
    """The complex conjugate in memory of its own (a real tensor is its own)."""
    if isinstance(input, Expr):  # type: ignore[unreachable]
        return E.conj(input)  # type: ignore[unreachable]
    if not input.meta.dtype.is_complex:
        return input
    result: Tensor = CONJ((input,))
    return result


def _angle(x: Expr) -> Expr:
    if x.dtype.is_complex:
        return E.atan2(E.imag(x), E.real(x))
    return where(x < 0.0, E.const(math.pi, x.dtype), where(E.isnan(x), x, E.const(0, x.dtype)))


pointwise("angle", "input", _angle, promote="float", inplace=False, doc="The argument in (-pi, pi]; 0 or pi for reals.",
          grad=lambda g, x, y: E.const(0, g.dtype) if not x.dtype.is_complex else where(
              (E.real(x) == 0.0) & (E.imag(x) == 0.0), E.const(0, x.dtype),
              E.complex_(-g * E.imag(x), g * E.real(x)) / E.complex_(
                  E.real(x) * E.real(x) + E.imag(x) * E.imag(x), E.const(0, g.dtype))))

_COMPLEX = Pointwise("complex", E.complex_, 2, accept="f")
_POLAR = Pointwise("polar", lambda r, a: E.complex_(r * E.cos(a), r * E.sin(a)), 2, accept="f")


def _same_types(name: str, a: Tensor, b: Tensor) -> None:
    for t in (a, b):
        if t.meta.dtype.name not in ("float16", "float32", "float64"):
            raise RuntimeError(f"Expected both inputs to be Half, Float or Double tensors but got {title(a.meta.dtype)} and {title(b.meta.dtype)}")
    if a.meta.dtype is not b.meta.dtype:
        raise RuntimeError(f"Expected object of scalar type {title(a.meta.dtype)} but got scalar type {title(b.meta.dtype)} for second argument")


@op(method=False, out=True, name="complex", batch="pointwise")
def complex_(real: Tensor, imag: Tensor) -> Any:
    """Complex numbers from their parts."""
    _same_types("complex", real, imag)
    return _COMPLEX((real, imag))


@op(method=False, out=True, autocast="cpu full", batch="pointwise")
def polar(abs: Tensor, angle: Tensor) -> Any:  # noqa: A002
    """Complex numbers from absolute values and angles."""
    _same_types("polar", abs, angle)
    return _POLAR((abs, angle))


def _set_part(which: int) -> Any:
    def assign(t: Tensor, value: Any) -> None:
        part = (imag if which else real)(t)
        part.copy_(value) if isinstance(value, Tensor) else part.fill_(value)
    return assign


Tensor.real = property(real, _set_part(0))  # type: ignore[assignment, method-assign]
Tensor.imag = property(imag, _set_part(1))  # type: ignore[assignment, method-assign]


@op(batch="trailing", tangent="linear")
def view_as_real(input: Tensor) -> Tensor:  # noqa: A002
    """A view (..., 2) of the parts of a complex tensor."""
    from ..autograd import tape
    m = input.meta
    if not m.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    r = hooks.view_of(input, (*m.shape, 2), (*[s * 2 for s in m.strides], 1), input.ptr, None, None, "ViewAsRealBackward0")
    r.meta = meta(r.meta.shape, r.meta.strides, m.dtype.to_real(), m.device)
    return tape.record(r, tape.keeps_nothing(lambda node, g: (view_as_complex(g.contiguous()),)), (input,), None, "ViewAsRealBackward0")


@op(autocast="cpu full", batch="trailing", tangent="linear")
def view_as_complex(input: Tensor) -> Tensor:  # noqa: A002
    """A complex view of a real tensor (..., 2).  Raises RuntimeError for layouts that are not pairs side by side."""
    from ..autograd import tape
    m = input.meta
    if m.dtype.name not in ("float16", "float32", "float64"):
        raise RuntimeError(f"view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: "
                           f"{m.dtype.name}")
    if not m.shape:
        raise RuntimeError("Input tensor must have one or more dimensions: the last, of size 2, holds real and imaginary parts")
    if m.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if m.strides[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % 2 for s, d in zip(m.strides[:-1], m.shape[:-1], strict=True) if d != 1):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    r = hooks.view_of(input, tuple(m.shape[:-1]), tuple(s // 2 for s in m.strides[:-1]), input.ptr, None, None, "ViewAsComplexBackward0")
    r.meta = meta(r.meta.shape, r.meta.strides, m.dtype.to_complex(), m.device)
    return tape.record(r, tape.keeps_nothing(lambda node, g: (view_as_real(g),)), (input,), None, "ViewAsComplexBackward0")


hooks.provide(complex_=complex_)

has("angle", sparse="values")
has("view_as_complex view_as_real", views="copied")
has("real", views="maybe")
has("imag", views="input")
has("conj_physical real", sparse="composite")

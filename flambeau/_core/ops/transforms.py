"""Fourier transforms by the device's backend, outside the tape: the ways from `fft.py`'s transforms to its launches.

Some backends transform any axes, others the last axes of packed memory, at most three at once.  Other axes are then brought there by a copy;
what comes out keeps that order in memory and is seen with its axes in their places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..autograd.mode import no_recording
from ..kernels import expr as E
from ..kernels.programs import Map
from ..kernels.specs import Fft, RealFft
from ..runtime import dispatch
from ..tensor import Tensor, alias, empty, meta
from . import launch, routines
from .copies import contiguous

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..dtypes import dtype
    from ..runtime.device import device
    from .routines import Bound

_MOST = 3


def _order(ndim: int, axes: Sequence[int]) -> tuple[int, ...]:
    """All axes, those to be transformed last."""
    return (*[i for i in range(ndim) if i not in axes], *axes)


def _in_place(made: Tensor, order: tuple[int, ...]) -> Tensor:
    """A packed result with its axes back where they belong."""
    shape, strides = [0] * len(order), [0] * len(order)
    for i, axis in enumerate(order):
        shape[axis], strides[axis] = made.meta.shape[i], made.meta.strides[i]
    return alias(made, meta(tuple(shape), tuple(strides), made.meta.dtype, made.meta.device), made.ptr)


def _bound(dev: device, kind: str, d: dtype, shape: Sequence[int], count: int, inverse: bool) -> Bound | None:
    """The launch for the last axes of packed memory, whose real side has this shape."""
    n = len(shape)
    axes = tuple(range(n - count, n))
    return routines.find(dev, Fft(d, tuple(shape), axes, inverse) if kind == "c2c" else RealFft(kind, d, tuple(shape), axes, inverse))


def _arranged(t: Tensor, order: tuple[int, ...]) -> Tensor:
    with no_recording():
        return contiguous(t.permute(order))


def _scaled(t: Tensor, scale: float) -> Tensor:
    """Packed numbers, real or complex, times `scale`, in place."""
    if scale != 1.0:
        real = t.meta.dtype.to_real() if t.meta.dtype.is_complex else t.meta.dtype
        flat = alias(t, meta((t.meta.nbytes // real.itemsize,), None, real, t.meta.device), t.ptr)
        launch.run(Map((E.input(0, real) * E.scalar(0, real),), (real,), (real,)), flat.meta.shape, [flat], [flat], numbers=(scale,), name="scale")
    return t


def transformed(t: Tensor, axes: tuple[int, ...], inverse: bool, scale: float) -> Tensor:
    """sum over the axes of t * exp(-+ 2 pi i j k / n), times `scale`, of complex t."""
    m = t.meta
    whole = Fft(m.dtype, tuple(m.shape), axes, inverse, scale)
    bound = routines.find(m.device, whole) if m.numel else None
    if bound is None and m.numel:
        made = _by_groups(t, axes, inverse, scale)
        if made is not None:
            return made
        bound = routines.bind(m.device, dispatch.require(m.device, whole))
    out = empty(m.shape, m.dtype, m.device)
    if bound is not None:
        with no_recording():
            x = contiguous(t)
        routines.call(bound, (out.ptr, x.ptr))
    return out


def _by_groups(t: Tensor, axes: Sequence[int], inverse: bool, scale: float) -> Tensor | None:
    """The same, the last axes of packed memory at a time; None where the backend has no such transforms."""
    x, d = t, t.meta.dtype
    groups = [tuple(axes[max(0, i - _MOST):i]) for i in range(len(axes), 0, -_MOST)]
    for i, group in enumerate(groups):
        order = _order(len(t.meta.shape), group)
        source = _arranged(x, order)
        bound = _bound(t.meta.device, "c2c", d, source.meta.shape, len(group), inverse)
        if bound is None:
            return None
        out = empty(source.meta.shape, d, t.meta.device)
        routines.call(bound, (out.ptr, source.ptr))
        x = _in_place(_scaled(out, scale if i == len(groups) - 1 else 1.0), order)
    return x


def half_spectrum(t: Tensor, axes: tuple[int, ...], inverse: bool, scale: float, adjoint: bool, whole: bool = False) -> Tensor | None:
    """The transform of real `t`, the last of the axes to half its length and one more, or all of it: see `RealFft`; None where the backend has
    none."""
    m = t.meta
    if not m.numel or m.dtype.name not in ("float32", "float64") or not dispatch.serves(m.device, RealFft):
        return None
    bound = routines.find(m.device, RealFft("r2c", m.dtype.to_complex(), tuple(m.shape), axes, inverse, scale, True, adjoint, whole))
    if bound is None:
        return None if inverse or adjoint or whole else _half_by_library(t, axes, scale)
    shape = list(m.shape)
    if not whole:
        shape[axes[-1]] = shape[axes[-1]] // 2 + 1
    out = empty(shape, m.dtype.to_complex(), m.device)
    with no_recording():
        x = contiguous(t)
    routines.call(bound, (out.ptr, x.ptr))
    return out


def _half_by_library(t: Tensor, axes: tuple[int, ...], scale: float) -> Tensor | None:
    """The forward transform by a backend that takes the last axes of packed memory, three at most."""
    d, group = t.meta.dtype.to_complex(), axes[-_MOST:]
    order = _order(len(t.meta.shape), group)
    bound = _bound(t.meta.device, "r2c", d, [t.meta.shape[i] for i in order], len(group), False)
    if bound is None:
        return None
    source = _arranged(t, order)
    lengths = source.meta.shape[-len(group):]
    if source.ptr % d.itemsize:  # the library wants real numbers to lie as complex ones do
        with no_recording():
            source = source.clone(memory_format=None)
    out = empty((*source.meta.shape[:-1], lengths[-1] // 2 + 1), d, t.meta.device)
    routines.call(bound, (out.ptr, source.ptr))
    rest = axes[:-_MOST]
    x = _in_place(out if rest else _scaled(out, scale), order)
    return transformed(x, rest, False, scale) if rest else x


def real_signal(t: Tensor, axes: tuple[int, ...], length: int, inverse: bool, scale: float, adjoint: bool) -> Tensor | None:
    """The transform of half of a spectrum to real numbers, `length` of them along the last of the axes: see `RealFft`; None where the backend has
    none."""
    m = t.meta
    if not m.numel or not dispatch.serves(m.device, RealFft):
        return None
    shape = list(m.shape)
    shape[axes[-1]] = length
    bound = routines.find(m.device, RealFft("c2r", m.dtype, tuple(shape), axes, inverse, scale, True, adjoint))
    if bound is None:
        return _signal_by_library(t, axes[0], length, scale) if inverse and not adjoint and len(axes) == 1 else None
    out = empty(shape, m.dtype.to_real(), m.device)
    with no_recording():
        x = contiguous(t)
    routines.call(bound, (out.ptr, x.ptr))
    return out


def _signal_by_library(t: Tensor, axis: int, length: int, scale: float) -> Tensor | None:
    """The inverse along one axis by a backend that takes the last axis of packed memory."""
    real = t.meta.dtype.to_real()
    order = _order(len(t.meta.shape), (axis,))
    arranged = [t.meta.shape[i] for i in order]
    bound = _bound(t.meta.device, "c2r", t.meta.dtype, (*arranged[:-1], length), 1, True)
    if bound is None:
        return None
    with no_recording():
        moved = t.permute(order)
        source = moved.clone(memory_format=None) if moved.meta.contiguous else contiguous(moved)  # what the library reads is lost
    half = arranged[-1]
    rows = source.meta.numel // half
    for place in (0, *((half - 1,) if length % 2 == 0 and half > 1 else ())):
        end = alias(source, meta((rows,), (2 * half,), real, t.meta.device), source.ptr + (2 * place + 1) * real.itemsize)
        launch.fill(end, 0)
    out = empty((*arranged[:-1], length), real, t.meta.device)
    routines.call(bound, (out.ptr, source.ptr))
    return _in_place(_scaled(out, scale), order)

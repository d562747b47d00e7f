"""Fourier transforms by the library of a device that has one: the ways from `fft.py`'s transforms to its launches.

The library transforms the last axes of packed memory, at most three at once.  Other axes are brought there by a copy; what comes
out keeps that order in memory and is seen with its axes in their places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import dtypes, layout
from ..kernels import expr as E
from ..kernels.programs import Map
from ..runtime import door
from ..tensor import Tensor, alias, empty, meta
from . import launch
from .copies import contiguous
from .table import no_recording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..dtypes import dtype
    from ..kernels.programs import Prepared

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


def _planned(t: Tensor, kind: str, d: dtype, lengths: Sequence[int], inverse: bool) -> Prepared | None:
    """The launch for the last axes of `t`, whose real side has these lengths."""
    batch = layout.numel(t.meta.shape[:len(t.meta.shape) - len(lengths)])
    return door.routine(t.meta.device, "fft", kind, d, tuple(lengths), batch, inverse)


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


def complex_transform(t: Tensor, axes: Sequence[int], inverse: bool, scale: float) -> Tensor | None:
    """sum over the axes of t * exp(-+ 2 pi i j k / n), times `scale`; None where the device has no library for it."""
    x, d = t, t.meta.dtype
    groups = [tuple(axes[max(0, i - _MOST):i]) for i in range(len(axes), 0, -_MOST)]
    for i, group in enumerate(groups):
        order = _order(len(t.meta.shape), group)
        source = _arranged(x, order)
        made = _planned(source, "c2c", d, source.meta.shape[-len(group):], inverse)
        if made is None:
            return None
        out = empty(source.meta.shape, d, t.meta.device)
        launch.call(t.meta.device, made, (out.ptr, source.ptr))
        x = _in_place(_scaled(out, scale if i == len(groups) - 1 else 1.0), order)
    return x


def half_spectrum(t: Tensor, axes: Sequence[int], scale: float) -> Tensor | None:
    """The forward transform of real `t`, the last of the axes to half its length and one more."""
    d, group = t.meta.dtype.to_complex(), tuple(axes[-_MOST:])
    order = _order(len(t.meta.shape), group)
    source = _arranged(t, order)
    lengths = source.meta.shape[-len(group):]
    made = _planned(source, "r2c", d, lengths, False)
    if made is None:
        return None
    if source.ptr % d.itemsize:  # the library wants real numbers to lie as complex ones do
        with no_recording():
            source = source.clone(memory_format=None)
    out = empty((*source.meta.shape[:-1], lengths[-1] // 2 + 1), d, t.meta.device)
    launch.call(t.meta.device, made, (out.ptr, source.ptr))
    rest = tuple(axes[:-_MOST])
    x = _in_place(out if rest else _scaled(out, scale), order)
    return complex_transform(x, rest, False, scale) if rest else x


def real_signal(t: Tensor, axis: int, length: int, scale: float) -> Tensor | None:
    """The inverse transform of half a spectrum along one axis.  The imaginary parts of its ends do not count."""
    real = t.meta.dtype.to_real()
    order = _order(len(t.meta.shape), (axis,))
    arranged = [t.meta.shape[i] for i in order]
    made = door.routine(t.meta.device, "fft", "c2r", t.meta.dtype, (length,), layout.numel(arranged[:-1]), True)
    if made is None:
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
    launch.call(t.meta.device, made, (out.ptr, source.ptr))
    return _in_place(_scaled(out, scale), order)


def served(t: Tensor) -> bool:
    """Whether it is worth asking: memory of a device with libraries of its own, and something in it."""
    return not door.by_host(t.meta.device) and bool(t.meta.numel) and t.meta.dtype in (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)

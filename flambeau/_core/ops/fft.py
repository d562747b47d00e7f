"""Discrete Fourier transforms: of complex numbers, of real ones to half of their spectrum or all of it, and from half of a spectrum back.

Each is a launch of the device's backend (`transforms.py`); where that has none for real numbers, they are taken as complex ones.  Each is linear,
so its gradient is its adjoint: the opposite transform with the same scale.
"""

from __future__ import annotations

from math import copysign, inf, sqrt
from operator import index
from typing import Any

from .. import dtypes, layout
from ..autograd import tape
from ..engine.fields import has
from ..tensor import Tensor
from ..unknowns import Unknown
from .casts import to_dtype
from .complexes import complex_, conj_physical, imag, real
from .concat import cat
from .rearrange import roll
from .table import op
from .transforms import half_spectrum, real_signal, transformed

_NORMS = (None, "backward", "ortho", "forward")


def _transform(t: Tensor, axes: tuple[int, ...], inverse: bool, scale: float) -> Tensor:
    """sum over the axes of t * exp(-+ 2 pi i j k / n), times `scale`."""
    out = transformed(t, axes, inverse, scale)
    return tape.record(out, _back, (t,), (axes, inverse, scale), "FftC2CBackward0")


@tape.keeps_nothing
def _back(node: Any, g: Tensor) -> Any:
    axes, inverse, scale = node[tape.SAVED]
    return (_transform(g, axes, not inverse, scale),)


def _half_spectrum(t: Tensor, axes: tuple[int, ...], inverse: bool, scale: float, adjoint: bool = False) -> Tensor:
    """The transform of real numbers without its redundant half; adjoint: what stands for its mirror image too, twice."""
    made = half_spectrum(t, axes, inverse, scale, adjoint)
    if made is not None:
        return tape.record(made, _half_back, (t,), (axes, inverse, scale, adjoint, t.meta.shape[axes[-1]]), "FftR2CBackward0")
    axis = axes[-1]
    length = t.meta.shape[axis]
    if not adjoint:
        return _half(_transform(_complex(t), axes, inverse, scale), axis)
    x = _half_spectrum(t, axes, inverse, scale)
    twice = (length - 1) // 2
    return cat([x.narrow(axis, 0, 1), x.narrow(axis, 1, twice) * 2.0, *([x.narrow(axis, twice + 1, 1)] if length % 2 == 0 else [])], axis)


@tape.keeps_nothing
def _half_back(node: Any, g: Tensor) -> Any:
    axes, inverse, scale, adjoint, length = node[tape.SAVED]
    return (_real_signal(g, axes, length, not inverse, scale, not adjoint),)


def _real_signal(t: Tensor, axes: tuple[int, ...], length: int, inverse: bool, scale: float, adjoint: bool = False) -> Tensor:
    """A real signal from half of its spectrum: the other half is the conjugate, mirrored along every axis; adjoint: it is 0, and imaginary parts
    are dropped."""
    made = real_signal(t, axes, length, inverse, scale, adjoint)
    if made is not None:
        return tape.record(made, _signal_back, (t,), (axes, inverse, scale, adjoint), "FftC2RBackward0")
    if adjoint:
        return real(_transform(_fit(t, (axes[-1],), (length,)), axes, inverse, scale))
    if len(axes) > 1:  # after the other axes, the last one alone: its mirror image needs no other axis
        return _real_signal(_transform(t, axes[:-1], inverse, 1.0), axes[-1:], length, inverse, scale)
    axis = axes[0]
    mirrored = t.narrow(axis, 1, (length - 1) // 2).flip(axis)
    return real(_transform(cat([_real_ends(t, axis, length), conj_physical(mirrored)], axis), axes, inverse, scale))


@tape.keeps_nothing
def _signal_back(node: Any, g: Tensor) -> Any:
    axes, inverse, scale, adjoint = node[tape.SAVED]
    return (_half_spectrum(g, axes, not inverse, scale, not adjoint),)


def _complex(t: Tensor) -> Tensor:
    if t.meta.dtype.is_complex:
        return t
    return to_dtype(t, _real_type(t).to_complex())


def _real_type(t: Tensor) -> dtypes.dtype:
    """The type in which numbers that are not complex are transformed."""
    return t.meta.dtype if t.meta.dtype.is_floating_point else dtypes.get_default_dtype()


def _of_halves(name: str, call: Any, t: Tensor, s: Any, dim: Any, norm: str | None, default: int | None) -> Tensor:
    """A transform of 16-bit numbers, in float32, rounded once.  As in PyTorch there are those of float16 on GPUs alone, of lengths that are powers
    of two.  Raises RuntimeError for others."""
    d, dev = t.meta.dtype, t.meta.device
    if not d.is_complex and _real_type(t) is not dtypes.float16:
        raise RuntimeError(f"Unsupported dtype {dtypes.title(_real_type(t))}")
    if dev.type == "cpu":
        raise RuntimeError("MKL FFT doesn't support tensors of type: Half" if d.is_complex else "Unsupported dtype Half")
    dims, lengths = _axes(t, s, dim, default)
    if name in _SIGNALS and dims:
        lengths = (*lengths[:-1], _last_length(t, s, dims, lengths))
    if dev.type != "meta" and any(n & n - 1 for n in lengths):
        raise RuntimeError("cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, but got a signal size of"
                           f"{list(lengths)}")
    made = call(to_dtype(t, dtypes.complex64 if d.is_complex else dtypes.float32), s, dim, norm, default)
    narrow: Tensor = to_dtype(made, dtypes.complex32 if made.meta.dtype.is_complex else dtypes.float16)
    return narrow


def _axes(t: Tensor, s: Any, dim: Any, default: int | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes and the length along each.  Raises RuntimeError for repeated axes or lengths below 1."""
    ndim = len(t.meta.shape)
    if s is None and isinstance(dim, int):  # what most calls are
        axis = layout.wrap_dim(dim, ndim)
        n = t.meta.shape[axis]
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
        return (axis,), (n,)
    s = (s,) if isinstance(s, int) else None if s is None else tuple(s)
    if dim is None:
        dim = tuple(range(ndim - (len(s) if s is not None else default or ndim), ndim))
    dims = tuple(layout.wrap_dim(d, ndim) for d in ((dim,) if isinstance(dim, int) else dim))
    if len(set(dims)) != len(dims):
        raise RuntimeError("FFT dims must be unique")
    if s is not None and len(s) != len(dims):
        raise RuntimeError("When given, dim and shape arguments must have the same length")
    lengths = tuple(t.meta.shape[d] if s is None or s[i] == -1 else s[i] for i, d in enumerate(dims))
    for n in lengths:
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return dims, lengths


def _fit(t: Tensor, dims: tuple[int, ...], lengths: tuple[int, ...]) -> Tensor:
    """Each axis cut or padded with zeros at its end."""
    for d, n in zip(dims, lengths, strict=True):
        have = t.meta.shape[d]
        if n < have:
            t = t.narrow(d, 0, n)
        elif n > have:
            pad = list(t.meta.shape)
            pad[d] = n - have
            t = cat([t, t.new_zeros(pad)], d)
    return t


def _scale(norm: str | None, inverse: bool, count: int) -> float:
    if norm not in _NORMS:
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    if norm == "ortho":
        return 1.0 / sqrt(count)
    return 1.0 / count if inverse == (norm in (None, "backward")) else 1.0


def _c2c(t: Tensor, s: Any, dim: Any, norm: str | None, inverse: bool, default: int | None) -> Tensor:
    dims, lengths = _axes(t, s, dim, default)
    scale = _scale(norm, inverse, layout.numel(lengths))
    if dims and not t.meta.dtype.is_complex:
        made = _whole_spectrum(_fit(t, dims, lengths), dims, inverse, scale)
        if made is not None:
            return made
    x = _fit(_complex(t), dims, lengths)
    return _transform(x, dims, inverse, scale) if dims else x


def _whole_spectrum(t: Tensor, axes: tuple[int, ...], inverse: bool, scale: float) -> Tensor | None:
    """The transform of real numbers by half of the work; None where the device has no such."""
    axes = tuple(sorted(axes))
    made = half_spectrum(t, axes, inverse, scale, False, True)
    return None if made is None else tape.record(made, _whole_back, (t,), (axes, inverse, scale), "FftR2CBackward0")


@tape.keeps_nothing
def _whole_back(node: Any, g: Tensor) -> Any:
    axes, inverse, scale = node[tape.SAVED]
    return (real(_transform(g, axes, not inverse, scale)),)


def _half(t: Tensor, axis: int) -> Tensor:
    return t.narrow(axis, 0, t.meta.shape[axis] // 2 + 1)


def _r2c(t: Tensor, s: Any, dim: Any, norm: str | None, default: int | None, inverse: bool = False) -> Tensor:
    if t.meta.dtype.is_complex:
        raise RuntimeError(f"{'ihfft' if inverse else 'rfft'} expects a real input tensor, but got {dtypes.title(t.meta.dtype)}" if default == 1 else
                           f"{'ihfftn' if inverse else 'rfftn'} expects a real-valued input tensor, but got {dtypes.title(t.meta.dtype)}")
    dims, lengths = _axes(t, s, dim, default)
    if not dims:
        raise RuntimeError("at least one axis must be transformed")
    scale = _scale(norm, inverse, layout.numel(lengths))
    if not t.meta.dtype.is_floating_point or t.meta.dtype.itemsize == 2:
        return _half(_transform(_fit(_complex(t), dims, lengths), dims, inverse, scale), dims[-1])
    return _half_spectrum(_fit(t, dims, lengths), dims, inverse, scale)


def _c2r(t: Tensor, s: Any, dim: Any, norm: str | None, default: int | None, inverse: bool = True) -> Tensor:
    x = _complex(t)
    dims, lengths = _axes(x, s, dim, default)
    if not dims:
        raise RuntimeError("at least one axis must be transformed")
    last = _last_length(x, s, dims, lengths)
    if last < 1:
        raise RuntimeError(f"Invalid number of data points ({last}) specified")
    x = _fit(x, dims, (*lengths[:-1], last // 2 + 1))
    return _real_signal(x, dims, last, inverse, _scale(norm, inverse, layout.numel(lengths[:-1]) * last))


def _last_length(x: Tensor, s: Any, dims: tuple[int, ...], lengths: tuple[int, ...]) -> int:
    """Of the signal that half of a spectrum is of, along the last of the axes."""
    given = None if s is None else s if isinstance(s, int) else tuple(s)[-1]
    return lengths[-1] if given is not None and given != -1 else 2 * (x.meta.shape[dims[-1]] - 1)


def _real_ends(x: Tensor, axis: int, last: int) -> Tensor:
    """The spectrum with the imaginary parts of its first and (for an even length) middle element dropped."""
    n = x.meta.shape[axis]
    parts = [_only_real(x.narrow(axis, 0, 1))]
    stop = n - 1 if last % 2 == 0 and n > 1 else n
    if stop > 1:
        parts.append(x.narrow(axis, 1, stop - 1))
    if stop < n:
        parts.append(_only_real(x.narrow(axis, n - 1, 1)))
    return cat(parts, axis) if len(parts) > 1 else parts[0]


def _only_real(x: Tensor) -> Tensor:
    made: Tensor = complex_(real(x), imag(x) * 0.0)
    return made


def _number(name: str, key: str, value: Any) -> Any:
    """An integer, also that of a tensor of one.  Raises TypeError for another argument."""
    if type(value) is int or type(value) is Unknown:
        return value
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{name}(): argument '{key}' (position {_PLACES[key]}) must be int, not {type(value).__name__}") from None


def _numbers(name: str, key: str, given: Any) -> Any:
    """Several, or one for all axes that there are; None as it is."""
    if given is None or isinstance(given, int):
        return given
    if not isinstance(given, (tuple, list)):
        if isinstance(given, Tensor) or not hasattr(given, "__iter__"):
            raise TypeError(f"{name}(): argument '{key}' (position {_PLACES[key]}) must be tuple of ints, not {type(given).__name__}")
        given = tuple(given)
    for place, value in enumerate(given):
        if type(value) is not int and type(value) is not Unknown and (isinstance(value, float) or not hasattr(value, "__index__")):
            raise TypeError(f"{name}(): argument '{key}' (position {_PLACES[key]}) must be tuple of ints, but found element of type "
                            f"{type(value).__name__} at pos {place}")
    return tuple([v if type(v) is Unknown else index(v) for v in given])


_PLACES = {"n": 2, "s": 2, "dim": 3}
_SIGNALS = ("irfft", "hfft")  # to real numbers


def _one(name: str, call: Any, doc: str) -> None:
    def carried_out(t: Tensor, s: Any, dim: Any, norm: str | None, default: int | None) -> Tensor:
        d = t.meta.dtype
        if (d.itemsize == 2 and d.is_floating_point) or (d is dtypes.complex32 and name not in ("rfft", "ihfft")) or (
                d.kind in "bui" and dtypes.get_default_dtype().itemsize == 2):
            return _of_halves(name, call, t, s, dim, norm, default)
        return call(t, s, dim, norm, default)  # type: ignore[no-any-return]

    def one(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:  # noqa: A002
        what = "fft_" + name
        return carried_out(input, None if n is None else _number(what, "n", n), _number(what, "dim", dim), norm, 1)

    def two(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:  # noqa: A002
        what = f"fft_{name}2"
        return carried_out(input, _numbers(what, "s", s), _numbers(what, "dim", dim), norm, 2)

    def many(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:  # noqa: A002
        what = f"fft_{name}n"
        return carried_out(input, _numbers(what, "s", s), _numbers(what, "dim", dim), norm, None)
    for f, suffix, where in ((one, "", "one axis, `dim`, of length `n`"), (two, "2", "two axes"), (many, "n", "several axes (all by default)")):
        f.__name__ = f.__qualname__ = name + suffix
        f.__doc__ = f"{doc}, over {where}; cut or padded with zeros to the lengths given.  norm: \"backward\", \"ortho\", \"forward\"."
        op(method=False, out=True, spaces=("fft",), name="fft_" + name + suffix, aliases=(f"fft.{name}{suffix}",))(f)


_one("fft", lambda t, s, d, norm, k: _c2c(t, s, d, norm, False, k), "The discrete Fourier transform")
_one("ifft", lambda t, s, d, norm, k: _c2c(t, s, d, norm, True, k), "The inverse transform")
_one("rfft", lambda t, s, d, norm, k: _r2c(t, s, d, norm, k), "The transform of a real signal, its redundant half left out")
_one("irfft", lambda t, s, d, norm, k: _c2r(t, s, d, norm, k), "The real signal of a half spectrum")
_one("hfft", lambda t, s, d, norm, k: _c2r(t, s, d, norm, k, False), "The real spectrum of half of a Hermitian signal")
_one("ihfft", lambda t, s, d, norm, k: _r2c(t, s, d, norm, k, True), "The inverse of hfft")


def _shift(name: str, amount: Any) -> None:
    def shift(input: Tensor, dim: Any = None) -> Tensor:  # noqa: A002
        dims = tuple(range(len(input.meta.shape))) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
        if not dims:
            return input.clone()
        rolled: Tensor = roll(input, tuple(amount(input.meta.shape[d]) for d in dims), dims)
        return rolled
    shift.__name__ = shift.__qualname__ = name
    shift.__doc__ = f"{'Moves' if name == 'fftshift' else 'Undoes moving'} frequency zero to the middle of each axis."
    op(method=False, spaces=("fft",))(shift)


_shift("fftshift", lambda n: n // 2)
_shift("ifftshift", lambda n: -(n // 2))


@op(method=False, spaces=("fft",))
def fftfreq(n: int, d: float = 1.0, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False) -> Tensor:
    """The frequencies of an n-point transform with sample spacing d: 0, 1, ..., then the negative ones, over n d."""
    from .ranges import arange
    k = arange(n, dtype=_of_frequencies("fftfreq", dtype, out), device=device)
    k = k - (k >= (n + 1) // 2) * n
    return _finished(k * _over(n * d), out, requires_grad)


@op(method=False, spaces=("fft",))
def rfftfreq(n: int, d: float = 1.0, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False) -> Tensor:
    """The non-negative frequencies of an n-point transform with sample spacing d."""
    from .ranges import arange
    return _finished(arange(n // 2 + 1, dtype=_of_frequencies("rfftfreq", dtype, out), device=device) * _over(n * d), out, requires_grad)


def _of_frequencies(name: str, d: Any, out: Any) -> Any:
    """The type of frequencies. Raises RuntimeError, for complex ones NotImplementedError, for one that has no fractions."""
    d = dtypes.settled(d if d is not None or out is None else out.meta.dtype)
    if d.is_complex:
        raise NotImplementedError(f"\"{name}\" not implemented for '{dtypes.title(d)}'")
    if d.kind != "f":
        raise RuntimeError(f"{name} requires a floating point dtype, got {d}")
    return d


def _over(x: float) -> float:
    """1 / x as C divides."""
    return 1.0 / x if x else copysign(inf, x)


def _finished(t: Tensor, out: Any, requires_grad: bool) -> Tensor:
    from .outputs import into
    return into(out, t) if out is not None else t.requires_grad_(requires_grad)

has("fft_fft fft_fft2 fft_hfft fft_ifft fft_ifft2 fft_ihfft fft_irfft fft_irfft2 fft_rfft fft_rfft2", batch="trailing")
has("""fft_fft fft_fft2 fft_fftn fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2
 fft_irfftn fft_rfft fft_rfft2 fft_rfftn""", out_type="castable")
has("""fft_fft fft_fft2 fft_fftn fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2
 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fftshift ifftshift""", tangent="linear")
has("fftshift ifftshift", batch="composite")

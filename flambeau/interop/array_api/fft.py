"""The standard's Fourier transforms (`array_api.fft`)."""

from __future__ import annotations

from typing import Any

from ..._core.ops import table
from ..._core.tensor import Tensor

__all__ = "fft ifft rfft irfft hfft ihfft fftn ifftn rfftn irfftn fftfreq rfftfreq fftshift ifftshift".split()

_of = table.namespace("fft")


def _one(name: str) -> Any:
    f = _of[name]

    def call(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        return f(x, n, axis, norm)  # type: ignore[no-any-return]
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` along one axis."
    return call


def _several(name: str) -> Any:
    f = _of[name]

    def call(x: Tensor, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
        return f(x, s, axes, norm)  # type: ignore[no-any-return]
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` along several axes."
    return call


fft, ifft, rfft, irfft, hfft, ihfft = map(_one, "fft ifft rfft irfft hfft ihfft".split())
fftn, ifftn, rfftn, irfftn = map(_several, "fftn ifftn rfftn irfftn".split())


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of a transform of n samples, d apart."""
    return _of["fftfreq"](n, d, dtype=dtype, device=device)  # type: ignore[no-any-return]


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of a transform of n real samples, d apart."""
    return _of["rfftfreq"](n, d, dtype=dtype, device=device)  # type: ignore[no-any-return]


def fftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """Frequency zero moved to the middle."""
    return _of["fftshift"](x, axes)  # type: ignore[no-any-return]


def ifftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """`fftshift` undone."""
    return _of["ifftshift"](x, axes)  # type: ignore[no-any-return]

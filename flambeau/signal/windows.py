"""Window functions (torch.signal.windows), each of M points: symmetric, or one period of a periodic one (sym=False).

Formulas: Harris, "On the use of windows for harmonic analysis with the discrete Fourier transform" (1978); the
cosine-sum windows and their coefficients also in Nuttall (1981).  Each raises ValueError for a negative M and
RuntimeError for a type that is not floating.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

from .._core import dtypes, ops
from .._core.tensor import Tensor

_ops: Any = ops


def _points(name: str, m: int, sym: bool, dtype: Any, device: Any, first: float, last: float, requires_grad: bool) -> Tensor:
    """M points evenly from `first` to `last`; for a periodic window, the first M of M + 1."""
    d = dtypes.get_default_dtype() if dtype is None else dtype
    if m < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={m}")
    if d not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {d}")
    if m == 0:
        return _finish(_ops.empty((0,), dtype=d, device=device), requires_grad)
    n = m if sym else m + 1
    step = (last - first) / (n - 1) if n > 1 else 0.0
    made: Tensor = _ops.arange(m, dtype=d, device=device) * step + first
    return made


def _finish(t: Tensor, requires_grad: bool) -> Tensor:
    made: Tensor = t.requires_grad_() if requires_grad else t
    return made


def _one(m: int, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    return _finish(_ops.ones((m,), dtype=dtype, device=device), requires_grad)


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None,
                device: Any = None, requires_grad: bool = False) -> Tensor:
    """exp(-|n - center| / tau); the centre defaults to the middle, and may be given only with sym=False."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    middle = (M if not sym and M > 1 else M - 1) / 2.0 if center is None else center
    n = _points("exponential", M, True, dtype, device, -middle / tau, (-middle + M - 1) / tau, requires_grad)
    return n if M == 0 else _finish((-n.abs()).exp(), requires_grad)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False) -> Tensor:
    """exp(-(n / std)² / 2), n from the middle."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    half = (M if not sym and M > 1 else M - 1) / 2.0
    scale = 1.0 / (std * math.sqrt(2.0))
    n = _points("gaussian", M, True, dtype, device, -half * scale, (-half + M - 1) * scale, requires_grad)
    return n if M == 0 else _finish((-n * n).exp(), requires_grad)


def cosine(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """sin(pi (n + 1/2) / M), M + 1 for a periodic window."""
    n = M if sym or M <= 1 else M + 1
    k = _points("cosine", M, True, dtype, device, 0.5 * math.pi / max(n, 1), (M - 0.5) * math.pi / max(n, 1), requires_grad)
    return k if M == 0 else _finish(k.sin(), requires_grad)


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False) -> Tensor:
    """I0(beta sqrt(1 - x²)) / I0(beta), x from -1 to 1, I0 the modified Bessel function."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    x = _points("kaiser", M, sym, dtype, device, -1.0, 1.0, requires_grad)
    if M <= 1:
        return x if M == 0 else _one(M, dtype, device, requires_grad)
    inside = (1.0 - x * x).clamp(min=0.0).sqrt() * beta
    return _finish(_ops.i0(inside) / _ops.i0(_ops.full((), beta, dtype=x.meta.dtype, device=device)), requires_grad)


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
                   requires_grad: bool = False) -> Tensor:
    """The sum over i of (-1)^i a[i] cos(2 pi i n / (M - 1)), M for a periodic window."""
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    coefficients = list(a)
    if not coefficients:
        raise ValueError("Coefficients cannot be empty")
    x = _points("general_cosine", M, sym, dtype, device, 0.0, 2.0 * math.pi, requires_grad)
    if M <= 1:
        return x if M == 0 else _one(M, dtype, device, requires_grad)
    total = _ops.full_like(x, coefficients[0])
    for i, c in enumerate(coefficients[1:], 1):
        total = total + (c if i % 2 == 0 else -c) * (x * i).cos()
    return _finish(total, requires_grad)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
                    requires_grad: bool = False) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi n / (M - 1))."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def hamming(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """`general_hamming` with alpha 0.54."""
    return general_hamming(M, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def hann(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """`general_hamming` with alpha 1/2."""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def blackman(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """The cosine sum of 0.42, 0.5, 0.08."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def nuttall(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """The cosine sum of 0.3635819, 0.4891775, 0.1365995, 0.0106411 (Nuttall's minimum four-term window)."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, dtype=dtype, device=device,
                          requires_grad=requires_grad)


def bartlett(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """1 - |x|, x from -1 to 1: a triangle with zeros at its ends."""
    x = _points("bartlett", M, sym, dtype, device, -1.0, 1.0, requires_grad)
    if M <= 1:
        return x if M == 0 else _one(M, dtype, device, requires_grad)
    return _finish(1.0 - x.abs(), requires_grad)


__all__ = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
           "nuttall"]


def _strided(window: Any) -> Any:
    """The window, which is made in the strided layout only."""
    @functools.wraps(window)
    def call(*args: Any, **kwargs: Any) -> Any:
        if str(kwargs.get("layout") or "torch.strided") != "torch.strided":
            raise ValueError(f"{window.__name__} is implemented for strided tensors only, got: {kwargs['layout']}")
        return window(*args, **kwargs)
    return call


for _name in __all__:
    globals()[_name] = _strided(globals()[_name])

"""Short-time Fourier transforms, and the windows they take under their older names."""

from __future__ import annotations

import functools
import math
from typing import Any

from .. import dtypes
from ..engine.fields import has
from ..errors import warn
from ..tensor import Tensor
from .axis_views import fold_windows
from .complexes import view_as_complex, view_as_real
from .table import namespace, op


def _window(name: str, length: int, periodic: bool, shape: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """`shape` of the phases 2 pi n / length (length - 1 unless periodic); 1 for a single point."""
    from .creation import ones
    from .ranges import arange
    d = dtypes.get_default_dtype() if dtype is None else dtype
    if not hasattr(length, "__index__"):
        raise TypeError(f"{name}(): argument 'window_length' (position 1) must be int, not {type(length).__name__}")
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    if not d.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {d}")
    if length <= 1:
        made = ones((length,), dtype=d, device=device)
    else:
        wide = dtypes.float32 if d.itemsize == 2 else d
        made = shape(arange(length, dtype=wide, device=device) * (2.0 * math.pi / (length if periodic else length - 1))).to(d)
    found: Tensor = made.requires_grad_() if requires_grad else made
    return found


@op(method=False)
def hann_window(window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None, device: Any = None,
                pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    """(1 - cos(2 pi n / N)) / 2."""
    return _window("hann_window", window_length, periodic, lambda x: 0.5 - 0.5 * x.cos(), dtype, device, requires_grad)


@op(method=False)
def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None,
                   layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    """alpha - beta cos(2 pi n / N)."""
    return _window("hamming_window", window_length, periodic, lambda x: alpha - beta * x.cos(), dtype, device, requires_grad)


@op(method=False)
def blackman_window(window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None, device: Any = None,
                    pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    """0.42 - cos(2 pi n / N) / 2 + 0.08 cos(4 pi n / N)."""
    return _window("blackman_window", window_length, periodic, lambda x: 0.42 - 0.5 * x.cos() + 0.08 * (x * 2.0).cos(), dtype, device,
                   requires_grad)


@op(method=False)
def bartlett_window(window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None, device: Any = None,
                    pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    """The triangular window 1 - |2 n / N - 1| of `window_length` numbers."""
    return _window("bartlett_window", window_length, periodic, lambda x: 1.0 - (x * (1.0 / math.pi) - 1.0).abs(), dtype, device, requires_grad)


@op(method=False)
def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, layout: Any = None,
                  device: Any = None, pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    """I0(beta sqrt(1 - (2 n / N - 1)²)) / I0(beta)."""
    def shape(x: Tensor) -> Tensor:
        from .creation import full
        i0 = namespace("torch")["i0"]
        t = x * (1.0 / math.pi) - 1.0
        made: Tensor = i0((1.0 - t * t).clamp(min=0.0).sqrt() * beta) / i0(full((), beta, dtype=x.meta.dtype, device=x.meta.device))
        return made
    return _window("kaiser_window", window_length, periodic, shape, dtype, device, requires_grad)


def _prepared(name: str, window: Any, n_fft: int, win_length: int, like: Tensor) -> Tensor:
    """The window (ones by default) padded with zeros to n_fft on both sides."""
    from .creation import ones
    if window is None:
        d = like.meta.dtype.to_real() if like.meta.dtype.is_complex else like.meta.dtype
        window = ones((win_length,), dtype=d, device=like.meta.device)
    if len(window.meta.shape) != 1 or window.meta.shape[0] != win_length:
        raise RuntimeError(f"{name}: expected a 1D window tensor of size equal to win_length={win_length}, but got window with size "
                           f"{list(window.meta.shape)}")
    if win_length == n_fft:
        found: Tensor = window
        return found
    left = (n_fft - win_length) // 2
    return _padded(window, left, n_fft - win_length - left)


_SOURCES = {"reflect": lambda i, n: (n - 1) - ((i % (2 * n - 2)) - (n - 1)).abs() if n > 1 else i * 0,
            "replicate": lambda i, n: i.clamp(0, n - 1), "circular": lambda i, n: i % n}


def _padded(x: Tensor, left: int, right: int, mode: str = "constant") -> Tensor:
    """`x` with its last axis longer (or, where negative, shorter) at both ends; constant: by zeros."""
    from .concat import cat
    from .creation import zeros
    from .ranges import arange
    n = x.meta.shape[-1]
    if mode == "constant":
        inner = x[..., max(-left, 0):n + min(right, 0)]
        ends = [zeros((*x.meta.shape[:-1], max(w, 0)), dtype=x.meta.dtype, device=x.meta.device) for w in (left, right)]
        made: Tensor = cat([ends[0], inner, ends[1]], -1)
        return made
    if mode not in _SOURCES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}: expected 'constant', 'reflect', 'replicate' or 'circular'")
    if mode == "reflect" and max(left, right) >= n:
        raise RuntimeError(f"Argument #4: Padding size should be less than the corresponding input dimension, but got: padding ({left}, "
                           f"{right}) at dimension {len(x.meta.shape) - 1} of input {list(x.meta.shape)}")
    at = _SOURCES[mode](arange(-left, n + right, device=x.meta.device), n)
    found: Tensor = x.index_select(-1, at)
    return found


def _fft(name: str, x: Tensor, normalized: bool, n: int | None = None) -> Tensor:
    made: Tensor = _transforms()[name](x, n, norm="ortho" if normalized else None)
    return made


@functools.cache
def _transforms() -> dict[str, Any]:
    return namespace("fft")


@op(autocast="cpu full", renames=False)
def stft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None,  # noqa: A002
         center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
         return_complex: bool | None = None, align_to_window: bool | None = None) -> Tensor:
    """Fourier transforms of the windowed pieces of (T) or (B, T): (..., n_fft / 2 + 1 or n_fft, frames), complex.

    hop_length: from piece to piece (n_fft / 4).  center: piece t is centred at t * hop_length, the ends padded by
    pad_mode.  normalized: divided by sqrt(n_fft).  onesided: only the first half (default for real input).
    """
    if return_complex is None:
        if not (input.meta.dtype.is_complex or (window is not None and window.meta.dtype.is_complex)):
            raise RuntimeError("stft requires the return_complex parameter be given for real inputs, and will further require that "
                               "return_complex=True in a future PyTorch release.")
        return_complex = True
    if not input.meta.dtype.is_floating_point and not input.meta.dtype.is_complex:
        raise RuntimeError(f"stft: expected a tensor of floating point or complex values, got {input.meta.dtype}")
    if len(input.meta.shape) not in (1, 2):
        raise RuntimeError(f"stft: expected a 1D or 2D tensor, but got a {len(input.meta.shape)}D tensor")
    if align_to_window is not None and center:
        raise RuntimeError("stft: align_to_window should only be set when center = false.")
    hop = n_fft // 4 if hop_length is None else hop_length
    wide = n_fft if win_length is None else win_length
    x = input if len(input.meta.shape) == 2 else input.unsqueeze(0)
    if center:
        x = _padded(x, n_fft // 2, n_fft // 2, pad_mode)
    elif align_to_window:
        x = _padded(x, n_fft // 2 - wide // 2, n_fft // 2 - (wide - wide // 2))
    length = x.meta.shape[1]
    if n_fft <= 0 or n_fft > length:
        raise RuntimeError(f"stft: expected 0 < n_fft < {length}, but got n_fft={n_fft}")
    if hop <= 0:
        raise RuntimeError(f"stft: expected hop_length > 0, but got hop_length={hop}")
    if wide <= 0 or wide > n_fft:
        raise RuntimeError(f"stft: expected 0 < win_length <= n_fft, but got win_length={wide}")
    pieces = x.unfold(-1, n_fft, hop) * _prepared("stft", window, n_fft, wide, x)
    whole = pieces.meta.dtype.is_complex
    if onesided is None:
        onesided = not whole
    if whole and onesided:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    found = _fft("rfft" if onesided else "fft", pieces, normalized).transpose(1, 2)
    if len(input.meta.shape) == 1:
        found = found.squeeze(0)
    return found if return_complex else view_as_real(found)


@op()
def istft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None,  # noqa: A002
          center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
          return_complex: bool = False) -> Tensor:
    """The signal whose `stft` is nearest (Griffin and Lim, 1984): windowed inverse transforms, overlapped, added and divided
    by the overlapped squares of the window.  Raises RuntimeError where those are zero.
    """
    if not input.meta.dtype.is_complex:
        if not input.meta.shape or input.meta.shape[-1] != 2:
            raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft with return_complex=True.")
        input = view_as_complex(input.contiguous())  # noqa: A001
    if not input.meta.numel or len(input.meta.shape) not in (2, 3):
        raise RuntimeError(f"istft: expected a non-empty complex tensor of 2 or 3 dimensions, got shape {list(input.meta.shape)}")
    hop = n_fft // 4 if hop_length is None else hop_length
    wide = n_fft if win_length is None else win_length
    if hop <= 0 or not 0 < wide <= n_fft or hop > wide:
        raise RuntimeError(f"istft: expected 0 < hop_length <= win_length <= n_fft, got hop_length={hop}, win_length={wide}, n_fft={n_fft}")
    x = input if len(input.meta.shape) == 3 else input.unsqueeze(0)
    rows, frames = x.meta.shape[1], x.meta.shape[2]
    one = rows != n_fft if onesided is None else onesided
    if rows != (n_fft // 2 + 1 if one else n_fft):
        raise RuntimeError(f"istft: expected the frequency dimension (2nd to the last) of the input tensor to match n_fft "
                           f"{'/ 2 + 1 ' if one else ''}when onesided={one}, but got {rows}")
    if return_complex and one:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    w = _prepared("istft", window, n_fft, wide, x)
    freq = x.transpose(1, 2)
    if return_complex:
        pieces = _fft("ifft", freq, normalized)
    else:  # a real signal's second half of frequencies mirrors the first, and is not looked at
        pieces = _fft("irfft", freq[..., :n_fft // 2 + 1], normalized, n_fft)
    total = n_fft + hop * (frames - 1)
    batch = x.meta.shape[0]
    signal = fold_windows(pieces * w, (batch, total), 1, n_fft, hop)
    weight = fold_windows((w * w).expand(1, frames, n_fft), (1, total), 1, n_fft, hop)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - (n_fft // 2 if center else 0)
    signal, weight = signal[:, start:end], weight[:, start:end]
    low = weight.abs().min()
    if low.meta.device.type != "meta" and not bool(low > 1e-11):
        raise RuntimeError(f"window overlap add min: {low.item()}: the window leaves parts of the signal uncovered")
    found = signal / weight
    if end > total:
        warn("The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. Please "
             "check your center and hop_length settings")
        found = _padded(found, 0, end - total)
    made: Tensor = found.reshape(batch, -1) if len(input.meta.shape) == 3 else found.squeeze(0)
    return made


has("stft", batch="composite")

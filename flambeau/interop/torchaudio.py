"""What torchaudio's compiled library registers under `torch.ops`: filters, alignments, the transducer's loss.

torchaudio is Python but for these, and calls them by name.  All are worked out by the host, in float64: recurrences along one axis, of few rows.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .._core import ops
from .._core.drivers.cpu import blas
from .._core.runtime.asking import unasked
from .._core.tensor import Tensor

_CHUNK = 4096  # samples that are solved for together: their matrix of bands stays in the cache
_COLUMNS, _LOWER, _PLAIN, _UNIT = 102, 122, 111, 132  # of CBLAS


def _numbers(t: Tensor) -> Any:
    return unasked(t.detach().double().cpu)().numpy()


def _written(to: Tensor, numbers: Any) -> None:
    with np.errstate(over="ignore"):
        to.copy_(ops.from_numpy(np.ascontiguousarray(numbers)))


# -------------------------------------------------------------------------------------------------------------- filters
def recurrence(x: Any, a: Any, before: Any) -> Any:
    """y[i] = x[i] - a[0] y[i - 1] - … - a[p - 1] y[i - p], along the last axis, of float64 arrays.

    x (b, c, n), a (c, p), before (b, c, p): y[-p] … y[-1].  It is a triangular system with p bands, which BLAS solves; a NaN is in what follows it.
    """
    (rows, channels, n), p = x.shape, a.shape[1]
    y = np.ascontiguousarray(x).copy()
    if not p or not y.size:
        return y
    solve = ctypes.CFUNCTYPE(None, *[ctypes.c_int] * 4, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p,
                             ctypes.c_int64)(blas.address("cblas_dtbsv"))
    size = max(_CHUNK, p)
    bands = np.empty((min(size, n), p + 1))
    for c in range(channels):
        bands[:, 0], bands[:, 1:] = 1.0, a[c]
        for b in range(rows):
            last = before[b, c]
            for at in range(0, n, size):
                part = y[b, c, at:at + size]
                for k in range(min(p, len(part))):  # what the outputs before it bring
                    part[k] -= (a[c, k:] * last[::-1][:p - k]).sum()
                solve(_COLUMNS, _LOWER, _PLAIN, _UNIT, len(part), min(p, len(part) - 1), bands.ctypes.data, p + 1, part.ctypes.data, 1)
                last = np.concatenate([last, part])[-p:]
    return y


def lfilter_core_loop(input_signal_windows: Tensor, a_coeff_flipped: Tensor, padded_output_waveform: Tensor) -> Tensor:
    """Filters `input_signal_windows` (b, c, n) by the feedback of `a_coeff_flipped` (c, p + 1), oldest first, its last 1, into
    `padded_output_waveform` (b, c, p + n) behind the p outputs that it begins with.  Raises RuntimeError for other shapes."""
    x, a, out = input_signal_windows, a_coeff_flipped, padded_output_waveform
    if x.dim() != 3 or a.dim() != 2 or a.shape[0] != x.shape[1] or tuple(out.shape) != (*x.shape[:2], x.shape[2] + a.shape[1] - 1):
        shapes = ", ".join(str(tuple(t.shape)) for t in (x, a, out))
        raise RuntimeError(f"_lfilter_core_loop: expected (b, c, n), (c, p + 1), (b, c, n + p), got {shapes}")
    p = a.shape[1] - 1
    _written(out[..., p:], recurrence(_numbers(x), _numbers(a)[:, :p][:, ::-1], _numbers(out[..., :p])))
    return out


def overdrive_core_loop(waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output_waveform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y[i] = temp[i] - temp[i - 1] + 0.995 y[i - 1] of rows (c, n), 0.75 of it and half of `waveform`; the last input and output are kept."""
    x = _numbers(temp)
    if x.size:
        change = x - np.concatenate([_numbers(last_in)[:, None], x[:, :-1]], 1)
        y = recurrence(change[:, None], np.full((1, 1), -0.995), _numbers(last_out).reshape(-1, 1, 1))[:, 0]
        _written(output_waveform, 0.5 * _numbers(waveform) + 0.75 * y)
        _written(last_in, x[:, -1])
        _written(last_out, y[:, -1])
    return last_in, last_out, output_waveform


# ------------------------------------------------------------------------------------------------------------ alignment
def forced_align(log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """(paths (1, T), log_probs): the class of each step on the likeliest way through `targets` (1, L) with blanks between, by Viterbi.

    Raises RuntimeError for more than one sequence, and for targets that do not fit into the steps.
    """
    if log_probs.dim() != 3 or log_probs.shape[0] != 1 or targets.dim() != 2 or targets.shape[0] != 1:
        raise RuntimeError("The batch dimension for log_probs must be 1 at the current version."
                           f" Got log_probs {tuple(log_probs.shape)} and targets {tuple(targets.shape)}")
    scores, labels = _numbers(log_probs)[0], unasked(targets[0].cpu)().numpy()
    steps = int(input_lengths.reshape(-1)[0].item())
    if steps != log_probs.shape[1] or int(target_lengths.reshape(-1)[0].item()) != targets.shape[1]:
        raise RuntimeError("input length mismatch: input_lengths and target_lengths must be those of log_probs and targets, got "
                           f"{input_lengths.tolist()} and {target_lengths.tolist()} for {log_probs.shape[1]} and {targets.shape[1]}")
    repeats = int((labels[1:] == labels[:-1]).sum())
    if steps < len(labels) + repeats:
        raise RuntimeError(f"targets length is too long for CTC. Found log_probs length: {steps}, targets length: {len(labels)}, and number of "
                           f"repeats: {repeats}")
    places = np.full(2 * len(labels) + 1, blank)
    places[1::2] = labels
    jumps = np.zeros(len(places), bool)
    jumps[3::2] = labels[1:] != labels[:-1]
    best = np.full(len(places), -np.inf)
    best[:2] = scores[0, places[:2]] if steps else 0.0
    came = np.zeros((steps, len(places)), np.int8)
    ways = np.full((3, len(places)), -np.inf)
    for t in range(1, steps):
        ways[0] = best
        ways[1, 1:] = best[:-1]
        ways[2, 2:] = np.where(jumps[2:], best[:-2], -np.inf)
        came[t] = ways.argmax(0)
        best = ways.max(0) + scores[t, places]
    at = len(places) - 1 if len(places) == 1 or best[-1] > best[-2] else len(places) - 2
    path = np.empty(steps, np.int64)
    for t in range(steps - 1, -1, -1):
        path[t] = places[at]
        at -= came[t, at]
    return unasked(ops.from_numpy(path[None]).to)(targets.device, targets.dtype), log_probs.detach()


# ----------------------------------------------------------------------------------------------------------- transducer
def _transducer(blanks: Any, labels: Any) -> tuple[Any, Any, float]:
    """(before, after, log-likelihood) of the logs of a blank (T, U + 1) and of the next label (T, U): the log-probability of coming to a place, and of
    ending from there (Graves, 2012, equations 16 to 18)."""
    steps, width = blanks.shape
    before, after = np.full((steps, width), -np.inf), np.full((steps + 1, width), -np.inf)
    before[0, 0] = 0.0
    for d in range(1, steps + width - 1):
        u = np.arange(max(0, d - steps + 1), min(d, width - 1) + 1)
        t = d - u
        stay = np.where(t > 0, before[t - 1, u] + blanks[t - 1, u], -np.inf)
        move = np.where(u > 0, before[t, u - 1] + labels[t, u - 1], -np.inf) if width > 1 else -np.inf
        before[t, u] = np.logaddexp(stay, move)
    after[steps, width - 1] = 0.0
    for d in range(steps + width - 2, -1, -1):
        u = np.arange(max(0, d - steps + 1), min(d, width - 1) + 1)
        t = d - u
        stay = after[t + 1, u] + blanks[t, u]
        ahead = np.minimum(u + 1, width - 1)
        move = np.where(u + 1 < width, after[t, ahead] + labels[t, np.minimum(u, width - 2)], -np.inf) if width > 1 else -np.inf
        after[t, u] = np.logaddexp(stay, move)
    return before, after, float(after[0, 0])


def rnnt_loss_forward(logits: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor, blank: int, clamp: float,
                      fused_log_softmax: bool) -> tuple[Tensor, Tensor]:
    """(loss (B,), its gradient for `logits` (B, T, U + 1, classes)) of the transducer with targets (B, U).

    clamp: the size at which gradients are cut, where above 0.  fused_log_softmax: `logits` are no log-probabilities yet.
    Raises RuntimeError for other shapes, lengths of which the longest is not T or U, and a class that is not there.
    """
    if logits.dim() != 4 or targets.dim() != 2 or targets.shape[1] + 1 != logits.shape[2]:
        raise RuntimeError(f"rnnt_loss: expected logits (B, T, U + 1, classes) and targets (B, U), got {tuple(logits.shape)} and {tuple(targets.shape)}")
    if not 0 <= blank < logits.shape[-1]:
        raise RuntimeError("blank must be within [0, logits.shape[-1])")
    given = _numbers(logits)
    top = given.max(-1, keepdims=True) if fused_log_softmax else 0.0
    logs = given - top - np.log(np.exp(given - top).sum(-1, keepdims=True)) if fused_log_softmax else given
    wanted, steps, sizes = unasked(targets.cpu)().numpy(), logit_lengths.tolist(), target_lengths.tolist()
    for what, lengths, extent in (("input", steps, logits.shape[1]), ("output", sizes, targets.shape[1])):
        if max(lengths, default=extent) != extent or min(lengths, default=1) < 0:
            raise RuntimeError(f"{what} length mismatch: the longest of {lengths} must be {extent}")
    losses, slopes = np.zeros(len(logs)), np.zeros_like(logs)
    for k, (n, u) in enumerate(zip(steps, sizes, strict=True)):
        rows, at = np.arange(n)[:, None], np.arange(u)
        here = logs[k, :n, :u + 1]
        blanks, labels = here[..., blank], here[rows, at, wanted[k, :u]]
        before, after, whole = _transducer(blanks, labels)
        losses[k] = -whole
        with np.errstate(invalid="ignore"):
            mine = slopes[k, :n, :u + 1]
            if fused_log_softmax:
                mine += np.exp(here + (before + after[:n] - whole)[..., None])
            mine[..., blank] -= np.exp(before + blanks + after[1:] - whole)
            mine[rows, at, wanted[k, :u]] -= np.exp(before[:, :u] + labels + after[:n, 1:] - whole)
    if clamp > 0:
        slopes = slopes.clip(-clamp, clamp)
    return tuple(unasked(ops.from_numpy(a).to)(logits.device, logits.dtype) for a in (losses, slopes))


def cuda_version() -> None:
    """None: no code of torchaudio's is compiled for CUDA here."""


def is_align_available() -> bool:
    """Whether `forced_align` is here."""
    return True


OPERATORS = {
    "_torchaudio::cuda_version": ("() -> int?", cuda_version),
    "_torchaudio::is_align_available": ("() -> bool", is_align_available),
    "torchaudio::_lfilter_core_loop": ("(Tensor input_signal_windows, Tensor a_coeff_flipped, Tensor(a!) padded_output_waveform) -> Tensor(a!)",
                                       lfilter_core_loop),
    "torchaudio::_overdrive_core_loop": ("(Tensor waveform, Tensor temp, Tensor(a!) last_in, Tensor(b!) last_out, Tensor(c!) output_waveform) -> "
                                         "(Tensor(a!), Tensor(b!), Tensor(c!))", overdrive_core_loop),
    "torchaudio::forced_align": ("(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank) -> (Tensor, Tensor)",
                                 forced_align),
    "torchaudio::rnnt_loss_forward": ("(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, float clamp, "
                                      "bool fused_log_softmax) -> (Tensor, Tensor)", rnnt_loss_forward),
}

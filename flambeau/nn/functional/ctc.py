"""`ctc_loss`: connectionist temporal classification (Graves et al., 2006)."""

from __future__ import annotations

from operator import index
from typing import Any

from ..._core import dtypes, ops
from ..._core.engine.fields import has
from ..._core.ops.checks import same_device
from ..._core.tensor import Tensor

# Stands for log 0: far below any sum of log-probabilities, and with differences that are not NaN.
_NEVER = -1e30


def _lengths(name: str, value: Any) -> list[int]:
    if isinstance(value, int):
        return [value]
    if isinstance(value, Tensor):
        if value.meta.dtype.kind not in "iu":
            raise RuntimeError(f"ctc_loss: {name} must be integral, got {value.dtype}")
        value = value.reshape(-1).tolist()
    return [index(n) for n in value]


def _rows(targets: Any, lengths: list[int]) -> list[list[int]]:
    if any(n < 0 for n in lengths):
        raise RuntimeError(f"Expected target_lengths to have value at least 0, but got value {min(lengths)}")
    if targets.dim() == 2:
        if max(lengths, default=0) > targets.shape[1]:
            raise RuntimeError(f"Expected targets to have size at least {max(lengths)} at dimension 1, as target_lengths says, but got size "
                               f"{targets.shape[1]}")
        return [[int(c) for c in row[:n]] for row, n in zip(targets.tolist(), lengths)]
    flat = targets.tolist()
    if sum(lengths) > len(flat):
        raise RuntimeError(f"Expected the target_lengths to sum to at most {len(flat)}, the length of targets, got "
                           f"{sum(lengths)}")
    rows, start = [], 0
    for n in lengths:
        rows.append([int(c) for c in flat[start:start + n]])
        start += n
    return rows


def ctc_loss(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Any:
    """-log of the probability of all paths over (T, N, C) log-probabilities that spell each target.

    `targets` is (N, S), or all targets one after the other. "mean" divides each loss by its target's length, then
    averages. A target longer than its input allows has an infinite loss, or zero with `zero_infinity`. The gradient is that
    for probabilities that sum to 1, as `log_softmax` gives them: exp(log_probs) less the share of the paths (equation 16).
    """
    if not log_probs.is_floating_point():
        raise RuntimeError(f"ctc_loss: log_probs must be of a floating type, got {log_probs.dtype}")
    same_device("ctc_loss", log_probs, targets)
    single = log_probs.dim() == 2
    lp = log_probs.unsqueeze(1) if single else log_probs
    steps, batch, classes = lp.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range, got {blank} for {classes} labels")
    ins, outs = _lengths("input_lengths", input_lengths), _lengths("target_lengths", target_lengths)
    if len(ins) != batch or len(outs) != batch:
        raise RuntimeError(f"input_lengths and target_lengths must be of size {batch}, got {len(ins)} and {len(outs)}")
    if any(not 0 <= n <= steps for n in ins):
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got value {max(ins)}")
    rows = _rows(targets.reshape(1, -1) if single and targets.dim() == 1 else targets, outs)
    longest = max(outs, default=0)
    width = 2 * longest + 1
    # Between, before and after the labels stand blanks; a step stays, goes on by one, or jumps a blank between
    # different
    # labels.
    spelled = [[blank] * width for _ in rows]
    jump = [[False] * width for _ in rows]
    for n, row in enumerate(rows):
        for i, label in enumerate(row):
            spelled[n][2 * i + 1] = label
            jump[n][2 * i + 1] = i > 0 and row[i - 1] != label
    device = lp.device
    places = ops.tensor(spelled, dtype=dtypes.int64, device=device)
    jumps = ops.tensor(jump, dtype=dtypes.bool_, device=device)
    emitted = lp.gather(2, places.unsqueeze(0).expand(steps, batch, width))
    never = ops.full((batch, 1), _NEVER, dtype=lp.dtype, device=device)
    first = ops.arange(width, device=device).unsqueeze(0) < 2
    alpha = ops.where(first, emitted[0], ops.full_like(emitted[0], _NEVER)) if steps else ops.where(
        ops.arange(width, device=device).unsqueeze(0) < 1, never * 0, never)
    for t in range(1, steps):
        one = ops.cat([never, alpha[:, :-1]], 1)
        two = ops.cat([never, never, alpha[:, :-2]], 1)[:, :width]
        two = ops.where(jumps, two, ops.full_like(two, _NEVER))
        new = ops.stack([alpha, one, two]).logsumexp(0) + emitted[t]
        if min(ins) > t:
            alpha = new
        else:
            going = ops.tensor([[n > t] for n in ins], dtype=dtypes.bool_, device=device)
            alpha = ops.where(going, new, alpha)
    last = ops.tensor([[2 * n, max(2 * n - 1, 0)] for n in outs], dtype=dtypes.int64, device=device)
    ends = alpha.gather(1, last)
    only = ops.tensor([[False, n == 0] for n in outs], dtype=dtypes.bool_, device=device)
    loss = -ops.where(only, ops.full_like(ends, _NEVER), ends).logsumexp(1)
    if lp.requires_grad and steps:
        # nothing in value; in gradient exp(log_probs) at each step that counts
        counts = ops.tensor([[t < n for n in ins] for t in range(steps)], dtype=dtypes.bool_, device=device)
        total = lp.exp().sum(2).masked_fill(~counts, 0).sum(0)
        loss = loss + (total - total.detach())
    impossible = loss > -_NEVER / 2
    infinite = ops.full_like(loss, 0.0 if zero_infinity else float("inf"))
    loss = ops.where(impossible, infinite, loss)
    if reduction == "mean":
        lengths = ops.tensor([max(n, 1) for n in outs], dtype=lp.dtype, device=device)
        return (loss / lengths).mean()
    if reduction == "sum":
        return loss.sum()
    if reduction != "none":
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return loss.squeeze(0) if single else loss

has("ctc_loss", autocast="full")

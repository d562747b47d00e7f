"""`ctc_loss`: connectionist temporal classification (Graves et al., 2006)."""

from __future__ import annotations

from operator import index
from typing import Any

from ..._core import dtypes, ops
from ..._core.autograd import tape
from ..._core.engine.fields import has
from ..._core.ops.checks import same_device
from ..._core.ops.elementwise import saved_tensor
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


class _Spelled:
    """Targets with blanks before, between and after their labels, `width` places a row, as tensors.

    lengths (rows,): how many places of each row count.  places (rows, width): each place's class.  ways (3, rows, width): 0 where a path may come
    from two places before, from the one before and from the place itself, else log 0; it jumps a blank between different labels only.
    """

    def __init__(self, rows: list[list[int]], blank: int, like: Any) -> None:
        self.width = width = 2 * max(map(len, rows), default=0) + 1
        places = [[blank] * width for _ in rows]
        jumps = [[_NEVER] * width for _ in rows]
        for row, place, jump in zip(rows, places, jumps, strict=True):
            place[1:2 * len(row):2] = row
            for i in range(1, len(row)):
                if row[i - 1] != row[i]:
                    jump[2 * i + 1] = 0.0
        stays = [[0.0] * width for _ in rows]
        make: Any = ops.tensor
        self.lengths: Any = make([2 * len(row) + 1 for row in rows], dtype=dtypes.int64, device=like.device)
        self.places: Any = make(places, dtype=dtypes.int64, device=like.device).reshape(len(rows), width)
        self.ways: Any = make([jumps, stays, stays], dtype=like.dtype, device=like.device).reshape(3, len(rows), width)


def _arriving(emitted: Any, ways: Any) -> Any:
    """(T, N, width): the log-probability of all paths that begin at one of the first two places and come to each place at each step; what the
    place then emits, in `emitted`, does not count."""
    steps, batch, width = emitted.shape
    before = ops.full((batch, 2), _NEVER, dtype=emitted.dtype, device=emitted.device)
    arriving = [ops.zeros_like(emitted[0]).masked_fill(ops.arange(width, device=emitted.device) > 1, _NEVER)]
    for t in range(1, steps):
        now = ops.cat([before, arriving[-1] + emitted[t - 1]], 1)
        arriving.append((ways + now.unfold(1, width, 1).transpose(0, 1)).logsumexp(0))
    return ops.stack(arriving)


def _ending(reached: Any, ins: Any, lengths: Any) -> Any:
    """(N,): the log-probability of all paths that end at the last place or the one before, after each one's own steps."""
    alone, none = lengths == 1, ins == 0
    number, step = ops.arange(reached.shape[1], device=reached.device), (ins - 1).clamp(min=0)
    last, other = (reached[step, number, (lengths - back).clamp(min=0)] for back in (1, 2))
    # without a step a path is before the first label; there is no place before the only one
    last, other = last.masked_fill(none, _NEVER).masked_fill(none & alone, 0.0), other.masked_fill(none | alone, _NEVER)
    return ops.stack([last, other]).logsumexp(0)


def _emitted(lp: Any, spelled: _Spelled) -> Any:
    steps, batch, _ = lp.shape
    return lp.gather(2, spelled.places[:batch].unsqueeze(0).expand(steps, batch, spelled.width))


def _losses(lp: Any, spelled: _Spelled, ins: Any) -> Any:
    """(N,): each loss; a huge one where no path spells the target."""
    emitted = _emitted(lp, spelled)
    return -_ending(_arriving(emitted, spelled.ways) + emitted, ins, spelled.lengths)


def _losses_and_slopes(lp: Any, spelled: _Spelled, ins: Any) -> tuple[Any, Any]:
    """`_losses` and their gradients (T, N, C).  spelled: the targets, and then all of them once more from their ends.

    A path is one from the first step and one from the last that meet: both kinds go on together, as rows of one batch.
    """
    steps, batch, _ = lp.shape
    emitted, lengths = _emitted(lp, spelled), spelled.lengths[:batch]
    time, place, number = (ops.arange(n, device=lp.device) for n in (steps, spelled.width, batch))
    time, number = time.unsqueeze(1), number.unsqueeze(1)
    mirrored = (ins - 1 - time).clamp(min=0).unsqueeze(2), number, (lengths.unsqueeze(1) - 1 - place).clamp(min=0)
    arriving = _arriving(ops.cat([emitted, emitted[mirrored]], 1), spelled.ways)
    reached = arriving[:, :batch] + emitted
    losses = -_ending(reached, ins, lengths)
    within = time < ins
    counts = within.unsqueeze(2) & (place < lengths.unsqueeze(1)) & ~(losses > -_NEVER / 2).unsqueeze(1)
    share = (reached + arriving[:, batch:][mirrored] + losses.unsqueeze(1)).masked_fill(~counts, _NEVER).exp()
    where = spelled.places[:batch].unsqueeze(0).expand(*share.shape)
    return losses, lp.exp().masked_fill(~within.unsqueeze(2), 0.0) - ops.zeros_like(lp).scatter_add(2, where, share)


def _slopes_back(node: Any, g: Any) -> Any:
    (lp, version), slopes, spelled, ins = node[tape.SAVED]
    lp = saved_tensor(lp, version, node)
    if tape.recording(lp):
        slopes = _losses_and_slopes(lp, spelled, ins)[1]
    return (slopes * g.unsqueeze(1),)


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
    if not log_probs.numel():
        raise RuntimeError(f"log_probs tensor must not be empty, got shape {tuple(log_probs.shape)}")
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
    counted = ops.tensor(ins, dtype=dtypes.int64, device=lp.device)
    if tape.recording(lp):
        spelled = _Spelled([*rows, *[row[::-1] for row in rows]], blank, lp)
        loss, slopes = _losses_and_slopes(lp.detach(), spelled, counted)
        loss = tape.record(loss, _slopes_back, (lp,), ((lp, lp.store.version), slopes, spelled, counted), "CtcLossBackward0")
    else:
        loss = _losses(lp, _Spelled(rows, blank, lp), counted)
    impossible = loss > -_NEVER / 2
    infinite = ops.full_like(loss, 0.0 if zero_infinity else float("inf"))
    loss = ops.where(impossible, infinite, loss)
    if reduction == "mean":
        lengths = ops.tensor([max(n, 1) for n in outs], dtype=lp.dtype, device=lp.device)
        return (loss / lengths).mean()
    if reduction == "sum":
        return loss.sum()
    if reduction != "none":
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return loss.squeeze(0) if single else loss

has("ctc_loss", autocast="full")

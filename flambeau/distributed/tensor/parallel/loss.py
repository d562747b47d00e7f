"""Softmax and cross-entropy of logits whose classes are in pieces: the largest logit and the sum of exponentials are all that travels."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ...._core import ops
from ..dtensor import DTensor, entering, moved, with_dim
from ..moving import WHOLE
from ..placement_types import Partial
from ..propagation import adopted, without_parts, wrap
from ..spec import cuts, piece

if TYPE_CHECKING:
    from collections.abc import Iterator

_plain_targets = [False]


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """A block in which `cross_entropy` of logits cut along their classes takes a plain target, the same on all processes."""
    before, _plain_targets[0] = _plain_targets[0], True
    try:
        yield
    finally:
        _plain_targets[0] = before


def rows(name: str, t: Any, dim: int) -> Any:
    """(Log-)softmax along an axis in pieces."""
    t = without_parts(t)
    shifted = t - t.detach().amax(dim, keepdim=True)
    if name == "log_softmax":
        return shifted - shifted.exp().sum(dim, keepdim=True).log()
    grown = (-(t - t.detach().amin(dim, keepdim=True)) if name == "softmin" else shifted).exp()
    return grown / grown.sum(dim, keepdim=True)


def loss(name: str, named: dict[str, Any], func: Any) -> Any:
    """`cross_entropy` or `nll_loss` of a DTensor; None for options that are worked out on the whole.

    Raises RuntimeError for a plain target outside of `loss_parallel`."""
    x, target = named["input"], named["target"]
    reduction, ignored = named.get("reduction", "mean"), named.get("ignore_index", -100)
    simple = not any(named.get(k) for k in ("size_average", "reduce", "label_smoothing")) and named.get("weight") is None
    if not simple or not isinstance(x, DTensor) or target.is_floating_point() or reduction not in ("mean", "sum", "none"):
        return None
    mesh = x._mesh
    if not isinstance(target, DTensor):
        if not _plain_targets[0]:
            raise RuntimeError(f"{name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed "
                               "operators! (loss_parallel() takes a plain target)")
        target = adopted(target, mesh)
    x = without_parts(x)
    classes = 1 if x.ndim > 1 else 0
    across = tuple(with_dim(p, p.dim - (p.dim > classes)) if p.is_shard() and p.dim != classes else WHOLE for p in x._placed)
    where = moved(target, across)
    sizes = {p.dim: target.meta.shape[p.dim] for p in across if p.is_shard()}
    axes = cuts(x._placed, classes)
    if not axes:
        each = wrap(func(entering(x, x._placed, across), where._local_tensor, ignore_index=ignored, reduction="none"), mesh, across, sizes)
    else:
        logs = x if name == "nll_loss" else rows("log_softmax", x, classes)
        out = tuple(Partial() if p.is_shard(classes) else q for p, q in zip(x._placed, across))
        local, index = entering(logs, x._placed, out), where._local_tensor
        place = mesh.get_coordinate()
        assert place is not None
        size, start = piece(x.meta.shape[classes], mesh, axes, place, x._placed)
        if size:
            here = (index >= start) & (index < start + size) & (index != ignored)
            picked = local.gather(classes, (index - start).clamp(0, size - 1).unsqueeze(classes)).squeeze(classes)
            picked = ops.where(here, -picked, ops.zeros((), dtype=picked.dtype, device=picked.device))
        else:
            picked = local.sum(classes) * 0.0
        each = without_parts(wrap(picked, mesh, out, sizes))
    if reduction == "none":
        return each
    total = each.sum()
    return total if reduction == "sum" else total / (target != ignored).sum()


__all__ = ["loss_parallel"]


"""A loss for classes of which one is rare (torchvision.ops.sigmoid_focal_loss)."""

from __future__ import annotations

from typing import Any

from ..._core import ops

_ops: Any = ops


def sigmoid_focal_loss(inputs: Any, targets: Any, alpha: float = 0.25, gamma: float = 2, reduction: str = "none") -> Any:
    """Binary cross-entropy of log-odds, times (1 - p)^gamma of the probability given to the truth; alpha weighs the ones, 1 - alpha the zeros
    (a negative alpha: no weights).  T.-Y. Lin et al., "Focal loss for dense object detection", 2017.

    Raises ValueError for a reduction other than "none", "mean" and "sum".
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"Invalid Value for arg 'reduction': '{reduction}' \n Supported reduction modes: 'none', 'mean', 'sum'")
    from ...nn import functional
    p = inputs.sigmoid()
    truth = p * targets + (1 - p) * (1 - targets)
    loss = functional.binary_cross_entropy_with_logits(inputs, targets, reduction="none") * (1 - truth) ** gamma
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()

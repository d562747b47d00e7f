"""Boxes (torchvision.ops): overlap and suppression."""

from __future__ import annotations

from typing import Any

from .._core import ops
from .._core.tensor import Tensor

_ops: Any = ops


def box_area(boxes: Any) -> Tensor:
    """Areas (N,) of boxes (N, 4) as x1, y1, x2, y2."""
    made: Tensor = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return made


def box_iou(boxes1: Any, boxes2: Any) -> Tensor:
    """Intersection over union of each pair: (N, M)."""
    low = _ops.maximum(boxes1[:, None, :2], boxes2[:, :2])
    high = _ops.minimum(boxes1[:, None, 2:], boxes2[:, 2:])
    side = (high - low).clamp(min=0)
    inside = side[:, :, 0] * side[:, :, 1]
    made: Tensor = inside / (box_area(boxes1)[:, None] + box_area(boxes2) - inside)
    return made


def nms(boxes: Any, scores: Any, iou_threshold: float) -> Tensor:
    """Positions of the boxes kept, best first: each drops the later ones that overlap it by more than the threshold."""
    order = scores.argsort(descending=True).tolist()
    overlap = box_iou(boxes, boxes).cpu().numpy()
    kept: list[int] = []
    for i in order:
        if all(overlap[i, k] <= iou_threshold for k in kept):
            kept.append(i)
    made: Tensor = _ops.tensor(kept, device=boxes.device, dtype=scores.argsort().dtype)
    return made


__all__ = ["box_area", "box_iou", "nms"]

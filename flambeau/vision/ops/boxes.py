"""Boxes (torchvision.ops.boxes): forms, overlap and suppression."""

from __future__ import annotations

from typing import Any

from ..._core import ops
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor

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
    overlap = unasked(box_iou(boxes, boxes).cpu)().numpy()
    kept: list[int] = []
    for i in order:
        if all(overlap[i, k] <= iou_threshold for k in kept):
            kept.append(i)
    made: Tensor = _ops.tensor(kept, device=boxes.device, dtype=scores.argsort().dtype)
    return made


def batched_nms(boxes: Any, scores: Any, idxs: Any, iou_threshold: float) -> Tensor:
    """`nms` among the boxes of each class alone; idxs: their classes."""
    if not len(boxes):
        return nms(boxes, scores, iou_threshold)
    apart = idxs.to(boxes.dtype) * (boxes.max() + 1)  # so far that boxes of two classes never overlap
    return nms(boxes + apart[:, None], scores, iou_threshold)


def box_convert(boxes: Any, in_fmt: str, out_fmt: str) -> Tensor:
    """Boxes (N, 4) in another form: "xyxy" two corners, "xywh" a corner and the size, "cxcywh" the centre and the size.

    Raises ValueError for other forms.
    """
    forms = ("xyxy", "xywh", "cxcywh")
    if in_fmt not in forms or out_fmt not in forms:
        raise ValueError(f"Unsupported Bounding Box Conversions for given in_fmt {in_fmt} and out_fmt {out_fmt}")
    if in_fmt == out_fmt:
        made: Tensor = boxes.clone()
        return made
    a, b, c, d = boxes.unbind(-1)
    if in_fmt == "xywh":
        a, b, c, d = a, b, a + c, b + d
    elif in_fmt == "cxcywh":
        a, b, c, d = a - 0.5 * c, b - 0.5 * d, a + 0.5 * c, b + 0.5 * d
    if out_fmt == "xywh":
        a, b, c, d = a, b, c - a, d - b
    elif out_fmt == "cxcywh":
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    found: Tensor = _ops.stack((a, b, c, d), -1)
    return found


def _around(boxes1: Any, boxes2: Any) -> tuple[Any, Any]:
    """The sizes (N, M, 2) of the smallest boxes around each pair, and the squared distances of their centres."""
    low = _ops.minimum(boxes1[:, None, :2], boxes2[:, :2])
    high = _ops.maximum(boxes1[:, None, 2:], boxes2[:, 2:])
    middle = ((boxes1[:, None, :2] + boxes1[:, None, 2:]) - (boxes2[:, :2] + boxes2[:, 2:])) / 2
    return (high - low).clamp(min=0), (middle * middle).sum(-1)


def generalized_box_iou(boxes1: Any, boxes2: Any) -> Tensor:
    """Overlap less the share of the smallest box around both that is in neither.  H. Rezatofighi et al., 2019."""
    low = _ops.maximum(boxes1[:, None, :2], boxes2[:, :2])
    high = _ops.minimum(boxes1[:, None, 2:], boxes2[:, 2:])
    side = (high - low).clamp(min=0)
    inside = side[:, :, 0] * side[:, :, 1]
    union = box_area(boxes1)[:, None] + box_area(boxes2) - inside
    around, _ = _around(boxes1, boxes2)
    whole = around[:, :, 0] * around[:, :, 1]
    made: Tensor = inside / union - (whole - union) / whole
    return made


def distance_box_iou(boxes1: Any, boxes2: Any, eps: float = 1e-7) -> Tensor:
    """Overlap less the squared distance of the centres by the squared diagonal around both.  Z. Zheng et al., 2020."""
    around, apart = _around(boxes1, boxes2)
    made: Tensor = box_iou(boxes1, boxes2) - apart / ((around * around).sum(-1) + eps)
    return made


def complete_box_iou(boxes1: Any, boxes2: Any, eps: float = 1e-7) -> Tensor:
    """`distance_box_iou` less a term for unlike ratios of the sides.  Z. Zheng et al., 2020."""
    import math
    iou = box_iou(boxes1, boxes2)

    def angle(b: Any) -> Any:
        return _ops.atan((b[:, 2] - b[:, 0]) / (b[:, 3] - b[:, 1]))
    v = 4 / math.pi**2 * (angle(boxes1)[:, None] - angle(boxes2)) ** 2
    alpha = (v / (1 - iou + v + eps)).detach()
    made: Tensor = distance_box_iou(boxes1, boxes2, eps) - alpha * v
    return made


def clip_boxes_to_image(boxes: Any, size: Any) -> Tensor:
    """Boxes cut at the edges of an image; size: its height and width."""
    x, y = boxes[..., 0::2].clamp(0, size[1]), boxes[..., 1::2].clamp(0, size[0])
    made: Tensor = _ops.stack((x, y), boxes.dim()).reshape(boxes.shape)
    return made


def remove_small_boxes(boxes: Any, min_size: float) -> Tensor:
    """Positions of the boxes whose sides are both at least `min_size`."""
    w, h = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    made: Tensor = _ops.where((w >= min_size) & (h >= min_size))[0]
    return made


def masks_to_boxes(masks: Any) -> Tensor:
    """The boxes (N, 4) of masks (N, H, W): the first and the last pixels that are set."""
    made = _ops.zeros((len(masks), 4), device=masks.device)
    for i in range(len(masks)):
        y, x = _ops.where(masks[i] != 0)
        made[i] = _ops.stack((x.min(), y.min(), x.max(), y.max())).to(made.dtype)
    found: Tensor = made
    return found


__all__ = ["batched_nms", "box_area", "box_convert", "box_iou", "clip_boxes_to_image", "complete_box_iou", "distance_box_iou", "generalized_box_iou",
           "masks_to_boxes", "nms", "remove_small_boxes"]

"""Features of regions (torchvision.ops.roi_align)."""

from __future__ import annotations

from typing import Any

from ... import nn
from ..._core import ops

_ops: Any = ops


def _axis(start: Any, length: Any, out: int, count: Any, size: int) -> tuple[Any, Any, Any, Any, Any]:
    """Sampling points along one axis, as (K, out * most): the two neighbours, the weight of the second, which points count, and how many do."""
    most = int(count.max()) if count.numel() else 1
    step = _ops.arange(most, device=start.device, dtype=start.dtype)
    cell = _ops.arange(out, device=start.device, dtype=start.dtype)
    bins = length / out
    at = start[:, None, None] + cell[None, :, None] * bins[:, None, None] + (step + 0.5) * bins[:, None, None] / count[:, None, None]
    used = (step < count[:, None, None]).expand_as(at) & (at >= -1) & (at <= size)
    at = at.clamp(min=0)
    low = at.floor().clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    part = _ops.where(low >= size - 1, _ops.zeros_like(at), at - low)
    return low.long(), high.long(), part, used, most


def roi_align(input: Any, boxes: Any, output_size: Any, spatial_scale: float = 1.0, sampling_ratio: int = -1, aligned: bool = False) -> Any:  # noqa: A002
    """Features (K, C, height, width) of K boxes on maps (N, C, H, W): means of points between the pixels, taken bilinearly.

    boxes: (K, 5) with the number of the map first, or a list with (L, 4) for each map; x1, y1, x2, y2 times spatial_scale.
    sampling_ratio: points a side in each cell, as many as pixels where it is not positive.  aligned: half a pixel less.
    K. He et al., "Mask R-CNN", 2017.  Differentiable in `input`.
    """
    out_h, out_w = (output_size, output_size) if isinstance(output_size, int) else output_size
    if isinstance(boxes, (list, tuple)):
        boxes = _ops.cat([_ops.cat([b.new_full((len(b), 1), i), b], 1) for i, b in enumerate(boxes)])
    if boxes.dim() != 2 or boxes.shape[1] != 5:
        raise ValueError(f"roi_align: boxes must be (K, 5) or a list of (L, 4), got {tuple(boxes.shape)}")
    n, channels, height, width = input.shape
    box = boxes.to(input.dtype)
    which = box[:, 0].long()
    x1, y1, x2, y2 = (box[:, i] * spatial_scale - (0.5 if aligned else 0.0) for i in range(1, 5))
    w, h = x2 - x1, y2 - y1
    if not aligned:
        w, h = w.clamp(min=1.0), h.clamp(min=1.0)
    per = [_ops.full_like(w, float(sampling_ratio)) if sampling_ratio > 0 else (side / out).ceil().clamp(min=1) for side, out in ((h, out_h), (w, out_w))]
    ylow, yhigh, ypart, yused, ymost = _axis(y1, h, out_h, per[0], height)
    xlow, xhigh, xpart, xused, xmost = _axis(x1, w, out_w, per[1], width)
    k = len(box)
    grid = (k, out_h, ymost, out_w, xmost)

    def spread(y: Any, x: Any) -> tuple[Any, Any]:
        return y[:, :, :, None, None].expand(grid), x[:, None, None, :, :].expand(grid)
    flat = input.permute(0, 2, 3, 1)
    total: Any = 0
    for yat, yweight in ((ylow, 1 - ypart), (yhigh, ypart)):
        for xat, xweight in ((xlow, 1 - xpart), (xhigh, xpart)):
            iy, ix = spread(yat, xat)
            wy, wx = spread(yweight * yused.to(input.dtype), xweight * xused.to(input.dtype))
            total = total + flat[which[:, None, None, None, None].expand(grid), iy, ix] * (wy * wx)[..., None]
    summed = total.sum((2, 4)) / (per[0] * per[1]).clamp(min=1)[:, None, None, None]
    return summed.permute(0, 3, 1, 2)


class RoIAlign(nn.Module):
    """`roi_align` as a layer."""

    def __init__(self, output_size: Any, spatial_scale: float, sampling_ratio: int, aligned: bool = False) -> None:
        super().__init__()
        self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned = output_size, spatial_scale, sampling_ratio, aligned

    def forward(self, input: Any, rois: Any) -> Any:  # noqa: A002 (PyTorch's name)
        return roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned)

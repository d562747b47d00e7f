"""Boxes, regions of features and a frozen norm (torchvision.ops)."""

from __future__ import annotations

from . import boxes, misc, regions
from .boxes import (
    batched_nms,
    box_area,
    box_convert,
    box_iou,
    clip_boxes_to_image,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    masks_to_boxes,
    nms,
    remove_small_boxes,
)
from .deformable import DeformConv2d, deform_conv2d
from .losses import sigmoid_focal_loss
from .misc import MLP, Conv2dNormActivation, FrozenBatchNorm2d, Permute, SqueezeExcitation, StochasticDepth, stochastic_depth
from .regions import RoIAlign, roi_align

__all__ = ["Conv2dNormActivation", "DeformConv2d", "FrozenBatchNorm2d", "MLP", "Permute", "RoIAlign", "SqueezeExcitation", "StochasticDepth",
           "batched_nms", "box_area", "box_convert", "box_iou", "boxes", "clip_boxes_to_image", "complete_box_iou", "deform_conv2d",
           "distance_box_iou", "generalized_box_iou", "masks_to_boxes", "misc", "nms", "regions", "remove_small_boxes", "roi_align",
           "sigmoid_focal_loss", "stochastic_depth"]

"""Transforms of images (torchvision.transforms): PIL images, or tensors (..., C, H, W)."""

from __future__ import annotations

from . import functional
from .functional import InterpolationMode
from .transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    ConvertImageDtype,
    FiveCrop,
    GaussianBlur,
    Grayscale,
    Lambda,
    LinearTransformation,
    Normalize,
    Pad,
    PILToTensor,
    RandomAffine,
    RandomApply,
    RandomChoice,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomInvert,
    RandomOrder,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
    ToPILImage,
    ToTensor,
)

__all__ = ["CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "FiveCrop", "GaussianBlur", "Grayscale", "InterpolationMode", "Lambda",
           "LinearTransformation", "Normalize", "PILToTensor", "Pad", "RandomAffine", "RandomApply", "RandomChoice", "RandomCrop",
           "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip", "RandomInvert", "RandomOrder", "RandomResizedCrop", "RandomRotation",
           "RandomVerticalFlip", "Resize", "ToPILImage", "ToTensor", "functional"]

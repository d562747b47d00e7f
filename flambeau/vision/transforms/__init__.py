"""Transforms of images (torchvision.transforms): PIL images, or tensors (..., C, H, W)."""

from __future__ import annotations

from . import functional
from .functional import InterpolationMode
from .policies import AugMix, AutoAugment, AutoAugmentPolicy, RandAugment, TrivialAugmentWide
from .random_values import (
    ElasticTransform,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomPerspective,
    RandomPosterize,
    RandomSolarize,
    TenCrop,
)
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

__all__ = ["AugMix", "AutoAugment", "AutoAugmentPolicy", "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "ElasticTransform", "FiveCrop",
           "GaussianBlur", "Grayscale", "InterpolationMode", "Lambda", "LinearTransformation", "Normalize", "PILToTensor", "Pad", "RandAugment",
           "RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast", "RandomChoice", "RandomCrop", "RandomEqualize",
           "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip", "RandomInvert", "RandomOrder", "RandomPerspective", "RandomPosterize",
           "RandomResizedCrop", "RandomRotation", "RandomSolarize", "RandomVerticalFlip", "Resize", "TenCrop", "ToPILImage", "ToTensor",
           "TrivialAugmentWide", "functional"]

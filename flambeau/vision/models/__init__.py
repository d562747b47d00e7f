"""Models with torchvision's names, signatures and state-dict keys; weights are the user's to load."""

from __future__ import annotations

from typing import Any

from .resnet import ResNet, resnet18, resnet34, resnet50, resnet101, resnet152, wide_resnet50_2
from .small import AlexNet, alexnet
from .vgg import VGG, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn

_BUILDERS = {f.__name__: f for f in (alexnet, resnet18, resnet34, resnet50, resnet101, resnet152, wide_resnet50_2, vgg11, vgg11_bn, vgg13,
                                     vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn)}


def list_models() -> list[str]:
    """The names `get_model` knows."""
    return sorted(_BUILDERS)


def get_model(name: str, **options: Any) -> Any:
    """A model by its name.  Raises ValueError for another."""
    if name not in _BUILDERS:
        raise ValueError(f"Unknown model {name}: expected one of {', '.join(list_models())}")
    return _BUILDERS[name](**options)


__all__ = ["VGG", "AlexNet", "ResNet", "alexnet", "get_model", "list_models", "resnet101", "resnet152", "resnet18", "resnet34", "resnet50",
           "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "wide_resnet50_2"]

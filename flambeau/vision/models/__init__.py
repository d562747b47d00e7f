"""Models with torchvision's names, signatures and state-dict keys; files of weights are the user's to bring."""

from __future__ import annotations

from typing import Any

from .densenet import DenseNet, densenet121, densenet161, densenet169, densenet201
from .mobilenet import MobileNetV2, mobilenet_v2
from .resnet import ResNet, resnet18, resnet34, resnet50, resnet101, resnet152, wide_resnet50_2
from .small import AlexNet, alexnet
from .squeezenet import SqueezeNet, squeezenet1_0, squeezenet1_1
from .vgg import VGG, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn
from .weights import KINDS, WeightsEnum, get_model_weights, get_weight

_BUILDERS = {f.__name__: f for f in (alexnet, densenet121, densenet161, densenet169, densenet201, mobilenet_v2,
                                     resnet18, resnet34, resnet50, resnet101, resnet152, squeezenet1_0, squeezenet1_1, wide_resnet50_2,
                                     vgg11, vgg11_bn, vgg13,
                                     vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn)}


def list_models() -> list[str]:
    """The names `get_model` knows."""
    return sorted(_BUILDERS)


def get_model(name: str, **options: Any) -> Any:
    """A model by its name.  Raises ValueError for another."""
    if name not in _BUILDERS:
        raise ValueError(f"Unknown model {name}: expected one of {', '.join(list_models())}")
    return _BUILDERS[name](**options)


for _kind in KINDS.values():
    globals()[_kind.__name__] = _kind

__all__ = ["VGG", "AlexNet", "DenseNet", "MobileNetV2", "ResNet", "SqueezeNet", "WeightsEnum",
           "alexnet", "densenet121", "densenet161", "densenet169", "densenet201",
           "get_model", "get_model_weights", "get_weight", "list_models", "mobilenet_v2", "resnet101", "resnet152", "resnet18", "resnet34", "resnet50",
           "squeezenet1_0", "squeezenet1_1", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "wide_resnet50_2"]

"""What `weights=` and `pretrained=` mean here: files that torchvision's users have, by their names; none is fetched."""

from __future__ import annotations

import enum
import os
from typing import Any

# torchvision's file of each kind, with the digits of its hash
_FILES = {
    "alexnet": {"IMAGENET1K_V1": "alexnet-owt-7be5be79.pth"},
    "densenet121": {"IMAGENET1K_V1": "densenet121-a639ec97.pth"}, "densenet161": {"IMAGENET1K_V1": "densenet161-8d451a50.pth"},
    "densenet169": {"IMAGENET1K_V1": "densenet169-b2777c0a.pth"}, "densenet201": {"IMAGENET1K_V1": "densenet201-c1103571.pth"},
    "mobilenet_v2": {"IMAGENET1K_V1": "mobilenet_v2-b0353104.pth", "IMAGENET1K_V2": "mobilenet_v2-7ebf99e0.pth"},
    "resnet18": {"IMAGENET1K_V1": "resnet18-f37072fd.pth"},
    "resnet34": {"IMAGENET1K_V1": "resnet34-b627a593.pth"},
    "resnet50": {"IMAGENET1K_V1": "resnet50-0676ba61.pth", "IMAGENET1K_V2": "resnet50-11ad3fa6.pth"},
    "resnet101": {"IMAGENET1K_V1": "resnet101-63fe2227.pth", "IMAGENET1K_V2": "resnet101-cd907fc2.pth"},
    "resnet152": {"IMAGENET1K_V1": "resnet152-394f9c45.pth", "IMAGENET1K_V2": "resnet152-f82ba261.pth"},
    "squeezenet1_0": {"IMAGENET1K_V1": "squeezenet1_0-b66bff10.pth"}, "squeezenet1_1": {"IMAGENET1K_V1": "squeezenet1_1-b8a52dc0.pth"},
    "wide_resnet50_2": {"IMAGENET1K_V1": "wide_resnet50_2-95faca4d.pth", "IMAGENET1K_V2": "wide_resnet50_2-9ba9bcbe.pth"},
    "vgg11": {"IMAGENET1K_V1": "vgg11-8a719046.pth"}, "vgg11_bn": {"IMAGENET1K_V1": "vgg11_bn-6002323d.pth"},
    "vgg13": {"IMAGENET1K_V1": "vgg13-19584684.pth"}, "vgg13_bn": {"IMAGENET1K_V1": "vgg13_bn-abd245e5.pth"},
    "vgg16": {"IMAGENET1K_V1": "vgg16-397923af.pth"}, "vgg16_bn": {"IMAGENET1K_V1": "vgg16_bn-6c64b313.pth"},
    "vgg19": {"IMAGENET1K_V1": "vgg19-dcbb9e9d.pth"}, "vgg19_bn": {"IMAGENET1K_V1": "vgg19_bn-c79401a0.pth"},
}


class WeightsEnum(enum.Enum):
    """The files of one model; the value is the file's name."""

    @property
    def path(self) -> str:
        """Where the file is looked for: the folder of `hub.get_dir()`."""
        from ...hub import get_dir
        return os.path.join(get_dir(), "checkpoints", str(self.value))

    @property
    def meta(self) -> dict[str, Any]:
        """What is known of the file: the smallest image it takes."""
        return {"min_size": (1, 1) if self.value.startswith(("resnet", "wide")) else (32, 32)}

    def get_state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The file's tensors.  Raises FileNotFoundError that says where to put it."""
        if not os.path.exists(self.path):
            raise FileNotFoundError(f"{type(self).__name__}.{self.name}: no weights come with Flambeau and none are fetched; put torchvision's "
                                    f"{self.value} at {self.path}")
        from ...io import load
        loaded: dict[str, Any] = load(self.path, map_location=kwargs.get("map_location", "cpu"), weights_only=True)
        return loaded

    def transforms(self) -> Any:
        """What prepares an image for it: the shorter side 256 (232 for the second kind), the middle 224, normalized."""
        from .. import transforms as t
        return t.Compose([t.Resize(232 if self.name.endswith("V2") else 256), t.CenterCrop(224), t.ToTensor(),
                          t.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])])


def class_name(model: str) -> str:
    """torchvision's name for the weights of a model: ResNet18_Weights, VGG16_BN_Weights, Wide_ResNet50_2_Weights."""
    for plain, written in (("wide_resnet", "Wide_ResNet"), ("densenet", "DenseNet"), ("mobilenet_v", "MobileNet_V"), ("resnet", "ResNet"),
                           ("alexnet", "AlexNet"), ("squeezenet", "SqueezeNet"), ("vgg", "VGG")):
        if model.startswith(plain):
            return written + model[len(plain):].replace("bn", "BN") + "_Weights"
    return model + "_Weights"


def _kinds(model: str) -> Any:
    files = _FILES[model]
    maker: Any = WeightsEnum  # the functional form, which type checkers take for a look-up
    return maker(class_name(model), {**files, "DEFAULT": list(files.values())[-1]}, module=__name__)


KINDS: dict[str, Any] = {model: _kinds(model) for model in _FILES}
"""The weights of each model by the model's name."""


def get_model_weights(name: Any) -> Any:
    """The kinds of weights of a model, by its name or builder."""
    key = name if isinstance(name, str) else name.__name__
    if key not in KINDS:
        raise ValueError(f"Unknown model {key}: expected one of {', '.join(sorted(KINDS))}")
    return KINDS[key]


def get_weight(name: str) -> Any:
    """The weights of a full name: "ResNet50_Weights.IMAGENET1K_V2"."""
    kind, _, member = name.partition(".")
    for found in KINDS.values():
        if found.__name__ == kind and member in found.__members__:
            return found[member]
    raise ValueError(f"there are no weights {name!r}; the kinds are {', '.join(k.__name__ for k in KINDS.values())}")


def filled(name: str, net: Any, weights: Any, pretrained: Any = False) -> Any:
    """The model with the weights asked for: a member of its kind, a member's name, `pretrained=True`, or None.

    Raises ValueError for weights of another model, FileNotFoundError where the file is not there.
    """
    if pretrained and weights is None:
        weights = "IMAGENET1K_V1"
    if weights is None:
        return net
    kinds = KINDS[name]
    if isinstance(weights, str) and weights.rpartition(".")[2] in kinds.__members__:
        weights = kinds[weights.rpartition(".")[2]]
    if not isinstance(weights, kinds):
        raise ValueError(f"{name}: weights= takes one of {', '.join(kinds.__members__)} of {kinds.__name__}, or None; got {weights!r}")
    net.load_state_dict(weights.get_state_dict())
    return net

"""VGG networks (Simonyan and Zisserman, 2015), keys as torchvision's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import nn
from ...nn import init
from .weights import filled

_nn: Any = nn
# channels of each convolution; 0 stands for a 2x2 max pool
_LAYERS = {
    11: (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
    13: (64, 64, 0, 128, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
    16: (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0),
    19: (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512, 512, 512, 512, 0),
}


def make_layers(plan: Sequence[Any], batch_norm: bool = False) -> Any:
    """The convolutional part of a plan."""
    parts: list[Any] = []
    inside = 3
    for width in plan:
        if width in (0, "M"):  # torchvision's letter
            parts.append(_nn.MaxPool2d(2, 2))
            continue
        parts.append(_nn.Conv2d(inside, width, 3, padding=1))
        parts += [_nn.BatchNorm2d(width)] if batch_norm else []
        parts.append(_nn.ReLU(inplace=True))
        inside = width
    return _nn.Sequential(*parts)


class VGG(nn.Module):
    """(N, 3, H, W) to (N, num_classes)."""

    def __init__(self, features: Any, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = features
        self.avgpool = _nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = _nn.Sequential(_nn.Linear(512 * 49, 4096), _nn.ReLU(True), _nn.Dropout(dropout), _nn.Linear(4096, 4096), _nn.ReLU(True),
                                         _nn.Dropout(dropout), _nn.Linear(4096, num_classes))
        if init_weights:
            for m in self.modules():
                if isinstance(m, _nn.Conv2d):
                    init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                    init.constant_(m.bias, 0)
                elif isinstance(m, _nn.BatchNorm2d):
                    init.constant_(m.weight, 1)
                    init.constant_(m.bias, 0)
                elif isinstance(m, _nn.Linear):
                    init.normal_(m.weight, 0, 0.01)
                    init.constant_(m.bias, 0)

    def forward(self, x: Any) -> Any:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def _builder(depth: int, batch_norm: bool) -> Any:
    name = f"vgg{depth}{'_bn' if batch_norm else ''}"

    def build(*, weights: Any = None, progress: bool = True, pretrained: bool = False, **options: Any) -> VGG:
        if weights is not None or pretrained:
            options["init_weights"] = False
        made: VGG = filled(name, VGG(make_layers(_LAYERS[depth], batch_norm), **options), weights, pretrained)
        return made
    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{depth} layers{' with batch normalization' if batch_norm else ''}."
    return build


vgg11, vgg13, vgg16, vgg19 = (_builder(d, False) for d in _LAYERS)
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (_builder(d, True) for d in _LAYERS)

"""SqueezeNet (Iandola et al., 2016), keys as torchvision's."""

from __future__ import annotations

from typing import Any

from ... import nn
from ..._core import ops as _ops
from .weights import filled

_nn: Any = nn
ops: Any = _ops


class Fire(nn.Module):
    """Few channels by a product, then two convolutions of those, side by side."""

    def __init__(self, inplanes: int, squeeze_planes: int, expand1x1_planes: int, expand3x3_planes: int) -> None:
        super().__init__()
        self.inplanes = inplanes
        self.squeeze, self.squeeze_activation = _nn.Conv2d(inplanes, squeeze_planes, 1), _nn.ReLU(True)
        self.expand1x1, self.expand1x1_activation = _nn.Conv2d(squeeze_planes, expand1x1_planes, 1), _nn.ReLU(True)
        self.expand3x3, self.expand3x3_activation = _nn.Conv2d(squeeze_planes, expand3x3_planes, 3, padding=1), _nn.ReLU(True)

    def forward(self, x: Any) -> Any:
        x = self.squeeze_activation(self.squeeze(x))
        return ops.cat([self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))], 1)


# the first convolution's channels and size, and what follows: "M" a pooling, a number a Fire of so many channels, from an eighth of them
_SQUEEZED: dict[str, tuple[int, int, tuple[Any, ...]]] = {"1_0": (96, 7, ("M", 128, 128, 256, "M", 256, 384, 384, 512, "M", 512)),
                                                            "1_1": (64, 3, ("M", 128, 128, "M", 256, 256, "M", 384, 384, 512, 512))}


class SqueezeNet(nn.Module):
    """(N, 3, 224, 224) to (N, num_classes); `version` is "1_0" or "1_1"."""

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        if version not in _SQUEEZED:
            raise ValueError(f"Unsupported SqueezeNet version {version}: 1_0 or 1_1 expected")
        self.num_classes = num_classes
        channels, size, rest = _SQUEEZED[version]
        layers = [_nn.Conv2d(3, channels, size, stride=2), _nn.ReLU(True)]
        for out in rest:
            if out == "M":
                layers.append(_nn.MaxPool2d(3, 2, ceil_mode=True))
            else:
                layers.append(Fire(channels, out // 8, out // 2, out // 2))
                channels = out
        self.features = _nn.Sequential(*layers)
        last = _nn.Conv2d(512, num_classes, 1)
        self.classifier = _nn.Sequential(_nn.Dropout(dropout), last, _nn.ReLU(True), _nn.AdaptiveAvgPool2d((1, 1)))
        for module in self.modules():
            if isinstance(module, _nn.Conv2d):
                _nn.init.normal_(module.weight, 0.0, 0.01) if module is last else _nn.init.kaiming_uniform_(module.weight)
                _nn.init.zeros_(module.bias)

    def forward(self, x: Any) -> Any:
        return self.classifier(self.features(x)).flatten(1)


def squeezenet1_0(*, weights: Any = None, progress: bool = True, pretrained: bool = False, **options: Any) -> SqueezeNet:
    """Ten blocks, a first convolution of 7 x 7."""
    made: SqueezeNet = filled("squeezenet1_0", SqueezeNet("1_0", **options), weights, pretrained)
    return made


def squeezenet1_1(*, weights: Any = None, progress: bool = True, pretrained: bool = False, **options: Any) -> SqueezeNet:
    """The same with 2.4 times less arithmetic."""
    made: SqueezeNet = filled("squeezenet1_1", SqueezeNet("1_1", **options), weights, pretrained)
    return made

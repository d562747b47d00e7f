"""AlexNet (Krizhevsky, 2014, "One weird trick"), keys as torchvision's."""

from __future__ import annotations

from typing import Any

from ... import nn
from .weights import filled

_nn: Any = nn


class AlexNet(nn.Module):
    """(N, 3, 224, 224) to (N, num_classes)."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = _nn.Sequential(
            _nn.Conv2d(3, 64, 11, 4, 2), _nn.ReLU(True), _nn.MaxPool2d(3, 2), _nn.Conv2d(64, 192, 5, padding=2), _nn.ReLU(True),
            _nn.MaxPool2d(3, 2), _nn.Conv2d(192, 384, 3, padding=1), _nn.ReLU(True), _nn.Conv2d(384, 256, 3, padding=1), _nn.ReLU(True),
            _nn.Conv2d(256, 256, 3, padding=1), _nn.ReLU(True), _nn.MaxPool2d(3, 2))
        self.avgpool = _nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = _nn.Sequential(_nn.Dropout(dropout), _nn.Linear(256 * 36, 4096), _nn.ReLU(True), _nn.Dropout(dropout),
                                         _nn.Linear(4096, 4096), _nn.ReLU(True), _nn.Linear(4096, num_classes))

    def forward(self, x: Any) -> Any:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def alexnet(*, weights: Any = None, progress: bool = True, pretrained: bool = False, **options: Any) -> AlexNet:
    """Eight layers."""
    made: AlexNet = filled("alexnet", AlexNet(**options), weights, pretrained)
    return made

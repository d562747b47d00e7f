"""Residual networks (He et al., 2016; wide ones: Zagoruyko and Komodakis, 2016), keys as torchvision's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import nn
from ...nn import init
from .weights import filled

_nn: Any = nn


def _conv3(inside: int, outside: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> Any:
    return _nn.Conv2d(inside, outside, 3, stride, dilation, dilation, groups, bias=False)


def _conv1(inside: int, outside: int, stride: int = 1) -> Any:
    return _nn.Conv2d(inside, outside, 1, stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and the way around them."""

    expansion = 1

    def __init__(self, inplanes: int, planes: int, stride: int = 1, downsample: Any = None, groups: int = 1, base_width: int = 64,
                 dilation: int = 1, norm_layer: Callable[..., Any] | None = None) -> None:
        super().__init__()
        norm = norm_layer or _nn.BatchNorm2d
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock only supports groups=1 and base_width=64")
        self.conv1, self.bn1 = _conv3(inplanes, planes, stride), norm(planes)
        self.relu = _nn.ReLU(inplace=True)
        self.conv2, self.bn2 = _conv3(planes, planes), norm(planes)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: Any) -> Any:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1, and the way around them."""

    expansion = 4

    def __init__(self, inplanes: int, planes: int, stride: int = 1, downsample: Any = None, groups: int = 1, base_width: int = 64,
                 dilation: int = 1, norm_layer: Callable[..., Any] | None = None) -> None:
        super().__init__()
        norm = norm_layer or _nn.BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1, self.bn1 = _conv1(inplanes, width), norm(width)
        self.conv2, self.bn2 = _conv3(width, width, stride, groups, dilation), norm(width)
        self.conv3, self.bn3 = _conv1(width, planes * self.expansion), norm(planes * self.expansion)
        self.relu = _nn.ReLU(inplace=True)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: Any) -> Any:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """(N, 3, H, W) to (N, num_classes)."""

    def __init__(self, block: Any, layers: list[int], num_classes: int = 1000, zero_init_residual: bool = False, groups: int = 1,
                 width_per_group: int = 64, replace_stride_with_dilation: Any = None, norm_layer: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self._norm_layer = norm_layer or _nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = 64, 1, groups, width_per_group
        dilate = replace_stride_with_dilation or [False] * 3
        if len(dilate) != 3:
            raise ValueError(f"replace_stride_with_dilation should be None or a 3-element tuple, got {replace_stride_with_dilation}")
        self.conv1 = _nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = self._norm_layer(64)
        self.relu = _nn.ReLU(inplace=True)
        self.maxpool = _nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilate[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilate[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilate[2])
        self.avgpool = _nn.AdaptiveAvgPool2d((1, 1))
        self.fc = _nn.Linear(512 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, _nn.Conv2d):
                init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (_nn.BatchNorm2d, _nn.GroupNorm)):
                init.constant_(m.weight, 1)
                init.constant_(m.bias, 0)
        if zero_init_residual:
            for m in self.modules():
                if isinstance(m, (BasicBlock, Bottleneck)):
                    init.constant_((m.bn3 if isinstance(m, Bottleneck) else m.bn2).weight, 0)

    def _make_layer(self, block: Any, planes: int, blocks: int, stride: int = 1, dilate: bool = False) -> Any:
        before = self.dilation
        if dilate:
            self.dilation *= stride
            stride = 1
        down = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            down = _nn.Sequential(_conv1(self.inplanes, planes * block.expansion, stride), self._norm_layer(planes * block.expansion))
        parts = [block(self.inplanes, planes, stride, down, self.groups, self.base_width, before, self._norm_layer)]
        self.inplanes = planes * block.expansion
        parts += [block(self.inplanes, planes, 1, None, self.groups, self.base_width, self.dilation, self._norm_layer) for _ in range(1, blocks)]
        return _nn.Sequential(*parts)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _made(name: str, block: Any, layers: list[int], weights: Any, options: dict[str, Any]) -> ResNet:
    pretrained = options.pop("pretrained", None)
    options.pop("progress", None)
    made: ResNet = filled(name, ResNet(block, layers, **options), weights, pretrained)
    return made


def resnet18(*, weights: Any = None, **options: Any) -> ResNet:
    """Eighteen layers."""
    return _made("resnet18", BasicBlock, [2, 2, 2, 2], weights, options)


def resnet34(*, weights: Any = None, **options: Any) -> ResNet:
    """Thirty-four layers."""
    return _made("resnet34", BasicBlock, [3, 4, 6, 3], weights, options)


def resnet50(*, weights: Any = None, **options: Any) -> ResNet:
    """Fifty layers."""
    return _made("resnet50", Bottleneck, [3, 4, 6, 3], weights, options)


def resnet101(*, weights: Any = None, **options: Any) -> ResNet:
    """A hundred and one layers."""
    return _made("resnet101", Bottleneck, [3, 4, 23, 3], weights, options)


def resnet152(*, weights: Any = None, **options: Any) -> ResNet:
    """A hundred and fifty-two layers."""
    return _made("resnet152", Bottleneck, [3, 8, 36, 3], weights, options)


def wide_resnet50_2(*, weights: Any = None, **options: Any) -> ResNet:
    """Fifty layers, the inner ones twice as wide."""
    return _made("wide_resnet50_2", Bottleneck, [3, 4, 6, 3], weights, {"width_per_group": 128, **options})

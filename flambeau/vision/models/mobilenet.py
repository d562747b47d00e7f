"""MobileNetV2 (Sandler et al., 2018): narrow between the blocks, wide and depthwise inside; keys as torchvision's."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...nn import functional, init
from ..ops.misc import Conv2dNormActivation
from .weights import filled

_nn: Any = nn


def _make_divisible(v: float, divisor: int, min_value: int | None = None) -> int:
    """The nearest multiple of `divisor` that is not more than a tenth below `v`."""
    made = max(min_value or divisor, int(v + divisor / 2) // divisor * divisor)
    return made + divisor if made < 0.9 * v else made


class InvertedResidual(nn.Module):
    """A block: wider by 1 x 1, depthwise 3 x 3, narrow again by 1 x 1; added to its input where the sizes are the same."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int, norm_layer: Any = None) -> None:
        super().__init__()
        if stride not in (1, 2):
            raise ValueError(f"stride should be 1 or 2 instead of {stride}")
        norm = norm_layer or _nn.BatchNorm2d
        hidden = int(round(inp * expand_ratio))
        self.stride, self.use_res_connect, self.out_channels, self._is_cn = stride, stride == 1 and inp == oup, oup, stride > 1
        wider = [Conv2dNormActivation(inp, hidden, kernel_size=1, norm_layer=norm, activation_layer=_nn.ReLU6)] if expand_ratio != 1 else []
        self.conv = _nn.Sequential(*wider, Conv2dNormActivation(hidden, hidden, stride=stride, groups=hidden, norm_layer=norm, activation_layer=_nn.ReLU6),
                                   _nn.Conv2d(hidden, oup, 1, 1, 0, bias=False), norm(oup))

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """(N, 3, H, W) to (N, num_classes).  inverted_residual_setting: rows of expansion, channels, blocks and stride; width_mult scales the channels."""

    def __init__(self, num_classes: int = 1000, width_mult: float = 1.0, inverted_residual_setting: Any = None, round_nearest: int = 8, block: Any = None,
                 norm_layer: Any = None, dropout: float = 0.2) -> None:
        super().__init__()
        block, norm = block or InvertedResidual, norm_layer or _nn.BatchNorm2d
        rows = inverted_residual_setting or ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
        if len(rows) == 0 or len(rows[0]) != 4:
            raise ValueError(f"inverted_residual_setting should be non-empty or a 4-element list, got {inverted_residual_setting}")
        width = _make_divisible(32 * width_mult, round_nearest)
        self.last_channel = _make_divisible(1280 * max(1.0, width_mult), round_nearest)
        features: list[Any] = [Conv2dNormActivation(3, width, stride=2, norm_layer=norm, activation_layer=_nn.ReLU6)]
        for t, c, n, s in rows:
            out = _make_divisible(c * width_mult, round_nearest)
            for i in range(n):
                features.append(block(width, out, s if i == 0 else 1, expand_ratio=t, norm_layer=norm))
                width = out
        features.append(Conv2dNormActivation(width, self.last_channel, kernel_size=1, norm_layer=norm, activation_layer=_nn.ReLU6))
        self.features = _nn.Sequential(*features)
        self.classifier = _nn.Sequential(_nn.Dropout(p=dropout), _nn.Linear(self.last_channel, num_classes))
        for m in self.modules():
            if isinstance(m, _nn.Conv2d):
                init.kaiming_normal_(m.weight, mode="fan_out")
                if m.bias is not None:
                    init.zeros_(m.bias)
            elif isinstance(m, (_nn.BatchNorm2d, _nn.GroupNorm)):
                init.ones_(m.weight)
                init.zeros_(m.bias)
            elif isinstance(m, _nn.Linear):
                init.normal_(m.weight, 0, 0.01)
                init.zeros_(m.bias)

    def forward(self, x: Any) -> Any:
        return self.classifier(functional.adaptive_avg_pool2d(self.features(x), (1, 1)).flatten(1))


def mobilenet_v2(*, weights: Any = None, progress: bool = True, pretrained: bool = False, **options: Any) -> MobileNetV2:
    """53 layers."""
    made: MobileNetV2 = filled("mobilenet_v2", MobileNetV2(**options), weights, pretrained)
    return made

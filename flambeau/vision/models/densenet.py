"""DenseNets (Huang et al., 2017): each layer reads what all before it in its block gave; keys as torchvision's."""

from __future__ import annotations

from typing import Any

from ... import nn
from ..._core import ops
from ..._core.tensor import Tensor
from ...nn import functional, init
from .weights import filled

_nn: Any = nn
_ops: Any = ops
# growth, layers of each block, channels before the first
_PLANS = {121: (32, (6, 12, 24, 16), 64), 161: (48, (6, 12, 36, 24), 96), 169: (32, (6, 12, 32, 32), 64), 201: (32, (6, 12, 48, 32), 64)}


class _DenseLayer(nn.Module):
    def __init__(self, num_input_features: int, growth_rate: int, bn_size: int, drop_rate: float, memory_efficient: bool = False) -> None:
        super().__init__()
        self.norm1, self.relu1 = _nn.BatchNorm2d(num_input_features), _nn.ReLU(inplace=True)
        self.conv1 = _nn.Conv2d(num_input_features, bn_size * growth_rate, 1, bias=False)
        self.norm2, self.relu2 = _nn.BatchNorm2d(bn_size * growth_rate), _nn.ReLU(inplace=True)
        self.conv2 = _nn.Conv2d(bn_size * growth_rate, growth_rate, 3, padding=1, bias=False)
        self.drop_rate, self.memory_efficient = float(drop_rate), memory_efficient

    def bn_function(self, inputs: list[Any]) -> Any:
        """What all before gave, through the first convolution."""
        return self.conv1(self.relu1(self.norm1(_ops.cat(inputs, 1))))

    def forward(self, input: Any) -> Any:  # noqa: A002 (torchvision's name)
        given = [input] if isinstance(input, Tensor) else list(input)
        if self.memory_efficient and any(x.requires_grad for x in given):
            from ...utils.checkpoint import checkpoint
            narrow = checkpoint(lambda *xs: self.bn_function(list(xs)), *given, use_reentrant=False)
        else:
            narrow = self.bn_function(given)
        made = self.conv2(self.relu2(self.norm2(narrow)))
        return functional.dropout(made, self.drop_rate, self.training) if self.drop_rate > 0 else made


class _DenseBlock(nn.ModuleDict):
    def __init__(self, num_layers: int, num_input_features: int, bn_size: int, growth_rate: int, drop_rate: float, memory_efficient: bool = False) -> None:
        super().__init__()
        for i in range(num_layers):
            self.add_module(f"denselayer{i + 1}", _DenseLayer(num_input_features + i * growth_rate, growth_rate, bn_size, drop_rate, memory_efficient))

    def forward(self, init_features: Any) -> Any:
        features = [init_features]
        for layer in self.values():
            features.append(layer(features))
        return _ops.cat(features, 1)


class _Transition(nn.Sequential):
    def __init__(self, num_input_features: int, num_output_features: int) -> None:
        super().__init__()
        self.norm, self.relu = _nn.BatchNorm2d(num_input_features), _nn.ReLU(inplace=True)
        self.conv, self.pool = _nn.Conv2d(num_input_features, num_output_features, 1, bias=False), _nn.AvgPool2d(2, 2)


class DenseNet(nn.Module):
    """(N, 3, H, W) to (N, num_classes).  growth_rate: channels a layer adds; memory_efficient: what a layer's first convolution read is
    computed again in backward."""

    def __init__(self, growth_rate: int = 32, block_config: Any = (6, 12, 24, 16), num_init_features: int = 64, bn_size: int = 4, drop_rate: float = 0,
                 num_classes: int = 1000, memory_efficient: bool = False) -> None:
        super().__init__()
        self.features = _nn.Sequential()
        for name, part in (("conv0", _nn.Conv2d(3, num_init_features, 7, 2, 3, bias=False)), ("norm0", _nn.BatchNorm2d(num_init_features)),
                           ("relu0", _nn.ReLU(inplace=True)), ("pool0", _nn.MaxPool2d(3, 2, 1))):
            self.features.add_module(name, part)
        width = num_init_features
        for i, layers in enumerate(block_config):
            self.features.add_module(f"denseblock{i + 1}", _DenseBlock(layers, width, bn_size, growth_rate, drop_rate, memory_efficient))
            width += layers * growth_rate
            if i != len(block_config) - 1:
                self.features.add_module(f"transition{i + 1}", _Transition(width, width // 2))
                width //= 2
        self.features.add_module("norm5", _nn.BatchNorm2d(width))
        self.classifier = _nn.Linear(width, num_classes)
        for m in self.modules():
            if isinstance(m, _nn.Conv2d):
                init.kaiming_normal_(m.weight)
            elif isinstance(m, _nn.Linear):
                init.constant_(m.bias, 0)

    def forward(self, x: Any) -> Any:
        features = functional.relu(self.features(x), inplace=True)
        return self.classifier(functional.adaptive_avg_pool2d(features, (1, 1)).flatten(1))


def _builder(depth: int) -> Any:
    growth, blocks, first = _PLANS[depth]
    name = f"densenet{depth}"

    def build(*, weights: Any = None, progress: bool = True, pretrained: bool = False, **options: Any) -> DenseNet:
        made: DenseNet = filled(name, DenseNet(growth, blocks, first, **options), weights, pretrained)
        return made
    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{depth} layers, {growth} channels each."
    return build


densenet121, densenet161, densenet169, densenet201 = (_builder(d) for d in _PLANS)

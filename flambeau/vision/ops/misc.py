"""Layers of detection models (torchvision.ops.misc)."""

from __future__ import annotations

from typing import Any

from ... import nn
from ..._core import ops
from ..._core.tensor import Tensor

_ops: Any = ops


class FrozenBatchNorm2d(nn.Module):
    """Batch normalization whose statistics and weights never change: all four are buffers of `num_features` elements."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", _ops.ones(num_features))
        self.register_buffer("bias", _ops.zeros(num_features))
        self.register_buffer("running_mean", _ops.zeros(num_features))
        self.register_buffer("running_var", _ops.ones(num_features))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        state_dict.pop(prefix + "num_batches_tracked", None)  # of a batch norm that was frozen
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, x: Any) -> Tensor:
        """(N, C, H, W), each channel by its own."""
        own: Any = self
        scale = own.weight * (own.running_var + self.eps).rsqrt()
        shift = own.bias - own.running_mean * scale
        made: Tensor = x * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.weight)}, eps={self.eps})"


class Conv2dNormActivation(nn.Sequential):
    """A convolution, a norm and an activation; None leaves one of the last two out."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any = 3, stride: Any = 1, padding: Any = None, groups: int = 1,
                 norm_layer: Any = nn.BatchNorm2d, activation_layer: Any = nn.ReLU, dilation: Any = 1, inplace: bool | None = True,
                 bias: bool | None = None) -> None:
        if padding is None:
            sizes = [k if isinstance(k, (tuple, list)) else (k, k) for k in (kernel_size, dilation)]
            padding = tuple((k - 1) // 2 * d for k, d in zip(*sizes))
        layers: list[Any] = [nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
                                       norm_layer is None if bias is None else bias)]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*layers)
        self.out_channels = out_channels


class SqueezeExcitation(nn.Module):
    """Channels weighed by what two layers make of their means.  J. Hu et al., "Squeeze-and-excitation networks", 2018."""

    def __init__(self, input_channels: int, squeeze_channels: int, activation: Any = nn.ReLU, scale_activation: Any = nn.Sigmoid) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation, self.scale_activation = activation(), scale_activation()

    def forward(self, input: Any) -> Any:  # noqa: A002 (PyTorch's name)
        return self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(input))))) * input


class MLP(nn.Sequential):
    """Linear layers with norms, activations and dropout between them."""

    def __init__(self, in_channels: int, hidden_channels: list[int], norm_layer: Any = None, activation_layer: Any = nn.ReLU, inplace: bool | None = None,
                 bias: bool = True, dropout: float = 0.0) -> None:
        options = {} if inplace is None else {"inplace": inplace}
        layers: list[Any] = []
        width = in_channels
        for hidden in hidden_channels[:-1]:
            layers.append(nn.Linear(width, hidden, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(hidden))
            layers += [activation_layer(**options), nn.Dropout(dropout, **options)]
            width = hidden
        super().__init__(*layers, nn.Linear(width, hidden_channels[-1], bias=bias), nn.Dropout(dropout, **options))


class Permute(nn.Module):
    """`permute` as a layer."""

    def __init__(self, dims: list[int]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Any) -> Any:
        return x.permute(self.dims)


def stochastic_depth(input: Any, p: float, mode: str, training: bool = True) -> Any:  # noqa: A002
    """Zeros in the place of the whole batch or of single rows, with probability p, the rest scaled to keep the mean.
    G. Huang et al., "Deep networks with stochastic depth", 2016.  Raises ValueError for another mode or a p outside of [0, 1]."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}")
    if mode not in ("batch", "row"):
        raise ValueError(f"mode has to be either 'batch' or 'row', but got {mode}")
    if not training or p == 0.0:
        return input
    noise = input.new_empty([1 if mode == "batch" else input.shape[0]] + [1] * (input.dim() - 1)).bernoulli_(1 - p)
    return input * (noise.div_(1 - p) if p < 1 else noise)


class StochasticDepth(nn.Module):
    """`stochastic_depth` as a layer."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: Any) -> Any:  # noqa: A002
        return stochastic_depth(input, self.p, self.mode, self.training)

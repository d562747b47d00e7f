"""Activations with a second operand or a draw: `glu`, `prelu`, `rrelu`."""

from __future__ import annotations

from typing import Any

from ..._core.engine.fields import has
from ..._core.kernels import expr as E
from ..._core.ops.checks import of_kinds
from ..._core.ops.elementwise import Pointwise
from ..._core.ops.random import slopes as _slopes
from .lazy_functional import F

_gated = Pointwise("glu", lambda a, b: a / (1.0 + E.exp(-b)), 2)
_leaky = Pointwise("prelu", lambda x, w: E.where(x > 0.0, x, w * x), 2)


def glu(input: Any, dim: int = -1) -> Any:
    """a sigmoid(b), a and b the halves of the input along `dim`. Raises RuntimeError for an odd size."""
    if input.dim() == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    size = input.size(dim)
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    of_kinds("glu", input, "f")
    return _gated((input.narrow(dim, 0, size // 2), input.narrow(dim, size // 2, size // 2)))


def prelu(input: Any, weight: Any) -> Any:
    """x where x > 0, else weight x; `weight` holds one slope, or one for each index of dimension 1."""
    if weight.dtype is not input.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {input.dtype} and {weight.dtype}")
    if weight.dim() > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}")
    if weight.numel() != 1:
        if input.dim() == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input.size(1) if input.dim() >= 2 else 1
        if channels != weight.numel():
            raise RuntimeError(f"Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                               f"{weight.numel()} and channel size = {channels}.")
        weight = weight.reshape(-1, *(1,) * (input.dim() - 2))
    elif weight.dim() == 1 and input.dim() == 0:
        weight = weight.reshape(())
    of_kinds("prelu_cpu", input, "f")
    return _leaky((input, weight))


def rrelu(input: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
          inplace: bool = False) -> Any:
    """Leaky ReLU with slopes drawn from [lower, upper] in training, else with their mean (Xu et al., 2015)."""
    if lower > upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound, got {lower} and {upper}")
    if not training:
        return F.leaky_relu(input, (lower + upper) / 2, inplace)
    slopes = _slopes(input.detach(), lower, upper)
    return input.mul_(slopes) if inplace else input * slopes


def rrelu_(input: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Any:
    """`rrelu`, in place."""
    return rrelu(input, lower, upper, training, True)


has("rrelu rrelu_", batch="draws")
has("glu", batch="trailing")

"""Layers joined for inference: a convolution or a linear layer with the batch norm after it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ..._core import ops as _ops
from ..parameter import Parameter

ops: Any = _ops

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of a convolution that does what `conv` and then `bn` do, both in eval mode.  transpose: a transposed convolution."""
    return _fused(conv, bn, transpose)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of a linear layer that does what `linear` and then `bn` do.  Raises ValueError for features that differ in number."""
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise ValueError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    made = deepcopy(linear)
    made.weight, made.bias = fuse_linear_bn_weights(made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    return made


def _fused(layer: Any, bn: Any, transpose: bool) -> Any:
    if layer.training or bn.training:
        raise ValueError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError("Only support BatchNorm layers with tracked stats")
    made = deepcopy(layer)
    made.weight, made.bias = fuse_conv_bn_weights(made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose)
    return made


def fuse_conv_bn_weights(conv_w: Any, conv_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any, transpose: bool = False) -> Any:
    """(weight, bias) of the joined convolution, as parameters."""
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    return _joined(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_linear_bn_weights(linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any) -> Any:
    """(weight, bias) of the joined linear layer, as parameters."""
    return _joined(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _joined(weight: Any, bias: Any, mean: Any, var: Any, eps: float, scale: Any, shift: Any, shape: Any) -> Any:
    bias = ops.zeros_like(mean) if bias is None else bias
    trained = weight.requires_grad, bias.requires_grad
    scale = ops.ones_like(mean) if scale is None else scale
    shift = ops.zeros_like(mean) if shift is None else shift
    factor = scale * (var + eps).rsqrt()
    return (Parameter((weight * factor.reshape(shape)).to(weight.dtype).detach(), trained[0]),
            Parameter(((bias - mean) * factor + shift).to(bias.dtype).detach(), trained[1]))

"""Dropout of channels and the dropout for self-normalising networks."""

from __future__ import annotations

import math
from typing import Any

from ..._core import ops
from ..._core.engine.fields import has
from ..._core.errors import warn
from .lazy_functional import F


def _check(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _drop_channels(input: Any, p: float, training: bool, inplace: bool, channel_dims: int) -> Any:
    """Zeroes whole channels: one draw for each index of the first `channel_dims` dimensions."""
    _check(p)
    if not training or p == 0.0:
        return input
    shape = tuple(input.shape[:channel_dims]) + (1,) * (input.dim() - channel_dims)
    mask = F.dropout(ops.ones(shape, dtype=input.dtype, device=input.device), p, True)
    return input.mul_(mask) if inplace else input * mask


def _batch_dims(name: str, input: Any, spatial: int) -> int:
    """How many dimensions lie before the spatial ones. Warns for other than (N, C, ...) and (C, ...)."""
    if input.dim() not in (spatial + 1, spatial + 2):

        warn(f"{name}: Received a {input.dim()}-D input to {name}, which is deprecated and will result in an "
             f"error in a future release. To retain the behavior and silence this warning, please use dropout "
             f"instead. Note that {name} exists to provide channel-wise dropout on inputs with {spatial} "
             f"spatial dimensions, a channel dimension, and an optional batch dimension (i.e. {spatial + 1}D "
             f"or {spatial + 2}D inputs).")
        return min(2, int(input.dim()))
    return int(input.dim()) - spatial


def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeroes whole channels of (N, C, L) or (C, L) with probability p and scales the rest by 1/(1-p)."""
    _check(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that "
                           "dropout1d exists to provide channel-wise dropout on inputs with 1 spatial dimension, a "
                           "channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs).")
    return _drop_channels(input, p, training, inplace, input.dim() - 1)


def dropout2d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeroes whole channels of (N, C, H, W) with probability p and scales the rest by 1/(1-p).

    A 3-D input is (N, C, L), as in PyTorch, which keeps this for the sake of older programs.
    """
    _check(p)
    dims = _batch_dims("dropout2d", input, 2)
    if input.dim() == 3:
        warn("dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - input is interpreted "
             "as shape (N, C, L), where C is the channel dim. This behavior will change in a future release to interpret the input as one without "
             "a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise dropout behavior, please switch to using dropout1d instead.")
    return _drop_channels(input, p, training, inplace, 2 if input.dim() == 3 else dims)


def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W) with probability p and scales the rest by 1/(1-p)."""
    _check(p)
    return _drop_channels(input, p, training, inplace, _batch_dims("dropout3d", input, 3))


def feature_dropout(input: Any, p: float = 0.5, training: bool = True) -> Any:
    """Zeroes whole channels of (N, C, ...)."""
    _check(p)
    return _drop_channels(input, p, training, False, 2)


# The value SELU tends to for very negative inputs: -scale * alpha (Klambauer et al., 2017).
_SATURATION = -1.0507009873554805 * 1.6732632423543772


def _alpha(input: Any, p: float, training: bool, inplace: bool, channel_dims: int | None) -> Any:
    _check(p)
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return input.mul_(0) if inplace else input * 0
    shape = tuple(input.shape) if channel_dims is None else (
        tuple(input.shape[:channel_dims]) + (1,) * (input.dim() - channel_dims))
    kept = ops.empty(shape, dtype=input.dtype, device=input.device).bernoulli_(1 - p)
    scale = 1.0 / math.sqrt((_SATURATION * _SATURATION * p + 1) * (1 - p))
    # in PyTorch's steps, each of which rounds
    shift = (kept - 1) * (-_SATURATION * scale) + -_SATURATION * scale * p
    return input.mul_(kept * scale).add_(shift) if inplace else input * (kept * scale) + shift


def alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """Sets elements to SELU's saturation with probability p, then scales and shifts to keep mean 0 and variance 1."""
    return _alpha(input, p, training, inplace, None)


def feature_alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """`alpha_dropout` of whole channels of (N, C, ...)."""
    return _alpha(input, p, training, inplace, min(2, input.dim()))


def _written(input: Any, p: float, train: bool, drop: Any) -> Any:  # noqa: A002
    """What the in-place forms share: the range of p, and which calls change nothing."""
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not train or p == 0.0 or not input.numel():
        return input
    return input.mul_(0) if p == 1.0 else drop()


def _has_channels(input: Any) -> None:  # noqa: A002
    if input.dim() < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")


def alpha_dropout_(input: Any, p: float, train: bool) -> Any:  # noqa: A002
    """`alpha_dropout` in place.  Raises RuntimeError for p that is no probability."""
    return _written(input, p, train, lambda: _alpha(input, p, True, True, None))


def feature_dropout_(input: Any, p: float, train: bool) -> Any:  # noqa: A002
    """`feature_dropout` of (N, C, ...) in place.  Raises RuntimeError for p that is no probability, and for fewer axes."""
    def drop() -> Any:
        _has_channels(input)
        return _drop_channels(input, p, True, True, 2)
    return _written(input, p, train, drop)


def feature_alpha_dropout_(input: Any, p: float, train: bool) -> Any:  # noqa: A002
    """`feature_alpha_dropout` of (N, C, ...) in place.  Raises RuntimeError for p that is no probability, and for fewer axes."""
    def drop() -> Any:
        _has_channels(input)
        return _alpha(input, p, True, True, 2)
    return _written(input, p, train, drop)


has("alpha_dropout dropout1d dropout2d dropout3d feature_alpha_dropout feature_dropout", batch="draws")
has("alpha_dropout dropout2d dropout3d feature_alpha_dropout", sparse="composite")

"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

from .. import layout
from ..dtypes import bool_
from ..tensor import Tensor
from .checks import same_device
from .table import op


def _bias(mask: Tensor, like: Tensor) -> Tensor:
    """A mask as what is added to the scores: -inf where a bool mask is false."""
    if mask.m.dtype is bool_:
        return like.new_zeros(tuple(mask.m.shape)).masked_fill(~mask, -math.inf)
    return mask


@op(method=False, spaces=("nn.functional",))
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Tensor:
    """softmax(query key^T * scale + mask) value, for query (..., L, E), key (..., S, E), value (..., S, Ev).

    attn_mask: bool (True takes part) or added to the scores, broadcast to (..., L, S).  is_causal: position i sees 0..i.
    scale: 1 / sqrt(E) by default.  enable_gqa: fewer key and value heads, each shared by a run of query heads.
    A. Vaswani et al., "Attention is all you need", 2017.
    """
    same_device("scaled_dot_product_attention", query, key, value, attn_mask)
    for name, t in (("key", key), ("value", value)):
        if t.m.dtype is not query.m.dtype:
            raise RuntimeError(f"Expected query, key, and value to have the same dtype, but got query.dtype: {query.m.dtype} {name}.dtype: "
                               f"{t.m.dtype} instead.")
        if len(t.m.shape) < 2:
            raise RuntimeError(f"Expected query, key, and value to all be  at least 2 dimensional, but got {name} of {len(t.m.shape)} "
                               "dimensions")
    if is_causal and attn_mask is not None:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    if enable_gqa and len(query.m.shape) > 2:
        key = key.repeat_interleave(query.m.shape[-3] // key.m.shape[-3], -3)
        value = value.repeat_interleave(query.m.shape[-3] // value.m.shape[-3], -3)
    factor = 1.0 / math.sqrt(query.m.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    rows, cols = scores.m.shape[-2:]
    if is_causal:
        from .creation import ones
        attn_mask = ones(rows, cols, dtype=bool_, device=query.m.device).tril()
    if attn_mask is not None:
        if layout.broadcast_shapes(attn_mask.m.shape, scores.m.shape) != tuple(scores.m.shape):
            scores = scores.expand(layout.broadcast_shapes(attn_mask.m.shape, scores.m.shape))
        scores = scores + _bias(attn_mask, scores)
    weights = scores.softmax(-1)
    if attn_mask is not None and attn_mask.m.dtype is bool_:
        # a row that sees nothing gives zeros, not NaN
        weights = weights.masked_fill(weights.isnan(), 0.0) if not is_causal else weights
    if dropout_p > 0.0:
        from .random import dropout
        weights = dropout(weights, dropout_p)
    made: Any = weights @ value
    return made  # type: ignore[no-any-return]

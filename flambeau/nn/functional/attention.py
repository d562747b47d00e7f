"""`multi_head_attention_forward`: projections, heads, attention and the projection of the joined heads."""

from __future__ import annotations

import math
from typing import Any

from ..._core import dtypes, ops
from ..._core.engine.fields import has
from .lazy_functional import F


def _as_float_mask(mask: Any, name: str, like: Any) -> Any:
    """A mask to be added to scores: True becomes -inf."""
    if mask is None:
        return None
    if mask.dtype is dtypes.bool_:
        return ops.zeros(mask.shape, dtype=like.dtype, device=mask.device).masked_fill(mask, -math.inf)
    if not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return mask


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    """`linear` of (L, N, E) in the order that its rows have in memory: one given batch first is not copied."""
    if not x.is_contiguous():
        turned = x.transpose(0, 1)
        if turned.is_contiguous():
            return F.linear(turned, weight, bias).transpose(0, 1)
    return F.linear(x, weight, bias)


def _project(query: Any, key: Any, value: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
    """q, k and v from one stacked weight (3E, E), with as few products as the inputs' sameness allows."""
    e = query.size(-1)
    if key is value:
        if query is key:
            qkv = _linear(query, weight, bias)
            return qkv[..., :e], qkv[..., e:2 * e], qkv[..., 2 * e:]
        b_q, b_kv = (None, None) if bias is None else (bias[:e], bias[e:])
        kv = _linear(key, weight[e:], b_kv)
        return _linear(query, weight[:e], b_q), kv[..., :e], kv[..., e:]
    w = weight.chunk(3)
    b = (None, None, None) if bias is None else bias.chunk(3)
    return _linear(query, w[0], b[0]), _linear(key, w[1], b[1]), _linear(value, w[2], b[2])


def _check_mask(mask: Any, length: int, source: int, heads: int) -> Any:
    """`attn_mask` with three dimensions. Raises RuntimeError for a wrong shape."""
    if mask.dim() == 2:
        if tuple(mask.shape) != (length, source):
            raise RuntimeError(f"The shape of the 2D attn_mask is {mask.shape}, but should be {(length, source)}.")
        return mask.unsqueeze(0)
    if mask.dim() == 3:
        if tuple(mask.shape) != (heads, length, source):
            raise RuntimeError(f"The shape of the 3D attn_mask is {mask.shape}, but should be "
                               f"{(heads, length, source)}.")
        return mask
    raise RuntimeError(f"attn_mask's dimension {mask.dim()} is not supported")


def multi_head_attention_forward(
        query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any,
        in_proj_bias: Any, bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_proj_weight: Any,
        out_proj_bias: Any, training: bool = True, key_padding_mask: Any = None, need_weights: bool = True,
        attn_mask: Any = None, use_separate_proj_weight: bool = False, q_proj_weight: Any = None,
        k_proj_weight: Any = None, v_proj_weight: Any = None, static_k: Any = None, static_v: Any = None,
        average_attn_weights: bool = True, is_causal: bool = False) -> tuple[Any, Any]:
    """Multi-head attention of (L, N, E) queries over (S, N, E) keys and values; unbatched inputs lack N.

    `attn_mask` (L, S) or (N*heads, L, S) and `key_padding_mask` (N, S) are boolean (True: left out) or are added to the
    scores. Returns the output (L, N, E) and the weights (N, L, S) (or (N, heads, L, S) if they are not averaged), or
    None for the weights. Raises AssertionError or RuntimeError for shapes that do not fit.
    """
    batched = query.dim() == 3
    if query.dim() not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query "
                             "tensor")
    if key.dim() != query.dim() or value.dim() != query.dim():
        raise AssertionError(f"For {'batched' if batched else 'unbatched'} ({query.dim()}-D) `query`, expected `key` "
                             f"and `value` to be {query.dim()}-D but found {key.dim()}-D and {value.dim()}-D tensors "
                             "respectively")
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    if not batched:
        same_kv, same_qk = key is value, query is key
        query = query.unsqueeze(1)
        key = query if same_qk else key.unsqueeze(1)
        value = key if same_kv else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, embed = query.shape
    source = key.shape[0]
    if embed != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed}")
    head = embed // num_heads
    if head * num_heads != embed:
        raise AssertionError(f"embed_dim {embed} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's "
                                 f"{value.shape[:2]}")
        b = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        q = _linear(query, q_proj_weight, b[0])
        k = _linear(key, k_proj_weight, b[1])
        v = _linear(value, v_proj_weight, b[2])
    else:
        if key.shape != value.shape:
            raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
        q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias)

    padding = _as_float_mask(key_padding_mask, "key_padding_mask", query)
    if padding is not None and tuple(padding.shape) != (batch, source):
        raise AssertionError(f"key_padding_mask should have shape {(batch, source)}, but got {tuple(padding.shape)}")
    # A causal mask alone needs no matrix, if nobody asks for the weights.
    causal_only = is_causal and key_padding_mask is None and not need_weights and bias_k is None and not add_zero_attn
    if causal_only:
        mask = None
    else:
        is_causal = False
        mask = _as_float_mask(attn_mask, "attn_mask", query)
        if mask is not None:
            mask = _check_mask(mask, length, source, batch * num_heads)

    if bias_k is not None and bias_v is not None:
        k = ops.cat([k, bias_k.repeat(1, batch, 1)])
        v = ops.cat([v, bias_v.repeat(1, batch, 1)])
        mask = None if mask is None else F.pad(mask, (0, 1))
        padding = None if padding is None else F.pad(padding, (0, 1))
    drop = dropout_p if training else 0.0
    if not need_weights and static_k is None and static_v is None and not add_zero_attn:
        if padding is not None:
            padding = padding.reshape(batch, 1, 1, k.shape[0])
            mask = padding if mask is None else mask.unflatten(0, (-1, num_heads if mask.shape[0] > 1 else 1)) + padding
        elif mask is not None:
            mask = mask.unflatten(0, (-1, num_heads if mask.shape[0] > 1 else 1))
        # as the projections lie: no head is copied
        q, k, v = (x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3) for x in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, mask, drop, is_causal)
        out = _linear(out.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
        return (out if batched else out.squeeze(1)), None
    q = q.reshape(length, batch * num_heads, head).transpose(0, 1)
    k = k.reshape(k.shape[0], batch * num_heads, head).transpose(0, 1) if static_k is None else static_k
    v = v.reshape(v.shape[0], batch * num_heads, head).transpose(0, 1) if static_v is None else static_v
    if add_zero_attn:
        zero = ops.zeros((batch * num_heads, 1, head), dtype=k.dtype, device=k.device)
        k, v = ops.cat([k, zero], 1), ops.cat([v, zero], 1)
        mask = None if mask is None else F.pad(mask, (0, 1))
        padding = None if padding is None else F.pad(padding, (0, 1))
    source = k.size(1)
    if padding is not None:
        padding = padding.reshape(batch, 1, 1, source).expand(-1, num_heads, -1, -1)
        padding = padding.reshape(batch * num_heads, 1, source)
        mask = padding if mask is None else mask + padding

    if need_weights:
        scores = (q * math.sqrt(1.0 / head)).bmm(k.transpose(-2, -1))
        if mask is not None:
            scores = scores + mask
        weights = F.softmax(scores, -1)
        if drop > 0.0:
            weights = F.dropout(weights, drop)
        out = weights.bmm(v)
        out = out.transpose(0, 1).reshape(length * batch, embed)
        out = F.linear(out, out_proj_weight, out_proj_bias).unflatten(0, (length, batch))
        weights = weights.reshape(batch, num_heads, length, source)
        if average_attn_weights:
            weights = weights.mean(1)
        return (out, weights) if batched else (out.squeeze(1), weights.squeeze(0))

    if mask is not None:
        if mask.shape[0] == 1:
            mask = mask.unsqueeze(0)
        else:
            mask = mask.unflatten(0, (batch, num_heads))
    q, k, v = (x.unflatten(0, (batch, num_heads)) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, mask, drop, is_causal)
    out = out.permute(2, 0, 1, 3).reshape(length * batch, embed)
    out = F.linear(out, out_proj_weight, out_proj_bias).unflatten(0, (length, batch))
    return (out if batched else out.squeeze(1)), None

has("multi_head_attention_forward", batch="composite")

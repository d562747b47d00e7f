"""Attention of sequences of different lengths that lie one behind the other (torch.nn.attention.varlen)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..._core import ops as _ops
from ..._core.dtypes import bool_, float32
from ..._core.tensor import Tensor
from .. import functional as F

ops: Any = _ops

__all__ = ["AuxRequest", "varlen_attn"]


class AuxRequest(NamedTuple):
    """What else `varlen_attn` shall give: the logarithms of the softmax's sums."""

    lse: bool = False


def varlen_attn(query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor | None, max_q: int, max_k: int, *,
                return_aux: AuxRequest | None = None, scale: float | None = None, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False,
                seqused_k: Tensor | None = None, block_table: Tensor | None = None, num_splits: int | None = None) -> Any:
    """Each sequence's attention to itself.

    query, key, value: (T, H, D), all sequences one behind the other.  cu_seq_q, cu_seq_k: where each begins, and where the last ends, (N + 1,) integers.
    window_size: how many places to the left and to the right are seen, -1 for all; (-1, 0) is causal, counted from the sequences' ends.
    enable_gqa: fewer heads of keys than of queries.  max_q, max_k, num_splits: accepted.
    Gives (T, H, D), and with `return_aux` the logarithms of the sums, (H, T) float32.
    Raises RuntimeError for heads that do not match, ValueError for places that are not the tensors' own, NotImplementedError for pages of keys.
    """
    if cu_seq_k is None or seqused_k is not None or block_table is not None:
        raise NotImplementedError("varlen_attn: keys in pages (seqused_k, block_table, or no cu_seq_k) are not there")
    if query.shape[-2] != key.shape[-2] and not enable_gqa:
        raise RuntimeError(f"varlen_attn: query has {query.shape[-2]} heads and key {key.shape[-2]}; expected enable_gqa=True")
    begins, keys = cu_seq_q.tolist(), cu_seq_k.tolist()
    if len(begins) != len(keys) or (begins[-1], keys[-1]) != (query.shape[0], key.shape[0]) or sorted(begins) != begins or sorted(keys) != keys:
        raise ValueError(f"varlen_attn: cu_seq_q {begins} and cu_seq_k {keys} must be as long as one another, rise, and end at {query.shape[0]} and "
                         f"{key.shape[0]}")
    group = query.shape[-2] // key.shape[-2]
    left, right = window_size
    found, sums = [], []
    for a, b, c, d in zip(begins, begins[1:], keys, keys[1:]):
        if a == b:
            continue
        q, k, v = (t.transpose(0, 1) for t in (query[a:b], key[c:d], value[c:d]))
        if group > 1:
            k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
        mask = _window(b - a, d - c, left, right, query.device)
        found.append(F.scaled_dot_product_attention(q[None], k[None], v[None], mask, scale=scale)[0].transpose(0, 1))
        if return_aux is not None and return_aux.lse:
            scores = (q.to(float32) @ k.to(float32).transpose(-1, -2)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
            sums.append((scores if mask is None else scores.masked_fill(~mask, -math.inf)).logsumexp(-1))
    out = ops.cat(found) if found else query.new_empty((0, query.shape[1], value.shape[2]))
    return (out, ops.cat(sums, 1)) if sums else out


def _window(q: int, k: int, left: int, right: int, device: Any) -> Tensor | None:
    """Which keys each query sees, (q, k); None for all."""
    if left < 0 and right < 0:
        return None
    apart = ops.arange(k, device=device)[None, :] - (ops.arange(q, device=device)[:, None] + (k - q))
    seen = ops.ones((q, k), dtype=bool_, device=device)
    if left >= 0:
        seen = seen & (apart >= -left)
    if right >= 0:
        seen = seen & (apart <= right)
    found: Tensor = seen
    return found

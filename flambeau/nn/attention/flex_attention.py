"""Attention whose scores and mask are functions (torch.nn.attention.flex_attention), computed as they are written: the functions
are called once, on tensors of positions that broadcast to (B, H, Q, K)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ..._core import ops as _ops
from ..._core.dtypes import bool_, int32
from ..._core.tensor import Tensor

ops: Any = _ops

__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask", "or_masks"]
_score_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # PyTorch's names, which programs annotate by
_mask_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
_SIZE = _DEFAULT_SPARSE_BLOCK_SIZE = 128  # the second is PyTorch's name


class AuxRequest(NamedTuple):
    """What else `flex_attention` shall give: the logarithms of the softmax's sums, the largest scores."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What else was asked for."""

    lse: Any = None
    max_scores: Any = None


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """A mask that hides nothing."""
    return token_q.new_ones((), dtype=bool_)


def and_masks(*mask_mods: Any) -> Any:
    """The mask that shows what all of them show."""
    def both(b: Any, h: Any, q: Any, k: Any) -> Any:
        made = noop_mask(b, h, q, k)
        for mask in mask_mods:
            made = made & mask(b, h, q, k)
        return made
    return _checked(mask_mods, both)


def or_masks(*mask_mods: Any) -> Any:
    """The mask that shows what one of them shows."""
    def either(b: Any, h: Any, q: Any, k: Any) -> Any:
        made = ~noop_mask(b, h, q, k)
        for mask in mask_mods:
            made = made | mask(b, h, q, k)
        return made
    return _checked(mask_mods, either)


def _checked(mask_mods: Any, made: Any) -> Any:
    if not all(callable(m) for m in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")
    return made


def _positions(batch: int, heads: int, length: int, source: int, device: Any) -> tuple[Any, Any, Any, Any]:
    def along(n: int, axis: int) -> Any:
        shape = [1, 1, 1, 1]
        shape[axis] = n
        return ops.arange(n, device=device).reshape(shape)
    return along(batch, 0), along(heads, 1), along(length, 2), along(source, 3)


def create_mask(mod_fn: Any, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None, **options: Any) -> Any:
    """The booleans (B, H, Q_LEN, KV_LEN) of a mask function ``mod_fn(b, h, q, kv)``; of a score function, where its scores are not -inf."""
    import inspect
    batch, heads = B or 1, H or 1
    where = _positions(batch, heads, Q_LEN, KV_LEN, device)
    scores = len(inspect.signature(mod_fn).parameters) == 5
    made = mod_fn(ops.zeros((), device=device), *where) != -math.inf if scores else mod_fn(*where)
    return made.expand(batch, heads, Q_LEN, KV_LEN)


class BlockMask:
    """Which blocks of keys each block of queries sees, and the function that masks inside them.

    Attributes: `kv_num_blocks` (B, H, row blocks) partly seen blocks of each row, `kv_indices` (B, H, row blocks, column blocks)
    which; `full_kv_num_blocks` and `full_kv_indices` those wholly seen, or None; `mask_mod`, `BLOCK_SIZE`, `seq_lengths`.
    """

    def __init__(self, seq_lengths: tuple[int, int], kv_num_blocks: Any, kv_indices: Any, full_kv_num_blocks: Any, full_kv_indices: Any,
                 BLOCK_SIZE: tuple[int, int], mask_mod: Any) -> None:
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices

    @classmethod
    def from_kv_blocks(cls, kv_num_blocks: Any, kv_indices: Any, full_kv_num_blocks: Any = None, full_kv_indices: Any = None,
                       BLOCK_SIZE: Any = _SIZE, mask_mod: Any = None, seq_lengths: Any = None) -> BlockMask:
        """A mask of blocks that are known already."""
        sizes = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
        lengths = seq_lengths or (kv_indices.shape[-2] * sizes[0], kv_indices.shape[-1] * sizes[1])
        return cls(lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, sizes, mask_mod or noop_mask)

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, Q_LEN, KV_LEN)."""
        return (*self.kv_num_blocks.shape[:2], *self.seq_lengths)

    def numel(self) -> int:
        """The elements of the mask."""
        return math.prod(self.shape)

    def to_dense(self) -> Any:
        """int32 (B, H, row blocks, column blocks): 1 for blocks that are seen, wholly or in part."""
        made = _dense(self.kv_num_blocks, self.kv_indices)
        return made if self.full_kv_num_blocks is None else made | _dense(self.full_kv_num_blocks, self.full_kv_indices)

    def sparsity(self) -> float:
        """The share of blocks that no query sees, in percent."""
        seen = self.to_dense()
        return 100.0 - 100.0 * float(seen.sum()) / int(seen.numel())

    def to(self, device: Any) -> BlockMask:
        """The same on another device."""
        a, b, c, d = (t if t is None else t.to(device) for t in (self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices))
        return BlockMask(self.seq_lengths, a, b, c, d, self.BLOCK_SIZE, self.mask_mod)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def _dense(counts: Any, which: Any) -> Any:
    columns = which.shape[-1]
    valid = ops.arange(columns, device=which.device) < counts.unsqueeze(-1)
    made = ops.zeros((*which.shape[:-1], columns + 1), dtype=counts.dtype, device=which.device)
    made.scatter_(-1, ops.where(valid, which, columns).long(), 1)
    return made[..., :columns]


def create_block_mask(mask_mod: Any, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None, BLOCK_SIZE: Any = _SIZE,
                      _compile: bool = False, separate_full_blocks: bool = True, compute_dq_write_order: bool = False,
                      dq_kv_order: bool = True) -> BlockMask:
    """The blocks of a mask function ``mask_mod(b, h, q, kv)``; B or H None for a mask that is the same for all of them.

    Block sizes are one number or (queries, keys).  separate_full_blocks=False: blocks wholly seen count among the others.
    What is said of the order of writes is for a compiled kernel, and accepted.
    """
    rows, columns = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    down, right = -Q_LEN % rows, -KV_LEN % columns
    whole = ops.constant_pad_nd(mask.to(int32), (0, right, 0, down))
    batch, heads = mask.shape[:2]
    counts = whole.reshape(batch, heads, (Q_LEN + down) // rows, rows, (KV_LEN + right) // columns, columns).sum((3, 5))
    full = counts == rows * columns
    if not separate_full_blocks:
        return BlockMask((Q_LEN, KV_LEN), *_listed(counts > 0), None, None, (rows, columns), mask_mod)
    return BlockMask((Q_LEN, KV_LEN), *_listed((counts > 0) & ~full), *_listed(full), (rows, columns), mask_mod)


def _listed(seen: Any) -> tuple[Any, Any]:
    """How many blocks of each row are seen, and their numbers, those first."""
    order = seen.to(int32).argsort(dim=-1, descending=True, stable=True)
    return seen.sum(-1).to(int32), order.to(int32)


def flex_attention(query: Any, key: Any, value: Any, score_mod: Any = None, block_mask: BlockMask | None = None, scale: float | None = None,
                   enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None, *, return_aux: AuxRequest | None = None) -> Any:
    """softmax(score_mod(scale query keyᵀ, b, h, q, kv)) value over the keys that `block_mask` shows.

    Args:
        query: (B, Hq, L, E).
        key, value: (B, H, S, E) and (B, H, S, Ev); with enable_gqa Hq is a multiple of H.
        score_mod: a function of the scores and the positions, made of operations that broadcast.
        scale: 1 / sqrt(E) by default.
        return_lse: also the logarithms of the sums of exponentials, (B, Hq, L).

    Raises ValueError for shapes that do not fit, or grouped heads without enable_gqa.
    """
    for name, t in (("query", query), ("key", key), ("value", value)):
        if not isinstance(t, Tensor) or len(t.meta.shape) != 4:
            raise ValueError(f"flex_attention: {name} must be a tensor of 4 dimensions, got {getattr(t, 'shape', type(t))}")
    batch, heads, length, depth = query.shape
    source = key.shape[2]
    if heads != key.shape[1]:
        if not enable_gqa:
            raise ValueError(f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={key.shape[1]}. "
                             "Try setting enable_gqa=True for GQA.")
        if heads % key.shape[1]:
            raise ValueError(f"flex_attention: {heads} heads of queries are no multiple of {key.shape[1]} of keys")
        key, value = (t.repeat_interleave(heads // key.shape[1], 1) for t in (key, value))
    where = _positions(batch, heads, length, source, query.device)
    scores = (query @ key.transpose(-2, -1)) * (1.0 / math.sqrt(depth) if scale is None else scale)
    wide = scores.float() if scores.dtype.itemsize < 4 else scores
    if score_mod is not None:
        wide = score_mod(wide, *where)
    if block_mask is not None:
        rows, columns = block_mask.seq_lengths
        if rows < length or columns < source:
            raise ValueError(f"flex_attention: block_mask was made for ({rows}, {columns}) positions, the query and the key have "
                             f"({length}, {source}); create_block_mask gives one that fits")
        wide = wide.masked_fill(~block_mask.mask_mod(*where), -math.inf)
    largest = wide.detach().amax(-1, True)
    unseen = largest == -math.inf
    weights = (wide.masked_fill(unseen, 0.0)).softmax(-1).masked_fill(unseen, 0.0).to(value.dtype)
    out = weights @ value
    if return_aux is not None:
        return out, AuxOutput(wide.logsumexp(-1) if return_aux.lse else None, largest.squeeze(-1) if return_aux.max_scores else None)
    return (out, wide.logsumexp(-1)) if return_lse else out

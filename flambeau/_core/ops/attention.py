"""Scaled dot-product attention: one kernel over blocks of queries and keys, or, where there is none, a softmax between products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .. import layout
from ..autograd import tape
from ..autograd.mode import _grad
from ..dtypes import bool_, dtype, float32, uint8
from ..kernels.specs import Attention, AttentionGradient
from ..runtime import backend_flags, caches, dispatch, generators
from ..runtime.device import device
from ..tensor import Meta, Tensor, alias, empty, meta, new
from .casts import to_dtype
from .checks import same_device
from .copies import clone, contiguous
from .draws import DROPOUT, filled
from .elementwise import saved_tensor
from .memory_format import contiguous_format
from .table import op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..kernels.specs import Spec

_launches: dict[Any, _Launch] = caches.cache(globals(), "_launches")
_direct: dict[Any, tuple[Any, Any]] = caches.cache(globals(), "_direct")  # calls that need no preparation, by their arguments


# what PyTorch calls it where kernels of the CPU do it, and elsewhere
_NAME, _NAMES = "ScaledDotProductFlashAttentionForCpuBackward0", {"cuda": "ScaledDotProductFlashAttentionBackward0"}


class _Plan:
    """One kind of attention: layouts, numbers, and where the random numbers of its dropout begin."""

    __slots__ = ("key", "sizes", "mask_steps", "mask_type", "causal", "p", "scale", "seed", "offset")

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, p: float, scale: float) -> None:
        batch, heads, length, depth = q.meta.shape
        self.sizes = (batch, heads, heads // k.meta.shape[1], length, k.meta.shape[2], depth, v.meta.shape[3])
        self.mask_type = None if mask is None else mask.meta.dtype
        self.mask_steps = None if mask is None else tuple(mask.meta.strides[:3])
        self.causal, self.p, self.scale, self.seed, self.offset = causal, p, scale, 0, 0
        self.key = (q.meta, k.meta, v.meta, None if mask is None else mask.meta, causal, p > 0.0, scale)

    def spec(self, kind: Callable[..., Spec], d: dtype, **steps: tuple[int, ...]) -> Spec:
        """What a backend is asked for."""
        if self.mask_steps is not None:
            steps["mask"] = self.mask_steps
        return kind(d, self.mask_type, self.causal, self.p > 0.0, self.sizes, self.scale, tuple(steps.items()), _ways())

    def draw(self, dev: device) -> None:
        """Takes the random numbers of its dropout."""
        if self.p > 0.0:
            batch, heads, _, length, source = self.sizes[:5]
            self.seed, self.offset = generators.default(dev).take(batch * heads * length * source)

    def numbers(self) -> tuple[Any, ...]:
        return (self.seed, self.offset, self.p) if self.p > 0.0 else ()

    def kept(self, like: Tensor) -> Tensor:
        """What dropout multiplied the weights of (batch, heads, length, source) by."""
        from ..runtime.generators import Generator
        g = Generator(like.meta.device)
        g.counts = True
        g.manual_seed(self.seed).set_offset(self.offset)
        batch, heads, _, length, source = self.sizes[:5]
        return filled(empty((batch, heads, length, source), like.meta.dtype, like.meta.device), DROPOUT, (self.p,), g)


def _is_narrow(t: Tensor) -> bool:
    """Whether sums are taken in a wider type."""
    return t.meta.dtype.kind == "f" and t.meta.dtype.itemsize == 2


def _ordered(shape: tuple[int, ...], like: Meta) -> tuple[int, ...]:
    """Dense strides with axes in the order of `like`'s, columns neighbours."""
    strides = tuple(layout.dense_like(shape, like.strides))
    return strides if strides[-1] == 1 else tuple(layout.contiguous_strides(shape))


# ----------------------------------------------------------------------------------------------------------------- composite
def _weights(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """softmax(q k^T scale + mask), zeros for a query that sees nothing."""
    scores = (q * scale) @ k.transpose(-2, -1)
    if causal:
        from .creation import ones
        scores = scores.masked_fill(~ones(*scores.meta.shape[-2:], dtype=bool_, device=q.meta.device).tril(), -math.inf)
    if mask is None:
        return scores.softmax(-1)
    scores = scores.masked_fill(~mask, -math.inf) if mask.meta.dtype is bool_ else scores + mask
    unseen = (scores == -math.inf).all(-1, True)
    return scores.masked_fill(unseen, 0.0).softmax(-1).masked_fill(unseen, 0.0)


def _composite(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, p: float, scale: float) -> Tensor:
    weights = _weights(q, k, mask, causal, scale)
    if p > 0.0:
        from .random import dropout
        weights = dropout(weights, p)
    made: Any = weights @ v
    return made  # type: ignore[no-any-return]


def _composite_back(plan: _Plan, g: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by operations that have gradients themselves."""
    if _is_narrow(q):
        wide = [to_dtype(t, float32) for t in (g, q, k, v)]
        added = mask if mask is None or mask.meta.dtype is bool_ else to_dtype(mask, float32)
        dq, dk, dv = [to_dtype(t, q.meta.dtype) for t in _composite_back(plan, wide[0], wide[1], wide[2], wide[3], added)]
        return dq, dk, dv
    batch, heads, group = plan.sizes[:3]
    lead = (batch, heads // group, group)

    def grouped(t: Tensor) -> Tensor:
        return t.reshape(*lead, *t.meta.shape[2:]) if t.meta.shape[1] == heads else t.unsqueeze(2)
    if mask is not None:
        mask = grouped(mask.expand(batch, heads, *mask.meta.shape[2:]))
    q5, k5, v5, g5 = grouped(q), k.unsqueeze(2), v.unsqueeze(2), g.reshape(*lead, *g.meta.shape[2:])
    weights = _weights(q5, k5, mask, plan.causal, plan.scale)
    slopes = g5 @ v5.transpose(-2, -1)
    kept = weights
    if plan.p > 0.0:
        keep = plan.kept(q).reshape(*lead, *weights.meta.shape[-2:])
        kept, slopes = weights * keep, slopes * keep
    slopes = weights * (slopes - (weights * slopes).sum(-1, True)) * plan.scale
    dq = (slopes @ k5).reshape(q.meta.shape)
    dk = (slopes.transpose(-2, -1) @ q5).sum(2)
    dv = (kept.transpose(-2, -1) @ g5).sum(2)
    return dq, dk, dv


# ----------------------------------------------------------------------------------------------------------------- one kernel
def _ask() -> tuple[bool, bool, bool]:
    may = backend_flags.values
    own = may["attention.flash"] or may["attention.efficient"] or may["attention.overrideable"]
    dnn = may["attention.cudnn"] and may["cudnn.enabled"] and not (own and may["attention.own_first"])
    return bool(dnn), bool(own), bool(may["deterministic"] or may["cudnn.deterministic"])


_asked = (-1, (False, False, False))


def _ways() -> tuple[bool, bool, bool]:
    """Of a GPU's kernels: whether cuDNN's may be taken, whether our own may, and whether sums must be taken in a fixed order."""
    global _asked
    if _asked[0] != backend_flags.turn:
        _asked = backend_flags.turn, _ask()
    return _asked[1]


class _Launch:
    """A bound launch with the layouts of its results and workspace, and the bits that no address may have."""

    __slots__ = ("call", "metas", "workspace", "aligned")

    def __init__(self, dev: device, spec: Spec, *metas: Meta) -> None:
        made = dispatch.find(dev, spec)
        self.call: Any = None if made is None else dispatch.bind(dev, made)  # None: the backend has none for this
        self.metas, self.aligned = metas, 0 if made is None else made.aligned
        self.workspace = None if made is None or not made.workspace else meta((made.workspace,), None, uint8, dev)

    def run(self, tensors: Sequence[Tensor], mask: Tensor | None, numbers: tuple[Any, ...]) -> None:
        """Calls it with the tensors' addresses."""
        addresses = [t.ptr for t in tensors]
        if mask is not None:
            addresses.append(mask.ptr)
        if self.workspace is not None:
            room = new(self.workspace)
            addresses.append(room.ptr)
        self.call(*addresses, *numbers)


def _placed(t: Tensor, aligned: int) -> Tensor:
    """As kernels take it: columns are neighbours, and the first one's address has none of these bits."""
    if t.meta.strides[-1] == 1 and not t.ptr & aligned:
        return t
    return clone(t, memory_format=contiguous_format)


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, p: float, scale: float, direct: Any) -> Tensor | None:
    """(batch, heads, length, depth) queries over (batch, key heads, source, depth) keys; None where there is no kernel.

    direct: by what such a call is known in `_direct`, if nothing needs to be prepared for it.
    """
    given, since = (q, k, v), caches.epoch
    plan, launch = _planned(q, k, v, mask, causal, p, scale)
    if launch.call is None or (q.ptr | k.ptr | v.ptr) & launch.aligned:
        q, k, v = [_placed(t, launch.aligned) for t in given]
        plan, launch = _planned(q, k, v, mask, causal, p, scale)
        if launch.call is not None and (q.ptr | k.ptr | v.ptr) & launch.aligned:
            q, k, v = [_placed(t, launch.aligned) for t in (q, k, v)]
            plan, launch = _planned(q, k, v, mask, causal, p, scale)
    if launch.call is None:
        return None
    if direct is not None and q is given[0] and k is given[1] and v is given[2]:
        caches.keep_since(since, _direct, direct, (plan, launch))
    return _launched(plan, launch, q, k, v, mask)


def _planned(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, p: float, scale: float) -> tuple[_Plan, _Launch]:
    plan = _Plan(q, k, v, mask, causal, p, scale)
    key = (plan.key, _ways())
    found = _launches.get(key)
    if found is None:
        since = caches.epoch
        batch, heads, _, length, _, _, value_depth = plan.sizes
        m, shape = q.meta, (batch, heads, length, value_depth)
        strides = _ordered(shape, m)
        spec = plan.spec(Attention, m.dtype, q=tuple(m.strides), k=tuple(k.meta.strides), v=tuple(v.meta.strides), o=strides[:3])
        found = _Launch(m.device, spec, meta(shape, strides, m.dtype, m.device), meta((batch, heads, length), None, m.dtype.opmath, m.device))
        caches.keep_since(since, _launches, key, found)
    return plan, found


def _launched(plan: _Plan, launch: _Launch, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    out, sums = new(launch.metas[0]), new(launch.metas[1])
    if mask is None and launch.workspace is None and plan.p == 0.0:
        launch.call(out.ptr, sums.ptr, q.ptr, k.ptr, v.ptr)
    else:
        plan.draw(q.meta.device)
        launch.run((out, sums, q, k, v), mask, plan.numbers())
    if tape.recording(q, k, v):
        saved = (plan, [(t, 0 if t is None else t.store.version) for t in (q, k, v, mask, alias(out, out.meta, out.ptr))], sums)
        tape.record(out, _attention_back, (q, k, v), saved, _NAMES.get(q.meta.device.type, _NAME))
    return out


def _attention_back(node: Any, g: Tensor) -> Any:
    plan, saved, sums = node[tape.SAVED]
    q, k, v, mask, out = [saved_tensor(t, version, node) for t, version in saved]
    if _grad.get():
        return _composite_back(plan, g, q, k, v, mask)
    return _gradients(plan, g, q, k, v, mask, out, sums) or _composite_back(plan, g, q, k, v, mask)


def _gradients(plan: _Plan, g: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, sums: Tensor) -> tuple[Tensor, ...] | None:
    """The gradients by one launch, of keys and values for the key heads; None where there is none for this."""
    g, packed = _placed(g, 0), _packed(q, k, v)
    launch = _gradient_launch(plan, g, q, k, v, out, packed)
    if g.ptr & launch.aligned:
        g = _placed(g, launch.aligned)
        launch = _gradient_launch(plan, g, q, k, v, out, packed)
    if launch.call is None:
        return None
    if packed:
        whole = new(q.store.meta)
        made = [alias(whole, q.meta, whole.ptr + t.ptr - q.store.ptr) for t in (q, k, v)]
    else:
        made = [new(m) for m in launch.metas]
    launch.run((*made, g, out, sums, q, k, v), mask, plan.numbers())
    return tuple(made)


def _gradient_launch(plan: _Plan, g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, packed: bool) -> _Launch:
    key = (plan.key, g.meta, _ways(), packed)
    found = _launches.get(key)
    if found is None:
        since, d, dev = caches.epoch, q.meta.dtype, q.meta.device
        metas = [q.meta] * 3 if packed else [meta(tuple(t.meta.shape), _ordered(tuple(t.meta.shape), t.meta), d, dev) for t in (q, k, v)]
        dq, dk, dv = [tuple(m.strides[:3]) for m in metas]
        spec = plan.spec(AttentionGradient, d, q=tuple(q.meta.strides), k=tuple(k.meta.strides), v=tuple(v.meta.strides),
                         o=tuple(out.meta.strides[:3]), g=tuple(g.meta.strides[:3]), dq=dq, dk=dk, dv=dv)
        found = _Launch(dev, spec, *metas)
        caches.keep_since(since, _launches, key, found)
    return found


def _packed(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the three are one tensor cut in three, so that one memory laid out like it takes their gradients where they belong."""
    s, m = q.store, q.meta
    if k.store is not s or v.store is not s or k.meta is not m or v.meta is not m or m.strides[-1] != 1:
        return False
    if s.meta.dtype is not m.dtype or s.meta.numel != 3 * m.numel:
        return False
    first, second, third = sorted((q.ptr, k.ptr, v.ptr))
    step, rest = divmod(second - first, m.dtype.itemsize)
    return first == s.ptr and not rest and third - second == second - first and step > 0 and layout.is_dense((3, *m.shape), (step, *m.strides))


# --------------------------------------------------------------------------------------------------------------------- checks
def _check(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float) -> None:
    same_device("scaled_dot_product_attention", query, key, value, mask)
    types, dims = [t.meta.dtype for t in (query, key, value)], [len(t.meta.shape) for t in (query, key, value)]
    if types[1] is not types[0] or types[2] is not types[0]:
        raise RuntimeError(f"Expected query, key, and value to have the same dtype, but got query.dtype: {types[0]} key.dtype: {types[1]} and "
                           f"value.dtype: {types[2]} instead.")
    if min(dims) < 2:
        raise RuntimeError("Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
                           f"{dims[0]} key.dim: {dims[1]} and value.dim: {dims[2]} instead.")
    if types[0].kind not in "fc":
        raise RuntimeError(f"scaled_dot_product_attention takes query, key and value of floating point types, but got {types[0]}")
    if mask is not None and mask.meta.dtype is not bool_ and mask.meta.dtype is not types[0] and mask.meta.dtype is not float32:
        raise RuntimeError("Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
                           f"{mask.meta.dtype} and  query.dtype: {types[0]} instead.")
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if query.meta.shape[-1] != key.meta.shape[-1]:
        raise RuntimeError(f"query and key must have the same size in their last dimension, but got query of shape {list(query.meta.shape)} and key of "
                           f"shape {list(key.meta.shape)}")
    if key.meta.shape[-2] != value.meta.shape[-2]:
        raise RuntimeError(f"key and value must have the same length in dimension -2, but got key of shape {list(key.meta.shape)} and value of shape "
                           f"{list(value.meta.shape)}")


def _four(t: Tensor, lead: tuple[int, ...]) -> Tensor:
    """(lead..., rows, columns) with the axes before the heads as one."""
    if tuple(t.meta.shape[:-2]) != lead:
        t = t.expand(*lead, *t.meta.shape[-2:])
    if len(lead) == 2:
        return t
    return t.reshape(layout.numel(lead[:-1]), lead[-1] if lead else 1, *t.meta.shape[-2:])


def _in_float32(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *rest: Any) -> Tensor:
    """The attention of 16-bit floats in float32, rounded once."""
    wide = [to_dtype(t, float32) for t in (query, key, value)]
    mask = mask if mask is None or mask.meta.dtype is bool_ else to_dtype(mask, float32)
    return to_dtype(scaled_dot_product_attention(wide[0], wide[1], wide[2], mask, *rest), query.meta.dtype)


def _check_both(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout_p: float, enable_gqa: bool) -> None:
    """Raises RuntimeError for a mask beside is_causal where PyTorch does: unless operands are (N, H, L, E) of one N, H and E with dense rows, and the
    mask has two or four axes and no gradient, without dropout."""
    metas = query.meta, key.meta, value.meta
    if not (all(len(m.shape) == 4 and m.strides[-1] == 1 for m in metas) and len(mask.meta.shape) in (2, 4) and dropout_p == 0.0
            and not mask.requires_grad and len({m.shape[-1] for m in metas}) == len({m.shape[:1 if enable_gqa else 2] for m in metas}) == 1):
        raise RuntimeError("scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True, but for query, key and value of "
                           "shape (N, H, length, E) with the same N, H and E; set the mask to False (or -inf) above its diagonal instead")


@op(method=False, spaces=("nn.functional",), autocast="lower", batch="attention")
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Tensor:
    """softmax(query key^T * scale + mask) value, for query (..., L, E), key (..., S, E), value (..., S, Ev), of floating point types.

    attn_mask: bool (True takes part) or added to the scores, broadcast to (..., L, S).  is_causal: position i sees 0..i, of
    those the mask lets it see; both go together only for operands (N, H, length, E) of one N, H and E.
    A position that sees nothing gives zeros.  scale: 1 / sqrt(E) by default.  enable_gqa: fewer
    key and value heads (axis -3), each shared by a run of query heads.  On a GPU one kernel does it: cuDNN's for large ones of 16-bit
    types without mask and dropout, whose gradients then differ in their last bits from run to run unless
    `use_deterministic_algorithms` is on; else ours (see `nn.attention.sdpa_kernel`).  Raises RuntimeError for types or shapes that do not fit.
    A. Vaswani et al., "Attention is all you need", 2017.
    """
    direct = None
    if attn_mask is None and dropout_p == 0.0 and isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor):
        direct = (query.meta, key.meta, value.meta, is_causal, scale, enable_gqa, _ways())
        known = _direct.get(direct)
        if known is not None and not ((query.ptr | key.ptr | value.ptr) & known[1].aligned):
            return _launched(*known, query, key, value, None)
    _check(query, key, value, attn_mask, dropout_p)
    if is_causal and attn_mask is not None:
        _check_both(query, key, value, attn_mask, dropout_p, enable_gqa)
    d, factor = query.meta.dtype, scale
    if factor is None:
        factor = 1.0 / math.sqrt(query.meta.shape[-1]) if query.meta.shape[-1] else 1.0
    narrow, given = _is_narrow(query), (query, key, value, attn_mask, dropout_p, is_causal, factor, enable_gqa)
    if attn_mask is not None and attn_mask.meta.dtype is not bool_ and not narrow:
        attn_mask = to_dtype(attn_mask, d)
    heads = query.meta.shape[-3] if len(query.meta.shape) > 2 else 1
    few = [t for t in (key, value) if enable_gqa and len(t.meta.shape) > 2]
    for t in few:
        if not t.meta.shape[-3] or heads % t.meta.shape[-3]:
            raise RuntimeError(f"Number of heads in key and value must divide the number of heads in query, but got {t.meta.shape[-3]} and {heads}")
    if few and key.meta.shape[-3] != value.meta.shape[-3]:
        key, value = [t.repeat_interleave(heads // t.meta.shape[-3], -3) for t in (key, value)]
    key_heads = key.meta.shape[-3] if few else heads
    lead = layout.broadcast_shapes(*[t.meta.shape[:-3] if few else t.meta.shape[:-2] for t in (query, key, value)])
    leads = [(*lead, heads), (*lead, key_heads), (*lead, key_heads)] if few else [tuple(lead)] * 3
    whole = (*leads[0], query.meta.shape[-2], key.meta.shape[-2])
    causal, p = bool(is_causal), float(dropout_p)
    q, k, v = [_four(t, to) for t, to in zip((query, key, value), leads, strict=True)]
    mask, out = attn_mask, None
    if mask is not None and tuple(layout.broadcast_shapes(mask.meta.shape, whole)) != whole:
        raise RuntimeError(f"attn_mask of shape {list(mask.meta.shape)} does not broadcast to {list(whole)}, the shape of the scores")
    if mask is not None:
        if mask.meta.shape and mask.meta.shape[-1] == whole[-1] and mask.meta.strides[-1] != 1:
            mask = contiguous(mask)
        elif not mask.meta.shape or mask.meta.shape[-1] != whole[-1]:
            mask = contiguous(mask.expand(*mask.meta.shape[:-1], whole[-1]))
        mask = _four(mask.expand(whole), leads[0])
    # the numbers of a stream in PyTorch's order are drawn as PyTorch draws them, for all weights
    ordered = p > 0.0 and not generators.default(q.meta.device).counts
    if layout.numel(whole) and v.meta.numel and not tape.recording(mask) and not ordered:
        out = _fused(q, k, v, mask, causal, p, factor, direct if q is query and k is key and v is value else None)
    if out is None and narrow:
        return _in_float32(*given)
    if out is None:
        if k.meta.shape[1] != q.meta.shape[1]:
            k, v = [t.repeat_interleave(q.meta.shape[1] // t.meta.shape[1], 1) for t in (k, v)]
        out = _composite(q, k, v, mask, causal, p, factor)
    return out if len(leads[0]) == 2 else out.reshape(*leads[0], *out.meta.shape[-2:])

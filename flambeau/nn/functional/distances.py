"""Normalising vectors and measuring between them."""

from __future__ import annotations

from typing import Any

from ..._core import ops
from ..._core.dtypes import promote_types
from ..._core.engine.fields import has
from ..._core.ops import norms


def normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Any:
    """input / max(‖input‖_p, eps), the norm along `dim`."""
    if out is not None:
        return ops.div(input, input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input), out=out)
    return norms.normalize(input, p, dim, eps)


def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """x1·x2 / (max(‖x1‖, eps) max(‖x2‖, eps)) along `dim`; the two are broadcast and their types promoted."""
    common = promote_types(x1.dtype, x2.dtype)
    if not common.is_floating_point:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {common}")
    x1, x2 = ops.broadcast_tensors(x1.to(common), x2.to(common))
    return norms.cosine_similarity(x1, x2, dim, eps)


def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    """‖x1 - x2 + eps‖_p along the last dimension."""
    return (x1 - x2 + eps).norm(p, -1, keepdim)


def pdist(input: Any, p: float = 2.0) -> Any:
    """The p-norm distances between the rows i < j of (N, M), as a vector of N(N-1)/2."""
    if input.dim() != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.dim()}D")
    if not input.is_floating_point():
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    n = input.shape[0]
    # all pairs, each twice, in one launch: gathering the rows of each pair once moves more
    rows, columns = ops.triu_indices(n, n, 1, device=input.device)
    return ops.cdist(input, input, p, "donot_use_mm_for_euclid_dist").reshape(-1)[rows * n + columns]

has("cosine_similarity normalize pdist", autocast="cuda full")
has("normalize", batch="along 1")
has("cosine_similarity nn.functional.cosine_similarity", batch="similarity")
has("pdist", batch="composite")

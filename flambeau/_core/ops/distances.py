"""Distances of points, and slices brought to a norm."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..autograd import tape
from ..autograd.mode import no_recording
from ..engine.fields import has
from ..kernels import expr as E
from ..kernels import formulas as F
from ..layout import broadcast_shapes, wrap_dim
from ..tensor import Tensor, alias
from .casts import in_float32
from .checks import one_type
from .elementwise import fit, saved_tensor
from .linalg.matrices import keep_outputs, kept_outputs, type_name
from .norms import length, vector_norm
from .row_places import Places
from .rowwise import Rowwise
from .table import op

if TYPE_CHECKING:
    from collections.abc import Sequence

_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


@op(method=False, autocast="full", renames=False)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The p-norms of the differences of all points of x1 (..., n, d) and x2 (..., m, d): (..., n, m).  Batch axes broadcast.

    compute_mode: whether p = 2 may go by one matrix product, which is fast and rounds more: when n or m is above 25 (default), always
    ("use_mm_for_euclid_dist") or never ("donot_use_mm_for_euclid_dist").
    """
    for i, x in enumerate((x1, x2)):
        if x.meta.dtype.kind != "f":
            raise RuntimeError(f"cdist only supports floating-point dtypes, X{i + 1} got: {type_name(x)}")
    for i, x in enumerate((x1, x2)):
        if len(x.meta.shape) < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, X{i + 1} got: {len(x.meta.shape)}D")
    if x1.meta.shape[-1] != x2.meta.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.meta.shape[-1]} X2: {x2.meta.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if compute_mode is not None and compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    n, m = x1.meta.shape[-2], x2.meta.shape[-2]
    lead = broadcast_shapes(x1.meta.shape[:-2], x2.meta.shape[:-2])
    if not x1.meta.shape[-1] or 0 in (n, m, *lead):  # of nothing, also of two types
        made: Tensor = x1.new_zeros((*lead, n, m))
        return tape.record(made, _nothing_back, (x1, x2), (tuple(x1.meta.shape), tuple(x2.meta.shape), x2.meta.dtype), "CdistBackward0")
    one_type("cdist", x1, x2)
    by_product = p == 2 and (compute_mode == _MODES[1] or (compute_mode in (None, _MODES[0]) and (n > 25 or m > 25)))
    if by_product and x1.meta.dtype is x2.meta.dtype and x1.meta.dtype.itemsize > 2:
        return _euclidean(x1.expand(*lead, *x1.meta.shape[-2:]), x2.expand(*lead, *x2.meta.shape[-2:]))
    x1, x2 = [x if tuple(x.meta.shape[:-2]) == lead else x.expand(*lead, *x.meta.shape[-2:]) for x in (x1, x2)]
    return CDIST((x1, x2), consts=(("p", float(p)),))[0]


@tape.keeps_nothing
def _nothing_back(node: Any, g: Tensor) -> Any:
    first, second, d = node[tape.SAVED]
    return g.new_zeros(first), g.new_zeros(second, dtype=d)


# ------------------------------------------------------------------------------------------------------------ all pairs
def _distance(x: E.Expr, y: E.Expr, p: float) -> Any:
    size = abs(x - y)
    if p == inf:
        far = F.ruled(F.fold("max", size, "k"), (size,), _farthest)
    else:
        far = length(x - y, p, "k")
    return (far,), (far,)


def _farthest(g: E.Expr, far: E.Expr, size: E.Expr) -> tuple[E.Expr]:
    return (E.where(size == far, g, E.const(0, g.dtype)),)  # not shared among equals, as a maximum's is


def _all_pairs(metas: Sequence[Any]) -> Places:
    """Points n and m of k coordinates, in batches b."""
    shape = metas[0].shape
    lead = tuple([(("b", i),) for i in range(len(shape) - 2)])
    sizes = {"b": tuple(shape[:-2]), "n": (shape[-2],), "m": (metas[1].shape[-2],), "k": (shape[-1],)}
    n, m, k = ((("n", 0),),), ((("m", 0),),), ((("k", 0),),)
    return Places(sizes, (lead + n + k, lead + m + k), (lead + n + m,))


CDIST = Rowwise("cdist", "bnk, bmk -> bnm", _distance, _all_pairs, fused="")


# ------------------------------------------------------------------------------------------------------- by a product
def _euclidean(a: Tensor, b: Tensor) -> Tensor:
    """sqrt(|a|^2 - 2 a b + |b|^2) by one matrix product."""
    from .concat import cat
    with no_recording():
        def squares(t: Tensor) -> Tensor:
            made: Tensor = t.square().sum(-1, keepdim=True)
            return made
        ones_a, ones_b = squares(a).mul(0).add(1), squares(b).mul(0).add(1)
        left, right = cat([a * -2, squares(a), ones_a], -1), cat([b, ones_b, squares(b)], -1)
        out = (left @ right.transpose(-2, -1)).clamp_min(0).sqrt()
    out = alias(out, out.meta, out.ptr)
    return tape.record(out, _euclidean_back, (a, b), (a, a.store.version, b, b.store.version, keep_outputs(out)), "EuclideanDistBackward0")


def _euclidean_back(node: Any, g: Tensor) -> Any:
    a, va, b, vb, outputs = node[tape.SAVED]
    saved_tensor(a, va, node)
    saved_tensor(b, vb, node)
    (out,) = kept_outputs(node, outputs)
    ratio = (g / out).masked_fill(out == 0, 0.0)
    turned = ratio.transpose(-2, -1)
    return (fit(a * ratio.sum(-1, keepdim=True) - ratio @ b, a.meta), fit(b * turned.sum(-1, keepdim=True) - turned @ a, b.meta))


def _factors(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:  # noqa: A002
    """What each slice across `dim` is multiplied by so that its p-norm is at most `maxnorm`."""
    if not p > 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    ndim = len(input.meta.shape)
    if ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {ndim} dimensions")
    at = wrap_dim(dim, ndim)
    norms = vector_norm(input, p, [i for i in range(ndim) if i != at], True)
    # the small number keeps the quotient finite
    found: Tensor = (maxnorm / (norms + 1e-7)).where(norms > maxnorm, 1.0)
    return found


def _renorm_(self: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    if tape.recording(self):  # the norms' gradient asks for what was there before
        return self.copy_(renorm(self.clone(), p, dim, maxnorm))
    if self.meta.dtype.itemsize == 2:
        return self.copy_(renorm(self, p, dim, maxnorm))
    return self.mul_(_factors(self, p, dim, maxnorm))


@op(inplace=_renorm_, out=True, autocast="cuda full")
@in_float32
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:  # noqa: A002
    """`input` with each slice across `dim` whose p-norm is above `maxnorm` scaled down to it."""
    made: Tensor = (input * _factors(input, p, dim, maxnorm)).contiguous()
    return made


has("renorm", batch="composite")

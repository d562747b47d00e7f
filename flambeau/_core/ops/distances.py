"""Distances of points, and slices brought to a norm."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..autograd import tape
from ..dtypes import promote_types
from ..kernels import expr as E
from ..kernels.programs import Reduce
from ..layout import broadcast_shapes, expand_strides, wrap_dim
from ..tensor import Tensor, alias, empty
from . import launch
from .casts import to_dtype
from .elementwise import fit, saved_tensor
from .linalg.matrices import keep_outputs, kept_outputs, type_name
from .norms import vector_norm
from .table import no_recording, op

if TYPE_CHECKING:
    from ..dtypes import dtype

_programs: dict[Any, Reduce] = {}
_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


@op(method=False)
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
    by_product = p == 2 and (compute_mode == _MODES[1] or (compute_mode in (None, _MODES[0]) and (n > 25 or m > 25)))
    if by_product and x1.meta.dtype is x2.meta.dtype and x1.meta.dtype.itemsize > 2:
        lead = broadcast_shapes(x1.meta.shape[:-2], x2.meta.shape[:-2])
        return _euclidean(x1.expand(*lead, *x1.meta.shape[-2:]), x2.expand(*lead, *x2.meta.shape[-2:]))
    if x1.meta.dtype is not x2.meta.dtype:
        d = promote_types(x1.meta.dtype, x2.meta.dtype)
        x1, x2 = to_dtype(x1, d), to_dtype(x2, d)
    if not x1.meta.shape[-1]:
        return x1.new_zeros((*broadcast_shapes(x1.meta.shape[:-2], x2.meta.shape[:-2]), n, m))
    return _pairs(x1, x2, float(p))


# ------------------------------------------------------------------------------------------------------------ all pairs
def _program(kind: str, d: dtype, p: float) -> Reduce:
    """The distance of two rows ("distance"), or the gradient at the first from (gradient, distance, first, second) ("back")."""
    found = _programs.get((kind, d, p))
    if found is None:
        found = _programs[kind, d, p] = _distance(d, p) if kind == "distance" else _gradient(d, p)
    return found


def _distance(d: dtype, p: float) -> Reduce:
    wide = d.opmath
    size = abs(E.cast(E.input(0, d), wide) - E.cast(E.input(1, d), wide))
    total = E.acc(0, wide)
    if p == inf:
        return Reduce((size,), ("max",), (E.cast(total, d),), (d, d))
    if p == 0:
        return Reduce((E.cast(size != 0.0, wide),), ("sum",), (E.cast(total, d),), (d, d))
    root = total if p == 1 else E.sqrt(total) if p == 2 else E.pow_(total, 1.0 / p)
    return Reduce((size if p == 1 else size * size if p == 2 else E.pow_(size, p),), ("sum",), (E.cast(root, d),), (d, d))


def _gradient(d: dtype, p: float) -> Reduce:
    wide = d.opmath
    g, far, x, y = (E.cast(E.input(i, d), wide) for i in range(4))
    gap, zero = x - y, E.const(0, wide)
    size = abs(gap)
    towards = E.where(gap > zero, g, E.where(gap < zero, -g, zero))
    if p == 1:
        e = towards
    elif p == 2:
        e = E.where(far == zero, zero, g * gap / far)
    elif p == inf:
        e = E.where(size == far, towards, zero)
    else:
        e = E.where((far == zero) | (gap == zero), zero, towards * E.pow_(size / far, p - 1.0))
    return Reduce((e,), ("sum",), (E.cast(E.acc(0, wide), d),), (d,) * 4)


def _pairs(a: Tensor, b: Tensor, p: float) -> Tensor:
    """The distances of all pairs, recorded; nothing of the size (n, m, d) is stored."""
    lead = broadcast_shapes(a.meta.shape[:-2], b.meta.shape[:-2])
    n, m, k = a.meta.shape[-2], b.meta.shape[-2], a.meta.shape[-1]
    out = empty((*lead, n, m), a.meta.dtype, a.meta.device)
    domain = (*lead, n, m, k)
    if out.meta.numel:
        launch.run(_program("distance", a.meta.dtype, p), domain, [out], [a, b],
                   [out.meta.strides, _strides(a.unsqueeze(-2), domain), _strides(b.unsqueeze(-3), domain)], name="cdist")
    return tape.record(out, _pairs_back, (a, b), (a, a.store.version, b, b.store.version, keep_outputs(out), p), "CdistBackward0")


def _strides(t: Tensor, domain: tuple[int, ...]) -> tuple[int, ...]:
    return expand_strides(t.meta.shape, t.meta.strides, domain)


def _pairs_back(node: Any, g: Tensor) -> Any:
    a, va, b, vb, outputs, p = node[tape.SAVED]
    saved_tensor(a, va, node)
    saved_tensor(b, vb, node)
    (far,) = kept_outputs(node, outputs)
    to_a, to_b = (e is not None for e in node[tape.EDGES])
    if p == 0:
        return (a * 0 if to_a else None, b * 0 if to_b else None)
    if tape.recording(a, b, g):
        each = _each_pair(a, b, far, g, p)
        return (fit(each.sum(-2), a.meta) if to_a else None, fit(-each.sum(-3), b.meta) if to_b else None)
    return (_one_side(g, far, a, b, p) if to_a else None,
            _one_side(g.transpose(-2, -1), far.transpose(-2, -1), b, a, p) if to_b else None)


def _one_side(g: Tensor, far: Tensor, x: Tensor, y: Tensor, p: float) -> Tensor:
    """The gradient at x (..., n, d): a sum over the m rows of y."""
    lead, (n, m), k = tuple(g.meta.shape[:-2]), g.meta.shape[-2:], x.meta.shape[-1]
    out = empty((*lead, n, k), x.meta.dtype, x.meta.device)
    domain = (*lead, n, k, m)
    if out.meta.numel:
        ins = [g.unsqueeze(-2), far.unsqueeze(-2), x.unsqueeze(-1), y.transpose(-2, -1).unsqueeze(-3)]
        launch.run(_program("back", x.meta.dtype, p), domain, [out], ins, [out.meta.strides, *[_strides(t, domain) for t in ins]], name="cdist_backward")
    return fit(out, x.meta)


def _each_pair(a: Tensor, b: Tensor, far: Tensor, g: Tensor, p: float) -> Tensor:
    """The gradient at a - b of every pair (..., n, m, d), in differentiable operations."""
    gap, far, g = a.unsqueeze(-2) - b.unsqueeze(-3), far.unsqueeze(-1), g.unsqueeze(-1)
    safe = far.masked_fill(far == 0, 1.0)
    if p == 1:
        made: Tensor = gap.sgn() * g
    elif p == 2:
        made = gap / safe * g
    elif p == inf:
        made = gap.sgn() * g * (gap.abs() == far)
    else:
        size = gap.abs()
        made = gap.sgn() * g * (size.masked_fill(size == 0, 1.0) / safe).pow(p - 1)
    return made


# ------------------------------------------------------------------------------------------------------- by a product
def _euclidean(a: Tensor, b: Tensor) -> Tensor:
    """sqrt(|a|^2 - 2 a b + |b|^2) by one matrix product."""
    from .joining import cat
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


@op(inplace=True, out=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:  # noqa: A002
    """`input` with each slice across `dim` whose p-norm is above `maxnorm` scaled down to it."""
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
    scale = (maxnorm / (norms + 1e-7)).where(norms > maxnorm, norms * 0 + 1)
    made: Tensor = input * scale.to(input.meta.dtype)
    return made

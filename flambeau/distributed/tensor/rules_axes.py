"""Rules of operations along axes: reductions, softmax, sorting, splitting."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from ..._core import ops
from ..._core.engine import fields
from ..._core.tensor import Tensor
from .dtensor import DTensor, entering, make, moved, with_dim
from .moving import WHOLE, redistribute
from .placement_types import Partial
from .propagation import flat, mesh_of, on_wholes, rule, whole, without_parts, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

_BATCH, _TANGENT = fields.of("batch"), fields.of("tangent")
# of the pieces' results that of the whole
_COMBINED = {"amax": "max", "amin": "min", "max": "max", "min": "min"}


@functools.cache
def _axis(func: Any) -> tuple[str, int, bool, Any]:
    """The parameter by which an operation takes its axis, its place among the arguments (-1: only by keyword), whether the axes may be
    arguments side by side there, and its default."""
    parameters = list(inspect.signature(func).parameters.values())
    found = next((p for name in ("dim", "dims", "axis", "dimension") for p in parameters if p.name == name), None)
    if found is None:
        kind = _BATCH.get(func.__name__, "")
        return "", -1, False, int(kind.removeprefix("along ")) if kind in ("along 0", "along 1", "along -1") else None
    several = found.kind is found.VAR_POSITIONAL
    at = -1 if found.kind is found.KEYWORD_ONLY else parameters.index(found)
    return found.name, at, several, found.default if isinstance(found.default, int | tuple) else None


def axes_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], ndim: int) -> tuple[int, ...] | None:
    """The axes that a call works along; None for all.  Raises IndexError for an axis that there is not."""
    name, at, several, default = _axis(func)
    dim = kwargs.get(name, kwargs.get("axis"))
    if dim is None and 0 <= at < len(args) and not isinstance(args[at], Tensor | bool):
        dim = args[at:] if several and isinstance(args[at], int) else args[at]
    if dim is None:
        dim = default
    if dim is None:
        return None
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    for d in dims:
        if not isinstance(d, int) or not -max(ndim, 1) <= d < max(ndim, 1):
            raise IndexError(f"Dimension out of range (expected to be in range of [{-max(ndim, 1)}, {max(ndim, 1) - 1}], but got {d})")
    return tuple(sorted({d % max(ndim, 1) for d in dims})) if dims or _BATCH.get(func.__name__) != "along all" else None


def _kept(t: Any, placed: Sequence[Any], axes: Sequence[int], found: Any) -> tuple[list[Any], dict[int, int]]:
    """How results lie, and the sizes of their axes in pieces, when shards run along axes that are not worked along."""
    first = next(x for x in flat((found,)) if isinstance(x, Tensor))
    gone = first.dim() < t.ndim
    out: list[Any] = []
    sizes: dict[int, int] = {}
    for p in placed:
        if p.is_shard():
            d = p.dim - sum(a < p.dim for a in axes) if gone else p.dim
            sizes[d] = t.meta.shape[p.dim]
            p = with_dim(p, d)
        out.append(p)
    return out, sizes


def along(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Along some axes, for each row by itself: these axes must be whole, the others may be in pieces."""
    t = args[0] if args else kwargs.get("input")
    if not isinstance(t, DTensor) or any(isinstance(x, Tensor) for x in flat((args[1:], {k: v for k, v in kwargs.items() if k != "input"}))):
        return on_wholes(name, func, args, kwargs)
    mesh = mesh_of(name, [t])
    axes = axes_of(func, args, kwargs, t.ndim)
    if axes is None:
        return on_wholes(name, func, args, kwargs)
    linear = _TANGENT.get(name) == "linear"
    t = moved(t, tuple(WHOLE if (p.is_partial() and not linear) or (p.is_shard() and p.dim in axes) else p for p in t._placed))
    local = entering(t, t._placed, t._placed)
    found = func(local, *args[1:], **kwargs) if args else func(**{**kwargs, "input": local})
    if not any(isinstance(x, Tensor) for x in flat((found,))):
        return found
    out, sizes = _kept(t, t._placed, axes, found)
    return wrap(found, mesh, out, sizes)


@rule("linalg_vector_norm")
def reduction(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Sums of pieces are parts of the whole's; extremes are compared at once; what is neither is worked out on whole rows."""
    t = args[0] if args else kwargs.get("input")
    if not isinstance(t, DTensor) or kwargs.get("out") is not None:
        return on_wholes(name, func, args, kwargs)
    axes = axes_of(func, args, kwargs, t.ndim)
    every = tuple(range(t.ndim)) if axes is None else axes
    cut = [p.is_shard() and p.dim in every for p in t._placed]
    if not any(cut) and not any(p.is_partial() for p in t._placed):
        local = t._local_tensor
        found = func(local, *args[1:], **kwargs)
        out, sizes = _kept(t, t._placed, every, found)
        return wrap(found, t._mesh, out, sizes)
    if name in ("sum", "mean"):
        return _sums(name, func, t, args, kwargs, every)
    if name in ("norm", "vector_norm", "linalg_vector_norm"):
        return _norm(name, func, t, args, kwargs, every)
    if name in _COMBINED and (name in ("amax", "amin") or axes is None) and len([x for x in flat((args,)) if isinstance(x, Tensor)]) == 1:
        return _extremes(name, func, t, args, kwargs, every)
    t = without_parts(t, lambda p: p.dim not in every)
    found = func(t._local_tensor, *args[1:], **kwargs)
    out, sizes = _kept(t, t._placed, every, found)
    return wrap(found, t._mesh, out, sizes)


def _sums(name: str, func: Any, t: Any, args: tuple[Any, ...], kwargs: dict[str, Any], every: Sequence[int]) -> Any:
    t = moved(t, tuple(WHOLE if p.is_partial() and not p.is_partial("sum") else p for p in t._placed))
    found = (ops.sum if name == "mean" else func)(t._local_tensor, *args[1:], **kwargs)
    if name == "mean":
        count = 1
        for d in every:
            count *= t.meta.shape[d]
        if not (t.is_floating_point() or t.is_complex()) and kwargs.get("dtype") is None:
            raise RuntimeError(f"mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: {t.dtype}")
        found = found / count if count else found / 0.0
    out, sizes = _kept(t, tuple(Partial() if p.is_shard() and p.dim in every else p for p in t._placed), every, found)
    return wrap(found, t._mesh, out, sizes)


def _norm(name: str, func: Any, t: Any, args: tuple[Any, ...], kwargs: dict[str, Any], every: Sequence[int]) -> Any:
    """From the norms of the pieces."""
    given = kwargs.get("p", kwargs.get("ord", args[1] if len(args) > 1 else 2))
    power = 2.0 if given in (None, "fro") else given
    if not isinstance(power, int | float) or power == 0 or power == -float("inf") or (len(args) > 4):
        return on_wholes(name, func, args, kwargs)
    t = without_parts(t)
    if power == float("inf"):
        return _extremes("amax", func, t, args, kwargs, every)
    found = func(t._local_tensor, *args[1:], **kwargs) ** power
    out, sizes = _kept(t, tuple(Partial() if p.is_shard() and p.dim in every else p for p in t._placed), every, found)
    return without_parts(wrap(found, t._mesh, out, sizes)) ** (1.0 / power)


def _extremes(name: str, func: Any, t: Any, args: tuple[Any, ...], kwargs: dict[str, Any], every: Sequence[int]) -> Any:
    t = without_parts(t)
    cut = tuple(Partial(_COMBINED[name]) if p.is_shard() and p.dim in every else p for p in t._placed)
    sizes, _ = _pieces(t)
    if any(not n for n in sizes):  # a process with no elements has no extreme: the whole is compared
        return on_wholes(name, func, (t, *args[1:]), kwargs)
    found = func(t._local_tensor, *args[1:], **kwargs)
    out, whole_sizes = _kept(t, cut, every, found)
    shape = [whole_sizes.get(d, n) for d, n in enumerate(found.shape)]
    after = tuple(WHOLE if p.is_partial() else p for p in out)
    return make(redistribute(found, t._mesh, tuple(out), after, shape), t._mesh, after, shape)


def _pieces(t: Any) -> tuple[list[int], int]:
    """How many elements of the axes that are cut each process has, as all processes work it out alike: the smallest."""
    from .spec import cuts, piece
    found = []
    for d, n in enumerate(t.meta.shape):
        axes = cuts(t._placed, d)
        last = [k - 1 for k in t._mesh.shape]
        found.append(piece(n, t._mesh, axes, last, t._placed)[0])
    return found, len(found)


@rule("softmax", "log_softmax", "softmin")
def _softmax(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from .parallel.loss import rows
    t = args[0] if args else kwargs["input"]
    axes = axes_of(func, args, kwargs, t.ndim)
    if axes is not None and kwargs.get("dtype") is None and any(p.is_shard() and p.dim in axes for p in t._placed):
        return rows(name, t, axes[0])
    return along(name, func, args, kwargs)


@rule("tril", "triu")
def _trailing(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    t = args[0]
    t = moved(t, tuple(WHOLE if p.is_shard() and p.dim >= t.ndim - 2 else p for p in t._placed))
    found = func(t._local_tensor, *args[1:], **kwargs)
    return wrap(found, t._mesh, t._placed, {p.dim: t.meta.shape[p.dim] for p in t._placed if p.is_shard()})


@rule("layer_norm", "rms_norm")
def _normalized(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rows are whole; weights are replicated, and each process has a part of their gradients."""
    t = args[0] if args else kwargs.pop("input")
    shape = args[1] if len(args) > 1 else kwargs["normalized_shape"]
    if not isinstance(t, DTensor):
        return on_wholes(name, func, (t, *args[1:]), kwargs)
    mesh_of(name, list(flat((t, args, kwargs))))
    first = t.ndim - (1 if isinstance(shape, int) else len(shape))
    t = without_parts(t, lambda p: p.dim < first)

    def weight(x: Any) -> Any:
        return entering(whole(x), (WHOLE,) * t._mesh.ndim, t._placed) if isinstance(x, DTensor) else x
    found = func(t._local_tensor, *[weight(a) for a in args[1:]], **{k: weight(v) for k, v in kwargs.items()})
    return wrap(found, t._mesh, t._placed, {p.dim: t.meta.shape[p.dim] for p in t._placed if p.is_shard()})

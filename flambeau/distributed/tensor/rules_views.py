"""Rules of views and of what joins tensors: which axis of the result is which axis of the operand."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ..._core.tensor import Tensor
from .dtensor import DTensor, entering, make, moved, with_dim
from .moving import WHOLE
from .propagation import mesh_of, on_wholes, rule, without_parts, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence


def _carried(t: Any, found: Tensor, place: dict[int, int], shape: Sequence[int]) -> Any:
    """The result of a view that takes axis d to axis place[d]."""
    out = [with_dim(p, place[p.dim]) if p.is_shard() else p for p in t._placed]
    return make(found, t._mesh, out, shape)


def _sizes(args: Any) -> tuple[int, ...]:
    if len(args) == 1 and isinstance(args[0], tuple | list):
        args = args[0]
    return tuple(int(n) for n in args)


def groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Axes before and after a change of shape that hold the same elements, in order."""
    found = []
    i = j = 0
    while i < len(before) or j < len(after):
        left, right = [i] if i < len(before) else [], [j] if j < len(after) else []
        a, b = prod(before[k] for k in left), prod(after[k] for k in right)
        i, j = i + len(left), j + len(right)
        while a != b:
            if (a < b or not right) and i < len(before):
                left.append(i)
                a *= before[i]
                i += 1
            elif j < len(after):
                right.append(j)
                b *= after[j]
                j += 1
            else:
                break
        found.append((left, right))
    return found


def reshaped(name: str, func: Any, t: Any, shape: Sequence[int]) -> Any:
    """A change of shape of the whole, done on the pieces: an axis in pieces must lead those it is joined or split with."""
    before = tuple(t.meta.shape)
    shape = list(shape)
    count = prod(before)
    if -1 in shape:
        others = -prod(shape)
        if others <= 0 or count % others:
            raise RuntimeError(f"shape '{shape}' is invalid for input of size {count}")
        shape[shape.index(-1)] = count // others
    if prod(shape) != count:
        raise RuntimeError(f"shape '{shape}' is invalid for input of size {count}")
    place: dict[int, int] = {}
    if count:
        for left, right in groups(before, shape):
            heads, tails = [k for k in left if before[k] != 1], [k for k in right if shape[k] != 1]
            if heads and tails:
                place[heads[0]] = tails[0]
    placed: list[Any] = []
    for i, p in enumerate(t._placed):
        if p.is_shard():
            n = prod(t._mesh.shape[k] for k, q in enumerate(t._placed) if q.is_shard(p.dim))
            to = place.get(p.dim)
            even = to is not None and (shape[to] == before[p.dim] or (before[p.dim] % n == 0 and shape[to] % n == 0))
            placed.append(p if even else WHOLE)
        else:
            placed.append(t._placed[i])
    t = moved(t, tuple(placed))
    local = list(shape)
    for p in t._placed:
        if p.is_shard():
            local[place[p.dim]] = t._local_tensor.shape[p.dim] * shape[place[p.dim]] // before[p.dim]
    return _carried(t, func(t._local_tensor, local), place, shape)


@rule("view", "reshape", "_unsafe_view")
def _view(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = args[1:] or (kwargs.get("shape", kwargs.get("size")),)
    if len(given) == 1 and not isinstance(given[0], int | tuple | list):
        return on_wholes(name, func, args, kwargs)  # another type of the same bits
    return reshaped(name, func, args[0], _sizes(given))


@rule("flatten", "unflatten", "ravel")
def _flatten(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0].reshape(_shape_of(func, args, kwargs))


def _shape_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """What the operation makes of the whole's shape: asked of the tensor without memory."""
    from ..._core.tensor import new
    bare = [new(a.meta.under) if isinstance(a, DTensor) else a for a in args]
    return tuple(func(*bare, **kwargs).shape)


@rule("transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis", "t", "unsqueeze", "squeeze", "adjoint", "mT", "diagonal")
def _moves_axes(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Where each axis goes is asked of a small tensor whose strides tell its axes apart."""
    t = args[0]
    if name == "diagonal":
        return on_wholes(name, func, args, kwargs)
    from ..._core import tensor as tensors
    from .dtensor import _META
    shape = tuple(t.meta.shape)
    steps = tuple(1 << (4 * (d + 1)) for d in range(len(shape)))
    seen = func(tensors.new(tensors.meta(shape, steps, t.meta.dtype, _META)), *args[1:], **kwargs).meta
    place: dict[int, int] = {}
    for to, step in enumerate(seen.strides):
        if step in steps and (name != "unsqueeze" or seen.shape[to] == shape[steps.index(step)]):
            place.setdefault(steps.index(step), to)
    if name == "unsqueeze":
        d = args[1] if len(args) > 1 else kwargs["dim"]
        d = d % (len(shape) + 1)
        place = {k: k + (k >= d) for k in range(len(shape))}
    t = moved(t, tuple(WHOLE if p.is_shard() and p.dim not in place else p for p in t._placed))
    if name == "squeeze":  # pieces of one element must not vanish
        kept = tuple(place[d] for d in sorted(place))
        dims = [d for d in range(len(shape)) if d not in place]
        return _carried(t, func(t._local_tensor, tuple(dims)) if dims else t._local_tensor.view_as(t._local_tensor), place, seen.shape) if kept or dims else t
    return _carried(t, func(t._local_tensor, *args[1:], **kwargs), place, seen.shape)


@rule("expand", "broadcast_to")
def _expand(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    t, wanted = args[0], _sizes(args[1:] or (kwargs["size"],))
    ahead = len(wanted) - t.ndim
    shape = [t.meta.shape[d - ahead] if n == -1 else n for d, n in enumerate(wanted)]
    t = moved(t, tuple(WHOLE if p.is_shard() and t.meta.shape[p.dim] != shape[p.dim + ahead] else p for p in t._placed))
    local = list(shape)
    for p in t._placed:
        if p.is_shard():
            local[p.dim + ahead] = t._local_tensor.shape[p.dim]
    place = {d: d + ahead for d in range(t.ndim)}
    out = [with_dim(p, place[p.dim]) if p.is_shard() else p for p in t._placed]
    return make(func(entering(t, t._placed, out), local), t._mesh, out, shape)


@rule("repeat", "tile")
def _repeat(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    t, times = args[0], _sizes(args[1:])
    if len(times) < t.ndim:
        times = (1,) * (t.ndim - len(times)) + times
    ahead = len(times) - t.ndim
    t = without_parts(t, lambda p: times[p.dim + ahead] == 1)
    found = func(t._local_tensor, times)
    shape = [n * ((t.meta.shape[d - ahead]) if d >= ahead else 1) for d, n in enumerate(times)]
    return _carried(t, found, {d: d + ahead for d in range(t.ndim)}, shape)


@rule("cat", "concat", "concatenate", "stack")
def _joined(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    parts = list(args[0] if args else kwargs["tensors"])
    mesh = mesh_of(name, parts)
    first = next(p for p in parts if isinstance(p, DTensor))
    dim = kwargs.get("dim", args[1] if len(args) > 1 else 0)
    new = name == "stack"
    dim = dim % (first.ndim + new)
    if any(not isinstance(p, DTensor) for p in parts):
        from .propagation import adopted
        parts = [adopted(p, mesh) for p in parts]
    placed = tuple(WHOLE if (p.is_partial() and any(q._placed[i] != p for q in parts)) or (p.is_shard() and p.dim == dim and not new) else p
                   for i, p in enumerate(first._placed))
    out = [with_dim(p, p.dim + (new and p.dim >= dim)) if p.is_shard() else p for p in placed]
    found = func([entering(p, placed, out) for p in parts], dim)
    shape = {q.dim: first.meta.shape[p.dim] for p, q in zip(placed, out) if q.is_shard()}
    return wrap(found, mesh, out, shape)


@rule("__getitem__")
def _item(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    t, index = args
    if not isinstance(t, DTensor):
        return on_wholes(name, func, args, kwargs)
    items = list(index) if isinstance(index, tuple) else [index]
    if any(not isinstance(k, int | slice | type(None) | type(Ellipsis)) or isinstance(k, bool) for k in items):
        return on_wholes(name, func, args, kwargs)
    used = sum(k is not None and k is not Ellipsis for k in items)
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items[at:at + 1] = [slice(None)] * (t.ndim - used)
    else:
        items += [slice(None)] * (t.ndim - used)
    place: dict[int, int] = {}
    sizes: dict[int, int] = {}
    d = to = 0
    for k in items:
        if k is None:
            to += 1
        elif isinstance(k, int):
            d += 1
        else:
            if k == slice(None) or k.indices(t.meta.shape[d]) == (0, t.meta.shape[d], 1):
                place[d] = to
                sizes[d] = t.meta.shape[d]
            d, to = d + 1, to + 1
    t = moved(t, tuple(WHOLE if p.is_shard() and p.dim not in place else p for p in t._placed))
    cut = {p.dim for p in t._placed if p.is_shard()}
    d = 0
    for n, k in enumerate(items):
        if k is not None:
            if d in cut:
                items[n] = slice(None)
            d += 1
    found = func(t._local_tensor, tuple(items))
    shape = list(found.shape)
    for d, to in place.items():
        shape[to] = sizes[d]
    return _carried(t, found, place, shape)


@rule("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor")
def _new(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    t = args[0]
    return wrap(func(t._local_tensor, *args[1:], **kwargs), t._mesh, (WHOLE,) * t._mesh.ndim, {})



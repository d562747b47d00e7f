"""The view that ints, slices, None and ... make, by arithmetic."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ... import layout
from ...dtypes import bool_, int32, int64, uint8
from ...errors import warn
from ...tensor import Tensor
from ...unknowns import Unknown, index
from ..casts import to_dtype
from ..views import placed

_POSITIONS = frozenset((int64, int32, uint8, bool_))


def _too_many(t: Tensor) -> IndexError:
    return IndexError(f"too many indices for tensor of dimension {len(t.meta.shape)}")


def _normal(index: Any) -> list[Any]:
    """The index as a list, nested lists and arrays as tensors."""
    from ..creation import tensor
    items = list(index) if isinstance(index, tuple) or _as_tuple(index) else [index]
    out: list[Any] = []
    for x in items:
        if isinstance(x, (list, tuple, range)):
            x = tensor(list(x), device="cpu") if len(x) else tensor([], dtype=int64, device="cpu")
            x = to_dtype(x, int64) if x.meta.dtype.kind == "f" else x  # of numbers as such the whole part counts
        elif isinstance(x, np.ndarray):
            x = tensor(x, device="cpu")
        elif isinstance(x, np.bool_):
            x = bool(x)
        elif isinstance(x, np.integer):
            x = int(x)
        if isinstance(x, Tensor) and x.meta.dtype not in _POSITIONS and x.meta.dtype.kind in "ui" and not x.meta.shape:
            x = to_dtype(x, int64)  # one integer is a position, whatever its type
        if isinstance(x, Tensor) and x.meta.dtype not in _POSITIONS:
            raise IndexError(f"tensors used as indices must be long, int, byte or bool tensors, got {x.meta.dtype}")
        if isinstance(x, Tensor) and x.meta.dtype is uint8:
            warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
        out.append(x)
    return out


def _as_tuple(index: Any) -> bool:
    """Whether a sequence that is no tuple is taken for one, as PyTorch does with a list of what are indices themselves."""
    if not isinstance(index, (list, range)) or len(index) >= 32:
        return False
    if not any(x is None or x is Ellipsis or isinstance(x, (Tensor, slice, list, tuple, range, np.ndarray)) for x in index):
        return False
    warn("Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq], or "
         "x[torch.tensor(seq)] for what is meant as one tensor of positions.")
    return True


def _consumes(x: Any) -> int:
    """How many axes of the tensor an index uses up."""
    if x is None or isinstance(x, bool):
        return 0
    if isinstance(x, Tensor) and x.meta.dtype in (bool_, uint8):
        return len(x.meta.shape)
    return 1


def _basic(t: Tensor, items: list[Any]) -> tuple[Tensor, list[Any]]:
    """The view that ints, slices, None and ... make, and for each of its axes the tensor of positions still to apply."""
    used, known = 0, True
    for x in items:
        if type(x) is slice or type(x) is int or type(x) is Unknown:
            used += 1
        elif x is not Ellipsis and x is not None:
            used, known = used + _consumes(x), False
    ndim = len(t.meta.shape)
    if used > ndim:
        raise _too_many(t)
    places = [i for i, x in enumerate(items) if x is Ellipsis]
    if not places:
        items = [*items, Ellipsis]
    elif len(places) > 1:  # the others stand for no axes, so that nothing can come after them
        if any(_consumes(x) for x in items[places[1]:] if x is not Ellipsis):
            raise IndexError("an index can only have a single ellipsis ('...')")
        items = [x for i, x in enumerate(items) if i not in places[1:]]
    shape: list[int] = []
    strides: list[int] = []
    pending: list[Any] = []
    offset, axis = 0, 0
    sizes, steps = t.meta.shape, t.meta.strides
    for x in items:
        if x is Ellipsis:
            for _ in range(ndim - used):
                shape.append(sizes[axis])
                strides.append(steps[axis])
                pending.append(None)
                axis += 1
        elif x is None or type(x) is bool:
            shape.append(1)
            strides.append(sizes[axis] * steps[axis] if axis < ndim else 1)
            pending.append(x)
        elif type(x) is slice:
            start, stop, step = _slice(x, sizes[axis])
            count = max(0, -(-(stop - start) // step))
            offset += start * steps[axis]
            shape.append(count)
            strides.append(steps[axis] * step)
            pending.append(None)
            axis += 1
        elif type(x) is not int and isinstance(x, Tensor) and (x.meta.shape or x.meta.dtype in (bool_, uint8)):
            k = _consumes(x)
            for i in range(k):
                shape.append(sizes[axis])
                strides.append(steps[axis])
                pending.append(x if i == 0 else "with the one before")
                axis += 1
            if k == 0:
                shape.append(1)
                strides.append(0)
                pending.append(x)
        else:
            if type(x) is not int and (isinstance(x, (float, str)) or not hasattr(x, "__index__")):
                kind: type[Exception] = TypeError if isinstance(x, str) else IndexError
                raise kind("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
                           f"{type(x).__name__})")
            place: Any = x if type(x) is int or type(x) is Unknown else _position(x)
            n = sizes[axis]
            if not -n <= place < n:
                raise IndexError(f"index {place} is out of bounds for dimension {axis} with size {n}")
            offset += (place + n if place < 0 else place) * steps[axis]
            axis += 1
    if shape == list(sizes) and strides == list(steps) and any(p is not None for p in pending):
        return t, pending
    if known:  # of nothing but numbers and whole axes, which cannot change
        region: Any = partial(_same_part, items)
    else:
        region = _region([slice(None) if isinstance(x, Tensor) else None if isinstance(x, bool) else x for x in items], items)
    out = placed(t, shape, tuple(strides), t.ptr + offset * t.meta.dtype.itemsize, region, "SliceBackward0" if len(items) else "AliasBackward0")
    return out, pending


def _same_part(items: list[Any], z: Tensor) -> Any:
    return _basic(z, items)[0]


def _region(basic: list[Any], items: list[Any]) -> Any:
    """The same view of another tensor: positions stand for whole axes."""
    expanded: list[Any] = []
    for b, x in zip(basic, items, strict=True):
        if isinstance(x, Tensor) and (x.meta.shape or x.meta.dtype in (bool_, uint8)):
            expanded += [slice(None)] * _consumes(x) if _consumes(x) else [None]
        elif isinstance(x, Tensor):
            expanded.append(_position(x))
        else:
            expanded.append(b)
    return lambda z: _basic(z, expanded)[0]


def _position(x: Any) -> int:
    if isinstance(x, Tensor):
        return int(x.item())
    if isinstance(x, (float, str)) or not hasattr(x, "__index__"):
        raise TypeError(f"only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
                        f"{type(x).__name__})")
    return index(x)  # type: ignore[no-any-return]


def _slice(x: slice, n: int) -> tuple[int, int, int]:
    a, b, c = x.start, x.stop, x.step
    if any(isinstance(p, Unknown) for p in (a, b, n)):
        return layout.bounds(a, b, c, n)
    if (a is None or type(a) is int) and (b is None or type(b) is int) and (c is None or type(c) is int and c > 0):
        return x.indices(n)
    for p in (a, b, c):
        if p is not None and not hasattr(p, "__index__"):
            raise TypeError(f"slice indices must be integers or None or have an __index__ method, not {type(p).__name__}")
    parts = [None if p is None else _position(p) for p in (a, b, c)]
    if parts[2] is not None and parts[2] <= 0:
        raise ValueError("step must be greater than zero")
    return slice(*parts).indices(n)


def _constant(x: Any) -> bool:
    """Whether a part of an index is known from what a plan's key holds."""
    if type(x) is slice:
        return all(p is None or type(p) is int or type(p) is Unknown for p in (x.start, x.stop, x.step))
    return x is None or x is Ellipsis or type(x) is int or type(x) is Unknown

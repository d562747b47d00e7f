"""Shapes, places and order: the standard's manipulation, indexing, searching, sorting and set functions."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from ..._core import ops
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor
from .promotion import axes, together

NAMES = """broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack take
 take_along_axis argmax argmin count_nonzero nonzero searchsorted where unique_all unique_counts unique_inverse unique_values argsort
 sort""".split()


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """The arrays, broadcast against each other."""
    return list(ops.broadcast_tensors(*arrays))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """x broadcast to a shape."""
    return ops.broadcast_to(x, tuple(shape))  # type: ignore[no-any-return]


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Arrays end to end along an axis; None flattens them first."""
    arrays = together(*arrays)
    if axis is None:
        arrays, axis = [a.reshape(-1) for a in arrays], 0
    return ops.cat(list(arrays), axis)  # type: ignore[no-any-return]


def expand_dims(x: Tensor, /, axis: int) -> Tensor:
    """x with an axis of one element at `axis`."""
    return ops.unsqueeze(x, axis)  # type: ignore[no-any-return]


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """x with the elements of the axes (all by default) in reverse."""
    return ops.flip(x, axes(axis, x)) if x.meta.shape else x.clone()


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """x with some axes moved elsewhere."""
    return ops.movedim(x, source, destination)  # type: ignore[no-any-return]


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """x with its axes in another order."""
    return ops.permute(x, tuple(axes))  # type: ignore[no-any-return]


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element so many times, one after the other."""
    return ops.repeat_interleave(x, repeats, axis)  # type: ignore[no-any-return]


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """x in another shape.  Raises ValueError when copy is False and a copy is needed."""
    if copy is False:
        try:
            return x.view(tuple(shape))
        except RuntimeError as error:
            raise ValueError(f"reshape: copy=False, but the layout does not allow a view: {error}") from None
    made: Tensor = ops.reshape(x, tuple(shape))
    return made.clone() if copy and made.store is x.store else made


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """x with its elements moved round along the axes (flattened where None)."""
    return ops.roll(x, shift, axis)  # type: ignore[no-any-return]


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """x without these axes.  Raises ValueError for an axis of more than one element."""
    places = axes(axis, x)
    for a in places:
        if x.meta.shape[a] != 1:
            raise ValueError(f"squeeze: axis {a} has {x.meta.shape[a]} elements, not one")
    return ops.squeeze(x, places)  # type: ignore[no-any-return]


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis."""
    return ops.stack(list(together(*arrays)), axis)  # type: ignore[no-any-return]


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """x so many times along each axis."""
    return ops.tile(x, tuple(repetitions))  # type: ignore[no-any-return]


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts of x along an axis."""
    return tuple(ops.unbind(x, axis))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The parts of x at these places of an axis (which a vector need not name)."""
    if axis is None:
        if len(x.meta.shape) != 1:
            raise ValueError(f"take: axis must be given for an array of {len(x.meta.shape)} axes")
        axis = 0
    return ops.index_select(x, axis, indices)  # type: ignore[no-any-return]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """For each place of `indices`, the element of x there along the axis; the other axes broadcast."""
    return ops.take_along_dim(x, indices, axis)  # type: ignore[no-any-return]


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The place of the first greatest element."""
    return ops.argmax(x, axis, keepdims)  # type: ignore[no-any-return]


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The place of the first least element."""
    return ops.argmin(x, axis, keepdims)  # type: ignore[no-any-return]


def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero."""
    return ops.sum(x != 0, axes(axis, x), keepdims) if axes(axis, x) else (x != 0).to(ops.asarray(0).meta.dtype)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The places of the elements that are not zero, an array for each axis.  Raises ValueError for no axes."""
    if not x.meta.shape:
        raise ValueError("nonzero: the array has no axes")
    return tuple(ops.nonzero(x, as_tuple=True))


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where in the sorted x1 the elements of x2 would go."""
    x1, x2 = together(x1, x2)
    return ops.searchsorted(x1, x2, side=side, sorter=sorter)  # type: ignore[no-any-return]


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """x1 where the condition holds, else x2."""
    return ops.where(condition, *together(x1, x2))  # type: ignore[no-any-return]


_All = namedtuple("unique_all_result", "values indices inverse_indices counts")  # type: ignore[name-match]
_Counts = namedtuple("unique_counts_result", "values counts")  # type: ignore[name-match]
_Inverse = namedtuple("unique_inverse_result", "values inverse_indices")  # type: ignore[name-match]


def _distinct(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values, places of first occurrence, for each element its value's place, counts.  Each NaN is a value of its own."""
    import numpy as np
    values, first, inverse, counts = np.unique(unasked(x.detach().cpu)().numpy(), return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    there = x.meta.device
    found = [unasked(ops.from_numpy(np.array(a)).to)(there) for a in (values, first, inverse.reshape(tuple(x.meta.shape)), counts)]
    return found[0], found[1], found[2], found[3]


def unique_all(x: Tensor, /) -> Any:
    """The distinct values, where each comes first, for each element its value's place, and how often each comes."""
    return _All(*_distinct(x))


def unique_counts(x: Tensor, /) -> Any:
    """The distinct values and how often each comes."""
    values, _, _, counts = _distinct(x)
    return _Counts(values, counts)


def unique_inverse(x: Tensor, /) -> Any:
    """The distinct values and, for each element, its value's place."""
    values, _, inverse, _ = _distinct(x)
    return _Inverse(values, inverse)


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct values."""
    return _distinct(x)[0]


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The places that sort x along an axis."""
    return ops.sort(x, dim=axis, descending=descending, stable=stable)[1]  # type: ignore[no-any-return]


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """x sorted along an axis."""
    return ops.sort(x, dim=axis, descending=descending, stable=stable)[0]  # type: ignore[no-any-return]

"""Searching: where values belong in sorted sequences, which are members of a set, where non-zero elements are."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import bool_, int32, int64
from ..engine.fields import has
from ..engine.plans import Plan
from ..kernels.specs import Among, NonzeroFirst, NonzeroWrite, Search
from ..tensor import Meta, Tensor, empty, meta, new
from . import launch, routines
from .casts import to_dtype
from .checks import of_kinds, same_device, values_hold
from .copies import contiguous
from .indexing.along_axis import taken_along
from .indexing.nonzero import nonzero_counts
from .table import op


def _operand(value: Any, like: Tensor) -> Tensor:
    """A number as a zero-dim tensor beside `like`, of the type Python gives it."""
    from .creation import full
    if isinstance(value, Tensor):
        return value
    kind = dtypes.of_scalar(value)
    d = like.meta.dtype if "buifc".index(kind.kind) <= "buifc".index(like.meta.dtype.kind) else kind
    return full((), value, dtype=d, device=like.meta.device)


@op(out=True, gives="Tensor")
def searchsorted(sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,  # noqa: A002
                 sorter: Tensor | None = None) -> Any:
    """Where each value would go in the sorted last axis of `sorted_sequence` to keep it sorted: int64 (int32 on demand).

    sorted_sequence: a vector, or leading axes equal to input's.  right (side="right"): after equal elements, not before.
    sorter: positions that sort sorted_sequence.  Raises RuntimeError for shapes that do not fit.
    """
    seq = sorted_sequence
    values = _operand(input, seq)
    _check_search(seq, values, isinstance(input, Tensor), right, side, sorter)
    right = right or side == "right"
    if values.meta.numel and not (seq.meta.dtype is bool_ and values.meta.dtype.kind in "uif"):  # truths beside numbers become numbers
        of_kinds("searchsorted_out_cpu", seq, "uif")
    if sorter is not None:
        values_hold(sorter, lambda at: (at >= 0) & (at < seq.meta.shape[-1]), RuntimeError("torch.searchsorted(): sorter index out of range"))
        seq = seq.detach().gather(-1, sorter)
    m = meta(values.meta.shape, None, int32 if out_int32 else int64, values.meta.device)
    bound = routines.find(m.device, _spec(m, seq, values, right)) if m.numel else None
    if values is input and seq is sorted_sequence and (bound is not None or not m.numel):
        return Plan([m], *(bound or (None,)))
    out = new(m)
    if m.numel:
        if bound is None and seq.meta.dtype is not values.meta.dtype:
            common = _common(seq, values)
            seq, values = to_dtype(seq.detach(), common), to_dtype(values.detach(), common)
            bound = routines.find(m.device, _spec(m, seq, values, right))
        if bound is None and seq.meta.strides[-1] != 1:
            seq = contiguous(seq.detach())
        routines.call(bound or routines.needed(m.device, _spec(m, seq, values, right)), (out.ptr, seq.ptr, values.ptr))
    return out


def _spec(out: Meta, seq: Tensor, values: Tensor, right: bool) -> Search:
    a, b = seq.meta, values.meta
    return Search(a.dtype, out.dtype, tuple(b.shape), a.shape[-1], (out.strides, a.strides, b.strides), right,
                  None if a.dtype is b.dtype else b.dtype)


def _common(a: Tensor, b: Tensor) -> Any:
    """The type in which NumPy compares elements of both; None where they have to be read as Python's numbers."""
    if a.meta.dtype is b.meta.dtype:
        return a.meta.dtype
    kinds = [np.dtype(np.float32) if t.meta.dtype is dtypes.bfloat16 else np.dtype(t.meta.dtype.np) for t in (a, b)]
    return dtypes.from_numpy(np.result_type(*kinds))


def _check_search(seq: Tensor, values: Tensor, given: bool, right: bool, side: str | None, sorter: Tensor | None) -> None:
    same_device("searchsorted", seq, values, sorter)
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError("torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True")
    if not seq.meta.shape:
        raise RuntimeError("torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension")
    if len(seq.meta.shape) > 1:
        if not given or not values.meta.shape:
            raise RuntimeError("torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but we got boundaries "
                               f"tensor dim({len(seq.meta.shape)}) and input value's dim(0) numel(1)")
        if tuple(seq.meta.shape[:-1]) != tuple(values.meta.shape[:-1]):
            raise RuntimeError("torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and "
                               f"input value tensor must match, but we got boundaries tensor {list(seq.meta.shape)} and input value tensor "
                               f"{list(values.meta.shape)}")
    if sorter is not None:
        if sorter.meta.shape != seq.meta.shape:
            raise RuntimeError("torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor "
                               f"{list(seq.meta.shape)} and got sorter tensor {list(sorter.meta.shape)}")
        if sorter.meta.dtype is not int64:
            raise RuntimeError(f"torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {sorter.meta.dtype}")


@op(out=True, gives="Tensor", batch="trailing")
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:  # noqa: A002
    """The interval between increasing `boundaries` (a vector) that each value falls into: boundaries[i-1] < x <= boundaries[i], or,
    with right, boundaries[i-1] <= x < boundaries[i]."""
    if len(boundaries.meta.shape) != 1:
        raise RuntimeError(f"bucketize(): boundaries tensor must be 1 dimension, but got dim({len(boundaries.meta.shape)})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@op(method=False, out=True)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element is one of `test_elements` (with invert: is none of them).  One of the two may be a number."""
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise TypeError("isin(): elements or test_elements must be a Tensor")
    x = _operand(elements, test_elements)
    among = _operand(test_elements, x)
    same_device("isin", x, among)
    for t in (x, among):
        if t.meta.dtype is bool_ or t.meta.dtype.is_complex:
            raise RuntimeError(f"Unsupported input type encountered for isin(): {t.meta.dtype.name}")
    out = empty(x.meta.shape, bool_, x.meta.device)
    if not out.meta.numel:
        return out
    if _found_among(out, x, among, bool(assume_unique), bool(invert)):
        return out
    if x.meta.dtype is not among.meta.dtype:
        common = _common(x, among)
        x, among = to_dtype(x.detach(), common), to_dtype(among.detach(), common)
        if _found_among(out, x, among, bool(assume_unique), bool(invert)):
            return out
    return _is_among(x, among, invert)


def _found_among(out: Tensor, x: Tensor, among: Tensor, unique: bool, invert: bool) -> bool:
    a, b = x.meta, among.meta
    return routines.run(a.device, Among(((a.dtype, tuple(a.shape), a.strides), (b.dtype, tuple(b.shape), b.strides)), out.meta.strides, unique, invert),
                        (out.ptr, x.ptr, among.ptr))


def _is_among(x: Tensor, among: Tensor, invert: bool) -> Tensor:
    """isin of two tensors of a type by sorting and searching."""
    from .sorting import sort
    row = among.detach().reshape(-1)
    if not row.meta.numel:
        return x.new_full(tuple(x.meta.shape), invert, dtype=bool_)
    row = sort(row)[0]
    if row.meta.dtype.is_floating_point:  # NaN is among nothing, and a search takes it for less than every value: the least element stands for it
        row = sort(row.where(row == row, row[0]))[0]
    at = searchsorted(row, x).clamp_(max=row.meta.numel - 1)
    found = taken_along(row, at.reshape(-1)).reshape(tuple(x.meta.shape))
    made: Tensor = found != x if invert else found == x
    return made


@op(out=True, batch="reads")
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:  # noqa: A002
    """The positions of the first `size` elements that are not 0, (size, ndim) int64, filled up with fill_value.  The host does not
    wait for the values."""
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, got {size}")
    m = input.meta
    out = empty((size, len(m.shape)), int64, m.device)
    if out.meta.numel and not _first_nonzero(out, input, size, fill_value):
        routines.require(m.device, NonzeroFirst(m.dtype, tuple(m.shape), m.strides, size, fill_value), (out.ptr, input.ptr))
    return out


def _first_nonzero(out: Tensor, t: Tensor, size: int, fill_value: int) -> bool:
    """nonzero_static as the device finds all of them; False where the host does."""
    counts = nonzero_counts(t)
    if counts is None:
        return False
    launch.fill(out, fill_value)
    m = t.meta
    return routines.run(m.device, NonzeroWrite(m.dtype, tuple(m.shape), m.strides), (out.ptr, t.ptr, counts.ptr), (size, len(m.shape), 1))

has("searchsorted", sparse="composite")

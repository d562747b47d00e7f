"""Searching: where values belong in sorted sequences, which are members of a set, where non-zero elements are."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..dtypes import bool_, int32, int64
from ..kernels.interpret import load, memory
from ..kernels.programs import Prepared
from ..runtime import door
from ..tensor import Tensor, empty, new, on_forget
from . import device_routines, launch, ordering
from .casts import to_dtype
from .checks import same_device
from .indexing import nonzero_counts
from .positions import taken_along
from .table import op

if TYPE_CHECKING:
    from ..tensor import Meta


def _operand(value: Any, like: Tensor) -> Tensor:
    """A number as a zero-dim tensor beside `like`, of the type Python gives it."""
    from .creation import full
    if isinstance(value, Tensor):
        return value
    kind = dtypes.of_scalar(value)
    d = like.meta.dtype if "buifc".index(kind.kind) <= "buifc".index(like.meta.dtype.kind) else kind
    return full((), value, dtype=d, device=like.meta.device)


def _find(rows: Any, wanted: Any, right: bool) -> Any:
    """Positions in each row of `rows` (r, n) for the values of each row of `wanted` (r, k), NaN the greatest."""
    if len(rows) <= 16:
        return np.stack([np.searchsorted(row, w, "right" if right else "left") for row, w in zip(rows, wanted, strict=True)])
    common = np.result_type(rows, wanted)
    d = dtypes.from_numpy(common)
    sorted_keys, key = ordering.keys(rows.astype(common), d), ordering.keys(wanted.astype(common), d)
    # binary search in all rows at once
    n = rows.shape[-1]
    low, high = np.zeros(key.shape, np.int64), np.full(key.shape, n, np.int64)
    for _ in range(n.bit_length()):
        mid = (low + high) >> 1
        at = np.take_along_axis(sorted_keys, np.minimum(mid, n - 1), -1)
        further = ((at <= key) if right else (at < key)) & (low < high)
        low, high = np.where(further, mid + 1, low), np.where(further, high, mid)
    return low


_FEW = 1 << 12  # elements that need no threads
_plans: dict[Any, Any] = {}  # of two layouts and the flags: what finds few values on the CPU
_MOST_PLANS = 1 << 12
on_forget(_plans.clear)
door.on_change(_plans.clear)


def _few(a: Meta, b: Meta, to: Meta, right: bool) -> Any:
    """Finds dense values laid out as b in a dense vector a, called with addresses."""
    raw, raw_out, raw_values = (ctypes.c_char * m.nbytes for m in (a, to, b))
    read: Any = np.frombuffer
    plain, position, side = a.dtype.np, to.dtype.np, "right" if right else "left"

    def entry(target: int, where: int, what: int) -> None:
        read(raw_out.from_address(target), position)[...] = read(raw.from_address(where), plain).searchsorted(
            read(raw_values.from_address(what), plain), side)
    return entry


@op(out=True)
def searchsorted(sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,  # noqa: A002
                 sorter: Tensor | None = None) -> Tensor:
    """Where each value would go in the sorted last axis of `sorted_sequence` to keep it sorted: int64 (int32 on demand).

    sorted_sequence: a vector, or leading axes equal to input's.  right (side="right"): after equal elements, not before.
    sorter: positions that sort sorted_sequence.  Raises RuntimeError for shapes that do not fit.
    """
    seq = sorted_sequence
    key = None
    if sorter is None and isinstance(input, Tensor):
        key = seq.meta, input.meta, out_int32, right, side
        plan = _plans.get(key)
        if plan is not None:
            made, call = plan
            out = new(made)
            call(out.ptr, seq.ptr, input.ptr)
            return out
    values = _operand(input, seq)
    _check_search(seq, values, isinstance(input, Tensor), right, side, sorter)
    right = right or side == "right"
    if sorter is not None:
        if sorter.meta.device.type == "cpu" and sorter.meta.numel and (int(sorter.min().item()) < 0 or
                                                                 int(sorter.max().item()) >= seq.meta.shape[-1]):
            raise RuntimeError("torch.searchsorted(): sorter index out of range")
        seq = seq.detach().gather(-1, sorter)
    out = empty(values.meta.shape, int32 if out_int32 else int64, values.meta.device)
    a, b = seq.meta, values.meta
    result = out.meta.dtype
    if key is not None and values is input and b.device.type == "cpu" and 0 < b.numel <= _FEW and 0 < a.numel <= _FEW and len(a.shape) == 1 and (
            a.dtype is b.dtype and a.dtype is not dtypes.bfloat16 and a.contiguous and b.contiguous):
        if len(_plans) > _MOST_PLANS:
            _plans.clear()
        call = door.bind(b.device, Prepared("searchsorted", _few(a, b, out.meta, right), nbytes=a.nbytes + b.nbytes + out.meta.nbytes))
        _plans[key] = out.meta, call
        call(out.ptr, seq.ptr, values.ptr)
        return out

    def entry(target: int, where: int, what: int) -> None:
        rows, wanted = load(memory(where, tuple(a.shape), a.strides, a.dtype), a.dtype), load(memory(what, tuple(b.shape), b.strides, b.dtype), b.dtype)
        if len(a.shape) == 1:
            found = np.searchsorted(rows, wanted, "right" if right else "left")
        else:
            found = _find(rows.reshape(-1, a.shape[-1]), wanted.reshape(-1, b.shape[-1]), right).reshape(tuple(b.shape))
        memory(target, tuple(b.shape), out_strides, result)[...] = found
    out_strides = out.meta.strides
    if out.meta.numel and not _by_device(out, seq, values, right):
        launch.routine(b.device, "searchsorted", entry, (out.ptr, seq.ptr, values.ptr), nbytes=a.nbytes + b.nbytes + out.meta.nbytes)
    return out


def _by_device(out: Tensor, seq: Tensor, values: Tensor, right: bool) -> bool:
    """searchsorted by the device's own routine, in the type that both are promoted to; False where it has none."""
    if door.by_host(out.meta.device):
        return False
    common = _common(seq, values)
    if common is None:
        return False
    seq, values = to_dtype(seq.detach(), common), to_dtype(values.detach(), common)
    a, b = seq.meta, values.meta
    return device_routines.run(b.device, "search", (common, out.meta.dtype, tuple(b.shape), a.shape[-1], out.meta.strides, a.strides, b.strides, right),
                               (out.ptr, seq.ptr, values.ptr))


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


@op(out=True)
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:  # noqa: A002
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
    a, b = x.meta, among.meta

    def entry(target: int, what: int, those: int) -> None:
        found = np.isin(load(memory(what, tuple(a.shape), a.strides, a.dtype), a.dtype),
                        load(memory(those, tuple(b.shape), b.strides, b.dtype), b.dtype), assume_unique=assume_unique, invert=invert)
        memory(target, tuple(a.shape), strides, bool_)[...] = found
    strides = out.meta.strides
    if out.meta.numel and not door.by_host(a.device):
        return _is_among(x, among, invert)
    if out.meta.numel:
        launch.routine(a.device, "isin", entry, (out.ptr, x.ptr, among.ptr), nbytes=a.nbytes + b.nbytes + out.meta.nbytes)
    return out


def _is_among(x: Tensor, among: Tensor, invert: bool) -> Tensor:
    """isin by sorting and searching."""
    from .sorting import sort
    common = _common(x, among)
    x, row = to_dtype(x.detach(), common), to_dtype(among.detach(), common).reshape(-1)
    if not row.meta.numel:
        return x.new_full(tuple(x.meta.shape), invert, dtype=bool_)
    row = sort(row)[0]
    at = searchsorted(row, x).clamp_(max=row.meta.numel - 1)
    found = taken_along(row, at.reshape(-1)).reshape(tuple(x.meta.shape))
    made: Tensor = found != x if invert else found == x
    return made


@op(out=True)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:  # noqa: A002
    """The positions of the first `size` elements that are not 0, (size, ndim) int64, filled up with fill_value.  The host does not
    wait for the values."""
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, got {size}")
    m = input.meta
    out = empty((size, len(m.shape)), int64, m.device)

    def entry(target: int, source: int) -> None:
        found = np.argwhere(load(memory(source, tuple(m.shape), m.strides, m.dtype), m.dtype))[:size]
        to = memory(target, tuple(out_shape), out_strides, int64)
        to[:len(found)] = found
        to[len(found):] = fill_value
    out_shape, out_strides = out.meta.shape, out.meta.strides
    if out.meta.numel and not _first_nonzero(out, input, size, fill_value):
        launch.routine(m.device, "nonzero_static", entry, (out.ptr, input.ptr), nbytes=m.nbytes + out.meta.nbytes)
    return out


def _first_nonzero(out: Tensor, t: Tensor, size: int, fill_value: int) -> bool:
    """nonzero_static by the device's own routine; False where it has none."""
    counts = nonzero_counts(t)
    if counts is None:
        return False
    launch.fill(out, fill_value)
    m = t.meta
    return device_routines.run(m.device, "nonzero write", (m.dtype, tuple(m.shape), m.strides), (out.ptr, t.ptr, counts.ptr), (size, len(m.shape), 1))

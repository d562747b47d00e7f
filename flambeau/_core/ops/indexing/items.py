"""`x[...]`, to read and to write, and index_put."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import dtypes, layout
from ...autograd import inplace, tape
from ...autograd.mode import _grad
from ...dtypes import bool_, dtype, int64, uint8
from ...engine import general
from ...engine.fields import has
from ...engine.fronts import OPEN, TENSORS
from ...engine.operation import Operation
from ...errors import warn
from ...tensor import Meta, Tensor, _new, meta
from ...unknowns import Unknown
from ..casts import to_dtype
from ..checks import may_write, no_overlap
from ..device_errors import mismatch
from ..table import op
from ..views import _select, planning
from .basic import _basic, _constant, _normal
from .masks import _chosen
from .nonzero import _nonzero_host, nonzero_columns
from .positions import put_at, take_at


def _expanded(x: Tensor, pending: list[Any]) -> tuple[Tensor, list[Tensor | None]]:
    """Masks as positions; positions in int64 on x's device.  Bool scalars become an axis of size 1 or 0."""
    out: list[Tensor | None] = []
    i = 0
    while i < len(pending):
        p = pending[i]
        if p is None:
            out.append(None)
        elif isinstance(p, bool) or (isinstance(p, Tensor) and not p.meta.shape and p.meta.dtype in (bool_, uint8)):
            from ..creation import zeros
            out.append(zeros((1 if bool(p) else 0,), dtype=int64, device=x.meta.device))
        elif p.meta.dtype in (bool_, uint8):
            for k, (a, b) in enumerate(zip(p.meta.shape, x.meta.shape[i:], strict=False)):
                if a != b:
                    raise IndexError(f"The shape of the mask {list(p.meta.shape)} at index {k} does not match the shape of the indexed tensor "
                                     f"{list(x.meta.shape)} at index {i + k}")
            out += list(_nonzero_parts(p, x.meta.device))
            i += len(p.meta.shape) - 1
        else:
            out.append(_placed_index(p, x))
        i += 1
    return x, out


def _placed_index(p: Tensor, x: Tensor) -> Tensor:
    if p.meta.device is not x.meta.device:
        if p.meta.device.type != "cpu" or (p.meta.shape and x.meta.device.type == "cpu"):
            raise mismatch("index", [x, p], [x], begins=f"indices should be either on cpu or on the same device as the indexed tensor ({x.meta.device})",
                           labels=("input", "index"))
        from ..transfer import to_device
        p = to_device(p, x.meta.device)
    return to_dtype(p, int64)


def _nonzero_parts(mask: Tensor, dev: Any) -> tuple[Tensor, ...]:
    found = nonzero_columns(mask) if mask.meta.device is dev else None
    if found is not None:
        parts = tuple(found[k] for k in range(len(mask.meta.shape)))
    else:
        from ..creation import from_host
        parts = tuple(from_host(np.ascontiguousarray(a, np.int64), int64, dev) for a in _nonzero_host(mask))
    for part, n in zip(parts, mask.meta.shape, strict=True):
        part.__dict__["_below"] = n  # nobody else has them: they need no check
    return parts


@general.kept
def _rows(m: Meta) -> tuple[Meta, int, int]:
    """Of a tensor with axes: what a row is, how many, and how many bytes from one to the next."""
    return meta(m.shape[1:], m.strides[1:], m.dtype, m.device), m.shape[0], m.strides[0] * m.dtype.itemsize


def _row(t: Tensor, index: int) -> Tensor | None:
    """`t[index]` for a tensor without a history, the common case of reading samples; None out of range."""
    if not t.meta.shape:
        return None
    m, n, step = _rows(t.meta)
    if index < 0:
        index += n
    if not 0 <= index < n:
        return None
    r: Tensor = _new(Tensor)
    r.meta, r.store, r.ptr, r.node = m, t.store, t.ptr + index * step, None
    base = t.base
    inplace.note_view(t if base is None else base, r)
    if base is not None and "_made" in t.__dict__:
        r.__dict__["_made"] = t.__dict__["_made"]
    return r


_ALL = slice(None)


def _plain(t: Tensor, index: Any) -> list[Tensor | None] | None:
    """The positions for each axis, where an index is nothing but them and whole axes; None for other indices."""
    items = index if type(index) is tuple else (index,)
    out: list[Tensor | None] = []
    some, dev = False, t.meta.device
    for x in items:
        if type(x) is Tensor:
            m = x.meta
            if m.dtype is not int64 or not m.shape or m.device is not dev:
                return None
            some = True
            out.append(x)
        elif type(x) is slice and x == _ALL:
            out.append(None)
        else:
            return None
    rest = len(t.meta.shape) - len(out)
    if rest < 0 or not some:
        return None
    return out + [None] * rest if rest else out


def _get(self: Tensor, index: Any) -> Any:
    if type(index) is int or type(index) is Unknown:
        if self.node is None and type(index) is int:  # of a thousand rows each is asked for once: no plans of them
            row = _row(self, index)
            if row is not None:
                return row
        if not self.meta.shape:
            raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a "
                             "0-dim tensor to a number")
        n = self.meta.shape[0]
        if not -n <= index < n:
            raise IndexError(f"index {index} is out of bounds for dimension 0 with size {n}")
        return planning(_select, self, 0, index)
    if type(index) is Tensor and index.meta.dtype is bool_ and not tape.recording(self):
        chosen = _chosen(self, index)
        if chosen is not None:
            return chosen
    if all(map(_constant, index)) if type(index) is tuple else _constant(index):
        return planning(_basic, self, list(index) if type(index) is tuple else [index])[0]
    plain = _plain(self, index)
    if plain is not None:
        return take_at(self, plain)
    items = _normal(index)
    if all(map(_constant, items)):
        return planning(_basic, self, items)[0]
    view, pending = _basic(self, items)
    if all(p is None for p in pending):
        return view
    x, indices = _expanded(view, pending)
    return take_at(x, indices)


def _number_for(d: dtype, value: Any) -> bool:
    """Whether a Python number can stand in a tensor of type d as it is."""
    if d.kind in "ui":
        return type(value) is int
    return d.kind == "f" and type(value) in (int, float) or d is bool_ and type(value) is bool


def _filled(x: Tensor, pending: list[Any], value: Any) -> bool:
    """x[mask] = value for one mask and one number, where nothing is recorded: no positions are needed, and no GPU is waited for."""
    at = [i for i, p in enumerate(pending) if isinstance(p, Tensor)]
    if len(at) != 1 or any(type(p) is bool for p in pending):
        return False
    mask, axis = pending[at[0]], at[0]
    if mask.meta.dtype is not bool_ or not mask.meta.shape or mask.meta.device is not x.meta.device or not x.meta.numel:
        return False
    if isinstance(value, Tensor):
        if value.meta.shape or value.meta.dtype is not x.meta.dtype or value.meta.device is not x.meta.device or tape.recording(value):
            return False
    elif not _number_for(x.meta.dtype, value):
        return False
    last = axis + len(mask.meta.shape)
    if tape.recording(x) or tuple(x.meta.shape[axis:last]) != tuple(mask.meta.shape):
        return False
    if not x.meta.contiguous and layout.overlaps_itself(x.meta.shape, x.meta.strides):
        return False
    x.masked_fill_(mask.reshape((*mask.meta.shape, *[1] * (len(x.meta.shape) - last))), value)
    return True


def _set(self: Tensor, index: Any, value: Any) -> None:
    from ..creation import tensor
    if index is False:
        _held(self, value)
        return
    pending: list[Any] = []
    try:
        if all(map(_constant, index)) if type(index) is tuple else _constant(index):
            view = GET.started().direct(self, index)
        else:
            view, pending = _basic(self, [None] if index is True else _normal(index))
    except IndexError:
        _held(self, value)  # PyTorch makes the value first
        raise
    if all(p is None for p in pending):
        _assign(view, tensor(value, dtype=self.meta.dtype, device=self.meta.device) if isinstance(value, (list, tuple, np.ndarray)) else value)
        return
    if _filled(view, pending, value):
        return
    if not isinstance(value, Tensor):
        value = tensor(_held(self, value), dtype=self.meta.dtype, device=self.meta.device)
    elif value.meta.device is not self.meta.device and value.meta.shape:
        raise mismatch("index_put_", [self, value], [self], (self, None, value))
    if _grad.get():
        inplace.check(view, (view, value))
    while len(value.meta.shape) > 1 and value.meta.shape[0] == 1:  # leading axes of size 1 do not count here
        value = value.reshape(value.meta.shape[1:])
    if value.meta.numel != 1:  # for one value PyTorch looks at a mask first
        no_overlap(view, value)
    x, indices = _expanded(view, pending)
    put_at(x, indices, _one_for_a_mask(x, [p for p in pending if p is not None], value), False)


def _held(self: Tensor, value: Any) -> Any:
    """A number as elements of self hold it; what is no number as it is.  Raises RuntimeError for one that they cannot hold."""
    value = value.item() if isinstance(value, np.generic) else value
    return dtypes.number(value, self.meta.dtype) if isinstance(value, (int, float, complex)) else value


def _assign(view: Tensor, value: Any) -> None:
    """What a basic index shows takes a value: broadcast, which has the leading axes of size 1 that it needs and no others that count."""
    if not isinstance(value, Tensor):
        may_write(view, one=True)
        view.fill_(_held(view, value) if not view.meta.numel or isinstance(value, np.generic) else value)
        return
    if value.meta.device is not view.meta.device and value.meta.shape:
        raise mismatch("index_put_", [view, value], [view], (view, None, value))
    shape, to = tuple(value.meta.shape), tuple(view.meta.shape)
    if shape == to:
        view.copy_(value)
    elif not shape:
        view.fill_(value)
    else:
        while shape and shape[0] == 1:
            shape = shape[1:]
        value = value.view(shape) if shape != tuple(value.meta.shape) else value
        if value.meta.numel == 1:  # one value may be of the elements that are written
            view.copy_(value.clone() if view.meta.numel > 1 and value.store.ptr == view.store.ptr else value)
        else:
            view.copy_(value.expand(to))


def _one_for_a_mask(x: Tensor, indices: Sequence[Any], value: Tensor) -> Tensor:
    """One value for the places of one mask may be of any type, as that of a fill; others must be of x's."""
    masks = [p for p in indices if not isinstance(p, str)]
    if value.meta.numel == 1 and len(masks) == 1 and isinstance(masks[0], Tensor) and masks[0].meta.dtype in (bool_, uint8):
        value = to_dtype(value, x.meta.dtype)
        return value.clone() if value.store.ptr == x.store.ptr else value
    return value


_get.__doc__, _set.__doc__ = "What an index shows: a view, or for tensors of positions a copy.", "Writes to what an index shows."
GET = Operation("index", _get, shown="__getitem__", kinds={"index": TENSORS})
Tensor.__getitem__ = GET.function  # type: ignore[method-assign]
Tensor.__setitem__ = Operation(  # type: ignore[method-assign]
    "index_put_", _set, shown="__setitem__", kinds={"index": TENSORS, "value": OPEN}).function


@op(name="index_put_")
def index_put_(self: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """Writes values at positions (one tensor an axis), or adds them.  Raises RuntimeError for no positions at all."""
    if not len(indices):
        raise RuntimeError("index_put_(): at least one index must be given, as a list or tuple with a tensor for each axis")
    for i in indices:
        if isinstance(i, Tensor) and i.meta.dtype.name not in ("int64", "int32", "uint8", "bool"):
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        if isinstance(i, Tensor) and i.meta.dtype is uint8:
            warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
    x, found = _expanded(self, [*indices, *[None] * (len(self.meta.shape) - len(indices))]) if not any(
        isinstance(i, Tensor) and i.meta.dtype is bool_ for i in indices) else _expanded(*_basic(self, list(indices)))
    return put_at(x, found, values if accumulate else _one_for_a_mask(x, [i for i in indices if i is not None], values), accumulate)


@op(autocast="cuda widest")
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:  # noqa: A002
    """A copy with values written (or added) at positions."""
    return index_put_(input.clone(), indices, values, accumulate)


has("index", tangent="linear")
has("__getitem__", batch="item")
has("__setitem__", batch="item set")
has("index_put", batch="composite")

"""Views: other layouts on the same storage.  Nothing is copied; writes through a view are seen by its base.

Each view's gradient is stated in index space: `region` takes a fresh tensor of the input's shape to the place the view
shows, so the gradient is zeros with the arriving one put there, and the gradient of that is the view again.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from .. import dtypes, hooks, layout, unknowns
from ..autograd import inplace, tape
from ..autograd.mode import _grad, no_recording
from ..engine.fields import has
from ..engine.fronts import SIZES, Signature
from ..engine.plans import Compose, Relaid, View
from ..tensor import Meta, Tensor, _new, alias, empty, meta, new
from . import launch
from .copies import cast_program, contiguous
from .partial_grads import Parts, assemble, dense
from .sizes import sizes_of
from .table import op, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

F = TypeVar("F", bound=Any)


def view_of(t: Tensor, shape: Sequence[int], strides: tuple[int, ...], p: int,
            backward: Callable[[Any, Tensor], Any] | None, saved: Any, name: str) -> Tensor:
    """A view of `t` at address `p`, recorded with `backward`, known to its base."""
    return _viewed(t, meta(shape, strides, t.meta.dtype, t.meta.device), p, backward, saved, name)


_planning: ContextVar[Tensor | None] = ContextVar("the operand of the view that is being planned", default=None)


def viewed(name: str, **options: Any) -> Callable[[F], F]:
    """Registers an operation that shows its first operand's memory with another layout, which depends on that operand's meta and the other
    arguments only. Its function ends in `view_of` or `placed`, which give the plan of the view while one is made; what else it
    gives is the call's result. options: see `table.planned`."""
    def register(body: F) -> F:
        @functools.wraps(body)
        def plan(*args: Any, **kwargs: Any) -> Any:
            return planning(body, *args, **kwargs)
        return planned(name, plan, signature=_signature(body), **options)  # type: ignore[no-any-return]
    return register


def planning(make: Callable[..., Any], t: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``make(t, ...)``, whose first view of `t` comes as a plan."""
    token = _planning.set(t)
    try:
        return make(t, *args, **kwargs)
    finally:
        _planning.reset(token)


def _signature(body: Callable[..., Any]) -> Signature:
    found = Signature.of(body)
    if found.rest is not None:  # sizes or axes, one by one or as one sequence
        found.kinds[found.rest] = SIZES
    return found


def relaying(name: str, shows: Callable[..., Tensor]) -> None:
    """Registers the operation that gives its operand itself the layout that the view operation `shows` would show."""
    def general(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if _grad.get():
            inplace.check(self, (self,))
        made = shows(self, *args, **kwargs)
        node = made.node
        self.meta, self.ptr = made.meta, made.ptr
        self.store.version += 1
        if node is not None:
            self.node = node
        return self

    def plan(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if shown.planned:
            if _grad.get():
                inplace.check(self, (self,))
            made = body(self, *args, **kwargs)
            if type(made) is View:
                return Relaid(made, lambda t: general(t, *args, **kwargs))
        return general(self, *args, **kwargs)
    shown = shows.__operation__  # type: ignore[attr-defined]
    body = shown.body
    functools.update_wrapper(plan, body)
    plan.__name__ = plan.__qualname__ = name
    plan.__doc__ = f"`{name[:-1]}`, changing the layout of the tensor itself."
    planned(name, plan, signature=_signature(body), spaces=())


def _viewed(t: Tensor, m: Meta, p: int, backward: Callable[[Any, Tensor], Any] | None, saved: Any, name: str) -> Tensor:
    if _planning.get() is t:
        _planning.set(None)
        return View(m, p - t.ptr, backward, saved, name)  # type: ignore[return-value]
    r = _new(Tensor)
    r.meta = m
    r.store = t.store
    r.ptr = p
    r.node = None
    base = t.base
    if base is None:
        inplace.note_view(t, r)
    else:
        inplace.note_view(base, r)
        if "_made" in t.__dict__:
            r.__dict__["_made"] = t.__dict__["_made"]
    if t.node is not None and backward is not None and _grad.get():
        r.node = tape.node(backward, (t.node,), saved, name)
    return r  # type: ignore[no-any-return]


def placed(t: Tensor, shape: Sequence[int], strides: tuple[int, ...], p: int, region: Callable[[Tensor], Tensor],
           name: str) -> Tensor:
    """A view that shows part of `t`: `region` shows the same part of any tensor of t's shape."""
    return view_of(t, shape, strides, p, _put_back, (t.meta, region, strides, p - t.ptr), name)


@tape.keeps_nothing
def _put_back(node: Any, g: Tensor) -> Any:
    m, region, strides, offset = node[tape.SAVED]
    if not _grad.get() and type(g) is Tensor and g.meta.dtype is m.dtype and dense(m):
        piece = g, strides, offset
        return (Parts(m, piece) if node[tape.EDGES][0][0] else assemble(m, [piece]),)
    return (put(g, m.shape, region),)


def put(g: Tensor, shape: Sequence[int], region: Callable[[Tensor], Tensor]) -> Tensor:
    """Zeros of `shape` with `g` at `region`.  Differentiable: its gradient is `region` of the arriving one."""
    whole = hooks.zeros_meta(meta(shape, None, g.meta.dtype, g.meta.device))
    with no_recording():
        here = region(whole)
        strides = [here.meta.strides, layout.expand_strides(g.meta.shape, g.meta.strides, tuple(here.meta.shape))]
        launch.run(cast_program(g.meta.dtype, g.meta.dtype), tuple(here.meta.shape), [here], [g], strides, name="put")
    return tape.record(whole, lambda node, gg: (node[tape.SAVED](gg),), (g,), region, "PutBackward0")


def dense_copy(g: Tensor, like: Meta) -> Tensor:
    """A copy of `g` laid out exactly like `like`.  Differentiable."""
    out = new(meta(like.shape, like.strides, g.meta.dtype, g.meta.device))
    launch.run(cast_program(g.meta.dtype, g.meta.dtype), tuple(like.shape), [out], [g], name="copy")
    return tape.record(out, lambda node, gg: (gg,), (g,), None, "CloneBackward0")


# ------------------------------------------------------------------------------------------------------ shapes and axes
@tape.keeps_nothing
def _reshape_back(node: Any, g: Tensor) -> Any:
    return (reshape(g, node[tape.SAVED]),)


def _view(self: Tensor, *size: Any, dtype: Any = None) -> Tensor:
    """The same elements in another shape (one size may be -1), or, given a dtype, the same bytes as another type.

    Raises RuntimeError when the layout does not allow it without a copy.
    """
    if dtype is not None or (len(size) == 1 and isinstance(size[0], (dtypes.dtype, type))):
        return view_as_type(self, dtypes.meant(dtype if dtype is not None else size[0]))
    if not size:
        raise TypeError("view() missing 1 required positional arguments: \"size\"")
    m, sizes = self.meta, sizes_of("view", size)
    shape = layout.infer_size(sizes, m.numel)
    strides = layout.view_strides(tuple(m.shape), m.strides, shape)
    if strides is None:
        raise RuntimeError("view size is not compatible with input tensor's size and stride (at least one dimension spans across "
                           "two contiguous subspaces). Use .reshape(...) instead.")
    return view_of(self, shape, strides, self.ptr, _reshape_back, m.shape, "ViewBackward0")


view = viewed("view", spaces=())(_view)


def view_as_type(self: Tensor, d: Any) -> Tensor:
    """The bytes of `self` read as type `d`; the last axis shrinks or grows with the element size.  Outside autograd, which knows no view of it."""
    m = self.meta
    have, want = m.dtype.itemsize, d.itemsize
    shape, strides = list(m.shape), list(m.strides)
    if have != want:
        if not shape:
            raise RuntimeError(f"self.dim() cannot be 0 to view {m.dtype} as {d} (different element sizes)")
        if strides[-1] != 1:
            raise RuntimeError(f"self.stride(-1) must be 1 to view {m.dtype} as {d} (different element sizes), but got {strides[-1]}")
        if shape[-1] * have % want:
            raise RuntimeError(f"self.size(-1) must be divisible by {want // have} to view {m.dtype} as {d} (different element "
                               f"sizes), but got {shape[-1]}")
        for i, s in enumerate(strides[:-1]):
            if s * have % want:
                offset = (self.ptr - self.store.ptr) // have
                what = f"storage_offset() must be divisible by {want // have}" if offset * have % want else f"stride({i}) must be divisible by {want // have}"
                raise RuntimeError(f"self.{what} to view {m.dtype} as {d} (different element sizes), but got {offset if 'offset' in what else s}")
        shape[-1] = shape[-1] * have // want
        strides = [s * have // want for s in strides[:-1]] + [1]
    made = meta(shape, tuple(strides), d, m.device)
    if _planning.get() is self:
        _planning.set(None)
        return Compose(lambda t, *_: alias(t, made, t.ptr))  # type: ignore[return-value]
    return alias(self, made, self.ptr)


def _reshape(input: Tensor, *shape: Any) -> Tensor:  # noqa: A002
    """The same elements in another shape: a view where the layout allows it, else a copy."""
    size = layout.infer_size(sizes_of("reshape", shape), input.meta.numel)
    if size == tuple(input.meta.shape):
        return view_of(input, size, input.meta.strides, input.ptr, _reshape_back, input.meta.shape, "ViewBackward0")
    strides = layout.view_strides(tuple(input.meta.shape), input.meta.strides, size)
    if strides is not None:
        return view_of(input, size, strides, input.ptr, _reshape_back, input.meta.shape, "ViewBackward0")
    dense = contiguous(input)
    out = alias(dense, meta(size, None, dense.meta.dtype, dense.meta.device), dense.ptr)
    return tape.record(out, _reshape_back, (dense,), dense.meta.shape, "UnsafeViewBackward0")


reshape = viewed("reshape")(_reshape)


@tape.keeps_nothing
def _permute_back(node: Any, g: Tensor) -> Any:
    return (permute(g, node[tape.SAVED]),)


def _permute(input: Tensor, *dims: Any) -> Tensor:  # noqa: A002
    """A view with its axes in the order `dims`."""
    order = sizes_of("permute", dims)
    m = input.meta
    if len(order) != len(m.shape):
        raise RuntimeError(f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
                           f"desired ordering of dimensions i.e. input.dim() = {len(m.shape)} is not equal to len(dims) = "
                           f"{len(order)}")
    axes = tuple(layout.wrap_dim(d, len(m.shape)) for d in order)
    if len(set(axes)) != len(axes):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    back = tuple(sorted(range(len(axes)), key=axes.__getitem__))
    return view_of(input, [m.shape[a] for a in axes], tuple([m.strides[a] for a in axes]),
                   input.ptr, _permute_back, back, "PermuteBackward0")


permute = viewed("permute")(_permute)


@tape.keeps_nothing
def _transpose_back(node: Any, g: Tensor) -> Any:
    return (transpose(g, *node[tape.SAVED]),)


def _transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:  # noqa: A002
    """A view with two axes exchanged."""
    m = input.meta
    a, b = layout.wrap_dim(dim0, len(m.shape)), layout.wrap_dim(dim1, len(m.shape))
    shape, strides = list(m.shape), list(m.strides)
    if shape:
        shape[a], shape[b] = shape[b], shape[a]
        strides[a], strides[b] = strides[b], strides[a]
    return view_of(input, shape, tuple(strides), input.ptr, _transpose_back, (a, b), "TransposeBackward0")


transpose = viewed("transpose", aliases=("swapdims",))(_transpose)


@viewed("swapaxes")
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:  # noqa: A002
    """`transpose` by NumPy's name."""
    return _transpose(input, axis0, axis1)


@viewed("t")
def t(input: Tensor) -> Tensor:  # noqa: A002
    """A matrix transposed; tensors of fewer axes as they are.  Raises RuntimeError for more than two axes."""
    if len(input.meta.shape) > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {len(input.meta.shape)}D")
    return _transpose(input, 0, 1) if len(input.meta.shape) == 2 else view_of(
        input, input.meta.shape, input.meta.strides, input.ptr, _transpose_back, (0, 0), "TBackward0")


@tape.keeps_nothing
def _expand_back(node: Any, g: Tensor) -> Any:
    return (hooks.sum_to(g, node[tape.SAVED]),)


@viewed("expand", spaces=())
def expand(self: Tensor, *size: Any, implicit: bool = False) -> Tensor:
    """A view whose size-1 axes (and new leading ones) repeat without memory; -1 keeps a size."""
    m = self.meta
    want = sizes_of("expand", size)
    pad = len(want) - len(m.shape)
    if pad < 0:
        raise RuntimeError(f"expand(torch.{m.dtype.name}{{{list(m.shape)}}}, size={list(want)}): the number of sizes provided "
                           f"({len(want)}) must be greater or equal to the number of dimensions in the tensor ({len(m.shape)})")
    shape = []
    for i, w in enumerate(want):
        have = m.shape[i - pad] if i >= pad else 1
        if w == -1:
            if i < pad:
                raise RuntimeError(f"expand(torch.{m.dtype.name}{{{list(m.shape)}}}, size={list(want)}): the expanded size of the "
                                   f"tensor (-1) isn't allowed in a leading, non-existing dimension {i}")
            w = have
        elif w < 0 or (have != w and have != 1):
            raise RuntimeError(f"The expanded size of the tensor ({w}) must match the existing size ({have}) at non-singleton "
                               f"dimension {i}.  Target sizes: {list(want)}.  Tensor sizes: {list(m.shape)}")
        shape.append(w)
    strides = list(layout.expand_strides(m.shape, m.strides, shape))
    if m.shape:  # new axes of size 1 are laid out as PyTorch's, which tells views of one memory apart by their strides
        for i in reversed(range(pad)):
            strides[i] = shape[i + 1] * strides[i + 1] if shape[i] == 1 else 0
    return view_of(self, shape, tuple(strides), self.ptr, _expand_back, m.shape, "ExpandBackward0")


@viewed("unsqueeze")
def unsqueeze(input: Tensor, dim: Any = None, *, axis: int | None = None) -> Tensor:  # noqa: A002
    """A view with a new axis of size 1 at `dim` (of ndim + 1 places)."""
    dim = dim if axis is None else axis
    m = input.meta
    at = layout.wrap_dim(dim, len(m.shape) + 1)
    step = m.shape[at] * m.strides[at] if at < len(m.shape) else 1
    shape = (*m.shape[:at], 1, *m.shape[at:])
    strides = (*m.strides[:at], step, *m.strides[at:])
    return view_of(input, shape, strides, input.ptr, _reshape_back, m.shape, "UnsqueezeBackward0")


@viewed("squeeze")
def squeeze(input: Tensor, dim: Any = None, *, axis: Any = None) -> Tensor:  # noqa: A002
    """A view without its axes of size 1: all of them, or those of `dim` (an int or several)."""
    dim = dim if axis is None else axis
    m = input.meta
    axes = range(len(m.shape)) if dim is None else layout.wrap_dims(dim, len(m.shape)) if dim != () else ()
    keep = [i for i in range(len(m.shape)) if i not in axes or m.shape[i] != 1]
    return view_of(input, [m.shape[i] for i in keep], tuple(m.strides[i] for i in keep), input.ptr, _reshape_back, m.shape,
                   "SqueezeBackward0")


# --------------------------------------------------------------------------------------------------------------- parts
def _select(input: Tensor, dim: int, index: int) -> Tensor:  # noqa: A002
    """A view of one position along an axis, which disappears.  Raises IndexError out of range."""
    m = input.meta
    if not m.shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    at = layout.wrap_dim(dim, len(m.shape))
    index = unknowns.index(index) if not isinstance(index, Tensor) else int(index.item())  # type: ignore[unreachable]
    if not -m.shape[at] <= index < m.shape[at]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(m.shape)} at dimension {at}")
    i = index + m.shape[at] if index < 0 else index
    return placed(input, (*m.shape[:at], *m.shape[at + 1:]), (*m.strides[:at], *m.strides[at + 1:]),
                  input.ptr + i * m.strides[at] * m.dtype.itemsize, lambda z: select(z, at, i), "SelectBackward0")


select = viewed("select")(_select)


def positions(input: Tensor, axis: int, count: int) -> tuple[Tensor, ...]:  # noqa: A002
    """The views of the first `count` positions along an axis, which disappears: no plans of them, since each is asked for once."""
    m, p = input.meta, input.ptr
    shown = meta((*m.shape[:axis], *m.shape[axis + 1:]), (*m.strides[:axis], *m.strides[axis + 1:]), m.dtype, m.device)
    step = m.strides[axis] * m.dtype.itemsize
    return tuple([_viewed(input, shown, p + i * step, _put_back, (m, functools.partial(select, dim=axis, index=i), shown.strides, i * step), "SelectBackward0")
                  for i in range(count)])


def slice_axis(input: Tensor, dim: int, start: int, stop: int, step: int = 1) -> Tensor:  # noqa: A002
    """A view of positions start, start + step, ... < stop along an axis; bounds as Python's slices take them."""
    m = input.meta
    n = m.shape[dim]
    start, stop, step = layout.bounds(start, stop, step, n)
    count = max(0, (stop - start + step - 1) // step)
    return placed(input, (*m.shape[:dim], count, *m.shape[dim + 1:]),
                  (*m.strides[:dim], m.strides[dim] * step, *m.strides[dim + 1:]),
                  input.ptr + start * m.strides[dim] * m.dtype.itemsize,
                  lambda z: slice_axis(z, dim, start, stop, step), "SliceBackward0")


@viewed("narrow")
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:  # noqa: A002
    """A view of `length` positions of an axis from `start` on."""
    m = input.meta
    if not m.shape:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    at = layout.wrap_dim(dim, len(m.shape))
    if isinstance(start, Tensor) and (start.meta.shape or start.meta.dtype.kind not in "ui"):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    start = int(start.item()) if isinstance(start, Tensor) else layout.whole(start)
    n = m.shape[at]
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -n <= start <= n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n}], but got {start})")
    start = start + n if start < 0 else start
    if start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return slice_axis(input, at, start, start + length)


@op(tangent="linear")
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:  # noqa: A002
    """A view of the storage with any sizes, strides and offset (in elements).  Raises RuntimeError when it would reach
    outside the storage."""
    size, stride = tuple(size), tuple(stride)
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: got {len(stride)} strides for {len(size)} sizes")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    item = input.meta.dtype.itemsize
    offset = (input.ptr - input.store.ptr) // item if storage_offset is None else storage_offset
    low, high = layout.extent(size, stride)
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if high >= low and (offset + high + 1) * item > input.store.meta.nbytes:
        raise RuntimeError(f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize {item} "
                           f"requiring a storage size of {(offset + high + 1) * item} are out of bounds for storage of size "
                           f"{input.store.meta.nbytes}")
    m = input.meta
    here = offset - (input.ptr - input.store.ptr) // item
    if m.contiguous and not layout.overlaps_itself(size, stride) and 0 <= here and here + high < m.numel:
        return placed(input, size, stride, input.store.ptr + offset * item,
                      lambda z: as_strided(contiguous(z), size, stride, (z.ptr - z.store.ptr) // item + here if z.meta.contiguous else here),
                      "AsStridedBackward0")
    return view_of(input, size, stride, input.store.ptr + offset * item, _strided_back, (m, size, stride, here), "AsStridedBackward0")


@tape.keeps_nothing
def _strided_back(node: Any, g: Tensor) -> Any:
    """The general case: every element of the input gets the sum of what arrived at its place in memory, shared equally
    between the input's own elements at that place."""
    if tape.recording(g):
        return (_strided_sum_recorded(g, *node[tape.SAVED]),)
    return (strided_sum(g, *node[tape.SAVED]),)


def strided_sum(g: Tensor, m: Meta, size: tuple[int, ...], stride: tuple[int, ...], here: int) -> Tensor:
    """`g`, shown with these sizes and strides from element `here` of a tensor like `m` on, summed where it lies; outside
    the tape."""
    from ..kernels import expr as E
    from ..kernels.programs import Map
    low, high = layout.extent(m.shape, m.strides)
    low2, high2 = layout.extent(size, stride)
    first, last = min(low, low2 + here), max(high, high2 + here)
    flat = hooks.zeros_meta(meta((last - first + 1,), None, g.meta.dtype, g.meta.device))
    if g.meta.numel:
        offset: Any = E.const(here - first, E.int64)  # type: ignore[attr-defined]
        for axis, step in enumerate(stride):
            offset = offset + E.coord(axis) * step
        program = Map((E.input(0, g.meta.dtype),), (g.meta.dtype,), targets=(("add", offset),))
        launch.run(program, tuple(size), [flat], [g], [(0,) * len(size), g.meta.strides], name="as_strided_backward")
    out = as_strided(flat, m.shape, m.strides, -first)
    if layout.overlaps_itself(m.shape, m.strides):
        counts = hooks.zeros_meta(flat.meta)
        ones = hooks.full((), 1, dtype=g.meta.dtype, device=g.meta.device)
        offset = E.const(-first, E.int64)  # type: ignore[attr-defined]
        for axis, step in enumerate(m.strides):
            offset = offset + E.coord(axis) * step
        program = Map((E.input(0, g.meta.dtype),), (g.meta.dtype,), targets=(("add", offset),))
        launch.run(program, tuple(m.shape), [counts], [ones], [(0,) * len(m.shape), (0,) * len(m.shape)], name="count")
        out = out / as_strided(counts, m.shape, m.strides, -first)
    return out


def _strided_sum_recorded(g: Tensor, m: Meta, size: tuple[int, ...], stride: tuple[int, ...], here: int) -> Tensor:
    """`strided_sum` in operations that are differentiable themselves."""
    import numpy as np

    places, own = np.full(size, here), np.zeros(tuple(m.shape), np.int64)
    for into, sizes, steps in ((places, size, stride), (own, m.shape, m.strides)):
        for axis, step in enumerate(steps):
            into += (np.arange(sizes[axis]) * step).reshape((-1,) + (1,) * (len(sizes) - axis - 1))
    first = int(min(places.min(initial=0), own.min(initial=0)))
    count = int(max(places.max(initial=0), own.max(initial=0))) - first + 1
    at, mine = (hooks.tensor(x.reshape(-1) - first, device=m.device) for x in (places, own))
    flat = hooks.full((count,), 0, dtype=g.meta.dtype, device=m.device).index_add(0, at, reshape(g, -1))
    shares = hooks.full((count,), 0, dtype=g.meta.dtype, device=m.device).index_add(0, mine, hooks.full((m.numel,), 1, dtype=g.meta.dtype, device=m.device))
    out: Tensor = reshape(flat.index_select(0, mine) / shares.index_select(0, mine), tuple(m.shape))
    return out


@op(batch="same", tangent="none", sums="itself")
def detach(input: Tensor) -> Tensor:  # noqa: A002
    """The same elements outside the tape: it requires no grad and shares the storage and its version."""
    return alias(input, input.meta, input.ptr)


def fresh(shape: Sequence[int], like: Tensor) -> Tensor:
    """An uninitialised contiguous tensor of `like`'s type and device."""
    return empty(shape, like.meta.dtype, like.meta.device)


hooks.provide(dense_copy=dense_copy, strided_sum=strided_sum, view_of=view_of)

has("narrow select", batch="along 0")
has("expand narrow permute reshape select squeeze swapaxes t transpose unsqueeze view", tangent="linear")
has("as_strided detach expand narrow permute select squeeze t transpose unsqueeze view", views="copied")
has("swapaxes", views="input")
has("reshape", views="maybe")
has("as_strided_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_", tangent="view")
has("t", batch="transposed")
has("as_strided", batch="strided")
has("squeeze", batch="squeeze")
has("unsqueeze", batch="unsqueeze")
has("transpose swapaxes", batch="axes")
has("permute", batch="order")
has("view reshape expand", batch="sizes")

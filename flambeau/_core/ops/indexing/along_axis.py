"""Positions along an axis, an element each: gather, scatter and scatter_add, take_along_dim."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from ... import layout
from ...autograd import tape
from ...dtypes import dtype, int64, title
from ...engine import general
from ...engine.fields import has
from ...kernels import expr as E
from ...kernels.programs import Map
from ...tensor import Meta, Tensor, meta, new
from .. import launch, routines
from ..casts import to_dtype
from ..checks import same_device
from ..memory_format import contiguous_format
from ..table import op
from .positions import checking, once


def _axis_offset(ndim: int, axis: int, position: E.Expr, dense: bool) -> E.Expr:
    """Offset of the element with `position` along `axis` and the domain's coordinates elsewhere: scalar 0 is the axis's size,
    scalars 1.. the strides.  dense: the last one is 1, as is then plain to see."""
    # a wrong position on a GPU is reported by the check; meanwhile it must not leave the tensor
    p = E.where((position >= 0) & (position < E.scalar(0, int64)), position, E.const(0, int64))
    total: E.Expr = E.const(0, int64)
    for i in range(ndim):
        place = p if i == axis else E.coord(i)
        total = total + (place if dense and i == ndim - 1 else place * E.scalar(1 + i, int64))
    return total


def _axis(name: str, t: Meta, dim: int, index: Meta, source: Meta | None) -> int:
    """The axis that positions laid out as `index` count along, when they and what is read or written there fit each other."""
    axis = layout.wrap_dim(dim, len(t.shape))
    if index.numel and index.dtype.name not in ("int64", "int32"):
        raise RuntimeError(f"{name}(): Expected dtype int64 for index")
    if index.numel == 0:
        return axis
    if max(len(index.shape), 1) != max(len(t.shape), 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as " + ("input tensor" if name == "gather" else "self tensor"))
    at = next((i for i, n in enumerate(index.shape) if i != axis and n > (t.shape[i] if t.shape else 1)), None)
    if source is None:
        if at is not None:
            raise RuntimeError(f"Size does not match at dimension {at} expected index {list(index.shape)} to be no larger than self "
                               f"{list(t.shape)} apart from dimension {axis}")
        return axis
    if at is None and source.shape:
        at = next((i for i, n in enumerate(index.shape) if n > source.shape[layout.wrap_dim(i, len(source.shape))]), None)
    if max(len(index.shape), 1) != max(len(source.shape), 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    if at is not None:
        raise RuntimeError(f"Expected index {list(index.shape)} to be no larger than self {list(t.shape)} apart from dimension "
                           f"{axis} and to be no larger size than src {list(source.shape)}")
    return axis


class _Along(NamedTuple):
    """What taking, or writing, along an axis does with operands laid out in one way; nothing is launched where there are no positions."""

    axis: int
    made: Meta
    usual: bool  # on one device, with axes, and positions of 64 bits
    check: routines.Bound | None = None
    launch: routines.Bound | None = None
    numbers: tuple[int, ...] = ()


def _planned(name: str, t: Meta, dim: int, index: Meta, source: Meta | None, made: Meta) -> _Along:
    """With the check of the positions, without the launch."""
    if t.device is not index.device or source is not None and t.device is not source.device:
        return _Along(layout.wrap_dim(dim, len(t.shape)), made, False)
    axis = _axis(name, t, dim, index, source)
    if not index.numel:
        return _Along(axis, made, True)
    if not t.shape or not index.shape or index.dtype is not int64 or source is not None and not source.shape:
        return _Along(axis, made, False)
    return _Along(axis, made, True, checking(once(index), 0, t.shape[axis], axis, RuntimeError, f"{name} check"))


def _as_axes(t: Tensor, like: Tensor) -> Tensor:
    """Zero-dim tensors as vectors of one element, so that both have axes."""
    return t.reshape(1) if not t.meta.shape else t


@cache
def _gathering(d: dtype, n: int, axis: int, dense: bool) -> Map:
    return Map((E.gather(0, _axis_offset(n, axis, E.input(1, int64), dense), d),), (d, int64), (int64,) * (n + 1))


def _gather_launch(out: Meta, x: Meta, axis: int, index: Meta) -> routines.Bound:
    n = len(x.shape)
    return launch.plan(x.device, _gathering(x.dtype, n, axis, x.strides[-1] == 1), tuple(index.shape), [out.strides, (0,) * n, index.strides],
                       [m.nbytes for m in (out, x, index)], "gather")


@general.kept
def _gathered(x: Meta, dim: int, index: Meta) -> _Along:
    made = meta(tuple(index.shape), None, x.dtype, x.device)
    p = _planned("gather", x, dim, index, None, made)
    if p.check is None:
        return p
    return p._replace(launch=_gather_launch(made, x, p.axis, index), numbers=(x.shape[p.axis], *x.strides))


@op(out=True, tangent="linear", out_apart=True, batch="indices")
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:  # noqa: A002
    """out[i][j] = input[index[i][j]][j] (for dim 0): the shape of index."""
    p = _gathered(input.meta, dim, index.meta)
    if not p.usual:
        same_device("gather", input, index)
        if index.meta.dtype is not int64:
            return gather(input, p.axis, to_dtype(index, int64))
        return gather(_as_axes(input, index), 0, _as_axes(index, input)).reshape(tuple(index.meta.shape))
    if p.check is not None:
        routines.call(p.check, (index.ptr,))
    out = new(p.made)
    if p.launch is not None:
        routines.call(p.launch, (out.ptr, input.ptr, index.ptr), p.numbers)
    return tape.record(out, _gather_back, (input,), (tuple(input.meta.shape), p.axis, tape.keep(index)), "GatherBackward0")


def taken_along(t: Tensor, at: Tensor) -> Tensor:
    """The elements of t at positions along the last axis, which are known to be in range; not recorded."""
    p = _gathered(t.meta, -1, at.meta)
    out = new(p.made)
    if p.launch is not None:
        routines.call(p.launch, (out.ptr, t.ptr, at.ptr), p.numbers)
    return out


def _gather_back(node: Any, g: Tensor) -> Any:
    shape, axis, held = node[tape.SAVED]
    (index,) = tape.kept(node, held)
    if not index.meta.numel:
        return (g.new_zeros(shape),)
    return (scatter_add(g.new_zeros(shape), axis, index, g),)


@cache
def _scattering(d: dtype, n: int, axis: int, dense: bool, mode: str) -> Map:
    return Map((E.input(0, d),), (d, int64), (int64,) * (n + 1), ((mode, _axis_offset(n, axis, E.input(1, int64), dense)),))


def _scatter_launch(out: Meta, axis: int, index: Meta, source: Meta, mode: str) -> routines.Bound:
    n = len(out.shape)
    program = launch.within(_scattering(out.dtype, n, axis, out.strides[-1] == 1, mode), [out])
    return launch.plan(out.device, program, tuple(index.shape), [(0,) * n, source.strides, index.strides], [m.nbytes for m in (out, source, index)], "scatter")


@general.kept
def _scattered(name: str, x: Meta, dim: int, index: Meta, source: Meta, mode: str) -> _Along:
    """`source` may be larger than `index`: its first elements along each axis are written."""
    made = meta(tuple(x.shape), None, x.dtype, x.device)
    p = _planned(name, x, dim, index, source, made)
    if p.check is None:
        return p
    window = meta(tuple(index.shape), source.strides, source.dtype, source.device)
    return p._replace(launch=_scatter_launch(made, p.axis, index, window, mode), numbers=(x.shape[p.axis], *made.strides))


@general.kept
def _adding(out: Meta, index: Meta, source: Meta) -> routines.Bound:
    return _scatter_launch(out, 0, index, source, "add")


def added_at(out: Tensor, index: Tensor, source: Tensor) -> None:
    """Adds source to out at positions along its first axis, in their order, which are known to be in range; outside the tape."""
    routines.call(_adding(out.meta, index.meta, source.meta), (out.ptr, source.ptr, index.ptr), (out.meta.shape[0], *out.meta.strides))


def _scatter(name: str, self: Tensor, dim: int, index: Tensor, src: Any, mode: str) -> Tensor:
    """self with src written, added, ... at index; differentiable for "set" and "add"."""
    fixed = not isinstance(src, Tensor)
    if fixed:
        layout.wrap_dim(dim, len(self.meta.shape))
        from ..creation import full
        src = full((), src, dtype=self.meta.dtype, device=self.meta.device).expand(tuple(index.meta.shape))
    elif src.meta.dtype is not self.meta.dtype:
        layout.wrap_dim(dim, len(self.meta.shape))
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    p = _scattered(name, self.meta, dim, index.meta, src.meta, mode)
    if not p.usual:
        same_device(name, self, index, src)
        if index.meta.dtype is not int64:
            return _scatter(name, self, p.axis, to_dtype(index, int64), src, mode)
        return _scatter(name, _as_axes(self, index), 0, _as_axes(index, self), _as_axes(src, self), mode).reshape(tuple(self.meta.shape))
    if p.check is not None:
        routines.call(p.check, (index.ptr,))
    out = (self if self.node is None else self.detach()).clone(memory_format=contiguous_format)
    if p.launch is not None:
        routines.call(p.launch, (out.ptr, src.ptr, index.ptr), p.numbers)
    return tape.record(out, _scatter_back, (self, None if fixed else src), (p.axis, tape.keep(index), mode, tuple(src.meta.shape)),
                       "ScatterAddBackward0" if mode == "add" else "ScatterBackward0")


def _written(name: str, self: Tensor, dim: int, index: Tensor, src: Any, mode: str, known: bool = False) -> bool:
    """`_scatter` into self, outside the tape: few elements written into a large tensor cost no copy of it.  False where that is not so simple.
    known: the positions are in range."""
    if not self.meta.contiguous or index.store.ptr == self.store.ptr:
        return False
    if not isinstance(src, Tensor):
        from ..creation import full
        src = full((), src, dtype=self.meta.dtype, device=self.meta.device).expand(tuple(index.meta.shape))
    if src.meta.dtype is not self.meta.dtype or src.store.ptr == self.store.ptr:  # which may be read after it was written
        return False
    p = _scattered(name, self.meta, dim, index.meta, src.meta, mode)
    if not p.usual:
        return False
    if p.check is not None and not known:
        routines.call(p.check, (index.ptr,))
    if p.launch is not None:
        routines.call(p.launch, (self.ptr, src.ptr, index.ptr), p.numbers)
    return True


def _window(src: Tensor, index: Tensor) -> Tensor:
    """The part of src that index covers."""
    for i, n in enumerate(index.meta.shape):
        if src.meta.shape[i] != n:
            src = src.narrow(i, 0, n)
    return src


def _scatter_back(node: Any, g: Tensor) -> Any:
    axis, held, mode, shape = node[tape.SAVED]
    (index,) = tape.kept(node, held)
    ex, es = node[tape.EDGES]
    if not index.meta.numel:
        return g, g.new_zeros(shape) if es is not None else None
    gx = g if mode == "add" or ex is None else _scatter("scatter", g, axis, index, 0, "set")
    gs = None
    if es is not None:
        gs = gather(g, axis, index)
        if tuple(gs.meta.shape) != shape:
            from ..views import put
            gs = put(gs, shape, lambda z: _window(z, index))
    return gx, gs


@op(inplace=True, out=True, autocast="cuda widest", tangent="linear", reads_apart=True, batch="indices",
    straight=lambda input, dim, index, src: _written("scatter_add", input, dim, index, src, "add"))
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:  # noqa: A002
    """input with src added at index along dim; colliding positions add up in order."""
    return _scatter("scatter_add", input, dim, index, src, "add")


def _scatter_straight(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> bool:  # noqa: A002
    source, mode = value if src is None else src, {None: "set", "add": "add", "multiply": "mul"}.get(reduce)
    return source is not None and mode is not None and _written("scatter", input, dim, index, source, mode)


@op(inplace=True, out=True, reads_apart=True, batch="indices", straight=_scatter_straight)
def scatter(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:  # noqa: A002
    """input with src (a tensor or a number) written at index along dim; reduce "add" or "multiply" combines instead."""
    source = value if src is None else src
    if source is None:
        raise TypeError("scatter() missing 1 required positional arguments: \"src\" or \"value\"")
    if reduce is None:
        return _scatter("scatter", input, dim, index, source, "set")
    if reduce not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    return _scatter("scatter", input, dim, index, source, "add" if reduce == "add" else "mul")


@op(out=True, tangent="linear", batch="indices")
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:  # noqa: A002
    """`gather` with the other axes broadcast; of the flattened tensor when dim is None."""
    if dim is None:
        return gather(input.reshape(-1), 0, indices.reshape(-1))
    if len(input.meta.shape) != len(indices.meta.shape):
        raise RuntimeError(f"torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
                           f"{len(input.meta.shape)} dimensions for input, and {len(indices.meta.shape)} dimensions for indices")
    if indices.meta.dtype is not int64:
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {title(indices.meta.dtype)}")
    axis = layout.wrap_dim(dim, len(input.meta.shape))
    a, b = list(input.meta.shape), list(indices.meta.shape)
    a[axis] = b[axis] = 1
    lead = list(layout.broadcast_shapes(a, b))
    left, right = list(lead), list(lead)
    left[axis], right[axis] = input.meta.shape[axis], indices.meta.shape[axis]
    n = input.meta.shape[axis]
    if indices.meta.numel:
        indices = indices.where(indices >= 0, indices + n)
    return gather(input.expand(left), axis, indices.expand(right))


has("scatter_ scatter_add_ scatter_reduce_", batch="indices")

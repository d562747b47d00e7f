"""Operations that take positions along an axis: gather and scatter, index_select and its like, embedding."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from .. import layout
from ..autograd import tape
from ..autograd.mode import no_recording
from ..dtypes import bool_, dtype, int32, int64, number, title, uint8
from ..engine.fields import has
from ..errors import warn_once
from ..kernels import expr as E
from ..kernels.programs import Map
from ..runtime import caches
from ..tensor import Meta, Tensor, empty, meta, new
from . import launch, routines
from .casts import to_dtype
from .checks import may_record, may_write, no_overlap, same_device, to_one_device
from .elementwise import Pointwise
from .indexing import checking, fill_chosen, once, put_at, take_at, taken
from .memory_format import contiguous_format
from .table import op


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


@caches.kept
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


@caches.kept
def _scattered(name: str, x: Meta, dim: int, index: Meta, source: Meta, mode: str) -> _Along:
    """`source` may be larger than `index`: its first elements along each axis are written."""
    made = meta(tuple(x.shape), None, x.dtype, x.device)
    p = _planned(name, x, dim, index, source, made)
    if p.check is None:
        return p
    window = meta(tuple(index.shape), source.strides, source.dtype, source.device)
    return p._replace(launch=_scatter_launch(made, p.axis, index, window, mode), numbers=(x.shape[p.axis], *made.strides))


@caches.kept
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
        from .creation import full
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


def _written(name: str, self: Tensor, dim: int, index: Tensor, src: Any, mode: str) -> bool:
    """`_scatter` into self, outside the tape: few elements written into a large tensor cost no copy of it.  False where that is not so simple."""
    if not self.meta.contiguous or index.store.ptr == self.store.ptr:
        return False
    if not isinstance(src, Tensor):
        from .creation import full
        src = full((), src, dtype=self.meta.dtype, device=self.meta.device).expand(tuple(index.meta.shape))
    if src.meta.dtype is not self.meta.dtype or src.store.ptr == self.store.ptr:  # which may be read after it was written
        return False
    p = _scattered(name, self.meta, dim, index.meta, src.meta, mode)
    if not p.usual:
        return False
    if p.check is not None:
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
            from .views import put
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


_MODES = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _reduced_straight(name: str, self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include: bool) -> bool:
    """Whatever counts how many fall on an element is left to `_reduced`, and so are truths."""
    if not include or reduce not in _MODES or self.meta.dtype is bool_ or not isinstance(src, Tensor) or not (
            self.meta.shape and index.meta.shape and src.meta.shape):
        return False
    return _written(name, self, dim, index, _window(src, index) if index.meta.numel and len(src.meta.shape) == len(index.meta.shape) else src, _MODES[reduce])


@op(inplace=True, out=True, reads_apart=True, batch="indices",
    straight=lambda input, dim, index, src, reduce, *, include_self=True: _reduced_straight(
        "scatter_reduce", input, dim, index, src, reduce, include_self))
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:  # noqa: A002
    """input with src reduced into it at index along dim: "sum", "prod", "mean", "amax" or "amin"."""
    return _reduced("scatter_reduce", input, dim, index, src, reduce, include_self)


_IDENTITY = {"sum": 0.0, "mean": 0.0, "prod": 1.0}


def _reduced(name: str, self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include: bool) -> Tensor:
    layout.wrap_dim(dim, len(self.meta.shape))
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    if src.meta.dtype is not self.meta.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    may_record(name, self.meta.dtype, self, src, real=True)
    if self.meta.dtype is bool_ and reduce == "mean":
        raise NotImplementedError("\"scatter_gather_tensor_cpu_reduce_mean\" not implemented for 'Bool'")
    if self.meta.dtype is bool_:  # sums and products of truths are or and and
        how = {"sum": "amax", "prod": "amin"}.get(reduce, reduce)
        return to_dtype(_reduced(name, to_dtype(self, uint8), dim, index, to_dtype(src, uint8), how, include), bool_)
    p = _scattered(name, self.meta, dim, index.meta, src.meta, "add")
    axis = p.axis
    if not p.usual:
        same_device(name, self, index, src)
    if not self.meta.shape or not index.meta.shape or not src.meta.shape:
        if not index.meta.numel:
            return self.clone()
        return _reduced(name, _as_axes(self, index), 0, _as_axes(index, self), _as_axes(src, self), reduce, include).reshape(
            tuple(self.meta.shape))
    src = _window(src, index) if index.meta.numel else src
    mean = reduce == "mean"
    hit: Any = None
    if mean or not include:  # how many fall on each element
        one = empty((), int64, index.meta.device)
        launch.fill(one, 1)
        hit = scatter_add(self.detach().new_zeros(tuple(self.meta.shape), dtype=int64), axis, index, one.expand(tuple(index.meta.shape)))
    if reduce in ("sum", "mean"):
        base = self if include else self.masked_fill(hit > 0, 0)
        total = scatter_add(base, axis, index, src)
        if not mean:
            return total
        count = (hit + (1 if include else 0)).clamp(min=1)
        count = to_dtype(count, self.meta.dtype)
        return total / count if self.meta.dtype.kind in "fc" else total.div(count, rounding_mode="floor")
    if reduce == "prod":
        base = self if include else self.masked_fill(hit > 0, 1)
        return _product(base, src, axis, index)
    from ..dtypes import finfo, iinfo
    d = self.meta.dtype
    worst: Any = (-float("inf") if reduce == "amax" else float("inf")) if d.kind == "f" else bool(reduce == "amin") if d is bool_ else (
        iinfo(d).min if reduce == "amax" else iinfo(d).max)
    del finfo
    base = self if include else self.masked_fill(hit > 0, worst)
    made = _scatter("scatter", base.detach(), axis, index, src.detach(), "max" if reduce == "amax" else "min")
    return _extreme_recorded(made, base, src, axis, index)


def _product(base: Tensor, src: Tensor, axis: int, index: Tensor) -> Tensor:
    """base with src multiplied in at index."""
    made = _scatter("scatter", base.detach(), axis, index, src.detach(), "mul")
    return tape.record(made, _product_back, (base, src), (tape.keep(base, src, index), axis), "ScatterReduceBackward0")


def _product_back(node: Any, g: Tensor) -> Any:
    """Each element gets the product of the others: exact where it is 0 and all its companions are not."""
    held, axis = node[tape.SAVED]
    base, src, index = tape.kept(node, held)
    made = _product(base, src, axis, index)  # again, with a history when this pass is recorded
    whole = _product(base.masked_fill(base == 0, 1), src.masked_fill(src == 0, 1), axis, index)
    zeros = scatter_add((base == 0).to(int64), axis, index, (src == 0).to(int64))
    if tape.recording(g, base, src) and bool((zeros > 1).any()):
        raise NotImplementedError("Double backward is unsupported for scatter_reduce() and index_reduce() of a product where more than one factor is 0")

    def others(t: Tensor, z: Tensor, w: Tensor, m: Tensor) -> Tensor:
        alone = ((t == 0) & (z == 1)).to(g.meta.dtype)
        return alone * w + (m / t.masked_fill(t == 0, 1)).masked_fill(t == 0, 0)
    return (g * others(base, zeros, whole, made),
            gather(g, axis, index) * others(src, gather(zeros, axis, index), gather(whole, axis, index), gather(made, axis, index)))


def _extreme_recorded(made: Tensor, base: Tensor, src: Tensor, axis: int, index: Tensor) -> Tensor:
    """The gradient is shared equally among the elements that attain the extreme."""
    held = made.detach()

    def back(node: Any, g: Tensor) -> Any:
        base, src, index, out = tape.kept(node, node[tape.SAVED])
        mine, theirs = (base == out), (src == gather(out, axis, index))
        count = scatter_add(mine.to(g.meta.dtype), axis, index, theirs.to(g.meta.dtype))
        share = g / count
        return mine * share, theirs * gather(share, axis, index)
    return tape.record(made, back, (base, src), tape.keep(base, src, index, held), "ScatterReduceBackward0")


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


# ------------------------------------------------------------------------------------------------------------ index_*
def _vector(name: str, index: Tensor) -> Tensor:
    if index.meta.dtype.name not in ("int64", "int32"):
        raise RuntimeError(f"{name}(): Expected dtype int32 or int64 for index")
    _one_axis(name, index)
    return to_dtype(index.reshape(-1), int64)


def _one_axis(name: str, index: Tensor) -> None:
    if len(index.meta.shape) > 1:
        kind: type[Exception] = RuntimeError if name.startswith("index_fill") else IndexError  # as PyTorch's each
        raise kind(f"{name}(): Index is supposed to be a vector, but got dim: {len(index.meta.shape)} with type: Long and size: "
                   f"{list(index.meta.shape)}")


def _at(ndim: int, axis: int, index: Tensor) -> list[Tensor | None]:
    return [index if i == axis else None for i in range(ndim)]


@op(out=True, tangent="linear", out_apart=True, batch="picked")
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:  # noqa: A002
    """The positions `index` (a vector) of an axis."""
    axis = layout.wrap_dim(dim, len(input.meta.shape))
    if type(index) is Tensor and index.meta.dtype is int64 and len(index.meta.shape) == 1 and index.meta.device is input.meta.device and input.meta.shape:
        try:
            return take_at(input, [None] * axis + [index] + [None] * (len(input.meta.shape) - 1 - axis), negative=False)
        except IndexError as e:
            if axis == 1 or len(input.meta.shape) > 1 and not input.meta.numel:  # by its path for these, PyTorch raises RuntimeError
                empty_axis = "" if input.meta.shape[axis] else "index_select(): self indexing axis dim should be positive: "
                raise RuntimeError(empty_axis + str(e)) from None
            raise
    same_device("index_select", input, index)
    at = _vector("index_select", index)
    if not input.meta.shape:
        if at.meta.numel != 1:
            raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {at.meta.numel} value(s)")
        return take_at(input.reshape(1), [at], negative=False).reshape(())
    return take_at(input, _at(len(input.meta.shape), axis, at), negative=False)


def _check_added(name: str, t: Tensor, axis: int, at: Tensor, source: Tensor) -> None:
    if source.meta.dtype is not t.meta.dtype:
        raise RuntimeError(f"{name}(): self ({title(t.meta.dtype)}) and source ({title(source.meta.dtype)}) must have the same scalar type")
    a, b = list(t.meta.shape), list(source.meta.shape)
    if axis and axis >= len(b):
        raise RuntimeError(f"{name}(): Indexing dim {axis} is out of bounds of the source tensor with dim {len(b)}")
    if at.meta.numel != (b[axis] if axis < len(b) else 1):
        size = b[layout.wrap_dim(axis, len(b), scalar_ok=False)]
        raise RuntimeError(f"{name}(): Number of indices ({at.meta.numel}) should be equal to source.size(dim): ({size}), for dim: {axis}")
    if len(a) != len(b) or a[:axis] + a[axis + 1:] != b[:axis] + b[axis + 1:]:
        raise RuntimeError("source tensor shape must match self tensor shape, excluding the specified dimension. Got "
                           f"self.shape = {a} source.shape = {b}")


def _check_copied(name: str, t: Tensor, axis: int, at: Tensor, source: Tensor) -> None:
    a, b = list(t.meta.shape), list(source.meta.shape)
    if not b and at.meta.numel != 1:
        raise IndexError(f"{name}(): When source is scalar, index should have one element (got {at.meta.numel})")
    if a and b and len(a) != len(b):
        raise IndexError(f"{name}(): When source and destination are not scalars, their dimensionality must match. Source dimensionality "
                         f"({len(b)}), destination dimensionality ({len(a)})")
    if at.meta.dtype is not int64:
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {title(at.meta.dtype)}")
    if source.meta.dtype is not t.meta.dtype:
        raise RuntimeError(f"{name}(): self and source expected to have the same dtype, but got (self) {title(t.meta.dtype)} and (source) "
                           f"{title(source.meta.dtype)}")
    kept, given = a[:axis] + a[axis + 1:], b[:axis] + b[axis + 1:]
    if kept != given:
        raise RuntimeError(f"{name}(): Source/destination tensor must have same slice shapes. Destination slice shape: {kept} and source slice "
                           f"shape: {given}, without dimension {axis}.")
    if b and b[axis] != at.meta.numel:
        raise IndexError(f"{name}(): Number of indices ({at.meta.numel}) should be equal to source.size(dim) ({b[axis]})")


def _index_op(name: str, accumulate: bool) -> None:
    def inplace_form(self: Tensor, dim: int, index: Tensor, source: Any, *, alpha: Any = 1) -> Tensor:
        axis = layout.wrap_dim(dim, len(self.meta.shape))
        same_device(name, self, index, source)
        if accumulate:
            at = _vector(name, index)
            _check_added(name + "_", self, axis, at, source)
        else:
            _one_axis(name, index)
            _check_copied(name + "_", self, axis, index, source)
            at = index.reshape(-1)
        may_write(self)
        no_overlap(self, index, source)
        if alpha != 1:
            source = to_dtype(source * alpha, bool_) if source.meta.dtype is bool_ else source * alpha
        if not self.meta.shape:
            target = self.view(1)
            put_at(target, [at], source.reshape(-1), accumulate, negative=False)
            return self
        if not accumulate or len(self.meta.shape) == 1:
            return put_at(self, _at(len(self.meta.shape), axis, at), source, accumulate, negative=False)
        if not source.meta.numel:  # where there is nothing to add, PyTorch looks at no position
            at = at[:0]
            source = source.narrow(axis, 0, 0)
        try:
            return put_at(self, _at(len(self.meta.shape), axis, at), source, accumulate, negative=False)
        except IndexError as e:  # PyTorch's path for several axes raises RuntimeError
            raise RuntimeError(str(e)) from None

    def function(input: Tensor, dim: int, index: Tensor, source: Any, *, alpha: Any = 1) -> Tensor:  # noqa: A002
        return inplace_form(input.clone(memory_format=contiguous_format), dim, index, source, alpha=alpha)
    if not accumulate:
        def copy(input: Tensor, dim: int, index: Tensor, source: Any) -> Tensor:  # noqa: A002
            return inplace_form(input.clone(memory_format=contiguous_format), dim, index, source)
        function = copy  # type: ignore[assignment]
    function.__name__ = function.__qualname__ = name
    inplace_form.__name__ = name + "_"
    function.__doc__ = f"input with the rows of source {'added' if accumulate else 'written'} at positions of an axis."
    op(inplace=inplace_form, out=True)(function)


_index_op("index_add", True)
_index_op("index_copy", False)


def _index_fill_(self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    if index.meta.dtype is not int64:
        raise IndexError(f"index_fill_(): Expected dtype int64 for index, got {index.meta.dtype}")
    if isinstance(value, complex) and not self.meta.dtype.is_complex:
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    axis = layout.wrap_dim(dim, len(self.meta.shape))
    if isinstance(value, Tensor) and value.meta.shape:
        raise RuntimeError(f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {len(value.meta.shape)} dimension(s).")
    if not isinstance(value, Tensor):
        from .creation import full
        value = full((), value, dtype=self.meta.dtype, device=self.meta.device)
    same_device("index_fill_", self, index)
    if value.store.ptr == self.store.ptr:
        value = value.clone()
    return MASKED_FILL.inplace(self, _index_fill_operands(self, axis, index, value))


def _index_fill_operands(t: Tensor, axis: int, index: Tensor, value: Any) -> tuple[Any, ...]:
    """A fill where a mask is true: a position given twice counts once, in the gradient too."""
    from .creation import zeros
    at = _vector("index_fill_", index)
    if not t.meta.numel:
        if at.meta.numel and not t.meta.shape[axis] and all(n for i, n in enumerate(t.meta.shape) if i != axis):
            raise RuntimeError(f"index_fill_(): index has {at.meta.numel} positions, dimension {axis} of self has none")
        at = at[:0]  # where there is nothing to fill, PyTorch looks at no position
    hit = zeros((t.meta.shape[axis] if t.meta.shape else 1,), dtype=bool_, device=t.meta.device)
    put_at(hit, [at], zeros((), dtype=bool_, device=t.meta.device).logical_not(), False)
    return _fill_operands(t, hit.reshape([-1 if i == axis else 1 for i in range(len(t.meta.shape))]), value)


@op(inplace=_index_fill_)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:  # noqa: A002
    """input with one value written at positions of an axis."""
    return _index_fill_(input.clone(), dim, index, value)


def _of_rows(input: Tensor, dim: int, index: Tensor, source: Tensor) -> tuple[int, Tensor]:  # noqa: A002
    """The axis, and index as `scatter_reduce` takes it."""
    axis = layout.wrap_dim(dim, len(input.meta.shape))
    at = _vector("index_reduce", index)
    _check_added("index_reduce_", input, axis, at, source)
    warn_once("index_reduce() is in beta and the API may change at any time.")
    if not input.meta.shape:
        return axis, at
    return axis, at.reshape([-1 if i == axis else 1 for i in range(len(input.meta.shape))]).expand(tuple(source.meta.shape))


def _index_reduce_straight(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> bool:  # noqa: A002
    axis, spread = _of_rows(input, dim, index, source)
    return _reduced_straight("index_reduce", input, axis, spread, source, reduce, include_self)


@op(inplace=True, out=True, reads_apart=True, straight=_index_reduce_straight)
def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:  # noqa: A002
    """input with the rows of source reduced into it at positions of an axis: "prod", "mean", "amax" or "amin"."""
    axis, spread = _of_rows(input, dim, index, source)
    if not input.meta.shape:
        return index_reduce(input.reshape(1), 0, spread, source.reshape(-1), reduce, include_self=include_self).reshape(())
    return _reduced("index_reduce", input, axis, spread, source, reduce, include_self)


@op(out=True, tangent="linear", out_apart=True)
def take(input: Tensor, index: Tensor) -> Tensor:  # noqa: A002
    """Elements of the flattened input at positions: the shape of index."""
    if index.meta.dtype is not int64:
        raise RuntimeError("take(): Expected a long tensor for index, but got " + index.meta.dtype.name.capitalize())
    same_device("take", input, index)
    return take_at(input.reshape(-1), [index])


def _check_put(input: Tensor, index: Tensor, source: Tensor) -> None:  # noqa: A002
    if index.meta.dtype is not int64:
        raise RuntimeError("put_(): Expected a long tensor for index, but got " + index.meta.dtype.name.capitalize())
    if source.meta.dtype is not input.meta.dtype:
        raise RuntimeError(f"put_(): self and source expected to have the same dtype, but got self.dtype = {input.meta.dtype} and source.dtype "
                           f"= {source.meta.dtype}")
    if index.meta.numel != source.meta.numel:
        raise IndexError(f"put_(): Expected source and index to have the same number of elements, but got source.numel() = {source.meta.numel}, "
                         f"index.numel() = {index.meta.numel}")
    same_device("put", input, index, source)


@op(name="put_")
def put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Writes (or adds) elements at positions of the flattened tensor."""
    from .copies import assign
    no_overlap(self, index, source)
    if self.meta.contiguous and not tape.recording(self, source):  # few elements into a large tensor cost no copy of it
        _check_put(self, index, source)
        put_at(self.detach().reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
        return self
    return assign(self, put(self, index, source, accumulate))


@op()
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:  # noqa: A002
    """A copy with elements written (or added) at positions of the flattened tensor."""
    _check_put(input, index, source)
    flat = input.clone(memory_format=contiguous_format).reshape(-1)
    return put_at(flat, [index.reshape(-1)], source.reshape(-1), accumulate).reshape(tuple(input.meta.shape))


# ------------------------------------------------------------------------------------------------------------------ masks

MASKED_FILL = Pointwise("masked_fill", lambda x, m, v: E.where(E.to_bool(m), v, x), 3, apart=(1,))


def _fill_operands(t: Tensor, mask: Tensor, value: Any) -> tuple[Any, ...]:
    if mask.meta.dtype is not bool_:
        raise RuntimeError("masked_fill_ only supports boolean masks, but got mask with dtype " + mask.meta.dtype.name)
    if isinstance(value, Tensor):
        if value.meta.shape:
            raise RuntimeError(f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {len(value.meta.shape)} "
                               "dimension(s).")
        if value.meta.dtype.kind in "fc" and t.meta.dtype.kind in "bui" or value.meta.dtype.is_complex and not t.meta.dtype.is_complex:
            found = value.item()  # whether it can be converted depends on what it is
            return _fill_operands(t, mask, found.real if isinstance(found, complex) and not found.imag and not t.meta.dtype.is_complex else found)
        value = to_dtype(value, t.meta.dtype)
    elif t.meta.dtype is bool_:
        value = bool(value)
    else:
        value = number(value, t.meta.dtype, strictly=True)
    return to_one_device("masked_fill", (t, mask, value))


def _masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    return MASKED_FILL.inplace(self, _fill_operands(self, mask, value))


@op(inplace=_masked_fill_, batch="pointwise")
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:  # noqa: A002
    """input with `value` where the mask is true."""
    result: Tensor = MASKED_FILL(_fill_operands(input, mask, value))
    return result if result.meta.contiguous else result.contiguous()


@op(inplace=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:  # noqa: A002
    """input with the elements of source, in order, where the mask is true."""
    if input.meta.dtype is not source.meta.dtype:
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes but got {input.meta.dtype} and {source.meta.dtype}")
    if mask.meta.dtype is not bool_:
        raise RuntimeError("masked_scatter_ only supports boolean masks, but got mask with dtype " + mask.meta.dtype.name)
    same_device("masked_scatter", input, mask, source)
    shape = layout.broadcast_shapes(input.meta.shape, mask.meta.shape)
    x, m = input.expand(shape).clone(memory_format=contiguous_format), mask.expand(shape)
    if x.meta.numel == 0:
        return x
    wrong = "masked_scatter: expected self and source to have same number of elements where mask is true"
    if not tape.recording(x, source) and m.meta.device.type != "meta":
        count = fill_chosen(x, m, source)
        if count is not None and count > source.meta.numel:
            raise RuntimeError(wrong)
        if count is not None:
            return x
    at = (m.reshape(-1).cumsum(0) - 1).clamp(min=0)
    if source.meta.numel == 0:
        return x
    if m.meta.device.type != "meta" and int(m.sum().item()) > source.meta.numel:
        raise RuntimeError(wrong)
    picked = take_at(source.reshape(-1), [at.clamp(max=source.meta.numel - 1)]).reshape(shape)
    from .binary import where_
    made: Tensor = where_(m, picked, x)
    return made


# --------------------------------------------------------------------------------------------------------------- embedding
@op(method=False, spaces=("nn.functional",), tangent="linear", batch="lookup")
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,  # noqa: A002
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """Rows of weight (num, dim) at the positions in input (any shape): (*input.shape, dim).  The row padding_idx gets no
    gradient; max_norm rescales the rows used, in place; scale_grad_by_freq divides gradients by how often a row is used.
    sparse: weight's gradient is a sparse tensor of the rows that were looked up."""
    if input.meta.dtype.name not in ("int64", "int32"):
        raise RuntimeError(f"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
                           f"torch.{title(input.meta.dtype)}Tensor instead (while checking arguments for embedding)")
    if len(weight.meta.shape) != 2:
        raise RuntimeError("'weight' must be 2-D")
    same_device("embedding", input, weight)
    if padding_idx is not None:
        n = weight.meta.shape[0]
        if not -n <= padding_idx < n:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= n
    if max_norm is not None:
        _renormalise(weight, input, max_norm, norm_type)
    at = to_dtype(input, int64)
    out = taken(weight, [at, None], negative=False)
    saved = tuple(weight.meta.shape), tape.keep(at), padding_idx, scale_grad_by_freq, sparse
    return tape.record(out, _embedding_back, (weight,), saved, "EmbeddingBackward0")


def _embedding_back(node: Any, g: Tensor) -> Any:
    from .indexing import _accumulated
    shape, held, padding, scale, sparse = node[tape.SAVED]
    (at,) = tape.kept(node, held)
    if sparse:
        return (_rows_used(g, shape, at, padding, scale),)
    if scale:
        count = scatter_add(at.new_zeros((shape[0],)), 0, at.reshape(-1), at.reshape(-1) * 0 + 1)
        g = g / take_at(count, [at]).unsqueeze(-1)
    if padding is not None:
        g = g.masked_fill((at == padding).unsqueeze(-1), 0.0)
    return (_accumulated(g, shape, (at, None)),)


def _rows_used(g: Tensor, shape: tuple[int, ...], at: Tensor, padding: int | None, scale: bool) -> Tensor:
    """The gradient of a table as its rows that were looked up, as often as they were."""
    from .sparse import Coo, make
    if scale:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    where, values = at.reshape(-1), g.reshape(at.meta.numel, shape[1])
    if padding is not None:
        kept = (where != padding).nonzero().reshape(-1)
        where, values = where[kept], values[kept]
    made: Tensor = make(Coo, (where.unsqueeze(0),), values, shape)
    return made


def _renormalise(weight: Tensor, index: Tensor, max_norm: float, p: float) -> None:
    """The rows used, scaled down to max_norm where longer, in place and off the tape."""
    with no_recording():
        w = weight.detach()
        used = scatter_add(w.new_zeros((w.meta.shape[0],)), 0, to_dtype(index.reshape(-1), int64), w.new_ones((index.meta.numel,))) > 0
        size = w.norm(p, 1)
        scale = (max_norm / (size + 1e-7)).masked_fill(~(used & (size > max_norm)), 1.0)
        w.mul_(scale.unsqueeze(1))


def _repeated(counts: Tensor, size: int | None) -> Tensor:
    """Each place of a vector as often as `counts` says, found by the vector's device; the host reads how many that makes, unless it is told."""
    from .concat import stack
    from .reading import values
    ends = counts.cumsum(0)
    if size is None:
        least, size = (int(v) for v in values(stack([counts.min(), ends[-1]]), "repeat_interleave"))
        if least < 0:
            raise RuntimeError("repeats can not be negative")
    # an element of the result stands behind as many ends as its place says
    met = scatter_add(ends.new_zeros((size + 1,)), 0, ends.clamp(0, size), ends.new_ones(()).expand(ends.meta.shape))
    made: Tensor = met.cumsum(0)[:size].clamp(max=counts.meta.numel - 1)
    return made


@op(method=False, tangent="linear", own_view=True)
def repeat_interleave(input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None) -> Tensor:  # noqa: A002
    """Each position of an axis (of the flattened tensor by default) repeated, all alike or each its own number of times."""
    from .creation import tensor
    from .ranges import arange
    given = input if repeats is None else repeats
    if isinstance(given, Tensor):
        if given.meta.dtype not in (int64, int32):
            raise NotImplementedError(f"\"repeat_interleave_cpu\" not implemented for '{title(given.meta.dtype)}': repeats are int32 or int64")
        if len(given.meta.shape) > 1 or (repeats is None and not given.meta.shape):
            raise RuntimeError(f"repeats must be 0-dim or 1-dim tensor, got one of shape {list(given.meta.shape)}")
    if repeats is None:
        input, repeats, dim = arange(input.meta.shape[0], device=input.meta.device), input, 0
    x = input.reshape(-1) if dim is None else input
    axis = 0 if dim is None else layout.wrap_dim(dim, len(x.meta.shape))
    if not x.meta.shape:
        raise IndexError(f"repeat_interleave(): dim is {dim}, but the tensor has no dimensions")
    n = x.meta.shape[axis]
    if isinstance(repeats, int):
        if repeats < 0:
            raise RuntimeError("Repeats must be non-negative")
        wide = x.unsqueeze(axis + 1).expand(*x.meta.shape[:axis + 1], repeats, *x.meta.shape[axis + 1:])
        return wide.clone(memory_format=contiguous_format).reshape(*x.meta.shape[:axis], n * repeats, *x.meta.shape[axis + 1:])
    else:
        r = repeats if isinstance(repeats, Tensor) else tensor(repeats, device="cpu")
        if isinstance(repeats, Tensor) and repeats.meta.shape:
            same_device("repeat_interleave", x, r)
        if r.meta.numel not in (1, n):
            raise RuntimeError("repeats must have the same size as input along dim")
        counts = to_dtype(r.detach(), int64)
        if counts.meta.device is not x.meta.device:
            from .transfer import to_device
            counts = to_device(counts, x.meta.device)
        counts = counts.reshape(-1).expand(n)
        return take_at(x, _at(len(x.meta.shape), axis, _repeated(counts, output_size) if n else counts))


Tensor.repeat_interleave = repeat_interleave  # type: ignore[assignment, method-assign]

has("index_copy", autocast="cpu widest")
has("index_add index_copy", tangent="linear")
has("scatter_ scatter_add_ scatter_reduce_", batch="indices")

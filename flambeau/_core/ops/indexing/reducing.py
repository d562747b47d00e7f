"""Many elements, or rows, reduced into one: scatter_reduce, index_reduce."""

from __future__ import annotations

from typing import Any

from ... import layout
from ...autograd import tape
from ...dtypes import bool_, dtype, iinfo, int64, title, uint8
from ...errors import warn_once
from ...tensor import Tensor, empty
from .. import launch
from ..casts import to_dtype
from ..checks import may_record, same_device
from ..table import op
from .along_axis import _as_axes, _scatter, _scattered, _window, _written, gather, scatter_add
from .rows import _check_added, _vector

_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")
_MODES = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _check(name: str, d: dtype, reduce: str, include: bool) -> None:
    """Refuses what PyTorch refuses, in its words: complex numbers have no order and truths no mean; rows are reduced as real numbers, and never summed."""
    rows = name == "index_reduce"
    known = ("prod", "mean", "amax", "amin") if rows else _REDUCTIONS
    if reduce not in known:
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}." if rows else
                           f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    if d.kind in "bc" if rows else reduce == "mean" and d is bool_ or reduce in ("amax", "amin") and d.kind == "c":
        kernel = f"scatter_gather_tensor_cpu_reduce_{reduce}" if not rows else "index_func_" if include else "index_reduce_func_exclude_input_init"
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{title(d)}'")


def _reduced_straight(name: str, self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include: bool) -> bool:
    """Whatever counts how many fall on an element is left to `_reduced`, and so are truths and what is refused."""
    if not include or reduce not in _MODES or self.meta.dtype.kind in "bc" or name == "index_reduce" and reduce == "sum" or not isinstance(src, Tensor) or not (
            self.meta.shape and index.meta.shape and src.meta.shape):
        return False
    return _written(name, self, dim, index, _window(src, index) if index.meta.numel and len(src.meta.shape) == len(index.meta.shape) else src, _MODES[reduce])


@op(inplace=True, out=True, reads_apart=True, batch="indices",
    straight=lambda input, dim, index, src, reduce, *, include_self=True: _reduced_straight(
        "scatter_reduce", input, dim, index, src, reduce, include_self))
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:  # noqa: A002
    """input with src reduced into it at index along dim: "sum", "prod", "mean", "amax" or "amin"."""
    return _reduced("scatter_reduce", input, dim, index, src, reduce, include_self)


def _reduced(name: str, self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include: bool) -> Tensor:
    layout.wrap_dim(dim, len(self.meta.shape))
    if src.meta.dtype is not self.meta.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    may_record(name, self.meta.dtype, self, src, real=True)
    _check(name, self.meta.dtype, reduce, include)
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
    d = self.meta.dtype
    worst: Any = (-float("inf") if reduce == "amax" else float("inf")) if d.kind == "f" else (
        iinfo(d).min if reduce == "amax" else iinfo(d).max)
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

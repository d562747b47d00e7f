"""Joining tensors: along an axis, along a new one, in blocks and grids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes, hooks, layout
from ..autograd import tape
from ..engine.fields import has
from ..errors import warn_once
from ..kernels.specs import Blocks
from ..runtime import caches, dispatch, provenance
from ..tensor import Tensor, alias, empty, meta, new
from .checks import same_device
from .copies import cast_program
from .elementwise import fit
from .table import op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..dtypes import dtype
    from ..tensor import Meta


def _part(g: Tensor, m: Meta, offset: int) -> Tensor:
    """A view of a gradient, whose memory a leaf may borrow."""
    r = alias(g, m, g.ptr + offset)
    r.base = g
    return r


def _cat_back(node: Any, g: Tensor) -> Any:
    axis, metas = node[tape.SAVED]
    out: list[Any] = []
    at = 0
    if not tape.recording(g) and None not in metas and all(m.dtype is g.meta.dtype for m in metas):
        d = g.meta.dtype
        for e, m in zip(node[tape.EDGES], metas, strict=True):
            out.append(None if e is None else _part(g, meta(m.shape, g.meta.strides, d, g.meta.device), at * g.meta.strides[axis] * d.itemsize))
            at += m.shape[axis]
        return out
    for e, m in zip(node[tape.EDGES], metas, strict=True):
        if m is None:  # an empty one-axis tensor that took no part
            out.append(None if e is None else g.new_zeros((0,)))
            continue
        n = m.shape[axis]
        out.append(None if e is None else fit(g.narrow(axis, at, n), m))
        at += n
    return out


tape.keeps_nothing(_cat_back)


_plans: dict[Any, Any] = caches.cache(globals(), "_plans")
_SMALL = 1 << 16  # bytes: larger parts are worth the threads of a copy's kernel
_MOST_BLOCKS = 1 << 10  # of a launch: more of them, which are short then, are worth that kernel's vectors


def _row_step(m: Meta, at: int) -> int | None:
    """How many elements lie from one row to the next, where the axes from `at` on, a row, are neighbours and those before lie evenly; None
    where they do not."""
    row = layout.numel(m.shape[at:])
    if m.contiguous:
        return row
    axes = list(zip(m.shape, m.strides, strict=True))
    due, step = 1, -1
    for n, s in reversed(axes[at:]):
        if n != 1 and s != due:
            return None
        due *= n
    for n, s in reversed(axes[:at]):
        if n != 1:
            if step >= 0 and s != due:
                return None
            step, due = s if step < 0 else step, s * n
    return row if step < 0 else step


def _in_blocks(parts: Sequence[Tensor], at: int, d: dtype) -> Any:
    """The bound launch ``f(out, *parts)`` that puts rows of all parts, their axes from `at` on, one behind the other; None where a kernel for each
    part does better, or the device's backend has no such launch. It needs no planning: parts grow from call to call in many programs."""
    times = layout.numel(parts[0].meta.shape[:at])
    if not times or times * len(parts) > _MOST_BLOCKS:
        return None
    sizes: list[int] = []
    steps: list[int] = []
    before: Any = None
    for t in parts:
        m = t.meta
        if m is not before:
            apart = _row_step(m, at) if m.dtype is d and m.numel and m.numel * d.itemsize <= _SMALL else None
            if apart is None:
                return None
            row, step, before = m.numel // times * d.itemsize, apart * d.itemsize, m
        sizes.append(row)
        steps.append(step)
    dev = parts[0].meta.device
    made = dispatch.find(dev, Blocks(times, tuple(sizes), tuple(steps)))
    return None if made is None else dispatch.bind(dev, made)


def _one_by_one(moves: Sequence[tuple[Any, int]]) -> Any:
    """A launch ``f(out, *parts)`` of a copy for each part, to so many bytes behind `out`."""
    def launch(out: int, *parts: int) -> None:
        for (call, offset), p in zip(moves, parts, strict=True):
            call(out + offset, p)
    return launch


def _of_some(launch: Any, places: Sequence[int], count: int) -> Any:
    """A launch that takes all `count` parts, those that are empty too, of which nothing is copied."""
    return launch if len(places) == count else lambda out, *parts: launch(out, *[parts[i] for i in places])


def _keep(since: int, key: Any, plan: tuple[Meta, Any, Any]) -> None:
    if not provenance.enabled():
        caches.keep_since(since, _plans, key, plan)


@tape.keeps_nothing
def _stack_back(node: Any, g: Tensor) -> Any:
    axis, count = node[tape.SAVED]
    if tape.recording(g):
        return tuple(g.select(axis, i) for i in range(count))
    m = g.meta
    part = meta((*m.shape[:axis], *m.shape[axis + 1:]), (*m.strides[:axis], *m.strides[axis + 1:]), m.dtype, m.device)
    step = m.strides[axis] * m.dtype.itemsize
    return tuple([None if e is None else _part(g, part, i * step) for i, e in enumerate(node[tape.EDGES])])


def _joined(plan: Any, ts: Any) -> Tensor:
    """The tensors copied to their places by a plan of `_plans`: (meta, a launch, what is saved)."""
    out = new(plan[0])
    plan[1](out.ptr, *[t.ptr for t in ts])
    return out


def _written(out: Tensor, key: tuple[Any, ...], ts: Sequence[Tensor]) -> bool:
    """Whether a plan gives a result that lies as `out` does, which was then written there."""
    plan = _plans.get(key)
    if plan is None or plan[0] is not out.meta or any(t.store.ptr == out.store.ptr for t in ts):
        return False
    plan[1](out.ptr, *[t.ptr for t in ts])
    out.store.version += 1
    return True


def _cat_writes(out: Tensor, tensors: Any, dim: int = 0, *, axis: int | None = None) -> bool:
    return _written(out, (dim if axis is None else axis, tuple([t.meta for t in tensors])), tensors)


def _stack_writes(out: Tensor, tensors: Any, dim: int = 0) -> bool:
    return _written(out, ("stack", dim, tuple([t.meta for t in tensors])), tensors)


@op(method=False, out=True, aliases=("concat", "concatenate"), writes=_cat_writes, autocast="cpu widest", tangent="linear", out_type="joined",
    out_apart=True, batch="joined")
def cat(tensors: Any, dim: int = 0, *, axis: int | None = None) -> Tensor:
    """The tensors one after another along an existing axis; their other sizes must be equal."""
    ts = _listed("cat", tensors)
    dim, since = dim if axis is None else axis, caches.epoch
    key = dim, tuple([t.meta if type(t) is Tensor else None for t in ts])
    plan = _plans.get(key)
    if plan is not None:
        return tape.record(_joined(plan, ts), _cat_back, ts, plan[2], "CatBackward0")
    if not ts:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for i, t in enumerate(ts):
        if not isinstance(t, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(t).__name__}")
    same_device("cat", *ts)
    for i, t in enumerate(ts):
        if not t.meta.shape:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    parts = [t for t in ts if tuple(t.meta.shape) != (0,)]
    d = ts[0].meta.dtype
    for t in ts[1:]:
        d = dtypes.promote_types(d, t.meta.dtype)
    if not parts:
        return tape.record(empty((0,), d, ts[0].meta.device), _cat_back, ts, (0, [t.meta for t in ts]), "CatBackward0")
    first = parts[0]
    at = layout.wrap_dim(dim, len(first.meta.shape))
    total = 0
    for i, t in enumerate(ts):
        if tuple(t.meta.shape) == (0,):
            continue
        if len(t.meta.shape) != len(first.meta.shape):
            raise RuntimeError(f"Tensors must have same number of dimensions: got {len(first.meta.shape)} and {len(t.meta.shape)}")
        for k, (a, b) in enumerate(zip(first.meta.shape, t.meta.shape, strict=True)):
            if k != at and a != b:
                raise RuntimeError(f"Sizes of tensors must match except in dimension {at}. Expected size {a} but got size {b} for tensor "
                                   f"number {i} in the list.")
        total += t.meta.shape[at]
    shape = (*first.meta.shape[:at], total, *first.meta.shape[at + 1:])
    strides = None
    if all(layout.wants_channels_last(t.meta.shape, t.meta.strides) for t in parts):
        strides = layout.channels_last_strides(shape)
    saved = (at, [None if tuple(t.meta.shape) == (0,) else t.meta for t in ts])
    plain = None not in key[1]
    blocks = _in_blocks(parts, at, d) if strides is None else None
    made = meta(shape, strides, d, first.meta.device)
    if blocks is not None:
        if plain:
            _keep(since, key, (made, _of_some(blocks, [i for i, m in enumerate(saved[1]) if m is not None], len(ts)), saved))
        return tape.record(_joined((made, blocks), parts), _cat_back, ts, saved, "CatBackward0")
    out = new(made)
    start = 0
    moves = []
    for t in parts:
        n = t.meta.shape[at]
        if t.meta.numel:
            place = _window(out, at, start, n)
            domain = tuple(t.meta.shape)
            prepared = dispatch.prepare(out.meta.device, cast_program(t.meta.dtype, d), domain, tuple(
                layout.expand_strides(x.meta.shape, x.meta.strides, domain) for x in (place, t)), (place.meta.nbytes, t.meta.nbytes))
            prepared.name = "cat"
            call = dispatch.bind(out.meta.device, prepared)
            moves.append((call, place.ptr - out.ptr))
            call(place.ptr, t.ptr)
        start += n
    if plain:
        _keep(since, key, (made, _of_some(_one_by_one(moves), [i for i, t in enumerate(ts) if t.meta.numel], len(ts)), saved))
    return tape.record(out, _cat_back, ts, saved, "CatBackward0")


def _window(out: Tensor, axis: int, start: int, n: int) -> Tensor:
    m = out.meta
    return alias(out, meta((*m.shape[:axis], n, *m.shape[axis + 1:]), m.strides, m.dtype, m.device),
                 out.ptr + start * m.strides[axis] * m.dtype.itemsize)


@op(method=False, out=True, writes=_stack_writes, autocast="cpu widest", tangent="linear", out_type="joined", batch="joined")
def stack(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    ts = _listed("stack", tensors)
    key, since = ("stack", dim, tuple([t.meta if type(t) is Tensor else None for t in ts])), caches.epoch
    plan = _plans.get(key)
    if plan is not None:
        return tape.record(_joined(plan, ts), _stack_back, ts, plan[2], "StackBackward0")
    if not ts:
        raise RuntimeError("stack expects a non-empty TensorList")
    for i, t in enumerate(ts):
        if not isinstance(t, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(t).__name__}")
    at = layout.wrap_dim(dim, len(ts[0].meta.shape) + 1)
    for i, t in enumerate(ts):
        if t.meta.shape != ts[0].meta.shape:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(ts[0].meta.shape)} at entry 0 and "
                               f"{list(t.meta.shape)} at entry {i}")
    one = ts[0].meta
    blocks = _in_blocks(ts, at, one.dtype) if all(t.meta.device is one.device for t in ts) else None
    if blocks is not None:
        plan = meta((*one.shape[:at], len(ts), *one.shape[at:]), None, one.dtype, one.device), blocks, (at, len(ts))
        if None not in key[2]:
            _keep(since, key, plan)
        return tape.record(_joined(plan, ts), _stack_back, ts, plan[2], "StackBackward0")
    # new axes of size 1, also for the empty tensors that cat would skip
    grown = [t.unsqueeze(at) for t in ts]
    out = cat(grown, at)
    plan = _plans.get((at, tuple([t.meta for t in grown])))
    # a part of another type than the result has a gradient of its own type, which `cat` knows of
    if plan is not None and None not in key[2] and all(t.meta.dtype is plan[0].dtype for t in ts):
        _keep(since, key, (plan[0], plan[1], (at, len(ts))))
    if out.node is not None:
        out.node[tape.EXTRA] = {**(out.node[tape.EXTRA] or {}), "name": "StackBackward0"}
    return out


def _listed(name: str, tensors: Any) -> list[Any]:
    """The tensors as a list; one tensor is not its rows."""
    if isinstance(tensors, Tensor):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
    return list(tensors)


def _least(name: str, n: int, tensors: Any) -> list[Tensor]:
    from .table import TABLE
    grow = TABLE[f"atleast_{n}d"].function
    ts = _listed(name, tensors)
    if not ts:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return [grow(t) for t in ts]


@op(method=False, out=True, tangent="linear", out_type="joined")
def hstack(tensors: Any) -> Tensor:
    """Joined along the second axis (the first for vectors)."""
    ts = _least("hstack", 1, tensors)
    return cat(ts, 0 if len(ts[0].meta.shape) == 1 else 1)


@op(method=False, out=True, aliases=("row_stack",), tangent="linear", out_type="joined")
def vstack(tensors: Any) -> Tensor:
    """Joined along the first axis, vectors as rows."""
    return cat(_least("vstack", 2, tensors), 0)


@op(method=False, out=True, tangent="linear", out_type="joined")
def dstack(tensors: Any) -> Tensor:
    """Joined along the third axis."""
    return cat(_least("dstack", 3, tensors), 2)


@op(method=False, out=True, tangent="linear", out_type="joined")
def column_stack(tensors: Any) -> Tensor:
    """Joined along the second axis, vectors as columns."""
    return hstack([t.reshape(-1, 1) if len(t.meta.shape) <= 1 else t for t in _listed("column_stack", tensors)])


@op(method=False, tangent="linear", renames=False)
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a larger one, zeros elsewhere."""
    blocks = []
    for i, t in enumerate(tensors):
        if len(t.meta.shape) > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {len(t.meta.shape)} dimensions")
        blocks.append(t.reshape(1, -1) if len(t.meta.shape) < 2 else t)
    if not blocks:
        return empty((1, 0), dtypes.get_default_dtype(), _cpu())
    width = 0
    for b in blocks:
        width += b.meta.shape[1]
    d = dtypes.result_of([t.meta.dtype for t in tensors if t.meta.shape], [t.meta.dtype for t in tensors if not t.meta.shape], [])
    if not tape.recording(*blocks):
        height = 0
        for b in blocks:
            height += b.meta.shape[0]
        made, down, along = blocks[0].new_zeros((height, width), dtype=d), 0, 0
        for b in blocks:
            n, m = b.meta.shape
            made.narrow(0, down, n).narrow(1, along, m).copy_(b)
            down, along = down + n, along + m
        return made
    rows, at = [], 0
    for b in blocks:
        n, m = b.meta.shape
        rows.append(cat([b.new_zeros((n, at), dtype=d), b.to(d), b.new_zeros((n, width - at - m), dtype=d)], 1))
        at += m
    return cat(rows, 0)


def _cpu() -> Any:
    from ..runtime.device import resolve
    return resolve("cpu")


@op(method=False, tangent="linear", renames=False)
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Views of vectors over the grid they span: "ij" (matrix order, the default) or "xy"."""
    ts = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else list(tensors)
    if not ts:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing is None:
        warn_once("torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.")
        indexing = "ij"
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f"torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: {indexing}")
    if len({t.meta.device for t in ts if t.meta.device.type != "meta"}) < 2 and any(t.meta.device is not ts[0].meta.device for t in ts):
        raise RuntimeError(f"torch.meshgrid expects all tensors to have the same device, got {', '.join(str(t.meta.device) for t in ts)}")
    same_device("meshgrid", *ts)
    for t in ts:
        if len(t.meta.shape) > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {t!r}")
        if t.meta.dtype is not ts[0].meta.dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    swap = indexing == "xy" and len(ts) >= 2
    if swap:
        ts[0], ts[1] = ts[1], ts[0]
    shape = [t.meta.numel for t in ts]
    grids = [t.reshape([-1 if i == k else 1 for i in range(len(ts))]).expand(shape) for k, t in enumerate(ts)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@op(method=False, renames=False)
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of the vectors' elements, one a row."""
    ts: Sequence[Tensor] = tensors
    for t in ts:
        if len(t.meta.shape) != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.meta.shape)}")
    if len(ts) == 1:
        return ts[0]
    return stack([g.reshape(-1) for g in meshgrid(*ts)], 1)


@op()
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:  # noqa: A002
    """The r-element combinations of a vector's elements, one a row."""
    import itertools
    if len(input.meta.shape) != 1:
        raise RuntimeError("Expect a 1D vector, but got shape " + str(list(input.meta.shape)))
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return empty((0,), input.meta.dtype, input.meta.device)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.meta.shape[0]), r))
    from ..dtypes import int64
    from .creation import tensor
    at = tensor(rows, dtype=int64, device=input.meta.device).reshape(-1, r)
    return input[at]


hooks.provide(cat=cat, stack=stack)

has("column_stack hstack vstack", batch="composite", sparse="composite")
has("block_diag cartesian_prod combinations dstack meshgrid", batch="composite")

"""Rearrangements that copy: triangles, flips, rolls, repeats, diagonals put in place, parts replaced."""

from __future__ import annotations

import inspect
from operator import index
from typing import Any

from .. import layout
from ..autograd import inplace as in_place
from ..autograd import tape
from ..autograd.mode import _grad
from ..dtypes import dtype as dtype_class
from ..dtypes import float32, float64, int32, int64
from ..engine import fields
from ..engine.fields import has
from ..kernels import expr as E
from ..kernels.programs import Map
from ..runtime import dispatch
from ..runtime.device import resolve
from ..tensor import Tensor, alias, empty, meta, new
from . import (
    axis_views,  # noqa: F401 (the views copied here must be in the table)
    launch,
)
from .checks import may_write, same_device
from .copies import assign, cast_program
from .sizes import sizes_of
from .table import TABLE, op
from .views import as_strided, select, slice_axis

_programs: dict[Any, Map] = {}


# ---------------------------------------------------------------------------------------------------------------- triangles
_LAUNCHES = 8  # more of them must be worth it that a form in place touches little but what it clears
_EDGE = 64  # rows and columns of the blocks along a diagonal that one launch masks


def _clear(t: Tensor, diagonal: int, mask: Any) -> None:
    """Zeros above a diagonal of the last two axes, in place, by rectangles: what lies below is neither read nor written.

    Beside the diagonal's blocks lie squares of one block, beside pairs of blocks squares of two, and so on: each size is one launch.  mask: does the same
    to the small blocks.
    """
    m = t.meta
    *batch, rows, columns = m.shape
    *apart, down, along = m.strides

    def part(row: int, column: int, count: int, step: int, height: int, width: int) -> Tensor:
        """Rectangles: the first one's place, how many, how many rows and columns the next one lies further, and their size."""
        shape, strides = (*batch, count, height, width), (*apart, step * (down + along), down, along)
        return alias(t, meta(shape, strides, m.dtype, m.device), t.ptr + (row * down + column * along) * m.dtype.itemsize)

    def zero(*place: int) -> None:
        if min(place[2], *place[4:]) > 0:
            launch.fill(part(*place), 0)
    top, left = min(rows, max(0, -diagonal)), max(0, diagonal)  # where the diagonal begins
    zero(0, 0, 1, 0, top, columns)
    high, wide = rows - top, columns - left
    side = max(min(high, wide), 0)
    zero(top, left + side, 1, 0, side, wide - side)  # beside the square that the diagonal crosses
    size = _EDGE
    while size < side:
        count = side // (2 * size)
        zero(top, left + size, count, 2 * size, size, size)
        at = 2 * size * count
        zero(top + at, left + at + size, 1, 0, size, side - at - size)
        size *= 2
    at = side - side % _EDGE
    for place in ((top, left, at // _EDGE, _EDGE, _EDGE, _EDGE), (top + at, left + at, 1, 0, side - at, side - at)):
        if min(place[2], *place[4:]) > 0:
            mask(part(*place))


def _transposed(t: Tensor) -> Tensor:
    """A tensor's memory with its last two axes in turn."""
    m = t.meta
    return alias(t, meta((*m.shape[:-2], m.shape[-1], m.shape[-2]), (*m.strides[:-2], m.strides[-1], m.strides[-2]), m.dtype, m.device), t.ptr)


def _triangle(name: str, keep: Any) -> None:
    def write(out: Tensor, t: Tensor, diagonal: int) -> None:
        m = t.meta
        if len(m.shape) < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        program = _programs.get((name, m.dtype))
        if program is None:
            inside = keep(E.coord(-1) - E.coord(-2), E.scalar(0, int64))
            program = _programs[name, m.dtype] = Map((E.where(inside, E.input(0, m.dtype), E.const(0, m.dtype)),), (m.dtype,), (int64,))
        if m.numel:
            launch.run(program, tuple(m.shape), [out], [t], numbers=(index(diagonal),), name=name)

    def function(input: Tensor, diagonal: int = 0) -> Tensor:  # noqa: A002
        m = input.meta
        out = empty(m.shape, m.dtype, m.device)
        write(out, input, diagonal)
        return tape.record(out, tape.keeps_nothing(lambda node, g: (function(g, node[tape.SAVED]),)), (input,), diagonal,
                           f"{name.capitalize()}Backward0")

    def inplace(self: Tensor, diagonal: int = 0) -> Tensor:
        if _grad.get() and in_place.check(self, (self,)):
            return assign(self, function(self, diagonal))
        may_write(self)
        m = self.meta
        if len(m.shape) < 2 or m.nbytes < _LAUNCHES * dispatch.launch_bytes(m.device):
            write(self, self, diagonal)
        elif name == "tril":
            _clear(self, index(diagonal), lambda block: write(block, block, 0))
        else:  # the other triangle of the matrix turned round
            _clear(_transposed(self), -index(diagonal), lambda block: write(_transposed(block), _transposed(block), 0))
        self.store.version += 1
        return self
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (f"The elements on and {'below' if name == 'tril' else 'above'} a diagonal of the last two axes; 0 elsewhere.")
    inplace.__name__ = f"{name}_"
    op(inplace=inplace, out=True)(function)


_triangle("tril", lambda gap, k: gap <= k)
_triangle("triu", lambda gap, k: gap >= k)


def _places(lower: bool, only: bool, real: dtype_class, last: E.Expr, top: E.Expr, first: E.Expr, steps: E.Expr, width: E.Expr,
            height: E.Expr) -> tuple[E.Expr, E.Expr]:
    """Row and column of each element of a triangle, counted row by row.

    A lower triangle is `steps` rows of first, first + 1, ... elements from row `top` on, then rows of `width` unless there are `only` those; an
    upper one is a lower one turned round, so that its element i is the other's element last - i.  real: floats whose correctly rounded roots and quotients
    are never rounded over the next whole number, for as many elements (`_floats`).
    """
    i = E.cast(E.coord(-1), last.dtype)
    k = i if lower else last - i
    b = E.cast(2 * first - 1, real)
    j = E.cast((E.sqrt(b * b + 8.0 * E.cast(k, real)) - b) * 0.5, last.dtype)
    down, along = top + j, k - (j * first + (j * (j - 1) >> 1))
    if not only:
        rest = k - (steps * first + (steps * (steps - 1) >> 1))
        row = E.cast(E.cast(rest, real) / E.cast(width, real), last.dtype)  # vectors have no division of integers
        down, along = E.where(rest < 0, down, top + steps + row), E.where(rest < 0, along, rest - row * width)
    return (down, along) if lower else (height - 1 - down, width - 1 - along)


def _floats(count: int, first: int) -> dtype_class:
    """The floats of `_places`: a root of x lies at least 1 / (2 sqrt(x)) below a whole number that it does not reach, and they must tell the two."""
    return float32 if 8 * count + (2 * first + 1) ** 2 < 1 << 24 else float64


def _triangle_indices(name: str) -> None:
    def function(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, layout: Any = None,
                 pin_memory: bool = False) -> Tensor:
        for what, size in (("row", row), ("col", col)):
            if size < 0:
                raise RuntimeError(f"{what} must be non-negative, got {size}")
        d = int64 if dtype is None else dtype
        if d not in (int32, int64):
            raise RuntimeError(f"\"{name}\" not implemented for '{d.name}': int32 or int64 is expected")
        lower = name == "tril_indices"
        k = offset if lower else col - row - offset
        top = max(0, -k)
        first = min(max(k + 1, 1), col)
        steps = max(min(row - top, col - first + 1), 0)  # the last of them may be whole
        full = max(row - top - steps, 0)
        count = steps * first + steps * (steps - 1) // 2 + full * col
        out = empty((2, count), d, resolve(device))
        if count:
            whole, real = int32 if count + 2 * col < 1 << 30 else int64, _floats(count, first)
            key = name, d, not full, whole, real
            program = _programs.get(key)
            if program is None:
                places = _places(lower, not full, real, *[E.scalar(i, whole) for i in range(6)])
                program = _programs[key] = Map(tuple([E.cast(p, d) for p in places]), (), (whole,) * 6)
            launch.run(program, (count,), [select(out, 0, 0), select(out, 0, 1)], [], numbers=(count - 1, top, first, steps, col, row), name=name)
        return out
    function.__name__ = function.__qualname__ = name
    function.__doc__ = "The row and column positions of a triangle, (2, count)."
    op(method=False)(function)


_triangle_indices("tril_indices")
_triangle_indices("triu_indices")


# ---------------------------------------------------------------------------------------------------------------- diagonals
@op(batch="trailing", tangent="linear")
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:  # noqa: A002
    """The last axis along a diagonal of two new axes, zeros elsewhere."""
    n = len(input.meta.shape) + 1
    a, b = layout.wrap_dim(dim1, n), layout.wrap_dim(dim2, n)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    side = input.meta.shape[-1] + abs(offset)
    shape = list(input.meta.shape[:-1])
    for axis in sorted((a, b)):
        shape.insert(axis, side)
    from .views import put
    return put(input, shape, lambda z: z.diagonal(offset, a, b))


@op(out=True, tangent="linear")
def diag(input: Tensor, diagonal: int = 0) -> Tensor:  # noqa: A002
    """A vector as a diagonal matrix, or a matrix's diagonal (copied)."""
    if len(input.meta.shape) == 1:
        return diag_embed(input, diagonal)
    if len(input.meta.shape) == 2:
        return input.diagonal(diagonal).clone()
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {len(input.meta.shape)}D")


@op(tangent="linear")
def diagflat(input: Tensor, offset: int = 0) -> Tensor:  # noqa: A002
    """All elements along a diagonal of a matrix."""
    return diag_embed(input.reshape(-1), offset)


@op(spaces=(), name="fill_diagonal_")
def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Writes a number along the main diagonal, in place: of a matrix (wrap: starting again below the square of a tall one), or of
    a tensor with more axes, which must be equal.  Raises RuntimeError for fewer axes or unequal ones."""
    shape = tuple(self.meta.shape)
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(shape) > 2:
        if len(set(shape)) > 1:
            raise RuntimeError("all dimensions of input must be of equal length")
        as_strided(self, (shape[0],), (sum(self.meta.strides),)).fill_(fill_value)
        return self
    rows, columns = shape
    for start in range(0, rows if wrap else min(rows, 1), columns + 1):
        slice_axis(self, 0, start, min(start + columns, rows)).diagonal().fill_(fill_value)
    return self


# ---------------------------------------------------------------------------------------------------------- flips and rolls
@op(tangent="linear", batch="order")
def flip(input: Tensor, *dims: Any) -> Tensor:  # noqa: A002
    """A copy with axes reversed.  Raises TypeError where no list of axes is given, RuntimeError for an axis that is given twice."""
    if not dims:
        raise TypeError('flip() missing 1 required positional arguments: "dims"')
    given = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    axes = tuple([layout.wrap_dim(d, len(input.meta.shape)) for d in given])
    if len(set(axes)) != len(axes):
        raise RuntimeError(f"dim {next(a for i, a in enumerate(axes) if a in axes[:i])} appears multiple times in the list of dims")
    m = input.meta
    if not m.shape:
        return input.clone()
    out = new(meta(m.shape, layout.dense_like(tuple(m.shape), m.strides), m.dtype, m.device))
    if m.numel:
        first = sum([(m.shape[a] - 1) * m.strides[a] for a in axes]) * m.dtype.itemsize  # of the copy
        strides = tuple([-s if a in axes else s for a, s in enumerate(m.strides)])
        launch.run(cast_program(m.dtype, m.dtype), tuple(m.shape), [out], [alias(input, m, input.ptr + first)], [out.meta.strides, strides], name="copy",
                   rooms=[out.meta.nbytes, (first, m.nbytes - first)])
    return tape.record(out, _flip_back, (input,), axes, "FlipBackward0")


@tape.keeps_nothing
def _flip_back(node: Any, g: Tensor) -> Any:
    return (flip(g, node[tape.SAVED]),)


@op(tangent="linear")
def fliplr(input: Tensor) -> Tensor:  # noqa: A002
    """The second axis reversed."""
    if len(input.meta.shape) < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, 1)


@op(tangent="linear")
def flipud(input: Tensor) -> Tensor:  # noqa: A002
    """The first axis reversed."""
    if not input.meta.shape:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, 0)


@op(tangent="linear", batch="order")
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:  # noqa: A002
    """Elements moved along axes, those pushed out coming back at the other end; of the flattened tensor without dims."""
    from .concat import cat
    moves = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [] if dims is None or dims == () else [dims] if isinstance(dims, int) else list(dims)
    if not moves:
        raise RuntimeError("`shifts` required")
    if not axes:
        if len(moves) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:0")
        return roll(input.reshape(-1), moves[0], 0).reshape(tuple(input.meta.shape))
    if len(moves) != len(axes):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(axes)}")
    out = same = alias(input, input.meta, input.ptr)  # unknown to the tape, which has one node for all
    for s, d in zip(moves, axes, strict=True):
        axis = layout.wrap_dim(d, len(input.meta.shape), False)
        n = input.meta.shape[axis] if input.meta.shape else 1
        cut = (n - s % n) % n if n else 0
        out = cat([slice_axis(out, axis, cut, n), slice_axis(out, axis, 0, cut)], axis) if cut and input.meta.shape else out
    return input.clone() if out is same else tape.record(out, _roll_back, (input,), (moves, axes), "RollBackward0")


@tape.keeps_nothing
def _roll_back(node: Any, g: Tensor) -> Any:
    moves, axes = node[tape.SAVED]
    return (roll(g, [-s for s in moves], axes),)


@op(tangent="linear")
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:  # noqa: A002
    """k quarter turns in the plane of two axes."""
    dims = tuple(dims)
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if len(input.meta.shape) < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {len(input.meta.shape)}")
    if dims[0] == dims[1] or abs(dims[0] - dims[1]) == len(input.meta.shape):
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    k %= 4
    if k == 1:
        return _turned(flip(input, dims[1]), dims)
    if k == 2:
        return flip(input, dims)
    return _turned(flip(input, dims[0]), dims) if k == 3 else input.clone()


def _turned(copy: Tensor, dims: Any) -> Tensor:
    """A fresh tensor with two axes exchanged; nobody else sees its memory, so it need not be known as a view."""
    made: Tensor = copy.transpose(*dims)
    made.base = None
    return made


def _rows() -> Any:
    from .memory_format import contiguous_format
    return contiguous_format


# ----------------------------------------------------------------------------------------------------------------- padding
@op(method=False, tangent="linear", batch="pad")
def constant_pad_nd(input: Tensor, pad: Any, value: Any = 0) -> Tensor:  # noqa: A002
    """`input` inside a larger tensor of one value: `pad` is (before, after) of the last axis, then of the one before it, and so on;
    negative amounts crop.  Channels-last tensors stay so.  Raises RuntimeError for amounts that do not fit."""
    m, amounts = input.meta, [int(p) for p in pad]
    n = len(m.shape)
    if len(amounts) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(amounts)}")
    if len(amounts) > 2 * n:
        raise RuntimeError("Length of pad should be no more than twice the number of dimensions of the input. Pad length is "
                           f"{len(amounts)} while the input has {n} dimensions.")
    shape, source, start = list(m.shape), input, [0] * n
    for k in range(len(amounts) // 2):
        axis, before, after = n - 1 - k, amounts[2 * k], amounts[2 * k + 1]
        size = m.shape[axis]
        shape[axis] = size + before + after
        if shape[axis] < 0:
            raise RuntimeError(f"The input size {size}, plus negative padding {before} and {after} resulted in a negative output size, which is "
                               f"invalid. Check dimension {axis} of your input.")
        start[axis] = max(before, 0)
        if min(before, after) < 0:
            source = slice_axis(source, axis, max(-before, 0), max(size - max(-after, 0), 0))
    strides = layout.channels_last_strides(shape) if layout.is_channels_last(m.shape, m.strides) and not m.contiguous else None
    out = empty(shape, m.dtype, m.device, strides)
    launch.fill(out, value)
    here = out
    for axis, at in enumerate(start):
        here = slice_axis(here, axis, at, at + source.meta.shape[axis])
    if source.meta.numel:
        launch.run(cast_program(m.dtype, m.dtype), tuple(here.meta.shape), [here], [source], name="pad")
    return tape.record(out, _pad_back, (input,), [-a for a in amounts], "ConstantPadNdBackward0")


@tape.keeps_nothing
def _pad_back(node: Any, g: Tensor) -> Any:
    return (constant_pad_nd(g, node[tape.SAVED]),)


# ----------------------------------------------------------------------------------------------------------------- repeats
@op(spaces=(), tangent="linear", batch="sizes")
def repeat(self: Tensor, *repeats: Any) -> Tensor:
    """A copy repeated along each axis (new leading axes where there are more sizes than axes)."""
    times = sizes_of("repeat", repeats)
    n = len(self.meta.shape)
    if len(times) < n:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    if any(r < 0 for r in times):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(times)}")
    shape = (1,) * (len(times) - n) + tuple(self.meta.shape)
    split = [d for pair in zip((1,) * len(shape), shape, strict=True) for d in pair]
    wide = [d for pair in zip(times, shape, strict=True) for d in pair]
    return self.reshape(split).expand(wide).clone(memory_format=_rows()).reshape([r * d for r, d in zip(times, shape, strict=True)])


@op(tangent="linear", batch="sizes")
def tile(input: Tensor, *dims: Any) -> Tensor:  # noqa: A002
    """`repeat`, with missing leading counts taken as 1."""
    times = sizes_of("tile", dims)
    return repeat(input, (1,) * (len(input.meta.shape) - len(times)) + times)


# ----------------------------------------------------------------------------------------------------------- parts replaced
@op(out=True, tangent="linear")
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:  # noqa: A002
    """A copy with src at one position of an axis."""
    return _replaced("select_scatter", input, src, lambda z: select(z, dim, index))


@op(out=True, tangent="linear")
def slice_scatter(input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:  # noqa: A002
    """A copy with src at a slice of an axis."""
    axis = layout.wrap_dim(dim, len(input.meta.shape))
    first, stop, step = slice(start, end, step).indices(input.meta.shape[axis])
    return _replaced("slice_scatter", input, src, lambda z: slice_axis(z, axis, first, stop, step))


@op(out=True, tangent="linear")
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:  # noqa: A002
    """A copy with src along a diagonal."""
    return _replaced("diagonal_scatter", input, src, lambda z: z.diagonal(offset, dim1, dim2))


@op(out=True, tangent="linear")
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:  # noqa: A002
    """A copy with src at the elements as_strided shows."""
    return _replaced("as_strided_scatter", input, src, lambda z: as_strided(z, size, stride, storage_offset))


def _replaced(name: str, t: Tensor, src: Tensor, region: Any) -> Tensor:
    same_device(name, t, src)
    out = t.clone()
    place = region(out)
    if place.meta.shape != src.meta.shape:
        raise RuntimeError(f"{name}: expected src to have a size equal to the slice of self. src size = {list(src.meta.shape)}, slice size = "
                           f"{list(place.meta.shape)}")
    place.copy_(src)
    return out


@op(method=False)
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The coordinates, in a tensor of `shape`, of positions in the flattened tensor."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if indices.meta.dtype.kind not in "ui":
        raise ValueError("expected 'indices' to be integer dtype, but got torch." + indices.meta.dtype.name)
    if any(s < 0 for s in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    out = []
    step = layout.numel(sizes)
    for n in sizes:
        step = step // n if n else 0
        out.append(indices.div(step, rounding_mode="floor") % n if step else indices)
    return tuple(out)


@op(method=False, out=True, batch="same", tangent="linear")
def alias_copy(input: Tensor) -> Tensor:  # noqa: A002
    """The same values in memory of their own."""
    return input.clone(memory_format=_rows())


def _copy_form(name: str) -> None:
    """`x_copy` of the view `x`: the same values in memory of their own."""
    view = TABLE[name].function

    def function(*args: Any, **kwargs: Any) -> Any:
        made = view(*args, **kwargs)
        return tuple(x.clone(memory_format=_rows()) for x in made) if isinstance(made, tuple) else made.clone(memory_format=_rows())
    function.__name__ = function.__qualname__ = name + "_copy"
    function.__doc__ = f"`{name}` in memory of its own, not as a view."
    function.__signature__, function.__wrapped__ = inspect.signature(view), view  # type: ignore[attr-defined]
    like_views = (("batch", ("same", "strided")), ("tangent", ("linear", "none")))
    alike: dict[str, Any] = {f: found for f, kept in like_views if (found := fields.of(f).get(name)) in kept}
    op(method=name == "narrow", out=True, **alike)(function)


for _name, _shows in fields.of("views").copy().items():
    if _shows == "copied":
        _copy_form(_name)

has("tril triu", batch="trailing")
has("tril triu", tangent="linear")
has("unbind_copy", batch="along 0", sparse="composite")
has("as_strided_scatter diag diagflat diagonal_scatter fliplr flipud select_scatter unravel_index", batch="composite")
has("alias_copy roll rot90 t_copy transpose_copy", sparse="composite")

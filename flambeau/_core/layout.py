"""Shapes and strides: pure functions on tuples, in elements, with no tensor and no device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

from .unknowns import Unknown

if TYPE_CHECKING:
    from typing import SupportsIndex, overload

Shape = tuple[int, ...]


class Size(tuple[int, ...]):
    """A tensor's shape: a tuple that prints as PyTorch's does and knows its number of elements."""

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Size:
        return tuple.__new__(cls, [s if type(s) is int or type(s) is Unknown else s.__index__() for s in sizes])

    def numel(self) -> int:
        return numel(self)

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    if TYPE_CHECKING:
        @overload
        def __getitem__(self, at: SupportsIndex) -> int: ...
        @overload
        def __getitem__(self, at: slice[Any, Any, Any]) -> Size: ...
        def __getitem__(self, at: Any) -> Any: ...
    else:
        def __getitem__(self, at):
            got = tuple.__getitem__(self, at)
            return tuple.__new__(Size, got) if type(at) is slice else got

    def __add__(self, other: Any) -> Any:
        return tuple.__new__(Size, tuple.__add__(self, tuple(other)))

    def __radd__(self, other: Any) -> Any:
        return tuple.__new__(Size, tuple(other) + tuple(self))

    def __mul__(self, times: Any) -> Any:
        return tuple.__new__(Size, tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __reduce__(self) -> Any:
        return Size, (tuple(self),)


def whole(x: Any) -> int:
    """An integer that is given as anything with an ``__index__``."""
    return x if isinstance(x, Unknown) else index(x)  # type: ignore[return-value]


def bounds(start: Any, stop: Any, step: int | None, size: int) -> tuple[int, int, int]:
    """``slice(start, stop, step).indices(size)``, for steps forward."""
    if size.__class__ is int and start.__class__ is not Unknown and stop.__class__ is not Unknown:
        return slice(start, stop, step).indices(size)

    def within(at: Any, otherwise: Any) -> Any:
        return otherwise if at is None else max(at + size, 0) if at < 0 else min(at, size)
    step = 1 if step is None else step.__index__()
    if step <= 0:
        return slice(start, stop, step).indices(size)
    return within(start, 0), within(stop, size), step


def numel(shape: Iterable[int]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


def contiguous_strides(shape: Sequence[int]) -> Shape:
    """Row-major strides; as in PyTorch a zero-size axis counts as one."""
    out = []
    step = 1
    for d in reversed(shape):
        out.append(step)
        step *= d if d > 1 else 1
    return tuple(reversed(out))


def channels_last_strides(shape: Sequence[int]) -> Shape:
    """Strides of (N, C, H, W) or (N, C, D, H, W) with channels innermost."""
    order = (1, *range(len(shape) - 1, 1, -1), 0)
    out = [0] * len(shape)
    step = 1
    for axis in order:
        out[axis] = step
        step *= max(shape[axis], 1)
    return tuple(out)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    if 0 in shape:
        return True
    step = 1
    for d, s in zip(reversed(shape), reversed(strides), strict=True):
        if d != 1:
            if s != step:
                return False
            step *= d
    return True


def is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a 4- or 5-axis layout has its channels innermost (and is dense)."""
    if len(shape) not in (4, 5):
        return False
    step = 1
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[axis] != 1:
            if strides[axis] != step:
                return False
            step *= shape[axis]
    return True


def wants_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether results of images laid out so have their channels innermost: the strides grow from the channels over the image to the batch, with
    or without gaps.  Row-major ones do not want it, though of one channel they may be both."""
    if len(shape) not in (4, 5) or 0 in shape or strides[1] == 0 or is_contiguous(shape, strides):
        return False
    step = 0
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        if strides[axis] < step:
            return False
        step = strides[axis] * shape[axis]
    return True


def image_strides(shape: Sequence[int], image: Sequence[int], strides: Sequence[int]) -> Shape:
    """Strides of a fresh result of `shape` on images of such a layout: channels innermost where theirs are, else row by row."""
    last = len(shape) == len(image) and wants_channels_last(image, strides)
    return channels_last_strides(shape) if last else contiguous_strides(shape)


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill a block of memory without overlap or gaps, in some order of the axes."""
    if 0 in shape:
        return True
    step = 1
    for s, d in sorted((s, d) for s, d in zip(strides, shape, strict=True) if d != 1):
        if s != step:
            return False
        step *= d
    return True


def overlaps_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two indices may mean one element (exact for expanded axes, conservative for odd `as_strided` layouts)."""
    if 0 in shape:
        return False
    reach = 0
    for s, d in sorted((abs(s), d) for s, d in zip(strides, shape, strict=True) if d > 1):
        if s <= reach:
            return True
        reach += s * (d - 1)
    return False


def same_places(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether strides `a` and `b` put the elements of `shape` at the same places: those of an axis of one element say nothing."""
    return a == b or all(d == 1 or s == t for d, s, t in zip(shape, a, b, strict=True))


def extent(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The lowest and highest element offsets used, relative to the first element; (0, -1) when empty."""
    low = high = 0
    for d, s in zip(shape, strides, strict=True):
        if d == 0:
            return 0, -1
        if s > 0:
            high += s * (d - 1)
        else:
            low += s * (d - 1)
    return low, high


def common_bytes(a: tuple[Sequence[int], Sequence[int], int], b: tuple[Sequence[int], Sequence[int], int], apart: int, most: int = 1000) -> bool:
    """Whether two tensors have a byte in common, each said by its shape, strides and bytes an element; `apart`: from the first element of `a` to that of `b`.

    Sought is a sum of whole multiples of the strides, each multiple in its bounds, by which an element of `a` and one of `b` lie less than an element
    apart: the largest stride first, of which what the smaller ones reach leaves few multiples.  True where `most` tries do not tell.
    """
    bounds: dict[int, list[int]] = {}  # by stride in bytes: the least and the greatest difference of indices
    for sign, (shape, strides, size) in ((1, a), (-1, b)):
        for d, s in zip(shape, strides, strict=True):
            if d == 0:
                return False
            furthest = (d - 1) * sign * (1 if s > 0 else -1)
            bounds.setdefault(abs(s) * size, [0, 0])[furthest > 0] += furthest
    bounds.pop(0, None)
    steps = sorted(bounds.items(), reverse=True)
    reach = [(0, 0)]  # what the strides from here on add, at least and at most
    for s, (low, high) in reversed(steps):
        reach.insert(0, (reach[0][0] + s * low, reach[0][1] + s * high))
    least, greatest = apart - a[2] + 1, apart + b[2] - 1
    open_ends = [(0, 0)] if reach[0][0] <= greatest and reach[0][1] >= least else []
    while open_ends:
        at, so_far = open_ends.pop()
        if at == len(steps):
            return True
        most -= 1
        if most < 0:
            return True
        s, (low, high) = steps[at]
        first = max(low, -((so_far + reach[at + 1][1] - least) // s))
        last = min(high, (greatest - so_far - reach[at + 1][0]) // s)
        open_ends += [(at + 1, so_far + i * s) for i in range(first, min(last, first + most) + 1)]
    return False


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """The common shape of several.  Raises RuntimeError naming the first axis that does not fit."""
    out: Shape = tuple(shapes[0])
    for shape in shapes[1:]:
        if shape == out:
            continue
        n = max(len(out), len(shape))
        a = (1,) * (n - len(out)) + out
        b = (1,) * (n - len(shape)) + tuple(shape)
        merged = []
        for axis, (x, y) in enumerate(zip(a, b, strict=True)):
            if x != y and x != 1 and y != 1:
                raise RuntimeError(f"The size of tensor a ({x}) must match the size of tensor b ({y}) at non-singleton "
                                   f"dimension {axis}")
            merged.append(y if x == 1 else x)
        out = tuple(merged)
    return out


def expand_strides(shape: Sequence[int], strides: Sequence[int], to: Sequence[int]) -> Shape:
    """Strides that read `shape` as the (already compatible) shape `to`: 0 on every repeated axis."""
    pad = len(to) - len(shape)
    return (0,) * pad + tuple(0 if d == 1 and t != 1 else s
                              for d, s, t in zip(shape, strides, to[pad:], strict=True))


def result_strides(shape: Shape, operands: Sequence[tuple[Shape, Shape]]) -> Shape:
    """Strides of a fresh elementwise result: dense, in the axis order of its operands (PyTorch's TensorIterator rule).

    operands: (shape, strides) before broadcasting, of a number too (no axes).  Where all have the result's shape, what all are (row-major,
    channels last, or dense with the same strides) the result is too; otherwise axes are ordered by comparing strides, the first operand
    that tells two axes apart deciding.
    """
    if operands and all(s == shape for s, _ in operands):
        first = operands[0][1]
        if all(is_contiguous(s, st) for s, st in operands):
            return contiguous_strides(shape)
        if len(shape) == 4 and all(is_channels_last(s, st) for s, st in operands):
            return channels_last_strides(shape)
        if all(st == first for _, st in operands) and is_dense(shape, first) and 0 not in [
                s for s, d in zip(first, shape, strict=True) if d != 1]:
            return first
    order = _inner_first(shape, [expand_strides(s, st, shape) for s, st in operands])
    n = len(shape)
    if order == list(range(n - 1, -1, -1)):
        return contiguous_strides(shape)
    out = [0] * n
    step = 1
    for axis in order:
        out[axis] = step
        step *= max(shape[axis], 1)
    return tuple(out)


def _before(a: int, b: int, shape: Shape, expanded: Sequence[Shape]) -> int:
    """-1 when axis a should be inner to axis b, 1 when outer, 0 when undecided."""
    for st in expanded:
        if st[a] == 0 or st[b] == 0:
            continue
        if st[a] != st[b]:
            return -1 if st[a] < st[b] else 1
        if shape[a] > shape[b]:
            return 1
    return 0


def _inner_first(shape: Shape, expanded: Sequence[Shape]) -> list[int]:
    """The axes from the innermost, as strides of this shape tell: see `result_strides`."""
    n = len(shape)
    order = list(range(n - 1, -1, -1))
    for i in range(1, n):
        at = i
        for j in range(i - 1, -1, -1):
            c = _before(order[j], order[at], shape, expanded)
            if c > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif c < 0:
                break
    return order


def dim_order(shape: Shape, strides: Shape) -> tuple[tuple[int, ...], bool]:
    """The axes from the outermost to the innermost: row by row or channels last where the layout is one of both, else by the strides; and whether
    these tell of any two neighbours which is the inner one."""
    rows, last = is_contiguous(shape, strides), len(shape) == 4 and is_channels_last(shape, strides)
    if rows != last:
        return tuple(range(len(shape))) if rows else (0, 2, 3, 1), True
    order = _inner_first(shape, [strides])
    return tuple(order[::-1]), all(_before(a, b, shape, [strides]) < 0 for a, b in zip(order, order[1:]))


def dense_like(shape: Shape, strides: Shape) -> Shape:
    """Strides of a fresh tensor that preserves a layout (PyTorch's preserve_format): kept when dense and without
    overlap, else those an elementwise result would have."""
    if is_dense(shape, strides) and 0 not in [s for s, d in zip(strides, shape, strict=True) if d != 1]:
        return tuple(strides)
    return result_strides(shape, ((shape, strides),))


def wrap_dim(dim: Any, ndim: int, scalar_ok: bool = True) -> int:
    """An axis in 0..ndim-1.  Raises IndexError as PyTorch does; a zero-dim tensor has axes -1 and 0."""
    if type(dim) is not int:
        if isinstance(dim, bool) or not hasattr(dim, "__index__"):
            raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}")
        dim = dim.__index__()
    n = ndim if ndim > 0 or not scalar_ok else 1
    if n <= 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return int(dim + n if dim < 0 else dim)


def wrap_dims(dims: Any, ndim: int) -> tuple[int, ...]:
    """Several distinct axes; None or an empty tuple means all of them."""
    if not isinstance(dims, (int, list, tuple)) and hasattr(dims, "__index__"):
        dims = int(dims)  # a number of NumPy's, a tensor of one
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(ndim))
    if isinstance(dims, int):
        return (wrap_dim(dims, ndim),) if ndim else (wrap_dim(dims, 0),) and ()
    out = tuple(wrap_dim(d, ndim) for d in dims)
    for i, d in enumerate(out):
        if d in out[:i]:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return out if ndim else ()


def infer_size(shape: Sequence[int], count: int) -> Shape:
    """`shape` with a -1 worked out for `count` elements.  Raises RuntimeError as view and reshape do."""
    known, unknown = 1, -1
    for i, d in enumerate(shape):
        if d == -1:
            if unknown >= 0:
                raise RuntimeError("only one dimension can be inferred")
            unknown = i
        elif d < 0:
            raise RuntimeError(f"invalid shape dimension {d}")
        else:
            known *= d
    if unknown < 0:
        if known != count:
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")
        return tuple(shape)
    if known == 0:
        raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified "
                           f"dimension size -1 can be any value and is ambiguous")
    if count % known:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")
    return (*shape[:unknown], count // known, *shape[unknown + 1:])


def view_strides(shape: Shape, strides: Shape, to: Shape) -> Shape | None:
    """Strides that show the same elements in the shape `to`, or None when only a copy can.

    Axes are grouped into runs that are contiguous with each other; `to` must cut within runs, not across them.
    """
    if numel(shape) == 0:
        return strides if shape == to else contiguous_strides(to)
    out = [0] * len(to)
    at = len(to) - 1
    base = strides[-1] if strides else 1
    run = seen = 1
    for axis in range(len(shape) - 1, -1, -1):
        run *= shape[axis]
        if axis == 0 or (shape[axis - 1] != 1 and strides[axis - 1] != run * base):
            while at >= 0 and (seen < run or to[at] == 1):
                out[at] = seen * base
                seen *= to[at]
                at -= 1
            if seen != run:
                return None
            if axis > 0:
                base = strides[axis - 1]
                run = seen = 1
    while not shape and at >= 0:
        out[at] = 1
        at -= 1
    return tuple(out) if at < 0 else None

"""Views that cut, fold or walk axes: split, chunk, unbind, diagonal, unfold, flatten, movedim and their relatives."""

from __future__ import annotations

from operator import index
from typing import Any

from .. import layout
from ..autograd import inplace, tape
from ..autograd.mode import _grad
from ..dtypes import int64, title
from ..engine.fields import has
from ..engine.fronts import SIZES
from ..engine.plans import Compose
from ..errors import warn_once
from ..tensor import Tensor, meta
from .copies import contiguous, resize, strides_for
from .memory_format import channels_last, channels_last_3d, contiguous_format
from .partial_grads import assemble, dense
from .sizes import sizes_of
from .storages import UntypedStorage, on_storage
from .table import op, planned
from .typed_storages import TypedStorage
from .views import (
    _permute,
    _reshape,
    _view,
    as_strided,
    expand,
    permute,
    placed,
    positions,
    relaying,
    reshape,
    slice_axis,
    squeeze,
    swapaxes,
    t,
    transpose,
    unsqueeze,
    view,
    view_of,
    viewed,
)
from .windows import added_up

_MOST_VIEWS = 1 << 28  # of one call: some 100 GiB of Python objects


def _room_for(count: int, name: str) -> int:
    """The number of views that a call asks for.  Raises RuntimeError, at once, for more than a list of them could hold: their number follows
    from an argument or from an expanded axis, not from memory that is there."""
    if count > _MOST_VIEWS:
        raise RuntimeError(f"{name}() would give {count} views: at most {_MOST_VIEWS} are made")
    return count


def _several(input: Tensor, axis: int, views: list[Tensor] | tuple[Tensor, ...], name: str, stacked: bool = False) -> tuple[Tensor, ...]:  # noqa: A002
    """Views that together are the whole input, as the outputs of one function: their gradients are joined, not added up."""
    inplace.one_of_several(views, name)
    if len(views) > 1 and tape.recording(input):
        tape.record_many(views, _joined, (input,), (axis, [v.meta for v in views], stacked, input.meta, [v.ptr - input.ptr for v in views]), name)
    return tuple(views)


@tape.keeps_nothing
def _joined(node: Any, gs: list[Tensor | None]) -> Any:
    from .concat import cat, stack
    from .creation import zeros_meta
    axis, metas, stacked, m, offsets = node[tape.SAVED]
    if not _grad.get() and dense(m) and all(g is None or (type(g) is Tensor and g.meta.dtype is m.dtype) for g in gs):
        return (assemble(m, [(g, v.strides, offset) for g, v, offset in zip(gs, metas, offsets, strict=True) if g is not None]),)
    parts = [zeros_meta(m) if g is None else g for g, m in zip(gs, metas, strict=True)]
    return ((stack if stacked else cat)(parts, axis),)


@op(batch="along 0", tangent="linear")
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:  # noqa: A002
    """Views of consecutive parts of the sizes given, which must add up to the axis."""
    if not input.meta.shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    axis = layout.wrap_dim(dim, len(input.meta.shape))
    sizes = [int(s) for s in split_sizes]
    if any(s < 0 for s in sizes):
        raise RuntimeError(f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={sizes}")
    total = input.meta.shape[axis]
    count = 0
    for s in sizes:
        count += s
    if count != total:
        raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size at dimension {axis}), but "
                           f"got split_sizes={sizes}")
    out, at = [], 0
    for s in sizes:
        out.append(slice_axis(input, axis, at, at + s))
        at += s
    return _several(input, axis, out, "SplitWithSizesBackward0")


@op(tangent="linear")
def unsafe_split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:  # noqa: A002
    """`split_with_sizes` whose results are no views to autograd: they may be written to, at the caller's risk, while recording."""
    return _unsafe(split_with_sizes(input, split_sizes, dim), "UnsafeSplitWithSizesBackward0")


def _unsafe(views: tuple[Tensor, ...], name: str) -> tuple[Tensor, ...]:
    """Views of `_several` as tensors of their own on that memory, which may be written to while recording."""
    for part in views:
        del part.__dict__["_made"]
        part.base = None
        if part.node is not None:
            part.node[tape.EXTRA] = {**(part.node[tape.EXTRA] or {}), "name": name}
    return views


@op(batch="along 0", tangent="linear", renames=False)
def split(tensor: Tensor, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None, axis: int | None = None) -> tuple[Tensor, ...]:
    """Views of consecutive parts: of one size (the last may be smaller), or of the sizes listed.

    split_size: what methods call `split_size_or_sections`.
    """
    dim = dim if axis is None else axis
    if split_size_or_sections is None:
        split_size_or_sections = split_size
        if split_size is None:
            raise TypeError("split() missing 1 required positional arguments: \"split_size_or_sections\"")
    if isinstance(split_size_or_sections, (list, tuple)):
        return split_with_sizes(tensor, split_size_or_sections, dim)
    if not tensor.meta.shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    out = _equal_parts(tensor, layout.whole(split_size_or_sections), dim)
    return _several(tensor, layout.wrap_dim(dim, len(tensor.meta.shape)), out, "SplitBackward0")


@op(batch="along 0", tangent="linear")
def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:  # noqa: A002
    """`split` into equal parts whose results may be written to, at the caller's risk, while recording."""
    return _unsafe(split(input, index(split_size), dim), "UnsafeSplitBackward0")


def _equal_parts(tensor: Tensor, size: int, dim: int) -> tuple[Tensor, ...]:
    axis = layout.wrap_dim(dim, len(tensor.meta.shape))
    n = tensor.meta.shape[axis]
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    if size == 0:
        if n:
            raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}")
        return (slice_axis(tensor, axis, 0, 0),)
    count = _room_for(-(-n // size), "split") if n else 1
    return tuple(slice_axis(tensor, axis, i * size, i * size + size) for i in range(count))


@op(batch="along 0", tangent="linear")
def chunk(input: Tensor, chunks: int, dim: int = 0, *, axis: int | None = None) -> tuple[Tensor, ...]:  # noqa: A002
    """At most `chunks` views of equal size (the last may be smaller)."""
    dim, chunks = dim if axis is None else axis, index(chunks)
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    if not input.meta.shape:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    n = input.meta.shape[layout.wrap_dim(dim, len(input.meta.shape))]
    size = -(-n // chunks)
    return split(input, size, dim) if size else split_with_sizes(input, [0] * _room_for(chunks, "chunk"), dim)


@op(batch="along 0", tangent="linear")
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:  # noqa: A002
    """`chunk` whose results may be written to, at the caller's risk, while recording."""
    return _unsafe(chunk(input, chunks, dim), "UnsafeSplitBackward0")


@op(batch="along 0", tangent="linear")
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:  # noqa: A002
    """Views cut at the indices given, or into a number of nearly equal parts."""
    if not input.meta.shape:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    axis = layout.wrap_dim(dim, len(input.meta.shape))
    n = input.meta.shape[axis]
    if isinstance(indices_or_sections, Tensor):
        if len(indices_or_sections.meta.shape) > 1:
            raise RuntimeError(f"tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but got "
                               f"a tensor with {len(indices_or_sections.meta.shape)} dims")
        if indices_or_sections.meta.device.type != "cpu":
            raise RuntimeError("tensor_split expected tensor_indices_or_sections to be on cpu, but it's on "
                               f"{indices_or_sections.meta.device}; pass indices.cpu() or a list")
        if indices_or_sections.meta.dtype is not int64:
            raise RuntimeError(f"tensor_split expected tensor_indices_or_sections to have dtype of long, but got {title(indices_or_sections.meta.dtype)}")
        indices_or_sections = indices_or_sections.tolist()
    if not hasattr(indices_or_sections, "__index__") and not (
            isinstance(indices_or_sections, (tuple, list)) and all(hasattr(i, "__index__") for i in indices_or_sections)):
        raise TypeError("tensor_split() received an invalid combination of arguments: 'indices_or_sections' must be an int, a tuple of ints or a Tensor, "
                        f"not {type(indices_or_sections).__name__}")
    if isinstance(indices_or_sections, int):
        k = indices_or_sections
        if k <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {k}")
        indices_or_sections = [i * (n // k) + min(i, n % k) for i in range(1, _room_for(k, "tensor_split"))]
    cuts = [0, *indices_or_sections, n]
    return tuple(slice_axis(input, axis, a, b if i + 2 < len(cuts) else n) for i, (a, b) in enumerate(zip(cuts, cuts[1:], strict=False)))


def _named_split(name: str, axis_of: Any, least: int) -> None:
    def function(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:  # noqa: A002
        ndim = len(input.meta.shape)
        if ndim < least:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {least} dimension{'s' if least > 1 else ''}, but got a tensor "
                               f"with {ndim} dimensions!")
        axis = axis_of(ndim)
        if isinstance(indices_or_sections, int) and (indices_or_sections == 0 or input.meta.shape[axis] % indices_or_sections):
            raise RuntimeError(f"torch.{name} attempted to split along dimension {axis}, but the size of the dimension "
                               f"{input.meta.shape[axis]} is not divisible by the split_size {indices_or_sections}!")
        return tensor_split(input, indices_or_sections, axis)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Views cut along one axis, as tensor_split."
    op()(function)


_named_split("hsplit", lambda n: 0 if n == 1 else 1, 1)
_named_split("vsplit", lambda n: 0, 2)
_named_split("dsplit", lambda n: 2, 3)


@op(batch="along 0", tangent="linear")
def unbind(input: Tensor, dim: int = 0, *, axis: int | None = None) -> tuple[Tensor, ...]:  # noqa: A002
    """The views of every position along an axis, which disappears."""
    dim = dim if axis is None else axis
    if not input.meta.shape:
        raise RuntimeError("Dimension specified as 0 but tensor has no dimensions")
    axis = layout.wrap_dim(dim, len(input.meta.shape))
    return _several(input, axis, positions(input, axis, _room_for(input.meta.shape[axis], "unbind")), "UnbindBackward0", True)


@viewed("flatten")
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:  # noqa: A002
    """The axes from start_dim to end_dim as one: a view where possible."""
    shape = tuple(input.meta.shape)
    a, b = layout.wrap_dim(start_dim, len(shape)), layout.wrap_dim(end_dim, len(shape))
    if not shape:
        return _reshape(input, 1)
    if a > b:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if a == b:
        return input
    return _reshape(input, (*shape[:a], layout.numel(shape[a:b + 1]), *shape[b + 1:]))


@viewed("unflatten")
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:  # noqa: A002
    """An axis as several, of sizes whose product is its own (one may be -1)."""
    if not input.meta.shape and dim in (0, -1):
        raise RuntimeError("unflatten: input has no dimensions to unflatten")
    axis = layout.wrap_dim(dim, len(input.meta.shape), False)
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    try:
        inner = layout.infer_size(sizes, input.meta.shape[axis])
    except RuntimeError:
        raise RuntimeError(f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {axis} ({input.meta.shape[axis]}) in "
                           "the input tensor") from None
    return _view(input, (*input.meta.shape[:axis], *inner, *input.meta.shape[axis + 1:]))


@op(tangent="linear", own_view=True)
def ravel(input: Tensor) -> Tensor:  # noqa: A002
    """All elements along one axis: a view of a contiguous tensor, else a copy."""
    return view(contiguous(input), -1)


@viewed("movedim", aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:  # noqa: A002
    """A view with axes moved to other places, the rest in their order."""
    n = len(input.meta.shape)
    src = [source] if isinstance(source, int) else list(source)
    dst = [destination] if isinstance(destination, int) else list(destination)
    if len(src) != len(dst):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({src} dims) should contain the same number of dims as "
                           f"destination ({dst} dims)")
    s, d = [layout.wrap_dim(x, n) for x in src], [layout.wrap_dim(x, n) for x in dst]
    for name, axes, given in (("source", s, src), ("destination", d, dst)):
        if len(set(axes)) != len(axes):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({given})")
    order = [i for i in range(n) if i not in s]
    for to, axis in sorted(zip(d, s, strict=True)):
        order.insert(to, axis)
    return _permute(input, order) if n else view_of(input, (), (), input.ptr, lambda node, g: (g,), None, "ViewBackward0")


@viewed("diagonal")
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:  # noqa: A002
    """A view of a diagonal of two axes, as the last axis."""
    m = input.meta
    a, b = layout.wrap_dim(dim1, len(m.shape)), layout.wrap_dim(dim2, len(m.shape))
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, cols = m.shape[a], m.shape[b]
    count = max(min(rows, cols - offset) if offset >= 0 else min(rows + offset, cols), 0)
    start = (offset * m.strides[b] if offset >= 0 else -offset * m.strides[a]) if count else 0
    keep = [i for i in range(len(m.shape)) if i not in (a, b)]
    return placed(input, (*[m.shape[i] for i in keep], count), (*[m.strides[i] for i in keep], m.strides[a] + m.strides[b]),
                  input.ptr + start * m.dtype.itemsize, lambda z: diagonal(z, offset, a, b), "DiagonalBackward0")


@op(method=False, spaces=("linalg",), name="diagonal", tangent="linear")
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A view of a diagonal of the last two axes."""
    return diagonal(A, offset, dim1, dim2)


def _unfold_back(node: Any, g: Tensor) -> Any:
    return (fold_windows(g, *node[tape.SAVED]),)


@op(method=False, spaces=(), name="_unfold_backward")
def fold_windows(g: Tensor, shape: Any, axis: int, size: int, step: int) -> Tensor:
    """What `unfold` is the transpose of: windows (..., count, ..., size) added up into `shape`, each element what its windows have for it."""
    made = added_up(g, axis, (shape[axis],), (step,), (1,))
    return tape.record(made, lambda node, gg: (unfold(gg, axis, size, step),), (g,), None, "UnfoldBackwardBackward0")


@viewed("unfold", spaces=())
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """A view of windows of `size` along an axis, every `step`, as a new last axis."""
    m = self.meta
    axis = layout.wrap_dim(dimension, len(m.shape))
    n = m.shape[axis] if m.shape else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {axis} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if not m.shape:
        return view_of(self, (size,), (1,), self.ptr, lambda node, g: (g.reshape(()) if g.meta.numel else g.sum(),), None, "UnfoldBackward0")
    count = (n - size) // step + 1
    return view_of(self, (*m.shape[:axis], count, *m.shape[axis + 1:], size),
                   (*m.strides[:axis], m.strides[axis] * step, *m.strides[axis + 1:], m.strides[axis]), self.ptr, _unfold_back,
                   (tuple(m.shape), axis, size, step), "UnfoldBackward0")


# ---------------------------------------------------------------------------------------------------------- like another
@op(spaces=(), tangent="first", batch="sizes")
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """A view of other's shape."""
    return view(self, tuple(other.meta.shape))


@op(spaces=(), tangent="first", batch="sizes")
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """`reshape` to other's shape."""
    return reshape(self, tuple(other.meta.shape))


@op(spaces=(), tangent="first", batch="sizes")
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """`expand` to other's shape."""
    return expand(self, tuple(other.meta.shape))


@op(tangent="linear", batch="sizes")
def broadcast_to(input: Tensor, size: Any) -> Tensor:  # noqa: A002
    """A view broadcast to a shape."""
    return expand(input, size)


@op(method=False, tangent="linear", renames=False, batch="broadcast")
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Views of the tensors in their common shape."""
    ts = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    shape = layout.broadcast_shapes(*[t.meta.shape for t in ts])
    return tuple(t if t.meta.shape == shape else expand(t, shape) for t in ts)


@op(batch="trailing", tangent="linear")
def adjoint(input: Tensor) -> Tensor:  # noqa: A002
    """The conjugate transpose of the last two axes; of no axes, the conjugate."""
    turned = _turned("adjoint()", input)
    return turned.conj() if input.meta.dtype.is_complex else turned


def _turned(name: str, t: Tensor) -> Tensor:
    """t with the last two axes exchanged.  Raises RuntimeError for a vector; what has no axes stays as it is."""
    n = len(t.meta.shape)
    if n == 1:
        raise RuntimeError(f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor.")
    if not n:
        warn_once(f"tensor.{name} is deprecated on 0-D tensors. Consider using x.conj()." if name != "mT" else
                  "Tensor.mT is deprecated on 0-D tensors. This function is the identity in these cases.")
        return t
    return transpose(t, -2, -1)


def _atleast(name: str, n: int) -> None:
    def function(*tensors: Any) -> Any:
        if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
            return tuple(function(t) for t in tensors[0])
        if len(tensors) > 1:
            return tuple(function(t) for t in tensors)
        t = tensors[0]
        have = len(t.meta.shape)
        if have >= n:
            return t
        if n == 3 and have == 2:
            return t.unsqueeze(-1)
        if n == 3 and have == 1:
            return t.unsqueeze(0).unsqueeze(-1)
        return reshape(t, (1,) * (n - have) + tuple(t.meta.shape))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Views of at least {n} axes."
    op(method=False, renames=False)(function)


for _n in (1, 2, 3):
    _atleast(f"atleast_{_n}d", _n)


# ---------------------------------------------------------------------------------------- the layout of a tensor, in place
_RELAID: dict[str, Any] = {"squeeze_": squeeze, "unsqueeze_": unsqueeze, "transpose_": transpose, "swapdims_": transpose, "swapaxes_": swapaxes, "t_": t,
                           "as_strided_": as_strided}
for _name, _shows in _RELAID.items():
    relaying(_name, _shows)


def _resizable(t: Tensor, _: Any = None) -> Tensor:
    """The tensor, if nothing is recorded of it or its base."""
    if t.node is not None or (t.base is not None and t.requires_grad):
        raise RuntimeError("cannot resize variables that require grad")
    return t


def _resized(self: Tensor, shape: tuple[int, ...], memory_format: Any) -> Compose:
    """The plan of giving a tensor a shape, in a memory format or row-major; one that it has already leaves its strides as they are.
    Raises RuntimeError for a format that says no strides, or is for another number of axes."""
    name = getattr(memory_format, "name", None)
    if name is None and shape == tuple(self.meta.shape):
        return Compose(_resizable)
    if name == "preserve_format":
        raise RuntimeError(f"Unsupported memory format {memory_format}: resize_ takes contiguous_format, channels_last or channels_last_3d")
    strides = None if name is None else strides_for(shape, (), memory_format)
    m = meta(shape, strides, self.meta.dtype, self.meta.device)
    nbytes = m.nbytes

    def run(t: Tensor, _: Any = None) -> Tensor:
        store = _resizable(t).store
        store.version += 1  # which is an error outside inference mode where it was made there
        if nbytes <= store.meta.nbytes - (t.ptr - store.ptr):
            t.meta = m
            return t
        return resize(t, shape, strides)
    return Compose(run)


def _resize_(self: Tensor, *size: Any, memory_format: Any = None) -> Any:
    """Another shape in place, row-major or in `memory_format`; the storage grows when it must, and new elements are uninitialised.
    A shape that it has already changes nothing, unless a format is given."""
    return _resized(_resizable(self), sizes_of("resize_", size), memory_format)


planned("resize_", _resize_, spaces=(), kinds={"size": SIZES}, gives="Tensor")


def _resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Any:
    """`resize_` to another tensor's shape; `memory_format=preserve_format` asks for channels last where the template has them."""
    _resizable(self)
    m = the_template.meta
    if getattr(memory_format, "name", None) == "preserve_format":
        last = not m.contiguous and layout.is_channels_last(m.shape, m.strides)
        memory_format = contiguous_format if not last else channels_last if len(m.shape) == 4 else channels_last_3d
    return _resized(self, tuple(m.shape), memory_format)


planned("resize_as_", _resize_as_, spaces=(), gives="Tensor")


@op(spaces=(), learns=False, batch="reads", tangent="none")
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same elements of one storage in the same layout."""
    return self.store is tensor.store and self.ptr == tensor.ptr and self.meta is tensor.meta


@op(spaces=(), learns=False, tangent="none")
def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Takes over the storage and layout of a tensor, or the given part of a storage; with no source, an empty storage."""
    if _grad.get():
        inplace.check(self, (self,))
    if isinstance(source, Tensor):
        if source.meta.dtype is not self.meta.dtype:
            raise RuntimeError(f"Could not set tensor of type {source.meta.dtype} to a tensor of type {self.meta.dtype}")
        if source.meta.device is not self.meta.device:
            raise RuntimeError(f"Could not set tensor on {source.meta.device} to a tensor on {self.meta.device}")
    if source.__class__ is Tensor:
        self.meta, self.store, self.ptr = source.meta, source.store, source.ptr
        return self
    if isinstance(source, TypedStorage) and source.dtype is not self.meta.dtype:
        raise RuntimeError(f"Expected a Storage of type {self.meta.dtype} or an UntypedStorage, but got type {source.dtype} for argument 1 'storage'")
    if isinstance(source, TypedStorage | UntypedStorage):
        if source.device is not self.meta.device:
            raise RuntimeError(f"Attempted to set the storage of a tensor on device \"{self.meta.device}\" to a storage on different device "
                               f"\"{source.device}\".  This is no longer allowed; the devices must match.")
        source = on_storage(source, self.meta.dtype, storage_offset, size, stride)
    elif source is None:
        source = self.new_empty((0,))
    elif not isinstance(source, Tensor):
        raise TypeError(f"set_: source must be a tensor or a storage, got {type(source).__name__}")
    self.meta, self.store, self.ptr = source.meta, source.store, source.ptr
    return self


def _reversed(t: Tensor) -> Any:
    n = len(t.meta.shape)
    if n == 2:
        return permute(t, 1, 0)
    warn_once("The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw an error in a future "
              "release. Consider `x.mT` to transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the "
              "dimensions of a tensor." if n else "Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases.")
    return permute(t, tuple(range(n - 1, -1, -1)))


def _adjoint(t: Tensor) -> Any:
    n = len(t.meta.shape)
    if n not in (0, 2):
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {n}-D tensor."
                           + (" For batches of matrices, consider using tensor.mH" if n > 2 else ""))
    return adjoint(t) if n else t


Tensor.T = property(_reversed, doc="A view with the axes in reverse order.")  # type: ignore[assignment, method-assign]
Tensor.mT = property(lambda t: _turned("mT", t), doc="A view with the last two axes exchanged.")  # type: ignore[assignment, method-assign]
Tensor.H = property(_adjoint, doc="A matrix's conjugate transpose.")  # type: ignore[assignment, method-assign]
Tensor.mH = property(adjoint, doc="The conjugate of `mT`.")  # type: ignore[assignment, method-assign]

@op(method=False)
def slice_copy(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:  # noqa: A002
    """input[..., start:end:step, ...] along `dim`, copied."""
    at: list[Any] = [slice(None)] * len(input.meta.shape)
    at[layout.wrap_dim(dim, len(at), False)] = slice(start, end, step)
    made: Tensor = input[tuple(at)].clone()
    return made


has("slice_copy", tangent="linear")
has("unfold", batch="along -1")
has("mH mT", batch="trailing")
has("H", batch="matrix turned")
has("atleast_1d atleast_2d atleast_3d dsplit flatten hsplit movedim unflatten unfold vsplit", tangent="linear")
has("diagonal split split_with_sizes unbind unfold", views="copied")
has("adjoint broadcast_to chunk dsplit expand_as hsplit movedim tensor_split unflatten view_as vsplit H T mH mT", views="input")
has("atleast_1d atleast_2d atleast_3d flatten ravel reshape_as", views="maybe")
has("resize_ resize_as_", tangent="none")
has("T", batch="transposed")
has("movedim flatten diagonal linalg.diagonal", batch="axes")
has("unflatten", batch="sizes")
has("atleast_1d atleast_2d atleast_3d", batch="composite", sparse="composite")
has("dsplit hsplit ravel vsplit", batch="composite")
has("adjoint flatten", sparse="composite")

"""Positions of whole rows: index_select, index_add, index_copy, index_fill."""

from __future__ import annotations

from typing import Any

from ... import layout
from ...dtypes import bool_, int64, title
from ...engine.fields import has
from ...tensor import Tensor
from ..casts import to_dtype
from ..checks import may_write, no_overlap, same_device
from ..memory_format import contiguous_format
from ..table import op
from .masks import _fill_operands, fill_in_place
from .positions import put_at, take_at


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
        from ..creation import full
        value = full((), value, dtype=self.meta.dtype, device=self.meta.device)
    same_device("index_fill_", self, index)
    no_overlap(self, index)
    return fill_in_place("index_fill_", self, _index_fill_operands(self, axis, index, value))


def _index_fill_operands(t: Tensor, axis: int, index: Tensor, value: Any) -> tuple[Any, ...]:
    """A fill where a mask is true: a position given twice counts once, in the gradient too."""
    from ..creation import zeros
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


has("index_copy", autocast="cpu widest")
has("index_add index_copy", tangent="linear")

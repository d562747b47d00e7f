"""Where a mask is true: elements chosen, filled, and written in order."""

from __future__ import annotations

from typing import Any

from ... import layout
from ...autograd import tape
from ...dtypes import bool_, number
from ...engine import general
from ...errors import warn
from ...kernels import expr as E
from ...kernels.specs import Chosen
from ...tensor import Meta, Tensor, meta, new
from .. import routines
from ..casts import to_dtype
from ..checks import same_device, scalar_tensor, to_one_device
from ..elementwise import Pointwise
from ..memory_format import contiguous_format
from ..table import op
from .nonzero import _count_of, nonzero_counts
from .positions import put_at, take_at


def _chosen(t: Tensor, mask: Tensor) -> Tensor | None:
    """t[mask] outside the tape, for a mask over the first axes of dense memory, where the device moves the rows at once; None elsewhere."""
    m = t.meta
    plan = _choice(m, mask.meta)
    if plan is None:
        return None
    bound, rest = plan
    counts = nonzero_counts(mask)
    if counts is None:
        return None
    out = new(meta((_count_of(counts), *rest), None, m.dtype, m.device))
    if out.meta.numel:
        routines.call(bound, (out.ptr, t.ptr, mask.ptr, counts.ptr))
    return out


def fill_chosen(t: Tensor, mask: Tensor, source: Tensor) -> int | None:
    """Outside the tape, writes the elements of dense `source` in order to where a dense mask of t's shape is set, t being dense too; gives how
    many that are, of which more than there are elements are not written. None, and nothing is done, where the device does not do it at once."""
    m, n = t.meta, mask.meta
    if n.shape != m.shape or not source.meta.contiguous or _choice(m, n) is None:
        return None
    bound, counts = routines.find(m.device, Chosen(n.numel, m.dtype.itemsize, True)), nonzero_counts(mask)
    if bound is None or counts is None:
        return None
    count = _count_of(counts)
    if 0 < count <= source.meta.numel:
        routines.call(bound, (t.ptr, source.ptr, mask.ptr, counts.ptr))
    return count


@general.kept
def _choice(m: Meta, n: Meta) -> Any:
    """The launch that moves chosen rows, and the shape of a row; None where there is none."""
    axes = len(n.shape)
    if not axes or n.device is not m.device or not n.numel or not m.numel or not n.contiguous or not m.contiguous or (
            tuple(m.shape[:axes]) != tuple(n.shape)):
        return None
    bound = routines.find(m.device, Chosen(n.numel, m.nbytes // n.numel))
    return None if bound is None else (bound, tuple(m.shape[axes:]))


@op(out=True, batch="reads", tangent="linear", out_apart=True)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:  # noqa: A002
    """The elements where the mask is true, as a vector."""
    if mask.meta.dtype is not bool_:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    same_device("masked_select", input, mask)
    shape = layout.broadcast_shapes(input.meta.shape, mask.meta.shape)
    x, mask = input.expand(shape or (1,)), mask.expand(shape or (1,))
    if tape.recording(x):
        return take_at(x, mask.nonzero(as_tuple=True), False, "MaskedSelectBackward0")
    picked: Tensor = x[mask]
    return picked


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


def fill_in_place(name: str, self: Tensor, operands: tuple[Any, ...]) -> Tensor:
    """Fills where a mask is true; operands: `_fill_operands` of self.  An element that several places show is filled where one of them is chosen,
    with a warning as PyTorch's; where it would be recorded that raises RuntimeError."""
    _, mask, value = operands
    if isinstance(value, Tensor) and value.store.ptr == self.store.ptr:  # one of the elements that are filled, as it was before
        operands = self, mask, (value := value.clone())
    if self.meta.contiguous or not layout.overlaps_itself(self.meta.shape, self.meta.strides) or tape.recording(self):
        return MASKED_FILL.inplace(self, operands)
    warn(f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before performing this operation. This also applies to advanced "
         "indexing e.g. tensor[mask] = scalar")
    if not isinstance(value, Tensor):
        value = scalar_tensor(value, self).to(self.meta.dtype)
    return put_at(self, mask.expand(self.meta.shape).nonzero(as_tuple=True), value, False, told=True)


def _masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    return fill_in_place("masked_fill_", self, _fill_operands(self, mask, value))


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
    recorded = tape.recording(x, source)
    if x.meta.numel == 0 and not recorded:
        return x
    wrong = "masked_scatter: expected self and source to have same number of elements where mask is true"
    if not recorded and m.meta.device.type != "meta":
        count = fill_chosen(x, m, source)
        if count is not None and count > source.meta.numel:
            raise RuntimeError(wrong)
        if count is not None:
            return x
    at = (m.reshape(-1).cumsum(0) - 1).clamp(min=0)
    if m.meta.device.type != "meta" and int(m.sum().item()) > source.meta.numel:
        raise RuntimeError(wrong)
    flat = source.reshape(-1)
    if source.meta.numel == 0:  # an element that no place takes: the result has a history all the same
        flat = flat.sum(dtype=flat.meta.dtype).reshape(1)
    picked = take_at(flat, [at.clamp(max=flat.meta.numel - 1)]).reshape(shape)
    from ..binary import where_
    made: Tensor = where_(m, picked, x)
    return made.contiguous()

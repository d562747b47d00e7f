"""The functions that PyTorch's files call to make tensors, with every argument checked against the storage first.

Nothing here is PyTorch's code, and nothing trusts a file: sizes, strides and offsets are compared with the bytes there are
before a view of them is made.  A failure is a FileFormatError.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

from .._core import dtypes, ops
from .._core.autograd import tape
from .._core.dtypes import dtype
from .._core.errors import FileFormatError
from .._core.ops import memory_format
from .._core.ops.storages import UntypedStorage, tensor_on
from .._core.ops.typed_storages import TypedStorage
from .._core.tensor import Tensor, meta
from ..nn.parameter import Parameter, on_storage

MOST_AXES = 64
_LIMIT = 1 << 63


def brief(value: Any) -> str:
    """A value in an error's text, short whatever it is: a huge number has no decimal form."""
    if type(value) is int and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    if type(value) in (int, float, bool, type(None)):
        return repr(value)
    if type(value) is str:
        return repr(value[:60])
    if type(value) in (tuple, list) and len(value) <= 8 and all(type(v) is int for v in value):
        return f"({', '.join(map(brief, value))})"
    return f"a {type(value).__name__}"


def _fail(what: str) -> FileFormatError:
    return FileFormatError(f"load: the file is corrupt: {what}")


def _sizes(what: str, given: Any) -> tuple[int, ...]:
    if not isinstance(given, tuple | list) or len(given) > MOST_AXES or not all(type(v) is int and 0 <= v < _LIMIT for v in given):
        raise _fail(f"a tensor's {what} must be at most {MOST_AXES} integers from 0 up, got {brief(given)}")
    return tuple(given)


def _storage(given: Any) -> tuple[UntypedStorage, dtype | None]:
    if type(given) is TypedStorage:
        return given._untyped_storage, given.dtype
    if type(given) is UntypedStorage:
        return given, None
    raise _fail(f"a tensor needs a storage, got {brief(given)}")


def _view(given: Any, d: dtype | None, offset: Any, size: Any, stride: Any, grad: Any) -> Tensor:
    untyped, own = _storage(given)
    if d is None:
        d = own
    if not isinstance(d, dtype):
        raise _fail(f"a tensor's element type is {brief(d)}")
    shape, strides = _sizes("sizes", size), _sizes("strides", stride)
    if len(shape) != len(strides):
        raise _fail(f"a tensor has {len(shape)} sizes and {len(strides)} strides")
    if type(offset) is not int or not 0 <= offset < _LIMIT:
        raise _fail(f"a tensor's offset must be an integer from 0 up, got {brief(offset)}")
    if type(grad) is not bool or (grad and d.kind not in "fc"):
        raise _fail(f"a tensor of type {d} has requires_grad {brief(grad)}")
    count = math.prod(shape)
    if count >= _LIMIT:
        raise _fail(f"a tensor of sizes {brief(shape)} has too many elements")
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 if count else offset
    if last * d.itemsize > untyped.nbytes():
        raise _fail(f"a tensor of sizes {brief(shape)}, strides {brief(strides)} and offset {offset} reaches element {last} of a storage of "
                    f"{untyped.nbytes() // d.itemsize}")
    s = untyped._storage
    t = tensor_on(s, meta(shape, strides, d, s.meta.device), s.ptr + offset * d.itemsize)
    if grad:
        t.node = tape.leaf(t)
    return t


def on_meta(d: Any, size: Any, stride: Any, grad: Any) -> Tensor:
    """A tensor without data: a shape, strides and a type on the meta device."""
    if not isinstance(d, dtype):
        raise _fail(f"a tensor's element type is {brief(d)}")
    shape, strides = _sizes("sizes", size), _sizes("strides", stride)
    if len(shape) != len(strides):
        raise _fail(f"a tensor has {len(shape)} sizes and {len(strides)} strides")
    if type(grad) is not bool or (grad and d.kind not in "fc"):
        raise _fail(f"a tensor of type {d} has requires_grad {brief(grad)}")
    made: Tensor = ops.empty_strided(shape, strides, dtype=d, device="meta", requires_grad=grad)
    return made


def tensor_v1(storage: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    return _view(storage, None, offset, size, stride, False)


def tensor_v2(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, metadata: Any = None) -> Tensor:
    return _finished(_view(storage, None, offset, size, stride, requires_grad), metadata)


def tensor_v3(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, d: Any, metadata: Any = None) -> Tensor:
    return _finished(_view(storage, d, offset, size, stride, requires_grad), metadata)


def _finished(t: Tensor, metadata: Any) -> Tensor:
    """PyTorch's lazy conjugation and negation, which are never lazy here."""
    if metadata is None:
        return t
    if type(metadata) is not dict or not set(metadata) <= {"conj", "neg"} or not all(type(v) is bool for v in metadata.values()):
        raise _fail("a tensor's metadata must be its conj and neg bits")
    if not any(metadata.values()):
        return t
    if t.meta.numel * t.meta.dtype.itemsize > t.store.meta.nbytes:
        raise _fail("a lazily conjugated or negated tensor repeats its elements")
    if (metadata.get("conj") and not t.meta.dtype.is_complex) or t.meta.dtype.kind not in "fc":
        raise _fail(f"a tensor of type {t.meta.dtype} cannot be lazily conjugated or negated")
    made = t.detach()
    if metadata.get("conj"):
        made = made.conj_physical()
    if metadata.get("neg"):
        made = made.neg()
    return made.requires_grad_(t.requires_grad)


def parameter(data: Any, requires_grad: Any, hooks: Any = None) -> Parameter:
    if not isinstance(data, Tensor) or type(requires_grad) is not bool:
        raise _fail(f"a parameter needs a tensor and whether it requires a gradient, got {brief(data)} and {brief(requires_grad)}")
    if requires_grad and data.meta.dtype.kind not in "fc":
        raise _fail(f"a parameter of type {data.meta.dtype} cannot require a gradient")
    return on_storage(Parameter, data, requires_grad)  # type: ignore[no-any-return]


def parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Parameter:
    made = parameter(data, requires_grad)
    set_state(made, state)
    return made


def from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    """A tensor with a class and attributes of its own."""
    if not callable(function) or not isinstance(args, tuple) or not isinstance(kind, type) or not issubclass(kind, Tensor):
        raise _fail("a tensor of a class of its own is not described as one")
    made: Any = function(*args)
    if not isinstance(made, Tensor):
        raise _fail("a tensor of a class of its own is made as something else")
    if type(made) is not kind:
        made.__class__ = kind
    set_state(made, state)
    return made


def set_state(t: Any, state: Any) -> None:
    """Attributes that a program gave a tensor; those that Flambeau keeps there itself stay as they are."""
    slots = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    for part in (state, slots):
        if part is None:
            continue
        if not isinstance(part, dict) or not all(type(k) is str for k in part):
            raise _fail("a tensor's attributes must have names")
        t.__dict__.update((k, v) for k, v in part.items() if not k.startswith("_"))


def sparse(kind: Any, data: Any) -> Any:
    """A sparse tensor whose indices all lie in its shape."""
    from .._core.ops import table
    makers: Any = table.namespace("torch")
    name = getattr(kind, "name", None)
    if name not in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"):
        raise FileFormatError(f"load: the file holds a tensor of the layout {brief(name)}, which Flambeau cannot read")
    if type(data) is not tuple or len(data) not in ((3, 4) if name == "sparse_coo" else (4,)):
        raise _fail("a sparse tensor is not described as one")
    parts, size = (data[:2], data[2]) if name == "sparse_coo" else (data[:3], data[3])
    shape = _sizes("sizes", size)
    for part in parts:
        if not isinstance(part, Tensor) or part.meta.numel * part.meta.dtype.itemsize > part.store.meta.nbytes or part.meta.device is not parts[-1].meta.device:
            raise _fail("the parts of a sparse tensor must be tensors of one device that do not repeat their elements")
    if any(part.meta.dtype not in (dtypes.int64, dtypes.int32) for part in parts[:-1]):
        raise _fail("the indices of a sparse tensor must be integers")
    values: Any = parts[-1]
    if name == "sparse_coo":
        indices: Any = parts[0]
        if indices.ndim != 2 or values.ndim < 1 or indices.shape[1] != values.shape[0] or (
                len(shape) != indices.shape[0] + values.ndim - 1 or tuple(values.shape[1:]) != shape[indices.shape[0]:]):
            raise _fail("the indices, values and sizes of a sparse tensor do not fit each other")
        _within(indices, shape[:indices.shape[0]])
        flag = data[3] if len(data) == 4 and type(data[3]) is bool else False
        if flag and not _ascending(indices, shape):
            raise _fail("a sparse tensor's indices are not in order, as it says")
        return makers["sparse_coo_tensor"](indices, values, shape, is_coalesced=flag)
    _compressed(name, parts[0], parts[1], parts[2], shape)
    return makers[f"{name}_tensor"](*parts, shape)


def _compressed(name: str, ends: Any, minor: Any, values: Any, shape: tuple[int, ...]) -> None:
    """Raises FileFormatError where the parts of a tensor by compressed rows or columns do not fit each other."""
    blocks = 2 if name[7] == "b" else 0
    size = tuple(values.shape[1:]) if blocks else (1, 1)
    if len(shape) != 2 or ends.ndim != 1 or minor.ndim != 1 or values.ndim != 1 + blocks or minor.shape[0] != values.shape[0] or (
            min(size) < 1 or any(n % b for n, b in zip(shape, size, strict=True))):
        raise _fail("the rows, columns and values of a sparse tensor do not fit each other")
    counts = [n // b for n, b in zip(shape, size, strict=True)]
    major, other = counts[::-1] if name.endswith("c") else counts
    if ends.shape[0] != major + 1:
        raise _fail("the rows, columns and values of a sparse tensor do not fit each other")
    steps = ends.tolist()
    if steps[0] != 0 or steps[-1] != minor.shape[0] or any(a > b for a, b in zip(steps, steps[1:])):
        raise _fail("the rows of a sparse tensor do not end in order")
    _within(minor.unsqueeze(0), (other,))


def _within(indices: Any, shape: tuple[int, ...]) -> None:
    if indices.meta.numel:
        low, high = indices.amin(1).tolist(), indices.amax(1).tolist()
        if min(low) < 0 or any(h >= n for h, n in zip(high, shape, strict=True)):
            raise _fail("the indices of a sparse tensor reach past its sizes")


def _ascending(indices: Any, shape: tuple[int, ...]) -> bool:
    rows = list(zip(*indices.tolist(), strict=True))
    return all(a < b for a, b in zip(rows, rows[1:]))


def get_layout(name: Any) -> Any:
    found = getattr(memory_format, name[6:], None) if type(name) is str and name.startswith("torch.") else None
    if not isinstance(found, memory_format.layout):
        raise _fail(f"{brief(name)} is no layout")
    return found


def get_dtype(name: str) -> Any:
    return dtypes.BY_NAME.get(name)


def refused(what: str) -> Any:
    """A function for a kind of tensor that Flambeau does not have."""
    def refuse(*args: Any) -> Any:
        raise FileFormatError(f"load: the file holds {what}, which Flambeau does not have")
    return refuse


# by the modules and names that the files say
TRUSTED: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor"): tensor_v1,
    ("torch._utils", "_rebuild_tensor_v2"): tensor_v2,
    ("torch._utils", "_rebuild_tensor_v3"): tensor_v3,
    ("torch._utils", "_rebuild_parameter"): parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): parameter_with_state,
    ("torch._tensor", "_rebuild_from_type_v2"): from_type,
    ("torch.serialization", "_get_layout"): get_layout,
    ("torch._utils", "_rebuild_qtensor"): refused("a quantized tensor"),
    ("torch._utils", "_rebuild_nested_tensor"): refused("a nested tensor"),
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): on_meta,
    ("torch._utils", "_rebuild_wrapper_subclass"): refused("a wrapper tensor"),
    ("torch._utils", "_rebuild_sparse_tensor"): sparse,
    ("torch.storage", "UntypedStorage"): UntypedStorage,
    ("torch.storage", "TypedStorage"): TypedStorage,
    ("collections", "OrderedDict"): OrderedDict,
}

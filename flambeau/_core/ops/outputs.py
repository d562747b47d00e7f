"""What a call is given as `out=`: checked as PyTorch checks it, made to fit, and written."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..autograd.mode import _grad
from ..engine import fields
from ..errors import warn
from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SAID = fields.of("out_said")
_TYPES = fields.of("out_type")  # of most operations `out` must be of the result's own type
_APART = fields.of("out_apart")


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    return itertools.chain.from_iterable(a if isinstance(a, (tuple, list)) else (a,) for a in values)


def forbid_recording(name: str, args: Iterable[Any], out: Any) -> None:
    """Raises RuntimeError where a result written to `out` would have to be recorded."""
    if _grad.get() and any(isinstance(x, Tensor) and x.node is not None for x in _flat((*args, out))):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.")


def lie_apart(name: str, out: Any, args: Sequence[Any]) -> None:
    """Raises RuntimeError where an operation of these would write what it reads."""
    from .checks import may_write, overlap
    found = _APART.get(name)
    if found is None:
        return
    same_is_fine = found == "but itself"
    for o in _flat((out,)):
        if not isinstance(o, Tensor):
            continue
        may_write(o)
        for x in _flat(args):
            if isinstance(x, Tensor) and o.meta.numel and x.meta.numel and (overlap(o, x) or not same_is_fine and (
                    x.ptr == o.ptr and x.meta.strides == o.meta.strides and x.meta.shape == o.meta.shape)):
                raise RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                                   "single memory location. Please clone() the tensor before performing the operation.")


def must_hold(name: str, out: Tensor, made: dtypes.dtype, result: str = "result") -> None:
    """Raises RuntimeError where `out` is not of a type that an operation may give its result, of that name, in."""
    d = out.meta.dtype
    kind = _TYPES.get(name)
    if d is made or kind == "any" or (kind == "bytes too" and d is dtypes.uint8):
        return
    if kind in ("castable", "joined"):
        castable(name, made, d)
        return
    said = _SAID.get(name, "").format(name=name, made=made.name, found=d.name, result=result)
    raise RuntimeError(f"{name}(): Expected out tensor to have dtype {made.name}, but got {d.name} instead: expected scalar_type {dtypes.title(made)} "
                       f"but found {dtypes.title(d)}; Expected object of scalar type {dtypes.title(made)} but got scalar type {dtypes.title(d)} "
                       "for argument 'out'" + (said and "; ") + said)


def castable(name: str, made: dtypes.dtype, d: dtypes.dtype) -> None:
    """Raises RuntimeError (for joining, as in PyTorch, TypeError) where a result's type cannot be cast to another."""
    if dtypes.can_cast(made, d):
        return
    if _TYPES.get(name) == "joined":
        raise TypeError(f"torch.cat(): input types can't be cast to the desired output type {dtypes.title(d)}")
    raise RuntimeError(f"result type {dtypes.title(made)} can't be cast to the desired output type {dtypes.title(d)}")


def formula_must_hold(name: str, out: Tensor, made: dtypes.dtype, of: dtypes.dtype) -> None:
    """`must_hold` of a formula whose operands' common type is `of`."""
    d = out.meta.dtype
    if _TYPES.get(name) == "truth" and d is not made:
        raise RuntimeError(f"{name} does not support non-boolean outputs.")
    if d.is_complex and not made.is_complex and name in _SAID:
        raise RuntimeError(_SAID[name].format(name=name))
    if _TYPES.get(name) == "same" and d is not made and not of.is_complex:
        raise RuntimeError(f"{name}(): Found dtype {dtypes.title(d)} but expected {dtypes.title(made)}")
    castable(name, made, d)


def write(name: str, out: Any, made: Any, args: Sequence[Any] = ()) -> Any:
    """Writes the result of operation `name`, one tensor or several, into `out`; args: what the call was given.

    Raises TypeError for what are not as many tensors, RuntimeError for a type, a device or memory that does not fit.
    """
    lie_apart(name, out, args)
    forbid_recording(name, args, out)
    if not isinstance(made, tuple):
        if not isinstance(out, Tensor):
            raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
        must_hold(name, out, made.meta.dtype)
        return into(out, made, name)
    if not isinstance(out, (tuple, list)) or len(out) != len(made) or not all(isinstance(o, Tensor) for o in out):
        got = f"{len(out)} of them" if isinstance(out, (tuple, list)) else type(out).__name__
        raise TypeError(f"{name}(): argument 'out' must be a tuple of {len(made)} tensors, not {got}")
    for o, r, result in zip(out, made, getattr(made, "_fields", ("result",) * len(made)), strict=True):
        must_hold(name, o, r.meta.dtype, result)
    for o, r in zip(out, made, strict=True):
        into(o, r, name)
    return type(made)(*out) if hasattr(made, "_fields") else tuple(out)


def into(out: Tensor, result: Tensor, name: str = "out=") -> Tensor:
    """Copies a result into `out`, resizing it.  Raises RuntimeError for another device, or elements of `out` that share memory."""
    from .checks import may_write
    from .copies import copy_into
    from .device_errors import mismatch
    if out.meta.device is not result.meta.device:
        raise mismatch(name, [out, result], [out], labels=("out", "result"))
    resize(out, tuple(result.meta.shape))
    may_write(out)
    copy_into(out, result)
    return out


def resize(out: Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> None:
    """Gives `out` this shape, row-major or with these strides; warns, as PyTorch does, when it held elements of another."""
    if tuple(out.meta.shape) == shape:
        return
    from .copies import resize as resized
    if out.meta.numel:
        warn(f"An output with one or more elements was resized since it had shape {list(out.meta.shape)}, which does not "
             f"match the required output shape {list(shape)}. This behavior is deprecated, and in a future PyTorch release outputs "
             "will not be resized unless they have zero elements: out.resize_(0) says that it may be.")
    resized(out, shape, strides)


def to_fill(name: str, out: Any, shape: tuple[int, ...], alike: bool = False) -> Tensor:
    """`out` of a factory, in the shape that is asked for.  Raises TypeError or RuntimeError where it may not be written to; alike: with
    one value everywhere, which elements that share memory can take."""
    from .checks import may_write
    from .copies import resize as resized
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    forbid_recording(name, (), out)
    if tuple(out.meta.shape) != shape:
        resized(out, shape)
    if not alike:
        may_write(out)
    return out

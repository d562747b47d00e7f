"""Which types operations compute in under `autocast`: the guard that applies the classes that operations have as a field.

The classes are PyTorch's (its page "Automatic Mixed Precision package", CUDA and CPU op-specific behaviour).  While a region is open, an
interpreter sees the operations that have one.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .. import dtypes, interrupts
from ..autograd import tape
from ..autograd.mode import _grad
from ..engine import fields, interpreters
from ..engine.interpreters import Interpreter, pop, push
from ..engine.learned_gradients import around
from ..runtime import capture
from ..tensor import Tensor
from .casts import to_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtypes import dtype
    from ..engine.operation import Operation

regions = [0]  # how many are open, over all threads
# of this context: {device type: type to lower to}, and the casts of leaves kept until the outermost region ends
current: ContextVar[dict[str, dtype] | None] = ContextVar("autocast", default=None)
kept: ContextVar[dict[int, tuple[Tensor, int, Tensor]] | None] = ContextVar("autocast_kept", default=None)


_FIELD = fields.of("autocast")


@functools.cache
def _class_on(name: str, kind: str) -> str | None:
    """The class that an operation has on devices of a type, by its field's text: one for all, or one for each."""
    parts = [p.split() for p in _FIELD[name].split(", ")]
    return parts[0][0] if len(parts[0]) == 1 else dict(parts).get(kind)


class _Regions(Interpreter):
    """Open regions: sees the operations that have a class."""

    __slots__ = ()
    apart = False

    def sees(self, operation: Operation) -> bool:
        return operation.name in _FIELD

    def call(self, operation: Operation, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return under(operation.name, function, args, kwargs)


_regions = _Regions()


class _Now(capture.Now):
    """While regions are open: what this context's changes in the calls that an operation is made of."""

    __slots__ = ()

    @property
    def watched(self) -> Any:
        if self.holders != 1 or interpreters._stack != (_regions,):
            return True
        state = current.get()
        return tuple(state.items()) if state else False


around.append(functools.partial(interrupts.within, current, None))


def opened(count: int) -> None:
    """So many regions were opened (or, for a negative number, closed) in some thread, for which the interpreter is on the stack when this returns."""
    if not count:
        return
    with interpreters.lock:
        before, regions[0] = regions[0], regions[0] + count
        if not before and regions[0]:
            push(_regions)
            capture.now.__class__ = _Now
        elif before and not regions[0]:
            capture.now.__class__ = capture.Now
            pop(_regions)


def lower(kind: str) -> dtype | None:
    """The type that this context's region lowers to on devices of type `kind`; None where it is in no such region."""
    state = current.get() if regions[0] else None
    return state.get(kind) if state else None


def under(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One call in this context's region, if it is in one."""
    state = current.get()
    if not state:
        return function(*args, **kwargs)
    tensors: list[Tensor] = []
    _collect(args, tensors)
    if kwargs:
        _collect(tuple(kwargs.values()), tensors)
    kind = ""
    for t in tensors:
        if (kind := t.meta.device.type) != "cpu":
            break
    lower = state.get(kind)
    target: dtype | None = None
    if lower is None:
        pass
    elif (c := _class_on(name, kind)) == "lower":
        target = lower
    elif c == "full":
        target = dtypes.float32
    elif c == "widest":
        for t in tensors:
            if t.meta.dtype.kind == "f":
                target = t.meta.dtype if target is None else dtypes.promote_types(target, t.meta.dtype)
    elif name == "binary_cross_entropy" and kind == "cuda":
        raise RuntimeError("torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\nMany models use a "
                           "sigmoid layer right before the binary cross entropy layer.\nIn this case, combine the two layers using "
                           "torch.nn.functional.binary_cross_entropy_with_logits\nor torch.nn.BCEWithLogitsLoss.")
    token = current.set(None)  # what an operation is made of runs as it is
    try:
        if target is None:
            return function(*args, **kwargs)
        for t in tensors:
            if t.meta.dtype is not target:
                break
        else:
            return function(*args, **kwargs)
        found = target
        return function(*[_cast(a, found, kind) for a in args], **{k: v if k == "out" else _cast(v, found, kind) for k, v in kwargs.items()})
    finally:
        current.reset(token)


def _collect(values: Sequence[Any], found: list[Tensor]) -> None:
    for x in values:
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, (tuple, list)):
            _collect(x, found)


def _cast(x: Any, target: dtype, kind: str) -> Any:
    """Converts floating-point tensors on the device to the target type; leaves float64 tensors and all other values unchanged."""
    if isinstance(x, Tensor):
        d = x.meta.dtype
        if d is target or d.kind != "f" or d is dtypes.float64 or x.meta.device.type != kind:
            return x
        return _kept_cast(x, target)
    if type(x) in (tuple, list):
        return type(x)([_cast(y, target, kind) for y in x])
    return x


def _kept_cast(x: Tensor, target: dtype) -> Tensor:
    """The cast; that of a leaf that requires grad is done once a region, as weights are used many times."""
    casts = None if x.node is None else kept.get()
    if casts is None or x.node[tape.SEQ] != 0 or target.itemsize >= x.meta.dtype.itemsize:
        return to_dtype(x, target)
    found = casts.get(id(x))
    if found is not None and found[0] is x and found[1] == x.store.version and found[2].meta.dtype is target and (found[2].node is not None) == _grad.get():
        return found[2]
    made = to_dtype(x, target)
    casts[id(x)] = (x, x.store.version, made)
    return made

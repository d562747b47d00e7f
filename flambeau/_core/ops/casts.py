"""Changes of type and of device: `.to` in all its forms, `.float()` and its like, `.cuda()`, `.cpu()`, `.type()`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .. import dtypes, hooks
from ..autograd import tape
from ..dtypes import dtype
from ..engine.fronts import WORD
from ..engine.plans import Plan, Saved
from ..kernels import expr as E
from ..runtime.device import device, resolve
from ..tensor import Tensor
from .copies import clone, strides_for
from .elementwise import Inner, Pointwise, fit
from .table import op
from .transfer import to_device

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])


CAST = Pointwise("to", lambda x, dtype: E.convert(x, dtype), 1, promote="none")
CAST.grad_name = "ToCopyBackward0"


def to_dtype(t: Tensor, d: dtype) -> Tensor:
    """`t` in type `d`: itself when it has it already.  Differentiable between floating types."""
    if t.meta.dtype is d:
        return t
    made: Tensor = _to(t, d)
    return made


def _plan_cast(t: Tensor, d: dtype) -> Plan:
    plan: Plan = CAST.plan((t,), (), (("dtype", d),))
    plan.saved = Saved(_cast_back, info=t.meta)
    return plan


@tape.keeps_nothing
def _cast_back(node: Any, g: Tensor) -> Any:
    return (fit(g, node[tape.SAVED][0]),)


_cast_back.grad_name = "ToCopyBackward0"
_to = Inner("to", _plan_cast, planned=True, kinds={"d": WORD}).started().direct


def in_float32(function: _Function) -> _Function:
    """The function, computing a 16-bit first argument in float32 with all its like and rounding the result once.

    For what is composed of several operations, each of which would round on its own.
    """
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else next(iter(kwargs.values()), None)
        if not isinstance(first, Tensor) or first.meta.dtype.kind != "f" or first.meta.dtype.itemsize != 2:
            return function(*args, **kwargs)
        narrow = first.meta.dtype

        def up(x: Any) -> Any:
            return to_dtype(x, dtypes.float32) if isinstance(x, Tensor) and x.meta.dtype is narrow else x

        def down(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(map(down, x))
            return to_dtype(x, narrow) if isinstance(x, Tensor) and x.meta.dtype is dtypes.float32 else x
        return down(function(*map(up, args), **{k: up(v) for k, v in kwargs.items()}))
    return call  # type: ignore[return-value]


def convert(t: Tensor, dev: device | None, d: dtype | None, non_blocking: bool = False, copy: bool = False,
            memory_format: Any = None) -> Tensor:
    """The one path of every conversion.  `t` itself when nothing changes and `copy` is False."""
    dev = t.meta.device if dev is None else resolve(dev)
    d = t.meta.dtype if d is None else d
    moves = dev is not t.meta.device
    out = t
    if moves:
        strides = None if memory_format is None else strides_for(out.meta.shape, out.meta.strides, memory_format)
        out = to_device(out, dev, non_blocking, strides, d)
    elif d is not t.meta.dtype:
        out = to_dtype(out, d)
    if out is t and copy:
        return clone(t, memory_format=memory_format)
    if memory_format is not None and getattr(memory_format, "name", "") != "preserve_format" and (
            out.meta.strides != strides_for(out.meta.shape, out.meta.strides, memory_format)):
        out = clone(out, memory_format=memory_format)
    return out


@op(learns=False)
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """``to(dtype)``, ``to(device=None, dtype=None)`` or ``to(other)``, each with non_blocking=False, copy=False and
    memory_format.  Gives `self` when nothing changes and copy is False.

    non_blocking: a copy from pinned host memory is queued and may still read it when this returns, and one to the host
    arrives in pinned memory, whose first reader waits for it (see `flambeau.cuda.host_reads_wait`).  Pageable memory has
    been read when this returns, whatever the flag.  When type and device change, the narrower type is what crosses.
    """
    dev, d, flags = parse_to(args, kwargs)
    return convert(self, dev, d, **flags)


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[device | None, dtype | None, dict[str, Any]]:
    """The device, the type and the flags of a `.to` call.  Raises TypeError naming an argument that is none of these."""
    known = ("device", "dtype", "other", "non_blocking", "copy", "memory_format", "tensor")
    for k in kwargs:
        if k not in known:
            raise TypeError(f"to() got an unexpected keyword argument '{k}'")
    dev, d = kwargs.get("device"), kwargs.get("dtype")
    flags = {k: kwargs[k] for k in ("non_blocking", "copy", "memory_format") if k in kwargs}
    other = kwargs.get("other", kwargs.get("tensor"))
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    elif rest and isinstance(rest[0], (dtype, type)):
        d = rest.pop(0)
    elif rest and (rest[0] is None or isinstance(rest[0], (str, device)) or type(rest[0]) is int):
        dev = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], (dtype, type))):  # type: ignore[unreachable]
            d = rest.pop(0)
    elif rest:
        raise TypeError(f"to() received an invalid combination of arguments: got ({type(rest[0]).__name__}); expected a device "
                        "(torch.device, str or int), a torch.dtype, both in this order, or a Tensor")
    for name, value in zip(("non_blocking", "copy"), rest, strict=False):
        if not isinstance(value, (bool, int)):
            raise TypeError(f"to(): argument '{name}' must be bool, not {type(value).__name__}")
        flags[name] = bool(value)  # type: ignore[index]
    if other is not None:
        dev, d = other.meta.device, other.meta.dtype
    if d is not None and not isinstance(d, dtype):
        d = dtypes.meant(d, "to")
    return (None if dev is None else resolve(dev)), d, flags  # type: ignore[return-value]


def _shorthand(name: str, d: dtype) -> None:
    def method(self: Tensor, *, memory_format: Any = None) -> Tensor:
        return convert(self, None, d, memory_format=memory_format)
    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`self` as {d!r}."
    op(spaces=())(method)


for _name, _dtype in (("float", dtypes.float32), ("double", dtypes.float64), ("half", dtypes.float16),
                      ("bfloat16", dtypes.bfloat16), ("int", dtypes.int32), ("long", dtypes.int64), ("short", dtypes.int16),
                      ("char", dtypes.int8), ("byte", dtypes.uint8), ("bool", dtypes.bool_), ("cfloat", dtypes.complex64),
                      ("cdouble", dtypes.complex128)):
    _shorthand(_name, _dtype)


@op(spaces=(), learns=False)
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """`self` on a GPU: the current one, or the one `device` names.  Raises RuntimeError for a device that is not cuda."""
    to = resolve("cuda" if device is None else device)
    if to.type != "cuda":
        raise RuntimeError(f"Invalid device, must be cuda device, got {to}")
    return convert(self, to, None, non_blocking, memory_format=memory_format)


@op(spaces=(), learns=False)
def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """`self` in host memory."""
    return self if memory_format is None and self.meta.device.type == "cpu" else convert(self, resolve("cpu"), None, memory_format=memory_format)


@op(spaces=())
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """`self` in the type and on the device of `other`."""
    return convert(self, other.meta.device, other.meta.dtype)


hooks.provide(convert=convert)

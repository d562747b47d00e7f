"""Changes of type and of device: `.to` in all its forms, `.float()` and its like, `.cuda()`, `.cpu()`, `.type()`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .. import dtypes, hooks
from ..autograd import tape
from ..dtypes import dtype
from ..engine.fields import has
from ..engine.fronts import CONSTANT, WORD
from ..engine.plans import Compose, Plan, Saved, under
from ..kernels import expr as E
from ..runtime.device import device, resolve
from ..tensor import Tensor
from . import transfer
from .copies import clone, itself, strides_for, warn_of_lost_part
from .elementwise import Inner, Pointwise, fit
from .table import op, planned

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])


CAST = Pointwise("to", lambda x, dtype: E.convert(x, dtype), 1, promote="none", accept="buifc8")
CAST.grad_name = "ToCopyBackward0"


def to_dtype(t: Tensor, d: dtype) -> Tensor:
    """`t` in type `d`: itself when it has it already.  Differentiable between floating types."""
    if t.meta.dtype is d:
        return t
    made: Tensor = _cast(t, d)
    return made


def _plan_cast(t: Tensor, d: dtype) -> Plan:
    plan: Plan = CAST.plan((t,), (), (("dtype", d),))
    plan.saved = Saved(_cast_back, info=t.meta)
    if plan.dense is not None:
        plan.dense = plan.dense[0], _casting
    return plan


def _casting(given: Any) -> Saved:
    return Saved(_cast_back, info=given[0].meta)


@tape.keeps_nothing
def _cast_back(node: Any, g: Tensor) -> Any:
    return (fit(g, node[tape.SAVED][0]),)


_cast_back.grad_name = "ToCopyBackward0"
_cast = Inner("to", _plan_cast, planned=True, kinds={"d": WORD}).started().direct


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


def convert(t: Tensor, dev: Any, d: dtype | None, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Tensor:
    """The one path of every conversion.  `t` itself when nothing changes and `copy` is False."""
    made: Tensor = _convert(t, t.meta.device if dev is None else resolve(dev), d, bool(non_blocking), bool(copy), memory_format)
    return made


def _plan(t: Tensor, dev: device, d: dtype | None = None, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Any:
    """The plan of a conversion. dev: concrete."""
    m = under(t.meta)
    d = m.dtype if d is None else d
    strides = None if memory_format is None else strides_for(m.shape, m.strides, memory_format)
    if dev is not m.device:
        return transfer.plan(t, dev, non_blocking, strides, d)
    relaid = memory_format is not None and getattr(memory_format, "name", "") != "preserve_format"
    if d is not m.dtype:
        warn_of_lost_part(m.dtype, d)
        plan = _plan_cast(t, d)
        if relaid and plan.outs[0].strides != strides:
            return Compose(lambda t: clone(to_dtype(t, d), memory_format=memory_format))
        return plan
    if copy or (relaid and m.strides != strides):
        return Compose(lambda t: clone(t, memory_format=memory_format))
    return Compose(itself)


_convert = Inner("to", _plan, planned=True, kinds=dict.fromkeys(("dev", "d", "non_blocking", "copy", "memory_format"), WORD)).started().direct


def _to(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``to(dtype)``, ``to(device=None, dtype=None)`` or ``to(other)``, each with non_blocking=False, copy=False and
    memory_format.  Gives `self` when nothing changes and copy is False.

    non_blocking: a copy from pinned host memory is queued and may still read it when this returns, and one to the host
    arrives in pinned memory, whose first reader waits for it (see `flambeau.cuda.host_reads_wait`).  Pageable memory has
    been read when this returns, whatever the flag.  When type and device change, the narrower type is what crosses.
    """
    dev, d, flags = _parse(args, kwargs)
    return _planned(self, dev, d, **flags)


def _planned(t: Tensor, dev: Any, d: dtype | None, **flags: Any) -> Any:
    """The plan of a conversion to a device as the program names it."""
    if dev is None:
        return _plan(t, t.meta.device, d, **flags)
    to = resolve(dev)
    if to.type == "cuda" and (dev if isinstance(dev, device) else device(dev)).index is None:
        return transfer.on_current(lambda t, to: _plan(t, to, d, **flags))
    return _plan(t, to, d, **flags)


to: Callable[..., Tensor] = planned("to", _to, gives="Tensor", kinds={"args": CONSTANT}, moves=True)


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[device | None, dtype | None, dict[str, Any]]:
    """The concrete device, the type and the flags of a `.to` call.  Raises TypeError naming an argument that is none of these."""
    dev, d, flags = _parse(args, kwargs)
    return (None if dev is None else resolve(dev)), d, flags


def _parse(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dtype | None, dict[str, Any]]:
    """The same with the device as it was named."""
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
    return dev, d, flags  # type: ignore[return-value]


def _shorthand(name: str, d: dtype) -> None:
    def method(self: Tensor, *, memory_format: Any = None) -> Any:
        return _plan(self, self.meta.device, d, memory_format=memory_format)
    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`self` as {d!r}."
    planned(name, method, spaces=(), gives="Tensor")


for _name, _dtype in (("float", dtypes.float32), ("double", dtypes.float64), ("half", dtypes.float16),
                      ("bfloat16", dtypes.bfloat16), ("int", dtypes.int32), ("long", dtypes.int64), ("short", dtypes.int16),
                      ("char", dtypes.int8), ("byte", dtypes.uint8), ("bool", dtypes.bool_), ("chalf", dtypes.complex32), ("cfloat", dtypes.complex64),
                      ("cdouble", dtypes.complex128), ("dequantize", dtypes.float32)):  # the last: no tensor is quantized
    _shorthand(_name, _dtype)


def _cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
    """`self` on a GPU: the current one, or the one `device` names.  Raises RuntimeError for a device that is not cuda."""
    to = "cuda" if device is None else device
    if (found := resolve(to)).type != "cuda":
        raise RuntimeError(f"Invalid device, must be cuda device, got {found}")
    return _planned(self, to, None, non_blocking=bool(non_blocking), memory_format=memory_format)


cuda: Callable[..., Tensor] = planned("cuda", _cuda, spaces=(), gives="Tensor", moves=True)


def _cpu(self: Tensor, memory_format: Any = None) -> Any:
    """`self` in host memory."""
    return _plan(self, resolve("cpu"), memory_format=memory_format)


cpu: Callable[..., Tensor] = planned("cpu", _cpu, spaces=(), gives="Tensor", moves=True)


@op(spaces=(), tangent="first")
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """`self` in the type and on the device of `other`."""
    return convert(self, other.meta.device, other.meta.dtype)


hooks.provide(convert=convert)

has("bfloat16 bool byte cdouble cfloat char cpu cuda double float half int long short to", batch="same")
has("bfloat16 cdouble cfloat cpu cuda double float half to", tangent="linear")
has("bool complex float int", sparse="composite")

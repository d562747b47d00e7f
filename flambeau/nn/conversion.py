"""Moves a module's tensors to a device or type in place (`Module.to`, `Module._apply`): each `Parameter` stays the same object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core.dtypes import dtype as Dtype
from .._core.dtypes import meant
from .._core.errors import warn
from .._core.runtime.device import device as Device
from .._core.tensor import Tensor
from ..autograd import no_grad
from .parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable


def apply_to_tensors(parameters: dict[str, Parameter | None], buffers: dict[str, Tensor | None],
                     fn: Callable[[Tensor], Tensor]) -> None:
    """Puts each parameter's data and gradient, and each buffer, through `fn`."""
    for parameter in parameters.values():
        if parameter is None:
            continue
        grad = parameter.grad
        with no_grad():
            moved = fn(parameter)
        if moved is not parameter:
            # The gradient is taken off first: data and gradient must agree in device and type when it is put back.
            if grad is not None:
                parameter.grad = None
            parameter.data = moved
        if grad is not None:
            with no_grad():
                moved_grad = fn(grad)
            if moved_grad is not grad:
                wanted = grad.requires_grad
                grad = moved_grad.detach()
                if wanted:
                    grad.requires_grad_(True)
            if parameter.grad is not grad:
                parameter.grad = grad
    for name, buffer in buffers.items():
        if buffer is not None:
            buffers[name] = fn(buffer)


def _is_dtype(value: Any) -> bool:
    return isinstance(value, (Dtype, type))


def factory_kwargs(kwargs: Any) -> dict[str, Any]:
    """The device, dtype and memory_format among a module's keywords, with what is in their "factory_kwargs"; {} of None.

    Raises TypeError for another keyword, and for one that is told twice.
    """
    if kwargs is None:
        return {}
    names = {"device", "dtype", "memory_format"}
    other = kwargs.keys() - names - {"factory_kwargs"}
    if other:
        raise TypeError(f"unexpected kwargs {other}")
    made = dict(kwargs.get("factory_kwargs", {}))
    for name in kwargs.keys() & names:
        if name in made:
            raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
        made[name] = kwargs[name]
    return made


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Dtype | None, bool, Any]:
    """The device, dtype, non_blocking and memory_format that the arguments of `Module.to` mean."""
    unknown = set(kwargs) - {"device", "dtype", "non_blocking", "memory_format", "tensor", "copy"}
    if kwargs.get("copy"):
        raise RuntimeError(".to() does not accept copy argument: a module is moved in place")
    if unknown:
        raise TypeError(f"to() received an invalid keyword argument: {', '.join(sorted(unknown))}; it accepts device, "
                        "dtype, non_blocking and memory_format")
    device = kwargs.get("device")
    dtype = kwargs.get("dtype")
    non_blocking = bool(kwargs.get("non_blocking", False))
    rest: list[Any] = list(args)
    tensor: Any = kwargs.get("tensor")
    if rest and isinstance(rest[0], Tensor):
        tensor = rest.pop(0)
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    elif rest and _is_dtype(rest[0]):
        dtype = rest.pop(0)
    elif rest and (rest[0] is None or isinstance(rest[0], Device | str | int)) and not isinstance(rest[0], bool):
        device = rest.pop(0)
        if rest and (rest[0] is None or _is_dtype(rest[0])):
            dtype = rest.pop(0)
        elif rest:
            raise TypeError(f"to() received an invalid combination of arguments: after a device comes a dtype, got {type(rest[0]).__name__}")
    elif rest and not isinstance(rest[0], bool):
        raise TypeError(f"to() received an invalid first argument of type {type(rest[0]).__name__}; it accepts a "
                        "device (device, str or int), a dtype or a Tensor")
    if rest:
        if not isinstance(rest[0], bool):
            raise TypeError(f"to() received an invalid argument of type {type(rest[0]).__name__} for non_blocking, which is a bool")
        non_blocking = rest.pop(0)
    if len(rest) > 1:
        raise TypeError(f"to() received too many arguments: {len(args)}")
    dtype = meant(dtype)
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")
    if dtype is not None and dtype.is_complex:
        warn("Complex modules are a new feature under active development whose design may change, and some modules might not work as expected when using "
             "complex tensors as parameters or buffers.")
    return None if device is None else Device(device), dtype, non_blocking, kwargs.get("memory_format")

"""The Tensor's methods for other libraries.  What they do is loaded when one is first called."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from .._core import hooks
from .._core.engine.fields import has
from .._core.engine.operation import answers


@cache
def _loaded(name: str) -> Any:
    """A module beside this one, imported when it is first asked for."""
    return import_module(f"{__package__}.{name}")


def _array(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
    return _loaded("numpy").array(self, dtype, copy)


def _array_wrap(self: Any, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    return _loaded("numpy").array_wrap(self, array, context, return_scalar)


def _cuda_array_interface(self: Any) -> dict[str, Any]:
    found: dict[str, Any] = _loaded("numpy").cuda_array_interface(self)
    return found


def _array_namespace(self: Any, *, api_version: str | None = None) -> Any:
    return _loaded("array_api").answer(api_version)


def _to_device(self: Any, device: Any, /, *, stream: Any = None) -> Any:
    """The array API standard's `to`; the work is on the current stream."""
    if stream is not None:
        import contextlib

        from .._core.runtime.streams import Stream
        with stream if isinstance(stream, Stream) else contextlib.nullcontext():
            return self.to(device)
    return self.to(device)


def _dlpack(self: Any, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None) -> Any:
    return _loaded("dlpack").export(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


def _dlpack_device(self: Any) -> tuple[int, int]:
    found: tuple[int, int] = _loaded("dlpack").device_of(self)
    return found


def _repr_html(self: Any) -> str:
    found: str = _loaded("html").repr_html(self)
    return found


def _from_dlpack(*args: Any, **kwargs: Any) -> Any:
    return _loaded("dlpack").from_dlpack(*args, **kwargs)


def _adopt(cls: type) -> None:
    _loaded("overriding").adopt(cls)


hooks.provide(adopt=_adopt, from_dlpack=_from_dlpack)


def _torch_function(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return _loaded("overriding").torch_function(cls, func, types, args, kwargs)


def _as_subclass(self: Any, cls: type) -> Any:
    """The same tensor (memory and history) as a member of a subclass of Tensor."""
    return _loaded("overriding").as_subclass(self, cls)


def _make_subclass(cls: Any, data: Any, require_grad: bool = False) -> Any:
    return _loaded("overriding").make_subclass(cls, data, require_grad)


def install(target: type) -> None:
    """Gives the Tensor these methods."""
    methods: dict[str, Any] = {"__array__": _array, "__array_wrap__": _array_wrap, "__array_namespace__": _array_namespace, "to_device": _to_device,
               "__dlpack__": _dlpack,
               "__dlpack_device__": _dlpack_device, "_repr_html_": _repr_html,
               "__cuda_array_interface__": property(_cuda_array_interface),
               "__array_priority__": 1000}  # NumPy must leave `array + tensor` to the tensor
    methods |= {"__torch_function__": classmethod(_torch_function), "as_subclass": _as_subclass, "_make_subclass": staticmethod(_make_subclass)}
    for name, method in methods.items():
        setattr(target, name, method)


def name_methods(target: type) -> None:
    """Lets Python's special methods go by their names, which is what `__torch_function__` is told."""
    for name, method in target.__dict__.items():
        if name.startswith("__") and hasattr(method, "__code__") and (method.__name__ in ("call", "<lambda>") or method.__name__.startswith("_")):
            method.__name__ = name


def answer(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer of arguments that override operations; NotImplemented where there are none."""
    return _loaded("overriding").answer(operation, args, kwargs)


answers.append(answer)

has("__array__ __dlpack__", batch="reads")

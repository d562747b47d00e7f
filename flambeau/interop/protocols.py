"""The Tensor's methods for other libraries.  What they do is loaded when one is first called."""

from __future__ import annotations

from typing import Any


def _array(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
    from .numpy import array
    return array(self, dtype, copy)


def _array_wrap(self: Any, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    from .numpy import array_wrap
    return array_wrap(self, array, context, return_scalar)


def _cuda_array_interface(self: Any) -> dict[str, Any]:
    from .numpy import cuda_array_interface
    return cuda_array_interface(self)


def _array_namespace(self: Any, *, api_version: str | None = None) -> Any:
    from .array_api import answer
    return answer(api_version)


def _dlpack(self: Any, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None) -> Any:
    from .dlpack import export
    return export(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


def _dlpack_device(self: Any) -> tuple[int, int]:
    from .dlpack import device_of
    return device_of(self)


def _repr_html(self: Any) -> str:
    from .html import repr_html
    return repr_html(self)


def install(target: type) -> None:
    """Gives the Tensor these methods."""
    methods = {"__array__": _array, "__array_wrap__": _array_wrap, "__array_namespace__": _array_namespace, "__dlpack__": _dlpack,
               "__dlpack_device__": _dlpack_device, "_repr_html_": _repr_html,
               "__cuda_array_interface__": property(_cuda_array_interface),
               "__array_priority__": 1000}  # NumPy must leave `array + tensor` to the tensor
    for name, method in methods.items():
        setattr(target, name, method)

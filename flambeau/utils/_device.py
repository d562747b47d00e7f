"""A device as the default of a block or of a function (torch.utils._device): `with flambeau.device(...)` under PyTorch's inner names."""

from __future__ import annotations

from typing import Any

from .._core.runtime.device import device as _device
from ._contextlib import context_decorator


class DeviceContext:
    """The block in which factories make their tensors on a device."""

    def __init__(self, device: Any) -> None:
        self.device = _device(device)

    def __enter__(self) -> DeviceContext:
        self.device.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.device.__exit__(*exc)


def device_decorator(device: Any, func: Any) -> Any:
    """`func`, whose tensors are made on `device`."""
    return context_decorator(lambda: DeviceContext(device), func)


def set_device(device: Any) -> Any:
    """The decorator for it."""
    return lambda func: device_decorator(device, func)

"""The device factories use when none is given."""

from __future__ import annotations

from typing import Any

from . import device as _device


def set_default_device(device: Any) -> None:
    """Makes factories build on `device` by default; None goes back to the CPU."""
    _device.set_default(None if device is None else _device.resolve(device))


def get_default_device() -> Any:
    """The device factories use now."""
    return _device.resolve(None)

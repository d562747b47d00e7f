"""Apple's GPUs (torch.mps): there is no driver for them here, and programs that ask are told so."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def empty_cache() -> None:
    """There is none."""


def synchronize(device: Any = None) -> None:
    """Raises RuntimeError: there is no such device to wait for."""
    raise RuntimeError("mps.synchronize: there are no devices of this kind; the devices here are cpu and cuda")


def manual_seed(seed: int) -> None:
    """Accepted, as by programs that seed every kind of device."""


def current_allocated_memory() -> int:
    """Raises RuntimeError: there is none, as in PyTorch without this device."""
    raise RuntimeError("mps: cannot tell its memory without such a device; the devices here are cpu and cuda")


driver_allocated_memory = recommended_max_memory = current_allocated_memory

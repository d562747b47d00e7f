"""Intel's GPUs (torch.xpu): there is no driver for them here, and programs that ask are told so."""

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
    raise RuntimeError("xpu.synchronize: there are no devices of this kind; the devices here are cpu and cuda")


def manual_seed(seed: int) -> None:
    """Accepted, as by programs that seed every kind of device."""


def manual_seed_all(seed: int) -> None:
    """Accepted too."""


def is_initialized() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def memory_allocated(device: Any = None) -> int:
    """0 bytes."""
    return 0


memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Nothing."""
    return {}


def current_device() -> int:
    """Raises AssertionError, as PyTorch without this device does."""
    raise AssertionError("Torch not compiled with XPU enabled: the devices here are cpu and cuda")


def get_device_properties(device: Any = None) -> Any:
    """Raises AssertionError."""
    return current_device()


def get_device_name(device: Any = None) -> str:
    """Raises AssertionError."""
    return str(current_device())


def set_device(device: Any) -> None:
    """Raises AssertionError."""
    current_device()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Raises AssertionError."""
    return current_device(), 0

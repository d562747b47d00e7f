"""The CPU as a device (torch.cpu): one, always there, with nothing to wait for."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    """True: the CPU is always there."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """"cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """There is only one."""


def synchronize(device: Any = None) -> None:
    """Work on the CPU is done when its call returns."""


class Stream:
    """Accepted for code written for any device."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """There is nothing to wait for."""

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


def current_stream(device: Any = None) -> Stream:
    """The one stream there is."""
    return Stream()


def stream(stream: Any) -> Any:
    """A ``with`` block that changes nothing."""
    return Stream() if stream is None else stream


def __getattr__(name: str) -> Any:
    if name == "amp":
        import importlib
        return importlib.import_module(".amp", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Stream", "current_device", "current_stream", "device_count", "is_available", "set_device", "stream", "synchronize"]

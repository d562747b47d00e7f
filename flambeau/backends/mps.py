"""Apple's GPUs (torch.backends.mps): there is no driver for them here."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    return False


def is_built() -> bool:
    return False


def _none(name: str) -> Any:
    raise RuntimeError(f"Cannot execute {name}() without MPS backend.")


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Raises RuntimeError: there is no driver to ask."""
    return bool(_none("is_macos_or_newer"))


def is_macos13_or_newer(minor: int = 0) -> bool:
    """Raises RuntimeError: there is no driver to ask."""
    return bool(_none("is_macos13_or_newer"))


def get_name() -> str:
    """Raises RuntimeError: there is no such GPU."""
    return str(_none("get_name"))


def get_core_count() -> int:
    """Raises RuntimeError: there is no such GPU."""
    return int(_none("get_core_count"))


__all__ = ["get_core_count", "get_name", "is_macos13_or_newer", "is_macos_or_newer", "is_available", "is_built"]

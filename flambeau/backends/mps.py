"""Apple's GPUs (torch.backends.mps): there is no driver for them here."""

from __future__ import annotations


def is_available() -> bool:
    return False


def is_built() -> bool:
    return False


__all__ = ["is_available", "is_built"]

"""Intel's MKL (torch.backends.mkl): not used here."""

from __future__ import annotations


def is_available() -> bool:
    return False


__all__ = ["is_available"]

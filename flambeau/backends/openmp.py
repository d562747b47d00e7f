"""OpenMP (torch.backends.openmp): kernels have a thread pool of their own instead."""

from __future__ import annotations


def is_available() -> bool:
    return False


__all__ = ["is_available"]

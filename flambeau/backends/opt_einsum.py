"""The order of an einsum's products (torch.backends.opt_einsum): from left to right here."""

from __future__ import annotations

enabled = False
strategy = None


def is_available() -> bool:
    return False


__all__ = ["enabled", "is_available", "strategy"]

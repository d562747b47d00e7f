"""`torch._ops`: the table of operations by name, where programs look for it."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "ops":
        import flambeau
        return flambeau.ops
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

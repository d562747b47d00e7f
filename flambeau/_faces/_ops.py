"""`torch._ops`: the table of operations by name, where programs look for it."""

from __future__ import annotations

from flambeau._core import ops

__all__ = ["ops"]

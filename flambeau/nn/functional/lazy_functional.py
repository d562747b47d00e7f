"""The functions of this package for its own modules, found by name at their first use."""

from __future__ import annotations

from typing import Any


class _LazyFunctional:
    """Stands for the package where importing it would run in a circle, or before the operation table is full."""

    def __getattr__(self, name: str) -> Any:
        from .. import functional

        found = self.__dict__[name] = getattr(functional, name)
        return found


F = _LazyFunctional()

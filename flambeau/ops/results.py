"""Results with names: tuples whose parts are attributes too, as torch.return_types has them."""

from __future__ import annotations

from collections import namedtuple
from typing import Any


def named(name: str, fields: str) -> Any:
    """A tuple class with these fields that prints as PyTorch's does."""
    made: Any = namedtuple(name, fields)  # type: ignore[misc]  # noqa: PYI024 (made at run time)

    def show(self: Any) -> str:
        return f"torch.return_types.{name}(\n" + ",\n".join(f"{f}={getattr(self, f)!r}" for f in self._fields) + ")"
    made.__repr__ = show  # type: ignore[method-assign]
    return made

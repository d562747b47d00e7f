"""Results with names: tuples whose parts are attributes too, as torch.return_types has them."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

_classes: dict[tuple[str, str], Any] = {}


def named(name: str, fields: str) -> Any:
    """The tuple class with these fields that prints as PyTorch's does."""
    if (name, fields) in _classes:
        return _classes[name, fields]
    made: Any = namedtuple(name, fields)  # type: ignore[misc]  # noqa: PYI024 (made at run time)

    def show(self: Any) -> str:
        return f"torch.return_types.{name}(\n" + ",\n".join(f"{f}={getattr(self, f)!r}" for f in self._fields) + ")"
    made.__repr__ = show  # type: ignore[method-assign]

    def reduce(self: Any) -> Any:
        return _again, (name, fields, tuple(self))
    made.__reduce__ = reduce  # type: ignore[method-assign]
    _classes[name, fields] = made
    return made


def _again(name: str, fields: str, parts: tuple[Any, ...]) -> Any:
    """A pickled or copied result."""
    return named(name, fields)(*parts)

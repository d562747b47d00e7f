"""Maps whose values go to offsets of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..programs import Map
    from .kernel import Launch
    from .writer import Writer


def write(w: Writer, program: Map, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...],
          numbers: int) -> tuple[str, tuple[Launch, ...], int]:
    """The source, the launches and the bytes of workspace."""
    raise NotImplementedError("values at offsets of their own")

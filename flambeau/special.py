"""Special functions (torch.special).  Every name comes from the op table."""

from __future__ import annotations

from ._core.ops import table

globals().update(table.namespace("special"))
__all__ = sorted(table.namespace("special"))  # noqa: PLE0605 (filled from the table)

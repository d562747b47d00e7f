"""Linear algebra (torch.linalg).  Every name comes from the op table."""

from __future__ import annotations

from .errors import LinAlgError
from .ops import table

globals().update(table.namespace("linalg"))
__all__ = ["LinAlgError", *sorted(table.namespace("linalg"))]  # noqa: PLE0605 (filled from the table)

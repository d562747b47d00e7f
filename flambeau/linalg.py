"""Linear algebra (torch.linalg).  Every name comes from the op table."""

from __future__ import annotations

from ._core.errors import LinAlgError
from ._core.ops import table

globals().update(table.namespace("linalg"))
__all__ = ["LinAlgError", *sorted(table.namespace("linalg"))]  # noqa: PLE0605 (filled from the table)

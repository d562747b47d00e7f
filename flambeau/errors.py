"""The errors of this package's own: what its functions raise beside Python's exceptions."""

from __future__ import annotations

from ._core.errors import AcceleratorError, FileFormatError, LinAlgError, OutOfMemoryError, TransferError

__all__ = ["AcceleratorError", "FileFormatError", "LinAlgError", "OutOfMemoryError", "TransferError"]

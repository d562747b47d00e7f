"""Discrete Fourier transforms (torch.fft).  Every name comes from the op table."""

from __future__ import annotations

from ._core.ops import table

globals().update(table.namespace("fft"))
__all__ = sorted(table.namespace("fft"))  # noqa: PLE0605 (filled from the table)

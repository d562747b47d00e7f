"""Warnings or errors where the host waits for a GPU (torch.cuda.set_sync_debug_mode)."""

from __future__ import annotations

from typing import Any

from .. import forks
from ..errors import warn
from . import dispatch

MODES = ("default", "warn", "error")
_mode = 0
_observer: Any = None
_lock = forks.lock()


def mode() -> int:
    """0: nothing is said, 1: a warning, 2: an error."""
    return _mode


def set_mode(number: int) -> None:
    """Begins or ends watching for copies that the host waits for; an operation that reads a value makes such a copy."""
    global _mode, _observer
    with _lock:
        _mode = number
        if number and _observer is None:
            _observer = dispatch.observe(copies=_copied)
        elif not number and _observer is not None:
            _observer.close()
            _observer = None


def _copied(record: dispatch.Copy) -> None:
    if not record.blocking or record.direction == "h2h":
        return
    said = (f"called a synchronizing CUDA operation: the host waits for a copy of {record.nbytes} bytes from {record.source} to {record.target}"
            + (f" (at {record.line})" if record.line else ""))
    if _mode == 2:
        raise RuntimeError(said)
    warn(said)

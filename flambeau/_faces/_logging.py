"""torch._logging: logs of a tracing compiler, which is not here."""

from __future__ import annotations

import functools
import logging
from typing import Any


def set_logs(**options: Any) -> None:
    """Remembers nothing: these parts write no logs."""


def trace_structured(name: str, *args: Any, **options: Any) -> None:
    """Writes nothing."""


def getArtifactLogger(module_qname: str, artifact_name: str) -> logging.Logger:  # noqa: N802 (PyTorch's name)
    """The logger of a module's part, of Python's own."""
    return logging.getLogger(f"{module_qname}.__{artifact_name}")


@functools.cache
def warning_once(logger: logging.Logger, *args: Any, **options: Any) -> None:
    """A warning by `logger`, the first time it is given."""
    logger.warning(*args, **options)

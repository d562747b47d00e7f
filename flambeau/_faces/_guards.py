"""torch._guards: what programs ask a tracing compiler; none is at work here."""

from __future__ import annotations

import contextlib
from typing import Any


class TracingContext:
    """No program is being traced."""

    @staticmethod
    def try_get() -> None:
        """None."""

    @staticmethod
    def get() -> Any:
        """Raises RuntimeError: there is none."""
        raise RuntimeError("TracingContext.get() must be called within an ongoing trace.")


class CompileContext(TracingContext):
    """No function is being compiled."""

    @staticmethod
    def current_compile_id() -> None:
        """None."""


def detect_fake_mode(inputs: Any = None) -> None:
    """None: no tensor is a fake one."""


def active_fake_mode() -> None:
    """None."""


def tracing(context: Any) -> Any:
    """A block that changes nothing."""
    return contextlib.nullcontext()

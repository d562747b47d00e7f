"""What a traced program checks when it runs: that arguments are what it was traced for."""

from __future__ import annotations

from typing import Any

from .names import PACKAGE
from .node import has_side_effect
from .proxy import first_proxy


@has_side_effect
def _assert(condition: Any, message: str) -> None:
    """torch._assert.  Raises AssertionError with `message` where a condition is not true; of a traced value it becomes a node."""
    found = first_proxy((condition,))
    if found is not None:
        found.tracer.create_proxy("call_function", _assert, (condition, message), {})
        return
    if not condition:
        raise AssertionError(message)


@has_side_effect
def _assert_is_none(value: Any, msg: str) -> None:
    """Raises AssertionError with `msg` where a value is not None."""
    if value is not None:
        raise AssertionError(msg)


_assert.__module__ = PACKAGE
_assert_is_none.__module__ = f"{PACKAGE}.fx._symbolic_trace"

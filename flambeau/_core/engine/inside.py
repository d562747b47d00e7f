"""Operations whose calls one interpreter carries out by itself, so that nobody looks at what their bodies call.

What is learned of an operation is not found while an interpreter is on the stack, which may want to see the calls that its body makes.  One that has seen
the call itself, and lets the body alone, calls `alone(operation)`: the same operation, which learns for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..runtime import capture
from . import interpreters
from .operation import Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from .interpreters import Interpreter


class _Nobody:
    """In the place of `capture.now`: nobody looks on."""

    __slots__ = ()
    watched = False


class _Alone(Operation):
    """An operation of which nobody sees what its body calls."""

    __slots__ = ()
    now = _Nobody()

    def __init__(self, of: Operation) -> None:
        super().__init__(of.name, of.body, out=of.out, renames=of.renames, signature=of.signature, kinds=of.kinds, shown=of.function.__name__)


def alone(operation: Operation, interpreter: Interpreter, function: Callable[..., Any]) -> Callable[..., Any]:
    """What carries out a call that the interpreter was shown; `function` where others look on too, and for operations that are not learned."""
    if operation.planned or interpreters._stack != (interpreter,) or capture.now.holders != 1:
        return function
    found = operation.inner
    if found is None:
        found = operation.inner = _Alone(operation).started().direct if operation._learns else function
    return found  # type: ignore[no-any-return]

"""Who looks on: a stack of interpreters, each of which may see a call of an operation before it is carried out.

A trace, a profiler, autocast, a `TorchFunctionMode`, the memory of source lines are interpreters. While none is on the stack,
a public function runs its own code. Pushing one makes the functions it wants to see, of those that run their own, run a general code that
asks the stack; a function puts its own code back at its next call that nobody wants to see. So popping one costs nothing, pushing one costs by
the functions that were called since; nothing is paid while nobody looks on, and a function that was kept in a list before is seen like any other.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from .. import forks, hooks
from ..runtime.asking import asked, saying
from ..runtime.capture import now
from . import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from .operation import Operation

lock = forks.lock()
_stack: tuple[Interpreter, ...] = ()
_own: dict[Operation, None] = {}  # operations whose functions run their own code


class Interpreter:
    """One that looks on. `sees` chooses operations, once for each; `call` carries a call out, or does something else in its place.

    apart: it wants to see the operations that could be carried out as one.
    """

    __slots__ = ()
    apart = True

    def sees(self, operation: Operation) -> bool:
        """Whether calls of this operation are to be shown."""
        return True

    def call(self, operation: Operation, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call; `function(*args, **kwargs)` carries it out."""
        raise NotImplementedError


def push(interpreter: Interpreter) -> None:
    """Puts an interpreter on top of the stack, for all threads."""
    global _stack
    with lock:
        _stack = (*_stack, interpreter)
        if len(_stack) == 1:
            now.hold(1)
        for operation in [x for x in _own if interpreter.sees(x)]:
            operation.open()
            del _own[operation]


def pop(interpreter: Interpreter) -> None:
    """Takes an interpreter off the stack, wherever in it it is."""
    global _stack
    with lock:
        at = max([i for i, x in enumerate(_stack) if x is interpreter])
        _stack = _stack[:at] + _stack[at + 1:]
        if not _stack:
            now.hold(-1)


def watched(operation: Operation) -> bool:
    """Whether an operation must be called by itself, as somebody wants to see it."""
    return bool(_stack) and any(x.apart and x.sees(operation) for x in _stack)


def unseen(operation: Operation) -> None:
    """Nobody saw a call of an operation whose code has been made: it runs its own from now on, unless somebody wants to see it meanwhile."""
    with lock:
        if not operation.own and not any(x.sees(operation) for x in _stack):
            operation.close()
            _own[operation] = None


def through(operation: Operation, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call, past all interpreters that see the operation, the last pushed first."""
    last: Interpreter | None = None
    for interpreter in _stack:
        if interpreter.sees(operation):
            if last is not None:
                function = partial(_one, last, operation, function)
            last = interpreter
    if last is not None:
        return last.call(operation, function, args, kwargs)
    unseen(operation)
    return function(*args, **kwargs)


def _one(interpreter: Interpreter, operation: Operation, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return interpreter.call(operation, function, args, kwargs)



class watch(Interpreter):
    """Shows `hook(name, function, args, kwargs)` every call of an operation until `close()`, or in a ``with`` block. The hook must make
    the call and give its result; calls that operations make of each other come too."""

    __slots__ = ("_hook", "_open")

    def __init__(self, hook: Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self._hook, self._open = hook, True
        push(self)

    def call(self, operation: Operation, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._hook(operation.name, function, args, kwargs)

    def close(self) -> None:
        """Stops. Doing it again does nothing."""
        with lock:
            if self._open:
                self._open = False
                pop(self)

    def __enter__(self) -> watch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class note_who_asks(Interpreter):
    """Until `close()`, notes for each thread whether the outermost operation is one by which programs ask for copies (`asking.asked`)."""

    __slots__ = ()
    apart = False

    def __init__(self) -> None:
        push(self)

    def sees(self, operation: Operation) -> bool:
        return fields.of("moves").get(operation.name) != "hooks"

    def call(self, operation: Operation, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if asked.get() is not None:
            return function(*args, **kwargs)
        return saying(operation.name in fields.of("moves"), function, *args, **kwargs)

    def close(self) -> None:
        """Stops."""
        pop(self)


hooks.provide(watch=watch, note_who_asks=note_who_asks)

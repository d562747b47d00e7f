"""Ranges of a program that a profiler shows by name, and the recorders that listen."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

from .._core import forks
from .events import FunctionEvent

_recorders: tuple[Recorder, ...] = ()
_lock = forks.lock()


class Recorder:
    """Takes down calls as they end: name, thread, when, how long, and how long less what ran inside."""

    def __init__(self, shapes: bool) -> None:
        self.events: list[FunctionEvent] = []
        self.shapes = shapes
        self._stacks = threading.local()

    def _stack(self) -> list[list[Any]]:
        stack = getattr(self._stacks, "open", None)
        if stack is None:
            stack = self._stacks.open = []
        return stack

    def begin(self, name: str, shapes: Any = None, user: bool = False) -> None:
        """A call begins."""
        self._stack().append([name, time.perf_counter_ns(), 0, shapes, user])

    def end(self) -> None:
        """The call begun last is over."""
        stack = self._stack()
        if not stack:
            return  # begun before the recorder listened
        now = time.perf_counter_ns()
        name, start, inside, shapes, user = stack.pop()
        if stack:
            stack[-1][2] += now - start
        self.events.append(FunctionEvent(name, start, now, inside, threading.get_ident(), len(stack), shapes, user))

    def listen(self) -> None:
        """Ranges are told to this recorder from now on."""
        global _recorders
        with _lock:
            _recorders += (self,)

    def leave(self) -> None:
        """No longer."""
        global _recorders
        with _lock:
            _recorders = tuple(r for r in _recorders if r is not self)


class record_function:
    """A range of the program under a name: a `with` block, or a decorator.  Costs next to nothing when no profiler listens."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self._open: list[tuple[Recorder, ...]] = []

    def __enter__(self) -> record_function:
        listening = _recorders
        self._open.append(listening)
        for r in listening:
            r.begin(self.name, user=True)
        return self

    def __exit__(self, *exc: object) -> None:
        for r in self._open.pop():
            r.end()

    def __call__(self, function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)
        return call


class itt_stub:
    """Ranges for Intel's tools: nobody listens."""

    @staticmethod
    def is_available() -> bool:
        """False."""
        return False

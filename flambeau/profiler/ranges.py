"""Ranges of a program that a profiler shows by name, and the recorders that listen."""

from __future__ import annotations

import functools
import sys
import threading
import time
from typing import Any

from .._core import forks
from .._core.runtime import cpu_memory, gpus
from .events import FunctionEvent

_recorders: tuple[Recorder, ...] = ()
_lock = forks.lock()
_DEEPEST = 32  # frames of a stack


class Open:
    """A call that has not ended: what is to be known of it when it does."""

    __slots__ = ("name", "start", "inside", "shapes", "user", "kernels", "flops", "memory", "memory_inside", "stack", "parts")

    def __init__(self, name: str, shapes: Any, user: bool) -> None:
        self.name, self.shapes, self.user = name, shapes, user
        self.inside = self.flops = 0
        self.kernels: list[Any] = []
        self.parts: list[FunctionEvent] = []
        self.memory = self.memory_inside = (0, 0)
        self.stack: list[str] = []
        self.start = time.perf_counter_ns()


class Recorder:
    """Takes down calls as they end: name, thread, when, how long, and what of that was spent in calls inside.

    shapes, memory, stacks: whether these are taken down too.  `levels` are (nanoseconds, {device: bytes in use}), taken where calls begin and end.
    """

    def __init__(self, shapes: bool = False, memory: bool = False, stacks: bool = False) -> None:
        self.events: list[FunctionEvent] = []
        self.levels: list[tuple[int, dict[str, int]]] = []
        self.shapes, self._memory, self._with_stacks = shapes, memory, stacks
        self.outside: list[Any] = []  # work on GPUs that no call asked for
        self.began = time.perf_counter_ns()
        self._stacks = threading.local()

    def _stack(self) -> list[Open]:
        stack: list[Open] | None = getattr(self._stacks, "open", None)
        if stack is None:
            stack = self._stacks.open = []
        return stack

    def kernels(self) -> list[Any]:
        """Where the innermost open call keeps its work on GPUs."""
        stack = self._stack()
        return stack[-1].kernels if stack else self.outside

    def count(self, flops: int) -> None:
        """The innermost open call does so many operations on numbers."""
        stack = self._stack()
        if stack:
            stack[-1].flops += flops

    def _level(self) -> tuple[int, int]:
        """Bytes in use on the CPU and on all GPUs."""
        host = cpu_memory.stats()["allocated_bytes"]
        system = gpus._system
        there = {} if system is None or not system.started else {str(g.device): g.pool.current("allocated_bytes") for g in system.gpus}
        self.levels.append((time.perf_counter_ns(), {"cpu": host, **there}))
        return host, sum(there.values())

    def begin(self, name: str, shapes: Any = None, user: bool = False) -> Open:
        """A call begins."""
        call = Open(name, shapes, user)
        if self._memory:
            call.memory = self._level()
        if self._with_stacks:
            call.stack = _frames()
        self._stack().append(call)
        return call

    def end(self, call: Open) -> None:
        """A call is over: the one begun last, or one around it, as the steps of a schedule may end within a range of the program's."""
        stack = self._stack()
        if call not in stack:
            return  # begun in another thread
        now = time.perf_counter_ns()
        depth = stack.index(call)
        del stack[depth]
        event = FunctionEvent(call.name, call.start, now, call.inside, threading.get_ident(), depth, call.shapes, call.user)
        event.base_ns = self.began
        event.kernels, event.cpu_children, event.flops, event.stack = call.kernels, call.parts, call.flops, call.stack
        if self._memory:
            host, there = (b - a for a, b in zip(call.memory, self._level(), strict=True))
            event.cpu_memory_usage, event.device_memory_usage = host, there
            event.self_cpu_memory_usage, event.self_device_memory_usage = host - call.memory_inside[0], there - call.memory_inside[1]
            if depth:
                outer = stack[depth - 1].memory_inside
                stack[depth - 1].memory_inside = outer[0] + host, outer[1] + there
        if depth:
            stack[depth - 1].inside += now - call.start
            stack[depth - 1].parts.append(event)
        self.events.append(event)

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


def _frames() -> list[str]:
    """The program's own frames, the innermost first, as `file(line): function`."""
    found: list[str] = []
    frame: Any = sys._getframe(1)
    while frame is not None and len(found) < _DEEPEST:
        code = frame.f_code
        if not frame.f_globals.get("__name__", "").startswith("flambeau."):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return found


class record_function:
    """A range of the program under a name: a `with` block, or a decorator.  Costs next to nothing when no profiler listens."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self._open: list[list[tuple[Recorder, Open]]] = []

    def __enter__(self) -> record_function:
        self._open.append([(r, r.begin(self.name, user=True)) for r in _recorders])
        return self

    def __exit__(self, *exc: object) -> None:
        for r, call in self._open.pop():
            r.end(call)

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

"""Signals, held while what their handlers raise would leave something half changed, and what is put back whatever they raise: Ctrl-C may come between
any two steps of Python."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps, which makes an enum of each
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import ContextVar

Made = TypeVar("Made")
Value = TypeVar("Value")
_NUMBERS = sorted(_signal.valid_signals())
_main = threading.main_thread
_depth = 0  # blocks of the main thread, one in another
_noted: list[int] = []


def _note(number: int, frame: Any) -> None:
    if number not in _noted:
        _noted.append(number)


def within(variable: ContextVar[Value], value: Value, work: Callable[[], Made]) -> Made:
    """What `work` gives while the variable has this value.  A block's end may be interrupted before it does anything, this one may not."""
    before = variable.get()
    try:
        variable.set(value)
        return work()
    finally:
        variable.set(before)


class held:
    """A block in which no handler of a signal runs; what comes meanwhile is delivered when the block ends.  Handlers run in the main thread, so that
    blocks of other threads do nothing.  For what takes milliseconds: a Ctrl-C waits as long."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        global _depth
        self._before: list[tuple[int, Any]] = []
        if threading.get_ident() != _main().ident:
            return
        if not _depth:
            try:
                for number in _NUMBERS:
                    handler = _signal.getsignal(number)
                    if callable(handler):
                        self._before.append((number, handler))
                        _signal.signal(number, _note)
            except BaseException:  # from a handler that was still there
                self._put_back()
                raise
        _depth += 1

    def __exit__(self, *exc: object) -> None:
        global _depth
        if threading.get_ident() != _main().ident:
            return
        _depth -= 1
        if not _depth:
            self._put_back()

    def _put_back(self) -> None:
        raised: BaseException | None = None
        while True:
            try:
                while self._before:
                    _signal.signal(*self._before[-1])
                    self._before.pop()
                while _noted:
                    _signal.raise_signal(_noted.pop(0))
                break
            except BaseException as error:  # what a handler that is there again raises; the others are put back all the same
                raised = error
        if raised is not None:
            raise raised

"""Who asked for a copy between devices: the program, by a call that says so, or an operation or this package for its own ends.

`transfer_guard(exempt_explicit=True)` wants to know. While one is open, an interpreter of the engine notes in `asked` what the outermost operation is; this
package's own calls of `.to`, `.cpu` and their like are made through `unasked`, functions of the program's that an operation calls through `of_program`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# True: the program, in its own words; False: somebody else; None: no operation is being carried out
asked: ContextVar[bool | None] = ContextVar("who asked for a copy", default=None)
_listening = 0


def listen(change: int) -> None:
    """One more (1) or one fewer (-1) who wants to know. The caller sees to it that no two threads do so at once."""
    global _listening
    _listening += change


def unasked(call: Callable[P, R]) -> Callable[P, R]:
    """`call`, made for this package's own ends: what it copies the program has not written out."""
    return partial(_unless_asked, call) if _listening else call


def of_program(call: Callable[P, R]) -> Callable[P, R]:
    """`call`, a function of the program's: whatever operation called it, what it asks for the program has written out."""
    return partial(saying, None, call) if _listening else call


def _reads(run: Any, call: Any) -> None:
    """Tells a run of `compile` what these follow."""
    run.guards.part(globals(), "_listening", _listening)


unasked.__reads__ = of_program.__reads__ = _reads  # type: ignore[attr-defined]


def saying(who: bool | None, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The result of a call, during which this is who asks."""
    token = asked.set(who)
    try:
        return call(*args, **kwargs)
    finally:
        asked.reset(token)


def _unless_asked(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    return call(*args, **kwargs) if asked.get() is not None else saying(False, call, *args, **kwargs)

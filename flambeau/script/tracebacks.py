"""Tracebacks that show the script's own lines."""

from __future__ import annotations

import linecache
import os
import sys
import threading
import traceback
import types
from typing import Any

from .._core import errors

VARIABLE = "FLAMBEAU_TRACEBACK"
_PACKAGE = __name__.partition(".")[0]
TEXTS = ("<string>", "<stdin>")  # what `-c` and `-` are called; their lines are put into `linecache`
_STARTERS = ("<frozen runpy>", "<frozen importlib")
_around: set[types.CodeType] = set()  # what ran when the command began: runpy, or the file that the shell found


def shorten() -> None:
    """Has errors that end this process, or one of its threads, shown without the frames of Flambeau and of what started the script."""
    if os.environ.get(VARIABLE, "") == "full":
        return
    os.environ[VARIABLE] = "short"  # for children that start anew
    in_texts()
    before, before_in_threads = sys.excepthook, threading.excepthook
    _around.update(frame.f_code for frame, _ in traceback.walk_stack(None))

    def shown(kind: Any, value: Any, trace: Any) -> None:
        _say(strip(value.with_traceback(trace)))
        if before is sys.__excepthook__ and not linecache.cache.keys().isdisjoint(TEXTS):  # the built-in one knows the lines of files alone
            traceback.print_exception(kind, value, value.__traceback__)
        else:
            before(kind, value, value.__traceback__)

    def shown_in_thread(told: Any) -> None:
        if told.exc_value is not None:
            _say(strip(told.exc_value))
            told = threading.ExceptHookArgs((told.exc_type, told.exc_value, told.exc_value.__traceback__, told.thread))
        before_in_threads(told)
    sys.excepthook, threading.excepthook = shown, shown_in_thread


def in_texts() -> None:
    """Has errors that workers tell as texts shortened too, in a process that `flambeau run` started or that comes of one."""
    if os.environ.get(VARIABLE, "") == "short":
        errors.shorten[:] = [strip]


def _say(count: int) -> None:
    if count:
        print(f"flambeau run: {count} frame{'s' * (count != 1)} inside Flambeau left out; {VARIABLE}=full shows all", file=sys.stderr)


def strip(error: BaseException, seen: set[int] | None = None) -> int:
    """Takes our frames out of the tracebacks of an error and of those that it came from; gives how many, those before the script's first line not
    counted.  An error that met no line of the script keeps all of its frames, unless it tells its place itself (SyntaxError) or another came from it:
    then it has none, and where that other one tells its words, it is not shown at all."""
    seen = set() if seen is None else seen
    if id(error) in seen:
        return 0
    seen.add(id(error))
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    kept = [t for t in frames if not _ours(t.tb_frame)]
    count = 0
    if kept:
        count = len(frames) - len(kept) - frames.index(kept[0])
        chain = None
        for t in reversed(kept):
            chain = types.TracebackType(chain, t.tb_frame, t.tb_lasti, t.tb_lineno)
        error.__traceback__ = chain
    elif isinstance(error, SyntaxError):
        error.__traceback__ = None
    for name in ("__cause__", "__context__"):
        other = getattr(error, name)
        if other is None or id(other) in seen:
            continue
        inner = list(traceback.walk_tb(other.__traceback__))
        if not inner or not all(_ours(frame) for frame, _ in inner):
            count += strip(other, seen)
            continue
        count += len(inner) + strip(other.with_traceback(None), seen)
        if str(other) in str(error):
            setattr(error, name, None)
    for other in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        count += strip(other, seen)
    return count


def _ours(frame: types.FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    if frame.f_code in _around or frame.f_code.co_filename.startswith((*_STARTERS, "<operation")):
        return True
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    return name == _PACKAGE or name.startswith(_PACKAGE + ".") or (name == "__main__" and frame.f_code.co_filename.startswith(here))

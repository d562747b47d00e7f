"""Where tensors came from: behind a switch, each tensor remembers the source line that made or moved it."""

from __future__ import annotations

import sys
from typing import Any

_on = False
_package = __name__.rsplit(".", 2)[0]


class provenance:
    """Turns the memory of source lines on or off: a call, or a `with` block that puts it back.

    While it is on every tensor made by an operation or a factory remembers the user's line, and errors about tensors on
    different devices name it.  While it is off nothing is done.
    """

    def __init__(self, mode: bool = True) -> None:
        self._before = _on
        _set(bool(mode))

    def __enter__(self) -> provenance:
        return self

    def __exit__(self, *exc: object) -> None:
        _set(self._before)


def _set(mode: bool) -> None:
    global _on
    changed = mode is not _on
    _on = mode
    if changed:
        from . import door
        door.changed()


def enabled() -> bool:
    """Whether lines are being remembered."""
    return _on


def of(t: Any) -> str | None:
    """The line a tensor came from, as `file:line`, when it was remembered."""
    found: str | None = getattr(t, "__dict__", {}).get("_provenance")
    return found


def caller() -> str | None:
    """The innermost line outside this package, as `file:line`."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != _package and not name.startswith(_package + "."):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def note(t: Any) -> None:
    """Remembers the caller's line for a tensor, when the switch is on."""
    if _on:
        line = caller()
        if line is not None:
            t.__dict__["_provenance"] = line
